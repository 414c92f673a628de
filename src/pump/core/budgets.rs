//! Budgets of trees and of the agents in them. A model call reserves its maximum cost before it is
//! made, so that concurrent calls cannot spend the same amount twice.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Core, Step, allotments};
use crate::contract::{Budget, TreeLimits};
use crate::envelope::{Money, Reservation, Spending};
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::system::CorePayload;
use crate::thread::{
    Call, Fact, Map, REQUEST_MONEY, REQUEST_TOKENS, Tree, WarningStatus, budget_name,
};

/// Text of the refusal of a message to a tree that has used all its messages.
pub(super) const NO_MESSAGE_LEFT: &str = "this thread has used all its messages";

/// Limits of every tree, and the calls in each tree that will still make model calls. Spent and
/// reserved amounts are part of the recorded state instead.
///
/// **Invariant:** `turns` contains each call to an agent that is in flight, queued or held, because
/// each such call will make a model call. The check of the budgets reads the size of this set
/// instead of counting the calls. A tree without such calls has no entry in `turns`.
#[derive(Debug, Clone)]
pub(super) struct Budgets {
    pub limits: TreeLimits,
    turns: Map<ThreadId, HashSet<CallId, foldhash::fast::RandomState>>,
}

impl Budgets {
    pub fn new(limits: TreeLimits) -> Self {
        Self { limits, turns: Map::default() }
    }

    /// Records that `call`, a call in the tree with the root `root`, will still make a model call.
    pub fn reserve_turn(&mut self, root: ThreadId, call: CallId) {
        self.turns.entry(root).or_default().insert(call);
    }

    pub fn release_turn(&mut self, root: &ThreadId, call: CallId) {
        let Some(calls) = self.turns.get_mut(root) else { return };
        calls.remove(&call);
        if calls.is_empty() {
            self.turns.remove(root);
        }
    }

    pub fn release_all_turns(&mut self) {
        self.turns.clear();
    }

    /// Whether a tree has used all its messages for the present request. Each held call counts as a
    /// used message, because it will be delivered or answered later. `uncounted` is the number of
    /// held calls that do not count: 1 during the approval of a held call, otherwise 0.
    pub fn has_no_message_left(&self, tree: &Tree, uncounted: u64) -> bool {
        let held = tree.held.saturating_sub(uncounted);
        tree.request_usage().messages.saturating_add(held) >= self.limits.messages
    }

    fn turns_reserved(&self, root: &ThreadId) -> u64 {
        self.turns.get(root).map_or(0, |calls| calls.len() as u64)
    }
}

impl Core {
    /// Updates whether `call` counts as a call that will still make model calls. It counts if it is
    /// in flight, queued or held, and its callee is an agent.
    pub(super) fn count_turn(&mut self, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        if !self.contract_of_call(open).is_some_and(|contract| contract.spends()) {
            return;
        }

        let root = open.thread.root();
        if self.will_take_turn(open) {
            self.budgets.reserve_turn(root, call)
        } else {
            self.budgets.release_turn(&root, call)
        }
    }

    fn will_take_turn(&self, call: &Call) -> bool {
        let contract = self.contract_of_call(call);
        let is_under_way = self.is_busy_with(call.id) || call.held.is_some();
        is_under_way && contract.is_some_and(|contract| contract.spends())
    }

    /// Returns the reason why `listener` cannot make a further model call in `thread`. Returns
    /// `None` if the budgets, and the limits of a fork, allow a further model call.
    pub(super) fn spent_for_model_call(
        &mut self,
        step: &mut Step,
        listener: &ListenerName,
        thread: &ThreadId,
    ) -> Option<String> {
        self.spent_for_agent(step, listener, thread).or_else(|| {
            self.contract_of_work(listener).filter(|contract| contract.spends())?;
            allotments::used_up_by_fork(self.state.tree(thread)?, thread)
        })
    }

