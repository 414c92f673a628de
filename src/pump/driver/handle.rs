//! Handle of a running pump. It is cheap to clone and usable from any OS thread.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::PumpCommand;
use super::busy_counter::BusyCounter;
use super::call_waits::WaitSender;
use super::completions::{CompletionSender, Completions};
use super::pump_metrics::{PumpMetrics, WriteObstacle};
use super::shared_gate::SharedGate;
use super::spans;
use super::submission_limit::{InboxBound, InboxPermit, SubmissionLimiter};
use crate::bus::Delivery;
use crate::bus::live::LiveChannel;
use crate::contract::Contracts;
use crate::envelope::{AttemptFailure, Message, NotReserved, Refusal, RefusalRule, Reservation};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, Position, ThreadId, TimerId};
use crate::limits;
use crate::pump::core::{
    CallDecision, CallRecollection, Cancellation, Event, ForkOrder, ForkRuling, GatedAnswer,
    OperatorRuling, PauseChange, PauseRuling, Receipt, RetryOrder, RetryRuling, Submission, Target,
};
use crate::pump::gate::payload_digest;
use crate::system::AlertReport;
use crate::thread::{
    Closing, Decision, DecisionOrigin, ForkAction, InheritedThread, OperatorAction, PauseAction,
    ReopenedCalls, RetryAction, Verdict,
};
use crate::trace::{SpanId, SpanTracer, TraceParent};

/// Completion of a client's call: how the call ended, and its result.
#[derive(Debug, Clone)]
pub struct CallCompletion {
    pub call: CallId,
    pub how: Closing,
    pub messages: Vec<Arc<Message>>,
}

/// The pump has stopped, on request or because of a fatal error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pump has stopped")]
pub struct PumpStopped;

/// Reason why the pump did not answer a query, or did not accept a new config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PumpUnavailable {
    #[error(transparent)]
    Stopped(#[from] PumpStopped),
    /// The pump waits until the journal accepts records again.
    #[error("{0}")]
    Waits(WriteObstacle),
}

/// A request of an operator or of the alert monitor, with a channel for the pump's ruling.
pub(in crate::pump) struct OperatorRequest {
    pub event: Event,
    /// Identifies the caller that waits for the ruling. The event contains the same ticket.
    pub ticket: Uuid,
    pub ruling: oneshot::Sender<OperatorRuling>,
    /// Permit of the inbox; `None` for a request that does not count towards the bound of the
    /// inbox.
    pub permit: Option<InboxPermit>,
}

impl OperatorRequest {
    /// Whether a person sent the request. The pump may refuse such a request, and does not carry it
    /// out if its sender has given up.
    fn is_of_person(&self) -> bool {
        // Actions on the organism itself, and alerts, must go on record.
        matches!(
            &self.event,
            Event::Cancel(_)
                | Event::Decide(_)
                | Event::Pause(_)
                | Event::Fork(_)
                | Event::RetryMessage(_)
        )
    }

    /// Whether the sender has given up, so that the request must not be carried out any more.
    pub fn is_withdrawn(&self) -> bool {
        self.is_of_person() && self.ruling.is_closed()
    }

    /// Decides on a request that arrives while the journal accepts no records. If a person sent the
    /// request, refuses it and returns `None`. Otherwise, returns the request, which must wait.
    pub fn refuse(self, obstacle: WriteObstacle) -> Option<Self> {
        let refusal = || refusal_while_waiting(obstacle);
        let ruling = match &self.event {
            Event::Cancel(_) | Event::Decide(_) => OperatorRuling::Plain(Err(refusal())),
            Event::Pause(_) => OperatorRuling::Pause(PauseRuling::Refused(refusal())),
            Event::Fork(_) => OperatorRuling::Fork(ForkRuling::Refused(refusal())),
            Event::RetryMessage(_) => OperatorRuling::Retry(RetryRuling::Refused(refusal())),
            _ => return Some(self),
        };

        // The send fails if the sender has left, and then no answer is needed.
        self.ruling.send(ruling).ok();
        None
    }
}

