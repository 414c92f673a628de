//! Processes the outcome of a listener, payload by payload.

use std::sync::Arc;

use super::actions_per_turn::{CALL_BESIDE_REPLY, PlannedAction, TurnActions};
use super::call_table::RunningAttempt;
use super::goals::only_answers;
use super::last_turn::incomplete_answer;
use super::message::NewMessage;
use super::recorded_events::RecordedEvent;
use super::refusals::refusal_of;
use super::{Core, Step};
use crate::clock::Time;
use crate::contract::{Contract, Meaning};
use crate::envelope::{
    BrokenPayload, Disposition, MessageKind, Refusal, RefusalRule, Turn, WrittenPayload,
};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::pump::gate::{Checked, NOT_IN_VOCABULARY};
use crate::system::{CorePayload, ErrorCode, Huh, WaitFor};
use crate::thread::{Call, Fact, Input, Verdict};
use crate::xml::findings::TextLocation;

/// A payload that the gate has accepted, or the gate's refusal of the payload.
pub(super) type Gated = Result<Checked, Refusal>;

/// Listener, call and attempt from which an outcome or a failure came.
#[derive(Debug, Clone)]
pub(super) struct AttemptSource {
    pub listener: ListenerName,
    pub call: CallId,
    pub attempt: Attempt,
}

/// The call that an outcome belongs to, with the data that the core needs to process the outcome.
pub(super) struct OutcomeContext {
    pub call: CallId,
    /// The message that is recorded as the cause of each call that the outcome opens.
    pub cause: MessageId,
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub receives_refusals: bool,
    /// `seq` of the first message that the outcome produces.
    pub first_seq: u64,
    /// Number of messages of the thread that the listener has seen so far, including those of this
    /// delivery.
    pub shown: u32,
    /// Whether the call was delivered before. If it was, the call may have had effects even if this
    /// delivery had none.
    pub was_delivered: bool,
    /// Calls to the listener in the same thread that were queued since the hand-over of the
    /// delivery.
    pub later_calls: Vec<CallId>,
}

impl OutcomeContext {
    pub fn new(
        call: CallId,
        listener: &ListenerName,
        thread: &ThreadId,
        receives_refusals: bool,
    ) -> Self {
        let listener = listener.clone();
        let thread = thread.clone();
        let cause = call.0;
        Self {
            call,
            cause,
            listener,
            thread,
            receives_refusals,
            first_seq: 0,
            shown: 0,
            was_delivered: false,
            later_calls: Vec::new(),
        }
    }

    /// Returns this context with `cause` as the recorded cause of the calls that the outcome opens.
    #[must_use]
    pub fn caused_by(self, cause: MessageId) -> Self {
        Self { cause, ..self }
    }

    /// Makes a message in the call's thread from a payload of the listener's outcome.
    pub fn message(&self, kind: MessageKind, to: &ListenerName, checked: &Checked) -> NewMessage {
        let message = NewMessage::checked(kind, &self.listener, to, &self.thread, checked);
        message.caused_by(self.call.0)
    }
}

impl Core {
    /// Processes the outcome of an attempt. In a fork, an agent may repeat a turn that the fork's
    /// source has recorded. An outcome with such a turn first waits until the earlier recorded
    /// results and turns of the source have taken effect in the fork.
    pub(super) fn outcome(
        &mut self,
        step: &mut Step,
        source: AttemptSource,
        payloads: Vec<Gated>,
        turn: Option<Box<Turn>>,
        arrived: Option<Time>,
    ) {
        let position = turn.as_ref().and_then(|turn| turn.recorded);
        let open = position.and_then(|_| self.state.call(source.call));
        let fork = open.map(|open| open.thread.root()).filter(|fork| self.keeps_order_in(fork));
        match (fork, position, turn) {
            (Some(fork), Some(position), Some(turn)) if self.is_running(&source) => {
                let arrived = arrived.or(Some(step.time));
                let event = RecordedEvent::Turn { source, payloads, turn, arrived };
                self.keep_recorded(step, fork, position, event);
            }
            (.., turn) => self.take_outcome(step, source, payloads, turn, arrived),
        }
    }

    fn is_running(&self, source: &AttemptSource) -> bool {
        let running = self.calls.running(source.call);
        running.is_some_and(|running| running.attempt == source.attempt)
    }

