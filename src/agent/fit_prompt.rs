//! The guard: what a model is sent fits its context window, or is made to fit where everybody can
//! see it. Results are left out, a stub stands for each, and the turn is told to be the last.
//! Nothing is ever shortened.

use crate::envelope::{Failure, Kind};
use crate::ids::{ListenerName, MessageId};
use crate::limits;
use crate::model::tokens;
use crate::model::{ModelRequest, ModelTerms};

use super::RendererVersion;
use super::history::MemoryItem;
use super::protocol::render;

/// A request that fits.
pub(super) struct FittedRequest {
    pub request: ModelRequest,
    /// What stubs stand for now and did not before; with any, the turn is the last.
    pub left_out: Vec<MessageId>,
}

/// Leaves out of `items` what does not fit: what `agent` was sent since its last turn first, and of
/// that the largest. What it was asked, and what it said itself, always stays. `render` makes the
/// request of a turn that may be the last.
///
/// # Errors
/// [`Failure::TooLarge`] where it does not fit without any of it.
pub(super) fn fit(
    items: &mut [MemoryItem],
    agent: &ListenerName,
    terms: &ModelTerms,
    version: RendererVersion,
    render: impl Fn(&[MemoryItem], bool) -> ModelRequest,
) -> Result<FittedRequest, Failure> {
    let mut left_out = Vec::new();
    let mut request = render(items, false);
    let Some(room) = terms.room() else { return Ok(FittedRequest { request, left_out }) };
    if tokens::at_most(&request) <= room {
        return Ok(FittedRequest { request, left_out });
    }
    let mut found = None;
    loop {
        let size = terms.size(&request, None).total();
        if size <= room {
            return Ok(FittedRequest { request, left_out });
        }
        let mut excess = size - room;
        let before = left_out.len();
        let candidates =
            found.get_or_insert_with(|| candidates(items, agent, terms, version).into_iter());
        for StubCandidate { at, saves, .. } in candidates {
            if let Some(MemoryItem::ThreadMessage(seen)) = items.get_mut(at) {
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
        request = render(items, true);
    }
}

/// Something that a stub may stand for.
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
        let is_request = seen.message.kind == Kind::Call && seen.message.to == *agent;
        if is_request || seen.left_out {
            continue;
        }
        let saves =
            terms.count(&render::text_of(seen, version)).saturating_sub(limits::STUB_TOKENS);
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

fn too_large(size: u64, room: u64, terms: &ModelTerms) -> Failure {
    let window = terms.window().unwrap_or_default();
    Failure::TooLarge {
        detail: format!(
            "the conversation takes {size} tokens, and beside an answer the model's context window \
             of {window} has room for {room}: ask in a new thread, or ask for less at once"
        ),
    }
}
