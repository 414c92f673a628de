//! Clients, agents, workflows and listeners: what they did, what is open, and which peers each may
//! call and has called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value as Json;

use super::ViewState;
use super::costs::sums;
use super::layout::{grouped, inline, shown, table};
use super::refused::refusals_path;
use crate::audit::{Stats, StatsKey, StatsQuery, stats};
use crate::config::{ConfigHistory, effective_config_of};
use crate::index::{self, CalledPeer, IndexReader};
use crate::limits;

const PATH: &str = "/listeners";

/// A name of the config in force, or of a caller on record.
#[derive(Debug, Default)]
struct KnownListener {
    role: String,
    /// Peers that it may call.
    permitted: BTreeSet<String>,
    /// Peers that it called, with the number of calls.
    called: BTreeMap<String, u64>,
    /// Calls to it without a result.
    open: u64,
    refusals: u64,
}

type ListenersByName = BTreeMap<String, KnownListener>;

pub(super) async fn show(State(view): State<Arc<ViewState>>) -> Response {
    view.respond(
        |_, index| find(index),
        |view, answers| {
            let mut all = Stats::default();
            let mut listeners = ListenersByName::new();
            let mut problem = None;
            for (stats, called, contracts) in answers.into_iter().map(|found| found.answer) {
                add_refusals(&mut listeners, &stats);
                all.add(stats);
                called.iter().for_each(|peer| add_call(&mut listeners, peer));
                match contracts {
                    Ok(contracts) => add_contracts(&mut listeners, &contracts),
                    Err(error) => problem = Some(error),
                }
            }
            view.page("Listeners", PATH, &content(&all, &listeners, problem.as_deref()))
        },
    )
    .await
}

type FoundListeners = (Stats, Vec<CalledPeer>, Result<Json, String>);

fn find(index: &IndexReader) -> Result<FoundListeners, index::Error> {
    let query = StatsQuery { by: vec![StatsKey::Listener], since: None, until: None };
    Ok((stats(index, &query)?, index.called_peers()?, contracts(index)))
}

/// The contracts of the last config in force.
fn contracts(index: &IndexReader) -> Result<Json, String> {
    let reader = index.journal();
    let history = ConfigHistory::read(reader).map_err(|error| error.to_string())?;
    let Some(boot) = history.last() else { return Ok(Json::Null) };
    let text = effective_config_of(reader, boot).map_err(|error| error.to_string())?;
    let config: Json = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(config.get("contracts").cloned().unwrap_or_default())
}

fn add_contracts(listeners: &mut ListenersByName, contracts: &Json) {
    let text = |value: &Json, key: &str| value.get(key).and_then(Json::as_str).map(str::to_owned);
    for contract in contracts.as_array().into_iter().flatten() {
        let Some(name) = text(contract, "name") else { continue };
        let listener = listeners.entry(name).or_default();
        listener.role = text(contract, "role").unwrap_or_default();
        let peers = contract.get("peers").and_then(Json::as_array).into_iter().flatten();
        listener.permitted.extend(peers.filter_map(Json::as_str).map(str::to_owned));
    }
}

fn add_call(listeners: &mut ListenersByName, peer: &CalledPeer) {
    let caller = listeners.entry(peer.caller.clone()).or_default();
    *caller.called.entry(peer.listener.clone()).or_default() += peer.calls;
    listeners.entry(peer.listener.clone()).or_default().open += peer.open;
}

fn add_refusals(listeners: &mut ListenersByName, stats: &Stats) {
    for (keys, group) in &stats.0 {
        if let Some(name) = keys.first() {
            listeners.entry(name.clone()).or_default().refusals += group.refusals;
        }
    }
}

fn content(all: &Stats, listeners: &ListenersByName, problem: Option<&str>) -> Markup {
    let rows: Vec<_> = listeners.iter().take(limits::WEB_ROWS_MAX).map(row).collect();
    let headers = ["Name", "Role", ">Open calls", ">Refusals", "May call", "Has called"];
    html! {
        h1 { "Listeners" }
        @if let Some(problem) = problem {
            p.note { "The config in force cannot be shown: " (shown(problem)) }
        }
        @if rows.is_empty() {
            p.empty { "No config was in force yet: the organism has not run." }
        } @else {
            (table("Listeners and their peers", &headers, &rows))
        }
        h2 { "Work" }
        (sums("Work of listeners", &[StatsKey::Listener], all))
    }
}

fn row((name, listener): (&String, &KnownListener)) -> Vec<Markup> {
    let role = if listener.role.is_empty() { "not in the config in force" } else { &listener.role };
    let permitted: Vec<&str> = listener.permitted.iter().map(String::as_str).collect();
    vec![
        inline(name),
        html! { (role) },
        html! { (grouped(listener.open)) },
        html! {
            @if listener.refusals > 0 {
                a data-entry href=(refusals_path(None, Some(name))) { (grouped(listener.refusals)) }
            }
        },
        inline(&permitted.join(", ")),
        html! {
            @for (at, (peer, calls)) in listener.called.iter().enumerate() {
                @if at > 0 { ", " }
                (inline(peer)) " (" (grouped(*calls)) ")"
            }
        },
    ]
}
