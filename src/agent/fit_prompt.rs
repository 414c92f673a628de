//! Fits a model request into the context window of the model. Short placeholders replace whole
//! messages until the request fits; no message is shortened. A turn that needs a new placeholder is
//! the last turn of its call, and the notice in its model request states this. The record of the
//! turn lists the replaced messages.

use std::sync::Arc;

use crate::envelope::{AttemptFailure, MessageKind};
use crate::ids::{ListenerName, MessageId};
use crate::limits;
use crate::model::tokens;
use crate::model::{ModelRequest, ModelTerms};

use super::RendererVersion;
use super::history::MemoryItem;
use super::protocol::render;

/// The model request of a turn, in the form for each provider that may get it.
pub(super) struct RequestForms {
    /// The form for the provider of the agent's first route.
    pub request: ModelRequest,
    /// The forms for other providers. Empty if all providers get the same form, or if the model has
    /// no context window.
    pub others: Vec<ModelRequest>,
}

impl RequestForms {
    /// Returns the largest size of a form.
    fn largest(&self, size: impl Fn(&ModelRequest) -> u64) -> u64 {
        self.others.iter().map(&size).fold(size(&self.request), u64::max)
    }
}

/// A model request that fits into the context window, perhaps with placeholders for some messages.
pub(super) struct FittedRequest {
    pub request: ModelRequest,
    /// Messages that are replaced by placeholders in this turn's prompt and in later prompts. If
    /// the list is not empty, this turn is the last one of its call.
    pub left_out: Vec<MessageId>,
}

/// Replaces messages by placeholders until the request fits. First replaces messages after the last
/// turn of `agent`, and then messages before that turn. In each of these two groups, replaces
/// larger messages first. Never replaces the agent's own text. Replaces a request to `agent` only
/// if the call of this request ended before the agent took a turn in the call. `render` makes the
/// model request; its `bool` argument states whether `fit` has added a placeholder. The request
/// fits if each of its forms fits.
///
/// # Errors
///
/// [`AttemptFailure::TooLarge`] if the request is still too large when no more messages can be
/// replaced.
pub(super) fn fit(
    items: &mut Arc<Vec<MemoryItem>>,
    agent: &ListenerName,
    terms: &ModelTerms,
    version: RendererVersion,
    mut render: impl FnMut(&[MemoryItem], bool) -> RequestForms,
) -> Result<FittedRequest, AttemptFailure> {
    let mut left_out = Vec::new();
    let mut forms = render(items, false);
    let Some(room) = terms.room() else {
        return Ok(FittedRequest { request: forms.request, left_out });
    };
    if forms.largest(tokens::at_most) <= room {
        return Ok(FittedRequest { request: forms.request, left_out });
    }

    let mut found = None;

    loop {
        let size = forms.largest(|form| terms.size(form, None).total());
        if size <= room {
            return Ok(FittedRequest { request: forms.request, left_out });
        }
        let mut excess = size - room;
        let before = left_out.len();
        let candidates =
            found.get_or_insert_with(|| candidates(items, agent, terms, version).into_iter());
        for StubCandidate { at, saves, .. } in candidates {
            if let Some(MemoryItem::ThreadMessage(seen)) = Arc::make_mut(items).get_mut(at) {
                let seen = Arc::make_mut(seen);
                seen.left_out = true;
                left_out.push(seen.message.id);
            }
            excess = excess.saturating_sub(saves);
            if excess == 0 {
                break;
            }
        }
        if left_out.len() == before {
            return Err(too_large(size, room, terms));
        }
        forms = render(items, true);
    }
}

/// A message that may be replaced by a placeholder.
struct StubCandidate {
    at: usize,
    is_old: bool,
    saves: u64,
}

fn candidates(
    items: &[MemoryItem],
    agent: &ListenerName,
    terms: &ModelTerms,
    version: RendererVersion,
) -> Vec<StubCandidate> {
    let last_turn = items.iter().rposition(|item| matches!(item, MemoryItem::ModelText(_)));
    let mut candidates = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let MemoryItem::ThreadMessage(seen) = item else { continue };
        let is_request = seen.message.kind == MessageKind::Call && seen.message.to == *agent;
        if (is_request && !seen.ended_without_turn) || seen.left_out {
            continue;
        }
        let saves =
            terms.count(&render::text_of(seen, agent, version)).saturating_sub(limits::STUB_TOKENS);
        if saves > 0 {
            candidates.push(StubCandidate {
                at,
                is_old: last_turn.is_some_and(|turn| at < turn),
                saves,
            });
        }
    }

    candidates.sort_by_key(|candidate| (candidate.is_old, std::cmp::Reverse(candidate.saves)));
    candidates
}

fn too_large(size: u64, room: u64, terms: &ModelTerms) -> AttemptFailure {
    let window = terms.window().unwrap_or_default();
    AttemptFailure::TooLarge {
        detail: format!(
            "the conversation takes {size} tokens, and beside an answer the model's context window \
             of {window} has room for {room}: ask in a new thread, or ask for less at once"
        ),
    }
}
