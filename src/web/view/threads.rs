//! The page with the list of threads. Threads that wait for a person come first. The URL contains
//! the filters of `organism threads`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::ViewState;
use super::filters::more_filters;
use super::journals::PartitionAnswer;
use super::layout::{grouped, inline, moment, shown, took, unless_zero};
use super::live;
use super::pauses;
use super::thread_status;
use super::url_query::UrlQuery;
use crate::audit::{PageCursor, PagedTree, ThreadPhase, TreePage, is_open_phase, past_time};
use crate::envelope::Money;
use crate::ids::ThreadId;
use crate::index::{IndexReader, TreeFilter, check_words};
use crate::limits;
use crate::thread::PauseTarget;

const PATH: &str = "/threads";

/// Text filters in the section "More filters": name in the URL, label and example.
const FILTERS: [(&str, &str, &str); 6] = [
    ("listener", "Listener called", ""),
    ("agent", "Agent at work", ""),
    ("payload", "Payload", ""),
    ("since", "Changed since", "2h, 2026-11-20"),
    ("until", "Opened before", "1d, 2026-11-20"),
    ("cost_over", "Cost over", "0.50"),
];

pub(super) async fn show(State(view): State<Arc<ViewState>>, query: UrlQuery) -> Response {
    let (filter, cursor, limit) = match read(&query) {
        Ok(read) => read,
        Err(problem) => {
            let content = html! {
                h1 { "Threads" }
                (form(&query))
                p.problem role="alert" { (shown(&problem)) }
            };
            let page = view.page("Threads", PATH, &content);
            return (StatusCode::BAD_REQUEST, page).into_response();
        }
    };

    // The lane is only on the first page, and only if not every row waits for a person.
    let has_lane = cursor.is_start() && !filter.needs_person;
    let lane_filter = TreeFilter { needs_person: true, ..filter.clone() };
    let before = cursor.clone();
    let find = move |partition, reader: &mut IndexReader| {
        let before = before.before(partition);
        // One more tree is read to find out whether there is another page.
        let list = reader.trees(&TreeFilter { before, ..filter.clone() }, limit + 1)?;
        let lane = if has_lane { reader.trees(&lane_filter, LANE_ROWS + 1)? } else { Vec::new() };
        Ok((list, lane, reader.pauses()?, reader.journal().last()?))
    };
    view.respond(find, move |view, answers| {
        let heads: Vec<_> = answers.iter().map(|found| (found.partition, found.answer.3)).collect();
        let verdict = view.prover.summary(&heads);
        let mut notes = notes(&answers);
        let pauses = pauses::distinct(answers.iter().flat_map(|found| &found.answer.2));
        // The frame of the page states the pause of everything.
        let pauses = pauses.into_iter().filter(|pause| pause.target != PauseTarget::All);
        notes.extend(pauses.map(pauses::describe));
        let is_divided = answers.len() > 1;
        let answers = answers.into_iter().map(|found| (found.partition, found.answer));
        let (list, lane): (Vec<_>, Vec<_>) =
            answers.map(|(n, (list, lane, ..))| ((n, list), (n, lane))).unzip();
        let list = TreePage::merge(list, cursor, limit);
        let lane = TreePage::merge(lane, PageCursor::default(), LANE_ROWS);
        let lists = ThreadLists { list, lane, is_divided };
        view.page("Threads", PATH, &content(&query, &lists, &notes, &verdict))
    })
    .await
}

/// The lists of threads on the page.
struct ThreadLists {
    list: TreePage,
    /// The first threads that wait for a person.
    lane: TreePage,
    /// Whether the lists come from the journals of several partitions.
    is_divided: bool,
}

/// Maximum number of rows in the list of threads that wait for a person. On the page, this list is
/// above the list of all threads.
const LANE_ROWS: usize = 20;

