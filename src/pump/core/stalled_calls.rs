//! Calls that are ready for their listener and are not handed over: a pause covers them, or their
//! listener is absent.

use super::Core;
use crate::clock::Time;
use crate::ids::ThreadId;
use crate::thread::{Call, PauseTarget};

/// The reason why a ready call is not handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StallReason {
    /// This pause covers the call.
    Paused(PauseTarget),
    /// No process of the listener takes calls. The call fails at this time.
    Absent { until: Time },
}

impl Core {
    /// Returns the ready calls in the tree of `thread` that are not handed over at `now`.
    pub fn stalled_calls(
        &self,
        thread: &ThreadId,
        now: Time,
    ) -> impl Iterator<Item = (&Call, StallReason)> {
        let calls = self.state.tree(thread).into_iter().flat_map(|tree| tree.open_calls());
        calls.filter(|call| self.scheduler.is_waiting(call.id)).filter_map(move |call| {
            let pause = self.state.pauses.covering(&call.thread, &call.callee);
            let reason = match pause {
                Some(pause) => StallReason::Paused(pause.target.clone()),
                None => {
                    let until = self.scheduler.absences.due(&call.callee, call.id, now)?;
                    StallReason::Absent { until }
                }
            };
            Some((call, reason))
        })
    }
}
