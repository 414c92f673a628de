//! Recorded events of forks. A recorded event is the result of a call, the turn of an agent, or the
//! firing of a timer, as the source of the fork has recorded it.
//!
//! Recorded events take effect one after another, in the order of the source. Each takes effect
//! only when every open call of the fork waits. So the results of parallel work arrive in the same
//! order as in the source, even if the work takes more or less time. An agent that acts as in the
//! source therefore gets the same prompts.
//!
//! A drain does not wait for calls: all waiting recorded events take effect at once, still in the
//! order of the source. A timer of a paused call keeps its place until the pause ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::event::{Alarm, Effect};
use super::forks::CallRecollection;
use super::outcome::{AttemptSource, Gated};
use super::{Core, Step};
use crate::clock::Time;
use crate::envelope::Turn;
use crate::ids::{Attempt, CallId, ListenerName, Position, ThreadId, TimerId};
use crate::mutant::mutant;
use crate::pump::gate::Gate;
use crate::thread::Call;

/// An event that a fork's source has recorded, and that takes effect in the fork, too.
#[derive(Debug, Clone)]
pub(super) enum RecordedEvent {
    Result {
        call: CallId,
        found: CallRecollection,
    },
    Turn {
        source: AttemptSource,
        payloads: Vec<Gated>,
        turn: Box<Turn>,
        arrived: Option<Time>,
    },
    /// A timer of the fork fires. If the timer has ended before this event takes effect, nothing
    /// happens.
    Timer {
        timer: TimerId,
        /// The call that has set the timer. The call can continue while this event waits.
        call: CallId,
    },
}

impl RecordedEvent {
    const fn call(&self) -> CallId {
        match self {
            Self::Result { call, .. } | Self::Timer { call, .. } => *call,
            Self::Turn { source, .. } => source.call,
        }
    }

    /// Whether `call` cannot continue until this event has taken effect.
    fn holds_up(&self, call: CallId) -> bool {
        self.call() == call && !matches!(self, Self::Timer { .. })
    }
}

/// The recorded events that have not taken effect in their forks yet. The journal does not contain
/// this table. After a boot, new searches in the sources of the forks and new attempts of agents
/// fill it again.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordedEvents {
    /// For each fork, its recorded events, ordered by their position in the fork's source and then
    /// by their call in the fork.
    waiting: BTreeMap<ThreadId, BTreeMap<(Position, CallId), RecordedEvent>>,
    /// The calls that are kept back, each with the root thread of its fork. Such a call has no
    /// recorded result and waits for other calls.
    kept_back: BTreeMap<CallId, ThreadId>,
    /// The timers for which a search in the source is in progress, each with the root thread of its
    /// fork. The call is a part of the key, because several forks that begin at the same turn take
    /// over the same timers, with their ids.
    searched: BTreeMap<(CallId, TimerId), ThreadId>,
}

impl RecordedEvents {
    fn push(&mut self, fork: ThreadId, position: Position, event: RecordedEvent) {
        self.kept_back.remove(&event.call());
        self.waiting.entry(fork).or_default().insert((position, event.call()), event);
    }

    pub(super) fn keep_back(&mut self, call: CallId, fork: ThreadId) {
        self.kept_back.insert(call, fork);
    }

    pub(super) fn begin_search(&mut self, timer: TimerId, call: CallId, fork: ThreadId) {
        self.searched.insert((call, timer), fork);
    }

    /// Ends the search for a timer of a call, and returns the root thread of the call's fork.
    /// Returns `None` if the call has closed since the search began.
    pub(super) fn end_search(&mut self, timer: TimerId, call: CallId) -> Option<ThreadId> {
        self.searched.remove(&(call, timer))
    }

    /// Whether a search for a timer of the fork is in progress.
    pub(super) fn searches_timer(&self, fork: &ThreadId) -> bool {
        self.searched.values().any(|own| own == fork)
    }

    pub(super) fn is_kept_back(&self, call: CallId) -> bool {
        self.kept_back.contains_key(&call)
    }

    /// Removes a call from the calls that are kept back, because the call starts now.
    pub(super) fn release(&mut self, call: CallId) {
        self.kept_back.remove(&call);
    }

