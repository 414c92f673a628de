//! The page of one model turn. It shows the exact request of the model call, as `organism prompt`
//! rebuilds it. It also shows the messages and threads that were not part of this request.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::ViewState;
use super::conversation::refused_payload;
use super::layout::{grouped, inline};
use super::payload_text::{Excerpt, PageRoom};
use super::unseen::UnseenMessages;
use super::{message, record_entry};
use crate::audit::amounts::micros;
use crate::audit::{
    FoundMessage, MessageReport, MessageState, MessageView, RefusalView, message_report,
};
use crate::envelope::{Message, MessageKind, Money};
use crate::ids::{Digest, ListenerName, MessageId, Position};
use crate::index::{self, IndexReader, IndexedMessage, IndexedTurn, MessageSelector};
use crate::journal::HashedRecord;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::model::{ChatBlock, ModelRequest};
use crate::organism::{PromptComparison, PromptPreview, TurnOnRecord};
use crate::plural::count;
use crate::system;
use crate::thread::Fact;
use crate::xml::invisible_characters::visible;

/// Returns the path of the page that shows a prompt. The model wrote the message `id` in response
/// to this prompt.
pub(super) fn path(id: MessageId) -> String {
    format!("{}/prompt", message::path(id))
}

/// A turn of a model. `prompt` is the request to the model, rebuilt from records, or the reason why
/// the request cannot be shown.
struct RebuiltTurn {
    report: Box<MessageReport>,
    turn: IndexedTurn,
    payloads: TurnPayloads,
    prompt: Result<PromptPreview, String>,
    unseen: UnseenMessages,
}

/// The turn in which a message was written: rebuilt from records, or redacted.
enum FoundTurn {
    Rebuilt(Box<RebuiltTurn>),
    /// The turn was redacted, so its prompt is lost.
    Redacted,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, Path(id): Path<String>) -> Response {
    let Some(selector) = MessageSelector::parse(&id) else { return missing(&view, &id) };
    let find = move |index: &mut IndexReader| find(index, &selector);
    view.respond_found(find, move |view, found| match found {
        Some(FoundTurn::Rebuilt(turn)) => {
            let title = format!("Prompt of turn {} of {}", turn.turn.turn, turn.turn.agent);
            view.page(&visible(&title).to_string(), "/threads", &content(&turn))
        }
        Some(FoundTurn::Redacted) => {
            let text = format!(
                "The turn of the model that wrote message `{id}` was redacted: its prompt is lost. \
                 The page of the message has what is still on record."
            );
            view.failed(StatusCode::GONE, "The turn was redacted", &text)
        }
        None => missing(view, &id),
    })
    .await
}

fn missing(view: &ViewState, id: &str) -> Response {
    view.not_in_index("No such prompt", &format!("message `{id}` that a model wrote"), None)
}

fn find(
    index: &mut IndexReader,
    selector: &MessageSelector,
) -> Result<Option<FoundTurn>, index::Error> {
    let FoundMessage::One(report) = message_report(index, selector, 0)? else { return Ok(None) };
    let Some(turn) = report.turn.clone() else {
        let sealed = index.journal().existing_record(report.record.position)?;
        let is_redacted = has_redacted_turn(sealed.record.accepted_messages(), &report.message);
        return Ok(is_redacted.then_some(FoundTurn::Redacted));
    };
    let payloads = TurnPayloads::of(index, &turn, report.record.position)?;
    let found = on_record(index, &turn, report.record.position);
    let unseen = UnseenMessages::of(index, found.as_ref().ok(), &report.message.thread)?;
    let prompt =
        found.and_then(|found| found.preview_from_journal().map_err(|error| error.to_string()));
    let rebuilt = RebuiltTurn { report, turn, payloads, prompt, unseen };
    Ok(Some(FoundTurn::Rebuilt(Box::new(rebuilt))))
}

/// Whether the messages of a record contain the redacted note of a turn in which `message` was
/// written. Also true if `message` itself is this note.
fn has_redacted_turn<'m>(
    mut messages: impl Iterator<Item = &'m Message>,
    message: &MessageView,
) -> bool {
    let name = system::name(system::MODEL_TURN);
    messages.any(|note| {
        let is_written = note.to == message.from || note.id == message.id;
        note.name == name && note.payload.is_redacted() && is_written
    })
}

/// The payloads that a model wrote in one turn.
struct TurnPayloads {
    /// The messages of the turn that the pump accepted, at most [`limits::WEB_PAGE_ROWS`].
    accepted: Vec<IndexedMessage>,
    /// The payloads of the turn that were refused, at most [`limits::WEB_PAGE_ROWS`].
    refused: Vec<RefusalView>,
    /// Number of payloads of the turn that `accepted` and `refused` leave out, because each of
    /// these lists has at most [`limits::WEB_PAGE_ROWS`] entries.
    left: u64,
}

impl TurnPayloads {
    /// Reads the payloads of a turn from the record at `position`, which contains the turn.
    fn of(
        index: &IndexReader,
        turn: &IndexedTurn,
        position: Position,
    ) -> Result<Self, index::Error> {
        let sealed = index.journal().existing_record(position)?;
        let written = |message: &&Message| {
            message.from.as_str() == turn.agent && message.kind != MessageKind::Note
        };
        let messages: Vec<_> = sealed.record.accepted_messages().filter(written).collect();
        let refused: Vec<_> = refused_in(&sealed, &turn.agent).collect();
        let most = limits::WEB_PAGE_ROWS;
        let left = messages.len().saturating_sub(most) + refused.len().saturating_sub(most);

        let mut accepted = Vec::new();
        for message in messages.into_iter().take(most) {
            let selector = MessageSelector::parse(&message.id.to_string());
            let Some(selector) = selector else { continue };
            accepted.extend(index.messages_with_id(&selector, 1)?);
        }
        let refused = refused.into_iter().take(most).collect();
        Ok(Self { accepted, refused, left: left as u64 })
    }

