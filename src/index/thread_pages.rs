//! Finds the records of a page of a thread. A page contains messages, and the events that lie
//! between them.

use crate::clock::Time;
use crate::envelope::Disposition;
use crate::ids::{CallId, MessageId, Position, ThreadId};
use crate::limits;
use crate::thread::Hold;

use super::lookup::{IS_HANDED_OVER, id};
use super::{Error, IndexReader};

/// A page of the messages of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPageRows {
    pub opened: Time,
    /// Position of the record that opened the thread.
    pub opened_at: Position,
    /// Sequence number at which the page begins.
    pub from_seq: u64,
    /// Sequence number at which the next page begins; `None` on the last page.
    pub next_seq: Option<u64>,
    /// Sequence number at which the previous page begins; `None` on the first page.
    pub previous_seq: Option<u64>,
    /// Positions of the page's messages, refusals, errors, decisions and openings of subthreads, in
    /// order.
    pub positions: Vec<Position>,
    /// Whether `positions` lacks some events between the page's messages, because a page has a
    /// limited number of events.
    pub is_cut: bool,
    /// Messages of the page with their dispositions.
    pub dispositions: Vec<(MessageId, Option<Disposition>)>,
    /// Messages of the page that a listener has received in a delivery and has not answered yet.
    pub handed_over: Vec<MessageId>,
    /// Calls of the page that wait for a person, each with the kind of decision that it waits for.
    pub holds: Vec<(MessageId, Hold)>,
}

struct PageMessage {
    n: i64,
    id: MessageId,
    seq: u64,
    position: u64,
    disposition: Option<Disposition>,
    hold: Option<Hold>,
    is_handed_over: bool,
}

