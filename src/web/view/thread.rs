//! The page of one thread as a conversation: some of its messages, with the events between them.
//! Subthreads appear as links with their totals.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{grouped, inline, is_open, moment, took};
use super::live;
use super::payload_text::{Excerpt, PageRoom, excerpt};
use super::thread_view::ThreadView;
use super::url_query::UrlQuery;
use super::{ViewState, operate, sequence, timeline_chart, waiting as waiting_page};
use crate::audit::amounts::{count, offset};
use crate::audit::{
    BusyRefusals, HeldCall, MessageView, RecordedMoment, RefusalView, SignedBy, ThreadPage,
    ThreadTimeline, TimelineEntry, TimelineEvent, core_words, held_of, thread_page,
    thread_timeline,
};
use crate::contract::run_definition_name;
use crate::envelope::{AttemptFailure, MessageKind};
use crate::ids::{Position, ThreadId};
use crate::index::{self, CallWork, IndexReader, WaitingMessage};
use crate::limits;
use crate::system;
use crate::thread::{DecisionOrigin, TimerEnd};

/// Which messages of a thread are shown, and how.
struct PageRequest {
    /// Sequence number of the first message; `None` for the last page.
    from_seq: Option<u64>,
    /// Position of the record after which the thread is shown; `None` for its present state.
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
    /// Waiting calls with the data for each decision; empty if they lie too far back in the record.
    held: Vec<HeldCall>,
    /// Whether the thread contains a workflow run.
    has_run: bool,
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
                let bar = operate::thread_bar(view, &id);
                let content = content(&query, &found, shown_view, view.operate.is_some());
                view.page(&id, "/threads", &html! { (bar) (content) })
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
    Ok(Some(FoundPage { page, work, waiting, held, has_run }))
}

/// Reads the thread as it was after a record. The thread must be short, because it is read as a
/// whole.
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
    let all = timeline.items.len();
    timeline.keep_page(from_seq, limit);
    let is_cut = timeline.items.len() < all;
    Ok(Some(ThreadPage { timeline, from_seq, previous_seq: None, next_seq: None, is_cut }))
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

fn conversation(page: &ThreadPage, room: &PageRoom) -> Markup {
    html! {
        ol.events #live-events {
            @for item in &page.timeline.items { (entry(item, &page.timeline, room)) }
        }
    }
}

/// Draws a view that new messages replace as a whole.
fn drawing(view: &Markup) -> Markup {
    html! {
        div #live-events { (view) }
    }
}

