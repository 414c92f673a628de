//! Payloads that only the core writes, and their canonical text.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::huh::{Huh, write_huh};
use super::{ActionReport, AlertReport, ErrorCode, NAMESPACE, ScheduleEvent, WaitFor};
use crate::clock::Time;
use crate::envelope::{Payload, Refusal, RefusalRule};
use crate::ids::{Digest, ListenerName, MessageId, PayloadName, ScheduleName, ThreadId, TimerId};
use crate::word_enum::word_enum;
use crate::xml::escape::{escape_attribute, escape_text};

word_enum! {
    /// The way in which the work of a thread ended. The core reports this status to another thread.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ThreadStatus {
        #[serde(rename = "completed")]
        Completed,
        #[serde(rename = "failed")]
        Failed,
        #[serde(rename = "cancelled")]
        Cancelled,
    }
}

thread_local! {
    /// Names of core payloads, by local name. Open calls keep many names, so equal names share
    /// their memory. Each OS thread has its own table, so that pumps do not contend for the
    /// reference counts of the names.
    static NAMES: RefCell<HashMap<&'static str, PayloadName>> = RefCell::default();
}

/// A payload that only the core writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorePayload {
    ThreadSpawned {
        assigned: ThreadId,
        parent: ThreadId,
    },
    ThreadResult {
        thread: ThreadId,
        status: ThreadStatus,
        /// The listener whose call ended. `None` if the call does not belong to a group of calls.
        from: Option<ListenerName>,
        payloads: Vec<Payload>,
    },
    ThreadCancelled {
        thread: ThreadId,
        message: &'static str,
    },
    ThreadError {
        unknown_id: String,
    },
    Waiting {
        until: WaitFor,
        threads: usize,
        timers: usize,
    },
    ContextCleared {
        kept: u32,
    },
    TimerSet {
        timer: TimerId,
        fires_at: Time,
        label: Option<String>,
    },
    TimerFired {
        timer: TimerId,
        label: Option<String>,
    },
    TimerCancelled {
        timer: TimerId,
        label: Option<String>,
    },
    Huh(Huh),
    Error {
        code: ErrorCode,
        about: Option<String>,
        message: String,
        /// The callee of the failed call. `None` if the call does not belong to a group of calls.
        from: Option<ListenerName>,
        /// Whether the payload states that no retry can help, even if the error code permits a
        /// retry.
        is_lasting: bool,
    },
    Ack {
        /// The listener that ended its call without an answer. `None` if the call does not belong
        /// to a group of calls.
        from: Option<ListenerName>,
    },
    BudgetWarning {
        budget: String,
        /// The agent that has the budget; `None` for the budget of the tree.
        of: Option<ListenerName>,
        /// Used amount in the unit of the budget. Money is in units of the currency.
        used: String,
        limit: String,
    },
    Boot {
        epoch: u32,
        version: String,
        core_version: u32,
        config: Digest,
    },
    ShutdownSignal {
        reason: String,
    },
    ListenerJoined {
        name: ListenerName,
        detail: String,
    },
    ListenerLeft {
        name: ListenerName,
        detail: String,
    },
    /// NATS servers denied operations to programs of the listener.
    ListenerDenied {
        name: ListenerName,
        operations: String,
        count: u64,
    },
    /// A report about an alert.
    Alert(AlertReport),
    OperatorAction(ActionReport),
    /// The thread continues the history of another thread.
    Fork {
        /// Root of the thread tree whose history the fork continues.
        thread: ThreadId,
        /// `seq` of the message at which the fork begins.
        seq: u64,
        by: ListenerName,
    },
    /// A call is held until an operator has approved exactly the bytes of its payload.
    ApprovalRequested {
        message: MessageId,
        listener: ListenerName,
        digest: Digest,
        why: String,
        until: Option<Time>,
    },
    ApprovalGranted(DecisionPayload),
    ApprovalRefused(DecisionPayload),
    ScheduleEvent {
        schedule: ScheduleName,
        event: ScheduleEvent,
        /// The next planned time of the schedule; `None` if this event plans no time.
        next: Option<Time>,
    },
    /// A complete `model-turn` payload, as the agent's host wrote it.
    ModelTurn(String),
}

/// The decision about a held call, and its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionPayload {
    pub message: MessageId,
    pub digest: Digest,
    pub by: ListenerName,
    /// The person's reason; empty if the person gave no reason.
    pub reason: String,
}

