//! State that the instances of one listener share: the mailbox of each instance, and which
//! instances are idle or down. An instance is a task that runs one process of the listener.
//!
//! Each instance has a mailbox for one delivery. No further queue is needed: the pump's scheduler
//! has at most as many deliveries in flight as there are instances, so one mailbox is always free.
//!
//! For every accepted delivery, the [`Sink`] gets exactly one report of its end, whatever happens
//! to the instance. The sink is never called under the lock, because the sink may block.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::bus::memory::{CallMemory, MemoryMark};
use crate::bus::{Delivery, Outcome, Sink};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::locks::locked;
use crate::mutant::mutant;

/// Text of the report that a listener is reachable again.
const RETURNED: &str = "its process is running again";

/// Command to an instance, the task that runs one process of a listener.
#[derive(Debug)]
pub(super) enum InstanceCommand {
    /// A delivery is in the instance's mailbox, and the instance must begin it.
    Deliver,
    Cancel(CallId, Attempt),
    /// The instance must end. Before that, the instance may still work on its delivery, for at most
    /// this time.
    Drain(Duration),
}

pub(super) struct Dispatch {
    listener: ListenerName,
    sink: Arc<dyn Sink>,
    /// State of all instances under one lock, because a delivery may move from one mailbox to
    /// another.
    state: Mutex<DispatchState>,
}

#[derive(Debug, Default)]
struct DispatchState {
    draining: bool,
    instances: Vec<InstanceState>,
    /// Indexes of the idle instances, as a stack. The instance used last is on top, because its
    /// process is warm.
    idle: Vec<usize>,
    /// For each call whose messages a process remembers, the instance that runs this process. The
    /// hand-over of the call's next delivery removes the entry. So a retry of this delivery
    /// contains all messages.
    memory: CallMemory<(usize, MemoryMark)>,
    /// Whether the listener counts as unreachable. If true, the sink gets a report as soon as a
    /// process of the listener runs again.
    has_left: bool,
}

#[derive(Debug)]
struct InstanceState {
    /// Sender of commands to the instance; `None` once the instance must end.
    orders: Option<mpsc::UnboundedSender<InstanceCommand>>,
    /// A delivery that this instance has not begun; `None` if the mailbox is empty. If this
    /// instance's process does not run, another instance may take the delivery.
    mailbox: Option<Delivery>,
    serving: Option<(CallId, Attempt)>,
    is_running: bool,
    /// Reason why the instance is down: its program is missing, or its restarts are used up. `None`
    /// if the instance is not down.
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
        let (instances, inboxes): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| {
                // Needs no bound: an instance gets few commands for each delivery, and has at most
                // one delivery.
                let (orders, inbox) = mpsc::unbounded_channel();
                (InstanceState::new(orders), inbox)
            })
            .unzip();
        let state = Mutex::new(DispatchState { instances, ..DispatchState::default() });
        let dispatch = Arc::new(Self { listener, sink, state });
        let handles = inboxes.into_iter().enumerate().map(|(instance, orders)| InstanceHandle {
            dispatch: Arc::clone(&dispatch),
            instance,
            orders,
        });
        let handles = handles.collect();
        (dispatch, handles)
    }

    pub fn has_left(&self) -> bool {
        locked(&self.state).has_left
    }

    /// Reports to the sink that the listener is reachable again: at once if a process of the
    /// listener runs, and otherwise as soon as a process runs.
    pub fn report_return(&self) {
        let is_running = {
            let mut state = locked(&self.state);
            let is_running = state.instances.iter().any(|instance| instance.is_running);
            state.has_left = !is_running;
            is_running
        };
        if is_running {
            self.sink.joined(&self.listener, RETURNED);
        }
    }

    pub fn deliver(&self, delivery: Delivery) {
        let call = delivery.call;
        let attempt = delivery.attempt;
        // A statement of its own: the lock must be free before the sink is called.
        let taken = locked(&self.state).take(delivery);
        if let Err(detail) = taken {
            self.sink.not_taken(&self.listener, call, attempt, detail);
        }
    }

    pub fn cancel(&self, call: CallId, attempt: Attempt) {
        if locked(&self.state).cancel(call, attempt) {
            self.never_handed_over(call, attempt);
        }
    }

    fn never_handed_over(&self, call: CallId, attempt: Attempt) {
        let detail = "its caller was gone before it was handed over".to_owned();
        self.ended(call, attempt, Err(AttemptFailure::Refused { detail }));
    }

    /// Ends each instance as soon as it is idle, and at the latest after `patience`. Refuses new
    /// deliveries, and reports to the sink that the deliveries in the mailboxes were not begun.
    pub fn drain(&self, patience: Duration) {
        let waiting = {
            let mut state = locked(&self.state);
            state.draining = true;
            for instance in &state.instances {
                instance.send(InstanceCommand::Drain(patience));
            }
            state.empty_mailboxes()
        };

        self.give_back(waiting, "the listener is shutting down");
    }

    /// Ends every instance of the listener immediately, even during a delivery. Reports the
    /// deliveries in the mailboxes as not begun.
    pub fn close(&self) {
        let waiting = {
            let mut state = locked(&self.state);
            state.draining = true;
            state.instances.iter_mut().for_each(|instance| instance.orders = None);
            state.empty_mailboxes()
        };

        self.give_back(waiting, "the listener was stopped");
    }

    /// Reports to the sink that no instance has begun `deliveries`. `why` is the reason in the
    /// reports.
    fn give_back(&self, deliveries: Vec<Delivery>, why: &str) {
        for Delivery { call, attempt, .. } in deliveries {
            self.sink.not_taken(&self.listener, call, attempt, why.to_owned());
        }
    }

    fn ended(&self, call: CallId, attempt: Attempt, result: Result<Outcome, AttemptFailure>) {
        self.sink.ended(&self.listener, call, attempt, result);
    }
}

