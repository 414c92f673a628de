//! Maps times to places on a bar. Stretches without open work are drawn shorter, so that a thread
//! that rested for a day still shows its work.

use crate::clock::Time;

/// Divisor that gives the maximum width of a gap: the busy time divided by this number.
const GAP_PARTS: i64 = 25;

/// A stretch of time with open work, and its place on the bar.
#[derive(Debug)]
pub(super) struct BusyStretch {
    pub begin: i64,
    pub end: i64,
    /// Beginning of the stretch on the bar, in microseconds of the shortened time.
    place: i64,
    /// Whether the gap before the stretch is drawn shorter than its real duration.
    pub is_after_cut: bool,
}

/// Maps times to places from 0 to 1.
#[derive(Debug)]
pub(super) struct TimeScale {
    stretches: Vec<BusyStretch>,
    /// Length of the whole bar, in microseconds.
    length: i64,
    last: Time,
    is_shortened: bool,
}

impl TimeScale {
    /// Creates a scale for these spans. `last` is the time of the last event.
    pub fn new(mut spans: Vec<(Time, Time)>, last: Time) -> Self {
        spans.sort_by_key(|(begin, _)| *begin);
        let mut busy: Vec<(i64, i64)> = Vec::new();
        for (begin, end) in spans {
            let end = end.max(begin);
            match busy.last_mut() {
                Some((_, until)) if begin.0 <= *until => *until = end.0.max(*until),
                _ => busy.push((begin.0, end.0)),
            }
        }

        let worked: i64 = busy.iter().map(|(begin, end)| end.saturating_sub(*begin)).sum();
        let gap_max = (worked / GAP_PARTS).max(1);
        let mut scale = Self { stretches: Vec::new(), length: 0, last, is_shortened: false };
        for (begin, end) in busy {
            let mut is_after_cut = false;
            if let Some(before) = scale.stretches.last() {
                let gap = begin.saturating_sub(before.end);
                is_after_cut = gap > gap_max;
                scale.length = scale.length.saturating_add(gap.min(gap_max));
            }
            scale.is_shortened |= is_after_cut;
            scale.stretches.push(BusyStretch { begin, end, place: scale.length, is_after_cut });
            scale.length = scale.length.saturating_add(end.saturating_sub(begin));
        }
        scale
    }

    /// Returns the beginning of the first busy stretch and the end of the last busy stretch; `None`
    /// if no stretch is busy.
    pub fn ends(&self) -> Option<(Time, Time)> {
        let first = self.stretches.first()?;
        let last = self.stretches.last()?;
        Some((Time(first.begin), Time(last.end)))
    }

    /// Returns the time of the last event.
    pub fn last(&self) -> Time {
        self.last
    }

    /// Returns the stretches with open work, in their order.
    pub fn stretches(&self) -> &[BusyStretch] {
        &self.stretches
    }

    /// Returns the length of the whole bar, in microseconds of the shortened time.
    pub fn length(&self) -> i64 {
        self.length
    }

    /// Returns the gaps that are drawn shorter, each by the places of its beginning and its end.
    pub fn cuts(&self) -> impl Iterator<Item = (f64, f64)> {
        let pairs = self.stretches.windows(2);
        pairs.filter_map(|pair| match pair {
            [before, after] if after.is_after_cut => {
                Some((self.place(Time(before.end)), self.place(Time(after.begin))))
            }
            _ => None,
        })
    }

    /// Whether any gap is drawn shorter than its real duration.
    pub fn is_shortened(&self) -> bool {
        self.is_shortened
    }

    /// Returns the place, from 0 to 1, of a time inside a span.
    pub fn place(&self, time: Time) -> f64 {
        let after = self.stretches.iter().rev().find(|stretch| stretch.begin <= time.0);
        let Some(stretch) = after else { return 0.0 };
        let within = time.0.min(stretch.end).saturating_sub(stretch.begin);
        let place = stretch.place.saturating_add(within);
        place as f64 / self.length.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_rest_leaves_room_for_the_work_around_it() {
        let day = 86_400_000_000;
        let spans = [(0, 100), (50, 200), (day, day + 200)];
        let spans = spans.map(|(begin, end)| (Time(begin), Time(end)));
        let scale = TimeScale::new(spans.to_vec(), Time(day + 200));
        assert!(scale.is_shortened());
        assert_eq!(scale.ends(), Some((Time(0), Time(day + 200))));

        let places = [0, 200, day, day + 200].map(|time| scale.place(Time(time)));
        assert_eq!((places[0], places[3]), (0.0, 1.0));
        assert!((places[1] - 200.0 / 416.0).abs() < 1e-9, "{places:?}");
        assert!((places[2] - 216.0 / 416.0).abs() < 1e-9, "{places:?}");
        assert_eq!(scale.cuts().collect::<Vec<_>>(), [(places[1], places[2])]);
    }

    #[test]
    fn spans_without_a_gap_keep_their_proportions() {
        let scale = TimeScale::new(vec![(Time(10), Time(20)), (Time(20), Time(50))], Time(50));
        assert!(!scale.is_shortened());
        assert!((scale.place(Time(20)) - 0.25).abs() < 1e-9);
        assert_eq!(scale.place(Time(50)), 1.0);
        assert_eq!(TimeScale::new(Vec::new(), Time(0)).ends(), None);
        let instant = TimeScale::new(vec![(Time(7), Time(7))], Time(7));
        assert_eq!(instant.place(Time(7)), 0.0);
    }
}
