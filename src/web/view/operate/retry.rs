//! The pages for retries: of one refused or failed message, or of all messages that a filter
//! selects.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::super::layout::{inline, shown, table, wrapped};
use super::super::payload_text::Excerpt;
use super::super::retry_list::{self, ListedRetry, RetryList, RetryPage};
use super::super::url_query::UrlQuery;
use super::super::{ViewState, message as message_page, refused, thread};
use super::action_context::{ActionContext, unreachable_organism};
use super::held_call::message as named_message;
use super::pending::PreparedAction;
use super::retry_outlook::{RetryFacts, RetryPredictor, config_facts};
use super::sending::{ActionResult, DoneAction};
use super::{OperateFailure, respond};
use crate::audit::amounts::micros;
use crate::audit::{
    EarlierAttempt, RetryMessage, RetrySource, earlier_attempts, retry_messages_with_id,
};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, MessageId};
use crate::index::{self, IndexReader, MessageSelector};
use crate::mutant::mutant;
use crate::plural::count;
use crate::service::{self, RetryReport, RetryRequest, ServiceClient, ServiceRequest};

/// Returns the path of the page that retries a message.
pub(in super::super) fn retry_path(message: MessageId) -> String {
    UrlQuery::default().with("message", Some(&message.to_string())).link("/operate/retry")
}

/// Returns the path of the page that retries all messages on one page of the retry list.
pub(in super::super) fn retry_all_path(page: &RetryPage) -> String {
    page.query().link("/operate/retry-all")
}

/// A message to retry, with the facts that the person must know before the retry.
struct RetryDraft {
    listed: ListedRetry,
    source: RetrySource,
    attempts: Vec<EarlierAttempt>,
}

/// Requests the confirmation of one retry.
pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    respond(&view, retry(context, &query).await)
}

async fn retry(context: ActionContext, query: &UrlQuery) -> Result<Response, OperateFailure> {
    let draft = RetryDraft::find(&context, named_message(query)?).await?;
    let client = context.client().await?;
    let request = request(&context, &client, &draft.listed);
    let back = draft.back();
    let request = ServiceRequest::Retry(Box::new(request));
    let action = PreparedAction::new("Retry this message?", back, [request]);
    let outlook = retry_list::outlook_text(&draft.listed.facts.outlook);
    let details = html! {
        @if let Some(text) = outlook { p.problem.boxed { "To expect: " (inline(&text)) "." } }
        (draft.repetition())
        (draft.details())
    };
    context.confirm(action, &details).await
}

/// Requests a second confirmation of a retry, because the organism has found that the listener
/// might do the work a second time.
pub(super) async fn confirm_again(
    context: ActionContext,
    request: RetryRequest,
    reason: &str,
) -> Result<Response, OperateFailure> {
    let draft = RetryDraft::find(&context, request.message).await?;
    let mut request = RetryRequest { is_confirmed: true, ..request };
    if let Some(origin) = &mut request.origin {
        origin.signature = None;
    }
    let details = html! {
        p.problem.boxed role="alert" {
            "Nothing was sent: the retry needs a confirmation of its own. The reason of the \
             organism: " (shown(reason)) "."
            @if !draft.attempts.is_empty() { " The work may be done a second time." }
        }
        (draft.details())
    };
    let back = draft.back();
    let request = ServiceRequest::Retry(Box::new(request));
    let action = PreparedAction::new("Confirm the retry?", back, [request]);
    context.confirm(action, &details).await
}

/// Requests the confirmation of the retries of all messages on one page of the retry list.
pub(super) async fn show_all(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    respond(&view, retry_all(context, &query).await)
}

