//! Decides when an ended process is restarted. The functions are pure: the caller supplies the time
//! and the random number.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits;

/// Limits on restarts of a listener's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Maximum number of restarts within `window`. If a process ends after this number of restarts,
    /// its instance waits for the length of `rest` before the next start.
    pub max: u32,
    pub window: Duration,
    pub rest: Duration,
    /// Delay before the first restart. The delay doubles with each further restart in the window,
    /// up to `backoff_max`.
    pub backoff_first: Duration,
    pub backoff_max: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            max: limits::RESTARTS_MAX,
            window: limits::RESTART_WINDOW,
            rest: limits::RESTART_REST,
            backoff_first: limits::BACKOFF_FIRST,
            backoff_max: limits::BACKOFF_MAX,
        }
    }
}

/// Decision about the restart of a listener's process that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartDecision {
    After(Duration),
    /// The restarts within the window are used up, or the program is missing. The instance waits
    /// for this time, starts the process, and then counts restarts from zero.
    RestFor(Duration),
}

/// The recent restarts of one process of a listener.
#[derive(Debug)]
pub(super) struct Restarts {
    policy: RestartPolicy,
    recent: VecDeque<Instant>,
}

impl Restarts {
    pub fn new(policy: RestartPolicy) -> Self {
        Self { policy, recent: VecDeque::new() }
    }

    /// Decides whether a process that has ended is restarted after a delay, or only after a longer
    /// rest. A random `chance` in 0..=255 varies the delay by a factor of 0.5 to 1.5, so that
    /// processes of one listener do not all restart at the same time.
    pub fn next(&mut self, now: Instant, chance: u8) -> RestartDecision {
        let policy = self.policy;
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= policy.window) {
            self.recent.pop_front();
        }

        let count = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if count >= policy.max {
            self.recent.clear();
            return RestartDecision::RestFor(policy.rest);
        }

        self.recent.push_back(now);
        let doubled = policy.backoff_first.saturating_mul(1 << count.min(16));
        let spread = (128 + u32::from(chance)).min(384);
        RestartDecision::After(doubled.min(policy.backoff_max) * spread / 256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RestartPolicy = RestartPolicy {
        max: 3,
        window: Duration::from_secs(60),
        rest: Duration::from_secs(30),
        backoff_first: Duration::from_millis(100),
        backoff_max: Duration::from_millis(300),
    };

    #[test]
    fn waits_double_up_to_a_ceiling_and_then_the_instance_rests() {
        let mut restarts = Restarts::new(POLICY);
        let now = Instant::now();
        let waits: Vec<_> = (0..4).map(|_| restarts.next(now, 128)).collect();
        let after = |ms| RestartDecision::After(Duration::from_millis(ms));
        assert_eq!(
            waits,
            [after(100), after(200), after(300), RestartDecision::RestFor(POLICY.rest)]
        );
    }

    #[test]
    fn restarts_outside_the_window_are_forgotten() {
        let mut restarts = Restarts::new(POLICY);
        let start = Instant::now();
        for day in 0..10 {
            let next = restarts.next(start + POLICY.window * day, 128);
            assert_eq!(next, RestartDecision::After(POLICY.backoff_first), "restart {day}");
        }
    }

    #[test]
    fn jitter_stays_within_half_and_one_and_a_half() {
        for (chance, ms) in [(0, 50), (128, 100), (255, 149)] {
            let RestartDecision::After(wait) = Restarts::new(POLICY).next(Instant::now(), chance)
            else {
                panic!("a first restart is always granted");
            };
            assert_eq!(wait.as_millis(), ms, "chance {chance}");
        }
    }
}
