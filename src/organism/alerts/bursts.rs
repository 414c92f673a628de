//! Counts the recent occurrences of causes that have not raised an alert yet.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Time;
use crate::ids::Position;

/// The recent occurrences of one cause that has not raised an alert yet.
#[derive(Debug, Default)]
pub(super) struct Burst {
    parts: VecDeque<BurstPart>,
}

/// Occurrences of a cause that one record reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct BurstPart {
    pub since: Time,
    pub position: Position,
    count: u64,
    /// Time from which the time window counts. Initially equal to `since`. If the clock is set
    /// forward, this time moves forward by the same amount.
    counted_from: Time,
}

impl Burst {
    /// Adds the occurrences that the record at `position` reports, and removes those that are too
    /// old for `window`. `time` is the time of the record.
    pub fn add(&mut self, time: Time, position: Position, count: u64, window: Duration) {
        self.parts.push_back(BurstPart { since: time, position, count, counted_from: time });
        while let Some(part) = self.parts.front()
            && time.since(part.counted_from) >= window
        {
            self.parts.pop_front();
        }
    }

    /// Returns the number of occurrences.
    pub fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.count).sum()
    }

    pub fn first(&self) -> Option<BurstPart> {
        self.parts.front().copied()
    }

    /// Whether all occurrences are too old for `window`.
    pub fn is_old(&self, now: Time, window: Duration) -> bool {
        self.parts.back().is_none_or(|part| now.since(part.counted_from) >= window)
    }

    /// Handles a jump of the clock, which was set forward by `step`. The jump does not count for the
    /// time window.
    pub fn pass_step(&mut self, step: Duration) {
        for part in &mut self.parts {
            part.counted_from = part.counted_from.plus(step);
        }
    }
}
