//! Undo: calls of a listener that another of its payloads takes back.

use serde::{Deserialize, Serialize};

use super::Contract;
use crate::ids::PayloadName;
use crate::mutant::mutant;

/// How a completed call of a listener is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoRule {
    /// Request of the calls that can be undone.
    #[serde(rename = "request")]
    pub request: PayloadName,
    /// Payload that undoes one of them.
    #[serde(rename = "payload")]
    pub payload: PayloadName,
    /// Child elements of the payload, or attributes with `@`, each with an XPath over `request` and
    /// `reply`.
    #[serde(rename = "with")]
    pub with: Vec<(String, String)>,
}

impl Contract {
    /// How calls with this request are undone, if they can be.
    pub fn undo_of(&self, request: &PayloadName) -> Option<&UndoRule> {
        self.undo.iter().find(|rule| rule.request == *request)
    }

    /// Whether a payload undoes calls of this listener.
    pub fn is_undo(&self, payload: &PayloadName) -> bool {
        self.undo.iter().any(|rule| rule.payload == *payload)
    }

    /// Attempts of a call with this request. What undoes is handed over once, whatever the listener's
    /// own setting.
    pub fn attempts_of(&self, request: Option<&PayloadName>) -> u32 {
        let is_undo = request.is_some_and(|request| self.is_undo(request));
        if is_undo && !mutant("undo-once-more") { 1 } else { self.attempts }
    }
}
