//! Spans of a pump: one for each call, from its request to its result, and one for each delivery of
//! a call. A pump without a tracer makes no spans.
//!
//! The attributes follow OpenTelemetry's conventions for messaging. The attributes of model calls
//! also follow its conventions for generative AI. `docs/OPERATIONS.md` lists all attributes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::metrics_recorder::error_code;
use crate::bus::Delivery;
use crate::clock::{Time, since_boot};
use crate::contract::{Contracts, Role};
use crate::envelope::Message;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::mutant::mutant;
use crate::pump::core::Effect;
use crate::system::ErrorCode;
use crate::thread::{
    Call, Closing, Fact, Input, Map, Opener, Opening, Record, RecordByCall, State,
};
use crate::trace::{AttributeValue, Span, SpanId, SpanKind, SpanTracer, TraceParent};

pub(super) struct PumpSpans {
    tracer: SpanTracer,
    contracts: Arc<Contracts>,
    /// Spans of those open calls whose traces are exported.
    calls: Map<CallId, Span>,
    under_way: Map<(CallId, Attempt), Span>,
    /// Time of the latest handled record. It may be ahead of the system clock.
    recorded: Time,
    /// Uptime of the machine when the latest record was handled.
    recorded_uptime: Duration,
}

impl PumpSpans {
    pub fn set_contracts(&mut self, contracts: &Arc<Contracts>) {
        self.contracts = Arc::clone(contracts);
    }

    /// Starts the spans of the calls that are open when the pump starts.
    pub fn new(tracer: SpanTracer, contracts: Arc<Contracts>, state: &State) -> Self {
        let calls = Map::default();
        let under_way = Map::default();
        let recorded = Time(0);
        let recorded_uptime = since_boot();
        let mut spans = Self { tracer, contracts, calls, under_way, recorded, recorded_uptime };
        let open: Vec<&Call> = state.trees.values().flat_map(|tree| tree.open_calls()).collect();
        // In the order of callers before callees: whether the span of a caller is kept decides the
        // parents of its calls' spans.
        let mut open: Vec<_> = open.into_iter().filter_map(|c| Some((c.request()?, c))).collect();
        open.sort_by_key(|(request, _)| (request.time, request.id));
        for (request, call) in open {
            spans.open_span(request, &call.opening, state);
        }

        spans
    }

