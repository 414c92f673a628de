//! Undo: payloads of a listener that undo its completed calls.

use serde::{Deserialize, Serialize};

use super::Contract;
use crate::ids::PayloadName;
use crate::mutant::mutant;

/// Rule by which a completed call of a listener is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoRule {
    /// Request of the calls to which the rule applies.
    #[serde(rename = "request")]
    pub request: PayloadName,
    /// Payload that undoes a completed call with this request.
    #[serde(rename = "payload")]
    pub payload: PayloadName,
    /// Parts of the payload that are filled in: child elements, or attributes with a leading `@`,
    /// each with an XPath expression over `request` and `reply`.
    #[serde(rename = "with")]
    pub with: Vec<(String, String)>,
}

impl Contract {
    /// Returns the rule that undoes calls with this request; `None` if no rule undoes such calls.
    pub fn undo_of(&self, request: &PayloadName) -> Option<&UndoRule> {
        self.undo.iter().find(|rule| rule.request == *request)
    }

    /// Whether this payload undoes calls of this listener.
    pub fn is_undo(&self, payload: &PayloadName) -> bool {
        self.undo.iter().any(|rule| rule.payload == *payload)
    }

    /// Returns the maximum attempts of a call with this request. A payload that undoes is attempted
    /// once, whatever the listener's setting.
    pub fn attempts_of(&self, request: Option<&PayloadName>) -> u32 {
        let is_undo = request.is_some_and(|request| self.is_undo(request));
        if is_undo && !mutant("undo-once-more") { 1 } else { self.attempts }
    }
}
