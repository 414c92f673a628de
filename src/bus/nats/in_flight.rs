//! The in-flight table of one listener: the attempts in flight, by token. The caller passes the
//! current time to each method, so that the table does not depend on the clock.
//!
//! While a replica handles a delivery, it renews the lease that it has announced. Before the first
//! renewal, the longest lease that any replica has announced applies to the attempt. If the lease
//! passes without a renewal, the replica counts as gone. If no replica has announced a lease, an
//! attempt can run until the call's time-out. A renewal concerns its own attempt alone and announces
//! nothing, because its program may lease only some of its deliveries.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::bus::Delivery;
use crate::bus::memory::MemoryMark;
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId};
use crate::limits;
use crate::mutant::mutant;

use super::announced_leases::AnnouncedLeases;
use super::tokens::AttemptToken;

pub(super) type AttemptKey = (CallId, Attempt);

#[derive(Debug)]
pub(super) struct InFlightTable {
    attempts: HashMap<AttemptToken, InFlightAttempt, foldhash::fast::RandomState>,
    /// Attempts that ended without an answer, oldest first. Their answers may still arrive.
    given_up: VecDeque<PastAttempt>,
    /// Attempts that were answered, oldest first. An answer that a replica repeats is recognized.
    answered: VecDeque<PastAttempt>,
    leases: AnnouncedLeases,
    /// Time of the last delivery that came back because no replica was connected; `None` if a
    /// replica has been connected since that time.
    away_since: Option<Instant>,
    is_draining: bool,
    looked: Instant,
    cancel_grace: Duration,
    /// Whether a cancelled attempt stays in flight as long as its replica renews the lease.
    waits_for_end: bool,
}

#[derive(Debug)]
struct InFlightAttempt {
    key: AttemptKey,
    /// Number of the connection on which the delivery was published. Each reconnect begins a
    /// connection with a higher number.
    connection: u64,
    lives_until: Option<Instant>,
    /// Time at which the delivery was published.
    since: Instant,
    /// Whether a replica has acknowledged the delivery.
    is_acknowledged: bool,
    /// Duration of the lease that the replica of this attempt was granted last; zero if no lease
    /// was granted.
    lease: Duration,
    /// Lease that the replica named in a keep-alive for this attempt; `None` if no keep-alive has
    /// arrived yet.
    own_lease: Option<Duration>,
    /// Deadline by which a cancelled attempt must end; `None` before a cancellation.
    cancel_deadline: Option<Instant>,
    /// Whether the attempt was reported because it still ran after `cancel_deadline`.
    is_reported: bool,
    /// Number of answers that arrived on the attempt's subject, but named another attempt.
    strays: u32,
    sent: SentDelivery,
}

/// An attempt that is no longer in flight.
#[derive(Debug)]
struct PastAttempt {
    token: AttemptToken,
    key: AttemptKey,
    strays: u32,
}

/// Data about a published delivery: whether all its messages were sent, and which messages the
/// replica remembers afterwards.
#[derive(Debug, Default)]
pub(super) struct SentDelivery {
    /// The messages of the call that the replica remembers after its answer. `None` if the attempt
    /// does not change the replica's memory.
    pub mark: Option<MemoryMark>,
    /// The complete delivery; `None` if all its messages were published. If only the new messages
    /// were published, and they do not reach the replica that has the earlier messages, the host
    /// publishes this complete delivery.
    pub partial: Option<Box<Delivery>>,
}

/// An attempt whose delivery was published with only its new messages. No handler has begun the
/// delivery.
#[derive(Debug)]
pub(super) enum PartialDelivery {
    /// The attempt is open. This delivery, which has all messages, must be published now.
    Open(Box<Delivery>),
    /// The attempt was cancelled before a handler began the delivery, and so has ended.
    Cancelled(AttemptKey),
}

/// The attempt to which an answer belongs, and whether the answer arrived in time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EndedAttempt {
    InTime(AttemptKey),
    /// The attempt had been reported as failed before its answer arrived.
    Late(AttemptKey),
    /// The answer belongs to no attempt of this listener.
    Unknown,
}

/// Decision about an answer that arrived on the subject of one attempt, but names another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StrayVerdict {
    /// Report the answer to the sink.
    Report,
    /// Report the answer to the sink. Also report the failure of this attempt, on whose subject the
    /// answer arrived. The in-flight table no longer contains the attempt.
    EndAttempt(AttemptKey),
    /// Do nothing: the maximum number of such answers on this subject was already reported, or the
    /// subject belongs to no known attempt.
    Ignore,
}

/// Status of an attempt in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptStatus {
    Out,
    /// The attempt was given up. An answer may still arrive.
    GivenUp,
    /// The attempt was answered. The same answer may arrive again.
    Answered,
    Unknown,
}

impl InFlightTable {
    pub fn new(now: Instant, cancel_grace: Duration) -> Self {
        Self {
            attempts: HashMap::default(),
            given_up: VecDeque::new(),
            answered: VecDeque::new(),
            leases: AnnouncedLeases::default(),
            away_since: None,
            is_draining: false,
            looked: now,
            cancel_grace,
            waits_for_end: false,
        }
    }