/// Returns the refusal that an operator's request gets while the journal accepts no records.
fn refusal_while_waiting(obstacle: WriteObstacle) -> Refusal {
    let message = format!("{obstacle}, so nothing was done; try again later");
    Refusal::new(obstacle.rule(), message, b"")
}

/// An agent's request to reserve the cost of a model call, with a channel for the reply. The reply
/// states whether the model call is permitted.
pub(in crate::pump) struct Reserve {
    pub call: CallId,
    pub attempt: Attempt,
    pub reservation: Reservation,
    pub answer: oneshot::Sender<Result<(), NotReserved>>,
}

/// A submission, and the channels to the callers that wait for its receipt and results.
pub(in crate::pump) struct Submit {
    pub submission: Submission,
    /// Generation of the gate that checked the payload. The generation is the number of reloads
    /// between the start of the pump and the check.
    pub generation: u64,
    pub receipt: oneshot::Sender<Receipt>,
    /// Channel for the completions of all calls of the submission; `None` if no caller waits for
    /// them.
    pub completions: Option<CompletionSender>,
    /// Channel that reports which calls in the submission's tree wait, and for what reason. `None`
    /// if the client gets no such reports.
    pub waits: Option<WaitSender>,
    pub permit: InboxPermit,
}

impl Submit {
    /// Refuses the submission because the journal cannot accept records at present. Sends the
    /// refusal to the client, and returns its rule.
    pub fn refuse(self, obstacle: WriteObstacle) -> RefusalRule {
        let text = match &self.submission.payload {
            Ok(checked) => checked.payload().as_str().as_bytes(),
            Err(refusal) => refusal.head.as_bytes(),
        };

        let rule = obstacle.rule();
        let when = match obstacle {
            WriteObstacle::Disk => "when the disk has space",
            WriteObstacle::Server | WriteObstacle::Denied => "later",
        };
        let message = format!("{obstacle}; send the payload again {when}");

        let refusal = Refusal::new(rule, message, text);
        let retry_after = Some(super::group_commit::ROOM_RETRY);
        // The send fails if the client has left, and then no answer is needed.
        self.receipt.send(Receipt::Refused { refusal, retry_after }).ok();
        rule
    }
}

/// Returns the refusal of a submission whose client key is too long. The journal does not record
/// the key.
fn long_key(text: &[u8]) -> Refusal {
    let most = limits::CLIENT_KEY_BYTES_MAX;
    let message = format!("the key has more than {most} bytes; use a shorter one");
    Refusal::new(RefusalRule::TooLarge, message, text)
}

#[derive(Clone)]
pub struct Handle {
    outbox: Sender<PumpCommand>,
    gates: SharedGate,
    limiter: SubmissionLimiter,
    inbox: InboxBound,
    busy: BusyCounter,
    recorded: watch::Receiver<Position>,
    tracer: SpanTracer,
    live: Arc<LiveChannel>,
    metrics: Arc<PumpMetrics>,
}

/// Returns the code of the rule under which a submission was refused, for the submission's span.
/// Returns `None` if the submission was not refused.
fn refused(receipt: &Receipt) -> Option<&'static str> {
    match receipt {
        Receipt::Accepted { .. } => None,
        Receipt::Refused { refusal, .. } => Some(refusal.rule.as_str()),
        Receipt::NoThread { .. } => Some(RefusalRule::UnknownThread.as_str()),
    }
}

const INBOX_FULL: &str = "too many requests wait for the pump; send it again in a moment";

const TOO_MANY_NEW_THREADS: &str =
    "too many of your submissions into new threads wait for the pump; send it again in a moment";

fn busy(text: &[u8], message: &str) -> Refusal {
    Refusal::new(RefusalRule::Busy, message, text)
}

