//! A standby: a process whose projection follows the stream, so that the process can take over as
//! soon as the lease is free.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::followed_copy::{note_begun, note_complete};
use crate::journal::log::LogMark;
use crate::journal::sqlite::{CatchingUp, LockedJournalDir};
use crate::journal::{Error, EveryRecord, HashedRecord, OperatorAcceptance, StateRecovery};
use crate::nats;

use super::acknowledged_bounds::{PumpDirectories, StreamBounds, hash_at};
use super::api::{ApiFailure, JetStreamApi, code};
use super::first_message;
use super::identity::JoiningHost;
use super::lease::{LastSeen, Lease, LeaseAvailability, LeaseEntry};
use super::open::{connect, foreign_journal, found, refuse_embedded};
use super::projection_catch_up::{self, StreamProgress};
use super::repair_note::refuse_unfinished;
use super::{Options, StreamJournal, read_failed};

/// A host that can take over a stream, with its connection to the NATS servers.
pub(super) struct StreamHost {
    pub servers: nats::Options,
    pub api: JetStreamApi,
    pub options: Options,
    pub directories: PumpDirectories,
    /// Kinds of damage that an operator accepts in the stream, such as missing MACs.
    pub damage: OperatorAcceptance,
}

/// A process that waits to take over a stream.
pub struct Standby {
    host: StreamHost,
    lease: Lease,
    seen: LastSeen,
    followed: FollowedProjection,
}

/// Result of checking the lease.
pub enum LeaseCheck {
    /// The process with this name holds the lease. The standby continues.
    Held(Standby, String),
    /// The lease is reserved: the last holder chose another process as its heir, or the entry of
    /// the lease was lost, perhaps together with its bucket. The standby continues.
    Left(Standby),
    /// The server does not answer. The standby continues.
    Unavailable(Standby, Error),
    /// This process now holds the lease.
    Ours(LeaseHolder),
}

/// A process that holds the lease of a stream but has not begun to pump.
pub struct LeaseHolder {
    host: StreamHost,
    lease: Arc<Lease>,
    followed: FollowedProjection,
}

impl Standby {
    /// Locks the directory `data`, and connects to the servers. Reads no records yet.
    pub fn begin(
        servers: &nats::Options,
        options: &Options,
        data: &Path,
        state: &Path,
    ) -> Result<Self, Error> {
        Self::begin_as(servers, options, &JoiningHost::new(data, state))
    }

    pub(super) fn begin_as(
        servers: &nats::Options,
        options: &Options,
        member: &JoiningHost<'_>,
    ) -> Result<Self, Error> {
        let opening = LockedJournalDir::begin(member.data, member.state)?;
        note_begun(member.data);
        // Ordering rule: looked up under the lock, because a repair may run in another process.
        if !member.is_offline {
            refuse_unfinished(options, member.state)?;
        }
        let opening = opening.with_copies(options.checkpoints.as_deref());
        let api = connect(servers, options)?;
        refuse_embedded(&opening, &api, options, member)?;
        let lease = Lease::of(&api, options, LeaseEntry::here(member.data), member)?;
        let followed = FollowedProjection::Cold(Box::new(opening));
        let directories =
            PumpDirectories { data: member.data.to_owned(), state: member.state.to_owned() };
        let servers = servers.clone();
        let options = options.clone();
        let damage = member.damage;
        let host = StreamHost { servers, api, options, directories, damage };
        Ok(Self { host, lease, seen: LastSeen::default(), followed })
    }

    /// Waits until this process gets the lease. Returns an error as soon as the holder of the lease
    /// is known to be alive.
    pub(super) fn wait(self) -> Result<LeaseHolder, Error> {
        let free = self.lease.wait_until_free(&self.host.options)?;
        self.take_lease(free)
    }

    /// Takes the lease if it is free. Otherwise, the returned value states why this process remains
    /// a standby.
    pub fn look(mut self) -> Result<LeaseCheck, Error> {
        match self.lease.look(&mut self.seen) {
            Ok(LeaseAvailability::Free(revision)) => {
                Ok(LeaseCheck::Ours(self.take_lease(revision)?))
            }
            Ok(LeaseAvailability::Held(holder) | LeaseAvailability::Lives(holder)) => {
                Ok(LeaseCheck::Held(self, holder))
            }
            Ok(LeaseAvailability::Left) => Ok(LeaseCheck::Left(self)),
            Ok(LeaseAvailability::BucketGone) => self.make_bucket_again(),
            Err(error @ Error::Unavailable { .. }) => Ok(LeaseCheck::Unavailable(self, error)),
            Err(error) => Err(error),
        }
    }

