//! The note `model-turn`, which contains the recorded data of one model call. With this data, a
//! person can examine the call, and the program can rebuild its prompt.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::envelope::{Money, RouteTry};
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position};
use crate::limits;
use crate::model::{OwnBlock, StopReason, TokenUsage, ToolCall};
use crate::system::{self, MODEL_TURN};
use crate::xml::element::Element;
use crate::xml::escape::{escape_attribute, escape_text, is_xml_char};
use crate::xml::findings::Finding;

use super::ActionTransport;
use super::protocol::ParsedToolCall;
use super::protocol::feedback::REJECTED;

/// The data of one model call, to be recorded in a note.
#[derive(Debug, Clone)]
pub struct TurnNote<'a> {
    pub agent: &'a ListenerName,
    pub call: CallId,
    /// Number of the turn among all turns of the agent in the thread, counted from 1.
    pub turn: u32,
    /// Number of the turn within its call, counted from 1.
    pub iteration: u32,
    /// Journal position up to which the prompt shows the thread.
    pub position: Position,
    pub transport: ActionTransport,
    pub provider: &'a str,
    pub model: &'a str,
    pub renderer: &'a str,
    pub environment: &'a str,
    pub stop: StopReason,
    pub usage: TokenUsage,
    pub latency_ms: u64,
    pub prompt: Digest,
    /// Digest of the stored inputs of the request. The thread is not one of these inputs. `None` if
    /// the inputs are not stored.
    pub inputs: Option<Digest>,
    /// The model's text, byte for byte.
    pub raw: &'a str,
    /// The turn's native calls, each with the digest of the payload that was made from the call. A
    /// refused native call has the digest of its own text instead. The payload or refusal may be
    /// missing in the record if the turn exceeded its limits.
    pub calls: &'a [ParsedToolCall],
    /// Blocks of the answer in the provider's own format, verbatim. Only the provider can read
    /// them.
    pub own: &'a [OwnBlock],
    /// The notice that the request of this turn contained; `None` if it contained none.
    pub notice: Option<&'a str>,
    /// The nonce that the names of the turn's slots contain; `None` if the turn has no slots.
    pub nonce: Option<&'a str>,
    pub findings: &'a [Finding],
    /// Findings about payloads that were accepted in spite of a mistake.
    pub warnings: &'a [Finding],
    /// Messages that are replaced by placeholders in this turn's prompt and in later prompts.
    pub left_out: &'a [MessageId],
    /// Cost of the model call, with its currency; `None` if no price is known.
    pub cost: Option<(Money, &'a str)>,
    /// Name of the model that answered, as the provider states it; `None` if the provider states
    /// none.
    pub answered_by: Option<&'a str>,
    /// Earlier requests of the model call, which failed before the answer arrived.
    pub tries: &'a [RouteTry],
    /// Id of a note from the source of the fork. This note belongs to the turn whose recorded
    /// answer the present turn has used instead of calling a model. `None` if a model answered.
    pub recorded: Option<MessageId>,
}

