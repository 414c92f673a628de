//! Updates the pump's metrics from recorded steps and performed effects, on the pump's OS thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pump_metrics::{DeliveryEnd, FAILURES, PumpMetrics, micros_since_boot};
use super::spans::PumpSpans;
use crate::bus::Delivery;
use crate::clock::Time;
use crate::contract::Contracts;
use crate::envelope::{AttemptFailure, Message, MessageKind, RefusalRule};
use crate::ids::{Attempt, CallId, ListenerName};
use crate::journal::Journal;
use crate::pump::core::{Core, Effect};
use crate::system::{ErrorCode, ScheduleEvent};
use crate::thread::{Fact, Input, Map, Record, State};
use crate::trace::SpanTracer;

/// A delivery in flight, as the recorder of metrics remembers it.
struct TimedDelivery {
    listener: ListenerName,
    /// Index of the listener's metrics; `None` if the listener has no metrics, because a reload has
    /// added it.
    metrics: Option<usize>,
    since: Instant,
}

pub(super) struct MetricsRecorder {
    counts: Arc<PumpMetrics>,
    /// Deliveries in flight, including deliveries to listeners without metrics, because the log of
    /// failed attempts names these listeners, too.
    under_way: Map<(CallId, Attempt), TimedDelivery>,
    /// Deliveries that have ended since the last [`MetricsRecorder::take_ended`].
    ended: Vec<(CallId, Attempt)>,
    /// Whether any call was queued at the last update of the gauges.
    waited: bool,
    /// Start of the interval after which a checkpoint is due, as the journal stated it at the last
    /// update of the gauges.
    checked_at: Option<Time>,
    now: Instant,
    /// Spans of calls and deliveries; `None` if tracing is off.
    spans: Option<Box<PumpSpans>>,
}

impl MetricsRecorder {
    pub fn new(counts: Arc<PumpMetrics>) -> Self {
        let under_way = Map::default();
        let ended = Vec::new();
        let now = Instant::now();
        Self { counts, under_way, ended, waited: false, checked_at: None, now, spans: None }
    }

    /// Starts recording spans of calls and deliveries if `tracer` is on.
    pub fn trace(&mut self, tracer: &SpanTracer, contracts: &Arc<Contracts>, state: &State) {
        self.spans = tracer
            .is_on()
            .then(|| Box::new(PumpSpans::new(tracer.clone(), Arc::clone(contracts), state)));
    }

    /// Sets the contracts of the config in force. The spans need them, because an agent's call to a
    /// tool has another span name than any other call.
    pub fn set_contracts(&mut self, contracts: &Arc<Contracts>) {
        if let Some(spans) = &mut self.spans {
            spans.set_contracts(contracts);
        }
    }

    pub fn counts(&self) -> &Arc<PumpMetrics> {
        &self.counts
    }

    /// Returns the listener that handles an attempt; `None` if the attempt is not in flight.
    pub fn listener_of(&self, call: CallId, attempt: Attempt) -> Option<&ListenerName> {
        self.under_way.get(&(call, attempt)).map(|delivery| &delivery.listener)
    }

    /// Returns the attempts that have ended since this method was last called, in whatever way they
    /// ended.
    pub fn take_ended(&mut self) -> Vec<(CallId, Attempt)> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the time since the previous call of `lap`.
    fn lap(&mut self) -> Duration {
        let before = std::mem::replace(&mut self.now, Instant::now());
        self.now.saturating_duration_since(before)
    }

    pub fn begins_to_step(&mut self) {
        self.lap();
    }

    pub fn record_step(&mut self) {
        let took = self.lap();
        self.counts.step.took(took);
    }

    /// Updates the spans for records that are durable and applied to `state`. Must be called before
    /// the effects of the records are performed.
    pub fn record_written(&mut self, records: &[Record], state: &State) {
        if let Some(spans) = &mut self.spans {
            records.iter().for_each(|record| spans.record_facts(record, state));
        }
    }