async fn retry_all(context: ActionContext, query: &UrlQuery) -> Result<Response, OperateFailure> {
    let page = RetryPage::read(query)
        .map_err(|problem| OperateFailure::new(StatusCode::BAD_REQUEST, "No such page", problem))?;
    let back = format!("{}#retry", page.query().link(refused::PATH));
    let list = list(&context, page).await?;
    if list.sent().next().is_none() {
        return Err(nothing_to_retry(list.left_out().count()));
    }

    let client = context.client().await?;
    let requests = list
        .sent()
        .map(|listed| ServiceRequest::Retry(Box::new(request(&context, &client, listed))));
    let action = PreparedAction::new("Retry all of these?", back, requests);
    let sent = list.sent().count();
    let repeated = list.sent().filter(|listed| retry_list::is_repeated(listed)).count() as u64;
    let details = html! {
        p {
            "Each of these " (sent) " messages is sent again, as a new message with the same payload \
             from the same sender. The earlier ones stay as they are. An agent or a workflow does \
             all of its work anew."
        }
        @if repeated > 0 {
            p.problem.boxed {
                "Of these, " (count(repeated, "message")) " may have been done already: a listener had \
                 the work when it failed. The config allows a repetition."
            }
        }
        @if list.is_more { p.note { "There are more on the pages after this one." } }
        (retry_list::plain_table("Messages that are retried", list.sent()))
        @if list.left_out().next().is_some() {
            h2 { "Not among them" }
            (retry_list::left_out(&list, true))
            (retry_list::plain_table("Messages that are left out", list.left_out()))
        }
    };
    context.confirm(action, &details).await
}

/// Creates the failure for a request to retry all messages on a page together, if none of them can
/// be retried in this way. A person may still retry some of them one by one. `left_out` is the
/// number of messages on the page, which may be 0.
fn nothing_to_retry(left_out: usize) -> OperateFailure {
    let text = if left_out == 0 {
        "No request that failed or was refused matches and waits for a retry. The page Refused and \
         failed has those that do."
            .to_owned()
    } else {
        format!(
            "None of these {left_out} can be sent again together: each needs a confirmation of its \
             own, or would be refused or fail again. The page Refused and failed says so of each; \
             retry one of them alone."
        )
    };
    OperateFailure::new(StatusCode::CONFLICT, "Nothing to retry", text)
}

async fn list(context: &ActionContext, page: RetryPage) -> Result<RetryList, OperateFailure> {
    let wanted = page.clone();
    let facts = config_facts(&context.view).await;
    let find = move |_, index: &mut IndexReader| wanted.find(index, &facts.predictor);
    let found = context.view.journals.query(find, move |answers| {
        RetryList::of(answers.into_iter().map(|found| (found.partition, found.answer)), &page)
    });
    found.await.map_err(|error| unanswered(&error))
}

fn unanswered(error: &index::Error) -> OperateFailure {
    let text = error.to_string();
    OperateFailure::new(StatusCode::SERVICE_UNAVAILABLE, "No answer from the record", text)
}

fn request(context: &ActionContext, client: &ServiceClient, listed: &ListedRetry) -> RetryRequest {
    let ListedRetry { partition, message, .. } = listed;
    RetryRequest {
        message: message.id,
        record: message.record,
        source: message.tree.clone(),
        thread: client.retry_thread(message.id, *partition),
        partition: *partition,
        is_confirmed: mutant("retry-twice-in-the-browser"),
        origin: Some(context.origin()),
    }
}

impl RetryDraft {
    /// Finds the recorded message. If it cannot be retried, returns the reason.
    async fn find(context: &ActionContext, id: MessageId) -> Result<Self, OperateFailure> {
        let unknown = |is_behind| OperateFailure::no_message(&context.view, id, is_behind);
        let selector = MessageSelector::parse(&id.to_string()).ok_or_else(|| unknown(false))?;
        let facts = config_facts(&context.view).await;
        let find = move |index: &mut IndexReader| find(index, &selector, &facts.predictor);
        let found = context.view.journals.find(find);
        let (partition, found) =
            found.await.map_err(|error| unanswered(&error))?.map_err(unknown)?;
        let FoundRetry { message, facts, source, attempts } = found;
        let source = source.map_err(|why| {
            let text = format!("{id} cannot be retried: {why}.");
            OperateFailure::new(StatusCode::CONFLICT, "Not to be retried", text)
        })?;
        let listed = ListedRetry { partition, message, facts };
        Ok(Self { listed, source, attempts })
    }

