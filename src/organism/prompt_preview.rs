//! Previews a prompt: for the next turn in a thread, or for an agent's first turn with an example
//! task. The example task is made from the agent's schema. The same code renders previews and real
//! prompts. No process is started, and no model is called.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::models::ConfiguredModels;
use super::{Error, local_agents, with_core_words};
use crate::agent::{AgentMemories, ModelAgent};
use crate::bus::{Delivery, DeliveryPreview};
use crate::clock::Time;
use crate::config::{AgentSpec, Config};
use crate::contract::{GoalRoles, goal_name, write_goal_request};
use crate::envelope::{Message, MessageKind, Payload};
use crate::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId,
};
use crate::journal;
use crate::journal::sqlite::JournalReader;
use crate::memory::ThreadHistory;
use crate::model::tokens::RequestSize;
use crate::model::{ModelRequest, ModelTerms};
use crate::thread::{Fact, Input, Opener, Opening, Record};

/// Selection of the turn whose prompt is previewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnSelector {
    /// The first turn for an example task, which is generated from the agent's schema.
    Example,
    /// The turn that the agent would take in this thread now.
    Next(ThreadId),
}

/// A model request as it would be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptPreview {
    pub request: ModelRequest,
    /// Journal position up to which the prompt contains the messages of the thread.
    pub position: Position,
    /// Body of the request in its wire format.
    pub wire: String,
    /// Digest of the whole request.
    pub digest: Digest,
    /// Terms of the model that gets the request.
    pub(super) terms: ModelTerms,
    /// Notice at the end of the request; `None` if it has no notice.
    pub(super) notice: Option<String>,
    /// Digest that a past turn recorded for its request; `None` if this preview is not of a past
    /// turn.
    pub recorded: Option<Digest>,
    /// Digest of the config in force at the turn. `None` if the journal has no boot before the
    /// turn.
    pub config: Option<Digest>,
    /// For a preview of a past turn: whether the request that was sent equals the request that this
    /// program now renders with the turn's config. `None` for any other preview, for a turn without
    /// stored inputs, and for a turn whose config is not available.
    pub comparison: Option<PromptComparison>,
    /// For a preview of the next turn in a thread: whether each task of the agent there has ended,
    /// so that no turn is due. The preview is then that of a further turn for the last task.
    pub has_ended: bool,
}

impl PromptPreview {
    /// Computes the size of the request in tokens. The first count in a process takes 50 ms.
    pub fn size(&self) -> RequestSize {
        self.terms.size(&self.request, self.notice.as_deref())
    }
}

/// Result of comparing two requests for the same past turn: the request that was sent, and the
/// request that this program now renders with the turn's stored config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptComparison {
    Equal,
    /// The first part in which the requests differ.
    Differs {
        part: &'static str,
    },
}

/// Renders the selected prompt of `agent`.
///
/// # Errors
///
/// [`Error::Preview`] if the agent or the thread does not exist.
pub fn preview(
    config: Config,
    agent: &ListenerName,
    moment: &TurnSelector,
) -> Result<PromptPreview, Error> {
    let config = Arc::new(with_core_words(config)?);

    match moment {
        TurnSelector::Example => {
            let spec = spec_of(&config, agent)?;
            let example = ExampleThread::of(&config, spec)?;
            let delivery = example.delivery(agent);
            rendered(&made(&config, spec, Arc::new(example))?, &delivery, None, &config)
        }
        TurnSelector::Next(thread) => {
            let PreviewInput { agent, delivery, has_ended } = due_in(&config, agent, thread)?;
            let preview = rendered(&agent, &delivery, None, &config)?;
            Ok(PromptPreview { has_ended, ..preview })
        }
    }
}

/// Renders first prompts of `agent`, each for an example task: one for the first payload that the
/// agent accepts, and one for each kind of goal that a workflow can give it. The kinds of goals
/// differ in the payload that must answer them, and in the tasks that the agent may delegate.
/// `config` must already have the schemas that [`with_core_words`] adds.
///
/// # Errors
///
/// [`Error::Preview`] if the agent does not exist.
pub(super) fn first_turns(
    config: &Arc<Config>,
    agent: &ListenerName,
) -> Result<Vec<PromptPreview>, Error> {
    let spec = spec_of(config, agent)?;
    let turn = |(name, payload): (PayloadName, String)| {
        let example = ExampleThread::with(config, agent, name, payload)?;
        let delivery = example.delivery(agent);
        rendered(&made(config, spec, Arc::new(example))?, &delivery, None, config)
    };
    tasks_of(config, agent).into_iter().map(turn).collect()
}

