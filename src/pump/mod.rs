//! The pump: the gate, the pure step, and the driver, which performs the effects of each step.
//!
//! **Invariant:** this module and its submodules know nothing of NATS, HTTP, JSON or terminals.

pub mod core;
pub mod driver;
pub mod gate;
mod resident_core;
pub mod snapshot_maker;

pub use resident_core::{ResidencyLimits, ResidentCore};
