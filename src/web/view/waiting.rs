//! The page with the calls that wait for a person, oldest first, with the data for each decision.
//! The decisions are made on other pages.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::journals::PartitionAnswer;
use super::layout::{inline, moment, shown};
use super::payload_text::{Excerpt, PageRoom};
use super::url_query::UrlQuery;
use super::{IndexBehind, NotInIndex, ViewState, live, message, operate, prompt, thread, threads};
use crate::audit::amounts::duration;
use crate::audit::{
    CallPreviewView, HeldCall, RefusalView, StartingRequest, held_of, starting_request,
};
use crate::clock::Time;
use crate::ids::MessageId;
use crate::index::{self, IndexReader, MessageSelector, WaitingMessage};
use crate::limits;
use crate::plural::{count, form};
use crate::thread::Hold;

pub(super) const PATH: &str = "/waiting";

/// Name of the URL parameter with the id of a call. If the parameter is set, the page shows only
/// this call.
const CALL: &str = "call";

/// Returns the path of a page that shows only this call, even if other calls wait.
pub(super) fn call_path(call: MessageId) -> String {
    UrlQuery::default().with(CALL, Some(&call.to_string())).link(PATH)
}

/// A call that waits for a decision, and the client's request that led to the call.
#[derive(Debug)]
pub(super) struct CallToDecide {
    pub call: HeldCall,
    /// The client's request that led to the call; it may be the call itself. `Ok(None)` if the
    /// index finds no such request. `Err` contains the reason why the request could not be read.
    pub request: Result<Option<StartingRequest>, String>,
    /// The turn in which a model wrote the call; `None` if no model wrote it.
    pub turn: Option<WritingTurn>,
}

/// The turn in which a model wrote a call that now waits for a decision. The prompt of the turn has
/// its own page.
#[derive(Debug)]
pub(super) struct WritingTurn {
    /// The payloads of this turn that the gate refused, at most [`limits::WEB_TURN_REFUSALS`].
    refused: Vec<RefusalView>,
    /// Number of payloads of this turn that the gate refused, but that are not in `refused`.
    left: u64,
}

impl CallToDecide {
    fn of(index: &IndexReader, calls: Vec<HeldCall>) -> Result<Vec<Self>, index::Error> {
        let mut payloads = HashMap::new();
        let with_request = |call: HeldCall| {
            let request = starting_request(index, call.message, &mut payloads)?;
            let turn = writing_turn(index, &call)?;
            Ok(Self { call, request: Ok(request), turn })
        };
        calls.into_iter().map(with_request).collect()
    }
}

/// Returns the turn in which the sender's model wrote a call; `None` if no model wrote the call.
pub(super) fn writing_turn(
    index: &IndexReader,
    call: &HeldCall,
) -> Result<Option<WritingTurn>, index::Error> {
    let selector = MessageSelector::parse(&call.message.to_string());
    let Some(selector) = selector else { return Ok(None) };
    let Some(row) = index.messages_with_id(&selector, 1)?.pop() else { return Ok(None) };
    let turn = index.turn_at(row.position)?;
    if turn.is_none_or(|turn| turn.agent != call.from.as_str()) {
        return Ok(None);
    }

    let sealed = index.journal().existing_record(row.position)?;
    let mut refused: Vec<_> = prompt::refused_in(&sealed, call.from.as_str()).collect();
    let left = refused.len().saturating_sub(limits::WEB_TURN_REFUSALS) as u64;
    refused.truncate(limits::WEB_TURN_REFUSALS);
    Ok(Some(WritingTurn { refused, left }))
}

/// The calls of one page, before their payloads are read.
struct WaitingPage {
    /// The waiting calls, each with the partition of its journal.
    calls: Vec<(u32, WaitingMessage)>,
    skipped: usize,
    all: u64,
    /// A warning for each index that lacked records. Some of these calls may then wait no longer,
    /// and other waiting calls may be missing.
    notes: Vec<String>,
    behind: Option<IndexBehind>,
}

