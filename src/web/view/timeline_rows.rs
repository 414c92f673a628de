//! The rows of a timeline, in nested order. The turns of a model are beneath their call. The calls
//! and subthreads that a turn opened are beneath this turn.

use std::collections::HashMap;

use crate::audit::{MessageState, MessageView, RefusalView, ThreadTimeline, TimelineEvent};
use crate::clock::Time;
use crate::envelope::MessageKind;
use crate::ids::{MessageId, Position};
use crate::index::{CallWork, TurnWork};
use crate::system;

/// Content of a row of the timeline.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowContent<'p> {
    Call(&'p CallWork),
    Turn(&'p TurnWork),
    Subthread(&'p ThreadTimeline),
    /// A refused payload, or a refused action of an operator, with the time of the refusal.
    Refusal(&'p RefusalView, Time),
    Undelivered(UndeliveredMessage<'p>),
}

/// A message of an open call. The message is not handed over to the call's listener yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct UndeliveredMessage<'p> {
    pub message: &'p MessageView,
    /// The call in which the message will be delivered; `None` if the page does not have this call.
    pub call: Option<&'p CallWork>,
}

/// A row of the timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimelineRow<'p> {
    pub content: RowContent<'p>,
    /// Nesting depth: the number of rows that contain this row, directly or indirectly.
    pub depth: usize,
}

/// Id of the row that directly contains another row; `None` for a row without a parent. The row of
/// a call has the id of the message that opened the call. The row of a turn has the id of the note
/// that records the turn.
type ParentRow = Option<MessageId>;

/// Returns the subthreads on a page. Each subthread has the position of the record that opened the
/// subthread.
pub(super) fn subthreads(timeline: &ThreadTimeline) -> Vec<(Position, &ThreadTimeline)> {
    let children = timeline.items.iter().filter_map(|item| match &item.what {
        TimelineEvent::Subthread(child) => Some((item.position, child)),
        _ => None,
    });
    children.collect()
}

/// Returns the undelivered messages of a page. Leaves out messages that open a call, because the
/// row of the call already shows their state.
pub(super) fn undelivered<'p>(
    timeline: &'p ThreadTimeline,
    work: &'p [CallWork],
) -> Vec<UndeliveredMessage<'p>> {
    let messages = timeline.items.iter().filter_map(|item| match &item.what {
        TimelineEvent::Message(message) => Some(message),
        _ => None,
    });
    let open = messages.filter_map(|message| {
        let id = message.call?.0;
        if message.kind == MessageKind::Note || id == message.id {
            return None;
        }

        let call = work.iter().find(|call| call.call == id);
        (message.state() == MessageState::Queued).then_some(UndeliveredMessage { message, call })
    });
    open.collect()
}

