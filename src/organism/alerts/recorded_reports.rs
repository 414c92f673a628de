//! Reads the reports about alerts that earlier runs of the organism recorded.

use std::ops::ControlFlow;

use crate::clock::Time;
use crate::ids::{Position, ThreadId};
use crate::index::{self, IndexReader};
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::system::AlertReport;
use crate::thread::{Input, Record};

/// A report about an alert, with the time of its record.
type TimedReport = (AlertReport, Time);

/// Returns the recorded reports about alerts, oldest first, with the times of their records. Reads
/// only the last [`limits::ALERT_RECALL_RECORDS_MAX`] records of the thread that contains these
/// reports. If this thread has earlier records, also returns the position before which they are.
pub(super) fn recent_reports(
    reader: &JournalReader,
) -> Result<(Vec<TimedReport>, Option<Position>), Error> {
    let mut reports = Vec::new();
    let mut unread = None;
    let head = reader.head(&ThreadId::organism())?.unwrap_or(Position(0));
    let mut visited = 0;
    reader.walk_back(head, |walked| {
        let record = walked.record();
        reports.extend(report_in(record));
        unread = (record.previous != Position(0)).then_some(record.position);
        visited += 1;
        let is_enough = visited >= limits::ALERT_RECALL_RECORDS_MAX;
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;

    reports.reverse();
    Ok((reports, unread))
}

/// Returns the reports before `before` about alerts that this run must know, oldest first, with the
/// times of their records. Such an alert has not ended, or is about a budget and was reported after
/// `read_again`, because the follower processes the records after `read_again` again.
///
/// Finds the reports with the index of the journal, because they may be far back. Returns nothing
/// if the index lacks one of the records before `before`, and leaves out reports that cannot be
/// read. The follower must work in both cases, so they only lead to a warning.
pub(super) fn older_alerts(
    reader: &JournalReader,
    before: Position,
    read_again: Position,
) -> Vec<TimedReport> {
    let last = Position(before.0.saturating_sub(1));
    let mut find = |index: &mut IndexReader| index.open_alerts(before, read_again);
    let positions = match index::read_as_is(reader.data(), last, &mut find) {
        Ok(Some(positions)) => positions,
        Ok(None) => {
            tracing::warn!("no index: alerts before record {before} are not known");
            Vec::new()
        }
        Err(error) => {
            tracing::warn!("alerts before record {before} are not known: {error}");
            Vec::new()
        }
    };

    let mut reports = Vec::new();
    for position in positions {
        match reader.existing_record(position) {
            Ok(sealed) => reports.extend(report_in(&sealed.record)),
            Err(error) => tracing::warn!("the alert in record {position} is not known: {error}"),
        }
    }
    reports
}

/// Returns the report about an alert that `record` contains, and the time of the record.
fn report_in(record: &Record) -> Option<(AlertReport, Time)> {
    match &record.input {
        Input::Alert(report) => Some((report.clone(), record.time)),
        _ => None,
    }
}