    /// Removes a closed call of a fork from this table, with the call's recorded result, its
    /// timers, and the searches for these timers. Keeps a recorded turn of the call, because the
    /// attempt that made the turn ends only when the turn is processed.
    pub(super) fn forget(&mut self, fork: &ThreadId, call: CallId) {
        self.kept_back.remove(&call);
        self.searched.retain(|(own, _), _| *own != call);
        let Some(events) = self.waiting.get_mut(fork) else { return };
        events
            .retain(|_, event| event.call() != call || matches!(event, RecordedEvent::Turn { .. }));
        if events.is_empty() {
            self.waiting.remove(fork);
        }
    }

    /// Returns the calls of a fork that are kept back.
    pub(super) fn kept_back_in(&self, fork: &ThreadId) -> impl Iterator<Item = CallId> {
        let kept = self.kept_back.iter().filter(move |(_, own)| *own == fork);
        kept.map(|(call, _)| *call)
    }

    /// Whether an event of the fork waits, or a search may find one.
    pub(super) fn has_any(&self, fork: &ThreadId) -> bool {
        self.waiting.contains_key(fork) || self.searches_timer(fork)
    }

    /// Whether this call of the fork cannot continue until a waiting event has taken effect.
    fn holds_up(&self, fork: &ThreadId, call: CallId) -> bool {
        let events = self.waiting.get(fork);
        events.is_some_and(|events| events.values().any(|event| event.holds_up(call)))
    }

    /// Returns the fork in which an event of this call waits, or `None` if no event of the call
    /// waits.
    pub(super) fn fork_of(&self, call: CallId) -> Option<ThreadId> {
        let has_event = |events: &BTreeMap<(Position, CallId), RecordedEvent>| {
            events.keys().any(|(_, waiting)| *waiting == call)
        };
        let mut forks = self.waiting.iter();
        forks.find(|(_, events)| has_event(events)).map(|(fork, _)| fork.clone())
    }

    fn take(&mut self, fork: &ThreadId, key: (Position, CallId)) -> Option<RecordedEvent> {
        let events = self.waiting.get_mut(fork)?;
        let event = events.remove(&key);
        if events.is_empty() {
            self.waiting.remove(fork);
        }
        event
    }

    /// Removes and returns the waiting event that holds a call up, even if it is not the next event
    /// of the fork. Returns `None` if there is none.
    pub(super) fn take_of(&mut self, fork: &ThreadId, call: CallId) -> Option<RecordedEvent> {
        let events = self.waiting.get_mut(fork)?;
        let key = *events.iter().find(|(_, event)| event.holds_up(call))?.0;
        self.take(fork, key)
    }

    pub(super) fn forks(&self) -> impl Iterator<Item = &ThreadId> {
        self.waiting.keys()
    }

    /// Checks the payloads of all waiting events again (see [`Core::check_recorded_again`]).
    fn check_again(
        &mut self,
        gate: &Gate,
        gate_of: impl Fn(CallId, Attempt) -> Arc<Gate>,
    ) -> Vec<CallId> {
        let mut dropped = Vec::new();
        for events in self.waiting.values_mut() {
            events.retain(|_, event| match event {
                RecordedEvent::Turn { source, payloads, .. } => {
                    let gate = gate_of(source.call, source.attempt);
                    for payload in payloads {
                        if let Ok(checked) = payload {
                            *payload = gate.check_again(&source.listener, checked);
                        }
                    }
                    true
                }
                RecordedEvent::Result { call, found } => {
                    let passes = found.passes(gate);
                    if !passes {
                        dropped.push(*call);
                    }
                    passes
                }
                RecordedEvent::Timer { .. } => true,
            });
        }

        self.waiting.retain(|_, events| !events.is_empty());
        dropped
    }

    /// Returns the number of deliveries to `listener` whose recorded turns wait, in all forks. Each
    /// of them keeps its share of the listener's capacity until its turn has taken effect.
    fn waiting_turns(&self, listener: &ListenerName) -> usize {
        let events = self.waiting.values().flat_map(BTreeMap::values);
        let turns = events.filter(|event| match event {
            RecordedEvent::Turn { source, .. } => source.listener == *listener,
            RecordedEvent::Result { .. } | RecordedEvent::Timer { .. } => false,
        });
        turns.count()
    }
}

