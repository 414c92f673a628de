//! The list of requests that operators may retry, on the page of refusals and failures.

use maud::{Markup, html};

use super::layout::{cut, inline, shown, table};
use super::operate::{RetryFacts, RetryOutlook, RetryPredictor};
use super::url_query::UrlQuery;
use super::{message, operate, record_entry, refused, thread};
use crate::audit::{RetryMessage, UnknownFilterValue, retry_messages, unknown_filter_values};
use crate::config::in_shell;
use crate::index::{Error, IndexReader, RetryFilter};
use crate::limits;
use crate::plural::count;

/// A row in the list of messages that can be retried, or in the list of messages that cannot.
/// Contains the message, the partition of its journal, and the further content of the row.
#[derive(Debug, Clone)]
pub(super) struct ListedRetry {
    pub partition: u32,
    pub message: RetryMessage,
    pub facts: RetryFacts,
}

/// Failed or refused messages of one journal, each with the content of its row in a list.
pub(super) type FoundRetries = Vec<(RetryMessage, RetryFacts)>;

/// Heading of the list of messages that can be retried, and name of each link to this list.
pub(super) const TITLE: &str = "Can be retried";

/// A page of the list of retryable messages: the filter, and the number of messages before the
/// page.
#[derive(Debug, Clone, Default)]
pub(super) struct RetryPage {
    filter: RetryFilter,
    /// Number of messages before the page.
    skipped: usize,
}

impl RetryPage {
    /// Reads the page from the parameters of a URL. Fails with a text about the wrong parameter.
    pub fn read(query: &UrlQuery) -> Result<Self, String> {
        let skipped = query.skipped(limits::RETRIES_MAX)?;
        Ok(Self {
            filter: RetryFilter {
                listener: query.get("listener").map(str::to_owned),
                reason: query.get("reason").map(str::to_owned),
                is_unretriable: false,
            },
            skipped,
        })
    }

    /// Returns the values of the filter that neither this program nor the config knows, as
    /// [`unknown_filter_values`] does.
    pub fn unknown_values(&self, callees: Option<&[String]>) -> Vec<UnknownFilterValue> {
        unknown_filter_values(&self.filter, callees)
    }

    /// Returns the URL query of this page.
    pub fn query(&self) -> UrlQuery {
        let query = UrlQuery::default().with("reason", self.filter.reason.as_deref());
        query.with("listener", self.filter.listener.as_deref()).with_skipped(self.skipped)
    }

    fn after(&self, skipped: usize) -> Self {
        Self { skipped, ..self.clone() }
    }

    /// Finds the messages of one journal for this page and all pages before it, and one more
    /// message if there is a next page.
    pub fn find(
        &self,
        index: &IndexReader,
        predictor: &RetryPredictor,
    ) -> Result<FoundRetries, Error> {
        let most = self.skipped + limits::WEB_PAGE_ROWS + 1;
        with_facts(index, predictor, retry_messages(index, &self.filter, most)?)
    }

    /// Finds the oldest messages of one journal whose retry can never succeed: as many as the page
    /// shows, and one more if the list continues.
    pub fn find_unretriable(
        &self,
        index: &IndexReader,
        predictor: &RetryPredictor,
    ) -> Result<FoundRetries, Error> {
        let filter = RetryFilter { is_unretriable: true, ..self.filter.clone() };
        with_facts(index, predictor, retry_messages(index, &filter, limits::WEB_PAGE_ROWS + 1)?)
    }
}

