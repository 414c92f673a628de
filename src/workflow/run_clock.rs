//! The clock of a workflow run, and the limit of the run's time.

use std::time::Duration;

use crate::clock::Time;
use crate::envelope::Message;
use crate::thread::{UncountedTotal, uncounted_at};
use crate::xml::element::Element;

use super::call_fold::{failure_of, is_failed};

/// Clock of a run. Its times are those of the run's messages, not those of a system clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunClock {
    /// Time of the message that requested the run.
    began: Time,
    /// Time of the run's latest message.
    now: Time,
    /// The part of the time from `began` to `now` that does not count, such as a pause.
    uncounted: Duration,
}

/// The time of a run that does not count against the run's time limit, as far as this time is
/// known.
#[derive(Debug, Clone, Copy, Default)]
pub enum UncountedTimes<'a> {
    /// All time counts.
    #[default]
    None,
    /// The totals of the uncounted time of an open run, oldest first.
    Known(&'a [UncountedTotal]),
    /// It is unknown which time does not count. In this case, the run reaches its time limit only
    /// if both conditions are met:
    /// - One of the run's threads has timed out.
    /// - All time of the run, including time that may not count, reaches the limit.
    Unknown,
}

impl RunClock {
    pub(super) fn start(began: Time) -> Self {
        Self { began, now: began, uncounted: Duration::ZERO }
    }

    /// Sets the clock to the time of the run's next message.
    pub(super) fn advance(&mut self, time: Time, uncounted: UncountedTimes<'_>) {
        self.now = time;
        self.uncounted = match uncounted {
            UncountedTimes::Known(totals) => uncounted_at(totals, time),
            UncountedTimes::None | UncountedTimes::Unknown => Duration::ZERO,
        };
    }

    /// Returns the time of the run that counts against its limit.
    pub(super) fn elapsed(self) -> Duration {
        self.now.since(self.began).saturating_sub(self.uncounted)
    }
}

/// Whether `message` is the result of a thread that has timed out.
pub(super) fn has_timed_out(message: &Message) -> bool {
    let result = Element::read_document(message.payload.as_str());
    let result = result.filter(|result| result.local_name() == "thread-result");
    result.is_some_and(|result| {
        let mut payloads = result.children();
        payloads.any(|payload| is_failed(payload) && failure_of(payload).code == "timeout")
    })
}