impl DispatchState {
    /// Assigns a delivery to an instance of the listener. Instances that already have a delivery
    /// are left out. The others are tried in this order of preference:
    ///
    /// - an idle instance, whose process waits for a delivery
    /// - an instance whose process runs but is not ready yet
    /// - an instance whose process does not run
    /// - an instance that is down: its program is missing, or its restarts are used up
    ///
    /// Returns the reason as an error if the host drains, if all instances are down, or if every
    /// instance has a delivery.
    fn take(&mut self, delivery: Delivery) -> Result<(), String> {
        if self.draining {
            return Err("the listener is shutting down".to_owned());
        }
        if let Some(reason) = self.down() {
            return Err(reason);
        }

        match self.take_idle_instance(delivery.call) {
            Some(instance) => self.assign(instance, delivery),
            None => {
                let free = self.instances.iter_mut().filter(|instance| instance.is_free());
                let soonest =
                    free.min_by_key(|instance| (instance.down.is_some(), !instance.is_running));
                let instance =
                    soonest.ok_or("more deliveries than the listener has instances for")?;
                instance.mailbox = Some(delivery);
            }
        }
        Ok(())
    }

    /// Removes an instance from the idle instances, and returns it. Takes the instance that
    /// remembers the call if this instance is idle, and otherwise the idle instance that was used
    /// last. Returns `None` if no instance is idle.
    fn take_idle_instance(&mut self, call: CallId) -> Option<usize> {
        let holder = self.memory.get(&call).map(|(instance, _)| *instance);
        let index = self.idle.iter().position(|instance| Some(*instance) == holder);
        match index {
            Some(index) => Some(self.idle.remove(index)),
            None => self.idle.pop(),
        }
    }

    /// Returns the reason why no instance can take a delivery, or `None` if at least one instance
    /// is up.
    fn down(&self) -> Option<String> {
        let mut reasons = self.instances.iter().map(|instance| instance.down.as_ref());
        let first = reasons.next().flatten()?;
        reasons.all(|reason| reason.is_some()).then(|| first.clone())
    }

    fn assign(&mut self, instance: usize, delivery: Delivery) {
        if let Some(instance) = self.instances.get_mut(instance) {
            instance.mailbox = Some(delivery);
            instance.send(InstanceCommand::Deliver);
        }
    }

