//! The calls beneath a run, as its record holds them up to a message.
//!
//! A run sees the messages of its own call alone. What its agents, and workflows beneath it, have called
//! stands in the records of the threads that it has opened. Everything here is a function of these
//! records, so that a run that is folded again reads the same calls.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::contract::run_definition_name;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, ListenerName, MessageId, Position, ThreadId};
use crate::thread::{Closing, Fact, Record};
use crate::xml::element::Element;

/// A call that was made beneath a run.
#[derive(Debug, Clone)]
pub struct NestedCall {
    pub id: CallId,
    /// Whether a workflow has made it. Its record says so, whatever the config holds by now.
    pub is_by_workflow: bool,
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub request: Arc<Message>,
    /// Position of the record with its request.
    pub opened: Position,
    /// Whether the listener may have acted on it.
    pub was_handed_over: bool,
    pub end: CallEnd,
}

/// How a call beneath a run has ended.
#[derive(Debug, Clone)]
pub enum CallEnd {
    Open,
    /// With a reply, or with an acknowledgement of the core.
    Completed {
        reply: Option<Arc<Message>>,
        position: Position,
    },
    /// Without a reply, with the code of a `system-error`.
    Failed {
        code: String,
    },
}

/// The calls in these threads and beneath them, in the order of their requests, up to the record with the
/// message `until`, and the position of that record. `None` where no record holds that message.
///
/// A hand-over that stands in a record of another tree is not known here.
pub fn calls_beneath(
    records: &[Record],
    threads: &[&ThreadId],
    until: MessageId,
) -> Option<(Vec<NestedCall>, Position)> {
    let holds = |record: &Record| {
        let mut accepted = record.facts.iter();
        accepted.any(|fact| matches!(fact, Fact::Accepted { message, .. } if message.id == until))
    };
    let last = records.iter().position(holds)?;
    let up_to = records.get(last)?.position;
    let records = records.get(..=last)?;
    let threads = threads.iter().copied().collect();
    let workflows = workflows(records);
    let mut found = NestedCalls { threads, workflows, calls: Vec::new(), numbers: HashMap::new() };
    for record in records {
        found.read(record);
    }

    Some((found.calls, up_to))
}

/// The workflows with a run in these records: only a workflow can record its definition.
fn workflows(records: &[Record]) -> HashSet<&ListenerName> {
    let facts = records.iter().flat_map(|record| &record.facts);
    let definitions = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.kind == MessageKind::Own => Some(message),
        _ => None,
    });
    let definitions = definitions.filter(|message| message.name == run_definition_name());
    definitions.map(|message| &message.from).collect()
}

struct NestedCalls<'a> {
    threads: HashSet<&'a ThreadId>,
    workflows: HashSet<&'a ListenerName>,
    calls: Vec<NestedCall>,
    numbers: HashMap<CallId, usize>,
}

impl NestedCalls<'_> {
    fn is_beneath(&self, thread: &ThreadId) -> bool {
        let mut upwards = std::iter::successors(Some(thread.clone()), ThreadId::parent);
        upwards.any(|thread| self.threads.contains(&thread))
    }

    fn call(&mut self, call: CallId) -> Option<&mut NestedCall> {
        let number = self.numbers.get(&call)?;
        self.calls.get_mut(*number)
    }

    fn read(&mut self, record: &Record) {
        let mut results: HashMap<CallId, Arc<Message>> = HashMap::new();
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(_), .. } => {
                    self.opened(message, record.position);
                }
                Fact::Accepted { message, .. } => {
                    if let Some(cause) = message.cause.filter(|_| is_result(message)) {
                        results.entry(CallId(cause)).or_insert_with(|| Arc::clone(message));
                    }
                }
                Fact::HandedOver { call, .. } => {
                    if let Some(call) = self.call(*call) {
                        call.was_handed_over = true;
                    }
                }
                Fact::NotTaken { call, .. } => {
                    if let Some(call) = self.call(*call) {
                        call.was_handed_over = false;
                    }
                }
                _ => {}
            }
        }

        for fact in &record.facts {
            if let Fact::CallClosed { call, how } = fact {
                let result = results.remove(call);
                if let Some(call) = self.call(*call) {
                    call.end = end_of(*how, result, record.position);
                }
            }
        }
        // The legs of a group have ended before the group has its result.
        for (call, result) in results {
            if let Some(NestedCall { end: CallEnd::Completed { reply, .. }, .. }) = self.call(call)
            {
                reply.get_or_insert(result);
            }
        }
    }

    fn opened(&mut self, message: &Arc<Message>, position: Position) {
        if message.kind != MessageKind::Call || !self.is_beneath(&message.thread) {
            return;
        }

        let id = CallId(message.id);
        self.numbers.insert(id, self.calls.len());
        self.calls.push(NestedCall {
            id,
            is_by_workflow: self.workflows.contains(&message.from),
            listener: message.to.clone(),
            thread: message.thread.clone(),
            request: Arc::clone(message),
            opened: position,
            was_handed_over: false,
            end: CallEnd::Open,
        });
    }
}

/// Whether a message can be the result of the call that caused it.
fn is_result(message: &Message) -> bool {
    let of_core = matches!(&*message.name.local, "ack" | "system-error");
    message.kind == MessageKind::Reply || (message.kind == MessageKind::System && of_core)
}

fn end_of(how: Closing, result: Option<Arc<Message>>, position: Position) -> CallEnd {
    match how {
        Closing::Completed => CallEnd::Completed { reply: result, position },
        Closing::Cancelled => CallEnd::Failed { code: "cancelled".to_owned() },
        Closing::Failed => {
            let error = result.and_then(|error| Element::read_document(error.payload.as_str()));
            let code = error.and_then(|error| error.attribute("code").map(str::to_owned));
            CallEnd::Failed { code: code.unwrap_or_else(|| "failed".to_owned()) }
        }
    }
}
