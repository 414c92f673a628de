//! Delegation in a workflow run: an agent gives a task to another agent in a role. The goal of the
//! first agent determines the other agent and the allowed roles.
//!
//! Each delegation is a separate call to the workflow, beneath the call of the goal. The workflow
//! opens one thread for the delegation, waits for its result, and replies with the text of the
//! result. For this, the workflow does not need its definition: the recorded request of the goal
//! names the other agent and the allowed levels of delegation. The core of the pump counts the
//! delegations of a goal, and refuses those that the goal does not allow.

use std::sync::Arc;

use crate::bus::{Delivery, Outcome};
use crate::contract::{
    GoalDelegation, GoalRoles, delegate_failed_name, delegate_name, delegate_output_name,
    delegated_goal, goal_name,
};
use crate::envelope::{AttemptFailure, Message, MessageKind};
use crate::ids::{ListenerName, PayloadName};
use crate::limits;
use crate::system::{self, ThreadStatus};
use crate::xml::element::Element;
use crate::xml::escape::escape_attribute;
use crate::xml::shape::QName;

use super::call_fold::{failure_of, is_failed, output_of};
use super::definition::{DelegatedRoles, GoalDefinition, WorkflowDefinition};
use super::document::TaskDocument;
use super::payloads;
use super::run_retry::RunArchive;
use super::run_state::{GoalCall, GoalFailure, RunLimits};
use super::typed_outputs::agents_of;
use super::view::ViewValue;

/// Returns the delegations that goals of the workflow allow. Each agent that carries out a goal
/// with roles may delegate. If the goal allows more than one level of delegation, the agent that
/// gets the delegated tasks may delegate, too.
pub fn delegations(definition: &WorkflowDefinition) -> Vec<GoalDelegation> {
    let mut all: Vec<GoalDelegation> = Vec::new();
    for goal in &definition.goals {
        let Some(roles) = &goal.roles else { continue };
        let to = &roles.agent.value;
        let further = (roles.depth > 1).then_some(to);
        for agent in agents_of(goal).into_iter().chain(further) {
            let payload = delegate_name(&definition.name.value, goal.id.value.as_str());
            let delegation = GoalDelegation { agent: agent.clone(), payload, to: to.clone() };
            if !all.contains(&delegation) {
                all.push(delegation);
            }
        }
    }
    all
}

/// Returns the payloads with which agents delegate tasks of the workflow's goals, each with its
/// XSD.
pub fn delegate_schemas(definition: &WorkflowDefinition) -> Vec<(PayloadName, String)> {
    let with_roles = definition.goals.iter().filter_map(|goal| Some((goal, goal.roles.as_ref()?)));
    let schemas = with_roles.map(|(goal, roles)| {
        let name = delegate_name(&definition.name.value, goal.id.value.as_str());
        let schema = delegate_schema(&name, goal, roles);
        (name, schema)
    });
    schemas.collect()
}

fn delegate_schema(name: &PayloadName, goal: &GoalDefinition, roles: &DelegatedRoles) -> String {
    let agent = &roles.agent.value;
    let max = roles.max;
    let about = format!(
        "Gives a task to {agent} in a role, and returns the answer. All that {agent} has to know \
         stands in the task. {} may delegate {max} times.",
        goal.id.value
    );

    let words = roles.names.iter().map(|role| escape_attribute(role));
    let words: String = words.map(|role| format!("<xs:enumeration value=\"{role}\"/>")).collect();
    let role = if words.is_empty() {
        format!("{NOT_BLANK}<xs:maxLength value=\"{ROLE_CHARS_MAX}\"/>")
    } else {
        words
    };
    format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" xmlns:d=\"{namespace}\" \
         targetNamespace=\"{namespace}\">\n  <xs:element name=\"{local}\">\n    \
         <xs:annotation><xs:documentation>{about}</xs:documentation></xs:annotation>\n    \
         <xs:complexType><xs:simpleContent><xs:extension base=\"d:task\">\n      \
         <xs:attribute name=\"role\" type=\"d:role\" use=\"required\"/>\n    \
         </xs:extension></xs:simpleContent></xs:complexType>\n  </xs:element>\n  \
         <xs:simpleType name=\"task\"><xs:restriction base=\"xs:token\">{NOT_BLANK}\
         </xs:restriction></xs:simpleType>\n  \
         <xs:simpleType name=\"role\"><xs:restriction base=\"xs:token\">{role}</xs:restriction>\
         </xs:simpleType>\n</xs:schema>\n",
        namespace = escape_attribute(&name.namespace),
        local = name.local,
    )
}