impl Core {
    /// Checks the payloads of all recorded events that wait again, because a reload puts another
    /// config in force. `gate` is the gate of the new config, which checks results. `gate_of`
    /// returns the gate that checks the answer to an attempt.
    ///
    /// Removes each result that does not pass, and returns the calls of these results. After the
    /// step of the reload, the caller must process [`super::Event::Searched`] without a result for
    /// each of these calls, as if the source of the fork had none.
    pub fn check_recorded_again(
        &mut self,
        gate: &Gate,
        gate_of: impl Fn(CallId, Attempt) -> Arc<Gate>,
    ) -> Vec<CallId> {
        self.recorded.check_again(gate, gate_of)
    }

    /// Whether the turn that ends this attempt has arrived, and waits until the earlier recorded
    /// events of its fork have taken effect.
    pub fn has_waiting_turn(&self, call: CallId, attempt: Attempt) -> bool {
        let mut events = self.recorded.waiting.values().flat_map(BTreeMap::values);
        events.any(|event| match event {
            RecordedEvent::Turn { source, .. } => (source.call, source.attempt) == (call, attempt),
            RecordedEvent::Result { .. } | RecordedEvent::Timer { .. } => false,
        })
    }

    /// Keeps a recorded event until it may take effect in the order of the fork's source.
    pub(super) fn keep_recorded(
        &mut self,
        step: &mut Step,
        fork: ThreadId,
        position: Position,
        event: RecordedEvent,
    ) {
        self.recorded.push(fork.clone(), position, event);
        self.follow_order(step, &fork);
        // The turns that wait at a listener may now hold all of its capacity.
        self.follow_other_forks(step, &fork);
    }

    /// Triggers the next recorded event of each fork in memory, except the fork `root`, if nothing
    /// else in that fork can continue. Must be called when a change outside a fork may block a
    /// queued call of the fork. Such a change leaves no record in the tree of the fork.
    pub(super) fn follow_other_forks(&self, step: &mut Step, root: &ThreadId) {
        // The record that brings a tree back into memory triggers its events.
        let is_in_memory = |fork: &&ThreadId| self.state.trees.resident(fork).is_some();
        let others = self.recorded.forks().filter(|fork| *fork != root);
        others.filter(is_in_memory).for_each(|fork| self.follow_recorded(step, fork));
    }

    /// Whether recorded events of this fork must take effect in the order of its source.
    pub(super) fn keeps_order_in(&self, fork: &ThreadId) -> bool {
        let tree = self.state.trees.get(fork);
        tree.is_some_and(|tree| tree.lineage.is_some()) && !mutant("take-the-record-as-it-comes")
    }

    /// Triggers the next recorded event of a fork if nothing else in the fork can continue.
    pub(super) fn follow_recorded(&self, step: &mut Step, fork: &ThreadId) {
        let Some((_, call)) = self.next_recorded(fork) else { return };
        if self.takes_recorded(fork) {
            step.effect(Effect::Alarm { at: step.time, alarm: Alarm::Recorded { call } });
        }
    }

    /// Whether the next recorded event of the fork may take effect now. False while a search for a
    /// timer of the fork is in progress. Otherwise, true if every open call of the fork waits, or
    /// if the pump drains. A pump that drains from its boot on keeps the order, because the work
    /// that comes first in the source has not begun yet: it goes on at the next start.
    fn takes_recorded(&self, fork: &ThreadId) -> bool {
        let ends_its_work = self.draining && !self.drains_from_boot;
        !self.recorded.searches_timer(fork) && (ends_its_work || self.awaits_record(fork))
    }

    /// Returns the key of the recorded event of the fork that takes effect next: of the waiting
    /// events, the one that the fork's source recorded first. Returns `None` if there is none.
    ///
    /// Skips timers of paused calls, which fire at the resume. Such a timer must not delay the
    /// other events: a turn that waits keeps a share of its listener's capacity, which calls of
    /// other trees may need.
    pub(super) fn next_recorded(&self, fork: &ThreadId) -> Option<(Position, CallId)> {
        let is_paused = |call| self.state.call(call).is_some_and(|open| self.is_paused(open));
        let takes_effect = |call: CallId, event: &RecordedEvent| match event {
            RecordedEvent::Timer { .. } => !is_paused(call),
            RecordedEvent::Result { .. } | RecordedEvent::Turn { .. } => true,
        };
        let mut events = self.recorded.waiting.get(fork)?.iter();
        let next = events.find(|((_, call), event)| takes_effect(*call, event));
        next.map(|(key, _)| *key)
    }

