//! Finds thread trees by their properties, newest first, in pages.

use std::sync::LazyLock;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension as _, Row, params_from_iter};

use crate::clock::Time;
use crate::envelope::{CurrencyTotals, Money};
use crate::ids::{Position, ThreadId};
use crate::limits;
use crate::thread::Hold;

use super::overview::last_failure;
use super::pauses::PausedPart;
use super::threads::TreeNameRole;
use super::waiting::HoldCount;
use super::words::match_query;
use super::{Error, IndexReader};

/// Properties that a thread tree must have to be listed. A field that is `None`, false or empty
/// requires nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TreeFilter {
    pub status: Option<String>,
    /// Time at or after which the tree must have changed.
    pub since: Option<Time>,
    /// Time before which the tree must have been opened.
    pub until: Option<Time>,
    /// Listener that must have been called in the tree.
    pub listener: Option<String>,
    /// Agent that must have taken a turn in the tree.
    pub agent: Option<String>,
    /// Local name or `{namespace}local` of a payload that must be in the tree.
    pub payload: Option<String>,
    /// Amount of money. The filter selects only trees whose model calls cost more than this amount
    /// in total. Amounts in different currencies count as plain numbers.
    pub cost_over: Option<Money>,
    /// Whether to select only trees in which an attempt or a call has failed. A call that a person
    /// denied does not count here.
    pub has_errors: bool,
    /// Whether to select only trees in which a call waits for a person.
    pub needs_person: bool,
    /// Words of a search. At least one message of the tree must contain all of these words. A text
    /// without a word sets no condition. Callers therefore first pass a person's text to
    /// [`check_words`](super::check_words), which refuses a text that is not empty but has no word.
    pub words: String,
    /// Whether to leave out the organism's own thread.
    pub is_without_organism: bool,
    /// Position in the journal. The filter selects only trees whose last record is before this
    /// position.
    pub before: Option<Position>,
}

/// A thread tree, with the figures that a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTree {
    pub thread: String,
    pub status: String,
    pub subthreads: u64,
    pub records: u64,
    pub messages: u64,
    pub settled: u64,
    pub refusals: u64,
    /// Number of failed attempts and failed calls. Calls that a person denied count as failed.
    pub errors: u64,
    /// Number of calls that a person denied.
    pub denials: u64,
    pub waits: HoldCount,
    pub turns: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub tokens_charged: u64,
    /// Cost of the tree's model calls. Filters and sorting use this number. Amounts in different
    /// currencies are added up as plain numbers.
    pub cost: Money,
    /// Cost of the tree's model calls in each currency.
    pub costs: CurrencyTotals,
    pub opened: Time,
    pub updated: Time,
    /// Time of the last record that is work. A refusal, or a decision of a person, is no work. The
    /// duration of a settled tree ends at this time.
    pub worked: Time,
    pub requested_by: Option<String>,
    pub request: Option<String>,
    pub request_local: Option<String>,
    pub first_words: Option<String>,
    /// The paused part of the tree's open work. `None` if nothing is paused, or if the tree has no
    /// open work.
    pub pause: Option<PausedPart>,
    /// If the status is `failed`, the shortened reason of the root thread's last failure: the name
    /// of the fault, and its details. Otherwise, `None`. Only failed calls that were opened by a
    /// client or by another thread are considered.
    pub fault: Option<String>,
    /// Position of the tree's last record. To list the next page, set [`TreeFilter::before`] to the
    /// position of the last listed tree.
    pub head: Position,
}

impl ListedTree {
    /// Whether the tree has open work, such as a call without a result.
    pub fn is_open(&self) -> bool {
        matches!(self.status.as_str(), "running" | "draining")
    }
}

