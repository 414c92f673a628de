//! The journal on JetStream: one stream a partition, written by its pump alone, with a projection
//! beside the pump that everybody reads.
//!
//! A group of steps is one message: durable when the server acknowledges it, and appended only
//! where the pump that wrote the message before it is still the last one to have written.
//! `group` says what stands in a message.
//!
//! Must not know how a connection is made: that is `nats`.

mod against;
mod align;
mod api;
mod bounds;
mod count;
mod group;
pub mod identity;
mod lease;
mod open;
mod promote;
mod proof;
mod publish;
mod repair;
mod settings;
mod standby;
mod stream_copier;
mod stream_reader;
mod tail;
mod takeover;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::limits;
use crate::nats::{self, Away};
use crate::thread::Record;

use super::{Checkpoint, CopyMetrics, Error, Place, sqlite};
use api::Failed;
use group::Group;
use publish::Publisher;
use tail::Mark;
use watch::Watch;

pub use against::{StreamAgreement, compare_with_stream};
pub use bounds::{Acknowledged, ProjectionHead, ProjectionReport};
pub use identity::Member;
pub use lease::{Bequest, Candidate, this_process};
pub use promote::{Phase, Promoted, promote};
pub use repair::{RepairSource, StreamRepair, recorded, repair};
pub use standby::{Office, Standby};
pub use takeover::Takeover;

/// Which journal, and how it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whose journal it is.
    pub organism: String,
    /// What the names of its streams begin with.
    pub stream: String,
    pub partition: u32,
    /// Of how many; fixed for the life of a journal.
    pub partitions: u32,
    /// Copies of the stream, on as many servers.
    pub replicas: u32,
    pub durability: Durability,
    /// Who may ask the servers how they sync.
    pub system: Option<Box<nats::Credentials>>,
    /// Public keys of the other hosts of this organism.
    pub known_keys: Vec<String>,
    /// Directory of this host where checkpoints are copied to.
    pub checkpoints: Option<PathBuf>,
}

/// What the servers do before they acknowledge, as the config has it: they say it to their system
/// account alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// They sync later.
    #[default]
    Lazy,
    /// `sync_interval: always`.
    Synced,
}

impl Options {
    pub fn stream(&self) -> String {
        format!("{}-{}", self.stream, self.partition)
    }

    pub fn subject(&self) -> String {
        format!("organism.journal.{}.{}", self.stream, self.partition)
    }

    /// Of the leases on all partitions.
    pub fn bucket(&self) -> String {
        format!("{}-pumps", self.stream)
    }

    /// Where the lease on this partition stands.
    pub fn lease(&self) -> String {
        format!("$KV.{}.{}", self.bucket(), self.partition)
    }

