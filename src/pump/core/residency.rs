//! Finds the trees at rest and client keys that an event reads and that may have left memory.
//!
//! A tree with an open call never leaves memory, so an event about an open call misses nothing.

use super::Core;
use super::event::{Alarm, Cancellation, Event, Submission, Target};
use crate::ids::{Attempt, CallId, MessageId, ThreadId};
use crate::thread::ClientKey;

impl Core {
    /// Returns the next tree that `event` may read and that is not in memory, because it is at rest
    /// or does not exist. If it is at rest, the caller must restore it and call this method again.
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
            Event::SendScheduled { request, .. }
            | Event::Alarm(Alarm::ScheduledRun { request }) => self.tree_of_run(*request),
            Event::Boot { .. }
            | Event::Stray { .. }
            | Event::Heartbeat { .. }
            | Event::Reserve { .. }
            | Event::Recalled { .. }
            | Event::Alarm(_)
            | Event::Decide(_)
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

        named.filter(|root| self.state.trees.resident(root).is_none())
    }

    /// Returns the client key that `event` names, if it is not in memory.
    pub fn missing_key(&self, event: &Event) -> Option<ClientKey> {
        let (client, key) = match event {
            Event::Submit(submission) => (&submission.client, &submission.key),
            Event::RetryMessage(order) => (&order.action.sender, &order.action.key),
            _ => return None,
        };
        let key = (client.clone(), key.clone()?);
        self.state.keys.resident(&key).is_none().then_some(key)
    }

    /// Puts back a tree that has left memory.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a tree.
    pub fn restore_tree(&mut self, root: &ThreadId, text: &str) -> Result<(), String> {
        let restored = self.state.restore_tree(root.clone(), text);
        restored.map_err(|error| error.to_string())
    }

    /// Removes a tree at rest from memory. The caller must keep its text.
    pub fn release_tree(&mut self, root: &ThreadId) {
        self.state.release_tree(root);
    }

    /// Puts back a client key that has left memory.
    ///
    /// # Errors
    ///
    /// Returns why `text` is not the text of a key's use.
    pub fn restore_key(&mut self, key: &ClientKey, text: &str) -> Result<(), String> {
        let restored = self.state.restore_key(key.clone(), text);
        restored.map_err(|error| error.to_string())
    }

    /// Removes a client key from memory. The caller must keep its text.
    pub fn release_key(&mut self, key: &ClientKey) {
        self.state.release_key(key);
    }

    /// Returns the tree that a submission names. For a new tree without a suggested id, returns the
    /// first candidate that is not in memory.
    fn tree_of_submission(&self, submission: &Submission) -> Option<ThreadId> {
        match &submission.target {
            Target::Thread { id } | Target::New { suggested: Some(id) } => {
                ThreadId::parse(id).ok().map(|thread| thread.root())
            }
            Target::New { suggested: None } => Some(self.fresh_root(submission.id)),
        }
    }

    /// Returns the tree of a delivery that a listener still works on after its call was closed.
    fn tree_of_delivery(&self, call: CallId, attempt: Attempt) -> Option<ThreadId> {
        let thread = if attempt.is_preview() {
            self.previews.thread_of(call)
        } else {
            self.calls.thread_of_orphan(call, attempt)
        };
        thread.map(ThreadId::root)
    }

    fn tree_of_run(&self, request: MessageId) -> Option<ThreadId> {
        self.unsent_run(request).map(|(_, run)| run.thread)
    }
}
