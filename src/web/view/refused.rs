//! The page with refusals and failures: the newest failures, the messages that can be retried, and
//! counts by reason.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{cut, grouped, inline, moment, rows_left, table};
use super::operate::{RetryPredictor, config_facts};
use super::payload_text::MessageWithPayload;
use super::retry_list::{self, FoundRetries, RetryList, RetryPage};
use super::url_query::UrlQuery;
use super::{NotInIndex, ViewState, actions, message, thread};
use crate::audit::{Stats, StatsKey, StatsQuery, UnknownFilterValue, stats};
use crate::index::{ErrorCount, IndexReader, ListedError};
use crate::limits;

pub(super) const PATH: &str = "/refused";

/// The properties by which the page groups and counts refusals: the broken rule, the sender of the
/// refused payload, and the day.
const KEYS: [StatsKey; 3] = [StatsKey::Rule, StatsKey::Agent, StatsKey::Day];
/// Index of the day in [`KEYS`].
const DAY: usize = 2;

/// Refusals and failures of all journals.
#[derive(Default)]
struct Faults {
    refusals: Stats,
    counts: BTreeMap<(String, Option<String>), u64>,
    /// Numbers of calls that people refused. A key consists of the kind of the failure and the
    /// listener of the call.
    denials: BTreeMap<(String, Option<String>), u64>,
    errors: Vec<FoundError>,
    retries: RetryList,
    unretriable: RetryList,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, query: UrlQuery) -> Response {
    let page = match RetryPage::read(&query) {
        Ok(page) => page,
        Err(problem) => return view.failed(StatusCode::BAD_REQUEST, "No such page", &problem),
    };
    let wanted = page.clone();
    let facts = config_facts(&view).await;
    let mut unknown = page.unknown_values(facts.callees.as_deref());
    let unknown_in_config = unknown.clone();
    view.respond(
        move |_, index| {
            let faults = find(index, &wanted, &facts.predictor)?;
            Ok((unrecorded(index, &unknown_in_config)?, faults))
        },
        move |view, answers| {
            for found in &answers {
                let (unrecorded, _) = &found.answer;
                unknown.retain(|value| unrecorded.contains(value));
            }
            if let Some(UnknownFilterValue { problem, .. }) = unknown.first() {
                let mut page = view.failed(StatusCode::BAD_REQUEST, "No such filter", problem);
                // The value may be in a record that the index lacks.
                page.extensions_mut().insert(NotInIndex);
                return page;
            }

            let mut faults = Faults::default();
            let mut retries = Vec::new();
            let mut unretriable = Vec::new();
            for found in answers {
                let (_, answer) = found.answer;
                let FoundFaults { refusals, counts, denials, errors, messages, unretriable: own } =
                    answer;
                retries.push((found.partition, messages));
                unretriable.push((found.partition, own));
                faults.refusals.add(refusals);
                for ErrorCount { kind, listener, errors } in counts {
                    *faults.counts.entry((kind, listener)).or_default() += errors;
                }
                for ErrorCount { kind, listener, errors } in denials {
                    *faults.denials.entry((kind, listener)).or_default() += errors;
                }
                faults.errors.extend(errors);
            }
            faults.errors.sort_by_key(|found| std::cmp::Reverse(found.error.time));
            faults.errors.truncate(limits::WEB_LAST_FAILURES);
            faults.retries = RetryList::of(retries, &page);
            faults.unretriable = RetryList::first(unretriable);
            let may_act = view.operate.is_some();
            view.page("Refused and failed", PATH, &content(&faults, &page, may_act))
        },
    )
    .await
}

/// Returns those of `values` that the journal of `index` does not contain.
fn unrecorded(
    index: &IndexReader,
    values: &[UnknownFilterValue],
) -> Result<Vec<UnknownFilterValue>, crate::index::Error> {
    let mut unrecorded = Vec::new();
    for value in values {
        if !index.has_name(&value.value)? {
            unrecorded.push(value.clone());
        }
    }
    Ok(unrecorded)
}

/// Refusals and failures of one journal.
struct FoundFaults {
    refusals: Stats,
    counts: Vec<ErrorCount>,
    denials: Vec<ErrorCount>,
    errors: Vec<FoundError>,
    messages: FoundRetries,
    /// Messages whose retry cannot succeed.
    unretriable: FoundRetries,
}

