//! Groups: calls to several peers at once. Each of the calls is a leg of the group. This module
//! handles the ends of the legs of a `first` group. In such a group, the first reply cancels the
//! other legs. Faults of legs are delivered only when every leg has failed.

use std::sync::Arc;

use super::close::{CallResult, ClosingCall, thread_result};
use super::event::Effect;
use super::{Core, Step};
use crate::contract::Gather;
use crate::envelope::{Disposition, Message, MessageKind};
use crate::ids::CallId;
use crate::mutant::mutant;
use crate::thread::{Closing, KeptFault, Opener};

impl Core {
    /// Processes the end of a call that ran in the thread of its opener. If the call is a leg of a
    /// `first` group and has replied, cancels the group's other legs and discards their faults.
    pub(super) fn settle_group(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        opener: CallId,
        result: &CallResult,
    ) {
        let Some((group, Gather::First)) = closed.opening.group else { return };
        if !result.has_reply() {
            return;
        }

        let Some(open) = self.state.call(opener) else { return };
        let Some(awaited) = open.awaiting.iter().find(|a| a.group == group) else {
            return self.drop_faults(step, opener, closed);
        };

        let rest: Vec<_> = awaited.open.iter().map(|(leg, _)| *leg).collect();
        for leg in rest {
            self.drop_call(step, leg);
        }

        self.drop_faults(step, opener, closed);
    }

    /// Processes the end of a call that ran in another thread than its opener. Returns true if the
    /// fault of the ended call must not be delivered yet. If the call is not a leg of a `first`
    /// group, does nothing and returns false. In a `first` group, only the first reply counts. For
    /// a leg of a `first` group whose opener is open:
    ///
    /// - If this leg replied, cancels the other legs, and returns false.
    /// - If this leg failed and other legs are open, returns true.
    /// - If all legs failed, delivers the faults of the other legs, and returns false.
    pub(super) fn settle_remote_leg(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        opener: CallId,
        result: &CallResult,
    ) -> bool {
        let Some((group, Gather::First)) = closed.opening.group else { return false };
        let others = self.other_legs(closed, group);

        // If the opener of the group is closed, every leg continues to its own end.
        let is_awaited = self.state.call(opener).is_some();
        if result.has_reply() {
            for leg in others.into_iter().filter(|_| is_awaited) {
                self.drop_call(step, leg);
            }
            return false;
        }

        if is_awaited && !others.is_empty() {
            return true;
        }

        self.give_kept_faults(step, closed, group);
        false
    }

    /// Returns the open legs of a group except `closed`, ordered by id. The legs are the calls of
    /// the group: all have the same request, and each goes to a different listener.
    fn other_legs(&self, closed: &ClosingCall, group: CallId) -> Vec<CallId> {
        let tree = self.state.tree(&closed.thread);
        let legs = tree.into_iter().flat_map(|tree| tree.open_legs(group)).map(|leg| leg.id);
        let mut others: Vec<_> = legs.filter(|leg| *leg != closed.id).collect();
        others.sort_unstable();
        others
    }

    /// Returns the faults of the legs that ended before `closed`, in the order in which the legs
    /// ended. The legs are the calls of the group. The pump keeps their faults until one leg
    /// replies or all have failed.
    fn earlier_faults(&self, closed: &ClosingCall, group: CallId) -> Vec<KeptFault> {
        let tree = self.state.tree(&closed.thread);
        let kept = tree.into_iter().flat_map(|tree| tree.kept_faults.iter());
        kept.filter(|kept| kept.group == group && kept.leg != closed.id).cloned().collect()
    }

    /// Reports the result of a call to its client. If the call belongs to a `first` group, only the
    /// first reply in the group counts:
    ///
    /// - While all ended calls of the group have failed and another one is open, does nothing.
    /// - As soon as a call has replied, or all have failed, reports the completion of every call of
    ///   the group, and cancels the calls that are still open. If a call has replied, only the
    ///   completion of this call contains messages.
    pub(super) fn complete_for_client(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        result: &CallResult,
        messages: Vec<Arc<Message>>,
    ) {
        let own = Effect::Result { call: closed.id, how: result.how, messages };
        let Some((group, Gather::First)) = closed.opening.group else { return step.effect(own) };
        let others = self.other_legs(closed, group);
        let is_won = result.has_reply();
        if !is_won && !others.is_empty() {
            return;
        }

        for KeptFault { leg, how, faults, .. } in self.earlier_faults(closed, group) {
            let is_void = is_won && !mutant("give-faults-beside-a-reply");
            let messages = if is_void { Vec::new() } else { faults };
            let how = how.unwrap_or(Closing::Failed);
            step.effect(Effect::Result { call: leg, how, messages });
        }

        step.effect(own);

        for leg in others {
            self.drop_call(step, leg);
            let how = Closing::Cancelled;
            let messages = Vec::new();
            step.effect(Effect::Result { call: leg, how, messages });
        }
    }

    /// Delivers kept faults to the opener of a group: the faults with which other calls of this
    /// group ended before `closed`.
    fn give_kept_faults(&mut self, step: &mut Step, closed: &ClosingCall, group: CallId) {
        let Opener::Call { name, call, thread } = &closed.opening.opener else { return };
        for KeptFault { leg, listener, how, faults, .. } in self.earlier_faults(closed, group) {
            let mut leg = ClosingCall { id: leg, ..closed.clone() };
            match listener {
                Some(listener) => leg.callee = listener,
                // A fault of an earlier program, which did not keep the listener. Without a group,
                // the result names no listener.
                None => leg.opening.group = None,
            }
            let part =
                |fault: &Arc<Message>| (fault.kind, fault.name.clone(), fault.payload.clone());
            let payloads = faults.iter().map(part).collect();
            let how = how.unwrap_or(Closing::Failed);
            let result = CallResult { how, undelivered: Disposition::Late, payloads };
            self.thread_result(step, &leg, name, *call, thread, &thread_result(&leg, &result));
        }
    }

    /// Discards the faults of the other calls of a group, because the call `closed` has replied.
    fn drop_faults(&mut self, step: &mut Step, opener: CallId, closed: &ClosingCall) {
        let Some(open) = self.state.call(opener) else { return };
        let won = open.pending.iter().find(|p| p.message.cause == Some(closed.id.0));
        let Some(action) = won.map(|p| p.slot.action) else { return };
        let faults = open.pending.iter().filter(|pending| {
            pending.slot.action == action
                && pending.message.kind == MessageKind::System
                && pending.message.cause != Some(closed.id.0)
        });
        let faults: Vec<_> = faults.map(|pending| pending.message.id).collect();
        for fault in faults {
            self.dispose(step, fault, Disposition::Cancelled);
        }
    }
}