impl WaitingPage {
    fn of(answers: Vec<PartitionAnswer<(Vec<WaitingMessage>, u64)>>, skipped: usize) -> Self {
        let notes = threads::notes(&answers);
        let behind = IndexBehind::find(&answers);
        let all = answers.iter().map(|found| found.answer.1).sum();
        let calls = answers.into_iter().flat_map(|found| {
            let (calls, _) = found.answer;
            calls.into_iter().map(move |call| (found.partition, call))
        });
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(|(_, call)| (call.since, call.message));
        let calls = calls.into_iter().skip(skipped).take(limits::WEB_PAGE_ROWS).collect();
        Self { calls, skipped, all, notes, behind }
    }

    fn in_partition(&self, partition: u32) -> Vec<WaitingMessage> {
        let own = self.calls.iter().filter(|(of, _)| *of == partition);
        own.map(|(_, call)| call.clone()).collect()
    }
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, query: UrlQuery) -> Response {
    if let Some(text) = query.get(CALL) {
        return match text.parse() {
            Ok(id) => show_one(view, MessageId(id)).await,
            Err(_) => {
                let text = format!("`{text}` is no id of a message; the page Waiting has links.");
                view.failed(StatusCode::BAD_REQUEST, "No such call", &text)
            }
        };
    }
    let skipped = match query.skipped(limits::WEB_WAITING_MAX) {
        Ok(skipped) => skipped,
        Err(problem) => return view.failed(StatusCode::BAD_REQUEST, "No such page", &problem),
    };
    let most = skipped + limits::WEB_PAGE_ROWS;
    let found = view.journals.query(
        move |_, index| index.waiting_messages(most),
        move |answers| WaitingPage::of(answers, skipped),
    );
    let page = match found.await {
        Ok(page) => Arc::new(page),
        Err(error) => return view.unanswered(&error),
    };

    let wanted = Arc::clone(&page);
    view.respond(
        move |partition, index| {
            CallToDecide::of(index, held_of(index, &wanted.in_partition(partition))?)
        },
        move |view, answers| {
            let mut calls: Vec<CallToDecide> =
                answers.into_iter().flat_map(|found| found.answer).collect();
            calls.sort_by(|one, other| {
                let key = |held: &'_ CallToDecide| (held.call.since.clone(), held.call.message);
                key(one).cmp(&key(other))
            });
            let content = content(view, &calls, &page);
            let mut drawn = view.page("Waiting", PATH, &content);
            if let Some(behind) = &page.behind {
                drawn.extensions_mut().insert(behind.clone());
            }
            drawn
        },
    )
    .await
}

/// Responds with the page of one call.
async fn show_one(view: Arc<ViewState>, id: MessageId) -> Response {
    view.respond(
        move |_, index| match index.waiting_message(id)? {
            Some(call) => CallToDecide::of(index, held_of(index, &[call])?),
            None => Ok(Vec::new()),
        },
        move |view, answers| {
            let notes = threads::notes(&answers);
            let call = answers.into_iter().flat_map(|found| found.answer).next();
            let is_missing = call.is_none();
            let is_complete = view.present.copies().is_complete();
            let may_act = view.operate.is_some();
            let content = html! {
                h1 { "Waiting for a person" }
                (live::line("/live/threads", &call_path(id)))
                (threads::draw_notes(&notes))
                div #live-waiting {
                    @match call {
                        Some(call) => (self::call(&call, &PageRoom::new(), may_act)),
                        None if is_complete => p.empty {
                            "This call does not wait, or waits no longer: " (message::link(id))
                        },
                        None => p.problem {
                            "This host does not know whether this call waits, because it lacks \
                             records. " code { "organism approvals" } " asks all pumps."
                        },
                    }
                }
                p { a href=(PATH) { "All that waits" } }
            };
            let mut page = view.page("Waiting", PATH, &content);
            if is_missing {
                page.extensions_mut().insert(NotInIndex);
            }
            page
        },
    )
    .await
}

fn content(view: &ViewState, calls: &[CallToDecide], page: &WaitingPage) -> Markup {
    let room = PageRoom::new();
    let may_act = view.operate.is_some();
    let is_complete = view.present.copies().is_complete();
    let end = page.skipped + page.calls.len();
    html! {
        h1 { "Waiting for a person" }
        // Each decision moves calls from later to earlier pages, so a live later page would lose
        // calls that still wait.
        @if page.skipped == 0 { (live::line("/live/threads", PATH)) }
        (threads::draw_notes(&page.notes))
        div #live-waiting {
            @if calls.is_empty() && page.skipped == 0 && !is_complete {
                p.empty {
                    "No call waits for an approval or an answer, as far as this host knows: it lacks \
                     records."
                }
            } @else if calls.is_empty() && page.skipped == 0 {
                p.empty { "No call waits for an approval or an answer." }
            } @else if calls.is_empty() {
                p.empty { "No more calls wait. " a href=(PATH) { "The first ones" } }
            }
            @for call in calls { (self::call(call, &room, may_act)) }
            (pages(page, end))
        }
    }
}

