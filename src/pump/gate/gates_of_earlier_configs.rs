//! The gates of attempts that were in flight when another config came into force. The answer to
//! such an attempt is checked with the schemas under which the attempt was handed over.

use std::collections::HashMap;

use super::Gate;
use crate::contract::Contracts;
use crate::ids::{Attempt, CallId};

/// Gates of attempts that were handed over under a config that is no longer in force.
#[derive(Clone, Default)]
pub struct EarlierGates(HashMap<(CallId, Attempt), Gate>);

impl EarlierGates {
    /// Keeps a gate for each attempt in `in_flight` when another config comes into force. If an
    /// attempt already has an earlier gate, keeps this gate. Otherwise, keeps `before`, the gate
    /// that was in force until now. Restricts all these gates to `current`, the contracts of the
    /// new config. Drops the gates of ended attempts.
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

    /// Removes and returns the gate under which an ended attempt was handed over. Returns `None` if
    /// the attempt was handed over under the present config.
    pub fn take(&mut self, call: CallId, attempt: Attempt) -> Option<Gate> {
        self.0.remove(&(call, attempt))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
