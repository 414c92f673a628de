//! Reads a page of a thread in the state that the thread had after an earlier record.

use crate::audit::{
    ForkOrigin, RecordedMoment, ThreadPage, ThreadTimeline, TimelineEvent, earlier_decisions,
    thread_timeline,
};
use crate::ids::{Position, ThreadId};
use crate::index::{self, IndexReader};
use crate::limits;

/// Reads a page of the thread as it was directly after the record at `at`. The thread is divided
/// into pages as at that time. Returns `None` if the thread did not exist yet. Fails if the thread
/// has too many records to read at once.
pub(super) fn past_page(
    index: &IndexReader,
    thread: &ThreadId,
    at: Position,
    from_seq: Option<u64>,
    limit: usize,
) -> Result<Option<ThreadPage>, index::Error> {
    let records = index.journal().records_of(&thread.root())?;
    if records > limits::WEB_PAST_RECORDS {
        let detail = format!(
            "the thread has {records} records; `organism thread {thread} --at {at}` shows it as it was"
        );
        return Err(index::Error::Query { detail });
    }

    let moment = Some(RecordedMoment::Position(at));
    let Some(timeline) = thread_timeline(index.journal(), thread, moment)? else {
        return Ok(None);
    };
    let first = timeline.items.first().map(|item| item.position);
    let first = first.map(|first| index.journal().existing_record(first)).transpose()?;
    let fork = first.and_then(|first| ForkOrigin::of(&first.record, thread));
    Ok(Some(page_of(timeline, fork, from_seq, limit)))
}

/// Returns the page of `timeline` that begins at the message `from_seq`. If `from_seq` is `None`,
/// returns the last page. The length of a page counts only the thread's own messages, and not the
/// events of subthreads.
fn page_of(
    mut timeline: ThreadTimeline,
    fork: Option<ForkOrigin>,
    from_seq: Option<u64>,
    limit: usize,
) -> ThreadPage {
    let opened_at = timeline.items.first().map_or(Position::default(), |item| item.position);
    let own = timeline.items.iter().filter(|item| matches!(item.what, TimelineEvent::Message(_)));
    let seqs: Vec<u64> = own.map(|item| item.seq).collect();
    let from_seq =
        from_seq.unwrap_or_else(|| seq_before(&seqs, u64::MAX, limit).unwrap_or_default());
    let mut shown = seqs.iter().copied().filter(|seq| *seq >= from_seq);
    let first_seq = shown.clone().next().unwrap_or(from_seq);
    let next_seq = shown.nth(limit);
    let previous_seq = seq_before(&seqs, first_seq, limit);

    // Events before the first message of the thread belong to its first page.
    let from_seq = if previous_seq.is_some() { first_seq } else { 0 };
    let end = next_seq.unwrap_or(u64::MAX);
    let earlier_decisions = earlier_decisions(&timeline, from_seq);
    let mut others = 0;
    timeline.items.retain(|item| {
        let is_on_page = (from_seq..end).contains(&item.seq);
        let is_message = matches!(item.what, TimelineEvent::Message(_));
        if is_on_page && !is_message {
            others += 1;
        }
        is_on_page && (is_message || others <= limits::WEB_ROWS_MAX)
    });
    let is_cut = others > limits::WEB_ROWS_MAX;
    ThreadPage {
        timeline,
        opened_at,
        from_seq,
        previous_seq,
        next_seq,
        is_cut,
        earlier_decisions,
        fork,
    }
}

/// Returns the sequence number of the message that is `limit` messages before the message `seq`. If
/// fewer messages precede this message, returns the sequence number of the first one. If none
/// precedes it, returns `None`. `seqs` contains the sequence numbers of all messages, in order.
fn seq_before(seqs: &[u64], seq: u64, limit: usize) -> Option<u64> {
    seqs.iter().copied().filter(|own| *own < seq).rev().take(limit).min()
}
