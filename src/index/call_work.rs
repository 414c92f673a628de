//! Finds the work on calls that one page of a thread shows: attempts, model calls, and waiting for
//! people.

use crate::clock::Time;
use crate::ids::{MessageId, Position, ThreadId};
use crate::limits;
use crate::thread::Hold;
use crate::word_enum::word_enum;

use super::listener_load::IS_QUEUED;
use super::lookup::id;
use super::{Error, IndexReader};

/// A call, with everything that one page of its thread shows about the call: attempts, model turns,
/// and periods in which the call waited. A page is a range of the thread's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallWork {
    /// Id of the message that opened the call.
    pub call: MessageId,
    pub caller: String,
    pub listener: String,
    /// Local name of the payload that opened the call.
    pub payload: String,
    /// Position of the record that opened the call.
    pub position: Position,
    /// Id of the call in which a listener opened this call; `None` if a client opened it.
    pub opener: Option<MessageId>,
    /// How the call ended; `None` while it is open.
    pub outcome: Option<String>,
    /// Code of the error that ended the call, such as `timeout`. For an error without a code, the
    /// local name of its payload. `None` if no error ended the call.
    pub fault: Option<String>,
    /// Periods of the call within the shown page of the thread, in order of their beginning.
    pub spans: Vec<WorkSpan>,
    /// Model turns of the call within the shown page of the thread, in order.
    pub turns: Vec<TurnWork>,
    /// Whether the call has more attempts than a page shows.
    pub is_cut: bool,
    /// Number of attempts that repeat a failed or lost attempt. Counts only attempts within the
    /// shown page of the thread.
    pub retries: u64,
    /// Number of failed model requests after which a later request of the same model call was
    /// answered.
    pub failovers: u64,
    /// The kind of decision for which the call waits now; `None` if it does not wait for a person.
    pub hold: Option<Hold>,
    /// Time since which the call has been queued; `None` if it is not queued now. A queued call is
    /// ready for its listener, but not handed over. [`super::ListenerLoad::queued`] counts queued
    /// calls.
    pub queued_since: Option<Time>,
}

impl CallWork {
    /// Returns the time since which the listener has been working on the call; `None` if the
    /// listener is not working on the call now.
    pub fn with_listener_since(&self) -> Option<Time> {
        let open = |span: &&WorkSpan| span.kind == WorkKind::Work && span.end.is_none();
        self.spans.iter().find(open).map(|span| span.begin)
    }
}

/// A model turn, with the time that the model took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnWork {
    /// Id of the note that records the turn.
    pub note: MessageId,
    /// Position of the turn's record. This record contains the note, and opens the calls that the
    /// model made in the turn.
    pub position: Position,
    /// Number of the turn in its thread, counted from 1.
    pub number: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub begin: Time,
    pub end: Time,
}

/// A period of a call with one activity, such as waiting for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkSpan {
    pub kind: WorkKind,
    pub begin: Time,
    /// End of the period; `None` while the period lasts.
    pub end: Option<Time>,
}

word_enum! {
    /// The activity of a call during a period. While an agent's model answers, there are two
    /// overlapping periods: one of [`WorkKind::Model`] lies within one of [`WorkKind::Work`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum WorkKind {
        /// The call is ready for its listener, but not handed over to it yet.
        Queue = "queue",
        /// The call is with its listener.
        Work = "work",
        Model = "model",
        /// The call waits for a person.
        Person = "person",
    }
}

/// Messages of a thread whose sequence numbers are at least `from_seq` and less than `end_seq`.
struct MessageWindow {
    thread: i64,
    from_seq: i64,
    end_seq: i64,
    /// Position of the first message in the window; 0 if the window begins at sequence number 0.
    from: i64,
    /// Position of the first message after the window.
    end: i64,
}

