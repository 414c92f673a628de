//! Reads the calls beneath a workflow run from the records of the run's tree, up to the record of a
//! given message.
//!
//! A run sees only the messages of its own call. Its agents, and the workflows that it calls, make
//! further calls in the threads that the run has opened. This module finds these calls in the
//! records of the threads. It uses nothing else, so the result is the same each time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::contract::run_definition_name;
use crate::envelope::{Message, MessageKind};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, Position, ThreadId};
use crate::thread::{Closing, Fact, Record};
use crate::xml::element::Element;

use super::undo::undone_call;

/// A call that was made beneath a run.
#[derive(Debug, Clone)]
pub struct NestedCall {
    pub id: CallId,
    /// Whether a workflow made the call, according to the records. The present config may no longer
    /// declare the caller as a workflow.
    pub is_by_workflow: bool,
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub request: Arc<Message>,
    /// Position of the record that contains the request of the call.
    pub opened: Position,
    /// Whether the call was handed over to its listener. If so, the listener may have acted on the
    /// call.
    pub was_handed_over: bool,
    /// Whether the call is open and waits for the decision of a person. False for a hold in the
    /// history of a fork, because the fork holds the call again if necessary.
    pub is_held: bool,
    pub end: CallEnd,
}

/// How a call beneath a run has ended.
#[derive(Debug, Clone)]
pub enum CallEnd {
    Open,
    /// The call completed with a reply, or the core acknowledged it.
    Completed {
        reply: Option<Arc<Message>>,
        position: Position,
    },
    /// The call failed without a reply. `code` is the code of the `system-error`.
    Failed {
        code: String,
    },
}

/// The hand-overs of calls to their listeners, collected from the facts in records. The facts must
/// be read in the order in which they were recorded.
#[derive(Debug, Default)]
pub struct HandedOverAttempts {
    /// For each call, the attempts that were handed over to its listener, except those that the
    /// listener rejected.
    attempts: HashMap<CallId, HashSet<Attempt>>,
    /// Calls with at least one handed-over attempt that has ended. Such a call was certainly handed
    /// over, and later records cannot change this.
    ended: HashSet<CallId>,
    closed: HashSet<CallId>,
}

impl HandedOverAttempts {
    /// Applies a fact of a record, if the fact concerns a call for which `is_asked_for` returns
    /// true.
    pub fn read(&mut self, fact: &Fact, is_asked_for: impl Fn(CallId) -> bool) {
        match fact {
            Fact::HandedOver { call, attempt } if is_asked_for(*call) => {
                self.attempts.entry(*call).or_default().insert(*attempt);
            }
            // Only this attempt was not taken. The listener may have acted on an earlier one.
            Fact::NotTaken { call, attempt } => {
                if let Some(attempts) = self.attempts.get_mut(call) {
                    attempts.remove(attempt);
                }
            }
            Fact::OutcomeReceived { call, attempt } | Fact::AttemptFailed { call, attempt, .. } => {
                let attempts = self.attempts.get(call);
                if attempts.is_some_and(|attempts| attempts.contains(attempt)) {
                    self.ended.insert(*call);
                }
            }
            Fact::CallClosed { call, .. } if is_asked_for(*call) => {
                self.closed.insert(*call);
            }
            _ => {}
        }
    }

    /// Whether the call was handed over to its listener. True if at least one attempt was handed
    /// over and was not rejected by the listener.
    pub fn was_handed_over(&self, call: CallId) -> bool {
        self.attempts.get(&call).is_some_and(|attempts| !attempts.is_empty())
    }

    /// Whether the result of `was_handed_over` for a call can no longer change. A result of true is
    /// final once a handed-over attempt has ended, because the listener can no longer reject the
    /// attempt. A result of false is final once the call is closed.
    pub fn is_settled(&self, call: CallId) -> bool {
        let is_never = self.closed.contains(&call) && !self.was_handed_over(call);
        is_never || self.ended.contains(&call)
    }
}

/// Returns the calls in and beneath `threads`, in the order of their requests, and the position of
/// the last record that was read. If `until` is set, reads no further than the record that contains
/// this message. Returns `None` if no record contains this message, or if there are no records.
///
/// `records` are the records of one tree. Hand-overs that are recorded in other trees are missing.
pub fn calls_beneath(
    records: &[Record],
    threads: &[&ThreadId],
    until: Option<MessageId>,
) -> Option<(Vec<NestedCall>, Position)> {
    let holds = |record: &Record, until: MessageId| {
        let mut accepted = record.facts.iter();
        accepted.any(|fact| matches!(fact, Fact::Accepted { message, .. } if message.id == until))
    };

    let last = match until {
        Some(until) => records.iter().position(|record| holds(record, until))?,
        None => records.len().checked_sub(1)?,
    };
    let up_to = records.get(last)?.position;
    let records = records.get(..=last)?;

    let threads = threads.iter().copied().collect();
    let workflows = workflows(records);

    let mut found = NestedCalls {
        threads,
        workflows,
        calls: Vec::new(),
        numbers: HashMap::new(),
        hand_overs: HandedOverAttempts::default(),
    };

    for record in records {
        found.read(record);
    }
    for call in &mut found.calls {
        call.was_handed_over = found.hand_overs.was_handed_over(call.id);
    }

    Some((found.calls, up_to))
}

