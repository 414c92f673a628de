//! Waiters: receipts, results and notices on their way to clients, and a requested stop.

use std::collections::VecDeque;

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::PumpCommand;
use super::completions::CompletionSender;
use super::handle::{Act, CallCompletion, Reserve, Submit};
use super::notices::{Notice, Watchers};
use crate::envelope::{NotReserved, Refusal};
use crate::ids::{Attempt, CallId, MessageId};
use crate::pump::core::{Event, Receipt};
use crate::thread::Map;

#[derive(Default)]
pub(super) struct Waiters {
    receipts: Map<MessageId, Waiter>,
    completions: Map<CallId, Vec<CompletionSender>>,
    rulings: Map<Uuid, oneshot::Sender<Result<(), Refusal>>>,
    reservations: Map<(CallId, Attempt), oneshot::Sender<Result<(), NotReserved>>>,
    /// Clients that get notices about their tree.
    pub watchers: Watchers,
    deferred: VecDeque<PumpCommand>,
    drained: Option<oneshot::Sender<()>>,
    stop: bool,
}

struct Waiter {
    receipt: oneshot::Sender<Receipt>,
    completions: Option<CompletionSender>,
    notices: Option<mpsc::Sender<Notice>>,
}

impl Waiters {
    /// Takes the event out of a command, and keeps its waiter. A command without an event is
    /// handled here. The place of an external request in the inbox becomes free.
    pub fn open(&mut self, command: PumpCommand) -> Option<Event> {
        match command {
            PumpCommand::Event(event) => Some(event),
            PumpCommand::Submit(submit) => {
                let Submit { submission, receipt, completions, notices, place } = *submit;
                drop(place);
                let waiter = Waiter { receipt, completions, notices };
                self.receipts.insert(submission.id, waiter);
                Some(Event::Submit(submission))
            }
            PumpCommand::Decide(decide) => {
                drop(decide.place);
                self.rulings.insert(decide.decision.ticket, decide.ruling);
                Some(Event::Decide(decide.decision))
            }
            PumpCommand::Cancel(cancel) => {
                drop(cancel.place);
                self.rulings.insert(cancel.cancellation.ticket, cancel.ruling);
                Some(Event::Cancel(cancel.cancellation))
            }
            PumpCommand::Reserve(reserve) => {
                let Reserve { call, attempt, reservation, answer } = *reserve;
                self.reservations.insert((call, attempt), answer);
                Some(Event::Reserve { call, attempt, reservation })
            }
            PumpCommand::Act(act) => {
                let Act { ticket, action, done } = *act;
                self.rulings.insert(ticket, done);
                Some(Event::Operator { ticket, action })
            }
            PumpCommand::Drain { reason, done } => {
                self.drained = Some(done);
                Some(Event::Shutdown { reason })
            }
            PumpCommand::Stop => {
                self.stop();
                None
            }
            // Taken before this is called.
            PumpCommand::ModelState(_) | PumpCommand::Query(..) | PumpCommand::Deadlines => None,
        }
    }

    pub fn stop(&mut self) {
        self.stop = true;
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

    /// Whether the pump must end: a stop was requested, or the drain is finished.
    pub fn finish_drain(&mut self, handed_over: usize) -> bool {
        if handed_over == 0
            && let Some(drained) = self.drained.take()
        {
            // Whoever asked may have gone: draining went on all the same.
            drained.send(()).ok();
            self.stop = true;
        }

        self.stop
    }

    pub fn receipt(&mut self, submission: MessageId, receipt: Receipt) {
        let Some(mut waiter) = self.receipts.remove(&submission) else { return };
        if let Receipt::Accepted { thread, .. } = &receipt
            && let Some(notices) = waiter.notices.take()
        {
            self.watchers.add(thread, notices);
        }

        if let Receipt::Accepted { calls, again: false, .. } = &receipt
            && let Some(completions) = waiter.completions.take()
        {
            for call in calls {
                self.await_completion(*call, completions.clone());
            }
        }

        // A client that went away reads the record when it comes back.
        waiter.receipt.send(receipt).ok();
    }

    pub fn ruled(&mut self, ticket: Uuid, ruling: Result<(), Refusal>) {
        if let Some(waiter) = self.rulings.remove(&ticket) {
            // Whoever decided and left reads the record.
            waiter.send(ruling).ok();
        }
    }

    pub fn reserved(&mut self, call: CallId, attempt: Attempt, answer: Result<(), NotReserved>) {
        if let Some(waiter) = self.reservations.remove(&(call, attempt)) {
            // Whoever asked may have been cancelled.
            waiter.send(answer).ok();
        }
    }

    /// Registers a waiter for a call. Must come before the effect of the call's completion.
    pub fn await_completion(&mut self, call: CallId, waiter: CompletionSender) {
        let waiters = self.completions.entry(call).or_default();
        // Clients that have left are forgotten when another one comes.
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push(waiter);
    }

    pub fn complete(&mut self, completion: &CallCompletion) {
        for waiter in self.completions.remove(&completion.call).into_iter().flatten() {
            // A client that has left reads the record.
            waiter.send(completion.clone()).ok();
        }
    }
}
