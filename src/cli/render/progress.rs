//! Progress bars of long work on the records of a journal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Makes a progress bar that counts records. The bar is hidden for JSON output, and if standard
/// error is no terminal.
pub fn progress_bar(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} records, {eta} left");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
