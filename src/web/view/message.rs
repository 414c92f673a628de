//! The page with everything on record about one message, as `organism message` reports it.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::layout::{grouped, inline};
use super::operate::MessageActions;
use super::payload_text::Excerpt;
use super::person::ActingPerson;
use super::thread::path as thread_path;
use super::{ViewState, operate, record_entry, turn_text, url_query};
use crate::audit::amounts::micros;
use crate::audit::event_text::signature_text;
use crate::audit::{
    CallPreviewView, FoundMessage, GateVerdict, MessageDecision, MessageReport, MessageState,
    MessageView, RefusalView, TurnText, message_report,
};
use crate::ids::{MessageId, ThreadId};
use crate::index::{self, IndexReader, IndexedCall, IndexedHold, IndexedMessage, MessageSelector};
use crate::limits;
use crate::plural::count;
use crate::xml::invisible_characters::visible;

/// Id of the page element that contains the text of the model's turn.
pub(super) const TURN_TEXT: &str = "turn-text";

/// Returns the path of the page of a message.
pub(super) fn path(id: MessageId) -> String {
    format!("/messages/{id}")
}

/// Draws a link to a message. The link shows the last digits of the id, because the first digits
/// are a time.
pub(super) fn link(id: MessageId) -> Markup {
    let text = id.to_string();
    let last = text.get(text.len().saturating_sub(8)..).unwrap_or_default();
    html! { a data-entry href=(path(id)) { "…" (last) } }
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, Path(id): Path<String>) -> Response {
    respond(view, id, |view, found| {
        let message = &found.report.message;
        let id = message.id.to_string();
        let actions = MessageActions {
            // Every other tree begins with a request of a client, at which a fork can begin.
            can_fork: message.thread.as_str() != ThreadId::ORGANISM,
            can_retry: can_retry(&found.report),
        };
        let bar = operate::message_bar(view, message.id, actions);
        let title = format!("{} · {}", title(message), id.get(..8).unwrap_or(&id));
        view.page(&title, "/threads", &html! { (bar) (content(found, view.operate.is_some())) })
    })
    .await
}

/// Returns the heading of the page, such as `#3 writer → ledger: say`.
fn title(message: &MessageView) -> String {
    let MessageView { seq, from, to, name, .. } = message;
    let title = format!("#{seq} {from} → {to}: {}", name.local);
    visible(&title).to_string()
}

/// Whether the message opened a call that failed or was cancelled. False if the payload of the
/// message was redacted, because a redacted payload cannot be sent again.
fn can_retry(report: &MessageReport) -> bool {
    let outcome = report.call.as_ref().and_then(|call| call.outcome.as_deref());
    matches!(outcome, Some("failed" | "cancelled")) && report.message.payload.is_some()
}

