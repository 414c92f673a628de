//! The conformance kit for listener authors. It tests a program against docs/PROTOCOL.md, over the
//! same process host and NATS host that an organism uses.

mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::bus::{Delivery, Outcome, Sink};
use crate::clock::Time;
use crate::envelope::{AttemptFailure, Message, MessageKind, Payload};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::limits;
pub use harness::HarnessTransport;
use harness::TrialHarness;

/// How long a listener must send nothing after its start. [`QUIET`] is the time after an answer.
const QUIET_AT_START: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_millis(300);
/// Interval at which a delivery is repeated until a program on NATS has joined.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A payload with which a listener is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialRequest {
    pub name: PayloadName,
    /// Text of the payload: one XML element.
    pub payload: String,
}

/// Checks one payload of an answer. `Err` contains a description of the defect.
pub type PayloadJudge<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecklistLine {
    /// The expected behaviour, such as `answers {urn:x}add`.
    pub claim: String,
    /// `Err` contains the observed deviation, and the section of docs/PROTOCOL.md that requires the
    /// expected behaviour.
    pub verdict: Result<(), String>,
}

/// Tests `command` with all requests, in order. Calls `report` after every check. Stops when no
/// further check can succeed. Returns whether at least one request was sent and all checks passed.
pub async fn run(
    command: Vec<String>,
    way: HarnessTransport,
    requests: &[TrialRequest],
    patience: Duration,
    judge: PayloadJudge<'_>,
    report: &mut dyn FnMut(&ChecklistLine),
) -> bool {
    let mut good = true;
    let mut done = |claim: String, verdict: Result<(), String>| {
        let is_good = verdict.is_ok();
        good &= is_good;
        report(&ChecklistLine { claim, verdict });
        is_good
    };

    let ends = way.how_it_ends();
    let started = ListenerTrial::start(command, way, patience).await;
    let starts = "starts, and is quiet until it is asked (2)".to_owned();
    let (mut trial, quiet) = match started {
        Ok(mut trial) => {
            let quiet = trial.quiet(QUIET_AT_START).await;
            (trial, quiet)
        }
        Err(why) => return done(starts, Err(why)),
    };

    if !done(starts, quiet) {
        return false;
    }

    let mut answerable = None;
    for request in requests {
        let answered = trial.answered(request, judge).await;
        if done(format!("answers {} (4)", request.name), answered) {
            answerable = answerable.or(Some(request));
        } else {
            trial.again().await;
        }
    }

    // The remaining checks need a request that the program answers.
    let Some(request) = answerable else { return false };
    done("answers two requests in a row (2)".to_owned(), trial.twice(request, judge).await);
    trial.again().await;
    done("is quiet after its answer (2)".to_owned(), trial.quiet_after(request, judge).await);
    trial.again().await;
    done("goes on after a cancel (6)".to_owned(), trial.cancelled(request, judge).await);
    trial.again().await;
    done(ends.to_owned(), trial.ended(request, judge).await);
    good
}

/// An event that a host reports about the program. Events keep their order of arrival.
#[derive(Debug)]
enum HostEvent {
    Ended(Result<Outcome, AttemptFailure>),
    Heartbeat,
    /// An answer that names another delivery than the open one.
    Stray(String),
    Left(String),
}

struct RecordingSink(mpsc::UnboundedSender<HostEvent>);

impl RecordingSink {
    fn report(&self, event: HostEvent) {
        // The send fails only if the trial has ended, which needs no handling.
        let _ = self.0.send(event);
    }
}

impl Sink for RecordingSink {
    fn ended(
        &self,
        _: &ListenerName,
        _: CallId,
        _: Attempt,
        result: Result<Outcome, AttemptFailure>,
    ) {
        self.report(HostEvent::Ended(result));
    }

    fn heartbeat(&self, _: &ListenerName, _: CallId, _: Attempt) {
        self.report(HostEvent::Heartbeat);
    }

    fn stray(&self, _: &ListenerName, named: String, _: Vec<Vec<u8>>) {
        self.report(HostEvent::Stray(named));
    }

    fn joined(&self, _: &ListenerName, _: &str) {}

    fn left(&self, _: &ListenerName, detail: &str) {
        self.report(HostEvent::Left(detail.to_owned()));
    }
}

/// A program under test. The trial does not restart the program, so that an exit shows.
struct ListenerTrial {
    command: Vec<String>,
    way: HarnessTransport,
    patience: Duration,
    harness: TrialHarness,
    events: mpsc::UnboundedReceiver<HostEvent>,
    attempts: u32,
}

/// Why a delivery had no outcome.
enum MissingOutcome {
    /// No program took the delivery.
    Nobody(String),
    /// The program answered that it does not support the payload.
    Refused(String),
    Failed(String),
}

impl ListenerTrial {
    async fn start(
        command: Vec<String>,
        way: HarnessTransport,
        patience: Duration,
    ) -> Result<Self, String> {
        let (sender, events) = mpsc::unbounded_channel();
        let harness = TrialHarness::set(&command, &way, Arc::new(RecordingSink(sender))).await?;
        Ok(Self { command, way, patience, harness, events, attempts: 0 })
    }

    /// Kills the program and starts it again.
    async fn again(&mut self) {
        let (sender, events) = mpsc::unbounded_channel();
        // If the program cannot be started again, the next check reports the failure.
        if let Ok(harness) =
            TrialHarness::set(&self.command, &self.way, Arc::new(RecordingSink(sender))).await
        {
            self.harness = harness;
            self.events = events;
        }
    }

