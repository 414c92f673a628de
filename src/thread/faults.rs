//! Faults of `first` groups whose opener is a client or waits in another thread: kept while another leg
//! may still reply, and given to the opener when every leg has failed.

use std::sync::Arc;

use super::state::{KeptFault, Tree};
use super::{Call, Closing, Opener};
use crate::contract::Gather;
use crate::envelope::{Kind, Message};
use crate::ids::CallId;

impl Call {
    /// The `first` group that keeps the faults of this leg. Where the opener waits in the thread
    /// of the leg, its call holds them.
    pub fn fault_group(&self) -> Option<CallId> {
        let Some((group, Gather::First)) = self.opening.group else { return None };
        let is_nested = matches!(&self.opening.opener,
            Opener::Call { thread, .. } if *thread == self.thread);
        (!is_nested).then_some(group)
    }

    pub fn is_of_client(&self) -> bool {
        matches!(self.opening.opener, Opener::Client { .. })
    }
}

impl Tree {
    /// Open legs of this group, in no order.
    pub fn open_legs(&self, group: CallId) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(move |call| call.fault_group() == Some(group))
    }

    /// Whether a client is still owed the result of this call: it is open, or its fault is kept.
    pub fn owes_client(&self, call: CallId) -> bool {
        if let Some(open) = self.calls.get(&call) {
            return open.is_of_client();
        }
        let kept = self.kept_faults.iter().find(|kept| kept.leg == call);
        kept.is_some_and(|kept| self.open_legs(kept.group).any(Call::is_of_client))
    }

    /// Keeps the fault of a leg, until the opener gets it.
    pub(super) fn keep_fault(&mut self, message: &Arc<Message>) {
        let Some(leg) = message.cause.map(CallId).filter(|_| message.kind == Kind::System) else {
            return;
        };

        if &*message.name.local == "thread-result" {
            return self.kept_faults.retain(|kept| kept.leg != leg);
        }

        let is_result = message.call.is_none();
        let group = self.calls.get(&leg).and_then(Call::fault_group);
        let Some(group) = group.filter(|_| is_result) else { return };
        let fault = Arc::clone(message);
        match self.kept_faults.iter_mut().find(|kept| kept.leg == leg) {
            Some(kept) => kept.faults.push(fault),
            None => self.kept_faults.push(KeptFault { group, leg, how: None, faults: vec![fault] }),
        }
    }

    /// A group without an open leg is over, and so is what it kept.
    pub(super) fn close_leg(&mut self, closed: &Call, how: Closing) {
        let Some(group) = closed.fault_group() else { return };
        for kept in self.kept_faults.iter_mut().filter(|kept| kept.leg == closed.id) {
            kept.how = Some(how);
        }

        if self.open_legs(group).next().is_none() {
            self.kept_faults.retain(|kept| kept.group != group);
        }
    }
}
