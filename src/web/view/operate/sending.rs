//! Sends the requests of an action that a person has confirmed in the web view, and draws the
//! results. The `organism` commands in a terminal send the same requests.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::super::layout::{shown, table};
use super::action_context::unreachable_organism;
use super::{OperateFailure, retry};
use crate::envelope::Refusal;
use crate::ids::{MessageId, ThreadId};
use crate::plural::{count, form};
use crate::service::{
    PauseError, PauseReport, PauseRequest, RetryRequest, ServiceClient, ServiceRequest,
    failed_partitions,
};
use crate::thread::{Decision, PauseVerb};

/// The result of an action.
#[derive(Debug)]
pub(super) enum ActionResult {
    /// The organism carried out the action.
    Done(DoneAction),
    /// The result fills a whole page, for example because it has a row for each of several
    /// requests.
    Summary {
        status: StatusCode,
        content: Markup,
        /// The requests that the organism carried out.
        done: Vec<ServiceRequest>,
    },
    /// The organism has not sent the message again, because its listener might do the work a second
    /// time. The person has to confirm the retry first.
    Unconfirmed {
        request: Box<RetryRequest>,
        reason: String,
    },
    Refused(Box<Refusal>),
}

/// An action that the organism carried out.
#[derive(Debug, Default)]
pub(super) struct DoneAction {
    pub text: String,
    /// The thread that the action created or continued, with the label of a link to the thread.
    /// `None` if the action neither created nor continued a thread.
    pub thread: Option<(&'static str, ThreadId)>,
    /// The messages that the action sent.
    pub messages: Vec<MessageId>,
    /// Whether the action changed nothing, so that there is no record of it.
    pub is_unrecorded: bool,
}

/// Sends the requests of one action.
pub(super) async fn send(
    client: &ServiceClient,
    requests: Vec<ServiceRequest>,
) -> Result<ActionResult, OperateFailure> {
    let mut pauses = Vec::new();
    let mut retries = Vec::new();
    let mut other = None;
    for request in requests {
        match request {
            ServiceRequest::Pause(pause) => pauses.push(pause),
            ServiceRequest::Retry(retry) => retries.push(*retry),
            request => other = Some(request),
        }
    }

    match other {
        Some(request) => send_one(client, request).await,
        None if retries.is_empty() => send_pauses(client, pauses).await,
        None => retry::send(client, retries).await,
    }
}

async fn send_one(
    client: &ServiceClient,
    request: ServiceRequest,
) -> Result<ActionResult, OperateFailure> {
    let failed = |error| unreachable_organism(&error);
    let ruled = |refusal: Option<Refusal>, text: &str| match refusal {
        Some(refusal) => ActionResult::Refused(Box::new(refusal)),
        None => ActionResult::Done(DoneAction { text: text.to_owned(), ..DoneAction::default() }),
    };
    match request {
        ServiceRequest::Decide(decision) => {
            let text = match &decision.what {
                Decision::Approve { .. } => {
                    "The call is approved. It goes to its listener; during a pause, at its end."
                }
                Decision::Refuse { .. } => "It is refused, and its caller gets the refusal.",
                Decision::Answer(_) => "The answer is on its way to the caller.",
            };
            Ok(ruled(client.decide(decision, None).await.map_err(failed)?, text))
        }
        ServiceRequest::Fork(fork) => match client.fork(*fork, None).await.map_err(failed)? {
            Ok(forked) => Ok(ActionResult::Done(DoneAction {
                text: "The fork is on record. Calls that the source does not have wait for an \
                       approval, except calls to the listeners that you chose."
                    .to_owned(),
                thread: Some(("The fork", forked.thread)),
                ..DoneAction::default()
            })),
            Err(refusal) => Ok(ActionResult::Refused(Box::new(refusal))),
        },
        cancel => {
            let refusal = client.cancel(cancel, None).await.map_err(failed)?;
            Ok(ruled(refusal, "All open calls in the thread and its subthreads are cancelled."))
        }
    }
}

type PartitionPause = (u32, Result<PauseReport, PauseError>);

/// Sends each pause or resume request to its partition. A failure in one partition does not affect
/// the other partitions.
async fn send_pauses(
    client: &ServiceClient,
    requests: Vec<PauseRequest>,
) -> Result<ActionResult, OperateFailure> {
    let verb = requests.first().map_or(PauseVerb::Pause, |request| request.verb);
    let mut results = client.pause_each(requests.clone(), None).await;
    if results.len() > 1 {
        return Ok(pauses_of_partitions(verb, requests, &results));
    }

    match results.pop() {
        Some((_, Ok(report))) => {
            let text = pause_text(verb, report.is_changed, report.in_flight);
            let is_unrecorded = !report.is_changed;
            Ok(ActionResult::Done(DoneAction { text, is_unrecorded, ..DoneAction::default() }))
        }
        Some((_, Err(PauseError::Refused(refusal)))) => Ok(ActionResult::Refused(refusal)),
        Some((_, Err(PauseError::Service(error)))) => Err(unreachable_organism(&error)),
        Some((_, Err(error))) => Err(OperateFailure::missing(error.to_string())),
        None => Err(OperateFailure::missing("There is no partition.")),
    }
}

/// Draws the page that shows, for each partition, the result of its pause or resume. `requests`
/// and `results` are in the same order.
fn pauses_of_partitions(
    verb: PauseVerb,
    requests: Vec<PauseRequest>,
    results: &[PartitionPause],
) -> ActionResult {
    let failures = || results.iter().filter_map(|(_, result)| result.as_ref().err());
    let failed = failures().count();
    let reports = results.iter().filter_map(|(_, result)| result.as_ref().ok());
    let is_changed = reports.clone().any(|report| report.is_changed);
    let in_flight = reports.map(|report| report.in_flight).sum();
    let all = results.len();
    let rows: Vec<_> = results.iter().map(|result| pause_row(verb, result)).collect();
    let content = html! {
        @if failed == 0 {
            p.done role="status" { "Done. " (pause_text(verb, is_changed, in_flight)) }
        } @else {
            p.problem role="alert" {
                (failed_partitions(verb, failures(), all)) ". "
                "It can be repeated: what is done stays as it is."
            }
        }
        (table("Results of the partitions", &["Partition", "Result"], &rows))
    };
    let is_unreachable = |result: &PartitionPause| matches!(result.1, Err(PauseError::Service(_)));
    let status = match failed {
        0 => StatusCode::OK,
        _ if results.iter().any(is_unreachable) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    };
    let changed = |result: &PartitionPause| matches!(&result.1, Ok(report) if report.is_changed);
    let done = requests.into_iter().zip(results).filter(|(_, result)| changed(result));
    let done = done.map(|(request, _)| ServiceRequest::Pause(request)).collect();
    ActionResult::Summary { status, content, done }
}

fn pause_row(verb: PauseVerb, (partition, result): &PartitionPause) -> Vec<Markup> {
    let text = match result {
        Ok(report) => html! { (pause_text(verb, report.is_changed, report.in_flight)) },
        Err(error) => html! { span.problem { (shown(&error.to_string())) } },
    };
    vec![html! { (partition) }, text]
}

fn pause_text(verb: PauseVerb, is_changed: bool, in_flight: u32) -> String {
    match (verb, is_changed) {
        (PauseVerb::Resume, true) => "It goes on.".to_owned(),
        (PauseVerb::Resume, false) => "It was not paused.".to_owned(),
        (PauseVerb::Pause, false) => "It was paused already.".to_owned(),
        (PauseVerb::Pause, true) => format!(
            "It is paused: nothing more is handed over until it is resumed. Deliveries in flight \
             that end by themselves: {in_flight}."
        ),
        (PauseVerb::PauseAndCancel, _) => {
            let calls = count(in_flight, "call");
            let are = form(in_flight, "is", "are");
            format!("It is paused. {calls} {are} cancelled; open calls that no listener had stay.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Error;

    /// Draws the page for two partitions: the first has paused, and the result of the second is
    /// `second`.
    fn page_of(second: Result<PauseReport, PauseError>) -> (StatusCode, String) {
        let report = PauseReport { is_changed: true, in_flight: 3 };
        let results = [(0, Ok(report)), (1, second)];
        match pauses_of_partitions(PauseVerb::PauseAndCancel, Vec::new(), &results) {
            ActionResult::Summary { status, content, .. } => (status, content.into_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_partition_that_fails_is_named_beside_those_that_paused() {
        let error = || {
            let detail = "it has stopped".to_owned();
            PauseError::Service(Error::NoPump { partition: 1, detail })
        };
        let (status, page) = page_of(Err(error()));
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(page.contains("1 of 2 partitions did not pause"), "{page}");
        assert!(page.contains("It is paused. 3 calls are cancelled; open calls"), "{page}");
        assert!(page.contains("no pump of partition 1 responded (it has stopped)"), "{page}");

        let (_, page) = page_of(Err(PauseError::Service(Error::Lost)));
        assert!(page.contains("1 of 2 partitions gave no result and may pause later"), "{page}");
        assert!(!page.contains("did not pause"), "{page}");
    }

    #[test]
    fn partitions_that_all_pause_are_one_success_with_a_sum() {
        let (status, page) = page_of(Ok(PauseReport { is_changed: true, in_flight: 4 }));
        assert_eq!(status, StatusCode::OK);
        assert!(
            page.contains("Done. It is paused") && page.contains("7 calls are cancelled"),
            "{page}"
        );
    }
}
