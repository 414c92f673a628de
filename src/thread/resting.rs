//! Trees at rest and client keys as text: the form in which they wait outside memory.
//!
//! A tree is at rest when nothing in it is open. Then only an event that names it, or one of its
//! threads, can concern it, so it may leave memory until such an event comes. The text is read
//! again only by the process that wrote it. The journal remains the only lasting record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::state::{ClientKey, KeyUse, State, Tree};
use crate::ids::ThreadId;

/// A tree at rest that leaves memory.
#[derive(Serialize)]
struct LeavingTree<'a> {
    /// See [`State::stepped`], at the time when the tree left.
    #[serde(rename = "stepped")]
    stepped: Duration,
    #[serde(rename = "tree")]
    tree: &'a Tree,
}

/// A tree at rest that comes back.
#[derive(Deserialize)]
struct ReturningTree {
    #[serde(rename = "stepped")]
    stepped: Duration,
    #[serde(rename = "tree")]
    tree: Tree,
}

impl State {
    /// The text of a tree that may leave memory; `None` if it may not, or is not in memory.
    pub fn resting_tree(&self, root: &ThreadId) -> Option<String> {
        let tree = self.trees.resident(root).filter(|tree| tree.is_at_rest())?;
        // A standstill is recorded while the time of any thread has yet to come, so such a thread
        // must be in memory.
        if root.as_str() == ThreadId::ORGANISM || tree.has_time_to_come(self) {
            return None;
        }

        let leaving = LeavingTree { stepped: self.stepped, tree };
        serde_json::to_string(&leaving).ok()
    }

    /// Removes a tree from memory whose text is kept.
    pub fn release_tree(&mut self, root: &ThreadId) {
        self.trees.release(root);
    }

    /// Puts back a tree that has left memory.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a tree.
    pub fn restore_tree(&mut self, root: ThreadId, text: &str) -> serde_json::Result<()> {
        let ReturningTree { stepped, mut tree } = serde_json::from_str(text)?;
        tree.pass_over(Duration::ZERO, self.stepped.saturating_sub(stepped));
        self.trees.restore(root, tree);
        Ok(())
    }

    /// The text of the use of a client key; `None` if the key is not in memory.
    pub fn resting_key(&self, key: &ClientKey) -> Option<String> {
        serde_json::to_string(self.keys.resident(key)?).ok()
    }

    /// Removes a client key from memory whose text is kept.
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
    /// Whether nothing in the tree is open. Each part that is left out of the text of a tree must
    /// be empty.
    pub fn is_at_rest(&self) -> bool {
        let Self {
            calls,
            in_flight,
            timers,
            reserved,
            kept_faults,
            held,
            still_since,
            // In the text.
            threads: _,
            usage: _,
            renewal: _,
            by_agent: _,
            warned: _,
            started: _,
            head: _,
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
