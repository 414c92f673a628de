//! The page with the exact request of a turn's model call, as `organism prompt` rebuilds it, and
//! with everything that the model was not shown.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::ViewState;
use super::layout::inline;
use super::message;
use super::payload_text::{Excerpt, PageRoom};
use super::unseen::UnseenMessages;
use crate::audit::amounts::count;
use crate::audit::{FoundMessage, MessageReport, message_report};
use crate::ids::{Digest, ListenerName, MessageId, Position};
use crate::index::{self, IndexReader, IndexedTurn, MessageSelector};
use crate::journal::sqlite::JournalReader;
use crate::model::{ChatBlock, ModelRequest};
use crate::organism::{PromptComparison, PromptPreview, TurnOnRecord};
use crate::xml::invisible_characters::visible;

/// Returns the path of the page that shows the prompt from which a model wrote a message.
pub(super) fn path(id: MessageId) -> String {
    format!("{}/prompt", message::path(id))
}

/// A turn with its rebuilt request, or with the reason why the request cannot be shown.
struct RebuiltTurn {
    report: Box<MessageReport>,
    turn: IndexedTurn,
    prompt: Result<PromptPreview, String>,
    unseen: UnseenMessages,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, Path(id): Path<String>) -> Response {
    let Some(selector) = MessageSelector::parse(&id) else { return missing(&view, &id) };
    let find = move |_, index: &mut IndexReader| find(index, &selector);
    view.respond(find, move |view, answers| {
        match answers.into_iter().find_map(|found| found.answer) {
            Some(turn) => {
                let title = format!("Prompt of turn {} of {}", turn.turn.turn, turn.turn.agent);
                view.page(&visible(&title).to_string(), "/threads", &content(&turn))
            }
            None => missing(view, &id),
        }
    })
    .await
}

fn missing(view: &ViewState, id: &str) -> Response {
    let text = format!("No message `{id}` that a model wrote is on record.");
    view.failed(StatusCode::NOT_FOUND, "No such prompt", &text)
}

fn find(
    index: &mut IndexReader,
    selector: &MessageSelector,
) -> Result<Option<RebuiltTurn>, index::Error> {
    let FoundMessage::One(report) = message_report(index, selector, 0)? else { return Ok(None) };
    let Some(turn) = report.turn.clone() else { return Ok(None) };
    let found = on_record(index, &turn, report.record.position);
    let unseen = UnseenMessages::of(index, found.as_ref().ok(), &report.message.thread)?;
    let prompt =
        found.and_then(|found| found.preview_from_journal().map_err(|error| error.to_string()));
    Ok(Some(RebuiltTurn { report, turn, prompt, unseen }))
}

fn on_record(
    index: &IndexReader,
    turn: &IndexedTurn,
    position: Position,
) -> Result<TurnOnRecord, String> {
    let agent = ListenerName::parse(&turn.agent).map_err(|error| error.to_string())?;
    let reader = JournalReader::open(index.journal().data()).map_err(|error| error.to_string())?;
    let found = TurnOnRecord::at(reader, &agent, position).map_err(|error| error.to_string())?;
    found.ok_or_else(|| "the record has no note of this turn".to_owned())
}

fn content(rebuilt: &RebuiltTurn) -> Markup {
    let RebuiltTurn { report, turn, prompt, unseen } = rebuilt;
    let message = &report.message;
    html! {
        h1 { "Prompt of turn " (turn.turn) " of " (inline(&turn.agent)) }
        p {
            a href=(super::thread::path(message.thread.as_str())) { (inline(message.thread.as_str())) }
            " › message #" (message.seq) ": "
            a href=(message::path(message.id)) { (inline(&message.name.local)) }
        }
        dl.facts {
            div { dt { "Agent" } dd { (inline(&turn.agent)) ", turn " (turn.turn) } }
            div { dt { "Model" } dd { (inline(turn.model.as_deref().unwrap_or("?"))) } }
            div {
                dt { "Led to" }
                dd { a data-entry href=(message::path(message.id)) { (inline(&message.name.local)) } }
            }
        }
        (unseen.section())
        @match prompt {
            Ok(prompt) => (request(prompt, &command(report, turn))),
            Err(problem) => p.problem { (inline(problem)) },
        }
    }
}

/// Returns the command that shows the whole prompt.
fn command(report: &MessageReport, turn: &IndexedTurn) -> String {
    let thread = report.message.thread.as_str();
    format!("organism prompt {} --thread {thread} --turn {}", turn.agent, turn.turn)
}

fn request(prompt: &PromptPreview, command: &str) -> Markup {
    let mut parts = PromptParts { markup: Vec::new(), room: PageRoom::new() };
    parts.add_all(&prompt.request);
    html! {
        dl.facts.long {
            div { dt { "Request" } dd.digest { "sha256 " (prompt.digest) } }
            div { dt { "Proof" } dd { (proof(prompt.recorded, prompt.digest)) } }
            @if let Some(config) = prompt.config {
                div { dt { "Config" } dd.digest { (config) (comparison(prompt.comparison)) } }
            }
        }
        @for part in &parts.markup { (part) }
        @if parts.room.omitted() > 0 {
            p.problem {
                (count(parts.room.omitted(), "more part")) ": the prompt is too long for a page; "
                code { (inline(command)) } " shows all of them."
            }
        }
    }
}

fn proof(recorded: Option<Digest>, rebuilt: Digest) -> &'static str {
    match recorded {
        Some(recorded) if recorded == rebuilt => "the record names this digest",
        Some(_) => "the record names ANOTHER digest",
        None => "the record names no digest",
    }
}

fn comparison(comparison: Option<PromptComparison>) -> String {
    match comparison {
        Some(PromptComparison::Equal) => ", which renders the same request again".to_owned(),
        Some(PromptComparison::Differs { part }) => {
            format!(", from which this program renders another {part}")
        }
        None => String::new(),
    }
}

/// Draws the parts of a request, until the page is full.
struct PromptParts {
    markup: Vec<Markup>,
    room: PageRoom,
}

impl PromptParts {
    fn add_all(&mut self, request: &ModelRequest) {
        self.add("System", "", &request.system);
        for message in &request.messages {
            for block in &message.blocks {
                let role = message.role.as_str();
                match block {
                    ChatBlock::Text(text) => self.add(role, "", text),
                    ChatBlock::Call(call) => {
                        let text = format!("{}({})", call.name, call.arguments);
                        self.add(role, &format!(", call {}", call.id), &text);
                    }
                    ChatBlock::Result { id, text, .. } => {
                        self.add(role, &format!(", result of {id}"), text);
                    }
                    ChatBlock::Own(own) => {
                        let title = format!(", block of {}", own.provider);
                        self.add(role, &title, &own.json.to_string());
                    }
                }
            }
        }
        for tool in &request.tools {
            let text = format!("{}\n{}", tool.description, tool.parameters);
            self.add("Tool", &format!(" {}", tool.name), &text);
        }
    }

    fn add(&mut self, title: &str, detail: &str, text: &str) {
        if !self.room.has_room() {
            return;
        }
        let part = Excerpt::as_written(text);
        let written = self.room.take(part.text());
        self.markup.push(html! {
            h2.role { (title) (inline(detail)) }
            pre.body.written { (written) }
            @if part.is_cut() { p.problem { "This part is longer than the page shows." } }
        });
    }
}
