//! The output of a command. Only its first and last bytes are kept, with its total length.

use std::collections::VecDeque;

use crate::limits::OUTPUT_BYTES_MAX;

const HALF: usize = OUTPUT_BYTES_MAX / 2;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl CommandOutput {
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = HALF.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let skipped = rest.len().saturating_sub(HALF);
        self.tail.extend(rest.get(skipped..).unwrap_or_default());
        let excess = self.tail.len().saturating_sub(HALF);
        self.tail.drain(..excess);
    }

    /// Length of the whole output in bytes, including bytes that were not kept.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn is_cut(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the output as text. Bytes that are not UTF-8 become U+FFFD. If only some bytes of a
    /// character were kept, these bytes become U+FFFD, too.
    pub fn text(&self) -> String {
        if !self.is_cut() {
            let all: Vec<u8> = self.head.iter().chain(&self.tail).copied().collect();
            return String::from_utf8_lossy(&all).into_owned();
        }

        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let left_out = self.total - (self.head.len() + self.tail.len()) as u64;
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(&tail);
        format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
    }
}
