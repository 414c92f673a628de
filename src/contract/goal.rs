//! Goals: the payloads with which workflows give tasks to agents, and the answers of the agents.
//!
//! Each agent accepts its own goal payload from workflows only. The text of the payload is the
//! document that the agent's prompt shows, byte for byte.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Contract, GoalRoles, Role};
use crate::ids::{ListenerName, PayloadName};
use crate::mutant::mutant;
use crate::xml::element::Element;
use crate::xml::escape::{escape_attribute, escape_text};
use crate::xml::scan::attributes;

/// Namespace of the payloads of workflows. Only this program may declare payloads in this
/// namespace, or in a namespace that begins with this one and a `/`.
pub const WORKFLOW_NAMESPACE: &str = "https://xml-pipeline.org/ns/workflow/v1";

/// Namespace of the payloads that this program declares for agents, besides the payloads of the
/// core.
pub const AGENT_NAMESPACE: &str = "https://xml-pipeline.org/ns/agent/v1";

/// Middle part of a goal's namespace, between [`WORKFLOW_NAMESPACE`] and the name of the agent.
const AGENTS: &str = "/agents/";

/// Local name of every goal payload.
const GOAL: &str = "goal";

/// An agent, and the only payload with which this agent answers a typed goal. A goal is typed if
/// the config declares the type of its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedAnswer {
    #[serde(rename = "agent")]
    pub agent: ListenerName,
    #[serde(rename = "payload")]
    pub payload: PayloadName,
}

/// Returns the name of the payload that gives a goal to `agent`.
pub fn goal_name(agent: &ListenerName) -> PayloadName {
    PayloadName::new(&goal_namespace(agent), GOAL)
}

/// Whether a payload of this name gives a goal to `agent`.
pub fn is_goal_of(agent: &ListenerName, name: &PayloadName) -> bool {
    let agents = name.namespace.strip_prefix(WORKFLOW_NAMESPACE);
    let given_to = agents.and_then(|agents| agents.strip_prefix(AGENTS));
    given_to == Some(agent.as_str()) && *name.local == *GOAL
}

/// Returns the name of the payload with which agents answer goals without a type. An agent whose
/// config names no final payload ends every call with this payload.
pub fn goal_answer() -> PayloadName {
    PayloadName::new(AGENT_NAMESPACE, "attempt_completion")
}

/// Returns the name of the payload with which a run of a workflow records its definition.
pub fn run_definition_name() -> PayloadName {
    PayloadName::new(WORKFLOW_NAMESPACE, "run-definition")
}

/// Returns the name of the payload with which a client retries an earlier run of `workflow`.
pub fn retry_name(workflow: &ListenerName) -> PayloadName {
    PayloadName::new(&format!("{WORKFLOW_NAMESPACE}/{workflow}"), &format!("{workflow}-retry"))
}

/// End of the local name of the reply with which a workflow reports a failed run.
pub const RUN_FAILED: &str = "-failed";

/// Whether `payload` is the name of the reply with which `workflow` reports that a run failed.
pub fn is_run_failure(workflow: &ListenerName, payload: &PayloadName) -> bool {
    let workflow = workflow.as_str();
    let namespace = payload.namespace.strip_prefix(WORKFLOW_NAMESPACE);
    payload.local.strip_suffix(RUN_FAILED) == Some(workflow)
        && namespace.and_then(|rest| rest.strip_prefix('/')) == Some(workflow)
}

/// Writes the schema of the payload that gives a goal to `agent`. The payload contains the text of
/// the goal. Its attributes contain the name of the answer to a typed goal, and the permission to
/// delegate tasks of the goal ([`GoalRoles`]).
pub fn goal_schema(agent: &ListenerName) -> String {
    let namespace = goal_namespace(agent);
    format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"{namespace}\">\n  \
         <xs:element name=\"goal\"><xs:complexType><xs:simpleContent>\
         <xs:extension base=\"xs:string\"><xs:attribute name=\"answer\" type=\"xs:string\"/>\
         <xs:attribute name=\"delegate\" type=\"xs:string\"/>\
         <xs:attribute name=\"to\" type=\"xs:string\"/>\
         <xs:attribute name=\"max\" type=\"xs:positiveInteger\"/>\
         <xs:attribute name=\"depth\" type=\"xs:positiveInteger\"/>\
         </xs:extension></xs:simpleContent></xs:complexType></xs:element>\n\
         </xs:schema>\n"
    )
}