fn find(
    index: &IndexReader,
    page: &RetryPage,
    predictor: &RetryPredictor,
) -> Result<FoundFaults, crate::index::Error> {
    let query = StatsQuery { by: KEYS.to_vec(), since: None, until: None };
    Ok(FoundFaults {
        refusals: stats(index, &query)?,
        counts: index.error_counts()?,
        denials: index.denial_counts()?,
        errors: newest_errors(index)?,
        messages: page.find(index, predictor)?,
        unretriable: page.find_unretriable(index, predictor)?,
    })
}

/// A failure, with the message that opened the failed call.
struct FoundError {
    error: ListedError,
    message: Option<MessageWithPayload>,
}

fn newest_errors(index: &IndexReader) -> Result<Vec<FoundError>, crate::index::Error> {
    let with_message = |error: ListedError| {
        let message = match error.message {
            Some(id) => MessageWithPayload::find(index, id)?,
            None => None,
        };
        Ok(FoundError { error, message })
    };
    index.newest_errors(limits::WEB_LAST_FAILURES)?.into_iter().map(with_message).collect()
}

fn content(faults: &Faults, page: &RetryPage, may_act: bool) -> Markup {
    html! {
        h1 { "Refused and failed" }
        p.pages {
            a href="#failures" { "Newest failures" }
            a href="#retry" { (retry_list::TITLE) }
            a href="#refused" { "Refused by the gate" }
            a href="#denied" { "Refused by a person" }
            a href="#failed" { "Failed" }
        }
        (newest_failures(faults))
        (retry_list::section(&faults.retries, &faults.unretriable, page, may_act))
        (counts(faults))
    }
}

fn newest_failures(faults: &Faults) -> Markup {
    let errors: Vec<_> = faults.errors.iter().map(error_row).collect();
    let headers = ["Time", "Kind", "Listener", "Thread", "Message", "Detail"];
    html! {
        h2 #failures { "The newest failures" }
        @if errors.is_empty() { p.empty { "Nothing failed." } } @else {
            (table("The newest failures", &headers, &errors))
        }
        @if errors.len() == limits::WEB_LAST_FAILURES {
            p.hint {
                "There may be more; " code { "organism sql" } " lists them: the view "
                code { "error" } "."
            }
        }
    }
}

/// Draws tables with the numbers of refusals and failures, by reason. Refusals of the newest days
/// come first.
fn counts(faults: &Faults) -> Markup {
    let mut refusals: Vec<_> = faults.refusals.0.iter().collect();
    // The table has a limited number of rows, and grows with each day.
    refusals.sort_by_key(|(keys, _)| Reverse(keys.get(DAY)));
    let refusals = refusals.into_iter().take(limits::WEB_ROWS_MAX);
    let refusals: Vec<_> =
        refusals.map(|(keys, group)| refusal_row(keys, group.refusals)).collect();
    let denials = faults.denials.iter().take(limits::WEB_ROWS_MAX);
    let denials: Vec<_> =
        denials.map(|((_, listener), calls)| denial_row(listener, *calls)).collect();
    let counts = faults.counts.iter().take(limits::WEB_ROWS_MAX);
    let counts: Vec<_> = counts.map(|(keys, errors)| count_row(keys, *errors)).collect();

    let refusals_left = faults.refusals.0.len() - refusals.len();
    let denials_left = faults.denials.len() - denials.len();
    let counts_left = faults.counts.len() - counts.len();
    let in_stats = html! { code { "organism stats --by rule,agent,day" } " shows them all" };
    let in_actions =
        html! { "the page " a href=(actions::PATH) { "Actions" } " lists each of them" };
    let in_view = html! {
        "the view " code { "error" } " of " code { "organism sql" } " lists each of them; an attempt \
         and the call that ended with it are two rows"
    };
    html! {
        h2 #refused { "Refused by the gate" }
        @if refusals.is_empty() { p.empty { "Nothing was refused." } } @else {
            (table("Refusals by rule, sender and day",
                &["Rule", "Sender", "Day", ">Refusals"], &refusals))
            (rows_left(refusals_left, &in_stats))
        }
        h2 #denied { "Refused by a person" }
        @if denials.is_empty() { p.empty { "No person refused a call." } } @else {
            (table("Refusals of people by listener", &["Listener", ">Refusals"], &denials))
            (rows_left(denials_left, &in_actions))
            p.hint {
                "Each of them is a decision, with its person and its reason among the "
                a href=(actions::PATH) { "actions" } "."
            }
        }
        h2 #failed { "Failed" }
        @if counts.is_empty() { p.empty { "Nothing failed." } } @else {
            (table("Failures by kind and listener", &["Kind", "Listener", ">Failures"], &counts))
            (rows_left(counts_left, &in_view))
            p.hint {
                "A failure is a failed attempt, or a call that ended with a fault. An attempt and the \
                 call that ended with it are one failure. A later attempt, or a retry, may have \
                 succeeded."
            }
        }
    }
}

