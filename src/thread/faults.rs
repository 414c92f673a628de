//! Faults of `first` groups that cross threads: kept while another leg may still reply, and given to
//! the opener when every leg has failed.

use std::sync::Arc;

use super::state::{KeptFault, Tree};
use super::{Call, Closing, Opener};
use crate::contract::Gather;
use crate::envelope::{Kind, Message};
use crate::ids::CallId;

impl Call {
    /// The `first` group that it is a leg of, where its opener waits in another thread.
    pub fn first_group_away(&self) -> Option<CallId> {
        let Some((group, Gather::First)) = self.opening.group else { return None };
        let is_away = matches!(&self.opening.opener,
            Opener::Call { thread, .. } if *thread != self.thread);
        is_away.then_some(group)
    }
}

impl Tree {
    /// Legs of this group that are open, in no order.
    pub fn open_legs(&self, group: CallId) -> impl Iterator<Item = CallId> {
        let is_leg = move |call: &&Call| call.first_group_away() == Some(group);
        self.calls.values().filter(is_leg).map(|call| call.id)
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
        let group = self.calls.get(&leg).and_then(Call::first_group_away);
        if let Some(group) = group.filter(|_| is_result) {
            let fault = Arc::clone(message);
            self.kept_faults.push(KeptFault { group, leg, how: None, fault });
        }
    }

    /// A group without an open leg is over, and so is what it kept.
    pub(super) fn close_leg(&mut self, closed: &Call, how: Closing) {
        let Some(group) = closed.first_group_away() else { return };
        for kept in self.kept_faults.iter_mut().filter(|kept| kept.leg == closed.id) {
            kept.how = Some(how);
        }

        if self.open_legs(group).next().is_none() {
            self.kept_faults.retain(|kept| kept.group != group);
        }
    }
}