impl IndexReader {
    /// Returns a page of a thread with up to `limit` messages. The page begins with the sequence
    /// number `from_seq`. If `from_seq` is `None`, returns the last page. Returns `None` if there
    /// is no such thread. The time does not depend on the length of the thread, because only the
    /// rows of this page are read.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn thread_page(
        &self,
        thread: &ThreadId,
        from_seq: Option<u64>,
        limit: usize,
    ) -> Result<Option<ThreadPageRows>, Error> {
        let sql = "SELECT t.n, t.opened, r.head, t.position \
                   FROM thread_row t JOIN tree_row r ON r.n = t.tree WHERE t.id = ?1";
        let found = self.rows(sql, &[&thread.as_str()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
        })?;
        let Some((n, opened, head, begin)) = found.into_iter().next() else {
            return Ok(None);
        };

        let from_seq = match from_seq {
            Some(from_seq) => from_seq,
            None => self.seq_before(n, i64::MAX, limit)?.unwrap_or_default(),
        };
        let mut messages = self.page_messages(n, from_seq, limit.saturating_add(1))?;
        let next = if messages.len() > limit { messages.pop() } else { None };
        let first_seq = messages.first().map_or(from_seq, |message| message.seq);
        let previous_seq =
            self.seq_before(n, i64::try_from(first_seq).unwrap_or(i64::MAX), limit)?;

        // Numbers of messages and refusals rise with positions. Events before the first message of
        // the thread belong to its first page.
        let first = messages.first().filter(|_| previous_seq.is_some());
        let span = [
            first.map_or(self.last_number(begin - 1)?, |message| message.n),
            next.as_ref().map_or(self.last_number(head)?, |message| message.n),
            first.map_or(begin, |message| i64::try_from(message.position).unwrap_or(i64::MAX)),
            next.as_ref()
                .map_or(head, |message| i64::try_from(message.position).unwrap_or(i64::MAX)),
        ];
        let is_organism = *thread == ThreadId::organism();
        let (mut positions, is_cut) = self.positions_between(n, is_organism, &span)?;
        // The record of the next page's first message may begin with events of this page.
        let shown = messages.iter().chain(&next);
        positions.extend(shown.map(|message| Position(message.position)));
        positions.sort_unstable();
        positions.dedup();

        let handed_over = messages.iter().filter(|message| message.is_handed_over);
        Ok(Some(ThreadPageRows {
            opened: Time(opened),
            opened_at: Position(begin.unsigned_abs()),
            from_seq: if previous_seq.is_some() { first_seq } else { 0 },
            next_seq: next.map(|message| message.seq),
            previous_seq,
            positions,
            is_cut,
            dispositions: messages.iter().map(|one| (one.id, one.disposition)).collect(),
            handed_over: handed_over.map(|one| one.id).collect(),
            holds: messages.iter().filter_map(|one| Some((one.id, one.hold?))).collect(),
        }))
    }

    /// Returns the thread to which a call belongs; `None` if the call is not on record.
    pub fn thread_of_call(&self, call: CallId) -> Result<Option<ThreadId>, Error> {
        let sql = "SELECT t.id FROM message_row m CROSS JOIN thread_row t ON t.n = m.thread \
                   WHERE m.id = ?1";
        let id = call.0.0.as_bytes().as_slice();
        let found = self.rows(sql, &[&id], |row| row.get::<_, String>(0))?;
        Ok(found.first().and_then(|id| ThreadId::parse(id).ok()))
    }

    fn page_messages(
        &self,
        thread: i64,
        from_seq: u64,
        limit: usize,
    ) -> Result<Vec<PageMessage>, Error> {
        let sql = format!(
            "SELECT n, id, seq, position, disposition, \
             (SELECT hold FROM hold_row h WHERE h.call = m.n AND h.ended IS NULL), {IS_HANDED_OVER} \
             FROM message_row m WHERE thread = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3"
        );
        let from_seq = i64::try_from(from_seq).unwrap_or(i64::MAX);
        self.rows(&sql, &[&thread, &from_seq, &limit], |row| {
            let disposition: Option<String> = row.get(4)?;
            let hold: Option<String> = row.get(5)?;
            Ok(PageMessage {
                n: row.get(0)?,
                id: id(&row.get::<_, Vec<u8>>(1)?),
                seq: row.get(2)?,
                position: row.get(3)?,
                disposition: disposition.as_deref().and_then(Disposition::parse),
                hold: hold.as_deref().and_then(Hold::parse),
                is_handed_over: row.get(6)?,
            })
        })
    }

    /// Returns the sequence number of the message that is `limit` messages before the message
    /// `seq`. If fewer messages precede `seq`, returns the sequence number of the first message. If
    /// no message precedes `seq`, returns `None`.
    fn seq_before(&self, thread: i64, seq: i64, limit: usize) -> Result<Option<u64>, Error> {
        let sql = "SELECT min(seq) FROM (SELECT seq FROM message_row \
                   WHERE thread = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3)";
        let found = self.rows(sql, &[&thread, &seq, &limit], |row| row.get(0))?;
        Ok(found.into_iter().next().flatten())
    }

    /// Returns the number of the last message or refusal that was recorded up to `position`.
    fn last_number(&self, position: i64) -> Result<i64, Error> {
        let sql = "SELECT n - 1 FROM message_row WHERE position > ?1 ORDER BY position, n LIMIT 1";
        let found = self.rows(sql, &[&position], |row| row.get(0))?;
        Ok(found.into_iter().next().unwrap_or(i64::MAX))
    }

    /// Returns the positions of a thread's records that contain refusals, errors, decisions or
    /// openings of subthreads. The second value is true if there are more such positions than a
    /// page can show.
    ///
    /// The search covers refusals with numbers from `span[0]` to `span[1]`, and other events with
    /// positions from `span[2]` to `span[3]`. For the organism's own thread (`is_organism`), the
    /// result also includes two kinds of events: counts of `busy` refusals, and refusals of
    /// payloads for threads that do not exist.
    fn positions_between(
        &self,
        thread: i64,
        is_organism: bool,
        span: &[i64; 4],
    ) -> Result<(Vec<Position>, bool), Error> {
        let [first, last, from, to] = span;
        let limit = limits::WEB_ROWS_MAX + 1;
        let own = if is_organism { "ifnull(thread, ?1) = ?1" } else { "thread = ?1" };
        let sql = format!(
            "SELECT position FROM refusal_row WHERE n BETWEEN ?2 AND ?3 AND {own} ORDER BY n LIMIT ?4"
        );
        let mut positions =
            self.rows(&sql, &[&thread, first, last, &limit], |row| row.get(0).map(Position))?;
        let mut is_cut = positions.len() == limit;
        let tables = [
            "error_row WHERE thread = ?1",
            "action_row WHERE thread = ?1",
            // A subthread appears where it was opened.
            "thread_row WHERE tree = (SELECT tree FROM thread_row WHERE n = ?1) AND parent = ?1",
            "busy_row WHERE ?1",
        ];
        for table in tables.into_iter().take(if is_organism { 4 } else { 3 }) {
            let sql = format!(
                "SELECT position FROM {table} AND position BETWEEN ?2 AND ?3 ORDER BY position \
                 LIMIT ?4"
            );
            let found =
                self.rows(&sql, &[&thread, from, to, &limit], |row| row.get(0).map(Position))?;
            is_cut |= found.len() == limit;
            positions.extend(found);
        }
        Ok((positions, is_cut))
    }
}
