//! The protocol `transport = "xml-final"`. The model writes its final report as text into a slot,
//! which is an element for this purpose. Everything else is a native call. The name of a slot
//! contains a nonce of the turn, so that neither quoted text nor text from another turn can end a
//! task.

mod slot;

pub use slot::TurnSlots;

use std::sync::Arc;

use super::feedback::{FINAL_TRUNCATED, NONCE, PROGRESS, SLOT};
use super::finals::{AgentFinals, status, unclosed};
use super::native::{self, NativeTools};
use super::parse_turn::{ElementPolicy, ElementVerdict, TurnAction, is_note};
use crate::agent::FinalFormat;
use crate::ids::PayloadName;
use crate::model::StopReason;
use crate::system;
use crate::xml::element::{Element, Node};
use crate::xml::extract::{self, ActionGrammar, ExtractCode, Extractor};
use crate::xml::findings::{Finding, TextLocation};

/// Last line of a report that the provider has cut off at its maximum length.
pub const TRUNCATED_MARK: &str = "\n\n[truncated: the report reached its maximum length]";

/// Rules of the transport `xml-final`, with which a model writes its final report into a slot, an
/// element of its text.
pub(super) struct XmlFinalPolicy<'a> {
    pub raw: &'a str,
    pub slots: &'a TurnSlots,
    pub grammar: &'a Arc<ActionGrammar>,
    pub tools: &'a NativeTools,
    pub finals: &'a AgentFinals,
    pub stop: StopReason,
    /// Findings about payloads that were accepted in spite of a mistake. These findings are
    /// recorded but not sent to the agent.
    pub warnings: Vec<Finding>,
}

impl ElementPolicy for XmlFinalPolicy<'_> {
    fn action(&mut self, action: &extract::ExtractedAction) -> ElementVerdict {
        let place = TextLocation::at(self.raw.as_bytes(), action.source.start);
        let name = PayloadName::from(action.name());
        if self.slots.is_final(&name) {
            let source = self.raw.get(action.source.clone()).unwrap_or_default();
            return verdict_of(self.report(&action.element, source, "", place));
        }

        if self.slots.is_progress(&name) || name == system::name("progress") {
            return ElementVerdict::Feedback(suppressed(place));
        }

        if is_note(&name) {
            return ElementVerdict::Take;
        }

        let finding = native::xml_call(self.raw, action, self.tools);
        ElementVerdict::Refuse(match self.tools.name_of(&name) {
            Some(_) => finding,
            None => Finding { message: self.no_tool(&name.local), ..finding },
        })
    }

    fn broken(&mut self, broken: &extract::BrokenAction) -> Option<ElementVerdict> {
        let cut = broken.finding.code == ExtractCode::UnclosedAction.as_str();
        if !cut || !self.slots.opens_final(&broken.attempt) {
            return None;
        }
        let place = broken.finding.place.clone();
        Some(verdict_of(self.cut_short(&broken.attempt, &place)))
    }

    fn unknown_element(&mut self, element: &extract::UnknownElement) -> Option<Finding> {
        let place = element.finding.place.clone();
        slot_mismatch(self.slots, &element.name, self.finals, place)
    }
}

fn verdict_of(report: Result<TurnAction, Finding>) -> ElementVerdict {
    match report {
        Ok(action) => ElementVerdict::Act(action),
        Err(finding) => ElementVerdict::Refuse(finding),
    }
}

fn suppressed(place: TextLocation) -> Finding {
    let message = "reports on progress are not taken here; go on with a tool or the final report";
    Finding::new(PROGRESS, place, message)
}