/// Makes one task of each kind that the agent may get: the first payload that the agent accepts,
/// and each kind of goal that a workflow can give the agent. The first task is a generated example
/// of the payload, or an empty element if no valid example could be generated.
fn tasks_of(config: &Config, agent: &ListenerName) -> Vec<(PayloadName, String)> {
    let contract = config.contracts.get(agent);
    let accepted = contract.and_then(|contract| contract.accepts.first()).map(|name| {
        let empty = || format!("<{} xmlns=\"{}\"/>", name.local, name.namespace);
        (name.clone(), config.schemas.example(name).unwrap_or_else(empty))
    });
    let mut tasks: Vec<_> = accepted.into_iter().collect();

    let vocabulary = config.contracts.vocabulary(agent).filter(|words| words.has_goals());
    let Some(vocabulary) = vocabulary else { return tasks };
    let roles = vocabulary.delegates().iter().map(|payload| {
        let payload = payload.clone();
        Some(GoalRoles { payload, to: agent.clone(), max: None, depth: 1 })
    });
    for roles in roles.chain([None]) {
        let answers = vocabulary.typed_answers().iter().map(Some).chain([None]);
        let goals = answers.map(|answer| write_goal_request(agent, "", answer, roles.as_ref()));
        tasks.extend(goals.map(|goal| (goal_name(agent), goal)));
    }
    tasks
}

/// An agent, with the delivery for the turn that the agent would take now.
pub struct PreviewInput {
    pub agent: ModelAgent,
    pub delivery: Delivery,
    /// Whether the call of the delivery has ended, as each call of the agent in the thread has.
    pub has_ended: bool,
}

/// Prepares the turn that `agent` would take in a thread now.
///
/// # Errors
///
/// [`Error::Preview`] if the agent or the thread does not exist.
pub fn due(config: Config, agent: &ListenerName, thread: &ThreadId) -> Result<PreviewInput, Error> {
    due_in(&Arc::new(with_core_words(config)?), agent, thread)
}

fn due_in(
    config: &Arc<Config>,
    agent: &ListenerName,
    thread: &ThreadId,
) -> Result<PreviewInput, Error> {
    let config = Arc::new(at_home(config, thread));
    let (delivery, has_ended) = next_turn(&config, agent, thread)?;
    let agent = made(&config, spec_of(&config, agent)?, local_agents::history(&config))?;
    Ok(PreviewInput { agent, delivery, has_ended })
}

/// Returns the config of the partition whose journal contains the thread.
fn at_home(config: &Config, thread: &ThreadId) -> Config {
    config.of_partition(thread.partition(config.partitions()))
}

pub(super) fn spec_of<'c>(
    config: &'c Config,
    agent: &ListenerName,
) -> Result<&'c AgentSpec, Error> {
    let spec = config.agents.iter().find(|spec| spec.name == *agent);
    spec.ok_or_else(|| unknown_agent(config, agent))
}

pub(super) fn made(
    config: &Config,
    spec: &AgentSpec,
    history: Arc<dyn ThreadHistory>,
) -> Result<ModelAgent, Error> {
    let memories = Arc::new(AgentMemories::new(history));
    local_agents::agent(config, spec, ConfiguredModels::of(config)?.named(&spec.model)?, memories)
}

/// Renders the turn that `agent` would take for `delivery`; `config` is the agent's config. The
/// request has the form for `provider`, or for the agent's first route if `provider` is `None`.
pub(super) fn rendered(
    agent: &ModelAgent,
    delivery: &Delivery,
    provider: Option<&str>,
    config: &Config,
) -> Result<PromptPreview, Error> {
    let failed = |failure: crate::envelope::AttemptFailure| nothing(failure.to_string());
    let (request, notice) = agent.rendered_for(delivery, provider).map_err(failed)?;
    let wire = agent.wire(delivery).map_err(failed)?;
    let digest = Digest::of(wire.as_bytes());
    Ok(PromptPreview {
        request,
        position: delivery.position,
        wire,
        digest,
        terms: agent.terms().clone(),
        notice,
        recorded: None,
        config: Some(config.digest),
        comparison: None,
        has_ended: false,
    })
}

pub(super) fn nothing(detail: impl Into<String>) -> Error {
    Error::Preview { detail: detail.into() }
}

fn unknown_agent(config: &Config, agent: &ListenerName) -> Error {
    let names: Vec<_> = config.agents.iter().map(|spec| spec.name.to_string()).collect();
    match names.as_slice() {
        [] => nothing("this config has no agents"),
        names => nothing(format!("no agent `{agent}`; the agents are {}", names.join(", "))),
    }
}