impl Handle {
    pub(super) fn new(
        outbox: Sender<PumpCommand>,
        gates: SharedGate,
        busy: BusyCounter,
        recorded: watch::Receiver<Position>,
        metrics: Arc<PumpMetrics>,
    ) -> Self {
        let limiter = SubmissionLimiter::default();
        let inbox = InboxBound::default();
        let tracer = SpanTracer::default();
        let live = Arc::default();
        Self { outbox, gates, limiter, inbox, busy, recorded, tracer, live, metrics }
    }

    /// Returns the obstacle that keeps the pump from writing records at present; `None` if there is
    /// none.
    pub fn waits_for(&self) -> Option<WriteObstacle> {
        self.metrics.waits_for()
    }

    /// Returns the live channel of this pump, which shows what model calls do at present.
    pub fn live(&self) -> &Arc<LiveChannel> {
        &self.live
    }

    /// Returns a channel with the position of the last durable record. The channel closes when the
    /// pump has ended.
    pub fn recorded(&self) -> watch::Receiver<Position> {
        self.recorded.clone()
    }

    /// Counts one `busy` refusal that an entry point has sent to `client`.
    pub fn count_busy(&self, client: &ListenerName) {
        self.busy.count(client, Instant::now());
    }

    /// Counts a submission as refused, and returns the receipt with the refusal `busy`. Does not
    /// send the submission to the pump.
    fn refuse_busy(&self, client: &ListenerName, text: &[u8], message: &str) -> Receipt {
        self.count_busy(client);
        Receipt::Refused { refusal: busy(text, message), retry_after: Some(limits::BUSY_RETRY) }
    }

    /// Waits for a permit of the inbox. Used for requests that must not be refused as `busy`.
    pub(super) async fn inbox_permit(&self) -> Result<InboxPermit, PumpStopped> {
        self.inbox.permit().await.ok_or(PumpStopped)
    }

    pub(super) fn trace(&mut self, tracer: SpanTracer) {
        self.tracer = tracer;
    }

    pub(super) fn outbox(&self) -> Sender<PumpCommand> {
        self.outbox.clone()
    }

    /// Checks `text` at the gate on the OS thread of the caller, and submits it. Returns the
    /// receipt, and the completions of the calls that the submission opens.
    ///
    /// A client may have only a limited number of unprocessed submissions. At this limit, a
    /// submission to an existing thread waits, and a submission to a new thread is refused as
    /// `busy`.
    pub async fn submit(
        &self,
        client: &ListenerName,
        target: Target,
        key: Option<String>,
        text: &[u8],
    ) -> Result<(Receipt, Completions), PumpStopped> {
        // Boxed, because the task of the caller waits for the completions much longer than for the
        // receipt, and would keep the room for this future.
        Box::pin(self.submit_watched(None, client, target, key, text, None)).await
    }

    /// Submits a payload like [`Handle::submit`]. `trace` is the client's trace context. If `waits`
    /// is given, this channel gets a report for each waiting call in the submission's tree. The
    /// report contains the reason for the wait.
    pub async fn submit_watched(
        &self,
        trace: Option<TraceParent>,
        client: &ListenerName,
        target: Target,
        key: Option<String>,
        text: &[u8],
        waits: Option<WaitSender>,
    ) -> Result<(Receipt, Completions), PumpStopped> {
        let (gate, generation) = self.gates.current();
        let (key, payload) =
            match key.as_ref().filter(|key| key.len() > limits::CLIENT_KEY_BYTES_MAX) {
                Some(_) => (None, Err(long_key(text))),
                None => (key, gate.check(client, text)),
            };
        let refused_digest = match (&key, &payload) {
            (Some(_), Err(_)) => payload_digest(text),
            _ => None,
        };

        let turn = match &target {
            Target::Thread { id } => Some(self.limiter.turn(client, id).await),
            Target::New { .. } => self.limiter.try_new_thread(client),
        };

        let Some(turn) = turn else {
            let receipt = self.refuse_busy(client, text, TOO_MANY_NEW_THREADS);
            return Ok((receipt, Completions::none()));
        };

        let Some(permit) = self.inbox.try_permit() else {
            let receipt = self.refuse_busy(client, text, INBOX_FULL);
            return Ok((receipt, Completions::none()));
        };

        let id = MessageId(Uuid::now_v7());
        let begun = self.begin_trace(id);
        let by = client.clone();
        let submission =
            Submission { id, client: by, target, key, payload, refused_digest, trace, begun };
        let (receipt, answer) = oneshot::channel();
        let (completions, completed) = Completions::channel();
        let completions = Some(completions);
        let submit =
            Box::new(Submit { submission, generation, receipt, completions, waits, permit });
        self.outbox.send(PumpCommand::Submit(submit)).map_err(|_| PumpStopped)?;
        let receipt = answer.await.map_err(|_| PumpStopped)?;
        drop(turn);
        if let Some(error) = refused(&receipt) {
            spans::export_refusal(&self.tracer, (trace, begun), client, CallId(id), error);
        }

        let calls: &[CallId] = match &receipt {
            Receipt::Accepted { calls, again: false, .. } => calls,
            _ => &[],
        };

        let completions = Completions::of(calls, completed);
        Ok((receipt, completions))
    }