    /// Moves the delivery in this instance's mailbox to an idle instance. If no instance is idle,
    /// leaves the delivery in the mailbox. Does nothing if the mailbox is empty.
    fn move_to_idle(&mut self, instance: usize) {
        let own = self.instances.get_mut(instance).and_then(|instance| instance.mailbox.take());
        let Some(delivery) = own else { return };
        let to = self.take_idle_instance(delivery.call).unwrap_or(instance);
        self.assign(to, delivery);
    }

    /// Removes and returns the delivery that this instance must begin. First looks into the
    /// instance's own mailbox. If this mailbox is empty, looks into the mailboxes of instances
    /// whose processes do not run. Returns `None` if all these mailboxes are empty.
    fn take_from_mailbox(&mut self, instance: usize) -> Option<Delivery> {
        let own = self.instances.get_mut(instance).and_then(|instance| instance.mailbox.take());
        let mut others = self.instances.iter_mut().filter(|instance| !instance.is_running);
        own.or_else(|| others.find_map(|instance| instance.mailbox.take()))
    }

    fn empty_mailboxes(&mut self) -> Vec<Delivery> {
        self.instances.iter_mut().filter_map(|instance| instance.mailbox.take()).collect()
    }

    /// Cancels an attempt. If its delivery is still in a mailbox, removes the delivery and returns
    /// true. Otherwise, sends a cancel command to the instance that serves the attempt, if any, and
    /// returns false.
    fn cancel(&mut self, call: CallId, attempt: Attempt) -> bool {
        let is_it = |d: &mut Delivery| (d.call, d.attempt) == (call, attempt);
        if self.instances.iter_mut().any(|instance| instance.mailbox.take_if(is_it).is_some()) {
            return true;
        }
        let serving =
            self.instances.iter().find(|instance| instance.serving == Some((call, attempt)));
        if let Some(instance) = serving {
            instance.send(InstanceCommand::Cancel(call, attempt));
        }
        false
    }
}

impl InstanceState {
    fn new(orders: mpsc::UnboundedSender<InstanceCommand>) -> Self {
        let orders = Some(orders);
        Self { orders, mailbox: None, serving: None, is_running: false, down: None }
    }

    fn is_free(&self) -> bool {
        self.mailbox.is_none() && self.serving.is_none()
    }

    /// Sends a command to the instance. Does nothing if the instance has ended.
    fn send(&self, command: InstanceCommand) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(command);
        }
    }
}

/// Handle of one instance of a listener. Through it, the instance uses the state that all instances
/// of the listener share.
#[derive(Debug)]
pub(super) struct InstanceHandle {
    dispatch: Arc<Dispatch>,
    pub instance: usize,
    /// Receives the commands to this instance. The channel closes when the host is dropped.
    pub orders: mpsc::UnboundedReceiver<InstanceCommand>,
}

impl InstanceHandle {
    /// Returns the next delivery for the process of this instance. If no delivery is ready, marks
    /// the instance as idle and returns `None`. An idle instance gets [`InstanceCommand::Deliver`]
    /// as soon as a delivery is in its mailbox.
    pub fn ready(&self) -> Option<Delivery> {
        let mut state = locked(&self.dispatch.state);
        let next = state.take_from_mailbox(self.instance);
        let serving = next.as_ref().map(|d| (d.call, d.attempt));
        if let Some(instance) = state.instances.get_mut(self.instance) {
            instance.serving = serving;
        }
        if next.is_none() && !state.idle.contains(&self.instance) {
            state.idle.push(self.instance);
        }
        next
    }

    /// Returns how many messages at the beginning of this delivery the instance's process
    /// remembers; the number is at least 1. Returns `None` if the process must get all messages.
    pub fn recall(&self, delivery: &Delivery) -> Option<usize> {
        let (instance, mark) = locked(&self.dispatch.state).memory.take(&delivery.call)?;
        let is_holder = instance == self.instance || mutant("remember-for-another");
        is_holder.then(|| mark.known_of(delivery)).flatten()
    }

    /// Records that the process of this instance remembers messages of the call. `mark` identifies
    /// these messages.
    pub fn remember(&self, call: CallId, mark: MemoryMark) {
        locked(&self.dispatch.state).memory.put(call, (self.instance, mark), 0);
    }

