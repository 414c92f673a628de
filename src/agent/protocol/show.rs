//! The conversation as the model is shown it: its own turns verbatim, everything else in blocks
//! of which none can pass for another.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::envelope::{Kind, Message};
use crate::model::{Block, Role, Said};
use crate::mutant::mutant;
use crate::system;
use crate::xml::tree::{Element, Node};
use crate::xml::write::{escape_attribute, escape_text};

use super::vocabulary::bare;
use crate::agent::history::{Answered, Item, Seen, Spoken, SpokenCall};

/// Stands between two turns of the model where nothing was said to it.
const GO_ON: &str = "Noted. Go on with one action.";
/// Opens a conversation whose beginning is outside the window.
const CLEARED: &str = "What came before is no longer shown.";

/// Stands for a turn in which the model said nothing.
const SILENT: &str = "(nothing)";

/// The messages of a model call, roles alternating, the user's first and last. Native calls and
/// results are blocks where `provider` is who made the calls, and XML otherwise.
pub fn conversation(items: &[Item], provider: Option<&str>) -> Vec<Said> {
    let mut talk = Talk::default();
    for item in items {
        match item {
            Item::Spoken(spoken) => talk.speak(spoken, provider),
            Item::Seen(seen) => talk.hear(seen),
        }
    }
    talk.finish()
}

/// A conversation in the making.
#[derive(Default)]
struct Talk<'a> {
    said: Vec<Said>,
    /// The last turn, and its native calls, each with what it came to.
    turn: u64,
    owed: Vec<Owed<'a>>,
    /// What the user's side says besides.
    heard: Vec<String>,
}

struct Owed<'a> {
    id: String,
    /// What is said where nothing came of it.
    silent: &'static str,
    results: Vec<Shown<'a>>,
}

impl<'a> Talk<'a> {
    fn speak(&mut self, spoken: &Spoken, provider: Option<&str>) {
        let first = self.said.is_empty();
        self.answer(if first { CLEARED } else { GO_ON });
        self.turn = spoken.turn;
        let native = provider.is_some_and(|provider| provider == spoken.provider);
        let mut blocks = Vec::new();
        if native {
            blocks.extend(spoken.own.iter().cloned().map(Block::Own));
            if !spoken.raw.trim().is_empty() {
                blocks.push(Block::Text(spoken.raw.clone()));
            }
            for call in &spoken.calls {
                blocks.push(Block::Call(call.call.clone()));
                let silent = silence(call);
                self.owed.push(Owed { id: call.call.id.clone(), silent, results: Vec::new() });
            }
        } else {
            blocks.push(Block::Text(as_xml(spoken)));
        }
        if blocks.iter().all(|block| matches!(block, Block::Own(_))) {
            blocks.push(Block::Text(SILENT.to_owned()));
        }
        self.said.push(Said { role: Role::Assistant, blocks });
    }

    fn hear(&mut self, seen: &'a Seen) {
        let shown = shown_or_stub(seen);
        let call = seen.native.filter(|(turn, _)| *turn == self.turn);
        match call.and_then(|(_, at)| self.owed.get_mut(at)) {
            Some(owed) => owed.results.push(shown),
            None => self.heard.push(shown.block()),
        }
    }

    /// The user's side has its say: results first, in the order of their calls.
    fn answer(&mut self, otherwise: &str) {
        let mut blocks: Vec<Block> = self.owed.drain(..).map(Owed::block).collect();
        let heard = std::mem::take(&mut self.heard).join("\n\n");
        if !heard.is_empty() {
            blocks.push(Block::Text(heard));
        }
        if blocks.is_empty() {
            blocks.push(Block::Text(otherwise.to_owned()));
        }
        self.said.push(Said { role: Role::User, blocks });
    }

    fn finish(mut self) -> Vec<Said> {
        let first = self.said.is_empty();
        self.answer(if first { CLEARED } else { GO_ON });
        self.said
    }
}