    pub(super) fn take_outcome(
        &mut self,
        step: &mut Step,
        source: AttemptSource,
        payloads: Vec<Gated>,
        turn: Option<Box<Turn>>,
        arrived: Option<Time>,
    ) {
        // The time of arrival is recorded only if the deadline has passed since. Otherwise the time
        // of the record suffices.
        let has_passed = self.timeouts.has_passed(source.call, source.attempt, step.time);
        let input = Input::Outcome {
            listener: source.listener.clone(),
            call: source.call,
            attempt: source.attempt,
            verdicts: Vec::new(),
            turn: turn.clone().map(|turn| without_note(*turn)),
            arrived: arrived.filter(|_| has_passed),
        };

        if let Some(orphan) = self.end_orphan(&source) {
            step.begin_record(orphan.thread.root(), input);
            self.late_outcome(step, &source, &orphan, payloads, turn);
            self.charge_reservation(step, source.call, source.attempt);
        } else if let Some((mut context, contract)) = self.context(&source) {
            step.begin_record(context.thread.root(), input);
            let Some(running) = self.end_attempt(&source, &contract) else {
                return self.stale_outcome(step, &source, Some(&context.thread), payloads);
            };
            self.record_presence(&context.listener);
            self.record_outcome_received(step, &mut context, source.attempt, &running);
            self.outcome_call = Some(context.call);
            if context.receives_refusals {
                self.agent_outcome(step, &context, &contract, payloads, turn);
            } else {
                self.listener_outcome(step, &context, payloads);
            }
            self.outcome_call = None;
            match running.stop_reason {
                // Without this, the listener would get the call again after the resume.
                Some(text) => self.cancel_stopped(step, context.call, &text),
                None => self.wake(step, context.call),
            }
        } else {
            step.begin_record(ThreadId::organism(), input);
            self.stale_outcome(step, &source, None, payloads);
        }
    }

    /// Returns the context of an outcome, and the contract of its listener. Returns `None` if the
    /// call is closed, or if the sender of the outcome is not the callee.
    fn context(&self, source: &AttemptSource) -> Option<(OutcomeContext, Arc<Contract>)> {
        let is_asked = |callee: &ListenerName| *callee == source.listener || mutant("trust-from");
        let open = self.state.call(source.call).filter(|open| is_asked(&open.callee))?;
        let contract = self.contract_of_call(open).cloned()?;
        let judged_alone = contract.receives_refusals();
        let context = OutcomeContext::new(source.call, &open.callee, &open.thread, judged_alone);
        // A lost attempt of an earlier pump counts as a failure before the call is delivered again.
        let was_delivered = open.turns > 0 || open.failures > 0;
        Some((OutcomeContext { was_delivered, ..context }, contract))
    }

    /// Records that an outcome was received. The messages of its delivery get the disposition
    /// `handled`. Sets `first_seq`, `shown` and `later_calls` of `context`.
    fn record_outcome_received(
        &mut self,
        step: &mut Step,
        context: &mut OutcomeContext,
        attempt: Attempt,
        running: &RunningAttempt,
    ) {
        self.fact(step, Fact::OutcomeReceived { call: context.call, attempt });
        for message in &running.delivered {
            self.dispose(step, *message, Disposition::Handled);
        }

        context.later_calls.clone_from(&running.later_calls);
        if let Some(thread) = self.state.thread(&context.thread) {
            context.first_seq = thread.seq + 1;
            context.shown = thread.shown.get(&context.listener).copied().unwrap_or(0);
        }
    }

    /// Processes the outcome of a listener that is not an agent. If the gate has refused one of the
    /// payloads, refuses all payloads and fails the call. Does the same if one of the payloads is a
    /// preview, because only the answer to a request for a preview may contain one. If the pump
    /// refuses a payload that the gate has accepted, for example as `busy`, the other payloads are
    /// not affected.
    fn listener_outcome(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        payloads: Vec<Gated>,
    ) {
        if let [Ok(checked)] = payloads.as_slice()
            && *checked.meaning() == Meaning::StalePreview
            && self.has_approved_preview(context.call)
        {
            return self.stale_preview(step, context, checked);
        }

        let payloads = payloads.into_iter().map(|payload| payload.and_then(no_preview));
        let payloads: Vec<Gated> = payloads.collect();
        let rubbish = |payload: &Gated| matches!(payload, Err(refusal) if refusal.name.is_none());
        if payloads.iter().any(rubbish) {
            for payload in payloads {
                let spoiled =
                    |checked: Checked| refusal_of(RefusalRule::CallClosed, SPOILED, &checked);
                let refusal = payload.map_or_else(|refusal| refusal, spoiled);
                step.push_verdict(Verdict::Refused(refusal.digest));
                self.refuse_in(step, context, refusal);
            }
            let text = format!("{} gave an answer that cannot be used", context.listener);
            return self.fail(step, context.call, ErrorCode::ListenerFailed, &text);
        }

        if payloads.is_empty() {
            return self.nothing_more(step, context.call);
        }

        let replies = payloads.iter().flatten().any(is_reply);
        let mut finals = Vec::new();

        for payload in payloads {
            let taken = payload.and_then(|checked| {
                if is_reply(&checked) {
                    finals.push(checked.clone());
                    Ok(checked)
                } else if replies {
                    Err(refusal_of(RefusalRule::CallBesideReply, CALL_BESIDE_REPLY, &checked))
                } else {
                    self.act(step, context, &checked).map(|()| checked)
                }
            });
            self.settle(step, context, taken);
        }

        self.reply(step, context, finals);
    }