    /// Marks the process of this instance as ended. If a delivery is in the instance's mailbox and
    /// another instance is idle, moves the delivery to the idle instance. Returns true if this
    /// instance must end, too.
    pub fn leave(&mut self) -> bool {
        {
            let mut state = locked(&self.dispatch.state);
            state.idle.retain(|instance| *instance != self.instance);
            if !mutant("remember-for-another") {
                state.memory.retain(|(instance, _)| *instance != self.instance);
            }

            if let Some(instance) = state.instances.get_mut(self.instance) {
                instance.serving = None;
                instance.is_running = false;
            }
            state.move_to_idle(self.instance);
        }

        loop {
            match self.orders.try_recv() {
                // No action needed: the mailbox is read once a child runs, and earlier deliveries
                // have ended.
                Ok(InstanceCommand::Deliver | InstanceCommand::Cancel(..)) => {}
                Err(mpsc::error::TryRecvError::Empty) => return false,
                Ok(InstanceCommand::Drain(_)) | Err(mpsc::error::TryRecvError::Disconnected) => {
                    return true;
                }
            }
        }
    }

    /// Waits for the duration `length` and then returns true. If the instance must end meanwhile,
    /// returns false at once.
    pub async fn rest(&mut self, length: Duration) -> bool {
        let wait = tokio::time::sleep(length);
        let mut wait = std::pin::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => return true,
                order = self.orders.recv() => match order {
                    None | Some(InstanceCommand::Drain(_)) => return false,
                    // The delivery stays in the mailbox until a child runs.
                    Some(InstanceCommand::Deliver | InstanceCommand::Cancel(..)) => {}
                },
            }
        }
    }

    /// Reports the end of the delivery that this instance served. Marks the instance as free before
    /// the report, because the pump may immediately hand over the next delivery.
    pub fn ended(&self, call: CallId, attempt: Attempt, result: Result<Outcome, AttemptFailure>) {
        if let Some(instance) = locked(&self.dispatch.state).instances.get_mut(self.instance) {
            instance.serving = None;
        }
        self.dispatch.ended(call, attempt, result);
    }

    pub fn stray(&self, named: String, payloads: Vec<Vec<u8>>) {
        self.dispatch.sink.stray(&self.dispatch.listener, named, payloads);
    }

    pub fn heartbeat(&self, call: CallId, attempt: Attempt) {
        self.dispatch.sink.heartbeat(&self.dispatch.listener, call, attempt);
    }

    /// Marks the process of this instance as running. If the listener was unreachable, reports to
    /// the sink that the listener is reachable again.
    pub fn up(&self) {
        let has_returned = {
            let mut state = locked(&self.dispatch.state);
            let has_returned = std::mem::take(&mut state.has_left);
            if let Some(instance) = state.instances.get_mut(self.instance) {
                instance.down = None;
                instance.is_running = true;
            }
            has_returned
        };
        if has_returned {
            self.dispatch.sink.joined(&self.dispatch.listener, RETURNED);
        }
    }

    /// Reports to the sink that the instance's process ended and is about to be restarted.
    pub fn starts_again(&self) {
        self.dispatch.sink.restarted(&self.dispatch.listener);
    }

    /// Marks this instance as down. If no other instance is up, reports to the sink that the
    /// listener is unreachable, empties all mailboxes, and reports their deliveries as not begun.
    pub fn down(&self, reason: &str) {
        let (has_left, waiting) = {
            let mut state = locked(&self.dispatch.state);
            let was_down = state.down().is_some();
            if let Some(instance) = state.instances.get_mut(self.instance) {
                instance.down = Some(reason.to_owned());
            }
            let is_down = state.down().is_some();
            let waiting = if is_down { state.empty_mailboxes() } else { Vec::new() };
            state.has_left |= is_down;
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
    use crate::bus::DeliveryPreview;
    use crate::ids::{MessageId, Position, ThreadId};

    #[derive(Default)]
    struct Ledger(Mutex<Vec<u32>>);

    impl Sink for Ledger {
        fn ended(
            &self,
            _: &ListenerName,
            _: CallId,
            a: Attempt,
            _: Result<Outcome, AttemptFailure>,
        ) {
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
            preview: DeliveryPreview::None,
            source: None,
            uncounted: Vec::new(),
        }
    }

    fn two_instances() -> (Arc<Ledger>, Arc<Dispatch>, InstanceHandle, InstanceHandle) {
        let ledger = Arc::new(Ledger::default());
        let listener = ListenerName::parse("tested").unwrap();
        let (dispatch, handles) = Dispatch::new(listener, ledger.clone(), 2);
        let [first, second] = <[InstanceHandle; 2]>::try_from(handles).unwrap();
        (ledger, dispatch, first, second)
    }

    /// Returns two instances whose children run and are idle.
    fn two_idle_instances() -> (Arc<Ledger>, Arc<Dispatch>, InstanceHandle, InstanceHandle) {
        let (ledger, dispatch, first, second) = two_instances();
        for handle in [&second, &first] {
            handle.up();
            assert!(handle.ready().is_none());
        }
        (ledger, dispatch, first, second)
    }

    fn next(handle: &InstanceHandle) -> Option<u32> {
        handle.ready().map(|delivery| delivery.attempt.n)
    }

    #[test]
    fn what_a_gone_instance_has_not_begun_goes_to_the_next_that_is_ready() {
        let (ledger, dispatch, mut first, second) = two_instances();
        first.up();
        assert!(first.ready().is_none());
        dispatch.deliver(delivery(1));
        second.up();
        assert_eq!(next(&second), None, "it is in the mailbox of an instance that runs");
        dispatch.deliver(delivery(2));
        assert_eq!(next(&second), Some(2));

        assert!(!first.leave());
        second.ended(delivery(2).call, delivery(2).attempt, Ok(Outcome::default()));
        assert_eq!(next(&second), Some(1));
        assert_eq!(*ledger.0.lock().unwrap(), [2]);
    }

    #[test]
    fn what_a_gone_instance_has_not_begun_goes_to_an_idle_one_at_once() {
        let (_, dispatch, mut first, mut second) = two_idle_instances();
        dispatch.deliver(delivery(1));
        assert!(!first.leave());
        let order = second.orders.try_recv().unwrap();
        assert!(matches!(order, InstanceCommand::Deliver), "expected a delivery, got {order:?}");
        assert_eq!(next(&second), Some(1));
    }

    #[test]
    fn what_is_cancelled_before_it_has_begun_reaches_no_instance() {
        let (ledger, dispatch, mut first, second) = two_idle_instances();
        let doomed = delivery(1);
        dispatch.deliver(doomed.clone());
        dispatch.cancel(doomed.call, doomed.attempt);
        assert_eq!(*ledger.0.lock().unwrap(), [1]);
        assert_eq!(next(&first), None);
        assert!(!first.leave());
        assert_eq!(next(&second), None, "handed to another although its caller is gone");
    }

    #[test]
    fn a_delivery_beyond_the_mailboxes_is_refused_and_takes_no_place() {
        let (ledger, dispatch, first, second) = two_instances();
        for n in 1..=3 {
            dispatch.deliver(delivery(n));
        }
        assert_eq!(*ledger.0.lock().unwrap(), [3]);
        first.up();
        second.up();
        assert_eq!((next(&first), next(&second)), (Some(1), Some(2)));
        dispatch.deliver(delivery(4));
        assert_eq!(*ledger.0.lock().unwrap(), [3, 4], "both work");

        first.ended(delivery(1).call, delivery(1).attempt, Ok(Outcome::default()));
        dispatch.deliver(delivery(5));
        assert_eq!(next(&first), Some(5), "it is free before it is ready");
    }

    #[test]
    fn whatever_is_in_a_mailbox_at_a_drain_is_ended_once() {
        let (ledger, dispatch, mut first, mut second) = two_instances();
        first.up();
        assert!(first.ready().is_none());
        for n in 1..=3 {
            dispatch.deliver(delivery(n));
        }
        dispatch.drain(Duration::ZERO);
        assert!(first.leave());
        assert!(second.leave());
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
