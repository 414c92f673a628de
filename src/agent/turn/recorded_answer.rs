//! Recorded answers for the turns of a fork. If a turn of the fork has the same prompt as a turn of
//! its source, the fork's turn gets the recorded answer, and no model is called.
//!
//! Prompts are compared by their digests. Some texts always differ between a fork and its source:
//! the id of the root thread, the nonces of slots, the ids and times of timers, and the environment
//! with its date. The texts of the source replace those of the fork before the digest is computed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::model_call::ModelAnswer;
use super::{ModelAgent, RenderedTurn, TurnSlots, unreadable};
use crate::agent::ActionTransport;
use crate::agent::history::{SourceTurn, SourceTurns, ThreadFold, TimerNames};
use crate::agent::protocol::ParsedTurn;
use crate::agent::protocol::feedback::REJECTED;
use crate::agent::system_prompt;
use crate::bus::Delivery;
use crate::bus::native_host;
use crate::envelope::{AttemptFailure, Money};
use crate::ids::{Digest, MessageId, Position, ThreadId};
use crate::model::{
    ChatBlock, ChatMessage, ModelRequest, ModelRoute, StopReason, StreamEnd, TokenUsage, ToolCall,
    WireSettings,
};
use crate::system;
use crate::xml::element::Element;
use crate::xml::findings::{Finding, TextLocation};

/// A turn in the source of a fork. A turn of the fork gets the recorded answer of this turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerSource {
    /// Id of the message that contains the turn's note.
    pub note: MessageId,
    /// Position of the turn's record.
    pub position: Position,
}

/// Texts that occur in the thread of a fork but not in the thread of its source.
#[derive(Default)]
pub(super) struct OwnNames {
    /// Nonces of the agent's earlier turns in the fork.
    pub nonces: Vec<String>,
    /// The timers that the agent set in the fork.
    pub timers: Vec<TimerNames>,
}

/// Texts that differ between a fork and its source, although they identify the same thing. An
/// example is the id of the root thread.
struct ForkedNames {
    fork: ThreadId,
    source: ThreadId,
    /// Pairs of a text of the fork and the corresponding text of the source: nonces of turns, and
    /// ids and times of timers.
    others: Vec<(String, String)>,
}

impl ForkedNames {
    fn in_source(&self, text: &str) -> String {
        let mut text = self.fork.replaced_by(&self.source, text).into_owned();
        for (own, source) in &self.others {
            text = text.replace(own, source);
        }
        text
    }

    fn in_fork(&self, text: &str) -> String {
        let mut text = self.source.replaced_by(&self.fork, text).into_owned();
        for (own, source) in &self.others {
            text = text.replace(source, own);
        }
        text
    }

    /// Returns the message with each text of the fork replaced by the corresponding text of the
    /// source. Opaque blocks stay unchanged: the provider has signed them, and the fork uses the
    /// same blocks as its source.
    fn message_in_source(&self, message: &ChatMessage) -> ChatMessage {
        let blocks = message.blocks.iter().map(|block| match block {
            ChatBlock::Text(text) => ChatBlock::Text(self.in_source(text)),
            ChatBlock::Result { id, text, failed } => {
                ChatBlock::Result { id: id.clone(), text: self.in_source(text), failed: *failed }
            }
            ChatBlock::Call(call) => ChatBlock::Call(ToolCall {
                arguments: self.in_source(&call.arguments),
                ..call.clone()
            }),
            ChatBlock::Own(own) => ChatBlock::Own(own.clone()),
        });
        ChatMessage { role: message.role, blocks: blocks.collect() }
    }
}

