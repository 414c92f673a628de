//! Fails the call of an agent that has used its last turn without ending the call.

use super::{Core, Step};
use crate::envelope::{RefusalRule, Spent, Turn};
use crate::ids::CallId;
use crate::model::StopReason;
use crate::system::ErrorCode;
use crate::xml::element::Element;

impl Core {
    /// Fails a call whose agent can take no further turn, and has not ended the call with its last
    /// turn. `refused` is the rule that refused the last refused payload of this turn; `None` if
    /// there is no such payload. Payloads that were refused because no turn is left, or because a
    /// budget is used up, do not count. `incomplete` is the text for an incomplete answer whose
    /// actions, if any, are all malformed; `None` for any other answer.
    pub(super) fn iterations_spent(
        &mut self,
        step: &mut Step,
        call: CallId,
        spent: Spent,
        (refused, incomplete): (Option<RefusalRule>, Option<&'static str>),
    ) {
        if let Some(text) = incomplete.filter(|_| spent != Spent::WindowFull) {
            return self.fail(step, call, ErrorCode::IterationsSpent, text);
        }

        if let (Spent::AfterLastCall, Some(rule)) = (spent, refused) {
            let text = format!("the last turn is used up, and its payload was refused: {rule}");
            return self.fail(step, call, ErrorCode::IterationsSpent, &text);
        }

        let (code, text) = match spent {
            Spent::NeverValid => {
                let text = "no turn held a valid action, and the last one is used up";
                (ErrorCode::IterationsSpent, text)
            }
            Spent::AfterLastCall => {
                let text = "the last turn is used up after a call, without a final answer";
                (ErrorCode::IterationsSpent, text)
            }
            Spent::EndedInText => {
                let text = "the last turn is used up, and it was text without an action; if such \
                    text is to be the answer, set final_by = \"text\" for the agent in the config";
                (ErrorCode::IterationsSpent, text)
            }
            Spent::WindowFull => {
                let text = "the model's context window is full, and the turn that was to be the \
                    last did not end the task";
                (ErrorCode::BudgetSpent, text)
            }
        };

        self.fail(step, call, code, text);
    }
}

/// Returns the text of the fault for a last turn without a well-formed action, if its answer is
/// incomplete for a reason that more turns do not remove. `None` if the note of the turn states no
/// such reason.
pub(super) fn incomplete_answer(turn: &Turn) -> Option<&'static str> {
    let note = Element::head(&turn.note)?;
    match StopReason::parse(note.attribute("stop")?)? {
        StopReason::Length => Some(
            "the last turn is used up, and its answer was cut before an action, at its maximum \
             length or because the context window was full; raise max_tokens of the model in the \
             config, or ask for less at once",
        ),
        StopReason::Refused => Some("the last turn is used up, and the model refused to answer"),
        StopReason::Normal | StopReason::Calls | StopReason::Unknown => None,
    }
}
