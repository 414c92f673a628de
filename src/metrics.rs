//! Metrics (counters, gauges and histograms), and the Prometheus text format in which they are
//! written. One module updates a metric, and another module reads it.
//!
//! Counting neither locks nor allocates. This module must not know the meaning of a metric.

mod page;

pub use page::{MetricFamily, MetricUnit, MetricsPage};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A metric that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A metric that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One counter for each of `N` label values.
#[derive(Debug)]
pub struct LabelledCounters<const N: usize>([Counter; N]);

impl<const N: usize> Default for LabelledCounters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize> LabelledCounters<N> {
    /// Increments the counter of the label value at `index`.
    pub fn increment(&self, index: usize) {
        self.add(index, 1);
    }

    pub fn add(&self, index: usize, count: u64) {
        debug_assert!(index < N, "the list has no {index}");
        if let Some(counter) = self.0.get(index) {
            counter.add(count);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Counter> {
        self.0.iter()
    }
}

/// Upper bounds of histogram buckets for durations from tens of microseconds to minutes, in
/// microseconds.
pub const MICROS: &[u64] = &[
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// Upper bounds of histogram buckets for sizes of batches.
pub const GROUPS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A histogram: counts values in buckets by their size.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// The buckets: one for each bound, and one for values above the last bound.
    buckets: Box<[Counter]>,
    sum: Counter,
}

impl Histogram {
    /// Makes a histogram; `bounds` are the ascending upper bounds of its buckets.
    pub fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self { bounds, buckets, sum: Counter::default() }
    }

    pub fn of_time() -> Self {
        Self::new(MICROS)
    }

    pub fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(counter) = self.buckets.get(bucket) {
            counter.increment();
        }
        self.sum.add(value);
    }

    pub fn took(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}
