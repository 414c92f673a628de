//! Reads the totals of threads' timelines, and the positions of threads' messages. With these, a
//! page of a long thread can be made without reading the whole thread.

use rusqlite::{OptionalExtension as _, Row, ToSql};

use crate::clock::Time;
use crate::envelope::{Money, SpendingTotals};
use crate::ids::{MessageId, Position, ThreadId};
use crate::thread::Hold;

use super::overview::last_failure;
use super::{Error, HoldCount, IndexReader};

/// Counts of the timeline of one thread, without the threads beneath it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineCounts {
    /// Number of messages.
    pub messages: u64,
    /// Number of timeline entries. Each subthread counts as one entry.
    pub events: u64,
}

/// Totals of the timeline of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineSummary {
    /// Phase of the thread. Has the same values as the SQL view `thread`.
    pub status: String,
    /// Number of messages of the thread, without the threads beneath it.
    pub messages: u64,
    /// Time of the last entry of the timeline that is neither a refusal nor a decision of a person.
    /// If there is no such entry, the time of the first entry.
    pub updated: Time,
    /// Number of timeline entries of the thread and all threads beneath it.
    pub events_beneath: u64,
    /// Tokens and money that the thread and all threads beneath it have used.
    pub spent: SpendingTotals,
    /// The calls of the thread and of all threads beneath it that wait for a person.
    pub waits: HoldCount,
}

/// SQL condition that selects a thread and all threads beneath it. The ids of the threads beneath
/// the thread `id` sort between `id.` and `id/`.
pub(super) const BENEATH: &str = "(t.id = ?1 OR (t.id > ?1 || '.' AND t.id < ?1 || '/'))";

/// Maximum length, in characters, of the details in the reason of a thread's failure.
const FAILURE_CHARS: u32 = 300;

impl IndexReader {
    /// Returns the counts of a thread's timeline; `None` if there is no such thread. Takes hardly
    /// any time, because it does not read the threads beneath the thread.
    pub fn timeline_counts(&self, thread: &ThreadId) -> Result<Option<TimelineCounts>, Error> {
        let sql = "SELECT messages, events FROM thread_row WHERE id = ?1";
        let read =
            |row: &Row<'_>| Ok(TimelineCounts { messages: row.get(0)?, events: row.get(1)? });
        self.one(sql, &[&thread.as_str()], read)
    }

    /// Returns the totals of a thread; `None` if there is no such thread.
    pub fn timeline_summary(&self, thread: &ThreadId) -> Result<Option<TimelineSummary>, Error> {
        let id = thread.as_str();
        let own = "SELECT CASE WHEN t.n = t.tree THEN r.status \
                   WHEN t.open_calls > 0 THEN 'running' ELSE coalesce(t.ended_how, 'idle') END, \
                   t.messages, t.last_event \
                   FROM thread_row t JOIN tree_row r ON r.n = t.tree WHERE t.id = ?1";
        let own = self.one(own, &[&id], |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?, Time(row.get(2)?)))
        })?;
        let Some((status, messages, updated)) = own else { return Ok(None) };

        let sums = format!(
            "SELECT sum(t.events), sum(t.tokens_in + t.tokens_out + t.tokens_charged), \
             sum(t.cost), sum(t.held) FROM thread_row t WHERE {BENEATH}"
        );
        let sums = self.one(&sums, &[&id], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?, Money(row.get(2)?), row.get(3)?))
        })?;
        let (events_beneath, tokens, cost, held) = sums.unwrap_or_default();
        let money = self.split_cost(&self.currencies()?, cost, (BENEATH, id))?;
        let spent = SpendingTotals { tokens, money };
        let waits = self.hold_count(id, held)?;

        Ok(Some(TimelineSummary { status, messages, updated, events_beneath, spent, waits }))
    }

    /// Returns the summary of the calls that wait for a person in a thread and beneath it. `calls`
    /// is the number of these calls. Determines the kind of decision for which they wait from the
    /// first 100 calls only.
    pub(super) fn hold_count(&self, thread: &str, calls: u64) -> Result<HoldCount, Error> {
        if calls == 0 {
            return Ok(HoldCount::default());
        }
        let sql = format!(
            "SELECT CASE WHEN min(hold) = max(hold) THEN min(hold) END FROM \
             (SELECT h.hold FROM thread_row t CROSS JOIN call_row c ON c.thread = t.n AND c.closed IS NULL \
             CROSS JOIN hold_row h INDEXED BY hold_open ON h.call = c.n AND h.ended IS NULL \
             WHERE {BENEATH} AND t.held > 0 LIMIT 100)"
        );
        let hold = self.one(&sql, &[&thread], |row| row.get::<_, Option<String>>(0))?;
        let hold = hold.flatten().and_then(|word| Hold::parse(&word));
        Ok(HoldCount { calls, hold })
    }

    /// Whether a call is open in the thread or beneath it.
    pub fn has_open_calls(&self, thread: &ThreadId) -> Result<bool, Error> {
        let sql =
            format!("SELECT 1 FROM thread_row t WHERE {BENEATH} AND t.open_calls > 0 LIMIT 1");
        Ok(self.one(&sql, &[&thread.as_str()], |_| Ok(()))?.is_some())
    }

    /// Returns the reason of the thread's last failure: the name of the fault, and the beginning of
    /// the fault's details. Considers only failed calls that were opened by a client or by another
    /// thread. Returns `None` if there is no such call.
    pub fn last_failure(&self, thread: &ThreadId) -> Result<Option<String>, Error> {
        let sql = last_failure("(SELECT n FROM thread_row WHERE id = ?1)", FAILURE_CHARS);
        self.one(&sql, &[&thread.as_str()], |row| row.get(0))
    }

    /// Returns the position of a thread's message; `None` if there is no such message. `at` is the
    /// number of the message in its thread, counted from 0.
    pub fn message_at(&self, thread: &ThreadId, at: u64) -> Result<Option<Position>, Error> {
        let sql = "SELECT m.position FROM thread_row t CROSS JOIN message_row m ON m.thread = t.n \
                   WHERE t.id = ?1 ORDER BY m.seq LIMIT 1 OFFSET ?2";
        self.one(sql, &[&thread.as_str(), &at], |row| row.get(0).map(Position))
    }

    /// Returns the position of the record that contains a message's disposition; `None` while the
    /// message has no disposition.
    pub fn disposed_at(&self, message: MessageId) -> Result<Option<Position>, Error> {
        let sql = "SELECT disposed FROM message_row WHERE id = ?1";
        let id = message.0.as_bytes().as_slice();
        let disposed = self.one(sql, &[&id], |row| row.get::<_, Option<u64>>(0))?;
        Ok(disposed.flatten().map(Position))
    }

    fn one<T>(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        let found = || self.connection().prepare_cached(sql)?.query_row(values, read).optional();
        found().map_err(|error| self.failed(error))
    }
}