    /// Where it stands how many partitions there are.
    pub fn count(&self) -> String {
        format!("$KV.{}.partitions", self.bucket())
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Journal {
    // First, so that the lease is let go of before the projection's lock.
    watch: Watch,
    projection: sqlite::Journal,
    publisher: Publisher,
    /// A checkpoint that may be in the stream already: its answer never came.
    owed: Option<Checkpoint>,
    unshown: Option<Unshown>,
    takeover: Takeover,
}

/// What is in the stream and not in the projection yet.
#[derive(Debug)]
struct Unshown {
    stamped: sqlite::Group,
    mark: String,
}

impl Journal {
    pub fn id(&self) -> Uuid {
        self.projection.id()
    }

    pub fn epoch(&self) -> u32 {
        self.publisher.epoch
    }

    pub fn next(&self) -> Position {
        self.projection.next()
    }

    /// How much of the stream was proved when this pump took it over.
    pub fn takeover(&self) -> &Takeover {
        &self.takeover
    }

    pub fn heads(&self) -> &super::Heads {
        self.projection.heads()
    }

    /// Says who is to have the lease next, also when the journal is in other hands.
    pub fn bequest(&self) -> Bequest {
        self.watch.bequest()
    }

    /// The most pages the projection may have; None lifts it. Beyond it, the disk counts as full.
    pub fn set_pages_max(&self, pages: Option<u32>) -> Result<(), Error> {
        self.projection.set_pages_max(pages)
    }

    /// See [`super::Journal::append`].
    pub fn append(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        super::Journal::append(self, records)
    }

    fn write(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        self.usable()?;
        if self.unshown.is_none() {
            self.settle()?;
            let Some(stamped) = self.projection.stamp(records)? else { return Ok(Vec::new()) };
            let mut group = Group::default();
            if let Some(checkpoint) = &stamped.checkpoint {
                group = group.checkpoint(checkpoint);
            }
            for (record, row) in records.iter().zip(stamped.rows.iter()) {
                group = group.step(&Place::from(record), &row);
            }
            group = group.mac(&stamped.mac);
            let mark = self.put(&group)?;
            self.publisher.put(mark.seq);
            if let (Some(record), Some(row)) = (records.last(), stamped.rows.iter().last()) {
                self.acknowledge(mark.seq, record.position, row.hash);
            }
            self.unshown = Some(Unshown { stamped, mark: mark.to_string() });
        }
        let rows = self.unshown.iter().flat_map(|unshown| unshown.stamped.rows.iter());
        Ok(rows.map(|row| row.hash).collect())
    }

    fn show(&mut self, records: &[Record]) -> Result<(), Error> {
        let Some(Unshown { stamped, mark }) = &mut self.unshown else { return Ok(()) };
        self.projection.keep(records, stamped, mark)?;
        self.unshown = None;
        // What an operator decided is signed at once.
        let decided = records.iter().rev().find(|record| record.input.is_decision());
        if let Some(decided) = decided {
            self.checkpoint(decided.time, true)?;
        }
        Ok(())
    }

    pub fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error> {
        self.usable()?;
        let due = self.owed.is_some() || self.projection.is_due(now);
        Ok(due && self.checkpoint(now, false)?)
    }

    fn verify_lead(&mut self) -> Result<(), Error> {
        self.usable()?;
        match self.publisher.verify_lead() {
            Err(error) if !error.is_passing() => Err(self.projection.stop(error)),
            other => other,
        }
    }

    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error> {
        self.usable()?;
        self.settle()?;
        let digest = Digest::of(bytes);
        if !self.projection.has_blob(digest)? {
            let group = Group::default().blob(digest, bytes);
            self.publish(&group, |projection, mark| projection.keep_blob(digest, bytes, mark))?;
        }
        Ok(digest)
    }

    /// A last checkpoint, the projection in its one file, the lease and the lock let go.
    pub fn close(mut self, now: Time) -> Result<(), Error> {
        self.usable()?;
        self.checkpoint(now, true)?;
        let Self { projection, watch, .. } = self;
        drop(watch);
        projection.let_go()
    }

    /// False where the server is away or full: every record is durable without it, and it comes
    /// later.
    fn checkpoint(&mut self, now: Time, last: bool) -> Result<bool, Error> {
        let put_off = |error: &Error| tracing::warn!("a checkpoint is put off: {error}");
        match self.settle() {
            Err(error) if error.is_passing() => {
                put_off(&error);
                return Ok(false);
            }
            other => other?,
        }
        self.owed = self.projection.due(now, last);
        let due = self.owed.is_some();
        match self.settle() {
            Err(error) if error.is_passing() => {
                put_off(&error);
                Ok(false)
            }
            other => other.map(|()| due),
        }
    }

    /// Puts the checkpoint that is owed where it belongs: before anything that comes after it.
    fn settle(&mut self) -> Result<(), Error> {
        if self.unshown.is_some() {
            let cause = "records that were written are not readable".to_owned();
            return Err(self.projection.stop(Error::Stopped { cause }));
        }
        let Some(checkpoint) = self.owed.clone() else { return Ok(()) };
        let group = Group::default().checkpoint(&checkpoint);
        self.publish(&group, |projection, mark| projection.keep_checkpoint(checkpoint, mark))?;
        self.owed = None;
        Ok(())
    }

    /// Into the stream, then into the projection. Where that has no room, the same again finds
    /// the group in the stream.
    fn publish(
        &mut self,
        group: &Group,
        keep: impl FnOnce(&mut sqlite::Journal, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mark = self.put(group)?;
        keep(&mut self.projection, &mark.to_string())?;
        self.publisher.put(mark.seq);
        let heads = self.projection.heads();
        self.acknowledge(mark.seq, heads.last(), heads.last_hash());
        Ok(())
    }

    /// Message `seq` is durable, and with it the record at `position`.
    fn acknowledge(&self, seq: u64, position: Position, hash: Digest) {
        let journal = self.projection.id();
        self.watch.acknowledge(Acknowledged { journal, seq, position, hash });
    }

    /// Into the stream. Until the publisher is told that it is there, the same again finds it.
    fn put(&mut self, group: &Group) -> Result<Mark, Error> {
        match self.publisher.publish(group) {
            Ok((seq, digest)) => Ok(Mark { seq, digest }),
            Err(error) if error.is_passing() => Err(error),
            Err(error) => Err(self.projection.stop(error)),
        }
    }

    fn usable(&mut self) -> Result<(), Error> {
        self.projection.usable()?;
        let trouble = self.watch.check(self.publisher.epoch);
        trouble.map_err(|error| self.projection.stop(error))
    }
}

impl super::Journal for Journal {
    fn id(&self) -> Uuid {
        Self::id(self)
    }

    fn epoch(&self) -> u32 {
        Self::epoch(self)
    }

    fn next(&self) -> Position {
        Self::next(self)
    }

    fn write(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        Self::write(self, records)
    }

    fn show(&mut self, records: &[Record]) -> Result<(), Error> {
        Self::show(self, records)
    }

    fn verify_lead(&mut self) -> Result<(), Error> {
        Self::verify_lead(self)
    }

    fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error> {
        Self::checkpoint_if_due(self, now)
    }

    fn checked_at(&self) -> Option<Time> {
        super::Journal::checked_at(&self.projection)
    }

    fn copy_metrics(&self) -> Option<CopyMetrics> {
        super::Journal::copy_metrics(&self.projection)
    }

    fn rest(&self) -> Duration {
        limits::LEASE_BEAT
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error> {
        Self::put_blob(self, bytes)
    }

    fn close(self: Box<Self>, now: Time) -> Result<(), Error> {
        Self::close(*self, now)
    }
}

/// What it means that a stream could not be had.
fn unfit(server: String, what: &str, failed: Failed) -> Error {
    match failed {
        Failed::Away(Away::Nobody(_)) => {
            let detail = format!("{what}: JetStream does not answer; is it enabled here?");
            Error::Away { detail }
        }
        Failed::Away(Away::Denied(denied)) => Error::Denied(denied),
        Failed::Refused { .. } if !failed.is_full() => {
            Error::Unfit { server, detail: format!("{what}: {failed}") }
        }
        other => refused(what, other),
    }
}

/// What it means that something was neither read nor written, whatever the reason: it may be, later.
fn away(what: &str, failed: &Failed) -> Error {
    match failed {
        Failed::Away(Away::Denied(denied)) => Error::Denied(denied.clone()),
        other => Error::Away { detail: format!("{what}: {other}") },
    }
}

/// What it means that something of a stream could not be read.
fn refused(what: &str, failed: Failed) -> Error {
    match failed {
        Failed::Away(Away::Denied(denied)) => Error::Denied(denied),
        Failed::Away(away) => Error::Away { detail: format!("{what}: {away}") },
        full if full.is_full() => Error::Full { detail: format!("{what}: {full}") },
        other => Error::broken(0, format!("{what}: {other}")),
    }
}
