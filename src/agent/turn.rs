//! One turn: render, call, read while it streams, and say what came of it.

mod model_call;

use std::sync::Arc;
use std::time::Instant;

use crate::bus::native::{Context, Handler};
use crate::bus::{Delivery, Outcome};
use crate::contract::{Contract, Contracts, Meaning};
use crate::envelope::{Failure, Money, Spent, Turn};
use crate::ids::{Digest, MessageId, PayloadName};
use crate::limits;
use crate::model::tokens::Size;
use crate::model::{Block, End, Model, Origin, Request, Role, Said, Terms, ToolChoice};
use crate::schema::Schemas;

use super::guard::{self, Fitted};
use super::history::{self, History, Item, Remembered, Viewpoint};
use super::note::TurnNote;
use super::prompt::{self, Environment};
use super::protocol::xml_final::Slots;
use super::protocol::{Action, Finals, Lexicon, Protocol, Reading, Taught, notice, show};
use super::{FinalFormat, Memory, RendererVersion, Transport};
use model_call::Answered;
pub use model_call::TurnContext;

/// Everything an agent is, but for its model and its journal.
#[derive(Clone)]
pub struct AgentOptions {
    pub contract: Contract,
    /// Of the whole organism: the agent's vocabulary and its peers' descriptions.
    pub contracts: Arc<Contracts>,
    pub schemas: Schemas,
    pub transport: Transport,
    pub memory: Memory,
    /// Model calls in one call.
    pub max_iterations: u32,
    pub final_format: FinalFormat,
    /// For native calls; `None` is the provider's own default.
    pub tool_choice: Option<ToolChoice>,
    /// Whether each turn is told where it stands. `xml-final` always is: its slots are told so.
    pub notice: bool,
    /// Of one answer, in tokens.
    pub max_tokens: Option<u32>,
    /// On which its model is called.
    pub terms: Terms,
    /// Sections of the prompt, in the config's order.
    pub sections: Vec<(String, String)>,
    pub environment: Environment,
    /// In which its prompts are written; turns on record are rendered in their own.
    pub version: RendererVersion,
}

impl AgentOptions {
    pub fn new(contract: Contract, contracts: Arc<Contracts>, schemas: Schemas) -> Self {
        Self {
            contract,
            contracts,
            schemas,
            transport: Transport::default(),
            memory: Memory::default(),
            max_iterations: limits::ITERATIONS_DEFAULT,
            final_format: FinalFormat::default(),
            tool_choice: None,
            notice: true,
            max_tokens: None,
            terms: Terms::default(),
            sections: Vec::new(),
            environment: Environment::default(),
            version: RendererVersion::CURRENT,
        }
    }
}

/// An agent, ready to take turns. Cheap to clone; turns of different threads run side by side.
#[derive(Clone)]
pub struct Agent {
    options: Arc<AgentOptions>,
    protocol: Arc<Protocol>,
    model: Model,
    history: Arc<dyn History>,
}

impl Agent {
    pub fn new(options: AgentOptions, model: Model, history: Arc<dyn History>) -> Self {
        let lexicon = Lexicon::new(&options.contract, &options.contracts, &options.schemas);
        let finals = Finals::new(&lexicon, &options.schemas, options.final_format.clone());
        let taught = Taught {
            name: options.contract.name.to_string(),
            description: options.contract.description.clone(),
            lexicon,
            version: options.version,
            actions_per_turn: options.contract.actions_per_turn,
            max_iterations: options.max_iterations,
            transport: options.transport,
            finals,
        };
        let protocol = Arc::new(Protocol::new(taught, &options.schemas));
        Self { options: Arc::new(options), protocol, model, history }
    }

    /// The same agent with another memory.
    #[must_use]
    pub fn remembering(&self, history: Arc<dyn History>) -> Self {
        Self { history, ..self.clone() }
    }

    /// The same agent where something else stands around it.
    #[must_use]
    pub fn within(&self, environment: Environment) -> Self {
        let options = AgentOptions { environment, ..(*self.options).clone() };
        Self { options: Arc::new(options), ..self.clone() }
    }

