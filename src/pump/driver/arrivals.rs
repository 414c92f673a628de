//! Answers that a host has read and that the pump has not processed yet, because the gate still
//! checks them. The deadline of an attempt may pass while its answer is checked.

use std::sync::{Arc, Mutex};

use crate::clock::Time;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::locks::locked;
use crate::thread::Map;

type AnswerKey = (ListenerName, CallId, Attempt);

/// Answers that the pump has not processed yet, each with the time at which a host read it.
///
/// **Invariant:** a host reads the clock for an answer while it holds the lock of this map. So if
/// the pump first reads the time `now` and then takes the lock, the map contains every unprocessed
/// answer that a host has read before `now`.
///
/// **Invariant:** an answer stays in the map until the pump has processed the event that was made
/// from the answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals(Arc<Mutex<Map<AnswerKey, Time>>>);

impl Arrivals {
    /// Records the current time as the time at which an answer was read, and returns this time. If
    /// a time was recorded before, keeps that time and returns it.
    pub fn stamp(&self, listener: &ListenerName, call: CallId, attempt: Attempt) -> Time {
        *locked(&self.0).entry((listener.clone(), call, attempt)).or_insert_with(Time::now)
    }

    pub fn remove(&self, listener: &ListenerName, call: CallId, attempt: Attempt) {
        locked(&self.0).remove(&(listener.clone(), call, attempt));
    }

    pub fn all(&self) -> Vec<(AnswerKey, Time)> {
        locked(&self.0).iter().map(|(key, time)| (key.clone(), *time)).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;

    fn answer() -> AnswerKey {
        let call = CallId(MessageId(Uuid::nil()));
        (ListenerName::parse("finder").unwrap(), call, Attempt { epoch: 1, n: 1 })
    }

    #[test]
    fn an_answer_keeps_its_first_stamp_until_it_is_stepped() {
        let arrivals = Arrivals::default();
        let (listener, call, attempt) = answer();
        let first = arrivals.stamp(&listener, call, attempt);
        assert_eq!(arrivals.stamp(&listener, call, attempt), first);
        assert_eq!(arrivals.all(), [(answer(), first)]);

        arrivals.remove(&listener, call, attempt);
        assert_eq!(arrivals.all(), []);
    }
}
