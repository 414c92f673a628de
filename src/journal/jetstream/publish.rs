//! Appends a group of journal entries to the stream: durably, exactly once, and only if no other
//! pump wrote meanwhile.
//!
//! Every message contains the expected sequence number of the stream's last message, so the server
//! can store the message only at the next number. A retry contains the same expected number, so the
//! stream never stores a message twice. If the server does not answer, or reports that the next
//! number is taken, the publisher reads the message with this number. If it is the publisher's own
//! message, the append has succeeded. If it is another message, another pump has written to the
//! stream, and this pump must stop.
//!
//! Each message also has an id, by which servers recognise duplicates. The id consists of the
//! sequence number of the previous message, a digest of the new message and, for a retry, the
//! number of the retry. A retry needs another id, because a failed server may have passed the first
//! id, but not the message, to its successor. The successor then refuses the first id for two
//! minutes as a duplicate.
//!
//! During an election in a cluster, servers do not answer and publishes are lost. So after a
//! request without an answer, the publisher sends small requests until a server answers one of
//! them. Only then does it publish the group again.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::failpoint::failpoint;
use crate::ids::Digest;
use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;
use crate::nats::NoResponse;

use super::Options;
use super::api::{ApiFailure, JetStreamApi, code};
use super::commit_codec::CommitEncoder;

const ID: &str = "Nats-Msg-Id";

#[derive(Debug)]
pub struct StreamPublisher {
    pub(super) api: JetStreamApi,
    pub(super) stream: String,
    subject: String,
    /// Number of the last message that is known to be in the stream. The writer sets the number
    /// once a group is durable. The stream's monitor compares the number with the end of the
    /// stream.
    last: Arc<AtomicU64>,
    pub epoch: u32,
    /// Whether the last request to the server had no response.
    silence: Cell<bool>,
    /// The place of the latest attempt to append a message, and the number of retries at this
    /// place. The place is stated as the number of the message directly before it.
    retries: Cell<(u64, u32)>,
}

/// Which message the stream has in the place where this pump tried to append its own message.
enum ExistingMessage {
    /// The message of this pump: it was stored, although its acknowledgement did not arrive.
    Ours,
    /// No message yet.
    Nothing,
    /// Unknown, because no server answered.
    Unknown,
}

impl StreamPublisher {
    pub fn new(api: &JetStreamApi, options: &Options, last: Arc<AtomicU64>) -> Self {
        let stream = options.stream();
        let subject = options.subject();
        Self {
            api: api.clone(),
            stream,
            subject,
            last,
            epoch: 0,
            silence: Cell::default(),
            retries: Cell::default(),
        }
    }

    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Appends a whole group after the last known message. Returns the number and the digest of the
    /// group's last message. The caller must then pass the number to [`StreamPublisher::put`].
    /// Until then, the caller may publish the same group again, and the stream still stores it only
    /// once.
    pub fn publish(&self, group: &CommitEncoder) -> Result<(u64, Digest), Error> {
        let most = self.api.link.max_payload().saturating_sub(limits::STREAM_HEADER_BYTES);
        let mut after = self.last();
        let mut digest = Digest::ZERO;
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
        // The id contains the position, because the same bytes may follow other messages as the end
        // of another group.
        let id = format!("{after}-{digest}");
        if self.silence.get() {
            match self.look(after, &id)? {
                ExistingMessage::Ours => return Ok(()),
                ExistingMessage::Unknown => {
                    return Err(unavailable("no server answers for the stream"));
                }
                ExistingMessage::Nothing => {}
            }
        }

        let mut again = true;
        loop {
            let failed = match self.put_after(after, &id, message.clone()) {
                Ok(seq) if seq == after + 1 || mutant("no-fence") => return Ok(()),
                Ok(seq) => return Err(self.wrong_position(seq, after + 1)),
                Err(failed) if failed.is_full() => {
                    let stream = &self.stream;
                    let server = self.api.link.server();
                    let detail = format!("no room for the stream {stream} at {server}: {failed}");
                    return Err(Error::Full { detail });
                }
                Err(ApiFailure::NoResponse(NoResponse::Denied(denied))) => {
                    return Err(Error::Denied(denied));
                }
                Err(failed) => failed,
            };
            if !failed.is(code::WRONG_LAST_SEQUENCE) {
                let stream = &self.stream;
                tracing::warn!(
                    stream,
                    after,
                    "the server did not acknowledge a commit; checking whether it was stored: \
                     {failed}"
                );
            }
            match self.look(after, &id)? {
                ExistingMessage::Ours => return Ok(()),
                // The earlier attempt may still arrive. The server then stores only one of the two.
                ExistingMessage::Nothing if again => again = false,
                // If the stream lost an acknowledged message, the stream monitor finds it.
                ExistingMessage::Nothing | ExistingMessage::Unknown => {
                    return Err(unavailable(failed));
                }
            }
        }
    }

