//! The axis of a timeline: ticks at round times since the beginning of a thread.

use maud::{Markup, html};

use super::layout::length;
use super::time_scale::TimeScale;
use crate::clock::Time;

/// Maximum number of steps into which the ticks divide the axis.
const STEPS_MAX: i64 = 5;
/// Minimum distance of two ticks, as a fraction of the width of a timeline bar.
const DISTANCE_MIN: f64 = 0.16;
/// Width of one character of a label on a phone, as a fraction of the width of a timeline bar.
const CHARACTER: f64 = 0.02;
/// Minimum space between two labels, as a fraction of the width of a timeline bar.
const SPACE_MIN: f64 = 0.01;
/// Width of the zone at each end of a timeline bar, as a fraction of the bar's width. If a tick is
/// in the first zone, its label begins at the tick. If the tick is in the last zone, the label ends
/// at the tick. Elsewhere, the label is centred on the tick.
const END: f64 = 0.06;

/// Units of long times with their lengths in microseconds, longest first.
const LONG_UNITS: [(&str, i64); 3] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000)];
/// Permitted distances between neighbouring ticks of a time axis, in seconds, from one second to
/// five days. [`step_of`] computes shorter and longer distances.
const LONG_STEPS: [i64; 20] = [
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 432_000,
];

/// A tick of a timeline's axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AxisTick {
    /// Place of the tick on the axis, from 0 to 1.
    pub place: f64,
    /// Time since the beginning of the thread, with its unit. For a break in the axis: the length
    /// of the time that the axis leaves out there.
    pub label: String,
    /// Width of the zone at each end of the bar, as a fraction of the bar's width. In the first
    /// zone, the label begins at the tick. In the last zone, it ends at the tick. Between the
    /// zones, it is centred on the tick.
    margin: f64,
}

impl AxisTick {
    /// Returns the value of the attribute `text-anchor`, which aligns the label with the place of
    /// the tick.
    fn anchor(&self) -> &'static str {
        match self.place {
            place if place < self.margin => "start",
            place if place > 1.0 - self.margin => "end",
            _ => "middle",
        }
    }

    /// Returns the places on a timeline bar, from 0 to 1, at which the label begins and ends on a
    /// phone.
    fn ends(&self) -> (f64, f64) {
        let width = self.label.chars().count() as f64 * CHARACTER;
        let begin = match self.anchor() {
            "start" => self.place,
            "end" => self.place - width,
            _ => self.place - width / 2.0,
        };
        (begin, begin + width)
    }

    /// Whether this tick and `other` are far enough apart, with room for their labels beside each
    /// other.
    fn is_apart_from(&self, other: &Self) -> bool {
        let (begin, end) = self.ends();
        let (other_begin, other_end) = other.ends();
        let is_beside = begin - other_end >= SPACE_MIN || other_begin - end >= SPACE_MIN;
        is_beside && (self.place - other.place).abs() >= DISTANCE_MIN
    }
}

/// Returns the ticks of a scale, in their order. `origin` is the beginning of the thread.
pub(super) fn ticks(scale: &TimeScale, origin: Time) -> Vec<AxisTick> {
    let step = step_of(scale.length() / STEPS_MAX);
    let end = scale.ends().map_or(0, |(_, end)| end.0.saturating_sub(origin.0));
    let mut ticks: Vec<AxisTick> = Vec::new();
    let mut add = |time: i64, label: String| {
        let tick = AxisTick { place: scale.place(Time(time)), label, margin: END };
        if ticks.iter().all(|other| tick.is_apart_from(other)) {
            ticks.push(tick);
        }
    };

    // After a gap or a wait that is drawn shorter, the reader needs the exact time at which the
    // work goes on.
    for (at, stretch) in scale.stretches().iter().enumerate() {
        if at == 0 || stretch.is_after_cut {
            let since = stretch.begin.saturating_sub(origin.0).max(0);
            add(stretch.begin, label(since, step / 10, end));
        }
    }
    for stretch in scale.stretches().iter().filter(|stretch| stretch.is_shortened()) {
        let since = stretch.end.saturating_sub(origin.0).max(0);
        add(stretch.end, label(since, step / 10, end));
        let since = stretch.begin.saturating_sub(origin.0).max(0);
        add(stretch.begin, label(since, step / 10, end));
    }
    for stretch in scale.stretches().iter().filter(|stretch| !stretch.is_shortened()) {
        let since = stretch.begin.saturating_sub(origin.0).max(0);
        let first = since.div_euclid(step) + i64::from(since.rem_euclid(step) > 0);
        let last = stretch.end.saturating_sub(origin.0).div_euclid(step);
        for number in first..=last {
            let since = number.saturating_mul(step);
            add(origin.0.saturating_add(since), label(since, step, end));
        }
    }
    ticks.sort_by(|one, other| one.place.total_cmp(&other.place));
    ticks
}

