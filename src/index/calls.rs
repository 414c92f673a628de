//! Writes the index rows of calls, of their attempts, and of the periods in which they waited for
//! people.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::contract::Gather;
use crate::envelope::Message;
use crate::ids::{Attempt, CallId};
use crate::system::WaitFor;
use crate::thread::{Closing, Opening};

use super::hours::{AttemptTimes, HourRows};
use super::messages::ensure_id_index;

/// Outcome of an attempt to which the listener responded.
pub const HANDLED: &str = "handled";
/// Outcome of an attempt whose delivery no listener accepted. The index does not count such
/// attempts.
pub const NOT_TAKEN: &str = "not-taken";

/// An attempt that is with its listener.
#[derive(Debug, Clone, Copy)]
pub struct OpenDelivery {
    pub attempt: Attempt,
    pub position: u64,
    /// Time at which the call became ready for the hand-over of this attempt.
    pub ready: i64,
    pub handed_over: i64,
}

/// A period that still lasts, in which an open call waits for a person, for example for an
/// approval.
#[derive(Debug, Clone, Copy)]
pub struct OpenHold {
    pub position: u64,
    pub hold: &'static str,
    pub since: i64,
    pub until: Option<i64>,
}

/// Row of a call in the index.
#[derive(Debug)]
pub struct CallRow {
    pub n: i64,
    pub id: CallId,
    pub thread: i64,
    pub caller: i64,
    pub listener: i64,
    /// Whether the call was opened from outside its thread: by a client, or by a call in another
    /// thread.
    pub outside: bool,
    pub opened: i64,
    /// Time at which the call last became ready for delivery.
    pub ready: i64,
    /// Condition that ends the call's wait for timers and for results of other threads: `all` if
    /// all of them are needed, `any` if one of them is enough. `None` if the call waits for
    /// neither.
    pub waits: Option<&'static str>,
    pub attempts: i64,
    /// Time of the call's end, and how the call ended; `None` while it is open.
    pub closed: Option<(i64, &'static str)>,
    /// The code of the error that ended the call, as a number from the index's table of names. For
    /// an error without a code, the number of the local name of its payload. `None` if no error
    /// ended the call. A workflow run that a client began and that failed has a code, too, although
    /// its call completed with a reply.
    pub fault: Option<i64>,
    /// If the call belongs to a request to several peers, how the results of the request are
    /// gathered. Otherwise, `None`.
    pub gather: Option<Gather>,
    pub delivery: Option<OpenDelivery>,
    pub hold: Option<OpenHold>,
    pub is_changed: bool,
}

impl CallRow {
    /// Returns the row of a call that `request` has just opened. `n` and `thread` are the row
    /// numbers of the request and of its thread. `caller` and `listener` are numbers from the
    /// index's table of names.
    pub fn opened(
        request: &Message,
        opening: &Opening,
        (n, thread): (i64, i64),
        (caller, listener): (i64, i64),
        time: i64,
    ) -> Self {
        Self {
            n,
            id: CallId(request.id),
            thread,
            caller,
            listener,
            outside: opening.is_from_outside(&request.thread),
            opened: time,
            ready: time,
            waits: None,
            attempts: 0,
            closed: None,
            fault: None,
            gather: opening.group.map(|(_, gather)| gather),
            delivery: None,
            hold: None,
            is_changed: true,
        }
    }
}

type EndedDelivery = (i64, i64, i64, OpenDelivery, i64, &'static str);
type EndedHold = (i64, OpenHold, i64, &'static str);

/// Index rows in memory: those of open calls, and those of all calls, attempts and periods of
/// waiting that ended since the last flush.
pub struct CallRows<'d> {
    db: &'d Connection,
    calls: HashMap<CallId, CallRow, foldhash::fast::RandomState>,
    deliveries: Vec<EndedDelivery>,
    holds: Vec<EndedHold>,
}

impl<'d> CallRows<'d> {
    pub fn new(db: &'d Connection) -> Self {
        Self { db, calls: HashMap::default(), deliveries: Vec::new(), holds: Vec::new() }
    }

    pub fn insert(&mut self, call: CallRow) {
        self.calls.insert(call.id, call);
    }

    /// Returns the row number of a call; `None` if the call's row is not in memory.
    pub fn number_in_memory(&self, id: CallId) -> Option<i64> {
        self.calls.get(&id).map(|row| row.n)
    }

    /// Returns the row of a call, and marks the row as changed. Returns `None` if the call is not
    /// on record.
    pub fn get(&mut self, id: CallId) -> rusqlite::Result<Option<&mut CallRow>> {
        if !self.calls.contains_key(&id)
            && let Some(row) = load(self.db, id)?
        {
            self.calls.insert(id, row);
        }
        let mut row = self.calls.get_mut(&id);
        if let Some(row) = &mut row {
            row.is_changed = true;
        }
        Ok(row)
    }

    /// Marks a call as waiting for results of other threads and for timers: for all of them or for
    /// any one, as `until` states. If `until` is `None`, marks the end of this wait.
    pub fn set_wait(&mut self, id: CallId, until: Option<WaitFor>) -> rusqlite::Result<()> {
        if let Some(call) = self.get(id)? {
            call.waits = until.map(|until| match until {
                WaitFor::All => "all",
                WaitFor::Any => "any",
            });
        }
        Ok(())
    }

    /// Ends the open attempt of a call. If `attempt` is set, ends only this attempt, and does
    /// nothing if another one is open.
    pub fn end_delivery(
        &mut self,
        hours: &mut HourRows<'_>,
        id: CallId,
        attempt: Option<Attempt>,
        time: i64,
        outcome: &'static str,
    ) -> rusqlite::Result<()> {
        let Some(call) = self.get(id)? else { return Ok(()) };
        let is_meant =
            call.delivery.is_some_and(|open| attempt.is_none_or(|at| at == open.attempt));
        if let Some(open) = call.delivery.take_if(|_| is_meant) {
            let ended = (call.n, call.listener, call.thread, open, time, outcome);
            if outcome != NOT_TAKEN {
                hours.add_attempt(AttemptTimes {
                    call: call.n,
                    listener: call.listener,
                    ready: open.ready,
                    handed_over: open.handed_over,
                    ended: time,
                    is_handled: outcome == HANDLED,
                });
            }
            self.deliveries.push(ended);
        }
        Ok(())
    }

    /// Ends the period in which a call waits for a person. Returns false if the call does not wait.
    pub fn end_hold(
        &mut self,
        id: CallId,
        time: i64,
        outcome: &'static str,
    ) -> rusqlite::Result<bool> {
        let Some(call) = self.get(id)? else { return Ok(false) };
        let Some(hold) = call.hold.take() else { return Ok(false) };
        let ended = (call.n, hold, time, outcome);
        self.holds.push(ended);
        Ok(true)
    }

    /// Writes all changed rows, and then removes the rows of ended calls from memory. If more than
    /// `rows_kept` calls were in memory, also removes the rows of the open calls.
    pub fn flush(&mut self, rows_kept: usize) -> rusqlite::Result<()> {
        for (call, listener, thread, open, ended, outcome) in self.deliveries.drain(..) {
            let end = Some((ended, outcome));
            save_delivery(self.db, (call, listener, thread), &open, end)?;
        }
        for (call, hold, ended, outcome) in self.holds.drain(..) {
            save_hold(self.db, call, &hold, Some((ended, outcome)))?;
        }
        for call in self.calls.values_mut().filter(|call| call.is_changed) {
            save(self.db, call)?;
            call.is_changed = false;
        }

        let is_full = self.calls.len() > rows_kept;
        self.calls.retain(|_, call| call.closed.is_none() && !is_full);
        Ok(())
    }
}

fn load(db: &Connection, id: CallId) -> rusqlite::Result<Option<CallRow>> {
    ensure_id_index(db)?;
    let sql = "SELECT c.n, c.thread, c.caller, c.listener, c.outside, c.opened, c.ready, \
               c.attempts, c.closed, c.how, c.fault, c.waits, c.gather FROM message_row m \
               JOIN call_row c ON c.n = m.n WHERE m.id = ?1";
    let key = id.0.0.as_bytes().as_slice();
    let row = db.prepare_cached(sql)?.query_row([key], |row| read(id, row)).optional()?;
    let Some(mut call) = row else { return Ok(None) };

    let sql = "SELECT epoch, attempt, position, ready, handed_over FROM delivery_row \
               WHERE call = ?1 AND ended IS NULL";
    let open = |row: &Row<'_>| {
        Ok(OpenDelivery {
            attempt: Attempt { epoch: row.get(0)?, n: row.get(1)? },
            position: row.get(2)?,
            ready: row.get(3)?,
            handed_over: row.get(4)?,
        })
    };
    call.delivery = db.prepare_cached(sql)?.query_row([call.n], open).optional()?;

    let sql = "SELECT position, hold, since, until FROM hold_row \
               WHERE call = ?1 AND ended IS NULL";
    let open = |row: &Row<'_>| {
        let hold: String = row.get(1)?;
        Ok(OpenHold {
            position: row.get(0)?,
            hold: known(&hold),
            since: row.get(2)?,
            until: row.get(3)?,
        })
    };
    call.hold = db.prepare_cached(sql)?.query_row([call.n], open).optional()?;
    Ok(Some(call))
}

