//! Timers: a listener sets and cancels the timers of its call, and each timer fires once.

use super::event::{Alarm, Effect};
use super::primitives::PrimitiveRequest;
use super::{Core, Step};
use crate::ids::{CallId, TimerId};
use crate::limits;
use crate::system::{CorePayload, ErrorCode, When};
use crate::thread::{Fact, Input, Timer, TimerEnd};

impl Core {
    /// Carries out the primitive `set-timer`.
    pub(super) fn set_timer(
        &mut self,
        step: &mut Step,
        ask: &PrimitiveRequest<'_>,
        when: When,
        label: Option<String>,
    ) {
        let call = ask.context.call;
        let timers = self.state.call(call).map_or(0, |open| open.timers);
        if timers >= limits::TIMERS_PER_CALL_MAX {
            let text = format!("a call may have at most {} timers", limits::TIMERS_PER_CALL_MAX);
            return self.answer_error(step, ask, ErrorCode::LimitReached, &text);
        }

        let latest = step.time.plus(limits::TIMER_MAX);
        let (fires_at, at) = match when {
            When::After(after) => (step.time.plus(after), false),
            When::At(at) => (at, true),
        };

        // The gate does not know the present time, so the core checks this bound.
        if fires_at > latest {
            let days = limits::TIMER_MAX.as_secs() / 86_400;
            let text = format!("a timer may be at most {days} days ahead");
            return self.answer_error(step, ask, ErrorCode::LimitReached, &text);
        }

        let fires_at = fires_at.max(step.time);
        let timer = TimerId(step.next_id());
        self.start_timer(step, timer, Timer { call, fires_at, label: label.clone(), at });
        self.answer(step, ask, &CorePayload::TimerSet { timer, fires_at, label });
    }

    /// Starts a timer: records the timer, and sets its alarm. In a fork, also starts the search in
    /// the fork's source for the firing of the corresponding timer.
    pub(super) fn start_timer(&mut self, step: &mut Step, timer: TimerId, set: Timer) {
        let Timer { call, fires_at, label, at } = set;
        self.fact(step, Fact::TimerSet { timer, call, fires_at, label, at });
        self.count_timers(call);
        step.effect(Effect::Alarm { at: fires_at, alarm: Alarm::Timer { timer, call } });
        self.search_timer(step, timer, call);
    }

    /// Carries out the primitive `cancel-timer`. A call can cancel only its own timers.
    pub(super) fn cancel_timer(
        &mut self,
        step: &mut Step,
        ask: &PrimitiveRequest<'_>,
        timer_id: &str,
    ) {
        let tree = self.state.tree(&ask.context.thread);
        let found = tree.and_then(|tree| {
            let mut timers = tree.timers.iter();
            timers.find(|(id, timer)| timer.call == ask.context.call && id.to_string() == timer_id)
        });
        match found.map(|(timer, set)| (*timer, set.label.clone())) {
            Some((timer, label)) => {
                self.fact(step, Fact::TimerEnded { timer, how: TimerEnd::Cancelled });
                self.count_timers(ask.context.call);
                self.answer(step, ask, &CorePayload::TimerCancelled { timer, label });
            }
            None => {
                self.answer_error(step, ask, ErrorCode::UnknownTimer, "you have no such timer");
            }
        }
    }

    /// Handles [`Alarm::Timer`]. Ignores the alarm of a paused call's timer, because the resume
    /// sets the alarm again. In a fork, also ignores the alarm of a timer that is not the next one
    /// to fire. Such an alarm is set again once nothing else in the fork can continue.
    pub(super) fn timer_alarm(&mut self, step: &mut Step, timer: TimerId, call: CallId) {
        let Some(root) = self.state.calls.get(&call).cloned() else { return };
        if self.state.call(call).is_some_and(|open| self.is_paused(open)) {
            return;
        }
        if !self.fires_timers_early(&root) || self.is_next_timer(&root, timer) {
            self.fire_timer(step, timer, call);
        }
    }

    /// Fires a timer: its call gets a message. Does nothing if the timer has ended. In a tree that
    /// is no fork, sets the alarm again if the time of the timer has not come.
    pub(super) fn fire_timer(&mut self, step: &mut Step, timer: TimerId, call: CallId) {
        let root = self.state.calls.get(&call).cloned();
        let tree = root.as_ref().and_then(|root| self.state.trees.get(root));
        let set = tree.and_then(|tree| tree.timers.get(&timer)).cloned();
        let (Some(root), Some(set)) = (root, set) else { return };
        if set.fires_at > step.time && !self.fires_timers_early(&root) {
            let alarm = Alarm::Timer { timer, call };
            return step.effect(Effect::Alarm { at: set.fires_at, alarm });
        }

        step.begin_record(root, Input::Timer { timer, call });
        self.fact(step, Fact::TimerEnded { timer, how: TimerEnd::Fired });
        self.count_timers(call);
        self.send_core_payload(
            step,
            call,
            None,
            &CorePayload::TimerFired { timer, label: set.label },
        );
        self.wake(step, call);
    }
}
