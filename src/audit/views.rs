//! Messages and refusals in the form in which auditors see them: flat structures whose fields are
//! mostly text.

use serde::Serialize;

use crate::envelope::{Disposition, Message, MessageKind, Refusal, RefusalRule, located_message};
use crate::ids::{CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::thread::{Hold, Input, Record};
use crate::xml::findings::TextLocation;

use super::message_state::MessageState;

/// A message, with the position of its record and its disposition. A view of an earlier moment has
/// the disposition of that moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageView {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "seq")]
    pub seq: u64,
    #[serde(rename = "kind")]
    pub kind: MessageKind,
    #[serde(rename = "from")]
    pub from: ListenerName,
    #[serde(rename = "to")]
    pub to: ListenerName,
    #[serde(rename = "cause", skip_serializing_if = "Option::is_none")]
    pub cause: Option<MessageId>,
    #[serde(rename = "call", skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Time of the message, in RFC 3339.
    #[serde(rename = "time")]
    pub time: String,
    #[serde(skip)]
    pub at: crate::clock::Time,
    #[serde(rename = "name")]
    pub name: PayloadName,
    /// The payload; `None` if it was redacted.
    #[serde(rename = "payload")]
    pub payload: Option<String>,
    #[serde(rename = "digest")]
    pub digest: Digest,
    /// Disposition of the message; `None` as long as it has none.
    #[serde(rename = "disposition", skip_serializing_if = "Option::is_none")]
    pub disposition: Option<Disposition>,
    /// The kind of decision for which the call of the message waits; `None` if it does not wait for
    /// a person.
    #[serde(rename = "hold", skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Whether the message is in a delivery that waits for the listener's answer. `None` if this is
    /// unknown, because the view was made only from the records of a tree, which do not state all
    /// hand-overs to listeners.
    #[serde(skip)]
    pub is_handed_over: Option<bool>,
}

impl MessageView {
    pub fn new(position: Position, message: &Message) -> Self {
        let payload = &message.payload;
        Self {
            position,
            id: message.id,
            thread: message.thread.clone(),
            seq: message.seq,
            kind: message.kind,
            from: message.from.clone(),
            to: message.to.clone(),
            cause: message.cause,
            call: message.call,
            time: message.time.to_string(),
            at: message.time,
            name: message.name.clone(),
            payload: (!payload.is_redacted()).then(|| payload.as_str().to_owned()),
            digest: payload.digest,
            disposition: None,
            hold: None,
            is_handed_over: None,
        }
    }

    /// Returns the state of the message.
    pub const fn state(&self) -> MessageState {
        MessageState::of(self.disposition, self.hold, self.is_handed_over)
    }

    /// Returns the state of the message if people should notice it. Returns `None` for the usual
    /// states `handled` and `recorded`.
    pub const fn unusual_state(&self) -> Option<&'static str> {
        self.state().unusual()
    }
}

/// Number of requests of one client that were refused as `busy`. Refusals as `busy` are only
/// counted, and not recorded one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BusyRefusals {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "time")]
    pub time: String,
    #[serde(rename = "client")]
    pub client: ListenerName,
    /// Time of the first of the counted refusals.
    #[serde(rename = "since")]
    pub since: String,
    #[serde(rename = "count")]
    pub count: u64,
}

impl BusyRefusals {
    /// Returns the count of `busy` refusals in a record; `None` if it contains none.
    pub fn of(record: &Record) -> Option<Self> {
        let Input::Busy { client, since, count } = &record.input else { return None };

        Some(Self {
            position: record.position,
            time: record.time.to_string(),
            client: client.clone(),
            since: since.to_string(),
            count: *count,
        })
    }
}

/// A refusal of a payload by the gate, or of an operator's action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusalView {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "time")]
    pub time: String,
    #[serde(rename = "sender")]
    pub sender: ListenerName,
    #[serde(rename = "thread", skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    #[serde(rename = "rule")]
    pub rule: RefusalRule,
    #[serde(rename = "message")]
    pub message: String,
    #[serde(rename = "place", skip_serializing_if = "Option::is_none")]
    pub place: Option<TextLocation>,
    #[serde(rename = "length")]
    pub length: usize,
    #[serde(rename = "digest")]
    pub digest: Digest,
    /// The beginning of the refused text.
    #[serde(rename = "head")]
    pub head: String,
    /// Local name of the refused payload; `None` if the refused text is no payload.
    #[serde(skip)]
    pub payload: Option<String>,
    /// Whether the refused text is the answer to a request for a preview. False outside of
    /// timelines that are made from records.
    #[serde(skip)]
    pub is_of_preview: bool,
}

impl RefusalView {
    /// Whether this is the refusal of an operator's action. If false, this is the refusal of a
    /// payload.
    pub fn is_of_action(&self) -> bool {
        self.sender == ListenerName::operator()
    }

    /// Returns the message of the refusal. If the place of the first defect in the refused text is
    /// known, the message also states this place.
    pub fn located_message(&self) -> String {
        match self.place.as_ref().filter(|place| place.is_known()) {
            Some(place) => located_message(&self.message, &place.to_string()),
            None => self.message.clone(),
        }
    }

    pub fn new(
        position: Position,
        time: crate::clock::Time,
        sender: &ListenerName,
        thread: Option<&ThreadId>,
        refusal: &Refusal,
    ) -> Self {
        Self {
            position,
            time: time.to_string(),
            sender: sender.clone(),
            thread: thread.cloned(),
            rule: refusal.rule,
            message: refusal.message.clone(),
            place: refusal.place.clone(),
            length: refusal.length,
            digest: refusal.digest,
            head: refusal.head.clone(),
            payload: match &refusal.name {
                Some(name) => Some(name.local.to_string()),
                None => element_name(&refusal.head).map(str::to_owned),
            },
            is_of_preview: false,
        }
    }
}

/// Returns the local name of the element at the beginning of a text, which may be malformed after
/// this name. Returns `None` if the text does not begin with an element.
pub fn element_name(text: &str) -> Option<&str> {
    let tag = text.trim_start().strip_prefix('<')?;
    let end = tag.find(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '/'))?;
    let name = tag.get(..end)?;
    let local = name.rsplit_once(':').map_or(name, |(_, local)| local);
    let is_name = local.starts_with(|c: char| c.is_alphabetic() || c == '_');
    is_name.then_some(local)
}

#[cfg(test)]
mod tests {
    use super::element_name;

    #[test]
    fn a_refused_text_names_its_payload_if_it_begins_with_an_element() {
        let cases = [
            ("<order xmlns=\"urn:example\"><m/></order>", Some("order")),
            ("  <t:order/>", Some("order")),
            ("<order><m>", Some("order")),
            ("<order", None),
            ("<!-- x --><order/>", None),
            ("order a book", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(element_name(text), expected, "{text}");
        }
    }
}