    /// Updates the counters for durable records.
    pub fn count_records(&mut self, records: &[Record]) {
        let took = self.lap();
        self.counts.commit.took(took);
        let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
        self.counts.group.add(count);
        self.counts.records.add(count);
        for record in records {
            self.input(&record.input);
            record.facts.iter().for_each(|fact| self.fact(fact));
        }

        if let Some(last) = records.last() {
            self.counts.position.set(last.position.0);
        }
    }

    fn input(&mut self, input: &Input) {
        match input {
            Input::Deadline { call, attempt } => {
                self.end_delivery(*call, *attempt, DeliveryEnd::TimedOut)
            }
            Input::Lost { listener, .. } => {
                if let Some(own) = self.counts.of(listener) {
                    let lost = AttemptFailure::Lost { detail: String::new() };
                    own.failures.increment(kind(&lost).unwrap_or_default());
                }
            }
            Input::Busy { count, .. } => {
                self.counts.refusals.add(RefusalRule::Busy as usize, *count)
            }
            Input::Shutdown { .. } => self.counts.drains(),
            _ => {}
        }
    }

    fn fact(&mut self, fact: &Fact) {
        let counts = &self.counts;

        match fact {
            Fact::Booted { epoch, .. } => {
                counts.epoch.set(u64::from(*epoch));
            }
            Fact::Accepted { message, opening, .. } => {
                counts.messages.increment(message.kind as usize);
                if opening.is_some() {
                    counts.opened.increment();
                }
                if let Some(code) = error_code(message) {
                    counts.errors.increment(code);
                }
                if let Some(event) = schedule_event(message) {
                    counts.schedule_events.increment(event);
                }
            }
            Fact::Disposed { how, .. } => counts.dispositions.increment(*how as usize),
            Fact::Refused { refusal, .. } => counts.refusals.increment(refusal.rule as usize),
            Fact::CallClosed { how, .. } => counts.closed.increment(*how as usize),
            Fact::OutcomeReceived { call, attempt } => {
                self.end_delivery(*call, *attempt, DeliveryEnd::Answered)
            }
            Fact::NotTaken { call, attempt } => {
                self.end_delivery(*call, *attempt, DeliveryEnd::NotTaken)
            }
            Fact::AttemptFailed { call, attempt, failure } => {
                let delivery = self.under_way.get(&(*call, *attempt));
                if let Some(own) = delivery.and_then(|timed| counts.at(timed.metrics?)) {
                    own.failures.increment(kind(failure).unwrap_or_default());
                }
                self.end_delivery(*call, *attempt, DeliveryEnd::Failed);
            }
            _ => {}
        }
    }

    pub fn record_effect(&mut self, effect: &Effect, state: &State) {
        if let Some(spans) = &mut self.spans {
            spans.record_effect(effect, state);
        }

        match effect {
            Effect::Deliver(delivery) => self.handed_over(delivery),
            Effect::Withdraw { call, attempt, .. } => {
                self.end_delivery(*call, *attempt, DeliveryEnd::Withdrawn);
            }
            _ => {}
        }
    }

    fn handed_over(&mut self, delivery: &Delivery) {
        if delivery.attempt.is_preview() {
            return;
        }

        let listener = delivery.listener.clone();
        let metrics = self.counts.index(&listener);
        if let Some(own) = metrics.and_then(|index| self.counts.at(index)) {
            own.under_way.set(own.under_way.get() + 1);
        }
        let timed = TimedDelivery { listener, metrics, since: self.now };
        self.under_way.insert((delivery.call, delivery.attempt), timed);
    }

    /// Records the end of a delivery. Only the first report about a delivery counts.
    fn end_delivery(&mut self, call: CallId, attempt: Attempt, how: DeliveryEnd) {
        let Some(delivery) = self.under_way.remove(&(call, attempt)) else { return };
        self.ended.push((call, attempt));
        let Some(own) = delivery.metrics.and_then(|index| self.counts.at(index)) else { return };
        own.ended.increment(how as usize);
        own.took.took(self.now.saturating_duration_since(delivery.since));
        own.under_way.set(own.under_way.get().saturating_sub(1));
    }

