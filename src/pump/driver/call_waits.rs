//! Notices to waiting clients about held calls in their tree and about slow model calls. Notices
//! are not recorded. A client that misses a notice misses nothing else.

use tokio::sync::mpsc;

use crate::bus::ModelState;
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::thread::{Hold, Map, State};

/// Reports which call of a tree waits, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub thread: ThreadId,
    pub call: CallId,
    pub listener: ListenerName,
    pub wait: NoticeReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeReason {
    /// The call waits for a person.
    Held(Hold),
    /// The call waits for a model.
    Model(ModelState),
}

/// State of a model call, as its agent reported it.
pub(in crate::pump) struct ModelReport {
    pub listener: ListenerName,
    pub call: CallId,
    pub state: ModelState,
}

/// Clients that watch a tree, by the tree's root.
#[derive(Default)]
pub(super) struct Watchers(Map<ThreadId, Vec<mpsc::Sender<Notice>>>);

impl Watchers {
    pub fn add(&mut self, thread: &ThreadId, watcher: mpsc::Sender<Notice>) {
        // Clients that have left are removed when another one arrives.
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
            // The client of a full channel already has notices to show, so this one may be dropped.
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