    /// Returns the reason why the budgets forbid `listener` a further turn in `thread`. Returns
    /// `None` if they allow a further turn.
    ///
    /// The limits of a fork forbid no turn, because a turn whose answer is on record costs nothing.
    /// If a turn of a fork needs a model, the reservation of the model call checks these limits.
    pub(super) fn spent_for_agent(
        &mut self,
        step: &mut Step,
        listener: &ListenerName,
        thread: &ThreadId,
    ) -> Option<String> {
        let contract = self.contract_of_work(listener).filter(|contract| contract.spends())?;
        let contract = Arc::clone(contract);
        let tree = self.state.tree(thread)?;
        let usage = tree.usage;
        let request = tree.request_usage();
        let limits = &self.budgets.limits;
        let reserved = self.budgets.turns_reserved(&thread.root());
        debug_assert_eq!(
            reserved,
            tree.calls.values().filter(|call| self.will_take_turn(call)).count() as u64,
            "turns of {thread}"
        );
        if request.model_calls.saturating_add(reserved) >= limits.model_calls {
            let others = "calls that wait or run";
            return Some(model_calls_used(request.model_calls, limits.model_calls, others));
        }

        if self.is_tree_time_over(thread, step.time) {
            let most = limits.wall_time.as_secs_f64();
            return Some(format!("this tree's time of {most} s is over"));
        }

        let own = tree.by_agent.get(listener).copied().unwrap_or_default();
        let spent = |budget, used, whose: &str| Some(used_up(budget, used)? + whose);
        let of_listener = format!(" of {listener} in this tree are used");
        let of_allotments = allotments::used_up_for(tree, thread)
            .or_else(|| allotments::used_up_by_run(&self.contracts, tree, thread));
        if of_allotments.is_some() {
            return of_allotments;
        }

        spent(limits.budget(), usage.spending(), " of this tree are used")
            .or_else(|| {
                let of_request = " of this request are used";
                spent(limits.request_budget(), request.spending(), of_request)
            })
            .or_else(|| spent(contract.budget, own, &of_listener))
    }

    /// Checks that the next request of a model call fits into the budgets.
    ///
    /// # Errors
    ///
    /// Returns a description of the budget that has no room.
    pub(super) fn room_for(
        &self,
        call: CallId,
        attempt: Attempt,
        reservation: &Reservation,
    ) -> Result<(), String> {
        let running = self.calls.running(call).filter(|running| running.attempt == attempt);
        let running = running.ok_or("the call this would be for is closed")?;
        let tree = self.state.tree(&running.thread).ok_or("its thread is gone")?;
        let open = self.state.call(call).ok_or("the call this would be for is closed")?;
        let contract = self.contract_of_call(open).ok_or("its listener is gone")?;
        let agent = &running.listener;
        let (of_others, of_agents_others) = tree.reserved_beside(call, attempt, agent);
        let of_all = of_others.plus(tree.usage.spending());
        let of_request = of_others.plus(tree.request_usage().spending());
        let own = tree.by_agent.get(agent).copied().unwrap_or_default();
        let of_own = of_agents_others.plus(own);
        if mutant("skip-the-reservation") {
            return Ok(());
        }

        // The check also applies to a repeated attempt at the same turn, because the failed attempt
        // was a model call, too. Model calls under way count, because attempts that are repeated
        // after a restart or a failure were queued without a check of this limit.
        let under_way = match tree.model_calls_beside(call, attempt) {
            _ if mutant("count-no-call-under-way") => 0,
            under_way => under_way,
        };
        let made = tree.request_usage().model_calls;
        let most = self.budgets.limits.model_calls;
        if made.saturating_add(under_way) >= most {
            return Err(model_calls_used(made, most, "calls under way"));
        }

        within(self.budgets.limits.budget(), of_all, reservation, "this tree")?;
        within(self.budgets.limits.request_budget(), of_request, reservation, "this request")?;
        within(contract.budget, of_own, reservation, agent.as_str())?;
        let own = (call, attempt);
        allotments::room_for(tree, &running.thread, own, reservation)?;
        allotments::room_in_runs(&self.contracts, tree, &running.thread, own, reservation)
    }

    /// Warns of each budget in the tree of the step of which four fifths are used, once for each
    /// limit. The first step whose end finds this records the warning, which raises an alert. One
    /// call to an agent gets the warning, if a call is open and waits for no person: the call whose
    /// outcome or failed attempt the step records, or else the earliest call. Of an agent's own
    /// budget, only calls of this agent are warned. If there is no such call, the warning is
    /// recorded as unsent, and the next such call that is opened or released gets it.
    ///
    /// Allocates nothing while no warning is due.
    pub(super) fn warn_at_end_of_step(&mut self, step: &mut Step) {
        let Some((root, _)) = &step.record else { return };
        // No limit applies to the tree of the organism itself.
        if root.as_str() == ThreadId::ORGANISM {
            return;
        }

        let Some(tree) = self.state.tree(root) else { return };
        let budgets = self.budgets_in_use(tree).filter(BudgetUse::is_nearly_spent);
        let due = budgets.filter_map(|budget| self.due_warning(tree, &step.facts, &budget));
        let due: Vec<_> = due.collect();
        for (fact, message) in due {
            self.fact(step, fact);
            if let Some((receiver, warning)) = message {
                self.send_core_payload(step, receiver, None, &warning);
            }
        }
    }

