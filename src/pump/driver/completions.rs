//! Completions of all calls of one submission, over one channel.

use tokio::sync::mpsc;

use super::handle::{CallCompletion, PumpStopped};
use crate::ids::CallId;

/// Sender of completions. The channel needs no bound, because it gets at most one completion for
/// each registered call. Each completion is boxed to save memory, because even an empty channel
/// allocates space for 32 values, and the channel exists for as long as the call is open.
pub(in crate::pump) type CompletionSender = mpsc::UnboundedSender<Box<CallCompletion>>;

/// Receiver of the completions of one submission's calls.
pub(super) type CompletionReceiver = mpsc::UnboundedReceiver<Box<CallCompletion>>;

/// Completions of the calls of one submission. The completions are returned in the order of the
/// calls, whatever the order in which the calls end.
#[derive(Debug)]
pub struct Completions {
    /// Calls whose completion was not returned yet, in reverse order.
    calls: Vec<CallId>,
    /// Completions that have arrived out of order. Each of them waits until the completions of all
    /// earlier calls were returned.
    early: Vec<CallCompletion>,
    completed: CompletionReceiver,
}

impl Completions {
    pub(super) fn channel() -> (CompletionSender, CompletionReceiver) {
        mpsc::unbounded_channel()
    }

    pub(super) fn of(calls: &[CallId], completed: CompletionReceiver) -> Self {
        let calls = calls.iter().rev().copied().collect();
        Self { calls, early: Vec::new(), completed }
    }

    /// Makes an empty list of completions, for a submission that opened no calls.
    pub(super) fn none() -> Self {
        let (_, completed) = Self::channel();
        Self::of(&[], completed)
    }

    /// Returns the number of calls whose completion was not returned yet.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the completion of the next call, or `None` after the last completion. Returns an
    /// error if the pump stops before the call has ended. Cancel-safe: dropping the future loses no
    /// completion.
    pub async fn next(&mut self) -> Option<Result<CallCompletion, PumpStopped>> {
        let next = *self.calls.last()?;
        loop {
            if let Some(at) = self.early.iter().position(|completion| completion.call == next) {
                self.calls.pop();
                return Some(Ok(self.early.swap_remove(at)));
            }
            match self.completed.recv().await {
                Some(completion) => self.early.push(*completion),
                None => return Some(Err(PumpStopped)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;
    use crate::thread::Closing;

    fn completion(n: u128) -> CallCompletion {
        let call = CallId(MessageId(Uuid::from_u128(n)));
        CallCompletion { call, how: Closing::Completed, messages: Vec::new() }
    }

    #[tokio::test]
    async fn completions_come_in_the_order_of_their_calls() {
        let (sender, completed) = Completions::channel();
        let calls = [1, 2, 3].map(|n| completion(n).call);
        let mut completions = Completions::of(&calls, completed);
        for n in [3, 1, 2] {
            sender.send(Box::new(completion(n))).unwrap();
        }

        for call in calls {
            assert_eq!(completions.next().await.unwrap().unwrap().call, call);
        }

        assert!(completions.next().await.is_none());
    }

    #[tokio::test]
    async fn a_pump_that_stops_ends_the_wait_for_what_is_missing() {
        let (sender, completed) = Completions::channel();
        let calls = [1, 2].map(|n| completion(n).call);
        let mut completions = Completions::of(&calls, completed);
        sender.send(Box::new(completion(1))).unwrap();
        drop(sender);
        assert!(completions.next().await.unwrap().is_ok());
        assert_eq!(completions.next().await.unwrap().unwrap_err(), PumpStopped);
    }
}
