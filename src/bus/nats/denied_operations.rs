//! Operations that NATS servers denied to this pump, or to programs of a listener. The programs
//! report denied operations to the pump (docs/PROTOCOL.md, section 12). All reports of one interval
//! become one record, so that a program with many reports does not fill the journal.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use super::host::NatsShared;
use crate::limits;
use crate::locks::locked;
use crate::nats::Message;

/// Reports about denied operations that are not recorded yet. An interval begins with the first
/// unrecorded report. At the end of the interval, its reports become one record.
#[derive(Debug, Default)]
pub(super) struct DeniedOperations {
    /// Time of the first unrecorded report; `None` if there is no unrecorded report.
    since: Option<Instant>,
    /// The distinct operations, in the order of their first reports.
    operations: Vec<String>,
    count: u64,
    /// Number of reports in another form. Used to limit the log lines about them.
    unreadable: u64,
}

/// The reports about denied operations that arrived in one interval.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DenialReport {
    pub operations: String,
    /// Number of reports of denied operations in the interval.
    pub count: u64,
}

impl DeniedOperations {
    /// Adds a report of the form `publish SUBJECT` or `subscribe SUBJECT`. Returns false if the
    /// report has another form.
    pub fn add(&mut self, report: &[u8], now: Instant) -> bool {
        let Some(operation) = operation(report) else { return false };
        self.since.get_or_insert(now);
        self.count += 1;
        let is_known = self.operations.iter().any(|known| known == operation);
        if !is_known && self.operations.len() < limits::NATS_DENIED_OPERATIONS_MAX {
            self.operations.push(operation.to_owned());
        }

        true
    }

    /// Removes and returns the reports of an interval that is over. Returns `None` if the interval
    /// is not over, or if there is no report.
    pub fn take_due(&mut self, now: Instant) -> Option<DenialReport> {
        let since = self.since?;
        let is_due = now.saturating_duration_since(since) >= limits::BUSY_INTERVAL;
        if is_due { self.take_all() } else { None }
    }

    /// Removes and returns the reports, even if their interval is not over. Returns `None` if there
    /// is no report.
    pub fn take_all(&mut self) -> Option<DenialReport> {
        self.since.take()?;
        let operations = std::mem::take(&mut self.operations).join(", ");
        let count = std::mem::take(&mut self.count);
        Some(DenialReport { operations, count })
    }
}

/// Returns the operation that a report names, such as `publish SUBJECT`. Returns `None` if the
/// report has another form, or if its subject is too long or not printable ASCII.
fn operation(report: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(report).ok()?;
    let (verb, subject) = text.split_once(' ')?;
    let is_verb = matches!(verb, "publish" | "subscribe");
    let is_subject = (1..=limits::NATS_DENIED_SUBJECT_BYTES_MAX).contains(&subject.len())
        && subject.bytes().all(|byte| byte.is_ascii_graphic());
    (is_verb && is_subject).then_some(text)
}

impl NatsShared {
    /// Takes the report of a program about an operation that the servers denied to it. A program may
    /// send many reports in another form, so one of these is logged only if their number is a power
    /// of two.
    pub(super) fn take_report(&self, message: &Message) {
        let mut denied = self.denied_operations();
        if denied.add(&message.payload, Instant::now()) {
            return;
        }

        denied.unreadable += 1;
        let count = denied.unreadable;
        drop(denied);
        if count.is_power_of_two() {
            let listener = &self.options.listener;
            let subject = &message.subject;
            tracing::warn!(
                %listener, count,
                "ignored a report at {subject}, because it is neither `publish SUBJECT` nor \
                 `subscribe SUBJECT` with a subject of at most {} printable ASCII characters",
                limits::NATS_DENIED_SUBJECT_BYTES_MAX
            );
        }
    }

