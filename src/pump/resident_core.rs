//! The core of a pump together with the trees and client keys that have left its memory. A tree may
//! leave memory if nothing is open in it, or if its open calls only wait for persons or timers.
//!
//! The step is pure and sees only memory. So the trees and keys that an event needs are brought
//! back before its step, and none leaves memory between a step and its effects.

mod waiting_visits;

pub(in crate::pump) use waiting_visits::QueriedCall;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use super::core::{CORE_VERSION, Core, Event, Step};
use super::gate::Gate;
use crate::clock::Time;
use crate::ids::{Attempt, CallId, ListenerName, Position, ThreadId};
use crate::journal::sqlite::{RestingStore, StoredState};
use crate::journal::{Error, HashedRecord, StateRecovery};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{ClientKey, Fact, Record, State};

/// A core that keeps a limited number of trees and client keys in memory. A tree may leave memory
/// if it is at rest, or if its open calls only wait for persons or timers.
#[derive(Debug)]
pub struct ResidentCore {
    core: Core,
    /// The trees and keys that may leave memory; `None` if everything stays in memory.
    resting: Option<RestingTrees>,
}

/// Limits on the trees at rest and client keys that stay in memory.
#[derive(Debug, Clone, Copy)]
pub struct ResidencyLimits {
    pub trees: usize,
    /// Maximum number of threads in memory, summed over all trees at rest. A tree is at rest if
    /// nothing in the tree is open, such as a call or a timer.
    pub threads: usize,
    /// Maximum number of waiting trees in memory. A waiting tree has open calls, all of which wait
    /// for persons or timers.
    pub waiting: usize,
    pub keys: usize,
    /// Number by which the trees, or the client keys, may exceed their limit before an eviction
    /// begins. So one eviction removes many of them at once. Does not apply to the limit `threads`.
    pub batch: usize,
}

impl Default for ResidencyLimits {
    fn default() -> Self {
        Self {
            trees: limits::RESTING_TREES_MAX,
            threads: limits::RESTING_THREADS_MAX,
            waiting: limits::WAITING_TREES_MAX,
            keys: limits::RESTING_KEYS_MAX,
            batch: limits::RESTING_BATCH,
        }
    }
}

/// The trees at rest and client keys in memory, in the order in which they leave memory.
#[derive(Debug)]
struct RestingTrees {
    store: RestingStore,
    limits: ResidencyLimits,
    /// Candidates for an eviction. A tree gets an entry whenever it is at rest after one of its
    /// records, or after its return to memory. The entry is ignored once the tree has a later
    /// record.
    trees: VecDeque<RestingEntry>,
    /// Total number of threads of the entries in `trees`.
    threads: usize,
    waiting: WaitingTrees,
    keys: VecDeque<ClientKey>,
    /// Minimum number of entries in `trees` and `keys` together for an eviction to begin; 0 if
    /// there is no minimum. An eviction may fail to remove some trees or client keys that had to
    /// leave. It then sets the minimum above the number of entries left, so that the same entries
    /// are not examined again too soon.
    retry_at: usize,
}

/// The waiting trees in memory, in the order in which they leave memory. A waiting tree has open
/// calls, all of which wait for persons or timers.
#[derive(Debug, Default)]
struct WaitingTrees {
    /// Candidates for an eviction. A tree gets an entry whenever its open calls wait only for
    /// persons or timers after one of its records, or after its return to memory. The entry is
    /// ignored once the tree has a later record.
    trees: VecDeque<RestingEntry>,
    /// Minimum number of entries in `trees` for an eviction to begin; 0 if there is no minimum. An
    /// eviction may fail to remove some of the trees that it examined. It then sets the minimum
    /// above the number of entries left, so that these trees are not examined again too soon.
    retry_at: usize,
}

#[derive(Debug)]
struct RestingEntry {
    root: ThreadId,
    head: Position,
    threads: usize,
}

/// Creates a core that keeps everything in memory.
impl From<Core> for ResidentCore {
    fn from(core: Core) -> Self {
        Self { core, resting: None }
    }
}

impl Deref for ResidentCore {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl ResidentCore {
    /// Creates a core that moves trees and client keys beyond its limits out of memory, to a
    /// working file in `directory`.
    pub fn new(core: Core, directory: PathBuf) -> Self {
        let store = RestingStore::in_directory(directory);
        Self::with_store(core, store, ResidencyLimits::default())
    }

