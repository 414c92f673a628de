//! Draws plain tables. Each column is as wide as its content, and the last column is cut to the
//! remaining width.

use super::{RenderOutput, columns};

/// Draws the header in bold, then the rows. If a header begins with `>`, its column is aligned to
/// the right.
pub fn table(output: &RenderOutput, headers: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> =
        headers.iter().map(|header| header.trim_start_matches('>').to_owned()).collect();
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
    for row in rows {
        text.push_str(&line(row));
        text.push('\n');
    }

    text
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
