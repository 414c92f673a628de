//! Putting a group into the stream: durable when this returns, put there once, and only where
//! nobody else wrote meanwhile.
//!
//! Every message says after which one it stands, and has an id made from what it holds. Where the
//! server says that another one stands there already, or says nothing, what does stand there is
//! read: ours, and it is as good as acknowledged; somebody else's, and this pump is fenced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failpoint::failpoint;
use crate::ids::Digest;
use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;
use crate::nats::Away;

use super::Options;
use super::api::{Api, Failed, Stored, code};
use super::group::{Group, epoch_of};

const ID: &str = "Nats-Msg-Id";

#[derive(Debug)]
pub struct Publisher {
    api: Api,
    stream: String,
    subject: String,
    /// The last message of the stream that is known to be there.
    last: Arc<AtomicU64>,
    pub epoch: u32,
}

impl Publisher {
    pub fn new(api: &Api, options: &Options, last: Arc<AtomicU64>) -> Self {
        let (stream, subject) = (options.stream(), options.subject());
        Self { api: api.clone(), stream, subject, last, epoch: 0 }
    }

    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Puts a whole group behind everything that is known, and returns the number of its last
    /// message with its digest. The group counts as put only once [`Publisher::put`] is told of that number: until
    /// then the same one may be published again, and is there once.
    pub fn publish(&self, group: &Group) -> Result<(u64, Digest), Error> {
        let most = self.api.link.max_payload().saturating_sub(limits::STREAM_HEADER_BYTES);
        let (mut after, mut digest) = (self.last(), Digest::ZERO);
        for message in group.messages(self.epoch, most) {
            failpoint("before-publish");
            digest = Digest::of(&message);
            self.message(after, digest, message)?;
            after += 1;
        }
        failpoint("after-publish");
        Ok((after, digest))
    }

    pub fn put(&self, last: u64) {
        self.last.store(last, Ordering::Release);
    }

    fn message(&self, after: u64, digest: Digest, message: Vec<u8>) -> Result<(), Error> {
        // The same bytes may follow other messages, as the end of another group.
        let id = format!("{after}-{digest}");
        let expected = if mutant("no-fence") { String::new() } else { after.to_string() };
        let mut headers = vec![(ID, id.as_str()), ("Nats-Expected-Stream", &self.stream)];
        headers.push(("Nats-Expected-Last-Sequence", &expected));
        headers.retain(|(_, value)| !value.is_empty());
        match self.api.publish(&self.subject, &headers, message) {
            Ok(seq) if seq == after + 1 || mutant("no-fence") => Ok(()),
            // An older server's answer to an id that it knows: where the first one went.
            Ok(seq) => Err(Error::broken(
                0,
                format!(
                    "the server says that message {} of stream {} is what was meant for {}",
                    seq,
                    self.stream,
                    after + 1
                ),
            )),
            Err(failed) if failed.is_full() => Err(Error::Full { detail: failed.to_string() }),
            Err(failed) => self.look(after, &id, &failed),
        }
    }

    /// Nothing was acknowledged: what stands where the message was to go?
    fn look(&self, after: u64, id: &str, failed: &Failed) -> Result<(), Error> {
        if let Failed::Away(Away::Denied(denied)) = failed {
            return Err(Error::Denied(denied.clone()));
        }
        if !failed.is(code::WRONG_LAST_SEQUENCE) {
            tracing::warn!(stream = self.stream, after, "a group was not acknowledged: {failed}");
        }
        if !self.api.link.is_connected() {
            // Whoever waits for the pump need not wait for another silence.
            return Err(Error::Away { detail: failed.to_string() });
        }
        match self.api.message(&self.stream, after + 1) {
            Ok(found) if found.header(ID) == Some(id) => {
                tracing::info!(stream = self.stream, seq = found.seq, "it had arrived");
                Ok(())
            }
            Ok(found) => Err(self.fenced(&found)),
            // It may still come; should the stream have lost what it acknowledged, the watch finds it.
            Err(_) => Err(Error::Away { detail: failed.to_string() }),
        }
    }

    fn fenced(&self, found: &Stored) -> Error {
        match epoch_of(&found.body).unwrap_or_default() {
            theirs if theirs == self.epoch => {
                let cause = format!("message {} of the stream is another one of ours", found.seq);
                Error::Stopped { cause }
            }
            theirs => Error::Fenced { ours: self.epoch, theirs },
        }
    }
}

/// A stream that ends before what it acknowledged.
pub fn lost(stream: &str, known: u64, last: u64) -> Error {
    let detail = format!(
        "the stream {stream} ends at message {last}, but messages up to {known} were acknowledged: \
         the server lost {}",
        known - last
    );
    Error::broken(0, detail)
}
