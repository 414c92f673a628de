//! Reads the threads beneath a thread. The totals of each thread include all threads beneath that
//! thread.

use crate::clock::Time;
use crate::envelope::{CurrencyTotals, Money};
use crate::ids::{PayloadName, ThreadId};

use super::lookup::sql_number;
use super::timelines::BENEATH;
use super::{Error, HoldCount, IndexReader};

/// A thread with its totals, which include all threads beneath it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadBranch {
    pub thread: String,
    /// Phase of the thread: `running`, `idle`, `completed`, `failed` or `cancelled`. A root thread
    /// that has ended is `draining` while calls in threads beneath it are open. The SQL view
    /// `thread` has the same values.
    pub status: String,
    pub opened_by: String,
    pub opened: Time,
    /// Time of the last record that is work of this thread or of a thread beneath it. Refusals, and
    /// decisions of persons, do not count as work.
    pub worked: Time,
    /// Number of threads that the thread opened.
    pub children: u64,
    /// Number of all threads beneath the thread.
    pub beneath: u64,
    pub messages: u64,
    pub refusals: u64,
    /// Number of failed attempts and failed calls. Calls that a person denied count as failed.
    pub errors: u64,
    /// Number of calls that a person denied.
    pub denials: u64,
    pub turns: u64,
    pub tokens: u64,
    pub costs: CurrencyTotals,
    /// The calls that wait for a person.
    pub waits: HoldCount,
}

/// Builds the query for the threads that satisfy the SQL condition `picked`. The totals of each
/// thread include all threads beneath it. The ids of the threads beneath the thread `id` sort
/// between `id.` and `id/`.
fn branch_sql(picked: &str) -> String {
    format!(
        "SELECT t.id, CASE WHEN t.n = t.tree THEN r.status WHEN t.open_calls > 0 THEN 'running' \
         ELSE coalesce(t.ended_how, 'idle') END, \
         coalesce((SELECT text FROM name WHERE n = t.opened_by), ''), t.opened, \
         max(t.worked, coalesce(max(b.worked), 0)), coalesce(sum(b.parent = t.n), 0), count(b.n), \
         t.messages + coalesce(sum(b.messages), 0), t.refusals + coalesce(sum(b.refusals), 0), \
         t.errors + coalesce(sum(b.errors), 0), t.turns + coalesce(sum(b.turns), 0), \
         t.tokens_in + t.tokens_out + t.tokens_charged \
         + coalesce(sum(b.tokens_in + b.tokens_out + b.tokens_charged), 0), \
         t.cost + coalesce(sum(b.cost), 0), t.held + coalesce(sum(b.held), 0), \
         (SELECT count(*) FROM action_row a CROSS JOIN thread_row s ON s.n = a.thread \
         WHERE a.position BETWEEN r.first AND r.head AND a.action = 'refuse' AND a.accepted \
         AND (s.n = t.n OR (s.id > t.id || '.' AND s.id < t.id || '/'))) \
         FROM (SELECT * FROM thread_row WHERE {picked}) t \
         JOIN tree_row r ON r.n = t.tree \
         LEFT JOIN thread_row b ON b.id > t.id || '.' AND b.id < t.id || '/' \
         GROUP BY t.n ORDER BY t.position, t.n"
    )
}

impl IndexReader {
    /// Returns a thread with its totals; `None` if there is no such thread.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn branch(&self, thread: &ThreadId) -> Result<Option<ThreadBranch>, Error> {
        Ok(self.branches("id = ?1", &[&thread.as_str()])?.pop())
    }

    /// Returns a page of the threads that a thread opened, in the order of their opening: skips the
    /// first `skip`, and returns at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn child_branches(
        &self,
        thread: &ThreadId,
        skip: u64,
        limit: usize,
    ) -> Result<Vec<ThreadBranch>, Error> {
        let picked = "tree = (SELECT tree FROM thread_row WHERE id = ?1) \
                      AND parent = (SELECT n FROM thread_row WHERE id = ?1) \
                      ORDER BY position, n LIMIT ?2 OFFSET ?3";
        self.branches(picked, &[&thread.as_str(), &sql_number(limit), &sql_number(skip)])
    }

    /// Whether a thread has a message with the payload name `name`.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn has_payload(&self, thread: &ThreadId, name: &PayloadName) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM message_row WHERE name = (SELECT n FROM name WHERE text = ?1) \
                   AND thread = (SELECT n FROM thread_row WHERE id = ?2) LIMIT 1";
        let values: [&dyn rusqlite::ToSql; 2] = [&name.to_string(), &thread.as_str()];
        Ok(!self.rows(sql, &values, |_| Ok(()))?.is_empty())
    }

    fn branches(
        &self,
        picked: &str,
        values: &[&dyn rusqlite::ToSql],
    ) -> Result<Vec<ThreadBranch>, Error> {
        let mut branches = self.rows(&branch_sql(picked), values, |row| {
            Ok(ThreadBranch {
                thread: row.get(0)?,
                status: row.get(1)?,
                opened_by: row.get(2)?,
                opened: Time(row.get(3)?),
                worked: Time(row.get(4)?),
                children: row.get(5)?,
                beneath: row.get(6)?,
                messages: row.get(7)?,
                refusals: row.get(8)?,
                errors: row.get(9)?,
                turns: row.get(10)?,
                tokens: row.get(11)?,
                costs: CurrencyTotals::of(None, Money(row.get(12)?)),
                waits: HoldCount { calls: row.get(13)?, hold: None },
                denials: row.get(14)?,
            })
        })?;

        for branch in &mut branches {
            branch.waits = self.hold_count(&branch.thread, branch.waits.calls)?;
        }
        let currencies = self.currencies()?;
        for branch in branches.iter_mut().filter(|branch| !branch.costs.is_zero()) {
            let total = branch.costs.nominal_sum();
            branch.costs = self.split_cost(&currencies, total, (BENEATH, &branch.thread))?;
        }
        Ok(branches)
    }
}