    /// Returns a new trace for a request, or `None` if tracing is off. The trace is used only if
    /// the request's thread belongs to no trace yet.
    pub(super) fn begin_trace(&self, request: MessageId) -> Option<TraceParent> {
        self.tracer.begin(request.0, SpanId::of_call(CallId(request)))
    }

    /// Records that an entry point refused a payload of `sender`.
    pub async fn record_refusal(
        &self,
        sender: &ListenerName,
        refusal: Refusal,
    ) -> Result<(), PumpStopped> {
        let submission = Submission {
            id: MessageId(Uuid::now_v7()),
            client: sender.clone(),
            target: Target::New { suggested: None },
            key: None,
            payload: Err(refusal),
            refused_digest: None,
            trace: None,
            begun: None,
        };

        let (receipt, recorded) = oneshot::channel();
        let permit = self.inbox_permit().await?;
        let completions = None;
        let waits = None;
        // Any generation will do, because a refusal is not checked again.
        let generation = 0;
        let submit =
            Box::new(Submit { submission, generation, receipt, completions, waits, permit });
        self.outbox.send(PumpCommand::Submit(submit)).map_err(|_| PumpStopped)?;
        recorded.await.map(drop).map_err(|_| PumpStopped)
    }

    /// Sends a request to the pump, and returns the channel on which the pump's ruling arrives.
    /// `event` builds the event of the request. Its argument is the ticket, which identifies this
    /// request.
    fn request(
        &self,
        permit: Option<InboxPermit>,
        event: impl FnOnce(Uuid) -> Event,
    ) -> Result<oneshot::Receiver<OperatorRuling>, PumpStopped> {
        let (ruling, ruled) = oneshot::channel();
        let ticket = Uuid::now_v7();
        let event = event(ticket);
        let request = Box::new(OperatorRequest { event, ticket, ruling, permit });
        self.outbox.send(PumpCommand::Operate(request)).map_err(|_| PumpStopped)?;
        Ok(ruled)
    }

    /// Sends a request to the pump, and waits for the pump's ruling on it. Takes the same arguments
    /// as `request`.
    async fn ruling(
        &self,
        permit: Option<InboxPermit>,
        event: impl FnOnce(Uuid) -> Event,
    ) -> Result<OperatorRuling, PumpStopped> {
        let ruled = self.request(permit, event)?;
        ruled.await.map_err(|_| PumpStopped)
    }

    /// Cancels all open calls in a thread and its subthreads. Returns once the cancellation is
    /// durable. If the cancellation is refused, returns the reason.
    pub async fn cancel(
        &self,
        thread: ThreadId,
        reason: String,
        origin: Option<DecisionOrigin>,
    ) -> Result<Result<(), Refusal>, PumpStopped> {
        let Some(permit) = self.inbox.try_permit() else {
            return Ok(Err(busy(reason.as_bytes(), INBOX_FULL)));
        };

        let event = |ticket| Event::Cancel(Cancellation { ticket, thread, reason, origin });
        let ruling = self.ruling(Some(permit), event).await?;
        let OperatorRuling::Plain(ruling) = ruling else { return Err(PumpStopped) };
        Ok(ruling)
    }

