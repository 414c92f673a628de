//! The page that shows an action and asks for its confirmation, and what follows from that.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use maud::{Markup, html};

use super::super::layout::{inline, shown};
use super::super::url_query::UrlQuery;
use super::super::{ViewState, thread};
use super::action_context::{ActionContext, unreachable_organism};
use super::pending::PreparedAction;
use super::{OperateFailure, answer, fork, read_form, respond};
use crate::envelope::Refusal;
use crate::ids::ThreadId;
use crate::limits;
use crate::mutant::mutant;
use crate::service::{PauseError, PauseReport, ServiceClient, ServiceRequest};
use crate::thread::{Decision, OperatorPublicKey, PauseVerb};

/// The section that these pages belong to.
const SECTION: &str = "/operate";

/// The result of an action.
enum ActionResult {
    Done { text: String, thread: Option<ThreadId> },
    Refused(Box<Refusal>),
}

impl ActionContext {
    /// Keeps an action, and shows it with the form that confirms it.
    pub async fn confirm(
        self,
        mut action: PreparedAction,
        details: &Markup,
    ) -> Result<Response, OperateFailure> {
        let mut to_sign = None;
        if self.must_sign() {
            let place = self.client().await?.signature_place(&action.request).await;
            let place = place.map_err(|error| unreachable_organism(&error))?;
            let place =
                place.ok_or_else(|| OperateFailure::missing("The thread is not on record."))?;
            to_sign = place.text_to_sign(&mut action.request);
            action.place = Some(place);
        }

        let title = action.title;
        let (label, takes_reason) = button_of(&action.request);
        let back = action.back.clone();
        let hash = approved_hash(&action.request).map(str::to_owned);
        let token = self.access()?.pending.add(self.session, action);
        let content = html! {
            h1 { (title) }
            (details)
            form.confirm #confirm method="post" action="/operate/confirm"
                data-statement=[to_sign.as_deref()] data-operator=(self.person) {
                input name="token" type="hidden" value=(token.reveal());
                @if let Some(hash) = &hash { input name="hash" type="hidden" value=(hash); }
                @if to_sign.is_some() {
                    input name="key" type="hidden" value="";
                    input name="signature" type="hidden" value="";
                }
                @if takes_reason {
                    label for="reason" { "Reason, which the caller receives" }
                    input #reason name="reason" maxlength=(limits::REASON_CHARS_MAX)
                        autocomplete="off";
                }
                label for="note" { "Note for the record" }
                input #note name="note" maxlength=(limits::REASON_CHARS_MAX) autocomplete="off";
                p.buttons {
                    button type="submit" disabled[to_sign.is_some()] { (label) }
                    a href=(back) { "Do nothing" }
                }
                p.hint { "This goes on record as an action of " (inline(self.person.as_str())) "." }
            }
            @if to_sign.is_some() { (signing_hint()) }
        };
        Ok(self.view.page(title, SECTION, &content))
    }
}

/// The state of the browser's key, for a decision that must be signed.
fn signing_hint() -> Markup {
    html! {
        p.hint #signing role="status" {
            noscript {
                "This organism takes signed decisions alone, and a key in a browser needs the \
                 script. Without it, decide at the terminal, with "
                code { "--sign FILE" } "."
            }
        }
        p.hint { a href="/operate/key" { "The key of this browser" } }
        script src="/operate.js" defer {}
    }
}

/// Label of the button, and whether the caller receives a reason.
fn button_of(request: &ServiceRequest) -> (&'static str, bool) {
    match request {
        ServiceRequest::Decide(decision) => match &decision.what {
            Decision::Approve { .. } => ("Approve exactly this", false),
            Decision::Refuse { .. } => ("Refuse it", true),
            Decision::Answer(_) => ("Send this answer", false),
        },
        ServiceRequest::Cancel { .. } => ("Cancel it", true),
        ServiceRequest::Pause(pause) => match pause.verb {
            PauseVerb::Pause => ("Pause", false),
            PauseVerb::PauseAndCancel => ("Pause and cancel", false),
            PauseVerb::Resume => ("Resume", false),
        },
        _ => ("Fork it", false),
    }
}

