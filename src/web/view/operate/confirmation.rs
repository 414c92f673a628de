//! The page that shows an action and requests its confirmation, and the execution of confirmed
//! actions.

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
use super::super::{ViewState, actions, message as message_page, refused, thread, waiting};
use super::action_context::{ActionContext, unreachable_organism};
use super::pending::{PendingAction, PreparedAction, PreparedRequest};
use super::sending::{self, ActionResult, DoneAction};
use super::{
    OperateFailure, answer, draw_typed, fork, read_form, receipt, respond, retry, signing_hint,
    typed_values,
};
use crate::envelope::Refusal;
use crate::limits;
use crate::mutant::mutant;
use crate::service::{DecisionRequest, ServiceClient, ServiceRequest};
use crate::thread::{Decision, OperatorPublicKey, PauseTarget, PauseVerb, check_action_text};

/// Path of the section of the web view to which the confirmation pages belong.
const SECTION: &str = "/operate";

impl ActionContext {
    /// Stores an action, and shows it with the form that confirms it.
    pub async fn confirm(
        self,
        mut action: PreparedAction,
        details: &Markup,
    ) -> Result<Response, OperateFailure> {
        let to_sign = self.texts_to_sign(&mut action).await?;
        let must_sign = !to_sign.texts.is_empty();
        let title = action.title;
        let (label, takes_reason) = button_of(&action);
        let back = action.back.clone();
        let hash = approved_hash(&action).map(str::to_owned);
        let note = typed_note(&action);
        let kind = if is_kill(&action) { "danger" } else { "" };
        let signing = if must_sign {
            signing_hint::draw(&self, &action)
        } else {
            html! {}
        };
        let token = self.access()?.pending.add(&self.browser, action);
        let content = html! {
            h1 { (title) }
            (details)
            (to_sign.note())
            (signing)
            form.confirm #confirm method="post" action="/operate/confirm"
                data-operator=(self.person) {
                input name="token" type="hidden" value=(token.reveal());
                @if let Some(hash) = &hash { input name="hash" type="hidden" value=(hash); }
                @if must_sign { input name="key" type="hidden" value=""; }
                @for text in &to_sign.texts {
                    input name="signature" type="hidden" value="" data-statement=(text);
                }
                @if takes_reason {
                    label for="reason" { "Reason, which the caller receives" }
                    input #reason name="reason" maxlength=(limits::REASON_CHARS_MAX)
                        autocomplete="off";
                }
                label for="note" { "Note for the record" }
                input #note name="note" maxlength=(limits::REASON_CHARS_MAX) autocomplete="off"
                    value=(note);
                p.buttons {
                    button.(kind) type="submit" disabled[must_sign] { (label) }
                    a href=(back) { "Do nothing" }
                }
                p.hint { "This goes on record as an action of " (inline(self.person.as_str())) "." }
            }
        };
        Ok(self.view.page(title, SECTION, &content))
    }

    /// Returns the texts that the person signs, one for each request of the action. Returns no
    /// texts if decisions need no signature. If a partition does not respond, the request to pause
    /// or resume this partition has no text and stays unsigned.
    async fn texts_to_sign(&self, action: &mut PreparedAction) -> Result<ToSign, OperateFailure> {
        let mut to_sign = ToSign::default();
        if !self.must_sign() {
            return Ok(to_sign);
        }
        let client = self.client().await?;
        let places = action.requests.iter().map(|one| client.signature_place(&one.request));
        let places = futures_util::future::join_all(places).await;
        let mut failed = None;
        for (prepared, place) in action.requests.iter_mut().zip(places) {
            let place = match (place, &prepared.request) {
                (Ok(place), _) => place,
                (Err(error), ServiceRequest::Pause(pause)) => {
                    to_sign.unanswered.push(pause.partition);
                    failed = Some(error);
                    continue;
                }
                (Err(error), _) => return Err(unreachable_organism(&error)),
            };
            let place =
                place.ok_or_else(|| OperateFailure::missing("The thread is not on record."))?;
            let text = place.text_to_sign(&mut prepared.request);
            let text = text.ok_or_else(|| {
                OperateFailure::missing("A request of this kind cannot be signed.")
            })?;
            to_sign.texts.push(text);
            prepared.place = Some(place);
        }
        match failed {
            Some(error) if to_sign.texts.is_empty() => Err(unreachable_organism(&error)),
            _ => Ok(to_sign),
        }
    }
}

