//! The page with totals by agent, model, listener, rule or day, as `organism stats` counts them.
//! The page also has the threads that have cost most.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::layout::{grouped, inline, moment, rows_left, shown, table, unless_zero};
use super::url_query::UrlQuery;
use super::{ViewState, thread, thread_status};
use crate::audit::{Stats, StatsKey, StatsQuery, past_time, stats, stats_columns};
use crate::index::{EventTotals, IndexReader, ListedTree};
use crate::limits;

const PATH: &str = "/costs";

/// The keys by which the page groups the totals if the URL contains no keys.
const KEYS: &str = "agent,model";

/// Groupings that the form on the page offers. Each text lists the keys by which the totals are
/// grouped.
const CHOICES: [&str; 8] =
    [KEYS, "agent", "model", "day", "agent,day", "agent,model,day", "listener", "rule,agent,day"];

pub(super) async fn show(State(view): State<Arc<ViewState>>, query: UrlQuery) -> Response {
    let asked = match read(&query) {
        Ok(asked) => asked,
        Err(problem) => {
            let content = html! {
                h1 { "Costs" }
                (form(&query))
                p.problem role="alert" { (shown(&problem)) }
            };
            return (StatusCode::BAD_REQUEST, view.page("Costs", PATH, &content)).into_response();
        }
    };

    let sums = asked.clone();
    let find = move |_, index: &mut IndexReader| {
        let limit = limits::WEB_COSTLIEST_THREADS;
        let costliest = index.costliest_trees(sums.since, sums.until, limit)?;
        // The currencies are those of the whole record, because prices have them at all times.
        Ok((stats(index, &sums)?, costliest, index.currencies()?))
    };
    view.respond(find, move |view, answers| {
        let mut sums = Stats::default();
        let mut costliest = Vec::new();
        let mut currencies = BTreeSet::new();
        for found in answers {
            let (own, trees, named) = found.answer;
            sums.add(own);
            costliest.extend(trees);
            currencies.extend(named);
        }
        costliest.sort_by_key(|tree: &ListedTree| std::cmp::Reverse(tree.cost));
        costliest.truncate(limits::WEB_COSTLIEST_THREADS);
        let content = html! {
            h1 { "Costs" }
            (form(&query))
            (currency(&currencies, !costliest.is_empty()))
            (self::sums("Sums", &asked.by, &sums))
            (threads(&costliest, &query))
        };
        view.page("Costs", PATH, &content)
    })
    .await
}

/// Draws a note about the currency of the costs on this page. If the prices were in several
/// currencies, the note names all of them. Costs are never converted.
fn currency(named: &BTreeSet<String>, has_costs: bool) -> Markup {
    let names = named.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    html! {
        p.hint {
            @match named.len() {
                0 if has_costs => {
                    "Costs are in the currency of the models' prices in the config."
                }
                0 => {
                    "No model call on record has a price. A cost needs "
                    code { "price_in" } ", " code { "price_out" } " and " code { "currency" }
                    " of a model in the config; no currency is assumed."
                }
                1 => {
                    "Costs are in " b { (inline(&names)) }
                    ", the currency of the models' prices in the config."
                }
                _ => {
                    "Costs are in the currency of the models' prices in the config, which has \
                     changed: " b { (inline(&names)) } ". Sums keep each currency apart; orders and \
                     filters by cost compare the plain numbers."
                }
            }
        }
    }
}

