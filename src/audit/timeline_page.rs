//! Selects a part of a timeline: the events of some classes, or a page that begins at a message.

use serde::Serialize;

use crate::envelope::{AttemptFailure, MessageKind};
use crate::system;
use crate::word_enum::word_enum;

use super::timeline::{ThreadTimeline, TimelineEvent};

/// Summary of the events that follow after a page of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimelineRest {
    /// Number of events that come after the page, including the events of subthreads.
    #[serde(rename = "events")]
    pub events: u64,
    /// The `seq` of the message at which the next page begins.
    #[serde(rename = "from_seq")]
    pub from_seq: u64,
}

word_enum! {
    /// Class of events in a timeline. A timeline can be restricted to some classes. An event may
    /// belong to several classes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum EventClass {
        Calls = "calls",
        Replies = "replies",
        /// Messages of an agent to itself.
        Own = "self",
        Notes = "notes",
        /// Payloads of the core.
        System = "system",
        /// Refused payloads.
        Refused = "refused",
        /// Model calls: their notes, findings, failures and charges.
        Model = "model",
        /// Failed attempts, and cancellations.
        Failed = "failed",
        /// Decisions of people.
        Decisions = "decisions",
        Timers = "timers",
    }
}

impl EventClass {
    /// Whether an event belongs to this class. Always false for the entry of a subthread, because
    /// only the events inside the subthread have classes.
    fn has(self, event: &TimelineEvent) -> bool {
        match event {
            TimelineEvent::Message(message) => {
                let is_core = &*message.name.namespace == system::NAMESPACE;
                match self {
                    Self::Calls => message.kind == MessageKind::Call,
                    Self::Replies => message.kind == MessageKind::Reply,
                    Self::Own => message.kind == MessageKind::Own,
                    Self::Notes => message.kind == MessageKind::Note,
                    Self::System => is_core,
                    Self::Model => is_core && &*message.name.local == system::MODEL_TURN,
                    _ => false,
                }
            }
            TimelineEvent::Refused(_) | TimelineEvent::Busy(_) => self == Self::Refused,
            TimelineEvent::Findings { .. } | TimelineEvent::Charged { .. } => self == Self::Model,
            TimelineEvent::AttemptFailed { failure, .. } => match self {
                Self::Failed => true,
                Self::Model => matches!(
                    failure,
                    AttemptFailure::Model { .. } | AttemptFailure::CutShort { .. }
                ),
                _ => false,
            },
            TimelineEvent::TimerEnded { .. } => self == Self::Timers,
            TimelineEvent::Decision { .. } => self == Self::Decisions,
            TimelineEvent::Cancelled { .. } => self == Self::Failed,
            TimelineEvent::Subthread(_) => false,
        }
    }
}

impl ThreadTimeline {
    /// Keeps the events that belong to a class in `only`, and the subthreads that contain such
    /// events.
    pub fn restrict(&mut self, only: &[EventClass]) {
        self.items.retain_mut(|item| match &mut item.what {
            // The recursion is bounded, because the depth of threads is bounded.
            TimelineEvent::Subthread(child) => {
                child.restrict(only);
                !child.items.is_empty()
            }
            event => only.iter().any(|class| class.has(event)),
        });
    }

    /// Keeps the page of the timeline that begins at the message with the `seq` `from_seq`. The
    /// page has about `limit` events, including events of subthreads. The page ends directly before
    /// a message, because the next page must begin at a message.
    pub fn keep_page(&mut self, from_seq: u64, limit: usize) {
        let mut room = limit;
        self.take_page(from_seq, &mut room);
    }

    /// Keeps the last page of at most `limit` events. Always keeps the last message and all events
    /// after it, even beyond `limit`.
    pub fn keep_last(&mut self, limit: usize) {
        let mut events = 0;
        let mut from_seq = u64::MAX;
        for item in self.items.iter().rev() {
            events += item.what.events();
            let is_full = events > limit as u64 && from_seq < u64::MAX;
            if is_full {
                break;
            }
            if matches!(item.what, TimelineEvent::Message(_)) {
                from_seq = item.seq;
            }
        }

        let first = self.items.first().map_or(0, |first| first.seq);
        let is_whole = events <= limit as u64 || from_seq == u64::MAX;
        self.keep_page(if is_whole { first } else { from_seq }, usize::MAX);
    }

    fn take_page(&mut self, from_seq: u64, room: &mut usize) {
        let mut items = Vec::new();

        for mut item in std::mem::take(&mut self.items) {
            if item.seq < from_seq {
                self.before += item.what.events();
                continue;
            }

            let is_message = matches!(item.what, TimelineEvent::Message(_));
            if self.rest.is_some() || (*room == 0 && is_message) {
                let rest = self.rest.get_or_insert(TimelineRest { events: 0, from_seq: item.seq });
                rest.events += item.what.events();
                continue;
            }

            *room = room.saturating_sub(1);
            if let TimelineEvent::Subthread(child) = &mut item.what {
                child.take_page(0, room);
            }
            items.push(item);
        }

        self.items = items;
    }
}

impl TimelineEvent {
    /// Returns the number of events in this entry: 1 and, for a subthread, the number of its
    /// events.
    fn events(&self) -> u64 {
        match self {
            Self::Subthread(child) => {
                1 + child.items.iter().map(|item| item.what.events()).sum::<u64>()
            }
            _ => 1,
        }
    }
}