impl IndexReader {
    /// Returns the calls that the messages of a range opened, the calls in which these messages are
    /// delivered, and the other calls of the thread that were at work or held within the range. The
    /// range begins at the sequence number `from_seq`. It ends before `end_seq` or, if `end_seq` is
    /// `None`, with the last message of the thread. Each returned call contains only its work within
    /// the range and, if it is queued now, its present period in the queue. Leaves out calls that
    /// have no work within the range and are not queued now.
    ///
    /// Each attempt is within one range of the thread: the one with the record that began it. A
    /// call and its attempts may be in different ranges, for example if a listener opens more calls
    /// at once than a page has messages.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn call_work(
        &self,
        thread: &ThreadId,
        from_seq: u64,
        end_seq: Option<u64>,
    ) -> Result<Vec<CallWork>, Error> {
        let Some(window) = self.message_window(thread, from_seq, end_seq)? else {
            return Ok(Vec::new());
        };
        let sql = format!(
            "WITH page AS (SELECT n, call FROM message_row \
             WHERE thread = ?1 AND seq >= ?2 AND seq < ?3), \
             w(n) AS (SELECT CASE call WHEN x'' THEN n \
             ELSE (SELECT o.n FROM message_row o WHERE o.id = page.call) END FROM page \
             UNION SELECT o.n FROM page CROSS JOIN turn_row u ON u.n = page.n \
             CROSS JOIN message_row o ON o.id = u.call \
             UNION SELECT c.n FROM call_row c WHERE c.thread = ?1 AND (EXISTS \
             (SELECT 1 FROM delivery_row d WHERE d.call = c.n AND d.position >= ?5 \
             AND d.position < ?6) OR EXISTS (SELECT 1 FROM hold_row h WHERE h.call = c.n \
             AND h.position >= ?5 AND h.position < ?6))) \
             SELECT c.n, c.id, a.text, l.text, p.local, c.how, \
             (SELECT local FROM name WHERE n = c.fault), m.position, \
             (SELECT CASE o.call WHEN x'' THEN o.id ELSE o.call END \
             FROM message_row o WHERE o.n = m.cause), \
             CASE WHEN {IS_QUEUED} THEN c.ready END \
             FROM w CROSS JOIN call_row c ON c.n = w.n CROSS JOIN message_row m ON m.n = c.n \
             CROSS JOIN name a ON a.n = c.caller CROSS JOIN name l ON l.n = c.listener \
             CROSS JOIN name p ON p.n = m.name WHERE c.thread = ?1 ORDER BY c.n LIMIT ?4"
        );
        let MessageWindow { thread, from_seq, end_seq, from, end } = &window;
        let values: [&dyn rusqlite::ToSql; 6] =
            [thread, from_seq, end_seq, &limits::WEB_ROWS_MAX, from, end];
        let calls = self.rows(&sql, &values, |row| {
            let work = CallWork {
                call: id(&row.get::<_, Vec<u8>>(1)?),
                caller: row.get(2)?,
                listener: row.get(3)?,
                payload: row.get(4)?,
                position: Position(row.get(7)?),
                opener: row.get::<_, Option<Vec<u8>>>(8)?.map(|opener| id(&opener)),
                outcome: row.get(5)?,
                fault: row.get(6)?,
                spans: Vec::new(),
                turns: Vec::new(),
                is_cut: false,
                retries: 0,
                failovers: 0,
                hold: None,
                queued_since: row.get::<_, Option<i64>>(9)?.map(Time),
            };
            Ok((row.get::<_, i64>(0)?, work))
        })?;

        let mut all = Vec::with_capacity(calls.len());
        for (n, mut work) in calls {
            self.add_attempts(n, &window, &mut work)?;
            self.add_waits(n, &window, &mut work)?;
            if let Some(begin) = work.queued_since {
                work.spans.push(WorkSpan { kind: WorkKind::Queue, begin, end: None });
            }
            all.push(work);
        }
        self.add_turns(&window, &mut all)?;
        all.retain(|work| !work.spans.is_empty());
        all.iter_mut().for_each(|work| work.spans.sort_by_key(|span| span.begin));
        Ok(all)
    }

    fn message_window(
        &self,
        thread: &ThreadId,
        from_seq: u64,
        end_seq: Option<u64>,
    ) -> Result<Option<MessageWindow>, Error> {
        let sql = "SELECT n FROM thread_row WHERE id = ?1";
        let found = self.rows(sql, &[&thread.as_str()], |row| row.get::<_, i64>(0))?;
        let Some(thread) = found.first().copied() else { return Ok(None) };

        let position = |seq: i64| -> Result<Option<i64>, Error> {
            let sql = "SELECT position FROM message_row WHERE thread = ?1 AND seq = ?2";
            Ok(self.rows(sql, &[&thread, &seq], |row| row.get::<_, i64>(0))?.first().copied())
        };
        let number = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
        let from_seq = number(from_seq);
        let end_seq = end_seq.map_or(i64::MAX, number);
        let from = if from_seq == 0 { None } else { position(from_seq)? };
        let end = if end_seq == i64::MAX { None } else { position(end_seq)? };
        let from = from.unwrap_or_default();
        let end = end.unwrap_or(i64::MAX);
        Ok(Some(MessageWindow { thread, from_seq, end_seq, from, end }))
    }

    /// Adds the attempts of a call. Before each attempt, adds the time for which the call was
    /// queued. Leaves out deliveries that no listener accepted, because the call remains queued
    /// during such a delivery.
    fn add_attempts(
        &self,
        call: i64,
        window: &MessageWindow,
        work: &mut CallWork,
    ) -> Result<(), Error> {
        let sql = "SELECT ready, handed_over, ended, previous FROM (SELECT position, ready, \
                   handed_over, ended, lag(outcome) OVER (ORDER BY epoch, attempt) AS previous \
                   FROM delivery_row WHERE call = ?1 AND outcome IS NOT 'not-taken') \
                   WHERE position >= ?2 AND position < ?3 LIMIT ?4";
        let limit = limits::WEB_CALL_SPANS + 1;
        let found = self.rows(sql, &[&call, &window.from, &window.end, &limit], |row| {
            let times = (Time(row.get(0)?), Time(row.get(1)?), row.get(2)?);
            Ok((times, row.get::<_, Option<String>>(3)?))
        })?;

        work.is_cut |= found.len() == limit;
        let shown = found.into_iter().take(limits::WEB_CALL_SPANS);
        for ((ready, handed_over, ended), previous) in shown {
            let ended: Option<i64> = ended;
            if handed_over > ready {
                work.spans.push(WorkSpan {
                    kind: WorkKind::Queue,
                    begin: ready,
                    end: Some(handed_over),
                });
            }
            work.spans.push(WorkSpan {
                kind: WorkKind::Work,
                begin: handed_over,
                end: ended.map(Time),
            });
            // After a handled attempt, the call gets the next attempt with its next messages.
            let is_retry = matches!(previous.as_deref(), Some("failed" | "replaced"));
            work.retries += u64::from(is_retry);
        }
        Ok(())
    }

    fn add_waits(
        &self,
        call: i64,
        window: &MessageWindow,
        work: &mut CallWork,
    ) -> Result<(), Error> {
        let sql = "SELECT since, ended, hold FROM hold_row \
                   WHERE call = ?1 AND position >= ?2 AND position < ?3 LIMIT ?4";
        let limit = limits::WEB_CALL_SPANS;
        let waits = self.rows(sql, &[&call, &window.from, &window.end, &limit], |row| {
            let end = row.get::<_, Option<i64>>(1)?.map(Time);
            let span = WorkSpan { kind: WorkKind::Person, begin: Time(row.get(0)?), end };
            Ok((span, row.get::<_, String>(2)?))
        })?;
        let open = waits.iter().find(|(span, _)| span.end.is_none());
        work.hold = open.and_then(|(_, hold)| Hold::parse(hold));
        work.spans.extend(waits.into_iter().map(|(span, _)| span));
        Ok(())
    }

    /// Adds each model turn to the work of its call in `calls`, with its failovers and a span. The
    /// span ends when the turn is recorded, and is as long as the turn's latency. Leaves out
    /// redacted turns, whose latencies are lost.
    fn add_turns(&self, window: &MessageWindow, calls: &mut [CallWork]) -> Result<(), Error> {
        let sql = "SELECT u.call, u.failovers, m.id, u.position, u.turn, u.tokens_in, \
                   u.tokens_out, u.time - u.latency, u.time FROM message_row m \
                   CROSS JOIN turn_row u ON u.n = m.n \
                   WHERE m.thread = ?1 AND m.seq >= ?2 AND m.seq < ?3 AND u.call IS NOT NULL \
                   AND NOT m.redacted ORDER BY m.seq";
        let MessageWindow { thread, from_seq, end_seq, .. } = window;
        let turns = self.rows(sql, &[thread, from_seq, end_seq], |row| {
            let turn = TurnWork {
                note: id(&row.get::<_, Vec<u8>>(2)?),
                position: Position(row.get(3)?),
                number: row.get(4)?,
                tokens_in: row.get(5)?,
                tokens_out: row.get(6)?,
                begin: Time(row.get(7)?),
                end: Time(row.get(8)?),
            };
            Ok((id(&row.get::<_, Vec<u8>>(0)?), row.get::<_, u64>(1)?, turn))
        })?;

        for (call, failovers, turn) in turns {
            let Some(work) = calls.iter_mut().find(|work| work.call == call) else { continue };
            work.failovers += failovers;
            work.spans.push(WorkSpan {
                kind: WorkKind::Model,
                begin: turn.begin,
                end: Some(turn.end),
            });
            work.turns.push(turn);
        }
        Ok(())
    }
}
