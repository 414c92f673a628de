//! organism: an XML message bus for multi-agent workflows.
//!
//! The modules are layered in floors: a module uses only modules of lower floors.
//! `docs/ARCHITECTURE.md` has the map, and `tests/tidy.rs` enforces it.

// Floor 0: ground.
mod accept_failures;
mod blocking_work;
mod bounded_cache;
pub mod children;
pub mod clock;
mod durable_file;
pub mod failpoint;
mod file_limit;
mod file_lock;
mod hex;
pub mod ids;
mod io_reason;
pub mod limits;
mod locks;
pub mod metrics;
pub mod mutant;
mod owned_tasks;
mod plural;
pub mod shipped;
mod shorten;
mod thread_priority;
pub mod trace;
mod word_enum;
// Floor 1: language.
pub mod xml;
// Floor 2: law.
pub mod schema;
// Floor 3: words.
pub mod contract;
pub mod envelope;
pub mod system;
// Floor 4: state.
pub mod thread;
// Floor 5: wires.
pub mod nats;
// Floor 6: edges.
pub mod bus;
pub mod journal;
pub mod model;
// Floor 7: memory.
pub mod index;
pub mod memory;
// Floor 8: heart.
pub mod pump;
// Floor 9: guests.
pub mod agent;
pub mod listener;
pub mod workflow;
// Floor 10: house.
pub mod audit;
pub mod config;
pub mod organism;
pub mod service;
pub mod telemetry;
// Floor 11: roof.
pub mod cli;
pub mod web;
