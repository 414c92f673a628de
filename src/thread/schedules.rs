//! Schedules as plain state: the planned time of each, and its runs that may be open.

use super::State;
use crate::clock::Time;
use crate::ids::{MessageId, ScheduleName, ThreadId, TimerId};

/// A schedule with a planned time, or one that left the config while runs of it were open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSchedule {
    /// Timer of the planned time.
    pub timer: TimerId,
    pub due: Time,
    /// Whether the config no longer had the schedule. Nothing is planned then.
    pub is_cancelled: bool,
    /// The times of the schedule as text, from which a changed schedule is known.
    pub times: String,
    /// Runs of earlier times. Ended runs are dropped when the next one begins.
    pub runs: Vec<ScheduledRun>,
}

/// A run of a schedule: the request that opens it, and its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledRun {
    pub request: MessageId,
    pub thread: ThreadId,
    /// The time of the schedule for which it runs.
    pub due: Time,
    /// Whether the request was accepted.
    pub is_sent: bool,
}

impl State {
    /// Whether a run has not ended: its request is still to be sent, or a call of its tree is open.
    pub fn is_open_run(&self, run: &ScheduledRun) -> bool {
        let tree = self.trees.get(&run.thread);
        !run.is_sent || tree.is_some_and(|tree| !tree.calls.is_empty())
    }

    /// The run whose request is still to be sent into this thread.
    pub fn unsent_run_in(&self, thread: &ThreadId) -> Option<&ScheduledRun> {
        let runs = self.schedules.values().flat_map(|planned| &planned.runs);
        runs.filter(|run| !run.is_sent).find(|run| run.thread == *thread)
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

    /// Keeps the open runs, which count again if the schedule comes back.
    pub(super) fn cancel_schedule(&mut self, schedule: &ScheduleName) {
        let Some(mut planned) = self.schedules.remove(schedule) else { return };
        planned.is_cancelled = true;
        planned.runs.retain(|run| self.is_open_run(run));
        if !planned.runs.is_empty() {
            self.schedules.insert(schedule.clone(), planned);
        }
    }

    /// Drops the schedules that left the config and whose runs have ended.
    pub(super) fn drop_ended_schedules(&mut self) {
        let mut schedules = std::mem::take(&mut self.schedules);
        schedules.retain(|_, planned| {
            !planned.is_cancelled || planned.runs.iter().any(|run| self.is_open_run(run))
        });
        self.schedules = schedules;
    }

    pub(super) fn begin_scheduled_run(&mut self, schedule: &ScheduleName, run: ScheduledRun) {
        let Some(mut planned) = self.schedules.remove(schedule) else { return };
        planned.runs.retain(|run| self.is_open_run(run));
        planned.runs.push(run);
        self.schedules.insert(schedule.clone(), planned);
    }

    /// Notes that a request was accepted, if it is that of a run.
    pub(super) fn mark_sent(&mut self, request: MessageId) {
        let runs = self.schedules.values_mut().flat_map(|planned| &mut planned.runs);
        for run in runs.filter(|run| run.request == request) {
            run.is_sent = true;
        }
    }

    pub(super) fn drop_scheduled_run(&mut self, schedule: &ScheduleName, request: MessageId) {
        if let Some(planned) = self.schedules.get_mut(schedule) {
            planned.runs.retain(|run| run.request != request);
        }
    }
}
