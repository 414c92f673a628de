//! Rebuilds the event that led to a record, so that a fresh pump can process the event again.

use std::time::Duration;

use uuid::Uuid;

use super::event::{
    Alarm, BusyCount, CallDecision, Cancellation, CoreConfig, Event, GatedAnswer, ReloadRequest,
    Standstill, Submission, Target,
};
use super::forks::{CallRecollection, ForkOrder};
use super::pauses::PauseChange;
use super::reopened_calls::recorded_work;
use super::retries::RetryOrder;
use crate::contract::Meaning;
use crate::envelope::{Message, MessageKind, Refusal, RefusalRule, Reservation, RouteLimit, Turn};
use crate::ids::{CallId, Digest, ListenerName, MessageId};
use crate::pump::gate::{Checked, Gate};
use crate::system::MODEL_TURN;
use crate::thread::{
    Decision, DecisionOrigin, Fact, ForkAction, Input, RecalledResult, Record, RecordedAnswer,
    RetryAction, Verdict,
};
use crate::trace::TraceParent;

/// Returns the event that led to `record`. `gate` must have the config that was in force at the
/// record. Returns `None` if the text of a payload is redacted, or if the gate now decides
/// differently.
///
/// Accepted payloads are found by their digests among the record's messages, and are checked at
/// the gate again. For a refused payload, the event contains the recorded refusal.
pub fn event_of(record: &Record, gate: &Gate) -> Option<Event> {
    let event = match record.input.clone() {
        Input::Boot { detail } => boot(record, detail)?,
        Input::Submitted { .. } => submitted(record, gate)?,
        Input::Outcome { listener, call, attempt, verdicts, turn, arrived } => {
            let payloads = RecordedPayloads::new(record, gate).take_all(&listener, &verdicts)?;
            let turn = turn.map(|turn| Box::new(with_note(record, turn)));
            Event::Outcome { listener, call, attempt, payloads, turn, arrived }
        }
        Input::Stray { listener, named, verdicts } => {
            let payloads = RecordedPayloads::new(record, gate).take_all(&listener, &verdicts)?;
            Event::Stray { listener, named, payloads }
        }
        Input::Failed { listener, call, attempt, failure } => {
            Event::Failed { listener, call, attempt, failure }
        }
        Input::Reserved { .. } => reserve(record)?,
        Input::Deadline { .. }
        | Input::Unsettled { .. }
        | Input::Probe { .. }
        | Input::Untaken { .. }
        | Input::Lost { .. }
        | Input::Retry { .. }
        | Input::Gone { .. }
        | Input::ThreadTime { .. }
        | Input::Schedule { .. }
        | Input::Stop { .. }
        | Input::Held { .. }
        | Input::PreviewTime { .. } => Event::Alarm(alarm_of(&record.input)?),
        Input::Timer { timer, call } => Event::TimerFired { timer, call },
        Input::NotTaken { listener, call, attempt, detail } => {
            Event::NotTaken { listener, call, attempt, detail }
        }
        Input::Decided { message, decision, origin, .. } => {
            decided(record, message, decision, origin, gate)?
        }
        Input::Cancel { thread, reason, origin, .. } => {
            Event::Cancel(Cancellation { ticket: Uuid::nil(), thread, reason, origin })
        }
        Input::Fork(action) => fork(record, *action, gate)?,
        Input::OperatorRetry(action) => retry(record, *action, gate)?,
        Input::Recalled { call, result: None } => Event::Recalled { call, result: None },
        Input::Recalled { call, result: Some(result) } => {
            let result = Some(recollection(record, call, result, gate)?);
            Event::Recalled { call, result }
        }
        Input::Pause(action) => Event::Pause(PauseChange { ticket: Uuid::nil(), action }),
        Input::Joined { listener, detail } => Event::Joined { listener, detail },
        Input::Left { listener, detail } => Event::Left { listener, detail },
        Input::Denied { listener, operations, count } => denied(listener, operations, count),
        Input::Standstill { stood_micros, stepped_micros } => {
            standstill(stood_micros, stepped_micros)
        }
        Input::Busy { client, since, count } => Event::Busy(BusyCount { client, since, count }),
        Input::Alert(report) => Event::Alert { ticket: Uuid::nil(), report },
        Input::Shutdown { detail } => Event::Shutdown { reason: detail },
        Input::Operator(action) => Event::Operator { ticket: Uuid::nil(), action },
    };

    Some(event)
}

/// Rebuilds the event of a client's submission. Returns `None` if its payload is redacted, or if
/// the gate now decides differently.
fn submitted(record: &Record, gate: &Gate) -> Option<Event> {
    let Input::Submitted { id, client, thread, suggested, key, verdict } = record.input.clone()
    else {
        return None;
    };

    let payload = RecordedPayloads::new(record, gate).take(&client, &verdict)?;
    let target = match thread {
        Some(id) => Target::Thread { id },
        None => Target::New { suggested },
    };
    let trace = trace_of(record);
    let begun = None;
    // A submission that got a recorded answer has no record of its own.
    let refused_digest = None;
    let submission = Submission { id, client, target, key, payload, refused_digest, trace, begun };
    Some(Event::Submit(Box::new(submission)))
}

