//! Previews: while a call is held for an approval, its listener describes the effects that the call
//! would have.
//!
//! A request for a preview is not an attempt. It has the attempt number 0, is not counted as an
//! attempt of the call, and never ends the call. If no preview comes in time, the person decides by
//! the payload alone.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::event::{Alarm, Effect};
use super::outcome::{AttemptSource, Gated};
use super::refusals::refusal_of;
use super::{Core, Step};
use crate::bus::{Delivery, DeliveryPreview};
use crate::clock::Time;
use crate::contract::{Contract, Meaning};
use crate::envelope::{Disposition, Refusal, RefusalRule};
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::gate::{Checked, NOT_IN_VOCABULARY};
use crate::system::ErrorCode;
use crate::thread::{Call, Fact, Input, Map, Verdict};

/// Requests for previews that are in flight or queued. Rebuilt after every boot from the held
/// calls, never recorded.
///
/// **Invariant:** each entry of `in_flight` counts as one delivery against its listener's capacity.
#[derive(Debug, Clone, Default)]
pub(super) struct Previews {
    /// For each listener, the held calls whose preview is not requested yet, for example because
    /// the listener has no free capacity. The oldest call comes first.
    queued: BTreeMap<ListenerName, VecDeque<CallId>>,
    /// Preview requests that a listener works on. Within one run of the pump, a call has at most
    /// one preview request.
    in_flight: Map<CallId, RunningPreview>,
    /// Deadline of each preview that is still awaited, and the time-out from which the deadline was
    /// calculated.
    deadlines: Map<CallId, (Time, Duration)>,
}

/// A preview request on which a listener works. `is_withdrawn` states that the preview is no longer
/// needed.
#[derive(Debug, Clone)]
struct RunningPreview {
    listener: ListenerName,
    thread: ThreadId,
    attempt: Attempt,
    is_withdrawn: bool,
}

impl Previews {
    /// Returns the number of preview requests on which listeners work.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub fn deliveries(&self) -> impl Iterator<Item = (CallId, Attempt, &ListenerName)> {
        let running = self.in_flight.iter();
        running.map(|(call, running)| (*call, running.attempt, &running.listener))
    }

    /// Returns the thread of `call` if a listener is working on a preview of this call; `None` if
    /// no listener is.
    pub fn thread_of(&self, call: CallId) -> Option<&ThreadId> {
        self.in_flight.get(&call).map(|running| &running.thread)
    }

    pub fn is_in_flight(&self, call: CallId) -> bool {
        self.in_flight.get(&call).is_some_and(|running| !running.is_withdrawn)
    }

    /// Removes and returns the oldest queued call of `listener` that is not paused. Returns `None`
    /// if there is no such call.
    fn pop_queued(
        &mut self,
        listener: &ListenerName,
        is_paused: impl Fn(CallId) -> bool,
    ) -> Option<CallId> {
        let queue = self.queued.get_mut(listener)?;
        let at = queue.iter().position(|call| !is_paused(*call))?;
        queue.remove(at)
    }

    fn is_queued(&self, listener: &ListenerName, call: CallId) -> bool {
        self.queued.get(listener).is_some_and(|queue| queue.contains(&call))
    }

    fn is_requested(&self, listener: &ListenerName, call: CallId) -> bool {
        self.is_queued(listener, call) || self.in_flight.contains_key(&call)
    }

    /// Whether a preview of this call is requested or queued.
    pub fn concerns(&self, call: &Call) -> bool {
        self.is_requested(&call.callee, call.id) || self.deadlines.contains_key(&call.id)
    }

    /// Extends the deadline of every preview by `by`, a duration that must not count towards
    /// deadlines, such as a standstill of the pump.
    pub fn extend_all(&mut self, by: Duration) {
        for (deadline, _) in self.deadlines.values_mut() {
            *deadline = deadline.plus(by);
        }
    }

    fn remove_queued(&mut self, call: CallId) {
        self.deadlines.remove(&call);
        self.queued.values_mut().for_each(|queue| queue.retain(|queued| *queued != call));
        self.queued.retain(|_, queue| !queue.is_empty());
    }

    fn finish(&mut self, source: &AttemptSource) -> Option<RunningPreview> {
        let running = self.in_flight.get(&source.call)?;
        if running.attempt != source.attempt || running.listener != source.listener {
            return None;
        }

        self.deadlines.remove(&source.call);
        self.in_flight.remove(&source.call)
    }
}

impl Core {
    /// Returns the time-out for previews of a listener. Returns `None` if the listener declares no
    /// previews, or is not in the config.
    fn preview_time(&self, listener: &ListenerName) -> Option<Duration> {
        self.contracts.get(listener).and_then(|contract| contract.previews)
    }

    /// Requests the preview of a call that is held for an approval. Does nothing if the listener
    /// declares no previews, or if the preview or its failure is already recorded.
    pub(super) fn request_preview(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call).filter(|open| open.awaits_preview()) else { return };
        let listener = open.callee.clone();
        let Some(time) = self.preview_time(&listener) else { return };
        if self.previews.is_requested(&listener, call) {
            return;
        }

