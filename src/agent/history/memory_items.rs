//! The items of an agent's memory, in the order in which the agent saw them. Items that the agent
//! has cleared from its window are left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::agent::RendererVersion;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Position};

use super::thread_fold::{ClearedWindow, ThreadFold};
use super::{AnsweredCall, MemoryItem, ModelText, ThreadMessage};

/// The items of an agent's memory, kept between turns. New records of a thread usually only add
/// items at the end. If new records change an earlier item, all items are computed again.
#[derive(Debug)]
pub(super) struct MemoryItems {
    items: Arc<Vec<MemoryItem>>,
    /// Call for which the items were last computed, and the position of the first delivery of this
    /// call.
    delivered: (CallId, Position),
    /// Number of turns with a text that have been processed so far.
    turns: usize,
    /// Number of turns that have been processed so far, including redacted ones.
    taken: usize,
    /// Number of messages of the thread that have been processed so far.
    seen: usize,
    /// Position of the last delivery. All records before this position have been processed.
    up_to: Position,
    /// Waiting requests to the agent, as indices into the list of the thread's messages. A request
    /// waits until its call is first delivered, or ends without a delivery. The request then gets
    /// its item.
    waiting: Vec<usize>,
    /// Position of the first delivery of each call in which the agent took a turn.
    first_deliveries: HashMap<CallId, Position>,
    /// The `seq` of each turn that the agent's window contains. The window is the part of the
    /// thread that the agent still sees.
    shown_turns: HashSet<u64, foldhash::fast::RandomState>,
    /// Sort key of the last item; `None` while the list is empty.
    last: Option<Place>,
    /// Counts that the function [`changes`] returned when the items were computed. If one of these
    /// counts has grown since then, all items are computed again.
    changes: [usize; 3],
}

/// Sort key of an item: its journal position, whether the item is a turn, and its `seq`. For a
/// turn, the journal position is the position up to which the turn's prompt shows the thread. A
/// message comes before a turn with the same position.
type Place = (Position, bool, u64);

impl MemoryItems {
    /// Computes the items of the agent's memory for the delivery of `call` at `position`, from the
    /// tables in `fold`.
    pub fn new(fold: &ThreadFold, call: CallId, position: Position) -> Self {
        let mut list = Self {
            items: Arc::default(),
            delivered: (call, position),
            turns: 0,
            taken: 0,
            seen: 0,
            up_to: Position(0),
            waiting: Vec::new(),
            first_deliveries: HashMap::new(),
            shown_turns: HashSet::default(),
            last: None,
            changes: changes(fold),
        };
        let mut places = list.new_places(fold, call, position);
        list.last = places.last().map(PlacedItem::place);

        let before_clearing = places.len();
        let stays = match fold.version() {
            RendererVersion::V3 => None,
            _ => Some(call),
        };
        for window in &fold.windows {
            clear(&mut places, window, stays, fold.version());
        }

        let has_gap = stays.is_some() && places.len() < before_clearing;
        list.push(fold, &places);
        if has_gap {
            mark_gap(Arc::make_mut(&mut list.items), call);
        }
        list
    }

    /// Returns all items, in order.
    pub fn items(&self) -> Arc<Vec<MemoryItem>> {
        Arc::clone(&self.items)
    }

