//! Applies facts to the state. Nothing else changes the state.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::allotments::{Allotment, AllotmentUsage};
use super::awaited_answers::{PendingMessage, ReplyOrder};
use super::request_counts::RECORDED_SINCE;
use super::state::{CallPreview, Held, KeyUse, State, Thread, Timer, Tree};
use super::uncounted_time::UNCOUNTED_SINCE;
use super::{Call, Closing, Fact, Opener, Opening, Pause, ScheduledRun};
use crate::clock::Time;
use crate::envelope::{AttemptFailure, Disposition, Message, MessageKind, Spending};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, Position, ThreadId, TimerId};
use crate::limits;
use crate::mutant::mutant;
use crate::system::{self, WaitFor};

/// First core version in which a forward step of the system clock moves the times of all trees.
/// Earlier versions moved only the times of trees with open calls.
pub(super) const AT_REST_SINCE: u32 = 29;

impl State {
    /// Applies a fact that was recorded in `tree` at `time`.
    pub fn apply(&mut self, tree: &ThreadId, time: Time, fact: &Fact) {
        self.apply_to_all(time, fact);
        if let Fact::HandedOver { call, attempt } = fact {
            return self.handed_over(*call, *attempt, time);
        }

        let home = match self.trees.get_mut(tree) {
            Some(home) => home,
            None => self.trees.entry_or(tree.clone(), Tree::started(time)),
        };

        match fact {
            Fact::Booted { .. }
            | Fact::Reloaded { .. }
            | Fact::Refused { .. }
            | Fact::HandedOver { .. }
            | Fact::PreviewRequested { .. }
            | Fact::Signed { .. }
            | Fact::Recalled { .. }
            | Fact::StoodStill { .. }
            | Fact::KeyExpired { .. }
            | Fact::Paused { .. }
            | Fact::Resumed { .. }
            | Fact::SchedulePlanned { .. }
            | Fact::ScheduleDue { .. }
            | Fact::ScheduleRefused { .. }
            | Fact::ScheduleCancelled { .. } => {}
            Fact::Accepted { message, opening: None, .. } => home.accept(message),
            Fact::Accepted { message, opening: Some(opening), key } => {
                self.accept_request(tree, message, opening, key.as_deref());
            }
            Fact::ThreadOpened { thread, by, bound, allotment } => {
                home.open_thread(thread, by, *bound, *allotment);
            }
            Fact::Forked { .. } => home.fork(time, self.core_version, fact),
            Fact::Reopened(call) => home.reopen(call),
            Fact::Retried { message, retry } => {
                home.retried.insert(*message, *retry);
            }
            Fact::NotOnRecord { call } => home.set_unrecorded(*call),
            Fact::Disposed { message, how } => {
                self.in_flight = self.in_flight.saturating_sub(1);
                home.dispose(*message, *how);
            }
            Fact::OutcomeReceived { call, attempt } => home.receive_outcome(*call, *attempt),
            Fact::AttemptFailed { call, attempt, failure } => {
                home.record_failure(*call, *attempt, failure);
            }
            Fact::NotTaken { call, .. } => home.revert_hand_over(*call),
            Fact::CallClosed { call, how } => {
                self.calls.remove(call);
                home.close_call(*call, *how);
            }
            Fact::Waiting { call, until } => home.wait(*call, Some(*until)),
            Fact::WaitEnded { call } => home.wait(*call, None),
            Fact::TimerSet { timer, call, fires_at, label, at } => {
                let set = Timer { call: *call, fires_at: *fires_at, label: label.clone(), at: *at };
                home.set_timer(*timer, set);
            }
            Fact::TimerEnded { timer, .. } => home.end_timer(*timer),
            Fact::Window { agent, thread, kept, .. } => home.limit_window(agent, thread, *kept),
            Fact::Reserved { .. } | Fact::Charged { .. } | Fact::Used { .. } => home.account(fact),
            Fact::Held { .. } | Fact::PreviewMissing { .. } | Fact::Released { .. } => {
                home.apply_to_hold(time, fact);
            }
            Fact::Renewed { .. } => home.renew(time),
            Fact::Traced { trace } => home.trace = Some(Box::new(*trace)),
            Fact::Warned { budget, limit, status } => home.warn(budget, *limit, *status),
        }
    }

