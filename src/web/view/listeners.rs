//! The page with clients, agents, workflows and listeners, one on each row. A row shows the message
//! rate, the open calls, the errors and the refusals. It also shows the peers that the listener may
//! call, and those that it has called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value as Json;

use super::costs::sums;
use super::layout::{cut, grouped, inline, moment, rows_left, shown, table};
use super::refused::refusals_path;
use super::thread::path as thread_path;
use super::{ViewState, record_entry};
use crate::audit::amounts::duration;
use crate::audit::{Stats, StatsKey, StatsQuery, stats};
use crate::clock::Time;
use crate::config::{ConfigHistory, effective_config_of};
use crate::index::{self, CalledPeer, CountedCalls, IndexReader, ListedRefusal, ListenerLoad};
use crate::limits;
use crate::locks::locked;

const PATH: &str = "/listeners";
/// Maximum length, in characters, of the refusal reason that a list shows.
const REFUSAL_CHARS: usize = 300;

/// A listener of the config in force, or a caller that the journal records.
#[derive(Debug, Default)]
struct KnownListener {
    role: String,
    /// Peers that the listener may call.
    permitted: BTreeSet<String>,
    /// Peers that the listener called, with the number of calls.
    called: BTreeMap<String, u64>,
    /// Number of open calls to the listener that do not wait for a person.
    open: u64,
    /// Number of open calls to the listener that wait for the decision of a person. They are not
    /// handed over to the listener before the decision.
    held: u64,
    refusals: u64,
    load: ListenerLoad,
}

type ListenersByName = BTreeMap<String, KnownListener>;

/// Counts of the calls in each partition, kept from one page to the next. Each page counts only the
/// calls since the previous page.
#[derive(Debug, Clone, Default)]
pub(super) struct CallCounts {
    /// Lock: held only to copy or replace the counts of a partition, not while calls are counted.
    partitions: Arc<Mutex<BTreeMap<u32, CountedCalls>>>,
}

impl CallCounts {
    fn called_peers(
        &self,
        partition: u32,
        index: &IndexReader,
    ) -> Result<Vec<CalledPeer>, index::Error> {
        let counts = || locked(&self.partitions);
        let mut counted = counts().get(&partition).cloned().unwrap_or_default();
        let peers = index.called_peers(&mut counted)?;
        counts().insert(partition, counted);
        Ok(peers)
    }
}

pub(super) async fn show(State(view): State<Arc<ViewState>>) -> Response {
    let now = Time::now();
    let counts = view.call_counts.clone();
    view.respond(
        move |partition, index| find(index, now, counts.called_peers(partition, index)?),
        move |view, answers| {
            let mut page = ListenersPage { now, ..ListenersPage::default() };
            answers.into_iter().for_each(|found| page.add(found.answer));
            view.page("Listeners", PATH, &page.content())
        },
    )
    .await
}

/// The listeners of the organism, with their calls and refusals in one journal.
struct FoundListeners {
    stats: Stats,
    called: Vec<CalledPeer>,
    contracts: Result<Json, String>,
    loads: Vec<ListenerLoad>,
    /// Time of the oldest message that the message rates count, if there are too many messages to
    /// count all. `None` if the rates count all messages of the last [`limits::WEB_RATE_TIME`].
    counted_since: Option<Time>,
    refusals: Vec<ListedRefusal>,
}

fn find(
    index: &IndexReader,
    now: Time,
    called: Vec<CalledPeer>,
) -> Result<FoundListeners, index::Error> {
    let query = StatsQuery { by: vec![StatsKey::Listener], since: None, until: None };
    let time = i64::try_from(limits::WEB_RATE_TIME.as_micros()).unwrap_or(i64::MAX);
    let (loads, counted_since) = index.listener_loads(Time(now.0.saturating_sub(time)))?;
    Ok(FoundListeners {
        stats: stats(index, &query)?,
        called,
        contracts: contracts(index),
        loads,
        counted_since,
        refusals: index.newest_refusals(limits::WEB_LAST_REFUSALS)?,
    })
}

/// The listeners of all journals.
#[derive(Default)]
struct ListenersPage {
    now: Time,
    all: Stats,
    listeners: ListenersByName,
    refusals: Vec<ListedRefusal>,
    counted_since: Option<Time>,
    problem: Option<String>,
}

impl ListenersPage {
    fn add(&mut self, found: FoundListeners) {
        add_refusals(&mut self.listeners, &found.stats);
        self.all.add(found.stats);
        found.called.iter().for_each(|peer| add_call(&mut self.listeners, peer));
        found.loads.into_iter().for_each(|load| add_load(&mut self.listeners, load));
        self.counted_since = self.counted_since.max(found.counted_since);
        self.refusals.extend(found.refusals);
        match found.contracts {
            Ok(contracts) => add_contracts(&mut self.listeners, &contracts),
            Err(error) => self.problem = Some(error),
        }
    }

    /// Returns the length, in minutes, of the period over which the message rates are computed.
    fn minutes(&self) -> f64 {
        let since = self.counted_since.map(|since| self.now.since(since));
        let time = since.unwrap_or(limits::WEB_RATE_TIME).max(Duration::from_secs(1));
        time.as_secs_f64() / 60.0
    }
}

fn add_load(listeners: &mut ListenersByName, load: ListenerLoad) {
    let known = &mut listeners.entry(load.listener.clone()).or_default().load;
    known.messages += load.messages;
    known.queued += load.queued;
    known.errors += load.errors;
    let since = [known.queued_since, load.queued_since];
    known.queued_since = since.into_iter().flatten().min();
}

