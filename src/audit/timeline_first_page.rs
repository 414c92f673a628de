//! Makes the first page of a long thread without reading the whole thread. The events come from the
//! records up to the end of the page, and the totals come from the index.

use crate::envelope::Disposition;
use crate::ids::{MessageId, Position, ThreadId};
use crate::index::{Error, IndexReader};
use crate::thread::Fact;

use super::timeline::{ThreadTimeline, TimelineBuilder, TimelineEvent};

/// Maximum number of times that the records of a page are read. If a subthread on the page
/// continues after the last record that was read, the records are read again, up to a later
/// position.
const READS_MAX: usize = 4;

/// Returns the first page of a thread, with about `limit` events. The result is the same as if
/// [`super::thread_timeline`] and [`ThreadTimeline::keep_page`] made it from all records. Returns
/// `None` if there is no such thread, or if most of its records would have to be read.
///
/// # Errors
///
/// Returns errors of the index and of its journal.
pub fn first_page(
    index: &IndexReader,
    thread: &ThreadId,
    limit: usize,
) -> Result<Option<ThreadTimeline>, Error> {
    FirstPage { index, limit }.make(thread)
}

struct FirstPage<'i> {
    index: &'i IndexReader,
    limit: usize,
}

impl FirstPage<'_> {
    fn make(&self, thread: &ThreadId) -> Result<Option<ThreadTimeline>, Error> {
        let mut last = self.end_of(thread)?;

        for _ in 0..READS_MAX {
            let Some(position) = last else { return Ok(None) };
            let mut builder = TimelineBuilder::default();
            for sealed in self.index.journal().walk(position)? {
                builder.take(&sealed.record);
            }
            let Some(mut timeline) = builder.take_timeline(thread) else { return Ok(None) };

            let mut room = self.limit;
            let Some(incomplete) = self.incomplete(&timeline, &mut room)? else {
                timeline.keep_page(0, self.limit);
                self.complete(&mut timeline)?;
                return Ok(Some(timeline));
            };
            last = self.end_of(&incomplete)?.filter(|next| *next > position);
        }
        Ok(None)
    }

    /// Returns the position of the thread's first message after the page. If all messages fit on
    /// the page, returns the position of the thread's last message. Returns `None` for a thread
    /// without messages.
    fn end_of(&self, thread: &ThreadId) -> Result<Option<Position>, Error> {
        let Some(counts) = self.index.timeline_counts(thread)? else { return Ok(None) };
        let Some(last) = counts.messages.checked_sub(1) else { return Ok(None) };
        self.index.message_at(thread, last.min(self.limit as u64))
    }

    /// Finds an incomplete thread on the page: some of its events belong on the page, but were not
    /// read yet. Returns `None` if there is no such thread. `room` is the number of events that
    /// still fit on the page.
    fn incomplete(
        &self,
        timeline: &ThreadTimeline,
        room: &mut usize,
    ) -> Result<Option<ThreadId>, Error> {
        for item in &timeline.items {
            if *room == 0 && matches!(item.what, TimelineEvent::Message(_)) {
                return Ok(None);
            }
            *room = room.saturating_sub(1);
            if let TimelineEvent::Subthread(child) = &item.what {
                // The recursion is bounded, because the depth of threads is bounded.
                if let Some(thread) = self.incomplete(child, room)? {
                    return Ok(Some(thread));
                }
            }
        }

        let counts = self.index.timeline_counts(&timeline.thread)?;
        let events = counts.map_or(u64::MAX, |counts| counts.events);
        Ok(((timeline.items.len() as u64) < events).then(|| timeline.thread.clone()))
    }

    /// Completes the threads and messages of the page with data from records after the page.
    /// Returns the number of all events of the thread and of the threads beneath it.
    fn complete(&self, timeline: &mut ThreadTimeline) -> Result<u64, Error> {
        let mut shown = 0;
        for item in &mut timeline.items {
            shown += 1;
            match &mut item.what {
                TimelineEvent::Message(view) if view.disposition.is_none() => {
                    view.disposition = self.disposition(view.id)?;
                    view.hold = self.index.open_hold(view.id)?;
                }
                TimelineEvent::Subthread(child) => shown += self.complete(child)?,
                _ => {}
            }
        }

        let Some(totals) = self.index.timeline_summary(&timeline.thread)? else { return Ok(shown) };
        if let Some(rest) = &mut timeline.rest {
            rest.events = totals.events_beneath.saturating_sub(shown);
        }
        let events = totals.events_beneath;
        timeline.set_totals(totals);
        Ok(events)
    }

    /// Returns the disposition of a message, from the record that the index names. Returns `None`
    /// if the message has no disposition.
    fn disposition(&self, message: MessageId) -> Result<Option<Disposition>, Error> {
        let Some(position) = self.index.disposed_at(message)? else { return Ok(None) };
        let sealed = self.index.journal().existing_record(position)?;
        let how = |fact: &Fact| match fact {
            Fact::Disposed { message: disposed, how } if *disposed == message => Some(*how),
            _ => None,
        };
        Ok(sealed.record.facts.iter().find_map(how))
    }
}
