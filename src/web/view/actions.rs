//! The page with decisions and actions of people, newest first.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{inline, moment, table, wrapped};
use super::person::ActingPerson;
use super::{ViewState, message, record_entry, thread};
use crate::audit::amounts::micros;
use crate::index::{self, IndexReader, IndexedMessage, ListedAction, MessageSelector};
use crate::limits;
use crate::thread::ActionDetail;

const PATH: &str = "/actions";
/// Maximum digits of a digest that the page shows.
const DIGITS: usize = 12;

const HEADERS: [&str; 7] = ["Time", "Person", "Action", "Object", "Thread", "Reason", "Record"];

/// An action of a person, the message that it concerns, and the time for which the message's call
/// waited for the action.
struct ShownAction {
    action: ListedAction,
    message: Option<IndexedMessage>,
    waited_us: Option<i64>,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>) -> Response {
    view.respond(
        |_, index| find(index),
        |view, answers| {
            let mut actions: Vec<ShownAction> =
                answers.into_iter().flat_map(|found| found.answer).collect();
            actions.sort_by_key(|shown| std::cmp::Reverse(shown.action.time));
            view.page("Actions", PATH, &content(&actions))
        },
    )
    .await
}

fn find(index: &IndexReader) -> Result<Vec<ShownAction>, index::Error> {
    let actions = index.newest_actions(limits::WEB_PAGE_ROWS + 1)?;
    let shown = |action: ListedAction| {
        let selector = action.message.and_then(|id| MessageSelector::parse(&id.to_string()));
        let message = match selector {
            Some(selector) => index.messages_with_id(&selector, 1)?.pop(),
            None => None,
        };
        let holds = message.as_ref().map(|message| index.holds(message)).transpose()?;
        let waited_us = holds.and_then(|holds| holds.last().and_then(|hold| hold.waited_us));
        Ok(ShownAction { action, message, waited_us })
    };
    actions.into_iter().map(shown).collect()
}

fn content(actions: &[ShownAction]) -> Markup {
    let rows: Vec<_> = actions.iter().take(limits::WEB_PAGE_ROWS).map(row).collect();
    html! {
        h1 { "Actions of people" }
        @if rows.is_empty() {
            p.empty { "Nobody has decided or changed anything." }
        } @else {
            (table("Actions, newest first", &HEADERS, &rows))
            p.hint {
                "A signed action is proved by the key of its person. Without a signature, the person \
                 is the user of the command, as the operating system of the host reported it."
            }
        }
        @if actions.len() > limits::WEB_PAGE_ROWS {
            p.hint { "There are more; " code { "organism sql" } " lists them: the view " code { "action" } "." }
        }
    }
}

fn row(shown: &ShownAction) -> Vec<Markup> {
    let action = &shown.action;
    let person = ActingPerson {
        by: &action.person,
        is_signed: action.is_signed,
        is_refused: !action.is_accepted,
        login: action.login.as_deref(),
        uid: None,
        host: action.host.as_deref(),
    };
    let details = details(action);
    vec![
        moment(action.time),
        html! {
            (person.draw()) @if action.is_signed { ", signed" }
        },
        html! {
            (inline(&action.action))
            @if !details.is_empty() { " " (wrapped(&details)) }
            @if !action.is_accepted { " " span.mark { "refused by the organism" } }
        },
        object(shown),
        html! {
            @if let Some(id) = &action.thread { a href=(thread::path(id)) { (inline(id)) } }
        },
        wrapped(action.reason.as_deref().unwrap_or_default()),
        record_entry::link(action.position),
    ]
}

/// Draws what an action concerns: the message, the digest of the payload that the person saw, and
/// the time for which the call waited.
fn object(shown: &ShownAction) -> Markup {
    let digest = shown.action.payload.as_deref();
    let digest = digest.map(|digest| digest.get(..DIGITS).unwrap_or(digest));
    html! {
        @if let Some(message) = &shown.message {
            @let local = message.name.rsplit_once('}').map_or(&*message.name, |(_, local)| local);
            a href=(message::path(message.id)) {
                (inline(&message.from)) " → " (inline(&message.to)) " " (inline(local))
            }
        } @else if let Some(id) = shown.action.message { (message::link(id)) }
        @if let Some(digest) = digest { ", sha256 " code { (inline(digest)) "…" } }
        @if let Some(waited) = shown.waited_us { ", waited " (micros(waited)) }
    }
}

/// Writes the details of an action, such as `target: all`.
fn details(action: &ListedAction) -> String {
    let details = action.details.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let details: Vec<ActionDetail> = details.unwrap_or_default();
    let parts = details.iter().map(|detail| format!("{}: {}", detail.name, detail.value));
    parts.collect::<Vec<_>>().join(", ")
}