    fn accept_request(
        &mut self,
        tree: &ThreadId,
        message: &Arc<Message>,
        opening: &Opening,
        key: Option<&str>,
    ) {
        let Some(home) = self.trees.get_mut(tree) else { return };
        if self.core_version < RECORDED_SINCE && home.calls.is_empty() {
            home.started = message.time;
        }

        self.calls.insert(CallId(message.id), tree.clone());
        home.open_call(message, opening);
        // The request of a run is the first message of its thread.
        if message.seq == 1 {
            self.mark_sent(message.id);
        }
        if let Some(key) = key {
            self.remember_key(message, key);
        }
    }

    /// Applies the parts of a fact that concern all trees, such as a start of the pump.
    fn apply_to_all(&mut self, time: Time, fact: &Fact) {
        match fact {
            Fact::Booted { journal, epoch, config, core_version, .. } => {
                self.journal = *journal;
                self.epoch = *epoch;
                self.config = *config;
                self.core_version = *core_version;
                self.drop_ended_schedules();
                // No answer could arrive while no pump ran.
                self.pass_over(time.since(self.time), Duration::ZERO);
            }
            Fact::Reloaded { config, .. } => self.config = *config,
            Fact::Accepted { .. } => self.in_flight += 1,
            Fact::StoodStill { stood_micros, stepped_micros } => {
                let [stood, stepped] =
                    [stood_micros, stepped_micros].map(|time| Duration::from_micros(*time));
                self.pass_over(stood, stepped);
            }
            Fact::KeyExpired { client, key } => {
                self.keys.remove(&(client.clone(), key.clone()));
            }
            Fact::Signed { nonce, time: signed, .. } => self.keep_nonce(*nonce, *signed),
            Fact::Paused { target, by, note } => {
                self.time = self.time.max(time);
                let target = target.clone();
                let by = by.clone();
                let note = note.clone();
                self.pause(Pause { target, since: time, by, note });
            }
            Fact::Resumed { target } => {
                self.time = self.time.max(time);
                self.resume(target);
            }
            Fact::SchedulePlanned { schedule, timer, due, times } => {
                self.plan_schedule(schedule, (*timer, *due), times);
            }
            Fact::ScheduleDue { schedule, due, request, thread } => {
                let thread = thread.clone();
                let run = ScheduledRun { request: *request, thread, due: *due, is_sent: false };
                self.begin_scheduled_run(schedule, run);
            }
            Fact::ScheduleRefused { schedule, request } => {
                self.drop_scheduled_run(schedule, *request);
            }
            Fact::ScheduleCancelled { schedule } => self.cancel_schedule(schedule),
            _ => {}
        }

        self.time = self.time.max(time);
    }

    /// Completes a record of `tree`: sets the position of the tree's latest record, stops or
    /// restarts deadlines as [`State::follow_people`] does, and ends the run of a schedule as
    /// [`State::end_scheduled_run`] does. Must be called after all facts of the record are applied.
    pub fn finish_record(&mut self, tree: &ThreadId, position: Position) {
        self.set_head(tree, position);
        self.follow_people(tree);
        self.end_scheduled_run(tree);
    }

    /// Sets the position of the latest record of `tree`.
    pub fn set_head(&mut self, tree: &ThreadId, position: Position) {
        if let Some(tree) = self.trees.get_mut(tree) {
            tree.head = position;
        }
    }

    /// Stops or restarts deadlines, time limits and the wall time in `tree`. Must be called after
    /// all facts of a record are applied. There are two rules:
    /// - While a pause keeps a call from being handed over, the deadlines of the call stand still.
    ///   So do the time limits of the call's thread and of the threads above it.
    /// - While the tree can continue only after an action of a person, such as a decision, the wall
    ///   time of the tree stands still.
    pub fn follow_people(&mut self, tree: &ThreadId) {
        if let Some(tree) = self.trees.get_mut(tree) {
            let is_paused = !self.pauses.is_empty();
            if is_paused {
                tree.follow_pauses(&self.pauses, self.time, self.core_version);
            }
            tree.follow_people(self.time, self.core_version, is_paused);
        }
    }

