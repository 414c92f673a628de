//! Finds what an operator may retry: requests of clients that failed or were refused.

use rusqlite::Row;

use crate::clock::Time;
use crate::ids::{MessageId, Position};
use crate::limits;

use super::lookup::id;
use super::{Error, IndexReader, MessageSelector};

/// A request of a client that failed or was refused, and that was not retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryCandidate {
    pub message: MessageId,
    /// Position of the record with the message.
    pub position: Position,
    pub sender: String,
    /// The listener that was called; `None` if the request was refused.
    pub listener: Option<String>,
    /// The rule of the refusal, or the code with which the call failed.
    pub reason: String,
    /// Time in RFC 3339.
    pub time: String,
}

/// Conditions on the candidates of a retry.
#[derive(Debug, Clone, Default)]
pub struct RetryFilter {
    pub listener: Option<String>,
}

/// The submissions that were refused with a record of their own.
const REFUSED: &str = "SELECT c.id, c.position, s.text, NULL, u.text, c.time FROM \
                       (SELECT submission id, n, position, sender, rule, time FROM refusal_row \
                       INDEXED BY refusal_submission WHERE submission IS NOT NULL) c \
                       CROSS JOIN name s ON s.n = c.sender CROSS JOIN name u ON u.n = c.rule";

/// Rules after which a client sends the same submission again, or has done so.
const LEFT_TO_CLIENTS: &str = "('draining', 'key-reused')";

const NOT_RETRIED: &str = "NOT EXISTS (SELECT 1 FROM action_row a WHERE a.message = c.id \
                           AND a.action = 'retry' AND a.accepted)";

impl IndexReader {
    /// The requests of clients that failed or were refused, oldest first. A request that an operator
    /// has retried is left out, and so is a call of a listener, whose caller deals with its result.
    pub fn retry_candidates(&self, filter: &RetryFilter) -> Result<Vec<RetryCandidate>, Error> {
        let sql = format!(
            "SELECT c.id, m.position, s.text, l.text, coalesce(f.text, c.how), m.time \
             FROM call_row c INDEXED BY call_failed CROSS JOIN message_row m ON m.n = c.n \
             CROSS JOIN thread_row t ON t.n = c.thread \
             CROSS JOIN name s ON s.n = m.sender CROSS JOIN name l ON l.n = c.listener \
             LEFT JOIN name f ON f.n = c.fault \
             WHERE c.how = 'failed' AND t.tree = t.n AND m.sender = t.requested_by \
             AND (?1 IS NULL OR l.text = ?1) AND {NOT_RETRIED} ORDER BY c.n LIMIT ?2"
        );
        let most = limits::RETRIES_MAX;
        let mut found = self.rows(&sql, &[&filter.listener, &most], candidate)?;
        // A refused request has called no listener.
        if filter.listener.is_none() {
            let sql = format!(
                "{REFUSED} WHERE u.text NOT IN {LEFT_TO_CLIENTS} AND {NOT_RETRIED} \
                 ORDER BY c.n LIMIT ?1"
            );
            found.extend(self.rows(&sql, &[&most], candidate)?);
        }
        found.sort_by_key(|candidate| candidate.position);
        found.truncate(limits::RETRIES_MAX);
        Ok(found)
    }

    /// The refused submissions whose ids begin with these digits.
    pub fn refused_with_id(&self, prefix: &MessageSelector) -> Result<Vec<RetryCandidate>, Error> {
        let [first, last] = prefix.range();
        let most = limits::CANDIDATES_MAX;
        let sql = format!("{REFUSED} WHERE c.id BETWEEN ?1 AND ?2 ORDER BY c.id LIMIT ?3");
        self.rows(&sql, &[&first, &last, &most], candidate)
    }
}

fn candidate(row: &Row<'_>) -> rusqlite::Result<RetryCandidate> {
    Ok(RetryCandidate {
        message: id(&row.get::<_, Vec<u8>>(0)?),
        position: Position(row.get(1)?),
        sender: row.get(2)?,
        listener: row.get(3)?,
        reason: row.get(4)?,
        time: Time(row.get(5)?).to_string(),
    })
}