    pub fn with_store(core: Core, store: RestingStore, limits: ResidencyLimits) -> Self {
        let resting = RestingTrees {
            store,
            limits,
            trees: VecDeque::new(),
            threads: 0,
            waiting: WaitingTrees::default(),
            keys: VecDeque::new(),
            retry_at: 0,
        };
        Self { core, resting: Some(resting) }
    }

    /// Returns this core with the state of a snapshot. Brings the trees in `stored.live` into
    /// memory. Exception: of the trees that only wait for persons or timers, at most as many as the
    /// limit permits are brought into memory. All other trees stay in the snapshot's store.
    pub(super) fn with_stored(&self, stored: StoredState) -> Result<Self, Error> {
        let StoredState { common, live, store } = stored;
        let limits = self.resting.as_ref().map_or_else(ResidencyLimits::default, |own| own.limits);
        let core = self.core.clone().with_state(State::with_common(common));
        let mut core = Self::with_store(core, store, limits);
        let mut waiting = 0;
        for root in live.iter().filter(|_| !mutant("forget-a-live-tree")) {
            if !core.restore_tree(root)? {
                let detail = "the snapshot does not hold it".to_owned();
                return Err(Error::Resting { name: format!("the tree {root}"), detail });
            }

            // The text in the store is up to date, so a tree beyond the limit leaves unwritten.
            let only_waits = core.may_wait_outside(root);
            if only_waits && waiting >= limits.waiting {
                core.core.release_tree(root);
            } else {
                waiting += usize::from(only_waits);
                core.note_rest(root, &[]);
            }
        }

        Ok(core)
    }

    /// Returns the complete state for a snapshot. Writes the trees and client keys in memory to the
    /// store, which already contains the trees and client keys outside memory.
    pub fn into_stored(self) -> Result<StoredState, Error> {
        let outside = self.core.waiting_outside();
        let store = self.resting.map(|resting| resting.store);
        let mut store = store.unwrap_or_else(RestingStore::in_memory);
        let state = self.core.state();
        renew_texts(state, &mut store, &outside)?;
        let trees = state.trees.iter().filter_map(|(root, _)| {
            let text = state.tree_text(root)?;
            Some((root.as_str().to_owned(), text))
        });
        let keys =
            state.keys.iter().filter_map(|(key, _)| Some((name_of(key), state.resting_key(key)?)));

        let mut round = Vec::new();
        let mut bytes = 0;
        for (name, text) in trees.chain(keys) {
            bytes += text.len();
            round.push((name, text));
            if bytes >= limits::SNAPSHOT_ROUND_BYTES {
                store.put(&round)?;
                round.clear();
                bytes = 0;
            }
        }
        store.put(&round)?;

        let roots = state.trees.iter().map(|(root, _)| root);
        let live = roots.filter(|root| !state.may_leave(root)).cloned();
        let live = live.chain(outside).collect();
        Ok(StoredState { common: state.common(), live, store })
    }

    /// Whether any write to the working file has failed. The working file contains the trees and
    /// client keys outside memory.
    pub fn has_store_failed(&self) -> bool {
        self.resting.as_ref().is_some_and(|resting| resting.store.has_failed())
    }

    /// Applies `change` to the inner [`Core`], for example to set the contracts before the boot.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Core) -> Core) -> Self {
        Self { core: change(self.core), ..self }
    }

    /// Changes the core with `change`, which may fail. Otherwise like [`ResidentCore::map`].
    pub fn try_map<E>(self, change: impl FnOnce(Core) -> Result<Core, E>) -> Result<Self, E> {
        Ok(Self { core: change(self.core)?, ..self })
    }

    /// Brings back the trees and client keys that a record concerns, then applies the record as
    /// [`Core::replay`] does.
    pub fn replay(&mut self, record: &Record) -> Result<(), Error> {
        self.recall_tree(&record.tree)?;
        for root in self.core.trees_of_hand_overs(record) {
            self.recall_tree(&root)?;
        }

        for key in keys_in(&record.facts) {
            self.recall_key(&key)?;
        }

        self.core.replay(record);
        let of_all = Core::fact_of_all_trees(&record.facts);
        if let Some(fact) = of_all.filter(|fact| Core::changes_all_trees(fact)) {
            self.visit_waiting(fact, None)?;
        }
        self.note_rest(&record.tree, &record.facts);
        self.let_rest();
        Ok(())
    }

