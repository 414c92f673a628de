//! The handle on a running pump: cheap to clone, used from any thread.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::Letter;
use super::intake::Intake;
use super::notices::Notice;
use super::spans;
use crate::bus::Delivery;
use crate::envelope::{Message, NotReserved, Refusal, Reservation, Rule};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};
use crate::journal::Error;
use crate::limits;
use crate::pump::core::{
    CallDecision, Cancellation, Event, GatedAnswer, Receipt, Submission, Target,
};
use crate::pump::gate::Gate;
use crate::thread::{Closing, Decision, DecisionOrigin, OperatorAction};
use crate::trace::{SpanId, TraceParent, Tracer};

/// The completion of a call that a client opened: how it ended, and its result.
#[derive(Debug, Clone)]
pub struct CallCompletion {
    pub call: CallId,
    pub how: Closing,
    pub messages: Vec<Arc<Message>>,
}

/// The pump is gone: it was stopped, or it stopped itself rather than break a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pump has stopped")]
pub struct PumpStopped;

/// A decision with whoever waits to hear what became of it.
pub(in crate::pump) struct Decide {
    pub decision: CallDecision,
    pub ruling: oneshot::Sender<Result<(), Refusal>>,
}

/// A cancellation, with the caller that waits until it is durable.
pub(in crate::pump) struct Cancel {
    pub cancellation: Cancellation,
    pub ruling: oneshot::Sender<Result<(), Refusal>>,
}

/// An operator's action, with the caller that waits until it is durable.
pub(in crate::pump) struct Act {
    pub ticket: Uuid,
    pub action: OperatorAction,
    pub done: oneshot::Sender<Result<(), Refusal>>,
}

/// A model call to be made, with whoever waits to hear whether it may.
pub(in crate::pump) struct Reserve {
    pub call: CallId,
    pub attempt: Attempt,
    pub asked: Reservation,
    pub answer: oneshot::Sender<Result<(), NotReserved>>,
}

/// A submission with those who wait for it.
pub(in crate::pump) struct Submit {
    pub submission: Submission,
    pub receipt: oneshot::Sender<Receipt>,
    /// One for each call it may open, handed out in order.
    pub results: Vec<oneshot::Sender<CallCompletion>>,
    /// For what its tree waits for.
    pub notices: Option<mpsc::Sender<Notice>>,
}

impl Submit {
    /// Refuses it, as the journal takes nothing at present. Returns the rule of the refusal.
    pub fn turn_away(self, error: &Error) -> Rule {
        let text = match &self.submission.payload {
            Ok(checked) => checked.payload().as_str().as_bytes(),
            Err(refusal) => refusal.head.as_bytes(),
        };
        let (rule, message) = match error {
            Error::Away { .. } => (Rule::Busy, "the journal's server is away; send it again later"),
            Error::Denied(_) => {
                (Rule::Busy, "the journal's server lets nothing be written; send it again later")
            }
            _ => (Rule::StorageFull, "the disk is full; send it again when there is room"),
        };
        let refusal = Refusal::new(rule, message, text);
        let retry_after = Some(super::ROOM_RETRY);
        // A client that has left needs no answer.
        self.receipt.send(Receipt::Refused { refusal, retry_after }).ok();
        rule
    }
}

/// Not a key to remember: whoever made it is told, on the record.
fn long_key(text: &[u8]) -> Refusal {
    let message = format!("the key is too long; at most {} bytes", limits::CLIENT_KEY_BYTES_MAX);
    Refusal::new(Rule::BadLabel, message, text)
}

#[derive(Clone)]
pub struct Handle {
    outbox: Sender<Letter>,
    gate: Gate,
    intake: Intake,
    tracer: Tracer,
}

/// Why a submission came to nothing.
fn refused(receipt: &Receipt) -> Option<&'static str> {
    match receipt {
        Receipt::Accepted { .. } => None,
        Receipt::Refused { refusal, .. } => Some(refusal.rule.code()),
        Receipt::NoThread { .. } => Some(Rule::UnknownThread.code()),
    }
}

/// Calls that one submission may open and wait for.
const LEGS_MAX: usize = 64;

impl Handle {
    pub(super) fn new(outbox: Sender<Letter>, gate: Gate) -> Self {
        Self { outbox, gate, intake: Intake::default(), tracer: Tracer::default() }
    }

    pub(super) fn trace(&mut self, tracer: Tracer) {
        self.tracer = tracer;
    }

    pub(super) fn outbox(&self) -> Sender<Letter> {
        self.outbox.clone()
    }

    /// Gates `text` on the caller's thread and has it recorded. The receivers get the result of
    /// each call it opens; they are dropped where it opens none. Of one client and thread, only so
    /// many are with the pump at once: more wait here.
    pub async fn submit(
        &self,
        client: &ListenerName,
        target: Target,
        key: Option<String>,
        text: &[u8],
    ) -> Result<(Receipt, Vec<oneshot::Receiver<CallCompletion>>), PumpStopped> {
        self.submit_watched(None, client, target, key, text, None).await
    }

