//! One turn: render, call, read while it streams, and say what came of it.

use std::sync::Arc;
use std::time::Instant;

use crate::bus::native::{Context, Handler};
use crate::bus::{Delivery, Outcome};
use crate::contract::{Contract, Contracts, Meaning};
use crate::envelope::{Failure, Spent, Turn};
use crate::ids::{Digest, PayloadName};
use crate::limits;
use crate::model::{self, Block, Chunk, End, Model, Origin, Request};
use crate::schema::Schemas;

use super::history::{self, History, Remembered, Viewpoint};
use super::note::TurnNote;
use super::prompt::{self, Environment};
use super::protocol::{Action, Lexicon, Reading, Taught, read::Reader, show};
use super::{FinalFormat, Memory};

/// Everything an agent is, but for its model and its journal.
#[derive(Clone)]
pub struct AgentOptions {
    pub contract: Contract,
    /// Of the whole organism: the agent's vocabulary and its peers' descriptions.
    pub contracts: Arc<Contracts>,
    pub schemas: Schemas,
    pub memory: Memory,
    /// Model calls in one call.
    pub max_iterations: u32,
    pub final_format: FinalFormat,
    /// Of one answer, in tokens.
    pub max_tokens: Option<u32>,
    /// Sections of the prompt, in the config's order.
    pub sections: Vec<(String, String)>,
    pub environment: Environment,
}

impl AgentOptions {
    pub fn new(contract: Contract, contracts: Arc<Contracts>, schemas: Schemas) -> Self {
        Self {
            contract,
            contracts,
            schemas,
            memory: Memory::default(),
            max_iterations: limits::ITERATIONS_DEFAULT,
            final_format: FinalFormat::default(),
            max_tokens: None,
            sections: Vec::new(),
            environment: Environment::default(),
        }
    }
}

/// An agent, ready to take turns. Cheap to clone; turns of different threads run side by side.
#[derive(Clone)]
pub struct Agent {
    options: Arc<AgentOptions>,
    taught: Arc<Taught>,
    reader: Arc<Reader>,
    model: Model,
    history: Arc<dyn History>,
}

impl Agent {
    pub fn new(options: AgentOptions, model: Model, history: Arc<dyn History>) -> Self {
        let lexicon = Lexicon::new(&options.contract, &options.contracts, &options.schemas);
        let reader = Reader::new(&lexicon, &options.schemas);
        let taught = Taught {
            name: options.contract.name.to_string(),
            description: options.contract.description.clone(),
            lexicon,
            actions_per_turn: options.contract.actions_per_turn,
            max_iterations: options.max_iterations,
            final_format: options.final_format,
        };
        let (taught, reader) = (Arc::new(taught), Arc::new(reader));
        Self { options: Arc::new(options), taught, reader, model, history }
    }

    /// Takes the turn a delivery asks for.
    pub async fn turn(&self, delivery: &Delivery) -> Result<Outcome, Failure> {
        let remembered = self.remember(delivery)?;
        let environment = self.options.environment.lines(remembered.began);
        let request = self.request(delivery, &remembered, &environment);
        let started = Instant::now();
        let (raw, reading, end) = self.call(&request).await?;
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let note = TurnNote {
            agent: &self.options.contract.name,
            call: delivery.call,
            turn: request.origin.turn,
            iteration: remembered.iterations + 1,
            position: delivery.position,
            provider: &end.route.provider,
            model: &end.route.model,
            renderer: prompt::RENDERER,
            environment: &environment,
            stop: end.stop,
            usage: end.usage,
            latency_ms,
            prompt: digest(&request),
            raw: &raw,
            findings: &reading.findings,
        }
        .write();
        let turn = Turn {
            note,
            spent: self.spent(&remembered, &reading),
            findings: reading.told,
            broken: reading.broken,
            tokens_in: end.usage.tokens_in,
            tokens_out: end.usage.tokens_out,
        };
        let payloads =
            reading.notes.into_iter().chain(reading.actions.into_iter().map(|a| a.payload));
        Ok(Outcome { payloads: payloads.collect(), turn: Some(turn) })
    }

    /// The request a turn in this delivery makes: a pure function of the journal and the config.
    pub fn rendered(&self, delivery: &Delivery) -> Result<Request, Failure> {
        let remembered = self.remember(delivery)?;
        let environment = self.options.environment.lines(remembered.began);
        Ok(self.request(delivery, &remembered, &environment))
    }

