//! Stalled calls: calls that are ready for their listener, but are not handed over because a pause
//! covers them or the listener is absent.

use super::Core;
use crate::clock::Time;
use crate::ids::ThreadId;
use crate::thread::{Call, Pause, PauseTarget};

/// The reason why a ready call is not handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StallReason {
    /// The contained pause covers the call.
    Paused(PauseTarget),
    /// No process of the listener takes calls. The call fails at the time `until`.
    Absent { until: Time },
}

impl Core {
    /// Returns the ready calls in the tree of `thread` that are not handed over at `now`, oldest
    /// first.
    pub fn stalled_calls(&self, thread: &ThreadId, now: Time) -> Vec<(&Call, StallReason)> {
        // Pauses of other trees are left out once, and not for each call.
        let root = thread.root();
        let is_near = |pause: &&Pause| match &pause.target {
            PauseTarget::Thread(paused) => paused.root() == root,
            PauseTarget::All | PauseTarget::Listener(_) => true,
        };
        let pauses: Vec<&Pause> = self.state.pauses.iter().filter(is_near).collect();
        let calls = self.state.tree(thread).into_iter().flat_map(|tree| tree.open_calls());
        let waiting = calls.filter(|call| self.scheduler.is_waiting(call.id));
        let stalled = waiting.filter_map(|call| {
            let covers = |pause: &&&Pause| pause.target.covers(&call.thread, &call.callee);
            let reason = match pauses.iter().find(covers) {
                Some(pause) => StallReason::Paused(pause.target.clone()),
                None => {
                    let (until, _) = self.scheduler.absences.due(&call.callee, call.id, now)?;
                    StallReason::Absent { until }
                }
            };
            Some((call, reason))
        });
        let mut stalled: Vec<_> = stalled.collect();
        stalled.sort_by_key(|(call, _)| call.id);
        stalled
    }
}