    /// Updates the spans for a durable record, whose facts are already in `state`.
    pub fn record_facts(&mut self, record: &Record, state: &State) {
        self.recorded = record.time;
        self.recorded_uptime = since_boot();
        let by_call = RecordByCall::of(record);
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(opening), .. } => {
                    self.open_span(message, opening, state);
                }
                Fact::Refused { call: Some(call), refusal, .. } => {
                    if let Input::Outcome { call: own, attempt, .. } = &record.input
                        && own == call
                        && let Some(span) = self.under_way.get_mut(&(*call, *attempt))
                    {
                        span.error.get_or_insert(Cow::Borrowed(refusal.rule.as_str()));
                    }
                }
                Fact::CallClosed { call, how } => {
                    self.close_span(*call, *how, record.time, || by_call.caused_by(*call))
                }
                _ => {}
            }
        }

        self.deliveries_ended(record);
    }

    /// Ends the spans of the deliveries that end in this record. The refusals in the record must
    /// already have been added to these spans, because a span is exported when it ends.
    fn deliveries_ended(&mut self, record: &Record) {
        if let Input::Deadline { call, attempt } = &record.input {
            self.end_delivery(*call, *attempt, Some("timeout"));
        }

        for fact in &record.facts {
            match fact {
                Fact::OutcomeReceived { call, attempt } => self.end_delivery(*call, *attempt, None),
                Fact::NotTaken { call, attempt } => {
                    self.end_delivery(*call, *attempt, Some("not-taken"));
                }
                Fact::AttemptFailed { call, attempt, failure } => {
                    self.end_delivery(*call, *attempt, Some(failure.word()));
                }
                _ => {}
            }
        }
    }

    pub fn record_effect(&mut self, effect: &Effect, state: &State) {
        match effect {
            Effect::Deliver(delivery) => self.handed_over(delivery, state),
            Effect::Withdraw { call, attempt, .. } => {
                self.end_delivery(*call, *attempt, Some("cancelled"));
            }
            _ => {}
        }
    }

    fn open_span(&mut self, message: &Arc<Message>, opening: &Opening, state: &State) {
        let given = state.tree(&message.thread).and_then(|tree| tree.trace.as_deref());
        let Some(given) = given.filter(|trace| self.tracer.keeps(trace)) else { return };
        let call = CallId(message.id);
        let own = SpanId::of_call(call);
        let caller = match &opening.opener {
            Opener::Client { .. } => None,
            Opener::Call { call, .. } => self.calls.get(call),
        };

        let caller = caller.filter(|caller| caller.at.is_of_trace(given));
        let parent = caller.map_or(given.span(), |caller| caller.at.span());
        let by_agent = self.is_agent(opening.opener.name()) && !self.is_agent(&message.to);
        let (kind, name) = if by_agent {
            (SpanKind::Internal, format!("execute_tool {}", message.name.local))
        } else {
            (SpanKind::Producer, format!("send {}", message.to))
        };

        let span = Span::new(given.at(own), kind, name, message.time);
        // The first span of a trace that began here has no parent.
        let span = messaging(span.of((parent != own).then_some(parent)), "send", &message.to)
            .with("messaging.message.id", message.id.to_string())
            .with("messaging.message.conversation_id", message.thread.to_string())
            .with("organism.sender", message.from.to_string())
            .with("organism.payload.name", message.name.to_string());
        let span = if by_agent {
            span.with("gen_ai.operation.name", "execute_tool")
                .with("gen_ai.tool.name", message.name.local.to_string())
                .with("gen_ai.tool.type", "function")
                .with("gen_ai.conversation.id", message.thread.to_string())
        } else {
            span
        };

        let span = if mutant("export-what-was-said") {
            span.with("organism.payload", message.payload.as_str().to_owned())
        } else {
            span
        };

        self.calls.insert(call, span);
    }

    fn is_agent(&self, name: &ListenerName) -> bool {
        self.contracts.get(name).is_some_and(|contract| contract.role == Role::Agent)
    }

    /// Ends the span of a call. `caused` returns the messages that the call's end has caused.
    fn close_span<'m>(
        &mut self,
        call: CallId,
        how: Closing,
        ended: Time,
        caused: impl FnOnce() -> &'m [&'m Message],
    ) {
        let Some(mut span) = self.calls.remove(&call) else { return };
        span.ended = ended;
        span.error = match how {
            Closing::Completed => None,
            Closing::Cancelled => Some("cancelled".into()),
            Closing::Failed => Some(error_code_of(caused()).unwrap_or("failed").into()),
        };
        self.tracer.enqueue(span);
    }

    fn handed_over(&mut self, delivery: &Delivery, state: &State) {
        if delivery.attempt.is_preview() {
            return;
        }

        let Some(at) = delivery.trace.filter(|trace| self.tracer.keeps(trace)) else { return };
        let call = self.calls.get(&delivery.call).filter(|call| call.at.is_of_trace(&at));
        // The trace may have changed while the call was open.
        let parent = call
            .map(|call| call.at.span())
            .or_else(|| state.tree(&delivery.thread)?.trace.as_deref().map(TraceParent::span));
        let Delivery { listener, messages, fresh, thread, attempt, .. } = delivery;
        let span = Span::new(at, SpanKind::Consumer, format!("process {listener}"), self.now());
        let span = messaging(span.of(parent), "process", listener);
        let span = match (fresh, messages.last()) {
            (1, Some(message)) => span.with("messaging.message.id", message.id.to_string()),
            _ => span.with("messaging.batch.message_count", count(*fresh)),
        };

        let span = span
            .with("messaging.message.conversation_id", thread.to_string())
            .with("organism.call.id", delivery.call.to_string())
            .with("organism.attempt", attempt.to_string());
        self.under_way.insert((delivery.call, *attempt), span);
    }

    /// Returns the present, as the pump's clock shows it: the system's time, but not before the sum
    /// of the time of the latest handled record and the real time that has passed since then.
    fn now(&self) -> Time {
        present(Time::now(), self.recorded, since_boot().saturating_sub(self.recorded_uptime))
    }

    /// Ends the span of a delivery, if it has not ended yet. `error` is `None` if the listener
    /// answered. If the span already has an error from a refused answer, keeps that error.
    fn end_delivery(&mut self, call: CallId, attempt: Attempt, error: Option<&'static str>) {
        let Some(mut span) = self.under_way.remove(&(call, attempt)) else { return };
        span.ended = self.recorded.max(span.began);
        span.error = span.error.or(error.map(Cow::Borrowed));
        self.tracer.enqueue(span);
    }
}

