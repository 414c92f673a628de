//! Allotments of spawned threads: what may be used in a thread and beneath it, and how long it may take;
//! and budgets of runs of workflows, for the threads that are bound to a run.
//!
//! Tokens and money are judged where those of the tree are. When the time of a thread is over, each call
//! that was opened in it, or beneath it, from another thread ends as timed out; it runs also while a
//! person decides.

use super::budgets::{used_up, within};
use super::event::{Alarm, Effect};
use super::{Core, Step};
use crate::clock::Time;
use crate::contract::{Budget, Contracts};
use crate::envelope::{Disposition, Reservation};
use crate::ids::{Attempt, CallId, ThreadId};
use crate::mutant::mutant;
use crate::system::{ErrorCode, ThreadAllotment};
use crate::thread::{Allotment, AllotmentUsage, Call, Input, Opener, Tree};

/// The recorded form of an allotment, if it limits anything.
pub(super) fn recorded(allotment: ThreadAllotment, now: Time) -> Option<Allotment> {
    let ThreadAllotment { tokens, money, timeout } = allotment;
    let until = timeout.map(|timeout| now.plus(timeout));
    let recorded = Allotment { tokens, money, until };
    (recorded != Allotment::default()).then_some(recorded)
}

/// The threads up from `thread` whose time is over, nearest first.
fn over(tree: &Tree, thread: &ThreadId, now: Time) -> impl Iterator<Item = ThreadId> {
    let is_over =
        move |allotted: &AllotmentUsage| allotted.limits.until.is_some_and(|until| until <= now);
    let over = tree.allotments(thread).filter(move |(_, allotted)| is_over(allotted));
    over.map(|(thread, _)| thread)
}

/// Which allotment of `thread`, or of a thread above it, is used up, if one is.
pub(super) fn used_up_for(tree: &Tree, thread: &ThreadId) -> Option<String> {
    tree.allotments(thread).find_map(|(thread, allotted)| {
        let used = used_up(budget_of(allotted.limits), allotted.spent)?;
        Some(format!("{used} of thread {thread} are used"))
    })
}

/// Why an allotment has no room for a request of a model call in `thread`, if one has none.
pub(super) fn room_for(
    tree: &Tree,
    thread: &ThreadId,
    (call, attempt): (CallId, Attempt),
    reservation: &Reservation,
) -> Result<(), String> {
    for (thread, allotted) in tree.allotments(thread) {
        let of_others = tree.reserved_in_beside(call, attempt, &thread);
        let spent = of_others.plus(allotted.spent);
        if !mutant("overdraw-an-allotment") {
            within(budget_of(allotted.limits), spent, reservation, &format!("thread {thread}"))?;
        }
    }

    Ok(())
}

/// Whether something limits the model calls in `thread` besides the limits of its tree.
pub(super) fn is_limited(contracts: &Contracts, tree: &Tree, thread: &ThreadId) -> bool {
    tree.allotments(thread).next().is_some()
        || runs_with_budget(contracts, tree, thread).next().is_some()
}

/// Which budget of a run of a workflow above `thread` is used up, if one is.
pub(super) fn used_up_by_run(
    contracts: &Contracts,
    tree: &Tree,
    thread: &ThreadId,
) -> Option<String> {
    runs_with_budget(contracts, tree, thread).find_map(|(run, budget)| {
        let used = used_up(budget, run.spent_bound)?;
        Some(format!("{used} of this run of {} are used", run.callee))
    })
}

/// Why the budget of a run of a workflow has no room for a request of a model call in `thread`, if one
/// has none.
pub(super) fn room_in_runs(
    contracts: &Contracts,
    tree: &Tree,
    thread: &ThreadId,
    (call, attempt): (CallId, Attempt),
    reservation: &Reservation,
) -> Result<(), String> {
    for (run, budget) in runs_with_budget(contracts, tree, thread) {
        let spent = tree.reserved_bound_beside(call, attempt, run.id).plus(run.spent_bound);
        if !mutant("overdraw-a-run") {
            within(budget, spent, reservation, &format!("this run of {}", run.callee))?;
        }
    }

    Ok(())
}

