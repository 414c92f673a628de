//! Membership of the processes that share an organism. Each process announces its partitions over
//! NATS at a fixed interval. A member without a recent announcement counts as gone.
//!
//! Another organism on the same servers may have the same name, and announces its processes on the
//! same subject. They are no members. The start that would begin the journal of a second organism
//! of one name is refused while the first one runs.
//!
//! Membership only decides when a partition is handed over. The lease of a partition decides which
//! process may write to it: once another pump has taken over, the stream accepts no message of the
//! earlier pump.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::time::interval;

use super::rebalance::{self, MemberAnnouncement, PartitionHandover};
use super::{PartitionMap, PartitionStatus};
use crate::config::Config;
use crate::ids::Digest;
use crate::journal::jetstream::identity::known;
use crate::journal::jetstream::{self, MemberId, this_process};
use crate::journal::may_have_journals;
use crate::limits;
use crate::mutant::mutant;
use crate::organism::Error;
use crate::organism::health::PumpHealth;
use crate::organism::pump_rpc::PumpRpc;

/// Membership of this process: announces the partitions of the process, and starts handovers that
/// are due.
pub(super) struct GroupMembership {
    map: Arc<PartitionMap>,
    /// Name of this process, for log and error messages.
    holder: String,
    /// The config in force. Partitions are handed over only to processes with the same config.
    config: watch::Receiver<Arc<Config>>,
    /// Channel to the worker of each partition of this process.
    heir_senders: BTreeMap<u32, mpsc::Sender<PartitionHeir>>,
    known: LiveMembers,
    /// The handover that this process began and that is not complete; `None` if no handover is
    /// under way.
    given: Option<PendingHandover>,
    /// Members that did not take over a partition in time, each with the time at which this process
    /// noticed the failure.
    failed_heirs: BTreeMap<MemberId, Instant>,
    warned: BTreeSet<MemberId>,
}

/// The process to which a partition is handed over.
pub(super) struct PartitionHeir {
    pub id: MemberId,
    /// Name of the process that gets the partition, for log and error messages.
    pub holder: String,
}

/// A handover of a partition to another process, which this process began.
#[derive(Debug, Clone, Copy)]
struct PendingHandover {
    partition: u32,
    /// The process that gets the partition.
    to: MemberId,
    /// Time at which the time-out of the handover began.
    since: Instant,
}

impl PendingHandover {
    /// Restarts the time-out in which the process `to` must take the partition. This process can
    /// take the partition only after the lease is released, so this method must be called
    /// repeatedly until then.
    fn restart_timeout(&mut self, now: Instant) {
        self.since = now;
    }

    /// Whether the time-out in which the process `to` must take the partition has passed.
    fn is_overdue(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= limits::HANDOVER_TIMEOUT
    }
}

impl GroupMembership {
    pub fn new(
        map: Arc<PartitionMap>,
        config: watch::Receiver<Arc<Config>>,
        heir_senders: BTreeMap<u32, mpsc::Sender<PartitionHeir>>,
    ) -> Self {
        let holder = this_process();
        let known = LiveMembers::default();
        let failed_heirs = BTreeMap::new();
        let warned = BTreeSet::new();
        Self { map, holder, config, heir_senders, known, given: None, failed_heirs, warned }
    }

    /// Announces this member repeatedly, until `stop` contains the reason for a stop. Then
    /// announces that the member leaves.
    pub async fn call(mut self, mut stop: watch::Receiver<Option<String>>) -> Result<(), Error> {
        let rpc = self.map.rpc.clone();
        let mut announcements = rpc.subscribe_members().await?;
        let mut beat = interval(limits::MEMBER_ANNOUNCE_INTERVAL);
        let stopping = async move { drop(stop.wait_for(Option::is_some).await) };
        tokio::pin!(stopping);

        loop {
            tokio::select! {
                Some(message) = announcements.next() => {
                    if message.payload.is_empty() {
                        rpc.answer_member_query(&message, &self.entry(false)).await?;
                        continue;
                    }
                    self.receive_announcement(&message.payload);
                    // Now, and not only at the next beat: a takeover waits for the reports of all
                    // members, and a process that has left does not report.
                    self.map.set_members(self.known.holders());
                }
                _ = beat.tick() => {
                    rpc.announce_member(&self.entry(false)).await?;
                    self.consider();
                    self.map.set_members(self.known.holders());
                }
                () = &mut stopping => break,
            }
        }

        rpc.announce_member(&self.entry(true)).await
    }