impl ModelAgent {
    /// Searches the source of the fork for a turn with the same prompt as `rendered`. Returns that
    /// turn and its recorded answer. Returns `None` if the thread belongs to no fork, or if no turn
    /// of the source has this prompt.
    pub(super) async fn recorded_answer(
        &self,
        rendered: &RenderedTurn,
        delivery: &Delivery,
    ) -> Result<Option<(AnswerSource, ModelAnswer)>, AttemptFailure> {
        let Some(source) = delivery.source.clone() else { return Ok(None) };
        let memories = Arc::clone(&self.memories);
        let agent = self.options.contract.name.clone();
        let thread = delivery.thread.clone();
        let fork = thread.root();
        let source_root = source.thread.clone();
        let reading = native_host::run_blocking(move || {
            memories.source_turns(&agent, &thread, &source).map_err(|error| unreadable(&error))
        });
        let turns = reading.await?;

        let number = rendered.request.origin.turn;
        let is_slotted = self.options.transport == ActionTransport::XmlFinal;
        let others = self.same_names(rendered, &turns);
        let names = ForkedNames { fork, source: source_root, others };

        let mut digests = HashMap::new();
        let found = turns.nearest_first(number).find_map(|turn| {
            // The nonces of a turn with another number stand elsewhere in the prompt.
            if is_slotted && turn.past.turn != number {
                return None;
            }
            let route = route_of(turn);
            let key = (turn.past.environment.as_deref(), route.clone());
            let digests = digests.entry(key);
            let digests = digests.or_insert_with(|| self.digests_in_source(rendered, turn, &names));
            let (_, settings) =
                digests.iter().find(|(digest, _)| turn.past.prompt == Some(*digest))?;
            Some((turn, settings.clone()))
        });
        Ok(found.map(|(turn, settings)| {
            let recorded = AnswerSource { note: turn.note, position: turn.position };
            (recorded, answer_of(rendered, turn, settings, &names))
        }))
    }

    /// Returns the nonces and timers that the agent has in the thread of `delivery`, a thread of a
    /// fork. The source has other nonces and timers in their place. Returns empty lists if the
    /// thread belongs to no fork.
    pub(super) fn own_names(&self, fold: &ThreadFold, delivery: &Delivery) -> OwnNames {
        let Some(source) = delivery.source.as_deref() else { return OwnNames::default() };
        let is_slotted = self.options.transport == ActionTransport::XmlFinal;
        let turns = (1..).zip(fold.turn_calls()).filter(|_| is_slotted);
        let slots = turns.map(|(turn, call)| TurnSlots::of(&delivery.thread, call, turn));
        let nonces = slots.map(|slots| slots.nonce().to_owned()).collect();
        OwnNames { nonces, timers: fold.timers_set(source.history) }
    }

    /// Pairs each nonce and timer of a fork with its counterpart in the source: nonces by the
    /// number of their turn, and timers by the order in which they were set.
    fn same_names(&self, rendered: &RenderedTurn, turns: &SourceTurns) -> Vec<(String, String)> {
        let OwnNames { nonces, timers } = &rendered.own_names;
        let is_slotted = self.options.transport == ActionTransport::XmlFinal;
        let nonces = nonces.iter().map(String::as_str);
        let nonces = nonces.chain(is_slotted.then(|| rendered.slots.nonce()));
        let nonces = (1..).zip(nonces).filter_map(|(turn, nonce)| {
            let of_source = turns.nonce(turn)?;
            Some((nonce.to_owned(), of_source.to_owned()))
        });
        let timers = timers.iter().zip(turns.timers()).flat_map(|(own, of_source)| {
            let pair = |own: &String, of_source: &String| (own.clone(), of_source.clone());
            [pair(&own.id, &of_source.id), pair(&own.fires_at, &of_source.fires_at)]
        });
        nonces.chain(timers).collect()
    }