/// The runs of workflows with a budget above `thread`.
fn runs_with_budget<'a>(
    contracts: &'a Contracts,
    tree: &'a Tree,
    thread: &ThreadId,
) -> impl Iterator<Item = (&'a Call, Budget)> {
    tree.binding_calls(thread).filter_map(|run| {
        let contract = contracts.get(&run.callee)?;
        let is_limited = !contract.spends() && !contract.budget.is_open();
        is_limited.then_some((run, contract.budget))
    })
}

fn budget_of(limits: Allotment) -> Budget {
    Budget { tokens: limits.tokens, money: limits.money }
}

impl Core {
    /// Sets the alarms of all open calls whose threads have a time, after a boot.
    pub(super) fn set_thread_alarms(&self, step: &mut Step) {
        let calls = self.state.trees.values().flat_map(|tree| tree.calls.values());
        let mut alarms: Vec<_> =
            calls.filter_map(|call| Some((self.thread_ends(call)?, call.id))).collect();
        alarms.sort();
        for (at, call) in alarms {
            step.effect(Effect::Alarm { at, alarm: Alarm::ThreadTime { call } });
        }
    }

    /// Sets the alarm of a call that was just opened, if its thread has a time.
    pub(super) fn set_thread_alarm(&self, step: &mut Step, call: CallId) {
        let ends = self.state.call(call).and_then(|open| self.thread_ends(open));
        if let Some(at) = ends {
            step.effect(Effect::Alarm { at, alarm: Alarm::ThreadTime { call } });
        }
    }

    /// When the time of the call's thread is over. A call that was opened from its own thread ends with
    /// the call that opened it.
    fn thread_ends(&self, call: &Call) -> Option<Time> {
        let is_nested = matches!(&call.opening.opener,
            Opener::Call { thread, .. } if *thread == call.thread);
        if is_nested || call.thread.is_root() || mutant("forget-the-time-of-a-thread") {
            return None;
        }

        let tree = self.state.tree(&call.thread)?;
        tree.allotments(&call.thread).filter_map(|(_, allotted)| allotted.limits.until).min()
    }

    /// Ends every call that another thread opened in the thread whose time is over, or beneath it: the
    /// outermost first, so that the ids of the calls do not decide how each of them ends.
    pub(super) fn thread_time_alarm(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let Some(at) = self.thread_ends(open) else { return };
        if at > step.time {
            return step.effect(Effect::Alarm { at, alarm: Alarm::ThreadTime { call } });
        }

        let thread = open.thread.clone();
        let outermost = self.state.tree(&thread).and_then(|tree| {
            let over = over(tree, &thread, step.time);
            over.last()
        });
        step.records(thread.root(), Input::ThreadTime { call });
        let mut calls = self.to_cancel(&outermost.unwrap_or(thread));
        calls.reverse();
        self.close_all(step, &calls, |core, step, call| {
            let thread = core.state.call(call).map(|open| open.thread.clone());
            let text = thread.and_then(|thread| core.time_over(&thread, step.time));
            let text = text.unwrap_or_default();
            core.fail_with(step, call, ErrorCode::Timeout, &text, Disposition::Expired);
        });
    }

    /// Whether the time of any thread has not run out yet.
    pub(super) fn has_thread_time(&self) -> bool {
        let now = self.state.time;
        let threads = self.state.trees.values().flat_map(|tree| tree.threads.values());
        let mut times = threads.filter_map(|thread| thread.allotted.as_ref()?.limits.until);
        times.any(|until| until > now)
    }

    /// Why nothing more may be done in `thread`: its time is over, or that of a thread above it.
    pub(super) fn time_over(&self, thread: &ThreadId, now: Time) -> Option<String> {
        let tree = self.state.tree(thread)?;
        let nearest = over(tree, thread, now).next()?;
        Some(format!("the time of thread {nearest} is over"))
    }

    pub(super) fn is_time_over(&self, thread: &ThreadId, now: Time) -> bool {
        self.state.tree(thread).is_some_and(|tree| over(tree, thread, now).next().is_some())
    }
}
