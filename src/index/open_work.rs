//! Counts the open work that a pause, a cancellation or a resume concerns.

use std::collections::BTreeSet;

use crate::ids::ThreadId;

use super::listener_load::IS_QUEUED;
use super::{Error, IndexReader};

/// The part of an organism whose open work is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkFilter {
    All,
    /// The calls to one listener.
    Listener(String),
    /// The calls of a thread and of all threads beneath it.
    Thread(ThreadId),
}

/// Open calls by their state, and the trees that contain them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenWorkCounts {
    /// Calls whose delivery is with a listener.
    pub at_work: u64,
    /// Calls that are ready for their listeners, but not handed over to them.
    pub queued: u64,
    /// Calls that wait for a person.
    pub held: u64,
    /// Calls whose listener waits for the results of its own calls to other listeners, for threads
    /// beneath it, or for timers.
    pub waiting: u64,
    /// Root threads of the trees that contain the counted calls.
    pub roots: BTreeSet<String>,
    /// Whether there are more open calls than were counted.
    pub is_more: bool,
}

impl OpenWorkCounts {
    pub fn calls(&self) -> u64 {
        self.at_work + self.queued + self.held + self.waiting
    }

    /// Adds `other`, the counts of another journal, to these counts.
    pub fn add(&mut self, other: Self) {
        self.at_work += other.at_work;
        self.queued += other.queued;
        self.held += other.held;
        self.waiting += other.waiting;
        self.roots.extend(other.roots);
        self.is_more |= other.is_more;
    }
}

impl IndexReader {
    /// Counts the open calls that `filter` selects. Stops after `most` calls. Usually reads only
    /// open calls. For a filter by thread, also reads the ended calls of threads that have open
    /// calls.
    pub fn open_work(&self, filter: &WorkFilter, most: u64) -> Result<OpenWorkCounts, Error> {
        let call = format!(
            "SELECT r.id, EXISTS (SELECT 1 FROM hold_row h INDEXED BY hold_open \
             WHERE h.call = c.n AND h.ended IS NULL), \
             EXISTS (SELECT 1 FROM delivery_row d WHERE d.call = c.n AND d.ended IS NULL), \
             ({IS_QUEUED})"
        );
        let open = "FROM call_row c INDEXED BY call_open \
                    CROSS JOIN thread_row t ON t.n = c.thread \
                    CROSS JOIN thread_row r ON r.n = t.tree WHERE c.closed IS NULL";
        let limit = most.saturating_add(1);
        let rows = match filter {
            WorkFilter::All => {
                let sql = format!("{call} {open} LIMIT ?1");
                self.rows(&sql, &[&limit], call_state)?
            }
            WorkFilter::Listener(listener) => {
                let named = "c.listener = (SELECT n FROM name WHERE text = ?2)";
                let sql = format!("{call} {open} AND {named} LIMIT ?1");
                self.rows(&sql, &[&limit, listener], call_state)?
            }
            WorkFilter::Thread(thread) => {
                let sql = format!(
                    "{call} FROM thread_row t CROSS JOIN thread_row r ON r.n = t.tree \
                     CROSS JOIN call_row c ON c.thread = t.n AND c.closed IS NULL \
                     WHERE (t.id = ?2 OR (t.id > ?2 || '.' AND t.id < ?2 || '/')) \
                     AND t.open_calls > 0 LIMIT ?1"
                );
                self.rows(&sql, &[&limit, &thread.as_str()], call_state)?
            }
        };
        Ok(counts(rows, most))
    }
}

struct OpenCallState {
    root: String,
    is_held: bool,
    is_at_work: bool,
    is_queued: bool,
}

fn call_state(row: &rusqlite::Row<'_>) -> rusqlite::Result<OpenCallState> {
    Ok(OpenCallState {
        root: row.get(0)?,
        is_held: row.get(1)?,
        is_at_work: row.get(2)?,
        is_queued: row.get(3)?,
    })
}

fn counts(rows: Vec<OpenCallState>, most: u64) -> OpenWorkCounts {
    let mut counts = OpenWorkCounts { is_more: rows.len() as u64 > most, ..Default::default() };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    for call in rows.into_iter().take(most) {
        let counted = if call.is_held {
            &mut counts.held
        } else if call.is_at_work {
            &mut counts.at_work
        } else if call.is_queued {
            &mut counts.queued
        } else {
            &mut counts.waiting
        };
        *counted += 1;
        counts.roots.insert(call.root);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_counts_once_and_calls_beyond_the_bound_are_marked() {
        let call = |root: &str, is_held, is_at_work, is_queued| OpenCallState {
            root: root.to_owned(),
            is_held,
            is_at_work,
            is_queued,
        };
        let calls = || {
            vec![
                call("a", true, false, true),
                call("a", false, true, false),
                call("b", false, false, true),
                call("b", false, false, false),
            ]
        };

        let all = counts(calls(), 4);
        assert_eq!([all.held, all.at_work, all.queued, all.waiting], [1, 1, 1, 1]);
        assert_eq!(all.roots.len(), 2);
        assert!(!all.is_more);
        let first = counts(calls(), 3);
        assert_eq!(first.calls(), 3);
        assert!(first.is_more);
    }
}
