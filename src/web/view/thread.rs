//! The page of one thread, which shows some of its messages in one of several views.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::{Markup, html};

use super::conversation::conversation;
use super::fork_history;
use super::layout::{grouped, inline, is_open, length, moment};
use super::live;
use super::operate::{self, ThreadActions};
use super::payload_text::PageRoom;
use super::thread_view::ThreadView;
use super::url_query::UrlQuery;
use super::{ViewState, pauses, sequence, thread_status, timeline_chart, waiting as waiting_page};
use crate::audit::amounts::count;
use crate::audit::{
    ForkOrigin, HeldCall, RecordedMoment, ThreadPage, earlier_decisions, held_of, thread_page,
    thread_timeline,
};
use crate::clock::Time;
use crate::contract::run_definition_name;
use crate::ids::{Position, ThreadId};
use crate::index::{self, CallWork, IndexReader, IndexedPause, WaitingMessage};
use crate::limits;

/// Which messages of a thread are shown, and how.
struct PageRequest {
    /// Sequence number of the first message; `None` for the last page.
    from_seq: Option<u64>,
    /// Position of the record after which the thread is shown; `None` for the present state of the
    /// thread.
    at: Option<Position>,
    limit: usize,
    view: ThreadView,
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

        let limit = query.get("limit").and_then(|limit| limit.parse().ok());
        let limit = limit.unwrap_or(limits::WEB_PAGE_MESSAGES).clamp(1, limits::WEB_ROWS_MAX);
        let view = ThreadView::read(query)?;
        if at.is_some() && view == ThreadView::Timeline {
            return Err("the timeline shows a thread as it is now; leave `at` out".to_owned());
        }
        Ok(Self { from_seq, at, limit, view })
    }
}

/// A page, with the data that only some views show.
struct FoundPage {
    page: ThreadPage,
    work: Vec<CallWork>,
    /// Calls in the thread or beneath it that wait for a person now.
    waiting: Vec<WaitingMessage>,
    /// The calls in `waiting`, with the data for the decisions about them. Empty if the records of
    /// these calls are too far back in the journal to be read for a page.
    held: Vec<HeldCall>,
    /// Whether the thread contains a workflow run.
    has_run: bool,
    /// Pauses in force that keep back calls of the thread.
    pauses: Vec<IndexedPause>,
    /// The actions that have an effect now; `None` if the page shows an earlier state of the
    /// thread.
    actions: Option<ThreadActions>,
}

pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Response {
    let query = UrlQuery::parse(uri.query().unwrap_or_default());
    let Ok(thread) = ThreadId::parse(&id) else { return missing(&view, &id) };
    let request = match PageRequest::read(&query) {
        Ok(request) => request,
        Err(problem) => return view.failed(StatusCode::BAD_REQUEST, "No such page", &problem),
    };

    let shown_view = request.view;
    let find = move |_, index: &mut IndexReader| find(index, &thread, &request);
    view.respond(find, move |view, answers| {
        match answers.into_iter().find_map(|found| found.answer) {
            Some(found) => {
                let bar = found.actions.map(|actions| operate::thread_bar(view, &id, actions));
                let content = content(&query, &found, shown_view, view.operate.is_some());
                view.page(&id, "/threads", &html! { @if let Some(bar) = bar { (bar) } (content) })
            }
            None => match query.get("at") {
                Some(at) => {
                    let text = format!("Thread `{id}` has no record up to record {at}.");
                    view.failed(StatusCode::NOT_FOUND, "Not there at that moment", &text)
                }
                None => missing(view, &id),
            },
        }
    })
    .await
}

fn find(
    index: &IndexReader,
    thread: &ThreadId,
    request: &PageRequest,
) -> Result<Option<FoundPage>, index::Error> {
    let PageRequest { from_seq, at, limit, view } = request;
    let page = match at {
        Some(at) => past_page(index, thread, *at, from_seq.unwrap_or_default(), *limit)?,
        None => thread_page(index, thread, *from_seq, *limit)?,
    };
    let Some(page) = page else { return Ok(None) };
    let work = match view {
        ThreadView::Timeline => index.call_work(thread, page.from_seq, page.next_seq)?,
        _ => Vec::new(),
    };
    let waiting = match at {
        Some(_) => Vec::new(),
        None => index.waiting_beneath(thread, limits::WEB_NEEDS_YOU_MAX)?,
    };
    let first = waiting.iter().map(|call| call.position).min();
    let last = index.journal().last().unwrap_or_default();
    let is_near =
        first.is_some_and(|first| last.0 - first.0.min(last.0) <= limits::WEB_HELD_RECORDS);
    let held = if is_near { held_of(index, &waiting)? } else { Vec::new() };
    let has_run = index.has_payload(thread, &run_definition_name())?;
    let mut pauses = index.pauses()?;
    pauses.retain(|pause| pauses::holds(pause, thread));
    let actions = match at {
        Some(_) => None,
        None => Some(ThreadActions {
            has_open_calls: index.has_open_calls(thread)?,
            may_continue: thread.parent().is_none(),
            is_paused: pauses.iter().any(|pause| pauses::is_of(pause, thread)),
        }),
    };
    Ok(Some(FoundPage { page, work, waiting, held, has_run, pauses, actions }))
}

