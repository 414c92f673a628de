//! The web view: pages that show the journals of an organism in a browser. The server draws them.
//!
//! **Invariant:** the pages change nothing, except the pages of [`operate`], which send a named
//! person's requests to the running organism. A person needs the token of this server. Beyond
//! loopback, the server needs TLS.
//!
//! The pages get their content from [`crate::audit`] and [`crate::index`], as the commands do.

mod access;
mod actions;
mod compare;
mod config;
mod connection_peer;
mod conversation;
mod costs;
mod diff_text;
mod filters;
mod fork_history;
mod form_body;
mod goal_graph;
mod goal_layout;
mod journals;
mod layout;
mod listen_address;
mod listeners;
mod live;
mod message;
mod operate;
mod pauses;
mod payload_text;
mod person;
mod present_facts;
mod prompt;
mod record;
mod record_entry;
mod refused;
mod retry_list;
mod search;
mod sequence;
mod thread;
mod thread_status;
mod thread_tree;
mod thread_view;
mod threads;
mod time_axis;
mod time_scale;
mod timeline_chart;
mod timeline_rows;
mod tls;
mod token_page;
mod turn_text;
mod unseen;
mod url_query;
mod waiting;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use tokio::net::TcpListener;

use super::connections::{self, HttpListener};
use crate::audit::{IncompleteCopy, PartitionCopies, VerifyOptions};
use crate::ids::{ListenerName, Position, ThreadId};
use crate::index::{self, IndexReader};
use crate::limits;
use crate::owned_tasks::AbortOnDrop;
pub use access::ViewToken;
use access::{GuardOptions, RequestGuard};
use connection_peer::ConnectionPeer;
use journals::{PartitionAnswer, ViewedJournals};
use layout::{PageFrame, page};
use listeners::CallCounts;
use live::{GrowthFollower, SharedPages};
use operate::OperateAccess;
pub use operate::OperateOptions;
use present_facts::{PauseOfAll, PresentFacts};
use record::RecordProver;
use tls::TlsFileError;
pub use tls::TlsFiles;

/// Content security policy of every response. It allows only this server's own style sheet, script,
/// icon, form targets and connections. The page's script may use one Trusted Types policy, which
/// reloads pages of this view.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
                              img-src 'self'; connect-src 'self'; form-action 'self'; \
                              base-uri 'none'; frame-ancestors 'none'; \
                              require-trusted-types-for 'script'; trusted-types own-page";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Static files of the view: the path, the media type and the text of each file. The files contain
/// no data from the journal.
const FILES: [(&str, &str, &str); 4] = [
    ("/view.css", "text/css; charset=utf-8", include_str!("view.css")),
    ("/view.js", "text/javascript; charset=utf-8", include_str!("view.js")),
    ("/operate.js", "text/javascript; charset=utf-8", include_str!("operate/operate.js")),
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// The person to whom a token belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewPerson {
    /// No named person: the token permits only reading.
    Viewer,
    Operator(ListenerName),
    Client(ListenerName),
}

impl ViewPerson {
    pub fn describe(&self) -> String {
        match self {
            Self::Viewer => "viewer, read-only".to_owned(),
            Self::Operator(name) => format!("{name} (operator)"),
            Self::Client(name) => format!("{name} (client)"),
        }
    }
}

/// Options of a web view: the journals that it shows, the person who uses it, and the address of
/// its server.
#[derive(Debug)]
pub struct ViewOptions {
    /// Address on which the server listens. Without TLS, it must be a loopback address.
    pub listen: SocketAddr,
    pub tls: Option<TlsFiles>,
    /// Names under which the view is reached, in addition to the names of this machine.
    pub hosts: Vec<String>,
    /// The token; `None` if the server has to generate a token.
    pub token: Option<ViewToken>,
    /// Directory of the journal, or of the journals of all partitions.
    pub data: PathBuf,
    /// Name of the organism, if its config is known.
    pub organism: Option<String>,
    pub person: ViewPerson,
    /// Options for a view in which an operator may act; `None` for a read-only view.
    pub operate: Option<OperateOptions>,
    /// Options for the verification of the journal, such as the checkpoints to compare with.
    pub proof: VerifyOptions,
}

