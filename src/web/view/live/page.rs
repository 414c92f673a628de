//! The server-sent events of one live page: `state` (whether an organism runs, and which partitions
//! it does not follow), `grown` (the content has changed), and `live` (the present activity of the
//! thread's model calls).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::{ViewPerson, ViewState};
use super::content_version::ContentVersion;
use super::growth::{ContentState, FollowedPage};
use crate::bus::live::{LiveEvent, LiveQueue};
use crate::ids::ThreadId;
use crate::limits;
use crate::mutant::mutant;
use crate::owned_tasks::AbortOnDrop;
use crate::service::{LiveRequest, ServiceClient};
use crate::xml::invisible_characters::visible;

/// Streams the events of a live page that lists threads.
pub(in super::super) async fn show_threads(
    State(view): State<Arc<ViewState>>,
    headers: HeaderMap,
) -> Response {
    events(&view, &headers, None)
}

/// Streams the events of a thread's page, including the texts that the thread's model calls stream.
pub(in super::super) async fn show_thread(
    State(view): State<Arc<ViewState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    match ThreadId::parse(&id) {
        Ok(thread) => events(&view, &headers, Some(thread)),
        Err(_) => (StatusCode::NOT_FOUND, "no such thread\n").into_response(),
    }
}

fn events(view: &ViewState, headers: &HeaderMap, thread: Option<ThreadId>) -> Response {
    let root = thread.as_ref().map(ThreadId::root);
    let browser = view.guard.browser_of(headers).unwrap_or_default();
    let followed = match view.growth.add(root, !view.present.is_stopped(), browser) {
        Ok(followed) => followed,
        Err(limit) => {
            let text = format!("{limit}; this one shows what was recorded when it was loaded\n");
            return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        }
    };

    let calls = thread.map(|thread| {
        let is_text_shown = shows_text(&view.person);
        ModelCallFeed::start(view.growth.client(), thread, followed.state.clone(), is_text_shown)
    });
    let keep_alive = next_keep_alive();
    let version = ContentVersion::default();
    let page = LivePage { followed, running: None, version, calls, keep_alive };
    let lines = unfold(page, |mut page| async move {
        let event = page.next_event().await?;
        Some((Ok::<_, Infallible>(event), page))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(lines)).into_response()
}

/// Whether `person` may see the text of a model before the gate has checked it. Operators and
/// viewers may see it, and clients may not. A viewer is the unnamed person who started the view,
/// and has the rights of an operator on this machine anyway.
fn shows_text(person: &ViewPerson) -> bool {
    !matches!(person, ViewPerson::Client(_)) || mutant("show-text-to-clients")
}

fn next_keep_alive() -> Instant {
    Instant::now() + limits::WEB_LIVE_KEEP_ALIVE
}

/// The state of the organism, as a page learns it.
#[derive(PartialEq, Eq, Serialize)]
struct RunningState {
    #[serde(rename = "running")]
    is_running: bool,
    /// Partitions whose copies on this host the organism does not keep up to date.
    #[serde(rename = "unfollowed", skip_serializing_if = "BTreeSet::is_empty")]
    unfollowed: BTreeSet<u32>,
}

/// A page that is open in a browser.
struct LivePage {
    followed: FollowedPage,
    /// The state of the organism that was last sent to the page; `None` before the first event.
    running: Option<RunningState>,
    /// The version that was last sent to the page; empty before the first one.
    version: ContentVersion,
    calls: Option<ModelCallFeed>,
    keep_alive: Instant,
}

impl LivePage {
    /// Returns the next event in its text form; `None` when the view ends.
    async fn next_event(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.next_state() {
                return Some(event);
            }
            tokio::select! {
                changed = self.followed.state.changed() => changed.ok()?,
                event = next_call_event(self.calls.as_ref()) => {
                    let json = serde_json::to_string(&event).ok()?;
                    return Some(written("live", &json));
                }
                () = sleep_until(self.keep_alive) => {
                    self.keep_alive = next_keep_alive();
                    return Some(":\n\n".to_owned());
                }
            }
        }
    }

    /// Returns an event if the present state was not sent to the page yet, and otherwise `None`.
    /// The first version makes the page reload its content, which may be out of date.
    fn next_state(&mut self) -> Option<String> {
        let ContentState { is_running, unfollowed, version } =
            self.followed.state.borrow_and_update().clone();
        let running = RunningState { is_running, unfollowed };
        if self.running.as_ref() != Some(&running) {
            // The version follows as a separate event.
            let json = serde_json::to_string(&running).ok()?;
            self.running = Some(running);
            return Some(written("state", &json));
        }

        // A state without a version is that of a page whose journals were not read yet.
        if version == self.version || version == ContentVersion::default() {
            return None;
        }
        let event = written("grown", &format!("{{\"version\":\"{version}\"}}"));
        self.version = version;
        Some(event)
    }
}