/// Draws links to the previous and the next page. `end` is the number of calls on this page and all
/// pages before it.
fn pages(page: &WaitingPage, end: usize) -> Markup {
    html! {
        p.pages {
            @if page.skipped > 0 {
                a rel="prev" href=(path_after(page.skipped.saturating_sub(limits::WEB_PAGE_ROWS))) {
                    "Those before"
                }
            }
            @if page.all > end as u64 {
                a rel="next" href=(path_after(end)) {
                    (count(page.all - end as u64, "more call"))
                }
            }
        }
    }
}

fn path_after(skipped: usize) -> String {
    UrlQuery::default().with_skipped(skipped).link(PATH)
}

fn call(shown: &CallToDecide, room: &PageRoom, may_act: bool) -> Markup {
    let call = &shown.call;
    let title = format!("call-{}", call.message);
    let command = call.hold.command();
    html! {
        // An article is no landmark: the names of many calls would be the same.
        article.call aria-labelledby=(title) {
            h2 id=(title) {
                a data-entry href=(message::path(call.message)) { (inline(&call.name.local)) }
            }
            (content_of(shown, room))
            @if may_act { (buttons(call)) }
            @if !may_act {
                p.hint {
                    "This view is read-only. To decide here, start it with " code { "--operate" } "."
                }
            }
            h3 { "At the terminal" }
            ul.commands {
                @if !call.can_only_be_refused() {
                    li { code { "organism " (command) " " (call.message) } }
                }
                li { code { "organism refuse " (call.message) " --reason \"…\"" } }
            }
        }
    }
}

/// Draws a held call: its sender and other properties, the client's request that led to the call,
/// its payload and its preview.
fn content_of(shown: &CallToDecide, room: &PageRoom) -> Markup {
    let CallToDecide { call, request, turn } = shown;
    html! {
        dl.facts {
            div { dt { "Waits for an" } dd { (call.hold.as_str()) } }
            div { dt { "From" } dd { (inline(call.from.as_str())) } }
            div { dt { "To" } dd { (inline(call.to.as_str())) } }
            div { dt { "Since" } dd { (since(call)) } }
            div {
                dt { "Until" }
                dd { @if let Some(until) = &call.until { time { (until) } } @else { "no time limit runs" } }
            }
            @if let Some(why) = &call.why { div { dt { "Why" } dd { (inline(why)) } } }
            div {
                dt { "Thread" }
                dd {
                    a href=(thread::path(call.thread.as_str())) {
                        (inline(call.thread.as_str()))
                    }
                }
            }
            div { dt { "Message" } dd { a href=(message::path(call.message)) { "all on record about it" } } }
            @if turn.is_some() {
                div { dt { "Prompt" } dd { a href=(prompt::path(call.message)) { "what its model read" } } }
            }
        }
        @if let Some(turn) = turn { (refused_beside(turn, call.message)) }
        @match request {
            Ok(Some(request)) => {
                @if let Some(action) = request.action {
                    p.note { "Started by " a href=(message::path(action)) { "an operator's action" } "." }
                }
                @if request.message.id != call.message {
                    (started_by(request, room))
                    h3 { "The call" }
                }
            },
            Ok(None) => p.problem {
                "The request that led to this call is not known: it is not in the index yet, or too \
                 many messages are between it and the call. Load this page again."
            },
            Err(error) => p.problem {
                "The request that led to this call could not be read: " (inline(error))
            },
        }
        @if let Some(payload) = &call.payload {
            (readable(payload, room))
            h3 { "The exact text, which a decision covers" }
            (written(payload, room))
        } @else {
            p.empty { "The payload was redacted: the call can only be refused." }
        }
        (preview(call, room))
        p { "sha256 " code.digest { (call.sha256) } }
    }
}