impl TurnNote<'_> {
    /// Writes the note as a payload.
    pub fn write(&self) -> String {
        let mut out = format!("<{MODEL_TURN} xmlns=\"{}\"", system::NAMESPACE);
        self.write_attributes(&mut out);
        self.write_content(&mut out);
        out.push_str("</");
        out.push_str(MODEL_TURN);
        out.push('>');
        out
    }

    fn write_attributes(&self, out: &mut String) {
        for (name, value) in [
            ("agent", self.agent.to_string()),
            ("call", self.call.to_string()),
            ("turn", self.turn.to_string()),
            ("iteration", self.iteration.to_string()),
            ("position", self.position.to_string()),
            ("transport", self.transport.as_str().to_owned()),
            ("provider", self.provider.to_owned()),
            ("model", self.model.to_owned()),
            ("renderer", self.renderer.to_owned()),
            ("stop", self.stop.as_str().to_owned()),
            ("tokens_in", self.usage.tokens_in.to_string()),
            ("tokens_out", self.usage.tokens_out.to_string()),
            ("latency_ms", self.latency_ms.to_string()),
            ("prompt", self.prompt.to_string()),
        ] {
            let _ = write!(out, " {name}=\"{}\"", escape_attribute(&value));
        }

        if let Some(inputs) = self.inputs {
            let _ = write!(out, " inputs=\"{inputs}\"");
        }

        if let Some(nonce) = self.nonce {
            let _ = write!(out, " nonce=\"{}\"", escape_attribute(nonce));
        }

        if self.usage.estimated {
            out.push_str(" estimated=\"true\"");
        }

        if let Some((money, currency)) = self.cost {
            let _ = write!(out, " cost=\"{money}\" currency=\"{}\"", escape_attribute(currency));
        }

        if let Some(model) = self.answered_by.map(shown) {
            let _ = write!(out, " answered_by=\"{}\"", escape_attribute(&model));
        }

        if let Some(recorded) = self.recorded {
            let _ = write!(out, " recorded=\"{recorded}\"");
        }
        out.push('>');
    }

    fn write_content(&self, out: &mut String) {
        let _ = write!(out, "<environment>{}</environment>", escape_text(self.environment));
        if let Some(notice) = self.notice {
            verbatim(out, "notice", &[], notice);
        }

        verbatim(out, "raw", &[], self.raw);

        for ParsedToolCall { call, digest } in self.calls {
            let digest = digest.to_string();
            let values = [("id", call.id.as_str()), ("name", &call.name), ("payload", &digest)];
            verbatim(out, "call", &values, &call.arguments);
        }

        for own in self.own {
            verbatim(out, "block", &[("provider", &own.provider)], &own.json);
        }

        for (findings, accepted) in [(self.findings, ""), (self.warnings, " accepted=\"true\"")] {
            for finding in findings {
                let _ = write!(
                    out,
                    "<finding code=\"{}\" line=\"{}\" column=\"{}\"{accepted}>{}</finding>",
                    escape_attribute(&finding.code),
                    finding.place.line,
                    finding.place.column,
                    escape_text(&finding.message),
                );
            }
        }

        self.tries.iter().for_each(|lost| write_try(out, lost));
        for message in self.left_out {
            let _ = write!(out, "<left-out message=\"{message}\"/>");
        }
    }
}

fn write_try(out: &mut String, lost: &RouteTry) {
    let route = escape_attribute(&lost.route);
    let reason = escape_attribute(&lost.reason);
    let _ = write!(out, "<tried route=\"{route}\" reason=\"{reason}\"/>");
}

/// Returns the name of a model as it is recorded: cut to a maximum length, and without control
/// characters.
fn shown(model: &str) -> String {
    let visible = model.chars().filter(|c| !c.is_control());
    visible.take(limits::MODEL_NAME_CHARS_MAX).collect()
}

/// Writes an element that preserves a text byte for byte, including characters that XML cannot
/// contain.
fn verbatim(out: &mut String, name: &str, attributes: &[(&str, &str)], text: &str) {
    let _ = write!(out, "<{name}");
    for (attribute, value) in attributes {
        let _ = write!(out, " {attribute}=\"{}\"", escape_attribute(value));
    }

    if text.chars().all(is_xml_char) {
        let _ = write!(out, ">{}</{name}>", escape_text(text));
    } else {
        let _ = write!(out, " encoding=\"base64\">{}</{name}>", BASE64.encode(text));
    }
}

fn read_verbatim(element: &Element) -> Option<String> {
    match element.attribute("encoding") {
        Some("base64") => String::from_utf8(BASE64.decode(element.text()).ok()?).ok(),
        _ => Some(element.text()),
    }
}

