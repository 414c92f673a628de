//! The one interface to a running organism: requests, responses, their encoding, and the clients that
//! wait for completions. Every entry point is a caller of it: the control socket, other pumps over
//! NATS, embedding programs.
//!
//! Must not know terminals or browsers; starts no pump and opens no socket.

pub mod encoding;
mod request;
mod response;
mod tree_waits;
mod waiters;

pub use request::{BearerSecret, DecisionRequest, ServiceRequest, SubmitRequest, SubmittedAnswer};
pub use response::{PartitionUnavailable, ReplyPayload, ServiceResponse, SubmitUpdate};
pub use tree_waits::{TreeWait, TreeWatch, WaitKind};
pub use waiters::CallWaiters;
