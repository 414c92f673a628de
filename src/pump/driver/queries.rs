//! Queries about the pump's current state. The pump answers them on its own OS thread
//! between two commits, from durable state only. A query leads to no step and no record.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::call_waits::{CallWait, CallWaitReason, WaitSender};
use super::completions::{CompletionSender, Completions};
use super::handle::{CallCompletion, Handle, PumpStopped, PumpUnavailable};
use super::{Pump, PumpCommand, WriteObstacle};
use crate::clock::Time;
use crate::envelope::Message;
use crate::ids::{Attempt, CallId, ListenerName, MessageId, Position, ThreadId};
use crate::journal::Error;
use crate::limits;
use crate::pump::resident_core::QueriedCall;
use crate::thread::{Call, CallPreview, Hold, Tree};

/// Channel for the answer to a query about held calls. If the pump cannot write records at present,
/// the answer is the obstacle that keeps the pump from writing.
type HeldAnswer<T> = oneshot::Sender<Result<T, WriteObstacle>>;

pub(in crate::pump) enum PumpQuery {
    /// Registers `completion` to get the completion of the call. `is_open` gets true if the call is
    /// still open, and false if the call has already completed.
    Completion {
        thread: ThreadId,
        call: CallId,
        is_open: oneshot::Sender<bool>,
        completion: CompletionSender,
    },
    /// Requests the thread of a held call; the answer is `None` if the call is not held. `message`
    /// is the message that opened the call.
    HeldThread { message: MessageId, answer: HeldAnswer<Option<ThreadId>> },
    /// Requests the ids of all held calls.
    HeldIds { answer: HeldAnswer<Vec<CallId>> },
    /// Requests the held calls among `calls`. The answer contains the message that opened each of
    /// these calls, and the reason for its hold.
    HeldCalls { calls: Vec<CallId>, answer: HeldAnswer<Vec<HeldRequest>> },
    /// Requests the position of the latest record of a thread's tree. The answer is `None` if the
    /// thread does not exist.
    TreeHead { thread: ThreadId, answer: oneshot::Sender<Option<Position>> },
    /// Requests the name of the sender that opened the root of a thread's tree. The answer is
    /// `None` if the thread does not exist.
    TreeOpener { thread: ThreadId, answer: oneshot::Sender<Option<ListenerName>> },
    /// Requests the calls of a thread's tree that are ready but not handed over.
    StalledCalls { thread: ThreadId, answer: oneshot::Sender<Vec<CallWait>> },
    /// Registers a client that watches the waiting calls of a thread's tree.
    Watch { thread: ThreadId, waits: WaitSender, answer: oneshot::Sender<()> },
    /// Requests whether a thread's tree is free of open calls.
    TreeRest { thread: ThreadId, answer: oneshot::Sender<bool> },
    /// Requests the deliveries in flight, and the position of the next record.
    DeliveriesInFlight { answer: oneshot::Sender<(Vec<DeliveryInFlight>, Position)> },
    /// Advances a frozen clock to the next alarm or deadline. `next` is the position of the next
    /// record, as the caller has read it. Does nothing if the pump has written a record since the
    /// caller read this position.
    PassTime { next: Position, answer: oneshot::Sender<TimePassage> },
}

impl PumpQuery {
    /// Returns the thread that the query names; `None` if the query names no thread.
    fn thread(&self) -> Option<&ThreadId> {
        match self {
            Self::Completion { thread, .. }
            | Self::TreeHead { thread, .. }
            | Self::StalledCalls { thread, .. }
            | Self::Watch { thread, .. }
            | Self::TreeRest { thread, .. }
            | Self::TreeOpener { thread, .. } => Some(thread),
            Self::HeldThread { .. }
            | Self::HeldIds { .. }
            | Self::HeldCalls { .. }
            | Self::DeliveriesInFlight { .. }
            | Self::PassTime { .. } => None,
        }
    }
}

