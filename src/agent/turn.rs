//! One turn of an agent: renders the prompt, calls the model, parses the stream, and returns the
//! outcome.

mod model_call;
mod recorded_answer;

use std::collections::HashMap;
use std::sync::Arc;

use crate::bus::native_host::{self, HandlerContext, NativeHandler};
use crate::bus::{Delivery, Outcome};
use crate::contract::{Contract, Contracts, Meaning, goal_answer, goal_name};
use crate::envelope::{AttemptFailure, Spent, Turn};
use crate::ids::{Digest, MessageId, PayloadName, Position};
use crate::journal;
use crate::limits;
use crate::memory::ThreadHistory;
use crate::model::{
    ModelRequest, ModelRoute, ModelTerms, ModelTool, RequestOrigin, SharedModel, ToolChoice,
    WireSettings,
};
use crate::schema::Schemas;

use super::fit_prompt::{self, FittedRequest, RequestForms};
use super::history::{AgentMemories, AgentMemory, MemoryItem, ThreadMemory};
use super::inputs::{SentDigests, TurnInputs, append_notice, older_digest};
use super::protocol::render::ConversationForm;
use super::protocol::xml_final::TurnSlots;
use super::protocol::{AgentFinals, AgentProtocol, AgentVocabulary, TurnAction, notice};
use super::system_prompt::{self, AgentEnvironment, PromptInput};
use super::turn_note::TurnNote;
use super::{ActionTransport, FinalFormat, FinalMode, MemoryScope, RendererVersion};
use model_call::ModelAnswer;
pub use model_call::TurnServices;
use recorded_answer::OwnNames;

/// Settings of an agent, except its model and its journal.
#[derive(Clone)]
pub struct AgentOptions {
    pub contract: Contract,
    /// The contracts of all listeners. The agent's vocabulary and the descriptions of its peers are
    /// generated from them.
    pub contracts: Arc<Contracts>,
    pub schemas: Schemas,
    pub transport: ActionTransport,
    pub memory: MemoryScope,
    /// Maximum number of turns in one call of the agent.
    pub max_iterations: u32,
    pub final_format: FinalFormat,
    pub final_by: FinalMode,
    /// Whether the model may or must call native tools. If `None`, the provider's default applies.
    pub tool_choice: Option<ToolChoice>,
    /// Whether every turn gets a notice at the end of its prompt. If false, a turn gets a notice
    /// only in two cases: the context window is full, or the notice must name the slots of
    /// `xml-final`.
    pub notice: bool,
    /// Whether only the time-outs of the model bound the wait for an answer. True if the config
    /// sets no `timeout` for the agent. If false, the time-out of the attempt also bounds each wait
    /// without progress.
    pub is_bounded_by_model: bool,
    /// Maximum tokens of one answer of the model; if `None`, the limit in `terms` applies.
    pub max_tokens: Option<u32>,
    /// Properties of the agent's model: context window, maximum length of answers, price.
    pub terms: ModelTerms,
    /// Prompt sections from the config, in the order of the config.
    pub sections: Vec<(String, String)>,
    pub environment: AgentEnvironment,
    /// Renderer version of new turns. A recorded turn is always rendered again in the version in
    /// which it was taken.
    pub version: RendererVersion,
}

impl AgentOptions {
    pub fn new(contract: Contract, contracts: Arc<Contracts>, schemas: Schemas) -> Self {
        Self {
            contract,
            contracts,
            schemas,
            transport: ActionTransport::default(),
            memory: MemoryScope::default(),
            max_iterations: limits::ITERATIONS_DEFAULT,
            final_format: FinalFormat::default(),
            final_by: FinalMode::default(),
            tool_choice: None,
            notice: true,
            is_bounded_by_model: false,
            max_tokens: None,
            terms: ModelTerms::default(),
            sections: Vec::new(),
            environment: AgentEnvironment::default(),
            version: RendererVersion::CURRENT,
        }
    }
}

