//! State that the instances of one listener share: idle instances, and instances that are down.
//!
//! Every delivery taken here is reported to the [`Sink`] exactly once, whatever happens to its
//! instance. The sink is never called under the lock, because it may block.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::bus::memory::{CallMemory, MemoryMark};
use crate::bus::{Delivery, Outcome, Sink};
use crate::envelope::Failure;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;
use crate::mutant::mutant;

/// Command to an instance.
#[derive(Debug)]
pub(super) enum InstanceCommand {
    Deliver(Delivery),
    Cancel(CallId, Attempt),
    Drain,
}

pub(super) struct Dispatch {
    listener: ListenerName,
    sink: Arc<dyn Sink>,
    state: Mutex<DispatchState>,
}

#[derive(Debug, Default)]
struct DispatchState {
    draining: bool,
    seats: Vec<InstanceState>,
    /// Instances that wait for a delivery. The one used last is on top, because its process is
    /// warm.
    idle: Vec<usize>,
    waiting: VecDeque<Delivery>,
    /// The instance whose process remembers an answered call. The next delivery of the call removes
    /// the entry, so that a retry of that delivery finds none and is complete.
    memory: CallMemory<(usize, MemoryMark)>,
}

#[derive(Debug)]
struct InstanceState {
    /// Commands to the instance. Closed when the host is dropped.
    orders: Option<mpsc::UnboundedSender<InstanceCommand>>,
    serving: Option<(CallId, Attempt)>,
    /// Why the instance is down, once its restarts are used up.
    down: Option<String>,
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Dispatch").field(&self.listener).field(&self.state).finish()
    }
}

impl Dispatch {
    pub fn new(
        listener: ListenerName,
        sink: Arc<dyn Sink>,
        count: usize,
    ) -> (Arc<Self>, Vec<InstanceHandle>) {
        let (seats, inboxes): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| {
                let (orders, inbox) = mpsc::unbounded_channel();
                (InstanceState { orders: Some(orders), serving: None, down: None }, inbox)
            })
            .unzip();
        let state = Mutex::new(DispatchState { seats, ..DispatchState::default() });
        let dispatch = Arc::new(Self { listener, sink, state });
        let desks = inboxes.into_iter().enumerate().map(|(seat, orders)| InstanceHandle {
            dispatch: Arc::clone(&dispatch),
            seat,
            orders,
        });
        let desks = desks.collect();
        (dispatch, desks)
    }

    fn state(&self) -> MutexGuard<'_, DispatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn deliver(&self, delivery: Delivery) {
        let call = delivery.call;
        let attempt = delivery.attempt;
        if let Err(detail) = self.state().take(delivery) {
            self.sink.not_taken(&self.listener, call, attempt, detail);
        }
    }

    pub fn cancel(&self, call: CallId, attempt: Attempt) {
        if self.state().cancel(call, attempt) {
            self.never_handed_over(call, attempt);
        }
    }

    fn never_handed_over(&self, call: CallId, attempt: Attempt) {
        let detail = "its caller was gone before it was handed over".to_owned();
        self.ended(call, attempt, Err(Failure::Refused { detail }));
    }

    /// Takes no new deliveries. Instances end when they are idle.
    pub fn drain(&self) {
        let waiting = {
            let mut state = self.state();
            state.draining = true;
            state.seats.iter().for_each(|seat| seat.send(InstanceCommand::Drain));
            std::mem::take(&mut state.waiting)
        };

        self.give_back(waiting, "the listener is shutting down");
    }

    /// Ends every instance now.
    pub fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.draining = true;
            state.seats.iter_mut().for_each(|seat| seat.orders = None);
            std::mem::take(&mut state.waiting)
        };

        self.give_back(waiting, "the listener was stopped");
    }

    /// Returns deliveries that no instance has begun.
    fn give_back(&self, deliveries: VecDeque<Delivery>, why: &str) {
        for Delivery { call, attempt, .. } in deliveries {
            self.sink.not_taken(&self.listener, call, attempt, why.to_owned());
        }
    }

    fn ended(&self, call: CallId, attempt: Attempt, result: Result<Outcome, Failure>) {
        self.sink.ended(&self.listener, call, attempt, result);
    }
}

