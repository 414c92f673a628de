//! Searches a directory tree and extracts files, symbols and line ranges.
//!
//! `search` and `extract` are plain functions over a [`tree::Tree`]; `payload` gives them their
//! XML form and `main.rs` puts them on the bus. Must not know the pump or any other listener.

mod block;
mod extract;
pub mod limits;
pub mod payload;
mod search;
mod symbol;
mod text;
mod tool_error;
pub mod tree;

pub use extract::extract;
pub use search::search;
pub use tool_error::{Code, ToolError};
