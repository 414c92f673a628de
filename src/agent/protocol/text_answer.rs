//! The setting `final_by = "text"`. With it, the text of a turn without actions is the answer to
//! the agent's call.

use super::finals::AgentFinals;
use super::leaked_call;
use super::parse_turn::{ParsedItems, is_note};
use super::turn_excess::UNKNOWN_ACTION;
use super::xml_final::TurnSlots;
use crate::ids::PayloadName;
use crate::model::StopReason;
use crate::mutant::mutant;
use crate::xml::extract::{
    ActionGrammar, ExtractCode, ExtractedAction, ExtractedItem, Extraction, is_vendor_call,
    near_miss,
};
use crate::xml::findings::{Finding, TextLocation};

/// Whether an item of a turn is part of the answer. True for text. Also true for an unknown
/// element, such as HTML in Markdown, except in three cases: the element contains an action, its
/// name equals or resembles the name of an action or a slot, or it is a call in the format of a
/// model vendor.
pub(super) fn is_text(item: &ExtractedItem, grammar: &ActionGrammar, slots: &TurnSlots) -> bool {
    match item {
        ExtractedItem::Text(_) => true,
        ExtractedItem::UnknownElement(element) => {
            !element.holds_action
                && !is_vendor_call(element.name.as_bytes())
                && near_miss(&element.name, grammar).is_none()
                && !slots.is_meant(&element.name)
        }
        _ => false,
    }
}

/// Ends the agent's call with the text of a turn. If the text does not have the configured format,
/// adds feedback instead. Refuses a text with a call in the format of a model vendor, which the
/// server left in the text. Does nothing if:
/// - the text is empty,
/// - the model did not end the answer normally,
/// - the turn contains an action or a refusal,
/// - the turn contains any finding, except those about reasoning, or
/// - the turn contains an invalid note. An invalid note may be HTML in the text, such as `<progress
///   value="7"/>`.
pub(super) fn take(
    sorted: &mut ParsedItems,
    extraction: &Extraction,
    (grammar, slots): (&ActionGrammar, &TurnSlots),
    finals: &AgentFinals,
    stop: StopReason,
) {
    let of_reasoning = [ExtractCode::ActionInReasoning, ExtractCode::ReasoningBegunInPrompt];
    let of_reasoning = of_reasoning.map(ExtractCode::as_str);
    let is_thought = |notice: &Finding| of_reasoning.contains(&notice.code.as_str());
    let is_bad_note = |action: &ExtractedAction| {
        let name = PayloadName::from(action.name());
        is_note(&name) && !finals.is_valid(&name, &action.payload())
    };
    let is_clean = sorted.reading.feedback.is_empty()
        && !extraction.actions().any(is_bad_note)
        && extraction.errors.is_empty()
        && extraction.unreported == 0
        && extraction.notices.iter().all(is_thought);
    let is_clean = is_clean || mutant("answer-with-a-finding");
    if !sorted.is_idle() || stop != StopReason::Normal || !is_clean {
        return;
    }

    let items = extraction.items.iter().filter(|item| is_text(item, grammar, slots));
    let pieces = items.filter_map(|item| match item {
        ExtractedItem::Text(text) => Some(text.as_str()),
        ExtractedItem::UnknownElement(element) => Some(element.attempt.as_str()),
        _ => None,
    });
    let text: String = pieces.collect();
    let text = text.trim();
    if text.is_empty() {
        return;
    }

    let place = TextLocation::default();
    if let Some(marker) = leaked_call::marker_in(text) {
        let message = format!(
            "`{marker}` begins a call in a form that is none of yours, and nothing in it is acted on; \
             text that only shows it belongs in a code fence"
        );
        sorted.refuse(text.to_owned(), Finding::new(UNKNOWN_ACTION, place, message));
        return;
    }

    let report = finals.check_format(text, place.clone()).and_then(|()| finals.write(text, place));
    match report {
        Ok(answer) => sorted.add_action(answer),
        Err(finding) => sorted.reading.feedback.push(finding),
    }
}
