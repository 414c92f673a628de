//! Reading a turn: which payloads it holds, which notes, and what is wrong with it. What is the
//! same in every protocol; what an action is, each protocol says.

use super::feedback::FINAL_UNCLOSED;
use crate::envelope::{Broken, WrittenPayload};
use crate::ids::{Digest, PayloadName};
use crate::model::ToolCall;
use crate::system::{self, NOTES};
use crate::xml::element::Element;
use crate::xml::extract::{self, ExtractCode, ExtractedItem, Extraction};
use crate::xml::findings::Finding;
use crate::xml::shape::QName;

/// An action of a turn, ready for the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnAction {
    pub name: PayloadName,
    pub payload: Vec<u8>,
}

/// Added to what is wrong with an action that the provider cut.
const CUT: &str = "; the response reached its maximum length and was cut, write less before it";

/// A native call of a turn, and what was made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedToolCall {
    pub call: ToolCall,
    /// Digest of the payload that the call became, or of the refused text. The record uses it to
    /// connect the call with its message or its refusal.
    pub digest: Digest,
}

/// Payloads, notes and findings of one turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParsedTurn {
    /// Reasoning, checklists and progress, in order.
    pub notes: Vec<Vec<u8>>,
    /// Complete actions, and complete payloads in a namespace the agent does not know, in order.
    pub actions: Vec<TurnAction>,
    pub broken: Vec<Broken>,
    pub calls: Vec<ParsedToolCall>,
    /// Everything found, for the record.
    pub findings: Vec<Finding>,
    /// Findings that are sent back to the agent. Findings about a broken action stand with that
    /// action.
    pub feedback: Vec<Finding>,
    /// For the record alone: what was accepted although something was wrong with it.
    pub warnings: Vec<Finding>,
    /// Where payloads stand in the model's text.
    pub written: Vec<WrittenPayload>,
}

/// Decision about an element that the extractor took for an action.
pub(super) enum ElementVerdict {
    /// It is one.
    Take,
    /// It is this one.
    Act(TurnAction),
    /// Refused on the record.
    Refuse(Finding),
    /// No action: the finding goes to the agent as feedback.
    Tell(Finding),
}

/// A protocol's rules for elements in a model's text.
pub(super) trait ElementPolicy {
    fn action(&mut self, action: &extract::ExtractedAction) -> ElementVerdict;

    /// `None` where it is as broken as it looks.
    fn broken(&mut self, _broken: &extract::BrokenAction) -> Option<ElementVerdict> {
        None
    }

    /// Feedback about a complete element of an unknown name, or `None` if the name alone explains
    /// the mistake.
    fn unknown_element(&mut self, _element: &extract::UnknownElement) -> Option<Finding> {
        None
    }
}

/// The items of a turn, by what becomes of them.
#[derive(Default)]
pub(super) struct ParsedItems {
    pub reading: ParsedTurn,
    /// Actions and broken actions so far.
    index: usize,
    /// There is text beside payloads and reasoning.
    pub spoke: bool,
    /// A note was written on purpose.
    pub noted: bool,
}

impl ParsedItems {
    pub fn take(&mut self, item: &ExtractedItem, judge: &mut dyn ElementPolicy) {
        match item {
            ExtractedItem::Text(text) => self.spoke |= !text.trim().is_empty(),
            ExtractedItem::Reasoning { text, .. } => self.thought(text),
            ExtractedItem::Action(action) => {
                let verdict = judge.action(action);
                self.judged(verdict, action);
            }
            ExtractedItem::Unknown(unknown) => {
                let payload = unknown.attempt.clone().into_bytes();
                self.act(TurnAction { name: PayloadName::from(&unknown.name), payload });
            }
            ExtractedItem::UnknownElement(element) => match judge.unknown_element(element) {
                Some(finding) => self.reading.feedback.push(finding),
                None => self.refuse(element.attempt.clone(), named(&element.finding)),
            },
            ExtractedItem::Broken(broken) => match judge.broken(broken) {
                Some(ElementVerdict::Act(action)) => self.act(action),
                Some(ElementVerdict::Tell(finding)) => self.reading.feedback.push(finding),
                Some(ElementVerdict::Refuse(finding)) => {
                    self.refuse(broken.attempt.clone(), finding)
                }
                Some(ElementVerdict::Take) | None => {
                    self.refuse(broken.attempt.clone(), named(&broken.finding));
                }
            },
        }
    }

