//! `<huh>`: the answer to a refused payload.

use super::core_payloads::StartTagText;
use crate::envelope::{Payload, Refusal};
use crate::xml::findings::Finding;

/// Feedback about a refused payload: the defects, their locations, and the expected form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Huh {
    pub code: String,
    pub reasons: Vec<Finding>,
    pub expected: Option<String>,
    /// The refused text, shortened. `None` if there is no such text, or if a quotation of it would
    /// reveal to the sender which names or threads exist.
    pub attempt: Option<String>,
}

/// Maximum number of characters of a refused payload that the feedback repeats.
const ATTEMPT_CHARS: usize = 400;

impl Huh {
    /// Creates the feedback about one refused payload.
    pub fn of(refusal: &Refusal) -> Self {
        let place = refusal.place.clone().unwrap_or_default();
        let attempt = refusal.head.chars().take(ATTEMPT_CHARS).collect::<String>();
        Self {
            code: refusal.rule.as_str().to_owned(),
            reasons: vec![Finding::new(refusal.rule.as_str(), place, &refusal.message)],
            expected: refusal.expected.clone(),
            attempt: (!refusal.is_uniform() && !attempt.is_empty()).then_some(attempt),
        }
    }

    /// Creates the feedback about findings that belong to no payload; `None` if there are no
    /// findings.
    pub fn about(findings: &[Finding]) -> Option<Self> {
        let code = findings.first()?.code.clone();
        Some(Self { code, reasons: findings.to_vec(), expected: None, attempt: None })
    }
}

pub(super) fn write_huh(huh: &Huh) -> Payload {
    let mut inner = String::new();
    for reason in &huh.reasons {
        let mut tag = StartTagText::child("reason").with("code", &reason.code);
        if reason.place.line > 0 {
            tag = tag.with("line", reason.place.line).with("column", reason.place.column);
        }
        let tag = tag.maybe("path", reason.place.path.as_ref());
        inner.push_str(tag.text(&reason.message).as_str());
    }

    for (word, text) in [("expected", &huh.expected), ("attempt", &huh.attempt)] {
        if let Some(text) = text {
            inner.push_str(StartTagText::child(word).text(text).as_str());
        }
    }

    StartTagText::new("huh").with("code", &huh.code).raw(&inner)
}
