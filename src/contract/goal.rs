//! Goals: the payload with which a workflow gives an agent a task, and the agent's answer to it.
//!
//! Each agent accepts its own goal from workflows, and from no other sender. The text of the payload is
//! the document that the agent's prompt shows, byte for byte.

use super::{Contract, Role};
use crate::ids::{ListenerName, PayloadName};
use crate::mutant::mutant;
use crate::xml::element::Element;
use crate::xml::escape::escape_text;

/// Namespace of workflows. Only the program declares payloads in it, and in what begins with it and `/`.
pub const WORKFLOW_NAMESPACE: &str = "https://xml-pipeline.org/ns/workflow/v1";

/// Namespace of the payloads that agents have besides their peers' and the core's.
pub const AGENT_NAMESPACE: &str = "https://xml-pipeline.org/ns/agent/v1";

/// Name of the goals of `agent`.
pub fn goal_name(agent: &ListenerName) -> PayloadName {
    PayloadName::new(&goal_namespace(agent), "goal")
}

/// Name of an agent's answer to a goal, and of the final of agents that declare none.
pub fn goal_answer() -> PayloadName {
    PayloadName::new(AGENT_NAMESPACE, "attempt_completion")
}

/// Schema of the goals of `agent`: one text, and nothing else.
pub fn goal_schema(agent: &ListenerName) -> String {
    let namespace = goal_namespace(agent);
    format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"{namespace}\">\n  \
         <xs:element name=\"goal\" type=\"xs:string\"/>\n\
         </xs:schema>\n"
    )
}

/// The goal of `agent` with this document.
pub fn write_goal(agent: &ListenerName, document: &str) -> String {
    let namespace = goal_namespace(agent);
    format!("<goal xmlns=\"{namespace}\">{}</goal>", escape_text(document))
}

/// The document in the payload of a goal.
pub fn read_goal(payload: &str) -> Option<String> {
    Element::read(payload).map(|goal| goal.text())
}

fn goal_namespace(agent: &ListenerName) -> String {
    format!("{WORKFLOW_NAMESPACE}/agents/{agent}")
}

impl Contract {
    /// The goal that `sender` may send to this listener, if any.
    pub(super) fn goal_from(&self, sender: &Self) -> Option<PayloadName> {
        let may_send = sender.role == Role::Workflow || mutant("take-goals-from-anybody");
        (self.role == Role::Agent && may_send).then(|| goal_name(&self.name))
    }

    /// Whether some workflow may send it goals.
    pub(super) fn is_sent_goals(&self, contracts: &[Self]) -> bool {
        let sends = |one: &Self| one.role == Role::Workflow && one.peers.contains(&self.name);
        self.role == Role::Agent && contracts.iter().any(sends)
    }
}
