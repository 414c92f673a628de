//! A message as the prompt shows it: either as the result of an action, or as a separate block.

use std::borrow::Cow;

use crate::agent::RendererVersion;
use crate::agent::history::{AnsweredCall, ThreadMessage};
use crate::contract::{goal_name, read_goal};
use crate::envelope::{Message, MessageKind};
use crate::ids::ListenerName;
use crate::system;
use crate::xml::element::{Element, Node};
use crate::xml::escape::{escape_attribute, escape_text};

use super::tool_result::{contained, inert, tool_result};

/// A message as the agent's prompt shows it.
pub(super) enum RenderedMessage<'a> {
    /// Result of one of the agent's actions. `payload` states whether the text is XML.
    Result {
        name: Option<Cow<'a, str>>,
        from: Option<Cow<'a, str>>,
        text: Cow<'a, str>,
        payload: bool,
    },
    /// A message that the prompt shows as a plain text, without the element `tool_result` around
    /// it. An example is a request of a client.
    Plain(String),
}

impl<'a> RenderedMessage<'a> {
    fn result(name: Option<&'a str>, from: Option<&'a str>, text: impl Into<Cow<'a, str>>) -> Self {
        let name = name.map(Cow::Borrowed);
        let from = from.map(Cow::Borrowed);
        Self::Result { name, from, text: text.into(), payload: false }
    }

    fn payload(name: &'a str, from: Option<&'a str>, xml: &'a str) -> Self {
        let name = Some(Cow::Borrowed(name));
        let from = from.map(Cow::Borrowed);
        Self::Result { name, from, text: Cow::Borrowed(xml), payload: true }
    }

    /// Builds a [`RenderedMessage::Result`] that owns copies of `name` and `from`. Used if the
    /// caller has these names only in a temporary value.
    fn owned_result(name: Option<&str>, from: Option<&str>, text: String) -> Self {
        let owned = |name: &str| Cow::Owned(name.to_owned());
        let name = name.map(owned);
        let from = from.map(owned);
        Self::Result { name, from, text: text.into(), payload: false }
    }

    pub fn block(self, version: RendererVersion) -> String {
        match self {
            Self::Result { name, from, text, payload } => {
                tool_result(name.as_deref(), from.as_deref(), text, payload, version)
            }
            Self::Plain(text) => text,
        }
    }

    /// Converts a result to a plain text, because the prompt no longer shows the action of this
    /// result. A plain text stays unchanged. Renderer versions before the fifteenth do not name the
    /// peer of a group.
    fn without_action(self, version: RendererVersion) -> Self {
        let Self::Result { name, from, text, payload } = self else { return self };
        let content = if payload && version > RendererVersion::V3 {
            contained(&text)
        } else {
            escape_text(&text).into_owned()
        };

        let name = name.as_deref().unwrap_or("action");
        let from = from.filter(|_| version >= RendererVersion::V15);
        let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
        Self::Plain(format!(
            "Result of an earlier {name}{from} that is no longer shown:\n{content}"
        ))
    }

    /// Whether `self` and `next` are parts of one result. True if both are XML payloads without a
    /// failure, for the same action and from the same sender.
    fn takes(&self, next: &Self) -> bool {
        if self.is_failure() || next.is_failure() {
            return false;
        }
        match (self, next) {
            (
                Self::Result { name, from, payload: true, .. },
                Self::Result { name: next_name, from: next_from, payload: true, .. },
            ) => name == next_name && from == next_from,
            _ => false,
        }
    }

    fn append(&mut self, next: &Self) {
        if let Self::Result { text, .. } = self {
            let text = text.to_mut();
            text.push('\n');
            text.push_str(next.as_str());
        }
    }

    pub fn text(self) -> String {
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

    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Result { text, .. } if text.starts_with("Error:"))
    }
}

