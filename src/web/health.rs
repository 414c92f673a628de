//! The pages `/healthz`, `/readyz` and `/metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::HealthSource;
use crate::metrics::MetricsPage;
use crate::organism::{ReadinessProblem, UnprovedRecords};

#[derive(Serialize)]
struct HealthResponse {
    #[serde(rename = "ok")]
    ok: bool,
    /// Reasons why the organism is not ready.
    #[serde(rename = "not_ready", skip_serializing_if = "Vec::is_empty")]
    not_ready: Vec<NotReadyReason>,
    /// Ranges of records that still have to be verified. The list is empty if the start did not
    /// continue from a snapshot.
    #[serde(rename = "unproved", skip_serializing_if = "Vec::is_empty")]
    unproved: Vec<UnprovedRange>,
}

#[derive(Serialize)]
struct UnprovedRange {
    #[serde(rename = "proved_from")]
    proved_from: u64,
    #[serde(rename = "proved_up_to")]
    proved_up_to: u64,
    #[serde(rename = "partition", skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
}

#[derive(Serialize)]
struct NotReadyReason {
    #[serde(rename = "what")]
    what: &'static str,
    #[serde(rename = "why")]
    why: String,
    #[serde(rename = "partition", skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
}

/// Responds to `/healthz`, which reports whether the process is alive. A process that waits because
/// the disk is full is alive, since a restart would not help.
pub(super) async fn alive(State(health): State<HealthSource>) -> Response {
    let ended = health.get().is_some_and(|watcher| watcher.has_ended());
    let why = || "the pump has ended; the log has the reason".to_owned();
    let dead = ended.then(|| ReadinessProblem { what: "pump", why: why(), partition: None });
    respond(dead.into_iter().collect(), Vec::new())
}

/// Responds to `/readyz`, which reports whether the organism accepts and processes payloads.
pub(super) async fn ready(State(health): State<HealthSource>) -> Response {
    let why = || "the journal is being read; it is still starting".to_owned();
    match health.get() {
        Some(watcher) => respond(watcher.problems(), watcher.unproved()),
        None => {
            let starting = ReadinessProblem { what: "journal", why: why(), partition: None };
            respond(vec![starting], Vec::new())
        }
    }
}

pub(super) async fn metrics(State(health): State<HealthSource>) -> Response {
    let page = health.get().map(|watcher| watcher.metrics()).unwrap_or_default();
    ([(header::CONTENT_TYPE, MetricsPage::CONTENT_TYPE)], page).into_response()
}

fn respond(problems: Vec<ReadinessProblem>, unproved: Vec<UnprovedRecords>) -> Response {
    let ok = problems.is_empty();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let reason =
        |ReadinessProblem { what, why, partition }| NotReadyReason { what, why, partition };
    let range = |UnprovedRecords { proved_from, proved, partition }| UnprovedRange {
        proved_from: proved_from.0,
        proved_up_to: proved.0,
        partition,
    };
    let response = HealthResponse {
        ok,
        not_ready: problems.into_iter().map(reason).collect(),
        unproved: unproved.into_iter().map(range).collect(),
    };
    // Serialising cannot fail, because the value is plain data.
    let body = serde_json::to_string(&response).unwrap_or_default() + "\n";
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}