/// Sends the payload as a file, byte for byte as it was recorded.
pub(super) async fn raw(State(view): State<Arc<ViewState>>, Path(id): Path<String>) -> Response {
    respond(view, id, |view, found| {
        let report = &found.report;
        let Some(payload) = report.message.payload.clone() else {
            let text = "The payload was redacted: its digest alone is on record.";
            return view.failed(StatusCode::GONE, "No payload", text);
        };

        let file = format!("attachment; filename=\"{}.xml.txt\"", report.message.id);
        let headers = [
            (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
            (header::CONTENT_DISPOSITION, file),
        ];
        (headers, payload).into_response()
    })
    .await
}

/// A message with the data that its page shows. `turn` is the text of the model's turn that wrote
/// the message.
struct MessageOnPage {
    report: Box<MessageReport>,
    turn: Option<TurnText>,
    /// Calls, each under the id of the message that opened it. Contains the calls of the messages
    /// that caused this message, and of the messages that this message caused.
    calls: HashMap<MessageId, IndexedCall>,
}

/// Finds the message whose id fits `selector`. If no message fits, returns `None`. If several
/// messages fit, returns `Some(Err(()))`.
fn find(
    index: &mut IndexReader,
    selector: &MessageSelector,
) -> Result<Option<Result<MessageOnPage, ()>>, index::Error> {
    let report = match message_report(index, selector, limits::WEB_PAGE_ROWS)? {
        FoundMessage::One(report) => report,
        FoundMessage::Several(_) => return Ok(Some(Err(()))),
        FoundMessage::None => return Ok(None),
    };
    let turn = match &report.turn {
        Some(turn) => crate::audit::turn_text(index, report.record.position, turn.note)?,
        None => None,
    };
    let mut calls = HashMap::new();
    for message in report.causes.iter().chain(&report.effects.messages) {
        if let Some(call) = index.opened_call(message)? {
            calls.insert(message.id, call);
        }
    }
    Ok(Some(Ok(MessageOnPage { report, turn, calls })))
}

/// Finds the message whose id is `id` or begins with `id`, and draws the message. If no message
/// fits, or several messages fit, responds with an error page.
async fn respond(
    view: Arc<ViewState>,
    id: String,
    draw: impl FnOnce(&ViewState, &MessageOnPage) -> Response + Send + 'static,
) -> Response {
    let Some(selector) = MessageSelector::parse(&id) else {
        let text = format!("`{id}` is no id of a message.");
        return view.failed(StatusCode::NOT_FOUND, "No such message", &text);
    };
    let find = move |index: &mut IndexReader| find(index, &selector);
    view.respond_found(find, move |view, found| match found {
        Some(Ok(found)) => draw(view, &found),
        Some(Err(())) => {
            let text = format!("Several messages begin with `{id}`; write more of the id.");
            view.failed(StatusCode::NOT_FOUND, "No such message", &text)
        }
        None => unknown(view, &id),
    })
    .await
}

fn unknown(view: &ViewState, id: &str) -> Response {
    view.not_in_index("No such message", &format!("message `{id}`"), None)
}

fn content(found: &MessageOnPage, may_act: bool) -> Markup {
    let MessageOnPage { report, turn: text, calls } = found;
    let message = &report.message;
    html! {
        h1 {
            "#" (grouped(message.seq)) " " (inline(message.from.as_str())) " → "
            (inline(message.to.as_str())) ": " (inline(&message.name.local))
        }
        @if let Some(held) = open_hold(report) {
            section.needs-you #needs-you aria-label="Waits for a person" {
                p {
                    b { "Waits for an " (held.kind) }
                    ", since " (held.since) ". It is not handed over. "
                    a href=(super::waiting::call_path(message.id)) {
                        (if may_act { "Decide" } else { "How to decide" })
                    }
                }
            }
        }
        dl.facts {
            div { dt { "From" } dd { (inline(message.from.as_str())) } }
            div { dt { "To" } dd { (inline(message.to.as_str())) } }
            div { dt { "Kind" } dd { (message.kind.as_str()) } }
            div { dt { "Time" } dd { time datetime=(message.time) { (message.time) } } }
            div { dt { "Delivery" } dd { (disposition(report)) } }
            div { dt { "Thread" } dd { (in_thread(report)) } }
        }
        (payload(report))
        (call(report))
        (turn(report))
        @if let Some(text) = text { div id=(TURN_TEXT) { (turn_text::sections(text)) } }
        (people(report))
        (neighbours("causes", "Because of", &report.causes, calls))
        (effects(report, calls))
        (checks(report))
        (chain(report))
    }
}

fn in_thread(report: &MessageReport) -> Markup {
    let message = &report.message;
    let id = message.thread.as_str();
    let from = message.seq.saturating_sub(limits::WEB_CONTEXT_MESSAGES).to_string();
    let query = url_query::UrlQuery::default().with("from", Some(&from));
    html! {
        a href=(format!("{}#seq-{}", query.link(&thread_path(id)), message.seq)) {
            code { (inline(id)) }
        }
        ", message " (grouped(message.seq))
    }
}

fn disposition(report: &MessageReport) -> Markup {
    let state = MessageState::of_indexed(&report.row).as_str();
    let at = report.disposed.filter(|_| report.message.disposition.is_some());
    html! { (state) @if let Some(at) = at { " at " (record_entry::link(at)) } }
}

