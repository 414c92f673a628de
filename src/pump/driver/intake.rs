//! Whose turn it is: of one client and one thread, only so many submissions are with the pump at
//! once, in the order in which they came. However many hand in there, the pump's inbox stays
//! short for everybody else.
//!
//! Must not know which threads there are: ids that nobody has wait their turn like any other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::ListenerName;
use crate::limits;

type Line = (ListenerName, String);

/// Lines that somebody stands in.
#[derive(Clone, Default)]
pub(super) struct Intake(Arc<Mutex<HashMap<Line, Arc<Semaphore>>>>);

/// A submission's turn; over when this is dropped.
pub(super) struct Turn {
    intake: Intake,
    line: Line,
    permit: Option<OwnedSemaphorePermit>,
}

impl Intake {
    pub async fn turn(&self, client: &ListenerName, thread: &str) -> Turn {
        let line = (client.clone(), thread.to_owned());
        let places = || Arc::new(Semaphore::new(limits::SUBMISSIONS_AT_ONCE));
        let semaphore = Arc::clone(self.lines().entry(line.clone()).or_insert_with(places));
        // Made first: who gives up waiting leaves the line, too.
        let mut turn = Turn { intake: self.clone(), line, permit: None };
        turn.permit = semaphore.acquire_owned().await.ok();
        turn
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Line, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.permit = None;
        let mut lines = self.intake.lines();
        if lines.get(&self.line).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_as_long_as_it_may_be_and_forgotten_when_nobody_stands_in_it() {
        let (intake, desk) = (Intake::default(), ListenerName::parse("desk").unwrap());
        let mut turns = Vec::new();
        for _ in 0..limits::SUBMISSIONS_AT_ONCE {
            turns.push(intake.turn(&desk, "one").await);
        }
        let mut next = Box::pin(intake.turn(&desk, "one"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(intake.turn(&desk, "another").await);
        turns.pop();
        assert!(next.as_mut().poll(&mut context).is_ready());
        let given_up = Box::pin(intake.turn(&desk, "one"));
        drop((given_up, next, turns));
        assert!(intake.lines().is_empty());
    }
}
