//! XML as text: scanning, parsing, extraction from model text, writing, and findings.
//!
//! Must not know envelopes or schemas. Contains no async code.

pub mod element;
pub mod escape;
pub mod extract;
pub mod findings;
pub mod invisible_characters;
mod read;
pub mod scan;
pub mod shape;
pub mod write;