fn content(query: &UrlQuery, found: &FoundPage, shown_view: ThreadView, may_act: bool) -> Markup {
    let FoundPage { page, work, waiting, held, has_run } = found;
    let timeline = &page.timeline;
    let room = &PageRoom::new();
    let messages = match shown_view {
        ThreadView::Conversation => conversation(page, room),
        ThreadView::Sequence => drawing(&sequence::diagram(timeline, room)),
        ThreadView::Timeline => drawing(&timeline_chart::chart(page, work)),
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
        (waiting_page::needs_you(waiting, held, may_act))
        (totals(timeline, query.get("at").is_some()))
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

fn totals(timeline: &ThreadTimeline, is_past: bool) -> Markup {
    let spent = timeline.spent;
    let is_open = is_open(timeline.status.as_str()) && !is_past;
    html! {
        dl.facts {
            div { dt { "Status" } dd { (status(timeline)) } }
            div { dt { "Opened" } dd { (moment(timeline.opened)) } }
            div { dt { "By" } dd { (inline(timeline.opened_by.as_str())) } }
            div { dt { "Took" } dd { (took(timeline.opened, timeline.updated, is_open)) } }
            div { dt { "Messages" } dd { (grouped(timeline.messages)) } }
            div {
                dt { "Config" }
                dd { a href=(super::config::path(timeline.thread.as_str())) { "at its beginning" } }
            }
            div {
                dt { "Compare" }
                dd { a href=(super::compare::path(timeline.thread.as_str())) { "with another thread" } }
            }
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

fn status(timeline: &ThreadTimeline) -> Markup {
    let status = timeline.status.as_str();
    html! { span.status data-status=(status) { (status) } }
}

/// Draws links to the pages before and after this one; none if the page has the whole thread.
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

fn entry(item: &TimelineEntry, timeline: &ThreadTimeline, room: &PageRoom) -> Markup {
    let time = html! {
        time datetime=(item.at) title=(item.at) { (offset(item.at.since(timeline.opened))) }
    };
    match &item.what {
        TimelineEvent::Message(message) => {
            self::message(message, &time, MessageContext::Thread, room)
        }
        TimelineEvent::Refused(refusal) => refused(refusal, &time, room),
        TimelineEvent::Busy(busy) => self::busy(busy, &time, room),
        TimelineEvent::Findings { by, findings } => {
            let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
            let head =
                html! { (inline(by.as_str())) " " (count(findings.len() as u64, "finding")) };
            event("finding", &time, &head, &text.join("\n"), room)
        }
        TimelineEvent::AttemptFailed { listener, attempt, failure } => {
            let who = listener.as_ref().map_or("listener", |listener| listener.as_str());
            let head = html! { (inline(who)) " " b { "attempt " (attempt) " failed" } };
            event("failed", &time, &head, &failed(failure), room)
        }
        TimelineEvent::Charged { listener, attempt, spending } => {
            let head = html! { (inline(listener.as_str())) " model call of attempt " (attempt) };
            let text = format!("its result is lost: {} tokens are charged", spending.tokens);
            event("failed", &time, &head, &text, room)
        }
        // The message of the timer, which follows, shows the same event.
        TimelineEvent::TimerEnded { how: TimerEnd::Fired, .. } => html! {},
        TimelineEvent::TimerEnded { timer, how } => {
            let head = html! { "timer " (format!("{how:?}").to_lowercase()) " " (timer) };
            event("note", &time, &head, "", room)
        }
        TimelineEvent::Decision { verb, by, origin, signed } => {
            let before = item.position.0.saturating_sub(1).to_string();
            let before = UrlQuery::default().with("at", Some(&before));
            let head = html! {
                b { (verb) } " by " (inline(by.as_str())) " " (person(origin)) " "
                a href=(before.link(&path(timeline.thread.as_str()))) { "the thread before" }
            };
            let signed = signed.as_ref().map(signature);
            let note = signed.iter().map(String::as_str).chain([origin.note.as_str()]);
            event("decision", &time, &head, &note.collect::<Vec<_>>().join("\n"), room)
        }
        TimelineEvent::Cancelled { by, reason } => {
            let head = html! { "cancelled by " (inline(by.as_str())) };
            event("failed", &time, &head, reason, room)
        }
        TimelineEvent::Subthread(child) => subthread(child, &time),
    }
}

fn event(kind: &str, time: &Markup, head: &Markup, text: &str, room: &PageRoom) -> Markup {
    let lines = excerpt(text.lines().map(str::to_owned).collect());
    html! {
        li.event data-kind=(kind) {
            (time)
            div { p.head { (head) } (body(&lines, None, room)) }
        }
    }
}

fn failed(failure: &AttemptFailure) -> String {
    let mut text = failure.to_string();
    if let AttemptFailure::Model { spent, tries, .. } = failure {
        for one in tries.iter().filter(|_| tries.len() > 1) {
            text.push_str(&format!("\n{} failed: {}", one.route, one.reason));
        }
        if spent.tokens > 0 {
            text.push_str(&format!("\ncharged: {} tokens", spent.tokens));
        }
    }
    text
}

/// Writes the user who decided, as the operating system names the user.
fn person(origin: &DecisionOrigin) -> Markup {
    let login = origin.who.login.as_deref().unwrap_or("unknown");
    let uid = origin.who.uid.map(|uid| format!(", uid {uid}")).unwrap_or_default();
    let host = origin.who.host.as_deref().map(|host| format!(" on {host}")).unwrap_or_default();
    html! { "(" (inline(&format!("{login}{uid}{host}"))) ")" }
}

pub(super) fn signature(signed: &SignedBy) -> String {
    let who = signed.operator.as_ref().map_or("a signer without the right", |by| by.as_str());
    let holds = if signed.holds { "valid" } else { "INVALID" };
    format!("signed by {who}, {}: the signature is {holds}", signed.key)
}

/// The kind of list that shows a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageContext {
    /// The page of the message's thread. Links to the message lead there.
    Thread,
    /// Results of a search, which do not include dispositions.
    Search,
}

pub(super) fn message(
    message: &MessageView,
    time: &Markup,
    context: MessageContext,
    room: &PageRoom,
) -> Markup {
    let is_in_thread = context == MessageContext::Thread;
    let anchor = is_in_thread.then(|| format!("seq-{}", message.seq));
    let mark = message.unusual_state().filter(|_| is_in_thread);
    let is_core = &*message.name.namespace == system::NAMESPACE;
    let local = &*message.name.local;
    let payload = message.payload.as_deref();
    let is_short = |payload: &&str| payload.len() <= limits::WEB_READ_BYTES;
    let gist = payload.filter(|_| is_core).filter(is_short);
    let gist = gist.and_then(|payload| core_words::gist(local, payload));
    let lines = match payload {
        Some(_) if room.is_full() => excerpt(vec!["…".to_owned()]),
        Some(payload) => Excerpt::of_payload(payload, is_core.then_some(local)),
        None => {
            excerpt(vec!["The payload was redacted: its digest alone is on record.".to_owned()])
        }
    };

    let path = super::message::path(message.id);
    let is_own = message.kind == MessageKind::Own;
    let head = html! {
        (inline(message.from.as_str()))
        @if is_own { " ↻" } @else if message.kind != MessageKind::Note {
            " → " (inline(message.to.as_str()))
        }
        " " a.payload data-entry href=(path) { (inline(local)) }
        @if let Some(gist) = gist { " " span.gist { (inline(&gist)) } }
        @if let Some(mark) = mark { " " span.mark { (mark) } }
    };

    // Notes are folded, because few readers need what a model thought, or what a model call took.
    let is_folded = message.kind == MessageKind::Note && !lines.is_empty() && local != "todo-until";
    html! {
        li.event id=[anchor] data-kind=(message.kind.as_str())
            data-core[is_core] {
            (time)
            @if is_folded {
                details { summary { span.head { (head) } } (body(&lines, Some(&path), room)) }
            } @else {
                div { p.head { (head) } (body(&lines, Some(&path), room)) }
            }
        }
    }
}

/// Draws the lines of an event. If lines are left out, adds a link to the whole text, or the number
/// of all lines.
fn body(lines: &Excerpt, whole: Option<&str>, room: &PageRoom) -> Markup {
    if lines.is_empty() {
        return html! {};
    }
    if !room.has_room() {
        return match whole {
            Some(path) => html! { p.more { a href=(path) { "The payload" } } },
            None => html! {},
        };
    }
    html! {
        pre.body { (room.take(lines.text())) }
        @if lines.is_cut() {
            @if let Some(path) = whole {
                p.more { a href=(path) { "The whole payload (" (count(lines.all(), "line")) ")" } }
            } @else {
                p.more { "… " (count(lines.all(), "line")) " in all" }
            }
        }
    }
}

pub(super) fn refused(refusal: &RefusalView, time: &Markup, room: &PageRoom) -> Markup {
    let place = refusal.place.as_ref().filter(|place| place.is_known());
    let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
    let head = html! {
        (inline(refusal.sender.as_str())) " " b { "refused: " code { (refusal.rule) } }
    };
    let text = format!("{}{place}\n{}", refusal.message, refusal.head);
    event("refused", time, &head, &text, room)
}

fn busy(busy: &BusyRefusals, time: &Markup, room: &PageRoom) -> Markup {
    let head = html! {
        (inline(busy.client.as_str())) " busy: refused " (count(busy.count, "time"))
        " since " (busy.since)
    };
    event("refused", time, &head, "", room)
}

fn subthread(child: &ThreadTimeline, time: &Markup) -> Markup {
    let id = child.thread.as_str();
    let tokens = child.spent.tokens;
    html! {
        li.event data-kind="subthread" {
            (time)
            div {
                p.head {
                    "subthread " a data-entry href=(path(id)) { (inline(id)) }
                    " " (status(child))
                    " " (count(child.messages, "message")) ", "
                    (took(child.opened, child.updated, false))
                    @if tokens > 0 { ", " (grouped(tokens)) " tokens" }
                    @if !child.spent.money.is_zero() { ", cost " (child.spent.money) }
                }
            }
        }
    }
}
