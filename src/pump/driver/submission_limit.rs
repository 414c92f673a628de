//! Limits the requests that wait for the pump, so that a busy client does not delay other clients.
//! For each thread, a client may have only a limited number of submissions that have no receipt
//! yet. Another limit applies to its submissions to new threads. The pump's inbox has its own
//! limit.
//!
//! This module does not know which threads exist. So submissions to unknown threads wait, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::ListenerName;
use crate::limits;
use crate::locks::locked;

type QueueKey = (ListenerName, Destination);

/// Destination of a submission. All submissions of one client to one destination share a limit.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Destination {
    Thread(String),
    NewThread,
}

/// The semaphores that limit submissions. There is one semaphore for each pair of a client and a
/// destination with submissions at present.
#[derive(Clone, Default)]
pub(super) struct SubmissionLimiter(Arc<Mutex<HashMap<QueueKey, Arc<Semaphore>>>>);

/// Bound on the number of external requests in the pump's inbox.
#[derive(Clone)]
pub(super) struct InboxBound(Arc<Semaphore>);

/// Permit for one request in the inbox. The pump drops the permit when it takes the request.
pub(in crate::pump) type InboxPermit = OwnedSemaphorePermit;

impl Default for InboxBound {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::INBOX_REQUESTS_MAX)))
    }
}

impl InboxBound {
    /// Takes a permit of the inbox. Returns `None` if the inbox is full.
    pub fn try_permit(&self) -> Option<InboxPermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Takes a permit of the inbox. If the inbox is full, waits until there is room. Used for
    /// requests that must not be refused as `busy`. Returns `None` only if the semaphore was
    /// closed.
    pub async fn permit(&self) -> Option<InboxPermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// Permit of a submission. When it is dropped, the next submission of the same client to the same
/// destination may proceed.
pub(super) struct SubmissionPermit {
    limiter: SubmissionLimiter,
    key: QueueKey,
    permit: Option<OwnedSemaphorePermit>,
}

impl SubmissionLimiter {
    pub async fn turn(&self, client: &ListenerName, thread: &str) -> SubmissionPermit {
        let key = (client.clone(), Destination::Thread(thread.to_owned()));
        let semaphore = self.semaphore(&key, limits::SUBMISSIONS_AT_ONCE);
        // Made before the wait: if the caller gives up, dropping the permit removes an unused
        // queue.
        let mut turn = SubmissionPermit { limiter: self.clone(), key, permit: None };
        turn.permit = semaphore.acquire_owned().await.ok();
        turn
    }

    /// Takes a permit for a submission of `client` into a new thread. Returns `None` if the client
    /// already has the maximum number of permits for new threads.
    pub fn try_new_thread(&self, client: &ListenerName) -> Option<SubmissionPermit> {
        let key = (client.clone(), Destination::NewThread);
        let semaphore = self.semaphore(&key, limits::NEW_THREADS_AT_ONCE);
        // Made first: if no permit is free, dropping this one removes an unused queue.
        let mut turn = SubmissionPermit { limiter: self.clone(), key, permit: None };
        turn.permit = Some(semaphore.try_acquire_owned().ok()?);
        Some(turn)
    }

    fn semaphore(&self, key: &QueueKey, permits: usize) -> Arc<Semaphore> {
        let mut queues = self.queues();
        let semaphore =
            queues.entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(permits)));
        Arc::clone(semaphore)
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<QueueKey, Arc<Semaphore>>> {
        locked(&self.0)
    }
}

impl Drop for SubmissionPermit {
    fn drop(&mut self) {
        self.permit = None;
        let mut queues = self.limiter.queues();
        if queues.get(&self.key).is_some_and(|key| Arc::strong_count(key) == 1) {
            queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_as_long_as_it_may_be_and_forgotten_when_nobody_stands_in_it() {
        let limiter = SubmissionLimiter::default();
        let desk = ListenerName::parse("desk").unwrap();
        let mut turns = Vec::new();
        for _ in 0..limits::SUBMISSIONS_AT_ONCE {
            turns.push(limiter.turn(&desk, "one").await);
        }

        let mut next = Box::pin(limiter.turn(&desk, "one"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(limiter.turn(&desk, "another").await);
        turns.pop();
        assert!(next.as_mut().poll(&mut context).is_ready());
        let given_up = Box::pin(limiter.turn(&desk, "one"));
        drop((given_up, next, turns));
        assert!(limiter.queues().is_empty());
    }

    #[test]
    fn new_threads_of_one_client_are_bounded_and_those_of_another_are_not_affected() {
        let limiter = SubmissionLimiter::default();
        let [desk, other] = ["desk", "other"].map(|name| ListenerName::parse(name).unwrap());
        let turns: Vec<_> =
            std::iter::from_fn(|| limiter.try_new_thread(&desk)).take(2_000).collect();
        assert_eq!(turns.len(), limits::NEW_THREADS_AT_ONCE);
        assert!(limiter.try_new_thread(&other).is_some());

        drop(turns);
        assert!(limiter.try_new_thread(&desk).is_some());
        assert!(limiter.queues().is_empty());
    }
}