    /// Carries out a pause or a resume. Returns once the action is durable. If the inbox is full,
    /// waits instead of refusing the request, because an operator may pause just to stop a flood of
    /// submissions.
    pub async fn pause(&self, action: PauseAction) -> Result<PauseRuling, PumpStopped> {
        let permit = self.inbox_permit().await?;
        let event = |ticket| Event::Pause(PauseChange { ticket, action });
        let ruling = self.ruling(Some(permit), event).await?;
        let OperatorRuling::Pause(ruling) = ruling else { return Err(PumpStopped) };
        Ok(ruling)
    }

    /// Forks a thread. Checks the payload of the first request at the gate. Returns once the fork
    /// is durable.
    pub async fn fork(
        &self,
        action: ForkAction,
        (threads, work): (Vec<InheritedThread>, ReopenedCalls),
        payload: Option<&[u8]>,
    ) -> Result<ForkRuling, PumpStopped> {
        let Some(permit) = self.inbox.try_permit() else {
            let text = action.source.message.to_string();
            return Ok(ForkRuling::Refused(busy(text.as_bytes(), INBOX_FULL)));
        };

        let (gate, _) = self.gates.current();
        let mut action = action;
        let payload = match (&mut action.request, payload) {
            (Some(request), Some(text)) => {
                let checked = gate.check(&request.sender, text);
                request.verdict = Verdict::from(&checked);
                Some(checked)
            }
            _ => None,
        };

        let event =
            |ticket| Event::Fork(Box::new(ForkOrder { ticket, action, threads, work, payload }));
        let ruling = self.ruling(Some(permit), event).await?;
        let OperatorRuling::Fork(ruling) = ruling else { return Err(PumpStopped) };
        Ok(ruling)
    }

    /// Returns the contracts of the config in force.
    pub fn contracts(&self) -> Arc<Contracts> {
        let (gate, _) = self.gates.current();
        Arc::clone(&gate.contracts)
    }

    /// Retries a message. Checks the message's payload at the gate again, as a payload of the
    /// original sender. Returns once the retry is durable.
    pub async fn retry(
        &self,
        mut action: RetryAction,
        payload: &[u8],
    ) -> Result<RetryRuling, PumpStopped> {
        let Some(permit) = self.inbox.try_permit() else {
            return Ok(RetryRuling::Refused(busy(payload, INBOX_FULL)));
        };

        let (gate, _) = self.gates.current();
        let payload = gate.check(&action.sender, payload);
        action.verdict = Verdict::from(&payload);

        let event = |ticket| Event::RetryMessage(Box::new(RetryOrder { ticket, action, payload }));
        let ruling = self.ruling(Some(permit), event).await?;
        let OperatorRuling::Retry(ruling) = ruling else { return Err(PumpStopped) };
        Ok(ruling)
    }

    /// Reports to the pump the result that the source of a fork recorded for a call. Reports `None`
    /// if the source recorded no result. Also reports `None` if the gate in force refuses a reply
    /// in the result, for example after a change of the config.
    pub fn recalled(
        &self,
        call: CallId,
        result: Option<CallRecollection>,
    ) -> Result<(), PumpStopped> {
        let (gate, _) = self.gates.current();
        let result = result.filter(|found| found.passes(&gate));
        self.event(Event::Searched { call, result })
    }

    /// Reports to the pump the end of a search in the source of a fork for the firing of a timer.
    /// `timer` is the timer of the fork. `fired` is the position at which the corresponding timer
    /// fired in the source, or `None` if no such timer fired.
    pub fn timer_searched(
        &self,
        (timer, call): (TimerId, CallId),
        fired: Option<Position>,
    ) -> Result<(), PumpStopped> {
        self.event(Event::TimerSearched { timer, call, fired })
    }

