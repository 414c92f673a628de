//! Finds one message by its id, with its related rows. Each query is bounded and uses a SQLite
//! index.

use rusqlite::Row;
use rusqlite::types::ToSql;
use serde::Serialize;
use uuid::Uuid;

use crate::clock::Time;
use crate::envelope::Disposition;
use crate::ids::{Attempt, Digest, MessageId, Position};
use crate::limits;
use crate::thread::Hold;

use super::search::HitCount;
use super::{Error, IndexReader};

/// All hexadecimal digits of a message's id, or its first digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageSelector {
    first: Uuid,
    last: Uuid,
}

impl MessageSelector {
    /// Minimum number of hexadecimal digits that a selector must state of a message's id.
    pub const DIGITS_MIN: usize = 8;
    const DIGITS_MAX: usize = 32;

    /// Parses digits, with or without the hyphens of an id. Returns `None` for any other text, and
    /// for fewer than 8 digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_length = (Self::DIGITS_MIN..=Self::DIGITS_MAX).contains(&digits.len());
        if !is_length || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }

        let filled = |digit: &str| {
            let rest = digit.repeat(Self::DIGITS_MAX - digits.len());
            Uuid::try_parse(&format!("{digits}{rest}")).ok()
        };
        Some(Self { first: filled("0")?, last: filled("f")? })
    }

    /// Whether this selector states a whole id, which only one message can have.
    pub fn is_whole(&self) -> bool {
        self.first == self.last
    }

    /// Returns the lowest and the highest of all possible ids that begin with the digits of this
    /// selector.
    pub(super) fn range(&self) -> [&[u8]; 2] {
        [self.first.as_bytes().as_slice(), self.last.as_bytes().as_slice()]
    }
}

/// A message without its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexedMessage {
    /// Number of the message among all messages and refusals, in the order of the journal.
    #[serde(skip)]
    pub n: i64,
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "thread")]
    pub thread: String,
    #[serde(rename = "seq")]
    pub seq: u64,
    #[serde(rename = "kind")]
    pub kind: String,
    #[serde(rename = "from")]
    pub from: String,
    #[serde(rename = "to")]
    pub to: String,
    /// Payload name, as `{namespace}local`.
    #[serde(rename = "name")]
    pub name: String,
    /// Time of the message in RFC 3339.
    #[serde(rename = "time")]
    pub time: String,
    #[serde(rename = "disposition")]
    pub disposition: Option<Disposition>,
    /// Position of the record in which the message got its disposition; `None` while it has none.
    #[serde(rename = "disposed_position")]
    pub disposed: Option<Position>,
    /// If this message opened a call that waits for a person, the kind of decision for which the
    /// call waits. Otherwise, `None`.
    #[serde(skip)]
    pub hold: Option<Hold>,
    /// Whether a listener has received this message in a delivery, and has not answered the
    /// delivery yet.
    #[serde(skip)]
    pub is_handed_over: bool,
    /// Number of the message that caused this message, if the cause is on record.
    #[serde(skip)]
    pub cause: Option<i64>,
    /// Call in which the message is delivered; `None` if the message is delivered in no call.
    #[serde(skip)]
    pub call: Option<MessageId>,
}

/// The call that a message opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexedCall {
    #[serde(rename = "listener")]
    pub listener: String,
    #[serde(rename = "opened")]
    pub opened: String,
    #[serde(rename = "closed")]
    pub closed: Option<String>,
    #[serde(rename = "duration_us")]
    pub duration_us: Option<i64>,
    /// How the call ended: `completed`, `failed` or `cancelled`; `None` while it is open.
    #[serde(rename = "outcome")]
    pub outcome: Option<String>,
    /// Code of the error that ended the call, such as `timeout`. For an error without a code, the
    /// local name of its payload. `None` if no error ended the call.
    #[serde(rename = "fault")]
    pub fault: Option<String>,
    /// Number of attempts whose delivery a listener accepted.
    #[serde(rename = "attempts")]
    pub attempts: u64,
}