    /// Returns the number of waiting requests to the agent. The calls of these requests have not
    /// been delivered yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds the items for the records since the last delivery, and returns true. Returns false if
    /// the caller must compute all items again. This is so if:
    /// - an existing item has changed,
    /// - the agent has cleared its window, and the present delivery is for another call than the
    ///   last one,
    /// - the present delivery is for a call whose end is on record, and the last delivery was for
    ///   another call,
    /// - a turn was recorded for a call that had already ended without a turn, or
    /// - a new item does not belong at the end of the list.
    pub fn extend(&mut self, fold: &ThreadFold, call: CallId, position: Position) -> bool {
        let (before, first) = self.delivered;
        // A clearing never removes the request of the open call.
        let is_same_window = fold.windows.is_empty() || before == call;
        // Only a fork opens an ended call again.
        let is_reopened = fold.ends.contains_key(&call) && before != call;
        if self.changes != changes(fold) || !is_same_window || is_reopened {
            return false;
        }
        if self.has_late_turn(fold) {
            return false;
        }

        let places = self.new_places(fold, call, position);
        // The request of a delivery without a turn is shown otherwise after the end of its call.
        if before != call && !self.first_deliveries.contains_key(&before) {
            return false;
        }
        // If the last delivery had no turn, the position of the call's first delivery has moved.
        if self.request_position(fold, before, (call, position)) != Some(first) {
            return false;
        }

        let newest = fold.windows.iter().map(|window| window.before).max().unwrap_or_default();
        let belongs_at_end = |place: &PlacedItem<'_>| {
            Some(place.place()) > self.last && (place.seq >= newest || fold.windows.is_empty())
        };
        if !places.iter().all(belongs_at_end) {
            return false;
        }
        self.last = places.last().map(PlacedItem::place).or(self.last);
        self.push(fold, &places);
        true
    }

    fn push(&mut self, fold: &ThreadFold, places: &[PlacedItem<'_>]) {
        let turns = places.iter().filter(|place| place.is_model_text).map(|place| place.seq);
        self.shown_turns.extend(turns);
        let shown = places.iter().map(|place| place.shown(fold, &self.shown_turns));
        Arc::make_mut(&mut self.items).extend(shown);
    }

    /// Whether a new turn is the first turn of a call that had already ended at the last delivery.
    /// A turn is new if it was recorded since that delivery. If true, the request of the call must
    /// move to the place of the turn.
    fn has_late_turn(&self, fold: &ThreadFold) -> bool {
        let taken = fold.taken.get(self.taken..).unwrap_or_default();
        let mut firsts = taken.iter().filter(|turn| {
            turn.request_at.is_some() && !self.first_deliveries.contains_key(&turn.call)
        });
        firsts.any(|turn| fold.ends.get(&turn.call).is_some_and(|end| *end <= self.up_to))
    }

    /// Returns the position at which the request of `call` is shown. `delivery` is the present
    /// delivery, with its position. The cases are:
    /// - If the agent took a turn in `call`: the position of the first delivery of `call`. If the
    ///   first turn was redacted: the position of its record, so that the request comes before the
    ///   messages of this turn. Renderer versions before the fifteenth ignore redacted turns.
    /// - If `delivery` is for `call`: the position of `delivery`.
    /// - If `call` ended without a turn: the position at which it ended. Renderer versions before
    ///   the twelfth do not show such a request.
    ///
    /// In all other cases, returns `None`.
    fn request_position(
        &self,
        fold: &ThreadFold,
        call: CallId,
        delivery: (CallId, Position),
    ) -> Option<Position> {
        let known = self.first_deliveries.get(&call).copied();
        let known = known.or_else(|| (call == delivery.0).then_some(delivery.1));
        known.or_else(|| fold.ends.get(&call).copied())
    }

    /// Returns the sorted items of the turns and messages that have not been processed yet.
    /// Requests whose call has not been delivered stay unprocessed.
    fn new_places<'f>(
        &mut self,
        fold: &'f ThreadFold,
        call: CallId,
        position: Position,
    ) -> Vec<PlacedItem<'f>> {
        let turns = fold.turns.get(self.turns..).unwrap_or_default();
        for turn in fold.taken.get(self.taken..).unwrap_or_default() {
            if let Some(position) = turn.request_at {
                self.first_deliveries.entry(turn.call).or_insert(position);
            }
        }

        let version = fold.version();
        let waited = std::mem::take(&mut self.waiting);
        let mut places = Vec::with_capacity(fold.seen.len() - self.seen + turns.len());
        for index in waited.into_iter().chain(self.seen..fold.seen.len()) {
            let Some((recorded, message)) = fold.seen.get(index) else { continue };
            // Earlier versions of the renderer showed these faults.
            let is_to_agent = message.to == *fold.agent();
            let since = if is_to_agent { RendererVersion::V10 } else { RendererVersion::V11 };
            if fold.void_faults.contains(&message.id) && version >= since {
                continue;
            }
            if fold.void_replies.contains(&message.id) {
                continue;
            }
            let mut at = *recorded;
            let mut ended_without_turn = false;
            if message.kind == MessageKind::Call && message.to == *fold.agent() {
                // A request that had to wait is shown at the first delivery of its call, or where
                // the call ended without a delivery, and not before.
                let request = CallId(message.id);
                let Some(first) = self.request_position(fold, request, (call, position)) else {
                    self.waiting.push(index);
                    continue;
                };
                at = at.max(first);
                ended_without_turn =
                    request != call && !self.first_deliveries.contains_key(&request);
            }
            // A note about one of the agent's calls is shown, but was never delivered. This is also
            // so for a request whose call ended without a turn.
            let counts =
                message.to == *fold.agent() && message.call.is_some() && !ended_without_turn;
            let seq = message.seq;
            let item = PlacedContent::ThreadMessage(message);
            let is_model_text = false;
            places.push(PlacedItem { at, is_model_text, seq, counts, ended_without_turn, item });
        }

        for turn in turns {
            let item = PlacedContent::ModelText(&turn.text);
            places.push(PlacedItem {
                at: turn.position,
                is_model_text: true,
                seq: turn.text.turn,
                counts: true,
                ended_without_turn: false,
                item,
            });
        }

        self.turns = fold.turns.len();
        self.taken = fold.taken.len();
        self.seen = fold.seen.len();
        self.up_to = position;
        let first = self.request_position(fold, call, (call, position)).unwrap_or(position);
        self.delivered = (call, first);
        places.sort_by_key(PlacedItem::place);
        places
    }
}

