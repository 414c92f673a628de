//! Blocks that only Anthropic can read, such as signed thinking.
//!
//! The text of an answer, its calls and these blocks are kept separately, but must be sent back in
//! the order of the answer. So each block is kept with its place: how many bytes of text and how
//! many calls precede it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An opaque block, verbatim, with its place in the answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpaqueBlock<'a> {
    /// Number of bytes of the answer's text before the block.
    #[serde(rename = "text")]
    pub text: usize,
    /// Number of native calls that come before the opaque block in the answer.
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