fn read(id: CallId, row: &Row<'_>) -> rusqlite::Result<CallRow> {
    let closed: Option<i64> = row.get(8)?;
    let how: Option<String> = row.get(9)?;
    let waits: Option<String> = row.get(11)?;
    let gather: Option<String> = row.get(12)?;
    Ok(CallRow {
        n: row.get(0)?,
        id,
        thread: row.get(1)?,
        caller: row.get(2)?,
        listener: row.get(3)?,
        outside: row.get(4)?,
        opened: row.get(5)?,
        ready: row.get(6)?,
        waits: waits.as_deref().map(known),
        attempts: row.get(7)?,
        closed: closed.zip(how.as_deref().map(known)),
        fault: row.get(10)?,
        gather: gather.and_then(|text| GATHERS.into_iter().find(|own| gather_word(*own) == text)),
        delivery: None,
        hold: None,
        is_changed: false,
    })
}

/// Returns the static text that equals `text`, so that rows in memory need not own a copy. `text`
/// comes from a column that contains only a few fixed words.
fn known(text: &str) -> &'static str {
    let words = ["approval", "answer", "completed", "failed", "cancelled", "all", "any"];
    words.into_iter().find(|word| *word == text).unwrap_or("unknown")
}

/// Returns the word with which the index states how a call or a thread ended.
pub fn closing(how: Closing) -> &'static str {
    match how {
        Closing::Completed => "completed",
        Closing::Failed => "failed",
        Closing::Cancelled => "cancelled",
    }
}

