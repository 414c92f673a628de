//! Limits the concurrent requests and the tokens per minute of one model, and adapts the limits to
//! the provider's responses.
//!
//! The configured limit is the maximum. Each "too many requests" response halves the current limit,
//! and each answer raises the current limit a little (additive increase, multiplicative decrease).

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits;
use crate::locks::locked;
use crate::model::answer::TokenUsage;
use crate::model::error::{CallPhase, Error};

/// Configured limits of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Maximum number of concurrent calls.
    pub concurrency: u32,
    pub tokens_per_minute: Option<u64>,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self { concurrency: limits::MODEL_CONCURRENCY_DEFAULT, tokens_per_minute: None }
    }
}

/// Limiter that admits calls to one model within the current limits of the model.
#[derive(Debug)]
pub struct RateLimiter {
    /// The load and the current limits. Lock: held only for arithmetic, never across an await,
    /// because all callers of the model share it.
    state: Mutex<LimiterLoad>,
    /// Queue of the waiting calls. Lock: held by the first waiting call until the limits allow the
    /// call, so that calls enter in the order in which they came. Otherwise small calls could
    /// take every token for which a large call waits.
    queue: tokio::sync::Mutex<()>,
    /// Wakes the first waiting call when capacity becomes free.
    freed: Notify,
}

#[derive(Debug)]
struct LimiterLoad {
    /// The configured limits.
    pace: RateLimits,
    under_way: u32,
    /// Current limit of concurrent calls.
    allowed: f64,
    /// Current limit of tokens per minute.
    rate: f64,
    /// Tokens that are available now; negative after a call that used more tokens than its
    /// estimate.
    tokens: f64,
    filled: Instant,
    lowered: Instant,
    rests_until: Option<Instant>,
}

/// Permit of an admitted call. Dropping the permit frees the place that the call took. The drop
/// also gives the tokens of the call back, unless the request was sent.
#[derive(Debug)]
pub struct CallPermit<'a> {
    limiter: &'a RateLimiter,
    taken: f64,
    began: Instant,
    is_sent: bool,
}

/// Amount by which each success raises the current limit of tokens per minute, as a fraction of the
/// configured limit.
const RATE_STEP: f64 = 0.02;

#[expect(clippy::cast_precision_loss, reason = "tokens are counted to fifty bits at most")]
fn real(tokens: u64) -> f64 {
    tokens as f64
}

impl RateLimiter {
    pub fn new(pace: RateLimits) -> Self {
        let now = Instant::now();
        let rate = pace.tokens_per_minute.map_or(f64::INFINITY, real);
        let state = LimiterLoad {
            pace,
            under_way: 0,
            allowed: f64::from(pace.concurrency.max(1)),
            rate,
            tokens: rate,
            filled: now,
            lowered: now,
            rests_until: None,
        };

        let queue = tokio::sync::Mutex::new(());
        Self { state: Mutex::new(state), queue, freed: Notify::new() }
    }

    /// Replaces the configured limits. Running calls still count, a pause continues, and a limit
    /// that the provider's responses have lowered stays lowered in the same proportion.
    pub fn set_limits(&self, pace: RateLimits) {
        locked(&self.state).set_limits(pace);
        self.freed.notify_one();
    }

    /// Waits until the limits allow a call of about `tokens` tokens. Calls enter in the order in
    /// which they began to wait.
    pub async fn enter(&self, tokens: u64) -> CallPermit<'_> {
        let _first = self.queue.lock().await;
        loop {
            let freed = self.freed.notified();
            let mut freed = std::pin::pin!(freed);
            freed.as_mut().enable();
            let entry = locked(&self.state).enter(real(tokens));
            match entry {
                LimiterEntry::In(taken) => {
                    let began = Instant::now();
                    return CallPermit { limiter: self, taken, began, is_sent: false };
                }
                LimiterEntry::Full => freed.await,
                // Tokens may become available earlier, if a call uses fewer than it announced.
                LimiterEntry::Dry(wait) => {
                    let _ = tokio::time::timeout(wait, freed).await;
                }
            }
        }
    }

    /// Returns the number of running calls as a share of the current limit of concurrent calls.
    pub fn load(&self) -> f64 {
        let state = locked(&self.state);
        f64::from(state.under_way) / state.allowed
    }

    /// Returns the current limits of concurrent calls and of tokens per minute. The second limit is
    /// `None` if the config sets no limit of tokens.
    pub fn allowed(&self) -> (f64, Option<f64>) {
        let state = locked(&self.state);
        (state.allowed, state.pace.tokens_per_minute.map(|_| state.rate))
    }

    /// Returns the end of the pause that the provider requested, or `None` if there is no pause
    /// now.
    pub fn rests_until(&self) -> Option<Instant> {
        locked(&self.state).rests_until.filter(|until| *until > Instant::now())
    }
}

