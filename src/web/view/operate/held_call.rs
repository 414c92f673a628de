//! The pages for approvals and refusals of held calls.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::html;

use super::super::ViewState;
use super::super::layout::inline;
use super::super::url_query::UrlQuery;
use super::super::waiting;
use super::action_context::{ActionContext, with_request};
use super::pending::PreparedAction;
use super::{OperateFailure, respond};
use crate::audit::{CallPreviewView, HeldCall};
use crate::ids::{ListenerName, MessageId};
use crate::limits;
use crate::service::{DecisionRequest, ServiceRequest, SubmittedAnswer};
use crate::thread::{Decision, Hold};

/// Returns the path of the page that approves a held call with exactly its present payload and
/// preview.
pub(in super::super) fn approve_path(call: &HeldCall) -> String {
    let message = call.message.to_string();
    let hash = call.sha256.to_string();
    let preview = call.preview_sha256().map(|preview| preview.to_string());
    let query = UrlQuery::default().with("message", Some(&message)).with("hash", Some(&hash));
    query.with("preview", preview.as_deref()).link("/operate/approve")
}

pub(in super::super) fn refuse_path(call: &HeldCall) -> String {
    let message = call.message.to_string();
    UrlQuery::default().with("message", Some(&message)).link("/operate/refuse")
}

pub(super) async fn approve(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    respond(&view, approval(context, &query).await)
}

async fn approval(context: ActionContext, query: &UrlQuery) -> Result<Response, OperateFailure> {
    let call = context.held_call(message(query)?, Some(Hold::Approval)).await?;
    if call.preview == Some(CallPreviewView::Requested) {
        let text = "The listener is still making its preview. Load this page again in a moment, so \
                    that you decide about what would change.";
        return Err(OperateFailure::new(StatusCode::CONFLICT, "The preview is on its way", text));
    }

    require_unredacted(&call)?;
    if !is_shown_whole(&call) {
        let text = format!(
            "This page would not show all of the payload or of its preview: one of them is longer \
             than 100,000 characters. Read it with `organism approvals --all-from {}`, and decide \
             with `organism approve` or `organism refuse`.",
            call.thread
        );
        return Err(OperateFailure::new(StatusCode::CONFLICT, "Too long to decide here", text));
    }

    let hash = call.sha256.to_string();
    let preview = call.preview_sha256().map(|preview| preview.to_string());
    let is_same = query.get("hash").is_none_or(|seen| seen == hash)
        && (query.get("hash").is_none() || query.get("preview") == preview.as_deref());
    if !is_same {
        let text = "The call or its preview is not the one that you have seen. Nothing was done. \
                    Open the page Waiting, and read it again.";
        return Err(OperateFailure::new(StatusCode::CONFLICT, "Another payload", text));
    }
    decide(context, "Approve this call?", &call, Decision::Approve { hash, preview }).await
}

/// Fails if the payload or the preview of a call was redacted. A person can only refuse such a
/// call.
pub(super) fn require_unredacted(call: &HeldCall) -> Result<(), OperateFailure> {
    if !call.can_only_be_refused() {
        return Ok(());
    }
    let text = format!(
        "The payload of this call or its preview was redacted: the call can only be refused, on the \
         page Waiting or with `organism refuse {}`.",
        call.message
    );
    Err(OperateFailure::new(StatusCode::CONFLICT, "Redacted", text))
}

/// Whether a page shows everything that an approval of this call covers.
fn is_shown_whole(call: &HeldCall) -> bool {
    let is_short = |text: &Option<String>| {
        let cut = text.as_ref().map(|text| text.chars().nth(limits::WEB_RAW_CHARS));
        cut == Some(None)
    };
    let preview = match &call.preview {
        Some(CallPreviewView::Recorded { text, .. }) => is_short(text),
        _ => true,
    };
    is_short(&call.payload) && preview
}

pub(super) async fn refuse(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    respond(&view, refusal(context, &query).await)
}

async fn refusal(context: ActionContext, query: &UrlQuery) -> Result<Response, OperateFailure> {
    let call = context.held_call(message(query)?, None).await?;
    let reason = String::new();
    decide(context, "Refuse this call?", &call, Decision::Refuse { reason }).await
}

async fn decide(
    context: ActionContext,
    title: &'static str,
    call: &HeldCall,
    what: Decision<SubmittedAnswer>,
) -> Result<Response, OperateFailure> {
    let effect = match &what {
        Decision::Approve { .. } => format!(
            "Once approved, exactly this goes to {}; during a pause, at its end. An approval cannot be \
             withdrawn.",
            call.to
        ),
        _ => format!(
            "Once refused, {} gets a fault, and {} never gets the call.",
            call.from, call.to
        ),
    };
    let request = decision(&context, call.message, what);
    let back = waiting::PATH.to_owned();
    let action = PreparedAction::new(title, back, [request]);
    let shown = with_request(&context.view, call.clone()).await;
    let details = html! {
        p { (inline(&effect)) }
        (waiting::whole_call(&shown))
    };
    context.confirm(action, &details).await
}

/// Builds the request for a decision.
pub(super) fn decision(
    context: &ActionContext,
    message: MessageId,
    what: Decision<SubmittedAnswer>,
) -> ServiceRequest {
    let by = ListenerName::operator();
    let origin = Some(context.origin());
    ServiceRequest::Decide(DecisionRequest { message, partition: None, by, what, origin })
}

/// Reads the message id from the query of a URL.
pub(super) fn message(query: &UrlQuery) -> Result<MessageId, OperateFailure> {
    let text = query.get("message").unwrap_or_default();
    text.parse().map(MessageId).map_err(|_| {
        OperateFailure::unusable(format!(
            "`{text}` is no id of a message; the page Waiting has links"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_a_page_cuts_is_not_shown_whole() {
        let call = |payload: Option<String>| {
            serde_json::from_value::<HeldCall>(serde_json::json!({
                "message": uuid::Uuid::from_u128(7),
                "hold": "approval",
                "thread": "sess-held0001",
                "from": "desk",
                "to": "shell",
                "name": "{urn:example}run",
                "sha256": "0".repeat(64),
                "payload": payload,
                "since": "2026-11-24T20:00:00Z",
            }))
        };
        let whole = call(Some("x".repeat(limits::WEB_RAW_CHARS))).unwrap();
        assert!(is_shown_whole(&whole));
        let cut = call(Some("x".repeat(limits::WEB_RAW_CHARS + 1))).unwrap();
        assert!(!is_shown_whole(&cut));
        assert!(require_unredacted(&cut).is_ok());
        let redacted = call(None).unwrap();
        assert!(!is_shown_whole(&redacted));
        let failure = require_unredacted(&redacted).unwrap_err();
        assert_eq!(failure.status, StatusCode::CONFLICT);
        assert!(failure.text.contains("can only be refused"), "{failure:?}");
    }
}
