//! The actions of a named person in the web view: decisions about held calls, pauses,
//! cancellations, forks and retries.
//!
//! **Invariant:** this module has no rules of its own for these actions. The organism gets the same
//! request as from the command at the terminal. The request is sent only after the person has
//! confirmed exactly this action on a page.

mod action_context;
mod answer;
mod answer_fields;
mod config_facts;
mod confirmation;
mod fork;
mod held_call;
mod key;
mod pause;
mod pending;
mod receipt;
mod retry;
mod retry_outlook;
mod sending;
mod signing_hint;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use maud::{Markup, html};

use super::form_body::{FormBodyError, read_form_body};
use super::layout::{inline, shown};
use super::url_query::UrlQuery;
use super::{ViewPerson, ViewState};
use crate::ids::{ListenerName, MessageId, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::PauseVerb;
pub(super) use answer::answer_path;
pub(super) use config_facts::ConfigFacts;
use config_facts::SharedConfigFacts;
pub(super) use held_call::{approve_path, refuse_path};
use pending::PendingActions;
pub(super) use retry::{retry_all_path, retry_path};
pub(super) use retry_outlook::{RetryFacts, RetryOutlook, RetryPredictor, config_facts};

/// Options of a view in which a person may act.
#[derive(Debug)]
pub struct OperateOptions {
    /// The config file of the organism.
    pub config: PathBuf,
}

/// The person whose actions the view carries out, and the data that these actions need.
#[derive(Debug)]
pub(super) struct OperateAccess {
    person: ListenerName,
    config: PathBuf,
    facts: SharedConfigFacts,
    pending: PendingActions,
}

impl OperateAccess {
    /// Creates the access of a person to the actions of the view. Returns `None` if the view is
    /// read-only. The view is read-only without `options`, for a client, and for a viewer without a
    /// name.
    pub fn of(options: Option<OperateOptions>, person: &ViewPerson) -> Option<Self> {
        let OperateOptions { config } = options?;
        let person = match person {
            ViewPerson::Operator(name) => name.clone(),
            ViewPerson::Client(name) if mutant("let-a-client-operate") => name.clone(),
            ViewPerson::Viewer | ViewPerson::Client(_) => return None,
        };
        let facts = SharedConfigFacts::default();
        Some(Self { person, config, facts, pending: PendingActions::default() })
    }

    /// Returns the [`ConfigFacts`], such as the person's public keys. They come from the config as
    /// it is in the files now.
    pub async fn config_facts(&self) -> Arc<ConfigFacts> {
        self.facts.current(self.config.clone(), self.person.clone()).await
    }

    /// Draws the script that signs decisions, and a hidden warning, which the script shows if the
    /// config does not have the key of this browser. Draws nothing if decisions need no signature,
    /// or before the config was loaded.
    pub fn key_warning(&self) -> Markup {
        let facts = self.facts.known();
        let keys = facts.as_ref().and_then(|facts| facts.signing_keys.as_deref());
        html! {
            @if let Some(keys) = keys {
                p.strip #key-warning role="status" hidden data-operator=(self.person)
                    data-keys=(keys) {
                    "Decisions must be signed, and the config does not have the key of this browser: "
                    a href="/operate/key" { "enroll it" } " to decide here."
                }
                script src="/operate.js" defer {}
            }
        }
    }
}

/// Why an action is not carried out.
#[derive(Debug)]
pub(super) struct OperateFailure {
    status: StatusCode,
    title: &'static str,
    text: String,
    /// Whether the organism certainly did nothing. If so, the same confirmation can be sent again.
    is_nothing_done: bool,
    /// The values that the person entered. The page of the failure shows them, so that the person
    /// can use them elsewhere.
    typed: Vec<(String, String)>,
}

/// Names of the form fields that no person fills in.
const HIDDEN_FIELDS: [&str; 7] =
    ["token", "hash", "key", "signature", "message", "reply", answer::CHANGE];

impl OperateFailure {
    fn new(status: StatusCode, title: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, title, text, is_nothing_done: false, typed: Vec::new() }
    }

    /// Adds the values that the person entered in a form.
    fn with_typed(mut self, form: &UrlQuery) -> Self {
        self.typed.extend(typed_values(form));
        self
    }

    /// Draws the page of this failure.
    fn page(&self, view: &ViewState) -> Response {
        let content = html! {
            h1 { (self.title) }
            p.problem { (shown(&self.text)) }
            (draw_typed(&self.typed))
        };
        (self.status, view.page(self.title, "", &content)).into_response()
    }

    /// Creates the failure for a request that names something that cannot be found.
    fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "Nothing to do", text)
    }

    /// Creates the failure for a message that the index does not have. `is_behind` states whether
    /// the index lacks records. If so, the text advises the person to try again later.
    fn no_message(view: &ViewState, id: MessageId, is_behind: bool) -> Self {
        if is_behind {
            let text = format!(
                "The index has no message `{id}`, but lacks the latest records. Load this page \
                 again in a moment."
            );
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not indexed yet", text);
        }
        let (status, text) = view.describe_absence(&format!("message `{id}`"), None);
        Self::new(status, "Nothing to do", text)
    }

    /// Creates the failure for a thread that is not on record.
    fn no_thread(id: &ThreadId) -> Self {
        Self::missing(format!("No thread {id} is on record; the page Threads lists them."))
    }

    fn unusable(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Not a possible action", text)
    }
}

/// The properties of a thread that determine which actions are possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadActions {
    /// Whether a call is open in the thread or beneath it. Without open calls, the page offers no
    /// cancellation of the thread.
    pub has_open_calls: bool,
    /// Whether a client may send further requests to the thread. If so, a pause of the thread also
    /// covers these requests.
    pub may_continue: bool,
    /// Whether this thread is the target of a pause.
    pub is_paused: bool,
}