/// Why a view cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error(
        "{0} is reachable from other machines, and the web view needs TLS there: name a certificate \
         with --tls-cert and --tls-key, or listen on 127.0.0.1 and reach it over `ssh -L`"
    )]
    NotLoopback(SocketAddr),
    #[error(
        "{0} stands for every address of this machine, and a request must name the view: pass each \
         name of its certificate with --host"
    )]
    NoHost(SocketAddr),
    #[error("TLS: {0}")]
    Tls(#[from] TlsFileError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

/// A web view that runs until it is dropped.
#[derive(Debug)]
pub struct WebView {
    address: SocketAddr,
    state: Arc<ViewState>,
    _serving: AbortOnDrop,
}

/// State that all requests share.
#[derive(Debug)]
struct ViewState {
    guard: RequestGuard,
    journals: ViewedJournals,
    prover: Arc<RecordProver>,
    organism: Option<String>,
    person: ViewPerson,
    growth: GrowthFollower,
    present: PresentFacts,
    shared_pages: SharedPages,
    call_counts: CallCounts,
    /// The person's access to actions; `None` if the view is read-only.
    operate: Option<OperateAccess>,
}

impl WebView {
    /// Starts to listen for connections.
    ///
    /// # Errors
    ///
    /// Fails in these cases:
    /// - The address is in use.
    /// - The files for TLS are unusable.
    /// - The address is beyond loopback, and the options contain no TLS.
    /// - The address is unspecified, and the options contain no host name.
    pub async fn open(options: ViewOptions) -> Result<Self, ViewError> {
        listen_address::check(&options)?;
        let ViewOptions {
            listen: address,
            tls,
            hosts,
            token,
            data,
            organism,
            person,
            operate,
            proof,
        } = options;
        let has_tls = tls.is_some();
        let tls = tls.map(|files| files.acceptor()).transpose()?;

        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| ViewError::Listen { address, source })?;
        let address = listener.local_addr().unwrap_or(address);
        let prover = Arc::new(RecordProver::new(data.clone(), proof));
        prover.begin();
        let state = Arc::new(ViewState {
            guard: RequestGuard::new(GuardOptions { address, token, hosts, has_tls }),
            journals: ViewedJournals::new(data.clone()),
            prover,
            organism,
            operate: OperateAccess::of(operate, &person),
            person,
            present: PresentFacts::new(data.clone()),
            growth: GrowthFollower::start(data),
            shared_pages: SharedPages::default(),
            call_counts: CallCounts::default(),
        });
        let _serving = {
            let router = router(Arc::clone(&state));
            let connections_max = limits::WEB_CONNECTIONS_MAX;
            let is_keep_alive = true;
            let server = HttpListener { listener, connections_max, is_keep_alive, tls };
            AbortOnDrop::new(tokio::spawn(connections::serve(server, move |stream| {
                router.clone().layer(Extension(ConnectionPeer::of(stream)))
            })))
        };
        Ok(Self { address, state, _serving })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn token(&self) -> &ViewToken {
        self.state.guard.token()
    }
}

fn router(state: Arc<ViewState>) -> Router {
    let live_pages = Router::new()
        .route("/threads", get(threads::show))
        .route("/threads/{id}", get(thread::show))
        .route("/waiting", get(waiting::show))
        .layer(from_fn_with_state(Arc::clone(&state), live::share));
    let pages = Router::new()
        .route("/", get(async || Redirect::to("/threads")))
        .merge(live_pages)
        .route("/threads/{id}/tree", get(thread_tree::show))
        .route("/threads/{id}/goals", get(goal_graph::show))
        .route("/live/threads", get(live::show_threads))
        .route("/live/threads/{id}", get(live::show_thread))
        .route("/search", get(search::show))
        .route("/refused", get(refused::show))
        .route("/costs", get(costs::show))
        .route("/compare", get(compare::show))
        .route("/listeners", get(listeners::show))
        .route("/actions", get(actions::show))
        .route("/config", get(config::show))
        .route("/record", get(record::show))
        .route("/records/{position}", get(record_entry::show))
        .route("/messages/{id}", get(message::show))
        .route("/messages/{id}/raw", get(message::raw))
        .route("/messages/{id}/prompt", get(prompt::show))
        .merge(operate::router(&state))
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&state), require_text_path))
        .layer(from_fn_with_state(Arc::clone(&state), present_facts::look))
        .layer(from_fn_with_state(Arc::clone(&state), require_session));

    let files = FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], text)))
    });

    files
        .route("/session", post(token_page::open).get(async || Redirect::to("/threads")))
        .merge(pages)
        .layer(from_fn_with_state(Arc::clone(&state), require_own_origin))
        .layer(from_fn_with_state(Arc::clone(&state), refuse_hosted_process))
        .layer(from_fn(add_headers))
        .with_state(state)
}

