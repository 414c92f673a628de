//! Reasons why no fork can begin at a message.

use crate::ids::ListenerName;

/// A reason why a fork cannot begin at the requested message, which is the message for which a fork
/// point is searched. The fork then begins before this message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkObstacle {
    /// The requested message belongs to a turn inside a call to the listener in this variant. A
    /// fork does not repeat the work inside this call, and answers the call with the recorded
    /// result.
    AnsweredCall(ListenerName),
    /// An operator's retry sent the requested message to one listener alone, the listener in this
    /// variant. A fork would send the message to every peer of the sender that accepts it.
    Retry(ListenerName),
    /// The requested message is an operator's edit of the turn at which a recorded fork began. A
    /// new fork would take the original turn, without the edit.
    EditedTurn,
    /// The requested message belongs to a turn whose note is redacted. A fork needs the note to
    /// take the turn again.
    RedactedTurn,
    /// The requested message belongs to a turn at which a call was open that has a redacted
    /// message. A fork cannot open this call again.
    RedactedWork,
}

impl std::fmt::Display for ForkObstacle {
    /// Writes the reason as the end of a sentence whose subject is the requested message.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AnsweredCall(listener) => write!(
                f,
                "is beneath a call of {listener}, which a fork answers from the record as a whole"
            ),
            Self::Retry(listener) => {
                write!(f, "went to {listener} alone, by an operator's retry, which no fork repeats")
            }
            Self::EditedTurn => {
                f.write_str("is an operator's edit of a turn, which a fork takes without the edit")
            }
            Self::RedactedTurn => f.write_str(
                "is in the record of a turn that was redacted, which no fork can repeat",
            ),
            Self::RedactedWork => f.write_str(
                "belongs to a turn at which a call was open that has a redacted message, which no \
                 fork can open again",
            ),
        }
    }
}