impl XmlFinalPolicy<'_> {
    fn no_tool(&self, local: &str) -> String {
        format!("<{local}> is not acted on: {}", how(self.finals))
    }

    fn report(
        &self,
        slot: &Element,
        source: &str,
        mark: &str,
        place: TextLocation,
    ) -> Result<TurnAction, Finding> {
        status(slot.attribute("status"), place.clone())?;
        self.finals.check_slot_format(slot.attribute("format"), place.clone())?;
        if self.finals.format == FinalFormat::Xml {
            return self.declared(source, &place);
        }
        let [Node::Text(text)] = slot.content.as_slice() else {
            return Err(unclosed(place, "it holds no text"));
        };

        let text = text.trim();
        self.finals.check_format(text, place.clone())?;
        self.finals.write(&format!("{text}{mark}"), place)
    }

    /// Reads the final payload that the model wrote into a slot as XML.
    fn declared(&self, source: &str, place: &TextLocation) -> Result<TurnAction, Finding> {
        let start = Element::head(source).map_or(0, |slot| slot.origin.end);
        let inner = source.get(start..).unwrap_or_default();
        let inner = inner.rsplit_once("</").map_or(inner, |(inner, _)| inner);
        let mut extractor = Extractor::new(Arc::clone(self.grammar));
        extractor.push(inner.as_bytes());
        self.finals.declared(&extractor.finish(), place)
    }

    /// Handles a report without its end tag. Refuses the report if the model declined to go on, or
    /// if the report is JSON or XML and the provider cut the answer off at its maximum length.
    /// Otherwise, adds the end tag, and checks the report like a complete one. If the provider cut
    /// off a text or Markdown report, also adds [`TRUNCATED_MARK`] to it.
    fn cut_short(&mut self, attempt: &str, place: &TextLocation) -> Result<TurnAction, Finding> {
        let refuse = |why: &str| Err(unclosed(place.clone(), why));
        let is_structured = matches!(self.finals.format, FinalFormat::Json(_) | FinalFormat::Xml);
        let mark = match self.stop {
            StopReason::Normal | StopReason::Calls | StopReason::Unknown => "",
            StopReason::Length if is_structured => {
                return refuse("it was cut at its maximum length; write a shorter one");
            }
            StopReason::Length => TRUNCATED_MARK,
            StopReason::Refused => return refuse("the model refused to go on"),
        };

        let close = self.slots.final_close();
        let whole = format!("{}{close}", without_start_of(attempt, &close));
        let Some(slot) = self.closed(&whole) else { return refuse("close it") };
        let action = self.report(&slot, &whole, mark, place.clone())?;
        let warning = match self.stop {
            StopReason::Length => {
                let message = "the final report was cut at its maximum length and is marked so";
                Finding::new(FINAL_TRUNCATED, place.clone(), message)
            }
            StopReason::Unknown => unclosed(place.clone(), "accepted; nobody knows why it stopped"),
            _ => unclosed(place.clone(), "accepted; the model had ended its answer"),
        };

        self.warnings.push(warning);
        Ok(action)
    }

    /// Parses the element of a report. `whole` is the element as the model wrote it, with the
    /// missing end tag appended. Returns `None` if `whole` is no complete element.
    fn closed(&self, whole: &str) -> Option<Element> {
        let mut extractor = Extractor::new(Arc::clone(self.grammar));
        extractor.push(whole.as_bytes());
        let extraction = extractor.finish();
        let found = extraction.actions().next()?.element.clone();
        Some(found)
    }
}

/// Returns the part of the feedback which explains to the model how the model can end its task.
pub(super) fn how(finals: &AgentFinals) -> String {
    let form = TurnSlots::form(&finals.format);
    format!("the final report is written as {form}, with the nonce of the latest notice")
}

/// Removes an incomplete end tag, such as `</rep`, from the end of a text. `close` is the complete
/// end tag.
fn without_start_of<'t>(text: &'t str, close: &str) -> &'t str {
    let starts = (2..close.len()).rev().filter_map(|end| close.get(..end));
    let found = starts.filter_map(|start| text.strip_suffix(start)).next();
    found.unwrap_or(text)
}

/// Returns a finding for each unknown element that was apparently meant as a slot of the turn. A
/// slot is an element into which the model writes a report.
pub(super) fn strangers(
    slots: &TurnSlots,
    unknown: &[String],
    finals: &AgentFinals,
) -> Vec<Finding> {
    let mismatch = |name: &String| slot_mismatch(slots, name, finals, TextLocation::default());
    unknown.iter().filter_map(mismatch).collect()
}

/// Returns the finding about an unknown element that the model apparently meant as a slot. A slot
/// is an element for a report. Returns `None` for any other unknown element.
fn slot_mismatch(
    slots: &TurnSlots,
    name: &str,
    finals: &AgentFinals,
    place: TextLocation,
) -> Option<Finding> {
    let code = match slots.stranger(name)? {
        slot::SlotMismatch::Nonce => NONCE,
        slot::SlotMismatch::Slot => SLOT,
    };

    let message = match code {
        NONCE => format!("`{name}` is not of this turn: {}", how(finals)),
        _ => format!("there is no slot `{name}`: {}", how(finals)),
    };

    Some(Finding::new(code, place, message))
}
