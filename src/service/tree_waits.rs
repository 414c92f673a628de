//! Reports to a waiting client why its thread tree makes no progress:
//! - A held call is reported at once.
//! - A model call is reported when it takes long.
//! - A stalled call is ready, but not handed over to its listener. The pump is queried for such
//!   calls at intervals.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::bus::ModelState;
use crate::clock::Time;
use crate::ids::{CallId, ListenerName, MessageId, ThreadId};
use crate::limits;
use crate::pump::core::StallReason;
use crate::pump::driver::{CallWait, CallWaitReason, Handle, WaitSender};
use crate::thread::{Hold, PauseTarget};

/// The reason why a thread tree makes no progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeWait {
    pub thread: ThreadId,
    /// The listener for which the tree waits. For a call that is held or not handed over, this is
    /// the callee. For a model call, this is the agent.
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
    /// A model has not begun to respond for `seconds` seconds.
    Model { route: String, seconds: u64 },
    /// A model has been sending its response for `seconds` seconds.
    Stream { route: String, seconds: u64 },
    /// The provider of a model requires that it gets no request before the time `until`.
    Pause { route: String, until: Time },
    /// A pause keeps the call from being handed over to the listener. `target` is `all`, a listener
    /// or a thread, in the form that the command `organism resume` accepts.
    #[serde(rename = "paused")]
    Paused {
        #[serde(rename = "target")]
        target: String,
    },
    /// No process of the listener takes calls. If no process takes the call before the time
    /// `until`, the call fails.
    #[serde(rename = "absent")]
    Absent {
        #[serde(rename = "until")]
        until: Time,
    },
}

/// Finds the reasons why one thread tree makes no progress, and determines when to report each of
/// them.
pub struct TreeWatch {
    pump: Handle,
    /// The thread of the client's calls; `None` until the calls are accepted.
    thread: Option<ThreadId>,
    waits: mpsc::Receiver<Box<CallWait>>,
    /// The calls that waited for an approval when the submission was accepted. These waits are not
    /// reported, because the receipt of the submission already states them.
    held: Vec<CallId>,
    models: HashMap<CallId, ModelWait>,
    stalled: StalledLooks,
}

/// State of the repeated queries for stalled calls, which are calls that are ready but not handed
/// over to their listeners.
struct StalledLooks {
    next: Instant,
    interval: Duration,
    /// The stalled calls that the last query found.
    known: Vec<CallWait>,
    /// Reports of stalled calls that [`TreeWatch::next`] has not returned yet.
    unreported: VecDeque<TreeWait>,
}

struct ModelWait {
    thread: ThreadId,
    listener: ListenerName,
    state: ModelState,
    since: Instant,
    /// Length of time in the present state after which the next report about the model call is due.
    due: Duration,
}

impl TreeWatch {
    pub fn new(pump: Handle) -> (WaitSender, Self) {
        let (sender, waits) = mpsc::channel(limits::CALL_WAITS_MAX);
        let interval = limits::STALLED_CALL_LOOK_FIRST;
        let stalled = StalledLooks {
            next: Instant::now() + interval,
            interval,
            known: Vec::new(),
            unreported: VecDeque::new(),
        };
        let held = Vec::new();
        (sender, Self { pump, thread: None, waits, held, models: HashMap::new(), stalled })
    }

    /// Records the thread of the client's accepted calls. `held` are the calls that the receipt
    /// reports as waiting for an approval. Their waits are not reported again.
    pub fn accept(&mut self, thread: &ThreadId, held: &[CallId]) {
        self.thread = Some(thread.clone());
        self.held.extend_from_slice(held);
    }

    /// Returns the next report. Waits for ever if no report comes. Cancel-safe.
    pub async fn next(&mut self) -> TreeWait {
        loop {
            self.look_for_stalled_calls().await;
            if let Some(due) = self.stalled.unreported.pop_front().or_else(|| self.due()) {
                return due;
            }
            let tick = tokio::time::sleep(limits::CALL_WAIT_CHECK_INTERVAL);
            tokio::select! {
                call_wait = self.waits.recv() => match call_wait {
                    Some(call_wait) => {
                        if let Some(wait) = self.apply(*call_wait) {
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

    /// Queries the pump for stalled calls, if a query is due. A stalled call is ready, but not
    /// handed over to its listener. Reports each call that the query finds, unless the previous
    /// query found the same call with the same reason.
    async fn look_for_stalled_calls(&mut self) {
        let Some(thread) = self.thread.clone() else { return };
        let looks = &mut self.stalled;
        if Instant::now() < looks.next {
            return;
        }

        looks.interval = (looks.interval * 2).min(limits::STALLED_CALL_LOOK_MAX);
        looks.next = Instant::now() + looks.interval;
        // A pump that has stopped is reported by another response.
        let Ok(stalled) = self.pump.stalled_calls(thread).await else { return };
        let is_new = |wait: &&CallWait| !looks.known.contains(wait);
        looks.unreported.extend(stalled.iter().filter(is_new).filter_map(stall_report));
        looks.known = stalled;
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
                let is_shown = hold == Hold::Approval && self.held.contains(&call);
                (!is_shown).then_some(TreeWait { thread, listener, wait })
            }
            // The pump does not report stalled calls by itself. Only queries find them.
            CallWaitReason::Stalled(_) => None,
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

    /// Returns a report about a model call that takes long; `None` if no report is due. The first
    /// report is due when the call has been in one state for [`limits::CALL_WAIT_REPORT_AFTER`].
    /// Each further report is due when the time in this state is four times as long as for the
    /// previous report.
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

/// Creates the client's report about `stalled`, if this call is ready but not handed over to its
/// listener. Returns `None` if the call waits for another reason.
fn stall_report(stalled: &CallWait) -> Option<TreeWait> {
    let CallWait { thread, listener, reason: CallWaitReason::Stalled(reason), .. } = stalled else {
        return None;
    };
    let wait = match reason {
        StallReason::Paused(PauseTarget::All) => WaitKind::Paused { target: "all".to_owned() },
        StallReason::Paused(PauseTarget::Listener(listener)) => {
            WaitKind::Paused { target: listener.to_string() }
        }
        StallReason::Paused(PauseTarget::Thread(thread)) => {
            WaitKind::Paused { target: thread.to_string() }
        }
        StallReason::Absent { until } => WaitKind::Absent { until: *until },
    };
    Some(TreeWait { thread: thread.clone(), listener: listener.clone(), wait })
}

impl std::fmt::Display for TreeWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, listener, wait } = self;
        match wait {
            WaitKind::Approval { message } => write!(
                f,
                "{thread}: a call to {listener} waits for an approval; `organism approvals \
                 --all-from {thread}` shows it, `organism approve {message}` lets it go"
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
            WaitKind::Paused { target } => write!(
                f,
                "{thread}: a call to {listener} waits, because a pause covers it; `organism resume \
                 {target}` ends the pause"
            ),
            WaitKind::Absent { until } => write!(
                f,
                "{thread}: a call to {listener} waits for a process that takes it; the log of the \
                 organism has the reason, and the call fails at {until}"
            ),
            WaitKind::Pause { route, until } => {
                write!(
                    f,
                    "{thread}: {listener} waits for {route}, which asks for a pause until {until}"
                )
            }
        }
    }
}