impl DispatchState {
    /// Hands the delivery to an idle instance, or refuses it with the reason.
    fn take(&mut self, delivery: Delivery) -> Result<(), String> {
        if self.draining {
            return Err("the listener is shutting down".to_owned());
        }

        if let Some(reason) = self.down() {
            return Err(reason);
        }

        if self.waiting.len() >= limits::BACKLOG_DEFAULT {
            return Err("more deliveries than the listener has instances for".to_owned());
        }

        match self.idle_seat(delivery.call) {
            Some(seat) => self.assign(seat, delivery),
            None => self.waiting.push_back(delivery),
        }

        Ok(())
    }

    /// The idle instance that remembers the call, or else the one used last.
    fn idle_seat(&mut self, call: CallId) -> Option<usize> {
        let holder = self.memory.get(call).map(|(seat, _)| *seat);
        let index = self.idle.iter().position(|seat| Some(*seat) == holder);
        match index {
            Some(index) => Some(self.idle.remove(index)),
            None => self.idle.pop(),
        }
    }

    /// Why no instance can take a delivery, if all are down.
    fn down(&self) -> Option<String> {
        let mut reasons = self.seats.iter().map(|seat| seat.down.as_ref());
        let first = reasons.next().flatten()?;
        reasons.all(|reason| reason.is_some()).then(|| first.clone())
    }

    fn assign(&mut self, seat: usize, delivery: Delivery) {
        if let Some(seat) = self.seats.get_mut(seat) {
            seat.serving = Some((delivery.call, delivery.attempt));
            seat.send(InstanceCommand::Deliver(delivery));
        }
    }

    fn hand_back(&mut self, delivery: Delivery, unserved: &mut VecDeque<Delivery>) {
        if self.draining {
            return unserved.push_back(delivery);
        }

        match self.idle_seat(delivery.call) {
            Some(seat) => self.assign(seat, delivery),
            None => self.waiting.push_front(delivery),
        }
    }

    /// Whether the attempt was waiting and has been removed.
    fn cancel(&mut self, call: CallId, attempt: Attempt) -> bool {
        let is_it = |d: &Delivery| (d.call, d.attempt) == (call, attempt);
        if let Some(index) = self.waiting.iter().position(is_it) {
            return self.waiting.remove(index).is_some();
        }

        let serving = self.seats.iter().find(|seat| seat.serving == Some((call, attempt)));
        if let Some(seat) = serving {
            seat.send(InstanceCommand::Cancel(call, attempt));
        }

        false
    }
}

impl InstanceState {
    /// Sends a command. An instance that has ended takes none, and has no delivery either.
    fn send(&self, order: InstanceCommand) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }
}

/// One instance's handle to the shared state.
#[derive(Debug)]
pub(super) struct InstanceHandle {
    dispatch: Arc<Dispatch>,
    pub seat: usize,
    /// Receives commands. Ends when the host is dropped.
    pub orders: mpsc::UnboundedReceiver<InstanceCommand>,
}

impl InstanceHandle {
    /// Marks the child as idle. Returns the next delivery if one waits; otherwise a command will
    /// bring one.
    pub fn ready(&self) -> Option<Delivery> {
        let mut state = self.dispatch.state();
        let next = state.waiting.pop_front();
        let serving = next.as_ref().map(|d| (d.call, d.attempt));
        if let Some(seat) = state.seats.get_mut(self.seat) {
            seat.serving = serving;
        }

        if next.is_none() && !state.idle.contains(&self.seat) {
            state.idle.push(self.seat);
        }

        next
    }

    /// Number of this delivery's messages that the child remembers. `None` if it must be sent all.
    pub fn recall(&self, delivery: &Delivery) -> Option<usize> {
        let (seat, mark) = self.dispatch.state().memory.take(delivery.call)?;
        let is_holder = seat == self.seat || mutant("remember-for-another");
        is_holder.then(|| mark.known_of(delivery)).flatten()
    }

