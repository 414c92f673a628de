//! Reports about calls that wait for a person, a model or a listener. The pump sends them to
//! clients that watch a tree, and does not record them. If the channel of a client is full, the
//! client may miss such a report. It never misses a receipt or a result.

use tokio::sync::mpsc;

use crate::bus::ModelState;
use crate::bus::live::LiveSource;
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::pump::core::StallReason;
use crate::thread::{Hold, Map};

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
    pub source: LiveSource,
    pub state: ModelState,
}

/// Channel that reports the waiting calls of a tree to one client. Each report is boxed to save
/// memory, because even an empty channel allocates space for 32 values.
pub type WaitSender = mpsc::Sender<Box<CallWait>>;

/// Clients that watch the waiting calls of a tree.
#[derive(Default)]
pub(super) struct Watchers {
    /// The clients, by the root of the tree.
    clients: Map<ThreadId, Vec<WaitSender>>,
    /// The running model calls that were reported to clients.
    models: Map<(CallId, Attempt), LiveSource>,
}

impl Watchers {
    pub fn add(&mut self, thread: &ThreadId, watcher: WaitSender) {
        // Clients that have left are removed when another one arrives.
        self.clients.retain(|_, watchers| {
            watchers.retain(|watcher| !watcher.is_closed());
            !watchers.is_empty()
        });
        self.clients.entry(thread.root()).or_default().push(watcher);
    }

    pub fn notify(&self, wait: &CallWait) {
        let root = if mutant("notify-the-thread-alone") {
            wait.thread.clone()
        } else {
            wait.thread.root()
        };

        for watcher in self.clients.get(&root).into_iter().flatten() {
            // The client of a full channel already has waits to show, so this one may be dropped.
            watcher.try_send(Box::new(wait.clone())).ok();
        }
    }

    /// Reports a state of a model call. Must be called only while the attempt of the call is in
    /// flight. Otherwise, the end of the attempt could not end the reported wait for the model.
    pub fn report(&mut self, report: ModelReport) {
        if self.clients.is_empty() {
            return;
        }

        let ModelReport { source, state } = report;
        if state == ModelState::Ended {
            return self.attempt_ended(source.call, source.attempt);
        }

        self.notify_model(&source, state);
        self.models.insert((source.call, source.attempt), source);
    }

    /// Reports the end of an attempt's model call. Does nothing if no such call runs.
    pub fn attempt_ended(&mut self, call: CallId, attempt: Attempt) {
        if let Some(source) = self.models.remove(&(call, attempt)) {
            self.notify_model(&source, ModelState::Ended);
        }
    }

    fn notify_model(&self, source: &LiveSource, state: ModelState) {
        let LiveSource { thread, agent, call, .. } = source.clone();
        let reason = CallWaitReason::Model(state);
        self.notify(&CallWait { thread, call, listener: agent, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;

    fn source(n: u32) -> LiveSource {
        LiveSource {
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            agent: ListenerName::parse("writer").unwrap(),
            call: CallId(MessageId(uuid::Uuid::from_u128(7))),
            attempt: Attempt { epoch: 1, n },
        }
    }

    #[test]
    fn the_end_of_an_attempt_ends_the_wait_for_its_model_once() {
        let mut watchers = Watchers::default();
        let (sender, mut waits) = mpsc::channel(8);
        watchers.add(&source(1).thread, sender);
        let streaming = ModelState::Streaming("a/b".to_owned());
        watchers.report(ModelReport { source: source(1), state: streaming.clone() });
        for n in [2, 1, 1] {
            watchers.attempt_ended(source(n).call, source(n).attempt);
        }
        watchers.report(ModelReport { source: source(1), state: ModelState::Ended });

        let reasons: Vec<_> =
            std::iter::from_fn(|| waits.try_recv().ok()).map(|wait| wait.reason).collect();
        let expected = [streaming, ModelState::Ended].map(CallWaitReason::Model);
        assert_eq!(reasons, expected);
        assert!(watchers.models.is_empty());
    }
}