    /// Publishes a message directly after message `after`, and returns the number of the new
    /// message. Each retry uses a new message id, because a server may refuse a known id as a
    /// duplicate, even if it does not have the message.
    fn put_after(&self, after: u64, id: &str, message: Vec<u8>) -> Result<u64, ApiFailure> {
        let retries = match self.retries.get() {
            (last_after, retries) if last_after == after => retries + 1,
            _ => 0,
        };
        self.retries.set((after, retries));

        let message_id = match retries {
            0 => id.to_owned(),
            _ => format!("{id}.{retries}"),
        };

        let expected = if mutant("no-fence") { String::new() } else { after.to_string() };
        let mut headers = vec![(ID, message_id.as_str()), ("Nats-Expected-Stream", &self.stream)];
        headers.push(("Nats-Expected-Last-Sequence", &expected));
        headers.retain(|(_, value)| !value.is_empty());
        self.api.publish(&self.subject, &headers, message)
    }

    /// Returns the error for an acknowledgement with a wrong sequence number: `at` in place of
    /// `meant`. Older servers send such an acknowledgement for a message with a duplicate id. The
    /// acknowledgement then states the number of the earlier message with this id.
    fn wrong_position(&self, at: u64, meant: u64) -> Error {
        let stream = &self.stream;
        let detail = format!(
            "the server reports message {at} of stream {stream} as the message that was published \
             at {meant}"
        );
        Error::broken(0, detail)
    }

    /// Reads the message that follows message `after`. Repeats the request until a server answers.
    /// Gives up after [`limits::STREAM_TIMEOUT`], or when the connection is lost, so that the
    /// callers of the pump do not wait long for an error.
    fn look(&self, after: u64, id: &str) -> Result<ExistingMessage, Error> {
        let until = Instant::now() + limits::STREAM_TIMEOUT;
        self.silence.set(true);
        while self.api.link.is_connected() && Instant::now() < until {
            match self.api.message_within(limits::STREAM_PROBE, &self.stream, after + 1) {
                Ok(found) => {
                    self.silence.set(false);
                    let theirs = found.header(ID).unwrap_or_default();
                    let is_ours = theirs.split('.').next() == Some(id);
                    if !is_ours {
                        return Err(self.fenced(&found));
                    }
                    tracing::info!(
                        stream = self.stream,
                        seq = found.seq,
                        "the commit was stored, although its acknowledgement was lost"
                    );
                    return Ok(ExistingMessage::Ours);
                }
                Err(failed) if failed.is(code::NO_MESSAGE) => {
                    self.silence.set(false);
                    return Ok(ExistingMessage::Nothing);
                }
                Err(ApiFailure::NoResponse(NoResponse::Denied(denied))) => {
                    return Err(Error::Denied(denied));
                }
                // Some servers refuse at once.
                Err(_) => std::thread::sleep(limits::STREAM_RETRY_INTERVAL),
            }
        }

        Ok(ExistingMessage::Unknown)
    }
}

fn unavailable(why: impl ToString) -> Error {
    Error::Unavailable { detail: why.to_string() }
}

/// Returns the description of a stream that has lost messages: it ends at message `last`, although
/// messages up to `known` were acknowledged.
pub fn lost(stream: &str, known: u64, last: u64) -> String {
    format!(
        "the stream {stream} ends at message {last}, but messages up to {known} were acknowledged: \
         the server lost {}",
        known - last
    )
}
