//! Closes calls. Each call is closed exactly once, together with all calls beneath it, and its
//! opener gets a result.

use std::sync::Arc;

use super::event::Effect;
use super::message::NewMessage;
use super::orphans::OrphanedDelivery;
use super::outcome::OutcomeContext;
use super::{Core, Step};
use crate::envelope::{Disposition, Message, MessageKind, Payload};
use crate::ids::{CallId, ListenerName, PayloadName, ThreadId, TimerId};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::gate::Checked;
use crate::system::{CorePayload, ErrorCode, ThreadStatus};
use crate::thread::{Closing, Fact, Opener, Opening, TimerEnd};
use crate::xml::scan::{attributes, scan};

/// Result of a call, before the pump makes a message of it.
pub(super) struct CallResult {
    pub how: Closing,
    /// Disposition that a message gets if the callee has not handled it when the call closes.
    /// Exception: if the call failed and this field is [`Disposition::Late`], the request of the
    /// call gets [`Disposition::Failed`].
    pub undelivered: Disposition,
    pub payloads: Vec<(MessageKind, PayloadName, Payload)>,
}

impl CallResult {
    fn system(how: Closing, undelivered: Disposition, answer: &CorePayload) -> Self {
        let payloads = vec![(MessageKind::System, answer.name(), answer.payload())];
        Self { how, undelivered, payloads }
    }

    fn replies(payloads: Vec<Checked>) -> Self {
        let part = |c: Checked| (MessageKind::Reply, c.name().clone(), c.payload().clone());
        let payloads = payloads.into_iter().map(part).collect();
        Self { how: Closing::Completed, undelivered: Disposition::Late, payloads }
    }

    /// Makes the result of a forwarded call from the results of all its peers, in any order. The
    /// call ends in one of these ways:
    ///
    /// - Completed, if a peer replied or no peer failed.
    /// - Cancelled, if no peer replied and all failures are cancellations.
    /// - Failed, in all other cases.
    fn forwarded(payloads: Vec<(MessageKind, PayloadName, Payload)>) -> Self {
        let undelivered = Disposition::Late;
        let mut result = Self { how: Closing::Completed, undelivered, payloads };
        if result.has_reply() {
            return result;
        }

        let is_fault = |(_, name, _): &&(MessageKind, PayloadName, Payload)| *name.local != *"ack";
        let mut faults = result.payloads.iter().filter(is_fault).map(|(.., payload)| payload);
        let Some(first) = faults.next() else { return result };
        let is_cancelled = is_cancellation(first) && faults.all(is_cancellation);
        result.how = if is_cancelled { Closing::Cancelled } else { Closing::Failed };
        result
    }

    pub fn has_reply(&self) -> bool {
        self.payloads.iter().any(|(kind, ..)| *kind == MessageKind::Reply)
    }

    const fn status(&self) -> ThreadStatus {
        match self.how {
            Closing::Completed => ThreadStatus::Completed,
            Closing::Failed => ThreadStatus::Failed,
            Closing::Cancelled => ThreadStatus::Cancelled,
        }
    }
}

/// A call that the pump is closing, with the data that the delivery of its result needs.
#[derive(Clone)]
pub(super) struct ClosingCall {
    pub id: CallId,
    pub callee: ListenerName,
    pub thread: ThreadId,
    pub opening: Opening,
}

impl ClosingCall {
    /// Whether a call in the same thread opened this call. If so, the result stays in the thread.
    fn is_nested(&self) -> bool {
        matches!(&self.opening.opener, Opener::Call { thread, .. } if *thread == self.thread)
    }
}

impl Core {
    pub(super) fn reply(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        finals: Vec<Checked>,
    ) {
        if !finals.is_empty() {
            self.close(step, context.call, CallResult::replies(finals));
        }
    }

    pub(super) fn acknowledge(&mut self, step: &mut Step, call: CallId) {
        let answer = CorePayload::Ack { from: self.leg_name(call) };
        self.close(step, call, CallResult::system(Closing::Completed, Disposition::Late, &answer));
    }

    /// Closes a call as failed. The result of the call is a system payload that states the reason.
    pub(super) fn fail(&mut self, step: &mut Step, call: CallId, code: ErrorCode, text: &str) {
        self.fail_with(step, call, code, text, Disposition::Late);
    }

    /// Closes a call as [`Core::fail`] does, but messages that were not handled get the disposition
    /// `undelivered`.
    pub(super) fn fail_with(
        &mut self,
        step: &mut Step,
        call: CallId,
        code: ErrorCode,
        text: &str,
        undelivered: Disposition,
    ) {
        self.close_failed(step, call, (code, text), undelivered, false);
    }

