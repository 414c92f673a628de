//! Live pages: a connection for each of them, over which it learns that its content has changed.
//!
//! **Invariant:** nothing here reads a journal on its own account. The organism reports each growth
//! of its journals, and a page that does not keep up loses events. A pump never waits for a page.

mod growth;
mod page;
mod shared_pages;

pub(super) use growth::GrowthFollower;
pub(super) use page::{show_thread, show_threads};
pub(super) use shared_pages::{SharedPages, share};

use maud::{Markup, html};

/// The line of a page that updates itself: `source` is the address of its events, `page` that of the
/// page. Without the script, a person loads the page again.
pub(super) fn line(source: &str, page: &str) -> Markup {
    html! {
        p.live data-live=(source) {
            span #live-status role="status" {}
            " " a #reload href=(page) { "Reload" }
        }
    }
}
