//! Reads the records of threads from several journals.

use std::path::PathBuf;

use super::{JournalMemory, ThreadHistory};
use crate::ids::{Position, ThreadId};
use crate::journal::Error;
use crate::thread::Record;

/// A source of records for threads in different journals. Each thread is read from the journal that
/// contains it.
pub struct JoinedHistory(Vec<JournalMemory>);

impl JoinedHistory {
    pub fn of(journals: &[PathBuf]) -> Self {
        Self(journals.iter().map(|data| JournalMemory::new(data.clone())).collect())
    }
}

impl ThreadHistory for JoinedHistory {
    fn records(
        &self,
        thread: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, Error> {
        let mut records = self.records_since(thread, after)?;
        records.retain(|record| record.position <= up_to);
        Ok(records)
    }

    fn records_since(&self, thread: &ThreadId, after: Position) -> Result<Vec<Record>, Error> {
        for journal in &self.0 {
            let records = journal.records_since(thread, after)?;
            if !records.is_empty() {
                return Ok(records);
            }
        }
        Ok(Vec::new())
    }
}