    async fn quiet(&mut self, length: Duration) -> Result<(), String> {
        match timeout(length, self.events.recv()).await {
            Err(_) => self.harness.check_running(),
            Ok(Some(HostEvent::Left(why))) => Err(why),
            Ok(other) => Err(format!("reported {other:?} without having been asked")),
        }
    }

    fn deliver(&mut self, request: &TrialRequest) -> (CallId, Attempt) {
        self.attempts += 1;
        let attempt = Attempt { epoch: 1, n: self.attempts };
        let delivery = delivery(request, attempt, self.patience);
        let call = delivery.call;
        self.harness.host().deliver(delivery);
        self.harness.host().flush();
        (call, attempt)
    }

    /// Waits for the end of a delivery. Each heartbeat extends the wait.
    async fn outcome(&mut self) -> Result<Outcome, MissingOutcome> {
        loop {
            match timeout(self.patience, self.events.recv()).await {
                Err(_) => {
                    return Err(MissingOutcome::Failed(format!(
                        "no answer within {:?}",
                        self.patience
                    )));
                }
                Ok(Some(HostEvent::Heartbeat)) => {}
                Ok(Some(HostEvent::Stray(named))) => {
                    return Err(MissingOutcome::Failed(format!(
                        "it answers {named}, not its own (4)"
                    )));
                }
                Ok(Some(HostEvent::Ended(Err(AttemptFailure::Unreachable { detail })))) => {
                    return Err(MissingOutcome::Nobody(detail));
                }
                Ok(Some(HostEvent::Ended(Err(refused @ AttemptFailure::Refused { .. })))) => {
                    return Err(MissingOutcome::Refused(refused.to_string()));
                }
                Ok(Some(HostEvent::Ended(ended))) => {
                    return ended.map_err(|e| MissingOutcome::Failed(e.to_string()));
                }
                // On NATS, the result of the delivery reports the exit as well.
                Ok(Some(HostEvent::Left(_))) if self.way.is_remote() => {}
                Ok(Some(HostEvent::Left(why))) => return Err(MissingOutcome::Failed(why)),
                Ok(None) => return Err(MissingOutcome::Failed("the host is gone".to_owned())),
            }
        }
    }

    /// Repeats a delivery until a program takes it, because a program on NATS needs time to join.
    async fn delivered_outcome(&mut self, request: &TrialRequest) -> Result<Outcome, String> {
        let until = Instant::now() + self.patience;

        loop {
            self.deliver(request);
            match self.outcome().await {
                Ok(outcome) => return Ok(outcome),
                Err(MissingOutcome::Nobody(_))
                    if self.way.is_remote() && Instant::now() < until =>
                {
                    self.harness.check_running()?;
                    sleep(ASK_AGAIN).await;
                }
                Err(
                    MissingOutcome::Nobody(why)
                    | MissingOutcome::Refused(why)
                    | MissingOutcome::Failed(why),
                ) => {
                    return Err(why);
                }
            }
        }
    }

    async fn answered(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        let outcome = self.delivered_outcome(request).await?;
        for payload in outcome.payloads {
            let text = String::from_utf8(payload).map_err(|e| format!("is not UTF-8: {e}"))?;
            judge(&text).map_err(|why| format!("{why}: {}", shortened(&text)))?;
        }
        Ok(())
    }

    async fn twice(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await.map_err(|why| format!("the first: {why}"))?;
        self.answered(request, judge).await.map_err(|why| format!("the second: {why}"))
    }

    async fn quiet_after(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        self.quiet(QUIET).await
    }

    /// Checks that the program handles a cancel. Waits for an answer first: the program must be
    /// running when it gets the request, so that the cancel comes after the hand-over.
    async fn cancelled(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        let (call, attempt) = self.deliver(request);
        self.harness.host().cancel(call, attempt);
        self.harness.host().flush();

        match self.outcome().await {
            // The program may report that it did not begin the call.
            Ok(_) | Err(MissingOutcome::Refused(_)) => {}
            Err(MissingOutcome::Nobody(why) | MissingOutcome::Failed(why)) => return Err(why),
        }

        self.answered(request, judge).await.map_err(|why| format!("the next request: {why}"))
    }

    /// Checks that the program exits when it should. Waits for an answer first, so that the program
    /// is running by then.
    async fn ended(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        let begun = Instant::now();
        self.harness.end().await;
        let grace = limits::EXIT_GRACE;
        if begun.elapsed() < grace {
            return Ok(());
        }

        Err(format!("still there after {grace:?}, and was killed"))
    }
}

fn tested() -> ListenerName {
    ListenerName::parse("listener-under-test").expect("the name is a good one")
}

fn delivery(request: &TrialRequest, attempt: Attempt, timeout: Duration) -> Delivery {
    let listener = tested();
    let thread = ThreadId::organism();
    let id = MessageId(Uuid::now_v7());
    let message = Message {
        id,
        kind: MessageKind::Call,
        from: ListenerName::core(),
        to: listener.clone(),
        thread: thread.clone(),
        seq: attempt.n.into(),
        cause: None,
        call: Some(CallId(id)),
        time: Time::now(),
        name: request.name.clone(),
        payload: Payload::new(request.payload.as_str()),
    };

    let messages = vec![Arc::new(message)];
    let call = CallId(id);
    let position = Position(1);
    let trace = None;
    Delivery { listener, call, thread, attempt, messages, fresh: 1, position, timeout, trace }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(limits::ID_ECHO_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
