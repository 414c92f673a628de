//! The integration tests: one binary, one file for each area, and tests named as claims.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics has failed, which is what is wanted"
)]

mod abuse;
mod agent;
mod audit;
mod bus;
mod campaign;
mod config;
mod deploy;
mod docs;
mod extract;
mod faults;
mod fixtures;
mod gate;
mod index;
mod journal;
mod json_schemas;
mod listeners;
mod memory;
mod model;
mod mutants;
mod nats;
mod organism;
mod processor;
mod pump;
mod schema;
mod simulation;
mod telemetry;
mod web;
mod workflow;
