//! What an agent is sent, rendered as its host renders it: for a turn on record, for the next
//! one, or for a task made up from its schema. Starts nothing and calls no model.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::models::Models;
use super::{Error, guests, with_core_words};
use crate::agent::{Agent, Environment, History, PastTurn, RendererVersion};
use crate::bus::Delivery;
use crate::clock::Time;
use crate::config::{AgentSpec, Config};
use crate::envelope::{Kind, Message, Payload};
use crate::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId,
};
use crate::journal;
use crate::journal::sqlite::Reader;
use crate::model::Request;
use crate::model::tokens::Size;
use crate::system;
use crate::thread::{Fact, Input, Opener, Opening, Record};

/// Which turn is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// The first turn of a task that the agent's schema gives an example of.
    Example,
    /// The turn it would take now.
    Next(ThreadId),
    /// A turn it took, counted in its thread from 1.
    Taken(ThreadId, u32),
}

/// A request as the agent's model gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    pub request: Request,
    /// The thread up to here is what it is rendered from.
    pub position: Position,
    /// Of everything that is sent.
    pub digest: Digest,
    /// In tokens.
    pub size: Size,
    /// What the record says was sent, for a turn on record.
    pub recorded: Option<Digest>,
}

/// An agent as its host makes it, and the delivery whose turn is looked at.
pub struct Due {
    pub agent: Agent,
    pub delivery: Delivery,
    /// What the record says was sent, for a turn on record.
    pub recorded: Option<Digest>,
}

/// Renders what `agent` is sent at that moment.
///
/// # Errors
/// [`Error::Preview`] where there is nothing to be rendered: no such agent, thread or turn.
pub fn preview(config: Config, agent: &ListenerName, moment: &Moment) -> Result<Preview, Error> {
    let Due { agent, delivery, recorded } = due(config, agent, moment)?;
    let failed = |failure: crate::envelope::Failure| nothing(failure.to_string());
    let (request, size) = agent.measured(&delivery).map_err(failed)?;
    let digest = Agent::digest(&request);
    Ok(Preview { request, position: delivery.position, digest, size, recorded })
}

/// The turn of `agent` at that moment, not yet rendered.
///
/// # Errors
/// As [`preview`].
pub fn due(config: Config, agent: &ListenerName, moment: &Moment) -> Result<Due, Error> {
    let config = Arc::new(with_core_words(config)?);
    let spec = config.agents.iter().find(|spec| spec.name == *agent);
    let spec = spec.ok_or_else(|| unknown_agent(&config, agent))?;
    let (history, delivery, past): (Arc<dyn History>, _, _) = match moment {
        Moment::Example => {
            let example = Example::of(&config, spec)?;
            let delivery = example.delivery(agent);
            (Arc::new(example), delivery, None)
        }
        Moment::Next(thread) | Moment::Taken(thread, _) => {
            let turn = match moment {
                Moment::Taken(_, turn) => Some(*turn),
                _ => None,
            };
            let config = config.of_partition(thread.partition(config.partitions()));
            let (delivery, past) = on_record(&config, agent, thread, turn)?;
            (guests::history(&config), delivery, past)
        }
    };
    let made = Models::of(&config)?.named(&spec.model)?;
    let agent = guests::agent(&config, spec, made, history)?;
    let around = past.as_ref().and_then(|past| past.environment.as_deref());
    // It may have been taken on another machine.
    let agent = around.map_or(agent.clone(), |around| agent.within(Environment::read(around)));
    let agent = match &past {
        Some(past) => agent.in_version(version_of(past)?),
        None => agent,
    };
    Ok(Due { agent, delivery, recorded: past.and_then(|past| past.prompt) })
}

/// The version that a turn on record was rendered in.
fn version_of(past: &PastTurn) -> Result<RendererVersion, Error> {
    let known = RendererVersion::parse(&past.renderer);
    known.ok_or_else(|| {
        nothing(format!(
            "turn {} of {} was rendered by version `{}`, which this program does not have",
            past.turn, past.agent, past.renderer
        ))
    })
}

