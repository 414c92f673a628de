//! Pairs the results of native calls with their calls, and writes the ids of both in the form that
//! the provider accepts. The record keeps each id as the provider of its call wrote it.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::ids::Digest;
use crate::model::answer::ToolCall;

/// Characters of an id in Mistral's form.
const MISTRAL_ID_CHARS: usize = 9;

/// Writer of the ids of native calls in one request. Must get the calls and results of the request
/// in their order.
pub(super) struct CallIdWriter<'a> {
    /// Whether each id must have Mistral's form: nine letters and digits, which no other call of
    /// the request has.
    has_mistral_form: bool,
    /// Number of calls so far with each recorded id.
    counts: HashMap<&'a str, usize>,
    /// Calls of the last answer whose results are not written yet.
    pending: Vec<SentCall<'a>>,
}

/// A native call with its id as it is sent.
struct SentCall<'a> {
    call: &'a ToolCall,
    id: Cow<'a, str>,
}

impl<'a> CallIdWriter<'a> {
    pub fn new(has_mistral_form: bool) -> Self {
        Self { has_mistral_form, counts: HashMap::new(), pending: Vec::new() }
    }

    /// Must be called before the calls of each answer.
    pub fn begin_answer(&mut self) {
        self.pending.clear();
    }

    /// Returns the id to send with a call.
    pub fn call_id(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        let count = self.counts.entry(&call.id).or_default();
        let id = self.has_mistral_form.then(|| mistral_id(&call.id, *count));
        *count += 1;

        let id = id.unwrap_or(Cow::Borrowed(call.id.as_str()));
        self.pending.push(SentCall { call, id: id.clone() });
        id
    }

    /// Returns the id to send with the result of a call, and the call itself. If several calls of
    /// the answer have the same recorded id, their results have the order of the calls. Returns no
    /// call if the answer has no such call.
    pub fn result_id(&mut self, id: &'a str) -> (Cow<'a, str>, Option<&'a ToolCall>) {
        match self.pending.iter().position(|sent| sent.call.id == id) {
            Some(at) => {
                let SentCall { call, id } = self.pending.remove(at);
                (id, Some(call))
            }
            None if self.has_mistral_form => (mistral_id(id, 0), None),
            None => (Cow::Borrowed(id), None),
        }
    }
}

/// Returns an id in Mistral's form. Ids that have this form stay unchanged, except the id of a call
/// that `earlier` calls of the request have, too.
fn mistral_id(id: &str, earlier: usize) -> Cow<'_, str> {
    if earlier == 0 && id.len() == MISTRAL_ID_CHARS && id.chars().all(|c| c.is_ascii_alphanumeric())
    {
        return Cow::Borrowed(id);
    }

    let digest = Digest::of_parts(&[earlier.to_string().as_bytes(), b"\0", id.as_bytes()]);
    Cow::Owned(digest.to_string().chars().take(MISTRAL_ID_CHARS).collect())
}
