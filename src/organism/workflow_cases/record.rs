//! The facts that a test case checks about its run: the calls of the run by path, and the messages
//! of the call that started the run.

use std::collections::HashSet;
use std::sync::Arc;

use super::call_paths::CallPaths;
use crate::contract::{Contracts, Role, goal_name, read_goal};
use crate::envelope::{Message, Refusal};
use crate::ids::{CallId, ListenerName, MessageId};
use crate::thread::{Closing, Fact, Record};
use crate::workflow::{
    GoalGraph, GoalPhase, GoalStatus, RunWatch, WorkflowDefinition, run_rules_of,
};

/// The record of one workflow run.
pub struct CaseRecord {
    /// Every call beneath the run, in journal order.
    pub calls: Vec<CaseCall>,
    /// Payloads that the gate refused, in journal order.
    pub refused: Vec<RefusedPayload>,
    /// The messages of the call that started the run. The first message is the request of the run.
    messages: Vec<Arc<Message>>,
    /// Ids of messages that the run did not handle before its call ended. Messages of other calls
    /// may be included.
    unhandled: HashSet<MessageId>,
    /// The way in which the run's call ended; `None` if the call is open.
    end: Option<Closing>,
}

/// A call, with its path and its request.
pub struct CaseCall {
    pub path: String,
    pub request: Arc<Message>,
}

/// A payload that the listener of a call has sent, and that the gate has refused.
pub struct RefusedPayload {
    pub sender: ListenerName,
    pub path: String,
    pub refusal: Refusal,
}

impl CaseCall {
    /// If the call gives a goal to an agent, returns the document, which is the text of the goal.
    /// Returns `None` for any other call.
    pub fn document(&self) -> Option<String> {
        let is_goal = self.request.name == goal_name(&self.request.to);
        read_goal(self.request.payload.as_str()).filter(|_| is_goal)
    }
}

impl CaseRecord {
    /// Reads the first run of a workflow from the records of a tree. The result is empty if the
    /// tree has no run.
    pub fn of<'r>(records: impl Iterator<Item = &'r Record>, contracts: &Contracts) -> Self {
        let mut paths = CallPaths::new(contracts);
        let mut calls: Vec<CaseCall> = Vec::new();
        let mut refused = Vec::new();
        let mut messages: Vec<Arc<Message>> = Vec::new();
        let mut unhandled = HashSet::new();
        let mut end = None;
        let is_workflow = |name: &ListenerName| {
            contracts.get(name).is_some_and(|contract| contract.role == Role::Workflow)
        };

        for record in records {
            let known = messages.len();
            for fact in &record.facts {
                if let Fact::Refused { sender, call: Some(id), refusal, .. } = fact
                    && let Some(call) = calls.iter().find(|call| CallId(call.request.id) == *id)
                    && refusal.name.is_none()
                {
                    let path = call.path.clone();
                    let refusal = refusal.clone();
                    refused.push(RefusedPayload { sender: sender.clone(), path, refusal });
                }
                let Fact::Accepted { message, opening, .. } = fact else { continue };
                let run = messages.first().map(|request| CallId(request.id));
                match run {
                    None if opening.is_some() && is_workflow(&message.to) => {
                        messages.push(Arc::clone(message));
                        continue;
                    }
                    Some(run)
                        if message.call == Some(run) && message.to != ListenerName::core() =>
                    {
                        messages.push(Arc::clone(message));
                    }
                    _ => {}
                }
                if opening.is_some() && run.is_some() {
                    let path = paths.name(message);
                    calls.push(CaseCall { path, request: Arc::clone(message) });
                }
            }
            unhandled.extend(record.unhandled_messages());
            let run = messages.first().map(|request| CallId(request.id));
            end = end.or_else(|| run.and_then(|run| record.closing_of(run)));
            if end.is_some() {
                unhandled.extend(messages.iter().skip(known).map(|message| message.id));
            }
        }

        Self { calls, refused, messages, unhandled, end }
    }

    /// Returns the request of the run; `None` if the tree has no run.
    pub fn request(&self) -> Option<&Arc<Message>> {
        self.messages.first()
    }

    pub fn calls_at<'r>(&'r self, path: &'r str) -> impl Iterator<Item = &'r CaseCall> {
        self.calls.iter().filter(move |call| call.path == path)
    }

    /// Returns the state of each goal after the last message of the run.
    pub fn goals(
        &self,
        definition: &WorkflowDefinition,
        once: &HashSet<ListenerName>,
    ) -> Vec<GoalStatus> {
        let (graph, _) = GoalGraph::new(definition);
        let watch = RunWatch::new(definition, &graph, once);
        let mut watch = watch.with_rules(run_rules_of(&self.messages));
        watch.take_again(&self.messages, &self.unhandled);
        if self.end.is_some() {
            watch.end();
        }
        watch.goals()
    }

    /// Returns those states of [`Self::goals`] that the run of a case reaches again. Leaves out
    /// waiting goals. If the run ended without a reply of its own, also leaves out cancelled goals:
    /// in the case, these goals fail, and the run handles their failures.
    pub fn repeatable_goals(
        &self,
        definition: &WorkflowDefinition,
        once: &HashSet<ListenerName>,
    ) -> Vec<GoalStatus> {
        let mut goals = self.goals(definition, once);
        let has_own_end = self.end == Some(Closing::Completed);
        goals.retain(|status| match status.phase {
            GoalPhase::Waiting => false,
            GoalPhase::Cancelled => has_own_end,
            _ => true,
        });
        goals
    }
}