    /// Closes a call as [`Core::fail_with`] does, with a system payload which states that no retry
    /// can fix the failure.
    pub(super) fn fail_for_good(
        &mut self,
        step: &mut Step,
        call: CallId,
        code: ErrorCode,
        text: &str,
        undelivered: Disposition,
    ) {
        self.close_failed(step, call, (code, text), undelivered, true);
    }

    fn close_failed(
        &mut self,
        step: &mut Step,
        call: CallId,
        (code, text): (ErrorCode, &str),
        undelivered: Disposition,
        is_lasting: bool,
    ) {
        let Some(open) = self.state.call(call) else { return };
        let about = open.request().map(|request| request.name.local.to_string());
        let message = text.to_owned();
        let from = self.leg_name(call);
        let error = CorePayload::Error { code, about, message, from, is_lasting };
        self.close(step, call, CallResult::system(Closing::Failed, undelivered, &error));
    }

    pub(super) fn cancel_call(&mut self, step: &mut Step, call: CallId, text: &str) {
        let code = ErrorCode::Cancelled;
        let message = text.to_owned();
        let from = self.leg_name(call);
        let about = None;
        let is_lasting = false;
        let error = CorePayload::Error { code, about, message, from, is_lasting };
        self.close(
            step,
            call,
            CallResult::system(Closing::Cancelled, Disposition::Cancelled, &error),
        );
    }

    /// Returns the name of the callee if the call is a leg of a group, and `None` for any other
    /// call. A group consists of the calls that one request to several peers opened. Its result
    /// names the callee of each leg.
    fn leg_name(&self, call: CallId) -> Option<ListenerName> {
        let open = self.state.call(call)?;
        open.opening.group.map(|_| open.callee.clone())
    }

    pub(super) fn close(&mut self, step: &mut Step, call: CallId, result: CallResult) {
        let mut next = Some((call, result));
        while let Some((call, result)) = next.take() {
            next = self.close_one(step, call, result);
        }
    }

    /// Closes one call. If the call was the last open leg of a forwarded call, returns the
    /// forwarded call with its result: this method must be called for the forwarded call next.
    /// Returns `None` in all other cases. A leg is a call that forwards one payload to one peer.
    fn close_one(
        &mut self,
        step: &mut Step,
        call: CallId,
        result: CallResult,
    ) -> Option<(CallId, CallResult)> {
        let closed = self.about(call)?;
        self.closing.insert(call);
        self.drop_beneath(step, call);
        // Deliver the result before the call is removed: only until then does the opener await this
        // call and know its place in the order of replies.
        self.deliver_result(step, &closed, &result);
        self.shut(step, &closed, result.how, result.undelivered);
        let Opener::Call { call: opener, .. } = closed.opening.opener else { return None };
        if closed.is_nested() {
            self.settle_group(step, &closed, opener, &result);
        }

        if closed.opening.forward {
            return Some((opener, self.forwarded(step, opener)?));
        }

        self.wake(step, opener);
        None
    }

    /// Returns the result of a call that its listener has forwarded to peers. The result consists
    /// of the results of all calls to these peers, in the order of the calls. Returns `None` while
    /// one of these calls is open.
    fn forwarded(&mut self, step: &mut Step, opener: CallId) -> Option<CallResult> {
        let open = self.state.call(opener)?;
        if open.awaits_forwarded() {
            return None;
        }

        let parts = open.pending.iter().filter(|p| open.is_forwarded(p.slot.action));
        let parts: Vec<_> = parts.map(|p| Arc::clone(&p.message)).collect();
        let mut payloads = Vec::new();
        for part in parts {
            self.dispose(step, part.id, Disposition::Handled);
            payloads.push(match part.kind {
                MessageKind::System => {
                    let answer = self.fault_of_forwarder(opener, &part)?;
                    (part.kind, answer.name(), answer.payload())
                }
                _ => (part.kind, part.name.clone(), part.payload.clone()),
            });
        }

        Some(CallResult::forwarded(payloads))
    }

