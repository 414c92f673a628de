//! Draws plain tables. Each column is as wide as its content, and the last column is cut to the
//! remaining width.

use super::{RenderOutput, columns, show_hidden};

/// Draws the header in bold, then the rows. If a header begins with `>`, its column is aligned to
/// the right. No cell can control the terminal, and each cell is drawn on one line.
pub fn table(output: &RenderOutput, headers: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> =
        headers.iter().map(|header| one_line(header.trim_start_matches('>'))).collect();
    let cells = |row: &Vec<String>| row.iter().map(|cell| one_line(cell)).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let width = |at: usize| {
        let cells = rows.iter().chain([&titles]).filter_map(|row| row.get(at));
        cells.map(|cell| columns(cell)).max().unwrap_or(0)
    };

    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let line = |row: &[String]| {
        let mut line = String::new();
        for ((cell, header), width) in row.iter().zip(headers).zip(&widths) {
            let gap = " ".repeat(width.saturating_sub(columns(cell)));
            let cell = if header.starts_with('>') { gap + cell } else { format!("{cell}{gap}") };
            line.push_str(&cell);
            line.push_str("  ");
        }
        cut(line.trim_end(), output.table_columns)
    };

    let mut text = output.bold(&line(&titles));
    text.push('\n');
    for row in &rows {
        text.push_str(&line(row));
        text.push('\n');
    }

    text
}

/// Returns the text of a cell on one line. Line breaks and tabs become spaces. Characters that a
/// screen would interpret are shown as their code points.
fn one_line(cell: &str) -> String {
    show_hidden(cell).replace(['\n', '\t'], " ")
}

/// Cuts a text to `width` columns, with `…` in place of the removed part.
pub fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }

    let mut kept = String::new();
    for char in text.chars() {
        if columns(&kept) + 2 > width {
            break;
        }
        kept.push(char);
    }

    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_controls_the_terminal_or_begins_a_line() {
        let output = RenderOutput { colour: false, columns: 80, table_columns: 80, full: false };
        let texts = [["a\u{1b}[31mb", "\\u{1b}"], ["two\nlines", "\u{9b}2J\u{202e}"]];
        let rows = texts.map(|row| row.map(str::to_owned).to_vec());
        let drawn = table(&output, &["na\u{7}me", "text"], &rows);
        let expected =
            ["na\\u{7}me     text", "a\\u{1b}[31mb  \\u{1b}", "two lines     \\u{9b}2J\\u{202e}"];
        assert_eq!(drawn.lines().collect::<Vec<_>>(), expected);
    }
}
