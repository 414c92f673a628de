//! Counts `busy` refusals instead of recording each of them. Otherwise a client that retries
//! without a delay would fill the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::clock::Time;
use crate::ids::ListenerName;
use crate::limits;
use crate::locks::locked;
use crate::pump::core::BusyCount;

/// The unrecorded `busy` refusals of each client. The pump and the entry points hold clones, which
/// share the counts.
///
/// **Invariant:** an entry counts at least one refusal. The pump records and removes an entry when
/// [`limits::BUSY_INTERVAL`] has passed since the time `since` of the entry. When the pump stops,
/// it records and removes all entries.
#[derive(Debug, Clone, Default)]
pub(super) struct BusyCounter(Arc<Mutex<HashMap<ListenerName, Unrecorded>>>);

#[derive(Debug, Clone, Copy)]
struct Unrecorded {
    /// Time of the first unrecorded refusal.
    since: Time,
    count: u64,
}

impl BusyCounter {
    pub fn count(&self, client: &ListenerName, now: Time) {
        let mut clients = locked(&self.0);
        let unrecorded =
            clients.entry(client.clone()).or_insert(Unrecorded { since: now, count: 0 });
        unrecorded.count += 1;
    }

    /// Returns the earliest time at which a count of `busy` refusals must be recorded. Returns
    /// `None` if all refusals are recorded.
    pub fn next(&self) -> Option<Time> {
        locked(&self.0).values().map(Unrecorded::due).min()
    }

    /// Removes and returns the counts whose interval is over, ordered by client.
    pub fn take_due(&self, now: Time) -> Vec<BusyCount> {
        self.take(|unrecorded| unrecorded.due() <= now)
    }

    pub fn take_all(&self) -> Vec<BusyCount> {
        self.take(|_| true)
    }

    fn take(&self, is_taken: impl Fn(&Unrecorded) -> bool) -> Vec<BusyCount> {
        let taken =
            locked(&self.0).extract_if(|_, unrecorded| is_taken(unrecorded)).collect::<Vec<_>>();
        let mut counts: Vec<_> = taken
            .into_iter()
            .map(|(client, Unrecorded { since, count })| BusyCount { client, since, count })
            .collect();

        counts.sort_by(|one, other| one.client.cmp(&other.client));
        counts
    }
}

impl Unrecorded {
    fn due(&self) -> Time {
        self.since.plus(limits::BUSY_INTERVAL)
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
        let end = START.plus(limits::BUSY_INTERVAL);
        assert_eq!(busy.next(), None);

        for _ in 0..3 {
            busy.count(&name("desk"), START);
        }

        assert_eq!(busy.next(), Some(end));
        assert_eq!(busy.take_due(START), []);
        let desk = BusyCount { client: name("desk"), since: START, count: 3 };
        assert_eq!(busy.take_due(end), [desk]);
        assert_eq!(busy.next(), None, "a count is taken once");

        busy.count(&name("desk"), end);
        let desk = BusyCount { client: name("desk"), since: end, count: 1 };
        assert_eq!(busy.take_all(), [desk]);
    }

    #[test]
    fn clients_are_counted_apart() {
        let busy = BusyCounter::default();
        busy.count(&name("other"), START);
        busy.count(&name("desk"), START);
        let clients: Vec<_> = busy.take_all().into_iter().map(|busy| busy.client).collect();
        assert_eq!(clients, [name("desk"), name("other")]);
    }
}
