//! The page with decisions and actions of people, newest first.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{inline, moment, table, wrapped};
use super::person::ActingPerson;
use super::{ViewState, message, thread};
use crate::index::ListedAction;
use crate::limits;
use crate::thread::ActionDetail;

const PATH: &str = "/actions";

const HEADERS: [&str; 8] =
    ["Time", "Person", "Action", "Thread", "Message", "Reason", "Details", ">Record"];

pub(super) async fn show(State(view): State<Arc<ViewState>>) -> Response {
    view.respond(
        |_, index| index.newest_actions(limits::WEB_PAGE_ROWS + 1),
        |view, answers| {
            let mut actions: Vec<ListedAction> =
                answers.into_iter().flat_map(|found| found.answer).collect();
            actions.sort_by_key(|action| std::cmp::Reverse(action.time));
            view.page("Actions", PATH, &content(&actions))
        },
    )
    .await
}

fn content(actions: &[ListedAction]) -> Markup {
    let rows: Vec<_> = actions.iter().take(limits::WEB_PAGE_ROWS).map(row).collect();
    html! {
        h1 { "Actions of people" }
        @if rows.is_empty() {
            p.empty { "Nobody has decided or changed anything." }
        } @else {
            (table("Actions, newest first", &HEADERS, &rows))
        }
        @if actions.len() > limits::WEB_PAGE_ROWS {
            p.hint { "There are more; " code { "organism sql" } " lists them: the view " code { "action" } "." }
        }
    }
}

fn row(action: &ListedAction) -> Vec<Markup> {
    let person = ActingPerson {
        by: &action.person,
        is_signed: action.is_signed,
        is_refused: !action.is_accepted,
        login: action.login.as_deref(),
        uid: None,
        host: action.host.as_deref(),
    };
    vec![
        moment(action.time),
        html! { (person.draw()) @if action.is_signed { ", signed" } },
        html! {
            (inline(&action.action))
            @if !action.is_accepted { " " span.mark { "refused by the organism" } }
        },
        html! {
            @if let Some(id) = &action.thread { a href=(thread::path(id)) { (inline(id)) } }
        },
        html! {
            @if let Some(id) = action.message { (message::link(id)) }
        },
        wrapped(action.reason.as_deref().unwrap_or_default()),
        wrapped(&details(action)),
        html! { (action.position.0) },
    ]
}

/// Writes the details of an action, such as `target: all`.
fn details(action: &ListedAction) -> String {
    let details = action.details.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let details: Vec<ActionDetail> = details.unwrap_or_default();
    let parts = details.iter().map(|detail| format!("{}: {}", detail.name, detail.value));
    parts.collect::<Vec<_>>().join(", ")
}