    /// Sets whether a cancelled attempt stays in flight while its replica renews the lease, which
    /// shows that the handler still runs.
    pub fn waiting_for_end(mut self, waits_for_end: bool) -> Self {
        self.waits_for_end = waits_for_end;
        self
    }

    /// Adds a delivery that is about to be published, and returns true. While the host drains, adds
    /// nothing and returns false.
    pub fn take(
        &mut self,
        token: AttemptToken,
        key: AttemptKey,
        connection: u64,
        now: Instant,
    ) -> bool {
        if !self.is_draining {
            let announced = self.leases.largest();
            let lives_until = announced.map(|lease| now + lease);
            let lease = announced.unwrap_or_default();
            let own_lease = None;
            let since = now;
            let is_acknowledged = false;
            let cancel_deadline = None;
            let is_reported = false;
            let strays = 0;
            let sent = SentDelivery::default();
            let attempt = InFlightAttempt {
                key,
                connection,
                lives_until,
                since,
                is_acknowledged,
                lease,
                own_lease,
                cancel_deadline,
                is_reported,
                strays,
                sent,
            };
            self.attempts.insert(token, attempt);
        }

        !self.is_draining
    }

    pub fn end(&mut self, token: AttemptToken) -> EndedAttempt {
        let token = match self.attempts.keys().next() {
            Some(any) if mutant("take-any-token") => *any,
            _ => token,
        };

        if let Some(attempt) = self.attempts.remove(&token) {
            return EndedAttempt::InTime(attempt.key);
        }

        let late = self.given_up.iter().position(|given_up| given_up.token == token);
        match late.and_then(|index| self.given_up.remove(index)) {
            Some(given_up) => EndedAttempt::Late(given_up.key),
            None => EndedAttempt::Unknown,
        }
    }

    /// Ends the attempt with this token because of an answer. Remembers the attempt, so that
    /// [`Self::count_repeated`] recognizes further answers to it.
    pub fn end_answered(&mut self, token: AttemptToken) -> EndedAttempt {
        let given_up = || self.given_up.iter().find(|given_up| given_up.token == token);
        let strays = match self.attempts.get(&token) {
            Some(attempt) => attempt.strays,
            None => given_up().map_or(0, |given_up| given_up.strays),
        };

        let ended = self.end(token);
        if let EndedAttempt::InTime(key) | EndedAttempt::Late(key) = ended {
            remember(&mut self.answered, PastAttempt { token, key, strays });
        }
        ended
    }

    /// Returns the call and the number of the attempt with this token, if the attempt was answered.
    pub fn answered(&self, token: AttemptToken) -> Option<AttemptKey> {
        let mut answered = self.answered.iter();
        answered.find(|answered| answered.token == token).map(|answered| answered.key)
    }

    /// Counts a further answer to an attempt that was answered. Returns true if the answer must be
    /// reported, and false if the maximum number of stray answers on the subject of the attempt was
    /// already reported.
    pub fn count_repeated(&mut self, token: AttemptToken) -> bool {
        let mut answered = self.answered.iter_mut();
        let Some(attempt) = answered.find(|answered| answered.token == token) else { return false };
        let is_reported = attempt.strays < limits::STRAY_ANSWERS_MAX;
        attempt.strays += u32::from(is_reported);
        is_reported
    }

    /// Counts an answer that arrived on the subject of the attempt `token`, but names another
    /// attempt. The third answer of this kind on one subject ends the attempt `token`, because its
    /// replica is faulty. Later answers of this kind are not reported, because each reported answer
    /// becomes a record.
    pub fn count_stray(&mut self, token: AttemptToken) -> StrayVerdict {
        if let Some(attempt) = self.attempts.get_mut(&token) {
            attempt.strays += 1;
            let strays = attempt.strays;
            let key = attempt.key;
            if strays < limits::STRAY_ANSWERS_MAX {
                return StrayVerdict::Report;
            }

            self.attempts.remove(&token);
            remember(&mut self.given_up, PastAttempt { token, key, strays });
            return StrayVerdict::EndAttempt(key);
        }

        match self.given_up.iter_mut().find(|given_up| given_up.token == token) {
            Some(given_up) if given_up.strays < limits::STRAY_ANSWERS_MAX => {
                given_up.strays += 1;
                StrayVerdict::Report
            }
            _ => StrayVerdict::Ignore,
        }
    }

    /// Records a heartbeat, which is also a sign of life of the replica: it extends the lease that
    /// applies to the attempt, even if this lease is no longer announced. Returns the attempt of the
    /// heartbeat, or `None` if this attempt is not in flight.
    pub fn record_heartbeat(&mut self, token: AttemptToken, now: Instant) -> Option<AttemptKey> {
        let attempt = self.attempts.get_mut(&token)?;
        attempt.is_acknowledged = true;
        let granted = attempt.lives_until.map(|_| attempt.lease);
        if let Some(lease) = attempt.own_lease.or(self.leases.largest()).or(granted) {
            attempt.lives(lease, now);
        }
        Some(attempt.key)
    }