    /// The same agent as a program of that version renders it.
    #[must_use]
    pub fn in_version(&self, version: RendererVersion) -> Self {
        let options = AgentOptions { version, ..(*self.options).clone() };
        Self::new(options, Arc::clone(&self.model), Arc::clone(&self.history))
    }

    /// Takes the turn that a delivery asks for. Each request of the model call is reserved with
    /// `context` before it leaves; a cancelled turn closes its stream at once.
    pub async fn turn(
        &self,
        delivery: &Delivery,
        context: &impl TurnContext,
    ) -> Result<Outcome, Failure> {
        let rendered = self.render(delivery)?;
        let started = Instant::now();
        let Answered { raw, reading, end, money } = match self.call(&rendered, context).await {
            Ok(answered) => answered,
            Err(broken) => self.rejected(broken)?,
        };
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let note = self.note(delivery, &rendered, &raw, &reading, &end, (latency_ms, money));
        let turn = Turn {
            note,
            spent: self.spent(&rendered, &reading),
            findings: reading.told,
            broken: reading.broken,
            written: reading.written,
            tokens_in: end.usage.tokens_in,
            tokens_out: end.usage.tokens_out,
            money,
        };
        let payloads =
            reading.notes.into_iter().chain(reading.actions.into_iter().map(|a| a.payload));
        Ok(Outcome { payloads: payloads.collect(), turn: Some(turn) })
    }

    fn note(
        &self,
        delivery: &Delivery,
        rendered: &Rendered,
        raw: &str,
        reading: &Reading,
        end: &End,
        (latency_ms, money): (u64, Money),
    ) -> String {
        let slotted = self.options.transport == Transport::XmlFinal;
        let terms = &self.options.terms;
        let cost = terms.currency().map(|currency| (money, currency));
        let note = TurnNote {
            agent: &self.options.contract.name,
            call: delivery.call,
            turn: rendered.request.origin.turn,
            iteration: rendered.remembered.iterations + 1,
            position: delivery.position,
            transport: self.options.transport,
            provider: &end.route.provider,
            model: &end.route.model,
            renderer: self.options.version.as_str(),
            environment: &rendered.environment,
            stop: end.stop,
            usage: end.usage,
            latency_ms,
            prompt: digest(&rendered.request),
            raw,
            calls: &reading.calls,
            own: &end.own,
            notice: rendered.notice.as_deref(),
            nonce: slotted.then(|| rendered.slots.nonce()),
            findings: &reading.findings,
            warnings: &reading.warnings,
            left_out: &rendered.left_out,
            cost,
        };
        note.write()
    }

    /// The request a turn in this delivery makes: a pure function of the journal and the config.
    pub fn rendered(&self, delivery: &Delivery) -> Result<Request, Failure> {
        Ok(self.render(delivery)?.request)
    }

    /// As [`Agent::rendered`], with what it takes.
    pub fn measured(&self, delivery: &Delivery) -> Result<(Request, Size), Failure> {
        let Rendered { request, notice, .. } = self.render(delivery)?;
        let size = self.options.terms.size(&request, notice.as_deref());
        Ok((request, size))
    }

    /// Of everything a model is sent with this request.
    pub fn digest(request: &Request) -> Digest {
        digest(request)
    }

