//! Who waits for what: receipts and results on their way to clients, and a stop on its way.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::Letter;
use super::handle::{Act, Done, Reserve};
use crate::envelope::{Message, NotReserved, Refusal};
use crate::ids::{Attempt, CallId, MessageId};
use crate::pump::core::{Event, Receipt};
use crate::thread::{Closing, Map};

#[derive(Default)]
pub(super) struct Clerk {
    receipts: Map<MessageId, Waiter>,
    results: Map<CallId, oneshot::Sender<Done>>,
    rulings: Map<Uuid, oneshot::Sender<Result<(), Refusal>>>,
    reservations: Map<(CallId, Attempt), oneshot::Sender<Result<(), NotReserved>>>,
    put_off: VecDeque<Letter>,
    drained: Option<oneshot::Sender<()>>,
    stop: bool,
}

struct Waiter {
    receipt: oneshot::Sender<Receipt>,
    results: Vec<oneshot::Sender<Done>>,
}

impl Clerk {
    /// The event in a letter; letters without one are kept here.
    pub fn open(&mut self, letter: Letter) -> Option<Event> {
        match letter {
            Letter::Event(event) => Some(event),
            Letter::Submit(submit) => {
                let waiter = Waiter { receipt: submit.receipt, results: submit.results };
                self.receipts.insert(submit.submission.id, waiter);
                Some(Event::Submit(submit.submission))
            }
            Letter::Decide(decide) => {
                self.rulings.insert(decide.decision.ticket, decide.ruling);
                Some(Event::Decide(decide.decision))
            }
            Letter::Reserve(reserve) => {
                let Reserve { call, attempt, asked, answer } = *reserve;
                self.reservations.insert((call, attempt), answer);
                Some(Event::Reserve { call, attempt, asked })
            }
            Letter::Act(act) => {
                let Act { ticket, action, done } = *act;
                self.rulings.insert(ticket, done);
                Some(Event::Operator { ticket, action })
            }
            Letter::Drain { reason, done } => {
                self.drained = Some(done);
                Some(Event::Shutdown { reason })
            }
            Letter::Stop => {
                self.stop();
                None
            }
        }
    }

    pub fn stop(&mut self) {
        self.stop = true;
    }

    pub fn is_told_to_stop(&self) -> bool {
        self.stop
    }

    pub fn put_off(&mut self, letter: Letter) {
        self.put_off.push_back(letter);
    }

    pub fn take_put_off(&mut self) -> Option<Letter> {
        self.put_off.pop_front()
    }

    /// Whether to end: told to, or drained and nothing is handed over any more.
    pub fn is_to_stop(&mut self, handed_over: usize) -> bool {
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
        if let Receipt::Accepted { calls, again: false, .. } = &receipt {
            for (call, result) in calls.iter().zip(waiter.results.drain(..)) {
                self.results.insert(*call, result);
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

    pub fn result(&mut self, call: CallId, how: Closing, messages: &[Arc<Message>]) {
        if let Some(waiter) = self.results.remove(&call) {
            waiter.send(Done { call, how, messages: messages.to_vec() }).ok();
        }
    }
}
