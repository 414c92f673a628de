//! Rules for the values that the text of a record leaves out because other parts of the record
//! imply them. The writer of the text and its parsers use the same rules.

use crate::envelope::{Disposition, MessageKind, Money};
use crate::ids::{Attempt, CallId, ListenerName, MessageId};
use crate::thread::Input;

/// Returns the disposition of a `disposed` fact whose text states none. The disposition is the way
/// in which a message ended. `latest` is the last message before the fact in the same record, if
/// any.
pub(super) fn implied_disposition(latest: Option<MessageId>) -> Disposition {
    if latest.is_some() { Disposition::Recorded } else { Disposition::Handled }
}

/// Whether a message of the kind `kind` comes from the core if its text states no sender. If false,
/// the message comes from the listener of the record's input.
pub(super) fn is_by_core(kind: MessageKind) -> bool {
    matches!(kind, MessageKind::Note | MessageKind::System)
}

/// Returns the call of a message whose text states no call:
/// - For a `call` message, the call that it opens.
/// - For a note whose sender is implied, the call that the note's `cause` opened.
/// - For any other message, `None`.
pub(super) fn implied_call(
    id: MessageId,
    kind: MessageKind,
    cause: Option<MessageId>,
    is_sender_implied: bool,
) -> Option<CallId> {
    match kind {
        MessageKind::Call => Some(CallId(id)),
        MessageKind::Note if is_sender_implied => cause.map(CallId),
        _ => None,
    }
}

/// Values of a record's input that the texts of the record's facts may leave out. The input must be
/// an outcome, that is, the payloads that a listener returned for a call.
pub(super) struct AboutOutcome {
    pub(super) call: CallId,
    pub(super) attempt: Attempt,
    pub(super) listener: ListenerName,
    /// Prompt tokens, answer tokens and price of the turn; `None` if the outcome has no turn.
    pub(super) spending: Option<(u64, u64, Money)>,
}

impl AboutOutcome {
    pub(super) fn of(input: &Input) -> Option<Self> {
        let Input::Outcome { listener, call, attempt, turn, .. } = input else { return None };
        let listener = listener.clone();
        let spending = turn.as_ref().map(|turn| (turn.tokens_in, turn.tokens_out, turn.money));
        Some(Self { call: *call, attempt: *attempt, listener, spending })
    }

    /// Whether `kind` and the input imply the sender `from`, so that the text of a message need not
    /// state the sender.
    pub(super) fn is_sender(&self, kind: MessageKind, from: &ListenerName) -> bool {
        if is_by_core(kind) { from.is_core() } else { *from == self.listener }
    }

    /// Whether the outcome belongs to the call `call` and comes from `agent`.
    pub(super) fn is_by(&self, call: CallId, agent: Option<&ListenerName>) -> bool {
        self.call == call && Some(&self.listener) == agent
    }
}