/// Draws the payloads that the gate refused in the turn in which the model wrote `call`.
fn refused_beside(turn: &WritingTurn, call: MessageId) -> Markup {
    html! {
        @if !turn.refused.is_empty() {
            div.note {
                "In the same turn, its model also wrote:"
                ul.led-to {
                    @for refusal in &turn.refused { li { (prompt::refused(refusal)) } }
                    @if turn.left > 0 {
                        li { a href=(prompt::path(call)) { (count(turn.left, "more refusal")) } }
                    }
                }
            }
        }
    }
}

/// Maximum length, in lines, of a request that is shown expanded. A longer request is shown
/// collapsed.
const REQUEST_LINES_OPEN: u64 = 12;

/// Draws the client's request that led to a held call.
fn started_by(request: &StartingRequest, room: &PageRoom) -> Markup {
    let StartingRequest { message, payload, action } = request;
    let local = message.name.rsplit_once('}').map_or(&*message.name, |(_, local)| local);
    let payload = payload.as_deref().map(|payload| Excerpt::of_payload(payload, None));
    let is_short = payload.as_ref().is_some_and(|text| text.all() <= REQUEST_LINES_OPEN);
    html! {
        details.started-by open[is_short] {
            summary {
                @if action.is_some() { "Request of " } @else { "Started by " }
                b { (inline(&message.from)) } ": "
                @if action.is_none() { "request " }
                b { (inline(local)) } " to " (inline(&message.to)) ", "
                @match Time::parse(&message.time) {
                    Some(time) => (moment(time)),
                    None => time { (message.time) },
                }
            }
            @match payload {
                Some(text) if room.claim_room() => {
                    pre.body { (room.take(text.text())) }
                    @if text.is_cut() { p.more { "… " (count(text.all(), "line")) " in all" } }
                },
                Some(_) => {},
                None => p.empty { "The payload was redacted." },
            }
            p { a href=(message::path(message.id)) { "The whole request" } }
        }
    }
}

/// Draws a held call on the page of a decision about it.
pub(super) fn whole_call(shown: &CallToDecide) -> Markup {
    let call = &shown.call;
    html! {
        section.call {
            h2 { a href=(message::path(call.message)) { (inline(&call.name.local)) } }
            (content_of(shown, &PageRoom::new()))
        }
    }
}

/// Draws, at the top of a thread's page, the calls of the thread that wait for a person. `held`
/// contains the same calls with their contents, or is empty.
pub(super) fn needs_you(
    waiting: &[WaitingMessage],
    held: &[HeldCall],
    left: u64,
    may_act: bool,
) -> Markup {
    html! {
        div #needs-you {
            @if held.is_empty() {
                @for call in waiting {
                    article.needs-you aria-label="Waits for a person" {
                        p {
                            b { "Waits for a person" } ": " (message::link(call.message)) ", since "
                            (moment(call.since)) ". It is not handed over. "
                            a href=(call_path(call.message)) { "How to decide" }
                        }
                    }
                }
            }
            @for call in held {
                article.needs-you aria-label="Waits for a person" {
                    p {
                        b { "Waits for an " (call.hold.as_str()) ": " }
                        (inline(call.from.as_str())) " → " (inline(call.to.as_str())) " "
                        a href=(message::path(call.message)) { (inline(&call.name.local)) }
                        ", since " (since(call))
                        @if let Some(why) = &call.why { ": " (inline(why)) }
                        ". It is not handed over."
                    }
                    @if may_act { (buttons(call)) } @else {
                        p { a href=(call_path(call.message)) { "How to decide" } }
                    }
                }
            }
            @if left > 0 {
                p.note {
                    (count(left, "more call")) " " (form(left, "waits", "wait"))
                    " for a person here: " a href=(PATH) { "Waiting" }
                }
            }
        }
    }
}

/// Draws the time at which the wait of a call began, and the time since then.
fn since(call: &HeldCall) -> Markup {
    let Some(since) = Time::parse(&call.since) else { return html! { time { (call.since) } } };
    html! {
        (moment(since)) " " span.ago { "(" (duration(Time::now().since(since))) " ago)" }
    }
}

