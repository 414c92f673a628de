//! Accounting of model calls: reservations in the budgets of a thread tree, and actual use.

use super::Fact;
use super::reservations::ModelReservation;
use super::state::Tree;
use crate::envelope::Spending;
use crate::ids::{CallId, ListenerName};

impl Tree {
    /// Applies the facts about reservations and about the use of model calls.
    pub(super) fn account(&mut self, fact: &Fact) {
        match fact {
            Fact::Reserved { call, attempt, agent, spending, request, route } => {
                self.reserve(ModelReservation {
                    call: *call,
                    attempt: *attempt,
                    agent: agent.clone(),
                    spending: *spending,
                    request: *request,
                });
                if let Some(route) = route {
                    self.count_request(*call, route);
                }
            }
            Fact::Charged { call, attempt, agent, spending } => {
                self.release_reservation(*call, *attempt);
                self.spend(Some(agent), *spending);
            }
            Fact::Used { call, agent, tokens_in, tokens_out, money, attempt } => {
                if let Some(attempt) = attempt {
                    self.release_reservation(*call, *attempt);
                }
                let tokens = tokens_in.saturating_add(*tokens_out);
                self.used(*call, agent.as_ref(), Spending { tokens, money: *money });
            }
            _ => {}
        }
    }

    fn used(&mut self, call: CallId, agent: Option<&ListenerName>, spent: Spending) {
        self.spend(agent, spent);
        let Some(call) = self.calls.get(&call) else { return };
        let (thread, agent) = (call.thread.clone(), call.callee.clone());
        self.shows(&thread, &agent);
    }

    fn count_request(&mut self, call: CallId, route: &str) {
        let Some(call) = self.calls.get_mut(&call) else { return };
        match call.requests.iter_mut().find(|(known, _)| known == route) {
            Some((_, count)) => *count += 1,
            None => call.requests.push((route.to_owned(), 1)),
        }
    }

    /// Records the use of a model call.
    pub(super) fn spend(&mut self, agent: Option<&ListenerName>, spent: Spending) {
        let all = self.usage.spending().plus(spent);
        self.usage.model_calls += 1;
        (self.usage.tokens, self.usage.money) = (all.tokens, all.money);
        if let Some(agent) = agent {
            let own = self.by_agent.of(agent);
            *own = own.plus(spent);
        }
    }
}
