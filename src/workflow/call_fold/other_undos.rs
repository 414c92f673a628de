//! The undos of calls of earlier runs by other retries of these runs.

use std::collections::HashSet;

use crate::ids::CallId;

use super::super::calls_beneath::{calls_beneath, undo_threads_of};
use super::super::graph::GoalGraph;
use super::super::run_state::GoalPhase;
use super::{CallFold, OpenedThread};

impl CallFold<'_> {
    /// Adds the threads in which the retries `others` have undone calls of this run, or of a run
    /// that it goes on from, or have tried to. So an undo of a run that goes on from this one does
    /// not undo these calls a second time. Returns the numbers of the goals whose results depend on
    /// these calls.
    ///
    /// All of `others` must have ended, so that the result is the same each time.
    pub fn take_undos_of(&mut self, others: &HashSet<CallId>) -> Vec<usize> {
        let Some(undo) = self.undo.filter(|_| !others.is_empty()) else { return Vec::new() };
        let records = match undo.archive.tree_records(undo.up_to) {
            Ok(records) => records,
            Err(problem) => {
                self.unread = Some(problem);
                return Vec::new();
            }
        };
        let threads: Vec<_> = self.threads.all.iter().map(|opened| &opened.thread).collect();
        let Some((calls, _)) = calls_beneath(&records, &threads, None) else { return Vec::new() };

        let mut undos = undo_threads_of(&records, others, &calls);
        // The run has already repeated the goals whose undos it knows.
        undos.retain(|(_, thread)| !threads.contains(&thread));
        let undone: HashSet<_> = undos.iter().map(|(call, _)| *call).collect();
        let undone = calls.iter().filter(|call| undone.contains(&call.id));
        let goals = undone.flat_map(|call| {
            let holds = |opened: &&OpenedThread| {
                !opened.is_superseded && call.thread.is_within(&opened.thread)
            };
            self.threads.all.iter().filter(holds).filter_map(|opened| opened.goal)
        });
        let goals = goals.collect();
        let undos = undos.into_iter().map(|(_, thread)| OpenedThread::new(thread, None));
        self.threads.all.extend(undos);
        goals
    }

    /// Marks the threads of goals whose results this retry does not take over.
    pub(super) fn mark_superseded(&mut self, graph: &GoalGraph<'_>) {
        for opened in &mut self.threads.all {
            let Some(goal) = opened.goal else { continue };
            let (phase, ..) = self.run.status(graph.outermost_owner(goal));
            opened.is_superseded |= phase == GoalPhase::Waiting;
        }
    }
}