/// Draws links to the pages of the decisions about a call.
fn buttons(call: &HeldCall) -> Markup {
    html! {
        p.buttons {
            @match call.hold {
                _ if call.can_only_be_refused() => {},
                Hold::Approval => a.button href=(operate::approve_path(call)) { "Approve" },
                Hold::Answer => a.button href=(operate::answer_path(call.message)) { "Answer" },
            }
            a.button href=(operate::refuse_path(call)) { "Refuse" }
        }
    }
}

/// Draws a payload formatted as on the other pages. Draws nothing if the formatted text equals the
/// payload itself.
fn readable(payload: &str, room: &PageRoom) -> Markup {
    let text = Excerpt::of_payload(payload, None);
    let is_other = text.text().0 != Excerpt::as_written(payload).text().0;
    html! { @if is_other && !room.is_full() { pre.body { (room.take(text.text())) } } }
}

/// Draws the text of a payload. A person who decides must see the whole text.
fn written(text: &str, room: &PageRoom) -> Markup {
    if !room.claim_room() {
        return html! { p.problem { "The page is full: the page of the message shows this text." } };
    }
    let written = Excerpt::as_written(text);
    html! {
        pre.body.written { (room.take(written.text())) }
        @if written.is_cut() { p.problem { "There is more: the message has all of it as a file." } }
    }
}

fn preview(call: &HeldCall, room: &PageRoom) -> Markup {
    match &call.preview {
        None => html! {},
        Some(CallPreviewView::Requested) => html! { p.note { "A preview was requested." } },
        Some(CallPreviewView::Missing { reason }) => {
            html! { p.note { "No preview came: " (shown(reason)) } }
        }
        Some(CallPreviewView::Recorded { sha256, text }) => html! {
            h3 { "Preview" }
            @if let Some(text) = text {
                (written(text, room))
            } @else {
                p.empty { "The preview was redacted: the call can only be refused." }
            }
            p { "sha256 " code.digest { (sha256) } }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Digest, ListenerName, ThreadId};
    use crate::system;

    fn held_call() -> HeldCall {
        HeldCall {
            message: MessageId(uuid::Uuid::from_u128(7)),
            hold: Hold::Approval,
            thread: ThreadId::parse("sess-unknown1").unwrap(),
            from: ListenerName::parse("front").unwrap(),
            to: ListenerName::parse("back").unwrap(),
            name: system::name("work"),
            sha256: Digest::of(b"<work/>"),
            payload: Some("<work/>".to_owned()),
            why: None,
            since: "2026-01-01T00:00:00Z".to_owned(),
            until: None,
            preview: None,
        }
    }

    #[test]
    fn a_redacted_call_offers_its_refusal_alone() {
        let drawn = |call: HeldCall| {
            let shown = CallToDecide { call, request: Ok(None), turn: None };
            self::call(&shown, &PageRoom::new(), true).into_string()
        };
        let redacted_preview = CallPreviewView::Recorded { sha256: Digest::of(b""), text: None };
        let redacted = [
            HeldCall { payload: None, ..held_call() },
            HeldCall { payload: None, hold: Hold::Answer, ..held_call() },
            HeldCall { preview: Some(redacted_preview), ..held_call() },
        ];
        for call in redacted {
            let page = drawn(call);
            assert!(page.contains("redacted: the call can only be refused."), "{page}");
            assert!(page.contains(">Refuse</a>") && page.contains("organism refuse "), "{page}");
            for other in [">Approve</a>", ">Answer</a>", "organism approve", "organism answer"] {
                assert!(!page.contains(other), "{other} in {page}");
            }
        }
        let page = drawn(held_call());
        assert!(page.contains(">Approve</a>") && page.contains("organism approve "), "{page}");
    }

    #[test]
    fn a_call_says_that_its_request_is_not_known_or_could_not_be_read() {
        let call = held_call();
        let cases = [
            (Ok(None), "led to this call is not known: "),
            (Err("the disk <fails>".to_owned()), "could not be read: <bdi>the disk &lt;fails&gt;"),
        ];
        for (request, expected) in cases {
            let shown = CallToDecide { call: call.clone(), request, turn: None };
            let drawn = whole_call(&shown).into_string();
            assert!(drawn.contains(expected), "{drawn}");
            assert!(drawn.contains("&lt;work/&gt;"), "{drawn}");
        }
    }
}
