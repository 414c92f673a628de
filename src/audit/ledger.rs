//! Proves by counting that no message is lost. In every thread, each accepted message must be
//! either settled or in flight.

use std::collections::hash_map::Entry;

use serde::Serialize;

use crate::ids::{MessageId, ThreadId};
use crate::thread::{Fact, InheritedThread, Input, Map, Record};

/// Numbers of accepted messages, of settled messages and of refusals, in one thread or in several
/// threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ThreadCounts {
    #[serde(rename = "accepted")]
    pub accepted: u64,
    #[serde(rename = "settled")]
    pub settled: u64,
    #[serde(rename = "refused")]
    pub refused: u64,
}

impl ThreadCounts {
    pub fn in_flight(&self) -> u64 {
        self.accepted.saturating_sub(self.settled)
    }

    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.settled += other.settled;
        self.refused += other.refused;
    }
}

/// Counters of the messages of a journal, with the state of each message: settled or not.
#[derive(Debug, Default)]
pub struct MessageLedger {
    messages: Map<MessageId, (u32, bool)>,
    threads: Vec<(ThreadId, ThreadCounts)>,
    by_thread: Map<ThreadId, u32>,
    /// For each thread that a fork has taken over from its source, the `seq` of the last message
    /// that was taken over. The key is the index of the thread in `threads`.
    inherited: Map<u32, u64>,
    /// Number of refusals that belong to no thread. Includes all `busy` refusals, which are
    /// recorded only as a number.
    unplaced: u64,
}

impl MessageLedger {
    /// Adds the next record. If the record breaks a rule, the error states that rule.
    pub fn take(&mut self, record: &Record) -> Result<(), String> {
        if let Input::Busy { count, .. } = &record.input {
            self.unplaced += count;
        }

        record.facts.iter().try_for_each(|fact| match fact {
            Fact::Accepted { message, .. } => self.accept(record, message),
            Fact::Disposed { message, .. } => self.settle(*message),
            Fact::Forked { threads, .. } => {
                for InheritedThread { thread, seq, .. } in threads {
                    let at = self.place(thread);
                    self.inherited.insert(at, *seq);
                }
                Ok(())
            }
            Fact::Refused { thread: Some(thread), .. } => {
                let at = self.place(thread);
                self.count(at, |tally| tally.refused += 1);
                Ok(())
            }
            Fact::Refused { thread: None, .. } => {
                self.unplaced += 1;
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn accept(
        &mut self,
        record: &Record,
        message: &crate::envelope::Message,
    ) -> Result<(), String> {
        let thread = &message.thread;
        if thread.root() != record.tree {
            return Err(format!(
                "message {} of {thread} is recorded in {}",
                message.id, record.tree
            ));
        }

        let at = self.place(thread);
        let Entry::Vacant(entry) = self.messages.entry(message.id) else {
            return Err(format!("message {} is accepted a second time", message.id));
        };

        entry.insert((at, false));
        let tally = self.count(at, |tally| tally.accepted += 1);
        let due = tally.accepted + self.inherited.get(&at).copied().unwrap_or_default();
        if message.seq != due {
            return Err(format!(
                "message {} has seq {} in {thread}, where {due} is due",
                message.id, message.seq
            ));
        }

        Ok(())
    }

    fn settle(&mut self, id: MessageId) -> Result<(), String> {
        let Some((at, settled)) = self.messages.get_mut(&id) else {
            return Err(format!("message {id} has a disposition, but was never accepted"));
        };

        if std::mem::replace(settled, true) {
            return Err(format!("message {id} has a second disposition"));
        }

        let at = *at;
        self.count(at, |tally| tally.settled += 1);
        Ok(())
    }

    fn place(&mut self, thread: &ThreadId) -> u32 {
        if let Some(at) = self.by_thread.get(thread) {
            return *at;
        }

        let at = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        self.threads.push((thread.clone(), ThreadCounts::default()));
        self.by_thread.insert(thread.clone(), at);
        at
    }

    fn count(&mut self, at: u32, change: impl FnOnce(&mut ThreadCounts)) -> ThreadCounts {
        let Some((_, tally)) = self.threads.get_mut(at as usize) else {
            return ThreadCounts::default();
        };
        change(tally);
        *tally
    }

    /// Returns the counts of each thread. Threads are in the order in which they first appeared.
    pub fn threads(&self) -> impl Iterator<Item = (&ThreadId, ThreadCounts)> {
        self.threads.iter().map(|(thread, tally)| (thread, *tally))
    }

    pub fn total(&self) -> ThreadCounts {
        let mut total = ThreadCounts { refused: self.unplaced, ..ThreadCounts::default() };
        self.threads().for_each(|(_, tally)| total.add(tally));
        total
    }
}