/// One attempt to have a listener handle a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexedAttempt {
    #[serde(rename = "attempt")]
    pub attempt: Attempt,
    #[serde(rename = "listener")]
    pub listener: String,
    /// Position of the record that hands the call over to the listener.
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "handed_over")]
    pub handed_over: String,
    #[serde(rename = "ended")]
    pub ended: Option<String>,
    /// Microseconds from the time at which the call became ready until it was handed over.
    #[serde(rename = "queue_us")]
    pub queue_us: i64,
    /// Microseconds from the hand-over to the end of the attempt; `None` while the attempt lasts.
    #[serde(rename = "work_us")]
    pub work_us: Option<i64>,
    #[serde(rename = "outcome")]
    pub outcome: Option<String>,
}

/// A failure of an attempt or of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexedError {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "time")]
    pub time: String,
    #[serde(rename = "kind")]
    pub kind: String,
    #[serde(rename = "detail")]
    pub detail: String,
}

/// A period in which a call waits or waited for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexedHold {
    #[serde(rename = "kind")]
    pub kind: String,
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "since")]
    pub since: String,
    #[serde(rename = "until")]
    pub until: Option<String>,
    #[serde(rename = "ended")]
    pub ended: Option<String>,
    #[serde(rename = "waited_us")]
    pub waited_us: Option<i64>,
    /// How the period of waiting ended; `None` while the call waits.
    #[serde(rename = "outcome")]
    pub outcome: Option<String>,
}

/// The model call that wrote a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexedTurn {
    /// Id of the note that records the turn.
    #[serde(rename = "note")]
    pub note: MessageId,
    #[serde(rename = "agent")]
    pub agent: String,
    /// Number of the turn among the agent's turns in the thread.
    #[serde(rename = "turn")]
    pub turn: u64,
    #[serde(rename = "provider")]
    pub provider: Option<String>,
    #[serde(rename = "model")]
    pub model: Option<String>,
    /// The model that answered, as the provider names it; `None` if the record does not name it.
    #[serde(rename = "answered_by")]
    pub answered_by: Option<String>,
    #[serde(rename = "stop")]
    pub stop: Option<String>,
    #[serde(rename = "tokens_in")]
    pub tokens_in: u64,
    #[serde(rename = "tokens_out")]
    pub tokens_out: u64,
    #[serde(rename = "cost_nano")]
    pub cost_nano: u64,
    #[serde(rename = "currency")]
    pub currency: Option<String>,
    #[serde(rename = "latency_us")]
    pub latency_us: i64,
    /// Number of model requests that failed before the answered request.
    #[serde(rename = "failovers")]
    pub failovers: u64,
    #[serde(rename = "prompt_digest")]
    pub prompt: Option<Digest>,
    #[serde(rename = "inputs_digest")]
    pub inputs: Option<Digest>,
}

/// SQL condition: the message `m` is in a delivery that a listener has received and not answered
/// yet. A delivery contains those messages of its call that were on record at the hand-over.
pub(super) const IS_HANDED_OVER: &str = "(m.disposition IS NULL AND EXISTS (SELECT 1 \
     FROM delivery_row d WHERE d.ended IS NULL AND d.position >= m.position AND d.call = \
     CASE m.call WHEN x'' THEN m.n ELSE (SELECT o.n FROM message_row o WHERE o.id = m.call) END))";

const MESSAGE: &str = "SELECT m.n, m.position, m.id, t.id, m.seq, m.kind, s.text, r.text, p.text, \
                       m.time, m.disposition, m.disposed, \
                       CASE typeof(m.cause) WHEN 'integer' THEN m.cause END, m.call, \
                       (SELECT hold FROM hold_row h WHERE h.call = m.n AND h.ended IS NULL)";

const MESSAGE_TABLES: &str = "FROM message_row m CROSS JOIN thread_row t ON t.n = m.thread \
                       CROSS JOIN name s ON s.n = m.sender CROSS JOIN name r ON r.n = m.recipient \
                       CROSS JOIN name p ON p.n = m.name";

/// Returns the SQL query for those messages that `clauses` select. The function [`message`] reads
/// the rows that the query returns.
fn message_sql(clauses: &str) -> String {
    format!("{MESSAGE}, {IS_HANDED_OVER} {MESSAGE_TABLES} {clauses}")
}

const TURN: &str = "SELECT m.id, (SELECT text FROM name WHERE n = u.agent), u.turn, \
                    (SELECT text FROM name WHERE n = u.provider), \
                    (SELECT text FROM name WHERE n = u.model), \
                    (SELECT text FROM name WHERE n = u.answered_by), \
                    (SELECT text FROM name WHERE n = u.stop), u.tokens_in, u.tokens_out, u.cost, \
                    (SELECT text FROM name WHERE n = u.currency), u.latency, u.failovers, \
                    u.prompt, u.inputs \
                    FROM message_row m CROSS JOIN turn_row u ON u.n = m.n";

