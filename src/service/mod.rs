//! The interface of a running pump to every entry point, and the clients that wait for it.
//!
//! Must not know sockets' callers, terminals or browsers; starts no pump.

mod waiters;

pub use waiters::CallWaiters;
