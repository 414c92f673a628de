//! The protocol `transport = "native"`. The model writes every payload as a call of a native tool,
//! including the final payload. A payload that the model writes as XML has no effect, and always
//! causes feedback.

pub mod tools;

pub use tools::NativeTools;

use super::feedback::XML_CALL;
use super::finals::AgentFinals;
use super::parse_turn::{ElementPolicy, ElementVerdict, ParsedItems, ParsedToolCall, is_note};
use crate::ids::{Digest, PayloadName};
use crate::model::ToolCall;
use crate::mutant::mutant;
use crate::xml::extract;
use crate::xml::findings::{Finding, TextLocation};

/// Parses native calls in their order, and sorts the payloads into notes and actions. A call that
/// cannot be parsed becomes a refusal.
pub(super) fn take(
    sorted: &mut ParsedItems,
    calls: &[ToolCall],
    tools: &NativeTools,
    finals: &AgentFinals,
) {
    for call in calls {
        let digest = match tools.read(call, finals) {
            Ok(action) => {
                let digest = Digest::of(&action.payload);
                sorted.add_payload(action.name, action.payload);
                digest
            }
            Err(finding) => refuse(sorted, call, finding),
        };
        sorted.reading.calls.push(ParsedToolCall { call: call.clone(), digest });
    }
}

/// Records the refusal of a native call. Returns the digest by which the record identifies the
/// call.
pub(super) fn refuse(sorted: &mut ParsedItems, call: &ToolCall, finding: Finding) -> Digest {
    let attempt = format!("{}({})", call.name, call.arguments);
    let digest = Digest::of(attempt.as_bytes());
    sorted.refuse(attempt, finding);
    digest
}

/// Rules for XML in the text of an agent whose actions are native calls (tool calls). An action
/// that is written as XML is refused.
pub(super) struct NativePolicy<'a> {
    pub raw: &'a str,
    pub tools: &'a NativeTools,
}

impl ElementPolicy for NativePolicy<'_> {
    fn action(&mut self, action: &extract::ExtractedAction) -> ElementVerdict {
        let name = PayloadName::from(action.name());
        if is_note(&name) || mutant("take-xml-beside-calls") {
            return ElementVerdict::Take;
        }
        ElementVerdict::Refuse(xml_call(self.raw, action, self.tools))
    }
}

/// Creates the finding for a payload that the model wrote as XML, although the payload must be a
/// native call.
pub(super) fn xml_call(
    raw: &str,
    action: &extract::ExtractedAction,
    tools: &NativeTools,
) -> Finding {
    let name = PayloadName::from(action.name());
    let place = TextLocation::at(raw.as_bytes(), action.source.start);
    let called = tools.name_of(&name).unwrap_or(&name.local);
    let message = format!(
        "<{}> was written as XML and is not acted on: call the native tool `{called}`",
        name.local
    );
    Finding::new(XML_CALL, place, message)
}