/// Calls of an agent in a thread, in the order in which the agent may begin them. A call that was
/// held begins after the calls that came before its release.
#[derive(Default)]
struct AgentCalls {
    calls: Vec<CallId>,
    closed: HashSet<CallId>,
    /// Calls that the agent has begun. Calls of other threads may be among them.
    begun: HashSet<CallId>,
    /// Calls that wait for the decision of a person.
    held: HashSet<CallId>,
}

impl AgentCalls {
    fn take(&mut self, fact: &Fact, agent: &ListenerName, thread: &ThreadId) {
        match fact {
            Fact::Accepted { message, .. } => {
                let is_call = message.kind == MessageKind::Call && message.to == *agent;
                if is_call && message.thread == *thread {
                    self.calls.push(CallId(message.id));
                }
            }
            Fact::CallClosed { call, .. } => self.closed.extend([*call]),
            Fact::Held { call, .. } => self.held.extend([*call]),
            Fact::Released { call, .. } => {
                self.held.remove(call);
                if let Some(index) = self.calls.iter().position(|own| own == call) {
                    self.calls.remove(index);
                    self.calls.push(*call);
                }
            }
            Fact::HandedOver { call, .. } | Fact::OutcomeReceived { call, .. } => {
                self.begun.extend([*call]);
            }
            Fact::Reopened(reopened) if reopened.turns > 0 => self.begun.extend([reopened.call]),
            _ => {}
        }
    }

    /// Returns the call whose turn is next, and whether this call has ended. An agent handles the
    /// calls of a thread one after another, so that is the open call that the agent has begun, or
    /// else the first open call. A held call lets later calls pass. If no call is open, returns the
    /// last one. Returns `None` if there is no call.
    fn next_call(&self) -> Option<(CallId, bool)> {
        let mut open = self.calls.iter().filter(|call| !self.closed.contains(call));
        let first = open.clone().next();
        let begun = open.clone().find(|call| self.begun.contains(call));
        let next = begun.or_else(|| open.find(|call| !self.held.contains(call))).or(first);
        let next = next.map(|call| (*call, false));
        next.or_else(|| self.calls.last().map(|call| (*call, true)))
    }
}

/// Builds the delivery for the next turn of an agent in a thread. Also returns whether the call of
/// this delivery has ended, as each call of the agent in the thread has.
fn next_turn(
    config: &Config,
    agent: &ListenerName,
    thread: &ThreadId,
) -> Result<(Delivery, bool), Error> {
    let sealed = JournalReader::open(&config.data)?.tree(&thread.root(), None)?;
    let mut calls = AgentCalls::default();
    for fact in sealed.iter().flat_map(|sealed| &sealed.record.facts) {
        calls.take(fact, agent, thread);
    }

    let last = sealed.last().map(|sealed| sealed.record.position);
    match (calls.next_call(), last) {
        (Some((call, has_ended)), Some(last)) => {
            Ok((delivery(agent, thread, call, last), has_ended))
        }
        _ => Err(nothing(format!("{agent} got no call in {thread}"))),
    }
}

pub(super) fn delivery(
    agent: &ListenerName,
    thread: &ThreadId,
    call: CallId,
    position: Position,
) -> Delivery {
    Delivery {
        listener: agent.clone(),
        call,
        thread: thread.clone(),
        attempt: Attempt { epoch: 0, n: 0 },
        messages: Vec::new(),
        fresh: 0,
        position,
        timeout: Duration::ZERO,
        trace: None,
        preview: DeliveryPreview::None,
        source: None,
        uncounted: Vec::new(),
    }
}

/// An example thread, which consists of one request.
struct ExampleThread {
    record: Record,
}

/// Makes the error message for an agent that accepts only goals of workflow runs. Such an agent has
/// no example request.
fn takes_goals_only(agent: &ListenerName) -> String {
    format!(
        "{agent} accepts no payload, only goals of workflows, so it has no example; `organism \
         workflow run NAME --dry-run` shows the goals of a run, and `organism prompt {agent} \
         --thread ID` a prompt on record"
    )
}

/// Thread id in examples.
const THREAD: &str = "sess-example1";
const DAY: &str = "2026-01-01T00:00:00Z";