/// Returns how a call or a thread ended, from the word that the index stores; `None` for any other
/// word.
pub fn closing_of(word: &str) -> Option<Closing> {
    let all = [Closing::Completed, Closing::Failed, Closing::Cancelled];
    all.into_iter().find(|how| closing(*how) == word)
}

const GATHERS: [Gather; 2] = [Gather::All, Gather::First];

const fn gather_word(gather: Gather) -> &'static str {
    match gather {
        Gather::All => "all",
        Gather::First => "first",
    }
}

fn save(db: &Connection, call: &CallRow) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO call_row(n, id, thread, caller, listener, outside, opened, \
               ready, waits, attempts, closed, how, fault, gather) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    db.prepare_cached(sql)?.execute(params![
        call.n,
        call.id.0.0.as_bytes().as_slice(),
        call.thread,
        call.caller,
        call.listener,
        call.outside,
        call.opened,
        call.ready,
        call.waits,
        call.attempts,
        call.closed.map(|(time, _)| time),
        call.closed.map(|(_, how)| how),
        call.fault,
        call.gather.map(gather_word)
    ])?;

    if let Some(open) = &call.delivery {
        save_delivery(db, (call.n, call.listener, call.thread), open, None)?;
    }
    if let Some(hold) = &call.hold {
        save_hold(db, call.n, hold, None)?;
    }
    Ok(())
}

fn save_delivery(
    db: &Connection,
    (call, listener, thread): (i64, i64, i64),
    open: &OpenDelivery,
    end: Option<(i64, &str)>,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO delivery_row(call, epoch, attempt, listener, thread, \
               position, ready, handed_over, ended, outcome) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    db.prepare_cached(sql)?.execute(params![
        call,
        open.attempt.epoch,
        open.attempt.n,
        listener,
        thread,
        open.position,
        open.ready,
        open.handed_over,
        end.map(|(time, _)| time),
        end.map(|(_, outcome)| outcome)
    ])?;
    Ok(())
}

fn save_hold(
    db: &Connection,
    call: i64,
    hold: &OpenHold,
    end: Option<(i64, &str)>,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO hold_row(call, position, hold, since, until, ended, outcome) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    db.prepare_cached(sql)?.execute(params![
        call,
        hold.position,
        hold.hold,
        hold.since,
        hold.until,
        end.map(|(time, _)| time),
        end.map(|(_, outcome)| outcome)
    ])?;
    Ok(())
}
