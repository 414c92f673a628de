//! Schedules. The core plans the times of each schedule, begins its runs, and records what became
//! of each planned time.
//!
//! When a planned time has come, one step records the run in the tree `sess-organism`. A second
//! step sends the request of the run, as a submission of the schedule's client. One step cannot do
//! both, because it makes one record of one tree, and the request has a tree of its own. If the
//! pump dies between the two steps, the next boot sends the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::event::{Alarm, Effect, Receipt, Submission, Target};
use super::{Core, Step};
use crate::clock::Time;
use crate::contract::{MissedPolicy, PassedTimes, Schedule};
use crate::envelope::Refusal;
use crate::ids::{Digest, MessageId, ScheduleName, ThreadId, TimerId};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::gate::{Checked, Gate};
use crate::system::{CorePayload, ScheduleEvent};
use crate::thread::{Fact, Input, PlannedSchedule, ScheduledRun, State};
use crate::trace::TraceParent;

/// The schedules of one partition, with payloads that passed the gate.
#[derive(Debug)]
pub struct Schedules {
    by_name: BTreeMap<ScheduleName, (Schedule, Checked)>,
    partition: u32,
    partitions: u32,
}

impl Schedules {
    /// Selects the schedules that belong to `partition`, and checks their payloads at the gate.
    ///
    /// # Errors
    ///
    /// Returns the first schedule whose payload does not pass the gate, with the refusal.
    pub fn new(
        schedules: &[Schedule],
        gate: &Gate,
        (partition, partitions): (u32, u32),
    ) -> Result<Self, (ScheduleName, Refusal)> {
        let mut by_name = BTreeMap::new();
        for schedule in schedules {
            if schedule.name.partition(partitions) == partition {
                let checked = gate
                    .check(&schedule.client, schedule.payload.as_bytes())
                    .map_err(|refusal| (schedule.name.clone(), refusal))?;
                by_name.insert(schedule.name.clone(), (schedule.clone(), checked));
            }
        }

        Ok(Self { by_name, partition, partitions })
    }
}

impl Core {
    /// Sets the schedules that this core runs. A core without schedules ignores all recorded
    /// schedules: it neither runs nor cancels them.
    #[must_use]
    pub fn with_schedules(self, schedules: Schedules) -> Self {
        Self { schedules: Some(Arc::new(schedules)), ..self }
    }

    /// Replaces the planned times and runs of all schedules by those of `recorded`. Used by a
    /// replay, whose machine may have other time-zone rules than the pump had.
    pub fn adopt_schedules(&mut self, recorded: &State) {
        self.state.schedules.clone_from(&recorded.schedules);
    }

    /// Adapts the recorded schedules to the config at boot. Cancels removed schedules, plans new
    /// and changed ones, and handles the planned times that passed while no pump ran.
    pub(super) fn plan_schedules(&mut self, step: &mut Step) {
        let Some(schedules) = self.schedules.clone() else { return };
        if !mutant("forget-a-run") {
            self.continue_runs(step, &schedules);
        }

        let on_record = self.state.schedules.iter().filter(|(_, planned)| !planned.is_cancelled);
        let gone = on_record.filter(|(name, _)| !schedules.by_name.contains_key(*name));
        let gone: Vec<_> = gone.map(|(name, planned)| (name.clone(), planned.due)).collect();
        for (name, due) in gone {
            self.fact(step, Fact::ScheduleCancelled { schedule: name.clone() });
            self.schedule_note(step, &name, ScheduleEvent::Cancelled { due }, None);
        }

        for (name, (schedule, _)) in &schedules.by_name {
            let planned = self.state.schedules.get(name).filter(|planned| !planned.is_cancelled);
            match planned.filter(|planned| planned.times == schedule.times.to_string()) {
                None => {
                    let next = self.plan(step, schedule, step.time);
                    let times = schedule.times.to_string();
                    self.schedule_note(step, name, ScheduleEvent::Planned { times }, Some(next));
                }
                Some(planned) if planned.due <= step.time => {
                    self.take_times(step, &schedules, schedule, true);
                }
                Some(_) if mutant("forget-a-schedule") => {}
                Some(planned) => {
                    let alarm = Alarm::Schedule { timer: planned.timer };
                    step.effect(Effect::Alarm { at: planned.due, alarm });
                }
            }
        }
    }

