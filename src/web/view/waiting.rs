//! The calls that wait for a person, oldest first, with what the person would decide about. The
//! page decides nothing.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::ViewState;
use super::layout::{inline, shown};
use super::payload_text::{Excerpt, PageRoom};
use super::{message, operate, thread};
use crate::audit::amounts::count;
use crate::audit::{CallPreviewView, HeldCall, held_in};
use crate::limits;
use crate::thread::Hold;

pub(super) const PATH: &str = "/waiting";

pub(super) async fn show(State(view): State<Arc<ViewState>>) -> Response {
    view.respond(
        |_, index| held_in(index),
        |view, answers| {
            let mut calls: Vec<HeldCall> =
                answers.into_iter().flat_map(|found| found.answer).collect();
            HeldCall::sort(&mut calls);
            view.page("Waiting", PATH, &content(&calls, view.operate.is_some()))
        },
    )
    .await
}

fn content(calls: &[HeldCall], may_act: bool) -> Markup {
    let room = PageRoom::new();
    html! {
        h1 { "Waiting for a person" }
        @if calls.is_empty() { p.empty { "No call waits for an approval or an answer." } }
        @for call in calls.iter().take(limits::WEB_PAGE_ROWS) { (self::call(call, &room, may_act)) }
        @if calls.len() > limits::WEB_PAGE_ROWS {
            p.hint {
                (count(calls.len() as u64 - limits::WEB_PAGE_ROWS as u64, "more call"))
                "; " code { "organism approvals" } " shows them all."
            }
        }
    }
}

fn call(call: &HeldCall, room: &PageRoom, may_act: bool) -> Markup {
    let title = format!("call-{}", call.message);
    let command = match call.hold {
        Hold::Approval => "approve",
        Hold::Answer => "answer",
    };
    html! {
        section.call aria-labelledby=(title) {
            h2 id=(title) {
                a data-entry href=(message::path(call.message)) { (inline(&call.name.local)) }
            }
            (content_of(call, room))
            @if may_act { (buttons(call)) }
            p { code { "organism " (command) " " (call.message) } }
        }
    }
}

/// The facts, the payload and the preview of a held call.
fn content_of(call: &HeldCall, room: &PageRoom) -> Markup {
    let kind = match call.hold {
        Hold::Approval => "approval",
        Hold::Answer => "answer",
    };
    html! {
        dl.facts {
            div { dt { "Waits for an" } dd { (kind) } }
            div { dt { "From" } dd { (inline(call.from.as_str())) } }
            div { dt { "To" } dd { (inline(call.to.as_str())) } }
            div { dt { "Since" } dd { time { (call.since) } } }
            @if let Some(until) = &call.until { div { dt { "Until" } dd { time { (until) } } } }
            @if let Some(why) = &call.why { div { dt { "Why" } dd { (inline(why)) } } }
            div {
                dt { "Thread" }
                dd {
                    a href=(thread::path(call.thread.as_str())) {
                        (inline(call.thread.as_str()))
                    }
                }
            }
        }
        @if let Some(payload) = &call.payload {
            (written(payload, room))
        } @else {
            p.empty { "The payload was redacted." }
        }
        (preview(call, room))
        p { "sha256 " code.digest { (call.sha256) } }
    }
}

/// A held call on the page of a decision about it.
pub(super) fn whole_call(call: &HeldCall) -> Markup {
    html! {
        section.call {
            h2 { a href=(message::path(call.message)) { (inline(&call.name.local)) } }
            (content_of(call, &PageRoom::new()))
        }
    }
}

/// Links to the pages of the decisions about a call.
fn buttons(call: &HeldCall) -> Markup {
    html! {
        p.buttons {
            @match call.hold {
                Hold::Approval => a.button href=(operate::approve_path(call)) { "Approve" },
                Hold::Answer => a.button href=(operate::answer_path(call.message)) { "Answer" },
            }
            a.button href=(operate::refuse_path(call)) { "Refuse" }
        }
    }
}

/// The text of a payload. A person who decides must see all of it.
fn written(text: &str, room: &PageRoom) -> Markup {
    if !room.has_room() {
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
                p.empty { "The preview was redacted." }
            }
            p { "sha256 " code.digest { (sha256) } }
        },
    }
}