/// An agent that is ready to take turns. A clone is cheap, because it shares its parts with the
/// original. Turns of different threads may run at the same time.
#[derive(Clone)]
pub struct ModelAgent {
    options: Arc<AgentOptions>,
    protocol: Arc<AgentProtocol>,
    /// Protocols for calls with a goal. The key names the payload that answers the goal and the
    /// payload that delegates parts of it. Empty if no workflow sends goals to the agent.
    goal_protocols: Arc<HashMap<GoalTerms, Arc<AgentProtocol>>>,
    model: SharedModel,
    memories: Arc<AgentMemories>,
}

impl ModelAgent {
    pub fn new(options: AgentOptions, model: SharedModel, history: Arc<dyn ThreadHistory>) -> Self {
        Self::with_memories(options, model, Arc::new(AgentMemories::new(history)))
    }

    /// Creates an agent that shares its store of memories with other agents.
    pub fn with_memories(
        options: AgentOptions,
        model: SharedModel,
        memories: Arc<AgentMemories>,
    ) -> Self {
        let protocol = Arc::new(protocol_of_calls(&options));
        let goal_protocols = Arc::new(protocols_of_goals(&options));
        Self { options: Arc::new(options), protocol, goal_protocols, model, memories }
    }

    /// Returns the same agent with another environment in its prompts.
    #[must_use]
    pub fn within(&self, environment: AgentEnvironment) -> Self {
        let options = AgentOptions { environment, ..(*self.options).clone() };
        Self { options: Arc::new(options), ..self.clone() }
    }

    /// Returns the same agent with another renderer version.
    #[must_use]
    pub fn in_version(&self, version: RendererVersion) -> Self {
        let options = AgentOptions { version, ..(*self.options).clone() };
        Self::with_memories(options, Arc::clone(&self.model), Arc::clone(&self.memories))
    }

    /// Takes one turn for a delivery. The model call may need several requests; `context` reserves
    /// the cost of each request before it is sent. A cancellation closes the stream of the model
    /// immediately.
    pub async fn turn(
        &self,
        delivery: &Delivery,
        context: &impl TurnServices,
    ) -> Result<Outcome, AttemptFailure> {
        self.turn_with(self.kept_memory(delivery), delivery, context).await
    }

    /// Takes one turn like [`ModelAgent::turn`], but uses `memory` as the kept memory of the
    /// delivery's thread.
    pub async fn turn_with(
        &self,
        memory: ThreadMemory,
        delivery: &Delivery,
        context: &impl TurnServices,
    ) -> Result<Outcome, AttemptFailure> {
        let memory = self.extended(memory, delivery.position).await?;
        let rendered = self.render(memory, delivery)?;
        let (recorded, answered) = match self.recorded_answer(&rendered, delivery).await? {
            Some((turn, answered)) => (Some(turn), answered),
            None => (None, self.answer(&rendered, context, delivery.timeout).await?),
        };

        let route = &answered.end.route;
        let settings = answered.end.settings.clone();
        let settings = settings.or_else(|| self.model.settings(route).into_iter().next());
        let inputs = self.inputs(&rendered, route, settings);
        let own_form = self.request_for(&rendered, &route.provider);
        let sent = SentDigests::of(own_form.as_ref().unwrap_or(&rendered.request), &inputs);
        let note =
            self.note(delivery, &rendered, &answered, (&sent, recorded.map(|turn| turn.note)));
        if let Some(failure) = model_call::too_long_to_record(&answered, note.len()) {
            return Err(failure);
        }

        let spent = self.spent(&rendered, &answered);
        let ModelAnswer { reading, end, money, .. } = answered;
        let turn = Turn {
            note,
            inputs: sent.kept,
            spent,
            findings: reading.feedback,
            broken: reading.broken,
            written: reading.written,
            tokens_in: end.usage.tokens_in,
            tokens_out: end.usage.tokens_out,
            money: money.unwrap_or_default(),
            recorded: recorded.map(|turn| turn.position),
        };

        let payloads =
            reading.notes.into_iter().chain(reading.actions.into_iter().map(|a| a.payload));
        Ok(Outcome { payloads: payloads.collect(), turn: Some(turn), ..Outcome::default() })
    }

