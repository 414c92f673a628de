//! Percentiles of many durations in little memory.

use std::collections::BTreeMap;

/// Ratio between the upper and the lower bound of a bucket. A percentile is reported as the middle
/// of a bucket, so its error is at most 2 %.
const BUCKET_RATIO: f64 = 1.04;

/// Number of the last bucket, for the longest durations.
pub const LAST_BUCKET: u16 = 1114;

/// Durations in microseconds, counted in buckets whose bounds grow by 4 %.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    buckets: BTreeMap<u16, u64>,
    total: u64,
}

impl DurationHistogram {
    /// Counts a duration. A negative duration, caused by a clock that was set back, counts as zero.
    pub fn count(&mut self, micros: i64) {
        self.count_in(bucket(micros), 1);
    }

    /// Adds `count` durations to one bucket.
    pub fn count_in(&mut self, bucket: u16, count: u64) {
        *self.buckets.entry(bucket).or_default() += count;
        self.total += count;
    }

    /// Returns the buckets that contain durations, each with its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> {
        self.buckets.iter().map(|(bucket, count)| (*bucket, *count))
    }

    pub fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        self.total += other.total;
    }

    /// Returns a percentile of the counted durations, in microseconds, with an error of at most 2
    /// %. `share` is a number from 0 to 1: for 0.95, the result is the 95th percentile. Returns
    /// `None` if nothing was counted.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let rank = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return Some(middle(*bucket));
            }
        }
        None
    }
}

/// Returns the bucket of a duration in microseconds. Bucket 0 is for durations up to 1 µs, bucket n
/// for durations up to [`BUCKET_RATIO`] to the power of n.
fn bucket(micros: i64) -> u16 {
    if micros <= 1 {
        return 0;
    }
    (micros as f64).log(BUCKET_RATIO).ceil() as u16
}

/// Returns the lower and the upper bound of a bucket, in microseconds. The lower bound is
/// exclusive, and the upper bound is inclusive.
pub fn bucket_bounds(bucket: u16) -> (u64, u64) {
    let upper = |bucket: u16| BUCKET_RATIO.powi(i32::from(bucket)) as u64;
    let above = bucket.checked_sub(1).map_or(0, upper);
    (above, upper(bucket).min(i64::MAX.unsigned_abs()))
}

fn middle(bucket: u16) -> u64 {
    if bucket == 0 {
        return 0;
    }
    let upper = BUCKET_RATIO.powi(i32::from(bucket));
    (upper * 2.0 / (1.0 + BUCKET_RATIO)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_two_percent() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            state >> 33
        };

        for range in [50, 3_000, 2_000_000, 4_000_000_000] {
            let mut values: Vec<u64> = (0..2_000).map(|_| random() % range + 20).collect();
            let mut histogram = DurationHistogram::default();
            values.iter().for_each(|value| histogram.count(i64::try_from(*value).unwrap()));
            values.sort_unstable();

            for share in [0.5, 0.95, 0.99, 1.0] {
                let exact = values[(share * 2_000.0) as usize - 1] as f64;
                let found = histogram.percentile(share).unwrap() as f64;
                // The half microsecond allows for rounding.
                let bound = 0.02 * exact + 0.5;
                assert!((found - exact).abs() <= bound, "{range} {share}: {found} {exact}");
            }
        }
    }

    #[test]
    fn each_duration_is_within_the_bounds_of_its_bucket() {
        for micros in [2, 3, 10, 25, 999, 1_000_000, 86_400_000_000, i64::MAX] {
            let (above, up_to) = bucket_bounds(bucket(micros));
            let micros = micros.unsigned_abs();
            assert!(above < micros && micros <= up_to, "{micros}: {above} to {up_to}");
        }
        assert_eq!(bucket(i64::MAX), LAST_BUCKET);
        assert_eq!(bucket_bounds(0), (0, 1));
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut a, mut b, mut whole) = Default::default();
        for micros in [0, -5, 1, 2, 900, 1_000_000] {
            DurationHistogram::count(if micros % 2 == 0 { &mut a } else { &mut b }, micros);
            DurationHistogram::count(&mut whole, micros);
        }
        a.add(&b);
        assert_eq!(a, whole);
        assert_eq!(DurationHistogram::default().percentile(0.5), None);
        assert_eq!(whole.percentile(0.01), Some(0));
    }
}
