//! The page with refusals and failures: retryable messages, counts by reason, and the newest
//! failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{grouped, inline, moment, table};
use super::retry_list::{self, RetryList, RetryPage};
use super::url_query::UrlQuery;
use super::{ViewState, message, thread};
use crate::audit::{RetryMessage, Stats, StatsKey, StatsQuery, stats};
use crate::index::{ErrorCount, IndexReader, ListedError};
use crate::limits;

pub(super) const PATH: &str = "/refused";

/// Keys by which refusals are counted.
const KEYS: [StatsKey; 3] = [StatsKey::Rule, StatsKey::Agent, StatsKey::Day];

/// Maximum characters of a failure's detail.
const DETAIL_CHARS: usize = 300;

/// Refusals and failures of all journals.
#[derive(Default)]
struct Faults {
    refusals: Stats,
    counts: BTreeMap<(String, Option<String>), u64>,
    /// Calls that people denied, by kind and listener.
    denials: BTreeMap<(String, Option<String>), u64>,
    errors: Vec<ListedError>,
    retries: RetryList,
    unretriable: RetryList,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, uri: Uri) -> Response {
    let page = RetryPage::read(&UrlQuery::parse(uri.query().unwrap_or_default()));
    let wanted = page.clone();
    view.respond(
        move |_, index| find(index, &wanted),
        move |view, answers| {
            let mut faults = Faults::default();
            let mut retries = Vec::new();
            let mut unretriable = Vec::new();
            for found in answers {
                let FoundFaults { refusals, counts, denials, errors, messages, unretriable: own } =
                    found.answer;
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
            faults.errors.sort_by_key(|error| std::cmp::Reverse(error.time));
            faults.errors.truncate(limits::WEB_PAGE_ROWS);
            faults.retries = RetryList::of(retries, &page);
            faults.unretriable = RetryList::first(unretriable);
            let may_act = view.operate.is_some();
            view.page("Refused and failed", PATH, &content(&faults, &page, may_act))
        },
    )
    .await
}

/// Refusals and failures of one journal.
struct FoundFaults {
    refusals: Stats,
    counts: Vec<ErrorCount>,
    denials: Vec<ErrorCount>,
    errors: Vec<ListedError>,
    messages: Vec<RetryMessage>,
    /// Messages whose retry cannot succeed.
    unretriable: Vec<RetryMessage>,
}

fn find(index: &IndexReader, page: &RetryPage) -> Result<FoundFaults, crate::index::Error> {
    let query = StatsQuery { by: KEYS.to_vec(), since: None, until: None };
    Ok(FoundFaults {
        refusals: stats(index, &query)?,
        counts: index.error_counts()?,
        denials: index.denial_counts()?,
        errors: index.newest_errors(limits::WEB_PAGE_ROWS)?,
        messages: page.find(index)?,
        unretriable: page.find_unretriable(index)?,
    })
}

fn content(faults: &Faults, page: &RetryPage, may_act: bool) -> Markup {
    let refusals: Vec<_> = faults.refusals.0.iter().take(limits::WEB_ROWS_MAX).collect();
    let refusals: Vec<_> =
        refusals.into_iter().map(|(keys, group)| refusal_row(keys, group.refusals)).collect();
    let counts = faults.counts.iter().take(limits::WEB_ROWS_MAX);
    let counts: Vec<_> = counts.map(|(keys, errors)| count_row(keys, *errors)).collect();
    let denials = faults.denials.iter().take(limits::WEB_ROWS_MAX);
    let denials: Vec<_> =
        denials.map(|((_, listener), calls)| denial_row(listener, *calls)).collect();
    let errors: Vec<_> = faults.errors.iter().map(error_row).collect();
    html! {
        h1 { "Refused and failed" }
        (retry_list::section(&faults.retries, &faults.unretriable, page, may_act))
        h2 { "Refused by the gate" }
        @if refusals.is_empty() { p.empty { "Nothing was refused." } } @else {
            (table("Refusals by rule, sender and day",
                &["Rule", "Sender", "Day", ">Refusals"], &refusals))
        }
        h2 #denied { "Denied by a person" }
        @if denials.is_empty() { p.empty { "No person denied a call." } } @else {
            (table("Denials by listener", &["Listener", ">Denials"], &denials))
            p.hint { "Each denial is a decision, with its reason among the " a href="/actions" { "actions" } "." }
        }
        h2 #failed { "Failed" }
        @if counts.is_empty() { p.empty { "Nothing failed." } } @else {
            (table("Failures by kind and listener", &["Kind", "Listener", ">Failures"], &counts))
            p.hint {
                "A failure is a failed attempt, or a call that ended with a fault. An attempt and the \
                 call that ended with it are one failure."
            }
            h2 { "The newest failures" }
            (table("The newest failures",
                &["Time", "Kind", "Listener", "Thread", "Message", "Detail"], &errors))
            @if faults.errors.len() == limits::WEB_PAGE_ROWS {
                p.hint {
                    "There may be more; " code { "organism sql" } " lists them: the view "
                    code { "error" } "."
                }
            }
        }
    }
}

/// Returns the path of the search for the refusals of a rule and of a sender.
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

fn count_row((kind, listener): &(String, Option<String>), errors: u64) -> Vec<Markup> {
    vec![inline(kind), inline(listener.as_deref().unwrap_or_default()), html! { (grouped(errors)) }]
}

fn denial_row(listener: &Option<String>, denials: u64) -> Vec<Markup> {
    vec![inline(listener.as_deref().unwrap_or_default()), html! { (grouped(denials)) }]
}

fn error_row(error: &ListedError) -> Vec<Markup> {
    let end = error.detail.char_indices().nth(DETAIL_CHARS).map(|(at, _)| at);
    let detail = error.detail.get(..end.unwrap_or(error.detail.len())).unwrap_or_default();
    vec![
        moment(error.time),
        inline(&error.kind),
        inline(error.listener.as_deref().unwrap_or_default()),
        html! { @if let Some(id) = &error.thread { a href=(thread::path(id)) { (inline(id)) } } },
        html! {
            @if let Some(id) = error.message { (message::link(id)) }
        },
        html! { span.wraps { (inline(detail)) @if end.is_some() { "…" } } },
    ]
}