/// Rebuilds the event of a person's decision on a held call. `record` is the record of the
/// decision. If the decision was an accepted answer, checks the answer at the gate again. Returns
/// `None` if the record lacks the answer, or if the gate now refuses it.
fn decided(
    record: &Record,
    message: MessageId,
    decision: Decision<RecordedAnswer>,
    origin: Option<DecisionOrigin>,
    gate: &Gate,
) -> Option<Event> {
    let decision = match decision {
        Decision::Approve { hash, preview } => Decision::Approve { hash, preview },
        Decision::Refuse { reason } => Decision::Refuse { reason },
        Decision::Answer(RecordedAnswer { listener, verdict }) => {
            let payload = RecordedPayloads::new(record, gate).take(&listener, &verdict)?;
            Decision::Answer(GatedAnswer { listener, payload })
        }
    };
    let ticket = Uuid::nil();
    Some(Event::Decide(Box::new(CallDecision { ticket, message, decision, origin })))
}

/// Rebuilds the event that requested a fork. `record` is the record of this event. Returns `None`
/// if the payload of the request cannot be rebuilt.
fn fork(record: &Record, action: ForkAction, gate: &Gate) -> Option<Event> {
    let threads = record.facts.iter().find_map(|fact| match fact {
        Fact::Forked { threads, .. } => Some(threads.clone()),
        _ => None,
    });
    let payload = match &action.request {
        Some(request) => {
            Some(RecordedPayloads::new(record, gate).take(&request.sender, &request.verdict)?)
        }
        None => None,
    };
    let threads = threads.unwrap_or_default();
    let work = recorded_work(record);
    let ticket = Uuid::nil();
    Some(Event::Fork(Box::new(ForkOrder { ticket, action, threads, work, payload })))
}

/// Rebuilds the event of a retry. `record` is the record of the retry. Checks the payload at the
/// gate again. Returns `None` if the payload cannot be rebuilt.
fn retry(record: &Record, action: RetryAction, gate: &Gate) -> Option<Event> {
    let payload = RecordedPayloads::new(record, gate).take(&action.sender, &action.verdict)?;
    Some(Event::RetryMessage(Box::new(RetryOrder { ticket: Uuid::nil(), action, payload })))
}

/// Rebuilds the result that the source of a fork had for a call. Returns `None` if a reply of the
/// result is not in the record, or if the gate now refuses it.
fn recollection(
    record: &Record,
    call: CallId,
    result: RecalledResult,
    gate: &Gate,
) -> Option<CallRecollection> {
    let RecalledResult { source, how, payloads } = result;
    let is_part = |message: &&Message| message.cause == Some(call.0);
    let mut parts: Vec<_> = record.accepted_messages().filter(is_part).collect();
    let mut listener = ListenerName::core();
    let taken = payloads.iter().map(|digest| {
        let at = parts.iter().position(|part| part.payload.digest == *digest)?;
        let part = parts.remove(at);
        listener = part.from.clone();
        Some((part.kind, part.name.clone(), part.payload.clone()))
    });
    let payloads = taken.collect::<Option<Vec<_>>>()?;
    let found = CallRecollection { source, listener, how, payloads, position: None };
    found.passes(gate).then_some(found)
}

/// Returns the event of a reload to `config`. Returns `None` if `record` is not the record of a
/// reload.
pub fn reload_of(record: &Record, config: CoreConfig) -> Option<Event> {
    let Input::Operator(action) = record.input.clone() else { return None };
    let blobs = record.facts.iter().find_map(|fact| match fact {
        Fact::Reloaded { blobs, .. } => Some(blobs.clone()),
        _ => None,
    })?;
    let ticket = Uuid::nil();
    Some(Event::Reload(Box::new(ReloadRequest { ticket, action, config, blobs })))
}

/// Returns the trace to which the record assigns its tree, or `None` if the record assigns no
/// trace.
fn trace_of(record: &Record) -> Option<TraceParent> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::Traced { trace } => Some(*trace),
        _ => None,
    })
}

fn standstill(stood_micros: u64, stepped_micros: u64) -> Event {
    let [stood, stepped] = [stood_micros, stepped_micros].map(Duration::from_micros);
    Event::Standstill(Standstill { stood, stepped })
}

fn denied(listener: ListenerName, operations: String, count: u64) -> Event {
    Event::Denied { listener, operations, count }
}

/// Returns the alarm whose firing `input` records, or `None` if `input` records another event.
fn alarm_of(input: &Input) -> Option<Alarm> {
    Some(match input.clone() {
        Input::Deadline { call, attempt } => Alarm::Deadline { call, attempt },
        Input::Probe { .. } => Alarm::Probe,
        Input::Untaken { call } => Alarm::Untaken { call },
        Input::Lost { call, attempt, .. } => Alarm::Lost { call, attempt },
        Input::Retry { call } => Alarm::Retry { call },
        Input::Gone { call } => Alarm::Gone { call },
        Input::ThreadTime { call } => Alarm::ThreadTime { call },
        Input::Held { call } => Alarm::Held { call },
        Input::PreviewTime { call } => Alarm::PreviewTime { call },
        Input::Schedule { timer, .. } => Alarm::Schedule { timer },
        Input::Unsettled { call, attempt } => Alarm::Unsettled { call, attempt },
        Input::Stop { call, attempt } => Alarm::Stop { call, attempt },
        _ => return None,
    })
}

