//! Draws the state of a thread in the same form on all pages.

use maud::{Markup, html};

use crate::audit::{ThreadTimeline, thread_state};
use crate::index::{HoldCount, ListedTree};
use crate::plural::count;

/// Draws the phase of a thread. If the thread is open and has calls that wait for people, draws
/// this wait instead.
pub(super) fn status(phase: &str, waits: HoldCount) -> Markup {
    let state = thread_state(phase, waits);
    html! {
        @if state == phase {
            span.status data-status=(phase) { (phase) }
        } @else {
            span.status.waits data-status="waits" {
                (state) @if waits.calls > 1 { ", " (count(waits.calls, "call")) }
            }
        }
    }
}

/// Draws the status of a tree in a list of trees. Also draws the pause of the tree, if there is
/// one, and the number of calls in the tree that people denied.
pub(super) fn of_tree(tree: &ListedTree) -> Markup {
    html! {
        (status(&tree.status, tree.waits))
        @if let Some(part) = tree.pause { ", " span.paused { (part.describe()) } }
        (denials(tree.denials))
    }
}

/// Draws the number of calls that people denied. A denial is a decision, and no error.
pub(super) fn denials(number: u64) -> Markup {
    html! { @if number > 0 { ", " span.denials { (count(number, "call")) " refused by a person" } } }
}

/// Draws the status of a thread.
pub(super) fn of_thread(timeline: &ThreadTimeline) -> Markup {
    status(timeline.status.as_str(), timeline.waits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::Hold;

    #[test]
    fn a_wait_has_its_own_colour_and_its_number_of_calls() {
        let waits = HoldCount { calls: 2, hold: Some(Hold::Approval) };
        let drawn = status("running", waits).into_string();
        assert!(drawn.contains("data-status=\"waits\">waits for an approval, 2 calls<"), "{drawn}");
        let ended = status("completed", waits).into_string();
        assert!(ended.contains("data-status=\"completed\">completed<"), "{ended}");
    }
}