/// If the call that the message opened waits for a person now, returns this wait. Returns `None` if
/// the message opened no call, or if its call does not wait for a person.
fn open_hold(report: &MessageReport) -> Option<&IndexedHold> {
    report.holds.iter().map(|held| &held.hold).find(|hold| hold.outcome.is_none())
}

fn payload(report: &MessageReport) -> Markup {
    let Some(payload) = report.message.payload.as_deref() else {
        return html! { p.empty { "The payload was redacted: its digest alone is on record." } };
    };

    let formatted = Excerpt::of_payload(payload, None);
    let written = Excerpt::as_written(payload);
    let path = format!("{}/raw", path(report.message.id));
    html! {
        section aria-labelledby="payload" {
            h2 #payload { "Payload" }
            pre.body { (formatted.text()) }
            details open[formatted.is_cut()] {
                summary { "As it was written, " (grouped(report.bytes as u64)) " bytes" }
                pre.body.written { (written.text()) }
                @if written.is_cut() {
                    p.more { "… cut after " (grouped(limits::WEB_RAW_CHARS as u64)) " characters" }
                }
            }
            p { a href=(path) download { "The exact bytes as a file" } }
        }
    }
}

fn call(report: &MessageReport) -> Markup {
    html! {
        @if report.call.is_some() || !report.attempts.is_empty() || !report.errors.is_empty() {
            h2 { "Call" }
            @if let Some(call) = &report.call { p { (inline(&outcome_of(call, &report.row))) } }
            @for error in &report.errors {
                p.problem {
                    (inline(&error.kind)) ": " (inline(&error.detail)) " at "
                    (record_entry::link(error.position))
                }
            }
            (attempts(report))
        }
    }
}

fn outcome_of(call: &IndexedCall, row: &IndexedMessage) -> String {
    let listener = &call.listener;
    let Some(outcome) = &call.outcome else {
        return match MessageState::of_indexed(row) {
            MessageState::InFlight => format!("with {listener}, no answer yet"),
            state @ (MessageState::Held(_) | MessageState::Queued) => {
                format!("{}; {listener} has not got it", state.as_str())
            }
            MessageState::Settled(_) | MessageState::Unsettled => format!("open at {listener}"),
        };
    };
    let fault = call.fault.as_ref().map(|fault| format!(" ({fault})")).unwrap_or_default();
    let time = call.duration_us.map(|time| format!(" after {}", micros(time)));
    let attempts = count(call.attempts, "attempt");
    format!("{outcome}{fault}{} by {listener}, {attempts}", time.unwrap_or_default())
}

