//! The checks of a listener that declares previews (docs/PROTOCOL.md, section 3).

use std::time::Instant;

use tokio::time::{sleep, timeout};

use super::{
    ASK_AGAIN, ListenerTrial, MissingOutcome, PayloadJudge, TrialRequest, delivery_of_call,
    judge_payloads, new_call,
};
use crate::bus::{Delivery, DeliveryPreview, Outcome};
use crate::ids::{Attempt, CallId, Digest, PayloadName};
use crate::limits;
use crate::shorten::shorten;
use crate::system;
use crate::xml::element::Element;
use crate::xml::scan::scan;

impl ListenerTrial {
    /// Checks that the program previews a call in time, and that a second preview of the call
    /// equals the first. A preview must not change anything and must not contain times.
    pub(super) async fn shown(&mut self, request: &TrialRequest) -> Result<(), String> {
        let call = new_call();
        let first = self.preview(call, request).await?;
        let second = self.preview(call, request).await.map_err(|why| format!("again: {why}"))?;
        unchanged(&first, &second)
    }

    /// Checks that the program does not carry out a call if the approved preview differs from the
    /// program's present preview of the call.
    pub(super) async fn refused_as_stale(&mut self, request: &TrialRequest) -> Result<(), String> {
        let call = new_call();
        let shown = self.preview(call, request).await?;
        let another = Digest::of(format!("not {shown}").as_bytes());
        let outcome = self.approved(call, request, another).await?;
        if !is_stale(&outcome) {
            return Err("it carries the call out, although another preview was approved: compare \
                        with what would be shown now, and answer `<stale-preview>` (3)"
                .to_owned());
        }

        let again = self.preview(call, request).await.map_err(|why| format!("again: {why}"))?;
        unchanged(&shown, &again)
    }

    /// Checks that the program carries out a call whose preview was approved.
    pub(super) async fn carried_out(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        let call = new_call();
        let shown = self.preview(call, request).await?;
        let outcome = self.approved(call, request, Digest::of(shown.as_bytes())).await?;
        if is_stale(&outcome) {
            return Err("it answers `<stale-preview>`, although its own preview was approved and \
                        nothing has changed: a preview may not contain times or ids (3)"
                .to_owned());
        }

        judge_payloads(outcome.payloads, judge)
    }

    /// Requests the preview of a call, and returns the payload of the preview. Repeats the request,
    /// because a program on NATS needs time to join.
    async fn preview(&mut self, call: CallId, request: &TrialRequest) -> Result<String, String> {
        let bound = self.patience.min(limits::PREVIEW_TIMEOUT_DEFAULT);
        let until = Instant::now() + self.patience;

        loop {
            let attempt = Attempt::preview(self.next_attempt().n);
            let preview = DeliveryPreview::Requested;
            let delivery = delivery_of_call(call, request, attempt, bound, 0);
            self.hand_over(Delivery { preview, ..delivery });
            // Heartbeats do not extend the time for a preview.
            match timeout(bound, self.outcome()).await {
                Err(_) => return Err(format!("no preview within {bound:?}")),
                Ok(Ok(outcome)) => return payload_of(outcome),
                Ok(Err(MissingOutcome::Nobody(_)))
                    if self.transport.is_remote() && Instant::now() < until =>
                {
                    self.harness.check_running()?;
                    sleep(ASK_AGAIN).await;
                }
                Ok(Err(missing)) => return Err(missing.reason()),
            }
        }
    }

    /// Delivers a call that a person has approved, and returns the outcome. `preview` is the digest
    /// of the preview that the person approved.
    async fn approved(
        &mut self,
        call: CallId,
        request: &TrialRequest,
        preview: Digest,
    ) -> Result<Outcome, String> {
        let attempt = self.next_attempt();
        let preview = DeliveryPreview::Approved(preview);
        let delivery = delivery_of_call(call, request, attempt, self.patience, 0);
        self.hand_over(Delivery { preview, ..delivery });
        self.outcome().await.map_err(MissingOutcome::reason)
    }
}

/// Returns the preview that an answer contains. `Err` describes an answer that is no preview.
fn payload_of(outcome: Outcome) -> Result<String, String> {
    let mut payloads = outcome.payloads;
    let (Some(payload), true) = (payloads.pop(), payloads.is_empty()) else {
        return Err(
            "a preview is one payload: it answered without any, or with several (3)".to_owned()
        );
    };

    let payload = String::from_utf8(payload).map_err(|e| format!("is not UTF-8: {e}"))?;
    if payload.len() > limits::PREVIEW_BYTES_MAX {
        let most = limits::PREVIEW_BYTES_MAX;
        return Err(format!("a preview of {} bytes, more than {most} (3)", payload.len()));
    }

    let scanned = scan(payload.as_bytes()).map_err(|violation| violation.to_string())?;
    let is_preview = scanned.name == core_name(system::PREVIEW);
    let is_text = Element::read(&payload).is_some_and(|read| read.children().next().is_none());
    if is_preview && is_text {
        Ok(payload)
    } else {
        let expected = core_name(system::PREVIEW);
        Err(format!(
            "a preview is {expected} with a text, and this is none: {}",
            shorten(&payload, limits::ID_ECHO_CHARS_MAX)
        ))
    }
}

fn is_stale(outcome: &Outcome) -> bool {
    let [payload] = outcome.payloads.as_slice() else { return false };
    scan(payload).is_ok_and(|scanned| scanned.name == core_name(system::STALE_PREVIEW))
}

fn unchanged(first: &str, second: &str) -> Result<(), String> {
    if first == second {
        return Ok(());
    }

    let shown = [first, second].map(|text| shorten(text, limits::ID_ECHO_CHARS_MAX));
    Err(format!(
        "it shows `{}`, and then `{}` of the same call: a preview changes nothing, and contains no \
         times (3)",
        shown[0], shown[1]
    ))
}

fn core_name(local: &str) -> PayloadName {
    PayloadName::new(system::NAMESPACE, local)
}