enum LimiterEntry {
    /// The call may be sent. The call has taken the given number of tokens.
    In(f64),
    /// The limit of concurrent calls is reached.
    Full,
    /// Too few tokens are available now. Enough tokens will be available after the given delay.
    Dry(Duration),
}

impl LimiterLoad {
    fn enter(&mut self, tokens: f64) -> LimiterEntry {
        if f64::from(self.under_way) + 1.0 > self.allowed {
            return LimiterEntry::Full;
        }

        if self.rate.is_finite() {
            self.fill();
            // A call that needs more tokens than a minute provides waits until those of a full
            // minute are available.
            let taken = tokens.min(self.rate);
            if self.tokens < taken {
                let missing = taken - self.tokens;
                let wait = Duration::try_from_secs_f64(missing / self.rate * 60.0);
                let least = Duration::from_millis(1);
                return LimiterEntry::Dry(wait.unwrap_or(Duration::from_secs(60)).max(least));
            }
            self.tokens -= taken;
        }

        self.under_way += 1;
        LimiterEntry::In(tokens.min(self.rate))
    }

    fn set_limits(&mut self, pace: RateLimits) {
        let before = std::mem::replace(&mut self.pace, pace);
        if before == pace {
            return;
        }

        let most = |pace: RateLimits| f64::from(pace.concurrency.max(1));
        self.allowed = (self.allowed * most(pace) / most(before)).max(1.0);

        let rate = pace.tokens_per_minute.map_or(f64::INFINITY, real);
        match before.tokens_per_minute.map(real) {
            Some(before) if rate.is_finite() => {
                self.fill();
                self.rate *= rate / before;
            }
            _ => {
                self.rate = rate;
                self.tokens = rate;
                self.filled = Instant::now();
            }
        }
        self.tokens = self.tokens.min(self.rate);
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let minutes = now.duration_since(self.filled).as_secs_f64() / 60.0;
        self.tokens = (self.tokens + minutes * self.rate).min(self.rate);
        self.filled = now;
    }
}

impl CallPermit<'_> {
    /// Records that the request is being sent. From now on, its tokens count as used.
    pub fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Records that the request was answered. Does not change the end of a pause, because the
    /// request may have been sent before the provider requested the pause.
    pub fn succeeded(mut self, usage: &TokenUsage) {
        self.is_sent = true;
        let mut state = locked(&self.limiter.state);
        let pace = state.pace;
        let most = f64::from(pace.concurrency.max(1));
        state.allowed = (state.allowed + 1.0 / state.allowed).min(most);
        if let Some(most) = pace.tokens_per_minute.map(real) {
            state.fill();
            let used = real(usage.tokens_in.saturating_add(usage.tokens_out));
            state.tokens = (state.tokens + self.taken - used).max(-state.rate);
            state.rate = (state.rate + most * RATE_STEP).min(most);
        }
    }

    pub fn failed(mut self, error: &Error) {
        self.is_sent = !is_without_work(error);
        let mut state = locked(&self.limiter.state);
        let now = Instant::now();

        if !error.is_overload() {
            return;
        }

        if let Some(after) = error.retry_after() {
            let until = now + after.min(limits::MODEL_PAUSE_MAX);
            state.rests_until = state.rests_until.max(Some(until));
        }

        // Calls that began before the limit was last lowered do not show what the provider allows
        // now.
        if self.began >= state.lowered {
            state.lowered = now;
            let under_way = f64::from(state.under_way);
            state.allowed = (state.allowed.min(under_way) / 2.0).max(1.0);
            if let Some(most) = state.pace.tokens_per_minute.map(real) {
                let least = most * real(limits::TOKENS_PER_MINUTE_FLOOR_PERCENT) / 100.0;
                state.rate = (state.rate / 2.0).max(least);
                state.tokens = state.tokens.min(state.rate);
            }
        }
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.limiter.state);
        state.under_way = state.under_way.saturating_sub(1);
        if !self.is_sent {
            state.tokens = (state.tokens + self.taken).min(state.rate);
        }
        drop(state);
        self.limiter.freed.notify_one();
    }
}

/// Whether the provider has not worked on the request that failed with `error`, so that the tokens
/// of the request are not used. False for an overload: providers count such requests, too.
fn is_without_work(error: &Error) -> bool {
    matches!(
        error.cause(),
        Error::Connect { .. }
            | Error::Timeout { phase: CallPhase::Connect, .. }
            | Error::Denied { .. }
            | Error::NoCredit { .. }
            | Error::UnknownModel { .. }
            | Error::Redirected { .. }
            | Error::Rejected { .. }
    )
}
