//! The sink to which hosts report. It checks answers at the gate on the OS thread of
//! the host, not on that of the pump.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tokio::sync::oneshot;

use super::PumpCommand;
use super::arrivals::Arrivals;
use super::call_waits::ModelReport;
use super::handle::Reserve;
use super::pump_metrics::PumpMetrics;
use super::refused_payloads::warn_of_refused_payloads;
use super::shared_gate::SharedGate;
use crate::bus::live::{LiveChannel, LiveSource};
use crate::bus::{ModelState, Outcome, Reserved, Sink};
use crate::clock::Time;
use crate::envelope::{AttemptFailure, Money, Reservation, Spending, Turn};
use crate::failpoint::failpoint;
use crate::ids::{Attempt, CallId, ListenerName, Position};
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::pump::core::Event;
use crate::pump::gate::Gate;
use crate::system::MODEL_TURN;
use crate::xml::element::Element;

pub struct PumpSink {
    gates: SharedGate,
    outbox: Sender<PumpCommand>,
    heartbeats: PendingHeartbeats,
    arrivals: Arrivals,
    counts: Arc<PumpMetrics>,
    live: Arc<LiveChannel>,
    /// Agents that are stopped although deliveries are in flight (see [`PumpSink::begin_stop`]).
    /// Not set before the pump stops.
    stopped_agents: OnceLock<Vec<ListenerName>>,
}

/// Attempts with a heartbeat in the inbox. Further heartbeats of such an attempt are dropped until
/// the pump has taken the first one.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingHeartbeats(Arc<Mutex<HashSet<(CallId, Attempt)>>>);

impl PendingHeartbeats {
    fn all(&self) -> MutexGuard<'_, HashSet<(CallId, Attempt)>> {
        locked(&self.0)
    }

    pub fn remove(&self, call: CallId, attempt: Attempt) {
        self.all().remove(&(call, attempt));
    }
}

impl PumpSink {
    pub(super) fn new(
        gates: SharedGate,
        outbox: Sender<PumpCommand>,
        heartbeats: PendingHeartbeats,
        arrivals: Arrivals,
        (counts, live): (Arc<PumpMetrics>, Arc<LiveChannel>),
    ) -> Self {
        let stopped_agents = OnceLock::new();
        Self { gates, outbox, heartbeats, arrivals, counts, live, stopped_agents }
    }

    /// Begins the stop of `agents`. Must be called before their hosts are stopped with deliveries
    /// in flight. From now on, drops a failure of these agents if it would lead to a retry.
    /// Exception: a failure that states what a model call has used is still reported. An attempt
    /// whose failure is dropped counts as lost, and the next start handles the lost attempt.
    pub fn begin_stop(&self, agents: Vec<ListenerName>) {
        self.stopped_agents.set(agents).ok();
    }

    /// Whether a failure of `listener` is dropped, because the stop of this agent has caused it.
    fn is_dropped(&self, listener: &ListenerName, failure: &AttemptFailure) -> bool {
        self.stopped_agents.get().is_some_and(|agents| agents.contains(listener))
            && failure.is_retried()
            && failure.spent().is_none()
    }

    fn send(&self, event: Event) {
        // The send fails if the pump has stopped. Nothing is lost then: open deliveries are
        // delivered again at the next start.
        self.outbox.send(PumpCommand::Event(event)).ok();
    }

    fn gated(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        position: Option<Position>,
        (outcome, arrived): (Outcome, Time),
    ) -> Event {
        let gate = self.gates.of_attempt(call, attempt);
        let checked = check_count(&gate, listener, outcome.payloads.len());
        let checked = checked.and_then(|()| note_of(&gate, listener, call, position, &outcome));
        if let Err(detail) = checked {
            let failure = AttemptFailure::Garbage { detail };
            return Event::Failed { listener: listener.clone(), call, attempt, failure };
        }

        let texts = outcome.payloads.iter().enumerate();
        let payloads = texts
            .map(|(number, text)| gate.check_for(listener, text, outcome.callees.get(&number)));
        let payloads: Vec<_> = payloads.collect();
        if outcome.turn.is_none() {
            // An agent gets refusals in its thread.
            let source = (listener, call, attempt);
            warn_of_refused_payloads(&gate, source, &outcome.payloads, &payloads);
        }

        let listener = listener.clone();
        let turn = outcome.turn.map(Box::new);
        let arrived = Some(arrived);
        Event::Outcome { listener, call, attempt, payloads, turn, arrived }
    }