/// A delivery that has not ended yet. It may be withdrawn already, because nothing waits for its
/// result any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryInFlight {
    pub call: CallId,
    pub attempt: Attempt,
    pub listener: ListenerName,
}

/// Result of [`PumpQuery::PassTime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimePassage {
    /// The clock has advanced to the next alarm or deadline.
    Passed,
    /// There is neither an alarm nor a deadline.
    NothingScheduled,
    /// The clock has not advanced, because the pump has written a record since the caller read the
    /// position of the next record.
    Changed,
    /// The clock of this pump is not frozen, so it cannot be advanced.
    NotFrozen,
}

/// The request of a held call, with the reason why the call is held.
#[derive(Debug, Clone)]
pub struct HeldRequest {
    pub request: Arc<Message>,
    pub hold: Hold,
    /// Beginning of the hold.
    pub since: Time,
    /// Time at which the hold ends if no person decides: the earliest of the hold's own deadline
    /// and the time limits of the call's thread and of the threads above. `None` if there is no
    /// such time, or if a pause covers the call, because a pause moves this time.
    pub until: Option<Time>,
    /// Reason why the call needs an approval, with the earlier deliveries of the call. `None` if
    /// neither the config nor a fork requires an approval, or if the call waits for an answer.
    pub why: Option<String>,
    /// The preview of the call; `None` if the listener gives no preview of this call.
    pub preview: Option<HeldPreview>,
}

/// The state of the preview of a held call.
#[derive(Debug, Clone)]
pub enum HeldPreview {
    /// The listener has not given the preview yet.
    Requested,
    /// The preview is recorded in this note.
    Recorded(Arc<Message>),
    /// No preview came. The text states the reason.
    Missing(String),
}

/// The held calls of a pump, read in batches. If the pump read a million calls at once, it would
/// stand still for that time. Leaves out calls that are no longer held when their batch is read.
pub struct HeldCalls {
    pump: Handle,
    ids: std::vec::IntoIter<CallId>,
}

impl HeldCalls {
    /// Returns the requests of the next held calls, or `None` after the last batch.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<HeldRequest>>, PumpUnavailable> {
        let calls: Vec<_> = self.ids.by_ref().take(limits::HELD_CALLS_BATCH).collect();
        if calls.is_empty() {
            return Ok(None);
        }

        self.pump.held_query(|answer| PumpQuery::HeldCalls { calls, answer }).await.map(Some)
    }

    /// Returns the requests of all held calls.
    pub async fn all(mut self) -> Result<Vec<HeldRequest>, PumpUnavailable> {
        let mut all = Vec::new();
        while let Some(batch) = self.next_batch().await? {
            all.extend(batch);
        }
        Ok(all)
    }
}

impl Handle {
    /// Waits for the completion of a call in `thread`. If the call has already completed, returns
    /// `None`: the result of the call, if it has one, is then in the journal.
    pub async fn completion(
        &self,
        thread: ThreadId,
        call: CallId,
    ) -> Result<Option<CallCompletion>, PumpStopped> {
        let (completion, completed) = Completions::channel();
        let mut completions = Completions::of(&[call], completed);
        let query = |is_open| PumpQuery::Completion { thread, call, is_open, completion };

        if self.query(query).await? { completions.next().await.transpose() } else { Ok(None) }
    }

    /// Returns the thread of a held call. `message` is the message that opened the call. Returns
    /// `None` if this pump holds no such call.
    pub async fn held_thread(
        &self,
        message: MessageId,
    ) -> Result<Option<ThreadId>, PumpUnavailable> {
        self.held_query(|answer| PumpQuery::HeldThread { message, answer }).await
    }

    /// Returns the calls of this pump that are held at this moment.
    pub async fn held_calls(&self) -> Result<HeldCalls, PumpUnavailable> {
        let ids = self.held_query(|answer| PumpQuery::HeldIds { answer }).await?;
        Ok(HeldCalls { pump: self.clone(), ids: ids.into_iter() })
    }