/// Counts three kinds of changes that affect existing items: clearings of the agent's window,
/// messages that a turn replaced by placeholders, and faults that have no effect because another
/// peer of the same group has replied.
fn changes(fold: &ThreadFold) -> [usize; 3] {
    [fold.windows.len(), fold.left_out.len(), fold.void_faults.len()]
}

/// An item of an agent's memory, with the values by which the items are sorted.
struct PlacedItem<'f> {
    at: Position,
    is_model_text: bool,
    seq: u64,
    /// Whether the item counts toward the number of older items that `clear-context` keeps. True
    /// for the agent's turns and for messages that were delivered to the agent.
    counts: bool,
    /// Value of [`ThreadMessage::ended_without_turn`]; false for a turn.
    ended_without_turn: bool,
    item: PlacedContent<'f>,
}

enum PlacedContent<'f> {
    ModelText(&'f Arc<ModelText>),
    ThreadMessage(&'f Arc<Message>),
}

impl PlacedItem<'_> {
    const fn place(&self) -> Place {
        (self.at, self.is_model_text, self.seq)
    }

    fn is_request_of(&self, call: Option<CallId>) -> bool {
        match &self.item {
            PlacedContent::ThreadMessage(message) => call == Some(CallId(message.id)),
            PlacedContent::ModelText(_) => false,
        }
    }

    /// Returns the item as the agent sees it. `shown_turns` lists the turns in the window.
    fn shown(
        &self,
        fold: &ThreadFold,
        shown_turns: &HashSet<u64, foldhash::fast::RandomState>,
    ) -> MemoryItem {
        let message = match &self.item {
            PlacedContent::ModelText(text) => return MemoryItem::ModelText(Arc::clone(text)),
            PlacedContent::ThreadMessage(message) => *message,
        };
        let ThreadFold { calls, results, refused_requests, refusals, left_out, .. } = fold;
        let is_shown = |turn: u64| shown_turns.contains(&turn);

        // The call that the message answers.
        let cause = message.cause.filter(|_| can_answer(message, fold));
        let answered = cause.and_then(|cause| calls.get(&cause));
        let answers = answered.map(|call| AnsweredCall {
            name: call.name.clone(),
            group: call.group.is_some(),
            in_window: is_shown(call.turn),
        });

        // The message is the result of a native call, or of the call that this native call became.
        let of_call = || answered.and_then(|call| Some((call.turn, call.native?)));
        // Before the tenth version of the renderer, a request that the core refused had no result.
        let refused = refused_requests.get(&message.id);
        let refused = refused.filter(|_| fold.version() >= RendererVersion::V10);
        let native = results.get(&message.id).or(refused).copied().or_else(of_call);

        // A message of the agent to itself stands for the result of its own action: `recorded`.
        let own = || calls.get(&message.id).filter(|_| message.kind == MessageKind::Own);
        let of_action = || own().or(answered).and_then(|call| Some((call.turn, call.place?)));
        let action = refusals.get(&message.id).copied().or_else(of_action);

        let turn = own().or(answered).map(|call| call.turn);
        let turn = turn.or_else(|| native.or(action).map(|(turn, _)| turn));

        MemoryItem::ThreadMessage(Arc::new(ThreadMessage {
            message: Arc::clone(message),
            answers,
            answers_call_from_other_thread: cause
                .is_some_and(|cause| fold.calls_from_other_threads.contains(&cause)),
            ended_without_turn: self.ended_without_turn,
            left_out: left_out.contains(&message.id),
            is_of_cleared_turn: turn.is_some_and(|turn| !is_shown(turn)),
            native: native.filter(|(turn, _)| is_shown(*turn)),
            action: action.filter(|(turn, _)| is_shown(*turn)),
        }))
    }
}