    /// Reports the end of an attempt to the pump. `position` is the position of the delivery to an
    /// agent on another machine; `None` for other listeners.
    fn end(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        position: Option<Position>,
        result: Result<Outcome, AttemptFailure>,
    ) {
        failpoint("answered");
        self.live.attempt_ended(call, attempt);
        match result {
            Ok(outcome) => {
                // Stamped before the gate's check, which may take until after the deadline.
                let arrived = self.arrivals.stamp(listener, call, attempt);
                let _guard = CheckGuard { sink: self, listener, call, attempt };
                self.send(self.gated(listener, call, attempt, position, (outcome, arrived)));
            }
            Err(failure) if self.is_dropped(listener, &failure) => {}
            Err(failure) => {
                let listener = listener.clone();
                self.send(Event::Failed { listener, call, attempt, failure });
            }
        }
    }
}

fn check_count(gate: &Gate, listener: &ListenerName, count: usize) -> Result<(), String> {
    match gate.outcome_payloads_max(listener).filter(|most| count > *most) {
        Some(most) => Err(format!("{count} payloads in one answer; at most {most} are taken")),
        None => Ok(()),
    }
}

/// Checks the note that a model turn adds to the record. The note must be a valid payload of the
/// core, and must name the agent `listener` and the call `call`. If `position`, the position of the
/// delivery, is known, the note must state it. The note must number the turn, and must state the
/// tokens and the cost of the turn.
fn note_of(
    gate: &Gate,
    listener: &ListenerName,
    call: CallId,
    position: Option<Position>,
    outcome: &Outcome,
) -> Result<(), String> {
    let Some(turn) = outcome.turn.as_ref().filter(|turn| !turn.note.is_empty()) else {
        return Ok(());
    };

    match gate.check_core(turn.note.as_bytes()) {
        Ok((name, payload)) if *name.local == *MODEL_TURN && payload.as_str() == turn.note => {
            if !is_of(&turn.note, listener, call) && !mutant("believe-the-note") {
                return Err("its turn is noted as another's".to_owned());
            }
            check_prompt_source(turn, position)?;
            check_numbers(turn)?;
            check_usage(turn)
        }
        Ok((name, _)) => Err(format!("its turn is noted as `{name}`, not as one model-turn")),
        Err(refusal) => Err(format!("the note of its turn cannot be recorded: {refusal}")),
    }
}

/// Guard that ends an attempt if the gate panics while it checks the attempt's answer. Nothing else
/// would end the attempt, because its deadline has no effect any more after the answer has arrived.
struct CheckGuard<'a> {
    sink: &'a PumpSink,
    listener: &'a ListenerName,
    call: CallId,
    attempt: Attempt,
}

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let listener = self.listener.clone();
            let call = self.call;
            let attempt = self.attempt;
            let failure =
                AttemptFailure::Garbage { detail: "the check of its answer failed".to_owned() };
            self.sink.send(Event::Failed { listener, call, attempt, failure });
        }
    }
}

/// Whether a turn's note states that `agent` took the turn in `call`.
fn is_of(note: &str, agent: &ListenerName, call: CallId) -> bool {
    let says = |head: &Element, name, text: &str| head.attribute(name) == Some(text);
    Element::head(note).is_some_and(|head| {
        says(&head, "agent", agent.as_str()) && says(&head, "call", &call.to_string())
    })
}

/// Checks what a turn's note states about the source of the turn. The note must state `position`,
/// the position of the delivery, if it is known: the prompt is rebuilt up to there. The note must
/// state a recorded answer only if the turn repeats one.
fn check_prompt_source(turn: &Turn, position: Option<Position>) -> Result<(), String> {
    let head = Element::head(&turn.note);
    let noted = |name| head.as_ref().and_then(|head| head.attribute(name));
    if noted("recorded").is_some() && turn.recorded.is_none() {
        return Err("its note states a recorded answer, and its turn repeats none".to_owned());
    }

    let noted = noted("position").unwrap_or("no");
    match position {
        Some(position) if noted != position.to_string() => Err(format!(
            "its turn was delivered at position {position}, and its note states position {noted}"
        )),
        _ => Ok(()),
    }
}