    fn draw(&self) -> Markup {
        html! {
            @if self.accepted.is_empty() && self.refused.is_empty() {
                "no payload"
            } @else {
                ul.led-to {
                    @for message in &self.accepted { (accepted(message)) }
                    @for refusal in &self.refused { li { (refused(refusal)) } }
                    @if self.left > 0 { li { (count(self.left, "more payload")) } }
                }
            }
        }
    }
}

fn accepted(message: &IndexedMessage) -> Markup {
    let local = message.name.rsplit_once('}').map_or(&*message.name, |(_, local)| local);
    html! {
        li {
            "#" (grouped(message.seq)) " "
            a data-entry href=(message::path(message.id)) { (inline(local)) }
            " to " (inline(&message.to)) ": " (MessageState::of_indexed(message).as_str())
        }
    }
}

/// Draws a payload that the gate refused. Shows the rule that the payload broke, and links to the
/// record of the refusal.
pub(super) fn refused(refusal: &RefusalView) -> Markup {
    html! {
        (refused_payload(refusal)) ": the gate refused it, " code { (refusal.rule) } ", "
        (record_entry::link(refusal.position))
    }
}

/// Reads from a record the refusals of payloads that `agent` wrote.
pub(super) fn refused_in<'r>(
    sealed: &'r HashedRecord,
    agent: &'r str,
) -> impl Iterator<Item = RefusalView> + 'r {
    let record = &sealed.record;
    record.facts.iter().filter_map(move |fact| match fact {
        Fact::Refused { sender, thread, refusal, .. } if sender.as_str() == agent => {
            let thread = thread.as_ref();
            Some(RefusalView::new(record.position, record.time, sender, thread, refusal))
        }
        _ => None,
    })
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
    let RebuiltTurn { report, turn, payloads, prompt, unseen } = rebuilt;
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
            (usage(turn))
            div { dt { "Time" } dd { time datetime=(message.time) { (message.time) } } }
            div {
                dt { "Output" }
                dd {
                    a href=(format!("{}#{}", message::path(turn.note), message::TURN_TEXT)) {
                        "The raw text of the turn"
                    }
                }
            }
        }
        dl.facts.long { div { dt { "Led to" } dd { (payloads.draw()) } } }
        (unseen.section())
        @match prompt {
            Ok(prompt) => (request(prompt, &command(report, turn))),
            Err(problem) => p.problem { (inline(problem)) },
        }
    }
}

/// Draws the tokens, the cost and the latency of a turn, and how the turn ended.
pub(super) fn usage(turn: &IndexedTurn) -> Markup {
    let currency = turn.currency.as_deref().unwrap_or_default();
    let has_tokens = turn.tokens_in + turn.tokens_out > 0;
    html! {
        div {
            dt { "Tokens" }
            dd { (grouped(turn.tokens_in)) " in, " (grouped(turn.tokens_out)) " out" }
        }
        @if turn.cost_nano > 0 {
            div { dt { "Cost" } dd { (Money(turn.cost_nano)) " " (inline(currency)) } }
        } @else if has_tokens {
            div { dt { "Cost" } dd { "no price" } }
        }
        div { dt { "Latency" } dd { (micros(turn.latency_us)) } }
        @if let Some(stop) = &turn.stop { div { dt { "Ended with" } dd { (inline(stop)) } } }
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

/// The parts of a model request, as the page shows them. As soon as the page has no room for more
/// text, the remaining parts are left out.
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
        if !self.room.claim_room() {
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::envelope::Payload;
    use crate::ids::{PayloadName, ThreadId};

    fn message(number: u128, name: PayloadName, [from, to]: [&str; 2], text: &str) -> Message {
        Message {
            id: MessageId(Uuid::from_u128(number)),
            kind: MessageKind::Note,
            from: ListenerName::parse(from).unwrap(),
            to: ListenerName::parse(to).unwrap(),
            thread: ThreadId::parse("sess-prompt001").unwrap(),
            seq: 1,
            cause: None,
            call: None,
            time: Time(0),
            name,
            payload: Payload::new(text),
        }
    }

    #[test]
    fn a_message_of_a_redacted_turn_differs_from_one_that_no_model_wrote() {
        let turn = system::name(system::MODEL_TURN);
        let mut note = message(1, turn, ["core", "writer"], "<model-turn/>");
        let own = message(2, PayloadName::new("urn:x", "say"), ["writer", "ledger"], "<say/>");
        let other = message(3, PayloadName::new("urn:x", "say"), ["desk", "writer"], "<say/>");
        let is_redacted = |note: &Message, message: &Message| {
            has_redacted_turn([note].into_iter(), &MessageView::new(Position(1), message))
        };
        assert!(!is_redacted(&note, &own), "the turn is readable");

        note.payload = Payload::recorded(note.payload.digest, "\0\0").unwrap();
        assert!(is_redacted(&note, &own));
        assert!(is_redacted(&note, &note));
        assert!(!is_redacted(&note, &other), "no model wrote it");
    }
}