    /// Handles a `stale-preview` and ends the call. With this payload, the listener states that it
    /// did nothing in this delivery, because the preview that was approved with the call is no
    /// longer valid. If an earlier delivery of the call may have had effects, the call ends as
    /// `unknown-outcome`, so that the error does not invite the caller to send the call again.
    fn stale_preview(&mut self, step: &mut Step, context: &OutcomeContext, checked: &Checked) {
        let OutcomeContext { call, listener, thread, .. } = context;
        step.push_verdict(Verdict::Passed(checked.payload().digest));
        self.own_note(step, listener, thread, *call, checked);

        let (code, text) = if context.was_delivered && !mutant("believe-a-late-stale-preview") {
            let text = format!(
                "what {listener} would do is no longer what the approved preview shows, and an \
                 earlier delivery of this call may have had effects; find out whether it had before \
                 you send it again"
            );
            (ErrorCode::UnknownOutcome, text)
        } else {
            let text = format!(
                "{listener} did nothing, because what it would do is no longer what the approved \
                 preview shows; send it again for a new preview and a new decision"
            );
            (ErrorCode::StalePreview, text)
        };
        self.fail(step, *call, code, &text);
    }

    fn has_approved_preview(&self, call: CallId) -> bool {
        let open = self.state.call(call);
        open.is_some_and(|open| open.approved && open.recorded_preview().is_some())
    }

    /// Handles an outcome without actions and replies, which only acknowledges the delivery. If the
    /// call still has to get a result of a subthread or a message of a timer, lets the call wait.
    /// Otherwise, ends the call.
    fn nothing_more(&mut self, step: &mut Step, call: CallId) {
        let is_owed = |open: &Call| open.has_open() || open.has_news();
        if self.state.call(call).is_some_and(is_owed) && !mutant("acknowledge-too-early") {
            self.fact(step, Fact::Waiting { call, until: WaitFor::Any });
        } else {
            self.acknowledge(step, call);
        }
    }

    fn agent_outcome(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        contract: &Contract,
        payloads: Vec<Gated>,
        turn: Option<Box<Turn>>,
    ) {
        if payloads.is_empty() && !contract.spends() {
            return self.nothing_more(step, context.call);
        }

        let mut turn = turn.unwrap_or_default();
        let mut written = std::mem::take(&mut turn.written);
        self.model_turn(step, context, &turn, None);
        let payloads = only_answers(self.goal_of(context.call).as_ref(), payloads);
        let mut actions = TurnActions::new(contract.actions_per_turn, turn.spent, &payloads);
        let mut finals = Vec::new();
        let mut refused = None;
        let mut has_action = false;

        for item in in_order(payloads, &turn.broken) {
            let payload = match item {
                TurnItem::Broken(broken) => {
                    refused = Some(broken.rule());
                    self.broken(step, context, broken);
                    continue;
                }
                TurnItem::Gated(payload) => {
                    payload.map_err(|refusal| as_written(refusal, &mut written))
                }
            };
            let taken = payload.and_then(|checked| match actions.verdict(&checked) {
                PlannedAction::Note => {
                    let listener = &context.listener;
                    let thread = &context.thread;
                    self.own_note(step, listener, thread, context.call, &checked);
                    Ok(checked)
                }
                PlannedAction::RecordDefinition => {
                    self.continue_own(step, context, &checked);
                    Ok(checked)
                }
                PlannedAction::Final => {
                    finals.push(checked.clone());
                    Ok(checked)
                }
                PlannedAction::Act => self.act(step, context, &checked).map(|()| checked),
                PlannedAction::Refuse(rule, text) => Err(refusal_of(rule, text, &checked)),
            });
            has_action |= !matches!(&taken, Ok(checked) if *checked.meaning() == Meaning::Note);
            let rule = taken.as_ref().err().map(|refusal| refusal.rule);
            refused = rule.filter(|rule| *rule != RefusalRule::BudgetSpent).or(refused);
            self.settle(step, context, taken);
        }

        if let Some(huh) = Huh::about(&turn.findings) {
            self.send_core_payload(step, context.call, None, &CorePayload::Huh(huh));
        }

        self.reply(step, context, finals);
        // A last turn that replied has closed the call, so this fails nothing. A forwarded call
        // ends the agent's call with its own result.
        if let Some(spent) = turn.spent
            && !self.state.call(context.call).is_some_and(Call::awaits_forwarded)
        {
            let incomplete = if has_action { None } else { incomplete_answer(&turn) };
            self.iterations_spent(step, context.call, spent, (refused, incomplete));
        }
    }