/// Reads the filters, the cursor and the number of rows from a URL.
fn read(query: &UrlQuery) -> Result<(TreeFilter, PageCursor, usize), String> {
    let text = |name: &str| query.get(name).map(str::to_owned);
    let time = |name: &str| query.get(name).map(past_time::parse).transpose();
    let status = text("status");
    if let Some(status) = &status
        && ThreadPhase::parse(status).is_none()
    {
        return Err(format!("`{status}` is no status of a thread"));
    }

    let cost_over = match query.get("cost_over") {
        Some(text) => {
            let amount = text.parse::<f64>().ok();
            let amount = amount.filter(|amount| amount.is_finite() && *amount >= 0.0);
            let amount = amount.ok_or_else(|| format!("`{text}` is no amount such as 0.50"))?;
            Some(Money::of_units(amount))
        }
        None => None,
    };
    let cursor = match query.get("before") {
        Some(text) => PageCursor::parse(text).ok_or_else(|| format!("`{text}` is no cursor"))?,
        None => PageCursor::default(),
    };

    let limit = query.rows("limit", limits::WEB_PAGE_ROWS)?;
    let words = text("words").unwrap_or_default();
    check_words(&words).map_err(|error| error.to_string())?;
    let filter = TreeFilter {
        status,
        since: time("since")?,
        until: time("until")?,
        listener: text("listener"),
        agent: text("agent"),
        payload: text("payload"),
        cost_over,
        has_errors: query.flag("errors")?,
        needs_person: query.flag("needs_you")?,
        words,
        is_without_organism: !query.flag("organism")?,
        before: None,
    };
    Ok((filter, cursor, limit))
}

/// Writes a warning for each index that still lacks records of its journal.
pub(super) fn notes<T>(answers: &[PartitionAnswer<T>]) -> Vec<String> {
    let note = |answer: &PartitionAnswer<_>| {
        answer.behind.map(|(position, last)| {
            format!("The index is at record {position} of {last}: later records are missing here.")
        })
    };
    answers.iter().filter_map(note).collect()
}

/// Draws notes about a live page. The page's script replaces them when it loads the page again.
pub(super) fn draw_notes(notes: &[String]) -> Markup {
    html! {
        div #notes {
            @for note in notes { p.note role="status" { (shown(note)) } }
        }
    }
}

fn content(query: &UrlQuery, lists: &ThreadLists, notes: &[String], verdict: &Markup) -> Markup {
    html! {
        h1 { "Threads" }
        (form(query))
        (draw_notes(notes))
        (live::line("/live/threads", &query.link(PATH)))
        div #live-rows { (rows(query, lists)) }
        (verdict)
    }
}

fn rows(query: &UrlQuery, lists: &ThreadLists) -> Markup {
    let ThreadLists { list, lane, is_divided } = lists;
    html! {
        @if !lane.trees.is_empty() {
            section.needs-you aria-labelledby="needs-you" {
                h2 #needs-you { "Needs you" }
                (table(&lane.trees, *is_divided, "Threads that wait for a person"))
                @if lane.has_more {
                    p.pages {
                        a href=(query.with("needs_you", Some("on")).link(PATH)) {
                            "All threads that wait for a person"
                        }
                    }
                }
            }
            h2 { "All" }
        }
        @if list.trees.is_empty() {
            p.empty {
                @if query.get("before").is_some() {
                    "No older threads."
                } @else if is_filtered(query) {
                    "No thread matches these conditions."
                } @else {
                    "No threads to list. " code { "organism send" } " starts one."
                }
            }
        } @else {
            (table(&list.trees, *is_divided, "Threads, newest first"))
        }
        (pages(query, list))
    }
}

/// Whether the URL contains a filter that may leave out threads of clients.
fn is_filtered(query: &UrlQuery) -> bool {
    let is_other = TreeFilter { is_without_organism: true, ..TreeFilter::default() };
    read(query)
        .is_ok_and(|(filter, ..)| TreeFilter { is_without_organism: true, ..filter } != is_other)
}

fn pages(query: &UrlQuery, list: &TreePage) -> Markup {
    html! {
        nav.pages aria-label="Pages of the list" {
            @if query.get("before").is_some() {
                a href=(query.with("before", None).link(PATH)) { "Newest threads" }
            }
            @if let Some(next) = list.next() {
                a rel="next" href=(query.with("before", Some(&next.to_string())).link(PATH)) {
                    "Older threads"
                }
            }
        }
    }
}