/// Merges consecutive payloads into a single result if they are parts of one listener's answer to
/// one call.
pub(super) fn merged(shown: Vec<RenderedMessage<'_>>) -> Vec<RenderedMessage<'_>> {
    let mut out: Vec<RenderedMessage<'_>> = Vec::with_capacity(shown.len());
    for next in shown {
        match out.last_mut() {
            Some(last) if last.takes(&next) => last.append(&next),
            _ => out.push(next),
        }
    }

    out
}

/// Returns the full text of a message as the prompt of `viewer` shows it, even if the prompt
/// replaces this message by a placeholder.
pub fn text_of(seen: &ThreadMessage, viewer: &ListenerName, version: RendererVersion) -> String {
    in_window(shown(seen, viewer, version), seen, version).block(version)
}

pub(super) fn shown_or_stub<'a>(
    seen: &'a ThreadMessage,
    viewer: &ListenerName,
    version: RendererVersion,
) -> RenderedMessage<'a> {
    let shown = shown(seen, viewer, version);
    let shown = if seen.left_out { stub(shown, seen, viewer, version) } else { shown };
    in_window(shown, seen, version)
}

/// Converts the result of an action to a plain text if the turn of the action is outside the
/// viewer's window. Renderer versions before the fifteenth do this in [`reply`], and for replies
/// only.
fn in_window<'a>(
    shown: RenderedMessage<'a>,
    seen: &ThreadMessage,
    version: RendererVersion,
) -> RenderedMessage<'a> {
    if seen.is_of_cleared_turn && version >= RendererVersion::V15 {
        shown.without_action(version)
    } else {
        shown
    }
}

/// Returns the placeholder for the message `seen`. `shown` is the message as the prompt would show
/// it if it fitted.
fn stub<'a>(
    shown: RenderedMessage<'a>,
    seen: &ThreadMessage,
    viewer: &ListenerName,
    version: RendererVersion,
) -> RenderedMessage<'a> {
    let Message { from, to, id, .. } = &*seen.message;
    let characters = shown.as_str().chars().count();
    let stub = format!(
        "[left out: {characters} characters that do not fit your context window; the record keeps \
         them as message {id}]"
    );
    // A stub still states whether the message is a failure, and which thread's result it is.
    let stub = if shown.is_failure() { failure(&stub) } else { stub };

    match shown {
        RenderedMessage::Result { name, from, .. } => {
            RenderedMessage::Result { name, from, text: stub.into(), payload: false }
        }
        RenderedMessage::Plain(_) => {
            let is_viewers = !is_between_others(&seen.message, viewer, version);
            let attributes = thread_of(&seen.message).filter(|_| is_viewers);
            RenderedMessage::Plain(match attributes {
                Some(attributes) => format!("<thread-result{attributes}>{stub}</thread-result>"),
                None => format!("<message from=\"{from}\" to=\"{to}\">{stub}</message>"),
            })
        }
    }
}

/// Returns the attributes of the `thread-result` in `message`: the id of the ended thread, its
/// status and, if the call went to a group of peers, the name of the peer. Returns `None` if
/// `message` is not a `thread-result` of the core.
fn thread_of(message: &Message) -> Option<String> {
    if message.name != system::name("thread-result") || !message.from.is_core() {
        return None;
    }
    let result = Element::read(message.payload.as_str())?;
    let attribute =
        |name: &str| Some(format!(" {name}=\"{}\"", escape_attribute(result.attribute(name)?)));
    let peer = attribute("from").unwrap_or_default();
    Some(attribute("thread_id")? + &attribute("status")? + &peer)
}