pub(super) const COLUMNS: &str = "SELECT t.id, r.status, r.subthreads, r.records, r.messages, r.settled, \
                       r.refusals, r.errors, r.held, r.turns, r.tokens_in, r.tokens_out, \
                       r.tokens_charged, r.cost, r.opened, r.updated, \
                       (SELECT text FROM name WHERE n = t.requested_by), \
                       (SELECT text FROM name WHERE n = t.request), \
                       (SELECT local FROM name WHERE n = t.request), t.first_words, r.head, \
                       r.worked";

/// SQL expression for the kind of decision, such as an approval, for which the calls of a tree
/// wait. `NULL` if no call waits for a person, or if the first 100 waiting calls wait for different
/// kinds. Later calls are not examined.
pub(super) const HOLD: &str = "CASE WHEN r.held > 0 THEN (SELECT CASE WHEN min(hold) = max(hold) \
                    THEN min(hold) END FROM (SELECT h.hold FROM thread_row s \
                    CROSS JOIN call_row c ON c.thread = s.n AND c.closed IS NULL \
                    CROSS JOIN hold_row h INDEXED BY hold_open ON h.call = c.n AND h.ended IS NULL \
                    WHERE s.tree = r.n AND s.held > 0 LIMIT 100)) END";

/// SQL expression for the number of calls in a tree that a person denied. The index counts these
/// calls among the errors of the tree.
pub(super) const DENIALS: &str = "CASE WHEN r.errors > 0 THEN (SELECT count(*) FROM action_row a \
                       CROSS JOIN thread_row s ON s.n = a.thread \
                       WHERE a.position BETWEEN r.first AND r.head AND a.action = 'refuse' \
                       AND a.accepted AND s.tree = r.n) ELSE 0 END";

/// Maximum number of positions between the first and the last record of a short tree. The SQLite
/// index `tree_long` contains all longer trees.
const SHORT_TREE_SPAN: i64 = 4_096;

/// SQL expression for the reason of a tree's last failure. `NULL` if the tree's status is not
/// `failed`.
pub(super) static FAULT: LazyLock<String> = LazyLock::new(|| {
    format!("CASE WHEN r.status = 'failed' THEN ({}) END", last_failure("r.n", FAULT_CHARS))
});

/// Maximum length, in characters, of a fault's details in a list of trees.
const FAULT_CHARS: u32 = 160;

/// SQL statement that selects the first tree whose number is at least the parameter. Trees are
/// numbered in the order in which they were opened. The columns are the tree's number, the time at
/// which it was opened, and the position of its first record.
const FIRST_OPENED: &str = "SELECT n, opened, first FROM tree_row WHERE n >= ?1 ORDER BY n LIMIT 1";

/// SQL statement that selects the first tree whose last record is at or after the position in the
/// parameter. The columns are those that `first_at` requires: a key, a time and a position. The
/// position of the last record is both the key and the position.
const FIRST_CHANGED: &str = "SELECT head, updated, head FROM tree_row INDEXED BY tree_head \
                             WHERE head >= ?1 ORDER BY head LIMIT 1";

/// SQL conditions on trees, with the values of their parameters.
#[derive(Default, Clone)]
pub(super) struct TreeConditions {
    pub text: String,
    pub values: Vec<Value>,
    /// Whether a condition selects so few trees that they can all be collected and sorted. If
    /// false, trees are tested one by one, newest first, until enough of them match.
    is_rare: bool,
    /// Whether the condition on the cost selects only few trees, even without the other conditions.
    /// If so, a query finds the trees by their cost.
    is_costly: bool,
}

/// Trees that a query searches: all trees that meet `conditions`. The query tests them one by one,
/// in the order of the SQLite index `index`.
pub(super) struct TreeRange {
    pub index: &'static str,
    pub conditions: TreeConditions,
}

impl TreeConditions {
    /// Returns a copy of these conditions with one more condition.
    fn and(&self, condition: &str, value: i64) -> Self {
        let mut all = self.clone();
        all.add(condition, vec![value.into()]);
        all
    }

    pub fn add(&mut self, condition: &str, values: Vec<Value>) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
        self.values.extend(values);
    }
}

