//! Extraction of actions from model text, and the writing of what was extracted.

mod chunks;
mod corpus;
mod mutated;
mod rules;
mod streaming;
mod writing;