    fn back(&self) -> String {
        match self.source.to {
            Some(_) => message_page::path(self.source.message),
            None => format!("{}#retry", refused::PATH),
        }
    }

    /// Draws a warning if the listener may have done the work already and the config permits a
    /// repetition.
    fn repetition(&self) -> Markup {
        let repeated = self.listed.facts.repeated.filter(|_| !self.attempts.is_empty());
        html! {
            @if let Some(attempts) = repeated {
                p.problem.boxed {
                    "The listener may have done this work already. The config allows a repetition: "
                    code { "attempts = " (attempts) } "."
                }
            }
        }
    }

    fn details(&self) -> Markup {
        let ListedRetry { message, facts, .. } = &self.listed;
        let written = Excerpt::as_written(&self.source.payload);
        html! {
            p {
                "The same payload is sent again, as a new message of the same sender. The earlier \
                 message keeps its outcome. An agent or a workflow does all of its work anew."
            }
            dl.facts {
                @if !facts.detail.is_empty() {
                    div { dt { "What failed" } dd { (wrapped(&facts.detail)) } }
                }
                div { dt { "From" } dd { (inline(&message.sender)) } }
                @if let Some(to) = &self.source.to { div { dt { "To" } dd { (inline(to.as_str())) } } }
                div { dt { "Time" } dd { time { (message.time) } } }
                @if let Some(id) = &self.source.thread {
                    div {
                        dt { "Thread" }
                        dd { a href=(thread::path(id.as_str())) { (inline(id.as_str())) } }
                    }
                }
                div { dt { "Message" } dd.digest { (message.id) } }
            }
            pre.body.written { (written.text()) }
            @if written.is_cut() {
                p.note { "There is more: the message has all of it as a file." }
            }
            h2 { "Earlier attempts" }
            (attempts(&self.attempts))
        }
    }
}

/// A message in one journal, and whether it can be retried.
struct FoundRetry {
    message: RetryMessage,
    facts: RetryFacts,
    source: Result<RetrySource, String>,
    attempts: Vec<EarlierAttempt>,
}

fn find(
    index: &IndexReader,
    selector: &MessageSelector,
    predictor: &RetryPredictor,
) -> Result<Option<FoundRetry>, index::Error> {
    let Some(message) = retry_messages_with_id(index, selector)?.pop() else { return Ok(None) };
    let facts = predictor.facts(index, &message)?;
    let source = RetrySource::find(index.journal(), message.record, message.id)?;
    let attempts = earlier_attempts(index, message.id)?;
    let source = source.map_err(|why| why.to_string());
    Ok(Some(FoundRetry { message, facts, source, attempts }))
}

fn attempts(attempts: &[EarlierAttempt]) -> Markup {
    let row = |earlier: &EarlierAttempt| {
        let EarlierAttempt { message, attempt } = earlier;
        vec![
            message_page::link(*message),
            html! { (attempt.attempt) },
            inline(&attempt.listener),
            html! { time { (attempt.handed_over) } },
            html! { (attempt.work_us.map(micros).unwrap_or_default()) },
            inline(attempt.outcome.as_deref().unwrap_or("in flight")),
        ]
    };
    let headers = ["Message", ">Attempt", "Listener", "Handed over", ">Worked", "Outcome"];
    let rows: Vec<_> = attempts.iter().map(row).collect();
    html! {
        @if rows.is_empty() { p.empty { "No attempt of it was delivered to a listener." } } @else {
            (table("Earlier attempts", &headers, &rows))
        }
    }
}

type RetryOutcome = Result<Result<RetryReport, Refusal>, service::Error>;

/// Sends the retries one after another. Stops early if the organism does not respond.
pub(super) async fn send(
    client: &ServiceClient,
    requests: Vec<RetryRequest>,
) -> Result<ActionResult, OperateFailure> {
    let all = requests.len();
    let mut results = Vec::new();
    for request in requests {
        let result = client.retry(request.clone(), None).await;
        let is_lost = matches!(&result, Err(error) if !is_answer(error));
        results.push((request, result));
        if is_lost {
            break;
        }
    }

    match results.pop() {
        Some((request, result)) if all == 1 => one_result(request, result),
        Some(last) => {
            results.push(last);
            Ok(summary(all, &results))
        }
        None => Err(OperateFailure::missing("There is no message.")),
    }
}