    /// Returns the inputs of the turn's request to `route`: everything except the thread.
    /// `settings` are the settings of the request; `None` if `route` uses no network.
    fn inputs(
        &self,
        rendered: &RenderedTurn,
        route: &ModelRoute,
        settings: Option<WireSettings>,
    ) -> TurnInputs {
        let ModelRequest { system, tools, tool_choice, one_call, max_tokens, .. } =
            &rendered.request;
        let is_configured = settings.as_ref().is_some_and(|own| own.answer.max_tokens.is_some());
        let default = rendered.request.default_max_tokens.filter(|_| !is_configured);
        TurnInputs {
            renderer: self.options.version.as_str().to_owned(),
            memory: self.options.memory,
            native: rendered.native.as_ref().map(|_| route.provider.clone()),
            system: system.clone(),
            tools: tools.clone(),
            tool_choice: *tool_choice,
            one_call: *one_call,
            max_tokens: max_tokens.or(default),
            model: route.model.clone(),
            settings,
        }
    }

    fn note(
        &self,
        delivery: &Delivery,
        rendered: &RenderedTurn,
        answered: &ModelAnswer,
        (sent, recorded): (&SentDigests, Option<MessageId>),
    ) -> String {
        let ModelAnswer { raw, reading, end, money, latency, tries } = answered;
        let slotted = self.options.transport == ActionTransport::XmlFinal;
        let cost = money.zip(self.options.terms.currency());
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
            latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
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
            recorded,
        };

