//! Draws records for a terminal: text in 80 columns, and tables as wide as the terminal. Colours
//! are used only on a terminal, and control characters in a record never reach the terminal.

pub mod demo_view;
mod held;
mod live_printer;
mod message_report;
mod progress;
mod reload;
mod table;
mod timeline;
mod wrap;

use std::os::fd::AsFd;

pub use super::output::put;
pub use crate::audit::amounts::{duration, micros};
pub use crate::audit::payload_lines::lines as payload_lines;
pub use crate::plural::count;
pub use held::held;
pub use live_printer::LivePrinter;
pub use message_report::{draw_report, message_rows};
pub use progress::progress_bar;
pub use reload::note_reload;
pub use table::{cut, table};
pub use timeline::{
    ThreadPart, TimelineColumns, busy, draw_message, draw_timeline, refused, second_of,
};
pub use wrap::{clean, columns, one_line, show_hidden, wrap};

/// Returns the present number of columns of the terminal behind standard output. Returns `None` if
/// standard output is no terminal, or if the number is unknown.
pub fn terminal_columns() -> Option<usize> {
    columns_of(std::io::stdout())
}

fn columns_of(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

use crate::xml::invisible_characters::visible_json;

use super::output::{has_colours, put_json_line};

/// Maximum columns of a text: longer lines are hard to read.
const COLUMNS_MAX: usize = 80;
const COLUMNS_MIN: usize = 40;

/// Properties of the output that determine how texts and tables are drawn.
#[derive(Debug, Clone, Copy)]
pub struct RenderOutput {
    pub colour: bool,
    /// Number of columns to which texts are wrapped.
    pub columns: usize,
    /// Number of columns to which the rows of tables are cut. Without a terminal, no row is cut.
    pub table_columns: usize,
    /// Whether payloads are shown whole. If false, only their first lines are shown.
    pub full: bool,
}

impl RenderOutput {
    pub fn stdout(full: bool) -> Self {
        Self::new(has_colours(&std::io::stdout()), terminal_columns(), full)
    }

    /// Returns the properties of standard error, for a text that a person reads before answering a
    /// question.
    pub fn stderr(full: bool) -> Self {
        Self::new(false, columns_of(std::io::stderr()), full)
    }

    fn new(colour: bool, terminal: Option<usize>, full: bool) -> Self {
        let stated = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let found = stated.or(terminal).map(|columns: usize| columns.max(COLUMNS_MIN));
        let columns = found.unwrap_or(COLUMNS_MAX).min(COLUMNS_MAX);
        let table_columns = found.unwrap_or(usize::MAX);
        Self { colour, columns, table_columns, full }
    }

    fn ink(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub fn bold(&self, text: &str) -> String {
        self.ink("1", text)
    }

    pub fn dim(&self, text: &str) -> String {
        self.ink("2", text)
    }

    pub fn red(&self, text: &str) -> String {
        self.ink("31", text)
    }

    pub fn green(&self, text: &str) -> String {
        self.ink("32", text)
    }

    pub fn yellow(&self, text: &str) -> String {
        self.ink("33", text)
    }

    pub fn cyan(&self, text: &str) -> String {
        self.ink("36", text)
    }
}

/// Writes a value as one line of JSON. If standard output is a terminal, escapes each character
/// that a screen would hide or interpret.
pub fn put_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    put_json_line(&serde_json::to_string(value)?);
    Ok(())
}

/// Writes a value as one line of JSON. Escapes each character that a screen would hide or
/// interpret, even if standard output is no terminal.
pub fn put_visible_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    put(&visible_json_line(value)?)
}

/// Returns the line that [`put_visible_json`] writes.
pub fn visible_json_line(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", visible_json(&serde_json::to_string(value)?)))
}