/// The texts that a person signs to confirm an action.
#[derive(Debug, Default)]
struct ToSign {
    texts: Vec<String>,
    /// Partitions that did not respond. The person can sign nothing for these partitions.
    unanswered: Vec<u32>,
}

impl ToSign {
    fn note(&self) -> Markup {
        let partitions: Vec<_> = self.unanswered.iter().map(u32::to_string).collect();
        html! {
            @if !partitions.is_empty() {
                p.problem role="alert" {
                    "These partitions do not answer, and are not part of this: "
                    (partitions.join(", ")) ". Do this again once they are back."
                }
            }
        }
    }
}

/// Returns the label of the confirmation button, and whether the form has a field for a reason. The
/// reason is sent to the callers of the refused or cancelled calls.
fn button_of(action: &PreparedAction) -> (&'static str, bool) {
    match action.first_request() {
        Some(ServiceRequest::Decide(decision)) => match &decision.what {
            Decision::Approve { .. } => ("Approve exactly this", false),
            Decision::Refuse { .. } => ("Refuse it", true),
            Decision::Answer(_) => ("Send this answer", false),
        },
        Some(ServiceRequest::Cancel { .. }) => ("Cancel its calls", true),
        Some(ServiceRequest::Pause(pause)) => match pause.verb {
            PauseVerb::Pause => ("Pause", false),
            PauseVerb::PauseAndCancel => ("Pause and cancel", false),
            PauseVerb::Resume => ("Resume", false),
        },
        Some(ServiceRequest::Retry(retry)) if retry.is_confirmed => ("Confirm the retry", false),
        Some(ServiceRequest::Retry(_)) if action.requests.len() > 1 => {
            ("Retry all of these", false)
        }
        Some(ServiceRequest::Retry(_)) => ("Retry it", false),
        _ => ("Fork it", false),
    }
}

fn is_resume_of_all(request: &ServiceRequest) -> bool {
    let ServiceRequest::Pause(pause) = request else { return false };
    pause.verb == PauseVerb::Resume && pause.target == PauseTarget::All
}

/// Whether the action cancels calls.
fn is_kill(action: &PreparedAction) -> bool {
    match action.first_request() {
        Some(ServiceRequest::Pause(pause)) => pause.verb == PauseVerb::PauseAndCancel,
        Some(ServiceRequest::Cancel { .. }) => true,
        _ => false,
    }
}

