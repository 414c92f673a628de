//! Blocks that only Anthropic can read, such as signed thinking, and where they stood.
//!
//! An answer is text, calls and such blocks in some order, and it must be sent back in that
//! order. So each block is kept with what came before it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A block, verbatim, and its place.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpaqueBlock<'a> {
    /// Bytes of text before it.
    #[serde(rename = "text")]
    pub text: usize,
    /// Native calls before it.
    #[serde(rename = "calls")]
    pub calls: usize,
    #[serde(rename = "block", borrow)]
    pub block: &'a RawValue,
}

impl<'a> OpaqueBlock<'a> {
    pub fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("numbers and JSON are JSON")
    }
}