/// Returns the full message. The result of an action stays one if its action is outside the
/// viewer's window, except for replies in renderer versions before the fifteenth.
fn shown<'a>(
    seen: &'a ThreadMessage,
    viewer: &ListenerName,
    version: RendererVersion,
) -> RenderedMessage<'a> {
    let message = &seen.message;
    if is_between_others(message, viewer, version) {
        return RenderedMessage::Plain(others(message, viewer, version));
    }

    match (message.kind, &seen.answers) {
        (MessageKind::Own, _) => {
            RenderedMessage::result(Some(&message.name.local), None, "recorded")
        }
        (MessageKind::Reply, Some(answered)) => reply(message, answered, version),
        // The agent has opened this call from another thread, and not by an action in this one.
        (MessageKind::System, _)
            if seen.answers_call_from_other_thread && version >= RendererVersion::V12 =>
        {
            RenderedMessage::Plain(others(message, viewer, version))
        }
        (MessageKind::System, answered) if message.from.is_core() => {
            system_payload(message, answered.as_ref())
        }
        _ => RenderedMessage::Plain(others(message, viewer, version)),
    }
}

/// Whether the prompt shows `message` as a message between other listeners. This is so if `viewer`
/// neither sent nor received the message. Always false in renderer versions before the tenth.
fn is_between_others(message: &Message, viewer: &ListenerName, version: RendererVersion) -> bool {
    version >= RendererVersion::V10 && message.from != *viewer && message.to != *viewer
}

/// Renders a message that answers no call of `viewer`, such as a client's request. A goal for
/// `viewer` is rendered as the text of the goal without tags. This is safe, because only workflows
/// can send goals.
fn others(message: &Message, viewer: &ListenerName, version: RendererVersion) -> String {
    let is_own = message.to == *viewer || version < RendererVersion::V7;
    if is_own
        && message.name == goal_name(&message.to)
        && let Some(document) = read_goal(message.payload.as_str())
    {
        return document;
    }

    let payload = inert(message.payload.as_str());
    format!("<message from=\"{}\" to=\"{}\">{payload}</message>", message.from, message.to)
}

fn reply<'a>(
    message: &'a Message,
    answered: &'a AnsweredCall,
    version: RendererVersion,
) -> RenderedMessage<'a> {
    let name = &*answered.name.local;
    let payload = message.payload.as_str();
    let from = answered.group.then(|| message.from.as_str());
    let shown = if is_failure(&message.name.local) {
        failed_reply(name, from, payload, version)
    } else {
        RenderedMessage::payload(name, from, payload)
    };

    if answered.in_window || version >= RendererVersion::V15 {
        shown
    } else {
        shown.without_action(version)
    }
}

/// Renders an error reply. If the payload has attributes or child elements, the result contains the
/// whole payload. Otherwise, it contains only the payload's text. Renderer versions before the
/// tenth always show only the texts of the payload and of its child elements, without attributes.
fn failed_reply<'a>(
    name: &'a str,
    from: Option<&'a str>,
    payload: &'a str,
    version: RendererVersion,
) -> RenderedMessage<'a> {
    let has_parts =
        |error: Element| !error.attributes.is_empty() || error.children().next().is_some();
    let is_whole = version >= RendererVersion::V10 && Element::read(payload).is_some_and(has_parts);
    if !is_whole {
        return RenderedMessage::result(Some(name), from, failure(&failure_text(payload)));
    }

    RenderedMessage::Result {
        name: Some(Cow::Borrowed(name)),
        from: from.map(Cow::Borrowed),
        text: failure(payload).into(),
        payload: true,
    }
}

/// Whether a reply with the local name `local` states a failure.
fn is_failure(local: &str) -> bool {
    local.ends_with("-error") || local.ends_with("-failed") || local == "error"
}

fn system_payload<'a>(
    message: &'a Message,
    answered: Option<&'a AnsweredCall>,
) -> RenderedMessage<'a> {
    let payload = message.payload.as_str();
    let request = answered.map(|answered| &*answered.name.local);
    let core = &*message.name.namespace == system::NAMESPACE;

    match (&*message.name.local, request) {
        ("huh", _) if core => huh(payload, request),
        ("system-error", _) if core => system_error(payload, request),
        ("ack", Some(name)) if core => RenderedMessage::owned_result(
            Some(name),
            leg(payload).as_deref(),
            "acknowledged".to_owned(),
        ),
        _ => RenderedMessage::Plain(inert(payload)),
    }
}