/// Whether the message can be the result of the call that caused it. True for a reply to the agent
/// and for a message of the core to the agent. In renderer versions before the thirteenth, true for
/// every message. These versions also count messages that a peer sends while the peer handles the
/// call, because the call causes these messages, too.
fn can_answer(message: &Message, fold: &ThreadFold) -> bool {
    let is_result = matches!(message.kind, MessageKind::Reply | MessageKind::System);
    fold.version() < RendererVersion::V13 || (is_result && message.to == *fold.agent())
}

/// Removes the items that the `clear-context` of `window` clears: those whose `seq` is less than
/// `window.before`. From renderer version 12 on, a request whose first delivery came after the
/// `clear-context` counts as new and stays. A cleared item stays in three cases:
/// - It is one of the last `window.kept` cleared items for which [`PlacedItem::counts`] is true.
/// - It comes after one of these `window.kept` items.
/// - It is the request that opened the call `stays`.
fn clear(
    places: &mut Vec<PlacedItem<'_>>,
    window: &ClearedWindow,
    stays: Option<CallId>,
    version: RendererVersion,
) {
    let is_new = |place: &PlacedItem<'_>| {
        let is_behind = version >= RendererVersion::V12 && place.at >= window.position;
        place.seq >= window.before || is_behind
    };

    let mut left = window.kept;
    let mut cut = places.len();
    for (index, place) in places.iter().enumerate().rev() {
        if is_new(place) {
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
        let is_kept = index >= cut || is_new(place) || place.is_request_of(stays);
        index += 1;
        is_kept
    });
}

/// Inserts the mark [`MemoryItem::Cleared`], which shows that items were removed. If the first item
/// is the request of `call`, the mark comes directly after this request. Otherwise, the mark comes
/// at the beginning of the list.
fn mark_gap(items: &mut Vec<MemoryItem>, call: CallId) {
    let is_request = |item: &MemoryItem| match item {
        MemoryItem::ThreadMessage(seen) => CallId(seen.message.id) == call,
        MemoryItem::ModelText(_) | MemoryItem::Cleared => false,
    };
    let at = usize::from(items.first().is_some_and(is_request));
    items.insert(at, MemoryItem::Cleared);
}