/// Reads the thread as it was after a record. A thread with too many records is refused, because
/// all records are read at once.
fn past_page(
    index: &IndexReader,
    thread: &ThreadId,
    at: Position,
    from_seq: u64,
    limit: usize,
) -> Result<Option<ThreadPage>, index::Error> {
    let records = index.journal().records_of(&thread.root())?;
    if records > limits::WEB_PAST_RECORDS {
        let detail = format!(
            "the thread has {records} records; `organism thread {thread} --at {at}` shows it as it was"
        );
        return Err(index::Error::Query { detail });
    }
    let moment = Some(RecordedMoment::Position(at));
    let Some(mut timeline) = thread_timeline(index.journal(), thread, moment)? else {
        return Ok(None);
    };
    let first = timeline.items.first().map(|item| item.position);
    let earlier_decisions = earlier_decisions(&timeline, from_seq);
    let all = timeline.items.len();
    timeline.keep_page(from_seq, limit);
    let is_cut = timeline.items.len() < all;
    let first = first.map(|first| index.journal().existing_record(first)).transpose()?;
    let fork = first.and_then(|first| ForkOrigin::of(&first.record, thread));
    Ok(Some(ThreadPage {
        timeline,
        from_seq,
        previous_seq: None,
        next_seq: None,
        is_cut,
        earlier_decisions,
        fork,
    }))
}

pub(super) fn missing(view: &ViewState, id: &str) -> Response {
    let text = format!("No thread `{id}` is on record.");
    view.failed(StatusCode::NOT_FOUND, "No such thread", &text)
}

/// Returns the path of the page of a thread.
pub(super) fn path(thread: &str) -> String {
    // Ids contain no characters with a meaning in a URL.
    format!("/threads/{thread}")
}

/// Draws a view of the messages. When new messages arrive, the page's script replaces this view as
/// a whole.
fn drawing(view: &Markup) -> Markup {
    html! {
        div #live-events { (view) }
    }
}

fn content(query: &UrlQuery, found: &FoundPage, shown_view: ThreadView, may_act: bool) -> Markup {
    let FoundPage { page, work, waiting, held, has_run, pauses, actions } = found;
    let timeline = &page.timeline;
    let room = &PageRoom::new();
    let messages = match shown_view {
        ThreadView::Conversation => conversation(page, waiting, room),
        ThreadView::Sequence => drawing(&sequence::diagram(timeline, waiting, room)),
        ThreadView::Timeline => drawing(&timeline_chart::chart(page, work, waiting)),
    };
    let id = timeline.thread.as_str();
    let mut others = vec![("Tree", super::thread_tree::path(id))];
    if *has_run {
        others.push(("Goals", super::goal_graph::path(id)));
    }
    let parent = timeline.thread.parent();
    let own = query.link(&path(id));
    html! {
        h1 { code { (inline(timeline.thread.as_str())) } }
        @if actions.is_some() {
            div #pauses {
                @for pause in pauses { p.note role="status" { (inline(&pauses::describe(pause))) } }
            }
        }
        (waiting_page::needs_you(waiting, held, may_act))
        (totals(page, waiting, query.get("at").is_some()))
        @if let Some(parent) = parent {
            p { "A subthread of " a href=(path(parent.as_str())) { (inline(parent.as_str())) } }
        }
        @if let Some(at) = query.get("at") {
            p.note {
                "As it was after record " (inline(at)) ". "
                a href=(path(timeline.thread.as_str())) { "As it is now" }
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
                code { "organism thread " (inline(timeline.thread.as_str())) }
                " shows all of it."
            }
        }
        (pages(query, page))
    }
}

fn totals(page: &ThreadPage, waiting: &[WaitingMessage], is_past: bool) -> Markup {
    let ThreadPage { timeline, fork, .. } = page;
    let spent = timeline.spent;
    let is_open = is_open(timeline.status.as_str()) && !is_past;
    html! {
        dl.facts {
            div { dt { "Status" } dd { (thread_status::of_thread(timeline, waiting)) } }
            div { dt { "Opened" } dd { (moment(timeline.opened)) } }
            div { dt { "By" } dd { (inline(timeline.opened_by.as_str())) } }
            @if is_open {
                div { dt { "Open for" } dd { (length(Time::now().since(timeline.opened))) } }
            } @else {
                div { dt { "Took" } dd { (length(timeline.updated.since(timeline.opened))) } }
            }
            div { dt { "Messages" } dd { (grouped(timeline.messages)) } }
            div {
                dt { "Config" }
                dd { a href=(super::config::path(timeline.thread.as_str())) { "at its beginning" } }
            }
            div {
                dt { "Compare" }
                dd { a href=(super::compare::path(timeline.thread.as_str())) { "with another thread" } }
            }
            @if let Some(fork) = fork { div { dt { "Fork of" } dd { (fork_history::source_link(fork)) } } }
            @if spent.tokens > 0 { div { dt { "Tokens" } dd { (grouped(spent.tokens)) } } }
            @if !spent.money.is_zero() {
                div {
                    dt { "Cost" }
                    dd { (spent.money) " " (inline(timeline.currency.as_deref().unwrap_or(""))) }
                }
            }
        }
    }
}

/// Draws links to the pages before and after this one; no links if this page has the whole thread.
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