    /// Returns the system payload with which the call `forwarded` ends, if its listener has
    /// forwarded it and a peer ended the forwarded call with the system payload `part`. Keeps the
    /// code, and whether a retry is allowed. Names only the listener of `forwarded`, because the
    /// caller may not know that listener's peers, and the text of `part` may name them.
    fn fault_of_forwarder(&self, forwarded: CallId, part: &Message) -> Option<CorePayload> {
        let open = self.state.call(forwarded)?;
        let from = self.leg_name(forwarded);
        if *part.name.local == *"ack" {
            return Some(CorePayload::Ack { from });
        }

        let attributes = attributes(part.payload.as_str());
        let value = |wanted: &str| {
            let found = attributes.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| &**value)
        };
        let code = value("code").and_then(ErrorCode::parse).unwrap_or(ErrorCode::ListenerFailed);
        let is_lasting = value("retry_allowed") == Some("false");
        let about = open.request().map(|request| request.name.local.to_string());
        let advice = match code {
            ErrorCode::Denied => "; a person refused it, or did not decide in time",
            ErrorCode::StalePreview => "; send it again for a new preview and a new decision",
            ErrorCode::UnknownOutcome => {
                "; find out whether it had an effect before you send it again"
            }
            _ => "",
        };
        let message = format!("{} forwarded this call, which ended as {code}{advice}", open.callee);
        Some(CorePayload::Error { code, about, message, from, is_lasting })
    }

    fn about(&self, call: CallId) -> Option<ClosingCall> {
        let open = self.state.call(call)?;
        let callee = open.callee.clone();
        let thread = open.thread.clone();
        Some(ClosingCall { id: call, callee, thread, opening: open.opening.clone() })
    }

    /// Cancels the open calls that `call` opened in its own thread, and all open calls beneath
    /// those calls. Begins with the deepest calls. Spawned threads continue, unless they are bound
    /// to one of the cancelled calls.
    fn drop_beneath(&mut self, step: &mut Step, call: CallId) {
        let falling = self.calls_beneath(call);
        self.closing.extend(&falling);
        for leg in falling.into_iter().rev().filter(|_| !mutant("leave-calls-open")) {
            if let Some(closed) = self.about(leg) {
                self.shut(step, &closed, Closing::Cancelled, Disposition::Cancelled);
            }
        }
    }

    /// Returns the open calls that `call` opened in its own thread, and all open calls beneath
    /// those calls. Each call comes after the call that opened it.
    fn calls_beneath(&self, call: CallId) -> Vec<CallId> {
        let mut next = vec![call];
        let mut found = Vec::new();
        while let Some(call) = next.pop() {
            let Some(open) = self.state.call(call) else { continue };
            let legs = open.awaiting.iter().flat_map(|a| a.open.iter().map(|(leg, _)| *leg));
            let at = found.len();
            found.extend(legs);
            next.extend(found.get(at..).unwrap_or_default());
        }

        found
    }

    /// Closes each of `calls` with the function `close`. First marks all of `calls` and the calls
    /// beneath them as closing, so that the core delivers no messages to them meanwhile.
    pub(super) fn close_all(
        &mut self,
        step: &mut Step,
        calls: &[CallId],
        mut close: impl FnMut(&mut Self, &mut Step, CallId),
    ) {
        for call in calls.iter().filter(|_| !mutant("wake-what-is-closed")) {
            let beneath = self.calls_beneath(*call);
            self.closing.insert(*call);
            self.closing.extend(beneath);
        }

        for call in calls {
            close(self, step, *call);
        }
    }

    /// Cancels a call whose opener no longer needs the result.
    pub(super) fn drop_call(&mut self, step: &mut Step, call: CallId) {
        let Some(closed) = self.about(call) else { return };
        self.closing.insert(call);
        self.drop_beneath(step, call);
        self.shut(step, &closed, Closing::Cancelled, Disposition::Cancelled);
    }

    /// Removes a call with its timers, its undelivered messages, and the delivery in flight.
    fn shut(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        how: Closing,
        undelivered: Disposition,
    ) {
        self.stop_timers(step, closed);
        let open = self.state.call(closed.id);
        let pending = open.map(|open| {
            let messages = open.pending.iter().map(|pending| Arc::clone(&pending.message));
            messages.collect::<Vec<_>>()
        });
        let bound = self.bound_calls(closed.id);
        let unused = self.unused_bound_threads(closed.id);
        let goal = self.goal_of(closed.id);
        self.fact(step, Fact::CallClosed { call: closed.id, how });

        self.end_undelivered(step, closed, &pending.unwrap_or_default(), how, undelivered);
        let (opener, opener_call) = match &closed.opening.opener {
            Opener::Client { name } => (name.clone(), None),
            Opener::Call { name, call, .. } => (name.clone(), Some(*call)),
        };

        let listener = closed.callee.clone();
        let thread = closed.thread.clone();
        let orphan = OrphanedDelivery { listener, thread, opener, opener_call, goal };
        if let Some(attempt) = self.forget_call(closed.id, orphan) {
            let listener = closed.callee.clone();
            step.effect(Effect::Withdraw { listener, call: closed.id, attempt });
        }

        self.withdraw_preview(step, closed.id);
        self.cancel_bound(step, bound);
        self.note_unused(step, &unused);
    }

    fn stop_timers(&mut self, step: &mut Step, closed: &ClosingCall) {
        let has_timers = self.state.call(closed.id).is_some_and(|open| open.timers > 0);
        let Some(tree) = self.state.tree(&closed.thread).filter(|_| has_timers) else { return };
        let timers = tree.timers.iter().filter(|(_, timer)| timer.call == closed.id);
        let timers: Vec<(TimerId, Option<String>)> =
            timers.map(|(id, timer)| (*id, timer.label.clone())).collect();

        for (timer, label) in timers {
            self.fact(step, Fact::TimerEnded { timer, how: TimerEnd::Cancelled });
            let answer = CorePayload::TimerCancelled { timer, label };
            self.system_note(step, &closed.thread, &closed.callee, &answer);
        }
    }

    /// Records a system payload as a note, which is not delivered. Returns the recorded message.
    pub(super) fn system_note(
        &mut self,
        step: &mut Step,
        thread: &ThreadId,
        to: &ListenerName,
        answer: &CorePayload,
    ) -> Arc<Message> {
        self.note(step, NewMessage::system(to, thread, answer))
    }

    /// Delivers the result to the opener of the call.
    fn deliver_result(&mut self, step: &mut Step, closed: &ClosingCall, result: &CallResult) {
        match &closed.opening.opener {
            Opener::Client { name } => {
                let messages = self.record_result(step, closed, name, result);
                self.complete_for_client(step, closed, result, messages);
            }
            Opener::Call { name, call, .. } if closed.is_nested() => {
                self.send_result(step, closed, name, Some(*call), result);
            }
            Opener::Call { name, call, thread } => {
                self.record_result(step, closed, name, result);
                if self.settle_remote_leg(step, closed, *call, result) {
                    return;
                }
                let answer = thread_result(closed, result);
                self.thread_result(step, closed, name, *call, thread, &answer);
            }
        }
    }

    fn send_result(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        opener: &ListenerName,
        opener_call: Option<CallId>,
        result: &CallResult,
    ) -> Vec<Arc<Message>> {
        let core = ListenerName::core();
        let mut messages = Vec::new();
        for (kind, name, payload) in &result.payloads {
            let from = if *kind == MessageKind::System { &core } else { &closed.callee };
            let part = NewMessage::new(*kind, from, opener, &closed.thread, (name, payload));
            let part = part.caused_by(closed.id.0).in_call(opener_call);
            messages.push(self.accept(step, part));
        }

        messages
    }

    /// Records the result of a closed call as messages in the call's own thread, with the
    /// disposition `recorded`. Returns these messages. No call handles these messages: the opener
    /// is a client or a call of another thread, and gets the result separately.
    fn record_result(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        opener: &ListenerName,
        result: &CallResult,
    ) -> Vec<Arc<Message>> {
        let messages = self.send_result(step, closed, opener, None, result);
        for message in &messages {
            self.dispose(step, message.id, Disposition::Recorded);
        }
        messages
    }

    pub(super) fn thread_result(
        &mut self,
        step: &mut Step,
        closed: &ClosingCall,
        opener: &ListenerName,
        opener_call: CallId,
        thread: &ThreadId,
        answer: &CorePayload,
    ) {
        let result = NewMessage::system(opener, thread, answer);
        let result = result.caused_by(closed.id.0).in_call(opener_call);
        match self.state.call(opener_call) {
            Some(_) => drop(self.accept(step, result)),
            None => self.record_late(step, result),
        }
    }

    pub(super) fn record_late(&mut self, step: &mut Step, message: NewMessage) {
        let message = self.accept(step, message);
        self.dispose(step, message.id, Disposition::Late);
    }
}