/// Returns the rows of a page. Rows with the same parent are in the order of their beginnings.
pub(super) fn rows<'p>(timeline: &'p ThreadTimeline, work: &'p [CallWork]) -> Vec<TimelineRow<'p>> {
    let mut beneath: HashMap<ParentRow, Vec<(Time, RowContent<'p>)>> = HashMap::new();
    let mut add = |parent: ParentRow, begin: Time, content: RowContent<'p>| {
        beneath.entry(parent).or_default().push((begin, content));
    };
    for call in work {
        let begin = call.spans.first().map_or(Time(0), |span| span.begin);
        add(parent(work, call.opener, call.position), begin, RowContent::Call(call));
        for turn in &call.turns {
            add(Some(call.call), turn.begin, RowContent::Turn(turn));
        }
    }
    for (position, child) in subthreads(timeline) {
        let parent = parent(work, opener(timeline, child, position), position);
        add(parent, child.opened, RowContent::Subthread(child));
    }
    for item in &timeline.items {
        if let TimelineEvent::Refused(refusal) = &item.what {
            let turns = || work.iter().flat_map(|call| &call.turns);
            let turn = turns().find(|turn| turn.position == item.position);
            let content = RowContent::Refusal(refusal, item.at);
            add(turn.map(|turn| turn.note), item.at, content);
        }
    }

    for found in undelivered(timeline, work) {
        let parent = found.call.map(|call| call.call);
        add(parent, found.message.at, RowContent::Undelivered(found));
    }

    for rows in beneath.values_mut() {
        // The row that begins first is taken first, from the end of the list. Rows that begin at
        // the same time keep the order of their records.
        rows.sort_by_key(|(begin, _)| *begin);
        rows.reverse();
    }
    let mut ordered = Vec::new();
    let mut open: Vec<Vec<(Time, RowContent<'p>)>> = beneath.remove(&None).into_iter().collect();
    while let Some(rows) = open.last_mut() {
        let Some((_, content)) = rows.pop() else {
            open.pop();
            continue;
        };
        ordered.push(TimelineRow { content, depth: open.len() - 1 });
        let within = match content {
            RowContent::Call(call) => beneath.remove(&Some(call.call)),
            RowContent::Turn(turn) => beneath.remove(&Some(turn.note)),
            RowContent::Subthread(_) | RowContent::Refusal(..) | RowContent::Undelivered(_) => None,
        };
        open.extend(within);
    }
    ordered
}

/// Returns the parent row for everything that the call `opener` opened in the record at `position`.
/// If the record contains a turn of this call, the parent is the turn. Otherwise, the parent is the
/// call itself. Returns `None` if the page does not have this call.
fn parent(work: &[CallWork], opener: Option<MessageId>, position: Position) -> ParentRow {
    let call = work.iter().find(|call| Some(call.call) == opener)?;
    let turn = call.turns.iter().find(|turn| turn.position == position);
    Some(turn.map_or(call.call, |turn| turn.note))
}

/// Returns the call in which a listener requested a subthread: the call of the message that caused
/// the request. Returns `None` if the page lacks the request or this message.
fn opener(
    timeline: &ThreadTimeline,
    child: &ThreadTimeline,
    position: Position,
) -> Option<MessageId> {
    let messages = || {
        timeline.items.iter().filter_map(|item| match &item.what {
            TimelineEvent::Message(message) => Some(message),
            _ => None,
        })
    };
    let spawn = system::name("spawn-thread");
    let is_spawn = |name: &crate::ids::PayloadName| *name == spawn;
    let spawning = messages().find(|message| {
        message.position == position && message.from == child.opened_by && is_spawn(&message.name)
    })?;
    let cause = messages().find(|message| Some(message.id) == spawning.cause)?;
    Some(cause.call.map_or(cause.id, |call| call.0))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{ListenerName, ThreadId};
    use crate::index::{WorkKind, WorkSpan};

    fn id(number: u128) -> MessageId {
        MessageId(Uuid::from_u128(number))
    }

    /// Creates a call. Its id is `number`, and the record that opened it is at `position`.
    fn call(number: u128, position: u64, opener: Option<u128>, begin: i64) -> CallWork {
        CallWork {
            call: id(number),
            caller: "writer".to_owned(),
            listener: "ledger".to_owned(),
            payload: format!("call-{number}"),
            position: Position(position),
            opener: opener.map(id),
            outcome: None,
            fault: None,
            spans: vec![WorkSpan { kind: WorkKind::Queue, begin: Time(begin), end: None }],
            turns: Vec::new(),
            is_cut: false,
            retries: 0,
            failovers: 0,
            hold: None,
            queued_since: None,
        }
    }

    #[test]
    fn calls_that_begin_at_the_same_time_keep_the_order_of_their_records() {
        let thread = ThreadId::parse("sess-rows0001").unwrap();
        let timeline = ThreadTimeline::new(thread, ListenerName::operator(), Time(0));
        let turn = TurnWork {
            note: id(9),
            position: Position(2),
            number: 1,
            tokens_in: 0,
            tokens_out: 0,
            begin: Time(1),
            end: Time(2),
        };
        let parent = CallWork { turns: vec![turn], ..call(1, 1, None, 0) };
        let work = [parent, call(2, 2, Some(1), 5), call(3, 2, Some(1), 5), call(4, 2, Some(1), 4)];

        let rows = rows(&timeline, &work);
        let rows = rows.iter().map(|row| match row.content {
            RowContent::Call(call) => (row.depth, call.payload.as_str()),
            RowContent::Turn(_) => (row.depth, "turn"),
            RowContent::Subthread(_) => (row.depth, "subthread"),
            RowContent::Refusal(..) => (row.depth, "refusal"),
            RowContent::Undelivered(_) => (row.depth, "undelivered"),
        });
        let expected = [(0, "call-1"), (1, "turn"), (2, "call-4"), (2, "call-2"), (2, "call-3")];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}
