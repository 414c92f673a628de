//! `/healthz`, `/readyz` and `/metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Asked;
use crate::metrics::Page;

#[derive(Serialize)]
struct Told<'a> {
    ok: bool,
    /// What is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_ready: Vec<Reason<'a>>,
}

#[derive(Serialize)]
struct Reason<'a> {
    what: &'a str,
    why: &'a str,
}

/// The process lives, and its pump has not ended. One that waits for a disk lives: starting it
/// again would not help.
pub(super) async fn alive(State(asked): State<Asked>) -> Response {
    let ended = asked.get().is_some_and(|watcher| watcher.has_ended());
    let dead = ended.then_some(("pump", "the pump has ended; the log says why"));
    told(dead.into_iter().collect())
}

/// It takes payloads in and does something about them.
pub(super) async fn ready(State(asked): State<Asked>) -> Response {
    told(match asked.get() {
        Some(watcher) => watcher.unready(),
        None => vec![("journal", "the journal is being read; it is still starting")],
    })
}

pub(super) async fn metrics(State(asked): State<Asked>) -> Response {
    let page = asked.get().map(|watcher| watcher.metrics()).unwrap_or_default();
    ([(header::CONTENT_TYPE, Page::CONTENT_TYPE)], page).into_response()
}

fn told(not_ready: Vec<(&'static str, &'static str)>) -> Response {
    let ok = not_ready.is_empty();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let not_ready = not_ready.into_iter().map(|(what, why)| Reason { what, why }).collect();
    // Plain data: it is always JSON.
    let body = serde_json::to_string(&Told { ok, not_ready }).unwrap_or_default() + "\n";
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}
