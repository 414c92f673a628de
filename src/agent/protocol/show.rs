//! The conversation as the model is shown it: its own turns verbatim, everything else in blocks
//! of which none can pass for another.

use crate::envelope::{Kind, Message};
use crate::model::{Block, Role, Said};
use crate::system;
use crate::xml::tree::{Element, Node};
use crate::xml::write::{escape_attribute, escape_text};

use crate::agent::history::{Answered, Item, Seen};

/// Stands between two turns of the model where nothing was said to it.
const GO_ON: &str = "Noted. Go on with one action.";
/// Opens a conversation whose beginning is outside the window.
const CLEARED: &str = "What came before is no longer shown.";

/// The messages of a model call, roles alternating, the user's first and last.
pub fn conversation(items: &[Item]) -> Vec<Said> {
    let mut said: Vec<Said> = Vec::new();
    let last = |said: &[Said]| said.last().map(|last| last.role);
    for item in items {
        match item {
            Item::Spoken(raw) => {
                match last(&said) {
                    None => said.push(Said::text(Role::User, CLEARED)),
                    Some(Role::Assistant) => said.push(Said::text(Role::User, GO_ON)),
                    Some(Role::User) => {}
                }
                said.push(Said::text(Role::Assistant, raw));
            }
            Item::Seen(seen) => hear(&mut said, &block(seen)),
        }
    }
    match last(&said) {
        None => said.push(Said::text(Role::User, CLEARED)),
        Some(Role::Assistant) => said.push(Said::text(Role::User, GO_ON)),
        Some(Role::User) => {}
    }
    said
}

fn hear(said: &mut Vec<Said>, block: &str) {
    match said.last_mut().map(|last| (last.role, last.blocks.as_mut_slice())) {
        Some((Role::User, [Block::Text(text)])) => {
            text.push_str("\n\n");
            text.push_str(block);
        }
        _ => said.push(Said::text(Role::User, block)),
    }
}

fn block(seen: &Seen) -> String {
    let message = &seen.message;
    match (message.kind, &seen.answers) {
        (Kind::Own, _) => result(Some(&message.name.local), None, "recorded"),
        (Kind::Reply, Some(answered)) => reply(message, answered),
        (Kind::System, answered) if message.from.is_core() => {
            system_payload(message, answered.as_ref())
        }
        _ => others(message),
    }
}

/// Somebody's message, the request included.
fn others(message: &Message) -> String {
    let payload = inert(message.payload.as_str());
    format!("<message from=\"{}\" to=\"{}\">{payload}</message>", message.from, message.to)
}

fn reply(message: &Message, answered: &Answered) -> String {
    let content = if is_failure(&message.name.local) {
        failure(&said(message.payload.as_str()))
    } else {
        message.payload.as_str().to_owned()
    };
    let from = answered.group.then(|| message.from.as_str());
    if answered.in_window {
        result(Some(&answered.name.local), from, &content)
    } else {
        let name = &answered.name.local;
        format!("Result of an earlier {name} that is no longer shown:\n{}", escape_text(&content))
    }
}

/// A reply whose name says that the listener could not do it.
fn is_failure(local: &str) -> bool {
    local.ends_with("-error") || local.ends_with("-failed") || local == "error"
}

fn system_payload(message: &Message, answered: Option<&Answered>) -> String {
    let payload = message.payload.as_str();
    let asked = answered.map(|answered| &*answered.name.local);
    let core = &*message.name.namespace == system::NAMESPACE;
    match (&*message.name.local, asked) {
        ("huh", _) if core => huh(payload, asked),
        ("system-error", _) if core => system_error(payload, asked),
        ("ack", Some(name)) if core => result(Some(name), leg(payload).as_deref(), "acknowledged"),
        _ => inert(payload),
    }
}

/// Which of several peers that were asked at once a core word is about.
fn leg(payload: &str) -> Option<String> {
    Element::read(payload)?.attribute("from").map(str::to_owned)
}

