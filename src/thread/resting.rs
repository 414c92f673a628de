//! Converts trees and client keys to text and back. They have this form in a snapshot, and while
//! they are outside memory.
//!
//! A tree without open work is at rest. Only an event that names the tree or one of its threads can
//! concern a tree at rest, so the tree may leave memory until such an event comes. The texts are
//! derived data: all of them can be made again from the journal.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::{ClientKey, KeyUse, State, Tree};
use super::{Pauses, PlannedSchedule};
use crate::clock::Time;
use crate::ids::{Digest, ScheduleName, ThreadId};

/// A tree that is written as text.
#[derive(Serialize)]
struct LeavingTree<'a> {
    /// Value of [`State::stepped`] when the text was written.
    #[serde(rename = "stepped")]
    stepped: Duration,
    #[serde(rename = "tree")]
    tree: &'a Tree,
}

/// A tree that is read from its text.
#[derive(Deserialize)]
struct ReturningTree {
    #[serde(rename = "stepped")]
    stepped: Duration,
    #[serde(rename = "tree")]
    tree: Tree,
}

/// The parts of the state other than trees and client keys. The tables of calls and of messages in
/// flight are rebuilt from the trees.
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

    /// Returns a state with these common parts, and with no trees and no client keys in memory.
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

    /// Whether the tree may wait outside memory.
    pub fn may_leave(&self, root: &ThreadId) -> bool {
        let tree = self.trees.resident(root);
        // While a thread has a time limit that is not reached, standstills are recorded, so such a
        // thread must stay in memory.
        root.as_str() != ThreadId::ORGANISM
            && tree.is_some_and(|tree| tree.is_at_rest() && !tree.has_time_to_come(self))
    }

    /// Returns the text of a tree; `None` if the tree is not in memory.
    pub fn tree_text(&self, root: &ThreadId) -> Option<String> {
        let tree = self.trees.resident(root)?;
        let leaving = LeavingTree { stepped: self.stepped, tree };
        serde_json::to_string(&leaving).ok()
    }

    /// Returns the text of a tree that may leave memory. Returns `None` if the tree must stay or is
    /// not in memory.
    pub fn resting_tree(&self, root: &ThreadId) -> Option<String> {
        if self.may_leave(root) { self.tree_text(root) } else { None }
    }

    /// Removes from memory a tree whose text is kept elsewhere.
    pub fn release_tree(&mut self, root: &ThreadId) {
        self.trees.release(root);
    }

    /// Puts back a tree from its text.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a tree.
    pub fn restore_tree(&mut self, root: ThreadId, text: &str) -> serde_json::Result<()> {
        let ReturningTree { stepped, mut tree } = serde_json::from_str(text)?;
        tree.pass_over(Duration::ZERO, self.stepped.saturating_sub(stepped));
        self.in_flight += tree.in_flight.len();
        self.calls.extend(tree.calls.keys().map(|call| (*call, root.clone())));
        self.trees.restore(root, tree);
        Ok(())
    }

    /// Returns the use of a client key as text; `None` if the key is not in memory.
    pub fn resting_key(&self, key: &ClientKey) -> Option<String> {
        serde_json::to_string(self.keys.resident(key)?).ok()
    }

    /// Removes from memory a client key whose text is kept elsewhere.
    pub fn release_key(&mut self, key: &ClientKey) {
        self.keys.release(key);
    }

    /// Puts back a client key that has left memory.
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

    /// Whether any thread has a time limit that is not reached yet.
    fn has_time_to_come(&self, state: &State) -> bool {
        let mut allotted = self.threads.values().filter_map(|thread| thread.allotted.as_deref());
        allotted.any(|own| own.limits.until.is_some_and(|until| until > state.time))
    }
}