    fn judged(&mut self, verdict: ElementVerdict, action: &extract::ExtractedAction) {
        match verdict {
            ElementVerdict::Take => {
                let (name, payload) =
                    (PayloadName::from(action.name()), action.payload().into_bytes());
                self.payload(name, payload);
            }
            ElementVerdict::Act(action) => self.act(action),
            ElementVerdict::Refuse(finding) => self.refuse(action.payload(), finding),
            ElementVerdict::Tell(finding) => self.reading.feedback.push(finding),
        }
    }

    /// A complete payload: a note or an action.
    pub fn payload(&mut self, name: PayloadName, payload: Vec<u8>) {
        if is_note(&name) {
            self.noted = true;
            self.reading.notes.push(payload);
        } else {
            self.act(TurnAction { name, payload });
        }
    }

    fn act(&mut self, action: TurnAction) {
        self.reading.actions.push(action);
        self.index += 1;
    }

    pub fn refuse(&mut self, attempt: String, finding: Finding) {
        self.reading.broken.push(Broken { index: self.index, attempt, finding });
        self.index += 1;
    }

    /// Records reasoning as a note. Reasoning is never an action.
    pub fn thought(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let name = QName::new(Some(system::NAMESPACE), "thinking");
            let thinking = Element::new(name).with_text(text).to_xml();
            self.reading.notes.push(thinking.into_bytes());
        }
    }

    /// The provider cut the text inside an action: its refusal says so, and nothing else has to.
    pub fn is_cut_off(&mut self, raw: &str) -> bool {
        let Some(last) = self.reading.broken.last_mut() else { return false };
        let is_cut = last.index + 1 == self.index && raw.ends_with(&last.attempt);
        if is_cut && last.finding.code != FINAL_UNCLOSED {
            last.finding.message.push_str(CUT);
        }
        is_cut
    }

    /// Nothing to do and nothing to refuse.
    pub fn is_idle(&self) -> bool {
        self.reading.actions.is_empty() && self.reading.broken.is_empty()
    }

    /// The reading, with what the extractor found.
    pub fn finish(mut self, extraction: &Extraction) -> ParsedTurn {
        let idle = self.is_idle();
        for broken in &mut self.reading.broken {
            // Notes are handed over first, so that is where counting starts.
            broken.index += self.reading.notes.len();
        }

        let mut reading = self.reading;
        reading.findings.extend(reading.feedback.iter().cloned());
        reading.findings.extend(reading.broken.iter().map(|broken| broken.finding.clone()));
        let others = extraction.errors.iter().chain(&extraction.notices);
        reading.findings.extend(others.map(named));
        // What is refused by itself says what is wrong with it; once is enough.
        let apart = |finding: &&Finding| !refused_at(extraction, finding.place.offset);
        reading.feedback.extend(extraction.errors.iter().filter(apart).map(named));
        let always = [ExtractCode::NearMissTag, ExtractCode::HalfEscaped].map(ExtractCode::as_str);
        let explains = |notice: &&Finding| idle || always.contains(&notice.code.as_str());
        let notices = extraction.notices.iter().filter(explains).filter(apart);
        reading.feedback.extend(notices.map(named));
        reading
    }
}

/// Whether a place lies in something that is refused as broken.
fn refused_at(extraction: &Extraction, offset: usize) -> bool {
    extraction.broken().any(|broken| broken.source.contains(&offset))
}

pub(super) fn is_note(name: &PayloadName) -> bool {
    NOTES.iter().any(|note| *name == system::name(note))
}

/// A finding under a code as records and feedback spell them.
fn named(finding: &Finding) -> Finding {
    Finding { code: finding.code.replace('_', "-"), ..finding.clone() }
}