    /// Updates the gauges after a commit.
    pub fn update_gauges(&mut self, core: &Core, journal: &dyn Journal) {
        let state = core.state();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.counts.open.set(number(state.calls.len()));
        self.counts.in_flight.set(number(state.in_flight));
        self.counts.pauses.set(number(state.pauses.len()));
        let checked_at = journal.checked_at();
        if checked_at != self.checked_at {
            self.checked_at = checked_at;
            self.counts.checked_at.set(micros_since_boot());
        }
        let copies = journal.copy_metrics().unwrap_or_default();
        self.counts.copy_failures.set(copies.failures);
        self.counts.copies_waiting.set(copies.waiting);
        self.counts.begins();
        let waits = core.waiting() > 0;
        if waits || self.waited {
            for (name, own) in self.counts.each() {
                own.backlog.set(number(core.backlog(name)));
            }
        }

        self.waited = waits;
    }
}

/// Guard that marks the metrics as stopped when it is dropped. The run of a pump holds it, so the
/// metrics are marked in whatever way the run ends.
pub(super) struct Lifetime(pub Arc<PumpMetrics>);

impl Drop for Lifetime {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// Returns the index in [`ErrorCode::ALL`] of the error code in `message`. Returns `None` if the
/// message is no `system-error` of the core.
pub(super) fn error_code(message: &Message) -> Option<usize> {
    let code = word_of(message, "system-error", " code=\"")?;
    ErrorCode::ALL.iter().position(|known| known.as_str() == code)
}

/// Returns the index in [`ScheduleEvent::WORDS`] of the event in `message`. Returns `None` if the
/// message is no `schedule-event`.
fn schedule_event(message: &Message) -> Option<usize> {
    let event = word_of(message, "schedule-event", " event=\"")?;
    ScheduleEvent::WORDS.iter().position(|known| *known == event)
}

/// Returns the text between `start` and the next quotation mark in the payload of `message`, such
/// as the value of an attribute. Returns `None` if the message is not from the core, if the local
/// name of its payload is not `local`, or if the payload does not contain `start`.
fn word_of<'m>(message: &'m Message, local: &str, start: &str) -> Option<&'m str> {
    if message.kind != MessageKind::System || *message.name.local != *local {
        return None;
    }

    let (_, rest) = message.payload.as_str().split_once(start)?;
    rest.split_once('"').map(|(word, _)| word)
}

/// Returns the index of a failure's kind in [`FAILURES`], or `None` if [`FAILURES`] does not
/// contain the kind.
fn kind(failure: &AttemptFailure) -> Option<usize> {
    FAILURES.iter().position(|word| *word == failure.word())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::bus::DeliveryPreview;
    use crate::ids::{MessageId, Position, ThreadId};

    /// A listener that a reload has added has no metrics. The recorder must still return this
    /// listener for an attempt in flight, because the log names the listener of each failed
    /// attempt.
    #[test]
    fn an_attempt_of_a_listener_without_metrics_has_its_listener_until_it_ends() {
        let metrics = PumpMetrics::new(&Contracts::default(), None);
        let mut recorder = MetricsRecorder::new(Arc::new(metrics));
        let listener = ListenerName::parse("fresh").unwrap();
        let call = CallId(MessageId(Uuid::from_u128(7)));
        let attempt = Attempt { epoch: 1, n: 1 };
        recorder.handed_over(&Delivery {
            listener: listener.clone(),
            call,
            thread: ThreadId::organism(),
            attempt,
            messages: Vec::new(),
            fresh: 0,
            position: Position(1),
            timeout: Duration::ZERO,
            trace: None,
            preview: DeliveryPreview::None,
            source: None,
            uncounted: Vec::new(),
        });
        assert_eq!(recorder.listener_of(call, attempt), Some(&listener));
        recorder.end_delivery(call, attempt, DeliveryEnd::Failed);
        assert_eq!(recorder.listener_of(call, attempt), None);
    }

    #[test]
    fn closed_lists_are_counted_in_their_order() {
        for (index, rule) in RefusalRule::ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, index, "{rule}");
        }
        let spent = AttemptFailure::Spent { detail: String::new() };
        assert_eq!(FAILURES[kind(&spent).unwrap()], "budget-spent");
    }
}
