//! organism: an XML message bus for multi-agent workflows.
//!
//! The modules stand on floors; a module uses only lower ones. `docs/ARCHITECTURE.md` has the map,
//! and `tests/tidy.rs` enforces it.

// Ground.
mod bounded_cache;
pub mod children;
pub mod clock;
pub mod failpoint;
pub mod ids;
pub mod limits;
pub mod metrics;
pub mod mutant;
pub mod shipped;
mod thread_priority;
pub mod trace;
// Language.
pub mod xml;
// Law.
pub mod schema;
// Words.
pub mod contract;
pub mod envelope;
pub mod system;
// State.
pub mod thread;
// Wires.
pub mod nats;
// Edges.
pub mod bus;
pub mod journal;
pub mod model;
// Memory.
pub mod index;
pub mod memory;
// Heart.
pub mod pump;
// Guests.
pub mod agent;
pub mod listener;
pub mod workflow;
// House.
pub mod audit;
pub mod config;
pub mod organism;
pub mod service;
pub mod telemetry;
// Roof.
pub mod cli;
pub mod web;