    /// Returns the fact that records a due warning of a nearly used budget, and the message to the
    /// call that gets the warning. Returns `None` if no warning is due.
    fn due_warning(
        &self,
        tree: &Tree,
        facts: &[Fact],
        budget: &BudgetUse<'_>,
    ) -> Option<(Fact, Option<(CallId, CorePayload)>)> {
        let recorded = tree.warning_status(budget.budget, budget.agent, budget.limit);
        if recorded.is_some_and(|status| status != WarningStatus::Unsent) {
            return None;
        }
        // Only a call that is opened or released can be the first receiver of an unsent warning.
        if recorded.is_some() && !facts.iter().any(starts_call) {
            return None;
        }

        let receiver = self.call_to_warn(tree, facts, budget);
        let status = match receiver {
            Some(_) if recorded.is_some() => WarningStatus::SentLater,
            Some(_) => WarningStatus::Sent,
            None if recorded.is_some() => return None,
            None => WarningStatus::Unsent,
        };
        let name = budget_name(budget.budget, budget.agent);
        let fact = Fact::Warned { budget: name, limit: Some(budget.limit), status };
        Some((fact, receiver.map(|call| (call, budget.warning()))))
    }

    /// Returns the use of each budget of a tree and of the agents in it.
    fn budgets_in_use<'t>(&'t self, tree: &'t Tree) -> impl Iterator<Item = BudgetUse<'t>> {
        let request = tree.request_usage();
        let limits = &self.budgets.limits;
        let counts = [
            BudgetUse::plain("messages", request.messages, limits.messages),
            BudgetUse::plain("model-calls", request.model_calls, limits.model_calls),
        ];
        let of_tree = BudgetUse::of_budget(None, limits.budget(), tree.usage.spending());
        let of_request = BudgetUse::of_request(limits.request_budget(), request.spending());
        let of_agents = tree.by_agent.iter().flat_map(move |(agent, used)| {
            let budget = self.contract_of_work(agent).map(|contract| contract.budget);
            BudgetUse::of_budget(Some(agent), budget.unwrap_or_default(), *used)
        });
        counts.into_iter().chain(of_tree).chain(of_request).chain(of_agents)
    }

    /// Returns the call that gets the warning of a budget, as [`Core::warn_at_end_of_step`] states.
    /// `facts` are the facts of the step.
    fn call_to_warn(&self, tree: &Tree, facts: &[Fact], budget: &BudgetUse<'_>) -> Option<CallId> {
        let is_receiver = |call: &&Call| {
            let contract = self.contract_of_call(call);
            call.held.is_none()
                && contract.is_some_and(|contract| contract.spends())
                && budget.agent.is_none_or(|agent| call.callee == *agent)
        };
        let mut ended = facts.iter().filter_map(ended_attempt).filter_map(|call| tree.call(call));
        let ended = ended.find(is_receiver).map(|call| call.id);

        // The ids of calls do not matter, because a fork has other ids than its source.
        let earliest = || {
            let open = tree.open_calls().filter(is_receiver);
            let open = open.filter_map(|call| Some((call.request()?, call)));
            let open = open.map(|(first, call)| ((first.time, &call.thread, first.seq), call.id));
            open.min().map(|(_, call)| call)
        };
        ended.or_else(earliest)
    }
}

/// Whether the fact opens a call, or releases a held one.
fn starts_call(fact: &Fact) -> bool {
    matches!(fact, Fact::Accepted { opening: Some(_), .. } | Fact::Released { .. })
}

/// Returns the call of an attempt that ended, or of an earlier attempt that is charged.
fn ended_attempt(fact: &Fact) -> Option<CallId> {
    match fact {
        Fact::OutcomeReceived { call, .. }
        | Fact::AttemptFailed { call, .. }
        | Fact::Charged { call, .. } => Some(*call),
        _ => None,
    }
}

/// The used amount and the limit of one budget.
struct BudgetUse<'a> {
    budget: &'static str,
    /// The agent whose budget this is, or `None` for the budget of the tree.
    agent: Option<&'a ListenerName>,
    used: u64,
    limit: u64,
    /// Whether the values are amounts of money, in billionths of the currency's unit, instead of
    /// counts.
    is_money: bool,
}

impl<'a> BudgetUse<'a> {
    fn plain(budget: &'static str, used: u64, limit: u64) -> Self {
        Self { budget, agent: None, used, limit, is_money: false }
    }

    fn of_budget(
        agent: Option<&'a ListenerName>,
        budget: Budget,
        used: Spending,
    ) -> impl Iterator<Item = Self> {
        let gauge = |budget, used, limit, is_money| Self { budget, agent, used, limit, is_money };

        let tokens = budget.tokens.map(|limit| gauge("tokens", used.tokens, limit, false));
        let money = budget.money.map(|limit| gauge("money", used.money.0, limit.0, true));
        tokens.into_iter().chain(money)
    }

    fn of_request(budget: Budget, used: Spending) -> impl Iterator<Item = Self> {
        Self::of_budget(None, budget, used).map(|gauge| {
            let budget = if gauge.is_money { REQUEST_MONEY } else { REQUEST_TOKENS };
            Self { budget, ..gauge }
        })
    }

