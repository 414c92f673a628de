//! The leases that the replicas of one listener announce. The leases can differ while an operator
//! changes `ORGANISM_BUS_LEASE` in one replica after the other.

use std::time::{Duration, Instant};

use crate::limits;

/// The longest lease that any replica has announced. This lease applies to each attempt for which
/// no replica has sent a keep-alive yet, because any replica may have received this attempt.
///
/// If one replica announces a shorter lease, the leases of the other replicas may still be longer:
/// an idle replica announces its lease only when it connects or is pinged. The host therefore pings
/// the replicas, and forgets the longest lease if no replica announces it again within some time.
#[derive(Debug, Default)]
pub(super) struct AnnouncedLeases {
    largest: Option<Duration>,
    survey: Option<LeaseSurvey>,
}

#[derive(Debug)]
struct LeaseSurvey {
    begun: Instant,
    /// Largest lease that was announced since `begun`.
    largest: Duration,
    is_ping_due: bool,
}

impl AnnouncedLeases {
    /// Returns the largest lease, or `None` if the replicas have announced none.
    pub fn largest(&self) -> Option<Duration> {
        self.largest
    }

    pub fn announce(&mut self, lease: Duration, now: Instant) {
        let largest = self.largest.unwrap_or_default();
        self.largest = Some(largest.max(lease));

        if let Some(survey) = &mut self.survey {
            survey.largest = survey.largest.max(lease);
        } else if lease < largest {
            let is_ping_due = true;
            self.survey = Some(LeaseSurvey { begun: now, largest: lease, is_ping_due });
        }
    }

    /// Ends the survey of the replicas' leases if its time has passed. Returns true if a survey has
    /// begun, and the host must now ping the replicas for it.
    pub fn survey(&mut self, now: Instant) -> bool {
        let Some(survey) = &mut self.survey else { return false };
        if now.saturating_duration_since(survey.begun) >= limits::NATS_LEASE_SURVEY {
            self.largest = Some(survey.largest);
            self.survey = None;
            return false;
        }

        std::mem::take(&mut survey.is_ping_due)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(5);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_largest_lease_holds_while_a_replica_announces_it() {
        let now = Instant::now();
        let mut leases = AnnouncedLeases::default();
        leases.announce(SHORT, now);
        assert!(!leases.survey(now), "replicas with one lease are not pinged");
        leases.announce(LONG, now);
        leases.announce(SHORT, now);
        assert_eq!(leases.largest(), Some(LONG));

        assert!(leases.survey(now), "the idle replicas announce their leases");
        assert!(!leases.survey(now), "one ping");
        leases.announce(LONG, now);
        assert!(!leases.survey(now + limits::NATS_LEASE_SURVEY));
        assert_eq!(leases.largest(), Some(LONG));
    }

    #[test]
    fn a_lease_that_no_replica_announces_any_more_is_forgotten() {
        let now = Instant::now();
        let mut leases = AnnouncedLeases::default();
        leases.announce(LONG, now);
        leases.announce(SHORT, now);
        leases.survey(now + limits::NATS_LEASE_SURVEY / 2);
        assert_eq!(leases.largest(), Some(LONG), "its replica may be idle");
        leases.survey(now + limits::NATS_LEASE_SURVEY);
        assert_eq!(leases.largest(), Some(SHORT));
    }
}
