//! Derives the rows of an index from records alone, so every row can be made again from the
//! journal. Most rows follow from the facts of records, which are the changes of the pump's state.

use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::envelope::{Message, MessageKind, Refusal, RefusalRule, Spending};
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::limits;
use crate::system::{self, AlertReport};
use crate::thread::{Closing, Fact, Input, Opening, Record, RecordByCall};

use super::actions;
use super::call_faults::{
    NO_FAULT, failed_run_of, fault_detail, fault_of, fault_word, run_fault, without_kind,
};
use super::calls::{CallRow, CallRows, HANDLED, NOT_TAKEN, OpenDelivery, OpenHold, closing};
use super::events;
use super::hours::{EventNames, HourRows};
use super::messages::{MessageRows, UnwrittenMessage};
use super::names::NameTable;
use super::pauses;
use super::threads::{FirstCall, ThreadRows, TreeNameRole};
use super::turns;
use super::word_thread::WordTable;
use super::words;

/// Derives index rows from records, in the order of the records. The database contains all rows
/// only after [`IndexFold::flush`].
pub struct IndexFold<'d> {
    pub(super) db: &'d Connection,
    pub(super) names: NameTable<'d>,
    pub(super) threads: ThreadRows<'d>,
    pub(super) messages: MessageRows<'d>,
    calls: CallRows<'d>,
    pub(super) hours: HourRows<'d>,
    pub(super) words: WordTable,
    /// Texts of the present record that are still to be added: the words of its messages and
    /// refusals.
    texts: std::vec::IntoIter<String>,
    /// Number of the newest message or refusal in the index.
    last: i64,
    /// Maximum number of rows of each kind that stay in memory after a flush.
    pub rows_kept: usize,
    /// Maximum number of open calls, and of messages in flight, that stay in memory after a flush.
    pub calls_kept: usize,
}

impl<'d> IndexFold<'d> {
    pub fn new(db: &'d Connection, words: WordTable) -> rusqlite::Result<Self> {
        Ok(Self {
            db,
            names: NameTable::new(db),
            threads: ThreadRows::new(db)?,
            messages: MessageRows::new(db, matches!(words, WordTable::Thread(_))),
            calls: CallRows::new(db),
            hours: HourRows::new(db),
            words,
            texts: Vec::new().into_iter(),
            last: last_number(db)?,
            rows_kept: limits::INDEX_ROWS_KEPT,
            calls_kept: limits::INDEX_ROWS_KEPT,
        })
    }

