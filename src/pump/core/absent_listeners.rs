//! Absent listeners. A listener is absent while none of its processes accepts deliveries. A
//! delivery that no process accepted does not count as an attempt.
//!
//! While a listener is absent, the pump delivers to the listener only one call at a time, as a
//! probe. The delays between probes grow. All other calls to the listener wait. If the listener is
//! still absent at the time-out of a waiting call, the call fails as undeliverable.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event::{Alarm, Effect};
use super::outcome::AttemptSource;
use super::{Core, Step};
use crate::clock::Time;
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{Fact, Input};

/// Absent listeners, by name. No process accepted the last delivery to such a listener. The map is
/// ordered, so that the same events cause the same probes.
#[derive(Debug, Clone, Default)]
pub(super) struct AbsentListeners(BTreeMap<ListenerName, Absence>);

#[derive(Debug, Clone)]
struct Absence {
    /// Number of rounds of returned deliveries in this absence. One round consists of all
    /// deliveries that come back before the next probe is due. Each round doubles the delay of the
    /// next probe.
    rounds: u32,
    /// Earliest time of the next probe, the delivery that tests whether the listener is back.
    probe_at: Time,
    /// Call that is delivered as a probe, and the time at which the probe started. `None` if no
    /// probe is in flight.
    probe: Option<(CallId, Time)>,
    /// The deadline of each waiting call, and the time-out from which the deadline was calculated.
    /// If the listener is still absent at the deadline, the call fails as undeliverable.
    due: BTreeMap<CallId, (Time, Duration)>,
}

/// The deliveries that the scheduler may start for a listener at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Any,
    OneProbe,
    Nothing,
}

impl Absence {
    /// Whether the listener has accepted the probe in flight. A probe counts as accepted if it was
    /// not returned within [`limits::ABSENT_PROBE_TIMEOUT`].
    fn has_accepted_probe(&self, now: Time) -> bool {
        self.probe.is_some_and(|(_, since)| since.plus(limits::ABSENT_PROBE_TIMEOUT) <= now)
    }

    fn next_look(&self) -> Time {
        self.probe.map_or(self.probe_at, |(_, since)| since.plus(limits::ABSENT_PROBE_TIMEOUT))
    }
}

impl AbsentListeners {
    pub fn admission(&self, listener: &ListenerName, now: Time) -> Admission {
        match self.0.get(listener) {
            None => Admission::Any,
            Some(absence) if absence.has_accepted_probe(now) => Admission::Any,
            Some(Absence { probe: None, probe_at, .. }) if *probe_at <= now => Admission::OneProbe,
            Some(_) => Admission::Nothing,
        }
    }

    /// Records that a delivery came back because no process of `listener` accepted it. Returns the
    /// earliest time of the next probe, which tests whether `listener` is back. Also returns
    /// whether `listener` had counted as present before.
    fn record_returned_delivery(
        &mut self,
        listener: &ListenerName,
        call: CallId,
        now: Time,
    ) -> (Time, bool) {
        let is_news = self.0.get(listener).is_none_or(|absence| absence.has_accepted_probe(now));
        if is_news {
            self.0.remove(listener);
        }

        let absence = self.0.entry(listener.clone()).or_insert(Absence {
            rounds: 0,
            probe_at: now,
            probe: None,
            due: BTreeMap::new(),
        });
        // Several deliveries may have been in flight when the listener left. All of them are
        // returned, and count as one failed round.
        if absence.probe_at <= now {
            let doubled = limits::PROBE_FIRST.saturating_mul(1 << absence.rounds.min(16));
            absence.rounds += 1;
            absence.probe_at = now.plus(doubled.min(limits::PROBE_MAX));
        }

        absence.probe.take_if(|(probe, _)| *probe == call);
        (absence.probe_at, is_news)
    }

    /// Records that the delivery of `call` is the probe, which tests whether `listener` is back.
    /// Returns the time at which the probe counts as accepted. If the delivery comes back before
    /// this time, the listener is still absent.
    pub fn start_probe(&mut self, listener: &ListenerName, call: CallId, now: Time) -> Time {
        if let Some(absence) = self.0.get_mut(listener) {
            absence.probe = Some((call, now));
        }
        now.plus(limits::ABSENT_PROBE_TIMEOUT)
    }