/// Adds to a response the headers that every response has.
async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses requests from processes that the organism started, whatever credentials they present.
async fn refuse_hosted_process(
    State(view): State<Arc<ViewState>>,
    Extension(peer): Extension<ConnectionPeer>,
    request: Request,
    next: Next,
) -> Response {
    if peer.is_hosted(view.journals.data()).await {
        let text = "a process that the organism hosts gets nothing from the web view\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}

/// Refuses a request if another site caused the browser to send it.
async fn require_own_origin(
    State(view): State<Arc<ViewState>>,
    request: Request,
    next: Next,
) -> Response {
    match view.guard.check_origin(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(foreign) => (StatusCode::FORBIDDEN, format!("{}\n", foreign.explain())).into_response(),
    }
}

/// Passes on requests that belong to a session. Responds to any other request with the page on
/// which a person enters the token.
async fn require_session(
    State(view): State<Arc<ViewState>>,
    request: Request,
    next: Next,
) -> Response {
    if view.guard.has_session(request.headers()) {
        return next.run(request).await;
    }
    let content = token_page::without_session(request).await;
    (StatusCode::UNAUTHORIZED, view.page_without_person(&content)).into_response()
}

/// Refuses a path that is not UTF-8 after its percent-encoded bytes are decoded. The extractor of
/// the path would refuse it without a page.
async fn require_text_path(
    State(view): State<Arc<ViewState>>,
    request: Request,
    next: Next,
) -> Response {
    if url_query::is_text(request.uri().path()) {
        return next.run(request).await;
    }
    let text = "This address is not UTF-8. The threads are the way to everything on record.";
    view.failed(StatusCode::BAD_REQUEST, "No such page", text)
}

async fn missing(State(view): State<Arc<ViewState>>) -> Response {
    let text = "This address leads to no page. The threads are the way to everything on record.";
    view.failed(StatusCode::NOT_FOUND, "No such page", text)
}

/// Draws the page for an address that exists, but not for the method of the request. A browser sends
/// such a request if a person opens the address to which a form was sent.
async fn wrong_method(State(view): State<Arc<ViewState>>) -> Response {
    let text = "This address shows nothing by itself, or takes no form, so nothing was done now. The \
                page Actions has what was done; the threads are the way to everything on record.";
    view.failed(StatusCode::METHOD_NOT_ALLOWED, "No page", text)
}

/// Marks a response which states that something is missing from the index. If the index lacks
/// records, the missing thing may still be in the journal. The browser then gets a page about the
/// missing records instead of this response.
#[derive(Debug, Clone, Copy)]
struct NotInIndex;

/// Marks a response that was drawn while an index lacked records: each such partition, and the
/// position of the last record in its index. A live page that reloads its content for a later
/// record gets a page about the missing records instead of this response, and tries again. It would
/// otherwise take the old content for the new one.
#[derive(Debug, Clone)]
struct IndexBehind(Vec<(u32, Position)>);

/// Describes the records that the journals of this host may lack: those of the partition of
/// `thread`, or those of any partition if `thread` is `None`. Returns `None` if they lack none.
fn missing_records(copies: &PartitionCopies, thread: Option<&ThreadId>) -> Option<&'static str> {
    let is_missing = match thread {
        Some(thread) => matches!(copies.gap_of(thread)?, IncompleteCopy::Missing(_)),
        None if copies.is_complete() => return None,
        None => !copies.missing.is_empty(),
    };
    Some(if is_missing {
        "it may be in a partition of which this host has no copy."
    } else {
        "this host has a copy of the record, and no organism here that keeps it up to date."
    })
}

impl IndexBehind {
    /// Returns `None` if no queried index lacked records.
    fn find<T>(answers: &[PartitionAnswer<T>]) -> Option<Self> {
        let behind = answers.iter().filter_map(|found| Some((found.partition, found.behind?.0)));
        let behind: Vec<_> = behind.collect();
        (!behind.is_empty()).then_some(Self(behind))
    }
}

impl ViewState {
    /// Draws a page of a section for the person of the session.
    fn page(&self, title: &str, section: &str, content: &Markup) -> Response {
        let organism = self.organism.as_deref();
        let person = Some(&self.person);
        let may_act = self.operate.is_some();
        let present = Some(&self.present);
        let key_warning = self.operate.as_ref().map(OperateAccess::key_warning).unwrap_or_default();
        let frame = PageFrame { title, section, organism, person, may_act, present, key_warning };
        written(page(&frame, content))
    }

    /// Draws a page without a session. The page names neither the organism nor a person.
    fn page_without_person(&self, content: &Markup) -> Response {
        let frame = PageFrame {
            title: "Token",
            section: "",
            organism: None,
            person: None,
            may_act: false,
            present: None,
            key_warning: html! {},
        };
        written(page(&frame, content))
    }

    fn failed(&self, status: StatusCode, title: &str, text: &str) -> Response {
        let content = html! {
            h1 { (title) }
            p.problem { (layout::shown(text)) }
        };
        (status, self.page(title, "", &content)).into_response()
    }

    /// Draws the page for something that the index does not contain. `thing` names it, such as
    /// ``thread `sess-…` ``. If `thread` is given, it is the thread to which the thing belongs. If the
    /// journals of this host may lack the records about the thing, the page states that it may be on
    /// record elsewhere.
    fn not_in_index(&self, title: &str, thing: &str, thread: Option<&ThreadId>) -> Response {
        let (status, text) = self.describe_absence(thing, thread);
        let mut page = self.failed(status, title, &text);
        page.extensions_mut().insert(NotInIndex);
        page
    }

    /// Returns the status and the text of [`Self::not_in_index`].
    fn describe_absence(&self, thing: &str, thread: Option<&ThreadId>) -> (StatusCode, String) {
        let Some(gap) = missing_records(&self.present.copies(), thread) else {
            return (StatusCode::NOT_FOUND, format!("No {thing} is on record."));
        };
        let text = format!(
            "No {thing} is on record here. Organisms on other hosts may have recorded it: {gap}"
        );
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// Draws the page for something that the index does not contain yet, because the index lacks
    /// records.
    fn not_yet_indexed(&self) -> Response {
        let text = "The index lacks the latest records, and what this page would show may be among \
                    them. Load this page again in a moment.";
        self.failed(StatusCode::SERVICE_UNAVAILABLE, "Not indexed yet", text)
    }

    /// Queries the index of each journal and draws the page. Both happen on an OS thread for
    /// blocking work, so that they do not delay other requests.
    async fn respond<T: Send + 'static>(
        self: Arc<Self>,
        mut query: impl FnMut(u32, &mut IndexReader) -> Result<T, index::Error> + Send + 'static,
        draw: impl FnOnce(&Self, Vec<PartitionAnswer<T>>) -> Response + Send + 'static,
    ) -> Response {
        let with_frame = move |partition, index: &mut IndexReader| {
            let waiting = index.count_waiting(limits::WEB_WAITING_COUNTED)?;
            Ok((waiting, index.pauses()?, query(partition, index)?))
        };

        let view = Arc::clone(&self);
        let drawn = self.journals.query(with_frame, move |answers| {
            let behind = IndexBehind::find(&answers);
            let mut waiting = 0;
            let mut pauses = Vec::new();
            let answers = answers.into_iter().map(|found| {
                let PartitionAnswer { partition, behind, answer: (calls, in_force, answer) } =
                    found;
                waiting += calls;
                pauses.push(in_force);
                PartitionAnswer { partition, behind, answer }
            });
            let answers = answers.collect();
            view.present.set_waiting(waiting);
            view.present.set_pause(PauseOfAll::find(&pauses));
            let mut page = draw(&view, answers);
            let Some(behind) = behind else { return page };
            // An incomplete index cannot prove that something is not on record.
            if page.extensions().get::<NotInIndex>().is_some() {
                return view.not_yet_indexed();
            }
            page.extensions_mut().get_or_insert(behind);
            page
        });
        drawn.await.unwrap_or_else(|error| self.unanswered(&error))
    }

    /// Looks for something in the index of each journal, and draws the page. `draw` gets the first
    /// result of `find`; `None` if no index has a result.
    async fn respond_found<T: Send + 'static>(
        self: Arc<Self>,
        find: impl FnMut(&mut IndexReader) -> Result<Option<T>, index::Error> + Send + 'static,
        draw: impl FnOnce(&Self, Option<T>) -> Response + Send + 'static,
    ) -> Response {
        self.respond_found_in(None, find, draw).await
    }

    /// Looks for something and draws the page, as [`Self::respond_found`] does. If `selected` is
    /// given, looks only in the journal of this partition.
    async fn respond_found_in<T: Send + 'static>(
        self: Arc<Self>,
        selected: Option<u32>,
        mut find: impl FnMut(&mut IndexReader) -> Result<Option<T>, index::Error> + Send + 'static,
        draw: impl FnOnce(&Self, Option<T>) -> Response + Send + 'static,
    ) -> Response {
        let query = move |partition, index: &mut IndexReader| {
            let is_selected = selected.is_none_or(|selected| selected == partition);
            if is_selected { find(index) } else { Ok(None) }
        };
        self.respond(query, move |view, answers| {
            draw(view, answers.into_iter().find_map(|found| found.answer))
        })
        .await
    }

    /// Draws the page for a query that failed.
    fn unanswered(&self, error: &index::Error) -> Response {
        if matches!(error, index::Error::Building { .. }) {
            let text = "The index of the record is being made, which takes about as long as reading \
                        the record once. Load this page again in a moment.";
            return self.failed(StatusCode::SERVICE_UNAVAILABLE, "The index is being made", text);
        }
        let status = match error {
            index::Error::Query { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        self.failed(status, "No answer from the record", &error.to_string())
    }
}

fn written(markup: Markup) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (kind, markup.into_string()).into_response()
}