/// Whether the error is a response of the organism about this message, so that further retries can
/// be sent: it states that the message cannot be retried, or names a retry of the message.
fn is_answer(error: &service::Error) -> bool {
    matches!(error, service::Error::Failed { .. } | service::Error::MaybeRetried { .. })
}

fn one_result(request: RetryRequest, result: RetryOutcome) -> Result<ActionResult, OperateFailure> {
    match result {
        Ok(Ok(RetryReport::Retried { thread, calls })) => Ok(ActionResult::Done(DoneAction {
            text: "It is sent again, as a new message.".to_owned(),
            thread: Some(("Its thread", thread)),
            messages: calls.iter().map(|CallId(message)| *message).collect(),
            ..DoneAction::default()
        })),
        Ok(Ok(RetryReport::AlreadyRetried { retry })) => Ok(ActionResult::Summary {
            status: StatusCode::CONFLICT,
            content: html! { p.problem role="alert" { "Nothing was sent: it " (already(retry)) } },
            done: Vec::new(),
        }),
        Ok(Ok(RetryReport::Unconfirmed { reason })) => {
            Ok(ActionResult::Unconfirmed { request: Box::new(request), reason })
        }
        Ok(Err(refusal)) => Ok(ActionResult::Refused(Box::new(refusal))),
        Err(service::Error::MaybeRetried { retry }) => Ok(ActionResult::Summary {
            status: StatusCode::CONFLICT,
            content: html! { p.problem role="alert" { "It " (maybe_retried(retry)) } },
            done: Vec::new(),
        }),
        Err(error) if is_answer(&error) => {
            let text = error.to_string();
            Err(OperateFailure::new(StatusCode::CONFLICT, "Not to be retried", text))
        }
        Err(error) => Err(unreachable_organism(&error)),
    }
}

fn already(retry: MessageId) -> Markup {
    html! {
        "was retried before, as " (message_page::link(retry)) "; retry that one if it failed, too."
    }
}

fn maybe_retried(retry: MessageId) -> Markup {
    html! {
        "was retried as " (message_page::link(retry)) ", by this request or by another one: the \
         first response was lost. Retry that one if it failed, too."
    }
}

/// Whether the pump refused the retry because the submission was sent again with its key, by its
/// client or by another retry. A repetition can succeed only after the key has expired.
fn is_sent_again(result: &RetryOutcome) -> bool {
    matches!(result, Ok(Err(refusal)) if refusal.rule == RefusalRule::KeyReused)
}

/// Draws the results of several retries.
fn summary(all: usize, results: &[(RetryRequest, RetryOutcome)]) -> ActionResult {
    let is_retried = |result: &RetryOutcome| matches!(result, Ok(Ok(RetryReport::Retried { .. })));
    let is_left_out =
        |result: &RetryOutcome| matches!(result, Ok(Ok(RetryReport::Unconfirmed { .. })));
    let retried = results.iter().filter(|(_, result)| is_retried(result)).count();
    let left_out = results.iter().filter(|(_, result)| is_left_out(result)).count();
    let sent_again = results.iter().filter(|(_, result)| is_sent_again(result)).count();
    let is_lost = |result: &RetryOutcome| matches!(result, Err(error) if !is_answer(error));
    let was_lost = results.iter().any(|(_, result)| is_lost(result));
    let failed = results.len() - retried - left_out - sent_again;
    let rows: Vec<_> = results.iter().map(result_row).collect();
    let content = html! {
        @if failed == 0 {
            p.done role="status" { "Done. Sent again: " (retried) "." }
        } @else {
            p.problem role="alert" { "Sent again: " (retried) " of " (all) "." }
        }
        @if left_out > 0 {
            p.note {
                (count(left_out as u64, "message")) " left out, because the work may be done a second \
                 time. Each needs a confirmation of its own."
            }
        }
        @if sent_again > 0 {
            p.note {
                "Left out, because they were sent again with their keys, by their clients or by \
                 another retry: " (sent_again) "."
            }
        }
        @if all > results.len() {
            p.note {
                "The organism did not answer, so the last " (all - results.len()) " were not tried. \
                 It can be repeated: nothing is sent twice."
            }
        }
        (table("Results", &["Message", "Result"], &rows))
    };
    let status = match failed {
        0 => StatusCode::OK,
        _ if was_lost => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    };
    let done = results.iter().filter_map(|(request, result)| match result {
        // The new message may be in another thread than the requested one.
        Ok(Ok(RetryReport::Retried { thread, .. })) => {
            let request = RetryRequest { thread: thread.clone(), ..request.clone() };
            Some(ServiceRequest::Retry(Box::new(request)))
        }
        _ => None,
    });
    let done = done.collect();
    ActionResult::Summary { status, content, done }
}

