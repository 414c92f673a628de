//! Finds messages and refusals by words and by their properties.

use rusqlite::types::Value;
use rusqlite::{OptionalExtension as _, Row, params_from_iter};

use crate::clock::Time;
use crate::ids::{MessageId, Position, ThreadId};
use crate::limits;

use super::words::{match_in_tree, match_query};
use super::{Error, IndexReader};

/// Properties by which messages and refusals are searched. A field that is `None` or empty sets no
/// condition.
#[derive(Debug, Clone, Default)]
pub struct SearchFilter {
    /// Words that the text of a message or refusal must contain. A word that ends with `*` matches
    /// all words with that beginning. Quoted words must follow each other.
    pub words: String,
    /// Local name or `{namespace}local` of the payload.
    pub payload: Option<String>,
    pub from: Option<String>,
    /// Recipient that a message must have. Excludes all refusals, because they have no recipient.
    pub to: Option<String>,
    /// Kind that a message must have, or `refusal` to find only refusals.
    pub kind: Option<String>,
    /// Disposition that a message must have. Excludes all refusals, because they have no
    /// disposition.
    pub disposition: Option<String>,
    /// Rule that a refusal must have. Excludes all messages, because they have no rule.
    pub rule: Option<String>,
    pub since: Option<Time>,
    pub until: Option<Time>,
    /// Thread to which the search is limited, together with all threads beneath it.
    pub within: Option<ThreadId>,
    /// Id that a message must have.
    pub id: Option<MessageId>,
}

/// A message or a refusal that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchHit {
    /// Number of the hit among all messages and refusals, in the order of the journal.
    pub n: i64,
    pub position: Position,
    /// Id of the message; `None` for a refusal.
    pub message: Option<MessageId>,
    /// Number of the refusal among the refusals of its record, counted from 0; unused for a
    /// message.
    pub refusal: usize,
}

/// Number of messages and refusals that match a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitCount {
    Exact(u64),
    /// The count exceeds the contained number. Counting stopped at this number, so the exact count
    /// is unknown.
    MoreThan(u64),
    /// The contained number is a lower bound of the count, because not all candidates were
    /// examined.
    AtLeast(u64),
}

impl HitCount {
    pub const fn number(self) -> u64 {
        match self {
            Self::Exact(number) | Self::MoreThan(number) | Self::AtLeast(number) => number,
        }
    }

    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Exact(_))
    }

    /// Returns the sum of two counts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let all = self.number().saturating_add(other.number());
        match (self, other) {
            (Self::Exact(_), Self::Exact(_)) => Self::Exact(all),
            (Self::AtLeast(_), _) | (_, Self::AtLeast(_)) => Self::AtLeast(all),
            _ => Self::MoreThan(all),
        }
    }
}

/// SQL expression for the number of refusals that precede the refusal `m` in its record. Refusals
/// are numbered in the order of the journal. The expression therefore counts the refusals between
/// the last refusal of an earlier record and `m`.
const REFUSALS_BEFORE: &str = "(SELECT count(*) FROM refusal_row b WHERE b.n < m.n AND b.n > \
     coalesce((SELECT p.n FROM refusal_row p WHERE p.n < m.n AND p.position < m.position \
     ORDER BY p.n DESC LIMIT 1), 0))";

/// A part of a SQL statement, from `FROM` to the end, with the values of its parameters.
struct SearchQuery {
    text: String,
    values: Vec<Value>,
}

impl SearchFilter {
    /// Whether the search text contains any word.
    fn has_words(&self) -> bool {
        match_query(&self.words).is_some()
    }

    /// Whether the filter has words, and has no other condition except a limit to a thread.
    fn has_words_alone(&self) -> bool {
        let texts =
            [&self.payload, &self.from, &self.to, &self.kind, &self.disposition, &self.rule];
        self.has_words()
            && texts.into_iter().all(Option::is_none)
            && (self.since.or(self.until), self.id) == (None, None)
    }