    /// Sets the deadline of a waiting call to the time in `due`, or keeps the call's deadline if it
    /// is earlier. `due` also contains the time-out from which its time was calculated. Returns the
    /// deadline that is now in force.
    fn expect(&mut self, listener: &ListenerName, call: CallId, due: (Time, Duration)) -> Time {
        let Some(absence) = self.0.get_mut(listener) else { return due.0 };
        let known = absence.due.entry(call).or_insert(due);
        if due.0 < known.0 {
            *known = due;
        }
        known.0
    }

    /// Returns the deadline of a call that waits for an absent listener, and the time-out from
    /// which the deadline was calculated. Returns `None` if the listener is present or has accepted
    /// the probe, or if the call does not wait.
    pub fn due(
        &self,
        listener: &ListenerName,
        call: CallId,
        now: Time,
    ) -> Option<(Time, Duration)> {
        let absence = self.0.get(listener).filter(|absence| !absence.has_accepted_probe(now))?;
        absence.due.get(&call).copied()
    }

    /// Removes the deadline of a call that waits for `listener`. Returns whether the call had one.
    fn forget_deadline(&mut self, listener: &ListenerName, call: CallId) -> bool {
        self.0.get_mut(listener).is_some_and(|absence| absence.due.remove(&call).is_some())
    }

    /// Removes the entries of a closed call. The call either waited for `listener`, or was
    /// delivered to `listener` as a probe.
    pub fn close(&mut self, listener: &ListenerName, call: CallId) {
        if let Some(absence) = self.0.get_mut(listener) {
            absence.due.remove(&call);
            absence.probe.take_if(|(probe, _)| *probe == call);
        }
    }

    /// Ends the absence of `listener`. Returns whether `listener` was absent.
    pub fn end(&mut self, listener: &ListenerName) -> bool {
        !mutant("probe-for-ever") && self.0.remove(listener).is_some()
    }

    /// Returns, for each probe in flight, the time from which the probe counts as accepted and the
    /// listener as present. A probe that no process accepts comes back before this time.
    pub fn probes_out(&self) -> Vec<Time> {
        let out = self.0.values().filter(|absence| absence.probe.is_some());
        out.map(Absence::next_look).collect()
    }

    /// Adds `by` to the start time of each probe in flight, and to the deadline of each waiting
    /// call. The pump calls this method if a period must not count towards deadlines, such as a
    /// standstill of the pump.
    pub fn extend_all(&mut self, by: Duration) {
        for absence in self.0.values_mut() {
            if let Some((_, since)) = &mut absence.probe {
                *since = since.plus(by);
            }
            absence.due.values_mut().for_each(|(due, _)| *due = due.plus(by));
        }
    }

    /// Returns the absent listeners that need an action at `now`. Either the next probe is due, or
    /// the listener has accepted its probe, so that the pump must resume deliveries.
    fn looks(&self, now: Time) -> impl Iterator<Item = &ListenerName> {
        self.0.iter().filter(move |(_, own)| own.next_look() <= now).map(|(name, _)| name)
    }
}

impl Core {
    /// Queues a call for its listener. If the listener is absent, also sets the time at which the
    /// call fails.
    pub(super) fn enqueue(
        &mut self,
        step: &mut Step,
        listener: &ListenerName,
        thread: &ThreadId,
        call: CallId,
    ) {
        if self.state.call(call).is_some_and(|open| self.awaits_recall(open)) {
            return self.recall(step, call);
        }
        self.scheduler.enqueue(listener, thread, call);
        if self.contract_of_work(listener).is_some_and(|contract| contract.spends()) {
            self.count_turn(call);
        }
        if self.scheduler.absences.admission(listener, step.time) != Admission::Any {
            self.wait_for_listener(step, listener, call);
        }
    }

    /// Sets the time at which a call fails if its listener is still absent: the time-out of the
    /// listener after the first delivery of the call. Deliveries before the latest answer or failed
    /// attempt of the call do not count. If no delivery counts, the time-out begins now.
    fn wait_for_listener(&mut self, step: &mut Step, listener: &ListenerName, call: CallId) {
        let timeout = self.contract_of_work(listener).map_or(Duration::ZERO, |c| c.timeout);
        let since = self.state.call(call).and_then(|open| open.offered_since);
        let due = since.unwrap_or(step.time).plus(timeout);
        let due = self.scheduler.absences.expect(listener, call, (due, timeout));
        step.effect(Effect::Alarm { at: due, alarm: Alarm::Untaken { call } });
    }

    /// Sets a new deadline for a call that waits for its absent listener. Called after a pause of
    /// the call, because the duration of the pause must not count towards the deadline.
    pub(super) fn wait_for_listener_again(
        &mut self,
        step: &mut Step,
        listener: &ListenerName,
        call: CallId,
    ) {
        if self.scheduler.absences.forget_deadline(listener, call) {
            self.wait_for_listener(step, listener, call);
        }
    }

