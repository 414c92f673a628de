//! A block of lines that is redrawn in place at the bottom of a terminal's screen.

use std::fmt::Write as _;

use super::super::render::columns;

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
    /// Width of each line in columns.
    widths: Vec<usize>,
}

impl RedrawnBlock {
    /// Replaces the lines of the block by `lines`. Returns the text to print for this, with control
    /// sequences. `columns_now` is the present width of the terminal in columns.
    pub fn redraw(&mut self, lines: &[String], columns_now: usize) -> String {
        let mut out = self.up(columns_now);
        for line in lines {
            let _ = write!(out, "{line}\x1b[K\r\n");
        }
        out.push_str("\x1b[J");
        self.widths = lines.iter().map(|line| columns(&plain(line))).collect();
        out
    }

    /// Removes all lines of the block. Returns the control sequences to print, which delete the
    /// lines from the screen. `columns_now` is the present width of the terminal in columns.
    pub fn clear(&mut self, columns_now: usize) -> String {
        if self.widths.is_empty() {
            return String::new();
        }
        let up = self.up(columns_now);
        self.widths.clear();
        up + "\x1b[J"
    }

    /// Returns the text that moves the cursor up to the first of the lines. Counts the rows again
    /// each time: if the terminal has become narrower, it has wrapped long lines into several rows.
    fn up(&self, columns_now: usize) -> String {
        let rows: usize =
            self.widths.iter().map(|width| width.div_ceil(columns_now.max(1)).max(1)).sum();
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
}