    /// Whether the filter can match a message. If false, the filter matches only refusals.
    fn has_messages(&self) -> bool {
        self.rule.is_none() && self.kind.as_deref() != Some("refusal")
    }

    fn has_refusals(&self) -> bool {
        let is_kind = self.kind.as_deref().is_none_or(|kind| kind == "refusal");
        is_kind && self.to.is_none() && self.disposition.is_none() && self.id.is_none()
    }

    /// Builds the part of a SQL statement from `FROM` to the end. The statement selects messages if
    /// `is_message` is true, and otherwise refusals.
    fn query(&self, is_message: bool, scope: &SearchScope) -> SearchQuery {
        let range = scope.range;
        let table = if is_message { "message_row" } else { "refusal_row" };
        let mut query = SearchQuery { text: String::new(), values: Vec::new() };
        match scope.words_of(self) {
            // The words come first, because they usually leave the fewest candidates.
            Some(words) => {
                query.text = format!(" FROM word CROSS JOIN {table} m ON m.n = word.rowid WHERE 1");
                query.add("word MATCH ?", words.into());
                query.add("word.rowid >= ?", range.0.into());
                query.add("word.rowid <= ?", range.1.into());
            }
            None => {
                query.text = format!(" FROM {table} m WHERE 1");
                query.add("m.n >= ?", range.0.into());
                query.add("m.n <= ?", range.1.into());
            }
        }

        let texts = [
            ("m.sender = (SELECT n FROM name WHERE text = ?)", &self.from),
            ("m.recipient = (SELECT n FROM name WHERE text = ?)", &self.to),
            ("m.rule = (SELECT n FROM name WHERE text = ?)", &self.rule),
            ("m.disposition = ?", &self.disposition),
        ];
        for (condition, value) in texts {
            if let Some(value) = value {
                query.add(condition, value.clone().into());
            }
        }
        if let Some(kind) = self.kind.as_ref().filter(|_| is_message) {
            query.add("m.kind = ?", kind.clone().into());
        }
        if let Some(payload) = &self.payload {
            let condition = "m.name IN (SELECT n FROM name WHERE text = ? OR local = ?)";
            query.add(condition, payload.clone().into());
            query.values.push(payload.clone().into());
        }
        if let Some(id) = &self.id {
            query.add("m.id = ?", id.0.as_bytes().to_vec().into());
        }
        if let Some(since) = self.since {
            query.add("m.time >= ?", since.0.into());
        }
        if let Some(until) = self.until {
            query.add("m.time < ?", until.0.into());
        }
        if let Some(thread) = self.within.as_ref().filter(|_| !scope.is_whole_tree(self)) {
            // The ids beneath a thread sort between `id.` and `id/`.
            let column = if is_message { "m.thread" } else { "m.home" };
            let condition = format!(
                "{column} IN (SELECT n FROM thread_row WHERE id = ? OR (id > ? AND id < ?))"
            );
            query.add(&condition, thread.to_string().into());
            query.values.push(format!("{thread}.").into());
            query.values.push(format!("{thread}/").into());
        }
        query
    }
}

/// The part of an index that a search covers.
struct SearchScope {
    /// First and last number of the messages and refusals to search.
    range: (i64, i64),
    /// Number of the tree to which the search is limited, or 0 if the index does not contain this
    /// tree. `None` to search all trees.
    tree: Option<i64>,
}

impl SearchScope {
    /// Returns the query of the full-text table; `None` if the filter has no words.
    fn words_of(&self, filter: &SearchFilter) -> Option<String> {
        let words = match_query(&filter.words)?;
        Some(match self.tree {
            Some(tree) => match_in_tree(&words, tree),
            None => words,
        })
    }

    /// Whether the full-text query alone can limit the search to the threads of the filter. This
    /// requires that the filter has words, and names either no thread or a root thread. A full-text
    /// query can select whole trees, but no subthreads.
    fn is_whole_tree(&self, filter: &SearchFilter) -> bool {
        filter.has_words() && filter.within.as_ref().is_none_or(ThreadId::is_root)
    }