    /// Records the note about a turn of an agent, before the payloads of the turn are recorded. If
    /// the agent's call was already closed when the turn arrived, `late` is the attempt that made
    /// the turn. If the agent's call is open, `late` is `None`.
    pub(super) fn model_turn(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        turn: &Turn,
        late: Option<Attempt>,
    ) {
        if turn.note.is_empty() {
            return;
        }

        let answer = CorePayload::ModelTurn(turn.note.clone());
        let payload = (&answer.name(), &answer.payload());
        let core = ListenerName::core();
        let note =
            NewMessage::new(MessageKind::Note, &core, &context.listener, &context.thread, payload);
        self.note(step, note.caused_by(context.call.0).in_call(context.call));
        let call = context.call;
        let agent = Some(context.listener.clone());
        let Turn { tokens_in, tokens_out, money, .. } = *turn;
        self.fact(step, Fact::Used { call, agent, tokens_in, tokens_out, money, attempt: late });
    }

    /// Records the verdict on a payload of an outcome. If the payload was refused, also handles the
    /// refusal.
    fn settle(&mut self, step: &mut Step, context: &OutcomeContext, taken: Gated) {
        step.push_verdict(Verdict::from(&taken));
        if let Err(refusal) = taken {
            self.refuse_payload(step, context, refusal);
        }
    }

    pub(super) fn own_note(
        &mut self,
        step: &mut Step,
        listener: &ListenerName,
        thread: &ThreadId,
        call: CallId,
        checked: &Checked,
    ) {
        let note = NewMessage::checked(MessageKind::Note, listener, listener, thread, checked);
        self.note(step, note.caused_by(call.0).in_call(call));
    }

    /// Refuses an answer that names a wrong attempt (see [`super::event::Event::Stray`]), and
    /// records the refusal. The attempt that the answer names is not affected, even if it exists.
    pub(super) fn stray(
        &mut self,
        step: &mut Step,
        listener: ListenerName,
        named: String,
        payloads: Vec<Gated>,
    ) {
        let message = format!("an answer to {named}, which its instance did not have at hand");
        let verdicts = Vec::new();
        let input = Input::Stray { listener: listener.clone(), named, verdicts };
        step.begin_record(ThreadId::organism(), input);
        if payloads.is_empty() {
            let refusal = Refusal::new(RefusalRule::StrayAnswer, message, b"");
            return self.refuse(step, &listener, None, None, refusal);
        }

        for payload in payloads {
            let stray = |checked: Checked| refusal_of(RefusalRule::StrayAnswer, &message, &checked);
            let refusal = payload.map_or_else(|refusal| refusal, stray);
            step.push_verdict(Verdict::Refused(refusal.digest));
            self.refuse(step, &listener, None, None, refusal);
        }
    }

    /// Refuses the payloads of an answer to an attempt that is not the current attempt of its call.
    /// `thread` is the thread of the call. It is `None` if the call is closed, or if the answer
    /// does not come from the listener of the call.
    pub(super) fn stale_outcome(
        &mut self,
        step: &mut Step,
        source: &AttemptSource,
        thread: Option<&ThreadId>,
        payloads: Vec<Gated>,
    ) {
        let AttemptSource { call, attempt, .. } = source;
        // This refusal is not in the call's thread, so its text names the call.
        let of_call = if thread.is_none() { format!(" of the call {call}") } else { String::new() };
        let message = format!("attempt {attempt}{of_call} is no longer the current one");
        let callee = self.state.call(source.call).map(|open| open.callee.clone());
        let claimed = callee.filter(|_| mutant("record-the-claimed-name"));
        let sender = claimed.as_ref().unwrap_or(&source.listener);

        for payload in payloads {
            let stale =
                |checked: Checked| refusal_of(RefusalRule::StaleAttempt, &message, &checked);
            let refusal = payload.map_or_else(|refusal| refusal, stale);
            step.push_verdict(Verdict::Refused(refusal.digest));
            self.refuse(step, sender, thread, Some(source.call), refusal);
        }
    }
}

