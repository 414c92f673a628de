//! The heart: the gate, the pure step, and the driver that performs what the step decides.
//!
//! **Invariant:** nothing here knows NATS, HTTP, JSON or terminals.

pub mod core;
pub mod driver;
pub mod gate;