    /// Notes that the child remembers the call up to this position.
    pub fn remember(&self, call: CallId, mark: MemoryMark) {
        self.dispatch.state().memory.put(call, (self.seat, mark), 0);
    }

    /// Marks the child as gone. Deliveries that it has not begun go to other instances. Returns
    /// whether the instance must end.
    pub fn leave(&mut self) -> bool {
        let mut ending = false;
        let mut unserved = VecDeque::new();
        let mut cancelled = Vec::new();
        {
            let mut state = self.dispatch.state();
            state.idle.retain(|seat| *seat != self.seat);
            if !mutant("remember-for-another") {
                state.memory.retain(|(seat, _)| *seat != self.seat);
            }
            if let Some(seat) = state.seats.get_mut(self.seat) {
                seat.serving = None;
            }
            loop {
                match self.orders.try_recv() {
                    Ok(InstanceCommand::Deliver(delivery)) => {
                        state.hand_back(delivery, &mut unserved)
                    }
                    Ok(InstanceCommand::Drain) => ending = true,
                    // Of what was handed back just before it; anything else was answered.
                    Ok(InstanceCommand::Cancel(call, attempt)) => {
                        if state.cancel(call, attempt) {
                            cancelled.push((call, attempt));
                        }
                    }
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => {
                        ending = true;
                        break;
                    }
                }
            }
        }
        self.dispatch.give_back(unserved, "the listener is shutting down");
        for (call, attempt) in cancelled {
            self.dispatch.never_handed_over(call, attempt);
        }

        ending
    }