/// Maximum length of a role, in characters.
pub const ROLE_CHARS_MAX: usize = 200;

/// Whether a text can be a role. True if the text is not blank, has no control characters, and has
/// at most [`ROLE_CHARS_MAX`] characters.
pub fn is_role(text: &str) -> bool {
    let length = text.chars().count();
    !text.trim().is_empty() && length <= ROLE_CHARS_MAX && !text.contains(char::is_control)
}

/// XSD facet that forbids blank texts in an element or attribute of type `xs:token`. A token has no
/// white space at its ends, so a minimum of one character suffices.
const NOT_BLANK: &str = "<xs:minLength value=\"1\"/>";

/// Computes the outcome of a delivery to a workflow whose call is a delegated task. `request` is
/// the message that delegates the task.
///
/// # Errors
///
/// Returns [`AttemptFailure::Crashed`] if the records cannot be read, or if the delegating thread
/// has no goal that allows the delegation. Returns [`AttemptFailure::TooLarge`] if the core has
/// refused two replies: the reply with the result, and then the reply that reports this failure.
pub fn outcome(
    delivery: &Delivery,
    request: &Message,
    archive: &dyn RunArchive,
) -> Result<Outcome, AttemptFailure> {
    let known = delivery.messages.len().saturating_sub(delivery.fresh);
    if known == 0 {
        let (label, task) = task_of(request, archive)?;
        let spawn = payloads::spawn(&label, &task, RunLimits::default());
        return Ok(of(vec![spawn, payloads::wait()]));
    }

    let mut reply = None;
    let mut is_answered = false;
    for message in delivery.messages.iter().skip(1) {
        let Some(refused) = payloads::refusal_of(message) else {
            let result = reply_of(message, request);
            is_answered |= result.is_some();
            reply = reply.or(result);
            continue;
        };
        let (code, detail) = refused;
        let reason = if is_answered {
            format!("the answer in the role was refused: {detail}")
        } else {
            detail
        };
        let failure = failed(&GoalFailure::new(&code, reason));
        if is_answered && reply.as_ref() == Some(&failure) {
            let detail = "the failure of a delegation was refused".to_owned();
            return Err(AttemptFailure::TooLarge { detail });
        }
        reply = Some(failure);
    }
    Ok(of(vec![reply.unwrap_or_else(payloads::wait)]))
}

fn of(payloads: Vec<String>) -> Outcome {
    Outcome {
        payloads: payloads.into_iter().map(String::into_bytes).collect(),
        turn: None,
        ..Outcome::default()
    }
}