    /// As [`Handle::submit`], for work that may belong to a trace; `notices` gets what the tree waits
    /// for from then on.
    pub async fn submit_watched(
        &self,
        trace: Option<TraceParent>,
        client: &ListenerName,
        target: Target,
        key: Option<String>,
        text: &[u8],
        notices: Option<mpsc::Sender<Notice>>,
    ) -> Result<(Receipt, Vec<oneshot::Receiver<CallCompletion>>), PumpStopped> {
        let (key, payload) =
            match key.as_ref().filter(|key| key.len() > limits::CLIENT_KEY_BYTES_MAX) {
                Some(_) => (None, Err(long_key(text))),
                None => (key, self.gate.check(client, text)),
            };
        let turn = match &target {
            Target::Thread { id } => Some(self.intake.turn(client, id).await),
            Target::New { .. } => None,
        };
        let id = MessageId(Uuid::now_v7());
        let begun = self.tracer.begin(id.0, SpanId::of_call(CallId(id)));
        let by = client.clone();
        let submission = Submission { id, client: by, target, key, payload, trace, begun };
        let (receipt, answer) = oneshot::channel();
        let (results, done) = (0..LEGS_MAX).map(|_| oneshot::channel()).unzip();
        let submit = Box::new(Submit { submission, receipt, results, notices });
        self.outbox.send(Letter::Submit(submit)).map_err(|_| PumpStopped)?;
        let receipt = answer.await.map_err(|_| PumpStopped)?;
        drop(turn);
        if let Some(error) = refused(&receipt) {
            spans::turned_away(&self.tracer, (trace, begun), client, CallId(id), error);
        }
        let mut done: Vec<_> = done;
        let calls = match &receipt {
            Receipt::Accepted { calls, again: false, .. } => calls.len(),
            _ => 0,
        };
        done.truncate(calls);
        Ok((receipt, done))
    }

    /// Has a refusal recorded that was decided at an entry point, in the name of its true sender.
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
            trace: None,
            begun: None,
        };
        let (receipt, recorded) = oneshot::channel();
        let submit = Box::new(Submit { submission, receipt, results: Vec::new(), notices: None });
        self.outbox.send(Letter::Submit(submit)).map_err(|_| PumpStopped)?;
        recorded.await.map(drop).map_err(|_| PumpStopped)
    }

    /// Cancels everything open in a thread and beneath it. Returns once that is durable, or why it
    /// was refused.
    pub async fn cancel(
        &self,
        thread: ThreadId,
        reason: String,
        origin: Option<DecisionOrigin>,
    ) -> Result<Result<(), Refusal>, PumpStopped> {
        let (ruling, ruled) = oneshot::channel();
        let cancellation = Cancellation { ticket: Uuid::now_v7(), thread, reason, origin };
        let cancel = Box::new(Cancel { cancellation, ruling });
        self.outbox.send(Letter::Cancel(cancel)).map_err(|_| PumpStopped)?;
        ruled.await.map_err(|_| PumpStopped)
    }

    /// Decides about a held call: has it recorded, and says what became of it. Answers are gated
    /// on the caller's thread, see [`Handle::gated`].
    pub async fn decide(
        &self,
        message: MessageId,
        decision: Decision<GatedAnswer>,
        origin: Option<DecisionOrigin>,
    ) -> Result<Result<(), Refusal>, PumpStopped> {
        let (ruling, ruled) = oneshot::channel();
        let ticket = Uuid::now_v7();
        let decision = CallDecision { ticket, message, decision, origin };
        let decide = Box::new(Decide { decision, ruling });
        self.outbox.send(Letter::Decide(decide)).map_err(|_| PumpStopped)?;
        ruled.await.map_err(|_| PumpStopped)
    }

    /// An answer in the name of a human listener, as the gate leaves it.
    pub fn gated(&self, listener: ListenerName, text: &[u8]) -> GatedAnswer {
        let payload = self.gate.check(&listener, text);
        GatedAnswer { listener, payload }
    }

    /// Records an operator's action on the organism itself. Returns once it is durable.
    pub async fn record_action(&self, action: OperatorAction) -> Result<(), PumpStopped> {
        let (done, recorded) = oneshot::channel();
        let act = Box::new(Act { ticket: Uuid::now_v7(), action, done });
        self.outbox.send(Letter::Act(act)).map_err(|_| PumpStopped)?;
        recorded.await.map(drop).map_err(|_| PumpStopped)
    }

    /// Stops taking submissions, lets what is handed over end, closes the journal.
    pub async fn drain(&self, reason: &str) -> Result<(), PumpStopped> {
        let (done, drained) = oneshot::channel();
        let letter = Letter::Drain { reason: reason.to_owned(), done };
        self.outbox.send(letter).map_err(|_| PumpStopped)?;
        drained.await.map_err(|_| PumpStopped)
    }

    pub fn stop(&self) {
        // Already stopped is as good.
        self.outbox.send(Letter::Stop).ok();
    }

    fn event(&self, event: Event) -> Result<(), PumpStopped> {
        self.outbox.send(Letter::Event(event)).map_err(|_| PumpStopped)
    }

    /// Nobody hosts the listener of this delivery.
    pub(super) fn unhosted(&self, delivery: &Delivery) {
        let detail = "nothing hosts this listener".to_owned();
        let (call, attempt) = (delivery.call, delivery.attempt);
        // The pump reads its own letters: while it runs, this arrives.
        let listener = delivery.listener.clone();
        self.event(Event::NotTaken { listener, call, attempt, detail }).ok();
    }
}
