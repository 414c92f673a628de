//! Logs failed attempts. The caller gets only the kind of a failure. The author of the listener
//! finds the reason in this log.

use std::collections::HashMap;
use std::time::Duration;

use super::metrics_recorder::MetricsRecorder;
use crate::clock::Time;
use crate::envelope::AttemptFailure;
use crate::ids::ListenerName;
use crate::thread::{Input, Record};
use crate::xml::invisible_characters::visible_line;

/// Maximum number of reasons in [`LoggedReasons`].
const REASONS_MAX: usize = 64;

/// Time without an occurrence of a reason, after which the next occurrence is logged again.
const QUIET_TIME: Duration = Duration::from_secs(600);

/// The logged reasons why listeners could not be reached, each with its listener and the time of
/// its latest occurrence. Every attempt may fail for the same reason, for example if the host of an
/// agent has another config. Such a reason is logged at its first occurrence, and again only if it
/// has not occurred for [`QUIET_TIME`].
#[derive(Debug, Default)]
pub(super) struct LoggedReasons(HashMap<(ListenerName, String), Time>);

impl LoggedReasons {
    /// Records that `listener` failed at `now`. Returns whether the failure must be logged. Always
    /// returns true for a failure other than an unreachable listener.
    fn add(&mut self, listener: &ListenerName, failure: &AttemptFailure, now: Time) -> bool {
        let AttemptFailure::Unreachable { detail } = failure else { return true };
        if self.0.len() >= REASONS_MAX {
            self.0.clear();
        }
        let latest = self.0.insert((listener.clone(), detail.clone()), now);
        latest.is_none_or(|latest| now.since(latest) >= QUIET_TIME)
    }
}

/// Logs the attempts in `records` that timed out. Also logs failures that only the author of the
/// listener, or the operator of its host, can repair. Ignores attempts that were no longer in
/// flight, for example because their call was cancelled, but logs every failed preview. Must be
/// called before `metrics` counts the records, because `metrics` then forgets the attempts.
///
/// If a listener cannot be reached, logs the reason and records it in `logged`. A reason in
/// `logged` is logged again only if it has not occurred for `QUIET_TIME`.
pub(super) fn warn_of_failed_attempts(
    records: &[Record],
    metrics: &MetricsRecorder,
    logged: &mut LoggedReasons,
) {
    for record in records {
        match &record.input {
            Input::Failed { listener, call, attempt, failure } => {
                let is_in_flight =
                    attempt.is_preview() || metrics.listener_of(*call, *attempt).is_some();
                if is_in_flight
                    && is_of_listener(failure)
                    && logged.add(listener, failure, record.time)
                {
                    // The host of an agent, which may run elsewhere, writes a part of the text.
                    let failure = visible_line(&failure.to_string());
                    tracing::warn!(%listener, %call, %attempt, "the attempt failed: {failure}");
                }
            }
            Input::Deadline { call, attempt } => {
                let Some(listener) = metrics.listener_of(*call, *attempt) else { continue };
                tracing::warn!(
                    %listener, %call, %attempt,
                    "the attempt timed out: neither an answer nor a heartbeat came in time"
                );
            }
            _ => {}
        }
    }
}

/// Whether only the author of the listener, or the operator of its host, can repair the failure.
/// False for all other failures, such as those of model calls and budgets, whose reasons the caller
/// itself gets.
const fn is_of_listener(failure: &AttemptFailure) -> bool {
    match failure {
        AttemptFailure::Crashed { .. }
        | AttemptFailure::Garbage { .. }
        | AttemptFailure::Refused { .. }
        | AttemptFailure::Unreachable { .. } => true,
        AttemptFailure::Lost { .. }
        | AttemptFailure::CutShort { .. }
        | AttemptFailure::Model { .. }
        | AttemptFailure::Spent { .. }
        | AttemptFailure::TooLarge { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_once_until_it_was_away_for_some_time() {
        let mut logged = LoggedReasons::default();
        let [one, other] = ["one", "other"].map(|name| ListenerName::parse(name).unwrap());
        let unreachable = |detail: &str| AttemptFailure::Unreachable { detail: detail.to_owned() };
        let failure = unreachable("another config");
        let minutes = |n: u64| Time(0).plus(Duration::from_secs(60 * n));

        assert!(logged.add(&one, &failure, minutes(0)));
        assert!(logged.add(&one, &unreachable("no replica"), minutes(0)));
        assert!(logged.add(&other, &failure, minutes(0)));
        for minute in [0, 9, 18, 27] {
            assert!(!logged.add(&one, &failure, minutes(minute)), "it never was away");
        }
        assert!(logged.add(&one, &failure, minutes(37)));
    }
}