    /// Returns the query of the full-text table if this table alone can answer the search, and
    /// otherwise `None`. Each row of the table is a message or a refusal.
    fn words_alone(&self, filter: &SearchFilter) -> Option<String> {
        let is_alone = self.is_whole_tree(filter) && filter.has_words_alone();
        self.words_of(filter).filter(|_| is_alone)
    }
}

impl SearchQuery {
    fn add(&mut self, condition: &str, value: Value) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
        self.values.push(value);
    }
}

impl IndexReader {
    /// Returns the filter for a search in which a person may have entered an id instead of words:
    ///
    /// - If the words are the id of a message that meets the other conditions, the new filter
    ///   selects this message.
    /// - If the words are the id of a thread on record, and `filter` names no thread, the new
    ///   filter selects this thread.
    /// - Otherwise, `filter` is returned unchanged.
    pub fn resolve_id(&self, filter: &SearchFilter) -> Result<SearchFilter, Error> {
        let words = filter.words.trim();
        let mut resolved = SearchFilter { words: String::new(), ..filter.clone() };
        if let Some(id) = hyphenated_id(words) {
            resolved.id = Some(id);
            if !self.search(&resolved, None, 1)?.is_empty() {
                return Ok(resolved);
            }
        } else if filter.within.is_none()
            && let Ok(thread) = ThreadId::parse(words)
            && self.opened_at(&thread)?.is_some()
        {
            resolved.within = Some(thread);
            return Ok(resolved);
        }
        Ok(filter.clone())
    }

