//! Shows a held call to the person who decides about it, with the exact bytes of its payload.

use crate::audit::{CallPreviewView, HeldCall};
use crate::xml::invisible_characters::{hidden, visible};

use unicode_width::UnicodeWidthChar as _;

use super::{RenderOutput, count};

/// Number of columns between the tab stops of a terminal.
const TAB_COLUMNS: usize = 8;
/// Number of columns for the indentation, the bar and the space before each line of a text from
/// another party.
const BAR_COLUMNS: usize = 4;

/// Draws a held call, with a bar before each line of the payload. Without the bar, a payload could
/// imitate this program's own lines about the call.
pub fn held(output: &RenderOutput, call: &HeldCall) -> String {
    let title = format!("{}  {}", call.message, call.name.local);
    let mut out = format!("{}\n", output.bold(&title));
    let mut line = |name: &str, text: &str| out.push_str(&format!("  {name:<8} {text}\n"));
    line("for", call.to.as_str());
    line("from", &format!("{} in {}", call.from, call.thread));
    line("since", &call.since);
    if let Some(until) = &call.until {
        line("until", until);
    }

    if let Some(why) = &call.why {
        line("because", why);
    }

    line("sha256", &call.sha256.to_string());

    match &call.payload {
        None => line("payload", "redacted: the call can only be refused"),
        Some(payload) => barred(output, payload, &mut out),
    }

    if let Some(preview) = &call.preview {
        show_preview(output, call, preview, &mut out);
    }

    out
}

fn show_preview(
    output: &RenderOutput,
    call: &HeldCall,
    preview: &CallPreviewView,
    out: &mut String,
) {
    match preview {
        CallPreviewView::Requested => out.push_str("  preview  requested, and not here yet\n"),
        CallPreviewView::Missing { reason } => {
            let reason = visible(reason).replace('\n', " ");
            out.push_str(&format!("  preview  none came: {reason}\n"));
        }
        CallPreviewView::Recorded { sha256, text } => {
            out.push_str(&format!("  preview  {sha256}, as {} claims:\n", call.to));
            match text {
                Some(text) => barred(output, text, out),
                None => out.push_str("  preview  redacted: it cannot be read any more\n"),
            }
        }
    }
}

/// Writes a text that another party wrote, with a bar before each line. Hidden characters are made
/// visible. A line that is wider than the terminal continues on further rows behind a broken bar.
pub(super) fn barred(output: &RenderOutput, text: &str, out: &mut String) {
    // `split` instead of `lines`, which would drop line ends and so hide bytes from the person.
    for shown in visible(text).split('\n') {
        for (n, row) in rows(shown, output.table_columns).into_iter().enumerate() {
            let bar = output.dim(if n == 0 { "│" } else { "┆" });
            out.push_str(&format!("  {bar} {row}\n"));
        }
    }

    let hidden = hidden(text) as u64;
    if hidden > 0 {
        let text = format!("{} shown as \\u{{…}}", count(hidden, "hidden character"));
        out.push_str(&format!("  {}\n", output.yellow(&text)));
    }
}

/// Cuts a line into rows for a terminal of `columns` columns, with room for a bar at the left of
/// each row. The rows together contain every byte of the line.
fn rows(line: &str, columns: usize) -> Vec<&str> {
    let mut rows = Vec::new();
    let mut begin = 0;
    let mut column = BAR_COLUMNS;

    for (at, c) in line.char_indices() {
        let mut taken = taken_by(c, column);
        if column + taken > columns && at > begin {
            rows.extend(line.get(begin..at));
            begin = at;
            taken = taken_by(c, BAR_COLUMNS);
            column = BAR_COLUMNS;
        }
        column += taken;
    }

    rows.extend(line.get(begin..));
    rows
}

/// Returns the number of columns that a character takes if it begins at `column`.
fn taken_by(c: char, column: usize) -> usize {
    match c {
        '\t' => TAB_COLUMNS - column % TAB_COLUMNS,
        c => c.width().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_a_long_line_has_a_bar_and_no_byte_is_lost() {
        let text = "short\n\n漢字漢字漢字漢字漢字\n\ta\tb c\tx\nabcdefghijklmnopqrstuvw";
        let output = RenderOutput { colour: false, columns: 40, table_columns: 20, full: true };
        let mut out = String::new();
        barred(&output, text, &mut out);
        let expected = [
            "  │ short",
            "  │ ",
            "  │ 漢字漢字漢字漢字",
            "  ┆ 漢字",
            "  │ \ta\tb c",
            "  ┆ \tx",
            "  │ abcdefghijklmnop",
            "  ┆ qrstuvw",
        ];
        assert_eq!(out.lines().collect::<Vec<_>>(), expected);

        let rows = out.lines().map(|row| row.get(2..).unwrap_or_default());
        let joined: String =
            rows.map(|row| row.replacen("│ ", "\n", 1).replacen("┆ ", "", 1)).collect();
        assert_eq!(joined, format!("\n{text}"));
    }
}
