//! The page of one thread, which shows some of its messages in one of several views.

mod header;
mod past_page;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::conversation::conversation;
use super::layout::inline;
use super::live;
use super::payload_text::PageRoom;
use super::thread_view::ThreadView;
use super::url_query::UrlQuery;
use super::{ViewState, config, sequence, timeline_chart};
use crate::audit::{ThreadPage, thread_page};
use crate::ids::{Position, ThreadId};
use crate::index::{self, CallWork, IndexReader};
use crate::limits;
use crate::plural::count;
pub(super) use header::{ThreadHeader, cost};
use past_page::past_page;

/// The part of a thread that a browser requests, and the view in which the page shows this part.
struct PageRequest {
    /// Sequence number of the first message on the page; `None` for the last page.
    from_seq: Option<u64>,
    /// Position of a record. The page shows the thread as it was directly after this record; `None`
    /// for the present state.
    at: Option<Position>,
    limit: usize,
    view: ThreadView,
    partition: Option<u32>,
}

impl PageRequest {
    fn read(query: &UrlQuery) -> Result<Self, String> {
        let from_seq = match query.get("from") {
            Some("last") => None,
            Some(text) => Some(text.parse().map_err(|_| {
                format!("`{text}` is no sequence number; write a number, or `last`")
            })?),
            None => Some(0),
        };
        let at = match query.get("at") {
            Some(text) => {
                let at = text.parse().map_err(|_| format!("`{text}` is no number of a record"))?;
                Some(Position(at))
            }
            None => None,
        };

        let limit = query.rows("limit", limits::WEB_PAGE_MESSAGES)?;
        let view = ThreadView::read(query)?;
        if at.is_some() && view == ThreadView::Timeline {
            return Err("the timeline shows a thread as it is now; leave `at` out".to_owned());
        }
        let partition = selected_partition(query)?;
        Ok(Self { from_seq, at, limit, view, partition })
    }
}

/// A page of a thread. `work` is filled only for the view that shows how the time was spent.
struct FoundPage {
    header: ThreadHeader,
    page: ThreadPage,
    work: Vec<CallWork>,
}

/// The reason why no page can show a thread as it was after the record `at`: the journal does not
/// have this record yet. `last` is the journal's last record. Such a page would change each time
/// that the thread grows.
struct LaterRecord {
    at: Position,
    last: Position,
}

pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    Path(id): Path<String>,
    query: UrlQuery,
) -> Response {
    let Ok(thread) = ThreadId::parse(&id) else { return missing(&view, &id) };
    let request = match PageRequest::read(&query) {
        Ok(request) => request,
        Err(problem) => return view.failed(StatusCode::BAD_REQUEST, "No such page", &problem),
    };

    let shown_view = request.view;
    let partition = request.partition;
    let find = move |index: &mut IndexReader| find(index, &thread, &request);
    view.respond_found_in(partition, find, move |view, found| match found {
        Some(Ok(found)) => view.page(&id, "/threads", &content(view, &query, &found, shown_view)),
        Some(Err(LaterRecord { at, last })) => {
            let text = format!("Record {at} does not exist yet; the last is {last}.");
            view.failed(StatusCode::NOT_FOUND, "Not there yet", &text)
        }
        None => match query.get("at") {
            Some(at) => {
                let text = format!("Thread `{id}` has no record up to record {at}.");
                view.failed(StatusCode::NOT_FOUND, "Not there at that moment", &text)
            }
            None => missing(view, &id),
        },
    })
    .await
}

fn find(
    index: &IndexReader,
    thread: &ThreadId,
    request: &PageRequest,
) -> Result<Option<Result<FoundPage, LaterRecord>>, index::Error> {
    let PageRequest { from_seq, at, limit, view, .. } = request;
    let page = match at {
        Some(at) => past_page(index, thread, *at, *from_seq, *limit)?,
        None => thread_page(index, thread, *from_seq, *limit)?,
    };
    let Some(page) = page else { return Ok(None) };
    let last = index.last();
    if let Some(at) = at.filter(|at| *at > last) {
        return Ok(Some(Err(LaterRecord { at, last })));
    }

    let work = match view {
        ThreadView::Timeline => index.call_work(thread, page.from_seq, page.next_seq)?,
        _ => Vec::new(),
    };
    let header = match at {
        Some(_) => ThreadHeader::of_past(index, &page)?,
        None => ThreadHeader::of(index, &page)?,
    };
    Ok(Some(Ok(FoundPage { header, page, work })))
}

pub(super) fn missing(view: &ViewState, id: &str) -> Response {
    let thing = format!("thread `{id}`");
    match ThreadId::parse(id) {
        Ok(thread) => view.not_in_index("No such thread", &thing, Some(&thread)),
        Err(_) => view.failed(
            StatusCode::NOT_FOUND,
            "No such thread",
            &format!("No {thing} is on record."),
        ),
    }
}

