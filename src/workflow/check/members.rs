//! Checks of the agents, listeners, humans and workflows that a definition names.

use crate::contract::Role;
use crate::ids::{ListenerName, PayloadName};

use super::super::definition::{GoalCondition, GoalForm, GoalTarget, Placed, WorkflowDefinition};
use super::{DefinitionContext, DefinitionFault, ProblemList, near_or};

pub(super) fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    problems: &mut ProblemList,
) {
    let mut members = MemberCheck { context, problems };
    for peer in &definition.peers {
        members.require(peer, &[Role::Listener, Role::Agent, Role::Human]);
    }
    if let Some(human) = &definition.report_to {
        members.require(human, &[Role::Human]);
    }

    for goal in &definition.goals {
        members.form(&goal.form);
        if let Some(supervision) = &goal.supervision {
            members.require(&supervision.supervisor, &[Role::Agent, Role::Human]);
        }
        if let Some(roles) = &goal.roles {
            members.require(&roles.agent, &[Role::Agent]);
        }
    }
}

struct MemberCheck<'a, 'p> {
    context: &'a DefinitionContext<'a>,
    problems: &'p mut ProblemList,
}

impl MemberCheck<'_, '_> {
    fn form(&mut self, form: &GoalForm) {
        match form {
            GoalForm::Run(target) => self.target(target),
            GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => {
                for agent in agents {
                    self.require(agent, &[Role::Agent]);
                }
            }
            GoalForm::Each(each) => self.target(&each.target),
            GoalForm::Loop { until, .. } => self.condition(until),
            GoalForm::Choose(branches) => {
                let conditions = branches.iter().filter_map(|branch| branch.when.as_ref());
                conditions.for_each(|condition| self.condition(condition));
            }
            GoalForm::Ask { human, .. } => {
                self.require(human, &[Role::Human]);
            }
        }
    }

    fn condition(&mut self, condition: &GoalCondition) {
        if let GoalCondition::Judge { agent, .. } = condition {
            self.require(agent, &[Role::Agent]);
        }
    }

    fn target(&mut self, target: &GoalTarget) {
        match target {
            GoalTarget::Agent { agent, .. } => {
                self.require(agent, &[Role::Agent]);
            }
            GoalTarget::Listener { listener, payload, .. } => {
                let is_listener = self.require(listener, &[Role::Listener]);
                if let Some(payload) = payload.as_ref().filter(|_| is_listener) {
                    self.payload(&listener.value, payload);
                }
            }
            GoalTarget::Workflow { workflow, .. } => self.workflow(workflow),
        }
    }

    /// Checks that the config declares a client, listener, human or agent with this name whose role
    /// is one of `roles`. If the config does not, reports `name` and returns false. If the
    /// definition of this name could not be read, reports nothing and returns true.
    fn require(&mut self, name: &Placed<ListenerName>, roles: &[Role]) -> bool {
        let members = &self.context.members;
        // Several members have the name if the config has a problem.
        let mut named = members.iter().filter(|(known, _)| **known == name.value);
        let found = named.clone().next();
        let is_unread = self.context.unread.iter().any(|unread| unread == name.value.as_str());
        if named.any(|(_, role)| roles.contains(role)) || (found.is_none() && is_unread) {
            return true;
        }

        let nouns: Vec<_> = roles.iter().map(|role| noun(*role)).collect();
        let nouns = nouns.join(" or ");
        let fitting = members.iter().filter(|(_, role)| roles.contains(role));
        let names = fitting.map(|(name, _)| name.as_str());
        let (message, help) = match found {
            Some((_, role)) => {
                let message = format!("`{}` is {}, not {nouns}", name.value, article(*role));
                (message, near_or("", names, "add one to the config"))
            }
            None if self.context.workflows.contains(&&name.value) => {
                let message = format!("`{}` is a workflow, not {nouns}", name.value);
                (message, format!("a goal calls it with workflow = \"{}\"", name.value))
            }
            None => {
                let message = format!("there is no {nouns} `{}`", name.value);
                (message, near_or(name.value.as_str(), names, "add it to the config"))
            }
        };
        self.problems.add(DefinitionFault::UnknownMember, name.place, message, help);
        false
    }

    fn workflow(&mut self, name: &Placed<ListenerName>) {
        let known = &self.context.workflows;
        let is_unread = self.context.unread.iter().any(|unread| unread == name.value.as_str());
        if known.contains(&&name.value) || is_unread {
            return;
        }

        let message = format!("there is no workflow `{}`", name.value);
        let names: Vec<_> = known.iter().map(|name| name.as_str()).collect();
        let help = near_or(name.value.as_str(), names, "add it to the config");
        self.problems.add(DefinitionFault::UnknownMember, name.place, message, help);
    }

    fn payload(&mut self, listener: &ListenerName, payload: &Placed<PayloadName>) {
        let contract = self.context.contracts.and_then(|contracts| contracts.get(listener));
        let Some(contract) = contract else { return };
        let wanted = &payload.value;
        let fits = |name: &&PayloadName| {
            name.local == wanted.local
                && (wanted.namespace.is_empty() || name.namespace == wanted.namespace)
        };
        if contract.accepts.iter().any(|name| fits(&name)) {
            return;
        }

        let message = format!("listener `{listener}` does not accept `{}`", wanted.local);
        let known: Vec<_> = contract.accepts.iter().map(|name| &*name.local).collect();
        let help = near_or(&wanted.local, known, "add it to `accepts` of the listener");
        self.problems.add(DefinitionFault::UnknownPayload, payload.place, message, help);
    }
}

const fn noun(role: Role) -> &'static str {
    match role {
        Role::Agent => "agent",
        Role::Listener => "listener",
        Role::Client => "client",
        Role::Human => "human",
        Role::Workflow => "workflow",
    }
}

const fn article(role: Role) -> &'static str {
    match role {
        Role::Agent => "an agent",
        Role::Listener => "a listener",
        Role::Client => "a client",
        Role::Human => "a human",
        Role::Workflow => "a workflow",
    }
}