/// A recorded turn, with the data that later turns need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastTurn {
    pub agent: ListenerName,
    pub call: CallId,
    pub position: Position,
    /// Number of the turn among all turns of the agent in the thread, counted from 1; 0 if the
    /// turn's note does not state it.
    pub turn: u32,
    /// Provider that answered the turn's request.
    pub provider: String,
    /// Name of the model in the request to the provider.
    pub model: String,
    /// Name of the model that answered, as the provider stated it; `None` if the provider stated
    /// none.
    pub answered_by: Option<String>,
    /// Reason why the model stopped; `None` if the note does not state it.
    pub stop: Option<StopReason>,
    /// The nonce that the names of the turn's slots contain; `None` if the turn has no slots.
    pub nonce: Option<String>,
    /// Text of the feedback which states that the provider rejected the turn's request. A turn with
    /// this feedback has no answer of a model. `None` for a turn with an answer.
    pub rejection: Option<String>,
    /// Renderer version of the turn's prompt; empty if the turn's note does not state it.
    pub renderer: String,
    /// Lines of the turn's prompt that describe the agent's environment; `None` if the turn's note
    /// does not state them.
    pub environment: Option<String>,
    /// Digest of the whole request of the turn; `None` if the turn's note does not state it.
    pub prompt: Option<Digest>,
    /// Digest of the stored inputs of the request. The thread is not one of these inputs. `None`
    /// for turns of older program versions, which did not store inputs of requests.
    pub inputs: Option<Digest>,
    /// The notice that the request of this turn contained; `None` if it contained none.
    pub notice: Option<String>,
    pub raw: String,
    pub calls: Vec<ParsedToolCall>,
    pub own: Vec<OwnBlock>,
    /// Messages that are replaced by placeholders in this turn's prompt and in later prompts.
    pub left_out: Vec<MessageId>,
}

impl PastTurn {
    /// Parses a note as [`PastTurn::read`] does. Also returns `None` if the turn did not store its
    /// inputs.
    pub fn with_inputs(payload: &str) -> Option<Self> {
        payload.contains(" inputs=\"").then(|| Self::read(payload)).flatten()
    }

    /// Parses a note. Returns `None` if the payload is no `model-turn` note.
    pub fn read(payload: &str) -> Option<Self> {
        let note = Element::read(payload)?;

        let named =
            |name: &'static str| note.children().filter(move |child| child.local_name() == name);

        let calls = named("call").map(|call| {
            let call_of = |name: &str| call.attribute(name).map(str::to_owned);
            let arguments = read_verbatim(call)?;
            let digest = Digest::parse(call.attribute("payload")?).ok()?;
            let call = ToolCall { id: call_of("id")?, name: call_of("name")?, arguments };
            Some(ParsedToolCall { call, digest })
        });

        let own = named("block").map(|block| {
            let provider = block.attribute("provider")?.to_owned();
            Some(OwnBlock { provider, json: read_verbatim(block)? })
        });
        let left_out = named("left-out").map(|stub| stub.attribute("message")?.parse().ok());

        Some(Self {
            agent: ListenerName::parse(note.attribute("agent")?).ok()?,
            call: CallId(note.attribute("call")?.parse::<MessageId>().ok()?),
            position: Position(note.attribute("position")?.parse().ok()?),
            turn: note.attribute("turn").and_then(|turn| turn.parse().ok()).unwrap_or_default(),
            provider: note.attribute("provider").unwrap_or_default().to_owned(),
            model: note.attribute("model").unwrap_or_default().to_owned(),
            answered_by: note.attribute("answered_by").map(str::to_owned),
            stop: note.attribute("stop").and_then(StopReason::parse),
            nonce: note.attribute("nonce").map(str::to_owned),
            rejection: named("finding")
                .find(|own| own.attribute("code") == Some(REJECTED))
                .map(Element::text),
            renderer: note.attribute("renderer").unwrap_or_default().to_owned(),
            environment: note.child("environment").map(Element::text),
            prompt: note.attribute("prompt").and_then(|digest| Digest::parse(digest).ok()),
            inputs: note.attribute("inputs").and_then(|digest| Digest::parse(digest).ok()),
            notice: note.child("notice").and_then(read_verbatim),
            raw: read_verbatim(note.child("raw")?)?,
            calls: calls.collect::<Option<_>>()?,
            own: own.collect::<Option<_>>()?,
            left_out: left_out.flatten().collect(),
        })
    }
}
