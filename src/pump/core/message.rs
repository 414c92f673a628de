//! Messages that are not recorded yet. The step stamps them: it adds a time, the number `seq` of
//! the message in its thread, and an id if the message has none.

use super::Step;
use crate::envelope::{Message, MessageKind, Payload};
use crate::ids::{CallId, ListenerName, MessageId, PayloadName, ThreadId};
use crate::pump::gate::Checked;
use crate::system::CorePayload;
use crate::thread::Opening;

/// A message that has no `seq` and no time yet, and usually no id. The step adds the missing values
/// when it stamps the message.
pub(super) struct NewMessage {
    kind: MessageKind,
    from: ListenerName,
    to: ListenerName,
    pub thread: ThreadId,
    cause: Option<MessageId>,
    call: Option<CallId>,
    name: PayloadName,
    payload: Payload,
    /// Id of the message, if it has one already; `None` if the step must generate the id.
    id: Option<MessageId>,
    opening: Option<Opening>,
    key: Option<String>,
}

impl NewMessage {
    pub fn new(
        kind: MessageKind,
        from: &ListenerName,
        to: &ListenerName,
        thread: &ThreadId,
        (name, payload): (&PayloadName, &Payload),
    ) -> Self {
        Self {
            kind,
            from: from.clone(),
            to: to.clone(),
            thread: thread.clone(),
            cause: None,
            call: None,
            name: name.clone(),
            payload: payload.clone(),
            id: None,
            opening: None,
            key: None,
        }
    }

    /// Returns a message with a payload that passed the gate.
    pub fn checked(
        kind: MessageKind,
        from: &ListenerName,
        to: &ListenerName,
        thread: &ThreadId,
        checked: &Checked,
    ) -> Self {
        Self::new(kind, from, to, thread, (checked.name(), checked.payload()))
    }

    /// Creates a message from the core to the listener `to`. Its payload is `answer`, which only
    /// the core may write.
    pub fn system(to: &ListenerName, thread: &ThreadId, answer: &CorePayload) -> Self {
        let payload = (&answer.name(), &answer.payload());
        Self::new(MessageKind::System, &ListenerName::core(), to, thread, payload)
    }

    pub fn caused_by(self, cause: impl Into<Option<MessageId>>) -> Self {
        Self { cause: cause.into(), ..self }
    }

    pub fn in_call(self, call: impl Into<Option<CallId>>) -> Self {
        Self { call: call.into(), ..self }
    }

    /// Turns the message into the request of a new call. The call gets the id of the message.
    pub fn opening(self, opening: Opening) -> Self {
        Self { opening: Some(opening), ..self }
    }

    pub fn with_id(self, id: impl Into<Option<MessageId>>) -> Self {
        Self { id: id.into(), ..self }
    }

    /// Sets the client key of the submission. If the client later sends a submission with the same
    /// key, the pump starts nothing, and repeats the receipt.
    pub fn with_key(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }

    /// Returns this message with an id, a time and the sequence number `seq`. Also returns the
    /// opening of the call that the message opens, and the client key of the message, if any.
    pub fn stamped(self, step: &mut Step, seq: u64) -> (Message, Option<Opening>, Option<String>) {
        let id = self.id.unwrap_or_else(|| MessageId(step.next_id()));
        let call = match self.opening {
            Some(_) => Some(CallId(id)),
            None => self.call,
        };

        let Self { kind, from, to, thread, cause, name, payload, opening, key, .. } = self;
        let time = step.time;
        let message = Message { id, kind, from, to, thread, seq, cause, call, time, name, payload };
        (message, opening, key)
    }
}