impl Owed<'_> {
    fn block(mut self) -> Block {
        let failed = !self.results.is_empty() && self.results.iter().all(Shown::is_failure);
        let text = match self.results.len() {
            0 => self.silent.to_owned(),
            1 => self.results.remove(0).text(),
            _ => self.results.into_iter().map(Shown::block).collect::<Vec<_>>().join("\n\n"),
        };
        Block::Result { id: self.id, text, failed }
    }
}

/// What a call came to that nobody answered.
fn silence(call: &SpokenCall) -> &'static str {
    match call.payload {
        Some(_) => "recorded",
        None => "Error: nothing came of this call",
    }
}

/// A turn as it would have been written without native calls.
fn as_xml(spoken: &Spoken) -> String {
    let mut parts = Vec::new();
    if !spoken.raw.is_empty() || spoken.calls.is_empty() {
        parts.push(spoken.raw.clone());
    }
    for SpokenCall { call, payload } in &spoken.calls {
        let refused = || {
            let name = &call.name;
            format!("<{name}>{}</{name}>", escape_text(&call.arguments))
        };
        parts.push(payload.as_deref().map_or_else(refused, bare));
    }
    parts.join("\n")
}

/// What the agent is shown of a message.
enum Shown<'a> {
    /// What came of something it did.
    Result { name: Option<Cow<'a, str>>, from: Option<Cow<'a, str>>, text: Cow<'a, str> },
    /// Anything else, complete.
    Plain(String),
}

impl<'a> Shown<'a> {
    fn result(name: Option<&'a str>, from: Option<&'a str>, text: impl Into<Cow<'a, str>>) -> Self {
        let (name, from) = (name.map(Cow::Borrowed), from.map(Cow::Borrowed));
        Self::Result { name, from, text: text.into() }
    }

    /// Where names were read out of something that is gone by then.
    fn told(name: Option<&str>, from: Option<&str>, text: String) -> Self {
        let owned = |name: &str| Cow::Owned(name.to_owned());
        Self::Result { name: name.map(owned), from: from.map(owned), text: text.into() }
    }

    fn block(self) -> String {
        match self {
            Self::Result { name, from, text } => result(name.as_deref(), from.as_deref(), &text),
            Self::Plain(text) => text,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Result { text, .. } => text.into_owned(),
            Self::Plain(text) => text,
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Result { text, .. } => text,
            Self::Plain(text) => text,
        }
    }

    fn is_failure(&self) -> bool {
        matches!(self, Self::Result { text, .. } if text.starts_with("Error:"))
    }
}

/// What stands in the prompt for a message, as text, were it not left out.
pub fn text_of(seen: &Seen) -> String {
    shown(seen).block()
}

fn shown_or_stub(seen: &Seen) -> Shown<'_> {
    let shown = shown(seen);
    if !seen.left_out {
        return shown;
    }
    let Message { from, to, id, .. } = &*seen.message;
    let characters = shown.as_str().chars().count();
    let stub = format!(
        "[left out: {characters} characters that do not fit your context window; the record keeps \
         them as message {id}]"
    );
    // Whether it failed, and which thread it is of, is said all the same.
    let stub = if shown.is_failure() { failure(&stub) } else { stub };
    match shown {
        Shown::Result { name, from, .. } => Shown::Result { name, from, text: stub.into() },
        Shown::Plain(_) => Shown::Plain(match thread_of(&seen.message) {
            Some((thread, status)) => {
                let thread = format!("thread_id=\"{thread}\" status=\"{status}\"");
                format!("<thread-result {thread}>{stub}</thread-result>")
            }
            None => format!("<message from=\"{from}\" to=\"{to}\">{stub}</message>"),
        }),
    }
}

/// The thread whose result a message is, and how it ended.
fn thread_of(message: &Message) -> Option<(String, String)> {
    if message.name != system::name("thread-result") || !message.from.is_core() {
        return None;
    }
    let result = Element::read(message.payload.as_str())?;
    let attribute = |name: &str| Some(escape_attribute(result.attribute(name)?).into_owned());
    Some((attribute("thread_id")?, attribute("status")?))
}

