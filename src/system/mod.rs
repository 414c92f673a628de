//! Core payloads: primitives, which agents send, and payloads that only the core writes.
//!
//! `schemas/core.xsd` defines every core payload. A test keeps this module and the schema
//! consistent.

mod action;
mod alert;
mod core_payloads;
mod errors;
mod examples;
mod huh;
mod primitive;
mod schedule_event;

pub use action::ActionReport;
pub use alert::{ALL_OTHERS, AlertEvent, AlertId, AlertKind, AlertReport};
pub use core_payloads::{CorePayload, DecisionPayload, ThreadStatus};
pub use errors::ErrorCode;
pub use examples::{EXAMPLES, example};
pub use huh::Huh;
pub use primitive::{Primitive, ThreadAllotment, WaitFor, When, spawn_thread};
pub use schedule_event::ScheduleEvent;

use crate::envelope::Message;
use crate::ids::PayloadName;

/// XML namespace of every core payload.
pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/core/v1";

/// XML schema of every core payload.
pub const SCHEMA: &str = include_str!("../../schemas/core.xsd");

/// Names of the payloads that are notes. Every agent may write notes. A note is recorded and not
/// delivered.
pub const NOTES: [&str; 3] = ["thinking", "progress", "todo-until"];

/// Name of the note that records one model call of an agent.
pub const MODEL_TURN: &str = "model-turn";

/// Name of the payload with which a listener answers the request for a preview.
pub const PREVIEW: &str = "preview";

/// Name of the payload with which a listener refuses an approved call, because the approved preview
/// is no longer valid.
pub const STALE_PREVIEW: &str = "stale-preview";

/// Whether `message` is the note with which the core records in a thread that this thread was
/// cancelled.
pub fn is_thread_cancelled(message: &Message) -> bool {
    message.from.is_core() && message.to.is_core() && message.name == name("thread-cancelled")
}

pub fn name(local: &str) -> PayloadName {
    PayloadName::new(NAMESPACE, local)
}