    /// Handles a delivery that was returned because no process accepted it. The delivery does not
    /// count as an attempt. If the call is still open, queues the call again.
    pub(super) fn handle_returned_delivery(
        &mut self,
        step: &mut Step,
        source: &AttemptSource,
        detail: String,
    ) {
        let AttemptSource { listener, call, attempt } = source;
        let listener = listener.clone();
        let call = *call;
        let attempt = *attempt;
        let input = Input::NotTaken { listener: listener.clone(), call, attempt, detail };
        if attempt.is_preview() {
            return self.preview_failed(
                step,
                source,
                input,
                "no process of its listener took the request",
            );
        }

        let back = Fact::NotTaken { call, attempt };
        if let Some(orphan) = self.end_orphan(source) {
            step.begin_record(orphan.thread.root(), input);
            self.fact(step, back);
            return self.record_absence(step, &listener, call);
        }

        let Some((running, contract)) = self.record_attempt_end(step, source, input) else {
            return;
        };
        self.fact(step, back);
        self.record_absence(step, &listener, call);
        if let Some(text) = &running.stop_reason {
            // Without this, the call would be delivered again after the resume.
            return self.cancel_stopped(step, call, text);
        }

        if contract.serial_per_thread {
            // Later calls of the thread wait until this call is settled.
            self.scheduler.hold_thread(&listener, &running.thread, call);
        }

        let open = self.state.call(call);
        if let Some(alarm) = open.and_then(|open| self.alarm_before_delivery(open, step.time)) {
            return self.set_aside(step, call, alarm);
        }

        self.scheduler.put_back(&listener, &running.thread, call);
        self.count_turn(call);
        self.wait_for_listener(step, &listener, call);
    }

    fn record_absence(&mut self, step: &mut Step, listener: &ListenerName, call: CallId) {
        let (at, is_news) =
            self.scheduler.absences.record_returned_delivery(listener, call, step.time);
        step.effect(Effect::Alarm { at, alarm: Alarm::Probe });
        if is_news {
            for call in self.scheduler.waiting_for(listener) {
                self.wait_for_listener(step, listener, call);
            }
        }
    }

    /// Handles [`Alarm::Probe`]: starts the next probe that is due, or resumes deliveries to a
    /// listener that has accepted its probe.
    pub(super) fn probe(&mut self, step: &mut Step) {
        if self.draining {
            return;
        }

        let due: Vec<_> = self.scheduler.absences.looks(step.time).cloned().collect();
        for listener in due {
            let Some(contract) = self.contracts.get(&listener) else { continue };
            let now = step.time;
            let is_skipped = |thread: &ThreadId| self.is_skipped(contract, thread, now);
            let next = self.scheduler.next(contract, now, is_skipped);
            let Some(open) = next.and_then(|call| self.state.call(call)) else { continue };
            step.begin_record(open.thread.root(), Input::Probe { listener: listener.clone() });
            self.scheduler.mark_runnable(&listener);
            // Each probe gets its own record, so an alarm at the same time requests the next probe.
            return step.effect(Effect::Alarm { at: step.time, alarm: Alarm::Probe });
        }
    }

    /// Fails a call that has waited for an absent listener until its deadline.
    pub(super) fn fail_untaken(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call).filter(|_| self.scheduler.is_waiting(call)) else {
            return;
        };

        let listener = open.callee.clone();
        let thread = open.thread.clone();
        // The resume sets the alarm again.
        if self.is_paused(open) {
            return;
        }

        let due = self.scheduler.absences.due(&listener, call, step.time);
        let Some((due, timeout)) = due else { return };
        if due > step.time {
            return step.effect(Effect::Alarm { at: due, alarm: Alarm::Untaken { call } });
        }

        step.begin_record(thread.root(), Input::Untaken { call });
        let contract = self.contract_of_work(&listener).cloned();
        let reason = format!("could not be reached within {} s", timeout.as_secs_f64());
        self.fail_undelivered(step, call, contract.as_deref(), &reason, false);
    }

    /// Marks the listener as present, because a process of the listener has sent something. The
    /// pump can then deliver the listener's waiting calls.
    pub(super) fn record_presence(&mut self, listener: &ListenerName) {
        if self.scheduler.absences.end(listener) {
            self.scheduler.mark_runnable(listener);
        }
    }
}