        note.write()
    }

    /// Renders the model request for the turn of a delivery. This is a pure function of the journal
    /// and the config.
    pub fn rendered(&self, delivery: &Delivery) -> Result<ModelRequest, AttemptFailure> {
        Ok(self.render(self.kept_memory(delivery), delivery)?.request)
    }

    /// Renders the same request as [`ModelAgent::rendered`], and returns it with the notice at its
    /// end, if it has one. If `provider` is given, the request has the form for this provider.
    pub fn rendered_for(
        &self,
        delivery: &Delivery,
        provider: Option<&str>,
    ) -> Result<(ModelRequest, Option<String>), AttemptFailure> {
        let rendered = self.render(self.kept_memory(delivery), delivery)?;
        let own_form = provider.and_then(|provider| self.request_for(&rendered, provider));
        let RenderedTurn { request, notice, .. } = rendered;
        Ok((own_form.unwrap_or(request), notice))
    }

    /// Returns the body of the HTTP request that a turn for `delivery` would send to the agent's
    /// first route.
    pub fn wire(&self, delivery: &Delivery) -> Result<String, AttemptFailure> {
        let rendered = self.render(self.kept_memory(delivery), delivery)?;
        let route = self.model.route();
        let settings = self.model.settings(&route).into_iter().next();
        Ok(self.inputs(&rendered, &route, settings).wire(&rendered.request))
    }

    /// Computes the digest of a model request without its settings. Older versions of the program
    /// recorded this digest with their turns.
    pub fn digest(request: &ModelRequest) -> Digest {
        older_digest(request)
    }

    /// Returns the terms of the agent's model.
    pub fn terms(&self) -> &ModelTerms {
        &self.options.terms
    }

    /// Returns the protocol of a call, and its tool choice. If the tool choice is `None`, the
    /// provider's default applies. In a call with an untyped goal, the tool choice is never
    /// `Required`, because the agent may answer with plain text.
    fn protocol(&self, remembered: &AgentMemory) -> (&Arc<AgentProtocol>, Option<ToolChoice>) {
        let choice = self.options.tool_choice;
        if remembered.request != Some(goal_name(&self.options.contract.name)) {
            return (&self.protocol, choice);
        }

        let answer = remembered.answer.clone().unwrap_or_else(goal_answer);
        let delegate = remembered.delegate.clone();
        let is_text = answer == goal_answer();
        let form = GoalTerms { answer, delegate };
        // A retry may use a definition whose roles no contract contains any more.
        let without_roles = || GoalTerms { answer: form.answer.clone(), delegate: None };
        let of_goals = self.goal_protocols.get(&form);
        let of_goals = of_goals.or_else(|| self.goal_protocols.get(&without_roles()));
        let of_goals = of_goals.unwrap_or(&self.protocol);
        if is_text {
            (of_goals, choice.filter(|choice| *choice != ToolChoice::Required))
        } else {
            (of_goals, choice)
        }
    }

    /// Returns the kept memory of a delivery's thread, or an empty memory if none is kept.
    pub fn kept_memory(&self, delivery: &Delivery) -> ThreadMemory {
        let AgentOptions { contract, memory, version, .. } = &*self.options;
        let form = (*memory, *version);
        self.memories.take(&contract.name, &delivery.thread, form, delivery.position)
    }

    /// Keeps the memory of a thread until the agent's next turn in this thread.
    pub fn keep_memory(&self, memory: ThreadMemory) {
        self.memories.keep(memory);
    }

    /// Extends `memory` up to the position `up_to`. Reads the missing records on an OS thread for
    /// blocking work, because the read may wait for the disk.
    async fn extended(
        &self,
        mut memory: ThreadMemory,
        up_to: Position,
    ) -> Result<ThreadMemory, AttemptFailure> {
        if memory.up_to() >= up_to {
            return Ok(memory);
        }
        let memories = Arc::clone(&self.memories);
        let extended = native_host::run_blocking(move || {
            memories.extend(&mut memory, up_to).map_err(|error| unreadable(&error))?;
            Ok(memory)
        });
        extended.await
    }

    /// Adds new records to the thread's memory, renders the turn from the memory, and keeps the
    /// memory.
    fn render(
        &self,
        mut memory: ThreadMemory,
        delivery: &Delivery,
    ) -> Result<RenderedTurn, AttemptFailure> {
        let extended = self.memories.extend(&mut memory, delivery.position);
        extended.map_err(|error| unreadable(&error))?;
        let rendered = self.render_memory(&mut memory, delivery);
        self.memories.keep(memory);
        rendered
    }

    fn render_memory(
        &self,
        memory: &mut ThreadMemory,
        delivery: &Delivery,
    ) -> Result<RenderedTurn, AttemptFailure> {
        let ThreadMemory { fold, rendered, .. } = memory;
        let mut remembered = fold.memory(delivery.call, delivery.position);
        let (protocol, tool_choice) = self.protocol(&remembered);
        let environment = self.options.environment.lines(remembered.began);
        let turn = remembered.turns + 1;
        let iteration = remembered.iterations + 1;
        let waiting = remembered.waiting;
        let slots = TurnSlots::of(&delivery.thread, delivery.call, turn);
        let notice = |window_full: bool| {
            let is_needed = self.options.notice || window_full;
            let is_needed = is_needed || self.options.transport == ActionTransport::XmlFinal;
            let stands = notice::TurnProgress { iteration, window_full, waiting };
            is_needed.then(|| protocol.notice(&stands, &slots))
        };

        let name = &self.options.contract.name;
        let origin = RequestOrigin {
            agent: name.clone(),
            thread: delivery.thread.clone(),
            turn,
            trace: delivery.trace,
        };

        let system = system_prompt::system(protocol, &self.options.sections, &environment);
        let mut render = |items: &[MemoryItem], window_full: bool| {
            let tools = protocol.tools(window_full);
            let form = ConversationForm {
                viewer: name.clone(),
                provider: self.native_provider(window_full, &tools),
                version: self.options.version,
            };
            let mut messages = rendered.render(items, &form);
            let notice = notice(window_full);
            notice.clone().into_iter().for_each(|text| append_notice(&mut messages, text));
            let request = ModelRequest {
                origin: origin.clone(),
                system: system.clone(),
                messages,
                tool_choice: tool_choice.filter(|_| !tools.is_empty()),
                one_call: self.options.contract.actions_per_turn == 1 && !tools.is_empty(),
                tools,
                max_tokens: self.options.max_tokens,
                default_max_tokens: self.options.terms.bound(),
            };
            let first = form.provider.as_deref();
            let others = self.other_forms(&request, items, notice.as_deref(), first);
            RequestForms { request, others }
        };

        let own_names = self.own_names(fold, delivery);
        let terms = &self.options.terms;
        let version = self.options.version;
        let fitted = fit_prompt::fit(&mut remembered.items, name, terms, version, &mut render)?;
        let FittedRequest { request, left_out } = fitted;

        let notice = notice(!left_out.is_empty());
        let native = self.native_provider(!left_out.is_empty(), &request.tools);

        Ok(RenderedTurn {
            request,
            protocol: Arc::clone(protocol),
            remembered,
            environment,
            notice,
            slots,
            own_names,
            native,
            left_out,
        })
    }

    /// Returns the provider of the first route if the turn's request contains native calls. Returns
    /// `None` if all native calls become XML: with the transport `xml`, or if the context window is
    /// full and the request offers no `tools`. Some providers refuse a request that contains native
    /// calls and results but offers no tools.
    fn native_provider(&self, window_full: bool, tools: &[ModelTool]) -> Option<String> {
        let is_plain = window_full && tools.is_empty();
        let is_native = self.options.transport.is_native() && !is_plain;
        is_native.then(|| self.model.route().provider)
    }

    fn meaning(&self, name: &PayloadName) -> Option<&Meaning> {
        self.options.contracts.vocabulary(&self.options.contract.name)?.meaning(name)
    }

    /// Returns the reason why the agent may take no further turn for this call. Returns `None` if
    /// further turns are allowed. The last turn has a reason even if it contains a final payload,
    /// because the gate or the core may refuse this payload.
    fn spent(&self, rendered: &RenderedTurn, answered: &ModelAnswer) -> Option<Spent> {
        let ModelAnswer { raw, reading, .. } = answered;
        let remembered = &rendered.remembered;
        let window_full = !rendered.left_out.is_empty();
        if !window_full && remembered.iterations + 1 < self.options.max_iterations {
            return None;
        }

        let is_valid = |action: &TurnAction| {
            self.meaning(&action.name).is_some()
                && self.options.schemas.validate(&action.name, &action.payload).is_ok()
        };
        let acted = remembered.acted || reading.actions.iter().any(is_valid);

        let is_goal = !Arc::ptr_eq(&rendered.protocol, &self.protocol);
        let may_end_in_text = !is_goal
            && self.options.final_by == FinalMode::Action
            && self.protocol.has_text_final();
        Some(match (window_full, acted) {
            (true, _) => Spent::WindowFull,
            _ if may_end_in_text && reading.is_text_alone(raw) => Spent::EndedInText,
            (false, true) => Spent::AfterLastCall,
            (false, false) => Spent::NeverValid,
        })
    }
}

