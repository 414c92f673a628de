//! Logs failed attempts. The caller gets only the kind of a failure. The author of the listener
//! finds the reason in this log.

use super::metrics_recorder::MetricsRecorder;
use crate::envelope::AttemptFailure;
use crate::thread::{Input, Record};

/// Logs the attempts in `records` that timed out, or that failed for a reason that only the author
/// of the listener can repair. Ignores attempts that were no longer in flight, for example because
/// their call was cancelled. Must be called before `metrics` counts the records and their effects,
/// because `metrics` then forgets the attempts.
pub(super) fn warn_of_failed_attempts(records: &[Record], metrics: &MetricsRecorder) {
    for record in records {
        match &record.input {
            Input::Failed { listener, call, attempt, failure } => {
                let is_in_flight =
                    attempt.is_preview() || metrics.listener_of(*call, *attempt).is_some();
                if is_in_flight && is_of_listener(failure) {
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

/// Whether only the author of the listener can repair the failure. False for all other failures,
/// such as those of model calls and budgets, whose reasons the caller itself gets.
const fn is_of_listener(failure: &AttemptFailure) -> bool {
    match failure {
        AttemptFailure::Crashed { .. }
        | AttemptFailure::Garbage { .. }
        | AttemptFailure::Refused { .. } => true,
        AttemptFailure::Unreachable { .. }
        | AttemptFailure::Lost { .. }
        | AttemptFailure::CutShort { .. }
        | AttemptFailure::Model { .. }
        | AttemptFailure::Spent { .. }
        | AttemptFailure::TooLarge { .. } => false,
    }
}
