//! What was submitted, and refusals that point into it.

use std::ops::Range;

use crate::envelope::{Refusal, Rule};
use crate::system::Primitive;
use crate::xml::findings::{Finding, Place};
use crate::xml::scan::NestedElement;

/// The codes of findings that the text cannot be read as XML. The scan refuses such texts
/// first; where libxml2 and it disagree, the stricter one decides.
const UNREADABLE: [&str; 2] = ["not-well-formed", "not-namespace-well-formed"];

/// The text that is being checked: what a refusal records, and what places count from.
pub(super) struct Submission<'a> {
    /// All that was submitted.
    pub text: &'a [u8],
    /// Where in it the element at hand starts.
    pub base: Place,
    /// Bytes of the element at hand that were not submitted: declarations it relied on.
    pub added: Range<usize>,
}

impl Submission<'_> {
    pub fn refuse(&self, rule: Rule, message: impl Into<String>) -> Refusal {
        Refusal::new(rule, message, self.text).at(self.base.clone())
    }

    /// The first finding has the refusal's place; the others name theirs.
    pub fn refuse_findings(&self, findings: &[Finding]) -> Refusal {
        let unreadable = findings.iter().any(|finding| UNREADABLE.contains(&&*finding.code));
        let rule = if unreadable { Rule::NotWellFormed } else { Rule::SchemaInvalid };
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

    /// A place in the element, as a place in what was submitted.
    fn place(&self, inside: &Place) -> Place {
        let base = &self.base;
        let path = match (&base.path, &inside.path) {
            (Some(outer), Some(inner)) => Some(format!("{outer}{inner}")),
            (outer, inner) => inner.clone().or_else(|| outer.clone()),
        };
        if inside.column == 0 {
            // Only the line is known, if that.
            let line = base.line + inside.line.saturating_sub(1);
            return Place { line, path, ..base.clone() };
        }
        let past = inside.offset.min(self.added.end).saturating_sub(self.added.start);
        Place { path, ..Place::at(self.text, base.offset + inside.offset - past) }
    }

    /// The same submission, seen from an element inside the one at hand.
    pub fn within(&self, primitive: &Primitive, nested: &NestedElement) -> Self {
        let offset = self.base.offset + nested.range.start;
        let path = match primitive {
            Primitive::SpawnThread { .. } => "/spawn-thread/initial-payload",
            _ => "/send-to-thread",
        };
        let base = Place { path: Some(path.to_owned()), ..Place::at(self.text, offset) };
        Self { text: self.text, base, added: nested.added.clone() }
    }
}
