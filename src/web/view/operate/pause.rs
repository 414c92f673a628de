//! The pages for pauses, the kill switch, and cancellations.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use maud::{Markup, html};

use super::super::layout::{inline, moment};
use super::super::url_query::UrlQuery;
use super::super::{ViewState, pauses, thread};
use super::action_context::ActionContext;
use super::pending::PreparedAction;
use super::{OperateFailure, respond};
use crate::contract::Role;
use crate::ids::{ListenerName, ThreadId};
use crate::index::IndexedPause;
use crate::service::ServiceRequest;
use crate::thread::{PauseTarget, PauseVerb};

const PATH: &str = "/operate/pause";

/// Returns the path of the page that pauses or resumes a target.
pub(super) fn pause_path(verb: PauseVerb, target: &str) -> String {
    UrlQuery::default().with("verb", Some(verb.as_str())).with("target", Some(target)).link(PATH)
}

pub(super) fn cancel_path(thread: &str) -> String {
    UrlQuery::default().with("thread", Some(thread)).link("/operate/cancel")
}

/// Shows what can be paused, and what is paused.
pub(super) async fn overview(State(view): State<Arc<ViewState>>, headers: HeaderMap) -> Response {
    let context = match ActionContext::open(&view, &headers).await {
        Ok(context) => context,
        Err(failure) => return respond(&view, Err(failure)),
    };
    let contracts = context.config.contracts.iter();
    let listeners = contracts.filter(|contract| contract.role != Role::Client);
    let listeners: Vec<_> = listeners.map(|contract| contract.name.clone()).collect();
    let must_sign = context.must_sign();
    let organism = context.client().await.map(|_| ()).map_err(|failure| failure.text);
    view.respond(
        |_, index| index.pauses(),
        move |view, answers| {
            let pauses: Vec<_> = answers.into_iter().flat_map(|found| found.answer).collect();
            let content = content(&listeners, &pauses, must_sign, organism.as_ref().err());
            view.page("Operate", "/operate", &content)
        },
    )
    .await
}

fn content(
    listeners: &[ListenerName],
    in_force: &[IndexedPause],
    must_sign: bool,
    problem: Option<&String>,
) -> Markup {
    html! {
        h1 { "Operate" }
        @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
        @if must_sign {
            p.hint {
                "This organism accepts only signed decisions: "
                a href="/operate/key" { "the key of this browser" } "."
            }
        }
        h2 { "Paused" }
        @if in_force.is_empty() { p.empty { "Nothing is paused." } } @else { (list(in_force)) }
        h2 { "Everything" }
        p.buttons {
            a.button data-entry href=(pause_path(PauseVerb::Pause, "all")) { "Pause all" }
            a.button.danger data-entry href=(pause_path(PauseVerb::PauseAndCancel, "all")) {
                "Kill switch"
            }
        }
        p.hint {
            "A pause lets work in flight end. The kill switch cancels it, too. Every page of a thread \
             pauses and cancels that thread."
        }
        h2 { "One agent or listener" }
        form.filters method="get" action=(PATH) {
            div {
                label for="target" { "Name" }
                select #target name="target" {
                    @for name in listeners { option value=(name) { (name) } }
                }
            }
            button name="verb" value=(PauseVerb::Pause.as_str()) { "Pause" }
            button.danger name="verb" value=(PauseVerb::PauseAndCancel.as_str()) { "Pause and cancel" }
            button name="verb" value=(PauseVerb::Resume.as_str()) { "Resume" }
        }
    }
}

fn list(in_force: &[IndexedPause]) -> Markup {
    html! {
        ul.pauses {
            @for pause in in_force {
                @let target = pause.target.rsplit(' ').next().unwrap_or_default();
                li {
                    b { (inline(&pause.target)) } " since " (moment(pause.since)) " by "
                    (pauses::person(pause).draw()) " " (inline(&pause.note)) " "
                    a.button data-entry href=(pause_path(PauseVerb::Resume, target)) { "Resume" }
                }
            }
        }
    }
}

/// Requests the confirmation of a pause.
pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let query = UrlQuery::parse(uri.query().unwrap_or_default());
    respond(&view, pause(&view, &headers, &query).await)
}