fn result_row((request, result): &(RetryRequest, RetryOutcome)) -> Vec<Markup> {
    let id = request.message;
    let text = match result {
        Ok(Ok(RetryReport::Retried { thread, calls })) => html! {
            "Sent again as "
            @for (at, CallId(call)) in calls.iter().enumerate() {
                @if at > 0 { ", " }
                (message_page::link(*call))
            }
            " in " a href=(thread::path(thread.as_str())) { (inline(thread.as_str())) }
        },
        Ok(Ok(RetryReport::AlreadyRetried { retry })) => html! { "It " (already(*retry)) },
        Ok(Ok(RetryReport::Unconfirmed { reason })) => html! {
            "Left out: " (shown(reason)) ". " a href=(retry_path(id)) { "Look at it" }
        },
        Ok(Err(refusal)) => html! { span.problem { "Refused: " (shown(&refusal.to_string())) } },
        Err(service::Error::MaybeRetried { retry }) => html! { "It " (maybe_retried(*retry)) },
        Err(error) => html! { span.problem { (shown(&error.to_string())) } },
    };
    vec![html! { code { (id) } }, text]
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{Position, ThreadId};

    fn request() -> RetryRequest {
        let thread = ThreadId::organism();
        RetryRequest {
            message: MessageId(Uuid::from_u128(1)),
            record: Position(1),
            source: thread.clone(),
            thread,
            partition: 0,
            is_confirmed: false,
            origin: None,
        }
    }

    fn status_after(rule: RefusalRule) -> StatusCode {
        let refusal = Refusal::new(rule, "it is refused", b"<ping/>");
        let retried = RetryReport::Retried { thread: ThreadId::organism(), calls: Vec::new() };
        let results = [(request(), Ok(Ok(retried))), (request(), Ok(Err(refusal)))];
        match summary(2, &results) {
            ActionResult::Summary { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_that_was_sent_again_with_its_key_is_left_out_of_the_failed_retries() {
        assert_eq!(status_after(RefusalRule::KeyReused), StatusCode::OK);
        assert_eq!(status_after(RefusalRule::NotInVocabulary), StatusCode::CONFLICT);
    }

    #[test]
    fn a_retry_that_may_be_of_this_request_is_linked_and_is_no_missing_answer() {
        let retry = MessageId(Uuid::from_u128(7));
        let lost = || Err(service::Error::MaybeRetried { retry });
        assert!(is_answer(&service::Error::MaybeRetried { retry }), "the next retry is sent");

        let one = one_result(request(), lost()).unwrap();
        for result in [one, summary(1, &[(request(), lost())])] {
            let ActionResult::Summary { status, content, .. } = result else { panic!("a summary") };
            let content = content.into_string();
            assert_eq!(status, StatusCode::CONFLICT);
            assert!(content.contains(&message_page::path(retry)), "{content}");
            assert!(content.contains("by this request or by another one"), "{content}");
            assert!(!content.contains("did not answer"), "{content}");
        }
    }
}