    fn digest(&self) -> Digest {
        self.config.borrow().digest
    }

    fn entry(&self, is_leaving: bool) -> MemberAnnouncement {
        let id = MemberId::here();
        let holder = self.holder.clone();
        let config = self.digest();
        let (has, ready, is_moving) = self.map.member_state();
        let journal = Some(self.map.rpc.transport.journal().to_owned());
        MemberAnnouncement { id, holder, config, has, ready, is_moving, is_leaving, journal }
    }

    fn receive_announcement(&mut self, announcement: &[u8]) {
        match serde_json::from_slice::<MemberAnnouncement>(announcement) {
            Ok(entry) => {
                if let Some(theirs) = other_journal(&entry, self.map.rpc.transport.journal()) {
                    return self.warn_of_other(&entry, theirs);
                }
                self.warn_of(&entry);
                self.known.update(entry, Instant::now());
            }
            Err(error) => {
                tracing::debug!("ignored a member's announcement that cannot be decoded: {error}")
            }
        }
    }

    /// Logs a warning that `entry` announces a process of another organism of the same name, whose
    /// journal is `theirs`. Logs it once for each process.
    fn warn_of_other(&mut self, entry: &MemberAnnouncement, theirs: &str) {
        if self.warned.len() < limits::MEMBERS_MAX && self.warned.insert(entry.id) {
            let conflict = self.map.rpc.transport.name_conflict(&entry.holder, theirs);
            tracing::warn!("{conflict}. Its requests, and its processes, are ignored here");
        }
    }

    /// Logs a warning if `entry` announces a member with another config than this process. With
    /// different configs, the processing of a message would depend on which process owns the
    /// message's partition.
    fn warn_of(&mut self, entry: &MemberAnnouncement) {
        let is_news = entry.config != self.digest() && self.warned.len() < limits::MEMBERS_MAX;
        if !is_news || !self.warned.insert(entry.id) {
            return;
        }

        let theirs = entry.config;
        let ours = self.digest();
        tracing::warn!(
            "{} runs another config ({theirs}) than this process ({ours}), so no partitions are \
             handed over between them; give all processes the same config, and reload it in each, or restart \
             them one by one",
            entry.holder
        );
    }

    fn consider(&mut self) {
        let now = Instant::now();
        self.known.forget_silent(now);
        if self.settle_handover(now) {
            return;
        }

        let Some(PartitionHandover { from, to, of }) = self.known.due(now) else { return };
        let failed_at = self.failed_heirs.get(&to).copied();
        let again = failed_at.is_some_and(|at| now.duration_since(at) < limits::HANDOVER_RETRY);
        if from != MemberId::here() || again {
            return;
        }

        let busy = |partition: &u32| {
            let watched = self.map.watched();
            watched.get(partition).map_or(0, PumpHealth::under_way)
        };

        let Some(partition) = of.into_iter().min_by_key(busy) else { return };
        let (Some(sender), Some(heir)) = (self.heir_senders.get(&partition), self.known.get(to))
        else {
            return;
        };

        let holder = heir.holder.clone();
        tracing::info!(
            partition,
            "handing the partition over to {holder}, which has fewer partitions"
        );
        if sender.try_send(PartitionHeir { id: to, holder }).is_ok() {
            self.given = Some(PendingHandover { partition, to, since: now });
        }
    }

