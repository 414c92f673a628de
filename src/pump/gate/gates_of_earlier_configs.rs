//! The gates of attempts that were in flight when another config came into force. Each attempt ends
//! with the schemas of its hand-over.

use std::collections::HashMap;

use super::Gate;
use crate::contract::Contracts;
use crate::ids::{Attempt, CallId};

/// Gates of attempts that were handed over under an earlier config.
#[derive(Clone, Default)]
pub struct EarlierGates(HashMap<(CallId, Attempt), Gate>);

impl EarlierGates {
    /// Keeps gates when another config comes into force, whose contracts are `current`. The
    /// attempts in `in_flight` keep the gate that they have: an earlier one, or `before`. Attempts
    /// that have ended are dropped.
    pub fn keep(
        &mut self,
        in_flight: impl Iterator<Item = (CallId, Attempt)>,
        before: &Gate,
        current: &Contracts,
    ) {
        let before = before.restricted_to(current);
        let mut earlier = std::mem::take(&mut self.0);
        let kept = in_flight.map(|attempt| {
            let own = earlier.remove(&attempt).map(|gate| gate.restricted_to(current));
            (attempt, own.unwrap_or_else(|| before.clone()))
        });
        self.0 = kept.collect();
    }

    pub fn of_attempt(&self, call: CallId, attempt: Attempt) -> Option<&Gate> {
        self.0.get(&(call, attempt))
    }

    /// Removes the gate of an attempt that has ended, and returns it.
    pub fn take(&mut self, call: CallId, attempt: Attempt) -> Option<Gate> {
        self.0.remove(&(call, attempt))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
