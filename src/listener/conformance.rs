//! The conformance kit for listener authors. The kit tests a program against docs/PROTOCOL.md, over
//! the same process host and NATS host that an organism uses.

mod further_replica;
mod harness;
mod host_events;
mod pipes;
mod previews;
mod trial_delivery;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::bus::answer::ALREADY_ANSWERED;
use crate::bus::{Delivery, Outcome};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId, PayloadName};
use crate::limits;
use crate::shorten::shorten;
pub use harness::HarnessTransport;
use harness::TrialHarness;
use host_events::{HostEvent, RecordingSink};
use pipes::PipedProgram;
use trial_delivery::{delivery, delivery_of_call, new_call, tested};

/// Time for which a listener must send nothing after its start. The shorter time [`QUIET`] applies
/// after an answer.
const QUIET_AT_START: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_millis(300);
/// Interval at which the conformance kit repeats a delivery until a program on NATS accepts it.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A payload with which a listener is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialRequest {
    pub name: PayloadName,
    /// Text of the payload: one XML element.
    pub payload: String,
}

/// A function that checks one payload of an answer. Its `Err` describes the defect.
pub type PayloadJudge<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// The requests of a trial, and the rules for the answers.
pub struct ConformanceOptions<'a> {
    /// Whether the program must show previews of calls.
    pub previews: bool,
    /// The requests, in the order in which they are sent.
    pub requests: &'a [TrialRequest],
    pub patience: Duration,
    pub judge: PayloadJudge<'a>,
    /// Whether at least one answer must contain a payload.
    pub must_reply: bool,
}

/// The result of one check of the program under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecklistLine {
    /// The expected behaviour, such as `answers {urn:x}add`.
    pub claim: String,
    /// `Ok` if the program showed the expected behaviour. Otherwise, contains the observed
    /// deviation, and the section of docs/PROTOCOL.md that requires the expected behaviour.
    pub verdict: Result<(), String>,
}

/// Tests `command` with all requests. Calls `report` after every check. Stops early if no further
/// check can succeed. Returns true if at least one request was sent and all checks passed.
pub async fn run(
    command: Vec<String>,
    transport: HarnessTransport,
    options: ConformanceOptions<'_>,
    report: &mut dyn FnMut(&ChecklistLine),
) -> bool {
    let ConformanceOptions { previews, requests, patience, judge, must_reply } = options;
    let mut good = true;
    let mut done = |claim: String, verdict: Result<(), String>| {
        let is_good = verdict.is_ok();
        good &= is_good;
        report(&ChecklistLine { claim, verdict });
        is_good
    };

    let mut checks = transport.checks().to_vec();
    if previews {
        checks.extend(ConformanceCheck::OF_PREVIEWS);
    }
    let started = ListenerTrial::start(command, transport, patience).await;
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
    let mut has_replied = false;
    for (index, request) in requests.iter().enumerate() {
        let mut answered = trial.first_answer(request, judge).await;
        has_replied |= answered.as_ref().is_ok_and(|payloads| *payloads > 0);
        let is_last = index + 1 == requests.len();
        if is_last && must_reply && !has_replied {
            answered = answered.and(Err(ONLY_ACKNOWLEDGES.to_owned()));
        }

        let name = &request.name;
        let claim = match answered {
            Ok(0) => format!("acknowledges {name}, without a payload (4)"),
            _ => format!("answers {name} (4)"),
        };
        if done(claim, answered.map(drop)) {
            answerable = answerable.or(Some(request));
        } else {
            trial.again().await;
        }
    }

    // The remaining checks need a request that the program answers.
    let Some(request) = answerable else { return false };
    for (index, check) in checks.iter().enumerate() {
        if index > 0 && !trial.is_on_pipes(*check) {
            trial.again().await;
        }
        let verdict = trial.check(*check, request, judge).await;
        // An answer that was refused makes the check fail in which it arrived.
        let verdict = verdict.and_then(|()| trial.check_refused_answers());
        done(check.claim().to_owned(), verdict);
    }

    good
}

/// Deviation of a program whose answers contain no payload.
const ONLY_ACKNOWLEDGES: &str = "it only acknowledges: no answer contains one of the replies that \
                                 it should have; does it find what it was sent? (4)";

/// A check that requires a request to which the program under test has an answer.
#[derive(Debug, Clone, Copy)]
enum ConformanceCheck {
    TwoInARow,
    QuietAfterAnswer,
    SharedDeliveries,
    TwoPieces,
    PeerResult,
    Memory,
    NamedAttempt,
    Cancel,
    InputClosed,
    Signalled,
    Preview,
    StalePreview,
    ApprovedPreview,
}

impl ConformanceCheck {
    const OF_PREVIEWS: [Self; 3] = [Self::Preview, Self::StalePreview, Self::ApprovedPreview];

