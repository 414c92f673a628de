//! Reads and updates trees outside memory whose open calls wait for persons or timers. Queries read
//! such trees, and steps that concern all trees update them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::ResidentCore;
use crate::clock::Time;
use crate::contract::Contracts;
use crate::ids::{CallId, ThreadId};
use crate::journal::Error;
use crate::limits;
use crate::pump::core::{Core, Step};
use crate::thread::{Call, Fact, Tree};

/// An open call, with the answers to queries that depend on the call's tree.
#[derive(Debug)]
pub struct QueriedCall<'a> {
    pub call: Cow<'a, Call>,
    /// Time at which a time limit of its thread, or of a thread above, ends the call. `None` if no
    /// such time limit runs.
    pub limit: Option<Time>,
    /// Reason why the call needs an approval; `None` if it needs none.
    pub approval_reason: Option<String>,
}

impl ResidentCore {
    /// Applies `fact` to the trees outside memory that have open calls. The fact concerns all trees
    /// with open calls. `step` is the step that recorded the fact, and gets the effects of the fact
    /// on these trees. In a replay, `step` is `None`, and there are no effects. Brings back a
    /// bounded number of trees at a time, and lets them leave memory again.
    pub(super) fn visit_waiting(
        &mut self,
        fact: &Fact,
        mut step: Option<&mut Step>,
    ) -> Result<(), Error> {
        let outside: Vec<_> = self.core.waiting_outside().into_iter().collect();
        for roots in outside.chunks(limits::RESTING_ROUND_MAX) {
            for root in roots {
                self.restore_tree(root)?;
            }

            let is_changed = Core::changes_all_trees(fact);
            if is_changed {
                self.core.follow_pauses_in(roots);
            }
            if let Some(step) = step.as_deref_mut() {
                self.core.continue_waiting(step, fact, roots);
            }
            self.release_waiting(roots, is_changed);
        }
        Ok(())
    }

    /// Removes trees from memory again after `visit_waiting` has brought them back. If a fact has
    /// changed the trees (`is_changed`), first writes their new texts to the working file. A tree
    /// stays in memory if it must not leave memory any more, or if its text cannot be written.
    fn release_waiting(&mut self, roots: &[ThreadId], is_changed: bool) {
        let Some(resting) = &mut self.resting else { return };
        let state = self.core.state();
        let (leaving, mut staying): (Vec<_>, Vec<_>) =
            roots.iter().partition(|root| self.core.may_wait_outside(root));
        let texts = leaving.iter().filter(|_| is_changed).filter_map(|root| {
            let text = state.waiting_tree(root)?;
            Some((root.as_str().to_owned(), text))
        });

        if let Err(error) = resting.store.put(&texts.collect::<Vec<_>>()) {
            tracing::warn!("trees that wait stay in memory; retrying later: {error}");
            staying.extend(&leaving);
        } else {
            leaving.iter().for_each(|root| self.core.release_tree(root));
        }
        staying.iter().for_each(|root| self.note_rest(root, &[]));
    }

    /// Brings back each tree outside memory in which a call awaits a preview. Such a call is held
    /// for an approval and has no preview yet, and its listener declares previews in `contracts`.
    pub(super) fn recall_awaiting_previews(&mut self, contracts: &Contracts) -> Result<(), Error> {
        let mut awaiting = BTreeSet::new();
        self.visit_calls_outside(|call| {
            let gives_previews = || contracts.get(&call.callee)?.previews;
            if call.awaits_preview() && gives_previews().is_some() {
                awaiting.insert(call.thread.root());
            }
        })?;
        for root in &awaiting {
            self.recall_tree(root)?;
        }
        Ok(())
    }

    /// Calls `visit` with each open call of the trees outside memory. Does not bring the trees back
    /// to memory.
    pub fn visit_calls_outside(&self, mut visit: impl FnMut(&Call)) -> Result<(), Error> {
        for root in self.core.waiting_outside() {
            let tree = self.tree_outside(&root)?;
            tree.iter().flat_map(Tree::open_calls).for_each(&mut visit);
        }
        Ok(())
    }

    /// Returns an open call. Returns `None` if the call is not open. Does not bring the tree of the
    /// call back to memory.
    pub fn open_call(&self, id: CallId) -> Result<Option<QueriedCall<'_>>, Error> {
        let state = self.core.state();
        let Some(root) = state.calls.get(&id) else { return Ok(None) };
        match state.trees.resident(root) {
            Some(tree) => {
                let call = tree.call(id).map(Cow::Borrowed);
                Ok(call.map(|call| self.queried(tree, call)))
            }
            None => {
                let Some(tree) = self.tree_outside(root)? else { return Ok(None) };
                let call = tree.call(id).cloned().map(Cow::Owned);
                Ok(call.map(|call| self.queried(&tree, call)))
            }
        }
    }

    fn queried<'a>(&self, tree: &Tree, call: Cow<'a, Call>) -> QueriedCall<'a> {
        let limit = tree.time_limit(&call.thread);
        let approval_reason = self.core.approval_reason(tree, &call);
        QueriedCall { call, limit, approval_reason }
    }

    /// Reads a tree outside memory, without bringing the tree back. Returns `None` if no such tree
    /// is stored.
    fn tree_outside(&self, root: &ThreadId) -> Result<Option<Tree>, Error> {
        let Some(resting) = &self.resting else { return Ok(None) };
        let Some(text) = resting.store.get(root.as_str())? else { return Ok(None) };
        let tree = self.core.state().tree_of_text(&text);
        tree.map(Some).map_err(|error| Error::Resting {
            name: format!("the tree {root}"),
            detail: error.to_string(),
        })
    }
}
