//! Counts `busy` refusals instead of recording each of them. Otherwise a client that retries
//! without a delay would fill the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::clock::Time;
use crate::ids::ListenerName;
use crate::limits;
use crate::locks::locked;
use crate::pump::core::BusyCount;

/// The unrecorded `busy` refusals of each client. The pump and the entry points hold clones, which
/// share the counts. Measures intervals with a monotonic clock: the entry points have no access to
/// the clock of the pump, which may be ahead of the system clock.
///
/// **Invariant:** an entry counts at least one refusal. The pump records and removes an entry when
/// [`limits::BUSY_INTERVAL`] has passed since the first refusal of the entry. When the pump stops,
/// it records and removes all entries.
#[derive(Debug, Clone, Default)]
pub(super) struct BusyCounter(Arc<Mutex<HashMap<ListenerName, Unrecorded>>>);

#[derive(Debug, Clone, Copy)]
struct Unrecorded {
    /// Instant of the first unrecorded refusal.
    since: Instant,
    count: u64,
}

impl BusyCounter {
    /// Counts a refusal to `client` that happens at `now`.
    pub fn count(&self, client: &ListenerName, now: Instant) {
        let mut clients = locked(&self.0);
        let unrecorded =
            clients.entry(client.clone()).or_insert(Unrecorded { since: now, count: 0 });
        unrecorded.count += 1;
    }

    /// Returns the time from `now` until a count of `busy` refusals must be recorded. Returns
    /// `None` if all refusals are recorded.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let next = locked(&self.0).values().map(Unrecorded::due).min();
        next.map(|due| due.saturating_duration_since(now))
    }

    /// Removes and returns the counts whose interval is over, ordered by client. `now` is the
    /// present, as the monotonic clock and the clock of the pump show it.
    pub fn take_due(&self, now: (Instant, Time)) -> Vec<BusyCount> {
        let (instant, _) = now;
        self.take(now, |unrecorded| unrecorded.due() <= instant)
    }

    /// Removes and returns all counts, ordered by client. `now` is as for
    /// [`BusyCounter::take_due`].
    pub fn take_all(&self, now: (Instant, Time)) -> Vec<BusyCount> {
        self.take(now, |_| true)
    }

    fn take(
        &self,
        (instant, time): (Instant, Time),
        is_taken: impl Fn(&Unrecorded) -> bool,
    ) -> Vec<BusyCount> {
        let taken =
            locked(&self.0).extract_if(|_, unrecorded| is_taken(unrecorded)).collect::<Vec<_>>();
        let mut counts: Vec<_> = taken
            .into_iter()
            .map(|(client, Unrecorded { since, count })| {
                let since = time.minus(instant.saturating_duration_since(since));
                BusyCount { client, since, count }
            })
            .collect();

        counts.sort_by(|one, other| one.client.cmp(&other.client));
        counts
    }
}

impl Unrecorded {
    fn due(&self) -> Instant {
        self.since + limits::BUSY_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time(1_700_000_000_000_000);

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).unwrap()
    }

    #[test]
    fn refusals_to_one_client_are_one_count_for_each_interval() {
        let busy = BusyCounter::default();
        let start = Instant::now();
        let end = start + limits::BUSY_INTERVAL;
        assert_eq!(busy.wait(start), None);

        for _ in 0..3 {
            busy.count(&name("desk"), start);
        }

        assert_eq!(busy.wait(start), Some(limits::BUSY_INTERVAL));
        assert_eq!(busy.take_due((start, START)), []);
        let desk = BusyCount { client: name("desk"), since: START, count: 3 };
        let end_time = START.plus(limits::BUSY_INTERVAL);
        assert_eq!(busy.take_due((end, end_time)), [desk]);
        assert_eq!(busy.wait(end), None, "a count is taken once");

        busy.count(&name("desk"), end);
        let desk = BusyCount { client: name("desk"), since: end_time, count: 1 };
        assert_eq!(busy.take_all((end, end_time)), [desk]);
    }

    #[test]
    fn refusals_are_one_count_while_the_clock_of_the_pump_is_ahead() {
        let busy = BusyCounter::default();
        let start = Instant::now();
        let ahead = Time::now().plus(Duration::from_secs(3600));
        busy.count(&name("desk"), start);
        assert_eq!(busy.take_due((start, ahead)), []);
        busy.count(&name("desk"), start);

        let end = start + limits::BUSY_INTERVAL;
        let desk = BusyCount { client: name("desk"), since: ahead, count: 2 };
        assert_eq!(busy.take_due((end, ahead.plus(limits::BUSY_INTERVAL))), [desk]);
    }

    #[test]
    fn clients_are_counted_apart() {
        let busy = BusyCounter::default();
        let start = Instant::now();
        busy.count(&name("other"), start);
        busy.count(&name("desk"), start);
        let counts = busy.take_all((start, START)).into_iter();
        let clients: Vec<_> = counts.map(|busy| busy.client).collect();
        assert_eq!(clients, [name("desk"), name("other")]);
    }
}
