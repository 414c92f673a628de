//! The list of requests that operators may retry, on the page of refusals and failures.

use maud::{Markup, html};

use super::layout::{inline, shown, table};
use super::url_query::UrlQuery;
use super::{message, operate, record_entry, refused};
use crate::audit::{RetryMessage, retry_messages};
use crate::config::in_shell;
use crate::index::{Error, IndexReader, RetryFilter};
use crate::limits;

/// A message that may be retried, with the partition of its journal.
#[derive(Debug, Clone)]
pub(super) struct ListedRetry {
    pub partition: u32,
    pub message: RetryMessage,
}

/// Name of the URL parameter with the number of messages to skip.
const SKIPPED: &str = "skip";

/// A page of the list of retryable messages: the filter, and the number of messages before the
/// page.
#[derive(Debug, Clone, Default)]
pub(super) struct RetryPage {
    filter: RetryFilter,
    /// Number of messages before the page.
    skipped: usize,
}

impl RetryPage {
    pub fn read(query: &UrlQuery) -> Self {
        let skipped = query.get(SKIPPED).and_then(|text| text.parse().ok());
        Self {
            filter: RetryFilter {
                listener: query.get("listener").map(str::to_owned),
                reason: query.get("reason").map(str::to_owned),
                is_unretriable: false,
            },
            skipped: skipped.unwrap_or(0_usize).min(limits::RETRIES_MAX),
        }
    }

    /// Returns the URL query of this page.
    pub fn query(&self) -> UrlQuery {
        let query = UrlQuery::default().with("reason", self.filter.reason.as_deref());
        let skipped = (self.skipped > 0).then(|| self.skipped.to_string());
        let query = query.with("listener", self.filter.listener.as_deref());
        query.with(SKIPPED, skipped.as_deref())
    }

    fn after(&self, skipped: usize) -> Self {
        Self { skipped, ..self.clone() }
    }

    /// Finds the messages of one journal up to the end of the page, and one further message if
    /// there is a next page.
    pub fn find(&self, index: &IndexReader) -> Result<Vec<RetryMessage>, Error> {
        retry_messages(index, &self.filter, self.skipped + limits::WEB_PAGE_ROWS + 1)
    }

    /// Finds, in one journal, the first messages whose retry can never succeed.
    pub fn find_unretriable(&self, index: &IndexReader) -> Result<Vec<RetryMessage>, Error> {
        let filter = RetryFilter { is_unretriable: true, ..self.filter.clone() };
        retry_messages(index, &filter, limits::WEB_PAGE_ROWS + 1)
    }
}

/// The messages on one page of a list, oldest first.
#[derive(Debug, Default)]
pub(super) struct RetryList {
    pub listed: Vec<ListedRetry>,
    /// Whether more messages follow after the page.
    pub is_more: bool,
}

impl RetryList {
    /// Creates the list for `page` from the messages of each partition.
    pub fn of(found: impl IntoIterator<Item = (u32, Vec<RetryMessage>)>, page: &RetryPage) -> Self {
        Self::after(found, page.skipped)
    }

    /// Creates the list for the first page from the messages of each partition.
    pub fn first(found: impl IntoIterator<Item = (u32, Vec<RetryMessage>)>) -> Self {
        Self::after(found, 0)
    }

