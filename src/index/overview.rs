//! Reads overviews of a whole journal: failures, and actions of people.

use rusqlite::Row;
use uuid::Uuid;

use crate::clock::Time;
use crate::ids::{MessageId, Position, ThreadId};

use super::{Error, IndexReader};

/// SQL condition: the error `e` records that a person denied a call, which is not a failure. Two
/// other kinds of errors have the same code. The condition excludes them:
/// - An error about an operation that NATS denied. This error has no call.
/// - An error about an approval that expired. For such an error, no accepted refusal of the call by
///   an operator is on record.
pub(super) const IS_DENIAL: &str = "e.call IS NOT NULL \
     AND e.kind IS (SELECT n FROM name WHERE text = 'denied') \
     AND EXISTS (SELECT 1 FROM action_row d WHERE d.message = e.call AND d.action = 'refuse' \
     AND d.accepted)";

/// SQL condition: the error `e` counts as a failure. If a failed attempt also ended its call, the
/// record contains two errors, one for the attempt and one for the call. Only the error for the
/// attempt counts.
pub(super) const IS_FAILURE: &str = "NOT EXISTS (SELECT 1 FROM error_row a INDEXED BY error_call \
                                     WHERE a.call = e.call AND a.position = e.position \
                                     AND a.n < e.n)";

/// Returns the SQL query for the reason of a thread's last failure: the name of the fault and its
/// details. Details of more than `chars` characters are cut, and end with `…`. `thread` is an SQL
/// expression for the number of the thread.
///
/// The query examines only failed calls that a client or another thread opened, and of these only
/// the newest 100. A failed workflow run counts as a failed call: its call has completed, but has a
/// fault.
pub(super) fn last_failure(thread: &str, chars: u32) -> String {
    format!(
        "SELECT k.local || ': ' || CASE WHEN length(e.detail) > {chars} \
         THEN substr(e.detail, 1, {chars} - 1) || '…' ELSE e.detail END \
         FROM (SELECT id FROM call_row WHERE thread = {thread} \
         AND (how = 'failed' OR fault IS NOT NULL) AND outside ORDER BY n DESC LIMIT 100) c \
         CROSS JOIN error_row e ON e.call = c.id AND {IS_FAILURE} \
         CROSS JOIN name k ON k.n = e.kind ORDER BY e.n DESC LIMIT 1"
    )
}

/// A failure of an attempt or of a call, or an operation that NATS denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedError {
    pub position: Position,
    pub time: Time,
    pub thread: Option<String>,
    /// The message that opened the call with the failure; `None` for an operation that NATS denied.
    pub message: Option<MessageId>,
    pub listener: Option<String>,
    pub kind: String,
    pub detail: String,
}

/// A decision or an action of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAction {
    pub position: Position,
    pub time: Time,
    pub action: String,
    pub person: String,
    /// User who ran the command, if the record states the user.
    pub login: Option<String>,
    /// Name of the machine on which the command ran, if the record states it.
    pub host: Option<String>,
    pub is_signed: bool,
    /// Whether the organism carried the action out.
    pub is_accepted: bool,
    pub thread: Option<String>,
    pub message: Option<MessageId>,
    /// Digest of the payload that the person approved, or the first digits of the digest. `None`
    /// for any action other than an approval.
    pub payload: Option<String>,
    pub reason: Option<String>,
    /// Further details of the action, such as the target of a pause, as JSON; `None` without
    /// details.
    pub details: Option<String>,
}

/// Number of failures of one kind at one listener.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorCount {
    pub kind: String,
    pub listener: Option<String>,
    pub errors: u64,
}

