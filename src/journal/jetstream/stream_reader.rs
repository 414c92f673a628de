//! Reads a stream one group of journal entries at a time, starting after a given message.

use std::time::Instant;

use crate::ids::Digest;
use crate::journal::Error;
use crate::journal::log::LogMark;
use crate::limits;

use super::api::{ApiFailure, JetStreamApi, code};
use super::commit_codec::{CommitAssembler, CommitContents, unknown_version};
use super::{Options, read_failed};

/// A complete group of journal entries, assembled from the messages of a stream. The entries of a
/// group become durable together. `mark` is the position of the group's last message.
pub struct StreamGroup {
    pub mark: LogMark,
    bytes: Vec<u8>,
}

/// Reader of the stream that `options` names.
pub struct StreamReader<'r> {
    pub api: &'r JetStreamApi,
    pub options: &'r Options,
    /// Makes the error for a message that cannot be decoded, or whose records are out of order. The
    /// arguments are the options, the number of the message and a description of the damage.
    pub damaged: fn(&Options, u64, &str) -> Error,
}

impl<'r> StreamReader<'r> {
    pub fn new(api: &'r JetStreamApi, options: &'r Options) -> Self {
        Self { api, options, damaged }
    }

    /// Reads the groups after message `after`, up to message `last`, in batches. Skips incomplete
    /// groups, which a pump leaves if it dies while it writes a group.
    pub fn read_after(
        &self,
        after: u64,
        last: u64,
        visit: &mut dyn FnMut(&[StreamGroup]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let name = self.options.stream();
        let ahead = ahead(self.api);
        let mut assembly = CommitAssembler::default();
        let mut next = after + 1;

        while next <= last {
            let end = last.min(next + ahead - 1);
            let stored = patiently(|| self.api.messages(&name, next..=end));
            let stored = stored.map_err(|f| read_failed(&format!("the stream {name}"), f))?;

            let mut groups = Vec::new();
            for message in stored {
                check_version(self.options, message.seq, &message.body)?;
                let whole = assembly.take(&message.body);
                let whole = whole.map_err(|detail| self.damage(message.seq, &detail))?;
                groups.extend(whole.map(|bytes| {
                    let mark = LogMark { seq: message.seq, digest: Digest::of(&message.body) };
                    StreamGroup { mark, bytes }
                }));
            }

            visit(&groups)?;
            next = end + 1;
        }

        Ok(())
    }

    /// Reads all groups up to message `last`, one at a time.
    pub fn each_group(
        &self,
        last: u64,
        visit: &mut dyn FnMut(LogMark, CommitContents<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.read_after(0, last, &mut |groups| {
            groups.iter().try_for_each(|group| visit(group.mark, self.contents(group)?))
        })
    }

    pub fn contents<'g>(&self, group: &'g StreamGroup) -> Result<CommitContents<'g>, Error> {
        CommitContents::read(&group.bytes).map_err(|detail| self.damage(group.mark.seq, &detail))
    }

    /// Makes the error that reports damage of message `seq` of the stream. `detail` describes the
    /// damage.
    pub fn damage(&self, seq: u64, detail: &str) -> Error {
        (self.damaged)(self.options, seq, detail)
    }
}

/// Returns an error if a message of the stream has an encoding that this program does not read,
/// such as the encoding of a later version.
pub(super) fn check_version(options: &Options, seq: u64, message: &[u8]) -> Result<(), Error> {
    match unknown_version(message) {
        None => Ok(()),
        Some(version) => Err(Error::StreamVersion { stream: options.stream(), seq, version }),
    }
}

pub(super) fn damaged(options: &Options, seq: u64, detail: &str) -> Error {
    let stream = options.stream();
    let text = format!(
        "message {seq} of the stream {stream}: {detail}; no pump of this organism wrote it, or it \
         was changed: restore the servers' store, or delete the stream and publish it again from a \
         host's projection with `organism repair` (docs/OPERATIONS.md, Repair)"
    );
    Error::broken(0, text)
}

/// Sends a request, and repeats it for a limited time if a message or the stream is not found.
/// During an election in a cluster, a stream may look shorter than it is, or may not be found.
pub(super) fn patiently<T>(
    mut request: impl FnMut() -> Result<T, ApiFailure>,
) -> Result<T, ApiFailure> {
    let begun = Instant::now();
    loop {
        match request() {
            Err(failed)
                if (failed.is(code::NO_MESSAGE) || failed.is(code::STREAM_NOT_FOUND))
                    && begun.elapsed() < limits::STREAM_GONE_AFTER => {}
            other => return other,
        }
        std::thread::sleep(limits::STREAM_RETRY_INTERVAL);
    }
}

/// Returns the number of messages to request at once, such that all of them together fit into the
/// buffer of a connection.
fn ahead(api: &JetStreamApi) -> u64 {
    ahead_of(u64::try_from(api.link.max_payload()).unwrap_or(u64::MAX))
}

/// Returns the number of messages to request at once if each message has at most `largest` bytes.
/// The number is at least 1. A larger number is chosen only if all of these messages together fit
/// into the buffer of a connection.
fn ahead_of(largest: u64) -> u64 {
    (limits::STREAM_READ_BYTES / largest.max(1)).clamp(1, limits::STREAM_READ_AHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_requested_at_once_is_bounded_in_bytes_too() {
        for (largest, messages) in
            [(0, 32), (1 << 10, 32), (1 << 20, 16), (8 << 20, 2), (64 << 20, 1)]
        {
            assert_eq!(ahead_of(largest), messages, "{largest}");
            assert!(messages == 1 || messages * largest <= limits::STREAM_READ_BYTES);
        }
    }
}