    /// Records a keep-alive of the replica that handles the attempt with this token. From `now` on,
    /// the replica's lease lasts for the duration `lease`. Other attempts are not affected.
    pub fn lives(&mut self, token: AttemptToken, lease: Duration, now: Instant) {
        if let Some(attempt) = self.attempts.get_mut(&token) {
            attempt.lives_until = None;
            attempt.own_lease = Some(lease);
            attempt.is_acknowledged = true;
            attempt.lives(lease, now);
        }
    }

    /// Records the lease that a replica announced; `None` if the announcement contains none. Then
    /// applies the longest announced lease to the attempts:
    /// - An attempt without a lease gets the longest lease, counted from `now`.
    /// - An attempt without a keep-alive, but with a shorter lease, gets the longest lease, counted
    ///   from its publication, because any replica may handle the attempt.
    pub fn leases(&mut self, lease: Option<Duration>, now: Instant) {
        let Some(lease) = lease else { return };
        self.leases.announce(lease, now);
        let largest = self.leases.largest().unwrap_or(lease);

        for attempt in self.attempts.values_mut() {
            if attempt.lives_until.is_none() {
                attempt.lives(largest, now);
            } else if attempt.own_lease.is_none() && largest > attempt.lease {
                attempt.lives(largest, attempt.since);
            }
        }
    }

    /// Checks whether the longest lease that a replica has announced is still in use. Returns true
    /// if the host must now ping the replicas, so that they announce their leases again. Forgets
    /// the longest lease if no replica announces it again within [`limits::NATS_LEASE_SURVEY`]. If
    /// no replica announces any lease, only attempts with a keep-alive still have one.
    pub fn survey_leases(&mut self, now: Instant) -> bool {
        let was_announced = self.leases.largest().is_some();
        let is_ping_due = self.leases.survey(now);
        if was_announced && self.leases.largest().is_none() {
            let all = self.attempts.values_mut();
            all.filter(|attempt| attempt.own_lease.is_none())
                .for_each(|attempt| attempt.lives_until = None);
        }
        is_ping_due
    }

    /// Returns the call and the number of the attempt with this token. Returns `None` if no such
    /// attempt is in flight.
    pub fn holder(&self, token: AttemptToken) -> Option<AttemptKey> {
        self.attempts.get(&token).map(|attempt| attempt.key)
    }

    /// Returns the call and the number of the attempt with this token, if the attempt is in flight,
    /// or if it was given up and its answer may still arrive. Returns `None` for any other token.
    pub fn key_of(&self, token: AttemptToken) -> Option<AttemptKey> {
        let given_up = || self.given_up.iter().find(|given_up| given_up.token == token);
        self.holder(token).or_else(|| given_up().map(|given_up| given_up.key))
    }

    pub fn status(&self, token: AttemptToken) -> AttemptStatus {
        let is_any = mutant("take-any-token") && !self.attempts.is_empty();
        if self.attempts.contains_key(&token) || is_any {
            AttemptStatus::Out
        } else if self.given_up.iter().any(|given_up| given_up.token == token) {
            AttemptStatus::GivenUp
        } else if self.answered(token).is_some() {
            AttemptStatus::Answered
        } else {
            AttemptStatus::Unknown
        }
    }

    /// Whether the attempt with this token is in flight, or was given up but may still be answered.
    pub fn knows(&self, token: AttemptToken) -> bool {
        matches!(self.status(token), AttemptStatus::Out | AttemptStatus::GivenUp)
    }

    /// Records that the listener has a replica. Returns true if the listener was recorded as absent
    /// before.
    pub fn record_presence(&mut self) -> bool {
        self.away_since.take().is_some()
    }

    /// Records a message about the attempt with this token. If the delivery of the attempt was
    /// published after the listener was recorded as absent, the message shows that the listener has
    /// a replica. A message about an earlier delivery does not show this, because a replica that
    /// stops still handles its deliveries. Returns true if the listener was recorded as absent
    /// before, and has a replica now.
    pub fn record_presence_at(&mut self, token: AttemptToken) -> bool {
        let attempt = self.attempts.get(&token);
        let is_later = attempt.is_some_and(|own| self.away_since.is_some_and(|at| at <= own.since));
        is_later && self.record_presence()
    }

    /// Records that the listener has no replica, and forgets the leases that its replicas
    /// announced. Returns true if the listener had a replica before.
    pub fn record_absence(&mut self, now: Instant) -> bool {
        self.leases.clear();
        self.away_since.replace(now).is_none()
    }