impl IndexReader {
    /// Returns the messages whose ids begin with the digits of `prefix`. Returns at most `limit`
    /// messages.
    pub fn messages_with_id(
        &self,
        prefix: &MessageSelector,
        limit: usize,
    ) -> Result<Vec<IndexedMessage>, Error> {
        let sql = message_sql("WHERE m.id BETWEEN ?1 AND ?2 ORDER BY m.id LIMIT ?3");
        let first = prefix.first.as_bytes().as_slice();
        let last = prefix.last.as_bytes().as_slice();
        self.rows(&sql, &[&first, &last, &limit], message)
    }

    /// Returns the chain of causes of a message: first the direct cause of the message, then the
    /// cause of that cause, and so on. The last one is usually the message of a client.
    pub fn causes(&self, of: &IndexedMessage) -> Result<Vec<IndexedMessage>, Error> {
        let sql = message_sql("WHERE m.n = ?1");
        let mut chain: Vec<IndexedMessage> = Vec::new();
        let mut next = of.cause;
        while let Some(n) = next.take().filter(|_| chain.len() < limits::CAUSES_MAX) {
            let found = self.rows(&sql, &[&n], message)?;
            next = found.first().and_then(|cause| cause.cause);
            chain.extend(found);
        }
        Ok(chain)
    }

    /// Returns the earliest call in the chain of causes of the message `of`. This call is usually
    /// the request of a client. The chain includes `of` itself. Returns `None` in these cases:
    ///
    /// - The chain contains no call.
    /// - The chain has at least [`limits::CAUSES_MAX`] causes.
    /// - The index does not contain the message.
    pub fn first_call_of(&self, of: MessageId) -> Result<Option<IndexedMessage>, Error> {
        self.first_cause(of, "k.kind = 'call'", &[])
    }

    /// Returns the earliest message with the payload name `name` in the chain of causes of the
    /// message `of`. The chain includes `of` itself. Returns `None` if no message of the chain has
    /// this name, or if the chain has at least [`limits::CAUSES_MAX`] causes.
    pub fn first_cause_named(
        &self,
        of: MessageId,
        name: &str,
    ) -> Result<Option<IndexedMessage>, Error> {
        self.first_cause(of, "k.name = (SELECT n FROM name WHERE text = ?3)", &[&name])
    }

    /// Searches the chain of causes of the message `of`; the chain includes `of` itself. Returns
    /// the earliest message of the chain that meets the SQL expression `condition`. In the
    /// expression, `k` stands for a message of the chain. Returns `None` if no message meets the
    /// expression, or if the chain has at least [`limits::CAUSES_MAX`] causes.
    fn first_cause(
        &self,
        of: MessageId,
        condition: &str,
        values: &[&dyn ToSql],
    ) -> Result<Option<IndexedMessage>, Error> {
        // Nothing is known of the beginning of a chain that is cut at the bound.
        let sql = message_sql(&format!(
            "WHERE m.n = (WITH RECURSIVE chain(n, depth) AS MATERIALIZED (\
             SELECT n, 0 FROM message_row WHERE id = ?1 UNION ALL \
             SELECT o.cause, depth + 1 FROM chain CROSS JOIN message_row o ON o.n = chain.n \
             WHERE typeof(o.cause) = 'integer' AND depth < ?2) \
             SELECT chain.n FROM chain CROSS JOIN message_row k ON k.n = chain.n \
             WHERE {condition} AND (SELECT max(depth) FROM chain) < ?2 \
             ORDER BY depth DESC LIMIT 1)"
        ));
        let id = of.0.as_bytes().as_slice();
        let values = [&[&id as &dyn ToSql, &limits::CAUSES_MAX], values].concat();
        Ok(self.rows(&sql, &values, message)?.pop())
    }