    /// Returns whether the handover that this process began is still under way. If the handover has
    /// ended, forgets it. A handover ends in one of these ways:
    ///
    /// - The receiver has the partition.
    /// - The receiver is gone.
    /// - The receiver did not take the partition in time.
    fn settle_handover(&mut self, now: Instant) -> bool {
        let Some(given) = &mut self.given else { return false };
        if self.map.statuses().contains(&PartitionStatus::Leaving) {
            given.restart_timeout(now);
        }

        let PendingHandover { partition, to, .. } = *given;
        let arrived = self.known.get(to).is_none_or(|entry| entry.has.contains(&partition));
        if !arrived && !given.is_overdue(now) {
            return true;
        }

        if !arrived {
            tracing::warn!(
                partition,
                "the process that the partition was handed over to did not take it"
            );
            self.failed_heirs.insert(to, now);
            self.failed_heirs.retain(|_, at| now.duration_since(*at) < limits::HANDOVER_RETRY);
        }

        self.given = None;
        false
    }
}

/// Returns the journal of the process that `entry` announces if the process belongs to another
/// organism than the one with the journal `ours`. A process that names no journal is of an earlier
/// version, and counts as a member.
fn other_journal<'a>(entry: &'a MemberAnnouncement, ours: &str) -> Option<&'a str> {
    entry.journal.as_deref().filter(|theirs| *theirs != ours && !mutant("admit-any-member"))
}

/// Refuses the start of an organism that has no journal on this host yet if another organism of the
/// same name runs on the servers. A host that has taken part in its journal before may start,
/// because the name of an organism with a journal cannot change.
pub(super) async fn refuse_taken_name(
    rpc: &PumpRpc,
    config: &Config,
    journal: &jetstream::Options,
) -> Result<(), Error> {
    let is_begun = may_have_journals(&config.data) || known(&config.state, journal)?.is_some();
    if is_begun {
        return Ok(());
    }

    let Some(announcement) = rpc.query_member().await else { return Ok(()) };
    // A process of an earlier version does not answer.
    let Ok(member) = serde_json::from_slice::<MemberAnnouncement>(&announcement) else {
        return Ok(());
    };

    match other_journal(&member, rpc.transport.journal()) {
        Some(theirs) => {
            Err(Error::NameInUse { conflict: rpc.transport.name_conflict(&member.holder, theirs) })
        }
        None => Ok(()),
    }
}

/// The members whose announcements are recent.
#[derive(Default)]
struct LiveMembers {
    entries: BTreeMap<MemberId, (MemberAnnouncement, Instant)>,
    /// Time at which the members, or their partitions, last changed; `None` before the first
    /// announcement.
    changed: Option<Instant>,
}

impl LiveMembers {
    fn get(&self, id: MemberId) -> Option<&MemberAnnouncement> {
        self.entries.get(&id).map(|(entry, _)| entry)
    }

    /// Returns each member's name, and the time of the member's last announcement.
    fn holders(&self) -> BTreeMap<MemberId, (String, Instant)> {
        let entries = self.entries.values();
        entries.map(|(entry, at)| (entry.id, (entry.holder.clone(), *at))).collect()
    }

    fn update(&mut self, entry: MemberAnnouncement, now: Instant) {
        let before = if entry.is_leaving {
            self.entries.remove(&entry.id)
        } else if self.has_room_for(entry.id) {
            self.entries.insert(entry.id, (entry.clone(), now))
        } else {
            return;
        };

        let moved = |(before, _): &(MemberAnnouncement, Instant)| {
            before.has != entry.has || before.is_moving != entry.is_moving
        };

        if before.as_ref().is_none_or(moved) || entry.is_leaving {
            self.changed = Some(now);
        }
    }

    fn has_room_for(&self, id: MemberId) -> bool {
        self.entries.len() < limits::MEMBERS_MAX || self.entries.contains_key(&id)
    }

    fn forget_silent(&mut self, now: Instant) {
        let before = self.entries.len();
        self.entries.retain(|_, (_, announced)| {
            now.saturating_duration_since(*announced) < limits::MEMBER_LAPSE
        });
        if self.entries.len() != before {
            self.changed = Some(now);
        }
    }

