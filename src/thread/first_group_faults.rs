//! Faults of `first` groups whose opener is a client or waits in another thread. A fault is kept
//! while another leg may still reply. The opener receives all faults when every leg has failed.

use std::sync::Arc;

use super::state::{KeptFault, Tree};
use super::{Call, Closing, Opener};
use crate::contract::Gather;
use crate::envelope::{Message, MessageKind};
use crate::ids::CallId;

impl Call {
    /// Returns the `first` group that keeps the fault of this leg. Returns `None` if the opener
    /// waits in the leg's own thread, because then the opener's call keeps the fault.
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
    /// Returns the open legs of a group, in no particular order.
    pub fn open_legs(&self, group: CallId) -> impl Iterator<Item = &Call> {
        self.open_calls().filter(move |call| call.fault_group() == Some(group))
    }

    /// Whether a client still waits for the result of this call: the call is open, or its fault is
    /// kept.
    pub fn owes_client(&self, call: CallId) -> bool {
        if let Some(open) = self.calls.get(&call) {
            return open.is_of_client();
        }
        let kept = self.kept_faults.iter().find(|kept| kept.leg == call);
        kept.is_some_and(|kept| self.open_legs(kept.group).any(Call::is_of_client))
    }

    /// Keeps the fault of a leg until the opener receives it.
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

    /// Records the end of a leg. When no leg of the group is open, drops the group's kept faults.
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