    /// Creates the bucket of the leases in place of a lost one. The running pumps take their leases
    /// again, so the standby continues.
    fn make_bucket_again(mut self) -> Result<LeaseCheck, Error> {
        let StreamHost { api, options, directories, damage, .. } = &self.host;
        let PumpDirectories { data, state } = directories;
        let member = JoiningHost { damage: *damage, ..JoiningHost::new(data, state) };
        match Lease::of(api, options, LeaseEntry::here(data), &member) {
            Ok(lease) => {
                tracing::warn!(
                    "the bucket KV_{} with the leases was gone; made it again",
                    options.bucket()
                );
                self.lease = lease;
                self.seen = LastSeen::in_new_bucket();
                Ok(LeaseCheck::Left(self))
            }
            Err(error @ Error::Unavailable { .. }) => Ok(LeaseCheck::Unavailable(self, error)),
            Err(error) => Err(error),
        }
    }

    /// Whether the projection had caught up with the stream at the last read.
    pub fn is_ready(&self) -> bool {
        matches!(self.followed, FollowedProjection::Warm(_))
    }

    fn take_lease(self, free: u64) -> Result<LeaseHolder, Error> {
        self.lease.take(free, &self.host.options)?;
        let Self { host, lease, followed, .. } = self;
        Ok(LeaseHolder { host, lease: Arc::new(lease), followed })
    }

    /// Returns the last record that the projection has read from the stream; 0 if the projection is
    /// not opened yet.
    pub fn followed_to(&self) -> Position {
        match &self.followed {
            FollowedProjection::Cold(_) => Position(0),
            FollowedProjection::Warm(warm) => warm.following.last(),
        }
    }

    /// Catches up with the stream as [`Standby::follow_recovering`] does, and passes every record
    /// to `visit`.
    pub fn follow(
        self,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        self.follow_recovering(&mut EveryRecord(visit))
    }

    /// Catches up with the stream, and passes every new record to `recovery`. Stops early if the
    /// server does not answer. If the projection then has every record, notes so beside it. The
    /// first call also verifies the projection, and passes its records to `recovery`: all of them,
    /// or only those after a snapshot. After an error, `recovery` must not be used again.
    pub fn follow_recovering(self, recovery: &mut dyn StateRecovery) -> Result<Self, Error> {
        let Self { host, lease, seen, followed } = self;
        let name = host.options.stream();
        let asked_at = SystemTime::now();
        let last = match host.api.info(&name) {
            Ok(info) => info.state.last_seq,
            // The process that pumps has to create the stream, or to report it as missing.
            Err(failed) if failed.is(code::STREAM_NOT_FOUND) => 0,
            // Keeps what was read so far, so that it need not be read again.
            Err(ApiFailure::NoResponse(_)) => 0,
            Err(failed) => return Err(read_failed(&format!("the stream {name}"), failed)),
        };

        if last == 0 {
            return Ok(Self { host, lease, seen, followed });
        }

        let before = followed.found(&host)?;
        let mut warm = followed.warm(&host, before.as_ref(), None, recovery)?;
        match warm.catch_up(&host, last, recovery) {
            // The heads include records that were not written. The next attempt begins anew.
            Err(error @ Error::Unavailable { .. }) if warm.progress.is_refused => {
                return Err(error);
            }
            Ok(()) => note_complete(&host.directories.data, asked_at),
            Err(Error::Unavailable { .. }) => {}
            // A repair or a move may still be publishing the rest, or an operator may be accepting
            // it. The process that takes the lease refuses the stream.
            Err(error) if warm.progress.is_refused => {
                let stream = name;
                let detail = error.to_string();
                return Err(Error::UnprovedStream { stream, detail });
            }
            Err(error) => return Err(error),
        }

        let followed = FollowedProjection::Warm(Box::new(warm));
        Ok(Self { host, lease, seen, followed })
    }
}