impl IndexReader {
    /// Returns the newest failures, up to `limit`. A failed attempt that also ended its call is one
    /// failure.
    pub fn newest_errors(&self, limit: usize) -> Result<Vec<ListedError>, Error> {
        let sql = format!(
            "SELECT e.position, e.time, t.id, e.call, l.text, k.text, e.detail \
                   FROM error_row e LEFT JOIN thread_row t ON t.n = e.thread \
                   LEFT JOIN name l ON l.n = e.listener JOIN name k ON k.n = e.kind \
                   WHERE {IS_FAILURE} AND NOT ({IS_DENIAL}) ORDER BY e.n DESC LIMIT ?1"
        );
        self.rows(&sql, &[&limit], |row| {
            Ok(ListedError {
                position: Position(row.get(0)?),
                time: Time(row.get(1)?),
                thread: row.get(2)?,
                message: message_id(row, 3)?,
                listener: row.get(4)?,
                kind: row.get(5)?,
                detail: row.get(6)?,
            })
        })
    }

    /// Returns the position of the record that opened a thread; `None` if there is no such thread.
    pub fn opened_at(&self, thread: &ThreadId) -> Result<Option<Position>, Error> {
        let sql = "SELECT position FROM thread_row WHERE id = ?1";
        let found = self.rows(sql, &[&thread.as_str()], |row| row.get(0).map(Position))?;
        Ok(found.first().copied())
    }

    /// Returns how many threads of a tree were opened by the records up to the position `up_to`.
    pub fn threads_in_tree(&self, root: &ThreadId, up_to: Position) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM thread_row \
                   WHERE tree = (SELECT n FROM thread_row WHERE id = ?1) AND position <= ?2";
        let found = self.rows(sql, &[&root.as_str(), &up_to.0], |row| row.get(0))?;
        Ok(found.first().copied().unwrap_or_default())
    }

    /// Returns the number of failures by kind and listener. A failed attempt and the call that
    /// failed with it count as one failure.
    pub fn error_counts(&self) -> Result<Vec<ErrorCount>, Error> {
        self.counts_where(&format!("{IS_FAILURE} AND NOT ({IS_DENIAL})"))
    }

    /// Returns the number of calls that people denied, by listener.
    pub fn denial_counts(&self) -> Result<Vec<ErrorCount>, Error> {
        self.counts_where(&format!("{IS_FAILURE} AND {IS_DENIAL}"))
    }

    fn counts_where(&self, condition: &str) -> Result<Vec<ErrorCount>, Error> {
        let sql = format!(
            "SELECT k.text, l.text, count(*) FROM error_row e JOIN name k ON k.n = e.kind \
             LEFT JOIN name l ON l.n = e.listener WHERE {condition} GROUP BY 1, 2"
        );
        self.rows(&sql, &[], |row| {
            Ok(ErrorCount { kind: row.get(0)?, listener: row.get(1)?, errors: row.get(2)? })
        })
    }

    /// Returns the newest actions of people, up to `limit`.
    pub fn newest_actions(&self, limit: usize) -> Result<Vec<ListedAction>, Error> {
        let sql = "SELECT a.position, a.time, a.action, p.text, a.login, a.host, a.signed, \
                   a.accepted, t.id, a.message, a.reason, a.details, a.payload FROM action_row a \
                   JOIN name p ON p.n = a.person LEFT JOIN thread_row t ON t.n = a.thread \
                   ORDER BY a.position DESC LIMIT ?1";
        self.rows(sql, &[&limit], |row| {
            Ok(ListedAction {
                position: Position(row.get(0)?),
                time: Time(row.get(1)?),
                action: row.get(2)?,
                person: row.get(3)?,
                login: row.get(4)?,
                host: row.get(5)?,
                is_signed: row.get(6)?,
                is_accepted: row.get(7)?,
                thread: row.get(8)?,
                message: message_id(row, 9)?,
                reason: row.get(10)?,
                details: row.get(11)?,
                payload: row.get(12)?,
            })
        })
    }
}

fn message_id(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<MessageId>> {
    let bytes: Option<Vec<u8>> = row.get(column)?;
    Ok(bytes.and_then(|bytes| Uuid::from_slice(&bytes).ok()).map(MessageId))
}
