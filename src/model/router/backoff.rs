//! Backoff between attempts: doubling delays with jitter, so that callers that failed at the same
//! time do not retry at the same time.

use std::time::Duration;

use rand_core::{OsRng, RngCore as _};

use crate::limits;

/// Pseudo-random numbers (splitmix64) from a seed.
#[derive(Debug, Clone)]
pub struct JitterSource(u64);

impl JitterSource {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub fn of_system() -> Self {
        Self(OsRng.next_u64())
    }

    /// Returns a random delay before retry number `round`, counted from 1. The maximum of the delay
    /// doubles with each retry, up to a limit.
    pub fn pause(&mut self, round: u32) -> Duration {
        let doubled = 1u32.checked_shl(round.saturating_sub(1)).unwrap_or(u32::MAX);
        let bound = limits::MODEL_BACKOFF_FIRST.saturating_mul(doubled);
        bound.min(limits::MODEL_BACKOFF_MAX).mul_f64(self.share())
    }

    /// Returns a random number from 0 to 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        f64::from(u32::try_from(z >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}
