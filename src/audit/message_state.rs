//! Names the states of messages. The web view and the command line take the names from this module.

use crate::envelope::Disposition;
use crate::index::IndexedMessage;
use crate::thread::Hold;

/// State of a message. A message with a disposition has ended; for any other message, the state
/// shows where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageState {
    Settled(Disposition),
    /// The message is the request of a call that waits for a person.
    Held(Hold),
    /// The message has no disposition, and is in no delivery that waits for an answer.
    Queued,
    /// The message is in a delivery that was handed over to a listener and is not answered yet.
    InFlight,
    /// The message has no disposition. It is unknown whether the message is in a delivery, because
    /// the records of a tree do not show this; only the index does.
    Unsettled,
}

impl MessageState {
    /// Returns the state of a message. `is_handed_over` states whether the message is in a delivery
    /// that waits for an answer; `None` if this is unknown.
    pub const fn of(
        disposition: Option<Disposition>,
        hold: Option<Hold>,
        is_handed_over: Option<bool>,
    ) -> Self {
        match (disposition, hold, is_handed_over) {
            (Some(how), _, _) => Self::Settled(how),
            (None, Some(hold), _) => Self::Held(hold),
            (None, None, Some(true)) => Self::InFlight,
            (None, None, Some(false)) => Self::Queued,
            (None, None, None) => Self::Unsettled,
        }
    }

    pub const fn of_indexed(message: &IndexedMessage) -> Self {
        Self::of(message.disposition, message.hold, Some(message.is_handed_over))
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled(how) => how.as_str(),
            Self::Held(hold) => hold.state(),
            Self::Queued => "queued",
            Self::InFlight => "in flight",
            Self::Unsettled => "unsettled",
        }
    }

    /// Returns the word for a state that people should notice. Returns `None` for the usual states
    /// `handled` and `recorded`.
    pub const fn unusual(self) -> Option<&'static str> {
        match self {
            Self::Settled(Disposition::Handled | Disposition::Recorded) => None,
            state => Some(state.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_message_has_its_own_word() {
        let handled = Some(Disposition::Handled);
        let hold = Some(Hold::Approval);
        let cases = [
            (handled, None, Some(true), "handled"),
            (None, hold, Some(false), Hold::Approval.state()),
            (None, None, Some(true), "in flight"),
            (None, None, Some(false), "queued"),
            (None, None, None, "unsettled"),
        ];
        for (disposition, hold, is_handed_over, word) in cases {
            assert_eq!(MessageState::of(disposition, hold, is_handed_over).as_str(), word);
        }
        assert_eq!(MessageState::of(handled, None, None).unusual(), None);
    }
}