    /// Moves deadlines by periods that must not count against them. `stood` is the time for which
    /// the pump was stopped and could receive no answer. `stepped` is the time by which the system
    /// clock was set forward.
    /// - Time-outs of calls and holds are moved by both times.
    /// - Time limits of threads, timers for a duration, and the beginning of the wall time are
    ///   moved by `stepped` only.
    /// - Timers for a clock time are not moved.
    fn pass_over(&mut self, stood: Duration, stepped: Duration) {
        if mutant("count-every-time") {
            return;
        }

        let also_at_rest = self.core_version >= AT_REST_SINCE && !stepped.is_zero();
        if also_at_rest {
            // A tree outside memory is moved by this amount when it comes back.
            self.stepped += stepped;
        }

        // A tree with open calls that is outside memory is moved by both amounts when it comes
        // back.
        self.stood.0 += stood;

        let trees = self.trees.values_mut();
        for tree in trees.filter(|tree| also_at_rest || !tree.calls.is_empty()) {
            tree.pass_over(stood, stepped, self.core_version);
        }
    }

    /// Keeps the nonce of an accepted signature, which was made at `signed`. If there are too many
    /// nonces, forgets the nonces of signatures that had already expired at `signed`. Does not use
    /// the time of the record, because record time may be ahead of the clock by which signatures
    /// expire.
    fn keep_nonce(&mut self, nonce: Uuid, signed: Time) {
        self.nonces.insert(nonce, signed);
        if self.nonces.len() > limits::USED_SIGNATURES_KEPT {
            let kept_for = limits::SIGNATURE_VALIDITY + limits::SIGNATURE_AHEAD_MAX;
            self.nonces.retain(|_, other| other.plus(kept_for) >= signed);
        }
    }

    /// Sets `attempt` as the attempt in flight of a call. The fact of this hand-over may be in a
    /// record of another tree than the call's tree, because the end of a call in one tree can start
    /// the delivery of a call in another tree.
    fn handed_over(&mut self, call: CallId, attempt: Attempt, time: Time) {
        let tree = self.calls.get(&call).and_then(|tree| self.trees.get_mut(tree));
        let Some(tree) = tree else { return };
        if let Some(call) = tree.calls.get_mut(&call) {
            call.handed_over = Some(attempt);
            call.offered_since.get_or_insert(time);
        }
        // The end of the record restarts the wall time of its own tree alone.
        tree.follow_hand_over(self.time, self.core_version, !self.pauses.is_empty());
    }

    fn remember_key(&mut self, message: &Message, key: &str) {
        let fresh = KeyUse {
            calls: Vec::new(),
            thread: message.thread.clone(),
            digest: message.payload.digest,
            time: message.time,
            stepped: self.stepped,
        };

        let used = self.keys.entry_or((message.from.clone(), key.to_owned()), fresh);
        used.calls.push(CallId(message.id));
    }
}

impl Tree {
    fn started(time: Time) -> Self {
        Self { started: time, ..Self::default() }
    }

    fn limit_window(&mut self, agent: &ListenerName, thread: &ThreadId, kept: u32) {
        if let Some(thread) = self.threads.get_mut(thread) {
            // The prompt shows the turn that cleared the context besides the kept items.
            *thread.shown.of(agent) = kept.saturating_add(1);
        }
    }

    /// Applies the fact if it is about the hold of a call. `time` is the time of its record.
    fn apply_to_hold(&mut self, time: Time, fact: &Fact) {
        match fact {
            Fact::Held { call, hold, until } => {
                let limit = until.map(|until| until.since(time));
                let since = Some(time);
                self.hold(*call, Held { hold: *hold, since, until: *until, limit });
            }
            Fact::PreviewMissing { call, reason } => {
                self.end_preview(*call, CallPreview::Missing(reason.clone()));
            }
            Fact::Released { call, lapsed } => {
                self.release(*call);
                self.approve(*call, !lapsed);
            }
            _ => {}
        }
    }

