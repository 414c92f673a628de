//! Lists trees by their properties, newest first, in pages.

use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use crate::clock::Time;
use crate::envelope::Money;
use crate::ids::{Position, ThreadId};

use super::words::match_query;
use super::{Error, IndexReader};

/// Properties that a tree must have to be listed.
#[derive(Debug, Clone, Default)]
pub struct TreeFilter {
    pub status: Option<String>,
    /// Changed at or after this time.
    pub since: Option<Time>,
    /// Opened before this time.
    pub until: Option<Time>,
    /// A listener that was called in it.
    pub listener: Option<String>,
    /// An agent that took a turn in it.
    pub agent: Option<String>,
    /// Local name or `{namespace}local` of a payload in it.
    pub payload: Option<String>,
    /// Model calls that cost more than this.
    pub cost_over: Option<Money>,
    /// Whether an attempt or a call must have failed.
    pub has_errors: bool,
    /// Whether a call must wait for a person.
    pub needs_person: bool,
    /// Words that one message of it contains.
    pub words: String,
    /// Whether the organism's own thread is left out.
    pub is_without_organism: bool,
    /// The trees whose last record is before this position.
    pub before: Option<Position>,
}

/// A tree as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTree {
    pub thread: String,
    pub status: String,
    pub subthreads: u64,
    pub records: u64,
    pub messages: u64,
    pub settled: u64,
    pub refusals: u64,
    pub errors: u64,
    pub waiting: u64,
    pub turns: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub tokens_charged: u64,
    pub cost: Money,
    pub opened: Time,
    pub updated: Time,
    pub requested_by: Option<String>,
    pub request: Option<String>,
    pub request_local: Option<String>,
    pub first_words: Option<String>,
    /// Position of its last record. The next page begins before that of the last tree.
    pub head: Position,
}

const SELECT: &str = "SELECT t.id, r.status, r.subthreads, r.records, r.messages, r.settled, \
                      r.refusals, r.errors, r.held, r.turns, r.tokens_in, r.tokens_out, \
                      r.tokens_charged, r.cost, r.opened, r.updated, \
                      (SELECT text FROM name WHERE n = t.requested_by), \
                      (SELECT text FROM name WHERE n = t.request), \
                      (SELECT local FROM name WHERE n = t.request), t.first_words, r.head \
                      FROM tree_row r JOIN thread_row t ON t.n = r.n WHERE 1";

impl IndexReader {
    /// The newest `limit` trees that `filter` leaves, by their last record; newest first.
    ///
    /// # Errors
    ///
    /// Those of the index.
    pub fn trees(&self, filter: &TreeFilter, limit: usize) -> Result<Vec<ListedTree>, Error> {
        let mut sql = SELECT.to_owned();
        let mut values: Vec<Value> = Vec::new();
        for (condition, value) in conditions(filter) {
            sql.push_str(" AND ");
            sql.push_str(condition);
            values.extend(value);
        }
        sql.push_str(" ORDER BY r.head DESC LIMIT ?");
        values.push(i64::try_from(limit).unwrap_or(i64::MAX).into());

        let listed = || -> rusqlite::Result<Vec<ListedTree>> {
            let mut query = self.connection().prepare(&sql)?;
            let trees = query.query_map(params_from_iter(values), read)?;
            trees.collect()
        };
        listed().map_err(|error| self.failed(error))
    }
}

/// The conditions of a filter, each with its values.
fn conditions(filter: &TreeFilter) -> Vec<(&'static str, Vec<Value>)> {
    let mut all: Vec<(&'static str, Vec<Value>)> = Vec::new();
    let text = |text: &String| vec![Value::from(text.clone())];
    if let Some(status) = &filter.status {
        all.push(("r.status = ?", text(status)));
    }
    if let Some(since) = filter.since {
        all.push(("r.updated >= ?", vec![since.0.into()]));
    }
    if let Some(until) = filter.until {
        all.push(("r.opened < ?", vec![until.0.into()]));
    }
    if let Some(listener) = &filter.listener {
        let condition = "EXISTS (SELECT 1 FROM thread_row s JOIN call_row c ON c.thread = s.n \
                         WHERE s.tree = r.n \
                         AND c.listener = (SELECT n FROM name WHERE text = ?))";
        all.push((condition, text(listener)));
    }
    if let Some(agent) = &filter.agent {
        let condition = "EXISTS (SELECT 1 FROM thread_row s JOIN turn_row u ON u.thread = s.n \
                         WHERE s.tree = r.n AND u.agent = (SELECT n FROM name WHERE text = ?))";
        all.push((condition, text(agent)));
    }
    if let Some(payload) = &filter.payload {
        let condition = "EXISTS (SELECT 1 FROM thread_row s JOIN message_row m ON m.thread = s.n \
                         WHERE s.tree = r.n \
                         AND m.name IN (SELECT n FROM name WHERE text = ? OR local = ?))";
        all.push((condition, [text(payload), text(payload)].concat()));
    }
    if let Some(cost) = filter.cost_over {
        let cost = i64::try_from(cost.0).unwrap_or(i64::MAX);
        all.push(("r.cost > ?", vec![cost.into()]));
    }
    if filter.has_errors {
        all.push(("r.errors > 0", Vec::new()));
    }
    if filter.needs_person {
        all.push(("r.held > 0", Vec::new()));
    }
    if let Some(words) = match_query(&filter.words) {
        let condition = "r.n IN (SELECT s.tree FROM word CROSS JOIN message_row m \
                         ON m.n = word.rowid JOIN thread_row s ON s.n = m.thread \
                         WHERE word MATCH ?)";
        all.push((condition, vec![words.into()]));
    }
    if filter.is_without_organism {
        all.push(("t.id <> ?", vec![ThreadId::ORGANISM.to_owned().into()]));
    }
    if let Some(before) = filter.before {
        let before = i64::try_from(before.0).unwrap_or(i64::MAX);
        all.push(("r.head < ?", vec![before.into()]));
    }
    all
}

fn read(row: &Row<'_>) -> rusqlite::Result<ListedTree> {
    Ok(ListedTree {
        thread: row.get(0)?,
        status: row.get(1)?,
        subthreads: row.get(2)?,
        records: row.get(3)?,
        messages: row.get(4)?,
        settled: row.get(5)?,
        refusals: row.get(6)?,
        errors: row.get(7)?,
        waiting: row.get(8)?,
        turns: row.get(9)?,
        tokens_in: row.get(10)?,
        tokens_out: row.get(11)?,
        tokens_charged: row.get(12)?,
        cost: Money(row.get(13)?),
        opened: Time(row.get(14)?),
        updated: Time(row.get(15)?),
        requested_by: row.get(16)?,
        request: row.get(17)?,
        request_local: row.get(18)?,
        first_words: row.get(19)?,
        head: Position(row.get(20)?),
    })
}
