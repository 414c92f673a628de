//! Primitives: payloads with which agents and listeners request something of the core.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::NAMESPACE;
use crate::clock::Time;
use crate::envelope::Money;
use crate::xml::escape::escape_attribute;

/// The condition that ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitFor {
    #[serde(rename = "all")]
    All,
    #[serde(rename = "any")]
    Any,
}

/// The time at which a timer fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    After(Duration),
    At(Time),
}

/// Limits of a spawned thread together with its subthreads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadAllotment {
    pub tokens: Option<u64>,
    pub money: Option<Money>,
    /// Time limit, counted from the opening of the thread; `None` if the thread has no limit of its
    /// own.
    pub timeout: Option<Duration>,
}

/// A primitive, read from a payload that passed its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Primitive {
    /// Opens a child thread. The initial payload, if any, is the only child of the element
    /// `initial-payload`.
    SpawnThread {
        suggested_sub_id: Option<String>,
        /// Whether the child thread is cancelled when the spawning call closes.
        is_bound: bool,
        allotment: ThreadAllotment,
    },
    SendToThread {
        thread_id: String,
    },
    CancelThread {
        thread_id: String,
    },
    Wait {
        until: WaitFor,
    },
    ClearContext {
        keep: u32,
    },
    SetTimer {
        when: When,
        label: Option<String>,
    },
    CancelTimer {
        timer_id: String,
    },
}

impl Primitive {
    pub const WORDS: [&str; 7] = [
        "spawn-thread",
        "send-to-thread",
        "cancel-thread",
        "wait",
        "clear-context",
        "set-timer",
        "cancel-timer",
    ];
}

/// Writes the request for a thread beneath the sender's thread. `payload` is the XML of the first
/// call in the new thread. `attributes` contains the request's further attributes as XML, each with
/// a space before it.
pub fn spawn_thread(label: &str, payload: &str, attributes: &str) -> String {
    let label = escape_attribute(label);
    format!(
        "<c:spawn-thread xmlns:c=\"{NAMESPACE}\" suggested_sub_id=\"{label}\"{attributes}>\
         <c:initial-payload>{payload}</c:initial-payload></c:spawn-thread>"
    )
}
