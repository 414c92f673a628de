//! The heart: the gate, the pure step, and the driver that performs the step's effects.
//!
//! **Invariant:** nothing here knows NATS, HTTP, JSON or terminals.

pub mod core;
pub mod driver;
pub mod gate;