    /// Starts this call if it is kept back. Otherwise processes the next recorded event of the fork
    /// that contains the call. Does nothing if something else in the fork can continue by now.
    pub(super) fn recorded_alarm(&mut self, step: &mut Step, call: CallId) {
        if self.recorded.is_kept_back(call) {
            return self.start_kept_back(step, call);
        }

        let Some(fork) = self.recorded.fork_of(call) else { return };
        if !self.takes_recorded(&fork) {
            return;
        }
        let next = self.next_recorded(&fork);
        if let Some(event) = next.and_then(|next| self.recorded.take(&fork, next)) {
            self.process_recorded(step, event);
        }
        // Without an event, or after an obsolete one, no record triggers what comes next.
        if step.record.is_none() {
            self.follow_order(step, &fork);
        }
    }

    pub(super) fn process_recorded(&mut self, step: &mut Step, event: RecordedEvent) {
        match event {
            RecordedEvent::Result { call, found } => self.take_recalled(step, call, Some(found)),
            RecordedEvent::Turn { source, payloads, turn, arrived } => {
                self.take_outcome(step, source, payloads, Some(turn), arrived);
            }
            RecordedEvent::Timer { timer, call } => self.fire_timer(step, timer, call),
        }
    }

    /// Whether every open call of the fork waits, so that the next recorded event can take effect.
    /// A call waits in these cases:
    ///
    /// - It is held for a person.
    /// - A recorded event of the call has not taken effect yet.
    /// - It is kept back.
    /// - It waits for another call, for a timer, or for the end of a pause.
    /// - It is queued, and leaves its queue only after a recorded event has taken effect (see
    ///   [`Core::waits_for_record`]).
    ///
    /// A call does not count as waiting while its listener works on it, or while a search for its
    /// result is in progress. Nor does a call that waits for a retry, or a queued call that does
    /// not wait for a recorded event.
    fn awaits_record(&self, fork: &ThreadId) -> bool {
        let Some(tree) = self.state.trees.get(fork) else { return true };
        let waits = |(id, call): (&CallId, &Call)| {
            self.recorded.holds_up(fork, *id)
                || self.recorded.is_kept_back(*id)
                || call.held.is_some()
                || (!self.awaits_recall(call) && (self.rests(call) || self.waits_for_record(call)))
        };
        tree.calls.iter().all(|(id, call)| waits((id, call)))
    }

    /// Whether only recorded events keep a queued call in its queue. True in two cases:
    ///
    /// - Another call occupies the call's thread at the listener. This other call has a recorded
    ///   turn that waits, or is open. [`Core::awaits_record`] checks an open call separately.
    /// - Recorded turns that wait hold the whole capacity of the listener. They may be turns of
    ///   other forks: if they did not count, two forks could wait for each other.
    ///
    /// If the result is false, the call can continue without a recorded event. Either a delivery in
    /// progress at its listener ends by itself, or an alarm ends the call or its wait.
    fn waits_for_record(&self, call: &Call) -> bool {
        if !self.scheduler.is_waiting(call.id) {
            return false;
        }

        let holder = self.scheduler.holder(&call.callee, &call.thread);
        if let Some(holder) = holder.filter(|holder| *holder != call.id) {
            return self.state.call(holder).is_some() || self.recorded.fork_of(holder).is_some();
        }

        let Some(contract) = self.contract_of_work(&call.callee) else { return false };
        let places = usize::try_from(contract.concurrency).unwrap_or(usize::MAX);
        !self.scheduler.has_capacity(contract)
            && self.recorded.waiting_turns(&call.callee) >= places
    }

    /// Whether a recorded event of this call waits because other work of its fork can go on, or
    /// because an earlier recorded event waits.
    pub(super) fn waits_for_its_order(&self, fork: &ThreadId, call: CallId) -> bool {
        let is_next = || self.next_recorded(fork).is_some_and(|(_, next)| next == call);
        self.recorded.holds_up(fork, call)
            && self.keeps_order_in(fork)
            && !(self.takes_recorded(fork) && is_next())
    }
}
