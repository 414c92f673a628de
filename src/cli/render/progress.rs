//! Progress bars of long work on the records of a journal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Makes a progress bar that counts records. `label` is the text before the bar. The bar is hidden
/// if the output is JSON, or if standard error is no terminal.
pub fn progress_bar(label: &str, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{label}{{bar:40}} {{pos}}/{{len}} records, {{eta}} left");
    let style = ProgressStyle::with_template(&template);
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