fn with_facts(
    index: &IndexReader,
    predictor: &RetryPredictor,
    messages: Vec<RetryMessage>,
) -> Result<FoundRetries, Error> {
    let with_facts = |message: RetryMessage| {
        let facts = predictor.facts(index, &message)?;
        Ok((message, facts))
    };
    messages.into_iter().map(with_facts).collect()
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
    pub fn of(found: impl IntoIterator<Item = (u32, FoundRetries)>, page: &RetryPage) -> Self {
        Self::after(found, page.skipped)
    }

    /// Creates the list for the first page from the messages of each partition.
    pub fn first(found: impl IntoIterator<Item = (u32, FoundRetries)>) -> Self {
        Self::after(found, 0)
    }

    fn after(found: impl IntoIterator<Item = (u32, FoundRetries)>, skipped: usize) -> Self {
        let listed = found.into_iter().flat_map(|(partition, messages)| {
            let listed = move |(message, facts)| ListedRetry { partition, message, facts };
            messages.into_iter().map(listed)
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by(|one, other| one.message.time.cmp(&other.message.time));
        listed.drain(..skipped.min(listed.len()));
        let is_more = listed.len() > limits::WEB_PAGE_ROWS;
        listed.truncate(limits::WEB_PAGE_ROWS);
        Self { listed, is_more }
    }

    /// Returns the messages that the organism sends again if a person retries all messages of the
    /// page.
    pub fn sent(&self) -> impl Iterator<Item = &ListedRetry> {
        self.listed.iter().filter(|listed| listed.facts.outlook == RetryOutlook::Sent)
    }

    /// Returns the messages that the organism does not send again if a person retries all messages
    /// of the page.
    pub fn left_out(&self) -> impl Iterator<Item = &ListedRetry> {
        self.listed.iter().filter(|listed| listed.facts.outlook != RetryOutlook::Sent)
    }

    /// Draws the messages as a table. If `may_act` is true, the second column links to the retry,
    /// and narrow windows show this column, too. Otherwise, the last column shows the command for
    /// the retry.
    pub fn table(&self, may_act: bool) -> Markup {
        let headers = if may_act {
            ["Message", "Action", "Reason", "Thread", "From", "To", "Time"]
        } else {
            ["Message", "Reason", "Thread", "From", "To", "Time", "At the terminal"]
        };
        let rows = self.listed.iter().map(|listed| {
            let mut row = row(listed);
            let place = if may_act { 1 } else { row.len() };
            row.insert(place, action(&listed.message, may_act));
            row
        });
        table("Messages that can be retried", &headers, &rows.collect::<Vec<_>>())
    }

    /// Draws a table of messages, each with the reason why its retry cannot succeed.
    fn unretriable_table(&self) -> Markup {
        let row = |listed: &ListedRetry| {
            let mut row = row(listed);
            let obstacle = listed.message.obstacle.as_ref().map(ToString::to_string);
            row.push(html! { (shown(&obstacle.unwrap_or_default())) });
            row
        };
        let headers =
            ["Message", "Reason", "Thread", "From", "To", "Time", "Why no retry can succeed"];
        let rows: Vec<_> = self.listed.iter().map(row).collect();
        table("Messages whose retry cannot succeed", &headers, &rows)
    }
}

/// Draws messages as a table that offers no actions.
pub(super) fn plain_table<'l>(
    caption: &str,
    messages: impl Iterator<Item = &'l ListedRetry>,
) -> Markup {
    let rows: Vec<_> = messages.map(row).collect();
    table(caption, &["Message", "Reason", "Thread", "From", "To", "Time"], &rows)
}

fn row(listed: &ListedRetry) -> Vec<Markup> {
    let ListedRetry { message, facts, .. } = listed;
    let is_refused = message.listener.is_none();
    // A refused submission is no recorded message, so its record shows it.
    let path =
        if is_refused { record_entry::path(message.record) } else { message::path(message.id) };
    let filtered = |name: &str, value: &str| {
        let path = UrlQuery::default().with(name, Some(value)).link(refused::PATH);
        html! { a href=(path) { (inline(value)) } }
    };
    vec![
        html! {
            a data-entry href=(path) title=(message.id) {
                @if facts.name.is_empty() { "what was sent" } @else { (inline(&facts.name)) }
            }
            @if !facts.payload.is_empty() { " " span.wraps { (inline(&facts.payload)) } }
        },
        reason(listed, &filtered("reason", &message.reason)),
        html! {
            @if let Some(id) = &facts.thread {
                a href=(thread::path(id.as_str())) { (inline(id.as_str())) }
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

/// Draws the reason why a message failed, and the expected result of a retry.
fn reason(listed: &ListedRetry, link: &Markup) -> Markup {
    let ListedRetry { message, facts, .. } = listed;
    let (detail, more) = cut(&facts.detail, limits::WEB_REASON_CHARS);
    html! {
        (link)
        @if message.listener.is_none() { " (refused)" }
        @if !detail.is_empty() { ": " span.wraps { (inline(detail)) (more) } }
        @if message.obstacle.is_none() {
            (outlook(&facts.outlook))
            @if is_repeated(listed) { " " span.outlook { "may have been done already" } }
        }
    }
}

/// Whether the page must warn that a retry may do the work of the message a second time. True if
/// the listener may have done the work already and the retry needs no confirmation.
pub(super) fn is_repeated(listed: &ListedRetry) -> bool {
    matches!(listed.facts.outlook, RetryOutlook::Sent) && listed.facts.repeated.is_some()
}

/// Draws the expected result of a retry. Draws nothing if the organism is expected to send the
/// message again.
fn outlook(outlook: &RetryOutlook) -> Markup {
    html! {
        @if let Some(text) = outlook_text(outlook) { " " span.outlook { (inline(&text)) } }
    }
}

/// Describes the expected result of a retry. Returns `None` if the organism is expected to send the
/// message again.
pub(super) fn outlook_text(outlook: &RetryOutlook) -> Option<String> {
    match outlook {
        RetryOutlook::Sent => None,
        RetryOutlook::NeedsConfirmation(why) => {
            Some(format!("needs a confirmation of its own: {why}"))
        }
        RetryOutlook::NeedsChange(why) => Some(why.clone()),
    }
}

/// Draws a time in whole seconds. `time` is in RFC 3339 and UTC.
fn seconds(time: &str) -> Markup {
    let day = time.get(..10).unwrap_or(time);
    let clock = time.get(11..19).unwrap_or_default();
    html! { time datetime=(time) { (day) " " (clock) "Z" } }
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
        h2 #retry { (TITLE) }
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
            nav.pages aria-label={ "Pages: " (TITLE) } {
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
    let all = list.listed.len();
    let sent = list.sent().count();
    html! {
        @if !may_act {
            p {
                "To retry all that the filter selects, type "
                code { (command(&page.filter)) } ". A view with " code { "--operate" } " does it here."
            }
        } @else if sent > 0 {
            p.buttons {
                a.button data-entry href=(operate::retry_all_path(page)) {
                    @if sent == all { "Retry these " (all) }
                    @else { "Retry " (sent) " of these " (all) }
                }
            }
        }
        (left_out(list, may_act))
        p.hint {
            "Not in this list of what can be retried: calls of listeners, whose callers deal with failures, and what was \
             retried before."
        }
    }
}

/// Draws up to two notes about the messages that cannot be retried together with the whole page:
/// - A note about messages that each need a separate confirmation. Every retry of the page leaves
///   them out.
/// - A note about messages that would be refused or fail again. If `may_act` is true, the button
///   for the retry leaves them out. Otherwise, the page has no button, but a command, which retries
///   them, too. The note then states that they would fail.
pub(super) fn left_out(list: &RetryList, may_act: bool) -> Markup {
    let counted = |is_kind: fn(&RetryOutlook) -> bool| {
        list.left_out().filter(|listed| is_kind(&listed.facts.outlook)).count() as u64
    };
    let unconfirmed = counted(|outlook| matches!(outlook, RetryOutlook::NeedsConfirmation(_)));
    let refused = counted(|outlook| matches!(outlook, RetryOutlook::NeedsChange(_)));
    html! {
        @if unconfirmed > 0 {
            p.note {
                "Left out: " (count(unconfirmed, "message")) " whose retry needs a confirmation of \
                 its own, because the work may be done a second time: retry each alone."
            }
        }
        @if refused > 0 {
            p.note {
                @if may_act { "Left out: " } @else { "A retry would fail now: " }
                (count(refused, "message")) " that would be refused or fail again. The row of each \
                 says what to change first"
                @if may_act { "; then retry it alone" }
                "."
            }
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

    fn message() -> RetryMessage {
        RetryMessage {
            id: crate::ids::MessageId(uuid::Uuid::from_u128(1)),
            record: crate::ids::Position(1),
            tree: crate::ids::ThreadId::parse("sess-retries1").unwrap(),
            sender: "desk".to_owned(),
            listener: Some("solo".to_owned()),
            reason: "budget-spent".to_owned(),
            time: "2026-11-26T10:00:00Z".to_owned(),
            obstacle: None,
        }
    }

    #[test]
    fn a_retry_of_all_leaves_out_what_would_fail_again() {
        let listed = |outlook| ListedRetry {
            partition: 0,
            message: message(),
            facts: RetryFacts { outlook, ..RetryFacts::default() },
        };
        let change = RetryOutlook::NeedsChange("fails again".to_owned());
        let list =
            RetryList { listed: vec![listed(change), listed(RetryOutlook::Sent)], is_more: false };
        assert_eq!(list.sent().count(), 1);
        assert_eq!(list.left_out().count(), 1);
        let note = left_out(&list, true).into_string();
        assert!(note.contains("Left out: 1 message that would be refused or fail again"), "{note}");
    }

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
            "organism retry --all --reason=$'x\\'; rm -rf /; \\'\\342\\200\\256' --listener=--all"
        );
    }
}
