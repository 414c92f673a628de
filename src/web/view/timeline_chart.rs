//! The timeline of a thread's page, which shows how the time was spent: a bar for each call, with
//! its wait in the queue, its work, the model's time, and its waits for people.

use std::time::Duration;

use maud::{Markup, html};

use super::layout::{inline, length, unless_zero};
use super::message::path as message_path;
use super::thread::path as thread_path;
use super::time_scale::TimeScale;
use crate::audit::amounts::{count, offset};
use crate::audit::{ThreadPage, ThreadTimeline, TimelineEvent};
use crate::clock::Time;
use crate::index::{CallWork, WorkKind, WorkSpan};

/// Width of a bar, in units of the drawing.
const BAR_UNITS: u32 = 1_000;
/// Minimum visible width of a span, in the same units as [`BAR_UNITS`].
const BAR_MIN: f64 = 3.0;

/// Returns the name of a kind of work.
const fn name_of(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Queue => "Queued",
        WorkKind::Work => "At work, with the model",
        WorkKind::Model => "Model",
        WorkKind::Person => "Waited for a person",
    }
}

/// A row of the chart. Rows are in the order of the times at which they begin.
enum ChartRow<'p> {
    Call(&'p CallWork),
    Subthread(&'p ThreadTimeline),
}

/// Draws the chart of a page. Open work lasts until now.
pub(super) fn chart(page: &ThreadPage, work: &[CallWork]) -> Markup {
    let timeline = &page.timeline;
    let children = timeline.items.iter().filter_map(|item| match &item.what {
        TimelineEvent::Subthread(child) => Some(child),
        _ => None,
    });
    let children: Vec<&ThreadTimeline> = children.collect();
    let scale = scale_of(timeline, work, &children);
    let Some((begin, end)) = scale.ends() else {
        return html! { p.empty { "No call was worked on between these messages." } };
    };

    let subthreads = children.len() as u64;
    let mut rows: Vec<(Time, ChartRow<'_>)> = Vec::new();
    rows.extend(work.iter().map(|call| (beginning(call), ChartRow::Call(call))));
    rows.extend(children.into_iter().map(|child| (child.opened, ChartRow::Subthread(child))));
    rows.sort_by_key(|(begin, _)| *begin);
    html! {
        (sums(work, subthreads, scale.last()))
        p.hint {
            "From " (offset(begin.since(timeline.opened))) " to "
            (offset(end.since(timeline.opened))) "."
            @if scale.is_shortened() { " Times in which nothing was open are drawn shorter." }
        }
        (table(&rows, &scale))
    }
}

fn beginning(call: &CallWork) -> Time {
    call.spans.first().map_or(Time(0), |span| span.begin)
}

/// Creates the scale for everything that has a bar.
fn scale_of(
    timeline: &ThreadTimeline,
    work: &[CallWork],
    children: &[&ThreadTimeline],
) -> TimeScale {
    let spans = || work.iter().flat_map(|call| &call.spans);
    let ends = spans().map(|span| span.end.unwrap_or(span.begin));
    let ends = ends.chain(children.iter().map(|child| child.updated));
    let last = timeline.items.last().map(|item| item.at);
    let last = ends.chain(last).max().unwrap_or(Time(0));
    let has_open = spans().any(|span| span.end.is_none());
    let last = if has_open { last.max(Time::now()) } else { last };
    let bars = spans().map(|span| (span.begin, span.end.unwrap_or(last)));
    let bars = bars.chain(children.iter().map(|child| (child.opened, child.updated)));
    TimeScale::new(bars.collect(), last)
}

fn time_of(call: &CallWork, kind: WorkKind, last: Time) -> Duration {
    let spans = call.spans.iter().filter(|span| span.kind == kind);
    spans.map(|span| span.end.unwrap_or(last).since(span.begin)).sum()
}

fn sums(work: &[CallWork], subthreads: u64, last: Time) -> Markup {
    let retries: u64 = work.iter().map(|call| call.failed_attempts + call.failovers).sum();
    html! {
        dl.facts.legend {
            @for kind in WorkKind::ALL {
                @let sum: Duration = work.iter().map(|call| time_of(call, kind, last)).sum();
                div {
                    dt { (swatch(kind.as_str())) " " (name_of(kind)) }
                    dd { (length(sum)) }
                }
            }
            @if subthreads > 0 {
                div { dt { (swatch("subthread")) " Subthreads" } dd { (subthreads) } }
            }
            @if retries > 0 { div { dt { "Retries" } dd { (retries) } } }
        }
    }
}

fn swatch(kind: &str) -> Markup {
    html! {
        svg width="12" height="10" viewBox="0 0 12 10" aria-hidden="true" {
            rect data-span=(kind) width="12" height="10" {}
        }
    }
}

fn table(rows: &[(Time, ChartRow<'_>)], scale: &TimeScale) -> Markup {
    let numbers = WorkKind::ALL.map(|kind| match kind {
        WorkKind::Work => "At work",
        WorkKind::Person => "Person",
        kind => name_of(kind),
    });
    html! {
        div.scroll tabindex="0" role="region" aria-label="Timeline" {
            table.timeline.cards {
                caption.unseen { "Calls and subthreads, by their beginning" }
                thead {
                    tr {
                        th scope="col" { "Call" }
                        th.bar scope="col" { "Time" }
                        @for number in numbers { th.number scope="col" { (number) } }
                        th.number scope="col" { "Retries" }
                        th scope="col" { "Outcome" }
                    }
                }
                tbody {
                    @for (_, row) in rows {
                        @match row {
                            ChartRow::Call(call) => (call_row(call, scale)),
                            ChartRow::Subthread(child) => (subthread_row(child, scale)),
                        }
                    }
                }
            }
        }
    }
}

fn call_row(call: &CallWork, scale: &TimeScale) -> Markup {
    let outcome = call.outcome.as_deref().unwrap_or_else(|| open_state(call));
    let retries = call.failed_attempts + call.failovers;
    html! {
        tr {
            th scope="row" {
                a data-entry href=(message_path(call.call)) {
                    (inline(&call.caller)) " → " (inline(&call.listener)) " " b { (inline(&call.payload)) }
                }
            }
            td.bar {
                (bar(call.spans.iter().map(|span| (span.kind.as_str(), span)), scale))
            }
            @for kind in WorkKind::ALL {
                @let time = time_of(call, kind, scale.last());
                td.number data-label=(name_of(kind)) {
                    @if !time.is_zero() { (length(time)) }
                }
            }
            td.number.errors data-label="Retries" { (unless_zero(retries)) }
            td {
                (outcome)
                @if let Some(fault) = &call.fault { " (" (inline(fault)) ")" }
                @if call.is_cut { ", " (count(call.spans.len() as u64, "span")) " shown" }
            }
        }
    }
}

/// Returns the state of a call without a result.
fn open_state(call: &CallWork) -> &'static str {
    let open = call.spans.iter().rev().find(|span| span.end.is_none());
    match open.map(|span| span.kind) {
        Some(WorkKind::Person) => "waits for a person",
        Some(WorkKind::Work | WorkKind::Model) => "at work",
        Some(WorkKind::Queue) => "queued",
        None => "open",
    }
}

fn subthread_row(child: &ThreadTimeline, scale: &TimeScale) -> Markup {
    let id = child.thread.as_str();
    let span = WorkSpan { kind: WorkKind::Work, begin: child.opened, end: Some(child.updated) };
    html! {
        tr {
            th scope="row" {
                "subthread " a data-entry href=(thread_path(id)) { (inline(id)) }
            }
            td.bar { (bar([("subthread", &span)].into_iter(), scale)) }
            td.number colspan="4" data-label="Took" { (length(child.updated.since(child.opened))) }
            td.number {}
            td { (child.status.as_str()) }
        }
    }
}

/// Draws the spans of one row. The bar is hidden from screen readers, because the row's numbers
/// state the same.
fn bar<'s>(spans: impl Iterator<Item = (&'s str, &'s WorkSpan)>, scale: &TimeScale) -> Markup {
    let mut drawn: Vec<_> = spans.collect();
    // The model's time is drawn over the work of its agent.
    drawn.sort_by_key(|(_, span)| span.kind);
    html! {
        svg width="100%" height="14" viewBox=(format!("0 0 {BAR_UNITS} 14"))
            preserveAspectRatio="none" aria-hidden="true" {
            @for (kind, span) in drawn {
                @let [from, to] = [span.begin, span.end.unwrap_or(scale.last())].map(|time| {
                    scale.place(time) * f64::from(BAR_UNITS)
                });
                // A model's time is drawn inside the work of its agent. Every span has a minimum
                // visible width.
                @let (y, height) = if span.kind == WorkKind::Model { (4, 6) } else { (1, 12) };
                @let from = from.min(f64::from(BAR_UNITS) - BAR_MIN);
                rect data-span=(kind) data-open[span.end.is_none()] x=(format!("{from:.1}")) y=(y)
                    width=(format!("{:.1}", (to - from).max(BAR_MIN))) height=(height) {}
            }
        }
    }
}