fn nothing(detail: impl Into<String>) -> Error {
    Error::Preview { detail: detail.into() }
}

fn unknown_agent(config: &Config, agent: &ListenerName) -> Error {
    let names: Vec<_> = config.agents.iter().map(|spec| spec.name.to_string()).collect();
    match names.as_slice() {
        [] => nothing("this config has no agents"),
        names => nothing(format!("there is no agent `{agent}`; there are {}", names.join(", "))),
    }
}

/// The delivery of a turn of the record, or of the one that would come next.
fn on_record(
    config: &Config,
    agent: &ListenerName,
    thread: &ThreadId,
    turn: Option<u32>,
) -> Result<(Delivery, Option<PastTurn>), Error> {
    let sealed = Reader::open(&config.data)?.tree(&thread.root(), None)?;
    let last = sealed.last().map(|sealed| sealed.record.position);
    let facts = sealed.iter().flat_map(|sealed| &sealed.record.facts);
    let messages: Vec<&Message> = facts
        .filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.thread == *thread => Some(&**message),
            _ => None,
        })
        .collect();
    let of_agent = |message: &&&Message| message.name == system::name("model-turn");
    let turns = messages.iter().filter(of_agent);
    let mut turns = turns.filter_map(|message| PastTurn::read(message.payload.as_str()));
    if let Some(turn) = turn {
        let past = turns.find(|past| past.agent == *agent && past.turn == turn);
        let past = past.ok_or_else(|| {
            nothing(format!(
                "{agent} took no turn {turn} in {thread}; `organism thread` shows them"
            ))
        })?;
        return Ok((delivery(agent, thread, past.call, past.position), Some(past)));
    }
    let calls = messages.iter().rev();
    let call = calls.clone().find(|m| m.kind == Kind::Call && m.to == *agent);
    match (call, last) {
        (Some(call), Some(last)) => Ok((delivery(agent, thread, CallId(call.id), last), None)),
        _ => Err(nothing(format!("nobody asked {agent} anything in {thread}"))),
    }
}

fn delivery(agent: &ListenerName, thread: &ThreadId, call: CallId, position: Position) -> Delivery {
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
    }
}

/// A thread that holds one request and nothing else.
struct Example {
    record: Record,
}

/// The thread of examples, and the day on which they are asked.
const THREAD: &str = "sess-example1";
const DAY: &str = "2026-01-01T00:00:00Z";

impl Example {
    fn of(config: &Config, spec: &AgentSpec) -> Result<Self, Error> {
        let contract = config.contracts.get(&spec.name);
        let name: Option<&PayloadName> = contract.and_then(|contract| contract.accepts.first());
        let name = name.ok_or_else(|| nothing(format!("{} takes no payload", spec.name)))?;
        let payload = config.schemas.example(name);
        let payload = payload.ok_or_else(|| nothing(format!("`{name}` has no example")))?;
        let asker = config.contracts.iter().find(|other| other.peers.contains(&spec.name));
        let asker = asker.map_or_else(ListenerName::core, |asker| asker.name.clone());
        let bug = |text: String| Error::Builtin { detail: text };
        let thread = ThreadId::parse(THREAD).map_err(|e| bug(e.to_string()))?;
        let time = Time::parse(DAY).ok_or_else(|| bug(DAY.to_owned()))?;
        let id = MessageId(Uuid::from_u128(1));
        let message = Arc::new(Message {
            id,
            kind: Kind::Call,
            from: asker.clone(),
            to: spec.name.clone(),
            thread: thread.clone(),
            seq: 1,
            cause: None,
            call: Some(CallId(id)),
            time,
            name: name.clone(),
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

impl History for Example {
    fn records(&self, _: &ThreadId, _: Position) -> Result<Vec<Record>, journal::Error> {
        Ok(vec![self.record.clone()])
    }
}