/// The feedback to a payload that was not accepted, or to a turn without one.
fn huh(payload: &str, asked: Option<&str>) -> String {
    let Some(huh) = Element::read(payload) else {
        return result(asked, None, &failure(payload));
    };
    let mut lines: Vec<String> = huh
        .children()
        .filter(|child| child.name == "reason")
        .map(|reason| {
            let code = reason.attribute("code").unwrap_or("refused");
            let place = match (reason.attribute("line"), reason.attribute("column")) {
                (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
                _ => String::new(),
            };
            format!("{code}: {}{place}", reason.text().trim())
        })
        .collect();
    if lines.is_empty() {
        lines.push(huh.attribute("code").unwrap_or("refused").to_owned());
    }
    if let Some(expected) = huh.child("expected") {
        lines.push(format!("Expected: {}", expected.text().trim()));
    }
    let attempt = huh.child("attempt").map(Element::text);
    let attempted = attempt.as_deref().and_then(root_name);
    result(attempted.or(asked), None, &failure(&lines.join("\n")))
}

/// The local name of the first tag of an attempt, however broken the rest is.
fn root_name(attempt: &str) -> Option<&str> {
    let (_, tag) = attempt.split_once('<')?;
    let end = tag.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')));
    let name = tag.get(..end.unwrap_or(tag.len()))?;
    let local = name.rsplit_once(':').map_or(name, |(_, local)| local);
    (!local.is_empty()).then_some(local)
}

/// Something the agent asked for that the world did not allow.
fn system_error(payload: &str, asked: Option<&str>) -> String {
    let Some(error) = Element::read(payload) else {
        return result(asked, None, &failure(payload));
    };
    let code = error.attribute("code").unwrap_or("failed");
    let retry = match error.attribute("retry_allowed") {
        Some("true") => " (you may try again)",
        _ => "",
    };
    let said = failure(&format!("{code}: {}{retry}", error.text().trim()));
    result(asked.or(error.attribute("about")), error.attribute("from"), &said)
}

/// What a failure says: its text where it holds nothing else, the payload otherwise.
fn said(payload: &str) -> String {
    match Element::read(payload) {
        Some(element) if element.children().next().is_none() => element.text().trim().to_owned(),
        Some(element) => element
            .content
            .iter()
            .filter_map(|node| match node {
                Node::Element(child) => Some(format!("{}: {}", child.name, child.text().trim())),
                Node::Text(text) if text.trim().is_empty() => None,
                Node::Text(text) => Some(text.trim().to_owned()),
            })
            .collect::<Vec<_>>()
            .join("\n"),
        None => payload.to_owned(),
    }
}

/// Begins with exactly one `Error:`, however many the text itself begins with.
fn failure(text: &str) -> String {
    let mut text = text.trim_start();
    while let Some(rest) = text.strip_prefix("Error:") {
        text = rest.trim_start();
    }
    format!("Error: {text}")
}

fn result(name: Option<&str>, from: Option<&str>, content: &str) -> String {
    let mut tag = String::from("<tool_result");
    for (attribute, value) in [("tool_name", name), ("from", from)] {
        if let Some(value) = value {
            tag.push_str(&format!(" {attribute}=\"{}\"", escape_attribute(value)));
        }
    }
    format!("{tag}>{}</tool_result>", escape_text(content))
}

/// A payload as it is, but for the two places where well-formed XML may hold bare tags: what a
/// CDATA section or a comment says is escaped, so that it cannot close what stands around it.
fn inert(payload: &str) -> String {
    let mut out = String::with_capacity(payload.len());
    let mut rest = payload;
    while let Some(at) = rest.find("<!") {
        let (before, special) = rest.split_at(at);
        out.push_str(before);
        let (open, close) = match special.starts_with("<![CDATA[") {
            true => ("<![CDATA[", "]]>"),
            false => ("<!--", "-->"),
        };
        let body = special.strip_prefix(open).and_then(|body| body.split_once(close));
        let Some((body, after)) = body else {
            out.push_str(&escape_text(special));
            return out;
        };
        if open == "<!--" {
            out.push_str(&format!("<!--{}-->", escape_text(body)));
        } else {
            out.push_str(&escape_text(body));
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
