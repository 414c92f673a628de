//! Finds recorded results for the calls of a fork, and the recorded firings of its timers. Both
//! come from the source of the fork, which is the thread that was forked. The search does not run
//! on the pump's OS thread.
//!
//! Two calls are equal if they have the same listener and the same payload bytes. Equal calls are
//! matched in order: the first such call in the fork gets the result of the first such call that
//! the source made after the fork point, the second gets the result of the second, and so on. A
//! call that was open at the fork point gets the result of the original call.
//!
//! Two timers are equal if the same listener sets them in the same thread, and if both have the
//! same delay or both are set for a time of day. Equal timers are matched in order, too. A timer
//! that was set at the fork point is matched with itself.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::blocking_work;
use crate::bounded_cache::BoundedCache;
use crate::config::Config;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Digest, ListenerName, Position, ThreadId, TimerId};
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::pump::core::{CallRecollection, ForkSearch, ResultSearch, TimerSearch};
use crate::pump::driver::{Handle, PumpStopped};
use crate::thread::{Closing, Fact, Input, Opener, Record};

/// Makes the channel on which a pump requests searches in the sources of forks.
pub(super) fn channel() -> (UnboundedSender<ForkSearch>, UnboundedReceiver<ForkSearch>) {
    unbounded_channel()
}

/// Returns the data directory of a pump's journal, and the data directories of the journals that
/// may contain the source threads of forks.
pub(super) fn journals(config: &Config) -> (PathBuf, Vec<PathBuf>) {
    let sources = config.trial.as_ref().map(|trial| trial.journals.clone());
    (config.data.clone(), sources.unwrap_or_else(|| vec![config.data.clone()]))
}

/// Carries out the searches that a pump requests, until the pump ends. Each search looks in the
/// source of a fork for the result of a call or the firing of a timer. `data` is the directory of
/// the pump's journal. `sources` are the directories of the journals that may contain source
/// threads.
pub(super) async fn serve(
    mut searches: UnboundedReceiver<ForkSearch>,
    pump: Handle,
    (data, sources): (PathBuf, Vec<PathBuf>),
) {
    let mut idle = Some(SourceSearch::new(data, sources));
    while let Some(search) = searches.recv().await {
        let Some(mut own) = idle.take() else { return };
        let pump = pump.clone();
        let (result, searched) = oneshot::channel();
        drop(blocking_work::start(&runtime::Handle::current(), move || {
            let reported = own.carry_out(&search, &pump);
            result.send((own, reported)).ok();
        }));
        let Ok((own, Ok(()))) = searched.await else { return };
        idle = Some(own);
    }
}

/// Calls of one thread tree, by listener and digest of the payload. Calls with the same key are in
/// journal order.
type SameCalls = HashMap<(ListenerName, Digest), Vec<CallId>>;

/// The parts of a timer that are the same in a fork and in its source.
#[derive(Clone, PartialEq, Eq)]
struct TimerKey {
    listener: ListenerName,
    /// Id of the timer's thread, with one fixed id in place of the id of the root thread. So the
    /// key does not depend on the tree. `None` if the resulting id would be too long.
    thread: Option<ThreadId>,
    /// Time from the setting of the timer to its firing, in microseconds; `None` for a timer that
    /// was set for a time of day.
    delay: Option<i64>,
}

/// A timer that a record of a tree sets.
struct SetTimer {
    timer: TimerId,
    key: TimerKey,
    /// Position of the record.
    position: Position,
}

/// A call of a tree, as its first record states it.
struct OpenedCall {
    opener: Opener,
    listener: ListenerName,
    thread: ThreadId,
}

/// The calls and timers of one thread tree, collected from those records of the tree that were read
/// so far.
#[derive(Default)]
struct SearchedTree {
    /// Position of the last record that was read.
    up_to: Position,
    same: SameCalls,
    opened: HashMap<CallId, OpenedCall>,
    /// For each closed call, the position of the record that closed the call.
    closed: HashMap<CallId, Position>,
    /// For each call that the fork has reopened, the original call in the fork's source. A fork
    /// reopens the calls that were open at the fork point. Empty if the tree is no fork.
    reopened: HashMap<CallId, CallId>,
    /// The timers, in journal order. Timers that a fork has set again at its beginning are left
    /// out.
    timers: Vec<SetTimer>,
    /// For each timer that has fired, the position of the record in which it fired.
    fired: HashMap<TimerId, Position>,
}

/// Search for results in the sources of forks. Keeps the calls of the most recently searched trees
/// in memory.
struct SourceSearch {
    data: PathBuf,
    sources: Vec<PathBuf>,
    trees: BoundedCache<(PathBuf, ThreadId, Position), SearchedTree>,
}

