//! Handles alarms that have fired, with one rule for each kind of alarm.

use super::event::Alarm;
use super::{Core, Step};

impl Core {
    /// Handles an alarm that has fired. An obsolete alarm has no effect.
    pub(super) fn alarm(&mut self, step: &mut Step, alarm: Alarm) {
        match alarm {
            Alarm::Deadline { call, attempt } => self.deadline(step, call, attempt),
            Alarm::Retry { call } => self.retry(step, call),
            Alarm::Probe => self.probe(step),
            Alarm::Untaken { call } => self.fail_untaken(step, call),
            Alarm::Lost { call, attempt } => self.record_lost_attempt(step, call, attempt),
            Alarm::Timer { timer, call } => self.timer_alarm(step, timer, call),
            Alarm::Gone { call } => self.listener_gone(step, call),
            Alarm::ThreadTime { call } => self.thread_time_alarm(step, call),
            Alarm::Held { call } => self.hold_alarm(step, call),
            Alarm::PreviewTime { call } => self.preview_alarm(step, call),
            Alarm::Stop { call, attempt } => self.stop_attempt(step, call, attempt),
            Alarm::Unsettled { call, attempt } => self.charge_unsettled(step, call, attempt),
            Alarm::Schedule { timer } => self.schedule_alarm(step, timer),
            Alarm::ScheduledRun { request } => self.send_scheduled(step, request, None),
            Alarm::Recorded { call } => self.recorded_alarm(step, call),
        }
    }
}