    /// Returns the messages that the message `of` directly caused, and the number of all such
    /// messages. If there are more than `limit`, returns only `limit` messages: the first ones and
    /// the last ones.
    pub fn effects(
        &self,
        of: &IndexedMessage,
        limit: usize,
    ) -> Result<(Vec<IndexedMessage>, HitCount), Error> {
        let most = limits::SEARCH_COUNT_MAX;
        let sql = "SELECT count(*) FROM (SELECT 1 FROM message_row WHERE cause = ?1 LIMIT ?2)";
        let count = self.rows(sql, &[&of.n, &(most + 1)], |row| row.get::<_, u64>(0))?;
        let count = match count.first().copied().unwrap_or_default() {
            count if count > most => HitCount::MoreThan(most),
            count => HitCount::Exact(count),
        };

        let is_all = count.number() <= limit as u64;
        let first = if is_all { limit } else { limit.div_ceil(2) };
        let sql = message_sql("WHERE m.cause = ?1 ORDER BY m.n LIMIT ?2");
        let mut messages = self.rows(&sql, &[&of.n, &sql_number(first)], message)?;
        if !is_all {
            let sql = message_sql("WHERE m.cause = ?1 ORDER BY m.n DESC LIMIT ?2");
            let mut last = self.rows(&sql, &[&of.n, &(limit / 2)], message)?;
            last.reverse();
            messages.append(&mut last);
        }
        Ok((messages, count))
    }

    /// Returns the previews of the call that the message `of` opened. A preview is a note named
    /// `name` that `of` caused.
    pub fn previews(&self, of: &IndexedMessage, name: &str) -> Result<Vec<IndexedMessage>, Error> {
        let sql = message_sql(
            "WHERE m.cause = ?1 AND m.name = (SELECT n FROM name WHERE text = ?2) \
             ORDER BY m.n LIMIT ?3",
        );
        self.rows(&sql, &[&of.n, &name, &limits::MESSAGE_ROWS_MAX], message)
    }

    /// Returns the turn that the record at `position` contains; `None` if it contains no turn, or
    /// if the turn was redacted.
    pub fn turn_at(&self, position: Position) -> Result<Option<IndexedTurn>, Error> {
        let sql = format!("{TURN} WHERE m.position = ?1 AND NOT m.redacted");
        Ok(self.rows(&sql, &[&position.0], turn)?.pop())
    }

    /// Returns the call that a message opened; `None` if the message opened no call.
    pub fn opened_call(&self, of: &IndexedMessage) -> Result<Option<IndexedCall>, Error> {
        let sql = "SELECT l.text, c.opened, c.closed, c.how, \
                   (SELECT local FROM name WHERE n = c.fault), c.attempts \
                   FROM call_row c JOIN name l ON l.n = c.listener WHERE c.n = ?1";
        Ok(self.rows(sql, &[&of.n], call)?.pop())
    }

    /// Returns the newest attempts of the call that a message opened, at most
    /// [`limits::MESSAGE_ROWS_MAX`]. If the message opened no call, returns the attempts that
    /// delivered the message.
    pub fn attempts(&self, of: &IndexedMessage) -> Result<Vec<IndexedAttempt>, Error> {
        let is_request = of.call == Some(of.id);
        let first = if is_request { Position(0) } else { of.position };
        let last = of.disposed.filter(|_| !is_request).map_or(i64::MAX.unsigned_abs(), |at| at.0);
        let Some(call) = of.call else { return Ok(Vec::new()) };
        let sql = "SELECT d.epoch, d.attempt, l.text, d.position, d.handed_over, d.ended, \
                   d.handed_over - d.ready, d.ended - d.handed_over, d.outcome \
                   FROM message_row m CROSS JOIN delivery_row d ON d.call = m.n \
                   CROSS JOIN name l ON l.n = d.listener \
                   WHERE m.id = ?1 AND d.position BETWEEN ?2 AND ?3 \
                   ORDER BY d.epoch DESC, d.attempt DESC LIMIT ?4";
        let id = call.0.as_bytes().as_slice();
        let most = limits::MESSAGE_ROWS_MAX;
        let mut found = self.rows(sql, &[&id, &first.0, &last, &most], attempt)?;
        found.reverse();
        Ok(found)
    }

    /// Returns the failures of the call that the message `of` opened. Returns an empty list if `of`
    /// opened no call.
    pub fn errors_of(&self, of: &IndexedMessage) -> Result<Vec<IndexedError>, Error> {
        let sql = "SELECT e.position, e.time, k.text, e.detail FROM error_row e \
                   JOIN name k ON k.n = e.kind WHERE e.call = ?1 ORDER BY e.n LIMIT ?2";
        let id = of.id.0.as_bytes().as_slice();
        self.rows(sql, &[&id, &limits::MESSAGE_ROWS_MAX], |row| {
            Ok(IndexedError {
                position: Position(row.get(0)?),
                time: Time(row.get(1)?).to_string(),
                kind: row.get(2)?,
                detail: row.get(3)?,
            })
        })
    }