    /// Returns a list that contains the call opened by `message`, if this pump holds it. Otherwise
    /// the list is empty.
    pub async fn held_call(&self, message: MessageId) -> Result<Vec<HeldRequest>, PumpUnavailable> {
        let calls = vec![CallId(message)];
        self.held_query(|answer| PumpQuery::HeldCalls { calls, answer }).await
    }

    /// Returns the name of the sender that opened the root of a thread's tree, or `None` if the
    /// thread does not exist.
    pub async fn tree_opener(&self, thread: ThreadId) -> Result<Option<ListenerName>, PumpStopped> {
        self.query(|answer| PumpQuery::TreeOpener { thread, answer }).await
    }

    /// Returns the position of the latest record of a thread's tree, or `None` if the thread does
    /// not exist.
    pub async fn tree_head(&self, thread: ThreadId) -> Result<Option<Position>, PumpStopped> {
        self.query(|answer| PumpQuery::TreeHead { thread, answer }).await
    }

    /// Returns the stalled calls of a thread's tree, at most [`limits::CALL_WAITS_MAX`]. A stalled
    /// call is ready, but not handed over.
    pub async fn stalled_calls(&self, thread: ThreadId) -> Result<Vec<CallWait>, PumpStopped> {
        self.query(|answer| PumpQuery::StalledCalls { thread, answer }).await
    }

    /// Registers a client that watches the waiting calls of a thread's tree. Calls that are already
    /// held are reported at once.
    pub async fn watch(&self, thread: ThreadId, waits: WaitSender) -> Result<(), PumpStopped> {
        self.query(|answer| PumpQuery::Watch { thread, waits, answer }).await
    }

    /// Whether a thread's tree is free of open calls.
    pub async fn is_at_rest(&self, thread: ThreadId) -> Result<bool, PumpStopped> {
        self.query(|answer| PumpQuery::TreeRest { thread, answer }).await
    }

    /// Returns the deliveries in flight, and the position of the next record. Without deliveries in
    /// flight, the state of the pump changes only by the passage of time or by a request.
    pub(crate) async fn deliveries_in_flight(
        &self,
    ) -> Result<(Vec<DeliveryInFlight>, Position), PumpStopped> {
        self.query(|answer| PumpQuery::DeliveriesInFlight { answer }).await
    }

    /// Advances the pump's frozen clock to its next alarm or deadline, for test cases of workflows.
    /// Returns whether the clock has advanced and, if not, the reason. `next` is the position of
    /// the next record, as the caller has read it. Does nothing if the clock is not frozen, or if
    /// the pump has written a record since the caller read this position.
    pub(crate) async fn pass_time(&self, next: Position) -> Result<TimePassage, PumpStopped> {
        self.query(|answer| PumpQuery::PassTime { next, answer }).await
    }

    /// Sends a query about held calls. Fails while the pump cannot write records.
    async fn held_query<T>(
        &self,
        query: impl FnOnce(HeldAnswer<T>) -> PumpQuery,
    ) -> Result<T, PumpUnavailable> {
        self.query(query).await?.map_err(PumpUnavailable::Waits)
    }

    async fn query<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<T>) -> PumpQuery,
    ) -> Result<T, PumpStopped> {
        let (answer, answered) = oneshot::channel();
        // Queries wait for a permit instead of failing: there are at most as many as connections.
        let permit = self.inbox_permit().await?;
        let command = PumpCommand::Query(Box::new(query(answer)), permit);

        self.outbox().send(command).map_err(|_| PumpStopped)?;
        answered.await.map_err(|_| PumpStopped)
    }
}

