//! The requests that operators may retry, as the page of what was refused and what failed lists
//! them.

use maud::{Markup, html};

use super::layout::{inline, table};
use super::url_query::UrlQuery;
use super::{message, operate, refused};
use crate::audit::{RetryMessage, RetryMessageFilter, retry_messages};
use crate::config::in_shell;
use crate::index::{Error, IndexReader};
use crate::limits;

/// A message that may be retried, with the partition of its journal.
#[derive(Debug, Clone)]
pub(super) struct ListedRetry {
    pub partition: u32,
    pub message: RetryMessage,
}

/// The first messages that a filter selects, oldest first.
#[derive(Debug, Default)]
pub(super) struct RetryList {
    pub listed: Vec<ListedRetry>,
    /// Whether the filter selects more of them.
    pub is_more: bool,
}

/// The filter in the query of a page.
pub(super) fn filter_of(query: &UrlQuery) -> RetryMessageFilter {
    RetryMessageFilter {
        listener: query.get("listener").map(str::to_owned),
        reason: query.get("reason").map(str::to_owned),
    }
}

/// The query of a page with this filter.
pub(super) fn query_of(filter: &RetryMessageFilter) -> UrlQuery {
    let query = UrlQuery::default().with("reason", filter.reason.as_deref());
    query.with("listener", filter.listener.as_deref())
}

/// The messages of one journal that a filter selects, with one more than a page has.
pub(super) fn find(
    index: &IndexReader,
    filter: &RetryMessageFilter,
) -> Result<Vec<RetryMessage>, Error> {
    retry_messages(index, filter, limits::WEB_PAGE_ROWS + 1)
}

impl RetryList {
    pub fn of(found: impl IntoIterator<Item = (u32, Vec<RetryMessage>)>) -> Self {
        let listed = found.into_iter().flat_map(|(partition, messages)| {
            messages.into_iter().map(move |message| ListedRetry { partition, message })
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by(|one, other| one.message.time.cmp(&other.message.time));
        let is_more = listed.len() > limits::WEB_PAGE_ROWS;
        listed.truncate(limits::WEB_PAGE_ROWS);
        Self { listed, is_more }
    }

    /// The messages as a table. A person who may act has a link to each retry beside its message,
    /// where a narrow window shows it, and others have the command at the end.
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

    /// The messages as a table without actions.
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
            // A refused submission is no message on record, and has no page.
            @if is_refused { code title=(id) { "…" (last) } } @else { (message::link(message.id)) }
        },
        html! {
            (filtered("reason", &message.reason))
            @if is_refused { " (refused)" }
        },
        inline(&message.sender),
        html! { @if let Some(to) = &message.listener { (filtered("listener", to)) } },
        seconds(&message.time),
    ]
}

/// A time in RFC 3339, shown in whole seconds.
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

/// The section with the list, its filter, and the retry of all that the filter selects.
pub(super) fn section(list: &RetryList, filter: &RetryMessageFilter, may_act: bool) -> Markup {
    let is_filtered = filter.listener.is_some() || filter.reason.is_some();
    html! {
        h2 #retry { "Can be retried" }
        @if list.listed.is_empty() && !is_filtered {
            p.empty { "No request of a client that failed or was refused waits for a retry." }
        } @else {
            (filter_form(filter, is_filtered))
            @if list.listed.is_empty() {
                p.empty { "No request that failed or was refused matches." }
            } @else {
                (list.table(may_act))
                @if list.is_more {
                    p.hint { "There are more; these are the oldest " (list.listed.len()) "." }
                }
                (all_of_them(list, filter, may_act))
            }
        }
    }
}

fn filter_form(filter: &RetryMessageFilter, is_filtered: bool) -> Markup {
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

fn all_of_them(list: &RetryList, filter: &RetryMessageFilter, may_act: bool) -> Markup {
    html! {
        @if may_act {
            p.buttons {
                a.button data-entry href=(operate::retry_all_path(filter)) {
                    "Retry these " (list.listed.len())
                }
            }
        } @else {
            p {
                "To retry all that the filter selects, type "
                code { (command(filter)) } ". A view with " code { "--operate" } " does it here."
            }
        }
        p.hint {
            "Left out: calls of listeners, whose callers deal with failures, and what was retried \
             before. What may have been done already needs a confirmation of its own."
        }
    }
}

/// The command that retries all that a filter selects.
fn command(filter: &RetryMessageFilter) -> String {
    let mut command = "organism retry --all".to_owned();
    let options = [("--reason", &filter.reason), ("--listener", &filter.listener)];
    for (option, value) in options {
        let Some(value) = value else { continue };
        // A value that begins with a hyphen is no option.
        command.push_str(&format!(" {option}={}", in_shell(value)));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_filter_is_one_word_of_the_command() {
        let filter = RetryMessageFilter {
            reason: Some("x'; rm -rf /; '\u{202e}".to_owned()),
            listener: Some("--all".to_owned()),
        };
        let text = command(&filter);
        assert_eq!(
            text,
            "organism retry --all --reason='x'\\''; rm -rf /; '\\''\\u{202e}' --listener=--all"
        );
    }
}