    const OF_PROCESSES: [Self; 8] = [
        Self::TwoInARow,
        Self::QuietAfterAnswer,
        Self::TwoPieces,
        Self::PeerResult,
        Self::Memory,
        Self::NamedAttempt,
        Self::Cancel,
        Self::InputClosed,
    ];

    /// The checks of a program on NATS. They do not include [`Self::TwoPieces`], which sends a
    /// request in two pieces, because the program's NATS client reads only whole messages.
    const ON_NATS: [Self; 8] = [
        Self::TwoInARow,
        Self::QuietAfterAnswer,
        Self::SharedDeliveries,
        Self::PeerResult,
        Self::Memory,
        Self::NamedAttempt,
        Self::Cancel,
        Self::Signalled,
    ];

    fn claim(self) -> &'static str {
        match self {
            Self::TwoInARow => "answers two requests in a row (2)",
            Self::QuietAfterAnswer => "is quiet after its answer (2)",
            Self::SharedDeliveries => "shares its deliveries with other replicas of its name (12)",
            Self::TwoPieces => "reads a large request that comes in two pieces (2)",
            Self::PeerResult => "answers after the result of a peer (3)",
            Self::Memory => "has the messages of a call, if it says that it remembers (3)",
            Self::NamedAttempt => "names the attempt that it answers, if it names any (4)",
            Self::Cancel => "goes on after a cancel (6)",
            Self::InputClosed => "ends when its input is closed (8)",
            Self::Signalled => "ends on SIGTERM (12)",
            Self::Preview => "shows what a call would do, and the same again (3)",
            Self::StalePreview => "does nothing where another preview was approved (3)",
            Self::ApprovedPreview => "carries out a call whose preview was approved (3)",
        }
    }
}

/// A program under test. The host does not restart the program after an exit, so that an unexpected
/// exit makes the check fail.
struct ListenerTrial {
    command: Vec<String>,
    transport: HarnessTransport,
    patience: Duration,
    harness: TrialHarness,
    events: mpsc::UnboundedReceiver<HostEvent>,
    attempts: u32,
    /// The attempt that was delivered most recently, as text. The text has the form in which the
    /// host names the attempt of a stray answer.
    delivered: Option<String>,
    /// The attempt that the program answered most recently, as text in the same form as
    /// `delivered`.
    answered: Option<String>,
}

/// The reason why a delivery has no outcome.
enum MissingOutcome {
    /// No program accepted the delivery. The text states the reason.
    Nobody(String),
    /// The program answered that it does not support the payload of the delivery.
    Refused(String),
    Failed(String),
}

impl MissingOutcome {
    fn reason(self) -> String {
        match self {
            Self::Nobody(why) | Self::Refused(why) | Self::Failed(why) => why,
        }
    }
}

impl ListenerTrial {
    async fn start(
        command: Vec<String>,
        transport: HarnessTransport,
        patience: Duration,
    ) -> Result<Self, String> {
        let (sender, events) = mpsc::unbounded_channel();
        let harness =
            TrialHarness::set(&command, &transport, Arc::new(RecordingSink(sender))).await?;
        let attempts = 0;
        let delivered = None;
        let answered = None;
        Ok(Self { command, transport, patience, harness, events, attempts, delivered, answered })
    }

    /// Kills the program under test, and starts it again when it has ended. Two instances never run
    /// at the same time, because the program may hold a lock or a port.
    async fn again(&mut self) {
        self.harness.kill().await;
        let (sender, events) = mpsc::unbounded_channel();
        // If the program cannot be started again, the next check reports the failure.
        if let Ok(harness) =
            TrialHarness::set(&self.command, &self.transport, Arc::new(RecordingSink(sender))).await
        {
            self.harness = harness;
            self.events = events;
        }
    }

    async fn quiet(&mut self, length: Duration) -> Result<(), String> {
        match timeout(length, self.events.recv()).await {
            Err(_) => {
                self.harness.check_refused_answers()?;
                self.harness.check_running()
            }
            Ok(Some(HostEvent::Left(why))) => Err(why),
            Ok(Some(HostEvent::Stray(named))) => Err(self.stray_description(&named)),
            Ok(Some(HostEvent::Heartbeat)) => {
                Err("it wrote a heartbeat without a delivery".to_owned())
            }
            Ok(Some(HostEvent::Ended(Err(failure)))) => Err(failure.to_string()),
            Ok(Some(HostEvent::Ended(Ok(_)))) => Err("it answered without a delivery".to_owned()),
            Ok(None) => Err("the host is gone".to_owned()),
        }
    }

