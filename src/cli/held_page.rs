//! Options of commands that list the calls which wait for a person, and the note about the calls that
//! are not listed.

use crate::audit::HeldPage;

use super::startup;

#[derive(Debug, clap::Args)]
pub struct HeldPageArgs {
    /// Maximum number of calls; those that wait longest are listed, oldest first.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = startup::at_least_one)]
    limit: usize,
    /// List all calls.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl HeldPageArgs {
    /// Maximum number of calls to list.
    pub(super) fn most(&self) -> usize {
        if self.all { usize::MAX } else { self.limit }
    }
}

/// If `page` lacks calls, states how many of them are listed. `what` names the calls, in the
/// plural.
pub(super) fn note_page(page: &HeldPage, what: &str) {
    let HeldPage { calls, all } = page;
    if *all > calls.len() as u64 {
        note!("the {} oldest of {all} {what}; --all lists all", calls.len());
    }
}