fn attempts(report: &MessageReport) -> Markup {
    html! {
        @if !report.attempts.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="Attempts" {
                table.cards {
                    caption.unseen { "Attempts" }
                    thead {
                        tr {
                            th.number scope="col" { "Attempt" }
                            th scope="col" { "Listener" }
                            th scope="col" { "Handed over" }
                            th.number scope="col" { "Queued" }
                            th.number scope="col" { "Worked" }
                            th scope="col" { "Outcome" }
                        }
                    }
                    tbody {
                        @for attempt in &report.attempts {
                            tr {
                                th.number scope="row" { (attempt.attempt) }
                                td data-label="Listener" { (inline(&attempt.listener)) }
                                td data-label="Handed over" { time { (attempt.handed_over) } }
                                td.number data-label="Queued" { (micros(attempt.queue_us)) }
                                td.number data-label="Worked" { (attempt.work_us.map(micros).unwrap_or_default()) }
                                td data-label="Outcome" { (inline(attempt.outcome.as_deref().unwrap_or("in flight"))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn turn(report: &MessageReport) -> Markup {
    let Some(turn) = &report.turn else { return html! {} };
    let provider = turn.provider.as_deref().unwrap_or("?");
    let model = format!("{provider}/{}", turn.model.as_deref().unwrap_or("?"));
    let answered = turn.answered_by.as_ref().filter(|by| Some(*by) != turn.model.as_ref());
    html! {
        h2 { "Written by a model" }
        dl.facts {
            div { dt { "Agent" } dd { (inline(&turn.agent)) ", turn " (turn.turn) } }
            div { dt { "Model" } dd { (inline(&model)) } }
            @if let Some(by) = answered { div { dt { "Answered by" } dd { (inline(by)) } } }
            @if turn.failovers > 0 {
                div { dt { "Failed requests before" } dd { (turn.failovers) } }
            }
            (super::prompt::usage(turn))
            @if let Some(prompt) = turn.prompt {
                div {
                    dt { "Prompt" }
                    dd.digest {
                        a #prompt href=(super::prompt::path(report.message.id)) {
                            "The prompt"
                        }
                        " (sha256 " (prompt) ")"
                    }
                }
                div {
                    dt { "Not shown to it" }
                    dd {
                        a href=(format!("{}#unseen", super::prompt::path(report.message.id))) {
                            "what it did not get to see"
                        }
                    }
                }
            }
            div { dt { "Note" } dd { a href=(path(turn.note)) { code { (turn.note) } } } }
        }
    }
}

fn people(report: &MessageReport) -> Markup {
    let left = report.decisions_left_out();
    html! {
        @if !report.holds.is_empty() || !report.decisions.is_empty() {
            h2 { "People" }
            ul {
                @for held in &report.holds {
                    li {
                        "Waited for an " (held.hold.kind) " since " (held.hold.since)
                        @if let Some(why) = &held.why { " (" (inline(why)) ")" }
                        ": " (held.hold.outcome.as_deref().unwrap_or("waits still"))
                        @if let Some(waited) = held.hold.waited_us { " after " (micros(waited)) }
                    }
                }
                @for shown in &report.previews { (preview(&shown.preview)) }
                @if left > 0 { li { "… " (count(left, "earlier refused decision")) } }
                @for decision in &report.decisions { (self::decision(report, decision)) }
            }
        }
    }
}

fn preview(preview: &CallPreviewView) -> Markup {
    match preview {
        CallPreviewView::Recorded { sha256, text } => html! {
            li {
                "Preview, sha256 " code.digest { (inline(&sha256.to_string())) }
                @if let Some(text) = text {
                    pre.body { (Excerpt::of_payload(text, None).text()) }
                } @else { ", redacted since" }
            }
        },
        CallPreviewView::Requested | CallPreviewView::Missing { .. } => html! {},
    }
}

fn decision(report: &MessageReport, decision: &MessageDecision) -> Markup {
    let is_this = |seen: &String| report.message.digest.to_string().starts_with(seen.as_str());
    let origin = decision.origin.as_ref();
    let signed = decision.signed.as_ref();
    let person = ActingPerson::of_decision(&decision.by, origin, signed, !decision.accepted);
    let note = origin.map(|origin| origin.note.as_str()).filter(|note| !note.is_empty());
    html! {
        li {
            b { (decision.action) } " by " (person.draw()) " at " (decision.time)
            ", " (record_entry::link(decision.position))
            @if !decision.accepted { ", refused by the organism" }
            @if let Some(signed) = &decision.signed { p { (inline(&signature_text(signed))) } }
            @if let Some(seen) = &decision.payload {
                p {
                    "Saw " (if is_this(seen) { "this payload" } else { "ANOTHER payload" })
                    ", sha256 " code.digest { (inline(seen)) }
                }
            }
            @if let Some(seen) = &decision.preview {
                p { "Saw the preview, sha256 " code.digest { (inline(seen)) } }
            }
            @if let Some(reason) = &decision.reason { p { "Reason: " (inline(reason)) } }
            @if let Some(note) = note { p { "Note: " (inline(note)) } }
        }
    }
}

fn effects(report: &MessageReport, calls: &HashMap<MessageId, IndexedCall>) -> Markup {
    let effects = &report.effects;
    let left = effects.total.saturating_sub(effects.messages.len() as u64);
    let more = if effects.is_more { "more than " } else { "" };
    let title = format!("Caused {more}{}", count(effects.total, "message"));
    html! {
        @if effects.total > 0 {
            (neighbours("effects", &title, &effects.messages, calls))
            @if left > 0 {
                p.more { "… " (grouped(left)) " more between the first and the last" }
            }
        }
    }
}

fn neighbours(
    id: &str,
    title: &str,
    messages: &[IndexedMessage],
    calls: &HashMap<MessageId, IndexedCall>,
) -> Markup {
    html! {
        @if !messages.is_empty() {
            h2 { (title) }
            div.scroll id=(id) tabindex="0" role="region" aria-label=(title) {
                table.cards {
                    caption.unseen { (title) }
                    thead {
                        tr {
                            th scope="col" { "Payload" }
                            th scope="col" { "Kind" }
                            th scope="col" { "From" }
                            th scope="col" { "To" }
                            th scope="col" { "Delivery" }
                            th scope="col" { "Call" }
                            th scope="col" { "Time" }
                        }
                    }
                    tbody {
                        @for message in messages { (neighbour(message, calls)) }
                    }
                }
            }
        }
    }
}

fn neighbour(message: &IndexedMessage, calls: &HashMap<MessageId, IndexedCall>) -> Markup {
    let local = message.name.rsplit_once('}').map_or(&*message.name, |(_, local)| local);
    html! {
        tr {
            th scope="row" { a data-entry href=(path(message.id)) { (inline(local)) } }
            td data-label="Kind" { (message.kind) }
            td data-label="From" { (inline(&message.from)) }
            td data-label="To" { (inline(&message.to)) }
            td data-label="Delivery" { (MessageState::of_indexed(message).as_str()) }
            td data-label="Call" {
                @if let Some(call) = calls.get(&message.id) {
                    (inline(call.outcome.as_deref().unwrap_or("open")))
                    @if let Some(fault) = &call.fault { " (" (inline(fault)) ")" }
                }
            }
            td data-label="Time" { time { (message.time) } }
        }
    }
}

fn checks(report: &MessageReport) -> Markup {
    let verdict = match report.gate {
        GateVerdict::Passed => "passed",
        GateVerdict::PassedWithin => "passed as a part of another payload",
        GateVerdict::WrittenByCore => "the core wrote this message",
    };
    let in_call = &report.refused_in_call;
    let left = in_call.total.saturating_sub(in_call.refusals.len() as u64);
    html! {
        h2 { "Checked with" }
        dl.facts.long {
            div { dt { "Gate" } dd { (verdict) } }
            @for refusal in &report.refused_beside {
                div { dt { "Refused beside it" } dd { (refused(refusal)) } }
            }
            @for refusal in &in_call.refusals {
                div { dt { "Refused in its call" } dd { (refused(refusal)) } }
            }
            @if left > 0 { div { dt { "" } dd { (count(left, "more refusal")) } } }
            @for schema in &report.schemas {
                div {
                    dt { "Schema" }
                    dd.digest { (inline(&schema.file)) ", sha256 " (schema.sha256) }
                }
            }
            @if let Some(config) = &report.config {
                div {
                    dt { "Config" }
                    dd.digest {
                        (config.digest) ", from " (record_entry::link(config.position)) " (epoch "
                        (config.epoch) ", core version " (config.core_version) ")"
                    }
                }
            }
        }
    }
}

fn refused(refusal: &RefusalView) -> Markup {
    html! {
        code { (refusal.rule) } " of " (inline(refusal.sender.as_str())) ": "
        (inline(&refusal.located_message())) ", " (record_entry::link(refusal.position))
    }
}

fn chain(report: &MessageReport) -> Markup {
    let record = &report.record;
    html! {
        h2 { "In the chain" }
        dl.facts.long {
            div { dt { "Id" } dd.digest { (report.message.id) } }
            div { dt { "Payload" } dd.digest { "sha256 " (report.message.digest) } }
            div { dt { "Record" } dd.digest { (record_entry::link(record.position)) ", hash " (record.hash) } }
            @if record.previous.0 > 0 {
                div {
                    dt { "Follows" }
                    dd.digest {
                        (record_entry::link(record.previous)) " of this thread, hash "
                        (record.previous_hash)
                    }
                }
            }
            div { dt { "Head" } dd.digest { (record_entry::link(record.head)) ", hash " (record.head_hash) } }
        }
        p.hint { code { "organism verify" } " proves this chain." }
    }
}
