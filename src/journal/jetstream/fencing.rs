//! Fencing of a pump after another pump has taken over: the server refuses further messages of the
//! older pump. In a header of each message, `StreamPublisher::put_after` names the message that is
//! the last one of the stream, as far as the sending pump knows. If the stream has a later message,
//! such as one of the newer pump, the server refuses the message. The older pump stops when it
//! finds a message with a newer epoch in the stream.

use crate::journal::Error;

use super::api::{StoredMessage, code};
use super::commit_codec::epoch_of;
use super::publish::StreamPublisher;

impl StreamPublisher {
    /// Verifies that no other pump has written to the stream after the last message that this pump
    /// knows. If none has, no other pump leads: a new pump first writes a message with its epoch,
    /// and only then delivers calls to listeners.
    pub fn verify_lead(&self) -> Result<(), Error> {
        let mut next = self.last() + 1;
        loop {
            match self.api.message(&self.stream, next) {
                // This may be our own checkpoint whose acknowledgement was lost.
                Ok(found) if epoch_of(&found.body) == Some(self.epoch) => next += 1,
                Ok(found) => return Err(self.fenced(&found)),
                Err(failed) if failed.is(code::NO_MESSAGE) => return Ok(()),
                Err(failed) => return Err(super::unavailable("asking who leads", &failed)),
            }
        }
    }

    /// Returns the error for a pump that finds a message of another writer: `found` is in the
    /// stream at the sequence number that this pump wanted for its own next message.
    pub(super) fn fenced(&self, found: &StoredMessage) -> Error {
        match epoch_of(&found.body).unwrap_or_default() {
            theirs if theirs == self.epoch => {
                let cause = format!("message {} of the stream is another one of ours", found.seq);
                Error::Stopped { cause }
            }
            theirs => Error::Fenced { ours: self.epoch, theirs },
        }
    }
}