        self.previews.queued.entry(listener).or_default().push_back(call);
        let at = step.time.plus(time);
        self.previews.deadlines.insert(call, (at, time));
        step.effect(Effect::Alarm { at, alarm: Alarm::PreviewTime { call } });
    }

    /// Adapts the preview request of a held call to the config that a reload has put in force:
    ///
    /// - If the listener declares previews and none is recorded or requested, requests one.
    /// - If the listener no longer declares previews, drops a request that is still queued. The
    ///   call then waits for its approval without a preview.
    ///
    /// A preview request that was already sent to the listener stays in progress.
    pub(super) fn update_preview_request(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let gives_none = self.preview_time(&open.callee).is_none();
        if gives_none && self.previews.is_queued(&open.callee, call) {
            self.previews.remove_queued(call);
        } else {
            self.request_preview(step, call);
        }
    }

    /// Sends preview requests while listeners have capacity. Preview requests have priority over
    /// calls, because a person waits for the previews.
    pub(super) fn dispatch_previews(&mut self, step: &mut Step) {
        if step.record.is_none() || self.previews.queued.is_empty() {
            return;
        }

        let listeners: Vec<_> = self.previews.queued.keys().cloned().collect();
        for listener in listeners {
            let Some(contract) = self.contracts.shared(&listener) else { continue };
            while self.scheduler.has_capacity(&contract) {
                let state = &self.state;
                let is_paused = |call| state.call(call).is_some_and(|open| state.is_paused(open));
                let Some(call) = self.previews.pop_queued(&listener, is_paused) else { break };
                self.deliver_preview_request(step, &contract, call);
            }
        }

        self.previews.queued.retain(|_, queue| !queue.is_empty());
    }

    fn deliver_preview_request(&mut self, step: &mut Step, contract: &Contract, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let attempt = Attempt::preview(self.state.epoch);
        let listener = contract.name.clone();
        let thread = open.thread.clone();
        let delivery = Delivery {
            messages: open.pending.iter().map(|p| &p.message).cloned().collect(),
            timeout: contract.previews.unwrap_or_default(),
            preview: DeliveryPreview::Requested,
            ..self.delivery(step, &listener, open, attempt)
        };

        self.scheduler.start(&listener);
        let running = RunningPreview { listener, thread, attempt, is_withdrawn: false };
        self.previews.in_flight.insert(call, running);
        self.fact(step, Fact::PreviewRequested { call, attempt });
        if mutant("count-a-preview") {
            self.fact(step, Fact::HandedOver { call, attempt });
        }
        step.effect(Effect::Deliver(delivery));
    }

    /// Processes the answer to the request for a preview, and records the preview as a note. If the
    /// answer is not exactly one valid preview, records why the preview is missing. If the call
    /// awaits no preview any more, refuses the answer.
    pub(super) fn preview_outcome(
        &mut self,
        step: &mut Step,
        source: &AttemptSource,
        payloads: Vec<Gated>,
    ) {
        let AttemptSource { listener, call, attempt } = source;
        let call = *call;
        let input = Input::Outcome {
            listener: listener.clone(),
            call,
            attempt: *attempt,
            verdicts: Vec::new(),
            turn: None,
            arrived: None,
        };

        let Some(running) = self.finish_preview(source) else {
            let open = self.state.call(call).filter(|open| open.callee == *listener);
            let thread = open.map(|open| open.thread.clone());
            let tree = thread.as_ref().map_or_else(ThreadId::organism, ThreadId::root);
            step.begin_record(tree, input);
            return self.stale_outcome(step, source, thread.as_ref(), payloads);
        };

        step.begin_record(running.thread.root(), input);
        self.record_presence(listener);
        if !self.state.call(call).is_some_and(Call::awaits_preview) {
            let thread = running.thread.clone();
            return self.stale_outcome(step, source, Some(&thread), payloads);
        }

        if let [Ok(checked)] = payloads.as_slice()
            && is_preview(checked)
        {
            step.push_verdict(Verdict::Passed(checked.payload().digest));
            return self.own_note(step, listener, &running.thread, call, checked);
        }

        let refusals =
            payloads.into_iter().map(|payload| payload.map_or_else(|e| e, not_a_preview));
        let refusals: Vec<_> = refusals.collect();
        // The reason depends only on data that a replay also has.
        let reason = match refusals.as_slice() {
            [] => "the listener answered without one".to_owned(),
            [refusal] => format!("the listener's answer was refused: {}", refusal.rule),
            several => format!("the listener answered with {} payloads", several.len()),
        };
        for refusal in refusals {
            step.push_verdict(Verdict::Refused(refusal.digest));
            self.refuse(step, listener, Some(&running.thread), Some(call), refusal);
        }
        self.fact(step, Fact::PreviewMissing { call, reason });
    }

    /// Handles a preview request that failed, or that no process of the listener accepted. The call
    /// stays held.
    pub(super) fn preview_failed(
        &mut self,
        step: &mut Step,
        source: &AttemptSource,
        input: Input,
        reason: &str,
    ) {
        let Some(running) = self.finish_preview(source) else { return };
        step.begin_record(running.thread.root(), input);
        let call = source.call;
        if self.state.call(call).is_some_and(Call::awaits_preview) {
            self.fact(step, Fact::PreviewMissing { call, reason: reason.to_owned() });
        }
    }

    fn finish_preview(&mut self, source: &AttemptSource) -> Option<RunningPreview> {
        let running = self.previews.finish(source)?;
        self.scheduler.release_capacity(&running.listener);
        Some(running)
    }

    /// Handles [`Alarm::PreviewTime`]. If the deadline for the preview of a call has passed,
    /// records that the preview is missing, and withdraws the request for it.
    pub(super) fn preview_alarm(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call).filter(|open| open.awaits_preview()) else { return };
        let listener = open.callee.clone();
        let thread = open.thread.clone();
        // A draining pump requests nothing more. The next start requests the preview again.
        let Some((deadline, time)) = self.previews.deadlines.get(&call).copied() else { return };
        if self.draining {
            return;
        }

        // The resume sets the alarm again.
        if self.is_paused(open) && self.previews.is_queued(&listener, call) {
            return;
        }

        if deadline > step.time {
            let alarm = Alarm::PreviewTime { call };
            return step.effect(Effect::Alarm { at: deadline, alarm });
        }

        let time = time.as_secs_f64();
        let reason = if self.previews.in_flight.contains_key(&call) {
            format!("{listener} gave none within {time} s")
        } else {
            format!("{listener} was busy for {time} s")
        };

        step.begin_record(thread.root(), Input::PreviewTime { call });
        self.fact(step, Fact::PreviewMissing { call, reason });
        self.withdraw_preview(step, call);
    }

    /// Gives a queued preview request a new deadline after a pause, because the request could not
    /// be sent during the pause.
    pub(super) fn extend_preview(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let time = self.preview_time(&open.callee);
        let Some(time) = time.filter(|_| self.previews.is_queued(&open.callee, call)) else {
            return;
        };

        let at = step.time.plus(time);
        self.previews.deadlines.insert(call, (at, time));
        step.effect(Effect::Alarm { at, alarm: Alarm::PreviewTime { call } });
    }

    /// Withdraws the preview request of a call that no longer needs a preview.
    pub(super) fn withdraw_preview(&mut self, step: &mut Step, call: CallId) {
        self.previews.remove_queued(call);
        let running = self.previews.in_flight.get_mut(&call);
        if let Some(running) = running.filter(|running| !running.is_withdrawn) {
            running.is_withdrawn = true;
            let listener = running.listener.clone();
            let attempt = running.attempt;
            step.effect(Effect::Withdraw { listener, call, attempt });
        }
    }

    /// Returns the approved preview that the delivery of a call must name. Returns
    /// [`DeliveryPreview::None`] in three cases:
    ///
    /// - No preview was approved with the call.
    /// - The listener no longer declares previews.
    /// - The listener has already answered the call. The listener's own work may then have changed
    ///   what the preview describes.
    pub(super) fn preview_of_delivery(&self, contract: &Contract, call: &Call) -> DeliveryPreview {
        let approved = call.recorded_preview().filter(|_| call.approved && call.turns == 0);
        match approved.filter(|_| contract.previews.is_some()) {
            Some(note) => DeliveryPreview::Approved(note.payload.digest),
            None => DeliveryPreview::None,
        }
    }

    /// Whether a call was approved with a preview, but its listener no longer declares previews.
    /// Such a call cannot be delivered, because the listener would not check that the preview is
    /// still valid. Returns false if the listener has already answered the call, because the
    /// listener made this check before its answer.
    pub(super) fn lacks_its_previews(&self, call: &Call) -> bool {
        let contract = || self.contracts.get(&call.callee);
        let gives_none = || contract().is_some_and(|contract| contract.previews.is_none());
        let is_bound = call.approved && call.turns == 0 && call.recorded_preview().is_some();
        is_bound && gives_none() && !mutant("deliver-without-the-preview")
    }

    /// Ends a call for which [`Core::lacks_its_previews`] returns true.
    pub(super) fn fail_without_previews(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let listener = &open.callee;
        let (code, text) = if open.failures == 0 {
            let text = format!(
                "it was not delivered: the config of {listener} has lost its `previews` since the \
                 approval, so nothing would compare the approved preview; send it again for a new \
                 decision"
            );
            (ErrorCode::StalePreview, text)
        } else {
            let text = format!(
                "{listener} was given this and failed, and it is not delivered again: the config of \
                 {listener} has lost its `previews`, so nothing would compare the approved preview"
            );
            (ErrorCode::UnknownOutcome, text)
        };
        self.fail_with(step, call, code, &text, Disposition::Failed);
    }
}

fn is_preview(checked: &Checked) -> bool {
    let bytes = checked.payload().as_str().len();
    *checked.meaning() == Meaning::Preview && bytes <= limits::PREVIEW_BYTES_MAX
}

fn not_a_preview(checked: Checked) -> Refusal {
    match checked.meaning() {
        Meaning::Preview => refusal_of(
            RefusalRule::TooLarge,
            "a preview is one payload of a bounded size",
            &checked,
        ),
        _ => refusal_of(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, &checked),
    }
}
