//! Converts thread trees and the records of used client keys to text and back. Snapshots contain
//! these texts. The pump also keeps the text of each tree and key that leaves memory.
//!
//! A tree may leave memory in two cases:
//! - The tree is at rest: nothing in it is open. The tree returns to memory when an event names it
//!   or one of its threads.
//! - The open calls of the tree wait only for persons or timers. The tree returns to memory when an
//!   event names one of these calls.
//!
//! The journal remains the only lasting record, because every text can be derived from it again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::apply::AT_REST_SINCE;
use super::state::{ClientKey, KeyUse, State, Tree};
use super::{Pauses, PlannedSchedule};
use crate::clock::Time;
use crate::ids::{Digest, ScheduleName, ThreadId};
use crate::limits;

/// A tree that is written as text.
#[derive(Serialize)]
struct LeavingTree<'a> {
    /// Sum of the forward steps of the system clock ([`State::stepped`]) when the text was written.
    #[serde(rename = "stepped")]
    stepped: Duration,
    /// Sum of the pump's standstills ([`State::stood`]) when the text was written. Zero for a tree
    /// at rest, and for every tree in a snapshot.
    #[serde(rename = "stood", skip_serializing_if = "Duration::is_zero")]
    stood: Duration,
    #[serde(rename = "tree")]
    tree: &'a Tree,
}

/// A tree that is read from its text.
#[derive(Deserialize)]
struct ReturningTree {
    #[serde(rename = "stepped")]
    stepped: Duration,
    #[serde(rename = "stood", default)]
    stood: Duration,
    #[serde(rename = "tree")]
    tree: Tree,
}

/// The parts of the state other than trees and client keys. The table of open calls and the number
/// of unsettled messages are left out, because both are rebuilt from the trees.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommonState {
    #[serde(rename = "journal")]
    journal: Uuid,
    #[serde(rename = "epoch")]
    epoch: u32,
    #[serde(rename = "core_version")]
    core_version: u32,
    #[serde(rename = "config")]
    config: Digest,
    #[serde(rename = "nonces", default, skip_serializing_if = "BTreeMap::is_empty")]
    nonces: BTreeMap<Uuid, Time>,
    #[serde(rename = "pauses", default, skip_serializing_if = "Pauses::is_empty")]
    pauses: Pauses,
    #[serde(rename = "schedules", default, skip_serializing_if = "BTreeMap::is_empty")]
    schedules: BTreeMap<ScheduleName, PlannedSchedule>,
    #[serde(rename = "time")]
    time: Time,
    #[serde(rename = "stepped")]
    stepped: Duration,
}

impl State {
    /// Returns the parts of the state other than trees and client keys.
    pub fn common(&self) -> CommonState {
        CommonState {
            journal: self.journal,
            epoch: self.epoch,
            core_version: self.core_version,
            config: self.config,
            nonces: self.nonces.clone(),
            pauses: self.pauses.clone(),
            schedules: self.schedules.clone(),
            time: self.time,
            stepped: self.stepped,
        }
    }

    /// Creates a state from `common`. The state has no trees and no client keys in memory.
    pub fn with_common(common: CommonState) -> Self {
        let CommonState {
            journal,
            epoch,
            core_version,
            config,
            nonces,
            pauses,
            schedules,
            time,
            stepped,
        } = common;
        Self {
            journal,
            epoch,
            core_version,
            config,
            nonces,
            pauses,
            schedules,
            time,
            stepped,
            ..Self::default()
        }
    }

    /// Whether the tree `root` may leave memory because it is at rest: nothing in it is open. False
    /// while a thread of the tree has a time limit that has not passed.
    pub fn may_leave(&self, root: &ThreadId) -> bool {
        let tree = self.trees.resident(root);
        // While a thread has a time limit that is not reached, standstills are recorded, so such a
        // thread must stay in memory.
        root.as_str() != ThreadId::ORGANISM
            && tree.is_some_and(|tree| tree.is_at_rest() && !tree.has_time_to_come(self))
    }