    fn is_nearly_spent(&self) -> bool {
        // Amounts of money are in billionths, so these products need more than 64 bits.
        let mark = u128::from(self.limit) * u128::from(limits::BUDGET_WARNING_PERCENT);
        self.limit > 0 && u128::from(self.used) * 100 >= mark
    }

    fn warning(&self) -> CorePayload {
        let shown = |amount: u64| {
            if self.is_money { Money(amount).to_string() } else { amount.to_string() }
        };

        let used = shown(self.used);
        let limit = shown(self.limit);
        let budget = self.budget.to_owned();
        let of = self.agent.cloned();
        CorePayload::BudgetWarning { budget, of, used, limit }
    }
}

/// Returns the reason why a tree gets no further model call: `used` calls of `limit` are made, and
/// the others are reserved for `others`.
fn model_calls_used(used: u64, limit: u64, others: &str) -> String {
    if used >= limit {
        return format!("all {limit} model calls of this tree are used");
    }

    format!(
        "{used} of the {limit} model calls of this tree are used, and {others} will use the others"
    )
}

/// Returns a description of the used-up part of a budget: its tokens or its money. Returns `None`
/// if both have room.
pub(super) fn used_up(budget: Budget, used: Spending) -> Option<String> {
    match budget {
        Budget { tokens: Some(limit), .. } if used.tokens >= limit => {
            Some(format!("all {limit} tokens"))
        }
        // A model call without cost is allowed even if no money is left.
        Budget { money: Some(limit), .. } if used.money > limit => {
            Some(format!("all {limit} of the money"))
        }
        _ => None,
    }
}

/// Checks that a reservation fits into a budget. `spent` includes earlier reservations. If the
/// tokens of the reservation are only estimated, the reservation is several times too high. In this
/// case, `spent` and the reservation together must fit into half of the budget, so that the other
/// half remains for other calls.
pub(super) fn within(
    budget: Budget,
    spent: Spending,
    reservation: &Reservation,
    whose: &str,
) -> Result<(), String> {
    let spending = reservation.spending;
    let counted = reservation.counted;
    let after = spent.plus(spending);
    let most = |limit: u64| if counted { limit } else { limit / 2 };
    if let Some(limit) = budget.tokens.filter(|limit| after.tokens > most(*limit)) {
        let requested = spending.tokens;
        let left = limit.saturating_sub(spent.tokens);
        return Err(format!(
            "the next model call may take {requested} tokens, and {left} of the {limit} of {whose} \
             are left"
        ));
    }

    if let Some(limit) = budget.money.filter(|limit| after.money.0 > most(limit.0)) {
        let requested = spending.money;
        let left = Money(limit.0.saturating_sub(spent.money.0));
        return Err(format!(
            "the next model call may cost {requested}, and {left} of the {limit} of {whose} is left"
        ));
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;

    fn call(n: u128) -> CallId {
        CallId(MessageId(Uuid::from_u128(n)))
    }

    #[test]
    fn a_large_budget_of_money_is_nearly_spent_at_four_fifths() {
        let limit = Money::of_units(400_000_000.0).0;
        let gauge = |used| BudgetUse { is_money: true, ..BudgetUse::plain("money", used, limit) };
        assert!(!gauge(limit / 2).is_nearly_spent());
        assert!(!gauge(limit / 5 * 4 - 1).is_nearly_spent());
        assert!(gauge(limit / 5 * 4).is_nearly_spent());
        assert!(BudgetUse::plain("money", u64::MAX, u64::MAX).is_nearly_spent());
    }

    #[test]
    fn a_call_reserves_one_turn_of_its_own_tree_however_often_it_is_counted() {
        let root = |text: &str| ThreadId::parse(text).unwrap();
        let one = root("sess-aaaaaaaa");
        let other = root("sess-bbbbbbbb");
        let mut budgets = Budgets::new(TreeLimits::default());
        for n in [1, 2, 2, 1] {
            budgets.reserve_turn(one.clone(), call(n));
        }

        budgets.reserve_turn(other.clone(), call(3));
        assert_eq!(budgets.turns_reserved(&one), 2);

        budgets.release_turn(&one, call(1));
        budgets.release_turn(&one, call(1));
        assert_eq!(budgets.turns_reserved(&one), 1);
        assert_eq!(budgets.turns_reserved(&other), 1);
    }

    #[test]
    fn a_tree_without_turns_takes_no_memory() {
        let root = ThreadId::parse("sess-aaaaaaaa").unwrap();
        let mut budgets = Budgets::new(TreeLimits::default());
        budgets.reserve_turn(root.clone(), call(1));
        budgets.release_turn(&root, call(1));
        assert!(budgets.turns.is_empty());
    }
}