/// Returns a turn without the parts that the turn's record stores elsewhere or not at all:
///
/// - the `<model-turn>` payload, recorded as a note,
/// - the locations of refused payloads, recorded in their refusals,
/// - the input of the model, stored in the journal under its digest,
/// - for a turn that a fork repeats, the position of the original turn in the fork's source.
fn without_note(turn: Turn) -> Turn {
    Turn { note: String::new(), written: Vec::new(), inputs: None, recorded: None, ..turn }
}

/// Sets the location in `refusal` to the place where the model wrote the refused payload. Takes
/// this place out of `written`. If `written` lacks the payload, returns `refusal` unchanged.
fn as_written(mut refusal: Refusal, written: &mut Vec<WrittenPayload>) -> Refusal {
    let found = written.iter().position(|candidate| candidate.payload == refusal.digest);
    let Some(original) = found.map(|at| written.remove(at)) else { return refusal };

    refusal.message = without_lines(&refusal.message);
    if let Some(place) = &mut refusal.place {
        let path = place.path.take();
        *place = TextLocation { path, ..original.place };
    }

    if refusal.expected.is_some() && original.expected.is_some() {
        refusal.expected = original.expected;
    }

    refusal
}

pub(super) const CALL_CLOSED: &str = "the call this belongs to already has its result";

const SPOILED: &str = "not taken: another payload of the same answer was refused";

/// Refuses a `preview` or a `stale-preview`, as the gate refuses a payload outside the vocabulary.
/// Returns any other payload unchanged. A preview is valid only as the answer to the request for a
/// preview. A `stale-preview` is valid only alone, as the answer to a delivery that names an
/// approved preview.
fn no_preview(checked: Checked) -> Gated {
    match checked.meaning() {
        // The refusal has no name, as those of the gate, so that a replay spoils the outcome, too.
        Meaning::Preview | Meaning::StalePreview => {
            let text = checked.payload().as_str().as_bytes();
            Err(Refusal::new(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, text))
        }
        _ => Ok(checked),
    }
}

pub(super) fn is_reply(checked: &Checked) -> bool {
    matches!(checked.meaning(), Meaning::Reply | Meaning::GoalAnswer)
}

impl From<&Gated> for Verdict {
    fn from(payload: &Gated) -> Self {
        match payload {
            Ok(checked) => Self::Passed(checked.payload().digest),
            Err(refusal) => Self::Refused(refusal.digest),
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "most items are gated, and live for one step")]
enum TurnItem<'a> {
    Gated(Gated),
    Broken(&'a BrokenPayload),
}

/// Returns the payloads and the broken actions of a turn in the order in which the model wrote
/// them. A broken action is incomplete or not well-formed.
fn in_order(payloads: Vec<Gated>, broken: &[BrokenPayload]) -> Vec<TurnItem<'_>> {
    let mut items: Vec<_> = payloads.into_iter().map(TurnItem::Gated).collect();
    for broken_payload in broken {
        items.insert(broken_payload.index.min(items.len()), TurnItem::Broken(broken_payload));
    }
    items
}

/// Shortens positions in an error message: `at line 3, column 1 (/task)` becomes `at /task`,
/// because the numbers do not count from the beginning of the model's text. Positions without a
/// path are left as they are.
fn without_lines(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(AT_LINE) {
        out.push_str(before);
        let path = after.split_once(" (").filter(|(numbers, _)| is_line_and_column(numbers));
        match path.and_then(|(_, path)| path.split_once(')')) {
            Some((path, behind)) => {
                out.push_str(" at ");
                out.push_str(path);
                rest = behind;
            }
            None => {
                out.push_str(AT_LINE);
                rest = after;
            }
        }
    }

    out.push_str(rest);
    out
}

const AT_LINE: &str = " at line ";

/// Whether a text is the part of a position after the word `line`, such as `3, column 1`.
fn is_line_and_column(text: &str) -> bool {
    let numbers = text.split_once(", column ");
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(line, column)| is_number(line) && is_number(column))
}
