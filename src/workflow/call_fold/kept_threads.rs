//! The threads that a run with an undo keeps open after its failure, because the undo waits for
//! calls in or beneath them.

use std::collections::HashSet;

use super::super::calls_beneath::calls_beneath;
use super::super::run_state::{GoalRun, RunStep};
use super::{CallFold, HandOverRecords, RunRequest};

impl CallFold<'_> {
    /// Returns the goal runs whose threads must stay open although the workflow run has failed,
    /// because the undo waits for an open call in or beneath them
    /// ([`UndoRules::has_open`](super::super::undo::UndoRules::has_open)).
    /// Returns an empty set if `steps` begin no undo, or cancel no thread.
    ///
    /// Holds and hand-overs count as they are now, after the latest record that may be read. So a
    /// call that was approved and handed over after the failure is not cancelled in flight.
    ///
    /// The result decides only which requests the run sends now, and has no effect on its state. So
    /// a run that an earlier version of the program began has the same state by the present rules.
    pub(super) fn undone_calls_under_way(&mut self, steps: &[RunStep]) -> HashSet<GoalRun> {
        let is_undo = |step: &RunStep| matches!(step, RunStep::Fail { is_undone: true, .. });
        let is_cancel = |step: &RunStep| matches!(step, RunStep::Cancel { .. });
        let Some(undo) = self.undo.filter(|_| steps.iter().any(is_undo)) else {
            return HashSet::new();
        };
        if !steps.iter().any(is_cancel) {
            return HashSet::new();
        }

        let calls = self.calls(HandOverRecords::Present);
        let kept = self.threads.runs.iter();
        let kept = kept.filter(|(thread, _)| undo.rules.has_open(&calls, thread));
        kept.map(|(_, run)| run.clone()).collect()
    }

    /// Looks again at the threads that stayed open after the failure of the run. Returns requests
    /// to cancel those for which the undo no longer waits, because the open calls in and beneath
    /// them have ended since. Without these requests, such a thread could make further calls.
    ///
    /// All records that may be read count, not only those up to the latest message. As for
    /// [`Self::undone_calls_under_way`], the result has no effect on the state of the run.
    pub fn cancel_kept_threads(&mut self) -> Vec<RunRequest> {
        let is_due = self.is_settling() && !self.threads.runs.is_empty();
        let Some(undo) = self.undo.filter(|_| is_due) else { return Vec::new() };
        let threads: Vec<_> = self.threads.all.iter().map(|opened| &opened.thread).collect();
        let found = undo.archive.tree_records(undo.up_to).and_then(|records| {
            let found = calls_beneath(&records, &threads, None);
            let (mut calls, up_to) = found.ok_or("the tree of the run has no records")?;
            undo.mark_handed_over(&mut calls, up_to)?;
            Ok(calls)
        });
        let calls = match found {
            Ok(calls) => calls,
            Err(problem) => {
                self.unread = Some(problem);
                return Vec::new();
            }
        };

        let ended = self.threads.runs.keys();
        let ended = ended.filter(|thread| !undo.rules.has_open(&calls, thread));
        let mut ended: Vec<_> = ended.cloned().collect();
        ended.sort();
        ended.into_iter().map(RunRequest::CancelThread).collect()
    }
}