fn approved_hash(request: &ServiceRequest) -> Option<&str> {
    match request {
        ServiceRequest::Decide(decision) => match &decision.what {
            Decision::Approve { hash, .. } => Some(hash),
            _ => None,
        },
        _ => None,
    }
}

/// Carries out the action that a form confirms.
pub(super) async fn carry_out(
    State(view): State<Arc<ViewState>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    respond(&view, confirmed(&view, &headers, body).await)
}

async fn confirmed(
    view: &Arc<ViewState>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, OperateFailure> {
    let form = read_form(body).await?;
    let context = ActionContext::open(view, headers).await?;
    let token = form.get("token").unwrap_or_default();
    let action = context.access()?.pending.take(context.session, token).ok_or_else(|| {
        let text = "This confirmation was used, or it is too old, or it is of another view. Nothing \
                    was done now. The page Actions has what was done; open the page of the action \
                    again to decide.";
        OperateFailure::new(StatusCode::CONFLICT, "Not confirmed", text)
    })?;

    let is_shown = form.get("hash") == approved_hash(&action.request);
    if !is_shown && !mutant("approve-another-hash") {
        let text = "The hash of this confirmation is not that of the payload on the page. Nothing \
                    was done. Open the page Waiting, and read the call again.";
        return Err(OperateFailure::new(StatusCode::CONFLICT, "Another payload", text));
    }

    let PreparedAction { mut request, title, back, place, typed } = action;
    set_texts(&mut request, &form);
    if let Some(place) = place {
        let (key, signature) = signature(&context, &form)?;
        place.add_signature(&mut request, key, signature);
    }

    let client = context.client().await?;
    match send(&client, request).await? {
        ActionResult::Done { text, thread } => {
            Ok(view.page(title, SECTION, &done(title, &text, thread.as_ref(), &back)))
        }
        ActionResult::Refused(refusal) => match typed {
            Some((answer::PATH, typed)) => answer::again(context, &typed, &refusal).await,
            Some((_, typed)) => fork::again(context, &typed, &refusal).await,
            None => {
                let page = view.page(title, SECTION, &refused(title, &refusal, &back));
                Ok((StatusCode::CONFLICT, page).into_response())
            }
        },
    }
}

/// The signature that the browser made with the key of this person.
fn signature(
    context: &ActionContext,
    form: &UrlQuery,
) -> Result<(OperatorPublicKey, [u8; 64]), OperateFailure> {
    let unsigned = |text: String| OperateFailure::new(StatusCode::FORBIDDEN, "Not signed", text);
    let key = form.get("key").and_then(OperatorPublicKey::parse);
    let bytes = form.get("signature").and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let bytes: Option<[u8; 64]> = bytes.and_then(|bytes| bytes.try_into().ok());
    let (Some(key), Some(bytes)) = (key, bytes) else {
        let text = "This organism takes signed decisions alone, and this one has no signature. \
                    Nothing was done. The page /operate/key says how this browser gets a key; at \
                    the terminal, `--sign FILE` signs.";
        return Err(unsigned(text.to_owned()));
    };

    let person = &context.person;
    let is_own = context.config.operators.owner(&key) == Some(person);
    if !is_own && !mutant("act-with-the-key-of-another") {
        return Err(unsigned(format!(
            "The key that signed this is no key of `{person}` in the config. Nothing was done. The \
             page /operate/key shows the line for the config."
        )));
    }
    Ok((key, bytes))
}

/// Adds what the person wrote on the page of the confirmation.
fn set_texts(request: &mut ServiceRequest, form: &UrlQuery) {
    let text = |name: &str| {
        let text = form.get(name).unwrap_or_default();
        text.chars().take(limits::REASON_CHARS_MAX).collect::<String>()
    };
    let origin = match request {
        ServiceRequest::Decide(decision) => {
            if let Decision::Refuse { reason } = &mut decision.what {
                *reason = text("reason");
            }
            &mut decision.origin
        }
        ServiceRequest::Cancel { reason, origin, .. } => {
            *reason = text("reason");
            origin
        }
        ServiceRequest::Pause(pause) => &mut pause.origin,
        ServiceRequest::Fork(fork) => &mut fork.origin,
        _ => return,
    };
    origin.get_or_insert_default().note = text("note");
}

/// Sends a request as the command does.
async fn send(
    client: &ServiceClient,
    request: ServiceRequest,
) -> Result<ActionResult, OperateFailure> {
    let failed = |error| unreachable_organism(&error);
    let ruled = |refusal: Option<Refusal>, text: &str| match refusal {
        Some(refusal) => ActionResult::Refused(Box::new(refusal)),
        None => ActionResult::Done { text: text.to_owned(), thread: None },
    };
    match request {
        ServiceRequest::Decide(decision) => {
            let text = match &decision.what {
                Decision::Approve { .. } => "The call is approved, and goes to its listener.",
                Decision::Refuse { .. } => "It is refused, and its caller gets the refusal.",
                Decision::Answer(_) => "The answer is on its way to the caller.",
            };
            Ok(ruled(client.decide(decision, None).await.map_err(failed)?, text))
        }
        ServiceRequest::Pause(pause) => {
            let origin = pause.origin.clone().unwrap_or_default();
            let results = client.pause(pause.verb, &pause.target, &origin, None).await;
            paused(pause.verb, results)
        }
        ServiceRequest::Fork(fork) => match client.fork(*fork, None).await.map_err(failed)? {
            Ok(forked) => Ok(ActionResult::Done {
                text: "The fork is on record. Calls that the source does not have wait for an \
                       approval."
                    .to_owned(),
                thread: Some(forked.thread),
            }),
            Err(refusal) => Ok(ActionResult::Refused(Box::new(refusal))),
        },
        cancel => {
            let refusal = client.cancel(cancel, None).await.map_err(failed)?;
            Ok(ruled(refusal, "All open calls in the thread and its subthreads are cancelled."))
        }
    }
}

/// The result of a pause: the first partition that did not do it decides.
fn paused(
    verb: PauseVerb,
    results: Vec<(u32, Result<PauseReport, PauseError>)>,
) -> Result<ActionResult, OperateFailure> {
    let mut in_flight = 0;
    let mut is_changed = false;
    for (_, result) in results {
        match result {
            Ok(report) => {
                in_flight += report.in_flight;
                is_changed |= report.is_changed;
            }
            Err(PauseError::Refused(refusal)) => return Ok(ActionResult::Refused(refusal)),
            Err(PauseError::Service(error)) => return Err(unreachable_organism(&error)),
            Err(error) => return Err(OperateFailure::missing(error.to_string())),
        }
    }
    let text = match (verb, is_changed) {
        (PauseVerb::Resume, true) => "It goes on.".to_owned(),
        (PauseVerb::Resume, false) => "It was not paused.".to_owned(),
        (PauseVerb::Pause, false) => "It was paused already.".to_owned(),
        (PauseVerb::Pause, true) => format!(
            "It is paused: nothing more is handed over until it is resumed. Deliveries in flight \
             that end by themselves: {in_flight}."
        ),
        (PauseVerb::PauseAndCancel, _) => {
            format!("It is paused, and its work in flight is cancelled. Deliveries: {in_flight}.")
        }
    };
    Ok(ActionResult::Done { text, thread: None })
}

fn done(title: &str, text: &str, forked: Option<&ThreadId>, back: &str) -> Markup {
    html! {
        h1 { (title.trim_end_matches('?')) }
        p.done role="status" { "Done. " (text) }
        @if let Some(id) = forked {
            p { "The fork: " a href=(thread::path(id.as_str())) { (inline(id.as_str())) } }
        }
        p.pages { a href=(back) { "Back" } a href="/waiting" { "Waiting" } a href="/actions" { "Actions" } }
    }
}

/// The refusal of an action, as the organism gives it.
pub(super) fn refusal_text(refusal: &Refusal) -> Markup {
    html! {
        p.problem role="alert" { "Refused: " (shown(&refusal.to_string())) }
        @if let Some(expected) = &refusal.expected {
            p.hint { "Expected, for example:" }
            pre.body.written { (shown(expected)) }
        }
    }
}

fn refused(title: &str, refusal: &Refusal, back: &str) -> Markup {
    html! {
        h1 { (title) }
        (refusal_text(refusal))
        p.hint { "The refusal is on record. Nothing else changed." }
        p.pages { a href=(back) { "Back" } a href="/waiting" { "Waiting" } a href="/actions" { "Actions" } }
    }
}