    /// Submits a decision on a held call, and returns the pump's ruling. An answer in the decision
    /// must come from [`Handle::gated`].
    pub async fn decide(
        &self,
        message: MessageId,
        decision: Decision<GatedAnswer>,
        origin: Option<DecisionOrigin>,
    ) -> Result<Result<(), Refusal>, PumpStopped> {
        let Some(permit) = self.inbox.try_permit() else {
            return Ok(Err(busy(message.to_string().as_bytes(), INBOX_FULL)));
        };

        let event =
            |ticket| Event::Decide(Box::new(CallDecision { ticket, message, decision, origin }));
        let ruling = self.ruling(Some(permit), event).await?;
        let OperatorRuling::Plain(ruling) = ruling else { return Err(PumpStopped) };
        Ok(ruling)
    }

    /// Checks an answer at the gate, with `listener` as its sender. Returns the answer with the
    /// result of the check.
    pub fn gated(&self, listener: ListenerName, text: &[u8]) -> GatedAnswer {
        let (gate, _) = self.gates.current();
        let payload = gate.check(&listener, text);
        GatedAnswer { listener, payload }
    }

    /// Records an operator's action on the organism itself. Returns once the record is durable.
    pub async fn record_action(&self, action: OperatorAction) -> Result<(), PumpStopped> {
        self.ruling(None, |ticket| Event::Operator { ticket, action }).await.map(drop)
    }

    /// Records a report about an alert. The returned future waits until the record is durable.
    pub fn record_alert(
        &self,
        report: AlertReport,
    ) -> impl Future<Output = Result<(), PumpStopped>> + Send + use<> {
        let sent = self.request(None, |ticket| Event::Alert { ticket, report });
        async move { sent?.await.map(drop).map_err(|_| PumpStopped) }
    }

    /// Stops accepting submissions, waits for the end of the deliveries in flight, and closes the
    /// journal.
    pub async fn drain(&self, reason: &str) -> Result<(), PumpStopped> {
        self.drain_for(reason, false).await
    }

    /// Stops the pump as [`Self::drain`] does. Another process then continues its work at once.
    pub async fn hand_over(&self, reason: &str) -> Result<(), PumpStopped> {
        self.drain_for(reason, true).await
    }

    async fn drain_for(&self, reason: &str, is_handover: bool) -> Result<(), PumpStopped> {
        let (done, drained) = oneshot::channel();
        let command = PumpCommand::Drain { reason: reason.to_owned(), is_handover, done };
        self.outbox.send(command).map_err(|_| PumpStopped)?;
        drained.await.map_err(|_| PumpStopped)
    }

    pub fn stop(&self) {
        // The send fails if the pump has already stopped, which is what the caller wants.
        self.outbox.send(PumpCommand::Stop).ok();
    }

    fn event(&self, event: Event) -> Result<(), PumpStopped> {
        self.outbox.send(PumpCommand::Event(event)).map_err(|_| PumpStopped)
    }

    /// Reports that the organism has no host for the listener of this delivery.
    pub(super) fn unhosted(&self, delivery: &Delivery) {
        let detail = "nothing hosts this listener".to_owned();
        let call = delivery.call;
        let attempt = delivery.attempt;
        // Sending to the own inbox cannot fail here: only the running pump calls this.
        let listener = delivery.listener.clone();
        self.event(Event::NotTaken { listener, call, attempt, detail }).ok();
    }

    /// Fails the attempt of `delivery`. The pump does not hand this delivery over to a host,
    /// because the payload of its message `redacted` is redacted. The attempt is not repeated.
    pub(super) fn withheld(&self, delivery: &Delivery, redacted: MessageId) {
        let failure = AttemptFailure::withheld(redacted);
        let call = delivery.call;
        let attempt = delivery.attempt;
        let listener = delivery.listener.clone();
        tracing::warn!(%listener, %call, "withheld a delivery: {failure}");
        // Sending to the own inbox cannot fail here: only the running pump calls this.
        self.event(Event::Failed { listener, call, attempt, failure }).ok();
    }
}
