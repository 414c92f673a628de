//! Extraction of actions from model text, and the writing of what was extracted.

mod chunks;
mod corpus;
mod rules;
mod streaming;
mod writing;
