//! `transport = "xml"`: tools, notes and the final as XML in the model's text.

use super::feedback::NATIVE_CALL;
use super::finals::Finals;
use super::native;
use super::read::{Judge, Made, Sorted, Verdict};
use crate::ids::PayloadName;
use crate::model::ToolCall;
use crate::xml::extract;
use crate::xml::findings::{Finding, Place};

/// Everything known is an action; a final must be in its format.
pub(super) struct Words<'a> {
    pub raw: &'a str,
    pub finals: &'a Finals,
}

impl Judge for Words<'_> {
    fn action(&mut self, action: &extract::ExtractedAction) -> Verdict {
        let place = Place::at(self.raw.as_bytes(), action.source.start);
        let name = PayloadName::from(action.name());
        match self.finals.check(&name, &action.payload(), place) {
            Ok(()) => Verdict::Take,
            Err(finding) => Verdict::Refuse(finding),
        }
    }
}

/// Native calls of a model that was offered none.
pub(super) fn refuse(sorted: &mut Sorted, calls: &[ToolCall]) {
    for call in calls {
        let message = format!(
            "`{}` was called natively, and there are no native tools: write the action as XML",
            call.name
        );
        let finding = Finding::new(NATIVE_CALL, Place::default(), message);
        let digest = native::refuse(sorted, call, finding);
        sorted.reading.calls.push(Made { call: call.clone(), digest });
    }
}
