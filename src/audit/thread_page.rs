//! A page of a thread: a limited number of messages, and the events between them. Only the records
//! of the page are read. A subthread is shown with its totals, but without its events.

use crate::ids::{CallId, ListenerName, Position, ThreadId};
use crate::index::{Error, IndexReader, ThreadPageRows};
use crate::thread::{Fact, Input, Record};

use super::fork_origin::ForkOrigin;
use super::timeline::{ThreadTimeline, TimelineBuilder, TimelineEntry, TimelineEvent};

/// A page of a thread, and the positions of the pages before and after it.
#[derive(Debug, Clone)]
pub struct ThreadPage {
    pub timeline: ThreadTimeline,
    /// Position of the record that opened the thread.
    pub opened_at: Position,
    /// The `seq` of the message at which the page begins; 0 for the first page.
    pub from_seq: u64,
    pub previous_seq: Option<u64>,
    pub next_seq: Option<u64>,
    /// Whether the page leaves out events between its messages.
    pub is_cut: bool,
    /// Decisions that come before the page's first message, in a record that also has events of
    /// this page. The previous page shows these decisions at its end, too.
    pub earlier_decisions: Vec<TimelineEntry>,
    /// The history that the thread of a fork has taken over from the fork's source. `None` if the
    /// thread has taken over no history.
    pub fork: Option<ForkOrigin>,
}

/// Returns a page of at most `limit` messages, beginning with the message whose `seq` is
/// `from_seq`. If `from_seq` is `None`, returns the last page. Returns `None` if there is no such
/// thread.
///
/// Some events are shown only if their record also has a message, refusal, failure or decision of
/// the thread: the charge for a lost model call, a cancelled timer, and a count of `busy` refusals.
///
/// # Errors
///
/// Returns errors of the index and of its journal.
pub fn thread_page(
    index: &IndexReader,
    thread: &ThreadId,
    from_seq: Option<u64>,
    limit: usize,
) -> Result<Option<ThreadPage>, Error> {
    let Some(rows) = index.thread_page(thread, from_seq, limit)? else { return Ok(None) };
    let mut builder = TimelineBuilder::default();
    let opening = index.journal().existing_record(rows.opened_at)?.record;
    builder.open(thread, &opened_by(&opening, thread), rows.opened);
    for position in &rows.positions {
        let record = index.journal().existing_record(*position)?.record;
        if let Some(call) = call_of(&record)
            && let Some(of) = index.thread_of_call(call)?
            && of.root() == record.tree
        {
            builder.know_call(call, of);
        }
        builder.take(&record);
    }

    let Some(mut timeline) = builder.take_own_events(thread) else { return Ok(None) };
    let ThreadPageRows { from_seq, previous_seq, next_seq, is_cut, .. } = rows;
    let end = next_seq.unwrap_or(u64::MAX);
    let earlier_decisions = earlier_decisions(&timeline, from_seq);
    timeline.items.retain(|item| (from_seq..end).contains(&item.seq));
    complete(index, &mut timeline, &rows)?;
    let fork = ForkOrigin::of(&opening, thread);
    Ok(Some(ThreadPage {
        timeline,
        opened_at: rows.opened_at,
        from_seq,
        previous_seq,
        next_seq,
        is_cut,
        earlier_decisions,
        fork,
    }))
}

/// Returns the decisions in `timeline` that come before the message with the `seq` `from_seq`.
pub fn earlier_decisions(timeline: &ThreadTimeline, from_seq: u64) -> Vec<TimelineEntry> {
    let before = timeline.items.iter().take_while(|item| item.seq < from_seq);
    let decisions = before.filter(|item| matches!(item.what, TimelineEvent::Decision { .. }));
    decisions.cloned().collect()
}

/// Returns the sender that opened a thread. `record` is the first record of the thread. For
/// [`ThreadId::ORGANISM`], which stands for the records that belong to no tree, returns the core.
fn opened_by(record: &Record, thread: &ThreadId) -> ListenerName {
    let opened = record.facts.iter().find_map(|fact| match fact {
        Fact::ThreadOpened { thread: opened, by, .. } if opened == thread => Some(by.clone()),
        Fact::Forked { thread: root, by, .. } if root == thread => Some(by.clone()),
        Fact::Forked { threads, .. } => {
            let inherited = threads.iter().find(|inherited| inherited.thread == *thread);
            inherited.map(|inherited| inherited.by.clone())
        }
        _ => None,
    });
    opened.unwrap_or_else(ListenerName::core)
}

/// Returns the call that the input of a record names, or `None` if the input names none. The record
/// may belong to another tree than the call: a decision on a call that is over belongs to
/// [`ThreadId::ORGANISM`].
const fn call_of(record: &Record) -> Option<CallId> {
    match &record.input {
        Input::Outcome { call, .. }
        | Input::Failed { call, .. }
        | Input::Lost { call, .. }
        | Input::Unsettled { call, .. }
        | Input::Stop { call, .. }
        | Input::Deadline { call, .. } => Some(*call),
        Input::Decided { message, .. } => Some(CallId(*message)),
        _ => None,
    }
}

/// Adds data that the records of the page do not contain: the totals of threads, the dispositions
/// of messages, and the holds of calls.
fn complete(
    index: &IndexReader,
    timeline: &mut ThreadTimeline,
    rows: &ThreadPageRows,
) -> Result<(), Error> {
    set_totals(index, timeline)?;
    for item in &mut timeline.items {
        match &mut item.what {
            TimelineEvent::Message(view) => {
                let known = rows.dispositions.iter().find(|(id, _)| *id == view.id);
                view.disposition = known.and_then(|(_, disposition)| *disposition);
                let held = rows.holds.iter().find(|(id, _)| *id == view.id);
                view.hold = held.map(|(_, hold)| *hold);
                view.is_handed_over = Some(rows.handed_over.contains(&view.id));
            }
            TimelineEvent::Subthread(child) => set_totals(index, child)?,
            _ => {}
        }
    }
    Ok(())
}

/// Sets the totals of a thread's timeline from the index.
fn set_totals(index: &IndexReader, timeline: &mut ThreadTimeline) -> Result<(), Error> {
    if let Some(totals) = index.timeline_summary(&timeline.thread)? {
        timeline.set_totals(totals);
    }
    Ok(())
}
