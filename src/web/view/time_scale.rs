//! Maps times to places on a bar. Gaps, which are periods without open work, are drawn shorter, so
//! that the work of a thread that rested for a day stays visible. Waits, for people or in queues,
//! are also drawn shorter if all waits together are longer than the work.

use std::time::Duration;

use crate::clock::Time;

/// Divisor that limits the drawn length of a gap, which is a period without open work. The maximum
/// is the drawn length of all work and all waits, divided by this number.
const GAP_PARTS: i64 = 25;

/// A stretch of time on the bar: a period of work, or a period in which calls only waited.
#[derive(Debug)]
pub(super) struct BusyStretch {
    pub begin: i64,
    pub end: i64,
    /// Length of the bar before this stretch, in microseconds. Shortened gaps and waits count with
    /// their drawn lengths.
    place: i64,
    /// Length of the stretch on the bar, in microseconds. For a shortened wait, this is less than
    /// its real duration.
    drawn: i64,
    /// Whether the gap before the stretch is drawn shorter than its real duration.
    pub is_after_cut: bool,
}

impl BusyStretch {
    fn duration(&self) -> i64 {
        self.end.saturating_sub(self.begin)
    }

    /// Whether the stretch is a wait that is drawn shorter than its real duration.
    pub fn is_shortened(&self) -> bool {
        self.drawn < self.duration()
    }
}

/// A part of the bar that is drawn shorter than its real duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeCut {
    /// Place at which the part begins, from 0 to 1.
    pub from: f64,
    /// Place at which the part ends, from 0 to 1.
    pub to: f64,
    /// Part of the real duration that the drawing leaves out.
    pub left_out: Duration,
}

/// A scale that maps times to places on a bar, from 0 to 1.
#[derive(Debug)]
pub(super) struct TimeScale {
    stretches: Vec<BusyStretch>,
    /// Length of the whole bar, in microseconds. Shortened gaps and waits count with their drawn
    /// lengths.
    length: i64,
    last: Time,
    is_shortened: bool,
}

impl TimeScale {
    /// Creates a scale from periods of work and periods in which calls waited. `last` is the time
    /// of the last event. Time with both work and a wait counts as work, and only the remaining
    /// waits count as waits. If these waits are together longer than all work, they are shortened
    /// to the total length of the work. If there is no work, no wait is shortened.
    pub fn new(work: Vec<(Time, Time)>, waits: Vec<(Time, Time)>, last: Time) -> Self {
        let work = merged(work);
        let waits = without(&merged(waits), &work);
        let sum = |spans: &[(i64, i64)]| -> i64 {
            spans.iter().map(|(begin, end)| end.saturating_sub(*begin)).sum()
        };
        let [worked, waited] = [sum(&work), sum(&waits)];
        let is_long = worked > 0 && waited > worked;
        let share = if is_long { worked as f64 / waited as f64 } else { 1.0 };
        let drawn_wait = |(begin, end): (i64, i64)| {
            let drawn = (end.saturating_sub(begin) as f64 * share).round() as i64;
            (begin, end, drawn.max(i64::from(end > begin)))
        };
        let drawn_work = |(begin, end): (i64, i64)| (begin, end, end.saturating_sub(begin));
        let mut busy: Vec<(i64, i64, i64)> = work.into_iter().map(drawn_work).collect();
        busy.extend(waits.into_iter().map(drawn_wait));
        busy.sort_unstable();

        let all: i64 = busy.iter().map(|(_, _, drawn)| drawn).sum();
        let gap_max = (all / GAP_PARTS).max(1);
        let mut scale = Self { stretches: Vec::new(), length: 0, last, is_shortened: is_long };
        for (begin, end, drawn) in busy {
            let mut is_after_cut = false;
            if let Some(before) = scale.stretches.last() {
                let gap = begin.saturating_sub(before.end);
                is_after_cut = gap > gap_max;
                scale.length = scale.length.saturating_add(gap.min(gap_max));
            }
            scale.is_shortened |= is_after_cut;
            let place = scale.length;
            scale.stretches.push(BusyStretch { begin, end, place, drawn, is_after_cut });
            scale.length = scale.length.saturating_add(drawn);
        }
        scale
    }

    /// Returns the beginning of the first stretch and the end of the last stretch; `None` if there
    /// are no stretches.
    pub fn ends(&self) -> Option<(Time, Time)> {
        let first = self.stretches.first()?;
        let last = self.stretches.last()?;
        Some((Time(first.begin), Time(last.end)))
    }

    /// Returns the time of the last event.
    pub fn last(&self) -> Time {
        self.last
    }

    /// Returns the periods of work and the periods in which calls only waited, earliest first.
    pub fn stretches(&self) -> &[BusyStretch] {
        &self.stretches
    }

    /// Returns the length of the whole bar, in microseconds. Shortened gaps and waits count with
    /// their drawn lengths.
    pub fn length(&self) -> i64 {
        self.length
    }

    /// Returns the gaps and the waits that are drawn shorter than they lasted.
    pub fn cuts(&self) -> impl Iterator<Item = TimeCut> {
        let cut = |begin: i64, drawn: i64, lasted: i64| {
            let [from, to] = [begin, begin.saturating_add(drawn)]
                .map(|place| place as f64 / self.length.max(1) as f64);
            let left_out = Duration::from_micros(lasted.saturating_sub(drawn).unsigned_abs());
            TimeCut { from, to, left_out }
        };
        let waits = self.stretches.iter().filter(|stretch| stretch.is_shortened());
        let waits = waits.map(move |wait| cut(wait.place, wait.drawn, wait.duration()));
        let gaps = self.stretches.windows(2).filter_map(move |pair| match pair {
            [before, after] if after.is_after_cut => {
                let begin = before.place.saturating_add(before.drawn);
                let lasted = after.begin.saturating_sub(before.end);
                Some(cut(begin, after.place.saturating_sub(begin), lasted))
            }
            _ => None,
        });
        gaps.chain(waits)
    }