    /// Computes digests of the request of the fork's turn, in which texts of the source replace
    /// those of the fork. The caller compares the digests with that of `turn`, a turn of the
    /// source. Returns each digest with the settings of its request. There are two digests:
    /// - one for the form of the provider that answered `turn`,
    /// - one for the form of the agent's first route, because earlier versions of this program sent
    ///   this form to every provider.
    ///
    /// If both forms are the same, there is one digest. Several routes of the agent's model may
    /// name the provider and the model that answered `turn`. In this case, returns these digests
    /// for each of the routes. If no route names them, returns no digest.
    fn digests_in_source(
        &self,
        rendered: &RenderedTurn,
        turn: &SourceTurn,
        names: &ForkedNames,
    ) -> Vec<(Digest, Option<WireSettings>)> {
        let route = route_of(turn);
        let mut settings: Vec<_> = self.model.settings(&route).into_iter().map(Some).collect();
        if settings.is_empty() && self.model.route() == route {
            settings.push(None);
        }

        let environment = turn.past.environment.as_deref().unwrap_or_default();
        let system = if environment == rendered.environment {
            rendered.request.system.clone()
        } else {
            system_prompt::system(&rendered.protocol, &self.options.sections, environment)
        };
        let own_form = self.request_for(rendered, &route.provider);
        let forms = own_form.iter().chain([&rendered.request]);
        let digests = forms.flat_map(|sent| {
            let messages = sent.messages.iter();
            let request = ModelRequest {
                system: names.in_source(&system),
                messages: messages.map(|own| Arc::new(names.message_in_source(own))).collect(),
                ..sent.clone()
            };
            let digest = |settings: &Option<WireSettings>| {
                let inputs = self.inputs(rendered, &route, settings.clone());
                (Digest::of(inputs.wire(&request).as_bytes()), settings.clone())
            };
            settings.iter().map(digest).collect::<Vec<_>>()
        });
        digests.collect()
    }
}

fn route_of(turn: &SourceTurn) -> ModelRoute {
    ModelRoute { provider: turn.past.provider.clone(), model: turn.past.model.clone() }
}

/// Returns the recorded answer of `turn`, which is a turn of the source. `settings` are the
/// settings of the turn's request. The cost of the returned answer is zero. In the answer, the ids,
/// nonces and timer times of the fork replace those of the source.
fn answer_of(
    rendered: &RenderedTurn,
    turn: &SourceTurn,
    settings: Option<WireSettings>,
    names: &ForkedNames,
) -> ModelAnswer {
    let past = &turn.past;
    let raw = names.in_fork(&past.raw);
    let calls = past.calls.iter().map(|parsed| ToolCall {
        arguments: names.in_fork(&parsed.call.arguments),
        ..parsed.call.clone()
    });
    let end = StreamEnd {
        stop: past.stop.unwrap_or(StopReason::Unknown),
        usage: TokenUsage::default(),
        calls: calls.collect(),
        own: past.own.clone(),
        route: route_of(turn),
        settings,
        model: past.answered_by.clone(),
    };

    let parse = |reasoning: &str| {
        let mut reader = rendered.protocol.start(&rendered.slots);
        reader.push(&raw);
        reader.finish(&raw, reasoning, &end)
    };
    let mut reading = parse("");
    // Reasoning that the provider sent beside the text is the first note. The text does not contain
    // it.
    if turn.notes.len() > reading.notes.len()
        && let Some(reasoning) = turn.notes.first().and_then(|note| reasoning_of(note))
    {
        reading = parse(&names.in_fork(&reasoning));
    }
    if let Some(rejection) = &past.rejection {
        let rejection = names.in_fork(rejection);
        let finding = Finding::new(REJECTED, TextLocation::default(), rejection);
        reading = ParsedTurn::of_rejection(finding);
    }
    let money = Some(Money::default());
    let latency = Duration::ZERO;
    ModelAnswer { raw, reading, end, money, latency, tries: Vec::new() }
}

fn reasoning_of(note: &str) -> Option<String> {
    let note = Element::read(note)?;
    let is_reasoning = note.name.namespace.as_deref() == Some(system::NAMESPACE)
        && note.local_name() == "thinking";
    is_reasoning.then(|| note.text())
}
