//! Keeps the faults of calls in `first` groups. Such a group consists of several calls, its legs,
//! and the first reply of any leg is the result of the group. A fault is kept while another leg may
//! still reply. If every leg fails, the opener of the group receives all faults.
//!
//! The thread tree keeps the faults if a client, or a call in another thread, has opened the group.
//! Otherwise, the call that has opened the group keeps the faults.

use std::sync::Arc;

use super::state::{KeptFault, Tree};
use super::{Call, Closing, Opener};
use crate::contract::Gather;
use crate::envelope::{Message, MessageKind};
use crate::ids::CallId;

impl Call {
    /// Returns the `first` group to which the call belongs, if the tree keeps the group's faults.
    /// In such a group of calls, the first reply counts. Returns `None` for a call outside such a
    /// group, and for a group that a call in the same thread opened: that call keeps the faults
    /// itself.
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
    /// Returns the open legs of a `first` group whose faults the tree keeps, in no particular
    /// order. A leg is one of the group's calls, which have the same request and different
    /// listeners.
    pub fn open_legs(&self, group: CallId) -> impl Iterator<Item = &Call> {
        self.open_calls().filter(move |call| call.fault_group() == Some(group))
    }

    /// Whether a client still waits for the result of this call. A client waits for an open call. A
    /// client also waits for a failed call if this call is a leg of a `first` group, and another
    /// leg of the group is open and may still reply.
    pub fn owes_client(&self, call: CallId) -> bool {
        if let Some(open) = self.calls.get(&call) {
            return open.is_of_client();
        }
        let kept = self.kept_faults.iter().find(|kept| kept.leg == call);
        kept.is_some_and(|kept| self.open_legs(kept.group).any(Call::is_of_client))
    }

    /// Keeps `message` if it is a fault of a leg, that is, of a call of a `first` group. If
    /// `message` is the `thread-result` with which the group's opener receives the faults of a leg,
    /// drops the kept faults of this leg.
    pub(super) fn keep_fault(&mut self, message: &Arc<Message>) {
        let Some(leg) = message.cause.map(CallId).filter(|_| message.kind == MessageKind::System)
        else {
            return;
        };

        if &*message.name.local == "thread-result" {
            return self.kept_faults.retain(|kept| kept.leg != leg);
        }

        let is_result = message.call.is_none();
        let group = self.call(leg).and_then(Call::fault_group);
        let Some(group) = group.filter(|_| is_result) else { return };
        let fault = Arc::clone(message);
        match self.kept_faults.iter_mut().find(|kept| kept.leg == leg) {
            Some(kept) => kept.faults.push(fault),
            None => self.kept_faults.push(KeptFault { group, leg, how: None, faults: vec![fault] }),
        }
    }

    /// Records how `closed` ended, if it is a call of a `first` group. If this was the group's last
    /// open call, drops the faults that the tree kept for the group.
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