    /// Returns the total time that the timeline bar leaves out, because gaps and waits are drawn
    /// shorter than they lasted.
    pub fn left_out(&self) -> Duration {
        self.cuts().map(|cut| cut.left_out).sum()
    }

    /// Whether any gap or wait is drawn shorter than its real duration.
    pub fn is_shortened(&self) -> bool {
        self.is_shortened
    }

    /// Returns the place of a time on the bar, from 0 to 1. A time within a gap has the place at
    /// which the gap begins.
    pub fn place(&self, time: Time) -> f64 {
        let after = self.stretches.iter().rev().find(|stretch| stretch.begin <= time.0);
        let Some(stretch) = after else { return 0.0 };
        let within = time.0.min(stretch.end).saturating_sub(stretch.begin) as f64;
        let rate = stretch.drawn as f64 / stretch.duration().max(1) as f64;
        (stretch.place as f64 + within * rate) / self.length.max(1) as f64
    }
}

/// Merges spans that overlap or touch, and sorts them.
fn merged(mut spans: Vec<(Time, Time)>) -> Vec<(i64, i64)> {
    spans.sort_by_key(|(begin, _)| *begin);
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (begin, end) in spans {
        let end = end.max(begin);
        match merged.last_mut() {
            Some((_, until)) if begin.0 <= *until => *until = end.0.max(*until),
            _ => merged.push((begin.0, end.0)),
        }
    }
    merged
}

/// Removes from `waits` the times that `work` covers. The spans of each list must be sorted and
/// must not overlap.
fn without(waits: &[(i64, i64)], work: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut left = Vec::new();
    let mut next = 0;
    for (begin, end) in waits {
        let mut from = *begin;
        while let Some((busy_from, busy_to)) = work.get(next) {
            if *busy_from >= *end {
                break;
            }
            if *busy_from > from {
                left.push((from, *busy_from));
            }
            from = from.max(*busy_to);
            if *busy_to > *end {
                break;
            }
            next += 1;
        }
        if from < *end {
            left.push((from, *end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_rest_leaves_room_for_the_work_around_it() {
        let day = 86_400_000_000;
        let spans = [(0, 100), (50, 200), (day, day + 200)];
        let spans = spans.map(|(begin, end)| (Time(begin), Time(end)));
        let scale = TimeScale::new(spans.to_vec(), Vec::new(), Time(day + 200));
        assert!(scale.is_shortened());
        assert_eq!(scale.ends(), Some((Time(0), Time(day + 200))));

        let places = [0, 200, day, day + 200].map(|time| scale.place(Time(time)));
        assert_eq!((places[0], places[3]), (0.0, 1.0));
        assert!((places[1] - 200.0 / 416.0).abs() < 1e-9, "{places:?}");
        assert!((places[2] - 216.0 / 416.0).abs() < 1e-9, "{places:?}");
        let cut = TimeCut {
            from: places[1],
            to: places[2],
            left_out: Duration::from_micros(day.unsigned_abs() - 200 - 16),
        };
        assert_eq!(scale.cuts().collect::<Vec<_>>(), [cut]);
        assert_eq!(scale.left_out(), cut.left_out);
    }

    #[test]
    fn spans_without_a_gap_keep_their_proportions() {
        let scale =
            TimeScale::new(vec![(Time(10), Time(20)), (Time(20), Time(50))], Vec::new(), Time(50));
        assert!(!scale.is_shortened());
        assert!((scale.place(Time(20)) - 0.25).abs() < 1e-9);
        assert_eq!(scale.place(Time(50)), 1.0);
        assert_eq!(TimeScale::new(Vec::new(), Vec::new(), Time(0)).ends(), None);
        let instant = TimeScale::new(vec![(Time(7), Time(7))], Vec::new(), Time(7));
        assert_eq!(instant.place(Time(7)), 0.0);
    }

    #[test]
    fn a_long_wait_takes_no_more_of_the_bar_than_the_work() {
        let spans = |pairs: &[(i64, i64)]| {
            pairs.iter().map(|(begin, end)| (Time(*begin), Time(*end))).collect::<Vec<_>>()
        };
        let scale = TimeScale::new(
            spans(&[(0, 100), (1_000_050, 1_000_150)]),
            spans(&[(50, 1_000_100)]),
            Time(1_000_150),
        );
        assert!(scale.is_shortened());
        let places = [0, 100, 1_000_050, 1_000_150].map(|time| scale.place(Time(time)));
        for (place, expected) in places.into_iter().zip([0.0, 0.25, 0.75, 1.0]) {
            assert!((place - expected).abs() < 1e-9, "{places:?}");
        }
        let left_out = Duration::from_micros(1_000_050 - 100 - 200);
        let cuts: Vec<_> = scale.cuts().collect();
        assert_eq!(cuts, [TimeCut { from: 0.25, to: 0.75, left_out }]);

        let short = TimeScale::new(spans(&[(0, 100)]), spans(&[(100, 150)]), Time(150));
        assert!(!short.is_shortened());
        assert_eq!(without(&[(0, 10), (20, 30)], &[(5, 25)]), [(0, 5), (25, 30)]);
    }
}
