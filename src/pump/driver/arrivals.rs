//! Answers that a host has read and the pump has not processed, because the gate still checks them.
//! Their deadlines may pass meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Time;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::thread::Map;

type AnswerKey = (ListenerName, CallId, Attempt);

/// Time at which each of these answers was read.
///
/// **Invariant:** an answer is stamped under the lock. A pump that locks after it has read the time
/// finds every answer that was read before.
///
/// **Invariant:** an answer stays until the step of the event that its host reports.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals(Arc<Mutex<Map<AnswerKey, Time>>>);

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Map<AnswerKey, Time>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stamps an answer and returns the time of its first stamp.
    pub fn stamp(&self, listener: &ListenerName, call: CallId, attempt: Attempt) -> Time {
        *self.lock().entry((listener.clone(), call, attempt)).or_insert_with(Time::now)
    }

    pub fn stepped(&self, listener: &ListenerName, call: CallId, attempt: Attempt) {
        self.lock().remove(&(listener.clone(), call, attempt));
    }

    pub fn all(&self) -> Vec<(AnswerKey, Time)> {
        self.lock().iter().map(|(key, time)| (key.clone(), *time)).collect()
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

        arrivals.stepped(&listener, call, attempt);
        assert_eq!(arrivals.all(), []);
    }
}