fn approved_hash(action: &PreparedAction) -> Option<&str> {
    match action.first_request() {
        Some(ServiceRequest::Decide(decision)) => match &decision.what {
            Decision::Approve { hash, .. } => Some(hash),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the note that the person entered on an earlier page of the same action.
fn typed_note(action: &PreparedAction) -> String {
    match action.first_request() {
        Some(ServiceRequest::Retry(retry)) => {
            retry.origin.as_ref().map(|origin| origin.note.clone()).unwrap_or_default()
        }
        _ => String::new(),
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
    let done = confirmed_by(view, headers, &form).await;
    done.map_err(|failure| failure.with_typed(&form))
}

async fn confirmed_by(
    view: &Arc<ViewState>,
    headers: &HeaderMap,
    form: &UrlQuery,
) -> Result<Response, OperateFailure> {
    let context = ActionContext::open(view, headers).await?;
    // Without a running organism, the confirmation remains valid, so that it can be sent again.
    let client = context.client().await?;
    let token = form.get("token").unwrap_or_default();
    let taken = take_action(&context, token)?;
    let PreparedAction { title, back, typed, .. } = taken.action.clone();
    let requests = match confirmed_requests(&context, &taken.action, form) {
        Ok(requests) => requests,
        Err(failure) => {
            context.access()?.pending.put_back(taken);
            return Err(failure);
        }
    };
    let first = requests.first().cloned();
    let sent = send_apart(view, client, requests, taken).await?;
    if first.as_ref().is_some_and(is_resume_of_all) {
        // The index does not have the record of the resume yet.
        view.present.set_pause(None);
    }
    match sent {
        ActionResult::Done(done) => {
            let receipt = match first.filter(|_| !done.is_unrecorded) {
                Some(request) => receipt::draw(&context, request).await,
                None => html! {},
            };
            Ok(view.page(title, SECTION, &self::done(title, &done, &receipt, &back)))
        }
        ActionResult::Summary { status, content, done } => {
            let receipt = receipt::draw_several(&context, done).await;
            let content = html! {
                h1 { (title.trim_end_matches('?')) }
                (content)
                (receipt)
                p.hint {
                    "Requested by " (inline(context.person.as_str())) ". The page "
                    a href="/actions" { "Actions" } " shows each record of it, with its proof."
                }
                (ways_on(&back))
            };
            Ok((status, view.page(title, SECTION, &content)).into_response())
        }
        ActionResult::Unconfirmed { request, reason } => {
            retry::confirm_again(context, *request, &reason).await
        }
        ActionResult::Refused(refusal) => match typed {
            Some((answer::PATH, typed)) => answer::again(context, &typed, &refusal).await,
            Some((_, typed)) => fork::again(context, &typed, &refusal).await,
            None => {
                let page = view.page(title, SECTION, &refused(title, &refusal, form, &back));
                Ok((StatusCode::CONFLICT, page).into_response())
            }
        },
    }
}

/// Sends `requests` in a task of its own, so that the action continues if the browser does not wait
/// for the result. The confirmation of `taken` remains valid if nothing was done.
async fn send_apart(
    view: &Arc<ViewState>,
    client: ServiceClient,
    requests: Vec<ServiceRequest>,
    taken: PendingAction,
) -> Result<ActionResult, OperateFailure> {
    let kept = Arc::clone(view);
    let sending = tokio::spawn(async move {
        let sent = sending::send(&client, requests).await;
        if sent.as_ref().is_err_and(|failure| failure.is_nothing_done)
            && let Some(access) = kept.operate.as_ref()
        {
            access.pending.put_back(taken);
        }
        sent
    });
    sending.await.map_err(|_| {
        let text = "The view ended before the result came. The page Actions has what was done.";
        OperateFailure::new(StatusCode::SERVICE_UNAVAILABLE, "No result", text)
    })?
}

/// Removes and returns the action that a token confirms. Fails if there is no such action.
fn take_action(context: &ActionContext, token: &str) -> Result<PendingAction, OperateFailure> {
    context.access()?.pending.take(&context.browser, token).ok_or_else(|| {
        let text = "This confirmation was used, or it is too old, or too many others were opened \
                    since, or it is of another view or browser. Nothing was done now. The page \
                    Actions has what was done; open the page of the action again to decide.";
        OperateFailure::new(StatusCode::CONFLICT, "Not confirmed", text)
    })
}

/// Returns the requests of a confirmed action, as [`signed_requests`] does. Fails if the payload
/// that the form names is not the one that the action approves.
fn confirmed_requests(
    context: &ActionContext,
    action: &PreparedAction,
    form: &UrlQuery,
) -> Result<Vec<ServiceRequest>, OperateFailure> {
    let is_shown = form.get("hash") == approved_hash(action);
    if !is_shown && !mutant("approve-another-hash") {
        let text = "The hash of this confirmation is not that of the payload on the page. Nothing \
                    was done. Open the page Waiting, and read the call again.";
        return Err(OperateFailure::new(StatusCode::CONFLICT, "Another payload", text));
    }
    check_texts(form)?;
    signed_requests(context, action.requests.clone(), form)
}

/// Refuses a reason or a note that is longer than the journal records.
fn check_texts(form: &UrlQuery) -> Result<(), OperateFailure> {
    for name in ["reason", "note"] {
        check_action_text(form.get(name).unwrap_or_default()).map_err(|problem| {
            let text =
                format!("The {name} is too long: {problem}, and confirm again. Nothing was done.");
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            OperateFailure::new(status, "The text is too long", text)
        })?;
    }
    Ok(())
}

/// Returns the requests of a confirmed action, with the texts that the person entered. If decisions
/// must be signed, adds the signatures.
fn signed_requests(
    context: &ActionContext,
    prepared: Vec<PreparedRequest>,
    form: &UrlQuery,
) -> Result<Vec<ServiceRequest>, OperateFailure> {
    let mut signatures = form.all("signature");
    let requests = prepared.into_iter().map(|PreparedRequest { mut request, place }| {
        set_texts(&mut request, form);
        if let Some(place) = place {
            let (key, signature) = signature(context, form, signatures.next())?;
            place.add_signature(&mut request, key, signature);
        }
        Ok(request)
    });
    requests.collect()
}

/// Reads from a form the signature that the browser made. Fails if there is no signature, or if its
/// key is not a key of the person.
fn signature(
    context: &ActionContext,
    form: &UrlQuery,
    written: Option<&str>,
) -> Result<(OperatorPublicKey, [u8; 64]), OperateFailure> {
    let unsigned = |text: String| OperateFailure::new(StatusCode::FORBIDDEN, "Not signed", text);
    let key = form.get("key").and_then(OperatorPublicKey::parse);
    let bytes = written.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let bytes: Option<[u8; 64]> = bytes.and_then(|bytes| bytes.try_into().ok());
    let (Some(key), Some(bytes)) = (key, bytes) else {
        let text = "This organism accepts only signed decisions, and this one has no signature. \
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

/// Adds to the request the texts that the person entered on the confirmation page.
fn set_texts(request: &mut ServiceRequest, form: &UrlQuery) {
    let text = |name: &str| form.get(name).unwrap_or_default().to_owned();
    if let ServiceRequest::Decide(DecisionRequest { what: Decision::Refuse { reason }, .. })
    | ServiceRequest::Cancel { reason, .. } = request
    {
        *reason = text("reason");
    }

    if let Some(origin) = request.origin_mut() {
        origin.get_or_insert_default().note = text("note");
    }
}

fn done(title: &str, done: &DoneAction, receipt: &Markup, back: &str) -> Markup {
    html! {
        h1 { (title.trim_end_matches('?')) }
        p.done role="status" { "Done. " (done.text) }
        @if let Some((what, id)) = &done.thread {
            p { (what) ": " a href=(thread::path(id.as_str())) { (inline(id.as_str())) } }
        }
        @for message in &done.messages {
            p { "The new message: " (message_page::link(*message)) }
        }
        (receipt)
        (ways_on(back))
    }
}

/// Draws the refusal of an action with the organism's reason.
pub(super) fn refusal_text(refusal: &Refusal) -> Markup {
    html! {
        p.problem role="alert" { "Refused: " (shown(&refusal.to_string())) }
        @if let Some(expected) = &refusal.expected {
            p.hint { "Expected, for example:" }
            pre.body.written { (shown(expected)) }
        }
    }
}

fn refused(title: &str, refusal: &Refusal, form: &UrlQuery, back: &str) -> Markup {
    html! {
        h1 { (title) }
        (refusal_text(refusal))
        p.hint { "The refusal is on record. Nothing else changed." }
        (draw_typed(&typed_values(form)))
        (ways_on(back))
    }
}

/// Draws links to the page that led to the action, and to the pages with all decisions.
fn ways_on(back: &str) -> Markup {
    let named = [
        ("/threads/", "Back to the thread"),
        ("/messages/", "Back to the message"),
        (refused::PATH, "Refused and failed"),
        (answer::PATH, "Back to the question"),
        (SECTION, "Operate"),
    ];
    let name = named.into_iter().find(|(path, _)| back.starts_with(path));
    html! {
        p.pages {
            @if let Some((_, name)) = name { a href=(back) { (name) } }
            a href=(waiting::PATH) { "Waiting" }
            a href=(actions::PATH) { "Actions" }
        }
    }
}