    /// Brings back the trees and client keys that the event reads, then processes the event as
    /// [`Core::step`] does.
    pub fn step(&mut self, position: Position, now: Time, event: Event) -> Result<Step, Error> {
        if let Some(contracts) = self.core.contracts_with_previews(&event).cloned() {
            self.recall_awaiting_previews(&contracts)?;
        }
        // Ordering rule: the key comes first, because its use names the tree that the event needs.
        if let Some(key) = self.core.missing_key(&event) {
            self.recall_key(&key)?;
        }

        while let Some(root) = self.core.missing_tree(&event) {
            if !self.recall_tree(&root)? {
                break;
            }
        }

        let mut step = self.core.step(position, now, event);
        if let Some(fact) = Core::fact_of_all_trees(&step.facts).cloned() {
            self.visit_waiting(&fact, Some(&mut step))?;
        }
        if let Some((tree, _)) = &step.record {
            self.note_rest(tree, &step.facts);
        }
        Ok(step)
    }

    /// Records an answer that a host has read, as [`Core::answer_arrived`] does.
    pub fn answer_arrived(
        &mut self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        at: Time,
    ) {
        self.core.answer_arrived(listener, call, attempt, at);
    }

    /// Checks recorded events that wait again, as [`Core::check_recorded_again`] does.
    pub fn check_recorded_again(
        &mut self,
        gate: &Gate,
        gate_of: impl Fn(CallId, Attempt) -> Arc<Gate>,
    ) -> Vec<CallId> {
        self.core.check_recorded_again(gate, gate_of)
    }

    /// Brings back the tree with this root, if the tree has left memory. Returns whether a tree was
    /// brought back.
    pub fn recall_tree(&mut self, root: &ThreadId) -> Result<bool, Error> {
        let is_recalled = self.restore_tree(root)?;
        if is_recalled {
            self.note_rest(root, &[]);
        }
        Ok(is_recalled)
    }

    /// Brings back a tree as [`ResidentCore::recall_tree`] does, but does not make it a candidate
    /// for an eviction. Returns whether the tree was brought back. The caller must then either make
    /// the tree a candidate or release the tree. If the caller does neither, the tree stays in
    /// memory.
    fn restore_tree(&mut self, root: &ThreadId) -> Result<bool, Error> {
        let Some(resting) = &self.resting else { return Ok(false) };
        if self.core.state().trees.resident(root).is_some() || mutant("forget-a-tree-at-rest") {
            return Ok(false);
        }

        let Some(text) = resting.store.get(root.as_str())? else { return Ok(false) };
        self.core
            .restore_tree(root, &text)
            .map_err(|detail| Error::Resting { name: format!("the tree {root}"), detail })?;
        Ok(true)
    }

    fn recall_key(&mut self, key: &ClientKey) -> Result<(), Error> {
        let Some(resting) = &mut self.resting else { return Ok(()) };
        if self.core.state().keys.resident(key).is_some() || mutant("forget-a-key-at-rest") {
            return Ok(());
        }

        let Some(text) = resting.store.get(&name_of(key))? else { return Ok(()) };
        self.core.restore_key(key, &text).map_err(|detail| Error::Resting {
            name: format!("the key {} of {}", key.1, key.0),
            detail,
        })?;
        resting.keys.push_back(key.clone());
        Ok(())
    }

