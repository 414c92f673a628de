//! Trials: forks whose source is in another journal. They try a config on a recorded thread. In a
//! trial, no person decides on a call.
//!
//! A call that would be held for a person ends as `not-recorded` instead. A call to an agent also
//! ends as `not-recorded` if the agent needs a model answer that is not recorded, and the trial may
//! not call the model.

use super::{Core, Step};
use crate::contract::Role;
use crate::envelope::{AttemptFailure, Disposition};
use crate::ids::CallId;
use crate::system::ErrorCode;
use crate::thread::Call;

/// Failure reason of a model call for which no recorded answer exists.
const MODEL_REASON: &str = "not-recorded";

impl Core {
    /// Whether a call belongs to a trial.
    pub(super) fn is_trial(&self, call: &Call) -> bool {
        let tree = self.state.tree(&call.thread);
        let lineage = tree.and_then(|tree| tree.lineage.as_deref());
        lineage.is_some_and(|lineage| lineage.source.journal.is_some())
    }

    /// Ends a held call of a trial as `not-recorded`, because no person decides on calls of a
    /// trial.
    pub(super) fn end_not_recorded(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let listener = &open.callee;
        let role = self.contracts.get(listener).map(|contract| contract.role);
        let is_recalled = matches!(role, Some(Role::Listener | Role::Human));
        let text = if is_recalled && self.is_unrecorded(open) {
            format!("the record has no result for this call of {listener}")
        } else {
            format!("this call of {listener} needs a decision, and no person decides in a trial")
        };
        self.fail_for_good(step, call, ErrorCode::NotRecorded, &text, Disposition::Expired);
    }

    /// Whether a call of a trial failed because no recorded answer exists for its model call.
    pub(super) fn is_turn_not_recorded(&self, call: CallId, failure: &AttemptFailure) -> bool {
        let AttemptFailure::Model { reason, .. } = failure else { return false };
        reason == MODEL_REASON && self.state.call(call).is_some_and(|open| self.is_trial(open))
    }
}
