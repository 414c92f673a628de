//! The nonce of a turn. A model writes its report into named slots, and the names of these slots
//! contain the nonce. A recording cannot know the nonce of a later run, so recorded texts contain
//! `{{nonce}}` instead.

use crate::model::request::{ChatRole, ModelRequest};

/// Placeholder for the turn's nonce in a recorded text.
pub const PLACEHOLDER: &str = "{{nonce}}";

/// Returns the nonce of a request's turn. The last text of the request names one or more slots in
/// which the model writes its report. The name of the last slot contains the nonce.
pub(super) fn nonce_of(request: &ModelRequest) -> Option<&str> {
    let last = request.messages.last().filter(|message| message.role == ChatRole::User)?;
    let (before, _) = last.texts().last()?.rsplit_once("-FINAL format=")?;
    let (_, nonce) = before.rsplit_once('<')?;
    let is_name = !nonce.is_empty() && nonce.chars().all(|c| c.is_ascii_alphanumeric());
    is_name.then_some(nonce)
}
