//! Undo: payloads with which completed calls to a listener are undone.

use serde::{Deserialize, Serialize};

use super::Contract;
use crate::ids::PayloadName;
use crate::mutant::mutant;

/// Rule by which a completed call to a listener is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoRule {
    /// Name of the request whose calls can be undone.
    #[serde(rename = "request")]
    pub request: PayloadName,
    /// Name of the payload that undoes a completed call.
    #[serde(rename = "payload")]
    pub payload: PayloadName,
    /// Values to fill into the payload that undoes the call. Each has a name and an XPath
    /// expression over `request` and `reply`. The name is that of a child element, or `@` and the
    /// name of an attribute.
    #[serde(rename = "with")]
    pub with: Vec<(String, String)>,
}

impl Contract {
    /// Returns the rule that undoes calls with this request; `None` if no rule undoes such calls.
    pub fn undo_of(&self, request: &PayloadName) -> Option<&UndoRule> {
        self.undo.iter().find(|rule| rule.request == *request)
    }

    /// Whether this payload can undo calls to the listener of this contract.
    pub fn is_undo(&self, payload: &PayloadName) -> bool {
        self.undo.iter().any(|rule| rule.payload == *payload)
    }

    /// Returns the maximum number of attempts of a call with this request. A call that undoes an
    /// earlier call gets only one attempt, even if the listener's setting permits more.
    pub fn attempts_of(&self, request: Option<&PayloadName>) -> u32 {
        let is_undo = request.is_some_and(|request| self.is_undo(request));
        if is_undo && !mutant("undo-once-more") { 1 } else { self.attempts }
    }
}
