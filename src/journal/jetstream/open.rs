//! Opens a journal on JetStream: connects, takes the lease, checks the stream, and lets the
//! projection catch up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime};

use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::journal::log::LogMark;
use crate::journal::sqlite::{LockedJournalDir, StoredState};
use crate::journal::{Error, EveryRecord, HashedRecord, StateRecovery};
use crate::limits;
use crate::nats::{self, BlockingClient};

use super::acknowledged_bounds::StreamBounds;
use super::api::{JetStreamApi, StreamDescription, code};
use super::commit_codec::{CommitEncoder, JournalIdentity};
use super::first_message;
use super::identity::{self, JoiningHost};
use super::lease::Lease;
use super::lease_renewal::LeaseRenewal;
use super::partition_count;
use super::publish::StreamPublisher;
use super::standby::{FollowedProjection, Standby, StreamHost};
use super::stream_damage::StreamDamage;
use super::stream_monitor::{LeadershipWatch, messages_missing};
use super::sync_check;
use super::takeover::StreamTakeover;
use super::{Options, StreamJournal, StreamLog, creation_failed, settings};

impl StreamJournal {
    /// Opens the journal of `options`, or creates the journal if it does not exist. Passes every
    /// record to `visit`, in order. `data` is the directory of the journal's projection. `state` is
    /// the directory of the signing key and of the checkpoints outside the journal. If the servers
    /// do not answer, such as during an election, waits for them.
    ///
    /// Returns an error if the stream is unfit:
    /// - [`Error::StreamShorter`]: acknowledged records, or the whole stream, are missing.
    /// - [`Error::StreamForked`]: the stream has other records in place of acknowledged ones.
    /// - [`Error::Broken`]: a message was removed or damaged.
    /// - [`Error::UnsafeServer`]: the stream could lose records.
    pub fn open(
        servers: &nats::Options,
        options: &Options,
        data: &Path,
        state: &Path,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        Self::open_as(servers, options, &JoiningHost::new(data, state), visit)
    }

    /// Opens the journal as [`StreamJournal::open`] does, for the host that `member` describes. If
    /// an operator lets this host join an existing journal, `member` contains the id of that
    /// journal.
    pub fn open_as(
        servers: &nats::Options,
        options: &Options,
        member: &JoiningHost<'_>,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        Self::open_recovering(servers, options, member, &mut EveryRecord(visit))
    }

    /// Opens the journal as [`StreamJournal::open_as`] does, and rebuilds the pump's state with
    /// `recovery`. If `recovery` can restore a snapshot, replays only the records after the
    /// snapshot. The earlier records are then verified in the background while the pump runs. But
    /// if the operator accepts damage, deletes the snapshot and replays every record.
    pub fn open_recovering(
        servers: &nats::Options,
        options: &Options,
        member: &JoiningHost<'_>,
        recovery: &mut dyn StateRecovery,
    ) -> Result<Self, Error> {
        let until = Instant::now() + limits::STREAM_OPEN_TIMEOUT;
        let mut logged = String::new();
        loop {
            let mut recovery = BegunRecovery { recovery: &mut *recovery, is_begun: false };
            let standby = Standby::begin_as(servers, options, member);
            let elected = standby.and_then(Standby::wait);
            let opened = elected.and_then(|elect| elect.lead_recovering(&mut recovery));
            let is_begun = recovery.is_begun;
            match opened {
                Err(Error::Unavailable { detail }) if !is_begun && Instant::now() < until => {
                    if logged != detail {
                        tracing::warn!("JetStream is unavailable; retrying: {detail}");
                        logged = detail;
                    }
                    std::thread::sleep(limits::STANDBY_RETRY);
                }
                other => return other,
            }
        }
    }