/// Returns marks for the breaks of a scale, the places at which the scale leaves out time. The
/// label of each mark states how much time is left out. A long thread can have hundreds of breaks,
/// so the longest breaks get their marks first. A break gets no mark if its label would not have
/// enough space.
pub(super) fn breaks(scale: &TimeScale) -> Vec<AxisTick> {
    let mut cuts: Vec<_> = scale.cuts().collect();
    cuts.sort_by_key(|cut| std::cmp::Reverse(cut.left_out));
    let mut breaks: Vec<AxisTick> = Vec::new();
    for cut in cuts {
        let place = f64::midpoint(cut.from, cut.to);
        let label = format!("{} left out", length(cut.left_out));
        // A long label does not reach beyond the bar.
        let margin = label.chars().count() as f64 * CHARACTER / 2.0;
        let mark = AxisTick { place, label, margin };
        if breaks.iter().all(|other| mark.is_apart_from(other)) {
            breaks.push(mark);
        }
    }
    breaks.sort_by(|one, other| one.place.total_cmp(&other.place));
    breaks
}

/// Returns the shortest round duration, such as 5 s, that is at least `least`. Both are in
/// microseconds.
fn step_of(least: i64) -> i64 {
    let mut power = 1;
    while power < 1_000_000 {
        if let Some(step) = [1, 2, 5].map(|digit| digit * power).into_iter().find(|s| *s >= least) {
            return step;
        }
        power *= 10;
    }

    let long = LONG_STEPS.into_iter().map(|seconds| seconds.saturating_mul(1_000_000));
    let days = |step: i64| (least / step + 1).saturating_mul(step);
    long.into_iter().find(|step| *step >= least).unwrap_or_else(|| days(864_000_000_000))
}

/// Writes the time `since` as the label of a tick, rounded down to a multiple of `precision`. The
/// time at the end of the axis, `end`, decides whether the smallest unit of all labels is seconds,
/// milliseconds or microseconds. All three parameters are in microseconds.
fn label(since: i64, precision: i64, end: i64) -> String {
    let since = since - since % precision.max(1);
    let (name, unit) = match end {
        1_000_000.. => ("s", 1_000_000),
        1_000.. => ("ms", 1_000),
        _ => ("us", 1),
    };

    let mut parts = Vec::new();
    let mut rest = since;
    for (name, long) in LONG_UNITS {
        if rest >= long {
            parts.push(format!("{} {name}", rest / long));
        }
        rest %= long;
    }
    if rest > 0 {
        let number = format!("{:.3}", rest as f64 / f64::from(unit));
        let number = number.trim_end_matches('0').trim_end_matches('.');
        parts.push(format!("{number} {name}"));
    }
    if parts.is_empty() { "0".to_owned() } else { parts.join(" ") }
}

/// Draws the axis, with the marks of its breaks beneath its ticks. The text of the labels has the
/// same size for every width of the bar. `shared` contains invisible SVG definitions that other
/// drawings of the page use.
pub(super) fn axis(ticks: &[AxisTick], breaks: &[AxisTick], shared: Option<&Markup>) -> Markup {
    let last = ticks.last().map_or("0", |tick| &*tick.label);
    let height = if breaks.is_empty() { 20 } else { 38 };
    html! {
        svg.axis width="100%" height=(height) role="img"
            aria-label=(format!("Time since the beginning of the thread, up to {last}")) {
            @if let Some(shared) = shared { defs { (shared) } }
            @for tick in ticks {
                @let x = percent_of_place(tick.place);
                text x=(x) y="11" text-anchor=(tick.anchor()) { (tick.label) }
                line x1=(x) y1="14" x2=(x) y2="20" {}
            }
            @for mark in breaks {
                @let x = percent_of_place(mark.place);
                svg.point x=(x) y="17" width="1" height="1" {
                    path.break d="M-6 5l4 -10M2 5l4 -10" {}
                }
                text.left-out x=(x) y="33" text-anchor=(mark.anchor()) { (mark.label) }
            }
        }
    }
}

