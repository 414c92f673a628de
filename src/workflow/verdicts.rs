//! Verdicts of supervisors and judges: the payloads with which agents give these verdicts.

use crate::contract::WORKFLOW_NAMESPACE;
use crate::ids::PayloadName;
use crate::schema::{FieldCount, ShortField, ShortType, short_form_xsd};

use super::view::ViewValue;

/// Returns the name of the payload with which a supervisor answers.
pub fn verdict_name() -> PayloadName {
    PayloadName::new(WORKFLOW_NAMESPACE, VERDICT)
}

/// Returns the name of the payload with which a judge answers.
pub fn judgement_name() -> PayloadName {
    PayloadName::new(WORKFLOW_NAMESPACE, JUDGEMENT)
}

const VERDICT: &str = "verdict";
const JUDGEMENT: &str = "judgement";

/// Returns the XSD of the verdicts of supervisors and the judgements of judges.
pub fn verdict_schema() -> String {
    let judgement = words(&["yes", "no"]);
    let verdict = verdict_type(true);
    short_form_xsd(WORKFLOW_NAMESPACE, &[(VERDICT, &verdict), (JUDGEMENT, &judgement)])
}

/// Returns the type of a verdict. `can_correct` states whether the verdict may request a
/// correction.
pub fn verdict_type(can_correct: bool) -> ShortType {
    let field =
        |name: &str, occurs, short_type| ShortField { name: name.to_owned(), occurs, short_type };
    let decisions: &[&str] =
        if can_correct { &["continue", "correct", "stop"] } else { &["continue", "stop"] };
    ShortType::Fields(vec![
        field("decision", FieldCount::Once, words(decisions)),
        field("text", FieldCount::AtMostOnce, ShortType::Text),
    ])
}

fn words(words: &[&str]) -> ShortType {
    ShortType::Words(words.iter().map(|&word| word.into()).collect())
}

/// The verdict of a supervisor on an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupervisorVerdict {
    Continue,
    /// The goal runs again with this correction.
    Correct(String),
    /// The goal fails, for this reason.
    Stop(String),
}

impl SupervisorVerdict {
    /// Reads a verdict; `None` if the output is no verdict.
    pub fn read(output: &ViewValue) -> Option<Self> {
        let ViewValue::Payload(payload) = output else { return None };
        let text = payload.child("text").map(|text| text.text()).unwrap_or_default();
        match payload.child("decision")?.text().trim() {
            "continue" => Some(Self::Continue),
            "correct" => Some(Self::Correct(text)),
            "stop" => Some(Self::Stop(text)),
            _ => None,
        }
    }
}

/// Reads the answer of a judge: true for yes, false for no. Returns `None` if the output is no
/// judgement.
pub fn read_judgement(output: &ViewValue) -> Option<bool> {
    let ViewValue::Payload(payload) = output else { return None };
    match payload.text().trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}