/// Returns the peer that the acknowledgement `payload` names. Returns `None` if it names no peer,
/// because the call went to a single listener.
fn leg(payload: &str) -> Option<String> {
    Element::read(payload)?.attribute("from").map(str::to_owned)
}

/// Renders feedback about a refused payload, or about a turn without a payload.
fn huh(payload: &str, request: Option<&str>) -> RenderedMessage<'static> {
    let Some(huh) = Element::read(payload) else {
        return RenderedMessage::owned_result(request, None, failure(payload));
    };

    let mut lines: Vec<String> = huh
        .children()
        .filter(|child| child.local_name() == "reason")
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
    RenderedMessage::owned_result(attempted.or(request), None, failure(&lines.join("\n")))
}

/// Returns the local name of the first tag of a refused payload, or the name of a refused native
/// call. Returns `None` if there is no name.
fn root_name(attempt: &str) -> Option<&str> {
    // A native call is recorded in the form `name(arguments)`.
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

/// Renders the result of an action that failed with a `system-error`.
fn system_error(payload: &str, request: Option<&str>) -> RenderedMessage<'static> {
    let Some(error) = Element::read(payload) else {
        return RenderedMessage::owned_result(request, None, failure(payload));
    };

    let code = error.attribute("code").unwrap_or("failed");
    let retry = match error.attribute("retry_allowed") {
        Some("true") => " (you may try again)",
        _ => "",
    };

    let text = failure(&format!("{code}: {}{retry}", error.text().trim()));
    RenderedMessage::owned_result(
        request.or(error.attribute("about")),
        error.attribute("from"),
        text,
    )
}

/// Returns the text of a failure payload. If the payload has child elements, returns one line for
/// each child element and for each text between them.
fn failure_text(payload: &str) -> String {
    match Element::read(payload) {
        Some(element) if element.children().next().is_none() => element.text().trim().to_owned(),
        Some(element) => element
            .content
            .iter()
            .filter_map(|node| match node {
                Node::Element(child) => {
                    Some(format!("{}: {}", child.local_name(), child.text().trim()))
                }
                Node::Text(text) if text.trim().is_empty() => None,
                Node::Text(text) => Some(text.trim().to_owned()),
            })
            .collect::<Vec<_>>()
            .join("\n"),
        None => payload.to_owned(),
    }
}

/// Returns `text` with exactly one `Error:` at its beginning, even if `text` begins with several of
/// them.
fn failure(text: &str) -> String {
    let mut text = text.trim_start();
    while let Some(rest) = text.strip_prefix("Error:") {
        text = rest.trim_start();
    }
    format!("Error: {text}")
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::contract::write_goal;
    use crate::envelope::Payload;
    use crate::ids::{MessageId, ThreadId};

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).unwrap()
    }

    #[test]
    fn a_goal_stands_bare_in_the_prompt_of_its_own_agent_alone() {
        let writer = name("writer");
        let message = Message {
            id: MessageId(Uuid::nil()),
            kind: MessageKind::Call,
            from: name("flow"),
            to: writer.clone(),
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            seq: 1,
            cause: None,
            call: None,
            time: Time(0),
            name: goal_name(&writer),
            payload: Payload::new(write_goal(&writer, "Write.")),
        };
        let shown = |viewer: &str, version| others(&message, &name(viewer), version);
        for version in RendererVersion::ALL {
            assert_eq!(shown("writer", version), "Write.");
        }

        let current = RendererVersion::CURRENT;
        let of_another = shown("critic", current);
        assert!(of_another.starts_with("<message from=\"flow\" to=\"writer\">"), "{of_another}");
        assert_eq!(shown("critic", RendererVersion::V6), "Write.");
    }
}
