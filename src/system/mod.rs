//! Core payloads: primitives that agents send, and payloads that only the core writes.
//!
//! Every core payload is in `schemas/core.xsd`; a test keeps this module and that file consistent.

mod action;
mod core_payloads;
mod errors;
mod examples;
mod huh;
mod primitive;

pub use action::ActionReport;
pub use core_payloads::{Answer, DecisionPayload, ThreadStatus};
pub use errors::ErrorCode;
pub use examples::{EXAMPLES, example};
pub use huh::Huh;
pub use primitive::{Primitive, WaitFor, When};

use crate::ids::PayloadName;

/// The namespace of every core word.
pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/core/v1";

/// The schema of every core word.
pub const SCHEMA: &str = include_str!("../../schemas/core.xsd");

/// Names of notes: recorded, not delivered, reserved for every agent.
pub const NOTES: [&str; 3] = ["thinking", "progress", "todo-until"];

pub fn name(local: &str) -> PayloadName {
    PayloadName::new(NAMESPACE, local)
}