/// Returns the path of the search page with refused payloads. `rule` is the rule that the payloads
/// broke, and `sender` is their sender. `None` stands for every rule or every sender.
pub(super) fn refusals_path(rule: Option<&str>, sender: Option<&str>) -> String {
    let query = UrlQuery::default().with("kind", Some("refusal"));
    query.with("rule", rule).with("from", sender).link("/search")
}

fn refusal_row(keys: &[String], refusals: u64) -> Vec<Markup> {
    let key = |at: usize| keys.get(at).map(String::as_str).unwrap_or_default();
    let rule = key(0);
    let sender = key(1);
    vec![
        // Refusals with `busy` are only counted, so the search finds no rows for them.
        html! {
            @if rule == "busy" { (inline(rule)) } @else {
                a data-entry href=(refusals_path(Some(rule), Some(sender))) { (inline(rule)) }
            }
        },
        inline(sender),
        inline(key(2)),
        html! { (grouped(refusals)) },
    ]
}

/// Draws how many calls to one listener failed with one kind of failure. The number links to the
/// list of the threads that called this listener and have failures.
fn count_row((kind, listener): &(String, Option<String>), errors: u64) -> Vec<Markup> {
    let listener = listener.as_deref();
    let path = UrlQuery::default().with("errors", Some("on")).with("listener", listener);
    vec![
        inline(kind),
        inline(listener.unwrap_or_default()),
        html! { a href=(path.link("/threads")) { (grouped(errors)) } },
    ]
}

fn denial_row(listener: &Option<String>, denials: u64) -> Vec<Markup> {
    vec![
        inline(listener.as_deref().unwrap_or_default()),
        html! { a href=(actions::PATH) { (grouped(denials)) } },
    ]
}

fn error_row(found: &FoundError) -> Vec<Markup> {
    let FoundError { error, message } = found;
    let (detail, more) = cut(&error.detail, limits::WEB_REASON_CHARS);
    vec![
        moment(error.time),
        inline(&error.kind),
        inline(error.listener.as_deref().unwrap_or_default()),
        html! { @if let Some(id) = &error.thread { a href=(thread::path(id)) { (inline(id)) } } },
        html! {
            @if let Some(found) = message {
                a href=(message::path(found.message.id)) { (inline(found.local_name())) } " "
                (found.payload())
            } @else if let Some(id) = error.message { (message::link(id)) }
        },
        html! { span.wraps { (inline(detail)) (more) } },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::EventTotals;

    #[test]
    fn full_tables_keep_the_newest_day_and_state_what_they_leave_out() {
        let mut faults = Faults::default();
        let refusals = EventTotals { refusals: 1, ..EventTotals::default() };
        for number in 0..limits::WEB_ROWS_MAX {
            let name = format!("agent-{number:03}");
            let keys = ["bad-label", &name, "2026-01-02"].map(str::to_owned).into();
            faults.refusals.0.insert(keys, refusals.clone());
        }
        let content = counts(&faults).into_string();
        assert!(!content.contains("more row"), "{content}");

        // The rule is the last one in alphabetical order.
        let keys = ["schema-invalid", "writer", "2026-11-30"].map(str::to_owned).into();
        faults.refusals.0.insert(keys, refusals);
        for number in 0..=limits::WEB_ROWS_MAX {
            let listener = Some(format!("listener-{number:03}"));
            faults.denials.insert(("denied".to_owned(), listener.clone()), 1);
            faults.counts.insert(("timeout".to_owned(), listener), 1);
        }
        let content = counts(&faults).into_string();
        let rows = content.split("<tr>").nth(2);
        assert!(rows.is_some_and(|row| row.contains("2026-11-30")), "{rows:?}");
        assert_eq!(content.matches("1 more row; ").count(), 3, "{content}");
    }
}
