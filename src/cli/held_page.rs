//! Options of the commands that list the calls waiting for a person, and the note about the waiting
//! calls that are left out.

use crate::audit::HeldPage;

use super::startup;

#[derive(Debug, clap::Args)]
pub struct HeldPageArgs {
    /// Maximum number of calls to list. If more calls wait, the calls that wait longest are listed.
    #[arg(
        long,
        default_value_t = 100,
        value_name = "N",
        value_parser = startup::at_least_one,
        allow_negative_numbers = true
    )]
    limit: usize,
    /// List all calls.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl HeldPageArgs {
    /// Returns the maximum number of calls to list.
    pub(super) fn most(&self) -> usize {
        if self.all { usize::MAX } else { self.limit }
    }
}

/// Prints a note if `page` does not contain all waiting calls. `what` is the plural noun for the
/// calls in this note.
pub(super) fn note_page(page: &HeldPage, what: &str) {
    let HeldPage { calls, all } = page;
    if *all > calls.len() as u64 {
        note!("the {} oldest of {all} {what}; --all lists all", calls.len());
    }
}
