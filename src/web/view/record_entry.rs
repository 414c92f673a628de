//! The page of one record: its messages, its refusals, its place in the hash chain, and its text.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{grouped, inline, moment, shown, table};
use super::payload_text::Excerpt;
use super::url_query::UrlQuery;
use super::{ViewState, config, message, prompt, thread, turn_text};
use crate::audit::{RefusalView, TurnText, turn_text as read_turn};
use crate::envelope::Message;
use crate::ids::{MessageId, Position};
use crate::index::{self, IndexReader};
use crate::journal::HashedRecord;
use crate::limits;
use crate::plural::count;
use crate::thread::Fact;

/// Returns the path of the page of a record.
pub(super) fn path(position: Position) -> String {
    format!("/records/{position}")
}

/// Draws a link to a record. The text of the link contains the record's number.
pub(super) fn link(position: Position) -> Markup {
    html! { a href=(path(position)) { "record " (position) } }
}

/// Returns the path of the page of a record in one partition; `None` without partitions.
pub(super) fn path_in(partition: Option<u32>, position: Position) -> String {
    let partition = partition.map(|partition| partition.to_string());
    UrlQuery::default().with(config::PARTITION, partition.as_deref()).link(&path(position))
}

/// Draws a link to a record of one partition; `None` without partitions.
pub(super) fn link_in(partition: Option<u32>, position: Position) -> Markup {
    html! {
        a href=(path_in(partition, position)) {
            "record " (position)
            @if let Some(partition) = partition { " of partition " (partition) }
        }
    }
}

/// A record that the page shows, and the turn of a model in this record, if there is one.
struct FoundRecord {
    sealed: HashedRecord,
    /// The turn of a model in this record; `None` if there is none. The pair contains the id of the
    /// note that records the turn, and the turn's text. The text is `None` if the note was
    /// redacted.
    turn: Option<(MessageId, Option<TurnText>)>,
    /// Whether this is the last record of its journal.
    is_last: bool,
}

pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    Path(text): Path<String>,
    query: UrlQuery,
) -> Response {
    let Ok(position) = text.parse().map(Position) else { return missing(&view, &text) };
    let selected = match thread::selected_partition(&query) {
        Ok(selected) => selected,
        Err(problem) => return view.failed(StatusCode::BAD_REQUEST, "No such page", &problem),
    };
    let find = move |partition, index: &mut IndexReader| {
        let is_selected = selected.is_none_or(|selected| selected == partition);
        if is_selected { find(index, position) } else { Ok(None) }
    };
    view.respond(find, move |view, answers| {
        if let Some(selected) = selected
            && answers.iter().all(|found| found.partition != selected)
        {
            return config::no_partition(view, &selected.to_string());
        }
        let found: Vec<_> = answers
            .into_iter()
            .filter_map(|found| Some((found.partition, found.answer?)))
            .collect();
        if found.is_empty() {
            return missing(view, &text);
        }
        let content = content(view, position, selected, &found);
        view.page(&format!("Record {position}"), "/record", &content)
    })
    .await
}

fn missing(view: &ViewState, text: &str) -> Response {
    let text = format!("No journal has a record `{text}`.");
    view.failed(StatusCode::NOT_FOUND, "No such record", &text)
}

fn find(index: &IndexReader, position: Position) -> Result<Option<FoundRecord>, index::Error> {
    let Some(sealed) = index.journal().record(position)? else { return Ok(None) };
    let turn = match index.turn_at(position)? {
        Some(turn) => Some((turn.note, read_turn(index, position, turn.note)?)),
        None => None,
    };
    let is_last = index.journal().last()? <= position;
    Ok(Some(FoundRecord { sealed, turn, is_last }))
}

/// Draws, for each journal, the record at `position`. Every partition has its own journal, so
/// several records may have this position.
fn content(
    view: &ViewState,
    position: Position,
    selected: Option<u32>,
    found: &[(u32, FoundRecord)],
) -> Markup {
    let before = Position(position.0.saturating_sub(1));
    html! {
        h1 {
            "Record " (position)
            @if let Some(partition) = selected { " of partition " (partition) }
        }
        @for (partition, record) in found {
            @if let Some(partition) = view.journals.named(*partition).filter(|_| selected.is_none()) {
                h2 { a href=(path_in(Some(partition), position)) { "Partition " (partition) } }
            }
            (self::record(record))
        }
        nav.pages aria-label="Records before and after" {
            @if before.0 > 0 { a rel="prev" href=(path_in(selected, before)) { "Record " (before) } }
            @if found.iter().any(|(_, record)| !record.is_last) {
                a rel="next" href=(path_in(selected, Position(position.0.saturating_add(1)))) {
                "Record " (position.0.saturating_add(1))
            }
            }
        }
    }
}

