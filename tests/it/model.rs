//! Providers: what goes over the wire, what comes of it, and what never may.

mod framing;
mod http;
mod recorded;
mod router;
mod sdk;
mod secrets;
pub mod server;
mod sse;
mod suite;
mod traces;
pub mod wires;
mod written;