    fn render(&self, delivery: &Delivery) -> Result<Rendered, Failure> {
        let mut remembered = self.remember(delivery)?;
        let environment = self.options.environment.lines(remembered.began);
        let (turn, iteration) = (remembered.turns + 1, remembered.iterations + 1);
        let slots = Slots::of(&delivery.thread, delivery.call, turn);
        let notice = |window_full: bool| {
            let told = self.options.notice || window_full;
            let told = told || self.options.transport == Transport::XmlFinal;
            let stands = notice::Turn { iteration, window_full };
            told.then(|| self.protocol.notice(&stands, &slots))
        };
        let name = &self.options.contract.name;
        let origin = Origin {
            agent: name.clone(),
            thread: delivery.thread.clone(),
            turn,
            trace: delivery.trace,
        };
        let system = prompt::system(&self.protocol, &self.options.sections, &environment);
        let render = |items: &[Item], window_full: bool| {
            let tools = self.protocol.tools(window_full);
            // Some providers refuse native calls and their results where there are no tools.
            let plain = window_full && tools.is_empty();
            let native = self.options.transport.is_native() && !plain;
            let provider = native.then(|| self.model.route().provider);
            let mut messages = show::conversation(items, provider.as_deref(), self.options.version);
            if let Some(notice) = notice(window_full) {
                say_last(&mut messages, notice);
            }
            Request {
                origin: origin.clone(),
                system: system.clone(),
                messages,
                tool_choice: self.options.tool_choice.filter(|_| !tools.is_empty()),
                one_call: self.options.contract.actions_per_turn == 1 && !tools.is_empty(),
                tools,
                max_tokens: self.options.max_tokens.or_else(|| self.options.terms.bound()),
            }
        };
        let (terms, version) = (&self.options.terms, self.options.version);
        let fitted = guard::fit(&mut remembered.items, name, terms, version, render)?;
        let Fitted { request, left_out } = fitted;
        let notice = notice(!left_out.is_empty());
        Ok(Rendered { request, remembered, environment, notice, slots, left_out })
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
            version: self.options.version,
        };
        Ok(history::of(&records, &view))
    }

    fn meaning(&self, name: &PayloadName) -> Option<&Meaning> {
        self.options.contracts.vocabulary(&self.options.contract.name)?.meaning(name)
    }

    /// Whether this was the last turn and it did not end the call.
    fn spent(&self, rendered: &Rendered, reading: &Reading) -> Option<Spent> {
        let remembered = &rendered.remembered;
        let window_full = !rendered.left_out.is_empty();
        if !window_full && remembered.iterations + 1 < self.options.max_iterations {
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
        Some(match (window_full, acted) {
            (true, _) => Spent::WindowFull,
            (false, true) => Spent::AfterLastCall,
            (false, false) => Spent::NeverValid,
        })
    }
}

impl Handler for Agent {
    async fn handle(&self, delivery: Delivery, context: Context) -> Result<Outcome, Failure> {
        self.turn(&delivery, &context).await
    }
}

/// A turn that is about to be taken.
struct Rendered {
    request: Request,
    remembered: Remembered,
    environment: String,
    /// What the request says at its end, and no later one does.
    notice: Option<String>,
    slots: Slots,
    /// What stubs stand for now and did not before; with any, the turn is the last.
    left_out: Vec<MessageId>,
}

fn say_last(messages: &mut Vec<Said>, notice: String) {
    match messages.last_mut().filter(|said| said.role == Role::User) {
        Some(said) => said.blocks.push(Block::Text(notice)),
        None => messages.push(Said::text(Role::User, notice)),
    }
}

/// Of everything the model is sent, each part closed by a byte no text holds.
fn digest(request: &Request) -> Digest {
    let tools = request
        .tools
        .iter()
        .map(|tool| format!("{}\0{}\0{}\0", tool.name, tool.description, tool.parameters));
    let tools: String = tools.collect();
    let one_call = if request.one_call { "one call\0" } else { "" };
    let bounds = format!("{:?}\0{:?}\0{one_call}", request.tool_choice, request.max_tokens);
    let mut parts: Vec<&[u8]> = vec![request.system.as_bytes(), b"\0"];
    for said in &request.messages {
        parts.extend([said.role.as_str().as_bytes(), b"\0"]);
        for block in &said.blocks {
            let fields: &[&str] = match block {
                Block::Text(text) => &[text],
                Block::Call(call) => &["\u{1}call", &call.id, &call.name, &call.arguments],
                Block::Result { id, text, failed: false } => &["\u{1}result", id, text],
                Block::Result { id, text, failed: true } => &["\u{1}failed", id, text],
                Block::Own(own) => &["\u{1}own", &own.provider, &own.json],
            };
            parts.extend(fields.iter().flat_map(|field| [field.as_bytes(), b"\0".as_slice()]));
        }
    }
    parts.extend([tools.as_bytes(), bounds.as_bytes()]);
    Digest::of_parts(&parts)
}