    /// Returns the periods in which the call that the message `of` opened waits or waited for a
    /// person. Empty if `of` opened no call.
    pub fn holds(&self, of: &IndexedMessage) -> Result<Vec<IndexedHold>, Error> {
        let sql = "SELECT hold, position, since, until, ended, ended - since, outcome \
                   FROM hold_row WHERE call = ?1 ORDER BY position LIMIT ?2";
        self.rows(sql, &[&of.n, &limits::MESSAGE_ROWS_MAX], |row| {
            Ok(IndexedHold {
                kind: row.get(0)?,
                position: Position(row.get(1)?),
                since: Time(row.get(2)?).to_string(),
                until: time(row, 3)?,
                ended: time(row, 4)?,
                waited_us: row.get(5)?,
                outcome: row.get(6)?,
            })
        })
    }

    /// Returns people's decisions about a message, in the order of the journal. Each decision has
    /// its position, and whether the organism carried it out. The second value is the number of all
    /// decisions.
    ///
    /// At most [`limits::MESSAGE_ROWS_MAX`] decisions are returned. If there are more, leaves out
    /// the oldest decisions that were not carried out, and then the oldest that were carried out.
    pub fn decisions(&self, of: &IndexedMessage) -> Result<(Vec<(Position, bool)>, u64), Error> {
        let id = of.id.0.as_bytes().as_slice();
        let made = "FROM action_row WHERE message = ?1 \
                    AND action IN ('approve', 'refuse', 'answer')";
        let count = self.rows(&format!("SELECT count(*) {made}"), &[&id], |row| row.get(0))?;
        let sql = format!(
            "SELECT position, accepted FROM (SELECT position, accepted {made} \
             ORDER BY accepted DESC, position DESC LIMIT ?2) ORDER BY position"
        );
        let decisions = self.rows(&sql, &[&id, &limits::MESSAGE_ROWS_MAX], |row| {
            Ok((Position(row.get(0)?), row.get(1)?))
        })?;
        Ok((decisions, count.first().copied().unwrap_or_default()))
    }

    /// Returns the positions of those records that contain refused payloads of the call that the
    /// message `of` opened. Returns only the first [`limits::MESSAGE_ROWS_MAX`] positions. The
    /// second value is the number of all refused payloads of this call.
    pub fn refusals_in_call(&self, of: &IndexedMessage) -> Result<(Vec<Position>, u64), Error> {
        let id = of.id.0.as_bytes().as_slice();
        let sql = "SELECT count(*) FROM refusal_row WHERE call = ?1";
        let count = self.rows(sql, &[&id], |row| row.get(0))?;
        let sql = "SELECT DISTINCT position FROM refusal_row WHERE call = ?1 \
                   ORDER BY position LIMIT ?2";
        let most = limits::MESSAGE_ROWS_MAX;
        let records = self.rows(sql, &[&id, &most], |row| row.get(0).map(Position))?;
        Ok((records, count.first().copied().unwrap_or_default()))
    }

    /// Returns the position of the pump's last start or reload at or before `position`. The config
    /// of that start or reload was in force at `position`. Returns `None` if the pump had not
    /// started yet.
    pub fn boot_before(&self, position: Position) -> Result<Option<Position>, Error> {
        let sql = "SELECT position FROM config_row WHERE position <= ?1 \
                   ORDER BY position DESC LIMIT 1";
        Ok(self.rows(sql, &[&position.0], |row| row.get(0).map(Position))?.pop())
    }

    /// Returns the time of the pump's last start; `None` if the pump has not started yet. Reloads
    /// of the config do not count.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn last_start(&self) -> Result<Option<Time>, Error> {
        let sql = "SELECT time FROM config_row WHERE epoch = (SELECT max(epoch) FROM config_row) \
                   ORDER BY position LIMIT 1";
        Ok(self.rows(sql, &[], |row| row.get(0).map(Time))?.pop())
    }

    pub(super) fn rows<T>(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let found = || -> rusqlite::Result<Vec<T>> {
            let mut query = self.connection().prepare_cached(sql)?;
            let rows = query.query_map(values, read)?;
            rows.collect()
        };
        found().map_err(|error| self.failed(error))
    }
}

