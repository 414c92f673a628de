//! One turn: render, call, read while it streams, and say what came of it.

mod model_call;

use std::sync::Arc;
use std::time::Instant;

use crate::bus::native::{HandlerContext, NativeHandler};
use crate::bus::{Delivery, Outcome};
use crate::contract::{Contract, Contracts, Meaning};
use crate::envelope::{Failure, Spent, Turn};
use crate::ids::{Digest, MessageId, PayloadName};
use crate::limits;
use crate::model::tokens::RequestSize;
use crate::model::{ModelRequest, ModelRoute, ModelTerms, RequestOrigin, SharedModel, ToolChoice};
use crate::schema::Schemas;

use super::guard::{self, Fitted};
use super::history::{self, History, Item, Remembered, Viewpoint};
use super::inputs::{Sent, TurnInputs, older_digest, say_last};
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
    pub terms: ModelTerms,
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
            terms: ModelTerms::default(),
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
    model: SharedModel,
    history: Arc<dyn History>,
}

impl Agent {
    pub fn new(options: AgentOptions, model: SharedModel, history: Arc<dyn History>) -> Self {
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
        let answered = match self.call(&rendered, context, delivery.timeout).await {
            Ok(answered) => answered,
            Err(broken) => self.rejected(&rendered, broken)?,
        };
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let inputs = self.inputs(&rendered, &answered.end.route);
        let sent = Sent::of(&rendered.request, &inputs);
        let note = self.note(delivery, &rendered, &answered, (&sent, latency_ms));
        let Answered { reading, end, money, .. } = answered;
        let turn = Turn {
            note,
            inputs: sent.kept,
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

    /// What a request to `route` is made of, but for the thread.
    fn inputs(&self, rendered: &Rendered, route: &ModelRoute) -> TurnInputs {
        let ModelRequest { system, tools, tool_choice, one_call, max_tokens, .. } =
            &rendered.request;
        TurnInputs {
            renderer: self.options.version.as_str().to_owned(),
            memory: self.options.memory,
            native: rendered.native.clone(),
            system: system.clone(),
            tools: tools.clone(),
            tool_choice: *tool_choice,
            one_call: *one_call,
            max_tokens: *max_tokens,
            model: route.model.clone(),
            settings: self.model.settings(route),
        }
    }

    fn note(
        &self,
        delivery: &Delivery,
        rendered: &Rendered,
        answered: &Answered,
        (sent, latency_ms): (&Sent, u64),
    ) -> String {
        let Answered { raw, reading, end, money, tries } = answered;
        let slotted = self.options.transport == Transport::XmlFinal;
        let terms = &self.options.terms;
        let cost = terms.currency().map(|currency| (*money, currency));
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
            prompt: sent.prompt,
            inputs: sent.inputs,
            raw,
            calls: &reading.calls,
            own: &end.own,
            notice: rendered.notice.as_deref(),
            nonce: slotted.then(|| rendered.slots.nonce()),
            findings: &reading.findings,
            warnings: &reading.warnings,
            left_out: &rendered.left_out,
            cost,
            answered_by: end.model.as_deref(),
            tries,
        };
        note.write()
    }

    /// The request a turn in this delivery makes: a pure function of the journal and the config.
    pub fn rendered(&self, delivery: &Delivery) -> Result<ModelRequest, Failure> {
        Ok(self.render(delivery)?.request)
    }

    /// As [`Agent::rendered`], with what it takes.
    pub fn measured(&self, delivery: &Delivery) -> Result<(ModelRequest, RequestSize), Failure> {
        let Rendered { request, notice, .. } = self.render(delivery)?;
        let size = self.options.terms.size(&request, notice.as_deref());
        Ok((request, size))
    }

    /// The body of the request that a turn in this delivery makes to the route that is asked first,
    /// as it goes over the wire.
    pub fn wire(&self, delivery: &Delivery) -> Result<String, Failure> {
        let rendered = self.render(delivery)?;
        Ok(self.inputs(&rendered, &self.model.route()).wire(&rendered.request))
    }

    /// Of everything a model is sent with this request but for its settings: what turns recorded
    /// that kept no inputs.
    pub fn digest(request: &ModelRequest) -> Digest {
        older_digest(request)
    }

    /// Tokens of a request that was rebuilt, and of what it ended with and no other did.
    pub fn size(&self, request: &ModelRequest, notice: Option<&str>) -> RequestSize {
        self.options.terms.size(request, notice)
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
        let origin = RequestOrigin {
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
            ModelRequest {
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
        let plain = !left_out.is_empty() && request.tools.is_empty();
        let native = self.options.transport.is_native() && !plain;
        let native = native.then(|| self.model.route().provider);
        Ok(Rendered { request, remembered, environment, notice, slots, native, left_out })
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

impl NativeHandler for Agent {
    async fn handle(
        &self,
        delivery: Delivery,
        context: HandlerContext,
    ) -> Result<Outcome, Failure> {
        self.turn(&delivery, &context).await
    }
}

/// A turn that is about to be taken.
struct Rendered {
    request: ModelRequest,
    remembered: Remembered,
    environment: String,
    /// What the request says at its end, and no later one does.
    notice: Option<String>,
    slots: Slots,
    /// Whose native calls and results are blocks.
    native: Option<String>,
    /// What stubs stand for now and did not before; with any, the turn is the last.
    left_out: Vec<MessageId>,
}

impl Rendered {
    /// Whether the agent itself wrote something in this call that is part of the request. A turn
    /// whose request was rejected wrote nothing.
    fn is_of_own_making(&self) -> bool {
        let last = self.remembered.items.iter().rev().find_map(|item| match item {
            Item::Spoken(spoken) => Some(spoken),
            _ => None,
        });
        self.remembered.iterations > 0
            && last.is_some_and(|last| !last.raw.is_empty() || !last.calls.is_empty())
    }
}
