//! `transport = "native"`: every word a native tool, the final among them. What stands as XML in
//! the text is never acted on, and never passed over in silence.

pub mod teach;
pub mod tools;

pub use tools::NativeTools;

use super::feedback::XML_CALL;
use super::finals::AgentFinals;
use super::parse_turn::{ElementPolicy, ElementVerdict, ParsedItems, ParsedToolCall, is_note};
use crate::ids::{Digest, PayloadName};
use crate::model::ToolCall;
use crate::mutant::mutant;
use crate::xml::extract;
use crate::xml::findings::{Finding, Place};

/// Native calls in their order: notes, actions, and what is no call at all.
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
                sorted.payload(action.name, action.payload);
                digest
            }
            Err(finding) => refuse(sorted, call, finding),
        };
        sorted.reading.calls.push(ParsedToolCall { call: call.clone(), digest });
    }
}

/// Refuses a call on the record; gives the digest it is found by.
pub(super) fn refuse(sorted: &mut ParsedItems, call: &ToolCall, finding: Finding) -> Digest {
    let attempt = format!("{}({})", call.name, call.arguments);
    let digest = Digest::of(attempt.as_bytes());
    sorted.refuse(attempt, finding);
    digest
}

/// Actions in the text of an agent that calls natively.
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

/// XML of a word that is to be called natively.
pub(super) fn xml_call(
    raw: &str,
    action: &extract::ExtractedAction,
    tools: &NativeTools,
) -> Finding {
    let name = PayloadName::from(action.name());
    let place = Place::at(raw.as_bytes(), action.source.start);
    let called = tools.name_of(&name).unwrap_or(&name.local);
    let message = format!(
        "<{}> was written as XML and is not acted on: call the native tool `{called}`",
        name.local
    );
    Finding::new(XML_CALL, place, message)
}