/// Checks the numbers of the turn and the latency that a turn's note states. The index looks turns
/// up by their number.
fn check_numbers(turn: &Turn) -> Result<(), String> {
    let head = Element::head(&turn.note);
    let noted = |name| head.as_ref().and_then(|head| head.attribute(name));
    for name in ["turn", "iteration"] {
        let number = noted(name).and_then(|text| text.parse::<u32>().ok());
        if number.is_none_or(|number| number == 0) {
            let text = noted(name).unwrap_or("no");
            return Err(format!("its note states {name} {text}, which is no number from 1 on"));
        }
    }

    match noted("latency_ms") {
        Some(text) if text.parse::<u64>().is_err() => {
            Err(format!("its note states latency_ms {text}, which is no number"))
        }
        _ => Ok(()),
    }
}

/// Checks that a turn's note states the token counts and the cost of the turn. Both are charged to
/// budgets, so the recorded note must account for them.
fn check_usage(turn: &Turn) -> Result<(), String> {
    const REASON: &str = "the host of the agent runs another program, or counts wrongly";
    let head = Element::head(&turn.note);
    let noted = |name| head.as_ref().and_then(|head| head.attribute(name));
    let noted_in = noted("tokens_in").unwrap_or("no");
    let noted_out = noted("tokens_out").unwrap_or("no");
    let Turn { tokens_in, tokens_out, money, .. } = turn;
    if noted_in != tokens_in.to_string() || noted_out != tokens_out.to_string() {
        return Err(format!(
            "its turn counts {tokens_in} + {tokens_out} tokens, and its note states {noted_in} + \
             {noted_out}; {REASON}"
        ));
    }

    let tokens = tokens_in.saturating_add(*tokens_out);
    let spent = Spending { tokens, money: *money };
    if !spent.is_possible() {
        let tokens_max = limits::ATTEMPT_TOKENS_MAX;
        let money_max = Money(limits::ATTEMPT_MONEY_NANO_MAX);
        return Err(format!(
            "its turn counts {tokens} tokens and costs {money}, and at most {tokens_max} tokens \
             and a cost of {money_max} are possible; {REASON}"
        ));
    }

    // A note states no cost if the config has no prices.
    let no_cost = Money::default().to_string();
    let noted_cost = noted("cost").unwrap_or(&no_cost);
    if noted_cost != money.to_string() {
        return Err(format!("its turn costs {money}, and its note states {noted_cost}; {REASON}"));
    }

    if !money.is_zero() && noted("currency").is_none_or(str::is_empty) {
        return Err(format!("its turn costs {money}, and its note states no currency; {REASON}"));
    }

    Ok(())
}

impl Sink for PumpSink {
    fn ended(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        result: Result<Outcome, AttemptFailure>,
    ) {
        self.end(listener, call, attempt, None, result);
    }

    fn ended_at(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        position: Position,
        result: Result<Outcome, AttemptFailure>,
    ) {
        self.end(listener, call, attempt, Some(position), result);
    }

    fn not_taken(&self, listener: &ListenerName, call: CallId, attempt: Attempt, detail: String) {
        self.live.attempt_ended(call, attempt);
        self.send(Event::NotTaken { listener: listener.clone(), call, attempt, detail });
    }

    fn stray(&self, listener: &ListenerName, named: String, payloads: Vec<Vec<u8>>) {
        let taken = payloads.iter().take(limits::OUTCOME_PAYLOADS_MAX);
        let (gate, _) = self.gates.current();
        let payloads = taken.map(|text| gate.check(listener, text)).collect();
        self.send(Event::Stray { listener: listener.clone(), named, payloads });
    }

    fn heartbeat(&self, _listener: &ListenerName, call: CallId, attempt: Attempt) {
        if self.heartbeats.all().insert((call, attempt)) {
            self.send(Event::Heartbeat { call, attempt });
        }
    }

    fn reserve(&self, call: CallId, attempt: Attempt, reservation: Reservation) -> Reserved {
        let (answer, reserved) = oneshot::channel();
        // As in `send`: if the pump has stopped, the caller gets an error from the closed channel.
        let reserve = Box::new(Reserve { call, attempt, reservation, answer });
        self.outbox.send(PumpCommand::Reserve(reserve)).ok();
        reserved
    }

    fn model_state(&self, source: &LiveSource, state: ModelState) {
        let report = ModelReport { source: source.clone(), state };
        // As in `send`: if the pump has stopped, the report has no readers.
        self.outbox.send(PumpCommand::ModelState(Box::new(report))).ok();
    }

    fn live(&self) -> Option<&Arc<LiveChannel>> {
        Some(&self.live)
    }