/// Draws links to the actions that would have an effect on a thread. Draws no links if the person
/// may not act. A live page replaces the links when the thread changes.
pub(super) fn thread_bar(view: &ViewState, thread: &str, actions: ThreadActions) -> Markup {
    if view.operate.is_none() {
        return html! {};
    }
    let ThreadActions { has_open_calls, may_continue, is_paused } = actions;
    html! {
        p.operate-bar #operate-bar {
            @if is_paused {
                a.button href=(pause::pause_path(PauseVerb::Resume, thread)) { "Resume" }
            } @else if has_open_calls || may_continue {
                a.button href=(pause::pause_path(PauseVerb::Pause, thread)) { "Pause thread" }
            }
            @if has_open_calls {
                a.button.danger href=(pause::cancel_path(thread))
                    title="Ends its open calls. It may get further requests." { "Cancel its calls" }
                a.button.danger href=(pause::pause_path(PauseVerb::PauseAndCancel, thread))
                    title="Ends its open calls, and hands nothing over until it is resumed." {
                    "Pause and cancel"
                }
            }
        }
    }
}

/// The properties of a message that determine which actions are possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageActions {
    /// Whether a fork can begin at the message, or at an earlier message of its thread.
    pub can_fork: bool,
    /// Whether the message can be retried. True if the message opened a call that failed or was
    /// cancelled, and its payload was not redacted.
    pub can_retry: bool,
}

/// Draws links to the pages that fork at a message or retry the message. Leaves out links to
/// actions that are not possible. Draws no links if the person may not act.
pub(super) fn message_bar(view: &ViewState, message: MessageId, actions: MessageActions) -> Markup {
    let MessageActions { can_fork, can_retry } = actions;
    if view.operate.is_none() || !(can_fork || can_retry) {
        return html! {};
    }
    html! {
        p.operate-bar {
            @if can_fork { a.button href=(fork::fork_path(message)) { "Fork here" } }
            @if can_retry { a.button href=(retry_path(message)) { "Retry" } }
        }
    }
}

/// Creates the router of the pages for actions. A read-only view refuses all requests for these
/// pages.
pub(super) fn router(state: &Arc<ViewState>) -> Router<Arc<ViewState>> {
    Router::new()
        .route("/operate", get(pause::overview))
        .route("/operate/approve", get(held_call::approve))
        .route("/operate/refuse", get(held_call::refuse))
        .route("/operate/answer", get(answer::show).post(answer::prepare))
        .route("/operate/pause", get(pause::show))
        .route("/operate/cancel", get(pause::cancel))
        .route("/operate/fork", get(fork::show).post(fork::prepare))
        .route("/operate/retry", get(retry::show))
        .route("/operate/retry-all", get(retry::show_all))
        .route("/operate/key", get(key::show))
        .route("/operate/confirm", post(confirmation::carry_out))
        .layer(from_fn_with_state(Arc::clone(state), require_operator))
}

async fn require_operator(
    State(view): State<Arc<ViewState>>,
    request: Request,
    next: Next,
) -> Response {
    if view.operate.is_some() {
        return next.run(request).await;
    }
    let text = match &view.person {
        ViewPerson::Viewer => {
            "This view is read-only: `organism serve --operate --as NAME` opens one for an operator."
                .to_owned()
        }
        ViewPerson::Client(name) => format!(
            "This view is read-only: `{name}` is a client, and an operator alone decides. A client \
             sends with `organism send`."
        ),
        ViewPerson::Operator(_) => {
            "This view is read-only: it was started without `--operate`.".to_owned()
        }
    };
    view.failed(StatusCode::FORBIDDEN, "A read-only view", &text)
}

/// Whether the page at `path` has a form whose entered values are sent to the same page. Sending
/// such a form again is harmless, because the action still needs a confirmation.
pub(super) fn has_form(path: &str) -> bool {
    [answer::PATH, fork::PATH].contains(&path)
}

/// Sends the page, or the failure that prevented the page.
fn respond(view: &ViewState, page: Result<Response, OperateFailure>) -> Response {
    page.unwrap_or_else(|failure| failure.page(view))
}

/// Returns the values that a person entered in a form.
fn typed_values(form: &UrlQuery) -> Vec<(String, String)> {
    let typed = form
        .pairs()
        .filter(|(name, value)| !HIDDEN_FIELDS.contains(name) && !value.trim().is_empty());
    typed.map(|(name, value)| (name.to_owned(), value.replace("\r\n", "\n"))).collect()
}

/// Draws the values that a person entered in a form, as plain text.
fn draw_typed(typed: &[(String, String)]) -> Markup {
    html! {
        @if !typed.is_empty() { h2 { "What was entered" } }
        @for (name, value) in typed {
            h3 { (inline(name)) }
            pre.body.written { (shown(value)) }
        }
    }
}

/// Reads the form of an action.
async fn read_form(body: Body) -> Result<UrlQuery, OperateFailure> {
    read_form_body(body, limits::WEB_ACTION_BYTES_MAX).await.map_err(|error| {
        let (title, text) = match error {
            FormBodyError::TooLong => (
                "The form is too long",
                "The form is longer than this view takes. The command at the terminal takes a file.",
            ),
            FormBodyError::Incomplete => (
                "The form did not arrive",
                "The form did not arrive whole, so nothing was done. Send it again.",
            ),
            FormBodyError::Late => {
                ("The form did not arrive", "The form did not arrive in time. Send it again.")
            }
        };
        OperateFailure::new(error.status(), title, text)
    })
}
