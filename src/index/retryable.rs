//! Finds the client requests that an operator may retry. These are requests that failed or were
//! refused.

use rusqlite::{Row, ToSql};

use crate::clock::Time;
use crate::envelope::RefusalRule;
use crate::ids::{MessageId, Position};
use crate::limits;

use super::lookup::id;
use super::{Error, IndexReader, MessageSelector};

/// A client's request that failed or was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryCandidate {
    /// Number of the request among all messages and refusals, in the order of the journal. Zero for
    /// an accepted request that an operator selected by its id.
    pub n: i64,
    pub message: MessageId,
    /// Position of the record that contains the request.
    pub position: Position,
    pub sender: String,
    /// The listener that was called; `None` if the request was refused.
    pub listener: Option<String>,
    /// For a refused request, the rule under which it was refused. For a failed call, the code of
    /// its fault.
    pub reason: String,
    /// Time of the request in RFC 3339.
    pub time: String,
}

/// Conditions on the candidates of a retry. A field that is `None` sets no condition.
#[derive(Debug, Clone, Default)]
pub struct RetryFilter {
    pub listener: Option<String>,
    /// The refusal rule or the failure code that a candidate must have.
    pub reason: Option<String>,
    /// True to select only requests that cannot be retried, false to select only those that can. A
    /// request cannot be retried if its payload is missing from the record, if every config would
    /// refuse its text, or if its client is unknown.
    pub is_unretriable: bool,
}

/// Start of a page in the list of candidates. The list contains only requests that were on record
/// when its first page was read. A command that retries one page after another therefore never
/// retries a request that it has sent itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryCursor {
    /// Number of the last candidate on the preceding page; zero for the first page.
    after: i64,
    /// Last record of the journal when the first page was read.
    last: Position,
}

impl RetryCursor {
    /// Returns the cursor of the first page.
    pub fn first(index: &IndexReader) -> Self {
        Self { after: 0, last: index.last() }
    }

    /// Returns the cursor of the page that begins after `candidate`.
    #[must_use]
    pub fn after(self, candidate: &RetryCandidate) -> Self {
        Self { after: candidate.n, ..self }
    }
}

/// Builds the query for refused submissions. `rows` is the SQL text after `INDEXED BY`: the name of
/// an SQL index on `refusal_row`, followed by a `WHERE` clause that selects rows.
fn refused(rows: &str) -> String {
    format!(
        "SELECT c.id, c.position, s.text, NULL, u.text, c.time, c.n FROM \
         (SELECT submission id, n, position, sender, rule, time, bytes FROM refusal_row \
         INDEXED BY {rows}) c \
         CROSS JOIN name s ON s.n = c.sender CROSS JOIN name u ON u.n = c.rule"
    )
}

/// SQL list of refusal rules. An operator cannot retry a request that was refused under one of
/// these rules: the client of the request will repeat the request, or has already repeated it.
const LEFT_TO_CLIENTS: &str = "('draining', 'key-reused')";

const NOT_RETRIED: &str = "NOT EXISTS (SELECT 1 FROM action_row a WHERE a.message = c.id \
                           AND a.action = 'retry' AND a.accepted)";

