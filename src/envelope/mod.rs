//! Messages: a payload and the wrapper the pump stamps around it. Pure values.
//!
//! Must not know I/O or the state of threads.

mod message;
mod outcome;
mod refusal;
mod spending;
pub mod text;

pub use message::{Disposition, Kind, Message, Payload};
pub use outcome::{BrokenPayload, Failure, RouteTry, Spent, Turn, WrittenPayload};
pub use refusal::{Refusal, Rule};
pub use spending::{Money, NotReserved, Reservation, RouteLimit, Spending};

/// The namespace of the envelope, and of nothing else.
pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/envelope/v1";