/// Returns the contracts of the config that the latest start or reload put in force, as JSON;
/// `null` if the journal records no start.
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
    let listener = listeners.entry(peer.listener.clone()).or_default();
    listener.open += peer.open.saturating_sub(peer.held);
    listener.held += peer.held;
}

fn add_refusals(listeners: &mut ListenersByName, stats: &Stats) {
    for (keys, group) in &stats.0 {
        if let Some(name) = keys.first() {
            listeners.entry(name.clone()).or_default().refusals += group.refusals;
        }
    }
}

impl ListenersPage {
    fn content(&self) -> Markup {
        let rows = self.listeners.iter().take(limits::WEB_ROWS_MAX).map(|row| self.row(row));
        let rows: Vec<_> = rows.collect();
        let left = self.listeners.len() - rows.len();
        let whole = html! {
            code { "organism config" } " shows those of the config, and "
            code { "organism stats --by listener" } " the work of all"
        };
        let headers = [
            "Name",
            "Role",
            ">Per minute",
            ">Queue",
            ">Open calls",
            ">Errors",
            ">Refusals",
            "May call",
            "Has called",
        ];
        html! {
            h1 { "Listeners" }
            @if let Some(problem) = &self.problem {
                p.note { "The config in force cannot be shown: " (shown(problem)) }
            }
            @if rows.is_empty() {
                p.empty { "No config was in force yet: the organism has not run." }
            } @else {
                (table("Listeners and their peers", &headers, &rows))
                (rows_left(left, &whole))
                p.hint {
                    "Per minute: messages to it in the last "
                    (duration(Duration::from_secs_f64(self.minutes() * 60.0)))
                    ". Errors: failed attempts, and calls that ended with a fault; a refusal by a person \
                     is none. Queue: calls that are ready and not handed over, and since when the first is."
                }
            }
            (last_refusals(&self.refusals))
            h2 { "Work" }
            (sums("Work of listeners", &[StatsKey::Listener], &self.all))
        }
    }

    fn row(&self, (name, listener): (&String, &KnownListener)) -> Vec<Markup> {
        let role = if listener.role.is_empty() { "not in the config" } else { &listener.role };
        let permitted: Vec<&str> = listener.permitted.iter().map(String::as_str).collect();
        let load = &listener.load;
        vec![
            inline(name),
            html! { (role) },
            html! { @if load.messages > 0 { (rate(load.messages as f64 / self.minutes())) } },
            html! {
                @if load.queued > 0 {
                    span.open { (grouped(load.queued)) }
                    @if let Some(since) = load.queued_since {
                        " for " (duration(self.now.since(since)))
                    }
                }
            },
            html! {
                (grouped(listener.open))
                @if listener.held > 0 { span.open { ", " (grouped(listener.held)) " held" } }
            },
            html! {
                @if load.errors > 0 { a href="/refused#failed" { (grouped(load.errors)) } }
            },
            html! {
                @if listener.refusals > 0 {
                    a data-entry href=(refusals_path(None, Some(name))) {
                        (grouped(listener.refusals))
                    }
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
}

/// Formats a message rate, in messages a minute, with few digits.
fn rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn last_refusals(refusals: &[ListedRefusal]) -> Markup {
    let mut newest: Vec<_> = refusals.iter().collect();
    newest.sort_by_key(|refusal| std::cmp::Reverse(refusal.time));
    let row = |refusal: &&ListedRefusal| {
        let (text, more) = cut(&refusal.message, REFUSAL_CHARS);
        vec![
            moment(refusal.time),
            inline(&refusal.sender),
            html! {
                a data-entry href=(record_entry::path(refusal.position)) {
                    code { (inline(&refusal.rule)) }
                }
            },
            html! { (inline(text)) (more) },
            html! {
                @if let Some(thread) = &refusal.thread {
                    a data-entry href=(thread_path(thread.as_str())) { (inline(thread.as_str())) }
                }
            },
        ]
    };
    let rows: Vec<_> = newest.iter().take(limits::WEB_LAST_REFUSALS).map(row).collect();
    let headers = ["Time", "Sender", "Rule", "Reason", "Thread"];
    html! {
        @if !rows.is_empty() {
            h2 { "Last refusals" }
            (table("Last refusals", &headers, &rows))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_several_journals_add_up() {
        let mut listeners = ListenersByName::new();
        let load = |queued, since: Option<i64>| ListenerLoad {
            listener: "ledger".to_owned(),
            messages: 600,
            queued,
            queued_since: since.map(Time),
            errors: 1,
        };
        for load in [load(2, Some(9)), load(1, Some(5)), load(0, None)] {
            add_load(&mut listeners, load);
        }
        let load = &listeners["ledger"].load;
        assert_eq!((load.messages, load.queued, load.errors), (1_800, 3, 3));
        assert_eq!(load.queued_since, Some(Time(5)));
        assert_eq!([rate(0.04), rate(9.94), rate(180.0)], ["0.0", "9.9", "180"]);
    }

    #[test]
    fn a_full_table_states_what_it_leaves_out() {
        let mut page = ListenersPage::default();
        let add = |page: &mut ListenersPage, number: usize| {
            page.listeners.insert(format!("listener-{number:03}"), KnownListener::default());
        };
        (0..limits::WEB_ROWS_MAX).for_each(|number| add(&mut page, number));
        let content = page.content().into_string();
        assert!(!content.contains("more row"), "{content}");
        add(&mut page, limits::WEB_ROWS_MAX);
        let content = page.content().into_string();
        assert!(content.contains("1 more row; "), "{content}");
    }
}
