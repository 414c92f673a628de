//! Turns the text of an answer in a test case into payloads.
//!
//! An element without a namespace gets the namespace of the payload with the same local name, if
//! the sender may write such a payload. The schema decides whether the children of the element also
//! get this namespace.

use crate::config::Config;
use crate::contract::{GoalRoles, Meaning, Role, goal_answer, goal_name, read_goal_answer};
use crate::envelope::Message;
use crate::ids::{ListenerName, PayloadName};
use crate::xml::element::{Element, Node};
use crate::xml::shape::QName;

/// Converts `text` to payloads. In the test case, `text` is the answer of `sender` to `request`. If
/// `sender` is an agent and `text` contains no payload that the agent may write, `text` is the
/// agent's final answer.
///
/// # Errors
///
/// Returns an error if `sender` is no agent, and `text` is not empty but contains no XML.
pub fn answer_payloads(
    config: &Config,
    sender: &ListenerName,
    request: &Message,
    text: &str,
) -> Result<Vec<Vec<u8>>, String> {
    let text = text.trim();
    let known = known_names(config, sender, request);
    let found = elements(config, text, &known);
    let is_agent =
        config.contracts.get(sender).is_some_and(|contract| contract.role == Role::Agent);
    if is_agent {
        let own: Vec<_> = found.into_iter().filter(|element| element.is_known).collect();
        return Ok(match own.as_slice() {
            [] => vec![final_text(text)],
            _ => own.into_iter().map(|element| element.text.into_bytes()).collect(),
        });
    }

    if found.is_empty() && !text.is_empty() {
        let names: Vec<_> = known.iter().map(|name| format!("<{}>", name.local)).collect();
        return Err(match names.as_slice() {
            [] => format!("`{sender}` answers with nothing: write an empty text"),
            _ => format!("`{sender}` answers with XML: one of {}", names.join(", ")),
        });
    }
    Ok(found.into_iter().map(|element| element.text.into_bytes()).collect())
}

/// Writes a short example of an answer to `request`, for the hint of an error message.
pub fn answer_example(config: &Config, sender: &ListenerName, request: &Message) -> String {
    let names = known_names(config, sender, request);
    let contract = config.contracts.get(sender);
    let is_agent = contract.is_some_and(|contract| contract.role == Role::Agent);
    let is_typed = read_goal_answer(request.payload.as_str()).is_some();
    if contract.is_some_and(|contract| contract.is_undo(&request.name)) {
        return undo_example(&names, &request.name);
    }
    match names.first() {
        Some(name) if !is_agent || is_typed => format!("<{0}>…</{0}>", name.local),
        Some(_) => "…".to_owned(),
        None => String::new(),
    }
}

/// Writes a short example of an answer to `request`, a payload that undoes an earlier call. `names`
/// contains the names of all payloads with which the listener may reply. No contract states which
/// of them answer an undo. So the example uses the first one whose name contains the name of the
/// request.
fn undo_example(names: &[PayloadName], request: &PayloadName) -> String {
    match names.iter().find(|name| name.local.contains(&*request.local)) {
        Some(name) => format!("<{0}>…</{0}>", name.local),
        None => "…".to_owned(),
    }
}

/// Writes the payload of an agent's final answer with the text `text`.
fn final_text(text: &str) -> Vec<u8> {
    let name = QName::from(&goal_answer());
    let namespace = name.namespace.clone();
    let result = Element::new(QName::new(namespace.as_deref(), "result")).with_text(text);
    Element::new(name).with_child(result).to_xml().into_bytes()
}

/// Returns the names of the payloads that `sender` may write in the call of `request`. The most
/// likely names come first.
fn known_names(config: &Config, sender: &ListenerName, request: &Message) -> Vec<PayloadName> {
    let contracts = &config.contracts;
    let Some(contract) = contracts.get(sender) else { return Vec::new() };
    match contract.role {
        Role::Human => contracts.answers_to(sender, &request.name),
        Role::Agent => {
            let payload = request.payload.as_str();
            let is_goal = request.name == goal_name(sender);
            let answer = read_goal_answer(payload).filter(|_| is_goal);
            let delegate = GoalRoles::read(payload).filter(|_| is_goal).map(|roles| roles.payload);
            let mut names: Vec<_> = answer.into_iter().chain(delegate).collect();
            let vocabulary = contracts.vocabulary(sender);
            let others = vocabulary.into_iter().flat_map(|vocabulary| vocabulary.iter());
            let is_open = |meaning: &Meaning| {
                !matches!(meaning, Meaning::GoalAnswer | Meaning::Delegate { .. })
            };
            names.extend(
                others.filter(|(_, meaning)| is_open(meaning)).map(|(name, _)| name.clone()),
            );
            names.push(goal_answer());
            names
        }
        _ => {
            let vocabulary = contracts.vocabulary(sender);
            let all = vocabulary.into_iter().flat_map(|vocabulary| vocabulary.iter());
            all.map(|(name, _)| name.clone()).collect()
        }
    }
}

struct AnswerElement {
    text: String,
    is_known: bool,
}

/// Parses the top-level elements of a text. Returns no elements if the text is not well-formed.
fn elements(config: &Config, text: &str, known: &[PayloadName]) -> Vec<AnswerElement> {
    const OPEN: &str = "<answer>";
    let wrapped = format!("{OPEN}{text}</answer>");
    let Some(root) = Element::read_document(&wrapped) else { return Vec::new() };
    let found = root.children().map(|element| {
        let local = element.local_name();
        if element.name.namespace.is_some() {
            let name = PayloadName::from(&element.name);
            let text = wrapped.get(element.origin.tag.start..element.origin.end);
            return AnswerElement {
                text: text.unwrap_or_default().to_owned(),
                is_known: known.contains(&name),
            };
        }

        let named = known.iter().find(|name| *name.local == *local);
        let text =
            named.map_or_else(|| element.to_xml(), |name| in_namespace(config, element, name));
        AnswerElement { text, is_known: named.is_some() }
    });
    found.collect()
}

/// Writes the element as XML with the full name `name`. The children of the element get the same
/// namespace, unless the schema accepts them only without a namespace.
fn in_namespace(config: &Config, element: &Element, name: &PayloadName) -> String {
    let mut qualified = element.clone();
    qualify(&mut qualified, &QName::from(name));
    let qualified = qualified.to_xml();
    if config.schemas.validate(name, qualified.as_bytes()).is_ok() {
        return qualified;
    }

    let mut unqualified = element.clone();
    unqualified.name = QName::from(name);
    let unqualified = unqualified.to_xml();
    match config.schemas.validate(name, unqualified.as_bytes()) {
        Ok(()) => unqualified,
        Err(_) => qualified,
    }
}

fn qualify(element: &mut Element, name: &QName) {
    element.name = name.clone();
    for node in &mut element.content {
        if let Node::Element(child) = node
            && child.name.namespace.is_none()
        {
            let name = QName { namespace: name.namespace.clone(), local: child.name.local.clone() };
            qualify(child, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_for_an_undo_is_no_reply_to_the_call_that_it_undoes() {
        let name = |local: &str| PayloadName::new("urn:test", local);
        let names = ["job-done", "job-failed", "unjob-done"].map(name);
        assert_eq!(undo_example(&names, &name("unjob")), "<unjob-done>…</unjob-done>");
        assert_eq!(undo_example(&names, &name("cancel")), "…");
    }
}
