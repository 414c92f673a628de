//! Logs failed attempts. The caller gets only the kind of a failure. The author of the listener
//! finds the reason in this log.

use std::collections::HashSet;

use super::metrics_recorder::MetricsRecorder;
use crate::envelope::AttemptFailure;
use crate::ids::ListenerName;
use crate::thread::{Input, Record};
use crate::xml::invisible_characters::visible_line;

/// Maximum number of reasons in [`LoggedReasons`].
const REASONS_MAX: usize = 64;

/// Reasons why a listener could not be reached that are in the log already. The host of an agent
/// with another config refuses every attempt for the same reason.
#[derive(Debug, Default)]
pub(super) struct LoggedReasons(HashSet<(ListenerName, String)>);

impl LoggedReasons {
    /// Records that `failure` is logged. Returns false if it is in the log already.
    fn add(&mut self, listener: &ListenerName, failure: &AttemptFailure) -> bool {
        let AttemptFailure::Unreachable { detail } = failure else { return true };
        if self.0.len() >= REASONS_MAX {
            self.0.clear();
        }
        self.0.insert((listener.clone(), detail.clone()))
    }

    /// Forgets the reasons of `listener`, which was reached. A reason that returns is logged again.
    fn remove(&mut self, listener: &ListenerName) {
        if !self.0.is_empty() {
            self.0.retain(|(logged, _)| logged != listener);
        }
    }
}

/// Logs the attempts in `records` that timed out, or that failed for a reason that only the author
/// of the listener, or the operator of its host, can repair. Ignores attempts that were no longer in
/// flight, for example because their call was cancelled. Must be called before `metrics` counts the
/// records and their effects, because `metrics` then forgets the attempts.
///
/// Logs each reason why a listener cannot be reached once until the listener answers, and records it
/// in `logged`.
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
                if is_in_flight && is_of_listener(failure) && logged.add(listener, failure) {
                    // The host of an agent, which may run elsewhere, writes a part of the text.
                    let failure = visible_line(&failure.to_string());
                    tracing::warn!(%listener, %call, %attempt, "the attempt failed: {failure}");
                }
            }
            Input::Outcome { listener, .. } => logged.remove(listener),
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
    fn a_reason_is_logged_once_until_its_listener_answers() {
        let mut logged = LoggedReasons::default();
        let [one, other] = ["one", "other"].map(|name| ListenerName::parse(name).unwrap());
        let unreachable = |detail: &str| AttemptFailure::Unreachable { detail: detail.to_owned() };
        let failure = unreachable("another config");

        assert!(logged.add(&one, &failure));
        assert!(!logged.add(&one, &failure));
        assert!(logged.add(&one, &unreachable("no replica")));
        assert!(logged.add(&other, &failure));

        logged.remove(&one);
        assert!(logged.add(&one, &failure));
        assert!(!logged.add(&other, &failure));
    }
}
