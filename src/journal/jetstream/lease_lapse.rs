//! Lapses of the lease of a running pump. A lapse is a time without a confirmed renewal that is so
//! long that another pump could take over.
//!
//! If another pump has taken over, the server usually refuses the next message of the old pump.
//! However, the servers may have gone back to an older copy of the stream, from before the
//! takeover. They then accept this message. After a lapse, a pump therefore compares the stream
//! with the projections of the other processes before it writes or delivers anything.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::limits;
use crate::locks::locked;

/// The lapses of one lease. All times come from a clock that also runs while the machine is
/// suspended.
#[derive(Debug, Clone)]
pub(super) struct LeaseLapses(Arc<Mutex<LapseState>>);

#[derive(Debug)]
struct LapseState {
    /// Time at which the last confirmed renewal was requested.
    renewed_at: Duration,
    /// Time at which the last renewal was confirmed.
    confirmed_at: Duration,
    /// The later of two times: when the last confirmed renewal was requested, and when the last
    /// comparison of the stream with the projections of the other processes was requested. Until
    /// [`limits::LEASE_LAPSE`] after this time, no other pump can have taken over.
    led_at: Duration,
    /// Whether the stream must be compared with the projections of the other processes: the lease
    /// was renewed after a lapse, and no comparison has succeeded since then.
    is_comparison_due: bool,
    /// Whether the present lapse was reported.
    is_reported: bool,
}

impl LeaseLapses {
    /// Creates the value for a lease that was taken at the time `now`.
    pub fn since(now: Duration) -> Self {
        let state = LapseState {
            renewed_at: now,
            confirmed_at: now,
            led_at: now,
            is_comparison_due: false,
            is_reported: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    // Lock: the thread that renews the lease and the writer of the journal hold it only to read and
    // set these values, never during a request.
    fn state(&self) -> MutexGuard<'_, LapseState> {
        locked(&self.0)
    }

    /// Records a renewal that was requested at the time `requested_at` and confirmed at the time
    /// `confirmed_at`. Returns true if this renewal ends a lapse that was reported.
    pub fn record_renewal(&self, requested_at: Duration, confirmed_at: Duration) -> bool {
        let mut state = self.state();
        // A request may wait for the connection until the lease has lapsed.
        state.is_comparison_due |= is_lapsed(state.led_at, confirmed_at);
        state.renewed_at = requested_at;
        state.confirmed_at = confirmed_at;
        state.led_at = requested_at;
        std::mem::take(&mut state.is_reported)
    }

    /// Returns true if the present lapse must be reported now. Returns true only once in each
    /// lapse.
    pub fn take_report(&self, now: Duration) -> bool {
        let mut state = self.state();
        let is_due = is_lapsed(state.renewed_at, now) && !state.is_reported;
        state.is_reported |= is_due;
        is_due
    }

    /// Whether the stream must be compared with the projections of the other processes: the lease
    /// was renewed after a lapse, and no comparison has succeeded since then.
    pub fn is_comparison_due(&self) -> bool {
        self.state().is_comparison_due
    }

    /// Whether another pump may have taken over. True if a comparison of the stream with the
    /// projections of the other processes is due, or if neither a renewal nor a comparison has
    /// succeeded for the duration of a lapse.
    pub fn may_have_lapsed(&self, now: Duration) -> bool {
        let state = self.state();
        state.is_comparison_due || is_lapsed(state.led_at, now)
    }

    /// Whether the stream was compared with the projections of the other processes after the last
    /// confirmed renewal was requested.
    pub fn was_compared(&self) -> bool {
        let state = self.state();
        state.led_at > state.renewed_at
    }

    /// Records that the stream was compared with the projections of the other processes. The first
    /// request of this comparison was sent at the time `requested_at`.
    pub fn record_comparison(&self, requested_at: Duration) {
        let mut state = self.state();
        state.is_comparison_due = is_lapsed(requested_at, state.confirmed_at);
        state.led_at = state.led_at.max(requested_at);
    }
}

fn is_lapsed(since: Duration, now: Duration) -> bool {
    now.saturating_sub(since) >= limits::LEASE_LAPSE
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: Duration = Duration::from_secs(60);
    const LAPSE: Duration = limits::LEASE_LAPSE;

    #[test]
    fn a_comparison_is_due_from_a_lapse_until_the_stream_was_compared() {
        let lapses = LeaseLapses::since(BEGUN);
        let renewed = BEGUN + LAPSE / 2;
        lapses.record_renewal(renewed, renewed);
        assert!(!lapses.may_have_lapsed(BEGUN + LAPSE), "it was renewed in time");
        assert!(lapses.may_have_lapsed(renewed + LAPSE), "no renewal was confirmed");
        assert!(!lapses.is_comparison_due(), "the server may be away");

        let late = renewed + LAPSE;
        lapses.record_renewal(late, late);
        assert!(lapses.is_comparison_due());
        assert!(lapses.may_have_lapsed(late));

        // The comparison began before that renewal.
        lapses.record_comparison(late - LAPSE / 4);
        assert!(!lapses.is_comparison_due());
        assert!(!lapses.may_have_lapsed(late + LAPSE / 2));
        assert!(lapses.may_have_lapsed(late + LAPSE));
    }

    #[test]
    fn a_renewal_that_waited_for_the_connection_beyond_the_lapse_makes_a_comparison_due() {
        let lapses = LeaseLapses::since(BEGUN);
        lapses.record_renewal(BEGUN + LAPSE / 2, BEGUN + LAPSE);
        assert!(lapses.is_comparison_due());
        assert!(lapses.may_have_lapsed(BEGUN + LAPSE));
    }

    #[test]
    fn a_lapse_during_a_comparison_needs_another_comparison() {
        let lapses = LeaseLapses::since(BEGUN);
        let requested_at = BEGUN + LAPSE;
        lapses.record_renewal(requested_at + LAPSE, requested_at + LAPSE);
        lapses.record_comparison(requested_at);
        assert!(lapses.is_comparison_due());
    }

    #[test]
    fn a_renewal_that_is_confirmed_late_during_a_comparison_needs_another_comparison() {
        let lapses = LeaseLapses::since(BEGUN);
        let requested_at = BEGUN + LAPSE;
        lapses.record_renewal(requested_at + LAPSE * 9 / 10, requested_at + LAPSE * 11 / 10);
        lapses.record_comparison(requested_at);
        assert!(lapses.is_comparison_due());
    }

    #[test]
    fn a_lapse_is_reported_once_also_while_the_stream_is_compared() {
        let lapses = LeaseLapses::since(BEGUN);
        assert!(!lapses.take_report(BEGUN + LAPSE / 2));
        assert!(!lapses.was_compared());
        lapses.record_comparison(BEGUN + LAPSE / 2);
        assert!(lapses.was_compared());
        assert!(lapses.take_report(BEGUN + LAPSE));
        assert!(!lapses.take_report(BEGUN + LAPSE * 2));
        let renew = |at| lapses.record_renewal(at, at);
        assert!(renew(BEGUN + LAPSE * 3), "the end is reported, too");
        assert!(!renew(BEGUN + LAPSE * 4));
    }
}