fn record(found: &FoundRecord) -> Markup {
    let FoundRecord { sealed, turn, .. } = found;
    let record = &sealed.record;
    let json = serde_json::to_value(record).unwrap_or_default();
    let pretty = serde_json::to_string_pretty(&json).unwrap_or_default();
    let text = Excerpt::as_written(&pretty);
    let messages: Vec<_> = record.accepted_messages().collect();
    html! {
        dl.facts.long {
            div { dt { "Time" } dd { (moment(record.time)) } }
            div { dt { "Kind" } dd { code { (shown(&kind_of(&json))) } } }
            div {
                dt { "Thread" }
                dd { a href=(thread::path(record.tree.as_str())) { (inline(record.tree.as_str())) } }
            }
            div { dt { "Hash" } dd.digest { (sealed.hash) } }
            @if record.previous.0 > 0 {
                div {
                    dt { "Follows" }
                    dd.digest {
                        (link(record.previous)) " of this thread, hash " (record.previous_hash)
                    }
                }
            }
        }
        (refusals(sealed, turn.as_ref().map(|(note, _)| *note)))
        @if let Some((_, Some(text))) = turn { (turn_text::sections(text)) }
        @if !messages.is_empty() { (accepted_messages(&messages)) }
        details {
            summary { "The record as JSON" }
            pre.body.written { (text.text()) }
            @if text.is_cut() {
                p.more { "… cut after " (grouped(limits::WEB_RAW_CHARS as u64)) " characters" }
            }
        }
    }
}

/// Returns the kind of a record's input. `record` is the whole record as JSON.
fn kind_of(record: &serde_json::Value) -> String {
    let input = record.get("input");
    let name = input.and_then(serde_json::Value::as_object).and_then(|input| input.keys().next());
    let word = input.and_then(serde_json::Value::as_str);
    name.map(String::as_str).or(word).unwrap_or("?").to_owned()
}

fn refusals(sealed: &HashedRecord, note: Option<MessageId>) -> Markup {
    let record = &sealed.record;
    let refusals = record.facts.iter().filter_map(|fact| match fact {
        Fact::Refused { sender, thread, refusal, .. } => {
            let thread = thread.as_ref();
            Some(RefusalView::new(record.position, record.time, sender, thread, refusal))
        }
        _ => None,
    });
    html! {
        @for refusal in refusals.take(limits::WEB_PAGE_ROWS) {
            h2 { "Refused by the gate" }
            (self::refusal(&refusal, note))
        }
    }
}

fn refusal(refusal: &RefusalView, note: Option<MessageId>) -> Markup {
    let place = refusal.place.as_ref().filter(|place| place.is_known());
    let head = Excerpt::as_written(&refusal.head);
    let is_whole = refusal.head.len() >= refusal.length;
    html! {
        dl.facts.long {
            div { dt { "Rule" } dd { code { (refusal.rule) } } }
            div { dt { "Sender" } dd { (inline(refusal.sender.as_str())) } }
            @if let Some(id) = &refusal.thread {
                div { dt { "Thread" } dd { a href=(thread::path(id.as_str())) { (inline(id.as_str())) } } }
            }
            div { dt { "Reason" } dd { (inline(&refusal.message)) } }
            @if let Some(place) = place {
                div {
                    dt { "Place" }
                    dd {
                        (inline(&place.to_string()))
                        @if note.is_some() { " of the raw text of the turn" }
                    }
                }
            }
            @if let Some(note) = note {
                div {
                    dt { "Written in" }
                    dd {
                        a href=(message::path(note)) { "the turn of a model" } ", from "
                        a href=(prompt::path(note)) { "this prompt" }
                    }
                }
            }
            div {
                dt { "Text" }
                dd.digest { (count(refusal.length as u64, "byte")) ", sha256 " (refusal.digest) }
            }
        }
        pre.body.written { (head.text()) @if !is_whole { "…" } }
    }
}

fn accepted_messages(messages: &[&Message]) -> Markup {
    let row = |message: &&Message| {
        vec![
            html! { a data-entry href=(message::path(message.id)) { (inline(&message.name.local)) } },
            html! { (message.kind.as_str()) },
            inline(message.from.as_str()),
            inline(message.to.as_str()),
        ]
    };
    let rows: Vec<_> = messages.iter().take(limits::WEB_PAGE_ROWS).map(row).collect();
    let left = messages.len().saturating_sub(rows.len()) as u64;
    html! {
        h2 { "Messages" }
        (table("Messages of the record", &["Payload", "Kind", "From", "To"], &rows))
        @if left > 0 { p.hint { (count(left, "more message")) } }
    }
}
