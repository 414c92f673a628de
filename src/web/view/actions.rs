//! The page with decisions and actions of people, newest first.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{inline, moment, table, wrapped};
use super::payload_text::MessageWithPayload;
use super::person::{ActingPerson, ActionProof};
use super::{ViewState, message, record_entry, thread};
use crate::audit::amounts::micros;
use crate::ids::ListenerName;
use crate::index::{self, IndexReader, ListedAction};
use crate::limits;
use crate::thread::ActionDetail;

pub(super) const PATH: &str = "/actions";
/// Maximum number of digits that the page shows of a digest.
const DIGITS: usize = 12;

const HEADERS: [&str; 8] =
    ["Time", "Person", "Proof", "Action", "Object", "Thread", "Reason", "Record"];

/// An action of a person, with the message that the action concerns.
struct ShownAction {
    /// Partition of the record; `None` without partitions.
    partition: Option<u32>,
    action: ListedAction,
    proof: ActionProof,
    /// The message that the action concerns; `None` if it concerns no message.
    message: Option<MessageWithPayload>,
    /// Time, in microseconds, for which the call that the message opened waited for a person. Only
    /// the latest wait counts. `None` if there is no such call, or if it has never waited or still
    /// waits.
    waited_us: Option<i64>,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>) -> Response {
    view.respond(
        |_, index| find(index),
        |view, answers| {
            let actions = answers.into_iter().flat_map(|found| {
                let partition = view.journals.named(found.partition);
                found.answer.into_iter().map(move |shown| ShownAction { partition, ..shown })
            });
            let mut actions: Vec<_> = actions.collect();
            actions.sort_by_key(|shown| std::cmp::Reverse(shown.action.time));
            view.page("Actions", PATH, &content(&actions))
        },
    )
    .await
}

fn find(index: &IndexReader) -> Result<Vec<ShownAction>, index::Error> {
    let actions = index.newest_actions(limits::WEB_PAGE_ROWS + 1)?;
    actions.into_iter().map(|action| shown_action(index, action)).collect()
}

fn shown_action(index: &IndexReader, action: ListedAction) -> Result<ShownAction, index::Error> {
    // The index stores no keys, so that the record of a signed action shows its key.
    let record = if action.is_signed { index.journal().record(action.position)? } else { None };
    let login = action.login.clone();
    let proof = match record {
        Some(sealed) => ActionProof::of_record(&sealed.record, login),
        None => ActionProof::unsigned(login),
    };

    let message = match action.message {
        Some(id) => MessageWithPayload::find(index, id)?,
        None => None,
    };
    let holds = message.as_ref().map(|found| index.holds(&found.message)).transpose()?;
    let waited_us = holds.and_then(|holds| holds.last().and_then(|hold| hold.waited_us));
    Ok(ShownAction { partition: None, action, proof, message, waited_us })
}

fn content(actions: &[ShownAction]) -> Markup {
    let rows: Vec<_> = actions.iter().take(limits::WEB_PAGE_ROWS).map(row).collect();
    html! {
        h1 { "Actions of people" }
        @if rows.is_empty() {
            p.empty { "No operator has decided or changed anything." }
        } @else {
            (table("Actions, newest first", &HEADERS, &rows))
            p.hint {
                "The proof of a signed action is the key of its person. The proof of an unsigned \
                 action is the user of the command, as the operating system of the host reported it."
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
        // The record names an operator only if the signature proved this operator.
        is_signed: action.is_signed && action.person != ListenerName::OPERATOR,
        is_refused: !action.is_accepted,
        login: action.login.as_deref(),
        uid: None,
        host: action.host.as_deref(),
    };
    let details = details(action);
    vec![
        moment(action.time),
        person.draw(),
        shown.proof.draw(),
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
        record_entry::link_in(shown.partition, action.position),
    ]
}

/// Draws the object of an action: its message or, for a cancellation, the whole thread. Also draws
/// the beginning and the digest of the message's payload, and the time for which the call waited.
fn object(shown: &ShownAction) -> Markup {
    let ShownAction { action, message, waited_us, .. } = shown;
    // What the person saw counts, even if it is not what is on record.
    let payload = message.as_ref().and_then(|found| found.payload.as_ref());
    let recorded = payload.map(|payload| payload.digest.to_string());
    let digest = action.payload.clone().or(recorded);
    let digest = digest.as_deref().map(|digest| digest.get(..DIGITS).unwrap_or(digest));
    html! {
        @if let Some(found) = message {
            a href=(message::path(found.message.id)) { (found.title()) }
        } @else if let Some(id) = action.message {
            (message::link(id))
        } @else if action.action == "cancel" {
            "the whole thread"
        }
        @if let Some(payload) = payload { ": " (payload.draw()) }
        @if let Some(digest) = digest { ", sha256 " code { (inline(digest)) "…" } }
        @if let Some(waited) = waited_us { ", waited " (micros(*waited)) }
    }
}

/// Writes the details of an action, such as `target: all`.
fn details(action: &ListedAction) -> String {
    let details = action.details.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let details: Vec<ActionDetail> = details.unwrap_or_default();
    let parts = details.iter().map(|detail| format!("{}: {}", detail.name, detail.value));
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::ids::Position;

    #[test]
    fn a_refused_action_with_a_signature_of_no_operator_names_no_operator() {
        let action = ListedAction {
            position: Position(1),
            time: Time(0),
            action: "approve".to_owned(),
            person: ListenerName::OPERATOR.to_owned(),
            login: Some("eve".to_owned()),
            host: Some("box".to_owned()),
            is_signed: true,
            is_accepted: false,
            thread: None,
            message: None,
            payload: None,
            reason: None,
            details: None,
        };
        let proof = ActionProof::unsigned(None);
        let shown = ShownAction { partition: None, action, proof, message: None, waited_us: None };
        let cells = row(&shown).into_iter().map(Markup::into_string).collect::<Vec<_>>();
        assert!(cells.join(" ").contains("eve (unproved, on box)"), "{cells:?}");
    }
}
