//! Messages: plain values, each with a payload and the envelope that the pump writes around it.
//!
//! This module must not know I/O or the state of threads.

mod message;
mod outcome;
mod refusal;
mod spending;
mod spending_totals;
pub mod text;

pub use message::{Disposition, Message, MessageKind, Payload};
pub use outcome::{AttemptFailure, BrokenPayload, RouteTry, Spent, Turn, WrittenPayload};
pub use refusal::{Refusal, RefusalRule, located_message};
pub use spending::{Money, NotReserved, Reservation, RouteLimit, Spending};
pub use spending_totals::{CurrencyTotals, SpendingTotals};

/// XML namespace of the envelope.
pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/envelope/v1";
