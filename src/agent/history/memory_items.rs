//! The items of a memory: in the order in which the agent saw them, without those that were cleared.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::agent::RendererVersion;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Position};

use super::thread_fold::ThreadFold;
use super::{AnsweredCall, MemoryItem, ModelText, ThreadMessage};

/// The items of the memory of `call` at a delivery.
pub(super) fn of(
    fold: &ThreadFold,
    call: CallId,
    position: Position,
    version: RendererVersion,
) -> Vec<MemoryItem> {
    let mut places = in_order(fold, call, position);
    let before_clearing = places.len();
    let stays = match version {
        RendererVersion::V3 => None,
        _ => Some(call),
    };

    for (before, kept) in &fold.windows {
        clear(&mut places, *before, *kept, stays);
    }

    let has_gap = stays.is_some() && places.len() < before_clearing;
    let mut items = shown(&places, fold);
    if has_gap {
        mark_gap(&mut items, call);
    }
    items
}

/// An item of the memory, and its place in the order.
struct PlacedItem<'f> {
    at: Position,
    is_model_text: bool,
    seq: u64,
    /// Whether the item counts towards the window: it is one of the agent's turns, or a message
    /// that was delivered to the agent.
    counts: bool,
    item: PlacedContent<'f>,
}

enum PlacedContent<'f> {
    ModelText(&'f Arc<ModelText>),
    ThreadMessage(&'f Arc<Message>),
}

impl PlacedItem<'_> {
    fn is_request_of(&self, call: Option<CallId>) -> bool {
        match &self.item {
            PlacedContent::ThreadMessage(message) => call == Some(CallId(message.id)),
            PlacedContent::ModelText(_) => false,
        }
    }
}

/// All items in the order in which the agent saw them.
fn in_order(fold: &ThreadFold, call: CallId, position: Position) -> Vec<PlacedItem<'_>> {
    let mut met: HashMap<CallId, Position> = HashMap::new();
    for turn in &fold.turns {
        met.entry(turn.call).or_insert(turn.position);
    }

    met.entry(call).or_insert(position);
    let mut places = Vec::with_capacity(fold.seen.len() + fold.turns.len());

    for (position, message) in &fold.seen {
        let mut at = *position;
        if message.kind == MessageKind::Call && message.to == *fold.agent() {
            // A request that had to wait is shown at the first delivery of its call, and not
            // before.
            let Some(first) = met.get(&CallId(message.id)) else { continue };
            at = at.max(*first);
        }
        // A note about one of the agent's calls is shown, but was never delivered.
        let counts = message.to == *fold.agent() && message.call.is_some();
        let seq = message.seq;
        let item = PlacedContent::ThreadMessage(message);
        places.push(PlacedItem { at, is_model_text: false, seq, counts, item });
    }

    for turn in &fold.turns {
        let item = PlacedContent::ModelText(&turn.text);
        places.push(PlacedItem {
            at: turn.position,
            is_model_text: true,
            seq: turn.text.turn,
            counts: true,
            item,
        });
    }

    places.sort_by_key(|place| (place.at, place.is_model_text, place.seq));
    places
}

/// Removes items whose `seq` is less than `before`, except the last `kept` of those that count and
/// the items between them. The request of the call `stays` is never removed.
fn clear(places: &mut Vec<PlacedItem<'_>>, before: u64, kept: u32, stays: Option<CallId>) {
    let mut left = kept;
    let mut cut = places.len();
    for (index, place) in places.iter().enumerate().rev() {
        if place.seq >= before {
            cut = index;
        } else if place.counts {
            if left == 0 {
                break;
            }
            left -= 1;
            cut = index;
        }
    }

    let mut index = 0;
    places.retain(|place| {
        let is_kept = index >= cut || place.seq >= before || place.is_request_of(stays);
        index += 1;
        is_kept
    });
}

/// Inserts a mark for the removed items: after the open request if the window begins with that
/// request, otherwise at the beginning.
fn mark_gap(items: &mut Vec<MemoryItem>, call: CallId) {
    let is_request = |item: &MemoryItem| match item {
        MemoryItem::ThreadMessage(seen) => CallId(seen.message.id) == call,
        MemoryItem::ModelText(_) | MemoryItem::Cleared => false,
    };
    let at = usize::from(items.first().is_some_and(is_request));
    items.insert(at, MemoryItem::Cleared);
}

fn shown(places: &[PlacedItem<'_>], fold: &ThreadFold) -> Vec<MemoryItem> {
    let ThreadFold { calls, results, refusals, left_out, .. } = fold;
    let turns = places.iter().filter(|place| place.is_model_text).map(|place| place.seq);
    let turns: HashSet<u64, foldhash::fast::RandomState> = turns.collect();
    let is_shown = |turn: u64| turns.contains(&turn);

    let show = |message: &Arc<Message>| {
        // The call that the message answers.
        let answered = message.cause.and_then(|cause| calls.get(&cause));
        let answers = answered.map(|call| AnsweredCall {
            name: call.name.clone(),
            group: call.group,
            in_window: is_shown(call.turn),
        });

        // The message is the result of a native call, or of the call that this native call became.
        let of_call = || answered.and_then(|call| Some((call.turn, call.native?)));
        let native = results.get(&message.id).copied().or_else(of_call);

        // A message of the agent to itself is its own result: `recorded`.
        let own = || calls.get(&message.id).filter(|_| message.kind == MessageKind::Own);
        let of_action = || own().or(answered).and_then(|call| Some((call.turn, call.place?)));
        let action = refusals.get(&message.id).copied().or_else(of_action);

        MemoryItem::ThreadMessage(Box::new(ThreadMessage {
            message: Arc::clone(message),
            answers,
            left_out: left_out.contains(&message.id),
            native: native.filter(|(turn, _)| is_shown(*turn)),
            action: action.filter(|(turn, _)| is_shown(*turn)),
        }))
    };

    let item = |place: &PlacedItem<'_>| match &place.item {
        PlacedContent::ModelText(text) => MemoryItem::ModelText(Arc::clone(text)),
        PlacedContent::ThreadMessage(message) => show(message),
    };
    places.iter().map(item).collect()
}