/// Returns the threads in which the runs `others` have undone calls in `calls`, or have tried to.
/// Each thread comes with the id of the undone call. `records` are the records of one tree.
pub(super) fn undo_threads_of(
    records: &[Record],
    others: &HashSet<CallId>,
    calls: &[NestedCall],
) -> Vec<(CallId, ThreadId)> {
    let calls: HashSet<_> = calls.iter().map(|call| call.id).collect();
    let facts = records.iter().flat_map(|record| &record.facts);
    let undos = facts.filter_map(|fact| match fact {
        // Only a workflow can open a thread that is bound to the call of a run.
        Fact::ThreadOpened { thread, bound: Some(run), .. } if others.contains(run) => {
            let undone = undone_call(thread.label()).filter(|call| calls.contains(call))?;
            Some((undone, thread.clone()))
        }
        _ => None,
    });
    undos.collect()
}

/// Sets `is_held` and `was_handed_over` of `calls` to their values after the last of `records`.
/// [`calls_beneath`] must have found the calls in the same records, in and beneath the same
/// threads. Changes no call that has closed since then.
pub fn update_hand_overs(calls: &mut [NestedCall], records: &[Record], threads: &[&ThreadId]) {
    let Some((latest, _)) = calls_beneath(records, threads, None) else { return };
    // Both lists have the order of the requests, so the later one begins with the same calls.
    for (call, latest) in calls.iter_mut().zip(latest) {
        debug_assert_eq!(call.id, latest.id);
        if matches!(latest.end, CallEnd::Open) {
            call.is_held = latest.is_held;
        }
        call.was_handed_over = latest.was_handed_over;
    }
}

/// Returns the workflows that have a run in these records. A listener is a workflow if it recorded
/// a definition, because only a workflow can record one.
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
    hand_overs: HandedOverAttempts,
}

impl NestedCalls<'_> {
    fn is_beneath(&self, thread: &ThreadId) -> bool {
        thread.upwards().any(|thread| self.threads.contains(&thread))
    }

    fn call(&mut self, call: CallId) -> Option<&mut NestedCall> {
        let number = self.numbers.get(&call)?;
        self.calls.get_mut(*number)
    }

    fn set_held(&mut self, call: CallId, is_held: bool) {
        if let Some(call) = self.call(call) {
            call.is_held = is_held;
        }
    }

    fn read(&mut self, record: &Record) {
        if record.fork_source().is_some() {
            for call in &mut self.calls {
                call.is_held = false;
            }
        }

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
                Fact::Held { call, .. } => self.set_held(*call, true),
                Fact::Released { call, .. } => self.set_held(*call, false),
                _ => self.hand_overs.read(fact, |call| self.numbers.contains_key(&call)),
            }
        }

        for fact in &record.facts {
            if let Fact::CallClosed { call, how } = fact {
                let result = results.remove(call);
                if let Some(call) = self.call(*call) {
                    call.is_held = false;
                    call.end = end_of(*how, result, record.position);
                }
            }
        }
        // The result may be recorded after the end of its call: the legs of a group end before the
        // group has its result.
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
            is_held: false,
            end: CallEnd::Open,
        });
    }
}

