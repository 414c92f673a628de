//! Allotments of spawned threads, and budgets of workflow runs. An allotment limits the tokens, the
//! money and the time of a thread and its subthreads. The budget of a run limits the threads that
//! belong to the run. Tokens and money are checked together with the limits of the tree.
//!
//! When the time limit of a thread has passed, the open calls in the thread and in its subthreads
//! time out. Exception: a call that another call in the same thread opened ends with that other
//! call. The time limit of a thread also runs while a call is held for a person.

use super::budgets::{used_up, within};
use super::event::{Alarm, Effect};
use super::{Core, Step};
use crate::clock::Time;
use crate::contract::{Budget, Contracts};
use crate::envelope::{Disposition, Reservation};
use crate::ids::{Attempt, CallId, ThreadId};
use crate::mutant::mutant;
use crate::system::{ErrorCode, ThreadAllotment};
use crate::thread::{Allotment, AllotmentUsage, Call, Input, Map, Opener, Tree};

/// The earliest alarm that is set for each open call that the time limit of a thread will end.
/// Rebuilt after every boot, never recorded.
///
/// An alarm that fires too early is set again for the right time. So a call with an alarm needs no
/// further one for the same time or a later one.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadTimeAlarms(Map<CallId, Time>);

impl ThreadTimeAlarms {
    /// Records an alarm at `at`. Returns false, and records nothing, if the call has an alarm that
    /// fires at this time or earlier.
    fn insert(&mut self, call: CallId, at: Time) -> bool {
        if self.0.get(&call).is_some_and(|set| *set <= at) {
            return false;
        }
        self.0.insert(call, at);
        true
    }

    /// Removes the entry of a call, because its alarm is handled or the call has closed. An alarm
    /// that is still queued then has no effect unless it is due.
    pub fn remove(&mut self, call: CallId) {
        self.0.remove(&call);
    }
}

/// Converts an allotment to its recorded form. Returns `None` if the allotment limits nothing.
pub(super) fn recorded(allotment: ThreadAllotment, now: Time) -> Option<Allotment> {
    let ThreadAllotment { tokens, money, timeout } = allotment;
    let until = timeout.map(|timeout| now.plus(timeout));
    let recorded = Allotment { tokens, money, until };
    (recorded != Allotment::default()).then_some(recorded)
}

/// Searches upwards from `thread`, and returns each thread whose time limit has passed at `now`.
fn over(tree: &Tree, thread: &ThreadId, now: Time) -> impl Iterator<Item = ThreadId> {
    let over = tree.allotments(thread).filter(move |(_, allotted)| allotted.is_over(now));
    over.map(|(thread, _)| thread)
}

/// Whether the time limit of `thread`, or of a thread above it, has passed at `now`.
pub(super) fn is_time_over(tree: &Tree, thread: &ThreadId, now: Time) -> bool {
    over(tree, thread, now).next().is_some()
}

/// Looks for a used-up allotment of a spawned thread, first in `thread` and then in the threads
/// above it. Returns a description of the first used-up allotment. Returns `None` if every
/// allotment has room.
pub(super) fn used_up_for(tree: &Tree, thread: &ThreadId) -> Option<String> {
    used_up_among(tree.allotments(thread).filter(|(thread, _)| !thread.is_root()))
}

/// Checks whether the fork that contains `thread` has used up its limits. These limits are the
/// allotment of the fork's root thread. Returns a description of the used-up limits. Returns `None`
/// if the limits have room, or if the tree is no fork with limits.
pub(super) fn used_up_by_fork(tree: &Tree, thread: &ThreadId) -> Option<String> {
    used_up_among(tree.allotments(thread).filter(|(thread, _)| thread.is_root()))
}

fn used_up_among<'a>(
    mut allotments: impl Iterator<Item = (ThreadId, &'a AllotmentUsage)>,
) -> Option<String> {
    allotments.find_map(|(thread, allotted)| {
        let used = used_up(budget_of(allotted.limits), allotted.spent)?;
        Some(format!("{used} of thread {thread} are used"))
    })
}

/// Checks that the reservation of a model call in `thread` fits into the allotments of the thread
/// and of the threads above it.
///
/// # Errors
///
/// Returns a description of the allotment that has no room.
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

/// Returns a description of the first used-up budget among the workflow runs that `thread` belongs
/// to. Returns `None` if every budget has room.
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

/// Checks that the reservation of a model call in `thread` fits into the budgets of the workflow
/// runs that the thread belongs to.
///
/// # Errors
///
/// Returns a description of the budget that has no room.
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