    /// Cancels an attempt. Returns true if the attempt is in flight. The caller must then send the
    /// cancellation to the replicas.
    pub fn cancel(&mut self, key: AttemptKey, now: Instant) -> bool {
        let Some(attempt) = self.attempts.values_mut().find(|attempt| attempt.key == key) else {
            return false;
        };
        attempt.cancel_deadline.get_or_insert(now + self.cancel_grace);
        true
    }

    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    pub fn note_sent(&mut self, token: AttemptToken, sent: SentDelivery) {
        if let Some(attempt) = self.attempts.get_mut(&token) {
            attempt.sent = sent;
        }
    }

    /// Returns the messages that the replica remembers after its answer to the attempt `token`.
    /// Returns `None` if the attempt does not change the replica's memory, or is not in flight.
    pub fn mark(&self, token: AttemptToken) -> Option<MemoryMark> {
        self.attempts.get(&token)?.sent.mark
    }

    /// Returns the attempts whose delivery the servers may have denied. These deliveries were
    /// published in the period `published`, with only their new messages, and no replica has
    /// acknowledged them.
    pub fn denied_partials(&self, published: RangeInclusive<Instant>) -> Vec<AttemptToken> {
        let partials = self.attempts.iter().filter(|(_, attempt)| {
            attempt.is_untaken_partial() && published.contains(&attempt.since)
        });
        partials.map(|(token, _)| *token).collect()
    }

    /// Takes the complete delivery of an attempt that was published with only its new messages. If
    /// the attempt is open, returns the delivery as [`PartialDelivery::Open`], and the caller must
    /// publish it on the connection with the number `connection`. If the attempt was cancelled,
    /// removes the attempt and returns [`PartialDelivery::Cancelled`]. Returns `None` if there is
    /// no such attempt, or if all its messages were already published.
    pub fn take_partial(
        &mut self,
        token: AttemptToken,
        connection: u64,
        now: Instant,
    ) -> Option<PartialDelivery> {
        let attempt = self.attempts.get_mut(&token)?;
        let delivery = attempt.sent.partial.take()?;
        if attempt.cancel_deadline.is_none() {
            let announced = self.leases.largest();
            attempt.lives_until = announced.map(|lease| now + lease);
            attempt.lease = announced.unwrap_or_default();
            attempt.own_lease = None;
            attempt.since = now;
            attempt.connection = connection;
            attempt.is_acknowledged = false;
            return Some(PartialDelivery::Open(delivery));
        }

        let key = attempt.key;
        self.attempts.remove(&token);
        Some(PartialDelivery::Cancelled(key))
    }

    /// Removes all attempts in flight from the table, and returns them.
    pub fn give_up(&mut self) -> Vec<AttemptKey> {
        self.attempts.drain().map(|(_, attempt)| attempt.key).collect()
    }

    /// Removes and returns the attempts whose publication the servers denied. The deliveries of
    /// these attempts were published at or after `since`, and no replica has acknowledged them.
    /// Attempts that were published before `since` stay, because they may have reached a replica.
    pub fn denied(&mut self, since: Instant) -> Vec<AttemptKey> {
        let is_untaken = |_: &AttemptToken, attempt: &mut InFlightAttempt| {
            attempt.since >= since && !attempt.is_acknowledged
        };
        self.attempts.extract_if(is_untaken).map(|(_, attempt)| attempt.key).collect()
    }

    /// Marks all attempts as if the connection on which they were sent had broken, because their
    /// answers may be lost. Then `overdue` gives up attempts without a lease, and counts the other
    /// attempts as lost if their leases end.
    pub fn lose_answers(&mut self) {
        self.attempts.values_mut().for_each(|attempt| attempt.connection = 0);
    }

    /// Gives up the attempts that will get no answer, and returns each with one of these reasons:
    /// - Its cancellation deadline has passed. If `waits_for_end` is set, this counts only if no
    ///   lease for the attempt is valid any more.
    /// - Its replica has stopped renewing the lease. If the attempt was published on a connection
    ///   that has broken, it is lost, because it may have been answered; otherwise it has crashed.
    /// - It has no lease, and was published on a connection that has broken.
    ///
    /// If an attempt ends by its lease and no replica has renewed it, then perhaps no replica with
    /// that lease is left. In this case, [`Self::survey_leases`] checks the announced leases.
    ///
    /// `connection` is the number of the current connection. If it is `None`, or if the previous
    /// call was long ago, this host may have missed signs of life. In this case, gives up no
    /// attempt, and extends each lease by the time since the previous call.
    pub fn overdue(
        &mut self,
        connection: Option<u64>,
        now: Instant,
    ) -> Vec<(AttemptKey, AttemptFailure)> {
        let passed = now.saturating_duration_since(self.looked);
        self.looked = now;
        if connection.is_none() || passed > limits::NATS_CHECK_INTERVAL * 4 {
            // While the connection was lost or this host did not read, no sign of life could
            // arrive. That time must not count against the attempts.
            let all = self.attempts.values_mut();
            all.filter_map(|attempt| attempt.lives_until.as_mut())
                .for_each(|until| *until += passed);
            return Vec::new();
        }

        let mut overdue = Vec::new();
        let mut given_up = Vec::new();
        let waits_for_end = self.waits_for_end;
        let mut is_lease_doubtful = false;
        self.attempts.retain(|token, attempt| {
            if waits_for_end && attempt.is_kept(now) {
                return true;
            }
            let Some(failure) = attempt.failure(connection, now) else { return true };
            is_lease_doubtful |= attempt.is_silent(now);
            overdue.push((attempt.key, failure));
            let strays = attempt.strays;
            given_up.push(PastAttempt { token: *token, key: attempt.key, strays });
            false
        });
        given_up.into_iter().for_each(|attempt| remember(&mut self.given_up, attempt));
        if is_lease_doubtful {
            self.leases.doubt(now);
        }

        overdue
    }
}