impl IndexReader {
    /// Returns the newest `limit` trees that `filter` selects, in descending order of their last
    /// records.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn trees(&self, filter: &TreeFilter, limit: usize) -> Result<Vec<ListedTree>, Error> {
        let listed = || -> rusqlite::Result<Vec<ListedTree>> {
            // One view of the index for all queries, so that no tree moves between two ranges.
            let db = self.connection();
            let _view = db.is_autocommit().then(|| db.unchecked_transaction()).transpose()?;
            let conditions = self.conditions(filter)?;
            if conditions.is_rare {
                let indexed = if conditions.is_costly { "INDEXED BY tree_cost" } else { "" };
                // The sign keeps SQLite from walking all trees in the order of their last records.
                return self.select_trees(indexed, "+", &conditions, limit);
            }

            let mut trees = Vec::new();
            for TreeRange { index, conditions } in self.ranges(filter, &conditions)? {
                let indexed = format!("INDEXED BY {index}");
                trees.extend(self.select_trees(&indexed, "", &conditions, limit - trees.len())?);
            }
            Ok(trees)
        };
        let mut trees = listed().map_err(|error| self.failed(error))?;
        self.split_costs(&mut trees)?;
        self.mark_paused(&mut trees)?;
        Ok(trees)
    }

    /// Selects trees by `conditions`, the newest first. `indexed` is empty, or an `INDEXED BY`
    /// clause that names the SQLite index to use.
    ///
    /// `sign` stands before the column by which the trees are sorted. If `sign` is empty, SQLite
    /// may read all trees in the order of their last records. If `sign` is `+`, SQLite first
    /// collects the selected trees and then sorts them.
    fn select_trees(
        &self,
        indexed: &str,
        sign: &str,
        conditions: &TreeConditions,
        limit: usize,
    ) -> rusqlite::Result<Vec<ListedTree>> {
        let text = &conditions.text;
        let fault = &*FAULT;
        let sql = format!(
            "{COLUMNS}, {HOLD}, {DENIALS}, {fault} FROM tree_row r {indexed} CROSS JOIN thread_row t ON t.n = r.n \
             WHERE 1{text} ORDER BY {sign}r.head DESC LIMIT ?"
        );
        let limit = Value::from(i64::try_from(limit).unwrap_or(i64::MAX));
        let values = conditions.values.iter().cloned().chain([limit]);

        let mut query = self.connection().prepare(&sql)?;
        let trees = query.query_map(params_from_iter(values), read)?;
        trees.collect()
    }

    /// Returns the ranges in which a query must search for trees. Together, the ranges contain
    /// every tree that `filter` and `conditions` select. The range with the newest trees comes
    /// first.
    pub(super) fn ranges(
        &self,
        filter: &TreeFilter,
        conditions: &TreeConditions,
    ) -> rusqlite::Result<Vec<TreeRange>> {
        let index = match (filter.needs_person, filter.has_errors, filter.status.is_some()) {
            (true, _, true) => "tree_held_status",
            (true, _, false) => "tree_held",
            (false, true, true) => "tree_errors_status",
            (false, true, false) => "tree_errors",
            (false, false, true) => "tree_status",
            (false, false, false) => "tree_head",
        };

        let mut conditions = conditions.clone();
        if let Some(since) = filter.since {
            let Some([head, _]) = self.first_at(FIRST_CHANGED, since)? else {
                return Ok(Vec::new());
            };
            conditions.add("r.head >= ?", vec![head.into()]);
        }

        let is_walked = !filter.needs_person && !filter.has_errors;
        let until = filter.until.filter(|_| is_walked);
        let later = until.map(|until| self.first_at(FIRST_OPENED, until)).transpose()?;
        let Some([_, later]) = later.flatten() else {
            return Ok(vec![TreeRange { index, conditions }]);
        };

        // Every tree that was opened before then, and has its last record long after, is long.
        let bound = later.saturating_add(SHORT_TREE_SPAN);
        let long =
            conditions.and(&format!("r.head - r.first > {SHORT_TREE_SPAN} AND r.head >= ?"), bound);
        let others = conditions.and("r.head < ?", bound);
        let long = TreeRange { index: "tree_long", conditions: long };
        Ok(vec![long, TreeRange { index, conditions: others }])
    }

    /// Finds the first tree whose time in `sql` is at or after `time`: the time of its opening, or
    /// of its last change. Uses a binary search over the trees' keys. Returns the key and the
    /// position of this tree; `None` if there is no such tree.
    ///
    /// The SQL statement `sql` must select the first tree whose key is at or above the parameter.
    /// Its columns must be three: the tree's key, the tree's time, and the position of either the
    /// first or the last record of the tree. A tree with a higher key must not have an earlier
    /// time.
    fn first_at(&self, sql: &str, time: Time) -> rusqlite::Result<Option<[i64; 2]>> {
        let mut query = self.connection().prepare_cached(sql)?;
        let mut from_key = |key: i64| {
            query.query_row([key], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?])).optional()
        };

        let mut found = None;
        let mut from = 0_i64;
        let mut to = i64::MAX;
        while from < to {
            let middle = from + (to - from) / 2;
            match from_key(middle)? {
                Some([key, at, _]) if at < time.0 => from = key + 1,
                Some([key, _, number]) => {
                    found = Some([key, number]);
                    to = middle;
                }
                None => to = middle,
            }
        }
        Ok(found)
    }

    pub(super) fn conditions(&self, filter: &TreeFilter) -> rusqlite::Result<TreeConditions> {
        let mut all = TreeConditions::default();
        if let Some(since) = filter.since {
            all.add("r.updated >= ?", vec![since.0.into()]);
        }
        if let Some(until) = filter.until {
            all.add("r.opened < ?", vec![until.0.into()]);
        }

        let names = [
            (TreeNameRole::Listener, &filter.listener),
            (TreeNameRole::Agent, &filter.agent),
            (TreeNameRole::Payload, &filter.payload),
        ];
        for (role, name) in names {
            if let Some(name) = name {
                self.add_name(&mut all, role, name)?;
            }
        }

        if let Some(cost) = filter.cost_over {
            let cost = Value::from(i64::try_from(cost.0).unwrap_or(i64::MAX));
            let matching = "tree_row WHERE cost > ? AND cost > 0";
            let values = std::slice::from_ref(&cost);
            all.is_costly = self.is_rare(matching, values, limits::INDEX_RARE_TREES)?;
            all.is_rare |= all.is_costly;
            all.add("r.cost > ? AND r.cost > 0", vec![cost]);
        }
        if filter.has_errors {
            all.add(&format!("r.errors > 0 AND r.errors > {DENIALS}"), Vec::new());
        }
        if filter.needs_person {
            all.add("r.held > 0", Vec::new());
        }
        if let Some(words) = match_query(&filter.words) {
            self.add_words(&mut all, words)?;
        }
        if filter.is_without_organism {
            all.add("t.id <> ?", vec![ThreadId::ORGANISM.to_owned().into()]);
        }
        if let Some(before) = filter.before {
            let before = i64::try_from(before.0).unwrap_or(i64::MAX);
            all.add("r.head < ?", vec![before.into()]);
        }
        if let Some(status) = &filter.status {
            // The sign keeps SQLite from walking all trees of the status.
            let sign = if all.is_rare { "+" } else { "" };
            all.add(&format!("{sign}r.status = ?"), vec![status.clone().into()]);
        }
        Ok(all)
    }

    /// Adds to `all` the condition that `name` occurs in the tree in the role `role`: as a called
    /// listener, as an agent that took a turn, or as a payload.
    fn add_name(
        &self,
        all: &mut TreeConditions,
        role: TreeNameRole,
        name: &str,
    ) -> rusqlite::Result<()> {
        let local = if role == TreeNameRole::Payload { " OR local = ?2" } else { "" };
        let named = format!(
            "tree_name_row WHERE role = ?1 AND name IN (SELECT n FROM name WHERE text = ?2{local})"
        );
        let values = [Value::from(role as i64), Value::from(name.to_owned())];
        let is_rare = self.is_rare(&named, &values, limits::INDEX_RARE_TREES)?;
        all.is_rare |= is_rare;

        let [role, name] = values;
        let values = match local {
            "" => vec![role, name],
            _ => vec![role, name.clone(), name],
        };
        let named = named.replace("?1", "?").replace("?2", "?");
        let condition = if is_rare {
            format!("r.n IN (SELECT tree FROM {named})")
        } else {
            format!("EXISTS (SELECT 1 FROM {named} AND tree = r.n)")
        };
        all.add(&condition, values);
        Ok(())
    }

    /// Adds to `all` the condition that a message of the tree contains all of `words`. `words` is a
    /// query of the full-text table.
    fn add_words(&self, all: &mut TreeConditions, words: String) -> rusqlite::Result<()> {
        let words = Value::from(words);
        let values = std::slice::from_ref(&words);
        let is_rare =
            self.is_rare("word WHERE word MATCH ?", values, limits::INDEX_RARE_MATCHES)?;
        all.is_rare |= is_rare;

        let condition = if is_rare {
            "r.n IN (SELECT s.tree FROM word CROSS JOIN message_row m ON m.n = word.rowid \
             JOIN thread_row s ON s.n = m.thread WHERE word MATCH ?)"
        } else {
            // Numbers of messages rise with positions, so only numbers in this range need a test.
            "EXISTS (SELECT 1 FROM word CROSS JOIN message_row m ON m.n = word.rowid \
             JOIN thread_row s ON s.n = m.thread WHERE word MATCH ? AND s.tree = r.n \
             AND word.rowid >= (SELECT n FROM message_row WHERE position >= r.first \
             ORDER BY position, n LIMIT 1) \
             AND word.rowid <= (SELECT n FROM message_row WHERE position <= r.head \
             ORDER BY position DESC, n DESC LIMIT 1))"
        };
        all.add(condition, vec![words]);
        Ok(())
    }

    /// Whether a query finds at most `most` rows. `matching` is the text of the SQL query after
    /// `FROM`, and `values` are the parameters of the query.
    pub(super) fn is_rare(
        &self,
        matching: &str,
        values: &[Value],
        most: u64,
    ) -> rusqlite::Result<bool> {
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {matching} LIMIT {})", most + 1);
        let count = |row: &Row<'_>| row.get::<_, u64>(0);
        let count = self.connection().query_row(&sql, params_from_iter(values), count)?;
        Ok(count <= most)
    }
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<ListedTree> {
    Ok(ListedTree {
        thread: row.get(0)?,
        status: row.get(1)?,
        subthreads: row.get(2)?,
        records: row.get(3)?,
        messages: row.get(4)?,
        settled: row.get(5)?,
        refusals: row.get(6)?,
        errors: row.get(7)?,
        denials: row.get(23)?,
        waits: HoldCount {
            calls: row.get(8)?,
            hold: row.get::<_, Option<String>>(22)?.and_then(|hold| Hold::parse(&hold)),
        },
        turns: row.get(9)?,
        tokens_in: row.get(10)?,
        tokens_out: row.get(11)?,
        tokens_charged: row.get(12)?,
        cost: Money(row.get(13)?),
        costs: CurrencyTotals::default(),
        opened: Time(row.get(14)?),
        updated: Time(row.get(15)?),
        worked: Time(row.get(21)?),
        requested_by: row.get(16)?,
        request: row.get(17)?,
        request_local: row.get(18)?,
        first_words: row.get(19)?,
        pause: None,
        fault: row.get(24)?,
        head: Position(row.get(20)?),
    })
}
