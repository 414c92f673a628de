//! Allotments: limits for a spawned thread together with its subthreads. Each use of tokens and
//! money counts against the allotments of the thread and of all threads above it. When one of these
//! allotments is used up, further use stops. An allotment does not reserve anything in advance.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::state::{Call, Tree};
use crate::clock::Time;
use crate::envelope::{Money, Spending};
use crate::ids::{Attempt, CallId, ThreadId};

/// Limits of one thread together with its subthreads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allotment {
    #[serde(rename = "tokens", default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(rename = "money", default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// Time at which the thread's time limit ends; `None` for a thread without a time limit.
    #[serde(rename = "until", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// The allotment of a thread, and the used part of the allotment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllotmentUsage {
    #[serde(rename = "limits")]
    pub limits: Allotment,
    #[serde(rename = "spent")]
    pub spent: Spending,
    /// Time at which the time limit of the thread was suspended; `None` while the time limit runs.
    /// The time limit is suspended while a pause keeps a call in this thread or beneath it from
    /// being handed over.
    #[serde(rename = "still_since", default, skip_serializing_if = "Option::is_none")]
    pub still_since: Option<Time>,
}

/// Allotment that a fork takes over from a thread of its source. The fork gets the full limits of
/// tokens and money, but only the time that the thread had left in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedAllotment {
    #[serde(rename = "tokens", default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(rename = "money", default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// Time limit of the thread in the fork, in microseconds: the time that was left in the source
    /// at the fork point. `None` if the thread has no time limit.
    #[serde(rename = "left_micros", default, skip_serializing_if = "Option::is_none")]
    pub left_micros: Option<u64>,
}

impl InheritedAllotment {
    /// Returns the allotment that a fork takes over from a source thread with `usage`. The fork's
    /// history ends at `at`.
    pub(super) fn of(usage: &AllotmentUsage, at: Time) -> Self {
        let AllotmentUsage { limits: Allotment { tokens, money, until }, still_since, .. } = *usage;
        let left = until.map(|until| until.since(still_since.unwrap_or(at)));
        let left_micros = left.map(|left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX));
        Self { tokens, money, left_micros }
    }

    /// Returns the unused allotment with which the fork begins at `now`.
    pub(super) fn begun(self, now: Time) -> AllotmentUsage {
        let Self { tokens, money, left_micros } = self;
        let until = left_micros.map(|left| now.plus(Duration::from_micros(left)));
        let limits = Allotment { tokens, money, until };
        AllotmentUsage { limits, spent: Spending::default(), still_since: None }
    }
}

impl AllotmentUsage {
    /// Whether the thread's time limit has passed at `now`. False for a thread without a time
    /// limit.
    pub fn is_over(&self, now: Time) -> bool {
        let counted = self.still_since.unwrap_or(now);
        self.limits.until.is_some_and(|until| until <= counted)
    }
}

impl Tree {
    /// Returns the allotments of `thread` and of the threads above it, nearest first. The root
    /// thread is included, because the root of a fork may have an allotment.
    pub fn allotments(
        &self,
        thread: &ThreadId,
    ) -> impl Iterator<Item = (ThreadId, &AllotmentUsage)> {
        thread.upwards().filter_map(move |thread| {
            let allotted = self.threads.get(&thread)?.allotted.as_deref()?;
            Some((thread, allotted))
        })
    }

    /// Returns the earliest time at which a time limit of `thread` or of a thread above it ends. At
    /// this time, `thread` ends with all threads beneath it. Returns `None` if none of these time
    /// limits runs.
    pub fn time_limit(&self, thread: &ThreadId) -> Option<Time> {
        let allotments = self.allotments(thread).map(|(_, allotted)| allotted);
        let running = allotments.filter(|allotted| allotted.still_since.is_none());
        running.filter_map(|allotted| allotted.limits.until).min()
    }

    /// Returns the open calls to which `thread` and the threads above it are bound, nearest thread
    /// first. A thread that is bound to a call is cancelled when the call closes.
    pub fn binding_calls(&self, thread: &ThreadId) -> impl Iterator<Item = &Call> {
        thread.upwards().filter_map(move |thread| {
            let bound = self.threads.get(&thread)?.bound?;
            self.call(bound)
        })
    }

    /// Sums the tokens and money that are reserved beneath the call `binding`: in the threads that
    /// are bound to this call, and in their subthreads. Leaves out the reservation of the attempt
    /// `attempt` of `call`. A thread that is bound to a call is cancelled when the call closes.
    pub fn reserved_bound_beside(
        &self,
        call: CallId,
        attempt: Attempt,
        binding: CallId,
    ) -> Spending {
        let is_beneath =
            |thread: &ThreadId| self.binding_calls(thread).any(|bound| bound.id == binding);
        let others = self.reservations().filter(|one| (one.call, one.attempt) != (call, attempt));
        let beneath = others.filter(|one| one.thread.as_ref().is_some_and(is_beneath));
        beneath.fold(Spending::default(), |sum, one| sum.plus(one.spending))
    }

    /// Charges the use of a model call in `thread` to the allotments of this thread and of the
    /// threads above it. Also charges each open call to which one of these threads is bound. A
    /// bound thread is cancelled when its call closes.
    pub(super) fn spend_allotments(&mut self, thread: &ThreadId, spent: Spending) {
        for thread in thread.upwards() {
            let allotted = self.threads.get_mut(&thread);
            if let Some(allotted) = allotted.and_then(|thread| thread.allotted.as_deref_mut()) {
                allotted.spent = allotted.spent.plus(spent);
            }

            let bound = self.threads.get(&thread).and_then(|thread| thread.bound);
            if let Some(call) = bound.and_then(|call| self.calls.get_mut(&call)) {
                call.spent_bound = call.spent_bound.plus(spent);
            }
        }
    }
}
