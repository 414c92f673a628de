//! Extraction of actions from model text, and writing of the extracted actions.

mod chunks;
mod corpus;
mod mutated;
mod rules;
mod streaming;
mod writing;
