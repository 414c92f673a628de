//! Reports to a waiting client why its thread tree waits: for a held call at once, and for a model
//! call when it takes long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::bus::ModelState;
use crate::clock::Time;
use crate::ids::{CallId, ListenerName, MessageId, ThreadId};
use crate::limits;
use crate::pump::driver::{CallWait, CallWaitReason};
use crate::thread::Hold;

/// The reason why a thread tree makes no progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeWait {
    pub thread: ThreadId,
    /// The listener whose call is held, or the agent whose model call takes long.
    pub listener: ListenerName,
    #[serde(flatten)]
    pub wait: WaitKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "lowercase")]
pub enum WaitKind {
    /// An operator must approve this message.
    Approval { message: MessageId },
    /// A person must answer this message.
    Answer { message: MessageId },
    /// A model has not begun to respond for this many seconds.
    Model { route: String, seconds: u64 },
    /// A model has been sending its response for this many seconds.
    Stream { route: String, seconds: u64 },
    /// A provider has requested a pause until this time.
    Pause { route: String, until: Time },
}

/// The running model calls of one thread tree, with the time of the next report of each.
pub struct TreeWatch {
    waits: mpsc::Receiver<CallWait>,
    /// Calls that are held according to the receipt, so that no report of them is needed.
    known: Vec<CallId>,
    models: HashMap<CallId, ModelWait>,
}

struct ModelWait {
    thread: ThreadId,
    listener: ListenerName,
    state: ModelState,
    since: Instant,
    /// Duration of the present state at which the next report is due.
    due: Duration,
}

impl TreeWatch {
    pub fn new() -> (mpsc::Sender<CallWait>, Self) {
        let (sender, waits) = mpsc::channel(limits::CALL_WAITS_MAX);
        (sender, Self { waits, known: Vec::new(), models: HashMap::new() })
    }

    /// Marks calls as known to the client: the receipt shows them as held.
    pub fn knows(&mut self, calls: &[CallId]) {
        self.known.extend_from_slice(calls);
    }

    /// Returns the next report. Waits for ever if there is none. Cancel-safe.
    pub async fn next(&mut self) -> TreeWait {
        loop {
            if let Some(due) = self.due() {
                return due;
            }
            let tick = tokio::time::sleep(limits::CALL_WAIT_CHECK_INTERVAL);
            tokio::select! {
                call_wait = self.waits.recv() => match call_wait {
                    Some(call_wait) => {
                        if let Some(wait) = self.apply(call_wait) {
                            return wait;
                        }
                    }
                    // The pump has ended. The client learns that from another response.
                    None => std::future::pending::<()>().await,
                },
                () = tick => {}
            }
        }
    }

    fn apply(&mut self, call_wait: CallWait) -> Option<TreeWait> {
        let CallWait { thread, call, listener, reason } = call_wait;
        match reason {
            CallWaitReason::Held(hold) => {
                let message = call.0;
                let wait = match hold {
                    Hold::Approval => WaitKind::Approval { message },
                    Hold::Answer => WaitKind::Answer { message },
                };
                let is_shown = hold == Hold::Approval && self.known.contains(&call);
                (!is_shown).then_some(TreeWait { thread, listener, wait })
            }
            CallWaitReason::Model(ModelState::Ended) => {
                self.models.remove(&call);
                None
            }
            CallWaitReason::Model(ModelState::Delayed(route, until)) => {
                self.models.remove(&call);
                Some(TreeWait { thread, listener, wait: WaitKind::Pause { route, until } })
            }
            CallWaitReason::Model(state) => {
                let since = Instant::now();
                let due = limits::CALL_WAIT_REPORT_AFTER;
                self.models.insert(call, ModelWait { thread, listener, state, since, due });
                None
            }
        }
    }

    /// Reports a model call that has been in its present state for long enough. The next report of
    /// the same state is due when the state has lasted four times as long.
    fn due(&mut self) -> Option<TreeWait> {
        let model = self.models.values_mut().find(|model| model.since.elapsed() >= model.due)?;
        model.due *= 4;
        let thread = model.thread.clone();
        let listener = model.listener.clone();
        let seconds = model.since.elapsed().as_secs();
        let wait = match &model.state {
            ModelState::Requested(route) => WaitKind::Model { route: route.clone(), seconds },
            ModelState::Streaming(route) => WaitKind::Stream { route: route.clone(), seconds },
            ModelState::Delayed(..) | ModelState::Ended => return None,
        };

        Some(TreeWait { thread, listener, wait })
    }
}

impl std::fmt::Display for TreeWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, listener, wait } = self;
        match wait {
            WaitKind::Approval { message } => write!(
                f,
                "{thread}: a call to {listener} waits for an approval; `organism approvals` shows \
                 it, `organism approve {message}` lets it go"
            ),
            WaitKind::Answer { message } => write!(
                f,
                "{thread}: a question waits for {listener}; `organism answer {message}` answers it"
            ),
            WaitKind::Model { route, seconds } => {
                write!(f, "{thread}: {listener} waits for {route}, {seconds} s so far")
            }
            WaitKind::Stream { route, seconds } => {
                write!(f, "{thread}: {listener} receives the answer of {route}, {seconds} s so far")
            }
            WaitKind::Pause { route, until } => {
                write!(
                    f,
                    "{thread}: {listener} waits for {route}, which asks for a pause until {until}"
                )
            }
        }
    }
}
