//! Delegation: the payload with which an agent, in a goal of a workflow, gives a task to another
//! agent in a role.
//!
//! Each goal with roles has a payload of its own, which goes to the workflow. The goal's request
//! names it, so an agent can delegate in no other call. The core counts.

use serde::{Deserialize, Serialize};

use super::{Contract, Role, WORKFLOW_NAMESPACE};
use crate::ids::{ListenerName, PayloadName};
use crate::xml::scan::attributes;

/// An agent that may delegate in a goal of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoalDelegation {
    /// The agent that delegates.
    #[serde(rename = "agent")]
    pub agent: ListenerName,
    #[serde(rename = "payload")]
    pub payload: PayloadName,
    /// The agent that takes the roles.
    #[serde(rename = "to")]
    pub to: ListenerName,
}

/// The roles of a goal, as its request states them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalRoles {
    /// The payload that delegates in this goal.
    pub payload: PayloadName,
    /// The agent that takes the roles.
    pub to: ListenerName,
    /// Delegations of the goal with everything beneath it; `None` in a task that was delegated
    /// itself, whose delegations count for the goal above it.
    pub max: Option<u32>,
    /// Levels of delegation beneath this request, from 1.
    pub depth: u32,
}

/// Local name of every payload that delegates.
const DELEGATE: &str = "delegate";

/// The payload that delegates in the goal `goal` of `workflow`.
pub fn delegate_name(workflow: &ListenerName, goal: &str) -> PayloadName {
    PayloadName::new(&format!("{WORKFLOW_NAMESPACE}/{workflow}{ROLES}{goal}"), DELEGATE)
}

const ROLES: &str = "/roles/";

/// The goal whose roles a payload delegates to; `None` for any other payload.
pub fn delegated_goal(name: &PayloadName) -> Option<&str> {
    let rest = name.namespace.strip_prefix(WORKFLOW_NAMESPACE)?.strip_prefix('/')?;
    let (_, goal) = rest.split_once(ROLES)?;
    (*name.local == *DELEGATE).then_some(goal)
}

/// Reply of a workflow to a delegation: the answer of the agent in its role.
pub fn delegate_output_name() -> PayloadName {
    PayloadName::new(WORKFLOW_NAMESPACE, "delegate-output")
}

/// Reply of a workflow to a delegation that has failed.
pub fn delegate_failed_name() -> PayloadName {
    PayloadName::new(WORKFLOW_NAMESPACE, "delegate-failed")
}

impl GoalRoles {
    /// Reads the roles in the payload of a goal; `None` for a goal without roles.
    pub fn read(payload: &str) -> Option<Self> {
        let attributes = attributes(payload);
        let value = |wanted: &str| {
            let mut all = attributes.iter();
            all.find(|(name, _)| *name == wanted).map(|(_, value)| value.as_ref())
        };
        Some(Self {
            payload: PayloadName::parse(value("delegate")?).ok()?,
            to: ListenerName::parse(value("to")?).ok()?,
            max: value("max").and_then(|max| max.parse().ok()),
            depth: value("depth")?.parse().ok()?,
        })
    }

    /// The roles of a task that is delegated under these; `None` where it may not delegate itself.
    pub fn beneath(&self) -> Option<Self> {
        let depth = self.depth.checked_sub(1).filter(|depth| *depth > 0)?;
        Some(Self { max: None, depth, ..self.clone() })
    }

    /// The attributes of a goal with these roles.
    pub(super) fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut out = vec![
            ("delegate", self.payload.to_string()),
            ("to", self.to.to_string()),
            ("depth", self.depth.to_string()),
        ];
        out.extend(self.max.map(|max| ("max", max.to_string())));
        out
    }
}

impl Contract {
    /// The payloads with which this agent delegates, each with the workflow that it goes to.
    pub(super) fn delegations<'a>(
        &'a self,
        contracts: &'a [Self],
    ) -> impl Iterator<Item = (&'a PayloadName, &'a ListenerName)> {
        let workflows = contracts.iter().filter(|one| one.role == Role::Workflow);
        let all = workflows.flat_map(|one| one.delegations.iter().map(|of| (of, &one.name)));
        let own = all.filter(|(of, _)| of.agent == self.name && self.role == Role::Agent);
        own.map(|(of, workflow)| (&of.payload, workflow))
    }

    /// Replies to delegations, if the workflow has any.
    pub(super) fn delegation_replies(&self) -> Vec<PayloadName> {
        match self.delegations.is_empty() {
            true => Vec::new(),
            false => vec![delegate_output_name(), delegate_failed_name()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::write_goal_request;

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).expect("it is a name")
    }

    #[test]
    fn the_request_of_a_goal_says_what_it_delegates() {
        let roles = GoalRoles {
            payload: delegate_name(&name("research"), "report"),
            to: name("specialist"),
            max: Some(3),
            depth: 2,
        };
        let written = |roles| write_goal_request(&name("lead"), "<task> & to", None, roles);
        assert_eq!(GoalRoles::read(&written(Some(&roles))), Some(roles.clone()));
        assert_eq!(delegated_goal(&roles.payload), Some("report"));
        let beneath = roles.beneath().expect("it may delegate once more");
        assert_eq!((beneath.max, beneath.depth), (None, 1));
        assert_eq!(beneath.beneath(), None);
        assert_eq!(GoalRoles::read(&written(None)), None);
    }

    #[test]
    fn another_payload_delegates_nothing() {
        for (namespace, local) in [
            ("https://xml-pipeline.org/ns/workflow/v1/a/roles/b", "other"),
            ("https://xml-pipeline.org/ns/workflow/v1/roles/b", "delegate"),
            ("https://xml-pipeline.org/ns/workflow/v1", "delegate"),
            ("urn:a/roles/b", "delegate"),
        ] {
            let payload = PayloadName::new(namespace, local);
            assert_eq!(delegated_goal(&payload), None, "{namespace} {local}");
        }
    }
}
