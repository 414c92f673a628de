//! Delegation: an agent that works on a goal of a workflow gives a task to another agent, which
//! takes a role of this goal.
//!
//! Each goal with roles has its own payload for delegation, which is sent to the workflow. An agent
//! can use this payload only in its call for that goal. The core counts delegations and enforces
//! their maximum.

use serde::{Deserialize, Serialize};

use super::{Contract, Role, WORKFLOW_NAMESPACE};
use crate::ids::{ListenerName, PayloadName};
use crate::xml::scan::attributes;

/// The permission of an agent to delegate tasks of a goal to another agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoalDelegation {
    /// The agent that delegates tasks.
    #[serde(rename = "agent")]
    pub agent: ListenerName,
    #[serde(rename = "payload")]
    pub payload: PayloadName,
    /// The agent that receives the delegated tasks.
    #[serde(rename = "to")]
    pub to: ListenerName,
}

/// The permission to delegate tasks of one goal to the agent `to`. In each delegated task, `to`
/// takes a role of the goal. The permission stands in the payload that gives the goal to the
/// delegating agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalRoles {
    /// The payload with which an agent delegates a task of this goal.
    pub payload: PayloadName,
    /// The agent to which the tasks are delegated.
    pub to: ListenerName,
    /// Maximum number of delegations for the goal. The count includes delegations by agents that
    /// themselves work on a delegated task. `None` in the payload of a delegated task, because the
    /// maximum of the original goal applies.
    pub max: Option<u32>,
    /// Number of levels of delegation that are permitted beneath the agent with this permission; at
    /// least 1. With 1, the agent that gets a delegated task cannot delegate further.
    pub depth: u32,
}

/// Local name of each payload with which an agent delegates.
const DELEGATE: &str = "delegate";

/// Returns the name of the payload with which an agent delegates tasks of the goal `goal` in the
/// workflow `workflow`.
pub fn delegate_name(workflow: &ListenerName, goal: &str) -> PayloadName {
    PayloadName::new(&format!("{WORKFLOW_NAMESPACE}/{workflow}{ROLES}{goal}"), DELEGATE)
}

const ROLES: &str = "/roles/";

/// Returns the goal that the name of a delegation payload contains. Returns `None` if `name` is not
/// the name of a delegation payload.
pub fn delegated_goal(name: &PayloadName) -> Option<&str> {
    let rest = name.namespace.strip_prefix(WORKFLOW_NAMESPACE)?.strip_prefix('/')?;
    let (_, goal) = rest.split_once(ROLES)?;
    (*name.local == *DELEGATE).then_some(goal)
}

/// Returns the name of a workflow's reply to a delegation that succeeded.
pub fn delegate_output_name() -> PayloadName {
    PayloadName::new(WORKFLOW_NAMESPACE, "delegate-output")
}

/// Returns the name of a workflow's reply to a delegation that failed.
pub fn delegate_failed_name() -> PayloadName {
    PayloadName::new(WORKFLOW_NAMESPACE, "delegate-failed")
}

impl GoalRoles {
    /// Reads the permission to delegate from `payload`, which gives an agent a goal. Returns `None`
    /// if the payload contains no such permission.
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

    /// Returns the permission that an agent gets with a task which was delegated under this
    /// permission. Returns `None` if the task cannot be delegated further.
    pub fn beneath(&self) -> Option<Self> {
        let depth = self.depth.checked_sub(1).filter(|depth| *depth > 0)?;
        Some(Self { max: None, depth, ..self.clone() })
    }

    /// Returns the names and values of the XML attributes that state this permission in the root
    /// element of a goal.
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
    /// Returns the payloads with which this agent may delegate, each with the workflow that
    /// receives it.
    pub(super) fn delegations<'a>(
        &'a self,
        callable: &'a [&'a Self],
    ) -> impl Iterator<Item = (&'a PayloadName, &'a ListenerName)> {
        let workflows = callable.iter().filter(|one| one.role == Role::Workflow);
        let all = workflows.flat_map(|one| one.delegations.iter().map(|of| (of, &one.name)));
        let own = all.filter(|(of, _)| of.agent == self.name && self.role == Role::Agent);
        own.map(|(of, workflow)| (&of.payload, workflow))
    }

    /// Returns the names of this workflow's replies to delegations; empty if no agent may delegate
    /// tasks of the workflow's goals.
    pub(super) fn delegation_replies(&self) -> Vec<PayloadName> {
        if self.delegations.is_empty() {
            Vec::new()
        } else {
            vec![delegate_output_name(), delegate_failed_name()]
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
