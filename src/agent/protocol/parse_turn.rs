//! Parses a turn into payloads, notes and findings. The parts that all protocols share are here.
//! Each protocol decides itself which elements are actions.

use super::feedback::{FINAL_UNCLOSED, NO_ACTION};
use super::turn_excess;
use crate::envelope::{BrokenPayload, WrittenPayload};
use crate::ids::{Digest, PayloadName};
use crate::model::ToolCall;
use crate::system::{self, NOTES};
use crate::xml::element::Element;
use crate::xml::extract::{self, ExtractCode, ExtractedItem, Extraction};
use crate::xml::findings::Finding;
use crate::xml::shape::QName;

/// An action of a turn, in the form in which the gate checks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnAction {
    pub name: PayloadName,
    pub payload: Vec<u8>,
}

/// Text at the end of the finding about an action that is incomplete because the provider cut the
/// answer off.
const CUT: &str = "; the response reached its maximum length and was cut, write less before it";

/// A native call (tool call) of a turn, with the digest by which the record identifies the result
/// of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedToolCall {
    pub call: ToolCall,
    /// Digest of the payload that was made from the call. If the call was refused, this is the
    /// digest of the text of the call. If the payload or the refusal was merged with other parts
    /// beyond the limits of the turn, no message and no refusal in the record has this digest.
    pub digest: Digest,
}

/// Payloads, notes and findings that were parsed from one turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParsedTurn {
    /// Reasoning, checklists and progress reports, in order.
    pub notes: Vec<Vec<u8>>,
    /// Complete actions in order, including complete payloads in unknown namespaces.
    pub actions: Vec<TurnAction>,
    pub broken: Vec<BrokenPayload>,
    pub calls: Vec<ParsedToolCall>,
    /// All findings about the turn except warnings and the findings that were merged into one. The
    /// record of the turn contains them; some of them also go to the agent.
    pub findings: Vec<Finding>,
    /// Findings that the agent gets as feedback on the turn. Findings about broken actions are not
    /// included; they are in `broken`.
    pub feedback: Vec<Finding>,
    /// Findings about payloads that were accepted in spite of a mistake. These findings are
    /// recorded but not sent to the agent.
    pub warnings: Vec<Finding>,
    /// Payloads of the turn, each with its position in the model's text.
    pub written: Vec<WrittenPayload>,
}

impl ParsedTurn {
    /// Creates the turn for a request that the provider rejected. The only effect of the turn is
    /// that the agent gets the rejection as feedback.
    pub fn of_rejection(rejection: Finding) -> Self {
        let findings = vec![rejection.clone()];
        let feedback = vec![rejection];
        Self { findings, feedback, ..Self::default() }
    }

    /// Whether the turn consists of text alone. True if its text is not empty, it has no action and
    /// no native call, and the missing action is its only mistake.
    pub fn is_text_alone(&self, raw: &str) -> bool {
        let is_empty = self.actions.is_empty() && self.broken.is_empty() && self.calls.is_empty();
        let mut feedback = self.feedback.iter();
        let is_missing = |finding: &Finding| finding.code == NO_ACTION;
        is_empty && !raw.trim().is_empty() && !self.feedback.is_empty() && feedback.all(is_missing)
    }
}

/// Decision about an element that may be an action.
pub(super) enum ElementVerdict {
    /// The element is an action, and its content is accepted as written.
    Take,
    /// The given action replaces the element.
    Act(TurnAction),
    /// The element is refused, and the refusal is recorded.
    Refuse(Finding),
    /// The element is no action. The agent gets the finding as feedback.
    Feedback(Finding),
}

/// Rules of a protocol for the elements in a model's text.
pub(super) trait ElementPolicy {
    fn action(&mut self, action: &extract::ExtractedAction) -> ElementVerdict;

    /// Returns the decision about a broken action. `None` means that the action is refused with the
    /// finding of the extractor.
    fn broken(&mut self, _broken: &extract::BrokenAction) -> Option<ElementVerdict> {
        None
    }

    /// Returns feedback about a complete element with an unknown name. `None` means that the
    /// element is refused with the finding of the extractor.
    fn unknown_element(&mut self, _element: &extract::UnknownElement) -> Option<Finding> {
        None
    }
}

/// The parts of a turn while the turn is parsed, sorted into payloads, notes and findings.
#[derive(Default)]
pub(super) struct ParsedItems {
    pub reading: ParsedTurn,
    /// Number of actions that were found so far, including broken ones.
    index: usize,
    /// Whether the turn contains text outside of payloads and reasoning.
    pub has_text: bool,
    /// Whether the model wrote a note as a payload, and not only as reasoning.
    pub noted: bool,
    /// Whether the refusal of an action already states that the answer was cut off.
    states_cut_off: bool,
}