/// Converts a number that a person may choose, such as a limit, to a parameter of SQL. A number
/// that is too large for SQLite becomes the largest number that SQLite supports.
pub(super) fn sql_number(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

pub(super) fn id(bytes: &[u8]) -> MessageId {
    MessageId(Uuid::from_slice(bytes).unwrap_or_default())
}

fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(|time| Time(time).to_string()))
}

fn digest(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Digest>> {
    let bytes: Option<Vec<u8>> = row.get(at)?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Digest))
}

fn message(row: &Row<'_>) -> rusqlite::Result<IndexedMessage> {
    let own = id(&row.get::<_, Vec<u8>>(2)?);
    let call: Option<Vec<u8>> = row.get(13)?;
    let disposition: Option<String> = row.get(10)?;
    let hold: Option<String> = row.get(14)?;
    Ok(IndexedMessage {
        n: row.get(0)?,
        position: Position(row.get(1)?),
        id: own,
        thread: row.get(3)?,
        seq: row.get(4)?,
        kind: row.get(5)?,
        from: row.get(6)?,
        to: row.get(7)?,
        name: row.get(8)?,
        time: Time(row.get(9)?).to_string(),
        disposition: disposition.as_deref().and_then(Disposition::parse),
        disposed: row.get::<_, Option<u64>>(11)?.map(Position),
        hold: hold.as_deref().and_then(Hold::parse),
        cause: row.get(12)?,
        call: call.map(|call| if call.is_empty() { own } else { id(&call) }),
        is_handed_over: row.get(15)?,
    })
}

fn turn(row: &Row<'_>) -> rusqlite::Result<IndexedTurn> {
    Ok(IndexedTurn {
        note: id(&row.get::<_, Vec<u8>>(0)?),
        agent: row.get(1)?,
        turn: row.get(2)?,
        provider: row.get(3)?,
        model: row.get(4)?,
        answered_by: row.get(5)?,
        stop: row.get(6)?,
        tokens_in: row.get(7)?,
        tokens_out: row.get(8)?,
        cost_nano: row.get(9)?,
        currency: row.get(10)?,
        latency_us: row.get(11)?,
        failovers: row.get(12)?,
        prompt: digest(row, 13)?,
        inputs: digest(row, 14)?,
    })
}

fn call(row: &Row<'_>) -> rusqlite::Result<IndexedCall> {
    let opened: i64 = row.get(1)?;
    let closed: Option<i64> = row.get(2)?;
    Ok(IndexedCall {
        listener: row.get(0)?,
        opened: Time(opened).to_string(),
        closed: closed.map(|closed| Time(closed).to_string()),
        duration_us: closed.map(|closed| closed.saturating_sub(opened)),
        outcome: row.get(3)?,
        fault: row.get(4)?,
        attempts: row.get(5)?,
    })
}

fn attempt(row: &Row<'_>) -> rusqlite::Result<IndexedAttempt> {
    Ok(IndexedAttempt {
        attempt: Attempt { epoch: row.get(0)?, n: row.get(1)? },
        listener: row.get(2)?,
        position: Position(row.get(3)?),
        handed_over: Time(row.get(4)?).to_string(),
        ended: time(row, 5)?,
        queue_us: row.get(6)?,
        work_us: row.get(7)?,
        outcome: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::MessageSelector;

    #[test]
    fn a_prefix_of_an_id_has_at_least_eight_digits() {
        let whole = "80be3703-bd87-57d9-8129-78782dc07613";
        let prefix = MessageSelector::parse(whole).unwrap();
        assert_eq!((prefix.first, prefix.last), (whole.parse().unwrap(), whole.parse().unwrap()));

        let prefix = MessageSelector::parse("80BE3703-b").unwrap();
        assert_eq!(prefix.first.to_string(), "80be3703-b000-0000-0000-000000000000");
        assert_eq!(prefix.last.to_string(), "80be3703-bfff-ffff-ffff-ffffffffffff");

        let wrong = ["", "80be370", "80be-370", "sess-abcdefgh", "80be3703x"];
        for text in wrong.into_iter().chain([format!("{whole}0").as_str()]) {
            assert_eq!(MessageSelector::parse(text), None, "{text}");
        }
    }
}