    /// Waits for `length`. Returns false if the instance must end instead.
    pub async fn rest(&mut self, length: Duration) -> bool {
        let wait = tokio::time::sleep(length);
        let mut wait = std::pin::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => return true,
                order = self.orders.recv() => match order {
                    None | Some(InstanceCommand::Drain) => return false,
                    // Only idle seats are delivered to; should it happen, nothing is lost.
                    Some(InstanceCommand::Deliver(delivery)) => self.dispatch.deliver(delivery),
                    Some(InstanceCommand::Cancel(..)) => {}
                },
            }
        }
    }

    pub fn ended(&self, call: CallId, attempt: Attempt, result: Result<Outcome, Failure>) {
        self.dispatch.ended(call, attempt, result);
    }

    pub fn stray(&self, named: String, payloads: Vec<Vec<u8>>) {
        self.dispatch.sink.stray(&self.dispatch.listener, named, payloads);
    }

    pub fn heartbeat(&self, call: CallId, attempt: Attempt) {
        self.dispatch.sink.heartbeat(&self.dispatch.listener, call, attempt);
    }

    /// Marks the child as running. Reports `joined` if the listener had been down.
    pub fn up(&self) {
        let was_down = {
            let mut state = self.dispatch.state();
            let was_down = state.down().is_some();
            if let Some(seat) = state.seats.get_mut(self.seat) {
                seat.down = None;
            }
            was_down
        };

        if was_down {
            self.dispatch.sink.joined(&self.dispatch.listener, "its process is running again");
        }
    }

    /// Reports that the process ended and is about to be restarted.
    pub fn starts_again(&self) {
        self.dispatch.sink.restarted(&self.dispatch.listener);
    }

    /// Marks this instance as down. If it is the last one, the listener has left, and its waiting
    /// deliveries end as unreachable.
    pub fn down(&self, reason: &str) {
        let (has_left, waiting) = {
            let mut state = self.dispatch.state();
            let was_down = state.down().is_some();
            if let Some(seat) = state.seats.get_mut(self.seat) {
                seat.down = Some(reason.to_owned());
            }
            let is_down = state.down().is_some();
            let waiting = if is_down { std::mem::take(&mut state.waiting) } else { [].into() };
            (is_down && !was_down, waiting)
        };

        if has_left {
            self.dispatch.sink.left(&self.dispatch.listener, reason);
        }

        self.dispatch.give_back(waiting, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MessageId, Position, ThreadId};

    #[derive(Default)]
    struct Ledger(Mutex<Vec<u32>>);

    impl Sink for Ledger {
        fn ended(&self, _: &ListenerName, _: CallId, a: Attempt, _: Result<Outcome, Failure>) {
            self.0.lock().unwrap().push(a.n);
        }
        fn heartbeat(&self, _: &ListenerName, _: CallId, _: Attempt) {}
        fn joined(&self, _: &ListenerName, _: &str) {}
        fn left(&self, _: &ListenerName, _: &str) {}
    }

    fn delivery(n: u32) -> Delivery {
        Delivery {
            listener: ListenerName::parse("tested").unwrap(),
            call: CallId(MessageId(uuid::Uuid::nil())),
            thread: ThreadId::organism(),
            attempt: Attempt { epoch: 1, n },
            messages: Vec::new(),
            fresh: 0,
            position: Position(1),
            timeout: Duration::ZERO,
            trace: None,
        }
    }

    fn two_instances() -> (Arc<Ledger>, Arc<Dispatch>, InstanceHandle, InstanceHandle) {
        let ledger = Arc::new(Ledger::default());
        let listener = ListenerName::parse("tested").unwrap();
        let (dispatch, desks) = Dispatch::new(listener, ledger.clone(), 2);
        let [first, second] = <[InstanceHandle; 2]>::try_from(desks).unwrap();
        (ledger, dispatch, first, second)
    }

    #[test]
    fn what_was_ordered_of_a_gone_instance_goes_to_the_next() {
        let (ledger, dispatch, mut first, second) = two_instances();
        assert!(first.ready().is_none());
        dispatch.deliver(delivery(1));
        dispatch.deliver(delivery(2));
        assert!(!first.leave());
        let next = |handle: &InstanceHandle| handle.ready().map(|delivery| delivery.attempt.n);
        assert_eq!((next(&second), next(&second), next(&second)), (Some(1), Some(2), None));
        assert!(ledger.0.lock().unwrap().is_empty(), "handed over, not ended");
    }

    #[test]
    fn what_was_ordered_of_a_gone_instance_goes_to_an_idle_one_at_once() {
        let (_, dispatch, mut first, mut second) = two_instances();
        assert!(first.ready().is_none());
        dispatch.deliver(delivery(1));
        assert!(second.ready().is_none());
        assert!(!first.leave());
        let order = second.orders.try_recv().unwrap();
        let InstanceCommand::Deliver(taken) = order else {
            panic!("expected a delivery, got {order:?}")
        };

        assert_eq!(taken.attempt.n, 1);
    }

    #[test]
    fn what_was_cancelled_before_a_gone_instance_began_it_is_nobodys() {
        let (ledger, dispatch, mut first, second) = two_instances();
        assert!(first.ready().is_none());
        let doomed = delivery(1);
        dispatch.deliver(doomed.clone());
        dispatch.cancel(doomed.call, doomed.attempt);
        assert!(!first.leave());
        assert!(second.ready().is_none(), "handed to another although its caller is gone");
        assert_eq!(*ledger.0.lock().unwrap(), [1]);
    }

    #[test]
    fn whatever_waits_in_a_drain_is_ended_once() {
        let (ledger, dispatch, mut first, mut second) = two_instances();
        assert!(first.ready().is_none());
        for n in 1..=3 {
            dispatch.deliver(delivery(n));
        }

        dispatch.drain();
        assert!(first.leave() && second.leave());
        dispatch.close();
        let mut ended = ledger.0.lock().unwrap().clone();
        ended.sort_unstable();
        assert_eq!(ended, [1, 2, 3]);
    }

    #[test]
    fn an_instance_that_is_down_leaves_the_work_to_the_others() {
        let (ledger, dispatch, first, second) = two_instances();
        first.down("broken");
        dispatch.deliver(delivery(1));
        assert_eq!(second.ready().unwrap().attempt.n, 1);
        second.down("broken too");
        dispatch.deliver(delivery(2));
        assert_eq!(*ledger.0.lock().unwrap(), [2]);
    }
}