impl LeaseHolder {
    /// Begins to pump as [`LeaseHolder::lead_recovering`] does. Calls `visit` only for those
    /// records for which [`Standby::follow`] has not already called its `visit`.
    pub fn lead(
        self,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<StreamJournal, Error> {
        self.lead_recovering(&mut EveryRecord(visit))
    }

    /// Begins to pump with a new epoch. `recovery` keeps its state, and replays only the records
    /// that it has not replayed yet.
    pub fn lead_recovering(self, recovery: &mut dyn StateRecovery) -> Result<StreamJournal, Error> {
        StreamJournal::lead(&self.host, self.lease, self.followed, recovery)
    }
}

/// The projection of a host that can take over a stream. Either the projection is not opened yet,
/// or it is open and its progress in the stream is known.
pub(super) enum FollowedProjection {
    /// A projection that is not opened yet.
    Cold(Box<LockedJournalDir>),
    Warm(Box<CaughtUpProjection>),
}

pub(super) struct CaughtUpProjection {
    journal: Uuid,
    progress: StreamProgress,
    pub following: CatchingUp,
}

impl FollowedProjection {
    /// Returns the id of the journal that the projection follows, and the last message that the
    /// projection has read. Returns `None` if there is no projection yet.
    pub fn found(&self, host: &StreamHost) -> Result<Option<(Uuid, LogMark)>, Error> {
        match self {
            Self::Cold(opening) => found(opening, &host.api, &host.options),
            Self::Warm(warm) => Ok(Some((warm.journal, warm.progress.mark))),
        }
    }

    /// Opens the projection, and verifies that it is intact and comes from this stream. Returns an
    /// error if the stream has lost or changed a record. `before` is the result of
    /// [found](Self::found).
    ///
    /// `bounds` lists the last records that are known from several sources, such as another host's
    /// projection. The stream must have these records, and an error names the sources that
    /// contradict the stream. Without `bounds`, this projection is the only source.
    pub fn warm(
        self,
        host: &StreamHost,
        before: Option<&(Uuid, LogMark)>,
        bounds: Option<&StreamBounds>,
        recovery: &mut dyn StateRecovery,
    ) -> Result<CaughtUpProjection, Error> {
        let opening = match self {
            Self::Cold(opening) => *opening,
            Self::Warm(mut warm) => {
                let place = projection_catch_up::resume_point(host, warm.progress.mark, bounds)?;
                (warm.progress.mark, warm.progress.known) = place;
                return Ok(*warm);
            }
        };

        let journal = first_message::journal(&host.api, &host.options)?;
        match before {
            None => opening.create(journal, Some(LogMark::default()))?,
            Some((found, _)) if *found != journal => {
                let what = "follows another journal than the one in";
                return Err(foreign_journal(opening.data(), &host.options, what));
            }
            Some(_) => {}
        }

        let mark = before.map(|(_, mark)| *mark).unwrap_or_default();
        let (mark, known) = projection_catch_up::resume_point(host, mark, bounds)?;
        let following = opening.follow(host.damage, recovery)?;
        let progress = StreamProgress { mark, known, is_refused: false };
        Ok(CaughtUpProjection { journal, progress, following })
    }
}

impl CaughtUpProjection {
    /// Lets the projection read the stream up to message `last`, and passes the new records to
    /// `recovery`.
    pub fn catch_up(
        &mut self,
        host: &StreamHost,
        last: u64,
        recovery: &mut dyn StateRecovery,
    ) -> Result<(), Error> {
        self.following.check_proof()?;
        let visit = &mut |sealed| recovery.replay(sealed);
        projection_catch_up::read(host, &mut self.progress, last, &mut self.following, visit)
    }

    /// Refuses a stream that contradicts `bounds`. Each bound comes from one source, such as the
    /// lease, and states the last record that this source knows. The stream must have the same
    /// record. Must be called only after the whole stream was read, up to message `seq`.
    pub fn check(&self, bounds: &StreamBounds, data: &Path, seq: u64) -> Result<(), Error> {
        bounds.check(self.journal, seq, self.following.last(), &|at| hash_at(data, at))
    }
}
