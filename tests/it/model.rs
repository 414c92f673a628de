//! Providers: the bytes on the wire, the resulting answers, and the errors.

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