/// Whether a message can be the result of the call that caused the message.
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::envelope::{AttemptFailure, Payload};
    use crate::ids::{Digest, PayloadName};
    use crate::thread::{Input, Opener, Opening};
    use crate::workflow::undo::label_of;

    fn call() -> CallId {
        CallId(MessageId(Uuid::from_u128(1)))
    }

    fn attempt(n: u32) -> Attempt {
        Attempt { epoch: 1, n }
    }

    fn handed_over(n: u32) -> Fact {
        Fact::HandedOver { call: call(), attempt: attempt(n) }
    }

    fn not_taken(n: u32) -> Fact {
        Fact::NotTaken { call: call(), attempt: attempt(n) }
    }

    fn crashed(n: u32) -> Fact {
        let failure = AttemptFailure::Lost { detail: "it crashed".to_owned() };
        Fact::AttemptFailed { call: call(), attempt: attempt(n), failure }
    }

    fn closed() -> Fact {
        Fact::CallClosed { call: call(), how: Closing::Failed }
    }

    fn read(facts: &[Fact]) -> HandedOverAttempts {
        let mut hand_overs = HandedOverAttempts::default();
        for fact in facts {
            hand_overs.read(fact, |asked| asked == call());
        }
        hand_overs
    }

    fn thread() -> ThreadId {
        ThreadId::parse("sess-aaaaaaaa").unwrap()
    }

    /// Returns the fact that records a call of a workflow to a listener.
    fn requested() -> Fact {
        let name = |text: &str| ListenerName::parse(text).unwrap();
        let message = Message {
            id: call().0,
            kind: MessageKind::Call,
            from: name("trip"),
            to: name("hotel"),
            thread: thread(),
            seq: 1,
            cause: None,
            call: Some(call()),
            time: Time(0),
            name: PayloadName::parse("{urn:example:booking}book").unwrap(),
            payload: Payload::new("<book xmlns=\"urn:example:booking\"/>"),
        };
        let opener = Opener::Client { name: name("desk") };
        let opening = Some(Opening { opener, group: None, forward: false });
        Fact::Accepted { message: Arc::new(message), opening, key: None }
    }

    fn record(position: u64, facts: Vec<Fact>) -> Record {
        Record {
            position: Position(position),
            tree: thread(),
            previous: Position(position - 1),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input: Input::Boot { detail: String::new() },
            facts,
        }
    }

    #[test]
    fn an_attempt_that_nobody_took_leaves_the_hand_over_before_it() {
        let nested = |facts: Vec<Fact>| {
            let mut before = vec![requested()];
            before.extend(facts);
            // The calls are read up to the record with a given message, here the request itself.
            let (calls, _) =
                calls_beneath(&[record(1, before)], &[&thread()], Some(call().0)).unwrap();
            calls.into_iter().map(|call| call.was_handed_over).collect::<Vec<_>>()
        };
        assert_eq!(nested(Vec::new()), [false]);
        assert_eq!(nested(vec![handed_over(1)]), [true]);
        assert_eq!(nested(vec![handed_over(1), not_taken(1)]), [false]);
        let after_crash = vec![handed_over(1), crashed(1), handed_over(2), not_taken(2), closed()];
        assert_eq!(nested(after_crash), [true], "the first attempt may have booked");
        // The second hand-over stands in a record of another tree.
        let elsewhere = vec![handed_over(1), crashed(1), not_taken(2), closed()];
        assert_eq!(nested(elsewhere), [true], "the first attempt may have booked");
    }

    #[test]
    fn a_call_is_settled_once_no_later_fact_can_change_its_hand_over() {
        for (facts, is_settled) in [
            (vec![], false),
            (vec![closed()], true),
            (vec![handed_over(1)], false),
            (vec![handed_over(1), not_taken(1)], false),
            (vec![handed_over(1), not_taken(1), closed()], true),
            // The listener still has the attempt, and may return it.
            (vec![handed_over(1), closed()], false),
            (vec![handed_over(1), closed(), not_taken(1)], true),
            (vec![handed_over(1), crashed(1)], true),
            (vec![crashed(1)], false),
        ] {
            assert_eq!(read(&facts).is_settled(call()), is_settled, "{facts:?}");
        }
    }

    #[test]
    fn undo_threads_of_other_runs_are_found_by_the_id_of_the_undone_call() {
        let run = |number: u128| CallId(MessageId(Uuid::from_u128(number)));
        let opened = |label: &str, by: &str, bound: Option<CallId>| {
            let thread = ThreadId::parse(&format!("sess-aaaaaaaa.{label}")).unwrap();
            let by = ListenerName::parse(by).unwrap();
            Fact::ThreadOpened { thread, by, bound, allotment: None }
        };
        let (calls, _) =
            calls_beneath(&[record(1, vec![requested()])], &[&thread()], None).unwrap();
        let label = label_of(call());
        let numbered = format!("{label}-1");
        let undone = |fact: Fact| {
            let found = undo_threads_of(&[record(2, vec![fact])], &HashSet::from([run(7)]), &calls);
            found.into_iter().map(|(undone, thread)| (undone, thread.label().to_owned())).next()
        };
        assert_eq!(undone(opened(&label, "trip", Some(run(7)))), Some((call(), label.clone())));
        let again = opened(&numbered, "trip", Some(run(7)));
        assert_eq!(undone(again), Some((call(), numbered)), "the label was taken");
        assert_eq!(undone(opened(&label, "trip", Some(run(8)))), None, "of the run itself");
        assert_eq!(undone(opened(&label, "writer", None)), None, "an agent chose the label");
        let other = label_of(run(2));
        assert_eq!(undone(opened(&other, "trip", Some(run(7)))), None, "of another call");
    }

    #[test]
    fn hand_overs_of_other_calls_are_not_kept() {
        let mut hand_overs = HandedOverAttempts::default();
        for fact in [handed_over(1), closed()] {
            hand_overs.read(&fact, |_| false);
        }
        assert!(!hand_overs.was_handed_over(call()));
        assert!(!hand_overs.is_settled(call()));
    }
}
