//! Events of schedules, as the core writes them into the thread `sess-organism`.

use super::core_payloads::StartTagText;
use crate::clock::Time;
use crate::ids::ThreadId;

/// An event of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleEvent {
    /// The schedule is new, or its times have changed.
    Planned { times: String },
    /// A run of the schedule begins for the planned time `due`.
    Started { due: Time, thread: ThreadId },
    /// The schedule missed `count` planned times, the first at `due` and the last at `until`.
    /// `until` is `None` if only one time was missed.
    Missed { due: Time, until: Option<Time>, count: u64, policy: &'static str },
    /// No run began for the time `due`, because the schedule already had its maximum number of open
    /// runs. `thread` is the thread of the oldest open run.
    PassedOver { due: Time, thread: ThreadId },
    /// The request of a run was refused.
    Refused { due: Time, thread: ThreadId, reason: String },
    /// The config no longer has the schedule, so its planned time `due` is cancelled.
    Cancelled { due: Time },
}

impl ScheduleEvent {
    /// Names of the events, as payloads contain them.
    pub const WORDS: [&str; 6] =
        ["planned", "started", "missed", "passed-over", "refused", "cancelled"];

    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Planned { .. } => "planned",
            Self::Started { .. } => "started",
            Self::Missed { .. } => "missed",
            Self::PassedOver { .. } => "passed-over",
            Self::Refused { .. } => "refused",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    pub(super) fn attributes(&self, tag: StartTagText) -> StartTagText {
        match self {
            Self::Planned { times } => tag.with("times", times),
            Self::Started { due, thread } | Self::PassedOver { due, thread } => {
                tag.with("due", due).with("thread_id", thread)
            }
            Self::Missed { due, until, count, policy } => {
                let tag = tag.with("due", due).maybe("until", until.as_ref());
                tag.with("count", count).with("policy", policy)
            }
            Self::Refused { due, thread, reason } => {
                tag.with("due", due).with("thread_id", thread).with("reason", reason)
            }
            Self::Cancelled { due } => tag.with("due", due),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_its_word_in_the_list() {
        let due = Time(0);
        let thread = ThreadId::organism();
        let all = [
            ScheduleEvent::Planned { times: String::new() },
            ScheduleEvent::Started { due, thread: thread.clone() },
            ScheduleEvent::Missed { due, until: None, count: 1, policy: "once" },
            ScheduleEvent::PassedOver { due, thread: thread.clone() },
            ScheduleEvent::Refused { due, thread, reason: String::new() },
            ScheduleEvent::Cancelled { due },
        ];
        assert_eq!(all.each_ref().map(ScheduleEvent::word), ScheduleEvent::WORDS);
    }
}
