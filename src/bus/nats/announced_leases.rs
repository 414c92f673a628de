//! The leases that the replicas of one listener announce. The leases can differ while an operator
//! changes `ORGANISM_BUS_LEASE` in one replica after the other.

use std::time::{Duration, Instant};

use crate::limits;

/// The longest lease that any replica has announced. This lease applies to each attempt for which
/// no replica has sent a keep-alive yet, because any replica may have received this attempt.
///
/// A replica that is gone may have announced the longest lease. The remaining replicas may have
/// shorter leases, or none. Two events suggest this: another replica announces a shorter lease, or
/// an attempt ends by the lease and no replica has sent a keep-alive for it. Because an idle replica
/// announces its lease only when it connects or is pinged, the host then pings the replicas. It
/// forgets the longest lease if no replica announces it again within some time.
#[derive(Debug, Default)]
pub(super) struct AnnouncedLeases {
    largest: Option<Duration>,
    survey: Option<LeaseSurvey>,
}

#[derive(Debug)]
struct LeaseSurvey {
    begun: Instant,
    /// Largest lease that was announced since `begun`; `None` if none was announced.
    largest: Option<Duration>,
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
            survey.largest = survey.largest.max(Some(lease));
        } else if lease < largest {
            self.begin_survey(Some(lease), now);
        }
    }

    /// Begins a survey of the replicas' leases, because no replica keeps to the longest one as far
    /// as this host knows. Does nothing during a survey, or if the replicas have announced no lease.
    pub fn doubt(&mut self, now: Instant) {
        if self.survey.is_none() && self.largest.is_some() {
            self.begin_survey(None, now);
        }
    }

    fn begin_survey(&mut self, largest: Option<Duration>, now: Instant) {
        let is_ping_due = true;
        self.survey = Some(LeaseSurvey { begun: now, largest, is_ping_due });
    }

    /// Ends the survey of the replicas' leases if its time has passed. Returns true if a survey has
    /// begun, and the host must now ping the replicas for it.
    pub fn survey(&mut self, now: Instant) -> bool {
        let Some(survey) = &mut self.survey else { return false };
        if now.saturating_duration_since(survey.begun) >= limits::NATS_LEASE_SURVEY {
            self.largest = survey.largest;
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

    #[test]
    fn a_doubtful_lease_holds_only_if_a_replica_announces_it_again() {
        let now = Instant::now();
        let ended = now + limits::NATS_LEASE_SURVEY;
        let mut leases = AnnouncedLeases::default();
        leases.doubt(now);
        assert!(!leases.survey(now), "there is no lease to doubt");

        leases.announce(LONG, now);
        leases.doubt(now);
        assert!(leases.survey(now), "the replicas are pinged");
        leases.doubt(now);
        assert!(!leases.survey(now), "one ping");
        leases.announce(LONG, now);
        leases.survey(ended);
        assert_eq!(leases.largest(), Some(LONG));

        leases.doubt(now);
        leases.survey(ended - limits::NATS_CHECK_INTERVAL);
        assert_eq!(leases.largest(), Some(LONG), "the replica may be slow to respond");
        leases.survey(ended);
        assert_eq!(leases.largest(), None);
    }
}