/// Whether a system payload of a result states that the call was cancelled.
fn is_cancellation(fault: &Payload) -> bool {
    let code = ErrorCode::Cancelled.as_str();
    attributes(fault.as_str()).iter().any(|(name, value)| *name == "code" && **value == *code)
}

/// Makes the `thread-result` with which another thread gets the result of a closed call. If the
/// call is one of several calls to a group of listeners, the `thread-result` names the listener. If
/// the result's payloads are too large or too deeply nested, it only states in which thread they
/// are recorded.
pub(super) fn thread_result(closed: &ClosingCall, result: &CallResult) -> CorePayload {
    let thread = closed.thread.clone();
    let status = result.status();
    let from = closed.opening.group.map(|_| closed.callee.clone());
    let parts = result.payloads.iter().map(|(.., payload)| payload);
    let size: usize = parts.clone().map(Payload::len).sum();
    if size + limits::ENVELOPE_BYTES_MAX <= limits::PAYLOAD_BYTES_MAX {
        let payloads = parts.cloned().collect();
        let from = from.clone();
        let whole = CorePayload::ThreadResult { thread: thread.clone(), status, from, payloads };
        // The wrapping element adds one level of depth, which may exceed the gate's limit. The
        // core's own payloads must pass the gate, too.
        if scan(whole.payload().as_str().as_bytes()).is_ok() {
            return whole;
        }
    }

    let text = format!("the result of {size} bytes is on record in {thread}; ask for less at once");
    let payloads = vec![CorePayload::error(ErrorCode::TooLarge, text).payload()];
    CorePayload::ThreadResult { thread, status, from, payloads }
}