/// Returns the path of the page of a thread.
pub(super) fn path(thread: &str) -> String {
    // Ids contain no characters with a meaning in a URL.
    format!("/threads/{thread}")
}

/// Returns the path of the page of a thread of this id in one partition. Only `sess-organism` is a
/// thread of several partitions.
pub(super) fn path_in(partition: Option<u32>, thread: &str) -> String {
    let partition = partition.map(|partition| partition.to_string());
    UrlQuery::default().with(config::PARTITION, partition.as_deref()).link(&path(thread))
}

/// Reads from a URL the partition whose thread a page shows; `None` if the URL names no partition.
/// The page then shows the thread of the first partition that has it.
pub(super) fn selected_partition(query: &UrlQuery) -> Result<Option<u32>, String> {
    let Some(text) = query.get(config::PARTITION) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("`{text}` is no number of a partition"))
}

/// Draws links to the threads `sess-organism` of all partitions on this host. `path` is the page of
/// the thread without a query. Draws nothing on the page of any other thread, or if there is only
/// one partition.
pub(super) fn partition_links(view: &ViewState, query: &UrlQuery, id: &str, path: &str) -> Markup {
    let journals = if id == ThreadId::ORGANISM { view.journals.partitions() } else { Vec::new() };
    let shown = query.get(config::PARTITION).map(str::to_owned);
    let shown = shown.or_else(|| journals.first().map(u32::to_string));
    html! {
        @if journals.len() > 1 {
            nav.views aria-label="Partitions" {
                @for partition in journals.iter().map(u32::to_string) {
                    @let own = UrlQuery::default().with(config::PARTITION, Some(&partition));
                    a href=(own.link(path))
                        aria-current=[(shown.as_ref() == Some(&partition)).then_some("page")] {
                        "Partition " (partition)
                    }
                }
            }
        }
    }
}

/// Draws a view of the messages. The page's script replaces the whole view when new messages
/// arrive.
fn drawing(view: &Markup) -> Markup {
    html! {
        div #live-events { (view) }
    }
}

fn content(
    view: &ViewState,
    query: &UrlQuery,
    found: &FoundPage,
    shown_view: ThreadView,
) -> Markup {
    let FoundPage { header, page, work } = found;
    let timeline = &page.timeline;
    let room = &PageRoom::new();
    let messages = match shown_view {
        ThreadView::Conversation => conversation(page, room),
        ThreadView::Sequence => drawing(&sequence::diagram(timeline, room)),
        ThreadView::Timeline => drawing(&timeline_chart::chart(page, work)),
    };
    let id = timeline.thread.as_str();
    let selected = UrlQuery::default().with(config::PARTITION, query.get(config::PARTITION));
    let now = selected.link(&path(id));
    let mut others = vec![("Tree", selected.link(&super::thread_tree::path(id)))];
    if header.has_run {
        others.push(("Goals", super::goal_graph::path(id)));
    }
    let own = query.link(&path(id));
    html! {
        (header.draw(view))
        (partition_links(view, query, id, &path(id)))
        @if let Some(at) = query.get("at") {
            p.note {
                "As it was after record " (inline(at)) ". "
                a href=(now) { "As it is now" }
            }
        } @else {
            (live::line(&format!("/live{}", path(timeline.thread.as_str())), &own))
        }
        (shown_view.links(query, &path(id), &others))
        (pages(query, page))
        (messages)
        @if timeline.items.is_empty() { p.empty { "No messages here." } }
        section #live-calls hidden aria-label="What models write now" {}
        @if room.omitted() > 0 {
            p.problem role="status" {
                "The page is full: " (count(room.omitted(), "text")) " of its later entries left out. "
                "The page of each message shows its payload."
            }
        }
        @if page.is_cut {
            p.problem role="status" {
                "More happened between these messages than a page shows; "
                code {
                    "organism thread " (inline(id)) " --all"
                    @if let Some(at) = query.get("at") { " --at " (inline(at)) }
                }
                " shows all of it."
            }
        }
        (pages(query, page))
    }
}

/// Draws links to the previous and the next page. Draws no links if one page shows the whole
/// thread.
fn pages(query: &UrlQuery, page: &ThreadPage) -> Markup {
    let path = path(page.timeline.thread.as_str());
    let link = |from: Option<u64>| {
        query.with("from", from.map(|from| from.to_string()).as_deref()).link(&path)
    };
    html! {
        @if page.previous_seq.is_some() || page.next_seq.is_some() {
            nav.pages aria-label="Pages of the thread" {
                @if let Some(previous) = page.previous_seq {
                    a href=(link(None)) { "First" }
                    a rel="prev" href=(link(Some(previous))) { "Earlier" }
                }
                @if let Some(next) = page.next_seq {
                    a rel="next" href=(link(Some(next))) { "Later" }
                    a href=(query.with("from", Some("last")).link(&path)) { "Last" }
                }
            }
        }
    }
}