    /// Returns an error if the host has refused an answer of the program. Removes the events that
    /// have arrived, so the program must be restarted before the next delivery.
    fn check_refused_answers(&mut self) -> Result<(), String> {
        while let Ok(event) = self.events.try_recv() {
            if let HostEvent::Stray(named) = event {
                return Err(self.stray_description(&named));
            }
        }
        self.harness.check_refused_answers()
    }

    /// Describes an answer that names the attempt `named`, which is not the attempt in progress.
    fn stray_description(&self, named: &str) -> String {
        // Only a host adds the suffix.
        let attempt = named.strip_suffix(ALREADY_ANSWERED).unwrap_or(named);
        if self.answered.as_deref() == Some(attempt) {
            format!("it answers {attempt} again, which it has answered already (4)")
        } else {
            format!("it answers {named}, which is not the delivery that it has at hand (4)")
        }
    }

    /// Hands a delivery over to the program under test.
    fn hand_over(&mut self, delivery: Delivery) {
        let Delivery { call, attempt, .. } = &delivery;
        self.delivered = Some(format!("attempt {attempt} at call {call}"));
        self.harness.host().deliver(delivery);
        self.harness.host().flush();
    }

    fn deliver(&mut self, request: &TrialRequest) -> (CallId, Attempt) {
        let attempt = self.next_attempt();
        let delivery = delivery(request, attempt, self.patience);
        let call = delivery.call;
        self.hand_over(delivery);
        (call, attempt)
    }

