//! The beginning of a fork's conversation: one line for the history of the fork's source, and the
//! point at which the fork begins.

use maud::{Markup, html};

use super::conversation::{ConversationPage, decision_text};
use super::layout::{grouped, inline, shown};
use super::message;
use super::thread::path;
use super::url_query::UrlQuery;
use crate::audit::{ForkOrigin, ThreadPage, TimelineEntry, TimelineEvent};
use crate::ids::Position;
use crate::plural::count;

/// Whether an event belongs to the beginning of a fork's conversation: the decision to fork, or a
/// message in the first record of the fork.
pub(super) fn is_in_head(page: &ThreadPage, item: &TimelineEntry) -> bool {
    let Some(fork) = &page.fork else { return false };
    match &item.what {
        TimelineEvent::Message(message) => fork.recorded.contains(&message.id),
        TimelineEvent::Decision { verb, .. } => *verb == "fork" && item.position == fork.position,
        _ => false,
    }
}

/// Draws the beginning of a fork's conversation. On the first page, draws the history of the
/// source, and the point at which the fork begins. On every page, also draws the messages of this
/// page that are in the fork's first record. Draws nothing on a later page without such messages.
pub(super) fn head(
    page: &ThreadPage,
    fork: &ForkOrigin,
    conversation: &ConversationPage<'_>,
) -> Markup {
    let items = page.timeline.items.iter().filter(|item| is_in_head(page, item));
    let items: Vec<&TimelineEntry> = items.collect();
    let is_first = page.from_seq == 0;
    if !is_first && items.is_empty() {
        return html! {};
    }

    let decision = items.iter().find(|item| matches!(item.what, TimelineEvent::Decision { .. }));
    let recorded = items.iter().filter(|item| matches!(item.what, TimelineEvent::Message(_)));
    let recorded: Vec<_> = recorded.collect();
    html! {
        li.event data-kind="history" {
            @if let Some(first) = items.first() { (conversation.time(first)) } @else { span {} }
            div {
                @if is_first { p.head { (history(fork)) } }
                @if !recorded.is_empty() {
                    details {
                        summary {
                            (count(recorded.len() as u64, "message")) " with which the fork was recorded"
                        }
                        ol.events { @for item in recorded { (conversation.entry(item)) } }
                    }
                }
            }
        }
        @if is_first { (beginning(fork, decision.copied(), conversation)) }
    }
}

/// Draws a link to the source thread of the fork. If the source is in another journal, draws only
/// the id of the source thread. If the fork and the source share records, the link leads to these
/// records. Otherwise, the link leads to the whole source thread.
pub(super) fn source_link(fork: &ForkOrigin) -> Markup {
    let source = fork.thread.as_str();
    if fork.source.journal.is_some() {
        return html! { (inline(source)) ", in another journal" };
    }
    let history = fork.source.history;
    let at = (history > Position(0)).then(|| history.to_string());
    let link = UrlQuery::default().with("at", at.as_deref()).link(&path(source));
    html! { a href=(link) { (inline(source)) } }
}

fn history(fork: &ForkOrigin) -> Markup {
    if fork.messages == 0 {
        return html! { "Fork of " (source_link(fork)) ", without messages before it." };
    }
    html! {
        b { "History: " (count(fork.messages, "message")) } " of " (source_link(fork))
        ", up to record " (grouped(fork.source.history.0)) "."
    }
}

/// Draws the entry of the conversation that marks the beginning of the fork.
fn beginning(
    fork: &ForkOrigin,
    decision: Option<&TimelineEntry>,
    conversation: &ConversationPage<'_>,
) -> Markup {
    let source = &fork.source;
    let person = conversation.person(fork.position);
    html! {
        li.event.fork-begins data-kind="decision" {
            @if let Some(decision) = decision { (conversation.time(decision)) } @else { span {} }
            div {
                p.head {
                    b { "The fork begins here" }
                    ", at "
                    @if source.journal.is_none() {
                        a href=(message::path(source.message)) { "this message" }
                    } @else { "message " (source.message) }
                    " of " (inline(source.thread.as_str()))
                    @if let Some(person) = person { ", by " (inline(&person)) }
                    "."
                }
                @if let Some(text) = decision.and_then(decision_text) {
                    pre.body { (shown(&text)) }
                }
            }
        }
    }
}