    /// Begins to write to the stream as the pump of its partition. This process must hold the lease
    /// on the partition.
    pub(super) fn lead(
        host: &StreamHost,
        lease: Arc<Lease>,
        followed: FollowedProjection,
        recovery: &mut dyn StateRecovery,
    ) -> Result<Self, Error> {
        let StreamHost { servers, api, options, directories, damage: accepted } = host;
        let shown = lease.holder();
        let first_id = lease.first_id();

        // Ordering rule: from here on the renewal owns the lease, so that any error releases it.
        let renewal = LeaseRenewal::start(options, Arc::clone(&lease))?;
        let before = followed.found(host)?;

        // Ordering rule: the bounds are collected before a stream is created, so that a lost stream
        // is never created again.
        let bounds = StreamBounds::gather(api, options, directories, &lease)?;

        let followed_to = before.as_ref().map_or(0, |(_, mark)| mark.seq);
        let info = stream(api, options, &bounds, followed_to)?;
        sync_check::verify_durability(servers, options, api, &info)?;

        let last = Arc::new(AtomicU64::new(info.state.last_seq));
        let created = info.created.clone();
        let watch = LeadershipWatch::start(api, options, renewal, created, Arc::clone(&last))?;

        let mut publisher = StreamPublisher::new(api, options, last);
        if info.state.last_seq == 0 {
            bounds.check_empty()?;
            let put = publisher.publish(&CommitEncoder::about(about(options, first_id)));
            publisher.put(put.map_err(|error| begun(error, 0))?.0);
        }

        let mut warm = followed.warm(host, before.as_ref(), Some(&bounds), recovery)?;
        warm.catch_up(host, publisher.last(), recovery)?;
        if warm.following.epoch() == 0 && first_message::first(api, options)?.moving {
            return Err(half_moved(options));
        }

        warm.check(&bounds, &directories.data, publisher.last())?;
        // The projection may hold records that an earlier version wrote without a proof.
        let damage = StreamDamage::of(&warm.following.proof());
        damage.refuse(*accepted, &options.stream())?;
        let takeover = StreamTakeover::of(&warm.following.evidence(), options);
        takeover.report(options);
        publisher.epoch = warm.following.epoch() + 1;
        let asked_at = SystemTime::now();
        let put = publisher.publish(&CommitEncoder::epoch(publisher.epoch, &shown));
        publisher.put(put.map_err(|error| begun(error, publisher.epoch))?.0);
        failpoint("epoch-raised");
        let mark = LogMark { seq: publisher.last(), ..LogMark::default() };
        let followed = warm.following.caught_up(publisher.epoch)?;
        let mut journal = followed.over(StreamLog { watch, publisher, takeover, damage });
        journal.confirm(mark, journal.heads.last(), journal.heads.last_hash());
        journal.log.watch.note_copy(&directories.data, asked_at);
        Ok(journal)
    }
}

/// A recovery, and whether it is used already. `is_begun` is true once the recovery has restored a
/// snapshot or replayed a record. The next attempt to open the journal then needs a new recovery,
/// because this one holds state already.
struct BegunRecovery<'r> {
    recovery: &'r mut dyn StateRecovery,
    is_begun: bool,
}

impl StateRecovery for BegunRecovery<'_> {
    fn snapshot_version(&self) -> Option<u32> {
        self.recovery.snapshot_version()
    }

    fn restore(&mut self, state: StoredState) -> Result<(), Error> {
        self.recovery.restore(state)?;
        self.is_begun = true;
        Ok(())
    }

    fn replay(&mut self, sealed: HashedRecord) -> Result<(), Error> {
        self.is_begun = true;
        self.recovery.replay(sealed)
    }
}

/// Maps an error of the first append in a new epoch. [`Error::Stopped`] means that the stream
/// already has another message with the same epoch in the place of this append. There are two
/// possible causes: another pump began the same epoch at the same moment, or this process wrote
/// that message in an earlier attempt and got no acknowledgement. In both cases, returns
/// [`Error::Fenced`], so that this process becomes a standby again.
fn begun(error: Error, ours: u32) -> Error {
    match error {
        Error::Stopped { .. } => Error::Fenced { ours, theirs: ours },
        other => other,
    }
}

pub(super) fn about(options: &Options, id: Uuid) -> JournalIdentity<'_> {
    let &Options { partition, partitions, .. } = options;
    let name = options.organism.as_str().into();
    JournalIdentity { id, name, partition, partitions, moving: false }
}

pub(super) fn connect(servers: &nats::Options, options: &Options) -> Result<JetStreamApi, Error> {
    let link = BlockingClient::open(servers, &format!("organism {} pump", options.organism))?;
    let api = JetStreamApi { link: Arc::new(link) };
    let link = &api.link;
    settings::judge_server(&link.server(), &link.version(), link.max_payload(), options)?;
    Ok(api)
}

