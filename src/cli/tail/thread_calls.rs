//! Tracks the open calls of a thread, so that `organism tail --live` ends with the thread.

use std::collections::HashSet;

use crate::ids::{CallId, ThreadId};
use crate::thread::{Fact, Record};

/// The open calls of a thread and of the threads beneath it.
pub struct ThreadCalls {
    thread: ThreadId,
    open: HashSet<CallId>,
    /// Whether the journal contains a call in the thread or beneath it.
    is_known: bool,
}

impl ThreadCalls {
    pub fn new(thread: ThreadId) -> Self {
        Self { thread, open: HashSet::new(), is_known: false }
    }

    /// Applies a record of the journal. If the caller applies a record again, the caller must also
    /// apply all later records again, in their order.
    pub fn take(&mut self, record: &Record) {
        if record.tree != self.thread.root() {
            return;
        }

        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(_), .. }
                    if message.thread.is_within(&self.thread) =>
                {
                    self.is_known = true;
                    self.open.insert(CallId(message.id));
                }
                Fact::CallClosed { call, .. } => {
                    self.open.remove(call);
                }
                _ => {}
            }
        }
    }

    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Whether the thread has begun and has no open call.
    pub fn is_over(&self) -> bool {
        self.is_known && self.open.is_empty()
    }
}
