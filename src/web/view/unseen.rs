//! Lists the messages and threads that the model did not see in one turn: earlier messages that the
//! turn's prompt leaves out, and the other threads of the tree.

use maud::{Markup, html};

use super::layout::{inline, table};
use super::{message, thread_tree};
use crate::agent::history::{UnseenMessage, UnseenReason};
use crate::ids::ThreadId;
use crate::index::{self, IndexReader};
use crate::limits;
use crate::organism::TurnOnRecord;
use crate::plural::count;

/// The messages and threads that the model did not see in one turn.
#[derive(Debug)]
pub(super) struct UnseenMessages {
    /// The unseen messages of the turn's thread, or the reason why they cannot be determined.
    found: Result<Vec<UnseenMessage>, String>,
    /// Number of other threads in the tree at the time of the turn, and the root of the tree.
    other_threads: (u64, ThreadId),
}

impl UnseenMessages {
    pub fn of(
        index: &IndexReader,
        turn: Option<&TurnOnRecord>,
        thread: &ThreadId,
    ) -> Result<Self, index::Error> {
        let unknown = || "the turn is from before turns stored what they send".to_owned();
        let found = match turn.map(TurnOnRecord::unseen) {
            Some(Ok(found)) => found.ok_or_else(unknown),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(unknown()),
        };
        let root = thread.root();
        let up_to = turn.map_or(index.position(), TurnOnRecord::position);
        let threads = index.threads_in_tree(&root, up_to)?;
        Ok(Self { found, other_threads: (threads.saturating_sub(1), root) })
    }

    pub fn section(&self) -> Markup {
        html! {
            h2 #unseen { "What the model did not get to see" }
            @match &self.found {
                Ok(found) if found.is_empty() => {
                    p.empty { "Nothing: the prompt shows every earlier message of this thread." }
                }
                Ok(found) => (list(found)),
                Err(why) => p.problem { "It is not known: " (inline(why)) },
            }
            (self.other_threads())
        }
    }

    fn other_threads(&self) -> Markup {
        let (threads, root) = &self.other_threads;
        html! {
            @if *threads > 0 {
                p.hint {
                    "Of " (count(*threads, "other thread")) " "
                    a href=(thread_tree::path(root.as_str())) { "of the tree" }
                    ", the model saw only what came back into this one."
                }
            }
        }
    }
}

fn list(found: &[UnseenMessage]) -> Markup {
    let rows: Vec<_> = found.iter().take(limits::WEB_PAGE_ROWS).map(row).collect();
    let headers = ["Message", "Payload", "From", "To", "Why"];
    html! {
        ul {
            @for reason in UnseenReason::ALL {
                @let messages = found.iter().filter(|unseen| unseen.reason == reason).count();
                @if messages > 0 {
                    li { (count(messages as u64, "message")) ": " (explanation(reason)) }
                }
            }
        }
        details open[rows.len() <= limits::WEB_LAST_REFUSALS] {
            summary { "These messages" }
            (table("Messages that the prompt does not show", &headers, &rows))
            @if found.len() > rows.len() {
                p.more { "… " (count((found.len() - rows.len()) as u64, "later message")) }
            }
        }
    }
}

fn row(unseen: &UnseenMessage) -> Vec<Markup> {
    let UnseenMessage { message, reason } = unseen;
    vec![
        message::link(message.id),
        inline(&message.name.local),
        inline(message.from.as_str()),
        inline(message.to.as_str()),
        html! { (name(*reason)) },
    ]
}

const fn name(reason: UnseenReason) -> &'static str {
    match reason {
        UnseenReason::Cleared => "cleared",
        UnseenReason::DidNotFit => "did not fit",
        UnseenReason::AmongOthers => "among others",
        UnseenReason::Waiting => "waited",
        UnseenReason::TextOfAnother => "text of another",
        UnseenReason::Cancelled => "cancelled",
        UnseenReason::Redacted => "redacted",
    }
}

const fn explanation(reason: UnseenReason) -> &'static str {
    match reason {
        UnseenReason::Cleared => "the agent had cleared its window with `clear-context`",
        UnseenReason::DidNotFit => {
            "too long for the context window of the model; a stub stands in the prompt for each"
        }
        UnseenReason::AmongOthers => {
            "neither sent by the agent nor sent to it; it remembers its own messages alone \
             (`memory = \"own\"`)"
        }
        UnseenReason::Waiting => {
            "requests to the agent that waited until it was done with this one"
        }
        UnseenReason::TextOfAnother => {
            "the text that the model of another agent wrote; the prompt shows its payloads alone"
        }
        UnseenReason::Cancelled => {
            "errors and late replies of peers that did not count, because another peer of the group \
             replied (`gather = \"first\"`)"
        }
        UnseenReason::Redacted => "turns of the agent whose text was redacted",
    }
}
