//! Accounting of model calls: reservations in the budgets of a thread tree, and actual use.

use super::Fact;
use super::reservations::ModelReservation;
use super::state::Tree;
use crate::envelope::Spending;
use crate::ids::{CallId, ListenerName, ThreadId};

impl Tree {
    /// Applies the fact if it is about reservations or about the use of model calls.
    pub(super) fn account(&mut self, fact: &Fact) {
        match fact {
            Fact::Reserved { call, attempt, agent, spending, request, route, thread } => {
                // A budget may come with a later config, so each reservation keeps its thread.
                let open = self.calls.get(call).map(|open| open.thread.clone());
                self.reserve(ModelReservation {
                    call: *call,
                    attempt: *attempt,
                    agent: agent.clone(),
                    spending: *spending,
                    request: *request,
                    thread: open.or_else(|| thread.clone()),
                });

                if let Some(route) = route {
                    self.count_request(*call, route);
                }
            }
            Fact::Charged { call, attempt, agent, spending } => {
                let reserved = self.release_reservation(*call, *attempt);
                let thread = reserved.and_then(|reserved| reserved.thread);
                self.spend(thread.as_ref(), Some(agent), *spending);
            }
            Fact::Used { call, agent, tokens_in, tokens_out, money, attempt } => {
                let reserved = attempt.and_then(|attempt| self.release_reservation(*call, attempt));
                let thread = reserved.and_then(|reserved| reserved.thread);
                let tokens = tokens_in.saturating_add(*tokens_out);
                self.record_use(*call, thread, agent.as_ref(), Spending { tokens, money: *money });
            }
            _ => {}
        }
    }

    /// Records the tokens and money that a model turn used. If `call` is open, they count for the
    /// thread of the call. If `call` is already closed, they count for `reserved_in`, the thread of
    /// the reservation.
    fn record_use(
        &mut self,
        call: CallId,
        reserved_in: Option<ThreadId>,
        agent: Option<&ListenerName>,
        spent: Spending,
    ) {
        let open = self.calls.get(&call);
        let shown = open.map(|call| (call.thread.clone(), call.callee.clone()));
        let thread = shown.as_ref().map(|(thread, _)| thread).or(reserved_in.as_ref());
        self.spend(thread, agent, spent);
        if let Some((thread, agent)) = shown {
            self.count_shown(&thread, &agent);
        }
    }

    fn count_request(&mut self, call: CallId, route: &str) {
        let Some(call) = self.calls.get_mut(&call) else { return };
        match call.requests.iter_mut().find(|(known, _)| known == route) {
            Some((_, count)) => *count += 1,
            None => call.requests.push((route.to_owned(), 1)),
        }
    }

    /// Adds the use of a model call to the totals of the tree and of the agent, and to the
    /// allotments of `thread` and the threads above it.
    pub(super) fn spend(
        &mut self,
        thread: Option<&ThreadId>,
        agent: Option<&ListenerName>,
        spent: Spending,
    ) {
        if let Some(thread) = thread {
            self.spend_allotments(thread, spent);
        }

        let all = self.usage.spending().plus(spent);
        self.usage.model_calls += 1;
        self.usage.tokens = all.tokens;
        self.usage.money = all.money;
        if let Some(agent) = agent {
            let own = self.by_agent.of(agent);
            *own = own.plus(spent);
        }
    }
}
