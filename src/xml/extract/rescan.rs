//! Limits the cost of scanning bytes repeatedly. Decides when bytes whose meaning is still open are
//! scanned again, and converts offsets to lines without counting a line twice.

use memchr::memchr3;

use super::codes::RawFinding;
use crate::xml::findings::{Finding, TextLocation};

/// Decides when undecided bytes are scanned again. The cost of a scan grows with the number of
/// undecided bytes. The cost of all scans together stays below a small multiple of the turn's
/// length.
#[derive(Debug, Default)]
pub(super) struct RescanLimiter {
    spent: usize,
}

const ALLOWANCE_BYTES: usize = 4 << 10;
const SHARE: usize = 4;

impl RescanLimiter {
    /// Records a scan that left the last `undecided` bytes of the turn undecided.
    pub fn record_scan(&mut self, undecided: usize) {
        self.spent += undecided;
    }

    /// Whether the undecided end of `turn`, from the offset `decided` on, should be scanned again.
    /// True if both conditions are met:
    /// - the new bytes, from the offset `old` on, contain a `>`, a backtick or a line break;
    /// - all scans, including this one, read at most `SHARE` times the length of the turn, plus
    ///   `ALLOWANCE_BYTES`.
    pub fn is_rescan_due(&self, turn: &[u8], old: usize, decided: usize) -> bool {
        let undecided = turn.len() - decided;
        let new = turn.get(old..).unwrap_or_default();
        self.spent + undecided <= turn.len() * SHARE + ALLOWANCE_BYTES
            && memchr3(b'>', b'`', b'\n', new).is_some()
    }
}

/// Converts byte offsets in a turn to lines and columns. Counts each line only once if the offsets
/// increase.
#[derive(Debug)]
pub(super) struct LineCounter {
    offset: usize,
    line: u32,
    column: u32,
}

impl Default for LineCounter {
    fn default() -> Self {
        Self { offset: 0, line: 1, column: 1 }
    }
}

impl LineCounter {
    pub fn finding(&mut self, turn: &[u8], note: RawFinding) -> Finding {
        Finding::new(note.code.as_str(), self.place(turn, note.at), note.message)
    }

    fn place(&mut self, turn: &[u8], at: usize) -> TextLocation {
        let Some(between) = turn.get(self.offset..at) else { return TextLocation::at(turn, at) };
        for byte in between {
            if *byte == b'\n' {
                self.line = self.line.saturating_add(1);
                self.column = 1;
            } else if byte & 0xC0 != 0x80 {
                self.column = self.column.saturating_add(1);
            }
        }

        self.offset = at;
        TextLocation { line: self.line, column: self.column, offset: at, path: None }
    }
}
