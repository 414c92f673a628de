//! XML as text: scanning, reading, extraction from model text, writing, and findings.
//!
//! Knows nothing of envelopes or schemas, and nothing here is async.

pub mod element;
pub mod escape;
pub mod extract;
pub mod findings;
pub mod invisible_characters;
mod read;
pub mod scan;
pub mod shape;
pub mod write;