    fn approve(&mut self, call: CallId, is_approved: bool) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.approved |= is_approved;
        }
    }

    fn set_unrecorded(&mut self, call: CallId) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.unrecorded = true;
        }
    }

    /// Reverts the hand-over of a call after no process has taken the delivery.
    fn revert_hand_over(&mut self, call: CallId) {
        let call = self.calls.get_mut(&call).filter(|_| !mutant("count-what-nobody-took"));
        if let Some(call) = call {
            call.handed_over = None;
        }
    }

    pub(super) fn pass_over(&mut self, stood: Duration, stepped: Duration, core_version: u32) {
        self.started = self.started.plus(stepped);
        self.still_since = self.still_since.map(|since| since.plus(stepped));

        for timer in self.timers.values_mut().filter(|timer| !timer.at) {
            timer.fires_at = timer.fires_at.plus(stepped);
        }

        for allotted in self.threads.values_mut().filter_map(|thread| thread.allotted.as_mut()) {
            let until = &mut allotted.limits.until;
            *until = until.map(|until| until.plus(stepped));
            allotted.still_since = allotted.still_since.map(|since| since.plus(stepped));
        }

        let not_counted = stood + stepped;
        for call in self.calls.values_mut() {
            call.extend(not_counted);
            if core_version >= UNCOUNTED_SINCE {
                call.pass_uncounted_step(stepped);
            }
            call.kept_since = call.kept_since.map(|since| since.plus(not_counted));
        }
    }

    fn open_thread(
        &mut self,
        id: &ThreadId,
        by: &ListenerName,
        bound: Option<CallId>,
        allotment: Option<Allotment>,
    ) {
        if let Some(call) = bound.and_then(|call| self.calls.get_mut(&call)) {
            call.has_bound = true;
        }
        let allotted = allotment.map(|limits| AllotmentUsage {
            limits,
            spent: Spending::default(),
            still_since: None,
        });
        let thread = Thread { bound, allotted: allotted.map(Box::new), ..Thread::new(by.clone()) };
        self.threads.insert(id.clone(), thread);
        if let Some(parent) = id.parent().and_then(|p| self.threads.get_mut(&p)) {
            parent.children.insert(id.label().to_owned());
        }
    }

    fn take_seq(&mut self, message: &Message) {
        self.usage.messages += 1;
        if let Some(thread) = self.threads.get_mut(&message.thread) {
            thread.seq = message.seq;
        }
    }

    fn open_call(&mut self, message: &Arc<Message>, opening: &Opening) {
        self.take_seq(message);
        let id = CallId(message.id);
        self.in_flight.insert(message.id, Some(id));
        if let Some(thread) = self.threads.get_mut(&message.thread) {
            thread.open_calls += 1;
        }

        if let Opener::Call { call, thread, .. } = &opening.opener
            && let Some(opener) = self.calls.get_mut(call)
        {
            if *thread == message.thread {
                opener.await_leg(id, opening);
            } else {
                opener.remote_calls.insert(id);
            }
        }

        let slot = ReplyOrder { action: 0, leg: 0 };
        let request = PendingMessage { slot, answers_call: false, message: Arc::clone(message) };
        let call = Call {
            id,
            thread: message.thread.clone(),
            callee: message.to.clone(),
            opening: opening.clone(),
            handled: Vec::new(),
            pending: vec![request],
            awaiting: Vec::new(),
            next_slot: 1,
            forwarded: Default::default(),
            remote_calls: Default::default(),
            has_bound: false,
            spent_bound: Spending::default(),
            waiting: None,
            timers: 0,
            turns: 0,
            failures: 0,
            failed_rounds: 0,
            delegations: 0,
            handed_over: None,
            requests: Default::default(),
            offered_since: None,
            unrecorded: false,
            held: None,
            kept_since: None,
            uncounted: None,
            preview: None,
            approved: false,
        };

        self.calls.insert(id, Box::new(call));
        self.count_delegation(message, opening);
    }

    /// Accepts a message that opens no call. The message is unsettled until the journal records how
    /// it ended. If the message belongs to an open call, is addressed to the listener of this call,
    /// and is not a note, it also becomes a pending message of the call.
    fn accept(&mut self, message: &Arc<Message>) {
        self.take_seq(message);
        self.keep_fault(message);
        // The step accepts a note of this name only as the preview of a held call.
        if message.kind == MessageKind::Note
            && *message.name.local == *system::PREVIEW
            && *message.name.namespace == *system::NAMESPACE
            && let Some(call) = message.call
        {
            self.end_preview(call, CallPreview::Recorded(Arc::clone(message)));
        }

        let delivered =
            matches!(message.kind, MessageKind::Reply | MessageKind::System | MessageKind::Own);
        let receiver = message.call.filter(|_| delivered).and_then(|c| self.calls.get_mut(&c));
        let receiver = receiver.filter(|call| call.callee == message.to);
        self.in_flight.insert(message.id, receiver.as_ref().map(|call| call.id));
        if let Some(call) = receiver {
            call.expect(message);
        }
    }

    fn dispose(&mut self, message: MessageId, how: Disposition) {
        let waited_in = self.in_flight.remove(&message);
        let Some(Some(call)) = waited_in else { return };
        let Some(call) = self.calls.get_mut(&call) else { return };
        let Some(at) = call.pending.iter().position(|p| p.message.id == message) else { return };
        let pending = call.pending.remove(at);
        if how == Disposition::Handled {
            let thread = call.thread.clone();
            let agent = call.callee.clone();
            call.handled.push(pending.message);
            self.count_shown(&thread, &agent);
        }
    }

    pub(super) fn count_shown(&mut self, thread: &ThreadId, agent: &ListenerName) {
        if let Some(thread) = self.threads.get_mut(thread) {
            *thread.shown.of(agent) += 1;
        }
    }

    fn receive_outcome(&mut self, call: CallId, attempt: Attempt) {
        self.release_reservation(call, attempt);
        if let Some(call) = self.calls.get_mut(&call) {
            call.failed_rounds = call.rounds_failed();
            call.turns += 1;
            call.failures = 0;
            call.handed_over = None;
            call.offered_since = None;
            call.requests = Default::default();
            call.next_slot = 0;
            call.forwarded = Default::default();
            call.waiting = None;
            // None of the messages that were pending before this outcome answers it.
            call.pending.iter_mut().for_each(|p| p.slot = ReplyOrder::UNREQUESTED);
        }
    }

    fn wait(&mut self, id: CallId, until: Option<WaitFor>) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.waiting = until;
        }
    }

    fn hold(&mut self, id: CallId, held: Held) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.preview = None;
        if call.held.replace(held).is_none() {
            self.held += 1;
        }
    }

    fn end_preview(&mut self, id: CallId, preview: CallPreview) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.preview = Some(Box::new(preview));
        }
    }

    fn release(&mut self, id: CallId) {
        let held = self.calls.get_mut(&id).and_then(|call| call.held.take());
        if held.is_some() {
            self.held = self.held.saturating_sub(1);
        }
    }

    fn close_call(&mut self, id: CallId, how: Closing) {
        self.release(id);
        let Some(call) = self.calls.remove(&id) else { return };
        self.close_leg(&call, how);
        for pending in &call.pending {
            self.in_flight.insert(pending.message.id, None);
        }

        if let Some(thread) = self.threads.get_mut(&call.thread) {
            thread.open_calls = thread.open_calls.saturating_sub(1);
            let nested = matches!(&call.opening.opener,
                Opener::Call { thread, .. } if *thread == call.thread);
            if !nested {
                thread.result = Some(how);
            }
        }

        if let Opener::Call { call: opener, .. } = &call.opening.opener
            && let Some(opener) = self.calls.get_mut(opener)
        {
            opener.remote_calls.remove(&id);
            opener.close_awaited_leg(id);
        }
    }

    /// Records a failed attempt. If the failure does not state how much the attempt used, the
    /// reservation of the attempt stays. The pump charges the whole reservation later.
    fn record_failure(&mut self, call: CallId, attempt: Attempt, failure: &AttemptFailure) {
        let callee = self.calls.get_mut(&call).map(|call| {
            call.failures += 1;
            call.handed_over = None;
            call.offered_since = None;
            call.callee.clone()
        });
        if let Some(spent) = failure.spent() {
            let thread = self.calls.get(&call).map(|call| call.thread.clone());
            let reserved = self.release_reservation(call, attempt);
            let (agent, reserved_in) =
                reserved.map(|reserved| (reserved.agent, reserved.thread)).unzip();
            self.spend(thread.or(reserved_in.flatten()).as_ref(), callee.or(agent).as_ref(), spent);
        }
    }

    fn set_timer(&mut self, id: TimerId, timer: Timer) {
        if let Some(call) = self.calls.get_mut(&timer.call) {
            call.timers += 1;
        }
        self.timers.insert(id, timer);
    }

    fn end_timer(&mut self, id: TimerId) {
        let call = self.timers.remove(&id).map(|timer| timer.call);
        if let Some(call) = call.and_then(|call| self.calls.get_mut(&call)) {
            call.timers = call.timers.saturating_sub(1);
        }
    }
}
