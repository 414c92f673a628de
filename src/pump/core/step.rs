//! The step that is being built: its facts and effects.

use std::sync::Arc;

use uuid::Uuid;

use super::Core;
use super::event::{Alarm, Effect};
use super::message::NewMessage;
use crate::clock::Time;
use crate::envelope::{Disposition, Message, Refusal};
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position, ThreadId, TimerId};
use crate::mutant::mutant;
use crate::system::CorePayload;
use crate::thread::{Decision, Fact, Input, Record, Timer, Verdict};

/// The result of processing one event: facts to record, and effects.
#[derive(Debug)]
pub struct Step {
    pub position: Position,
    pub time: Time,
    journal: Uuid,
    /// Tree and input of the record. `None` if nothing needs to be recorded.
    pub record: Option<(ThreadId, Input)>,
    pub facts: Vec<Fact>,
    pub effects: Vec<Effect>,
    ids: u32,
}

impl Step {
    pub(super) fn new(position: Position, time: Time, journal: Uuid) -> Self {
        let facts = Vec::new();
        let effects = Vec::new();
        Self { position, time, journal, record: None, facts, effects, ids: 0 }
    }

    pub(super) fn begin_record(&mut self, tree: ThreadId, input: Input) {
        debug_assert!(self.record.is_none(), "a step is one record");
        self.record = Some((tree, input));
    }

    /// Adds the verdict on a payload to the input of the record. An outcome may contain several
    /// payloads, so its verdicts are collected in a list. A person's answer consists of one
    /// payload, so it has one verdict.
    pub(super) fn push_verdict(&mut self, verdict: Verdict) {
        match &mut self.record {
            Some((_, Input::Outcome { verdicts, .. } | Input::Stray { verdicts, .. })) => {
                verdicts.push(verdict);
            }
            Some((_, Input::Decided { decision: Decision::Answer(answer), .. })) => {
                answer.verdict = verdict;
            }
            _ => {}
        }
    }

    /// Sets the operator whose signature proved the decision.
    pub(super) fn set_operator(&mut self, operator: &ListenerName) {
        match &mut self.record {
            Some((_, Input::Decided { by, .. } | Input::Cancel { by, .. })) => {
                *by = operator.clone();
            }
            Some((_, Input::Pause(action))) => action.by = operator.clone(),
            Some((_, Input::Fork(action))) => action.by = operator.clone(),
            Some((_, Input::OperatorRetry(action))) => action.by = operator.clone(),
            _ => {}
        }
    }

    pub(super) fn set_journal(&mut self, journal: Uuid) {
        self.journal = journal;
    }

    /// Returns the next id. Ids are derived from the journal's id, the step's position and an
    /// index, so that a replay gets the same ids.
    pub(super) fn next_id(&mut self) -> Uuid {
        let mut name = [0u8; 12];
        let (position, index) = name.split_at_mut(8);
        position.copy_from_slice(&self.position.0.to_be_bytes());
        index.copy_from_slice(&self.ids.to_be_bytes());
        self.ids += 1;
        Uuid::new_v5(&self.journal, &name)
    }

    /// Returns the record of the step; `None` if nothing needs to be recorded. The journal later
    /// sets the record's links to earlier records.
    pub fn into_record(self) -> Option<Record> {
        let (tree, input) = self.record?;
        Some(Record {
            position: self.position,
            tree,
            previous: Position::default(),
            previous_hash: Digest::ZERO,
            time: self.time,
            input,
            facts: self.facts,
        })
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Sets the alarms of existing timers. Uses a single effect for all alarms, because there may
    /// be a million timers.
    pub(super) fn set_timer_alarms<'t>(
        &mut self,
        timers: impl Iterator<Item = (&'t TimerId, &'t Timer)>,
    ) {
        let alarm = |(timer, set): (&TimerId, &Timer)| {
            (set.fires_at, Alarm::Timer { timer: *timer, call: set.call })
        };
        let alarms: Vec<_> = timers.map(alarm).collect();
        if !alarms.is_empty() {
            self.effect(Effect::Alarms(alarms));
        }
    }
}

impl Core {
    /// Records a fact and applies it to the state.
    pub(super) fn fact(&mut self, step: &mut Step, fact: Fact) {
        let Some((tree, _)) = &step.record else {
            debug_assert!(false, "a fact outside a record");
            return;
        };
        self.state.apply(tree, step.time, &fact);
        step.facts.push(fact);
    }

    /// Opens a thread that is bound to no call and has no allotment. `by` is the sender that opens
    /// it.
    pub(super) fn open_thread(&mut self, step: &mut Step, thread: &ThreadId, by: &ListenerName) {
        let thread = thread.clone();
        let by = by.clone();
        self.fact(step, Fact::ThreadOpened { thread, by, bound: None, allotment: None });
    }

    /// Gives a message its id, its time and its number in the thread. Records the message, adds it
    /// to the state, and returns it.
    pub(super) fn accept(&mut self, step: &mut Step, message: NewMessage) -> Arc<Message> {
        let seq = self.state.thread(&message.thread).map_or(0, |thread| thread.seq) + 1;
        let (message, opening, key) = message.stamped(step, seq);
        let message = Arc::new(message);
        let stamped = Arc::clone(&message);
        self.fact(step, Fact::Accepted { message, opening, key });
        stamped
    }

    pub(super) fn dispose(&mut self, step: &mut Step, message: MessageId, how: Disposition) {
        if !mutant("forget-a-disposition") {
            self.fact(step, Fact::Disposed { message, how });
        }
    }

    /// Sends a system payload to the callee of `call`, as a message of that call. Returns the
    /// message, or `None` if the call is not open.
    pub(super) fn send_core_payload(
        &mut self,
        step: &mut Step,
        call: CallId,
        cause: Option<MessageId>,
        answer: &CorePayload,
    ) -> Option<Arc<Message>> {
        let open = self.state.call(call)?;
        let message = NewMessage::system(&open.callee, &open.thread, answer);
        Some(self.accept(step, message.caused_by(cause).in_call(call)))
    }

    /// Records and returns a message that is not delivered.
    pub(super) fn note(&mut self, step: &mut Step, message: NewMessage) -> Arc<Message> {
        let message = self.accept(step, message);
        self.dispose(step, message.id, Disposition::Recorded);
        message
    }

    pub(super) fn refuse(
        &mut self,
        step: &mut Step,
        sender: &ListenerName,
        thread: Option<&ThreadId>,
        call: Option<CallId>,
        refusal: Refusal,
    ) {
        let sender = sender.clone();
        let thread = thread.cloned();
        if !mutant("drop-a-refusal") {
            self.fact(step, Fact::Refused { sender, thread, call, refusal });
        }
    }
}
