//! Primitives: requests of listeners to the core, such as to spawn a thread or to set a timer. The
//! core answers a primitive in the same step.

use std::collections::BTreeSet;

use super::outcome::OutcomeContext;
use super::refusals::refusal_of;
use super::submit::UNKNOWN_THREAD;
use super::{Core, Step, allotments};
use crate::contract::Role;
use crate::envelope::{Disposition, MessageKind, Refusal, RefusalRule};
use crate::ids::{CallId, ListenerName, MessageId, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::plural::{count, form};
use crate::pump::gate::Checked;
use crate::system::{CorePayload, ErrorCode, Primitive, WaitFor};
use crate::thread::{Allotment, Call, Fact};
use crate::xml::findings::TextLocation;

impl Core {
    /// Carries out a primitive, which is a payload to the core such as `spawn-thread`, and answers
    /// it in the same step. Records the primitive as the request of a call to the core.
    pub(super) fn primitive(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        checked: &Checked,
    ) {
        let Some(primitive) = checked.primitive().cloned() else { return };
        let request = context.message(MessageKind::Call, &ListenerName::core(), checked);
        let request = self.accept(step, request);
        self.dispose(step, request.id, Disposition::Handled);
        let ask = PrimitiveRequest { context, checked, request: request.id };

        match primitive {
            Primitive::SpawnThread { suggested_sub_id, is_bound, allotment } => {
                let bound = is_bound.then_some(context.call);
                let allotment = allotments::recorded(allotment, step.time);
                self.spawn(step, &ask, suggested_sub_id, (bound, allotment));
            }
            Primitive::SendToThread { thread_id } => self.send_to_thread(step, &ask, &thread_id),
            Primitive::CancelThread { thread_id } => self.cancel_thread(step, &ask, &thread_id),
            Primitive::Wait { until } => self.wait(step, &ask, until),
            Primitive::ClearContext { keep } => self.clear_context(step, &ask, keep),
            Primitive::SetTimer { when, label } => self.set_timer(step, &ask, when, label),
            Primitive::CancelTimer { timer_id } => self.cancel_timer(step, &ask, &timer_id),
        }
    }

    fn spawn(
        &mut self,
        step: &mut Step,
        ask: &PrimitiveRequest<'_>,
        label: Option<String>,
        (bound, allotment): (Option<CallId>, Option<Allotment>),
    ) {
        let parent = &ask.context.thread;
        if let Some(label) = &label
            && !ThreadId::is_label(label)
        {
            let text = ask.checked.payload().as_str().as_bytes();
            let message = "suggested_sub_id must be 1 to 64 letters, digits, `_` or `-`";
            let refusal = Refusal::new(RefusalRule::BadLabel, message, text);
            return self.refuse_payload(step, ask.context, refusal);
        }

        if allotment.as_ref().is_some_and(|limits| limits.money.is_some())
            && self.cannot_limit_money(&ask.context.listener)
        {
            return self.refuse_money(step, ask);
        }

        if let Some(text) = self.cannot_spawn(parent) {
            return self.answer_error(step, ask, ErrorCode::LimitReached, &text);
        }

        let label = self.free_label(parent, label);
        let child = parent.child(&label);
        let by = ask.context.listener.clone();
        let opened = Fact::ThreadOpened { thread: child.clone(), by, bound, allotment };
        self.fact(step, opened);
        let answer = CorePayload::ThreadSpawned { assigned: child.clone(), parent: parent.clone() };
        self.answer(step, ask, &answer);
        if let Some(reason) = self.send_inner(step, ask, &child) {
            self.answer(step, ask, &reason);
        }
    }

    /// Whether an amount of money cannot limit a thread of `spawner`. True if a model without a
    /// price can be called in the thread. Always false for a workflow, because the check of the
    /// config already reports such an amount in a workflow.
    fn cannot_limit_money(&self, spawner: &ListenerName) -> bool {
        let contract = self.contracts.get(spawner);
        let is_workflow = contract.is_some_and(|contract| contract.role == Role::Workflow);
        !is_workflow && self.contracts.has_unpriced_beneath(spawner)
    }

    /// Refuses a `spawn-thread` whose amount of money would limit nothing.
    fn refuse_money(&mut self, step: &mut Step, ask: &PrimitiveRequest<'_>) {
        let text = "`money` cannot limit this thread, because a model that may be called in it has \
            no price in the config; use `tokens` instead";
        let refusal = refusal_of(RefusalRule::SchemaInvalid, text, ask.checked);
        let answer = CorePayload::to(&refusal);
        self.refuse_in(step, ask.context, refusal);
        self.answer(step, ask, &answer);
    }

    /// Returns the reason why the limits forbid a further subthread of `parent`. Returns `None` if
    /// they permit a further subthread.
    pub(super) fn cannot_spawn(&self, parent: &ThreadId) -> Option<String> {
        let too_deep = self.denied_depth(parent);
        if too_deep.is_some() {
            return too_deep;
        }

        let tree = self.state.tree(parent)?;
        let children = tree.threads.get(parent)?.request_children();
        let limits = &self.budgets.limits;
        if children as u64 >= u64::from(limits.children) {
            return Some(format!(
                "a thread may have at most {} {}",
                limits.children,
                form(limits.children, "child", "children")
            ));
        }

        (tree.request_threads() as u64 >= u64::from(limits.threads))
            .then(|| format!("a tree may have at most {}", count(limits.threads, "thread")))
    }

    /// Returns the reason why a subthread of `parent` would be too deep in its tree. Returns `None`
    /// if the limit permits the depth.
    pub(super) fn denied_depth(&self, parent: &ThreadId) -> Option<String> {
        let most = self.budgets.limits.depth;
        let is_too_deep = parent.depth() as u64 >= u64::from(most);
        is_too_deep.then(|| format!("threads may be at most {most} deep"))
    }

    /// Routes the payload that a primitive contains, such as the first request for a spawned
    /// thread. The payload gets no message of its own, because it is recorded in the message of the
    /// primitive. If the payload is refused, records the refusal and returns the answer that states
    /// the reason. The caller must send this answer to the sender of the primitive. Returns `None`
    /// if the payload was routed, or if the primitive contains none.
    fn send_inner(
        &mut self,
        step: &mut Step,
        ask: &PrimitiveRequest<'_>,
        thread: &ThreadId,
    ) -> Option<CorePayload> {
        let inner = ask.checked.inner()?;
        let (rule, text) = self.call(step, ask.context, inner, thread).err()?;
        let refusal = refusal_of(rule, text, inner);
        let refusal = refusal.at(inner_place(ask.checked, inner));
        let answer = CorePayload::to(&refusal);
        self.refuse_in(step, ask.context, refusal);
        Some(answer)
    }

    fn send_to_thread(&mut self, step: &mut Step, ask: &PrimitiveRequest<'_>, thread_id: &str) {
        match (self.descendant(ask.context, thread_id), ask.checked.inner()) {
            (Some(thread), Some(_)) => {
                // The payload is sent first, because only then is it certain that no rule refuses
                // it. An acknowledgement uses up a message, too.
                let reason = self.send_inner(step, ask, &thread);
                let answer = reason.unwrap_or(CorePayload::Ack { from: None });
                self.answer(step, ask, &answer);
            }
            _ => self.no_descendant(step, ask, thread_id),
        }
    }

    fn cancel_thread(&mut self, step: &mut Step, ask: &PrimitiveRequest<'_>, thread_id: &str) {
        let Some(thread) = self.descendant(ask.context, thread_id) else {
            return self.no_descendant(step, ask, thread_id);
        };
        let message = "Thread cancelled successfully.";
        self.answer(step, ask, &CorePayload::ThreadCancelled { thread: thread.clone(), message });
        self.cancel_subtree(step, &thread, CANCELLED_FROM_ABOVE);
    }

    /// Parses the id of an existing thread beneath the sender's thread. Returns `None` for any
    /// other id.
    fn descendant(&self, context: &OutcomeContext, thread_id: &str) -> Option<ThreadId> {
        let is_beneath =
            |thread: &ThreadId| thread.is_beneath(&context.thread) || mutant("reach-any-thread");
        let thread = ThreadId::parse(thread_id).ok().filter(is_beneath)?;
        let is_known = self.state.thread(&thread).is_some();
        (is_known && !self.has_ended(&thread, &context.thread)).then_some(thread)
    }

    /// Answers a primitive that names an unknown thread, or a thread outside the sender's subtree.
    /// Both cases get the same error.
    fn no_descendant(&mut self, step: &mut Step, ask: &PrimitiveRequest<'_>, thread_id: &str) {
        let text = ask.checked.payload().as_str().as_bytes();
        let refusal = Refusal::new(RefusalRule::UnknownThread, UNKNOWN_THREAD, text);
        self.refuse_in(step, ask.context, refusal);
        let shown = thread_id.chars().take(limits::ID_ECHO_CHARS_MAX).collect();
        self.answer(step, ask, &CorePayload::ThreadError { unknown_id: shown });
    }

    fn wait(&mut self, step: &mut Step, ask: &PrimitiveRequest<'_>, until: WaitFor) {
        let call = ask.context.call;
        let open = self.state.call(call);
        let remote = open.into_iter().flat_map(|open| open.remote_calls.iter());
        let threads = remote.filter_map(|remote| Some(&self.state.call(*remote)?.thread));
        // Several calls may be open in one thread, such as the legs of a group.
        let threads = threads.collect::<BTreeSet<_>>().len();
        let timers = open.map_or(0, |open| open.timers);
        let arrived = open.is_some_and(Call::has_news);
        if threads + timers == 0 && !arrived {
            return self.answer_error(step, ask, ErrorCode::NothingToWaitFor, NOTHING_TO_WAIT_FOR);
        }

        self.answer(step, ask, &CorePayload::Waiting { until, threads, timers });
        self.fact(step, Fact::Waiting { call, until });
        // A message that the agent could not know in this turn ends the wait at once. A message
        // from before the turn does not: the agent could otherwise never wait beside it.
        let is_queued = |later: &CallId| {
            let open = self.state.call(*later);
            open.is_some_and(|open| open.held.is_none())
        };
        if ask.context.later_calls.iter().any(is_queued) {
            self.fact(step, Fact::WaitEnded { call });
        }
    }

    fn clear_context(&mut self, step: &mut Step, ask: &PrimitiveRequest<'_>, keep: u32) {
        let agent = ask.context.listener.clone();
        let thread = ask.context.thread.clone();
        // The messages of the turn that requests this stay in the window, too, and do not count
        // towards `keep`.
        let kept = keep.min(shown_before(step, ask));
        let before = ask.context.first_seq;
        self.fact(step, Fact::Window { agent, thread, before, kept });
        self.answer(step, ask, &CorePayload::ContextCleared { kept });
    }

    pub(super) fn answer(
        &mut self,
        step: &mut Step,
        ask: &PrimitiveRequest<'_>,
        answer: &CorePayload,
    ) {
        self.send_core_payload(step, ask.context.call, Some(ask.request), answer);
    }

    pub(super) fn answer_error(
        &mut self,
        step: &mut Step,
        ask: &PrimitiveRequest<'_>,
        code: ErrorCode,
        text: &str,
    ) {
        let about = Some(ask.checked.name().local.to_string());
        let error = CorePayload::Error {
            code,
            about,
            message: text.to_owned(),
            from: None,
            is_lasting: false,
        };
        self.answer(step, ask, &error);
    }
}

const NOTHING_TO_WAIT_FOR: &str = "no thread or timer of this call is unfinished; the result of a \
    thread that an earlier call opened ends no wait, and is shown in the first turn after it came";

/// A primitive that the core is answering.
pub(super) struct PrimitiveRequest<'a> {
    pub context: &'a OutcomeContext,
    checked: &'a Checked,
    request: MessageId,
}

/// Returns the number of messages in the sender's window, not counting those of the current turn.
/// If a `clear-context` earlier in this turn has made the window smaller, returns the smaller
/// number.
fn shown_before(step: &Step, ask: &PrimitiveRequest<'_>) -> u32 {
    let cleared = step.facts.iter().rev().find_map(|fact| match fact {
        Fact::Window { kept, .. } => Some(*kept),
        _ => None,
    });
    cleared.unwrap_or(ask.context.shown)
}

/// Returns the place of the payload `inner` in a primitive.
fn inner_place(primitive: &Checked, inner: &Checked) -> TextLocation {
    let parent = match primitive.primitive() {
        Some(Primitive::SpawnThread { .. }) => "/spawn-thread/initial-payload",
        _ => "/send-to-thread",
    };
    let path = Some(format!("{parent}/{}", inner.name().local));
    TextLocation { path, ..TextLocation::default() }
}

/// Reason that is recorded if a listener cancels a thread beneath its own thread.
const CANCELLED_FROM_ABOVE: &str = "this thread was cancelled from the thread above it";