/// Searches the journals `sources` for the tree of `root`. Opens a reader of the journal that
/// contains this tree, or returns `None` if no journal contains it.
pub(super) fn source_reader(
    sources: &[PathBuf],
    root: &ThreadId,
) -> Result<Option<JournalReader>, Error> {
    for journal in sources {
        let reader = JournalReader::open(journal)?;
        if reader.head(root)?.is_some() {
            return Ok(Some(reader));
        }
    }
    Ok(None)
}

impl SourceSearch {
    fn new(data: PathBuf, sources: Vec<PathBuf>) -> Self {
        let trees = BoundedCache::new(limits::MEMORY_TREES_MAX, limits::MEMORY_INDEX_BYTES_MAX);
        Self { data, sources, trees }
    }

    /// Carries out a search, and reports its result to the pump.
    fn carry_out(&mut self, search: &ForkSearch, pump: &Handle) -> Result<(), PumpStopped> {
        match search {
            ForkSearch::Result(search) => {
                // Without a result, the call waits for an operator: no effect is repeated by
                // mistake.
                let result = found_or_warn(self.find(search), search.call);
                pump.recalled(search.call, result)
            }
            ForkSearch::Timer(search) => {
                let fired = found_or_warn(self.find_firing(search), search.call);
                pump.timer_searched((search.timer, search.call), fired)
            }
        }
    }

    /// Finds the timer of the fork's source that corresponds to a timer of the fork. Returns the
    /// position of the record in which the source's timer fired. Returns `None` if the source has
    /// no such timer, or if that timer has not fired.
    fn find_firing(&mut self, search: &TimerSearch) -> Result<Option<Position>, Error> {
        let reader = JournalReader::open(&self.data)?;
        let own = self.tree(&reader, &search.fork, Position(0))?;
        let set = own.timers.iter().find(|set| set.timer == search.timer);
        let key = set.map(|set| set.key.clone());
        let number = key.as_ref().map_or(0, |key| {
            let before = own.timers.iter().take_while(|set| set.timer != search.timer);
            before.filter(|set| set.key == *key).count()
        });

        let Some(reader) = source_reader(&self.sources, &search.source)? else { return Ok(None) };
        // A call that was open at the fork point may have set the timer, so all records count.
        let source = self.tree(&reader, &search.source, Position(0))?;
        let timer = match &key {
            Some(key) => {
                let equal = source.timers.iter();
                let mut equal = equal.filter(|set| set.position > search.after && set.key == *key);
                equal.nth(number).map(|set| set.timer)
            }
            // The fork has taken the timer over, with its id.
            None => Some(search.timer),
        };
        Ok(timer.and_then(|timer| source.fired.get(&timer).copied()))
    }

    /// Finds the result for a call of a fork in the records of the fork's source. Returns `None` if
    /// the source has no such result.
    fn find(&mut self, search: &ResultSearch) -> Result<Option<CallRecollection>, Error> {
        let reader = JournalReader::open(&self.data)?;
        let key = (search.listener.clone(), search.payload);

        let own = self.tree(&reader, &search.fork, Position(0))?;
        let reopened = own.reopened.get(&search.call).copied();
        let number =
            own.same.get(&key).and_then(|calls| calls.iter().position(|c| *c == search.call));

        let Some(reader) = source_reader(&self.sources, &search.source)? else { return Ok(None) };
        if let Some(call) = reopened {
            // The call was open at the fork point, so its request precedes that point.
            let source = self.tree(&reader, &search.source, Position(0))?;
            return source.result(&reader, call, search);
        }

        let Some(number) = number else { return Ok(None) };
        let source = self.tree(&reader, &search.source, search.after)?;
        let Some(call) = source.same.get(&key).and_then(|calls| calls.get(number)).copied() else {
            return Ok(None);
        };
        source.result(&reader, call, search)
    }

    /// Returns the calls and timers of the tree `root` that are recorded after the position
    /// `after`. Uses the records that earlier searches have read, and reads only the later records
    /// of the tree.
    fn tree(
        &mut self,
        reader: &JournalReader,
        root: &ThreadId,
        after: Position,
    ) -> Result<&SearchedTree, Error> {
        let key = (reader.data().to_owned(), root.clone(), after);
        let mut tree = self.trees.take(&key).unwrap_or_default();
        let known = tree.up_to.max(after);
        if let Some(head) = reader.head(root)?.filter(|head| *head > known) {
            later_records(reader, head, known)?.iter().for_each(|record| tree.read(record));
            tree.up_to = head;
        }
        // The tree that was read last is kept whatever its size.
        let bytes = tree.bytes().min(limits::MEMORY_INDEX_BYTES_MAX);
        self.trees.put(key.clone(), tree, bytes);
        let missing = || Error::broken(after.0, "its calls were not kept");
        self.trees.get(&key).ok_or_else(missing)
    }
}

/// Returns the record at `head` and the records before it in its tree, oldest first and without the
/// bytes of their payloads, but none up to and including the position `known`.
fn later_records(
    reader: &JournalReader,
    head: Position,
    known: Position,
) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    reader.walk_back(head, |walked| {
        if walked.record().position <= known {
            return Ok(ControlFlow::Break(()));
        }
        records.push(walked.without_payloads());
        Ok(ControlFlow::Continue(()))
    })?;

    records.reverse();
    Ok(records)
}