/// Writes the payload that gives a goal to `agent`. The text of the goal is `document`.
pub fn write_goal(agent: &ListenerName, document: &str) -> String {
    write_goal_request(agent, document, None, None)
}

/// Writes the payload that gives a typed goal to `agent`. The text of the goal is `document`. The
/// agent can answer the goal only with the payload `answer`.
pub fn write_typed_goal(agent: &ListenerName, document: &str, answer: &PayloadName) -> String {
    write_goal_request(agent, document, Some(answer), None)
}

/// Writes the payload that gives a goal to `agent`. The text of the goal is `document`. If `answer`
/// is set, the agent can answer the goal only with that payload. If `roles` is set, the agent may
/// delegate tasks of the goal as `roles` permits.
pub fn write_goal_request(
    agent: &ListenerName,
    document: &str,
    answer: Option<&PayloadName>,
    roles: Option<&GoalRoles>,
) -> String {
    let mut out = format!("<goal xmlns=\"{}\"", goal_namespace(agent));
    let answer = answer.map(|answer| ("answer", answer.to_string()));
    let roles = roles.map(GoalRoles::attributes).unwrap_or_default();
    for (name, value) in answer.into_iter().chain(roles) {
        let _ = write!(out, " {name}=\"{}\"", escape_attribute(&value));
    }
    let _ = write!(out, ">{}</goal>", escape_text(document));
    out
}

/// Reads the name of the answer from `payload`, which gives a typed goal to an agent. Returns
/// `None` for a goal without a type.
pub fn read_goal_answer(payload: &str) -> Option<PayloadName> {
    let attributes = attributes(payload);
    let (_, answer) = attributes.into_iter().find(|(name, _)| *name == "answer")?;
    PayloadName::parse(&answer).ok()
}

/// Returns the document in the payload of a goal; `None` if the payload is no XML element.
pub fn read_goal(payload: &str) -> Option<String> {
    Element::read(payload).map(|goal| goal.text())
}

fn goal_namespace(agent: &ListenerName) -> String {
    format!("{WORKFLOW_NAMESPACE}{AGENTS}{agent}")
}

impl Contract {
    /// Returns the name of the goal payload that this agent accepts from `sender`; `None` if
    /// `sender` is not a workflow.
    pub(super) fn goal_from(&self, sender: &Self) -> Option<PayloadName> {
        let may_send = sender.role == Role::Workflow || mutant("take-goals-from-anybody");
        (self.role == Role::Agent && may_send).then(|| goal_name(&self.name))
    }

    /// Returns the payload names with which this agent answers typed goals of workflows. Each name
    /// occurs once.
    pub(super) fn typed_answers(&self, callable: &[&Self]) -> Vec<PayloadName> {
        let all = callable.iter().filter(|one| one.role == Role::Workflow);
        let own = all.flat_map(|one| &one.answers).filter(|answer| answer.agent == self.name);
        let mut names: Vec<_> = own.map(|answer| answer.payload.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the name of the payload with which `sender` may retry a run of this workflow.
    /// Returns `None` in these cases:
    /// - `sender` is not a client.
    /// - The workflow accepts no payloads. Such a workflow starts no new run, and only continues
    ///   its open runs.
    pub(super) fn retry_from(&self, sender: &Self) -> Option<PayloadName> {
        let is_open = self.role == Role::Workflow && !self.accepts.is_empty();
        (is_open && sender.role == Role::Client).then(|| retry_name(&self.name))
    }

    /// Whether any workflow may send goals to this agent.
    pub(super) fn is_sent_goals(&self, callable: &[&Self]) -> bool {
        let sends = |one: &&Self| one.role == Role::Workflow && one.peers.contains(&self.name);
        self.role == Role::Agent && callable.iter().any(sends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_known_by_the_name_it_is_given_under() {
        let agent = |name| ListenerName::parse(name).unwrap();
        let given = goal_name(&agent("writer"));
        assert!(is_goal_of(&agent("writer"), &given));
        assert!(!is_goal_of(&agent("write"), &given));
        assert!(!is_goal_of(&agent("writer"), &PayloadName::new(&given.namespace, "task")));
        assert!(!is_goal_of(&agent("writer"), &PayloadName::new(WORKFLOW_NAMESPACE, "goal")));
    }
}
