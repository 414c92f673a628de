//! A block of lines at the bottom of a terminal's screen. The block is redrawn in place, and the
//! log is written above it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;

use super::super::render::columns;
use crate::locks::locked;

/// The block that this command shows on standard error. Each drawing and each write of a log line
/// holds the lock, so that no log line lands within the block.
static SHOWN: Mutex<RedrawnBlock> = Mutex::new(RedrawnBlock { lines: Vec::new() });

/// Shows `lines` in place of the present block. `columns_now` is the present width of the terminal
/// in columns.
pub fn draw(lines: &[String], columns_now: usize) {
    let mut shown = locked(&SHOWN);
    note_part!("{}", shown.redraw(lines, columns_now));
}

/// Removes the block from the screen.
pub fn clear(columns_now: usize) {
    let mut shown = locked(&SHOWN);
    note_part!("{}", shown.clear(columns_now));
}

/// Leaves the lines of the block on the screen. Later output follows them.
pub fn leave() {
    locked(&SHOWN).lines.clear();
}

/// Writes text of the log to standard error, above the block.
pub fn write_above(text: &str) -> std::io::Result<()> {
    let mut shown = locked(&SHOWN);
    if shown.lines.is_empty() {
        return std::io::stderr().write_all(text.as_bytes());
    }

    let text = shown.put_above(text, terminal_size().0);
    std::io::stderr().write_all(text.as_bytes())
}

/// Returns the columns and rows of the terminal at standard error; 80 and 24 if unknown.
pub fn terminal_size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    let side = |length: Option<u16>, otherwise| match length {
        Some(length) if length > 0 => usize::from(length),
        _ => otherwise,
    };
    let columns = size.map(|size| size.ws_col);
    let rows = size.map(|size| size.ws_row);
    (side(columns, 80), side(rows, 24))
}

/// Lines on the screen that the next drawing replaces.
#[derive(Debug, Default)]
pub struct RedrawnBlock {
    lines: Vec<String>,
}

impl RedrawnBlock {
    /// Replaces the lines of the block by `lines`. Returns the text, with control sequences, that
    /// the caller must print to change the screen. `columns_now` is the present width of the
    /// terminal in columns.
    pub fn redraw(&mut self, lines: &[String], columns_now: usize) -> String {
        let mut out = self.up(columns_now);
        for line in lines {
            let _ = write!(out, "{line}\x1b[K\r\n");
        }
        out.push_str("\x1b[J");
        self.lines = lines.to_vec();
        out
    }

    /// Puts `text`, which must consist of whole lines, above the block. Returns the text, with
    /// control sequences, that the caller must print to change the screen. `columns_now` is the
    /// present width of the terminal in columns.
    pub fn put_above(&mut self, text: &str, columns_now: usize) -> String {
        let lines = self.lines.clone();
        self.clear(columns_now) + text + &self.redraw(&lines, columns_now)
    }

    /// Removes all lines of the block. Returns the control sequences that the caller must print to
    /// change the screen. `columns_now` is the present width of the terminal in columns.
    pub fn clear(&mut self, columns_now: usize) -> String {
        if self.lines.is_empty() {
            return String::new();
        }
        let up = self.up(columns_now);
        self.lines.clear();
        up + "\x1b[J"
    }

    /// Returns the control sequence that moves the cursor to the first line of the block. Counts
    /// the rows of the block at each call, because long lines take more rows on a terminal that was
    /// narrowed.
    fn up(&self, columns_now: usize) -> String {
        let widths = self.lines.iter().map(|line| columns(&plain(line)));
        let rows: usize = widths.map(|width| width.div_ceil(columns_now.max(1)).max(1)).sum();
        if rows == 0 { String::new() } else { format!("\r\x1b[{rows}A") }
    }
}

/// Returns a line without its colour sequences.
fn plain(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_drawn_over_the_one_before_also_on_a_terminal_that_became_narrower() {
        let mut block = RedrawnBlock::default();
        let line = |text: &str| text.to_owned();
        assert_eq!(
            block.redraw(&[line("\x1b[1mabcdef\x1b[0m"), line("x")], 80).matches('\n').count(),
            2
        );
        assert!(block.redraw(&[line("abcdef"), line("x")], 80).starts_with("\r\x1b[2A"));
        assert!(block.redraw(&[line("y")], 4).starts_with("\r\x1b[3A"), "the first was broken");
        assert_eq!(block.clear(80), "\r\x1b[1A\x1b[J");
        assert_eq!(block.clear(80), "");
    }

    #[test]
    fn a_log_line_stands_above_the_block() {
        let mut block = RedrawnBlock::default();
        assert_eq!(block.put_above("a log line\n", 80), "a log line\n\x1b[J");
        let lines = ["tree".to_owned(), "goal".to_owned()];
        let drawn = block.redraw(&lines, 80);
        let expected = format!("\r\x1b[2A\x1b[Ja log line\n{drawn}");
        assert_eq!(block.put_above("a log line\n", 80), expected);
        assert!(block.redraw(&lines, 80).starts_with("\r\x1b[2A"), "the block is still shown");
    }
}
