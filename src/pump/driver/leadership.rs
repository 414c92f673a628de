//! Verifies before each delivery that this pump is still the leader. If the process of a pump is
//! frozen, another pump may take over as the leader. Without this verification, the pump of the
//! frozen process could make an outdated delivery when the process wakes up. The record of such a
//! delivery was durable before the freeze, but the new leader has already made later deliveries.

use std::time::Duration;

use super::Pump;
use crate::clock::since_boot;
use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;

/// The latest time at which this pump was certainly the leader.
#[derive(Debug, Default)]
pub(super) struct LeadershipProof {
    /// Time of the proof, on a clock that also runs while the machine is suspended.
    proved_at: Duration,
}

impl LeadershipProof {
    /// Records that the journal acknowledged a request of this pump. This proves that the pump was
    /// the leader at `requested_at`, the time at which it sent the request. It does not prove that
    /// the pump is the leader now.
    pub fn record_acknowledgement(&mut self, requested_at: Duration) {
        self.proved_at = requested_at;
    }

    fn holds_at(&self, now: Duration) -> bool {
        now.saturating_sub(self.proved_at) <= limits::LEAD_PROOF_VALIDITY
    }
}

impl Pump {
    /// Verifies that this pump is still the leader, unless an earlier proof is recent enough. Must
    /// be called directly before each delivery. Then another pump can take over unnoticed only if
    /// this process is frozen between the check and the delivery.
    pub(super) fn verify_lead(&mut self) -> Result<(), Error> {
        if self.proof.holds_at(since_boot()) || mutant("deliver-unverified") {
            return Ok(());
        }

        let mut asked_at = Duration::ZERO;
        self.persist(|journal| {
            asked_at = since_boot();
            journal.verify_lead()
        })?;
        self.proof.record_acknowledgement(asked_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_of_leading_holds_for_a_while_after_the_question() {
        let mut proof = LeadershipProof::default();
        let asked_at = Duration::from_secs(60);
        proof.record_acknowledgement(asked_at);
        assert!(proof.holds_at(asked_at + limits::LEAD_PROOF_VALIDITY));
        assert!(!proof.holds_at(asked_at + limits::LEAD_PROOF_VALIDITY * 2));
    }
}