/// Returns the workflow runs that `thread` belongs to, each with its budget. Leaves out the runs
/// whose budget has no limit.
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
    /// Sets alarms for the open calls in the trees with these `roots`. A call gets an alarm only if
    /// a time limit will end it: the limit of its thread, or of a thread above.
    ///
    /// No alarm is due before this step. So after a boot, the lost attempts of an earlier pump end
    /// first, by the order of the variants of [`Alarm`](super::event::Alarm): the outcome of a lost
    /// attempt is unknown, and it is no time-out.
    pub(super) fn set_thread_alarms(&mut self, step: &mut Step, roots: &[ThreadId]) {
        let now = step.time;
        let calls = self.state.open_calls_in(roots);
        let mut alarms: Vec<_> =
            calls.filter_map(|call| Some((self.thread_ends(call)?.max(now), call.id))).collect();
        alarms.sort();
        for (at, call) in alarms {
            self.set_thread_alarm_at(step, call, at);
        }
    }

    /// Sets an alarm for a newly opened call if the time limit of its thread, or of a thread above,
    /// will end the call.
    pub(super) fn set_thread_alarm(&mut self, step: &mut Step, call: CallId) {
        let ends = self.state.call(call).and_then(|open| self.thread_ends(open));
        if let Some(at) = ends {
            self.set_thread_alarm_at(step, call, at);
        }
    }

    /// Sets an alarm for the time limit of a call, unless an alarm fires then or earlier.
    fn set_thread_alarm_at(&mut self, step: &mut Step, call: CallId, at: Time) {
        if self.thread_alarms.insert(call, at) {
            step.effect(Effect::Alarm { at, alarm: Alarm::ThreadTime { call } });
        }
    }

    /// Returns the time at which `call` times out because its thread, or a thread above its thread,
    /// reaches its time limit. Returns `None` in two cases:
    ///
    /// - None of these threads has a running time limit.
    /// - Another call in the same thread opened `call`, so `call` ends together with its opener.
    fn thread_ends(&self, call: &Call) -> Option<Time> {
        let is_nested = matches!(&call.opening.opener,
            Opener::Call { thread, .. } if *thread == call.thread);
        if is_nested || call.thread.is_root() || mutant("forget-the-time-of-a-thread") {
            return None;
        }

        self.state.tree(&call.thread)?.time_limit(&call.thread)
    }

    /// Handles [`Alarm::ThreadTime`]. Finds the outermost thread whose time limit has passed, among
    /// the call's thread and the threads above it. The open calls in that thread time out, and then
    /// those in its subthreads. A call that another call in the same thread opened ends together
    /// with its opener.
    ///
    /// If the call's tree has used up its wall time, ends all open calls of the tree instead.
    pub(super) fn thread_time_alarm(&mut self, step: &mut Step, call: CallId) {
        self.thread_alarms.remove(call);
        if self.end_spent_tree(step, call) {
            return;
        }

        let Some(open) = self.state.call(call) else { return };
        let Some(at) = self.thread_ends(open) else { return };
        if at > step.time {
            return self.set_thread_alarm_at(step, call, at);
        }

        let thread = open.thread.clone();
        let outermost = self.state.tree(&thread).and_then(|tree| {
            let over = over(tree, &thread, step.time);
            over.last()
        });
        step.begin_record(thread.root(), Input::ThreadTime { call });
        let mut calls = self.to_cancel(&outermost.unwrap_or(thread));
        calls.reverse();
        self.close_all(step, &calls, |core, step, call| {
            let thread = core.state.call(call).map(|open| open.thread.clone());
            let text = thread.and_then(|thread| core.time_over(&thread, step.time));
            let text = text.unwrap_or_default();
            core.fail_with(step, call, ErrorCode::Timeout, &text, Disposition::Expired);
        });
    }

    /// Whether any thread has a time limit that is not reached yet.
    pub(super) fn has_thread_time(&self) -> bool {
        let now = self.state.time;
        let threads = self.state.trees.values().flat_map(|tree| tree.threads.values());
        let mut times = threads.filter_map(|thread| thread.allotted.as_ref()?.limits.until);
        times.any(|until| until > now)
    }

    /// Returns the reason why nothing may start in `thread`: at `now`, the time limit of `thread`
    /// or of a thread above it has passed. Returns `None` if no such time limit has passed.
    pub(super) fn time_over(&self, thread: &ThreadId, now: Time) -> Option<String> {
        let tree = self.state.tree(thread)?;
        let nearest = over(tree, thread, now).next()?;
        Some(format!("the time of thread {nearest} is over"))
    }

    pub(super) fn is_time_over(&self, thread: &ThreadId, now: Time) -> bool {
        self.state.tree(thread).is_some_and(|tree| is_time_over(tree, thread, now))
    }
}
