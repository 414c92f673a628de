//! Writes the index rows of messages. A new row stays in memory until the next flush. Most messages
//! get their disposition before that flush, so their rows are written only once.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::envelope::{Disposition, Message};
use crate::ids::{CallId, MessageId};

/// A message whose row is not written yet.
pub struct UnwrittenMessage {
    pub n: i64,
    pub message: Arc<Message>,
    /// Number of the message that caused this message, or the id of the cause if the cause is not
    /// on record.
    pub cause: Option<Value>,
    pub thread: i64,
    pub sender: i64,
    pub recipient: i64,
    pub name: i64,
    pub position: u64,
    pub disposition: Option<(Disposition, u64)>,
}

/// Messages that are kept in memory: new messages whose rows are not written yet, and messages that
/// are in flight.
pub struct MessageRows<'d> {
    db: &'d Connection,
    new: Vec<UnwrittenMessage>,
    new_by_id: HashMap<MessageId, usize, foldhash::fast::RandomState>,
    /// Row number and thread number of each message in flight whose row is already written.
    in_flight: HashMap<MessageId, (i64, i64), foldhash::fast::RandomState>,
    /// Whether a first build of the index writes the rows. In a first build, a row gets the number
    /// of the message's cause only if the cause is in memory. The missing numbers are added after
    /// all rows are written.
    is_building: bool,
}

impl<'d> MessageRows<'d> {
    pub fn new(db: &'d Connection, is_building: bool) -> Self {
        Self {
            db,
            new: Vec::new(),
            new_by_id: HashMap::default(),
            in_flight: HashMap::default(),
            is_building,
        }
    }

    pub fn add(&mut self, row: UnwrittenMessage) {
        self.new_by_id.insert(row.message.id, self.new.len());
        self.new.push(row);
    }

    /// Stores the disposition of a message. Returns the number of the message's thread; `None` if
    /// the message is not on record.
    pub fn dispose(
        &mut self,
        id: MessageId,
        how: Disposition,
        position: u64,
    ) -> rusqlite::Result<Option<i64>> {
        if let Some(row) = self.new_by_id.get(&id).and_then(|at| self.new.get_mut(*at)) {
            row.disposition = Some((how, position));
            return Ok(Some(row.thread));
        }

        let known = match self.in_flight.remove(&id) {
            Some(known) => Some(known),
            None => self.stored(id)?,
        };
        let Some((n, thread)) = known else { return Ok(None) };
        let sql = "UPDATE message_row SET disposition = ?2, disposed = ?3 WHERE n = ?1";
        self.db.prepare_cached(sql)?.execute(params![n, how.as_str(), position])?;
        Ok(Some(thread))
    }

    /// Returns the number of the thread of a message; `None` if the message is not on record.
    pub fn thread_of(&self, id: MessageId) -> rusqlite::Result<Option<i64>> {
        if let Some(row) = self.new_by_id.get(&id).and_then(|at| self.new.get(*at)) {
            return Ok(Some(row.thread));
        }
        Ok(self.stored(id)?.map(|(_, thread)| thread))
    }

    /// Returns the number of a message. Returns `None` if the message is not on record or, during a
    /// first build of the index, not in memory.
    pub fn number_of(&self, id: MessageId) -> rusqlite::Result<Option<i64>> {
        if let Some(row) = self.new_by_id.get(&id).and_then(|at| self.new.get(*at)) {
            return Ok(Some(row.n));
        }
        if let Some((n, _)) = self.in_flight.get(&id) {
            return Ok(Some(*n));
        }
        if self.is_building {
            return Ok(None);
        }
        Ok(self.stored(id)?.map(|(n, _)| n))
    }

    fn stored(&self, id: MessageId) -> rusqlite::Result<Option<(i64, i64)>> {
        ensure_id_index(self.db)?;
        let sql = "SELECT n, thread FROM message_row WHERE id = ?1";
        let key = id.0.as_bytes().as_slice();
        let mut find = self.db.prepare_cached(sql)?;
        find.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).optional()
    }

    /// If memory contains more than `rows_kept` messages in flight that earlier flushes have kept,
    /// first removes all of these from memory. Then writes the rows of all new messages. New
    /// messages without a disposition are in flight, and stay in memory.
    pub fn flush(&mut self, rows_kept: usize) -> rusqlite::Result<()> {
        self.new_by_id.clear();
        if self.in_flight.len() > rows_kept {
            self.in_flight.clear();
        }
        for row in self.new.drain(..) {
            save(self.db, &row)?;
            if row.disposition.is_none() {
                self.in_flight.insert(row.message.id, (row.n, row.thread));
            }
        }
        Ok(())
    }
}

/// Creates the SQL index of message ids if it does not exist. Only a first build of the index works
/// without this SQL index, until the build first looks up a message id in the database.
pub fn ensure_id_index(db: &Connection) -> rusqlite::Result<()> {
    let sql = "CREATE INDEX IF NOT EXISTS message_id ON message_row(id)";
    db.prepare_cached(sql)?.execute([]).map(drop)
}

fn save(db: &Connection, row: &UnwrittenMessage) -> rusqlite::Result<()> {
    let sql = "INSERT INTO message_row(n, id, thread, seq, kind, sender, recipient, name, cause, \
               call, position, time, bytes, redacted, disposition, disposed) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    let message = &*row.message;
    // Most messages with a call open it themselves, so their own id is left out.
    let is_own = |call: &CallId| *call == CallId(message.id);
    let call = message.call.map(|call| if is_own(&call) { Vec::new() } else { call.0.0.into() });
    db.prepare_cached(sql)?.execute(params![
        row.n,
        message.id.0.as_bytes().as_slice(),
        row.thread,
        message.seq,
        message.kind.as_str(),
        row.sender,
        row.recipient,
        row.name,
        row.cause,
        call,
        row.position,
        message.time.0,
        message.payload.len(),
        message.payload.is_redacted(),
        row.disposition.map(|(how, _)| how.as_str()),
        row.disposition.map(|(_, position)| position)
    ])?;
    Ok(())
}