/// Writes a place between 0 and 1 as a percentage.
fn percent_of_place(place: f64) -> String {
    format!("{:.2}%", place * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats the ticks of an axis for these spans of work. The spans are in microseconds.
    fn drawn(spans: &[(i64, i64)]) -> String {
        let spans: Vec<_> = spans.iter().map(|(begin, end)| (Time(*begin), Time(*end))).collect();
        let ticks = ticks(&TimeScale::new(spans, Vec::new(), Time(0)), Time(0));
        let ticks = ticks.iter().map(|tick| format!("{:.2} {}", tick.place, tick.label));
        ticks.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn ticks_stand_at_round_times_in_one_unit() {
        let [ms, s, min] = [1_000, 1_000_000, 60_000_000];
        let cases = [
            (440 * ms, "0.00 0, 0.23 100 ms, 0.45 200 ms, 0.68 300 ms, 0.91 400 ms"),
            (2 * s, "0.00 0, 0.25 0.5 s, 0.50 1 s, 0.75 1.5 s, 1.00 2 s"),
            (90 * s, "0.00 0, 0.22 20 s, 0.44 40 s, 0.67 1 min, 0.89 1 min 20 s"),
            (50 * min, "0.00 0, 0.20 10 min, 0.40 20 min, 0.60 30 min, 0.80 40 min, 1.00 50 min"),
            (30 * 60 * min, "0.00 0, 0.20 6 h, 0.40 12 h, 0.60 18 h, 0.80 1 d, 1.00 1 d 6 h"),
            (7, "0.00 0, 0.29 2 us, 0.57 4 us, 0.86 6 us"),
        ];
        for (end, expected) in cases {
            assert_eq!(drawn(&[(0, end)]), expected);
        }
    }

    #[test]
    fn work_after_a_shortened_gap_begins_with_its_exact_time() {
        let [s, hour] = [1_000_000, 3_600_000_000];
        let spans = [(0, 10 * s), (hour + s, hour + 11 * s)];
        assert_eq!(drawn(&spans), "0.00 0, 0.24 5 s, 0.52 1 h 1 s, 0.71 1 h 5 s, 0.95 1 h 10 s");
        assert_eq!(drawn(&[]), "");
        assert_eq!(drawn(&[(5, 5)]), "0.00 5 us");
    }

    #[test]
    fn a_break_states_the_time_that_is_left_out() {
        let [s, hour] = [1_000_000, 3_600_000_000];
        // The second gap is too short to be cut.
        let later = hour + 11 * s + s / 2;
        let spans = [(0, 10 * s), (hour + s, hour + 11 * s), (later, later + s)];
        let spans = spans.map(|(begin, end)| (Time(begin), Time(end)));
        let breaks = breaks(&TimeScale::new(spans.to_vec(), Vec::new(), Time(0)));
        let [only] = breaks.as_slice() else { panic!("{breaks:?}") };
        assert_eq!(only.label, "59 min 50 s left out");
        assert!((only.place - 0.466).abs() < 0.005, "{only:?}");

        let drawn = axis(&[], &breaks, None).into_string();
        assert!(drawn.contains("class=\"break\""), "{drawn}");
        let spans = vec![(Time(0), Time(10)), (Time(10), Time(20))];
        assert_eq!(super::breaks(&TimeScale::new(spans, Vec::new(), Time(0))), []);
    }

    #[test]
    fn long_labels_do_not_overlap_on_a_phone() {
        // A day, two hours, 33 minutes and twelve seconds.
        let begins = (0..5).map(|number| number * 95_592_000_000);
        let spans = begins.map(|begin| (Time(begin), Time(begin + 30_000_000)));
        let ticks = ticks(&TimeScale::new(spans.collect(), Vec::new(), Time(0)), Time(0));
        assert!(ticks.iter().any(|tick| tick.label.len() > 16), "{ticks:?}");
        assert!(ticks.len() > 2, "{ticks:?}");
        for pair in ticks.windows(2) {
            let [before, after] = pair else { panic!("{pair:?}") };
            assert!(before.ends().1 < after.ends().0, "{before:?} {after:?}");
        }
    }
}
