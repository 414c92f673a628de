//! The timeline on a thread's page, which shows how the time was spent. The bar of each call shows
//! its wait in the queue, its work, the model's time, and its waits for people. Messages that are
//! not handed over to a listener yet have rows of their own.

use std::time::Duration;

use maud::{Markup, html};

use super::conversation::refused_payload;
use super::layout::{grouped, inline, length, took, unless_zero};
use super::message::path as message_path;
use super::thread::path as thread_path;
use super::time_axis::{self, AxisTick};
use super::time_scale::{TimeCut, TimeScale};
use super::timeline_rows::{self, RowContent, TimelineRow, UndeliveredMessage};
use super::{record_entry, thread_status};
use crate::audit::{MessageState, RefusalView, ThreadPage, ThreadTimeline, is_open_phase};
use crate::clock::Time;
use crate::index::{CallWork, TurnWork, WorkKind, WorkSpan};
use crate::plural::count;

/// Width of a bar, in units of the drawing.
const BAR_UNITS: u32 = 1_000;
/// Minimum visible width of a span, in the same units as [`BAR_UNITS`].
const BAR_MIN: f64 = 8.0;

/// Id of the background drawing that all rows share.
const GRID: &str = "timeline-grid";

/// Returns the name under which the chart shows a kind of work.
const fn name_of(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Queue => "Queued",
        WorkKind::Work => "At work, with the model",
        WorkKind::Model => "Model",
        WorkKind::Person => "Waited for a person",
    }
}

/// State that the page shows for an open call if it cannot determine the exact state, such as
/// queued or in flight.
const OPEN: &str = "open";
/// State of a call or a message that is not handed over to its listener yet. If a call is already
/// handed over, its new message has this state until the next delivery.
const QUEUED: &str = MessageState::Queued.as_str();

/// Id of the hatched pattern. It fills each gap and each wait that is drawn shorter than its real
/// duration.
const HATCH: &str = "timeline-hatch";
/// Name of the mark for a gap or a wait that is drawn shorter than its real duration.
const CUT: &str = "cut";

/// The deepest nesting level that is indented further than the level above it.
const INDENTS: usize = 12;
/// Minimum number of rows for which the chart has a second axis, beneath the rows.
const ROWS_WITH_SECOND_AXIS: usize = 16;

/// The time scale of a chart, with the ticks of its axis.
struct ChartScale {
    times: TimeScale,
    ticks: Vec<AxisTick>,
}

impl ChartScale {
    fn last(&self) -> Time {
        self.times.last()
    }
}

/// Draws the chart of a page. Bars of open work end at the present time.
pub(super) fn chart(page: &ThreadPage, work: &[CallWork]) -> Markup {
    let timeline = &page.timeline;
    let children = timeline_rows::subthreads(timeline);
    let children: Vec<&ThreadTimeline> = children.into_iter().map(|(_, child)| child).collect();
    let undelivered = timeline_rows::undelivered(timeline, work);
    let times = scale_of(timeline, work, &children, &undelivered);
    if times.ends().is_none() {
        return html! {
            p.empty {
                "No work on a call began between these messages."
                @if page.next_seq.is_some() {
                    " Later pages show the work on the calls that these messages opened."
                }
            }
        };
    }

    let ticks = time_axis::ticks(&times, timeline.opened);
    let scale = ChartScale { times, ticks };
    let rows = timeline_rows::rows(timeline, work);
    let legend = ChartLegend {
        work,
        subthreads: children.len() as u64,
        undelivered: undelivered.len() as u64,
        scale: &scale,
    };
    html! {
        (legend.draw())
        details.hint {
            summary { "How to read this" }
            p.hint {
                "Times are since the beginning of the thread. Calls and subthreads stand beneath the turn \
                or the call that opened them. Queued: ready for its listener, and not handed over."
                @if scale.times.is_shortened() {
                    " Times in which nothing was at work are drawn shorter: a break on the axis states \
                     the time that is left out, and the rows are hatched there."
                }
            }
        }
        (table(&rows, &scale, work))
    }
}

