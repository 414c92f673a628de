//! Finds the trees and client keys that an event needs and that may be outside memory. The pump
//! moves trees at rest, in which nothing is open, from memory to a working file. It also moves
//! trees whose open calls only wait for persons or timers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::{Alarm, Cancellation, Event, Submission, Target};
use super::{Core, Step};
use crate::contract::Contracts;
use crate::ids::{Attempt, CallId, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::thread::{Call, ClientKey, Fact, Record};

impl Core {
    /// Returns a tree that `event` names and that is not in memory, or `None` if there is none. The
    /// caller restores the tree and calls this method again, until the result is `None`. The caller
    /// also stops if the tree does not exist, for example because `event` opens it.
    ///
    /// If `event` names a client key, the key must already be in memory. An event that concerns all
    /// trees with open calls names no tree (see [`Core::continue_waiting`]).
    pub fn missing_tree(&self, event: &Event) -> Option<ThreadId> {
        let named = match event {
            Event::Submit(submission) => self.tree_of_submission(submission),
            Event::Cancel(Cancellation { thread, .. }) => Some(thread.root()),
            Event::Pause(request) => Some(request.action.target.home().root()),
            Event::Fork(order) => Some(order.action.thread.root()),
            Event::RetryMessage(order) => Some(order.action.thread.root()),
            Event::Outcome { call, attempt, .. }
            | Event::Failed { call, attempt, .. }
            | Event::NotTaken { call, attempt, .. } => self.tree_of_delivery(*call, *attempt),
            Event::Heartbeat { call, .. }
            | Event::Reserve { call, .. }
            | Event::Searched { call, .. }
            | Event::Recalled { call, .. }
            | Event::TimerSearched { call, .. }
            | Event::TimerFired { call, .. } => self.tree_of_open(*call),
            Event::Decide(decision) => self.tree_of_open(CallId(decision.message)),
            Event::Alarm(alarm) => self.tree_of_alarm(alarm),
            Event::SendScheduled { request, .. } => self.tree_of_run(*request),
            Event::Boot { .. }
            | Event::Stray { .. }
            | Event::Joined { .. }
            | Event::Left { .. }
            | Event::Denied { .. }
            | Event::Standstill(_)
            | Event::Busy(_)
            | Event::Alert { .. }
            | Event::Shutdown { .. }
            | Event::Operator { .. }
            | Event::Reload(_) => None,
        };

        let of_key = Self::key_of(event).and_then(|key| self.tree_of_key(&key));
        // The tree of a key comes first: it exists, unlike the tree that a submission may open.
        of_key.into_iter().chain(named).find(|root| self.state.trees.resident(root).is_none())
    }

    /// Returns the first fact in `facts` that concerns all trees with open calls: a start, a
    /// reload, or the beginning or end of a pause that covers more than one tree. Returns `None` if
    /// there is no such fact.
    pub fn fact_of_all_trees(facts: &[Fact]) -> Option<&Fact> {
        facts.iter().find(|fact| match fact {
            Fact::Booted { .. } | Fact::Reloaded { .. } => true,
            Fact::Paused { target, .. } | Fact::Resumed { target } => target.tree().is_none(),
            _ => false,
        })
    }

    /// Whether `fact`, which comes from [`Core::fact_of_all_trees`], changes the state of all trees
    /// with open calls. True for the beginning and the end of a pause, which stop or restart time
    /// limits. False for a start and a reload, which only lead to effects, such as alarms.
    pub fn changes_all_trees(fact: &Fact) -> bool {
        matches!(fact, Fact::Paused { .. } | Fact::Resumed { .. })
    }

    /// Stops or restarts the time limits of the trees with these `roots` according to the pauses in
    /// force. Must be called for trees that were outside memory when a pause began or ended. For
    /// the trees in memory, the core does this itself when it records the pause or the resume.
    pub fn follow_pauses_in(&mut self, roots: &[ThreadId]) {
        if !mutant("pause-only-in-memory") {
            self.state.follow_pauses_in(roots);
        }
    }

    /// Adds to `step` the effects of `fact` on the trees with these `roots`. These trees were
    /// outside memory when `step` recorded `fact`, which comes from [`Core::fact_of_all_trees`].
    /// Adds no facts: all open calls of these trees only wait, so no delivery starts.
    pub fn continue_waiting(&mut self, step: &mut Step, fact: &Fact, roots: &[ThreadId]) {
        match fact {
            Fact::Booted { .. } => self.pick_up_trees(step, roots),
            Fact::Reloaded { .. } => self.pick_up_queued_calls(step, roots),
            Fact::Resumed { target } => self.set_alarms_after_pause(step, target, roots),
            _ => {}
        }
    }

    /// Returns the contracts that `event` puts in force, if `event` is a start or a reload and at
    /// least one of these contracts declares previews. The caller must then bring back the trees
    /// whose held calls still need a preview, because the step requests these previews. Otherwise,
    /// returns `None`.
    pub fn contracts_with_previews<'e>(&'e self, event: &'e Event) -> Option<&'e Arc<Contracts>> {
        let contracts = match event {
            Event::Boot { .. } => &self.contracts,
            Event::Reload(request) => &request.config.contracts,
            _ => return None,
        };
        let gives_previews = contracts.iter().any(|contract| contract.previews.is_some());
        gives_previews.then_some(contracts)
    }

    /// Returns the trees of the calls that `record` hands over to listeners. Leaves out the tree of
    /// `record` itself, because the caller brings that tree back in any case.
    pub fn trees_of_hand_overs(&self, record: &Record) -> Vec<ThreadId> {
        let calls = record.facts.iter().filter_map(|fact| match fact {
            Fact::HandedOver { call, .. } => Some(*call),
            _ => None,
        });
        let roots = calls.filter_map(|call| self.tree_of_open(call));
        roots.filter(|root| *root != record.tree).collect()
    }

    /// Whether a tree may leave memory although calls are open in it. All these calls must only
    /// wait for persons or timers, and none of their deliveries and previews may be queued or in
    /// flight. Returns false for a tree that is not in memory.
    pub fn may_wait_outside(&self, root: &ThreadId) -> bool {
        let tree = self.state.trees.resident(root).filter(|_| self.state.only_waits(root));
        let is_idle = |call: &Call| !self.is_busy_with(call.id) && !self.previews.concerns(call);
        tree.is_some_and(|tree| tree.open_calls().all(is_idle))
    }

    /// Returns the trees outside memory that have open calls.
    pub fn waiting_outside(&self) -> BTreeSet<ThreadId> {
        let roots = self.state.calls.values();
        roots.filter(|root| self.state.trees.resident(root).is_none()).cloned().collect()
    }

    /// Returns the client key that `event` names. Returns `None` if `event` names no client key, or
    /// if the key is already in memory.
    pub fn missing_key(&self, event: &Event) -> Option<ClientKey> {
        Self::key_of(event).filter(|key| self.state.keys.resident(key).is_none())
    }

    fn key_of(event: &Event) -> Option<ClientKey> {
        let (client, key) = match event {
            Event::Submit(submission) => (&submission.client, &submission.key),
            Event::RetryMessage(order) => (&order.action.sender, &order.action.key),
            _ => return None,
        };
        Some((client.clone(), key.clone()?))
    }

    /// Returns the tree of the calls that a submission with this client key has opened. Returns
    /// `None` if a repetition of the submission does not need this tree. The repetition needs the
    /// tree if one of these conditions holds:
    ///
    /// - A call of the submission is open. The receipt of the repetition must then state whether
    ///   the call is held.
    /// - The client's keys expire. A key stays valid while calls of its tree are open, so the pump
    ///   must look in the tree before it treats the key as expired.
    fn tree_of_key(&self, key: &ClientKey) -> Option<ThreadId> {
        let used = self.state.keys.resident(key)?;
        let (client, _) = key;
        let is_open = |call: &CallId| self.state.calls.contains_key(call);
        let is_needed = self.time_of_keys(client).is_some() || used.calls.iter().any(is_open);
        is_needed.then(|| used.thread.root())
    }

    /// Puts a tree that has left memory back into memory. `text` is the serialized tree.
    ///
    /// # Errors
    ///
    /// Returns the reason why `text` is not a serialized tree.
    pub fn restore_tree(&mut self, root: &ThreadId, text: &str) -> Result<(), String> {
        let restored = self.state.restore_tree(root.clone(), text);
        restored.map_err(|error| error.to_string())
    }

    /// Removes a tree from memory. The caller must have stored the serialized tree.
    pub fn release_tree(&mut self, root: &ThreadId) {
        self.state.release_tree(root);
    }

    /// Puts a client key that has left memory back into memory. `text` is the serialized key with
    /// the submission that used it.
    ///
    /// # Errors
    ///
    /// Returns the reason why `text` is not a serialized client key.
    pub fn restore_key(&mut self, key: &ClientKey, text: &str) -> Result<(), String> {
        let restored = self.state.restore_key(key.clone(), text);
        restored.map_err(|error| error.to_string())
    }

    /// Removes a client key from memory. The caller must have stored the serialized key.
    pub fn release_key(&mut self, key: &ClientKey) {
        self.state.release_key(key);
    }

    /// Returns the tree that a submission names; `None` if the named thread id is invalid. If the
    /// submission requests a new tree without a suggested id, generates an id that no tree in
    /// memory has. A tree outside memory may have the generated id. The caller must then restore
    /// that tree and call this method again to get another id.
    fn tree_of_submission(&self, submission: &Submission) -> Option<ThreadId> {
        match &submission.target {
            Target::Thread { id } | Target::New { suggested: Some(id) } => {
                ThreadId::parse(id).ok().map(|thread| thread.root())
            }
            Target::New { suggested: None } => Some(self.fresh_root(submission.id)),
        }
    }

    /// Returns the tree that an event about the delivery of `call` and `attempt` concerns:
    ///
    /// - If a listener works on the open call `call`, returns `None`, because the tree is then in
    ///   memory in any case.
    /// - If the named delivery is a preview or an orphaned delivery in progress, returns the tree
    ///   of this delivery.
    /// - Otherwise, returns the tree of `call`, or `None` if `call` is not open.
    fn tree_of_delivery(&self, call: CallId, attempt: Attempt) -> Option<ThreadId> {
        // The tree of a call that a listener works on is in memory.
        if self.calls.running(call).is_some() {
            return None;
        }

        let thread = if attempt.is_preview() {
            self.previews.thread_of(call)
        } else {
            self.calls.thread_of_orphan(call, attempt)
        };
        thread.map(ThreadId::root).or_else(|| self.tree_of_open(call))
    }

    fn tree_of_open(&self, call: CallId) -> Option<ThreadId> {
        self.state.calls.get(&call).cloned()
    }

    fn tree_of_alarm(&self, alarm: &Alarm) -> Option<ThreadId> {
        match alarm {
            Alarm::Deadline { call, .. }
            | Alarm::Retry { call }
            | Alarm::Untaken { call }
            | Alarm::Lost { call, .. }
            | Alarm::Timer { call, .. }
            | Alarm::Gone { call }
            | Alarm::ThreadTime { call }
            | Alarm::Held { call }
            | Alarm::PreviewTime { call }
            | Alarm::Unsettled { call, .. }
            | Alarm::Stop { call, .. } => self.tree_of_open(*call),
            // A recorded turn may still wait after its call has closed.
            Alarm::Recorded { call } => {
                self.tree_of_open(*call).or_else(|| self.recorded.fork_of(*call))
            }
            Alarm::ScheduledRun { request } => self.tree_of_run(*request),
            Alarm::Probe | Alarm::Schedule { .. } => None,
        }
    }

    fn tree_of_run(&self, request: MessageId) -> Option<ThreadId> {
        self.state.unsent_run(request).map(|(_, run)| run.thread.clone())
    }
}