    /// Adds the rows of a record. `texts` contains the words of each message and of each refusal of
    /// the record, in order.
    pub fn take(&mut self, record: &Record, texts: Vec<String>) -> rusqlite::Result<()> {
        self.texts = texts.into_iter();
        self.threads.count_record(record)?;
        // The thread is determined before the facts are applied, because a timeline attributes a
        // record to the calls before it.
        let thread = events::thread_of(self, record)?;
        let by_call = RecordByCall::of(record);
        for fact in &record.facts {
            self.take_fact((record, &by_call), fact)?;
            pauses::take(self, record, fact)?;
        }
        events::count(self, record, thread)?;
        actions::take(self, record)?;
        match &record.input {
            Input::Busy { client, since, count } => {
                let client_n = self.names.number(client.as_str())?;
                let sql = "INSERT INTO busy_row(position, time, client, since, count) \
                           VALUES (?1, ?2, ?3, ?4, ?5)";
                let row = params![record.position.0, record.time.0, client_n, since.0, count];
                self.db.prepare_cached(sql)?.execute(row)?;
                let rule = self.names.number(RefusalRule::Busy.as_str())?;
                let names = EventNames::of_refusal(client_n, rule);
                self.hours.add_refusals(record.time.0, None, names, *count);
                self.count_refusals(record, None, i64::try_from(*count).unwrap_or(i64::MAX))?;
                Ok(())
            }
            Input::Alert(report) => self.add_alert(record, report),
            Input::Denied { listener, operations, .. } => {
                self.add_error(record, None, Some(listener), "denied", operations)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_alert(&mut self, record: &Record, report: &AlertReport) -> rusqlite::Result<()> {
        let thread = match &report.thread {
            Some(thread) => self.threads.find(thread)?,
            None => None,
        };
        let sql = "INSERT INTO alert_row(position, time, event, kind, subject, cause, since, count, \
                   thread, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        self.db.prepare_cached(sql)?.execute(params![
            record.position.0,
            record.time.0,
            report.event.as_str(),
            report.kind.as_str(),
            report.subject,
            report.cause.0,
            report.since.0,
            i64::try_from(report.count).unwrap_or(i64::MAX),
            thread,
            report.detail
        ])?;
        Ok(())
    }

    /// Writes all rows that are only in memory.
    pub fn flush(&mut self) -> rusqlite::Result<()> {
        self.messages.flush(self.calls_kept)?;
        self.calls.flush(self.calls_kept)?;
        self.hours.flush()?;
        self.threads.flush(self.rows_kept)?;
        self.names.trim(self.rows_kept);
        Ok(())
    }

    fn take_fact(
        &mut self,
        (record, by_call): (&Record, &RecordByCall<'_>),
        fact: &Fact,
    ) -> rusqlite::Result<()> {
        let time = record.time.0;
        match fact {
            Fact::Booted { epoch, config, core_version, blobs, .. }
            | Fact::Reloaded { epoch, config, core_version, blobs } => {
                let sql = "INSERT INTO config_row(position, time, epoch, digest, core_version) \
                           VALUES (?1, ?2, ?3, ?4, ?5)";
                let row =
                    params![record.position.0, time, epoch, config.0.as_slice(), core_version];
                self.db.prepare_cached(sql)?.execute(row)?;
                let sql = "INSERT OR IGNORE INTO config_blob(position, digest) VALUES (?1, ?2)";
                for digest in blobs {
                    let row = params![record.position.0, digest.0.as_slice()];
                    self.db.prepare_cached(sql)?.execute(row)?;
                }
            }
            Fact::ThreadOpened { thread, by, .. } => {
                let by = self.names.number(by.as_str())?;
                self.threads.number(thread, Some(by), record)?;
            }
            Fact::Forked { thread, by, threads, .. } => {
                let by = self.names.number(by.as_str())?;
                self.threads.number(thread, Some(by), record)?;
                for inherited in threads.iter().filter(|own| !own.thread.is_root()) {
                    let by = self.names.number(inherited.by.as_str())?;
                    let n = self.threads.number(&inherited.thread, Some(by), record)?;
                    if let Some(how) = inherited.result {
                        self.threads.end(n, how, record)?;
                    }
                }
            }
            Fact::Accepted { message, opening, .. } => {
                self.accept(record, message, opening.as_ref())?;
            }
            Fact::Disposed { message, how } => {
                let thread = self.messages.dispose(*message, *how, record.position.0)?;
                if let Some(thread) = thread {
                    self.threads.add(thread, record, |sums| sums.settled += 1)?;
                }
            }
            Fact::Refused { sender, thread, call, refusal } => {
                self.refuse(record, sender, thread.as_ref(), *call, refusal)?;
            }
            Fact::Used { call, tokens_in, tokens_out, money, .. } => {
                if let Some(thread) = self.thread_of_call(*call)? {
                    self.threads.add(thread, record, |sums| {
                        sums.tokens_in = sums.tokens_in.saturating_add_unsigned(*tokens_in);
                        sums.tokens_out = sums.tokens_out.saturating_add_unsigned(*tokens_out);
                        sums.cost = sums.cost.saturating_add_unsigned(money.0);
                    })?;
                }
            }
            Fact::Charged { call, spending, .. } => self.charge(record, *call, *spending)?,
            _ => self.take_call_fact((record, by_call), fact)?,
        }
        Ok(())
    }

    /// Applies a fact about a call: about a delivery, a period of waiting for a person, or the end
    /// of the call.
    fn take_call_fact(
        &mut self,
        (record, by_call): (&Record, &RecordByCall<'_>),
        fact: &Fact,
    ) -> rusqlite::Result<()> {
        let time = record.time.0;
        match fact {
            Fact::HandedOver { call, attempt } => {
                self.calls.end_delivery(&mut self.hours, *call, None, time, "replaced")?;
                if let Some(row) = self.calls.get(*call)? {
                    row.attempts += 1;
                    row.delivery = Some(OpenDelivery {
                        attempt: *attempt,
                        position: record.position.0,
                        ready: row.ready,
                        handed_over: time,
                    });
                }
            }
            Fact::OutcomeReceived { call, attempt } => {
                self.calls.end_delivery(&mut self.hours, *call, Some(*attempt), time, HANDLED)?;
                self.calls.set_wait(*call, None)?;
                self.set_ready(*call, time)?;
            }
            Fact::Waiting { call, until } => self.calls.set_wait(*call, Some(*until))?,
            Fact::WaitEnded { call } => {
                self.calls.set_wait(*call, None)?;
                self.set_ready(*call, time)?;
            }
            Fact::AttemptFailed { call, attempt, failure } => {
                self.calls.end_delivery(&mut self.hours, *call, Some(*attempt), time, "failed")?;
                self.set_ready(*call, time)?;
                let detail = failure.to_string();
                let thread = self.add_error(record, Some(*call), None, failure.word(), &detail)?;
                self.count_error(record, thread)?;
                if let Some(spent) = failure.spent() {
                    self.charge(record, *call, spent)?;
                }
            }
            Fact::NotTaken { call, attempt } => {
                self.calls.end_delivery(&mut self.hours, *call, Some(*attempt), time, NOT_TAKEN)?;
                if let Some(row) = self.calls.get(*call)? {
                    row.attempts -= 1;
                }
            }
            Fact::Held { call, hold, until } => {
                let was_held = self.calls.end_hold(*call, time, "renewed")?;
                if let Some(row) = self.calls.get(*call)? {
                    row.hold = Some(OpenHold {
                        position: record.position.0,
                        hold: hold.as_str(),
                        since: time,
                        until: until.map(|until| until.0),
                    });
                    let thread = row.thread;
                    self.threads.add(thread, record, |sums| sums.held += i64::from(!was_held))?;
                }
            }
            Fact::Released { call, lapsed } => {
                let outcome = if *lapsed { "lapsed" } else { "released" };
                self.end_hold(record, *call, outcome)?;
                self.set_ready(*call, time)?;
            }
            Fact::CallClosed { call, how } => self.close((record, by_call), *call, *how)?,
            _ => {}
        }
        Ok(())
    }

    /// Adds the cost of a model call without a recorded turn. There is no turn if the model call
    /// failed or its result was lost.
    fn charge(
        &mut self,
        record: &Record,
        call: CallId,
        spending: Spending,
    ) -> rusqlite::Result<()> {
        let Some(thread) = self.thread_of_call(call)? else { return Ok(()) };
        self.threads.add(thread, record, |sums| {
            let tokens = spending.tokens;
            sums.tokens_charged = sums.tokens_charged.saturating_add_unsigned(tokens);
            sums.cost = sums.cost.saturating_add_unsigned(spending.money.0);
        })
    }

    fn accept(
        &mut self,
        record: &Record,
        message: &Arc<Message>,
        opening: Option<&Opening>,
    ) -> rusqlite::Result<()> {
        self.last += 1;
        let n = self.last;
        let thread = self.threads.number(&message.thread, None, record)?;
        let sender = self.names.number(message.from.as_str())?;
        let recipient = self.names.number(message.to.as_str())?;
        let name = self.names.payload(&message.name)?;
        self.threads.count_message(thread, record, message)?;
        self.threads.add_name(thread, TreeNameRole::Payload, name)?;

        if let Some(opening) = opening {
            self.threads.add_name(thread, TreeNameRole::Listener, recipient)?;
            self.threads.set_first_call(thread, || {
                let words = words::first_words(&message.payload, limits::FIRST_WORDS_CHARS_MAX);
                Ok(FirstCall { requested_by: sender, listener: recipient, request: name, words })
            })?;
            self.threads.add(thread, record, |sums| sums.open_calls += 1)?;
            let numbers = (n, thread);
            let listeners = (sender, recipient);
            let row = CallRow::opened(message, opening, numbers, listeners, record.time.0);
            if row.outside && opening.begins_group(row.id) {
                self.threads.begin_group(thread)?;
            }
            self.calls.insert(row);
        } else if let Some(call) = message.call
            && message.kind != MessageKind::Note
        {
            self.set_ready(call, record.time.0)?;
        }

        if message.kind == MessageKind::Note && message.name == system::name(system::MODEL_TURN) {
            turns::add(self, record, message, (n, thread))?;
        }

        self.add_text(n, Some(thread))?;

        self.messages.add(UnwrittenMessage {
            n,
            message: Arc::clone(message),
            cause: self.cause_of(message)?,
            thread,
            sender,
            recipient,
            name,
            position: record.position.0,
            disposition: None,
        });
        Ok(())
    }

    /// Returns the number of the message that caused `message`. If the cause is not on record,
    /// returns the id of the cause instead. Returns `None` if `message` has no cause.
    fn cause_of(&self, message: &Message) -> rusqlite::Result<Option<Value>> {
        let Some(cause) = message.cause else { return Ok(None) };
        // Most causes opened a call that is still open, so the number is in memory.
        let number = match self.calls.number_in_memory(CallId(cause)) {
            Some(number) => Some(number),
            None => self.messages.number_of(cause)?,
        };
        let id = || Value::Blob(cause.0.as_bytes().to_vec());
        Ok(Some(number.map_or_else(id, Value::Integer)))
    }

    fn refuse(
        &mut self,
        record: &Record,
        sender: &ListenerName,
        thread: Option<&ThreadId>,
        call: Option<CallId>,
        refusal: &Refusal,
    ) -> rusqlite::Result<()> {
        self.last += 1;
        // A refusal may name no thread, or a thread that does not exist. It still belongs to the
        // tree of its record.
        let thread = match thread {
            Some(thread) => self.threads.find(thread)?,
            None => None,
        };
        let home = self.count_refusals(record, thread, 1)?;

        self.add_text(self.last, Some(home))?;

        let name = refusal.name.as_deref().map(|name| self.names.payload(name)).transpose()?;
        let sql = "INSERT INTO refusal_row(n, position, time, sender, thread, home, call, rule, \
                   name, message, bytes, digest, submission) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let submission = match &record.input {
            Input::Submitted { id, .. } => Some(id),
            _ => None,
        };
        let sender = self.names.number(sender.as_str())?;
        let rule = self.names.number(refusal.rule.as_str())?;
        let names = EventNames::of_refusal(sender, rule);
        self.hours.add_refusals(record.time.0, Some(self.last), names, 1);
        self.db.prepare_cached(sql)?.execute(params![
            self.last,
            record.position.0,
            record.time.0,
            sender,
            thread,
            home,
            call.as_ref().map(|call| call.0.0.as_bytes().as_slice()),
            rule,
            name,
            refusal.message,
            refusal.length,
            refusal.digest.0.as_slice(),
            submission.map(|id| id.0.as_bytes().as_slice())
        ])?;
        Ok(())
    }

    /// Counts refusals for `thread` or, without it, for the tree of the record. Returns the number
    /// of the thread for which they count.
    fn count_refusals(
        &mut self,
        record: &Record,
        thread: Option<i64>,
        refusals: i64,
    ) -> rusqlite::Result<i64> {
        let thread = match thread {
            Some(thread) => thread,
            None => self.threads.number(&record.tree, None, record)?,
        };
        self.threads.add_refusals(thread, record, refusals)?;
        Ok(thread)
    }

    fn close(
        &mut self,
        (record, by_call): (&Record, &RecordByCall<'_>),
        id: CallId,
        how: Closing,
    ) -> rusqlite::Result<()> {
        let time = record.time.0;
        // Only the call with the deadline has timed out. The calls beneath it are cancelled.
        let is_late = matches!(&record.input, Input::Deadline { call, .. } if *call == id);
        let end = if is_late { "timed-out" } else { closing(how) };
        self.calls.end_delivery(&mut self.hours, id, None, time, end)?;
        self.end_hold(record, id, closing(how))?;

        let fault = match how {
            Closing::Failed => fault_of(by_call, id),
            Closing::Completed | Closing::Cancelled => None,
        };
        let fault_word = fault.map(fault_word);
        let fault_name = fault_word.as_deref().map(|word| self.names.number(word)).transpose()?;
        let Some(call) = self.calls.get(id)? else { return Ok(()) };
        call.closed = Some((time, closing(how)));
        call.fault = fault_name;
        let thread = call.thread;
        let is_outside = call.outside;
        let gather = call.gather;

        self.threads.add(thread, record, |sums| sums.open_calls -= 1)?;
        if is_outside {
            self.threads.end_call(thread, (id, how, gather), (record, by_call))?;
            if let Some(reply) = failed_run_of(by_call, id) {
                self.add_failed_run(record, id, reply)?;
            }
        }
        if how == Closing::Failed {
            let kind = fault_word.as_deref().unwrap_or("failed");
            let detail = fault.map_or_else(|| NO_FAULT.to_owned(), fault_detail);
            let thread = self.add_error(record, Some(id), None, kind, &detail)?;
            // A failed attempt and the end of its call count as a single failure.
            if !by_call.has_failed_attempt(id) {
                self.count_error(record, thread)?;
            }
        }
        Ok(())
    }

    /// Records the failure of a workflow run that a client began. The call of the run has completed
    /// with `reply`, which reports the failure. In spite of this, the thread of the call counts as
    /// failed.
    fn add_failed_run(
        &mut self,
        record: &Record,
        id: CallId,
        reply: &Message,
    ) -> rusqlite::Result<()> {
        let (code, detail) = run_fault(reply);
        let fault = self.names.number(&code)?;
        if let Some(call) = self.calls.get(id)? {
            call.fault = Some(fault);
        }

        let thread = self.add_error(record, Some(id), None, &code, &detail)?;
        if let Some(thread) = thread {
            self.threads.end(thread, Closing::Failed, record)?;
        }
        self.count_error(record, thread)
    }

    /// Adds a row to the full-text table for the message or refusal with the number `n`. Takes the
    /// words of this message or refusal from the present record's texts: they are the first text
    /// that is not added yet. If `thread` is set, the row also contains a word that stands for the
    /// tree of this thread, so that a search can be limited to the tree.
    fn add_text(&mut self, n: i64, thread: Option<i64>) -> rusqlite::Result<()> {
        let mut text = self.texts.next().expect("each message and refusal has its words");
        let tree = match thread {
            Some(thread) => self.threads.tree_of(thread)?,
            None => None,
        };
        if let Some(tree) = tree {
            words::add_tree_word(tree, &mut text);
        }
        self.words.add(self.db, n, &text)
    }

    fn end_hold(
        &mut self,
        record: &Record,
        id: CallId,
        outcome: &'static str,
    ) -> rusqlite::Result<()> {
        if self.calls.end_hold(id, record.time.0, outcome)?
            && let Some(thread) = self.thread_of_call(id)?
        {
            self.threads.add(thread, record, |sums| sums.held -= 1)?;
        }
        Ok(())
    }

    fn set_ready(&mut self, call: CallId, time: i64) -> rusqlite::Result<()> {
        if let Some(row) = self.calls.get(call)? {
            row.ready = time;
        }
        Ok(())
    }

    pub(super) fn thread_of_call(&mut self, call: CallId) -> rusqlite::Result<Option<i64>> {
        Ok(self.calls.get(call)?.map(|row| row.thread))
    }

    fn add_error(
        &mut self,
        record: &Record,
        call: Option<CallId>,
        listener: Option<&ListenerName>,
        kind: &str,
        detail: &str,
    ) -> rusqlite::Result<Option<i64>> {
        let mut by = listener.map(|listener| self.names.number(listener.as_str())).transpose()?;
        let mut thread = None;
        if let Some(call) = call
            && let Some(row) = self.calls.get(call)?
        {
            by = Some(row.listener);
            thread = Some(row.thread);
        }

        let sql = "INSERT INTO error_row(position, time, thread, call, listener, kind, detail) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let detail = without_kind(kind, detail);
        let kind = self.names.number(kind)?;
        let call = call.as_ref().map(|call| call.0.0.as_bytes().as_slice());
        let row = params![record.position.0, record.time.0, thread, call, by, kind, detail];
        self.db.prepare_cached(sql)?.execute(row)?;
        Ok(thread)
    }

    fn count_error(&mut self, record: &Record, thread: Option<i64>) -> rusqlite::Result<()> {
        match thread {
            Some(thread) => self.threads.add(thread, record, |sums| sums.errors += 1),
            None => Ok(()),
        }
    }
}

/// Returns the number of the newest message or refusal in the index `db`.
pub fn last_number(db: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(n) FROM message_row), 0), \
               coalesce((SELECT max(n) FROM refusal_row), 0))";
    db.query_row(sql, [], |row| row.get(0))
}