/// Creates the time scale, which covers everything that the chart draws as a bar.
fn scale_of(
    timeline: &ThreadTimeline,
    work: &[CallWork],
    children: &[&ThreadTimeline],
    undelivered: &[UndeliveredMessage<'_>],
) -> TimeScale {
    let spans = || work.iter().flat_map(|call| &call.spans);
    let ends = spans().map(|span| span.end.unwrap_or(span.begin));
    let ends = ends.chain(children.iter().map(|child| child.updated));
    let last = timeline.items.last().map(|item| item.at);
    let last = ends.chain(last).max().unwrap_or(Time(0));
    let has_open = !undelivered.is_empty() || spans().any(|span| span.end.is_none());
    let has_open = has_open || children.iter().any(|child| is_open_thread(child));
    let last = if has_open { last.max(Time::now()) } else { last };
    // During these spans, nothing is at work for the call.
    let is_wait = |span: &WorkSpan| matches!(span.kind, WorkKind::Person | WorkKind::Queue);
    let with_ends = |span: &WorkSpan| (span.begin, span.end.unwrap_or(last));
    let bars = spans().filter(|span| !is_wait(span)).map(with_ends);
    let bars = bars.chain(children.iter().map(|child| (child.opened, child.updated)));
    // Since its last record, an open subthread may only wait.
    let open = children.iter().filter(|child| is_open_thread(child));
    let waits = spans().filter(|span| is_wait(span)).map(with_ends);
    let waits = waits.chain(open.map(|child| (child.updated, last)));
    let waits = waits.chain(undelivered.iter().map(|found| (found.message.at, last)));
    TimeScale::new(bars.collect(), waits.collect(), last)
}

fn time_of(call: &CallWork, kind: WorkKind, last: Time) -> Duration {
    let spans = call.spans.iter().filter(|span| span.kind == kind);
    spans.map(|span| span.end.unwrap_or(last).since(span.begin)).sum()
}

/// The legend of a chart. For each mark, it shows the meaning, and either the total time or the
/// number of calls, messages or subthreads with this mark.
struct ChartLegend<'c> {
    work: &'c [CallWork],
    subthreads: u64,
    undelivered: u64,
    scale: &'c ChartScale,
}

impl ChartLegend<'_> {
    fn draw(&self) -> Markup {
        let Self { work, subthreads, undelivered, scale } = self;
        let retries: u64 = work.iter().map(|call| call.retries + call.failovers).sum();
        let open = work.iter().filter(|call| is_open(call)).count() as u64;
        html! {
            dl.facts.legend {
                @for kind in WorkKind::ALL {
                    @let sum: Duration = work.iter().map(|call| time_of(call, kind, scale.last())).sum();
                    @if !sum.is_zero() {
                        div {
                            dt { (swatch(kind.as_str())) " " (name_of(kind)) }
                            dd { (length(sum)) }
                        }
                    }
                }
                @if *undelivered > 0 {
                    div {
                        dt { (swatch("undelivered")) " Queued messages" }
                        dd { (grouped(*undelivered)) }
                    }
                }
                @if open > 0 { div { dt { (swatch("open")) " Open" } dd { (count(open, "call")) } } }
                @if *subthreads > 0 {
                    div { dt { (swatch("subthread")) " Subthreads" } dd { (subthreads) } }
                }
                @if scale.times.is_shortened() {
                    div {
                        dt { (swatch(CUT)) " Drawn shorter" }
                        dd { (length(scale.times.left_out())) " left out" }
                    }
                }
                @if retries > 0 { div { dt { "Retries" } dd { (retries) } } }
            }
        }
    }
}

fn swatch(kind: &str) -> Markup {
    html! {
        svg width="12" height="10" viewBox="0 0 12 10" aria-hidden="true" {
            rect data-span=(kind) width="12" height="10"
                    fill=[(kind == CUT).then(|| format!("url(#{HATCH})"))] {}
        }
    }
}

