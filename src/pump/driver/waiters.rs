//! Callers that wait for receipts, results or rulings of the pump, and clients that watch which
//! calls of a tree wait. This module also records that a stop of the pump was requested.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::PumpCommand;
use super::call_waits::{WaitSender, Watchers};
use super::completions::CompletionSender;
use super::handle::{CallCompletion, OperatorRequest, Reserve, Submit};
use crate::envelope::NotReserved;
use crate::ids::{Attempt, CallId, MessageId};
use crate::limits;
use crate::pump::core::{Event, OperatorRuling, Receipt};
use crate::thread::Map;

#[derive(Default)]
pub(super) struct Waiters {
    receipts: Map<MessageId, Waiter>,
    completions: Map<CallId, Vec<CompletionSender>>,
    /// Number of calls with waiters that triggers the next sweep. The sweep removes the waiters
    /// whose clients have left.
    sweep_at: usize,
    rulings: Map<Uuid, oneshot::Sender<OperatorRuling>>,
    reservations: Map<(CallId, Attempt), oneshot::Sender<Result<(), NotReserved>>>,
    /// Clients that watch which calls of their tree wait.
    pub watchers: Watchers,
    /// Commands that arrived while the journal accepted no records. Once the journal accepts
    /// records again, these commands are handled in their order of arrival, before any other
    /// command.
    deferred: VecDeque<PumpCommand>,
    drained: Option<oneshot::Sender<()>>,
    is_handing_over: bool,
    stop: bool,
}

struct Waiter {
    receipt: oneshot::Sender<Receipt>,
    completions: Option<CompletionSender>,
    waits: Option<WaitSender>,
}

impl Waiters {
    /// Converts a command to its event, registers the caller that waits for the result, and frees
    /// the place of the command in the inbox. Returns `None` for a command without an event, such
    /// as a stop. A stop takes effect at once.
    pub fn open(&mut self, command: PumpCommand) -> Option<Event> {
        match command {
            PumpCommand::Event(event) => Some(event),
            PumpCommand::Submit(submit) => {
                let Submit { submission, receipt, completions, waits, permit, .. } = *submit;
                drop(permit);
                let waiter = Waiter { receipt, completions, waits };
                self.receipts.insert(submission.id, waiter);
                Some(Event::Submit(Box::new(submission)))
            }
            PumpCommand::Operate(request) if request.is_withdrawn() => None,
            PumpCommand::Operate(request) => {
                let OperatorRequest { event, ticket, ruling, permit } = *request;
                drop(permit);
                self.await_ruling(ticket, ruling);
                Some(event)
            }
            PumpCommand::Reserve(reserve) => {
                let Reserve { call, attempt, reservation, answer } = *reserve;
                self.reservations.insert((call, attempt), answer);
                Some(Event::Reserve { call, attempt, reservation })
            }
            PumpCommand::Drain { reason, is_handover, done } => {
                self.is_handing_over = is_handover;
                self.await_drain(done);
                Some(Event::Shutdown { reason })
            }
            PumpCommand::Stop => {
                self.stop();
                None
            }
            // The driver takes these commands before it calls this method.
            PumpCommand::ModelState(_)
            | PumpCommand::Query(..)
            | PumpCommand::Deadlines
            | PumpCommand::Reload(_) => None,
        }
    }

    /// Registers a caller that waits for a ruling. The pump later reports the ruling under
    /// `ticket`.
    pub fn await_ruling(&mut self, ticket: Uuid, ruling: oneshot::Sender<OperatorRuling>) {
        self.rulings.insert(ticket, ruling);
    }

    /// Registers the requester of a drain. The pump reports to `done` as soon as no delivery is in
    /// flight.
    pub fn await_drain(&mut self, done: oneshot::Sender<()>) {
        self.drained = Some(done);
    }

    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// Whether another process continues the work of this pump at once.
    pub fn is_handing_over(&self) -> bool {
        self.is_handing_over
    }

    pub fn is_stopping(&self) -> bool {
        self.stop
    }

    pub fn defer(&mut self, command: PumpCommand) {
        self.deferred.push_back(command);
    }

    pub fn take_deferred(&mut self) -> Option<PumpCommand> {
        self.deferred.pop_front()
    }

    /// Finishes a requested drain and stops the pump, if no delivery is in flight any more.
    pub fn finish_drain_if_idle(&mut self, handed_over: usize) {
        if handed_over == 0
            && let Some(drained) = self.drained.take()
        {
            // The send fails if the requester has left. The drain finishes regardless.
            drained.send(()).ok();
            self.stop = true;
        }
    }

    pub fn send_receipt(&mut self, submission: MessageId, receipt: Receipt) {
        let Some(mut waiter) = self.receipts.remove(&submission) else { return };
        if let Receipt::Accepted { thread, .. } = &receipt
            && let Some(waits) = waiter.waits.take()
        {
            self.watchers.add(thread, waits);
        }

        if let Receipt::Accepted { calls, again: false, .. } = &receipt
            && let Some(completions) = waiter.completions.take()
        {
            for call in calls {
                self.await_completion(*call, completions.clone());
            }
        }

        // The send fails if the client has left. The receipt is recorded.
        waiter.receipt.send(receipt).ok();
    }

    pub fn send_ruling(&mut self, ticket: Uuid, ruling: OperatorRuling) {
        if let Some(waiter) = self.rulings.remove(&ticket) {
            // The send fails if the requester has left. The ruling is recorded.
            waiter.send(ruling).ok();
        }
    }

    pub fn answer_reservation(
        &mut self,
        call: CallId,
        attempt: Attempt,
        answer: Result<(), NotReserved>,
    ) {
        if let Some(waiter) = self.reservations.remove(&(call, attempt)) {
            // The send fails if the requesting attempt was cancelled.
            waiter.send(answer).ok();
        }
    }

    /// Registers a waiter for the completion of a call. Must be called before the pump performs the
    /// effect that reports the completion.
    pub fn await_completion(&mut self, call: CallId, waiter: CompletionSender) {
        if self.completions.len() >= self.sweep_at {
            self.sweep();
        }

        let waiters = self.completions.entry(call).or_default();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push(waiter);
    }

    /// Removes waiters whose clients have left. A call may wait for a person for months, and each
    /// waiter takes some hundred bytes.
    fn sweep(&mut self) {
        self.completions.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.is_closed());
            !waiters.is_empty()
        });
        self.sweep_at = (2 * self.completions.len()).max(limits::WAITERS_SWEEP_MIN);
    }

    pub fn complete(&mut self, completion: &CallCompletion) {
        for waiter in self.completions.remove(&completion.call).into_iter().flatten() {
            // The send fails if the client has left. The result is recorded.
            waiter.send(Box::new(completion.clone())).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::completions::Completions;
    use super::*;

    #[test]
    fn a_client_that_has_left_keeps_no_waiter_however_long_its_call_is_open() {
        let mut waiters = Waiters::default();
        let call = |n: usize| CallId(MessageId(Uuid::from_u128(n as u128)));
        let (kept, mut completed) = Completions::channel();
        waiters.await_completion(call(0), kept);

        for n in 1..10 * limits::WAITERS_SWEEP_MIN {
            let (left, _) = Completions::channel();
            waiters.await_completion(call(n), left);
        }

        assert!(waiters.completions.len() <= limits::WAITERS_SWEEP_MIN);
        let how = crate::thread::Closing::Completed;
        waiters.complete(&CallCompletion { call: call(0), how, messages: Vec::new() });
        assert_eq!(completed.try_recv().unwrap().call, call(0), "a client that waits gets it");
    }
}
