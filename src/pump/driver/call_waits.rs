//! Reports about calls that wait for a person, a model or a listener. The pump sends them to
//! clients that watch a tree, and does not record them. If the channel of a client is full, the
//! client may miss such a report. It never misses a receipt or a result.

use tokio::sync::mpsc;

use crate::bus::ModelState;
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::pump::core::StallReason;
use crate::thread::{Hold, Map, State};

/// A waiting call of a tree, and the reason for which it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallWait {
    pub thread: ThreadId,
    pub call: CallId,
    pub listener: ListenerName,
    pub reason: CallWaitReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallWaitReason {
    /// The call waits for a person.
    Held(Hold),
    /// The call waits for a model.
    Model(ModelState),
    /// The call is ready for its listener but was not handed over, for the contained reason.
    Stalled(StallReason),
}

/// State of a model call, as its agent reported it.
pub(in crate::pump) struct ModelReport {
    pub listener: ListenerName,
    pub call: CallId,
    pub state: ModelState,
}

/// Channel that reports the waiting calls of a tree to one client. Each report is boxed to save
/// memory, because even an empty channel allocates space for 32 values.
pub type WaitSender = mpsc::Sender<Box<CallWait>>;

/// Clients that watch the waiting calls of a tree, by the tree's root.
#[derive(Default)]
pub(super) struct Watchers(Map<ThreadId, Vec<WaitSender>>);

impl Watchers {
    pub fn add(&mut self, thread: &ThreadId, watcher: WaitSender) {
        // Clients that have left are removed when another one arrives.
        self.0.retain(|_, watchers| {
            watchers.retain(|watcher| !watcher.is_closed());
            !watchers.is_empty()
        });
        self.0.entry(thread.root()).or_default().push(watcher);
    }

    pub fn notify(&self, wait: &CallWait) {
        let root = if mutant("notify-the-thread-alone") {
            wait.thread.clone()
        } else {
            wait.thread.root()
        };

        for watcher in self.0.get(&root).into_iter().flatten() {
            // The client of a full channel already has waits to show, so this one may be dropped.
            watcher.try_send(Box::new(wait.clone())).ok();
        }
    }

    pub fn report(&self, state: &State, report: ModelReport) {
        if self.0.is_empty() {
            return;
        }

        let ModelReport { listener, call, state: model_state } = report;
        let Some(open) = state.call(call) else { return };
        let thread = open.thread.clone();
        let reason = CallWaitReason::Model(model_state);
        self.notify(&CallWait { thread, call, listener, reason });
    }
}