async fn next_call_event(calls: Option<&ModelCallFeed>) -> LiveEvent {
    match calls {
        Some(calls) => calls.queue.next().await,
        None => std::future::pending().await,
    }
}

/// Writes one server-sent event. `json` must contain no line breaks.
fn written(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

/// The events of a thread's model calls. Dropping the feed ends the subscription.
struct ModelCallFeed {
    queue: Arc<LiveQueue>,
    _task: AbortOnDrop,
}

impl ModelCallFeed {
    fn start(
        client: ServiceClient,
        thread: ThreadId,
        state: watch::Receiver<ContentState>,
        is_text_shown: bool,
    ) -> Self {
        let queue = Arc::new(LiveQueue::default());
        let task = tokio::spawn(feed(client, thread, state, is_text_shown, Arc::clone(&queue)));
        Self { queue, _task: AbortOnDrop::new(task) }
    }
}

/// Subscribes to the live channel of `thread` whenever an organism runs, and puts the events into
/// `queue`.
async fn feed(
    client: ServiceClient,
    thread: ThreadId,
    mut state: watch::Receiver<ContentState>,
    is_text_shown: bool,
    queue: Arc<LiveQueue>,
) {
    while state.wait_for(|state| state.is_running).await.is_ok() {
        let request = LiveRequest { thread: Some(thread.clone()), ..LiveRequest::default() };
        let followed = client.follow_live(request, None, |event| {
            if let Some(event) = shown_event(event, is_text_shown) {
                queue.push(event);
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = followed.await {
            tracing::debug!("a live page gets no events of model calls: {error}");
        }
        sleep(limits::WEB_LIVE_RETRY).await;
    }
}

/// Returns an event in the form for the page, with hidden characters made visible. Returns `None`
/// for an event whose text must not be shown.
fn shown_event(event: LiveEvent, is_text_shown: bool) -> Option<LiveEvent> {
    match event {
        LiveEvent::Text { source, part, text } if is_text_shown => {
            let text = visible(&text).to_string();
            Some(LiveEvent::Text { source, part, text })
        }
        LiveEvent::Text { .. } => None,
        LiveEvent::Opened { text } => Some(LiveEvent::Opened { text: text && is_text_shown }),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::live::{AnswerPart, LiveSource};
    use crate::ids::{Attempt, CallId, ListenerName, MessageId};

    #[test]
    fn a_client_gets_no_text_and_an_operator_gets_it_without_hidden_characters() {
        let source = LiveSource {
            thread: ThreadId::parse("sess-live0001").unwrap(),
            agent: ListenerName::parse("writer").unwrap(),
            call: CallId(MessageId(uuid::Uuid::from_u128(7))),
            attempt: Attempt { epoch: 1, n: 1 },
        };
        let text = "a\u{202e}b".to_owned();
        let event = LiveEvent::Text { source, part: AnswerPart::Answer, text };
        assert_eq!(shown_event(event.clone(), false), None);
        let shown = shown_event(event, true);
        assert!(matches!(shown, Some(LiveEvent::Text { text, .. }) if text == "a\\u{202e}b"));

        let client = ViewPerson::Client(ListenerName::parse("desk").unwrap());
        assert!(!shows_text(&client));
        assert!(shows_text(&ViewPerson::Viewer));
    }
}