fn shown(seen: &Seen) -> Shown<'_> {
    let message = &seen.message;
    match (message.kind, &seen.answers) {
        (Kind::Own, _) => Shown::result(Some(&message.name.local), None, "recorded"),
        (Kind::Reply, Some(answered)) => reply(message, answered),
        (Kind::System, answered) if message.from.is_core() => {
            system_payload(message, answered.as_ref())
        }
        _ => Shown::Plain(others(message)),
    }
}

/// Somebody's message, the request included.
fn others(message: &Message) -> String {
    let payload = inert(message.payload.as_str());
    format!("<message from=\"{}\" to=\"{}\">{payload}</message>", message.from, message.to)
}

fn reply<'a>(message: &'a Message, answered: &'a Answered) -> Shown<'a> {
    let content: Cow<'_, str> = match is_failure(&message.name.local) {
        true => failure(&said(message.payload.as_str())).into(),
        false => message.payload.as_str().into(),
    };
    let from = answered.group.then(|| message.from.as_str());
    if answered.in_window {
        Shown::result(Some(&answered.name.local), from, content)
    } else {
        let (name, content) = (&answered.name.local, escape_text(&content));
        Shown::Plain(format!("Result of an earlier {name} that is no longer shown:\n{content}"))
    }
}

/// A reply whose name says that the listener could not do it.
fn is_failure(local: &str) -> bool {
    local.ends_with("-error") || local.ends_with("-failed") || local == "error"
}

fn system_payload<'a>(message: &'a Message, answered: Option<&'a Answered>) -> Shown<'a> {
    let payload = message.payload.as_str();
    let asked = answered.map(|answered| &*answered.name.local);
    let core = &*message.name.namespace == system::NAMESPACE;
    match (&*message.name.local, asked) {
        ("huh", _) if core => huh(payload, asked),
        ("system-error", _) if core => system_error(payload, asked),
        ("ack", Some(name)) if core => {
            Shown::told(Some(name), leg(payload).as_deref(), "acknowledged".to_owned())
        }
        _ => Shown::Plain(inert(payload)),
    }
}

/// Which of several peers that were asked at once a core word is about.
fn leg(payload: &str) -> Option<String> {
    Element::read(payload)?.attribute("from").map(str::to_owned)
}

/// The feedback to a payload that was not accepted, or to a turn without one.
fn huh(payload: &str, asked: Option<&str>) -> Shown<'static> {
    let Some(huh) = Element::read(payload) else {
        return Shown::told(asked, None, failure(payload));
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
    Shown::told(attempted.or(asked), None, failure(&lines.join("\n")))
}

/// The local name of the first tag of an attempt, however broken the rest is.
fn root_name(attempt: &str) -> Option<&str> {
    // A native call is recorded as `name(arguments)`.
    let call = attempt.split_once('(').map(|(name, _)| name);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if let Some(name) = call.filter(|name| !name.is_empty() && name.chars().all(is_name)) {
        return Some(name);
    }
    let (_, tag) = attempt.split_once('<')?;
    let end = tag.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')));
    let name = tag.get(..end.unwrap_or(tag.len()))?;
    let local = name.rsplit_once(':').map_or(name, |(_, local)| local);
    (!local.is_empty()).then_some(local)
}

/// Something the agent asked for that the world did not allow.
fn system_error(payload: &str, asked: Option<&str>) -> Shown<'static> {
    let Some(error) = Element::read(payload) else {
        return Shown::told(asked, None, failure(payload));
    };
    let code = error.attribute("code").unwrap_or("failed");
    let retry = match error.attribute("retry_allowed") {
        Some("true") => " (you may try again)",
        _ => "",
    };
    let said = failure(&format!("{code}: {}{retry}", error.text().trim()));
    Shown::told(asked.or(error.attribute("about")), error.attribute("from"), said)
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
    let content = match mutant("let-a-result-close") {
        true => Cow::Borrowed(content),
        false => escape_text(content),
    };
    let mut out = String::with_capacity(content.len() + 64);
    out.push_str("<tool_result");
    for (attribute, value) in [("tool_name", name), ("from", from)] {
        if let Some(value) = value {
            let _ = write!(out, " {attribute}=\"{}\"", escape_attribute(value));
        }
    }
    let _ = write!(out, ">{content}</tool_result>");
    out
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
