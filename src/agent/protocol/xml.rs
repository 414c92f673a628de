//! The protocol `transport = "xml"`. The model writes actions, notes and the final payload as XML
//! in its text.

use super::feedback::NATIVE_CALL;
use super::finals::AgentFinals;
use super::native;
use super::parse_turn::{ElementPolicy, ElementVerdict, ParsedItems, ParsedToolCall};
use crate::ids::PayloadName;
use crate::model::ToolCall;
use crate::xml::extract;
use crate::xml::findings::{Finding, TextLocation};

/// Rules of the protocol `xml`. Every known element is an action. The report in a final payload
/// must have the configured format.
pub(super) struct XmlPolicy<'a> {
    pub raw: &'a str,
    pub finals: &'a AgentFinals,
}

impl ElementPolicy for XmlPolicy<'_> {
    fn action(&mut self, action: &extract::ExtractedAction) -> ElementVerdict {
        let place = TextLocation::at(self.raw.as_bytes(), action.source.start);
        let name = PayloadName::from(action.name());
        match self.finals.check(&name, &action.payload(), place) {
            Ok(()) => ElementVerdict::Take,
            Err(finding) => ElementVerdict::Refuse(finding),
        }
    }
}

/// Refuses all native calls, because the model was offered no native tools.
pub(super) fn refuse(sorted: &mut ParsedItems, calls: &[ToolCall]) {
    for call in calls {
        let message = format!(
            "`{}` was called natively, and there are no native tools: write the action as XML",
            call.name
        );
        let finding = Finding::new(NATIVE_CALL, TextLocation::default(), message);
        let digest = native::refuse(sorted, call, finding);
        sorted.reading.calls.push(ParsedToolCall { call: call.clone(), digest });
    }
}
