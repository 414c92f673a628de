//! Searches a directory tree, finds code by its form, and extracts files, symbols and line ranges.
//!
//! `search`, `query` and `extract` are plain functions over a [`tree::SearchTree`]. `payload`
//! defines their XML form, and `main.rs` serves them on the bus. This crate must not know the pump
//! or any other listener.

mod block;
mod extract;
pub mod limits;
pub mod payload;
mod query;
mod search;
mod skipped;
mod symbol;
mod text;
mod tool_error;
pub mod tree;

pub use extract::extract;
pub use query::query;
pub use search::search;
pub use tool_error::{ToolError, ToolErrorCode};