    /// Ends the attempts whose deliveries the NATS servers did not permit. No listener has received
    /// these deliveries, so nothing else would end the attempts.
    pub(super) fn give_up_what_is_denied(self: &Arc<Self>, connection: Option<u64>) {
        let since = Instant::now().checked_sub(2 * limits::NATS_CHECK_INTERVAL);
        let (Some(since), Some(_)) = (since, connection) else { return };
        let denials = self.wire.denials();
        let Some(denied) = denials.publish_denied(&self.subjects().deliveries(), since) else {
            return;
        };

        let Some(published) = Instant::now().checked_sub(limits::NATS_ROUND_TRIP) else { return };
        let _ending = self.ending();
        let untaken = self.in_flight().denied(published);
        for key in untaken {
            self.not_taken(key, denied.to_string());
        }
    }

    /// Sets the reason why this pump cannot get the listener's answers: the servers deny them, or
    /// the connection has ended and is made anew. `None` if the pump can get the answers.
    ///
    /// As long as a reason is set, the host publishes no deliveries, and gives up no attempt in
    /// flight, because a replica may still answer later. When the pump can get answers again, the
    /// host gives up the attempts without a lease, because their answers may be lost.
    pub(super) fn set_answers_denied(&self, denied: Option<String>) {
        let mut known = self.answers_denied();
        // A denial is reported each time. A host that was replaced may have withdrawn its own.
        if *known == denied && denied.is_none() {
            return;
        }
        known.clone_from(&denied);
        drop(known);

        if denied.is_none() {
            self.in_flight().lose_answers();
            // Replicas may have announced themselves meanwhile.
            self.is_probe_due.store(true, Ordering::Release);
        }
        self.sink().answers_denied(&self.options.listener, denied);
    }

    /// Returns the locked reason why this pump cannot get the listener's answers; `None` if it can
    /// get them. For the possible reasons, see `set_answers_denied`.
    pub(super) fn answers_denied(&self) -> MutexGuard<'_, Option<String>> {
        locked(&self.answers_denied)
    }

    pub(super) fn are_answers_denied(&self) -> bool {
        self.answers_denied().is_some()
    }

    pub(super) fn denied_operations(&self) -> MutexGuard<'_, DeniedOperations> {
        locked(&self.denied_operations)
    }

    /// Reports to the sink which operations the servers denied to programs of the listener.
    pub(super) fn report_denied(&self, denied: Option<DenialReport>) {
        if let Some(DenialReport { operations, count }) = denied {
            let listener = &self.options.listener;
            tracing::warn!(
                %listener, count,
                "the NATS server denied to a program of the listener: {operations}; \
                 `organism nats-config` writes a server config with all necessary permissions"
            );
            self.sink().denied(listener, operations, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reports_of_an_interval_are_one() {
        let mut denied = DeniedOperations::default();
        let begun = Instant::now();
        assert_eq!(denied.take_due(begun + limits::BUSY_INTERVAL), None);
        for report in ["subscribe a.b", "publish c", "subscribe a.b"] {
            assert!(denied.add(report.as_bytes(), begun));
        }

        assert_eq!(denied.take_due(begun), None);
        let operations = "subscribe a.b, publish c".to_owned();
        let expected = DenialReport { operations, count: 3 };
        assert_eq!(denied.take_due(begun + limits::BUSY_INTERVAL), Some(expected));
        assert_eq!(denied.take_all(), None, "they are taken once");
    }

    #[test]
    fn a_report_has_a_verb_and_a_subject_and_their_number_is_bounded() {
        let mut denied = DeniedOperations::default();
        let now = Instant::now();
        let long = format!("publish {}", "a".repeat(limits::NATS_DENIED_SUBJECT_BYTES_MAX + 1));
        let wrong = [
            "",
            "publish",
            "publish ",
            "publish a b",
            "delete a",
            "publish a\nb",
            "publish ä",
            &long,
        ];
        for report in wrong {
            assert!(!denied.add(report.as_bytes(), now), "{report}");
        }
        assert!(!denied.add(b"publish \xff", now));
        assert_eq!(denied.take_all(), None);

        for n in 0..2 * limits::NATS_DENIED_OPERATIONS_MAX {
            assert!(denied.add(format!("publish {n}").as_bytes(), now));
        }
        let report = denied.take_all().unwrap();
        assert_eq!(report.count, 2 * limits::NATS_DENIED_OPERATIONS_MAX as u64);
        assert_eq!(report.operations.split(", ").count(), limits::NATS_DENIED_OPERATIONS_MAX);
    }
}
