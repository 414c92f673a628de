//! The load of listeners: messages a minute, calls in their queues, and failures.

use crate::clock::Time;
use crate::ids::{Position, ThreadId};
use crate::limits;

use super::overview::{IS_DENIAL, IS_FAILURE};
use super::{Error, IndexReader};

/// SQL condition: the call `c` is ready for its listener, but not handed over to it. All of the
/// following must hold:
///
/// - The call is open, and was not handed over since it became ready. A delivery that no listener
///   accepted does not count.
/// - The call does not wait for a person, or for a call that it opened in its own thread.
/// - One of the newest 1,000 messages of the thread is an undelivered message of the call. If the
///   call waits for subthreads or timers, this message must be the result of a subthread or a fired
///   timer.
/// - If the call waits for all of its subthreads and timers, no call in a subthread is open.
///
/// The index does not store timers. If the call waits for all of its subthreads and timers, the
/// condition may therefore hold although a timer has not fired yet.
pub(super) const IS_QUEUED: &str = "c.closed IS NULL \
     AND c.ready > coalesce((SELECT max(d.handed_over) FROM delivery_row d WHERE d.call = c.n \
     AND d.outcome IS NOT 'not-taken'), -1) \
     AND NOT EXISTS (SELECT 1 FROM hold_row h WHERE h.call = c.n AND h.ended IS NULL) \
     AND EXISTS (SELECT 1 FROM (SELECT w.n, w.call, w.disposition, w.kind, w.name \
     FROM message_row w WHERE w.thread = c.thread ORDER BY w.seq DESC LIMIT 1000) u \
     WHERE u.disposition IS NULL AND (u.n = c.n OR u.call = c.id) \
     AND (c.waits IS NULL OR (u.kind = 'system' AND u.name IN (SELECT n FROM name \
     WHERE local IN ('thread-result', 'timer-fired'))))) \
     AND NOT (c.waits IS 'all' AND EXISTS (SELECT 1 FROM thread_row t \
     CROSS JOIN thread_row b ON b.id > t.id || '.' AND b.id < t.id || '/' \
     WHERE t.n = c.thread AND b.open_calls > 0)) \
     AND NOT EXISTS (SELECT 1 FROM thread_row t WHERE t.n = c.thread AND t.open_calls > 1 \
     AND EXISTS (SELECT 1 FROM call_row o CROSS JOIN message_row q ON q.n = o.n \
     CROSS JOIN message_row s ON s.n = q.cause \
     WHERE o.thread = c.thread AND o.closed IS NULL AND (s.n = c.n OR s.call = c.id)))";

/// Queue, recent messages and failures of a listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerLoad {
    pub listener: String,
    /// Number of messages to the listener in the queried time.
    pub messages: u64,
    /// Number of calls that are ready for the listener, but not handed over to it.
    pub queued: u64,
    /// Time at which the first of the queued calls became ready; `None` for an empty queue.
    pub queued_since: Option<Time>,
    /// Number of the listener's failures in the whole journal: failed attempts and failed calls. A
    /// failed attempt that also ended its call counts once. A call that a person denied does not
    /// count.
    pub errors: u64,
}

/// A refusal, with the values that a list of refusals shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRefusal {
    pub position: Position,
    pub time: Time,
    pub sender: String,
    pub thread: Option<ThreadId>,
    pub rule: String,
    pub message: String,
}

impl IndexReader {
    /// Returns the load of each listener. Counts only messages since `since`, and of these only the
    /// newest [`limits::WEB_RATE_MESSAGES`]. If this limit is reached, the second value is the time
    /// of the oldest counted message, because older messages may be left out. Otherwise, the second
    /// value is `None`.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn listener_loads(&self, since: Time) -> Result<(Vec<ListenerLoad>, Option<Time>), Error> {
        let newest = "SELECT recipient, time FROM message_row WHERE time >= ?1 \
                      ORDER BY time DESC LIMIT ?2";
        let sql = format!("SELECT count(*), min(time) FROM ({newest})");
        let counted = self.rows(&sql, &[&since.0, &limits::WEB_RATE_MESSAGES], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, Option<i64>>(1)?.map(Time)))
        })?;
        let (all, first) = counted.first().copied().unwrap_or_default();
        let first = first.filter(|_| all >= limits::WEB_RATE_MESSAGES);

        let sql = format!(
            "SELECT l.text, count(*) FROM ({newest}) m JOIN name l ON l.n = m.recipient GROUP BY 1"
        );
        let mut loads = self.rows(&sql, &[&since.0, &limits::WEB_RATE_MESSAGES], |row| {
            Ok(ListenerLoad { listener: row.get(0)?, messages: row.get(1)?, ..Default::default() })
        })?;
        let queues = format!(
            "SELECT l.text, count(*), min(c.ready) FROM call_row c INDEXED BY call_open \
             CROSS JOIN name l ON l.n = c.listener WHERE {IS_QUEUED} GROUP BY 1"
        );
        loads.extend(self.rows(&queues, &[], |row| {
            Ok(ListenerLoad {
                listener: row.get(0)?,
                queued: row.get(1)?,
                queued_since: row.get::<_, Option<i64>>(2)?.map(Time),
                ..Default::default()
            })
        })?);
        let errors = format!(
            "SELECT l.text, count(*) FROM error_row e JOIN name l ON l.n = e.listener \
             WHERE {IS_FAILURE} AND NOT ({IS_DENIAL}) GROUP BY 1"
        );
        loads.extend(self.rows(&errors, &[], |row| {
            Ok(ListenerLoad { listener: row.get(0)?, errors: row.get(1)?, ..Default::default() })
        })?);
        Ok((loads, first))
    }

    /// Returns the newest refusals, up to `limit`.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn newest_refusals(&self, limit: usize) -> Result<Vec<ListedRefusal>, Error> {
        let sql = "SELECT r.position, r.time, s.text, t.id, u.text, r.message FROM refusal_row r \
                   JOIN name s ON s.n = r.sender JOIN name u ON u.n = r.rule \
                   LEFT JOIN thread_row t ON t.n = r.thread ORDER BY r.n DESC LIMIT ?1";
        self.rows(sql, &[&limit], |row| {
            let thread: Option<String> = row.get(3)?;
            Ok(ListedRefusal {
                position: Position(row.get(0)?),
                time: Time(row.get(1)?),
                sender: row.get(2)?,
                thread: thread.and_then(|id| ThreadId::parse(&id).ok()),
                rule: row.get(4)?,
                message: row.get(5)?,
            })
        })
    }
}
