//! Live pages. Each page has a connection of its own. Over this connection, the page learns that
//! its content has changed.
//!
//! **Invariant:** this module does not poll the journals of a running organism. It reads them after
//! the organism has reported that they have grown, when a page is opened, and when a copy of a
//! stream becomes out of date or is up to date again. A page that does not keep up loses events. A
//! pump never waits for a page.

mod content_version;
mod growth;
mod page;
mod shared_pages;

pub(super) use growth::GrowthFollower;
pub(super) use page::{show_thread, show_threads};
pub(super) use shared_pages::{SharedPages, share};

use maud::{Markup, html};

/// Draws the status line of a live page. The page's script receives the page's events from the
/// address `source`, and keeps the page up to date. The line also has a link to `page`, the address
/// of the page itself. Without the script, a person must reload the page with this link.
pub(super) fn line(source: &str, page: &str) -> Markup {
    html! {
        p.live data-live=(source) {
            span #live-status role="status" {}
            " " a #reload href=(page) { "Reload" }
        }
    }
}