    /// Brings back all trees and client keys that have left memory, for a comparison of whole
    /// states.
    pub fn recall_all(&mut self) -> Result<(), Error> {
        let Some(resting) = &self.resting else { return Ok(()) };
        for name in resting.store.names()? {
            match name.split_once('\0') {
                Some((client, key)) => {
                    let client = ListenerName::parse(client).ok();
                    if let Some(client) = client {
                        self.recall_key(&(client, key.to_owned()))?;
                    }
                }
                None => {
                    if let Ok(root) = ThreadId::parse(&name) {
                        self.recall_tree(&root)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the client keys in `facts` candidates for an eviction. If the tree `root` is at rest,
    /// or only waits for persons or timers, makes this tree a candidate, too.
    fn note_rest(&mut self, root: &ThreadId, facts: &[Fact]) {
        let Some(resting) = &mut self.resting else { return };
        for key in keys_in(facts) {
            if resting.keys.back() != Some(&key) {
                resting.keys.push_back(key);
            }
        }

        if root.as_str() == ThreadId::ORGANISM {
            return;
        }

        let Some(tree) = self.core.state().trees.resident(root) else { return };
        let is_at_rest = tree.is_at_rest();
        if !is_at_rest && !tree.only_waits() {
            return;
        }

        let entry =
            RestingEntry { root: root.clone(), head: tree.head, threads: tree.threads.len() };
        if is_at_rest {
            resting.push(entry);
        } else {
            resting.waiting.trees.push_back(entry);
        }
    }

    /// Evicts trees and client keys beyond the memory limits. The trees that have been at rest
    /// longest, or have waited longest, leave first. Must be called after a step's effects are
    /// done, because effects read the state. Evicts nothing if the working file cannot be written.
    pub fn let_rest(&mut self) {
        self.evict_resting();
        self.evict_waiting();
    }

    /// Evicts waiting trees if their number in memory exceeds the limit. A waiting tree has open
    /// calls, all of which wait for persons or timers.
    fn evict_waiting(&mut self) {
        let Some(resting) = &mut self.resting else { return };
        let limits = resting.limits;
        let waiting = &mut resting.waiting;
        let state = self.core.state();
        if !waiting.is_full(limits) {
            return;
        }

        let mut texts = Vec::new();
        let mut leaving = Vec::new();
        let mut staying = Vec::new();
        while waiting.trees.len() + staying.len() > limits.waiting
            && leaving.len() < limits::RESTING_ROUND_MAX
        {
            let Some(entry) = waiting.trees.pop_front() else { break };
            let tree = state.trees.resident(&entry.root);
            if tree.is_none_or(|tree| tree.head != entry.head || !tree.only_waits()) {
                continue;
            }

            let text = state.waiting_tree(&entry.root);
            match text.filter(|_| self.core.may_wait_outside(&entry.root)) {
                Some(text) => {
                    texts.push((entry.root.as_str().to_owned(), text));
                    leaving.push(entry);
                }
                None => staying.push(entry),
            }
        }

        let stored = if texts.is_empty() { Ok(()) } else { resting.store.put(&texts) };
        if let Err(error) = &stored {
            tracing::warn!("trees that wait stay in memory; retrying later: {error}");
            staying.append(&mut leaving);
        }

        leaving.iter().for_each(|entry| self.core.release_tree(&entry.root));
        resting.waiting.stay(staying, limits);
    }

    /// Evicts trees at rest and client keys beyond the memory limits.
    fn evict_resting(&mut self) {
        let Some(resting) = &mut self.resting else { return };
        if !resting.is_full() {
            return;
        }

        let state = self.core.state();
        let mut texts = Vec::new();
        let mut leaving = Vec::new();
        let mut staying = Vec::new();
        while resting.has_trees_beyond(staying.len()) && leaving.len() < limits::RESTING_ROUND_MAX {
            let Some(entry) = resting.pop() else { break };
            let tree = state.trees.resident(&entry.root);
            if tree.is_none_or(|tree| tree.head != entry.head || !tree.is_at_rest()) {
                continue;
            }

            match state.resting_tree(&entry.root) {
                Some(text) => {
                    texts.push((entry.root.as_str().to_owned(), text));
                    leaving.push(entry);
                }
                None => staying.push(entry),
            }
        }

        let beyond = resting.keys.len().saturating_sub(resting.limits.keys);
        let mut keys = Vec::new();
        for key in resting.keys.drain(..beyond.min(limits::RESTING_ROUND_MAX)) {
            if let Some(text) = state.resting_key(&key) {
                texts.push((name_of(&key), text));
                keys.push(key);
            }
        }

        let stored = resting.store.put(&texts);
        if let Err(error) = &stored {
            tracing::warn!("trees at rest stay in memory; retrying later: {error}");
            resting.keys.extend(keys);
            staying.extend(leaving);
        } else {
            leaving.iter().for_each(|entry| self.core.release_tree(&entry.root));
            keys.iter().for_each(|key| self.core.release_key(key));
        }

        let is_done = stored.is_ok() && staying.is_empty();
        resting.stay(staying, is_done);
    }
}

/// Recovers a core from all records, or from a snapshot and the records after it. During the
/// recovery, trees may leave memory.
impl StateRecovery for ResidentCore {
    fn snapshot_version(&self) -> Option<u32> {
        self.resting.as_ref().map(|_| CORE_VERSION)
    }

    fn restore(&mut self, stored: StoredState) -> Result<(), Error> {
        *self = self.with_stored(stored)?;
        Ok(())
    }

    fn replay(&mut self, sealed: HashedRecord) -> Result<(), Error> {
        Self::replay(self, &sealed.record)
    }
}

impl RestingTrees {
    fn push(&mut self, entry: RestingEntry) {
        self.threads += entry.threads;
        self.trees.push_back(entry);
    }

    fn pop(&mut self) -> Option<RestingEntry> {
        let entry = self.trees.pop_front()?;
        self.threads = self.threads.saturating_sub(entry.threads);
        Some(entry)
    }

    /// Whether the trees or client keys exceed a limit so far that an eviction should begin.
    fn is_full(&self) -> bool {
        let ResidencyLimits { trees, threads, keys, batch, waiting: _ } = self.limits;
        let is_full = self.trees.len() > trees + batch
            || self.threads > threads
            || self.keys.len() > keys + batch;
        is_full && self.trees.len() + self.keys.len() >= self.retry_at
    }

    /// Whether one more tree has to leave memory to meet the limits. `staying` is the number of
    /// trees that this eviction has examined and cannot evict. These trees count towards the limit
    /// on trees.
    fn has_trees_beyond(&self, staying: usize) -> bool {
        self.trees.len() + staying > self.limits.trees || self.threads > self.limits.threads
    }

    /// Puts `trees`, which an eviction could not remove from memory, back into the queue. `is_done`
    /// is true if `trees` is empty and all writes to the working file succeeded. If `is_done` is
    /// false, the next eviction begins only after the number of queued trees and client keys has
    /// grown by at least half. So the same trees are rarely examined twice, even if the working
    /// file can never be written.
    fn stay(&mut self, trees: Vec<RestingEntry>, is_done: bool) {
        trees.into_iter().for_each(|entry| self.push(entry));
        let entries = self.trees.len() + self.keys.len();
        self.retry_at = if is_done { 0 } else { entries + self.limits.batch.max(entries / 2) };
    }
}

impl WaitingTrees {
    /// Whether the waiting trees exceed their limit so far that an eviction should begin.
    fn is_full(&self, limits: ResidencyLimits) -> bool {
        let waiting = self.trees.len();
        waiting > limits.waiting + limits.batch && waiting >= self.retry_at
    }

    /// Puts `trees`, which an eviction could not remove from memory, back into the queue. If there
    /// are any, delays the next eviction as [`RestingTrees::stay`] does.
    fn stay(&mut self, trees: Vec<RestingEntry>, limits: ResidencyLimits) {
        let is_done = trees.is_empty();
        self.trees.extend(trees);
        let entries = self.trees.len();
        self.retry_at = if is_done { 0 } else { entries + limits.batch.max(entries / 2) };
    }
}

/// Returns the name under which a client key is stored. The name contains a zero byte. So it never
/// equals the id of a thread, which is the name under which a tree is stored.
fn name_of((client, key): &ClientKey) -> String {
    format!("{client}\0{key}")
}

/// Updates the stored texts of the trees in `outside` for a snapshot. These trees have open calls
/// and are outside memory. If the pump stood still after a text was written, the new text contains
/// time-outs that are later by the duration of the standstill.
fn renew_texts(
    state: &State,
    store: &mut RestingStore,
    outside: &BTreeSet<ThreadId>,
) -> Result<(), Error> {
    let mut round = Vec::new();
    for root in outside {
        let name = root.as_str();
        let Some(text) = store.get(name)? else { continue };
        let renewed = state.renewed_text(&text).map_err(|error| Error::Resting {
            name: format!("the tree {root}"),
            detail: error.to_string(),
        })?;
        if let Some(renewed) = renewed {
            round.push((name.to_owned(), renewed));
        }

        if round.len() >= limits::RESTING_ROUND_MAX {
            store.put(&round)?;
            round.clear();
        }
    }
    store.put(&round)
}

/// Returns the client keys of the messages that `facts` accept.
fn keys_in(facts: &[Fact]) -> impl Iterator<Item = ClientKey> {
    facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, key: Some(key), .. } => Some((message.from.clone(), key.clone())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(head: u64) -> RestingEntry {
        RestingEntry { root: ThreadId::organism(), head: Position(head), threads: 1 }
    }

    #[test]
    fn trees_that_cannot_leave_are_looked_at_again_when_there_is_a_batch_more() {
        let limits = ResidencyLimits { trees: 2, threads: 100, waiting: 2, keys: 2, batch: 3 };
        let core = Core::new(Default::default(), Default::default(), Default::default());
        let core = ResidentCore::with_store(core, RestingStore::in_memory(), limits);
        let mut resting = core.resting.unwrap();
        (0..6).for_each(|head| resting.push(entry(head)));
        assert!(resting.is_full());

        let staying: Vec<_> = std::iter::from_fn(|| resting.pop()).collect();
        resting.stay(staying, false);
        assert!(!resting.is_full(), "they stay");
        (6..9).for_each(|head| resting.push(entry(head)));
        assert!(resting.is_full(), "a batch more");

        resting.stay(Vec::new(), true);
        assert_eq!(resting.retry_at, 0, "all that were to leave have left");
    }
}