impl IndexReader {
    /// Returns the first `most` failed or refused requests of clients from `cursor` on, oldest
    /// first. Leaves out requests that an operator has already retried. Also leaves out calls that
    /// listeners made, because the calling listeners handle such failures themselves.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn retry_candidates(
        &self,
        filter: &RetryFilter,
        cursor: RetryCursor,
        most: usize,
    ) -> Result<Vec<RetryCandidate>, Error> {
        let RetryFilter { listener, reason, is_unretriable } = filter;
        let RetryCursor { after, last } = cursor;
        // Few of all rows may match, so only the first ones are tested. -1 is no limit.
        let tested = if *is_unretriable { limits::RETRIES_TESTED } else { -1 };
        let sql = format!(
            "SELECT c.id, m.position, s.text, l.text, coalesce(f.text, c.how), m.time, c.n \
             FROM (SELECT * FROM call_row INDEXED BY call_failed WHERE how = 'failed' AND n > ?5 \
             ORDER BY n LIMIT {tested}) c CROSS JOIN message_row m ON m.n = c.n \
             CROSS JOIN thread_row t ON t.n = c.thread \
             CROSS JOIN name s ON s.n = m.sender CROSS JOIN name l ON l.n = c.listener \
             LEFT JOIN name f ON f.n = c.fault \
             WHERE t.tree = t.n AND m.sender = t.requested_by \
             AND (?1 IS NULL OR l.text = ?1) AND (?2 IS NULL OR coalesce(f.text, c.how) = ?2) \
             AND m.redacted = ?3 AND m.position <= ?6 AND {NOT_RETRIED} ORDER BY c.n LIMIT ?4"
        );
        let values: [&dyn ToSql; 6] = [listener, reason, is_unretriable, &most, &after, &last.0];
        let mut found = self.rows(&sql, &values, candidate)?;
        // A refused request has called no listener.
        if listener.is_none() {
            let whole = limits::REFUSAL_HEAD_BYTES;
            let lasting_rules = lasting_rules();
            let rows = format!(
                "refusal_submitted WHERE submission IS NOT NULL AND n > ?4 ORDER BY n LIMIT {tested}"
            );
            let refused = refused(&rows);
            let sql = format!(
                "{refused} WHERE u.text NOT IN {LEFT_TO_CLIENTS} AND (?1 IS NULL OR u.text = ?1) \
                 AND (c.bytes > {whole} OR u.text IN ({lasting_rules})) = ?2 AND c.position <= ?5 \
                 AND {NOT_RETRIED} ORDER BY c.n LIMIT ?3"
            );
            let values: [&dyn ToSql; 5] = [reason, is_unretriable, &most, &after, &last.0];
            found.extend(self.rows(&sql, &values, candidate)?);
        }
        // Messages and refusals are numbered together.
        found.sort_by_key(|candidate| candidate.n);
        found.truncate(most);
        Ok(found)
    }

    /// Whether the record has this name of a listener or client, or this code of a refusal or
    /// failure.
    pub fn has_name(&self, name: &str) -> Result<bool, Error> {
        let found = self.rows("SELECT 1 FROM name WHERE text = ?1", &[&name], |_| Ok(()))?;
        Ok(!found.is_empty())
    }

    /// Returns the refused client requests whose ids begin with the digits of `prefix`.
    pub fn refused_with_id(&self, prefix: &MessageSelector) -> Result<Vec<RetryCandidate>, Error> {
        let [first, last] = prefix.range();
        let most = limits::CANDIDATES_MAX;
        let refused = refused("refusal_submission WHERE submission IS NOT NULL");
        let sql = format!("{refused} WHERE c.id BETWEEN ?1 AND ?2 ORDER BY c.id LIMIT ?3");
        self.rows(&sql, &[&first, &last, &most], candidate)
    }
}

/// Returns an SQL list of string literals: the codes of those rules under which every retry of a
/// request would be refused, whatever the config is. Under such a rule, either only the refused
/// text decides, or the client of the request is unknown.
fn lasting_rules() -> String {
    let is_lasting = |rule: &RefusalRule| rule.is_of_text() || rule.has_no_client();
    let rules = RefusalRule::ALL.into_iter().filter(is_lasting);
    rules.map(|rule| format!("'{}'", rule.as_str())).collect::<Vec<_>>().join(", ")
}

fn candidate(row: &Row<'_>) -> rusqlite::Result<RetryCandidate> {
    Ok(RetryCandidate {
        message: id(&row.get::<_, Vec<u8>>(0)?),
        position: Position(row.get(1)?),
        sender: row.get(2)?,
        listener: row.get(3)?,
        reason: row.get(4)?,
        time: Time(row.get(5)?).to_string(),
        n: row.get(6)?,
    })
}
