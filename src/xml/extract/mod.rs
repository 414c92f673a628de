//! Extracts payloads from a model's streamed text.
//!
//! A turn is text in which some elements are actions. [`Extractor`] takes the turn in chunks and
//! returns an [`Extraction`], which does not depend on the sizes of the chunks. The extractor
//! decides about a part of the text only when all bytes that the decision depends on have arrived.
//! Decisions that depend on the end of the turn wait for [`Extractor::finish`]. Nothing incomplete
//! becomes an [`ExtractedAction`], and every defect becomes a finding.
//!
//! This module knows only names and shapes. It must not know schemas, addressing or answers.

mod action;
mod close_tags;
mod codes;
mod decode;
mod enclosing_elements;
mod extractor;
mod grammar;
mod markdown_code;
mod namespace_scope;
mod quotation;
mod reasoning;
mod rescan;
mod root;
mod scanner;
mod strict;
mod tag;
mod top_level_markup;
mod turn_bytes;
mod unknown_element;

use std::ops::Range;

use super::element::Element;
use super::findings::Finding;
use super::shape::QName;
use super::write;

pub use codes::ExtractCode;
pub use extractor::Extractor;
pub use grammar::{ActionGrammar, ExtractLimits, near_miss};
pub use markdown_code::is_list_marker;
pub use unknown_element::is_vendor_call;

/// The result of extracting one turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extraction {
    /// The items of the turn in the order of the text.
    pub items: Vec<ExtractedItem>,
    /// Errors outside of broken actions and unknown elements, at most `FINDINGS_MAX`. Broken
    /// actions and unknown elements contain their own errors.
    pub errors: Vec<Finding>,
    /// Notices about parts of the text that were ignored, at most `FINDINGS_MAX`.
    pub notices: Vec<Finding>,
    /// Number of errors and notices beyond the limit of `errors` and `notices`.
    pub unreported: usize,
    /// Names of root elements that have no namespace and are no actions, each once.
    pub unknown_roots: Vec<String>,
}

/// One part of a turn: text, reasoning, an action, or an element that could not be read as an
/// action.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtractedItem {
    Text(String),
    Reasoning {
        name: String,
        text: String,
        /// Whether the reasoning block was closed. A block that was not closed extends to the end
        /// of the turn.
        complete: bool,
    },
    Action(ExtractedAction),
    /// An action that the extractor recognised but that has a defect. Such an action is not
    /// executed.
    Broken(BrokenAction),
    /// A root element in a namespace that the agent does not know. The pump refuses this element as
    /// an unknown payload.
    Unknown(UnknownAction),
    /// A closed element whose name has no namespace and is unknown to the agent. It is reported as
    /// a refused action.
    UnknownElement(UnknownElement),
}

/// A complete action without defects.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtractedAction {
    /// The element of the action, with its resolved name.
    pub element: Element,
    /// Byte range of the action in the turn.
    pub source: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BrokenAction {
    /// The broken action as the model wrote it.
    pub attempt: String,
    pub finding: Finding,
    /// Whether the finding about the action is that the provider cut the turn off.
    pub is_cut_off: bool,
    /// Byte range of the broken action in the turn.
    pub source: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct UnknownAction {
    pub name: QName,
    /// The payload as the model wrote it.
    pub attempt: String,
    /// Byte range of the payload in the turn.
    pub source: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct UnknownElement {
    pub name: String,
    /// The element as the model wrote it.
    pub attempt: String,
    pub finding: Finding,
    /// Whether an action begins inside the element. The extractor returns only the whole element,
    /// so the action is not executed.
    pub holds_action: bool,
    /// Byte range of the element in the turn.
    pub source: Range<usize>,
}

impl ExtractedAction {
    pub fn name(&self) -> &QName {
        &self.element.name
    }

    /// Returns the action as one XML element with a namespace, ready for the journal record.
    pub fn payload(&self) -> String {
        write::payload(&self.element)
    }
}

impl Extraction {
    pub fn actions(&self) -> impl Iterator<Item = &ExtractedAction> {
        self.items.iter().filter_map(|item| match item {
            ExtractedItem::Action(action) => Some(action),
            _ => None,
        })
    }

    pub fn broken(&self) -> impl Iterator<Item = &BrokenAction> {
        self.items.iter().filter_map(|item| match item {
            ExtractedItem::Broken(broken) => Some(broken),
            _ => None,
        })
    }

    pub fn unknown_elements(&self) -> impl Iterator<Item = &UnknownElement> {
        self.items.iter().filter_map(|item| match item {
            ExtractedItem::UnknownElement(unknown) => Some(unknown),
            _ => None,
        })
    }

    /// Returns all errors: those of broken actions, then those of unknown elements that contain an
    /// action, and last those that belong to no action.
    pub fn defects(&self) -> impl Iterator<Item = &Finding> {
        let with_action = self.unknown_elements().filter(|unknown| unknown.holds_action);
        let unknown = with_action.map(|unknown| &unknown.finding);
        self.broken().map(|broken| &broken.finding).chain(unknown).chain(&self.errors)
    }

    /// Returns the text outside actions and reasoning. Elements with unknown names belong to the
    /// text.
    pub fn text(&self) -> String {
        let texts = self.items.iter().filter_map(|item| match item {
            ExtractedItem::Text(text) => Some(text.as_str()),
            ExtractedItem::UnknownElement(unknown) => Some(unknown.attempt.as_str()),
            _ => None,
        });
        texts.collect()
    }
}