async fn pause(
    view: &Arc<ViewState>,
    headers: &HeaderMap,
    query: &UrlQuery,
) -> Result<Response, OperateFailure> {
    let context = ActionContext::open(view, headers).await?;
    let verb = verb_of(query.get("verb").unwrap_or_default())?;
    let target = target_of(&context, query.get("target").unwrap_or_default())?;
    let client = context.client().await?;
    let requests = client.pause_requests(verb, &target, &context.origin());

    let back = match &target {
        PauseTarget::Thread(id) => thread::path(id.as_str()),
        _ => "/operate".to_owned(),
    };
    let title = match (verb, &target) {
        (PauseVerb::Pause, PauseTarget::All) => "Pause everything?",
        (PauseVerb::Pause, _) => "Pause this?",
        (PauseVerb::PauseAndCancel, PauseTarget::All) => {
            "Kill switch: pause everything and cancel its work?"
        }
        (PauseVerb::PauseAndCancel, _) => "Kill: pause this and cancel its work?",
        (PauseVerb::Resume, PauseTarget::All) => "Resume everything?",
        (PauseVerb::Resume, _) => "Resume this?",
    };
    let details = details(verb, &target, requests.len());
    let requests = requests.into_iter().map(ServiceRequest::Pause);
    context.confirm(PreparedAction::new(title, back, requests), &details).await
}

fn details(verb: PauseVerb, target: &PauseTarget, partitions: usize) -> Markup {
    let what = match target {
        PauseTarget::All => "all calls of this organism".to_owned(),
        PauseTarget::Listener(listener) => format!("all calls to {listener}"),
        PauseTarget::Thread(thread) => format!("the thread {thread} and everything beneath it"),
    };
    let effect = match verb {
        PauseVerb::Pause => {
            "Work in flight ends by itself. Nothing more is handed over, and no time counts, until \
             it is resumed. Submissions are accepted and wait."
        }
        PauseVerb::PauseAndCancel => {
            "Work in flight is cancelled now: what a listener has not finished is lost, and its \
             callers get a fault. Nothing more is handed over until it is resumed."
        }
        PauseVerb::Resume => "What waits is handed over, and timers that fell due fire in order.",
    };
    html! {
        p {
            "This concerns " b { (inline(&what)) }
            @if partitions > 1 { ", in " (partitions) " partitions, each of which answers for itself" }
            "."
        }
        p.(if verb == PauseVerb::PauseAndCancel { "problem" } else { "effect" }) { (effect) }
    }
}

fn verb_of(text: &str) -> Result<PauseVerb, OperateFailure> {
    let verbs = [PauseVerb::Pause, PauseVerb::PauseAndCancel, PauseVerb::Resume];
    let found = verbs.into_iter().find(|verb| verb.as_str() == text);
    found.ok_or_else(|| OperateFailure::unusable(format!("`{text}` is no action of this page")))
}

fn target_of(context: &ActionContext, text: &str) -> Result<PauseTarget, OperateFailure> {
    if text == "all" {
        return Ok(PauseTarget::All);
    }
    if let Ok(thread) = ThreadId::parse(text) {
        return Ok(PauseTarget::Thread(thread));
    }
    let mut contracts = context.config.contracts.iter();
    let listener =
        contracts.find(|known| known.role != Role::Client && known.name.as_str() == text);
    listener.map(|known| PauseTarget::Listener(known.name.clone())).ok_or_else(|| {
        OperateFailure::missing(format!("`{text}` is neither a thread nor an agent or listener"))
    })
}

/// Requests the confirmation of a cancellation.
pub(super) async fn cancel(
    State(view): State<Arc<ViewState>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let query = UrlQuery::parse(uri.query().unwrap_or_default());
    respond(&view, cancellation(&view, &headers, &query).await)
}

async fn cancellation(
    view: &Arc<ViewState>,
    headers: &HeaderMap,
    query: &UrlQuery,
) -> Result<Response, OperateFailure> {
    let context = ActionContext::open(view, headers).await?;
    let text = query.get("thread").unwrap_or_default();
    let thread = ThreadId::parse(text);
    let thread =
        thread.map_err(|_| OperateFailure::unusable(format!("`{text}` is no id of a thread")))?;
    context.client().await?;

    let details = html! {
        p { "This concerns " b { (inline(thread.as_str())) } " and everything beneath it." }
        p.problem { "All its open calls end as cancelled, and their callers get that result." }
    };
    let back = thread::path(thread.as_str());
    let by = ListenerName::operator();
    let origin = Some(context.origin());
    let request = ServiceRequest::Cancel { thread, by, reason: String::new(), origin };
    let action = PreparedAction::new("Cancel this thread?", back, [request]);
    context.confirm(action, &details).await
}