/// Returns the reply to the delegation `request` if `message` contains the result of the
/// delegation's thread. Returns `None` for any other message.
fn reply_of(message: &Message, request: &Message) -> Option<String> {
    let is_result =
        *message.name.namespace == *system::NAMESPACE && *message.name.local == *"thread-result";
    let result = Element::read_document(message.payload.as_str()).filter(|_| is_result)?;
    let status = result.attribute("status").and_then(ThreadStatus::parse);

    let nothing = Element::local("nothing");
    let payloads = payloads::payloads_of(&result, message.payload.as_str());
    let payload = payloads.first().unwrap_or(&nothing);

    Some(match status {
        Some(ThreadStatus::Completed) if !is_failed(payload) => {
            let text = match output_of(payload) {
                ViewValue::Text(text) => text,
                _ => payload.to_xml(),
            };
            let role = Element::read_document(request.payload.as_str());
            let role = role.as_ref().map(role_of).unwrap_or_default();
            let output = Element::new(QName::from(&delegate_output_name()));
            output.with_attribute("role", role).with_text(text).to_xml()
        }
        Some(ThreadStatus::Cancelled) => {
            failed(&GoalFailure::new("cancelled", "its thread was cancelled"))
        }
        _ => failed(&failure_of(payload)),
    })
}

/// Returns the role in a request for a delegation. Collapses white space, as a validator does for
/// values of the role's type, `xs:token`.
fn role_of(request: &Element) -> String {
    let words = request.attribute("role").unwrap_or_default().split_ascii_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

/// Writes the reply that reports the failure of a delegation.
fn failed(failure: &GoalFailure) -> String {
    let name = delegate_failed_name();
    let named = |local: &str| Element::new(QName::new(Some(&name.namespace), local));
    let code = named("code").with_text(failure.code.clone());
    let reason = named("reason").with_text(failure.reason.clone());
    named(&name.local).with_child(code).with_child(reason).to_xml()
}

/// Returns the label of the thread for a delegation, and the first call in this thread.
fn task_of(
    request: &Message,
    archive: &dyn RunArchive,
) -> Result<(String, GoalCall), AttemptFailure> {
    let crashed = |detail: &str| AttemptFailure::Crashed { detail: detail.to_owned() };
    let messages = archive.messages(&request.thread).map_err(|reason| crashed(&reason))?;
    let is_earlier =
        |message: &&Arc<Message>| message.kind == MessageKind::Call && message.seq < request.seq;
    let earlier: Vec<_> = messages.iter().filter(is_earlier).collect();
    // An agent works on one call of a thread at a time, so the goal that it delegates is its
    // latest.
    let goal = earlier.iter().rfind(|message| message.name == goal_name(&request.from));
    let roles = goal.and_then(|goal| GoalRoles::read(goal.payload.as_str()));
    let roles = roles.filter(|roles| roles.payload == request.name);
    let roles = roles.ok_or_else(|| crashed("its thread has no goal with these roles"))?;
    let task = Element::read_document(request.payload.as_str());
    let task = task.ok_or_else(|| crashed("the request is no XML"))?;

    let document = TaskDocument {
        role: role_of(&task),
        parent_goal: delegated_goal(&request.name).unwrap_or_default().to_owned(),
        task: task.text(),
        corrections: Vec::new(),
    };
    let call = GoalCall::Agent {
        agent: roles.to.clone(),
        document: document.text(),
        answer: None,
        roles: roles.beneath(),
    };
    let number = 1 + earlier.iter().filter(|message| message.name == request.name).count();
    Ok((label_of(&roles.to, number), call))
}

/// Returns the label of the thread for a delegation: the agent's name and `number`. The numbers
/// follow the order of the requests, so that the labels do not depend on the speed of parallel
/// delegations.
fn label_of(agent: &ListenerName, number: usize) -> String {
    let number = format!("_{number}");
    let room = limits::LABEL_CHARS_MAX.saturating_sub(number.len());
    let agent = agent.as_str();
    format!("{}{number}", agent.get(..agent.len().min(room)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_its_number_also_where_the_agent_has_a_long_name() {
        let name = |text: &str| ListenerName::parse(text).expect("it is a name");
        assert_eq!(label_of(&name("reader"), 12), "reader_12");
        let long = label_of(&name(&"a".repeat(limits::LABEL_CHARS_MAX)), 7);
        assert_eq!(long.len(), limits::LABEL_CHARS_MAX);
        assert!(long.ends_with("a_7"), "{long}");
    }
}