impl Pump {
    /// Answers the queries of a batch of commands. Must be called after the commit of the batch, so
    /// that the answers reflect all steps of the batch and only durable state.
    pub(super) fn answer_queries(&mut self) -> Result<(), Error> {
        for query in std::mem::take(&mut self.queries) {
            if let Some(thread) = query.thread() {
                self.core.recall_tree(&thread.root())?;
            }
            match query {
                PumpQuery::HeldCalls { calls, answer } => {
                    let held = self.held_requests(&calls)?;
                    // Sending an answer fails if the client has left.
                    answer.send(Ok(held)).ok();
                }
                PumpQuery::HeldThread { message, answer } => {
                    let held = self.held_thread(CallId(message))?;
                    answer.send(Ok(held)).ok();
                }
                query => self.answer_query(query),
            }
        }
        Ok(())
    }

    /// Answers a query while the journal accepts no records. Returns the query if it must wait, and
    /// otherwise `None`. The state now contains steps that are not durable yet, so the pump treats
    /// queries differently:
    /// - It refuses queries about held calls, and their clients read the journal instead.
    /// - It answers queries for the head of a thread's tree or for the sender that opened the tree,
    ///   because their clients need only know whether the thread exists and which sender opened it.
    ///   No step changes that.
    /// - It lets all other queries wait, because their clients wait for work anyway.
    pub(super) fn answer_while_waiting(
        &mut self,
        query: PumpQuery,
        obstacle: WriteObstacle,
    ) -> Result<Option<PumpQuery>, Error> {
        // Sending an answer fails if the client has left.
        match query {
            PumpQuery::HeldThread { answer, .. } => {
                answer.send(Err(obstacle)).ok();
            }
            PumpQuery::HeldIds { answer } => {
                answer.send(Err(obstacle)).ok();
            }
            PumpQuery::HeldCalls { answer, .. } => {
                answer.send(Err(obstacle)).ok();
            }
            query @ (PumpQuery::TreeHead { .. } | PumpQuery::TreeOpener { .. }) => {
                if let Some(thread) = query.thread() {
                    self.core.recall_tree(&thread.root())?;
                }
                self.answer_query(query);
            }
            query => return Ok(Some(query)),
        }

        Ok(None)
    }

    fn answer_query(&mut self, query: PumpQuery) {
        let state = self.core.state();

        // Sending an answer fails if the client has left.
        match query {
            PumpQuery::Completion { thread, call, is_open, completion } => {
                // Completions are reported only for calls of clients.
                let open = state.tree(&thread).is_some_and(|tree| tree.owes_client(call));
                if open {
                    self.waiters.await_completion(call, completion);
                }
                is_open.send(open).ok();
            }
            PumpQuery::StalledCalls { thread, answer } => {
                let stalled = self.core.stalled_calls(&thread, self.clock.now());
                let waits = stalled.into_iter().map(|(call, reason)| CallWait {
                    thread: call.thread.clone(),
                    call: call.id,
                    listener: call.callee.clone(),
                    reason: CallWaitReason::Stalled(reason),
                });
                answer.send(waits.take(limits::CALL_WAITS_MAX).collect()).ok();
            }
            PumpQuery::Watch { thread, waits, answer } => {
                let calls = state.tree(&thread).into_iter().flat_map(Tree::open_calls);
                let mut held: Vec<_> = calls.filter_map(held_wait).collect();
                held.sort_by_key(|wait| wait.call);
                for wait in held {
                    // The client of a full channel already has waits to show.
                    waits.try_send(Box::new(wait)).ok();
                }
                self.waiters.watchers.add(&thread, waits);
                answer.send(()).ok();
            }
            PumpQuery::TreeRest { thread, answer } => {
                answer.send(state.tree(&thread).is_none_or(|tree| tree.calls.is_empty())).ok();
            }
            // Answered by the caller of this method.
            PumpQuery::HeldThread { .. } | PumpQuery::HeldCalls { .. } => {}
            PumpQuery::HeldIds { answer } => {
                answer.send(Ok(self.core.held_calls())).ok();
            }
            PumpQuery::TreeHead { thread, answer } => {
                let is_known = state.thread(&thread).is_some();
                let tree = state.tree(&thread).filter(|_| is_known);
                answer.send(tree.map(|tree| tree.head)).ok();
            }
            PumpQuery::TreeOpener { thread, answer } => {
                let root = state.thread(&thread).and_then(|_| state.thread(&thread.root()));
                answer.send(root.map(|root| root.by.clone())).ok();
            }
            PumpQuery::DeliveriesInFlight { answer } => {
                let in_flight =
                    self.core.deliveries_in_flight().map(|(call, attempt, listener)| {
                        DeliveryInFlight { call, attempt, listener: listener.clone() }
                    });
                answer.send((in_flight.collect(), self.journal.next())).ok();
            }
            PumpQuery::PassTime { next, answer } => {
                answer.send(self.pass_time(next)).ok();
            }
        }
    }