fn boot(record: &Record, detail: String) -> Option<Event> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::Booted { journal, epoch, blobs, .. } => Some(Event::Boot {
            journal: *journal,
            epoch: *epoch,
            detail: detail.clone(),
            blobs: blobs.clone(),
        }),
        _ => None,
    })
}

/// Rebuilds the event of a reservation from the fact in `record`. Returns `None` if `record` is the
/// record of another event.
fn reserve(record: &Record) -> Option<Event> {
    let Input::Reserved { call, attempt, counted, most } = record.input else { return None };
    record.facts.iter().find_map(|fact| match fact {
        Fact::Reserved { spending, request, route, .. } => {
            let route = route.clone().zip(most);
            let route = route.map(|(route, most)| RouteLimit { route, most });
            let spending = *spending;
            let request = *request;
            let reservation = Reservation { spending, counted, request, route };
            Some(Event::Reserve { call, attempt, reservation })
        }
        _ => None,
    })
}

/// Restores the text of a turn's note from the record's messages.
fn with_note(record: &Record, turn: Turn) -> Turn {
    let is_note = |message: &&Message| {
        message.kind == MessageKind::Note
            && message.from.is_core()
            && *message.name.local == *MODEL_TURN
    };
    let note = record.accepted_messages().find(is_note);
    Turn { note: note.map_or_else(String::new, |m| m.payload.as_str().to_owned()), ..turn }
}

/// The payloads of a record's input, which are rebuilt from the record's messages and refusals.
struct RecordedPayloads<'a> {
    record: &'a Record,
    gate: &'a Gate,
    /// The refusals in the record that concern a whole payload, not a part of an accepted payload.
    /// A refusal is removed as soon as the verdict on its payload has been read.
    refusals: Vec<&'a Refusal>,
}

impl<'a> RecordedPayloads<'a> {
    fn new(record: &'a Record, gate: &'a Gate) -> Self {
        let is_submitted = matches!(
            record.input,
            Input::Submitted { .. }
                | Input::Decided { .. }
                | Input::Fork(_)
                | Input::OperatorRetry(_)
        );
        let refusals = record.facts.iter().filter_map(|fact| match fact {
            Fact::Refused { refusal, .. } => Some(refusal),
            _ => None,
        });
        // In the record of an outcome, refusals by these rules concern the payload inside an
        // accepted primitive, or the turn itself. They are no refusals of whole payloads.
        let beside = [
            RefusalRule::UnknownThread,
            RefusalRule::BadLabel,
            RefusalRule::MalformedAction,
            RefusalRule::UnknownAction,
        ];
        let is_beside =
            |refusal: &Refusal| beside.contains(&refusal.rule) || refusal.is_of_inner_payload();
        let of_payloads = |refusal: &&Refusal| is_submitted || !is_beside(refusal);
        Self { record, gate, refusals: refusals.filter(of_payloads).collect() }
    }

    fn take_all(
        &mut self,
        sender: &ListenerName,
        verdicts: &[Verdict],
    ) -> Option<Vec<Result<Checked, Refusal>>> {
        verdicts.iter().map(|verdict| self.take(sender, verdict)).collect()
    }

    fn take(
        &mut self,
        sender: &ListenerName,
        verdict: &Verdict,
    ) -> Option<Result<Checked, Refusal>> {
        match verdict {
            Verdict::Passed(digest) => Some(Ok(self.passed(sender, *digest)?)),
            Verdict::Refused(digest) => {
                let at = self.refusals.iter().position(|refusal| refusal.digest == *digest)?;
                Some(Err(self.refusals.remove(at).clone()))
            }
        }
    }

    fn passed(&self, sender: &ListenerName, digest: Digest) -> Option<Checked> {
        let message =
            self.record.accepted_messages().find(|message| message.payload.digest == digest)?;
        let checked = self.gate.check(sender, message.payload.as_str().as_bytes()).ok()?;
        match self.only_callee(sender, &checked) {
            Some(callee) => checked.only_for(callee).ok(),
            None => Some(checked),
        }
    }

    /// Returns the only listener that got the call of the payload inside `checked`, although
    /// several peers accept that payload: a workflow has named this listener. Returns `None` in
    /// any other case.
    fn only_callee(&self, sender: &ListenerName, checked: &Checked) -> Option<&ListenerName> {
        let inner = checked.inner()?;
        let Meaning::Call { peers, .. } = inner.meaning() else { return None };
        if peers.len() < 2 {
            return None;
        }

        let calls = self.record.accepted_messages().filter(|message| {
            let digest = inner.payload().digest;
            message.kind == MessageKind::Call
                && message.from == *sender
                && message.payload.digest == digest
        });
        let mut callees = calls.map(|call| &call.to);
        let first = callees.next()?;
        callees.all(|callee| callee == first).then_some(first)
    }
}