fn form(query: &UrlQuery) -> Markup {
    let value = |name: &str| query.get(name).unwrap_or_default().to_owned();
    html! {
        form.filters method="get" action=(PATH) role="search" aria-label="Threads" {
            div {
                label for="words" { "Words" }
                input #words name="words" type="search" value=(value("words"));
            }
            div {
                label for="status" { "Status" }
                select #status name="status" {
                    option value="" { "any" }
                    @for phase in ThreadPhase::ALL.map(ThreadPhase::as_str) {
                        option value=(phase) selected[query.get("status") == Some(phase)] { (phase) }
                    }
                }
            }
            (checkbox(query, "needs_you", "Needs you"))
            (checkbox(query, "errors", "Errors"))
            (checkbox(query, "organism", "With the organism's own"))
            button type="submit" { "Filter" }
            a href=(PATH) { "Clear" }
            (more_filters(query, &FILTERS))
        }
    }
}

fn checkbox(query: &UrlQuery, name: &str, label: &str) -> Markup {
    html! {
        div.check {
            input id=(name) name=(name) type="checkbox" checked[query.flag(name) == Ok(true)];
            label for=(name) { (label) }
        }
    }
}

fn table(trees: &[PagedTree], is_divided: bool, caption: &str) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table.threads.cards {
                caption.unseen { (caption) }
                thead {
                    tr {
                        th scope="col" { "Thread" }
                        th scope="col" { "Status" }
                        th scope="col" { "Changed" }
                        th.number scope="col" { "Took" }
                        th.number scope="col" { "Messages" }
                        th.number scope="col" { "Gate refusals" }
                        th.number scope="col" { "Errors" }
                        th.number scope="col" { "Tokens" }
                        th.number scope="col" { "Cost" }
                        th scope="col" { "Asked" }
                    }
                }
                tbody {
                    @for paged in trees { (row(paged, is_divided)) }
                }
            }
        }
    }
}

fn row(paged: &PagedTree, is_divided: bool) -> Markup {
    let tree = &paged.tree;
    // Each partition has a thread of this id.
    let partition = (is_divided && tree.thread == ThreadId::ORGANISM).then_some(paged.partition);
    let path = super::thread::path_in(partition, &tree.thread);
    let open = tree.messages.saturating_sub(tree.settled);
    let tokens = tree.tokens_in + tree.tokens_out + tree.tokens_charged;
    let cost = if tree.cost.is_zero() { String::new() } else { tree.costs.to_string() };
    html! {
        tr {
            th scope="row" {
                a data-entry href=(path) { (inline(&tree.thread)) }
                @if let Some(partition) = partition { ", partition " (partition) }
            }
            td data-label="Status" {
                (thread_status::of_tree(tree))
                @if let Some(fault) = &tree.fault { div.reason { (inline(fault)) } }
            }
            td data-label="Changed" { (moment(tree.updated)) }
            td.number data-label="Took" { (took(tree.opened, tree.worked, is_open_phase(&tree.status))) }
            td.number data-label="Messages" {
                (grouped(tree.messages))
                @if open > tree.waits.calls { span.open { ", " (grouped(open)) " unsettled" } }
                @if tree.waits.calls > 0 { span.open { ", " (grouped(tree.waits.calls)) " held" } }
            }
            td.number data-label="Gate refusals" { (unless_zero(tree.refusals)) }
            td.number.errors data-label="Errors" { (unless_zero(tree.errors.saturating_sub(tree.denials))) }
            td.number data-label="Tokens" { (unless_zero(tokens)) }
            td.number data-label="Cost" { (inline(&cost)) }
            td.request data-label="Asked" {
                b { (inline(tree.request_local.as_deref().unwrap_or_default())) }
                " "
                (inline(tree.first_words.as_deref().unwrap_or_default()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_filter_is_named() {
        for text in [
            "status=done",
            "since=yesterdayish",
            "cost_over=much",
            "before=7",
            "cost_over=NaN",
            "limit=501",
            "limit=0",
            "cost_over=-1",
            "errors=perhaps",
            "needs_you=2",
            "organism=no",
            "words=€",
        ] {
            let query = UrlQuery::parse(text);
            let (_, value) = text.split_once('=').unwrap();
            assert!(read(&query).unwrap_err().contains(value), "{text}");
        }
    }
}
