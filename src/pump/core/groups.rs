//! How the legs of a `first` group end: a reply cancels the other legs, and faults are given only when
//! every leg has failed.

use super::close::{CallResult, Closed, thread_result};
use super::{Core, Step};
use crate::contract::Gather;
use crate::envelope::{Disposition, Kind};
use crate::ids::CallId;
use crate::thread::{Closing, KeptFault, Opener};

impl Core {
    /// Adds a leg's result to its group. In a `first` group, a reply drops the other legs and the
    /// faults kept so far.
    pub(super) fn settle_group(
        &mut self,
        step: &mut Step,
        closed: &Closed,
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

    /// Settles a leg of a `first` group in another thread. A reply cancels the other legs. A fault
    /// is kept while another leg may still reply; the last fault delivers the kept ones, too.
    /// Returns whether this result is kept.
    pub(super) fn settle_away(
        &mut self,
        step: &mut Step,
        closed: &Closed,
        opener: CallId,
        result: &CallResult,
    ) -> bool {
        let Some((group, Gather::First)) = closed.opening.group else { return false };
        let Some(tree) = self.state.tree(&closed.thread) else { return false };
        let mut others: Vec<_> = tree.open_legs(group).filter(|leg| *leg != closed.id).collect();
        others.sort_unstable();

        // Where nobody waits any more, each leg runs on.
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

    /// Delivers the faults of legs that ended before this one.
    fn give_kept_faults(&mut self, step: &mut Step, closed: &Closed, group: CallId) {
        let Opener::Call { name, call, thread } = &closed.opening.opener else { return };
        let Some(tree) = self.state.tree(&closed.thread) else { return };
        let is_earlier = |kept: &&KeptFault| kept.group == group && kept.leg != closed.id;
        let kept: Vec<_> = tree.kept_faults.iter().filter(is_earlier).cloned().collect();

        for KeptFault { leg, how, fault, .. } in kept {
            let leg = Closed { id: leg, ..closed.clone() };
            let payloads = vec![(fault.kind, fault.name.clone(), fault.payload.clone())];
            let how = how.unwrap_or(Closing::Failed);
            let result = CallResult { how, unheard: Disposition::Late, payloads };
            self.thread_result(step, &leg, name, *call, thread, &thread_result(&leg, &result));
        }
    }

    /// Drops faults of other legs at the action that has got its reply.
    fn drop_faults(&mut self, step: &mut Step, opener: CallId, closed: &Closed) {
        let Some(open) = self.state.call(opener) else { return };
        let won = open.pending.iter().find(|p| p.message.cause == Some(closed.id.0));
        let Some(action) = won.map(|p| p.slot.action) else { return };
        let faults = open.pending.iter().filter(|pending| {
            pending.slot.action == action
                && pending.message.kind == Kind::System
                && pending.message.cause != Some(closed.id.0)
        });
        let faults: Vec<_> = faults.map(|pending| pending.message.id).collect();
        for fault in faults {
            self.dispose(step, fault, Disposition::Cancelled);
        }
    }
}