fn unreadable(error: &journal::Error) -> AttemptFailure {
    AttemptFailure::Unreachable { detail: format!("the thread cannot be read: {error}") }
}

fn protocol_of_calls(options: &AgentOptions) -> AgentProtocol {
    let AgentOptions { contract, contracts, schemas, version, .. } = options;
    let vocabulary = AgentVocabulary::new(contract, contracts, schemas);
    let finals = AgentFinals::new(&vocabulary, schemas, options.final_format.clone(), *version);
    protocol_with(options, vocabulary, finals.ended_by(options.final_by))
}

/// The two payloads for a goal: one answers the goal, the other delegates parts of it. Goals may
/// differ in these payloads, so an agent has one protocol for each pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GoalTerms {
    /// The payload that answers the goal.
    answer: PayloadName,
    /// The payload with which the agent delegates parts of the goal to other agents; `None` if the
    /// goal does not permit delegation.
    delegate: Option<PayloadName>,
}

/// Makes the agent's protocols for goals, which are requests of workflows. There is one protocol
/// for each combination of the payload that answers the goal and the payload that delegates parts
/// of the goal. The second payload may be absent. A goal whose output has a type is answered only
/// with the payload of this type. Any other goal can also be answered with the text of a turn.
fn protocols_of_goals(options: &AgentOptions) -> HashMap<GoalTerms, Arc<AgentProtocol>> {
    let AgentOptions { contract, contracts, schemas, version, .. } = options;
    let vocabulary = contracts.vocabulary(&contract.name).filter(|words| words.has_goals());
    let Some(vocabulary) = vocabulary else { return HashMap::new() };

    let of_form = |form: GoalTerms, format: FinalFormat, by: FinalMode| {
        let GoalTerms { answer, delegate } = &form;
        let delegate = delegate.as_ref();
        let vocabulary = AgentVocabulary::for_goals(answer, delegate, contract, contracts, schemas);
        let finals = AgentFinals::new(&vocabulary, schemas, format, *version).ended_by(by);
        (form, Arc::new(protocol_with(options, vocabulary, finals)))
    };

    let of_text = match options.final_format {
        FinalFormat::Text => FinalFormat::Text,
        _ => FinalFormat::Markdown,
    };

    // In a slot, a typed answer is XML, so that any schema can be used.
    let of_type = match options.transport {
        ActionTransport::XmlFinal => FinalFormat::Xml,
        _ => FinalFormat::Text,
    };

    let mut protocols = HashMap::new();
    let delegates = vocabulary.delegates().iter().cloned().map(Some);
    for delegate in delegates.chain([None]) {
        let form = |answer: PayloadName| GoalTerms { answer, delegate: delegate.clone() };
        let typed = vocabulary.typed_answers().iter().cloned();
        let typed = typed.map(|answer| of_form(form(answer), of_type.clone(), FinalMode::Action));
        protocols.extend(typed);
        protocols.extend([of_form(form(goal_answer()), of_text.clone(), FinalMode::Text)]);
    }

    protocols
}

