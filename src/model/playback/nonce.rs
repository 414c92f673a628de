//! The nonce of a turn. With the transport `xml-final`, a model writes its report into a slot,
//! which is an XML element whose name contains the nonce of the turn. Each run has other nonces, so
//! recorded texts contain `{{nonce}}` in their place.

use crate::model::request::{ChatRole, ModelRequest};

/// Placeholder for the turn's nonce in a recorded text.
pub const PLACEHOLDER: &str = "{{nonce}}";

/// Returns the nonce of the turn that `request` serves, or `None` if the turn has no nonce. Reads
/// the nonce from a start tag in the last text of the request: the tag `<k3x9-FINAL format="xml">`
/// contains the nonce `k3x9`.
pub(super) fn nonce_of(request: &ModelRequest) -> Option<&str> {
    let last = request.messages.last().filter(|message| message.role == ChatRole::User)?;
    let (before, _) = last.texts().last()?.rsplit_once("-FINAL format=")?;
    let (_, nonce) = before.rsplit_once('<')?;
    let is_name = !nonce.is_empty() && nonce.chars().all(|c| c.is_ascii_alphanumeric());
    is_name.then_some(nonce)
}
