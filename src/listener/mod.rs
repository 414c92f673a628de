//! The Rust kit for listeners that are programs of their own. It decodes deliveries, passes typed
//! payloads to a handler and sends the answers. Environment variables decide whether the program
//! gets its deliveries as a child process or over NATS. The kit implements `docs/PROTOCOL.md`.
//!
//! **Invariant:** a listener reaches the pump only through its standard input and output, or
//! through its NATS subjects; nothing in this module knows a pump.
//!
//! ```no_run
//! use organism::listener::{TypedPayload, Request, serve};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet { name: String }
//! impl TypedPayload for Greet {
//!     const NAMESPACE: &'static str = "urn:example:greeter";
//!     const NAME: &'static str = "greet";
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greeting { text: String }
//! impl TypedPayload for Greeting {
//!     const NAMESPACE: &'static str = "urn:example:greeter";
//!     const NAME: &'static str = "greeting";
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     serve(|greet: Greet, _: &Request| {
//!         Ok::<_, String>(Greeting { text: format!("hello, {}", greet.name) })
//!     })
//! }
//! ```

pub mod conformance;
mod connection;
mod core_words;
mod delivery_channel;
mod nats;
mod payload;
mod pump_watch;
mod request;
mod serve;

pub use crate::system::ThreadStatus;
pub use core_words::ThreadResult;
pub use nats::NatsEndpoint;
pub use payload::{IntoReply, Preview, Reply, TypedPayload};
pub use request::{HeartbeatGuard, ReadError, Received, Request};
pub use serve::{Listener, serve};