/// Returns the id of the journal in the locked directory `opening`, and the mark of the last group
/// that the projection in this directory has read from the stream. Returns `None` if there is no
/// projection yet. Returns an error if the directory has a journal that follows no stream.
pub(super) fn found(
    opening: &LockedJournalDir,
    api: &JetStreamApi,
    options: &Options,
) -> Result<Option<(Uuid, LogMark)>, Error> {
    if !opening.exists() {
        return Ok(None);
    }

    let (journal, mark) = opening.found()?;
    let Some(mark) = mark else {
        let detail = if partition_count::has_journal(api, options, journal)? {
            // If the file is an older copy, it is moved away. The start after that may then copy
            // the journal from the stream.
            identity::note(opening.state(), options, journal)?;
            format!(
                "holds the journal of the stream {} in a file that does not follow the stream: \
                 `organism promote` completes an interrupted move, and refuses a file that is \
                 older than the stream",
                options.stream()
            )
        } else {
            "holds a journal of its own, which was not on JetStream before: `organism promote` \
             moves it there; or name another directory, or go on with `store = \"embedded\"`"
                .to_owned()
        };
        return Err(Error::ForeignJournal { path: opening.data().display().to_string(), detail });
    };

    let mark = mark.parse().map_err(|()| Error::broken(0, "its `stream` is damaged"))?;
    Ok(Some((journal, mark)))
}

/// Refuses a directory whose journal follows no stream, as [`found`] does. Must be called before
/// the lease is looked up, because that begins a journal on the servers if they have none. So
/// nothing is written for a command that is then refused.
pub(super) fn refuse_embedded(
    opening: &LockedJournalDir,
    api: &JetStreamApi,
    options: &Options,
    member: &JoiningHost<'_>,
) -> Result<(), Error> {
    // A damaged file may be the host's copy of the stream. The later steps report it, or replace
    // it.
    if !opening.exists() || !matches!(opening.found(), Ok((_, None))) {
        return Ok(());
    }

    if !partition_count::is_empty(api, options)?
        && let Some(theirs) = partition_count::begun(api, options)?
    {
        member.admit(api, options, theirs)?;
    }

    found(opening, api, options).map(drop)
}

pub(super) fn foreign_journal(data: &Path, options: &Options, what: &str) -> Error {
    let detail = format!(
        "{what} the stream {}: name another directory, or find the stream it belongs to",
        options.stream()
    );
    Error::ForeignJournal { path: data.display().to_string(), detail }
}

pub(super) fn half_moved(options: &Options) -> Error {
    let detail = "has only a part of the journal that is moved there: `organism promote` goes on \
                  with it, where that journal is";
    Error::ForeignJournal {
        path: format!("the stream {}", options.stream()),
        detail: detail.to_owned(),
    }
}

/// Returns the state of the stream. If the stream does not exist, creates the stream. But if
/// `bounds` shows that the stream once had records, returns an error instead. `followed_to` is the
/// number of the last message that this host has read from the stream.
pub(super) fn stream(
    api: &JetStreamApi,
    options: &Options,
    bounds: &StreamBounds,
    followed_to: u64,
) -> Result<StreamDescription, Error> {
    let name = options.stream();
    let info = match api.info(&name) {
        Err(failed) if failed.is(code::STREAM_NOT_FOUND) => {
            bounds.check_empty()?;
            api.create(&name, &settings::of(options))
        }
        other => other,
    };

    let mut info =
        info.map_err(|f| creation_failed(api.link.server(), &format!("the stream {name}"), f))?;
    let begun = Instant::now();
    if let Some(detail) = settings::fault(options, &info.config) {
        return Err(Error::UnsafeServer { server: api.link.server(), detail });
    }

    // During an election in a cluster, a stream may look shorter than it is.
    let known = followed_to.max(bounds.last_seq());
    while info.state.last_seq < known && begun.elapsed() < limits::STREAM_GONE_AFTER {
        std::thread::sleep(limits::STREAM_RETRY_INTERVAL);
        info = api.info(&name).unwrap_or(info);
    }

    let state = info.state;
    if state.messages != state.last_seq || (state.messages > 0 && state.first_seq != 1) {
        let missing = state.last_seq - state.messages;
        return Err(Error::broken(0, messages_missing(&name, missing)));
    }

    Ok(info)
}
