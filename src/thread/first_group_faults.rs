//! Keeps the faults of calls in `first` groups. A `first` group consists of several calls, its
//! legs, and the result of the group is the first reply of any leg. A fault is kept while another
//! leg may still reply. If every leg fails, the opener of the group receives all faults.
//!
//! This module keeps the faults in the thread tree, for groups that a client or a call in another
//! thread opened. If a call in the same thread opened the group, the faults are kept in that call
//! instead.

use std::sync::Arc;

use super::state::{KeptFault, Tree};
use super::{Call, Closing, Opener};
use crate::contract::Gather;
use crate::envelope::{Message, MessageKind};
use crate::ids::CallId;

impl Call {
    /// Returns the call's group if it is a `first` group whose faults the tree keeps; otherwise
    /// `None`. The result of a `first` group is the first reply to any of its calls. If a call in
    /// the same thread opened the group, this opener keeps the faults instead of the tree.
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
    /// Returns the open legs of `group`, in no particular order. The legs of a group are its calls.
    /// `group` must be a `first` group whose faults the tree keeps.
    pub fn open_legs(&self, group: CallId) -> impl Iterator<Item = &Call> {
        self.open_calls().filter(move |call| call.fault_group() == Some(group))
    }

    /// Whether a client still waits for the result of `call`. True in two cases:
    /// - `call` is open, and a client opened it.
    /// - `call` is a failed leg of a client's `first` group, and another leg of the group is open.
    pub fn owes_client(&self, call: CallId) -> bool {
        if let Some(open) = self.calls.get(&call) {
            return open.is_of_client();
        }
        let kept = self.kept_faults.iter().find(|kept| kept.leg == call);
        kept.is_some_and(|kept| self.open_legs(kept.group).any(Call::is_of_client))
    }

    /// Keeps `message` if it is the fault of a leg, which is a call of a `first` group. If
    /// `message` is a `thread-result` about a leg, drops the kept faults of this leg, because the
    /// `thread-result` reports them to the group's opener.
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
        let listener = self.call(leg).map(|call| call.callee.clone());
        let fault = Arc::clone(message);
        match self.kept_faults.iter_mut().find(|kept| kept.leg == leg) {
            Some(kept) => kept.faults.push(fault),
            None => {
                let faults = vec![fault];
                self.kept_faults.push(KeptFault { group, leg, listener, how: None, faults });
            }
        }
    }

    /// Records how `closed` ended, if `closed` is a call of a `first` group. Drops the kept faults
    /// of the group when no call of the group is open any more.
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