fn protocol_with(
    options: &AgentOptions,
    vocabulary: AgentVocabulary,
    finals: AgentFinals,
) -> AgentProtocol {
    let finals = match options.transport {
        ActionTransport::XmlFinal => finals.in_slot(),
        _ => finals,
    };
    let prompt = PromptInput {
        name: options.contract.name.to_string(),
        description: options.contract.description.clone(),
        vocabulary,
        version: options.version,
        actions_per_turn: options.contract.actions_per_turn,
        max_iterations: options.max_iterations,
        transport: options.transport,
        finals,
    };

    AgentProtocol::new(prompt, &options.schemas)
}

impl NativeHandler for ModelAgent {
    async fn handle(
        &self,
        delivery: Delivery,
        context: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        self.turn(&delivery, &context).await
    }
}

/// A rendered turn whose request has not been sent.
struct RenderedTurn {
    request: ModelRequest,
    protocol: Arc<AgentProtocol>,
    remembered: AgentMemory,
    environment: String,
    /// The notice at the end of the request; `None` if the turn gets no notice.
    notice: Option<String>,
    slots: TurnSlots,
    own_names: OwnNames,
    /// The provider of the agent's first route, for which the request is rendered. Native calls
    /// (tool calls) of this provider become blocks of its API, and those of other providers become
    /// XML. `None` if all native calls become XML. For other routes, see
    /// [`ModelAgent::request_for`].
    native: Option<String>,
    /// Messages that are replaced by placeholders in this turn's prompt and in later prompts. If
    /// the list is not empty, this turn is the last one of its call.
    left_out: Vec<MessageId>,
}

impl RenderedTurn {
    /// Whether the request probably contains output that the agent wrote in an earlier turn of the
    /// same call. True if the agent has taken a turn in this call, and the last turn that the
    /// request shows contains text or native calls. Does not check whether that last turn belongs
    /// to the same call.
    fn is_of_own_making(&self) -> bool {
        let last = self.remembered.items.iter().rev().find_map(|item| match item {
            MemoryItem::ModelText(model_text) => Some(model_text),
            _ => None,
        });
        self.remembered.iterations > 0
            && last.is_some_and(|last| !last.raw.is_empty() || !last.calls.is_empty())
    }
}