    fn pass_time(&mut self, next: Position) -> TimePassage {
        if !self.clock.is_frozen() {
            return TimePassage::NotFrozen;
        }
        if self.journal.next() != next {
            return TimePassage::Changed;
        }

        // No work continues at the end of a tree's wall time, so the clock does not advance to it.
        let deadline = self.core.next_attempt_deadline();
        let scheduled = [deadline, self.alarms.next()].into_iter().flatten().min();
        let Some(at) = scheduled else { return TimePassage::NothingScheduled };
        self.clock.skip_to(at);
        let now = self.clock.now();
        // Queued before the reply, so that the caller's next query is answered after the deadline.
        self.queue_deadlines(now);
        TimePassage::Passed
    }

    /// Returns the thread of `call`, or `None` if the call is not held.
    fn held_thread(&mut self, call: CallId) -> Result<Option<ThreadId>, Error> {
        self.recall_tree_of(call)?;
        let held = self.core.state().call(call).filter(|call| call.held.is_some());
        Ok(held.map(|call| call.thread.clone()))
    }

    /// Returns the requests of the held calls among `calls`. Does not bring trees back to memory.
    fn held_requests(&self, calls: &[CallId]) -> Result<Vec<HeldRequest>, Error> {
        let mut held = Vec::new();
        for call in calls {
            let open = self.core.open_call(*call)?;
            held.extend(open.and_then(|open| self.held_request(open)));
        }
        Ok(held)
    }

    /// Brings back the tree of an open call, if the tree has left memory.
    fn recall_tree_of(&mut self, call: CallId) -> Result<(), Error> {
        let root = self.core.state().calls.get(&call).cloned();
        root.map_or(Ok(()), |root| self.core.recall_tree(&root).map(drop))
    }

    /// Returns the request of a held call; `None` if the call is not held.
    fn held_request(&self, open: QueriedCall<'_>) -> Option<HeldRequest> {
        let QueriedCall { call, limit, approval_reason } = open;
        let held = call.held?;
        let request = Arc::clone(call.request()?);
        let contract = self.gate.contracts.get(&call.callee);
        let why = approval_reason.filter(|_| held.hold == Hold::Approval);
        let since = held.since.unwrap_or(request.time);

        let preview = match call.preview.as_deref() {
            Some(CallPreview::Recorded(note)) => Some(HeldPreview::Recorded(Arc::clone(note))),
            Some(CallPreview::Missing(reason)) => Some(HeldPreview::Missing(reason.clone())),
            None => {
                let is_approval = held.hold == Hold::Approval;
                let gives_previews = contract.is_some_and(|contract| contract.previews.is_some());
                (is_approval && gives_previews).then_some(HeldPreview::Requested)
            }
        };

        let is_paused = self.core.state().is_paused(&call);
        let until = [held.until, limit].into_iter().flatten().min().filter(|_| !is_paused);
        Some(HeldRequest { request, hold: held.hold, since, until, why, preview })
    }
}

/// Returns the report of a held call for clients that watch its tree; `None` if the call is not
/// held.
fn held_wait(call: &Call) -> Option<CallWait> {
    let reason = CallWaitReason::Held(call.held?.hold);
    let thread = call.thread.clone();
    let listener = call.callee.clone();
    Some(CallWait { thread, call: call.id, listener, reason })
}
