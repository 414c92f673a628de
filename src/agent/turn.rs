//! One turn: render, call, read while it streams, and say what came of it.

use std::sync::Arc;
use std::time::Instant;

use crate::bus::native::{Context, Handler};
use crate::bus::{Delivery, Outcome};
use crate::contract::{Contract, Contracts, Meaning};
use crate::envelope::{Failure, Reservation, Spending, Spent, Turn};
use crate::ids::{Digest, MessageId, PayloadName};
use crate::limits;
use crate::model::tokens::Size;
use crate::model::{
    self, Block, Chunk, End, Model, Origin, Request, Role, Said, StopReason, Terms, ToolChoice,
    Usage,
};
use crate::schema::Schemas;

use super::guard::{self, Fitted};
use super::heard::Heard;
use super::history::{self, History, Item, Remembered, Viewpoint};
use super::note::TurnNote;
use super::prompt::{self, Environment};
use super::protocol::xml_final::Slots;
use super::protocol::{Action, Finals, Lexicon, Protocol, Reading, Taught, feedback, notice, show};
use super::{FinalFormat, Memory, RendererVersion, Transport};

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

    /// Takes the turn a delivery asks for, once `reserve` has set aside what the model call may
    /// take.
    pub async fn turn<R>(
        &self,
        delivery: &Delivery,
        reserve: impl Fn(Reservation) -> R + Sync,
    ) -> Result<Outcome, Failure>
    where
        R: Future<Output = Result<(), Failure>> + Send,
    {
        let rendered = self.render(delivery)?;
        self.reserve(&rendered.request, reserve).await?;
        let started = Instant::now();
        let (raw, reading, end) = match self.call(&rendered).await {
            Ok(answered) => answered,
            Err(broken) => self.rejected(broken)?,
        };
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let note = self.note(delivery, &rendered, &raw, &reading, &end, latency_ms);
        let turn = Turn {
            note,
            spent: self.spent(&rendered, &reading),
            findings: reading.told,
            broken: reading.broken,
            written: reading.written,
            tokens_in: end.usage.tokens_in,
            tokens_out: end.usage.tokens_out,
            money: self.options.terms.cost(&end.route, &end.usage),
        };
        let payloads =
            reading.notes.into_iter().chain(reading.actions.into_iter().map(|a| a.payload));
        Ok(Outcome { payloads: payloads.collect(), turn: Some(turn) })
    }

    /// Counting takes longer than asking, so what the call cannot exceed is asked for first.
    async fn reserve<R>(
        &self,
        request: &Request,
        reserve: impl Fn(Reservation) -> R + Sync,
    ) -> Result<(), Failure>
    where
        R: Future<Output = Result<(), Failure>> + Send,
    {
        let terms = &self.options.terms;
        let spending = terms.at_most(request);
        match reserve(Reservation { spending, counted: false }).await {
            Err(Failure::Spent { .. }) => {
                let spending = terms.most(terms.size(request, None).total());
                reserve(Reservation { spending, counted: true }).await
            }
            answered => answered,
        }
    }

    fn note(
        &self,
        delivery: &Delivery,
        rendered: &Rendered,
        raw: &str,
        reading: &Reading,
        end: &End,
        latency_ms: u64,
    ) -> String {
        let slotted = self.options.transport == Transport::XmlFinal;
        let terms = &self.options.terms;
        let cost = terms.currency().map(|currency| (terms.cost(&end.route, &end.usage), currency));
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

    /// Reads the text as it streams; the stream is always drained.
    async fn call(&self, rendered: &Rendered) -> Result<Answered, Broken> {
        let (mut heard, mut reading) = (Heard::default(), self.protocol.start(&rendered.slots));
        let mut on_chunk = |chunk: Chunk<'_>| {
            heard.keep(chunk);
            if matches!(chunk, Chunk::Restart) {
                reading = self.protocol.start(&rendered.slots);
            } else if let Some(text) = heard.unread(limits::READ_AT_ONCE_BYTES) {
                reading.push(text);
            }
        };
        let answered = self.model.call(&rendered.request, &mut on_chunk).await;
        let (terms, request) = (&self.options.terms, &rendered.request);
        match answered {
            Ok(mut end) => {
                end.usage = end.usage.and(heard.in_vain(terms, request));
                if heard.is_too_long {
                    let (route, max) = (end.route, limits::TURN_BYTES_MAX);
                    let error = model::Error::TooLong { route, max };
                    return Err(Broken { error, usage: Some(end.usage) });
                }
                if let Some(text) = heard.unread(1) {
                    reading.push(text);
                }
                let reading = reading.finish(&heard.raw, &heard.thoughts, &end);
                Ok((heard.raw, reading, end))
            }
            Err(error) => {
                heard.break_off();
                Err(Broken { error, usage: heard.in_vain(terms, request) })
            }
        }
    }

    /// A request that the provider would not take is a turn in which nothing was done: the agent
    /// is told. Any other error fails the attempt.
    fn rejected(&self, broken: Broken) -> Result<Answered, Failure> {
        let route = self.model.route();
        let Some(message) = broken.error.feedback() else {
            let cost = |usage: Usage| Spending {
                tokens: usage.tokens_in.saturating_add(usage.tokens_out),
                money: self.options.terms.cost(&route, &usage),
            };
            return Err(failure(&broken.error, broken.usage.map(cost)));
        };
        let (stop, usage) = (StopReason::Unknown, broken.usage.unwrap_or_default());
        let (calls, own, model) = (Vec::new(), Vec::new(), None);
        let end = End { stop, usage, calls, own, route, model };
        let finding = feedback::rejected(message);
        let (findings, told) = (vec![finding.clone()], vec![finding]);
        Ok((String::new(), Reading { findings, told, ..Reading::default() }, end))
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
        self.turn(&delivery, |asked| context.reserve(asked)).await
    }
}

/// A call that came to no answer, and what it took, where something was heard.
struct Broken {
    error: model::Error,
    usage: Option<Usage>,
}

/// A model's text, what was read in it, and how it ended.
type Answered = (String, Reading, End);

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

fn failure(error: &model::Error, spent: Option<Spending>) -> Failure {
    let (detail, retried) = (error.to_string(), error.is_retried());
    match (spent, retried) {
        (Some(spent), retried) => Failure::CutShort { detail, spent, retried },
        (None, true) => Failure::Unreachable { detail },
        (None, false) => Failure::Refused { detail },
    }
}