    /// Continues the runs that an earlier pump began without sending their requests. Ends a run
    /// instead in two cases:
    ///
    /// - The config no longer has the schedule: records the run as refused.
    /// - The run is too late, and the schedule skips missed runs: records it as missed.
    fn continue_runs(&mut self, step: &mut Step, schedules: &Schedules) {
        let unsent = self.state.unsent_runs();
        let unsent: Vec<_> = unsent.map(|(name, run)| (name.clone(), run.clone())).collect();
        for (name, ScheduledRun { request, thread, due, .. }) in unsent {
            let event = match schedules.by_name.get(&name).map(|(schedule, _)| schedule) {
                None => {
                    let reason = "the config no longer has the schedule".to_owned();
                    ScheduleEvent::Refused { due, thread, reason }
                }
                Some(Schedule { missed: policy @ MissedPolicy::Skip, .. })
                    if step.time.since(due) >= limits::SCHEDULE_LATE_MAX =>
                {
                    ScheduleEvent::Missed { due, until: None, count: 1, policy: policy.as_str() }
                }
                Some(_) => continue,
            };

            self.fact(step, Fact::ScheduleRefused { schedule: name.clone(), request });
            self.schedule_note(step, &name, event, None);
        }

        for name in schedules.by_name.keys() {
            self.send_oldest_run(step, name, step.time);
        }
    }

    /// Handles [`Alarm::Schedule`]: processes the planned time of a schedule if the time has come.
    /// Does nothing during a drain, so that the next boot handles the time as missed.
    pub(super) fn schedule_alarm(&mut self, step: &mut Step, timer: TimerId) {
        let Some(schedules) = self.schedules.clone().filter(|_| !self.draining) else { return };
        let mut planned = self.state.schedules.iter();
        let is_due = |planned: &PlannedSchedule| planned.timer == timer && !planned.is_cancelled;
        let Some((name, planned)) = planned.find(|(_, planned)| is_due(planned)) else {
            return;
        };

        if planned.due > step.time {
            return step
                .effect(Effect::Alarm { at: planned.due, alarm: Alarm::Schedule { timer } });
        }

        if let Some((schedule, _)) = schedules.by_name.get(name) {
            let input = Input::Schedule { schedule: name.clone(), timer };
            step.begin_record(ThreadId::organism(), input);
            self.take_times(step, &schedules, schedule, false);
        }
    }

    /// Processes the planned times of a schedule that have come, and plans the next time. All of
    /// these times except the latest count as missed. The latest also counts as missed in two
    /// cases: it is too long ago, or the pump boots (`is_boot`) and so did not run at that time. If
    /// the latest time counts as missed and the schedule skips missed runs, begins no run.
    /// Otherwise, begins a run for the latest time.
    fn take_times(
        &mut self,
        step: &mut Step,
        schedules: &Schedules,
        schedule: &Schedule,
        is_boot: bool,
    ) {
        let Some(planned) = self.state.schedules.get(&schedule.name) else { return };
        let due = planned.due;
        let passed = schedule.times.passed(due, step.time);
        let is_late = step.time.since(passed.latest) >= limits::SCHEDULE_LATE_MAX;
        let is_missed = (is_boot || is_late) && !mutant("miss-nothing");
        let next = self.plan(step, schedule, passed.latest);

        let missed = missed_times(due, passed, is_missed, schedule.missed);
        if let Some(event) = missed {
            self.schedule_note(step, &schedule.name, event, Some(next));
        }

        if is_missed && schedule.missed == MissedPolicy::Skip && !mutant("make-up-what-is-skipped")
        {
            return;
        }

        let event = self.begin_run(step, schedules, schedule, passed.latest);
        self.schedule_note(step, &schedule.name, event, Some(next));
    }

    /// Begins the run for the time `due`. If the schedule already has its maximum number of open
    /// runs, begins no run. Returns the event that the caller must record: the run has started, or
    /// the time was skipped.
    fn begin_run(
        &mut self,
        step: &mut Step,
        schedules: &Schedules,
        schedule: &Schedule,
        due: Time,
    ) -> ScheduleEvent {
        let planned = self.state.schedules.get(&schedule.name);
        let open = planned.map(|planned| planned.runs.as_slice()).unwrap_or_default();
        let most = usize::try_from(schedule.concurrency).unwrap_or(usize::MAX);
        if let Some(oldest) = open.first().filter(|_| open.len() >= most)
            && !mutant("overlap-runs")
        {
            return ScheduleEvent::PassedOver { due, thread: oldest.thread.clone() };
        }

        let request = MessageId(step.next_id());
        let thread = self.thread_of_run(schedules, request);
        let name = schedule.name.clone();
        let fact = Fact::ScheduleDue { schedule: name, due, request, thread: thread.clone() };
        self.fact(step, fact);
        if self.oldest_unsent_run(&schedule.name) == Some(request) {
            self.send_oldest_run(step, &schedule.name, step.time);
        }
        ScheduleEvent::Started { due, thread }
    }