impl InFlightTable {
    /// Returns the cancelled attempts that still run after their deadline. Only the first call that
    /// finds such an attempt returns it.
    pub fn lingering(&mut self, now: Instant) -> Vec<AttemptKey> {
        let kept = self
            .attempts
            .values_mut()
            .filter(|attempt| attempt.is_kept(now) && !attempt.is_reported);
        kept.map(|attempt| {
            attempt.is_reported = true;
            attempt.key
        })
        .collect()
    }
}

impl InFlightAttempt {
    /// Whether a cancelled attempt still runs after its deadline, as the valid lease of its replica
    /// shows.
    fn is_kept(&self, now: Instant) -> bool {
        let is_cancelled = self.cancel_deadline.is_some_and(|until| until <= now);
        is_cancelled && self.lives_until.is_some_and(|until| until > now)
    }

    fn is_untaken_partial(&self) -> bool {
        self.sent.partial.is_some() && !self.is_acknowledged
    }

    /// Whether the attempt's lease has passed, and no replica has ever renewed it.
    fn is_silent(&self, now: Instant) -> bool {
        self.own_lease.is_none() && self.lives_until.is_some_and(|until| until <= now)
    }

    fn lives(&mut self, lease: Duration, now: Instant) {
        self.lives_until = self.lives_until.max(Some(now + lease));
        self.lease = lease;
    }

    fn failure(&self, connection: Option<u64>, now: Instant) -> Option<AttemptFailure> {
        if self.cancel_deadline.is_some_and(|until| until <= now) {
            let detail = "did not answer in time after its caller was gone".to_owned();
            return Some(AttemptFailure::Crashed { detail });
        }

        // The answer may have been sent while this host was disconnected, and no event would report
        // that.
        let may_be_answered = connection.is_some_and(|connection| self.connection < connection);
        match self.lives_until {
            Some(until) if until <= now => {
                let mut silence = format!("no keep-alive for {} s", self.lease.as_secs_f64());
                if self.is_silent(now) {
                    silence.push_str(NO_LEASE);
                }
                Some(if may_be_answered {
                    AttemptFailure::Lost { detail: format!("{ANSWER_LOST}, and {silence}") }
                } else {
                    let gone = "the replica that handled the delivery is gone";
                    AttemptFailure::Crashed { detail: format!("{gone}: {silence}") }
                })
            }
            None if may_be_answered => {
                Some(AttemptFailure::Lost { detail: ANSWER_LOST.to_owned() })
            }
            _ => None,
        }
    }
}

/// Possible reason why no keep-alive arrived since the delivery.
const NO_LEASE: &str = ", and none since the delivery; a replica announced this lease: does each \
                        replica keep to it?";

/// Why the answer to an attempt may be lost.
const ANSWER_LOST: &str =
    "the connection to NATS broke, or its answers were denied, while it was out";

