//! The history that a thread of a fork has taken over from the fork's source.

use std::collections::HashMap;

use crate::ids::{MessageId, Position, ThreadId};
use crate::thread::{Fact, ForkSource, Record};

use super::event_content::is_lineage;
use super::views::MessageView;

/// The history that a thread of a fork has taken over from the fork's source, by reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOrigin {
    pub source: ForkSource,
    /// The thread of the source that this thread of the fork continues.
    pub thread: ThreadId,
    /// Number of messages that the thread of the fork has taken over from the thread of the source.
    pub messages: u64,
    /// Position of the first record of the fork.
    pub position: Position,
    /// Messages that the first record of the fork contains for this thread. These are notes of the
    /// core, and messages of calls that were open in the source and that the fork opens again.
    pub recorded: Vec<MessageId>,
}

impl ForkOrigin {
    /// Reads from `record` which history `thread` has taken over. Returns `None` if `record` is not
    /// the first record of a fork, or if the fork has not taken over this thread.
    pub fn of(record: &Record, thread: &ThreadId) -> Option<Self> {
        let (root, source, threads) = record.facts.iter().find_map(|fact| match fact {
            Fact::Forked { thread, source, threads, .. } => Some((thread, source, threads)),
            _ => None,
        })?;
        let inherited = threads.iter().find(|inherited| inherited.thread == *thread);
        if inherited.is_none() && root != thread {
            return None;
        }

        // The record accepts the messages of reopened calls before it reopens the calls.
        let reopened = record.facts.iter().position(|fact| matches!(fact, Fact::Reopened(_)));
        let is_recorded = |view: &MessageView, at: usize| {
            view.thread == *thread && (reopened.is_some_and(|end| at < end) || is_lineage(view))
        };
        let messages = record.facts.iter().enumerate().filter_map(|(at, fact)| {
            let Fact::Accepted { message, .. } = fact else { return None };
            let view = MessageView::new(record.position, message);
            is_recorded(&view, at).then_some(message.id)
        });
        Some(Self {
            source: source.clone(),
            thread: thread.under(&source.thread)?,
            messages: inherited.map_or(0, |inherited| inherited.seq),
            position: record.position,
            recorded: messages.collect(),
        })
    }
}

/// The origin of a fork's tree: the place in the source at which the fork begins, and the messages
/// of the source that the fork has recorded again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOrigin {
    pub source: ForkSource,
    /// Messages of the calls that were open where the fork begins, by their ids in the fork. The
    /// values are the ids of the same messages in the source.
    pub copies: HashMap<MessageId, MessageId>,
}

impl TreeOrigin {
    /// Reads the origin from `record`. Returns `None` if `record` is not the first record of a
    /// fork.
    pub fn of(record: &Record) -> Option<Self> {
        let source = record.facts.iter().find_map(|fact| match fact {
            Fact::Forked { source, .. } => Some(source.clone()),
            _ => None,
        })?;
        let reopened = record.facts.iter().filter_map(|fact| match fact {
            Fact::Reopened(call) => Some(call.messages()),
            _ => None,
        });
        Some(Self { source, copies: reopened.flatten().collect() })
    }
}