impl ParsedItems {
    pub fn take(&mut self, item: &ExtractedItem, policy: &mut dyn ElementPolicy) {
        match item {
            ExtractedItem::Text(text) => self.has_text |= !text.trim().is_empty(),
            ExtractedItem::Reasoning { text, .. } => self.add_reasoning(text),
            ExtractedItem::Action(action) => {
                let verdict = policy.action(action);
                self.apply_verdict(verdict, action);
            }
            ExtractedItem::Unknown(unknown) => {
                let payload = unknown.attempt.clone().into_bytes();
                self.add_action(TurnAction { name: PayloadName::from(&unknown.name), payload });
            }
            ExtractedItem::UnknownElement(element) => match policy.unknown_element(element) {
                Some(finding) => self.reading.feedback.push(finding),
                None => self.refuse(element.attempt.clone(), named(&element.finding)),
            },
            ExtractedItem::Broken(broken) => match policy.broken(broken) {
                Some(ElementVerdict::Act(action)) => self.add_action(action),
                Some(ElementVerdict::Feedback(finding)) => self.reading.feedback.push(finding),
                Some(ElementVerdict::Refuse(finding)) => {
                    self.refuse(broken.attempt.clone(), finding)
                }
                Some(ElementVerdict::Take) | None => {
                    self.states_cut_off |= broken.is_cut_off;
                    self.refuse(broken.attempt.clone(), named(&broken.finding));
                }
            },
        }
    }

    fn apply_verdict(&mut self, verdict: ElementVerdict, action: &extract::ExtractedAction) {
        match verdict {
            ElementVerdict::Take => {
                let name = PayloadName::from(action.name());
                let payload = action.payload().into_bytes();
                self.add_payload(name, payload);
            }
            ElementVerdict::Act(action) => self.add_action(action),
            ElementVerdict::Refuse(finding) => self.refuse(action.payload(), finding),
            ElementVerdict::Feedback(finding) => self.reading.feedback.push(finding),
        }
    }

    /// Adds a complete payload, as a note or as an action.
    pub fn add_payload(&mut self, name: PayloadName, payload: Vec<u8>) {
        if is_note(&name) {
            self.noted = true;
            self.reading.notes.push(payload);
        } else {
            self.add_action(TurnAction { name, payload });
        }
    }

    pub fn add_action(&mut self, action: TurnAction) {
        self.reading.actions.push(action);
        self.index += 1;
    }

    pub fn refuse(&mut self, attempt: String, finding: Finding) {
        self.reading.broken.push(BrokenPayload { index: self.index, attempt, finding });
        self.index += 1;
    }

    /// Records reasoning as a note. Reasoning is never an action.
    pub fn add_reasoning(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let name = QName::new(Some(system::NAMESPACE), "thinking");
            let thinking = Element::new(name).with_text(text).to_xml();
            self.reading.notes.push(thinking.into_bytes());
        }
    }

    /// Returns whether the provider cut the answer off inside a broken action. If so, adds this
    /// fact to the refusal of this action. Adds nothing if a refusal already states that the answer
    /// was cut off, or if the action is an unclosed final report.
    pub fn mark_cut_off(&mut self, raw: &str) -> bool {
        if self.states_cut_off {
            return true;
        }

        let Some(last) = self.reading.broken.last_mut() else { return false };
        let is_cut = last.index + 1 == self.index && raw.ends_with(&last.attempt);
        if is_cut && last.finding.code != FINAL_UNCLOSED {
            last.finding.message.push_str(CUT);
        }
        is_cut
    }

    /// Whether the turn contains neither an action nor a refusal.
    pub fn is_idle(&self) -> bool {
        self.reading.actions.is_empty() && self.reading.broken.is_empty()
    }

    /// Completes the parsed turn. Merges the parts beyond the limits of a turn, and adds the
    /// extractor's findings.
    pub fn finish(mut self, extraction: &Extraction) -> ParsedTurn {
        let idle = self.is_idle();
        turn_excess::merge(&mut self.reading);
        for broken in &mut self.reading.broken {
            // The outcome contains the notes before the actions, so positions are counted from the
            // first note.
            broken.index += self.reading.notes.len();
        }

        let mut reading = self.reading;
        reading.findings.extend(reading.feedback.iter().cloned());
        reading.findings.extend(reading.broken.iter().map(|broken| broken.finding.clone()));
        let others = extraction.errors.iter().chain(&extraction.notices);
        reading.findings.extend(others.map(named));
        // The refusal of a broken action already describes its mistake.
        let apart = |finding: &&Finding| !refused_at(extraction, finding.place.offset);
        reading.feedback.extend(extraction.errors.iter().filter(apart).map(named));
        let always = [ExtractCode::NearMissTag, ExtractCode::HalfEscaped].map(ExtractCode::as_str);
        let explains = |notice: &&Finding| idle || always.contains(&notice.code.as_str());
        let notices = extraction.notices.iter().filter(explains).filter(apart);
        reading.feedback.extend(notices.map(named));
        reading
    }
}

/// Whether the position `offset` is inside an action that was refused as broken.
fn refused_at(extraction: &Extraction, offset: usize) -> bool {
    extraction.broken().any(|broken| broken.source.contains(&offset))
}

pub(super) fn is_note(name: &PayloadName) -> bool {
    NOTES.iter().any(|note| *name == system::name(note))
}

/// Returns the finding with hyphens instead of underscores in its code. Records and feedback use
/// codes with hyphens.
fn named(finding: &Finding) -> Finding {
    Finding { code: finding.code.replace('_', "-"), ..finding.clone() }
}