    fn joined(&self, listener: &ListenerName, detail: &str) {
        self.send(Event::Joined { listener: listener.clone(), detail: detail.to_owned() });
    }

    fn left(&self, listener: &ListenerName, detail: &str) {
        self.send(Event::Left { listener: listener.clone(), detail: detail.to_owned() });
    }

    fn denied(&self, listener: &ListenerName, operations: String, count: u64) {
        self.send(Event::Denied { listener: listener.clone(), operations, count });
    }

    fn answers_denied(&self, listener: &ListenerName, why: Option<String>) {
        self.counts.set_answers_denied(listener, why);
    }

    fn restarted(&self, listener: &ListenerName) {
        if let Some(own) = self.counts.of(listener) {
            own.restarts.increment();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, channel};

    use uuid::Uuid;

    use super::*;
    use crate::envelope::Spending;
    use crate::ids::MessageId;
    use crate::schema::Schemas;

    fn sink() -> (PumpSink, Receiver<PumpCommand>) {
        let (outbox, inbox) = channel();
        let gate = Gate::new(Arc::default(), Schemas::default());
        let counts = Arc::new(PumpMetrics::new(&gate.contracts, None));
        (
            PumpSink::new(
                SharedGate::new(gate),
                outbox,
                PendingHeartbeats::default(),
                Arrivals::default(),
                (counts, Arc::default()),
            ),
            inbox,
        )
    }

    #[test]
    fn an_answer_whose_check_panics_ends_its_attempt() {
        let (sink, inbox) = sink();
        let listener = ListenerName::core();
        let call = CallId(MessageId(Uuid::nil()));
        let check = || {
            let attempt = Attempt { epoch: 1, n: 1 };
            let _guard = CheckGuard { sink: &sink, listener: &listener, call, attempt };
            panic!("the check of this answer panics");
        };

        assert!(catch_unwind(AssertUnwindSafe(check)).is_err());
        let sent = inbox.try_iter().next();
        assert!(matches!(sent, Some(PumpCommand::Event(Event::Failed { .. }))));
    }

    #[test]
    fn while_its_pump_stops_a_sink_drops_the_failures_that_the_stop_causes() {
        let (sink, inbox) = sink();
        let listener = ListenerName::core();
        let call = CallId(MessageId(Uuid::nil()));
        let fail = |n, failure| sink.ended(&listener, call, Attempt { epoch: 1, n }, Err(failure));
        let crashed = || AttemptFailure::Crashed { detail: "killed".to_owned() };
        let detail = "its host was stopped".to_owned();
        let cut = AttemptFailure::CutShort { detail, spent: Spending::default(), retried: true };
        fail(1, crashed());
        sink.begin_stop(vec![listener.clone()]);
        fail(2, crashed());
        fail(3, cut);
        fail(4, AttemptFailure::Refused { detail: "no".to_owned() });
        let other = ListenerName::operator();
        sink.ended(&other, call, Attempt { epoch: 1, n: 5 }, Err(crashed()));

        let passed = inbox.try_iter().map(|command| match command {
            PumpCommand::Event(Event::Failed { attempt, .. }) => attempt.n,
            _ => panic!("the sink sent another command"),
        });
        assert_eq!(passed.collect::<Vec<_>>(), [1, 3, 4, 5]);
    }

    #[test]
    fn denied_answers_of_a_listener_are_known_until_they_are_permitted() {
        let (sink, _inbox) = sink();
        let listener = ListenerName::core();
        sink.answers_denied(&listener, Some("a right is missing".to_owned()));
        assert_eq!(sink.counts.denied_answers(), ["a right is missing"]);
        sink.answers_denied(&listener, None);
        assert!(sink.counts.denied_answers().is_empty());
    }

    #[test]
    fn a_flood_of_heartbeats_queues_one_command_for_each_attempt() {
        let (sink, inbox) = sink();
        let listener = ListenerName::core();
        let call = CallId(MessageId(Uuid::nil()));
        let attempt = |n| Attempt { epoch: 1, n };
        for n in [1, 2] {
            (0..1000).for_each(|_| sink.heartbeat(&listener, call, attempt(n)));
        }

        assert_eq!(inbox.try_iter().count(), 2);
        sink.heartbeats.remove(call, attempt(2));
        sink.heartbeat(&listener, call, attempt(2));
        assert_eq!(inbox.try_iter().count(), 1, "the next one after it was heard");
    }
}
