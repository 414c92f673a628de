//! Messages that were not delivered before their call closed. Each of these messages gets a
//! disposition. The sender of such a message gets nothing back, so an undelivered fault causes no
//! further fault.

use std::sync::Arc;

use super::close::ClosingCall;
use super::{Core, Step};
use crate::envelope::{Disposition, Message, MessageKind};
use crate::mutant::mutant;
use crate::system::{CorePayload, ErrorCode};
use crate::thread::Closing;

impl Core {
    /// Records the disposition of each undelivered message of a closed call.
    pub(super) fn end_undelivered(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        messages: &[Arc<Message>],
        how: Closing,
        undelivered: Disposition,
    ) {
        for message in messages {
            let is_request = message.id == closed.id.0;
            let disposition = match how {
                Closing::Failed if is_request && undelivered == Disposition::Late => {
                    Disposition::Failed
                }
                _ => undelivered,
            };
            if self.is_in_flight(message) {
                self.dispose(step, message.id, disposition);
            }
            if message.kind == MessageKind::System && mutant("answer-a-fault") {
                let answer =
                    CorePayload::error(ErrorCode::ListenerFailed, "no listener received this");
                self.system_note(step, &closed.thread, &closed.callee, &answer);
            }
        }
    }

    fn is_in_flight(&self, message: &Message) -> bool {
        let tree = self.state.tree(&message.thread);
        tree.is_some_and(|tree| tree.in_flight.contains_key(&message.id))
    }
}