fn table(rows: &[TimelineRow<'_>], scale: &ChartScale, work: &[CallWork]) -> Markup {
    let numbers = WorkKind::ALL.map(|kind| match kind {
        WorkKind::Work => "At work",
        WorkKind::Person => "Person",
        kind => name_of(kind),
    });
    html! {
        div.scroll tabindex="0" role="region" aria-label="Timeline" {
            table.timeline.cards {
                caption.unseen { "Calls with their turns and subthreads" }
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
                    (axis_row(scale, Some(&grid(scale))))
                    @for row in rows {
                        @let indent = format!("depth-{}", row.depth.min(INDENTS));
                        @match row.content {
                            RowContent::Call(call) => {
                                (call_row(call, work, undelivered_in(rows, call), &indent, scale))
                            }
                            RowContent::Turn(turn) => (turn_row(turn, &indent, scale)),
                            RowContent::Subthread(child) => {
                                (subthread_row(child, &indent, scale))
                            }
                            RowContent::Refusal(refusal, at) => {
                                (refusal_row(refusal, at, &indent, scale))
                            }
                            RowContent::Undelivered(found) => {
                                (undelivered_row(&found, work, &indent, scale))
                            }
                        }
                    }
                    @if rows.len() >= ROWS_WITH_SECOND_AXIS { (axis_row(scale, None)) }
                }
            }
        }
    }
}

/// Draws a row with an axis. `grid` is the SVG definition of the background that the bars of all
/// rows use. Only one axis of the chart contains this definition. For any other axis, `grid` is
/// `None`.
fn axis_row(scale: &ChartScale, grid: Option<&Markup>) -> Markup {
    html! {
        tr.axis {
            td {}
            td.bar { (time_axis::axis(&scale.ticks, &time_axis::breaks(&scale.times), grid)) }
            td colspan="6" {}
        }
    }
}

/// Counts the messages of a call that are not handed over to the call's listener yet.
fn undelivered_in(rows: &[TimelineRow<'_>], call: &CallWork) -> u64 {
    let is_for = |row: &&TimelineRow<'_>| match &row.content {
        RowContent::Undelivered(found) => found.call.is_some_and(|of| of.call == call.call),
        _ => false,
    };
    rows.iter().filter(is_for).count() as u64
}

fn call_row(
    call: &CallWork,
    work: &[CallWork],
    undelivered: u64,
    indent: &str,
    scale: &ChartScale,
) -> Markup {
    let outcome = call.outcome.as_deref().unwrap_or_else(|| open_state(call, work));
    let retries = call.retries + call.failovers;
    html! {
        tr {
            th.(indent) scope="row" {
                a data-entry href=(message_path(call.call)) {
                    (inline(&call.caller)) " → " (inline(&call.listener)) " " b { (inline(&call.payload)) }
                }
            }
            td.bar {
                @let open = open_span(call);
                @let spans = call.spans.iter().map(|span| (span.kind.as_str(), span));
                (bar(open.iter().map(|span| ("open", span)).chain(spans), scale))
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
                @if undelivered > 0 && call.queued_since.is_none() {
                    ", " (count(undelivered, "message")) " " (QUEUED)
                }
                @if let Some(fault) = &call.fault { " (" (inline(fault)) ")" }
                @if call.is_cut { ", " (count(call.spans.len() as u64, "span")) " shown" }
            }
        }
    }
}

/// Returns the state of a call without a result.
fn open_state(call: &CallWork, work: &[CallWork]) -> &'static str {
    if let Some(hold) = call.hold {
        return hold.state();
    }
    let open = call.spans.iter().rev().find(|span| span.end.is_none());
    match open.map(|span| span.kind) {
        Some(WorkKind::Person) => "waits for a person",
        Some(WorkKind::Work | WorkKind::Model) => MessageState::InFlight.as_str(),
        Some(WorkKind::Queue) => QUEUED,
        None if work.iter().any(|other| other.opener == Some(call.call) && is_open(other)) => {
            "waits for its calls"
        }
        None => OPEN,
    }
}

fn is_open(call: &CallWork) -> bool {
    call.outcome.is_none()
}

/// Returns the span from the beginning of an open call until now; `None` for a call that has ended.
/// The bar shows this span behind the periods of work, so that the call also appears open between
/// these periods.
fn open_span(call: &CallWork) -> Option<WorkSpan> {
    let begin = call.spans.first().filter(|_| is_open(call))?.begin;
    Some(WorkSpan { kind: WorkKind::Queue, begin, end: None })
}

