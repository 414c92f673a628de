//! Schedules as plain state: for each schedule, its next planned time, and its open runs.

use serde::{Deserialize, Serialize};

use super::{Call, Hold, Opener, State, Tree};
use crate::clock::Time;
use crate::ids::{MessageId, ScheduleName, ThreadId, TimerId};

/// A schedule with a planned time, or a cancelled schedule that still has open runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedSchedule {
    /// Timer of the planned run.
    #[serde(rename = "timer")]
    pub timer: TimerId,
    #[serde(rename = "due")]
    pub due: Time,
    /// Whether the schedule was removed from the config. A cancelled schedule has no planned time.
    #[serde(rename = "is_cancelled")]
    pub is_cancelled: bool,
    /// The times of the schedule, as the config stated them in text. If the config now states
    /// another text, the schedule is planned anew.
    #[serde(rename = "times")]
    pub times: String,
    /// The open runs of the schedule. A run is open from its planned time until the end of the
    /// record in which the last open call of its thread closes. Later calls in the thread do not
    /// belong to the run.
    #[serde(rename = "runs", default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<ScheduledRun>,
}

/// A run of a schedule: the request that opens the run, and the thread of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledRun {
    #[serde(rename = "request")]
    pub request: MessageId,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// The scheduled time that started the run.
    #[serde(rename = "due")]
    pub due: Time,
    /// Whether the request of the run was sent and accepted.
    #[serde(rename = "is_sent")]
    pub is_sent: bool,
}

impl State {
    /// Returns the run whose request will be sent into `thread`; `None` if there is no such run, or
    /// if its request was already sent.
    pub fn unsent_run_in(&self, thread: &ThreadId) -> Option<&ScheduledRun> {
        self.unsent_runs().map(|(_, run)| run).find(|run| run.thread == *thread)
    }

    /// Returns the run whose request has the id `request`, with its schedule; `None` if there is no
    /// such run, or if its request was already sent.
    pub fn unsent_run(&self, request: MessageId) -> Option<(&ScheduleName, &ScheduledRun)> {
        self.unsent_runs().find(|(_, run)| run.request == request)
    }

    /// Returns the runs whose requests were not sent yet, those of each schedule oldest first.
    pub fn unsent_runs(&self) -> impl Iterator<Item = (&ScheduleName, &ScheduledRun)> {
        let runs = self.schedules.iter();
        let runs = runs.flat_map(|(name, planned)| planned.runs.iter().map(move |run| (name, run)));
        runs.filter(|(_, run)| !run.is_sent)
    }

    pub(super) fn plan_schedule(
        &mut self,
        schedule: &ScheduleName,
        (timer, due): (TimerId, Time),
        times: &str,
    ) {
        let times = times.to_owned();
        let earlier = self.schedules.remove(schedule);
        let runs = earlier.map(|planned| planned.runs).unwrap_or_default();
        let planned = PlannedSchedule { timer, due, is_cancelled: false, times, runs };
        self.schedules.insert(schedule.clone(), planned);
    }

    /// Cancels the planned time of a schedule, but keeps its open runs. If a later config contains
    /// this schedule again, the kept runs count as open runs of the schedule.
    pub(super) fn cancel_schedule(&mut self, schedule: &ScheduleName) {
        let Some(mut planned) = self.schedules.remove(schedule) else { return };
        planned.is_cancelled = true;
        if !planned.runs.is_empty() {
            self.schedules.insert(schedule.clone(), planned);
        }
    }

    /// Removes cancelled schedules without open runs.
    pub(super) fn drop_ended_schedules(&mut self) {
        self.schedules.retain(|_, planned| !planned.is_cancelled || !planned.runs.is_empty());
    }

    pub(super) fn begin_scheduled_run(&mut self, schedule: &ScheduleName, run: ScheduledRun) {
        if let Some(planned) = self.schedules.get_mut(schedule) {
            planned.runs.push(run);
        }
    }

    /// Marks the run whose request has the id `request` as sent. Does nothing if no run has this
    /// request.
    pub(super) fn mark_sent(&mut self, request: MessageId) {
        let runs = self.schedules.values_mut().flat_map(|planned| &mut planned.runs);
        for run in runs.filter(|run| run.request == request) {
            run.is_sent = true;
        }
    }

    /// Removes the run of a schedule whose thread is `root`, if the request of the run was sent and
    /// no call of the tree is open. Must be called after all facts of a record of this tree are
    /// applied: within a record, one call may close before the next call of the run opens. A
    /// question to a person does not keep the run open after the call that sent the question has
    /// closed.
    pub fn end_scheduled_run(&mut self, root: &ThreadId) {
        // Few trees are runs of schedules, and this function is called for each record.
        let is_ended = |run: &ScheduledRun| run.is_sent && run.thread == *root;
        let mut runs = self.schedules.values().flat_map(|planned| &planned.runs);
        if !runs.any(is_ended) {
            return;
        }

        let Some(tree) = self.trees.resident(root) else { return };
        if tree.open_calls().all(|call| tree.is_left_question(call)) {
            for planned in self.schedules.values_mut() {
                planned.runs.retain(|run| !is_ended(run));
            }
        }
    }

    pub(super) fn drop_scheduled_run(&mut self, schedule: &ScheduleName, request: MessageId) {
        if let Some(planned) = self.schedules.get_mut(schedule) {
            planned.runs.retain(|run| run.request != request);
        }
    }
}

impl Tree {
    /// Whether the open call `call` is a question to a person, and the call that sent this question
    /// has closed.
    fn is_left_question(&self, call: &Call) -> bool {
        let is_question = call.held.is_some_and(|held| held.hold == Hold::Answer);
        match &call.opening.opener {
            Opener::Call { call: sender, .. } => is_question && self.call(*sender).is_none(),
            Opener::Client { .. } => false,
        }
    }
}