/// Ends the spans of all deliveries in flight, with the error `interrupted`. The next pump starts
/// these deliveries again.
impl Drop for PumpSpans {
    fn drop(&mut self) {
        let now = self.now();
        for (_, mut span) in self.under_way.drain() {
            span.ended = now.max(span.began);
            span.error = Some("interrupted".into());
            self.tracer.enqueue(span);
        }
    }
}

/// Returns the later one of `system` and the time of `passed` after `recorded`.
fn present(system: Time, recorded: Time, passed: Duration) -> Time {
    system.max(recorded.plus(passed))
}

/// Exports the span of a refused submission. The span belongs to `given`, the trace of the client.
/// If the client gave no trace, it belongs to `begun`, a new trace.
pub(super) fn export_refusal(
    tracer: &SpanTracer,
    (given, begun): (Option<TraceParent>, Option<TraceParent>),
    client: &ListenerName,
    id: CallId,
    error: &'static str,
) {
    let Some(at) = given.or(begun).filter(|trace| tracer.keeps(trace)) else { return };
    let span =
        Span::new(at.at(SpanId::of_call(id)), SpanKind::Producer, "send".to_owned(), Time::now());
    let mut span = span
        .of(given.map(|given| given.span()))
        .with("messaging.system", "organism")
        .with("messaging.operation.name", "send")
        .with("messaging.operation.type", "send")
        .with("messaging.message.id", id.to_string())
        .with("organism.sender", client.to_string());
    span.error = Some(error.into());
    tracer.enqueue(span);
}

fn messaging(span: Span, operation: &'static str, destination: &ListenerName) -> Span {
    span.with("messaging.system", "organism")
        .with("messaging.operation.name", operation)
        .with("messaging.operation.type", operation)
        .with("messaging.destination.name", destination.to_string())
}

/// Returns the error code of a failed call, from the system payload that the opener of the call
/// gets. `caused` are the messages that the call's end has caused. Returns `None` if none of them
/// is such a payload.
fn error_code_of(caused: &[&Message]) -> Option<&'static str> {
    let code = caused.iter().find_map(|message| error_code(message))?;
    ErrorCode::ALL.get(code).map(|code| code.as_str())
}

fn count(count: usize) -> AttributeValue {
    AttributeValue::Number(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_advances_while_the_records_are_ahead_of_the_system_clock() {
        let hour = Duration::from_secs(3600);
        let minutes = Duration::from_secs(1200);
        let ahead = Time(0).plus(hour);
        assert_eq!(present(Time(0).plus(minutes), ahead, minutes), ahead.plus(minutes));
        assert_eq!(present(ahead.plus(hour), ahead, minutes), ahead.plus(hour));
    }
}
