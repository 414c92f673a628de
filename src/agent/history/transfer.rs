//! Encodes a thread for an agent on another machine, and decodes it there. Only the parts of
//! records that the agent's memory needs are sent. Each record with at least one of these parts
//! becomes one line of JSON.

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::envelope::{Disposition, Message, MessageKind};
use crate::ids::{Digest, ListenerName, Position, ThreadId};
use crate::mutant::mutant;
use crate::system::MODEL_TURN;
use crate::thread::{Fact, Input, Record};

use super::{is_core, states_fork};
use crate::agent::turn_note::PastTurn;

/// One line of JSON: the parts of one record that an agent's memory needs.
#[derive(Serialize, Deserialize)]
struct TransferLine {
    #[serde(rename = "position")]
    position: Position,
    #[serde(rename = "facts")]
    facts: Vec<Fact>,
    /// Payload texts of the messages in this line's `facts`, in the same order. The facts
    /// themselves contain only digests of the payloads.
    #[serde(rename = "payloads")]
    payloads: Vec<String>,
}

/// Encodes the records of `thread` for `agent`, as lines of JSON. The lines contain:
/// - the messages of the thread, without the turns of other agents,
/// - the agent's own messages and refusals, even in other threads of the tree,
/// - the agent's clearings of its window in the thread,
/// - the ids of cancelled messages, if the same record contains a reply in the thread,
/// - the ends of calls, if the same record contains a reply or a message of the core in the thread.
pub fn encode_thread(records: &[Record], agent: &ListenerName, thread: &ThreadId) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let has_reply = record.facts.iter().any(|fact| replied_to(fact, thread).is_some());
        let has_result = has_reply || record.facts.iter().any(|fact| is_of_core(fact, thread));
        let concerns = |fact: &&Fact| {
            let is_hidden =
                matches!(fact, Fact::Accepted { message, .. } if states_fork(message, record));
            let is_void = matches!(fact, Fact::Disposed { how: Disposition::Cancelled, .. });
            let is_end = matches!(fact, Fact::CallClosed { .. });
            let is_result = (is_void && has_reply) || (is_end && has_result);
            !is_hidden && (concerns(fact, agent, thread) || is_result)
        };
        let facts: Vec<Fact> = record.facts.iter().filter(concerns).cloned().collect();
        if facts.is_empty() {
            continue;
        }
        let reduced = Record { facts, ..bare(record.position, thread) };
        let payloads = reduced.payloads().map(|payload| payload.as_str().to_owned()).collect();
        let line = TransferLine { position: record.position, facts: reduced.facts, payloads };
        serde_json::to_writer(&mut out, &line).expect("plain data is JSON");
        out.push(b'\n');
    }

    out
}

fn concerns(fact: &Fact, agent: &ListenerName, thread: &ThreadId) -> bool {
    match fact {
        Fact::Accepted { message, .. } => {
            let here = message.thread == *thread || mutant("tell-the-whole-tree");
            (here && !is_turn_of_another(message, agent)) || message.from == *agent
        }
        Fact::Window { agent: whose, thread: place, .. } => whose == agent && place == thread,
        Fact::Refused { sender, .. } => sender == agent,
        _ => false,
    }
}

/// Returns the recipient of the reply that `fact` records in `thread`. Returns `None` if `fact`
/// records no reply in this thread.
pub(super) fn replied_to<'f>(fact: &'f Fact, thread: &ThreadId) -> Option<&'f ListenerName> {
    let Fact::Accepted { message, .. } = fact else { return None };
    let is_reply = message.kind == MessageKind::Reply && message.thread == *thread;
    is_reply.then_some(&message.to)
}

/// Whether `fact` records a message of the core in `thread`.
fn is_of_core(fact: &Fact, thread: &ThreadId) -> bool {
    let Fact::Accepted { message, .. } = fact else { return false };
    message.kind == MessageKind::System && message.thread == *thread
}

fn is_turn_of_another(message: &Message, agent: &ListenerName) -> bool {
    if !is_core(&message.name, MODEL_TURN) {
        return false;
    }
    // The agent counts its redacted turns, whose texts are lost.
    if message.payload.is_redacted() {
        return message.to != *agent;
    }
    PastTurn::read(message.payload.as_str()).is_none_or(|past| past.agent != *agent)
}

/// Creates a record of the thread at the given position, without facts.
fn bare(position: Position, thread: &ThreadId) -> Record {
    Record {
        position,
        tree: thread.root(),
        previous: Position(0),
        previous_hash: Digest::ZERO,
        time: Time(0),
        input: Input::Boot { detail: String::new() },
        facts: Vec::new(),
    }
}

/// Reason why the received lines of a thread cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("line {line} of the transferred thread cannot be decoded: {source}")]
    Line { line: usize, source: serde_json::Error },
    #[error("a transferred payload at position {position} differs from the recorded one")]
    Payload { position: Position },
}

/// Decodes the records of `thread`, which the pump on another machine has encoded.
///
/// # Errors
///
/// [`TransferError`] if a payload does not match its digest, or a line cannot be parsed.
pub fn decode_thread(bytes: &[u8], thread: &ThreadId) -> Result<Vec<Record>, TransferError> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let read = |(index, line): (usize, &[u8])| {
        let failed = |source| TransferError::Line { line: index + 1, source };
        let TransferLine { position, facts, payloads } =
            serde_json::from_slice(line).map_err(failed)?;
        let mut record = Record { facts, ..bare(position, thread) };
        let wrong = TransferError::Payload { position };
        let mut texts = payloads.iter();
        for payload in record.payloads_mut() {
            if !texts.next().is_some_and(|text| payload.restore(text)) {
                return Err(wrong);
            }
        }
        Ok(record)
    };

    lines.enumerate().map(read).collect()
}