fn refusal_row(refusal: &RefusalView, at: Time, indent: &str, scale: &ChartScale) -> Markup {
    let x = format!("{:.2}%", scale.times.place(at) * 100.0);
    html! {
        tr {
            th.(indent) scope="row" {
                a data-entry href=(record_entry::path(refusal.position)) {
                    @if refusal.is_of_action() {
                        "the organism refused an action"
                    } @else {
                        "the gate refused " (refused_payload(refusal))
                    }
                    ": " (refusal.rule)
                }
            }
            td.bar {
                svg width="100%" height="14" aria-hidden="true" {
                    svg width="100%" height="14" viewBox=(format!("0 0 {BAR_UNITS} 14"))
                        preserveAspectRatio="none" {
                        use href={ "#" (GRID) } {}
                    }
                    svg.point x=(x) y="7" width="1" height="1" {
                        g data-kind="failed" { path.cross d="M-4 -4l8 8m0 -8l-8 8" {} }
                    }
                }
            }
            @for _ in WorkKind::ALL { td.number {} }
            td.number {}
            td {
                "refused by the " (if refusal.is_of_action() { "organism" } else { "gate" })
            }
        }
    }
}

fn undelivered_row(
    found: &UndeliveredMessage<'_>,
    work: &[CallWork],
    indent: &str,
    scale: &ChartScale,
) -> Markup {
    let UndeliveredMessage { message, call } = found;
    let span = WorkSpan { kind: WorkKind::Queue, begin: message.at, end: None };
    let state = match call {
        Some(call) if call.queued_since.is_some() => QUEUED.to_owned(),
        Some(call) if call.with_listener_since().is_some() => {
            format!("{QUEUED}: its listener is at work")
        }
        Some(call) if open_state(call, work) != OPEN => {
            format!("{QUEUED}: its call {}", open_state(call, work))
        }
        _ => QUEUED.to_owned(),
    };
    html! {
        tr {
            th.(indent) scope="row" {
                a data-entry href=(message_path(message.id)) {
                    (inline(message.from.as_str())) " → " (inline(message.to.as_str())) " "
                    b { (inline(&message.name.local)) }
                }
            }
            td.bar { (bar([("undelivered", &span)].into_iter(), scale)) }
            @for _ in WorkKind::ALL { td.number {} }
            td.number {}
            td { (state) }
        }
    }
}

fn turn_row(turn: &TurnWork, indent: &str, scale: &ChartScale) -> Markup {
    let span = WorkSpan { kind: WorkKind::Model, begin: turn.begin, end: Some(turn.end) };
    html! {
        tr.turn {
            th.(indent) scope="row" {
                a data-entry href=(message_path(turn.note)) { "turn " (turn.number) }
            }
            td.bar { (bar([(span.kind.as_str(), &span)].into_iter(), scale)) }
            td.number {}
            td.number {}
            td.number data-label="Model" { (length(turn.end.since(turn.begin))) }
            td.number {}
            td.number {}
            td {
                @if turn.tokens_in + turn.tokens_out > 0 {
                    (grouped(turn.tokens_in)) " tokens in, " (grouped(turn.tokens_out)) " out"
                }
            }
        }
    }
}

fn subthread_row(child: &ThreadTimeline, indent: &str, scale: &ChartScale) -> Markup {
    let id = child.thread.as_str();
    let own = id.rsplit_once('.').map_or(id, |(_, own)| own);
    let is_open = is_open_thread(child);
    let end = (!is_open).then_some(child.updated);
    let span = WorkSpan { kind: WorkKind::Work, begin: child.opened, end };
    let took = took(child.opened, child.updated, is_open);
    html! {
        tr {
            th.(indent) scope="row" {
                "subthread " a data-entry href=(thread_path(id)) { (inline(own)) }
            }
            td.bar { (bar([("subthread", &span)].into_iter(), scale)) }
            // The time contains queues, work, models and people, so it is in none of their columns.
            td colspan="4" data-label="Duration" { @if !is_open { "took " } (took) }
            td.number {}
            td { (thread_status::of_thread(child)) }
        }
    }
}

/// Whether a subthread has open work. If so, the subthread's bar extends to the present time.
fn is_open_thread(child: &ThreadTimeline) -> bool {
    is_open_phase(child.status.as_str())
}

/// Converts a place on a bar, from 0 to 1, to units of the drawing.
fn units(place: f64) -> String {
    format!("{:.1}", place * f64::from(BAR_UNITS))
}