    fn remember(&self, delivery: &Delivery) -> Result<Remembered, Failure> {
        let records =
            self.history.records(&delivery.thread, delivery.position).map_err(|error| {
                Failure::Unreachable { detail: format!("the thread cannot be read: {error}") }
            })?;
        let view = Viewpoint {
            agent: &self.options.contract.name,
            thread: &delivery.thread,
            call: delivery.call,
            position: delivery.position,
            memory: self.options.memory,
        };
        Ok(history::of(&records, &view))
    }

    fn request(&self, delivery: &Delivery, remembered: &Remembered, environment: &str) -> Request {
        Request {
            origin: Origin {
                agent: self.options.contract.name.clone(),
                thread: delivery.thread.clone(),
                turn: remembered.turns + 1,
            },
            system: prompt::system(&self.taught, &self.options.sections, environment),
            messages: show::conversation(&remembered.items),
            tools: Vec::new(),
            tool_choice: None,
            max_tokens: self.options.max_tokens,
        }
    }

    /// Reads the text as it streams; the stream is always drained.
    async fn call(&self, request: &Request) -> Result<(String, Reading, End), Failure> {
        let mut raw = String::new();
        let mut reading = self.reader.start();
        let mut too_long = false;
        let mut on_chunk = |chunk: Chunk<'_>| {
            let chunk = match chunk {
                Chunk::Text(chunk) => chunk,
                Chunk::Reasoning(_) => return,
                Chunk::Restart => {
                    raw.clear();
                    reading = self.reader.start();
                    too_long = false;
                    return;
                }
            };
            too_long |= raw.len() + chunk.len() > limits::TURN_BYTES_MAX;
            if !too_long {
                raw.push_str(chunk);
                reading.push(chunk);
            }
        };
        let end = self.model.call(request, &mut on_chunk).await.map_err(failure)?;
        if too_long {
            let error = model::Error::TooLong { route: end.route, max: limits::TURN_BYTES_MAX };
            return Err(failure(error));
        }
        let reading = reading.finish(&raw, end.stop);
        Ok((raw, reading, end))
    }

    fn meaning(&self, name: &PayloadName) -> Option<&Meaning> {
        self.options.contracts.vocabulary(&self.options.contract.name)?.meaning(name)
    }

    /// Whether this was the last turn and it did not end the call.
    fn spent(&self, remembered: &Remembered, reading: &Reading) -> Option<Spent> {
        if remembered.iterations + 1 < self.options.max_iterations {
            return None;
        }
        let valid = |action: &&Action| {
            self.meaning(&action.name).is_some()
                && self.options.schemas.validate(&action.name, &action.payload).is_ok()
        };
        let allowed = usize::try_from(self.options.contract.actions_per_turn.max(1));
        let mut done = reading.actions.iter().filter(valid).take(allowed.unwrap_or(usize::MAX));
        let mut acted = remembered.acted;
        if done.any(|action| {
            acted = true;
            matches!(
                self.meaning(&action.name),
                Some(Meaning::Reply | Meaning::Call { forward: true, .. })
            )
        }) {
            return None;
        }
        Some(if acted { Spent::AfterLastCall } else { Spent::NeverValid })
    }
}

impl Handler for Agent {
    async fn handle(&self, delivery: Delivery, _: Context) -> Result<Outcome, Failure> {
        self.turn(&delivery).await
    }
}

/// Of everything the model is sent, each part closed by a byte no text holds.
fn digest(request: &Request) -> Digest {
    let mut parts: Vec<&[u8]> = vec![request.system.as_bytes(), b"\0"];
    for said in &request.messages {
        parts.extend([said.role.as_str().as_bytes(), b"\0"]);
        for block in &said.blocks {
            let fields: &[&str] = match block {
                Block::Text(text) => &[text],
                Block::Call(call) => &["\u{1}call", &call.id, &call.name, &call.arguments],
                Block::Result { id, text, .. } => &["\u{1}result", id, text],
                Block::Own(own) => &["\u{1}own", &own.provider, &own.json],
            };
            parts.extend(fields.iter().flat_map(|field| [field.as_bytes(), b"\0".as_slice()]));
        }
    }
    Digest::of_parts(&parts)
}

fn failure(error: model::Error) -> Failure {
    let detail = error.to_string();
    if error.is_retried() { Failure::Unreachable { detail } } else { Failure::Refused { detail } }
}
