//! Notices to waiting clients: calls held in their tree, and model calls that agents wait for. They
//! are not recorded, and a client that misses one loses nothing else.

use tokio::sync::mpsc;

use crate::bus::ModelState;
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::thread::{Hold, Map, State};

/// A reason why a tree waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub thread: ThreadId,
    pub call: CallId,
    pub listener: ListenerName,
    pub wait: NoticeReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeReason {
    /// It waits for a person.
    Held(Hold),
    /// It waits for a model.
    Model(ModelState),
}

/// State of a model call, reported by its agent.
pub(in crate::pump) struct ModelReport {
    pub listener: ListenerName,
    pub call: CallId,
    pub state: ModelState,
}

/// Waiting clients by the root of their tree.
#[derive(Default)]
pub(super) struct Watchers(Map<ThreadId, Vec<mpsc::Sender<Notice>>>);

impl Watchers {
    pub fn add(&mut self, thread: &ThreadId, watcher: mpsc::Sender<Notice>) {
        // Clients that have left are forgotten when another one comes.
        self.0.retain(|_, watchers| {
            watchers.retain(|watcher| !watcher.is_closed());
            !watchers.is_empty()
        });
        self.0.entry(thread.root()).or_default().push(watcher);
    }

    pub fn notify(&self, notice: &Notice) {
        let root = if mutant("notify-the-thread-alone") {
            notice.thread.clone()
        } else {
            notice.thread.root()
        };

        for watcher in self.0.get(&root).into_iter().flatten() {
            // One that takes no more has enough to show.
            watcher.try_send(notice.clone()).ok();
        }
    }

    pub fn report(&self, state: &State, report: ModelReport) {
        if self.0.is_empty() {
            return;
        }

        let ModelReport { listener, call, state: wait } = report;
        let Some(open) = state.call(call) else { return };
        let thread = open.thread.clone();
        let wait = NoticeReason::Model(wait);
        self.notify(&Notice { thread, call, listener, wait });
    }
}