impl CorePayload {
    pub fn error(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Error { code, about: None, message, from: None, is_lasting: false }
    }

    /// Returns the payload that informs the sender about a refusal: a `huh` if the payload is at
    /// fault, a `system-error` if the state of the system is the reason.
    pub fn to(refusal: &Refusal) -> Self {
        let code = match refusal.rule {
            RefusalRule::Busy => ErrorCode::Busy,
            RefusalRule::Cycle => ErrorCode::Cycle,
            RefusalRule::BudgetSpent => ErrorCode::BudgetSpent,
            _ => return Self::Huh(Huh::of(refusal)),
        };

        let about = refusal.name.as_ref().map(|name| name.local.to_string());
        let message = refusal.message.clone();
        Self::Error { code, about, message, from: None, is_lasting: false }
    }

    pub const fn word(&self) -> &'static str {
        match self {
            Self::ThreadSpawned { .. } => "thread-spawned",
            Self::ThreadResult { .. } => "thread-result",
            Self::ThreadCancelled { .. } => "thread-cancelled",
            Self::ThreadError { .. } => "system-thread-error",
            Self::Waiting { .. } => "waiting",
            Self::ContextCleared { .. } => "context-cleared",
            Self::TimerSet { .. } => "timer-set",
            Self::TimerFired { .. } => "timer-fired",
            Self::TimerCancelled { .. } => "timer-cancelled",
            Self::Huh(_) => "huh",
            Self::Error { .. } => "system-error",
            Self::Ack { .. } => "ack",
            Self::BudgetWarning { .. } => "budget-warning",
            Self::Boot { .. } => "boot",
            Self::ShutdownSignal { .. } => "shutdown-signal",
            Self::ListenerJoined { .. } => "listener-joined",
            Self::ListenerLeft { .. } => "listener-left",
            Self::ListenerDenied { .. } => "listener-denied",
            Self::Alert(_) => "alert",
            Self::OperatorAction(_) => "operator-action",
            Self::Fork { .. } => "fork",
            Self::ApprovalRequested { .. } => "approval-requested",
            Self::ApprovalGranted(_) => "approval-granted",
            Self::ApprovalRefused(_) => "approval-refused",
            Self::ScheduleEvent { .. } => "schedule-event",
            Self::ModelTurn(_) => super::MODEL_TURN,
        }
    }

    pub fn name(&self) -> PayloadName {
        let word = self.word();
        NAMES
            .with_borrow_mut(|names| names.entry(word).or_insert_with(|| super::name(word)).clone())
    }

    /// Writes the payload as XML. An element that contains other payloads binds the core's
    /// namespace to a prefix. If that namespace were the default namespace, it would also apply to
    /// contained payloads without a namespace.
    pub fn payload(&self) -> Payload {
        let tag = StartTagText::new(self.word());

        match self {
            Self::ThreadSpawned { assigned, parent } => {
                let tag = tag.with("assigned_id", assigned).with("parent_id", parent);
                tag.with("message", "Thread spawned successfully.").empty()
            }
            Self::ThreadResult { thread, status, from, payloads } => {
                thread_result(thread, *status, from.as_ref(), payloads)
            }
            Self::ThreadCancelled { thread, message } => {
                tag.with("thread_id", thread).with("message", message).empty()
            }
            Self::ThreadError { unknown_id } => tag
                .with("unknown_id", unknown_id)
                .with("code", "unknown_thread")
                .with("message", "Unknown thread; emit <spawn-thread/> to create.")
                .empty(),
            Self::Waiting { until, threads, timers } => {
                let until = if *until == WaitFor::All { "all" } else { "any" };
                tag.with("for", until).with("threads", threads).with("timers", timers).empty()
            }
            Self::ContextCleared { kept } => tag.with("kept_messages", kept).empty(),
            Self::TimerSet { timer, fires_at, label } => tag
                .with("timer_id", timer)
                .with("fires_at", fires_at)
                .maybe("label", label.as_ref())
                .empty(),
            Self::TimerFired { timer, label } | Self::TimerCancelled { timer, label } => {
                tag.with("timer_id", timer).maybe("label", label.as_ref()).empty()
            }
            Self::Huh(huh) => write_huh(huh),
            Self::Error { code, about, message, from, is_lasting } => tag
                .with("code", code)
                .with("retry_allowed", code.retry_allowed() && !is_lasting)
                .maybe("about", about.as_ref())
                .maybe("from", from.as_ref())
                .text(message),
            Self::Ack { from } => tag.maybe("from", from.as_ref()).empty(),
            Self::BudgetWarning { budget, of, used, limit } => {
                let tag = tag.with("budget", budget).maybe("of", of.as_ref());
                tag.with("used", used).with("limit", limit).empty()
            }
            Self::Boot { epoch, version, core_version, config } => {
                booted(tag.with("epoch", epoch).with("version", version), *core_version, config)
            }
            Self::ShutdownSignal { reason } => tag.with("reason", reason).empty(),
            Self::ListenerJoined { name, detail } | Self::ListenerLeft { name, detail } => {
                tag.with("name", name).with("detail", detail).empty()
            }
            Self::ListenerDenied { name, operations, count } => {
                denied(tag, name, operations, *count)
            }
            Self::Alert(report) => report.payload(tag),
            Self::OperatorAction(report) => report.payload(tag),
            Self::Fork { thread, seq, by } => forked(tag, thread, *seq, by),
            Self::ApprovalRequested { message, listener, digest, why, until } => {
                let tag = tag.with("message_id", message);
                let tag = tag.with("call_id", message).with("listener", listener);
                let tag = tag.with("sha256", digest).with("why", why);
                tag.maybe("until", until.as_ref()).empty()
            }
            Self::ApprovalGranted(ruling) | Self::ApprovalRefused(ruling) => ruled(tag, ruling),
            Self::ScheduleEvent { schedule, event, next } => {
                let tag = tag.with("schedule", schedule).with("event", event.word());
                event.attributes(tag).maybe("next", next.as_ref()).empty()
            }
            Self::ModelTurn(text) => Payload::new(text.as_str()),
        }
    }
}