    /// Whether the tree `root` may leave memory although it has open calls, because all of these
    /// calls wait for persons or timers. False in two cases:
    /// - A thread of the tree has a time limit that has not passed.
    /// - The tree belongs to an open run of a schedule.
    ///
    /// The caller must ensure that none of the calls is queued.
    pub fn only_waits(&self, root: &ThreadId) -> bool {
        // Only open runs are listed, and there are few of them.
        let mut runs = self.schedules.values().flat_map(|planned| &planned.runs);
        let is_run = runs.any(|run| run.thread == *root);
        let tree = self.trees.resident(root).filter(|tree| tree.only_waits());
        // Earlier versions do not sum the forward steps of the clock.
        let is_summed = self.core_version >= AT_REST_SINCE;
        let is_free = !is_run && root.as_str() != ThreadId::ORGANISM;
        is_free && is_summed && tree.is_some_and(|tree| !tree.has_time_to_come(self))
    }

    /// Returns the text of the tree `root` for a snapshot; `None` if the tree is not in memory.
    pub fn tree_text(&self, root: &ThreadId) -> Option<String> {
        let stood = Duration::ZERO;
        let tree = self.trees.resident(root)?;
        serde_json::to_string(&LeavingTree { stepped: self.stepped, stood, tree }).ok()
    }

    /// Returns the text of a tree with open calls, in the form in which the tree is stored outside
    /// memory. Returns `None` if the tree is not in memory.
    pub fn waiting_tree(&self, root: &ThreadId) -> Option<String> {
        let stood = self.stood.0;
        let tree = self.trees.resident(root)?;
        serde_json::to_string(&LeavingTree { stepped: self.stepped, stood, tree }).ok()
    }

    /// Returns the text of the tree `root` if the tree is at rest and may leave memory, and
    /// otherwise `None`.
    pub fn resting_tree(&self, root: &ThreadId) -> Option<String> {
        if self.may_leave(root) { self.tree_text(root) } else { None }
    }

    /// Removes a tree from memory. The caller must keep the tree's text elsewhere.
    pub fn release_tree(&mut self, root: &ThreadId) {
        self.trees.release(root);
    }

    /// Puts the tree `root` back into memory from its text.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a tree.
    pub fn restore_tree(&mut self, root: ThreadId, text: &str) -> serde_json::Result<()> {
        let tree = self.tree_of_text(text)?;
        if !self.counts_calls_of(&tree) {
            self.in_flight += tree.in_flight.len();
            self.calls.extend(tree.calls.keys().map(|call| (*call, root.clone())));
        }
        self.trees.restore(root, tree);
        Ok(())
    }

    /// Reads a tree from its text, and moves its times, because some of the time since the text was
    /// written does not count:
    /// - Time-outs of calls and holds are moved by the duration for which the pump stood still.
    /// - All times, except timers for a clock time, are moved by the amount by which the system
    ///   clock was set forward.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a tree.
    pub fn tree_of_text(&self, text: &str) -> serde_json::Result<Tree> {
        let ReturningTree { stepped, stood, mut tree } = serde_json::from_str(text)?;
        let is_waiting = self.counts_calls_of(&tree);
        let stood = if is_waiting { self.stood.0.saturating_sub(stood) } else { Duration::ZERO };
        let stepped = self.stepped.saturating_sub(stepped);
        tree.pass_over(stood, stepped, self.core_version);
        Ok(tree)
    }

    /// Converts the text of a tree that left memory with open calls into a text for a snapshot.
    /// `text` is the text with which the tree left memory. The new text extends the time-outs of
    /// calls and holds by the time for which the pump has stood still since then. Returns `None` if
    /// the pump has never stood still in this process, because `text` itself is then valid for a
    /// snapshot.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a tree.
    pub fn renewed_text(&self, text: &str) -> serde_json::Result<Option<String>> {
        if self.stood.0.is_zero() {
            return Ok(None);
        }

        let stood = Duration::ZERO;
        let tree = self.tree_of_text(text)?;
        serde_json::to_string(&LeavingTree { stepped: self.stepped, stood, tree: &tree }).map(Some)
    }

