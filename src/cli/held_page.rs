//! Options of commands that list the calls which wait for a person, and the note about the calls that
//! are not listed.

use crate::audit::HeldPage;

#[derive(Debug, clap::Args)]
pub struct HeldPageArgs {
    /// Maximum number of calls; those that wait longest are listed, oldest first.
    #[arg(long, default_value_t = 100, value_name = "N")]
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

/// States how many calls wait beyond those of `page`.
pub(super) fn note_page(page: &HeldPage) {
    let HeldPage { calls, all } = page;
    if *all > calls.len() as u64 {
        note!("{} of {all} calls that wait, the oldest; see all with --all", calls.len());
    }
}