fn booted(tag: StartTagText, core_version: u32, config: &Digest) -> Payload {
    tag.with("core_version", core_version).with("config", config).empty()
}

fn forked(tag: StartTagText, thread: &ThreadId, seq: u64, by: &ListenerName) -> Payload {
    tag.with("thread_id", thread).with("seq", seq).with("by", by).empty()
}

fn denied(tag: StartTagText, name: &ListenerName, operations: &str, count: u64) -> Payload {
    tag.with("name", name).with("operations", operations).with("count", count).empty()
}

fn ruled(tag: StartTagText, ruling: &DecisionPayload) -> Payload {
    let DecisionPayload { message, digest, by, reason } = ruling;
    let tag = tag.with("message_id", message).with("sha256", digest).with("by", by);
    tag.maybe("reason", (!reason.is_empty()).then_some(reason)).empty()
}

fn thread_result(
    thread: &ThreadId,
    status: ThreadStatus,
    from: Option<&ListenerName>,
    payloads: &[Payload],
) -> Payload {
    let mut out = format!(
        "<c:thread-result xmlns:c=\"{NAMESPACE}\" thread_id=\"{thread}\" status=\"{}\"",
        status.as_str()
    );
    if let Some(from) = from {
        let _ = write!(out, " from=\"{from}\"");
    }

    if payloads.is_empty() {
        out.push_str("/>");
        return Payload::new(out);
    }

    out.push('>');
    for payload in payloads {
        out.push_str(payload.as_str());
    }

    out.push_str("</c:thread-result>");
    Payload::new(out)
}

/// Builds the text of a start tag.
pub(super) struct StartTagText {
    word: &'static str,
    out: String,
}

impl StartTagText {
    /// Starts a tag that binds the namespace of the core.
    pub fn new(word: &'static str) -> Self {
        Self { word, out: format!("<{word} xmlns=\"{NAMESPACE}\"") }
    }

    /// Starts a tag inside an element that already binds the namespace of the core.
    pub fn child(word: &'static str) -> Self {
        Self { word, out: format!("<{word}") }
    }

    pub fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let value = value.to_string();
        let _ = write!(self.out, " {name}=\"{}\"", escape_attribute(&value));
        self
    }

    pub fn maybe(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub fn empty(mut self) -> Payload {
        self.out.push_str("/>");
        Payload::new(self.out)
    }

    pub fn text(self, text: &str) -> Payload {
        self.raw(&escape_text(text))
    }

    pub fn raw(mut self, inner: &str) -> Payload {
        let _ = write!(self.out, ">{inner}</{}>", self.word);
        Payload::new(self.out)
    }
}