/// Returns the value that a search for `call` has found. If the search failed, logs the error and
/// returns `None`.
fn found_or_warn<T>(found: Result<Option<T>, Error>, call: CallId) -> Option<T> {
    found.unwrap_or_else(|error| {
        tracing::warn!(%call, "the source of its fork cannot be read: {error}");
        None
    })
}

impl SearchedTree {
    fn read(&mut self, record: &Record) {
        if let Input::Timer { timer, .. } = record.input {
            self.fired.insert(timer, record.position);
        }

        let is_fork = record.facts.iter().any(|fact| matches!(fact, Fact::Forked { .. }));
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(opening), .. } => {
                    let call = CallId(message.id);
                    let same = (message.to.clone(), message.payload.digest);
                    self.same.entry(same).or_default().push(call);
                    let opener = opening.opener.clone();
                    let listener = message.to.clone();
                    let thread = message.thread.clone();
                    self.opened.insert(call, OpenedCall { opener, listener, thread });
                }
                Fact::TimerSet { timer, call, fires_at, at, .. } if !is_fork => {
                    let Some(OpenedCall { listener, thread, .. }) = self.opened.get(call) else {
                        continue;
                    };
                    let delay = (!at).then(|| fires_at.0 - record.time.0);
                    let listener = listener.clone();
                    let thread = thread.under(&ThreadId::organism());
                    let key = TimerKey { listener, thread, delay };
                    self.timers.push(SetTimer { timer: *timer, key, position: record.position });
                }
                Fact::CallClosed { call, .. } => {
                    self.closed.insert(*call, record.position);
                }
                Fact::Reopened(call) => {
                    self.reopened.insert(call.call, call.source);
                    // Only calls after the fork point are counted.
                    self.same.values_mut().for_each(|same| same.retain(|own| *own != call.call));
                }
                _ => {}
            }
        }
    }

    /// Reads the result with which a call of this tree was closed. Returns `None` if the call is
    /// open or has no result, or if a payload of the result is redacted.
    fn result(
        &self,
        reader: &JournalReader,
        call: CallId,
        search: &ResultSearch,
    ) -> Result<Option<CallRecollection>, Error> {
        let (Some(opened), Some(position)) = (self.opened.get(&call), self.closed.get(&call))
        else {
            return Ok(None);
        };
        let record = reader.existing_record(*position)?.record;
        Ok(recollection(&record, search.listener.clone(), call, &opened.opener))
    }

    fn bytes(&self) -> usize {
        (self.opened.len() + self.timers.len()) * CALL_BYTES
    }
}

/// Approximate number of bytes that one call or timer takes in memory.
const CALL_BYTES: usize = 400;

/// Whether `record` is an operator's cancellation of a whole tree, and also ended the call that
/// `opener` names. If so, no listener has handled the results in the record, and a fork must not
/// get them. If only a part of a tree was cancelled, the call that had opened this part has handled
/// the end of the part.
fn is_cancelled_with(record: &Record, opener: &Opener) -> bool {
    let Opener::Call { call, .. } = opener else { return false };
    let is_whole = matches!(&record.input, Input::Cancel { thread, .. } if thread.is_root());
    is_whole && record.closing_of(*call) == Some(Closing::Cancelled)
}

/// Reads the result of a call from the record that closed it. Returns `None` if the record contains
/// no result, or if a payload of the result is redacted.
fn recollection(
    record: &Record,
    listener: ListenerName,
    call: CallId,
    opener: &Opener,
) -> Option<CallRecollection> {
    let how = record.closing_of(call)?;
    if is_cancelled_with(record, opener) {
        return None;
    }

    let is_result = |message: &Message| {
        let is_part = matches!(message.kind, MessageKind::Reply | MessageKind::System);
        let to_opener = match opener {
            Opener::Call { call, .. } => message.call == Some(*call),
            Opener::Client { .. } => false,
        };
        // A result that leaves its thread belongs to no call. Its opener then gets a wrapper.
        let is_wrapper = &*message.name.local == "thread-result" && message.from.is_core();
        is_part
            && message.cause == Some(call.0)
            && !is_wrapper
            && (to_opener || message.call.is_none())
    };

    let payloads = record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, opening: None, .. } if is_result(message) => {
            Some((message.kind, message.name.clone(), message.payload.clone()))
        }
        _ => None,
    });
    let payloads: Vec<_> = payloads.collect();
    let position = Some(record.position);
    let is_intact = payloads.iter().all(|(.., payload)| payload.is_intact());
    // A call that ended with its opener in the same thread has no result, nor has one whose result
    // is redacted.
    let found = CallRecollection { source: call, listener, how, payloads, position };
    (!found.payloads.is_empty() && is_intact).then_some(found)
}