/// Adds an attempt to a list of the last [`limits::NATS_LATE_MAX`] attempts.
fn remember(past: &mut VecDeque<PastAttempt>, attempt: PastAttempt) {
    past.push_back(attempt);
    if past.len() > limits::NATS_LATE_MAX {
        past.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::DeliveryPreview;
    use crate::ids::MessageId;

    const LEASE: Duration = Duration::from_secs(5);
    const GRACE: Duration = Duration::from_secs(2);

    fn key(n: u32) -> AttemptKey {
        (CallId(MessageId(uuid::Uuid::from_u128(n.into()))), Attempt { epoch: 1, n })
    }

    fn in_flight() -> (InFlightTable, Instant) {
        let now = Instant::now();
        (InFlightTable::new(now, GRACE), now)
    }

    /// Advances the time by `length` in steps of the host's check interval. Returns the attempts
    /// that were overdue at one of these steps.
    fn overdue(
        in_flight: &mut InFlightTable,
        connection: u64,
        from: Instant,
        length: Duration,
    ) -> Vec<AttemptKey> {
        let mut now = from;
        let mut all = Vec::new();
        while now < from + length {
            now += limits::NATS_CHECK_INTERVAL;
            all.extend(in_flight.overdue(Some(connection), now).into_iter().map(|(key, _)| key));
        }

        all
    }

    #[test]
    fn without_a_lease_nothing_is_given_up_while_the_connection_holds() {
        let (mut in_flight, now) = in_flight();
        assert!(in_flight.take(7, key(1), 1, now));
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE * 10), []);
        assert_eq!(overdue(&mut in_flight, 2, now + LEASE * 10, LEASE), [key(1)]);
    }

    #[test]
    fn who_leases_is_held_to_it_and_may_renew() {
        let (mut in_flight, now) = in_flight();
        in_flight.take(1, key(1), 1, now);
        in_flight.lives(1, LEASE, now);
        in_flight.take(2, key(2), 1, now);
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE / 2), []);
        in_flight.lives(2, LEASE, now + LEASE / 2);
        assert_eq!(overdue(&mut in_flight, 1, now + LEASE / 2, LEASE / 2), [key(1)]);
        assert_eq!(in_flight.end(1), EndedAttempt::Late(key(1)));
        assert_eq!(in_flight.end(1), EndedAttempt::Unknown);
        assert_eq!(in_flight.end(2), EndedAttempt::InTime(key(2)));
    }

    #[test]
    fn a_keep_alive_binds_its_own_attempt_alone() {
        let (mut in_flight, now) = in_flight();
        in_flight.take(1, key(1), 1, now);
        in_flight.take(2, key(2), 1, now);
        in_flight.lives(1, LEASE, now);
        in_flight.take(3, key(3), 1, now);
        let ended = in_flight.overdue(Some(1), now);
        assert_eq!(ended, []);
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE * 3), [key(1)]);
    }

    /// Replicas without leases replace those that announced one, and some replica is always there.
    #[test]
    fn a_lease_ends_attempts_no_longer_than_a_survey_after_its_replicas_are_gone() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        assert!(!in_flight.survey_leases(now));
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE), [key(1)]);
        assert!(in_flight.survey_leases(now + LEASE), "the replicas are pinged");

        let surveyed = now + LEASE + limits::NATS_LEASE_SURVEY;
        // These attempts are out when the survey ends. Only the second one has a lease of its own.
        let before = surveyed - LEASE / 2;
        in_flight.take(2, key(2), 1, before);
        in_flight.take(3, key(3), 1, before);
        in_flight.lives(3, LEASE, before);
        in_flight.survey_leases(surveyed);
        in_flight.looked = surveyed;
        in_flight.take(4, key(4), 1, surveyed);
        assert_eq!(overdue(&mut in_flight, 1, surveyed, LEASE * 3), [key(3)]);

        // A replica that leases its deliveries returns.
        let returned = surveyed + LEASE * 3;
        in_flight.leases(Some(LEASE), returned);
        let mut ended = overdue(&mut in_flight, 1, returned, LEASE);
        ended.sort();
        assert_eq!(ended, [key(2), key(4)]);
    }

    /// A replica that has renewed its lease and is gone shows nothing about the other replicas.
    #[test]
    fn an_attempt_with_a_renewed_lease_causes_no_survey() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        in_flight.lives(1, LEASE, now);
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE), [key(1)]);
        assert!(!in_flight.survey_leases(now + LEASE));
    }

    #[test]
    fn the_third_stray_answer_ends_its_attempt_and_no_further_one_is_reported() {
        let (mut in_flight, now) = in_flight();
        in_flight.take(1, key(1), 1, now);
        in_flight.take(2, key(2), 1, now);
        let counted = [(); 5].map(|()| in_flight.count_stray(1));
        let report = StrayVerdict::Report;
        let end = StrayVerdict::EndAttempt(key(1));
        assert_eq!(counted, [report, report, end, StrayVerdict::Ignore, StrayVerdict::Ignore]);
        assert_eq!(in_flight.end(1), EndedAttempt::Late(key(1)), "its answer is late");

        // The count goes on after the attempt was given up.
        assert_eq!(in_flight.count_stray(2), report);
        assert_eq!(overdue(&mut in_flight, 2, now, LEASE), [key(2)]);
        let counted = [(); 3].map(|()| in_flight.count_stray(2));
        assert_eq!(counted, [report, report, StrayVerdict::Ignore]);
        assert_eq!(in_flight.count_stray(3), StrayVerdict::Ignore);
    }

    #[test]
    fn a_heartbeat_renews_the_lease() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        assert_eq!(in_flight.record_heartbeat(1, now + LEASE / 2), Some(key(1)));
        assert_eq!(in_flight.record_heartbeat(2, now), None);
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE + LEASE / 4), []);
        assert_eq!(overdue(&mut in_flight, 1, now + LEASE + LEASE / 4, LEASE / 2), [key(1)]);
    }

    /// A replica that leaves gets no further deliveries, but still handles those that it has.
    #[test]
    fn a_heartbeat_renews_the_lease_also_after_the_last_replica_left() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        in_flight.record_absence(now);
        in_flight.record_heartbeat(1, now + LEASE / 2);
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE + LEASE / 4), []);
        assert_eq!(overdue(&mut in_flight, 1, now + LEASE + LEASE / 4, LEASE / 2), [key(1)]);
    }

    #[test]
    fn an_attempt_whose_replica_is_unknown_has_the_largest_lease_of_all_replicas() {
        let (mut in_flight, now) = in_flight();
        let long = LEASE * 4;
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        // A replica with a longer lease joins. The attempt may be at either.
        in_flight.leases(Some(long), now);
        // The other replica works on another attempt, and holds to its own lease.
        in_flight.take(2, key(2), 1, now);
        in_flight.lives(2, LEASE, now);
        in_flight.take(3, key(3), 1, now);

        assert_eq!(overdue(&mut in_flight, 1, now, LEASE), [key(2)]);
        in_flight.record_heartbeat(3, now + LEASE);
        assert_eq!(overdue(&mut in_flight, 1, now + LEASE, long - LEASE), [key(1)]);
        assert_eq!(overdue(&mut in_flight, 1, now + long, LEASE), [key(3)]);
    }

    #[test]
    fn without_a_lease_an_attempt_is_given_up_after_its_answer_was_denied() {
        let (mut in_flight, now) = in_flight();
        in_flight.take(1, key(1), 1, now);
        in_flight.lose_answers();
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE / 2), [key(1)]);

        in_flight.leases(Some(LEASE), now);
        in_flight.take(2, key(2), 1, now);
        in_flight.lose_answers();
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE / 2), []);
    }

    #[test]
    fn who_leases_may_answer_after_a_new_connection() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        assert_eq!(overdue(&mut in_flight, 2, now, LEASE / 2), []);
    }

    #[test]
    fn a_lease_that_ends_after_a_broken_connection_is_a_lost_attempt_and_no_crash() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        in_flight.take(2, key(2), 2, now);
        in_flight.looked = now + LEASE;
        let overdue = in_flight.overdue(Some(2), now + LEASE);
        let failure = |n: u32| &overdue.iter().find(|(of, _)| *of == key(n)).unwrap().1;
        let AttemptFailure::Lost { detail } = failure(1) else { panic!("{overdue:?}") };
        assert!(detail.contains("broke") && detail.contains("for 5 s, and none"), "{detail}");
        let AttemptFailure::Crashed { .. } = failure(2) else { panic!("{overdue:?}") };
    }

    #[test]
    fn the_time_of_silence_is_reported_also_after_the_last_replica_left() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        in_flight.record_absence(now);
        in_flight.looked = now + LEASE;
        let overdue = in_flight.overdue(Some(1), now + LEASE);
        let [(_, AttemptFailure::Crashed { detail })] = &*overdue else { panic!("{overdue:?}") };
        assert!(detail.contains("no keep-alive for 5 s, and none since"), "{detail}");
    }

    #[test]
    fn time_without_a_connection_does_not_count_as_silence() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        let later = now + LEASE * 4;
        assert_eq!(in_flight.overdue(None, later), []);
        assert_eq!(overdue(&mut in_flight, 1, later, LEASE / 2), []);
        assert_eq!(overdue(&mut in_flight, 1, later + LEASE / 2, LEASE), [key(1)]);
    }

    #[test]
    fn a_pause_of_our_own_is_not_the_listeners() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        assert_eq!(in_flight.overdue(Some(1), now + LEASE * 4), []);
    }

    #[test]
    fn a_cancelled_attempt_is_waited_for_no_longer_than_the_grace() {
        let (mut in_flight, now) = in_flight();
        in_flight.take(1, key(1), 1, now);
        assert!(in_flight.cancel(key(1), now));
        assert!(!in_flight.cancel(key(2), now));
        assert_eq!(overdue(&mut in_flight, 1, now, GRACE + limits::NATS_CHECK_INTERVAL), [key(1)]);
    }

    #[test]
    fn a_cancelled_attempt_is_kept_while_its_replica_renews_its_lease_where_order_matters() {
        let (in_flight, now) = in_flight();
        let mut in_flight = in_flight.waiting_for_end(true);
        in_flight.leases(Some(LEASE), now);
        in_flight.take(1, key(1), 1, now);
        in_flight.cancel(key(1), now);
        let mut renewed = now;

        for _ in 0..5 {
            assert_eq!(overdue(&mut in_flight, 1, renewed, LEASE / 2), []);
            renewed += LEASE / 2;
            in_flight.lives(1, LEASE, renewed);
        }

        assert_eq!(in_flight.lingering(renewed), [key(1)]);
        assert_eq!(in_flight.lingering(renewed), []);
        assert_eq!(
            overdue(&mut in_flight, 1, renewed, LEASE + limits::NATS_CHECK_INTERVAL),
            [key(1)]
        );
    }

    #[test]
    fn a_cancelled_attempt_without_a_lease_is_waited_for_no_longer_than_the_grace() {
        let (in_flight, now) = in_flight();
        let mut in_flight = in_flight.waiting_for_end(true);
        in_flight.take(1, key(1), 1, now);
        in_flight.cancel(key(1), now);
        assert_eq!(overdue(&mut in_flight, 1, now, GRACE + limits::NATS_CHECK_INTERVAL), [key(1)]);
    }

    #[test]
    fn a_draining_host_takes_nothing_and_reports_each_change_once() {
        let (mut in_flight, now) = in_flight();
        assert_eq!((in_flight.record_absence(now), in_flight.record_absence(now)), (true, false));
        assert_eq!((in_flight.record_presence(), in_flight.record_presence()), (true, false));
        in_flight.drain();
        assert!(!in_flight.take(1, key(1), 1, now) && in_flight.is_empty());
    }

    #[test]
    fn no_more_attempts_are_remembered_than_the_limit() {
        let (mut in_flight, now) = in_flight();
        for n in 0..u32::try_from(limits::NATS_LATE_MAX).unwrap() + 10 {
            in_flight.take(n.into(), key(n), 1, now);
        }
        in_flight.overdue(Some(2), now);
        assert_eq!(in_flight.given_up.len(), limits::NATS_LATE_MAX);

        for n in 0..u32::try_from(limits::NATS_LATE_MAX).unwrap() + 10 {
            in_flight.take(n.into(), key(n), 2, now);
            assert_eq!(in_flight.end_answered(n.into()), EndedAttempt::InTime(key(n)));
        }
        assert_eq!(in_flight.answered.len(), limits::NATS_LATE_MAX);
    }

    #[test]
    fn answers_to_an_answered_attempt_are_counted_with_its_other_stray_answers() {
        let (mut in_flight, now) = in_flight();
        in_flight.take(1, key(1), 1, now);
        assert_eq!(in_flight.answered(1), None);
        assert_eq!(in_flight.count_stray(1), StrayVerdict::Report);
        assert_eq!(in_flight.end_answered(1), EndedAttempt::InTime(key(1)));
        assert_eq!(in_flight.end_answered(1), EndedAttempt::Unknown);
        assert_eq!(in_flight.status(1), AttemptStatus::Answered);
        assert!(!in_flight.knows(1));
        assert_eq!(in_flight.answered(1), Some(key(1)));
        let repeated: Vec<_> = (0..4).map(|_| in_flight.count_repeated(1)).collect();
        assert_eq!(repeated, [true, true, false, false]);
    }

    fn delivery() -> Box<Delivery> {
        let (call, attempt) = key(1);
        Box::new(Delivery {
            call,
            attempt,
            listener: crate::ids::ListenerName::parse("tested").unwrap(),
            thread: crate::ids::ThreadId::organism(),
            messages: Vec::new(),
            fresh: 1,
            position: crate::ids::Position::default(),
            timeout: LEASE,
            trace: None,
            preview: DeliveryPreview::None,
            source: None,
            uncounted: Vec::new(),
        })
    }

    /// Adds a delivery that was published with only its new messages.
    fn take_as_partial(in_flight: &mut InFlightTable, number: u32, now: Instant) {
        let token = number.into();
        in_flight.take(token, key(number), 1, now);
        in_flight.note_sent(
            token,
            SentDelivery { partial: Some(delivery()), ..SentDelivery::default() },
        );
    }

    #[test]
    fn a_partial_that_is_published_anew_has_a_new_lease() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        take_as_partial(&mut in_flight, 1, now);
        let later = now + LEASE - limits::NATS_CHECK_INTERVAL;
        let taken = in_flight.take_partial(1, 2, later);
        assert!(matches!(taken, Some(PartialDelivery::Open(_))));
        assert_eq!(overdue(&mut in_flight, 2, later, LEASE - limits::NATS_CHECK_INTERVAL), []);
        assert_eq!(overdue(&mut in_flight, 2, later + LEASE, LEASE), [key(1)]);
    }

    #[test]
    fn a_partial_whose_lease_ends_is_not_published_anew() {
        let (mut in_flight, now) = in_flight();
        in_flight.leases(Some(LEASE), now);
        take_as_partial(&mut in_flight, 1, now);
        assert_eq!(overdue(&mut in_flight, 1, now, LEASE), [key(1)]);
        assert!(in_flight.take_partial(1, 1, now + LEASE).is_none());
    }

    #[test]
    fn a_denial_concerns_partials_of_its_time_that_no_replica_took() {
        let (mut in_flight, begun) = in_flight();
        let denied = begun + LEASE;
        take_as_partial(&mut in_flight, 1, begun);
        take_as_partial(&mut in_flight, 2, denied);
        take_as_partial(&mut in_flight, 3, denied);
        in_flight.record_heartbeat(3, denied);
        take_as_partial(&mut in_flight, 4, denied + LEASE);
        in_flight.take(5, key(5), 1, denied);
        assert_eq!(in_flight.denied_partials(denied - GRACE..=denied), [2]);

        // After the second publish, no replica has acknowledged it.
        in_flight.take_partial(3, 1, denied);
        let mut untaken = in_flight.denied(denied);
        untaken.sort();
        assert_eq!(untaken, [key(2), key(3), key(4), key(5)]);
    }
}