impl ExampleThread {
    fn of(config: &Config, spec: &AgentSpec) -> Result<Self, Error> {
        let contract = config.contracts.get(&spec.name);
        let name: Option<&PayloadName> = contract.and_then(|contract| contract.accepts.first());
        let name = name.ok_or_else(|| nothing(takes_goals_only(&spec.name)))?;

        let payload = config.schemas.example(name);
        let payload = payload.ok_or_else(|| nothing(format!("`{name}` has no example")))?;

        Self::with(config, &spec.name, name.clone(), payload)
    }

    /// Makes the example thread: one call to `agent` with this payload.
    fn with(
        config: &Config,
        agent: &ListenerName,
        name: PayloadName,
        payload: String,
    ) -> Result<Self, Error> {
        let asker = config.contracts.iter().find(|other| other.peers.contains(agent));
        let asker = asker.map_or_else(ListenerName::core, |asker| asker.name.clone());

        let bug = |text: String| Error::Builtin { detail: text };
        let thread = ThreadId::parse(THREAD).map_err(|e| bug(e.to_string()))?;
        let time = Time::parse(DAY).ok_or_else(|| bug(DAY.to_owned()))?;

        let id = MessageId(Uuid::from_u128(1));
        let message = Arc::new(Message {
            id,
            kind: MessageKind::Call,
            from: asker.clone(),
            to: agent.clone(),
            thread: thread.clone(),
            seq: 1,
            cause: None,
            call: Some(CallId(id)),
            time,
            name,
            payload: Payload::new(payload),
        });

        let opening =
            Opening { opener: Opener::Client { name: asker }, group: None, forward: false };

        let record = Record {
            position: Position(1),
            tree: thread,
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time,
            input: Input::Boot { detail: "an example".to_owned() },
            facts: vec![Fact::Accepted { message, opening: Some(opening), key: None }],
        };

        Ok(Self { record })
    }

    fn delivery(&self, agent: &ListenerName) -> Delivery {
        let call = CallId(MessageId(Uuid::from_u128(1)));
        delivery(agent, &self.record.tree, call, self.record.position)
    }
}

impl ThreadHistory for ExampleThread {
    fn records(
        &self,
        _: &ThreadId,
        _: Position,
        _: Position,
    ) -> Result<Vec<Record>, journal::Error> {
        Ok(vec![self.record.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{Closing, Hold};

    fn id(number: u128) -> CallId {
        CallId(MessageId(Uuid::from_u128(number)))
    }

    #[test]
    fn the_next_turn_belongs_to_the_first_open_call() {
        let calls = |closed: &[u128], held: &[u128]| AgentCalls {
            calls: vec![id(1), id(2), id(3)],
            closed: closed.iter().copied().map(id).collect(),
            held: held.iter().copied().map(id).collect(),
            begun: HashSet::new(),
        };
        assert_eq!(AgentCalls::default().next_call(), None);
        assert_eq!(calls(&[], &[]).next_call(), Some((id(1), false)));
        assert_eq!(calls(&[1], &[]).next_call(), Some((id(2), false)));
        assert_eq!(calls(&[1], &[2]).next_call(), Some((id(3), false)), "a held call waits");
        assert_eq!(calls(&[1, 3], &[2]).next_call(), Some((id(2), false)));
        assert_eq!(calls(&[1, 2, 3], &[2]).next_call(), Some((id(3), true)));
        let of_third = AgentCalls { begun: [id(3)].into(), ..calls(&[], &[]) };
        assert_eq!(of_third.next_call(), Some((id(3), false)), "the calls before it are paused");
    }

    #[test]
    fn the_next_turn_belongs_to_a_call_that_the_agent_has_begun() {
        let agent = ListenerName::core();
        let thread = ThreadId::parse(THREAD).unwrap();
        let mut calls = AgentCalls { calls: vec![id(1), id(2), id(3)], ..AgentCalls::default() };
        let mut next_after = |fact: Fact| {
            calls.take(&fact, &agent, &thread);
            calls.next_call()
        };
        let held = Fact::Held { call: id(1), hold: Hold::Approval, until: None };
        assert_eq!(next_after(held), Some((id(2), false)));
        let attempt = Attempt { epoch: 1, n: 1 };
        let handed_over = Fact::HandedOver { call: id(2), attempt };
        assert_eq!(next_after(handed_over), Some((id(2), false)));

        let released = Fact::Released { call: id(1), lapsed: false };
        assert_eq!(next_after(released), Some((id(2), false)), "call 2 is under way");
        let closed = |call| Fact::CallClosed { call, how: Closing::Completed };
        assert_eq!(next_after(closed(id(2))), Some((id(3), false)), "call 1 is behind call 3");
        assert_eq!(next_after(closed(id(3))), Some((id(1), false)));
    }
}
