//! The submitted text, and refusals that state places in this text.

use std::ops::Range;

use crate::envelope::{Refusal, RefusalRule};
use crate::system::Primitive;
use crate::xml::findings::{Finding, TextLocation};
use crate::xml::scan::NestedElement;

/// Codes of libxml2's findings for a text that is not XML. The text is then refused as not
/// well-formed. This is rare, because the gate's own scan normally refuses such a text before
/// libxml2 reads it.
const UNREADABLE: [&str; 2] = ["not-well-formed", "not-namespace-well-formed"];

/// The submitted text, and the element of this text that the gate checks. A refusal refers to the
/// whole text, and states where in this text the defect is.
pub(super) struct SubmittedText<'a> {
    /// The whole submitted text.
    pub text: &'a [u8],
    /// Start of the checked element in the text. The checked element is the root element, or the
    /// payload inside a primitive.
    pub base: TextLocation,
    /// Namespace declarations that the gate has added to the checked element, as a range within
    /// this element. The element inherits these declarations from its parent, so the submitted
    /// element does not contain them.
    pub added: Range<usize>,
}

impl SubmittedText<'_> {
    pub fn refuse(&self, rule: RefusalRule, message: impl Into<String>) -> Refusal {
        Refusal::new(rule, message, self.text).at(self.base.clone())
    }

    /// Makes a refusal from findings. The refusal has the location of the first finding. Its
    /// message states the locations of all other findings.
    pub fn refuse_findings(&self, findings: &[Finding]) -> Refusal {
        let unreadable = findings.iter().any(|finding| UNREADABLE.contains(&&*finding.code));
        let rule = if unreadable { RefusalRule::NotWellFormed } else { RefusalRule::SchemaInvalid };
        let mut findings = findings.iter();
        let Some(first) = findings.next() else {
            return self.refuse(rule, "not valid by its schema");
        };

        let mut message = first.message.clone();
        for other in findings {
            let place = self.place(&other.place);
            message.push_str(&format!("; {} at {place}", other.message));
        }

        Refusal::new(rule, message, self.text).at(self.place(&first.place))
    }

    /// Converts a location within the checked element to a location in the submitted text.
    fn place(&self, inside: &TextLocation) -> TextLocation {
        let base = &self.base;
        let path = match (&base.path, &inside.path) {
            (Some(outer), Some(inner)) => Some(format!("{outer}{inner}")),
            (outer, inner) => inner.clone().or_else(|| outer.clone()),
        };

        if inside.column == 0 {
            // The finding has a line at most, no column.
            let line = base.line + inside.line.saturating_sub(1);
            return TextLocation { line, path, ..base.clone() };
        }

        let past = inside.offset.min(self.added.end).saturating_sub(self.added.start);
        TextLocation { path, ..TextLocation::at(self.text, base.offset + inside.offset - past) }
    }

    /// Returns this submission with `nested` as the checked element, which is the payload inside a
    /// primitive such as `spawn-thread`. Refusals still state places in the whole submitted text.
    pub fn within(&self, primitive: &Primitive, nested: &NestedElement) -> Self {
        let offset = self.base.offset + nested.range.start;
        let path = match primitive {
            Primitive::SpawnThread { .. } => "/spawn-thread/initial-payload",
            _ => "/send-to-thread",
        };

        let base =
            TextLocation { path: Some(path.to_owned()), ..TextLocation::at(self.text, offset) };
        Self { text: self.text, base, added: nested.added.clone() }
    }
}