    /// Plans the first time of the schedule after `time`, and returns the planned time.
    fn plan(&mut self, step: &mut Step, schedule: &Schedule, time: Time) -> Time {
        let timer = TimerId(step.next_id());
        let due = schedule.times.after(time);
        let times = schedule.times.to_string();
        self.fact(
            step,
            Fact::SchedulePlanned { schedule: schedule.name.clone(), timer, due, times },
        );
        step.effect(Effect::Alarm { at: due, alarm: Alarm::Schedule { timer } });
        due
    }

    /// Returns an id for the root thread of a run. The id belongs to this pump's partition, and no
    /// tree in memory has this id. If a tree outside memory has the same id, the pump later refuses
    /// the request of the run.
    fn thread_of_run(&self, schedules: &Schedules, request: MessageId) -> ThreadId {
        let ids = (0u32..).map(|n| {
            let digest = Digest::of_parts(&[request.0.as_bytes(), &n.to_be_bytes()]);
            ThreadId::root_of(&digest)
        });
        let is_ours = |id: &ThreadId| {
            id.partition(schedules.partitions) == schedules.partition
                && self.state.trees.resident(id).is_none()
        };
        ids.into_iter().find(is_ours).expect("some id of four thousand million is free")
    }

    /// Sets the alarm at which the request of the schedule's oldest unsent run is sent. The later
    /// runs have no alarm: their requests have the same client and payload, so they are busy as
    /// long as that of the oldest.
    fn send_oldest_run(&self, step: &mut Step, schedule: &ScheduleName, at: Time) {
        if let Some(request) = self.oldest_unsent_run(schedule) {
            step.effect(Effect::Alarm { at, alarm: Alarm::ScheduledRun { request } });
        }
    }

    fn oldest_unsent_run(&self, schedule: &ScheduleName) -> Option<MessageId> {
        let planned = self.state.schedules.get(schedule)?;
        planned.runs.iter().find(|run| !run.is_sent).map(|run| run.request)
    }

    /// Sends the request of a run, as a submission of the schedule's client. If the pump is busy,
    /// sets an alarm that sends the request later. Otherwise, sets the alarm of the next run.
    pub(super) fn send_scheduled(
        &mut self,
        step: &mut Step,
        request: MessageId,
        begun: Option<TraceParent>,
    ) {
        let Some(schedules) = self.schedules.clone().filter(|_| !self.draining) else { return };
        let Some((name, run)) = self.state.unsent_run(request) else { return };
        let Some((schedule, checked)) = schedules.by_name.get(name) else { return };
        let suggested = Some(run.thread.to_string());
        self.submit(
            step,
            Submission {
                id: request,
                client: schedule.client.clone(),
                target: Target::New { suggested },
                key: None,
                payload: Ok(checked.clone()),
                refused_digest: None,
                trace: None,
                begun,
            },
        );

        let is_busy = step.record.is_none();
        let at = if is_busy { step.time.plus(limits::BUSY_RETRY) } else { step.time };
        self.send_oldest_run(step, &schedule.name, at);
    }

    /// Records the end of a run whose request was refused.
    pub(super) fn end_refused_run(
        &mut self,
        step: &mut Step,
        request: MessageId,
        receipt: &Receipt,
    ) {
        let Some((schedule, run)) = self.state.unsent_run(request) else { return };
        let schedule = schedule.clone();
        let ScheduledRun { due, thread, .. } = run.clone();
        let reason = match receipt {
            Receipt::Refused { refusal, .. } => refusal.message.clone(),
            _ => String::new(),
        };

        self.fact(step, Fact::ScheduleRefused { schedule: schedule.clone(), request });
        let event = ScheduleEvent::Refused { due, thread, reason };
        self.schedule_note(step, &schedule, event, None);
    }

    fn schedule_note(
        &mut self,
        step: &mut Step,
        schedule: &ScheduleName,
        event: ScheduleEvent,
        next: Option<Time>,
    ) {
        // `i64::MAX` means that the schedule has no further time.
        let next = next.filter(|next| *next < Time(i64::MAX));
        let schedule = schedule.clone();
        self.organism_note(step, &CorePayload::ScheduleEvent { schedule, event, next });
    }
}

/// Returns the event that records missed times, or `None` if no time was missed. All times in
/// `passed` except the latest count as missed. If `is_missed` is true, the latest counts as missed,
/// too.
fn missed_times(
    due: Time,
    passed: PassedTimes,
    is_missed: bool,
    policy: MissedPolicy,
) -> Option<ScheduleEvent> {
    let (last, count) = match (is_missed, passed.before_latest) {
        (true, _) => (passed.latest, passed.count),
        (false, Some(before)) => (before, passed.count.saturating_sub(1)),
        (false, None) => return None,
    };

    let until = (last > due).then_some(last);
    Some(ScheduleEvent::Missed { due, until, count, policy: policy.as_str() })
}