    /// Waits for the outcome of the delivery in progress. Each heartbeat extends the wait.
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
                    return Err(MissingOutcome::Failed(self.stray_description(&named)));
                }
                Ok(Some(HostEvent::Ended(Err(AttemptFailure::Unreachable { detail })))) => {
                    return Err(MissingOutcome::Nobody(detail));
                }
                Ok(Some(HostEvent::Ended(Err(refused @ AttemptFailure::Refused { .. })))) => {
                    return Err(MissingOutcome::Refused(refused.to_string()));
                }
                Ok(Some(HostEvent::Ended(ended))) => {
                    self.answered = self.delivered.take();
                    return ended.map_err(|e| MissingOutcome::Failed(e.to_string()));
                }
                // On NATS, the result of the delivery reports the exit as well.
                Ok(Some(HostEvent::Left(_))) if self.transport.is_remote() => {}
                Ok(Some(HostEvent::Left(why))) => return Err(MissingOutcome::Failed(why)),
                Ok(None) => return Err(MissingOutcome::Failed("the host is gone".to_owned())),
            }
        }
    }

    /// Delivers a request and returns its outcome. A program on NATS needs time to join, so the
    /// delivery is repeated until the program accepts it.
    async fn delivered_outcome(&mut self, request: &TrialRequest) -> Result<Outcome, String> {
        let until = Instant::now() + self.patience;

        loop {
            self.deliver(request);
            match self.outcome().await {
                Ok(outcome) => return Ok(outcome),
                Err(MissingOutcome::Nobody(_))
                    if self.transport.is_remote() && Instant::now() < until =>
                {
                    self.harness.check_running()?;
                    sleep(ASK_AGAIN).await;
                }
                Err(missing) => return Err(missing.reason()),
            }
        }
    }

    async fn answered(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        let outcome = self.delivered_outcome(request).await?;
        judge_payloads(outcome.payloads, judge)
    }

    /// Checks the answer of the program to `request`. If the program is a child process, first
    /// sends the request to another run of the program, over pipes alone and without a host. If
    /// this run neither answers in time nor ends, the check fails and reports the text that this
    /// run wrote. In every other case, the request goes through the host. Returns the number of
    /// payloads in the answer.
    async fn first_answer(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<usize, String> {
        if !self.transport.is_remote() {
            let mut piped = self.start_on_pipes(judge).await?;
            let silence = piped.silence(request).await;
            piped.kill().await;
            if let Some(silence) = silence {
                return Err(silence);
            }
            self.again().await;
        }

        let payloads = self.delivered_outcome(request).await?.payloads;
        let count = payloads.len();
        judge_payloads(payloads, judge)?;
        Ok(count)
    }

    /// Kills the program that the host runs, and starts the program again over pipes alone.
    async fn start_on_pipes<'j>(
        &mut self,
        judge: PayloadJudge<'j>,
    ) -> Result<PipedProgram<'j>, String> {
        self.harness.kill().await;
        PipedProgram::start(&self.command, self.patience, judge).await
    }

    /// Whether a check runs the program over pipes alone, without a host.
    fn is_on_pipes(&self, check: ConformanceCheck) -> bool {
        match check {
            ConformanceCheck::TwoPieces => true,
            ConformanceCheck::Memory | ConformanceCheck::Cancel => !self.transport.is_remote(),
            _ => false,
        }
    }

    /// Runs a check over pipes alone, without a host.
    async fn check_on_pipes(
        &mut self,
        check: ConformanceCheck,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        let mut piped = self.start_on_pipes(judge).await?;
        let verdict = match check {
            ConformanceCheck::TwoPieces => piped.pieces(request).await,
            ConformanceCheck::Memory => piped.remembers(request).await,
            _ => piped.cancelled(request).await,
        };

        piped.kill().await;
        verdict
    }

    async fn check(
        &mut self,
        check: ConformanceCheck,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        match check {
            ConformanceCheck::TwoInARow => self.twice(request, judge).await,
            ConformanceCheck::QuietAfterAnswer => self.quiet_after(request, judge).await,
            ConformanceCheck::SharedDeliveries => self.shared(request, judge).await,
            ConformanceCheck::TwoPieces => self.check_on_pipes(check, request, judge).await,
            ConformanceCheck::Memory | ConformanceCheck::Cancel if self.is_on_pipes(check) => {
                self.check_on_pipes(check, request, judge).await
            }
            ConformanceCheck::PeerResult => self.after_result(request, judge).await,
            ConformanceCheck::Memory => self.remembered(request, judge).await,
            ConformanceCheck::NamedAttempt => self.named(request, judge).await,
            ConformanceCheck::Cancel => self.cancelled(request, judge).await,
            ConformanceCheck::InputClosed | ConformanceCheck::Signalled => {
                self.ended(request, judge).await
            }
            ConformanceCheck::Preview => self.shown(request).await,
            ConformanceCheck::StalePreview => self.refused_as_stale(request).await,
            ConformanceCheck::ApprovedPreview => self.carried_out(request, judge).await,
        }
    }

    /// Checks how the program answers a delivery with two messages: the request of a call, and the
    /// result of a call to a peer. The program gets this result as if it had made the call to the
    /// peer.
    async fn after_result(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        let call = new_call();
        self.of_call(call, request, 1, judge).await
    }

    /// Checks the answer to the second delivery of a call. The host omits the messages of the first
    /// delivery if the program claims to remember them.
    async fn remembered(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        let call = new_call();
        self.of_call(call, request, 0, judge).await?;
        self.of_call(call, request, 1, judge).await
    }

    /// Delivers the same call twice, and checks that the program answers both deliveries of the
    /// call. A pump delivers a call again if the first answer was lost.
    async fn named(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        let call = new_call();
        self.of_call(call, request, 0, judge).await.map_err(|why| format!("the first: {why}"))?;
        self.of_call(call, request, 0, judge).await.map_err(|why| format!("the second: {why}"))
    }

    /// Delivers `call` as a new attempt and checks the answer. The delivery contains the request,
    /// and the results of other calls, as if the listener had made these calls. `results` is the
    /// number of these results.
    async fn of_call(
        &mut self,
        call: CallId,
        request: &TrialRequest,
        results: u64,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        let attempt = self.next_attempt();
        let delivery = delivery_of_call(call, request, attempt, self.patience, results);
        self.hand_over(delivery);
        let outcome = self.outcome().await.map_err(MissingOutcome::reason)?;
        judge_payloads(outcome.payloads, judge)
    }

    fn next_attempt(&mut self) -> Attempt {
        self.attempts += 1;
        Attempt { epoch: 1, n: self.attempts }
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

    /// Checks that a program on NATS handles a cancel message. First waits for an answer, which
    /// shows that the program runs. Then pauses the program, sends a request and its cancel
    /// message, and continues the program once the NATS server has both. So the program cannot
    /// answer the request before the cancel message is sent.
    async fn cancelled(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        self.harness.pause();
        let (call, attempt) = self.deliver(request);
        self.harness.host().cancel(call, attempt);
        self.harness.host().flush();
        self.harness.resume().await;

        match self.outcome().await {
            // The program may report that it did not begin the call.
            Ok(_) | Err(MissingOutcome::Refused(_)) => {}
            Err(MissingOutcome::Nobody(why) | MissingOutcome::Failed(why)) => return Err(why),
        }

        self.answered(request, judge).await.map_err(|why| format!("the next request: {why}"))
    }

    /// Checks that the program exits within the time limit when the host ends it. First waits for
    /// an answer, which shows that the program runs.
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

/// Checks each payload of an answer with `judge`.
fn judge_payloads(payloads: Vec<Vec<u8>>, judge: PayloadJudge<'_>) -> Result<(), String> {
    for payload in payloads {
        let text = String::from_utf8(payload).map_err(|e| format!("is not UTF-8: {e}"))?;
        judge(&text)
            .map_err(|why| format!("{why}: {}", shorten(&text, limits::ID_ECHO_CHARS_MAX)))?;
    }

    Ok(())
}