    /// Returns the handover that is due now, or `None` if none is due. No handover is due for some
    /// time after a change in the members or their partitions, so that every member learns of the
    /// change first.
    fn due(&self, now: Instant) -> Option<PartitionHandover> {
        let calm = now.saturating_duration_since(self.changed?) >= limits::REBALANCE_QUIET_TIME;
        calm.then(|| rebalance::due(self.entries.values().map(|(entry, _)| entry)))?
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// Tests that a full table of members refuses new members, but still updates the known members.
    #[test]
    fn a_full_membership_table_still_updates_known_members() {
        let mut known = LiveMembers::default();
        let begun = Instant::now();
        let entries: Vec<_> = (0..=limits::MEMBERS_MAX).map(|_| entry(&[], &[])).collect();
        entries.iter().for_each(|entry| known.update(entry.clone(), begun));
        let later = begun + limits::MEMBER_LAPSE / 2;
        entries.iter().for_each(|entry| known.update(entry.clone(), later));
        assert_eq!(known.changed, Some(begun), "nothing is news");
        known.forget_silent(begun + limits::MEMBER_LAPSE);
        assert_eq!(known.entries.len(), limits::MEMBERS_MAX);
    }

    fn entry(has: &[u32], ready: &[u32]) -> MemberAnnouncement {
        MemberAnnouncement {
            id: MemberId::new(),
            holder: String::new(),
            config: Digest::ZERO,
            has: has.iter().copied().collect(),
            ready: ready.iter().copied().collect(),
            is_moving: false,
            is_leaving: false,
            journal: None,
        }
    }

    #[test]
    fn a_process_of_another_journal_is_no_member_and_one_of_an_earlier_version_is() {
        let of = |journal: Option<&str>| MemberAnnouncement {
            journal: journal.map(str::to_owned),
            ..entry(&[], &[])
        };
        assert_eq!(other_journal(&of(Some("TWO")), "ONE"), Some("TWO"));
        assert_eq!(other_journal(&of(Some("ONE")), "ONE"), None);
        assert_eq!(other_journal(&of(None), "ONE"), None);
    }

    /// Tests a handover whose drain takes longer than the time-out of the handover. The time-out
    /// must count from the end of the drain.
    #[test]
    fn the_timeout_of_a_handover_counts_from_the_end_of_its_drain() {
        let begun = Instant::now();
        let to = MemberId::new();
        let mut handover = PendingHandover { partition: 0, to, since: begun };
        let drained = begun + limits::HANDOVER_DRAIN;
        assert!(handover.is_overdue(drained), "without the restart");

        handover.restart_timeout(drained);
        let announced = drained + limits::MEMBER_ANNOUNCE_INTERVAL;
        assert!(!handover.is_overdue(announced));
        assert!(handover.is_overdue(drained + limits::HANDOVER_TIMEOUT));
    }

    #[test]
    fn nothing_is_due_before_nothing_has_changed_for_a_while() {
        let mut known = LiveMembers::default();
        let begun = Instant::now();
        let first = entry(&[0, 1, 2], &[]);
        let second = entry(&[], &[0, 1, 2]);
        known.update(first.clone(), begun);
        let later = begun + limits::REBALANCE_QUIET_TIME;
        known.update(second.clone(), later);
        assert_eq!(known.due(later), None, "one has just come");
        known.update(first.clone(), later);
        let calm = later + limits::REBALANCE_QUIET_TIME;
        assert_eq!(known.due(calm).unwrap().from, first.id);
        known.update(MemberAnnouncement { has: BTreeSet::from([0]), ..second }, calm);
        assert_eq!(known.due(calm), None, "it has one more now");
    }

    #[test]
    fn whoever_falls_silent_or_says_farewell_is_given_nothing() {
        let mut known = LiveMembers::default();
        let begun = Instant::now();
        let first = entry(&[0, 1, 2], &[]);
        let second = entry(&[], &[0, 1, 2]);
        let all = |known: &mut LiveMembers, now| {
            known.update(first.clone(), now);
            known.update(second.clone(), now);
        };

        all(&mut known, begun);
        let silent = begun + limits::MEMBER_LAPSE;
        known.update(first.clone(), silent);
        known.forget_silent(silent);
        assert!(known.get(second.id).is_none() && known.get(first.id).is_some());
        all(&mut known, silent);
        known.update(MemberAnnouncement { is_leaving: true, ..second.clone() }, silent);
        assert_eq!(known.due(silent + Duration::from_secs(60)), None);
        all(&mut known, silent);
        assert!(known.due(silent + limits::REBALANCE_QUIET_TIME).is_some());
    }
}