/// Draws the background that all rows share: the shortened gaps and waits, and a line for each
/// tick. A long thread has hundreds of gaps, waits and ticks. For this reason, one path draws all
/// gaps and waits, and another draws all lines.
fn grid(scale: &ChartScale) -> Markup {
    let cuts = scale.times.cuts();
    let cuts = cuts.map(|cut| {
        let TimeCut { from, to, .. } = cut;
        format!("M{} 0h{}v14H{}z", units(from), units(to - from), units(from))
    });
    let ticks = scale.ticks.iter().map(|tick| format!("M{} 0v14", units(tick.place)));
    html! {
        g id=(GRID) {
            @if scale.times.is_shortened() {
                    pattern id=(HATCH) width="8" height="8" patternUnits="userSpaceOnUse" {
                        path.hatch d="M-2 2L2 -2M0 8L8 0M6 10L10 6" {}
                    }
                    path fill={ "url(#" (HATCH) ")" } d=(cuts.collect::<String>()) {}
                }
            path.tick d=(ticks.collect::<String>()) {}
        }
    }
}

/// Draws the spans of one row. The bar is hidden from screen readers, because the row's numbers
/// state the same.
fn bar<'s>(spans: impl Iterator<Item = (&'s str, &'s WorkSpan)>, scale: &ChartScale) -> Markup {
    let mut drawn: Vec<_> = spans.collect();
    // The model's time is drawn over the work of its agent.
    // Above all, an open call is drawn beneath its work.
    drawn.sort_by_key(|(name, span)| (*name != "open", span.kind));
    html! {
        svg width="100%" height="14" viewBox=(format!("0 0 {BAR_UNITS} 14"))
            preserveAspectRatio="none" aria-hidden="true" {
            use href={ "#" (GRID) } {}
            @for (kind, span) in drawn {
                @let [from, to] = [span.begin, span.end.unwrap_or(scale.last())].map(|time| {
                    scale.times.place(time) * f64::from(BAR_UNITS)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{ThreadPhase, TimelineEntry, TimelineEvent};
    use crate::ids::{ListenerName, Position, ThreadId};

    /// Returns the row of a subthread. The subthread was opened 5 s before its last record, and the
    /// chart is drawn 10 s after this record.
    fn row_of_subthread(status: ThreadPhase) -> String {
        let opened = Time(Time::now().0 - 15_000_000);
        let timeline = |id: &str| {
            let thread = ThreadId::parse(id).unwrap();
            ThreadTimeline::new(thread, ListenerName::operator(), opened)
        };
        let updated = opened.plus(Duration::from_secs(5));
        let child = ThreadTimeline { status, updated, ..timeline("sess-chart001.check") };
        let what = TimelineEvent::Subthread(child);
        let item = TimelineEntry { position: Position(1), at: opened, seq: 0, what };
        let page = ThreadPage {
            timeline: ThreadTimeline { items: vec![item], ..timeline("sess-chart001") },
            opened_at: Position(1),
            from_seq: 0,
            previous_seq: None,
            next_seq: None,
            is_cut: false,
            earlier_decisions: Vec::new(),
            fork: None,
        };
        let drawn = chart(&page, &[]).into_string();
        drawn.split("<tr>").find(|row| row.contains("subthread ")).unwrap().to_owned()
    }

    #[test]
    fn the_time_of_a_subthread_is_in_no_column_of_a_kind_of_work() {
        let ended = row_of_subthread(ThreadPhase::Completed);
        let cell = "<td colspan=\"4\" data-label=\"Duration\">took 5.00 s</td>";
        assert!(ended.contains(cell), "{ended}");
        assert!(!ended.contains("data-open"), "{ended}");
    }

    #[test]
    fn an_open_subthread_has_a_bar_and_a_time_until_now() {
        let open = row_of_subthread(ThreadPhase::Running);
        let time = open.split("data-label=\"Duration\">").nth(1).unwrap();
        assert!(time.starts_with("open 1"), "15 s or some more: {time}");
        let bar = open.split("data-span=\"subthread\"").nth(1).unwrap().split('>').next().unwrap();
        assert!(bar.contains("data-open"), "{bar}");
        let width = bar.split(" width=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(width.parse::<f64>().unwrap() > 990.0, "{bar}");
    }
}
