//! The `model-turn` note: everything needed to know, and to show again, what one model call was.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::ids::{CallId, Digest, ListenerName, MessageId, Position};
use crate::model::{StopReason, Usage};
use crate::system;
use crate::xml::findings::Finding;
use crate::xml::tree::Element;
use crate::xml::write::{escape_attribute, escape_text, is_xml_char};

/// The local name of the note in the core's namespace.
pub const WORD: &str = "model-turn";

/// One model call, to be written down by the core.
#[derive(Debug, Clone)]
pub struct TurnNote<'a> {
    pub agent: &'a ListenerName,
    pub call: CallId,
    /// From 1, over all turns of the agent in the thread.
    pub turn: u32,
    /// From 1, over the turns in this call.
    pub iteration: u32,
    /// The thread up to here is what the prompt was rendered from.
    pub position: Position,
    pub provider: &'a str,
    pub model: &'a str,
    pub renderer: &'a str,
    pub environment: &'a str,
    pub stop: StopReason,
    pub usage: Usage,
    pub latency_ms: u64,
    pub prompt: Digest,
    /// The model's text, byte for byte.
    pub raw: &'a str,
    pub findings: &'a [Finding],
}

impl TurnNote<'_> {
    /// The complete payload.
    pub fn write(&self) -> String {
        let mut out = format!("<{WORD} xmlns=\"{}\"", system::NAMESPACE);
        for (name, value) in [
            ("agent", self.agent.to_string()),
            ("call", self.call.to_string()),
            ("turn", self.turn.to_string()),
            ("iteration", self.iteration.to_string()),
            ("position", self.position.to_string()),
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
        let _ = write!(out, "><environment>{}</environment>", escape_text(self.environment));
        if self.raw.chars().all(is_xml_char) {
            let _ = write!(out, "<raw>{}</raw>", escape_text(self.raw));
        } else {
            let _ = write!(out, "<raw encoding=\"base64\">{}</raw>", BASE64.encode(self.raw));
        }
        for finding in self.findings {
            let _ = write!(
                out,
                "<finding code=\"{}\" line=\"{}\" column=\"{}\">{}</finding>",
                escape_attribute(&finding.code),
                finding.place.line,
                finding.place.column,
                escape_text(&finding.message),
            );
        }
        out.push_str("</");
        out.push_str(WORD);
        out.push('>');
        out
    }
}

/// What later turns need of a turn on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastTurn {
    pub agent: ListenerName,
    pub call: CallId,
    pub position: Position,
    pub raw: String,
}

impl PastTurn {
    /// Reads a note; `None` where it is not one.
    pub fn read(payload: &str) -> Option<Self> {
        let note = Element::read(payload)?;
        let raw = note.child("raw")?;
        let text = match raw.attribute("encoding") {
            Some("base64") => String::from_utf8(BASE64.decode(raw.text()).ok()?).ok()?,
            _ => raw.text(),
        };
        Some(Self {
            agent: ListenerName::parse(note.attribute("agent")?).ok()?,
            call: CallId(note.attribute("call")?.parse::<MessageId>().ok()?),
            position: Position(note.attribute("position")?.parse().ok()?),
            raw: text,
        })
    }
}