    /// Whether [`State::calls`] and [`State::in_flight`] already count the calls and messages of
    /// `tree`. False for a tree without open calls, and for a tree from a snapshot that has not
    /// been in memory yet.
    fn counts_calls_of(&self, tree: &Tree) -> bool {
        tree.calls.keys().next().is_some_and(|call| self.calls.contains_key(call))
    }

    /// Returns the text that records how a client key was used; `None` if the key is not in memory.
    pub fn resting_key(&self, key: &ClientKey) -> Option<String> {
        serde_json::to_string(self.keys.resident(key)?).ok()
    }

    /// Removes a client key from memory. The caller must keep the text of the key elsewhere.
    pub fn release_key(&mut self, key: &ClientKey) {
        self.keys.release(key);
    }

    /// Puts a client key that has left memory back into memory, from the text that records its use.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a key's use.
    pub fn restore_key(&mut self, key: ClientKey, text: &str) -> serde_json::Result<()> {
        let used: KeyUse = serde_json::from_str(text)?;
        self.keys.restore(key, used);
        Ok(())
    }
}

impl Tree {
    /// Whether the tree is at rest, which means that it has no open work.
    pub fn is_at_rest(&self) -> bool {
        let Self {
            calls,
            in_flight,
            timers,
            reserved,
            kept_faults,
            held,
            still_since,
            // None of these waits for anything.
            threads: _,
            usage: _,
            renewal: _,
            by_agent: _,
            warned: _,
            started: _,
            head: _,
            lineage: _,
            retried: _,
            trace: _,
        } = self;
        let is_idle = calls.is_empty() && in_flight.is_empty() && timers.is_empty();
        let owes_nothing = reserved.is_none() && kept_faults.is_empty();
        is_idle && owes_nothing && *held == 0 && still_since.is_none()
    }

    /// Whether the tree has open calls, and each of them can continue only after a person acts or a
    /// timer fires. Always false for a fork, for a tree with reservations of model calls, and for a
    /// tree that keeps faults of a `first` group. Does not consider the queues of the pump.
    pub fn only_waits(&self) -> bool {
        // Other trees and the order of the source determine how a fork continues.
        let is_plain =
            self.lineage.is_none() && self.reserved.is_none() && self.kept_faults.is_empty();
        !self.calls.is_empty()
            && (self.held > 0 || !self.timers.is_empty())
            && is_plain
            && self.open_calls().all(|call| call.handed_over.is_none() && !call.is_ready())
    }

    /// Returns the number of unsettled messages in a tree whose open calls only wait for persons or
    /// timers. Leaves out the requests of held calls. The number is at most
    /// [`limits::WAITING_MESSAGES_PER_CALL_MAX`] for each call that is held or has a timer. A
    /// message is unsettled until the journal records how it ended.
    ///
    /// Returns 0 for any other tree, and for a tree in which a thread has a time limit.
    pub fn waiting_messages(&self) -> usize {
        if self.in_flight.is_empty() || !self.only_waits() || self.time_limits().next().is_some() {
            return 0;
        }

        let bounded = self.open_calls().filter(|call| call.held.is_some() || call.timers > 0);
        let most = bounded.count().saturating_mul(limits::WAITING_MESSAGES_PER_CALL_MAX);
        let held = usize::try_from(self.held).unwrap_or(usize::MAX);
        self.in_flight.len().saturating_sub(held).min(most)
    }

    /// Returns the ends of the time limits of the tree's threads.
    fn time_limits(&self) -> impl Iterator<Item = Time> {
        let allotted = self.threads.values().filter_map(|thread| thread.allotted.as_deref());
        allotted.filter_map(|own| own.limits.until)
    }

    /// Whether any thread of the tree has a time limit that has not passed yet.
    fn has_time_to_come(&self, state: &State) -> bool {
        self.time_limits().any(|until| until > state.time)
    }
}