    /// Returns the newest `limit` messages and refusals that match `filter`, newest first. If
    /// `before` is set, considers only messages and refusals with a lower number.
    pub fn search(
        &self,
        filter: &SearchFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<SearchHit>, Error> {
        let scope = self.scope_of(filter, before)?;
        if let Some(words) = scope.words_alone(filter) {
            let found = self.search_words(&words, &scope, limit);
            return found.map_err(|error| self.failed(error));
        }

        let mut hits = Vec::new();
        if filter.has_messages() {
            let query = filter.query(true, &scope);
            let sql = format!("SELECT m.n, m.position, m.id{} ORDER BY m.n DESC", query.text);
            hits.extend(self.hits(&sql, query.values, limit, message_hit)?);
        }
        if filter.has_refusals() {
            let query = filter.query(false, &scope);
            let sql = format!(
                "SELECT m.n, m.position, {REFUSALS_BEFORE}{} ORDER BY m.n DESC",
                query.text
            );
            hits.extend(self.hits(&sql, query.values, limit, refusal_hit)?);
        }

        hits.sort_by_key(|hit| std::cmp::Reverse(hit.n));
        hits.truncate(limit);
        Ok(hits)
    }

    /// Returns the newest `limit` messages and refusals that match `filter`, newest first, and the
    /// number of all that match. Stops counting at `most`, if it is set.
    pub fn search_and_count(
        &self,
        filter: &SearchFilter,
        limit: usize,
        most: Option<u64>,
    ) -> Result<(Vec<SearchHit>, HitCount), Error> {
        let scope = self.scope_of(filter, None)?;
        match (scope.words_alone(filter), most) {
            (Some(words), Some(most)) if scope.range.1 < i64::MAX => {
                let found = self.search_and_count_words(&words, &scope, limit, most);
                found.map_err(|error| self.failed(error))
            }
            _ => Ok((self.search(filter, None, limit)?, self.count(filter, most)?)),
        }
    }

    /// Counts the messages and refusals that match `filter`. Stops counting at `most`, if it is
    /// set.
    fn count(&self, filter: &SearchFilter, most: Option<u64>) -> Result<HitCount, Error> {
        let scope = self.scope_of(filter, None)?;
        let bound = most.map_or(String::new(), |most| format!(" LIMIT {}", most + 1));
        let mut all = 0;
        for is_message in [true, false] {
            let is_meant = if is_message { filter.has_messages() } else { filter.has_refusals() };
            if !is_meant {
                continue;
            }
            let is_both = scope.words_alone(filter).is_some();
            let mut query = filter.query(is_message, &scope);
            if is_both {
                // Every row of the full-text table is a message or a refusal.
                query.text =
                    " FROM word WHERE word MATCH ? AND rowid >= ? AND rowid <= ?".to_owned();
            }
            let sql = format!("SELECT count(*) FROM (SELECT 1{}{bound})", query.text);
            let count = |row: &Row<'_>| row.get::<_, u64>(0);
            let db = self.connection();
            let found = db.query_row(&sql, params_from_iter(query.values), count);
            all += found.map_err(|error| self.failed(error))?;
            if is_both {
                break;
            }
        }
        Ok(match most {
            Some(most) if all > most => HitCount::MoreThan(most),
            _ => HitCount::Exact(all),
        })
    }

    fn hits(
        &self,
        sql: &str,
        mut values: Vec<Value>,
        limit: usize,
        read: fn(&Row<'_>) -> rusqlite::Result<SearchHit>,
    ) -> Result<Vec<SearchHit>, Error> {
        let sql = sql.replace(
            "ORDER BY m.n",
            if sql.contains("FROM word ") { "ORDER BY word.rowid" } else { "ORDER BY m.n" },
        );
        values.push(i64::try_from(limit).unwrap_or(i64::MAX).into());
        let found = || -> rusqlite::Result<Vec<SearchHit>> {
            let mut query = self.connection().prepare(&format!("{sql} LIMIT ?"))?;
            let hits = query.query_map(params_from_iter(values), read)?;
            hits.collect()
        };
        found().map_err(|error| self.failed(error))
    }

    /// Returns the newest messages and refusals for a filter that consists of words and, if set, a
    /// root thread. The full-text table alone can answer such a search.
    fn search_words(
        &self,
        words: &str,
        scope: &SearchScope,
        limit: usize,
    ) -> rusqlite::Result<Vec<SearchHit>> {
        let sql = "SELECT rowid FROM word WHERE word MATCH ? AND rowid >= ? AND rowid <= ? \
                   ORDER BY rowid DESC LIMIT ?";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (first, last) = scope.range;
        let mut numbers = self.connection().prepare(sql)?;
        let numbers = numbers.query_map((words, first, last, limit), |row| row.get(0))?;
        self.hits_of(&numbers.collect::<Result<Vec<_>, _>>()?)
    }

    /// Searches as [`Self::search_words`] does, and counts all matches, up to `most`.
    ///
    /// Where possible, reads the matches of a range in ascending order. SQLite then finds the first
    /// match at once. In descending order, SQLite would first walk from the end of the table to the
    /// range, which took 9 ms for the most frequent word of a table with ten million rows.
    fn search_and_count_words(
        &self,
        words: &str,
        scope: &SearchScope,
        limit: usize,
        most: u64,
    ) -> rusqlite::Result<(Vec<SearchHit>, HitCount)> {
        let sql = "SELECT rowid FROM word WHERE word MATCH ? AND rowid >= ? AND rowid <= ? \
                   ORDER BY rowid LIMIT ?";
        let mut query = self.connection().prepare(sql)?;
        let mut matches = |first: i64, last: i64, most: i64| {
            let numbers = query.query_map((words, first, last, most), |row| row.get(0))?;
            numbers.collect::<rusqlite::Result<Vec<i64>>>()
        };

        let (first, last) = scope.range;
        let bound = i64::try_from(most).map_or(i64::MAX, |most| most.saturating_add(1));
        let mut found = matches(first, last, bound)?;
        let all = u64::try_from(found.len()).unwrap_or(u64::MAX);
        if all > most {
            let begin = first.max(last.saturating_sub(limits::SEARCH_WINDOW - 1));
            found = matches(begin, last, i64::MAX)?;
            if found.len() < limit {
                let hits = self.search_words(words, scope, limit)?;
                return Ok((hits, HitCount::MoreThan(most)));
            }
        }

        let newest: Vec<i64> = found.into_iter().rev().take(limit).collect();
        let total = if all > most { HitCount::MoreThan(most) } else { HitCount::Exact(all) };
        Ok((self.hits_of(&newest)?, total))
    }

    /// Returns the messages and refusals with the given numbers, in the order of the numbers.
    fn hits_of(&self, numbers: &[i64]) -> rusqlite::Result<Vec<SearchHit>> {
        let message = "SELECT n, position, id FROM message_row WHERE n = ?1";
        let refusal =
            format!("SELECT n, position, {REFUSALS_BEFORE} FROM refusal_row m WHERE n = ?1");
        let db = self.connection();
        let mut message = db.prepare(message)?;
        let mut refusal = db.prepare(&refusal)?;
        let mut hits = Vec::new();
        for n in numbers {
            let hit = match message.query_row([n], message_hit).optional()? {
                None => refusal.query_row([n], refusal_hit).optional()?,
                found => found,
            };
            hits.extend(hit);
        }
        Ok(hits)
    }

    fn scope_of(&self, filter: &SearchFilter, before: Option<i64>) -> Result<SearchScope, Error> {
        let last = before.map_or(i64::MAX, |before| before - 1);
        let Some(thread) = &filter.within else {
            return Ok(SearchScope { range: (0, last), tree: None });
        };

        let sql = "SELECT tree FROM thread_row WHERE id = ?1";
        let tree = self.connection().query_row(sql, [thread.as_str()], |row| row.get(0));
        let tree: Option<i64> = tree.optional().map_err(|error| self.failed(error))?;
        let range = self.range_of(thread, last)?;
        Ok(SearchScope { range, tree: Some(tree.unwrap_or(0)) })
    }

    /// Returns the range of numbers that contains all messages and refusals of a tree. The upper
    /// end is at most `last`. A query need not examine numbers outside this range.
    fn range_of(&self, thread: &ThreadId, last: i64) -> Result<(i64, i64), Error> {
        // `min(n)` would read all messages after the position.
        let sql = "SELECT \
                   (SELECT n FROM message_row WHERE position >= r.first ORDER BY position, n \
                   LIMIT 1), \
                   (SELECT n FROM message_row WHERE position > r.head ORDER BY position, n \
                   LIMIT 1) \
                   FROM thread_row t JOIN tree_row r ON r.n = t.tree WHERE t.id = ?1";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found = self.connection().query_row(sql, [thread.as_str()], read).optional();
        let found: Option<(Option<i64>, Option<i64>)> =
            found.map_err(|error| self.failed(error))?;
        let (first, after) = found.unwrap_or_default();
        // Refusals of the tree's first record may come before its first message.
        let first = first.map_or(0, |first| first.saturating_sub(limits::SEARCH_PAGE as i64));
        Ok((first, last.min(after.unwrap_or(i64::MAX))))
    }
}

/// Parses a message id with hyphens. Returns `None` for an id without hyphens, because a word, such
/// as a digest, may look the same.
fn hyphenated_id(words: &str) -> Option<MessageId> {
    words.parse().ok().filter(|_| words.len() == uuid::fmt::Hyphenated::LENGTH)
}

fn message_hit(row: &Row<'_>) -> rusqlite::Result<SearchHit> {
    let id: Vec<u8> = row.get(2)?;
    let id = uuid::Uuid::from_slice(&id).unwrap_or_default();
    let position = Position(row.get(1)?);
    Ok(SearchHit { n: row.get(0)?, position, message: Some(MessageId(id)), refusal: 0 })
}

fn refusal_hit(row: &Row<'_>) -> rusqlite::Result<SearchHit> {
    let position = Position(row.get(1)?);
    Ok(SearchHit { n: row.get(0)?, position, message: None, refusal: row.get(2)? })
}