/// Draws the most expensive of the threads that the page's filter selects. The costs of a thread
/// include everything beneath the thread.
fn threads(costliest: &[ListedTree], query: &UrlQuery) -> Markup {
    let row = |tree: &ListedTree| {
        vec![
            html! { a data-entry href=(thread::path(&tree.thread)) { (inline(&tree.thread)) } },
            inline(&tree.costs.to_string()),
            html! { (unless_zero(tree.tokens_in + tree.tokens_out + tree.tokens_charged)) },
            html! { (unless_zero(tree.turns)) },
            thread_status::of_tree(tree),
            moment(tree.updated),
            html! {
                b { (inline(tree.request_local.as_deref().unwrap_or_default())) } " "
                (inline(tree.first_words.as_deref().unwrap_or_default()))
            },
        ]
    };
    let headers = ["Thread", ">Cost", ">Tokens", ">Turns", "Status", "Changed", "Asked"];
    let rows: Vec<_> = costliest.iter().map(row).collect();
    let [since, until] = ["since", "until"].map(|name| query.get(name));
    let all = UrlQuery::default().with("cost_over", Some("0"));
    let all = all.with("since", since).with("until", until).link("/threads");
    html! {
        @if !rows.is_empty() || since.is_some() || until.is_some() {
            h2 { "The costliest threads" }
        }
        @if rows.is_empty() && (since.is_some() || until.is_some()) {
            p.empty { "No thread of this time has a cost." }
        } @else if !rows.is_empty() {
            (table("The costliest threads", &headers, &rows))
            p.hint {
                @if let Some(since) = since { "Changed since " (shown(since)) ". " }
                @if let Some(until) = until { "Opened before " (shown(until)) ". " }
                "The cost is that of the whole thread. "
                a href=(all) { "All threads with costs" }
                ", newest first, with more filters."
            }
        }
    }
}

fn read(query: &UrlQuery) -> Result<StatsQuery, String> {
    let time = |name: &str| query.get(name).map(past_time::parse).transpose();
    let key =
        |text: &str| StatsKey::parse(text).ok_or_else(|| format!("`{text}` is no key of a sum"));
    let by = query.get("by").unwrap_or(KEYS).split(',').map(key).collect::<Result<_, _>>()?;
    Ok(StatsQuery { by, since: time("since")?, until: time("until")? })
}

fn form(query: &UrlQuery) -> Markup {
    let value = |name: &str| query.get(name).unwrap_or_default().to_owned();
    let by = query.get("by").unwrap_or(KEYS);
    html! {
        form.filters method="get" action=(PATH) role="search" aria-label="Sums" {
            div {
                label for="by" { "By" }
                select #by name="by" {
                    @for choice in CHOICES {
                        option value=(choice) selected[choice == by] { (choice.replace(',', ", ")) }
                    }
                    @if !CHOICES.contains(&by) {
                        option value=(by) selected { (shown(by)) }
                    }
                }
            }
            @for (name, label) in [("since", "Since"), ("until", "Until")] {
                div {
                    label for=(name) { (label) }
                    input id=(name) name=(name) value=(value(name)) placeholder="2h, 2026-11-20"
                        autocomplete="off";
                }
            }
            button type="submit" { "Sum" }
            a href=(PATH) { "Clear" }
        }
    }
}

/// Draws the table of `sums`, with a row for each combination of the keys `by`. Omits empty
/// columns.
pub(super) fn sums(caption: &str, by: &[StatsKey], sums: &Stats) -> Markup {
    let columns = stats_columns(sums);
    let keys = by.iter().map(|key| key.as_str().to_owned());
    let numbers = columns.iter().map(|(header, _)| format!(">{header}"));
    let headers: Vec<String> = keys.chain(numbers).collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let numbers = |group: &EventTotals| {
        let cells = columns.iter().map(|(_, cell)| cell(group));
        cells
            .map(|text| match text.parse() {
                Ok(number) => html! { (grouped(number)) },
                Err(_) => inline(&text),
            })
            .collect::<Vec<_>>()
    };
    let row = |(keys, group): (&Vec<String>, &EventTotals)| {
        let keys = keys.iter().map(|key| inline(key));
        keys.chain(numbers(group)).collect::<Vec<_>>()
    };
    // The groups are in descending order of cost, and those of equal cost in the order of their
    // keys.
    let mut groups: Vec<_> = sums.0.iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.cost_nano));
    let left = groups.len().saturating_sub(limits::WEB_ROWS_MAX);
    let mut rows: Vec<_> = groups.into_iter().take(limits::WEB_ROWS_MAX).map(row).collect();
    if sums.0.len() > 1 {
        let mut total = EventTotals::default();
        sums.0.values().for_each(|group| total.add(group));
        let name = |at: usize| {
            if at == 0 {
                html! { b { "all" } }
            } else {
                html! {}
            }
        };
        rows.push((0..by.len()).map(name).chain(numbers(&total)).collect());
    }
    html! {
        @if rows.is_empty() {
            p.empty { "Nothing of this kind is on record." }
        } @else {
            (table(caption, &headers, &rows))
        }
        (rows_left(left, &html! { code { "organism stats" } " shows them all" }))
    }
}