    fn after(found: impl IntoIterator<Item = (u32, Vec<RetryMessage>)>, skipped: usize) -> Self {
        let listed = found.into_iter().flat_map(|(partition, messages)| {
            messages.into_iter().map(move |message| ListedRetry { partition, message })
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by(|one, other| one.message.time.cmp(&other.message.time));
        listed.drain(..skipped.min(listed.len()));
        let is_more = listed.len() > limits::WEB_PAGE_ROWS;
        listed.truncate(limits::WEB_PAGE_ROWS);
        Self { listed, is_more }
    }

    /// Draws the messages as a table. If the person may act, the second column links to the retry,
    /// so that the link is visible even in a narrow window. Otherwise, the last column shows the
    /// command for the retry.
    pub fn table(&self, may_act: bool) -> Markup {
        let headers = if may_act {
            ["Message", "Action", "Reason", "From", "To", "Time"]
        } else {
            ["Message", "Reason", "From", "To", "Time", "At the terminal"]
        };
        let rows = self.listed.iter().map(|listed| {
            let mut row = facts(&listed.message);
            let place = if may_act { 1 } else { row.len() };
            row.insert(place, action(&listed.message, may_act));
            row
        });
        table("Messages that can be retried", &headers, &rows.collect::<Vec<_>>())
    }

    /// Draws a table of messages, each with the reason why its retry cannot succeed.
    fn unretriable_table(&self) -> Markup {
        let row = |listed: &ListedRetry| {
            let mut row = facts(&listed.message);
            let obstacle = listed.message.obstacle.as_ref().map(ToString::to_string);
            row.push(html! { (shown(&obstacle.unwrap_or_default())) });
            row
        };
        let headers = ["Message", "Reason", "From", "To", "Time", "Why no retry can succeed"];
        let rows: Vec<_> = self.listed.iter().map(row).collect();
        table("Messages whose retry cannot succeed", &headers, &rows)
    }

    /// Draws the messages as a table without actions.
    pub fn plain_table(&self) -> Markup {
        let rows: Vec<_> = self.listed.iter().map(|listed| facts(&listed.message)).collect();
        let headers = ["Message", "Reason", "From", "To", "Time"];
        table("Messages that are retried", &headers, &rows)
    }
}

fn facts(message: &RetryMessage) -> Vec<Markup> {
    let id = message.id.to_string();
    let last = id.get(id.len().saturating_sub(8)..).unwrap_or_default();
    let is_refused = message.listener.is_none();
    let filtered = |name: &str, value: &str| {
        let path = UrlQuery::default().with(name, Some(value)).link(refused::PATH);
        html! { a href=(path) { (inline(value)) } }
    };
    vec![
        html! {
            // A refused submission is no recorded message, so its record shows it.
            @if is_refused {
                a data-entry href=(record_entry::path(message.record)) { "…" (last) }
            } @else { (message::link(message.id)) }
        },
        html! {
            (filtered("reason", &message.reason))
            @if is_refused { " (refused)" }
            @if message.reason == "budget-spent" {
                span.hint { ", fails again unless the budget is raised" }
            }
        },
        inline(&message.sender),
        html! {
            @if let Some(to) = &message.listener { (filtered("listener", to)) }
            @else { span.hint { "refused before delivery" } }
        },
        seconds(&message.time),
    ]
}

/// Draws a time in RFC 3339, shown in whole seconds.
fn seconds(time: &str) -> Markup {
    let day = time.get(..10).unwrap_or(time);
    let clock = time.get(11..19).unwrap_or_default();
    html! { time datetime=(time) { (day) " " (clock) } }
}

fn action(message: &RetryMessage, may_act: bool) -> Markup {
    html! {
        @if may_act {
            a.button href=(operate::retry_path(message.id)) { "Retry" }
        } @else {
            code { "organism retry " (message.id) }
        }
    }
}

/// Draws the retryable messages with their filter and a button that retries all messages of the
/// page. The messages whose retry cannot succeed follow beneath.
pub(super) fn section(
    list: &RetryList,
    unretriable: &RetryList,
    page: &RetryPage,
    may_act: bool,
) -> Markup {
    let RetryFilter { listener, reason, .. } = &page.filter;
    let is_filtered = listener.is_some() || reason.is_some();
    html! {
        h2 #retry { "Can be retried" }
        @if list.listed.is_empty() && unretriable.listed.is_empty() && !is_filtered && page.skipped == 0 {
            p.empty { "No request of a client that failed or was refused waits for a retry." }
        } @else {
            (filter_form(&page.filter, is_filtered))
            @if list.listed.is_empty() {
                p.empty { "No request that failed or was refused matches." }
            } @else {
                (list.table(may_act))
            }
            (pages(list, page))
            @if !list.listed.is_empty() { (all_of_them(list, page, may_act)) }
        }
        @if !unretriable.listed.is_empty() {
            h2 { "Cannot succeed" }
            p.hint { "A retry of all leaves these out." }
            (unretriable.unretriable_table())
            @if unretriable.is_more { p.hint { "There are more; these are the oldest." } }
        }
    }
}

/// Draws links to the previous and the next page.
fn pages(list: &RetryList, page: &RetryPage) -> Markup {
    let link =
        |skipped: usize| format!("{}#retry", page.after(skipped).query().link(refused::PATH));
    let end = page.skipped + list.listed.len();
    html! {
        @if page.skipped > 0 || list.is_more {
            nav.pages aria-label="Pages of what can be retried" {
                @if page.skipped > 0 {
                    a rel="prev" href=(link(page.skipped.saturating_sub(limits::WEB_PAGE_ROWS))) {
                        "Those before"
                    }
                }
                @if list.is_more && end <= limits::RETRIES_MAX {
                    a rel="next" href=(link(end)) { "Those after" }
                } @else if list.is_more {
                    span.hint { "There are more. Retry the first ones, or choose with the filter." }
                }
            }
        }
    }
}

fn filter_form(filter: &RetryFilter, is_filtered: bool) -> Markup {
    html! {
        form.filters method="get" action=(refused::PATH) {
            div {
                label for="reason" { "Reason" }
                input #reason name="reason" autocomplete="off"
                    value=(filter.reason.as_deref().unwrap_or_default());
            }
            div {
                label for="listener" { "To" }
                input #listener name="listener" autocomplete="off"
                    value=(filter.listener.as_deref().unwrap_or_default());
            }
            button type="submit" { "Filter" }
            @if is_filtered { a href=(refused::PATH) { "No filter" } }
        }
    }
}

fn all_of_them(list: &RetryList, page: &RetryPage, may_act: bool) -> Markup {
    html! {
        @if may_act {
            p.buttons {
                a.button data-entry href=(operate::retry_all_path(page)) {
                    "Retry these " (list.listed.len())
                }
            }
        } @else {
            p {
                "To retry all that the filter selects, type "
                code { (command(&page.filter)) } ". A view with " code { "--operate" } " does it here."
            }
        }
        p.hint {
            "Left out: calls of listeners, whose callers deal with failures, and what was retried \
             before. What may have been done already needs a confirmation of its own."
        }
    }
}

/// Returns the command that retries all messages that a filter selects.
fn command(filter: &RetryFilter) -> String {
    let mut command = "organism retry --all".to_owned();
    let options = [("--reason", &filter.reason), ("--listener", &filter.listener)];
    for (option, value) in options {
        let Some(value) = value else { continue };
        // With `=`, a value that begins with a hyphen is not mistaken for an option.
        command.push_str(&format!(" {option}={}", in_shell(value)));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_filter_is_one_word_of_the_command() {
        let filter = RetryFilter {
            reason: Some("x'; rm -rf /; '\u{202e}".to_owned()),
            listener: Some("--all".to_owned()),
            is_unretriable: false,
        };
        let text = command(&filter);
        assert_eq!(
            text,
            "organism retry --all --reason='x'\\''; rm -rf /; '\\''\\u{202e}' --listener=--all"
        );
    }
}
