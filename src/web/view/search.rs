//! The page that searches messages and refusals by words and properties, newest first, like
//! `organism search`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::conversation::{self, MessageContext};
use super::filters::more_filters;
use super::layout::{grouped, inline, moment, shown};
use super::payload_text::PageRoom;
use super::url_query::UrlQuery;
use super::{ViewState, thread};
use crate::audit::{SearchRequest, SearchResult, SearchedItem, past_time, search};
use crate::clock::Time;
use crate::envelope::{Disposition, MessageKind, RefusalRule};
use crate::ids::ThreadId;
use crate::index::{HitCount, IndexReader, SearchFilter, check_words};
use crate::limits;

const PATH: &str = "/search";

/// Text fields of the search form, each with its name in the URL, its label and an example.
const FIELDS: [(&str, &str, &str); 7] = [
    ("payload", "Payload", ""),
    ("from", "From", ""),
    ("to", "To", ""),
    ("rule", "Rule of a refusal", "schema-invalid"),
    ("thread", "Within thread", ""),
    ("since", "Since", "2h, 2026-11-20"),
    ("until", "Until", "1d, 2026-11-20"),
];

pub(super) async fn show(State(view): State<Arc<ViewState>>, query: UrlQuery) -> Response {
    if query.is_empty() {
        let content = html! {
            h1 { "Search" }
            (form(&query))
            p.hint {
                "Words, " code { "begin*" } " for the beginning of a word, and "
                code { "\"words in a row\"" } ". The id of a message or of a thread is found, too."
            }
        };
        return view.page("Search", PATH, &content);
    }

    let filter = match read(&query) {
        Ok(filter) => filter,
        Err(problem) => {
            let content = html! {
                h1 { "Search" }
                (form(&query))
                p.problem role="alert" { (shown(&problem)) }
            };
            return (StatusCode::BAD_REQUEST, view.page("Search", PATH, &content)).into_response();
        }
    };

    let limit = limits::WEB_PAGE_ROWS;
    let within = filter.within.clone();
    let request = SearchRequest { filter, limit, ..SearchRequest::default() };
    let find = move |_, index: &mut IndexReader| {
        let within = request.filter.within.as_ref();
        let is_recorded = match within {
            Some(thread) => index.opened_at(thread)?.is_some(),
            None => true,
        };
        Ok((search(index, &request)?, is_recorded))
    };
    view.respond(find, move |view, answers| {
        let answers: Vec<_> = answers.into_iter().map(|found| found.answer).collect();
        if let Some(thread) =
            within.filter(|_| !answers.iter().any(|(_, is_recorded)| *is_recorded))
        {
            return thread::missing(view, thread.as_str());
        }
        let results = answers.into_iter().map(|(result, _)| result);
        view.page("Search", PATH, &content(&query, &merge(results, limit)))
    })
    .await
}

fn read(query: &UrlQuery) -> Result<SearchFilter, String> {
    let text = |name: &str| query.get(name).map(str::to_owned);
    let time = |name: &str| query.get(name).map(past_time::parse).transpose();
    let thread = query
        .get("thread")
        .map(|id| ThreadId::parse(id).map_err(|_| format!("`{id}` is no id of a thread")));
    let known = [("kind", kinds()), ("disposition", dispositions()), ("rule", rules())];
    for (name, known) in known {
        if let Some(text) = query.get(name).filter(|text| !known.contains(text)) {
            return Err(format!("`{text}` is not a {name}; write one of {}", known.join(", ")));
        }
    }

    let filter = SearchFilter {
        words: text("words").unwrap_or_default(),
        payload: text("payload"),
        from: text("from"),
        to: text("to"),
        kind: text("kind"),
        disposition: text("disposition"),
        rule: text("rule"),
        since: time("since")?,
        until: time("until")?,
        within: thread.transpose()?,
        id: None,
    };
    check_words(&filter.words).map_err(|error| error.to_string())?;
    Ok(filter)
}

/// Merges the results of all journals, newest first, and keeps at most `limit` of them.
fn merge(results: impl Iterator<Item = SearchResult>, limit: usize) -> SearchResult {
    let mut merged = SearchResult { items: Vec::new(), total: HitCount::Exact(0), unevaluated: 0 };
    for result in results {
        merged.items.extend(result.items);
        merged.total = merged.total.plus(result.total);
        merged.unevaluated += result.unevaluated;
    }
    // The sort is stable, and each journal's results are in the order of its records.
    merged.items.sort_by_key(SearchedItem::time);
    merged.items.reverse();
    merged.items.truncate(limit);
    merged
}

fn content(query: &UrlQuery, result: &SearchResult) -> Markup {
    let shown = result.items.len() as u64;
    let total = match result.total {
        HitCount::Exact(number) => grouped(number),
        HitCount::MoreThan(number) => format!("more than {}", grouped(number)),
        HitCount::AtLeast(number) => format!("{} or more", grouped(number)),
    };
    let room = PageRoom::new();
    html! {
        h1 { "Search" }
        (form(query))
        p role="status" {
            @if result.total == HitCount::Exact(0) { "Nothing matches." } @else {
                (grouped(shown)) " of " (total) ", newest first"
                @if result.total.number() > shown { "; narrow the search to see others" }
            }
        }
        ol.events.found { @for item in &result.items { (found(item, &room)) } }
    }
}

fn found(item: &SearchedItem, room: &PageRoom) -> Markup {
    match item {
        SearchedItem::Message(message) => {
            let time = time_and_thread(message.at, Some(message.thread.as_str()));
            conversation::message(message, &time, MessageContext::Search, room)
        }
        SearchedItem::Refusal(refusal) => {
            let at = Time::parse(&refusal.time).unwrap_or(Time(0));
            let thread = refusal.thread.as_ref().map(ThreadId::as_str);
            conversation::refused(refusal, false, None, &time_and_thread(at, thread), room)
        }
    }
}

fn time_and_thread(at: Time, thread: Option<&str>) -> Markup {
    html! {
        div.when {
            (moment(at))
            @if let Some(id) = thread { " " a href=(super::thread::path(id)) { (inline(id)) } }
        }
    }
}

/// Returns the values of the field `kind` in the search form: every kind of message, and `refusal`.
fn kinds() -> Vec<&'static str> {
    let kinds = MessageKind::ALL.map(MessageKind::as_str);
    [&kinds[..], &["refusal"]].concat()
}

fn dispositions() -> Vec<&'static str> {
    Disposition::ALL.map(Disposition::as_str).to_vec()
}

fn rules() -> Vec<&'static str> {
    RefusalRule::ALL.map(RefusalRule::as_str).to_vec()
}

fn form(query: &UrlQuery) -> Markup {
    let value = |name: &str| query.get(name).unwrap_or_default().to_owned();
    let kinds = kinds();
    let dispositions = dispositions();
    html! {
        form.filters method="get" action=(PATH) role="search" aria-label="Messages" {
            div {
                label for="words" { "Words" }
                input #words name="words" type="search" value=(value("words"));
            }
            (choice(query, "kind", "Kind", &kinds))
            (choice(query, "disposition", "Disposition", &dispositions))
            button type="submit" { "Search" }
            a href=(PATH) { "Clear" }
            (more_filters(query, &FIELDS))
        }
    }
}

fn choice(query: &UrlQuery, name: &str, label: &str, values: &[&str]) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                option value="" { "any" }
                @for value in values {
                    option value=(value) selected[query.get(name) == Some(*value)] { (value) }
                }
            }
        }
    }
}
