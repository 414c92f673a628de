//! The gate with which hosts and clients check payloads on their own OS threads. A reload replaces
//! it.
//!
//! The pump checks a payload again if a reload has happened since the first check. So every record
//! is decided with the config that is in force at its position.

use std::sync::{Arc, PoisonError, RwLock};

use crate::ids::{Attempt, CallId};
use crate::pump::gate::{EarlierGates, Gate};

/// The gate in force, and the earlier gates that still check the answers to attempts in flight.
/// Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedGate(Arc<RwLock<GatesInForce>>);

struct GatesInForce {
    /// Number of reloads since the start of the pump.
    generation: u64,
    /// The gate in force. It is an `Arc`, so that a check can finish with this gate while a reload
    /// replaces it.
    current: Arc<Gate>,
    earlier: EarlierGates,
}

impl SharedGate {
    pub fn new(current: Gate) -> Self {
        let current = Arc::new(current);
        let gates = GatesInForce { generation: 0, current, earlier: EarlierGates::default() };
        Self(Arc::new(RwLock::new(gates)))
    }

    /// Returns the gate in force and its generation, which is the number of reloads so far.
    pub fn current(&self) -> (Arc<Gate>, u64) {
        // The lock is held for a copy alone, and never during a check.
        let gates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&gates.current), gates.generation)
    }

    pub fn generation(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).generation
    }

    /// Returns the gate that checks the answer to an attempt. If no reload has happened since the
    /// attempt was handed over, this is the gate in force. Otherwise, it is the gate that was kept
    /// for the attempt.
    pub fn of_attempt(&self, call: CallId, attempt: Attempt) -> Arc<Gate> {
        let gates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match gates.earlier.of_attempt(call, attempt) {
            Some(earlier) => Arc::new(earlier.clone()),
            None => Arc::clone(&gates.current),
        }
    }

    /// Puts another gate in force. For each attempt in flight, keeps the gate under which the
    /// attempt was handed over, because that gate still checks the answer to the attempt.
    pub fn replace(&self, gate: Gate, in_flight: impl Iterator<Item = (CallId, Attempt)>) {
        let mut gates = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = Arc::clone(&gates.current);
        gates.earlier.keep(in_flight, &before, &gate.contracts);
        gates.current = Arc::new(gate);
        gates.generation += 1;
    }

    /// Removes and returns the earlier gate that was kept for an attempt, which must have ended.
    /// Returns `None` if no gate was kept, because the attempt was handed over under the gate in
    /// force.
    pub fn take_earlier(&self, call: CallId, attempt: Attempt) -> Option<Gate> {
        if self.0.read().unwrap_or_else(PoisonError::into_inner).earlier.is_empty() {
            return None;
        }
        self.0.write().unwrap_or_else(PoisonError::into_inner).earlier.take(call, attempt)
    }
}
