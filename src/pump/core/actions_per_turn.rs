//! Limits the actions of one turn of an agent. A refusal does not affect the other actions of the
//! turn.
//!
//! - Each action beyond `max_actions_per_turn` is refused.
//! - A final payload ends the call. So in a turn with a final payload, each further final payload
//!   and each call is refused. Exception: beside its reply, a workflow run may send the payload
//!   that records the definition of the run.

use super::outcome::{Gated, is_reply};
use crate::contract::{Meaning, run_definition_name};
use crate::envelope::{RefusalRule, Spent};
use crate::pump::gate::Checked;

pub(super) const CALL_BESIDE_REPLY: &str =
    "an outcome that replies may not call: reply first, or call first";

const SECOND_FINAL: &str =
    "this turn already has its final, which is the one result of the task; this one is not given";

/// Checks the actions of one turn, in order. Refuses actions beyond the maximum number. If the turn
/// contains a final payload, also refuses all other final payloads and the calls in the turn.
pub(super) struct TurnActions {
    room: u32,
    has_final: bool,
    spent: Option<Spent>,
    taken: u32,
    /// Whether a final payload of the turn was accepted.
    has_accepted_final: bool,
}

pub(super) enum PlannedAction {
    Note,
    Act,
    /// The definition that a run of a workflow records beside its reply. The definition needs no
    /// budget, because the reply needs none.
    RecordDefinition,
    Final,
    Refuse(RefusalRule, String),
}

impl TurnActions {
    pub fn new(room: u32, spent: Option<Spent>, payloads: &[Gated]) -> Self {
        let is_action = |checked: &&Checked| *checked.meaning() != Meaning::Note;
        let actions = payloads.iter().flatten().filter(is_action);
        let has_final = actions.take(room as usize).any(is_reply);
        Self { room, has_final, spent, taken: 0, has_accepted_final: false }
    }

    pub fn verdict(&mut self, checked: &Checked) -> PlannedAction {
        if *checked.meaning() == Meaning::Note {
            return PlannedAction::Note;
        }

        self.taken += 1;
        if self.taken > self.room {
            PlannedAction::Refuse(RefusalRule::ExcessAction, excess(self.room))
        } else if is_reply(checked) && self.has_accepted_final {
            PlannedAction::Refuse(RefusalRule::ExcessAction, SECOND_FINAL.to_owned())
        } else if is_reply(checked) {
            self.has_accepted_final = true;
            PlannedAction::Final
        } else if self.has_final && *checked.name() == run_definition_name() {
            PlannedAction::RecordDefinition
        } else if self.has_final {
            PlannedAction::Refuse(RefusalRule::CallBesideReply, CALL_BESIDE_REPLY.to_owned())
        } else if self.spent.is_some() && !forwards(checked) {
            let text = "this was the last turn: only a final counts";
            PlannedAction::Refuse(RefusalRule::BudgetSpent, text.to_owned())
        } else {
            PlannedAction::Act
        }
    }
}

/// Whether the payload is a call whose result becomes the result of the agent's own call. Such a
/// payload ends the agent's work, as a final payload does.
fn forwards(checked: &Checked) -> bool {
    matches!(checked.meaning(), Meaning::Call { forward: true, .. })
}

/// Returns the text of the refusal of an action beyond `allowed` actions.
fn excess(allowed: u32) -> String {
    let allowed = match allowed {
        0 | 1 => "exactly one action".to_owned(),
        several => format!("at most {several} actions"),
    };
    format!("one turn may hold {allowed}; write this one in a later turn")
}
