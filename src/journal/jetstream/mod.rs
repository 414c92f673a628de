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
mod commit_codec;
mod fencing;
pub mod identity;
mod lease;
mod lease_renewal;
mod open;
mod partition_count;
mod periodic_thread;
mod promote;
mod publish;
mod repair;
mod settings;
mod standby;
mod stream_copier;
mod stream_monitor;
mod stream_position;
mod stream_reader;
mod sync_check;
mod takeover;

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::limits;
use crate::nats::{self, NoResponse};

use super::log::{Log, LogGroup, LogMark};
use super::sqlite::JournalFile;
use super::writer::JournalWriter;
use super::{Error, TreeHeads};
use api::ApiFailure;
use commit_codec::CommitEncoder;
use publish::StreamPublisher;
use stream_monitor::LeadershipWatch;

pub use against::{StreamAgreement, compare_with_stream};
pub use bounds::{AcknowledgedMark, ProjectionHead, ProjectionReport};
pub use identity::JoiningHost;
pub use lease::{LeaseHandover, MemberId, this_process};
pub use promote::{PromotedJournal, PromotionPhase, promote};
pub use repair::{RepairSource, StreamRepair, recorded, repair};
pub use standby::{LeaseCheck, Standby};
pub use takeover::StreamTakeover;

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
    pub durability: StreamDurability,
    /// Who may ask the servers how they sync.
    pub system: Option<Box<nats::NatsCredentials>>,
    /// Public keys of the other hosts of this organism.
    pub known_keys: Vec<String>,
    /// Directory of this host where checkpoints are copied to.
    pub checkpoints: Option<PathBuf>,
}

/// What the servers do before they acknowledge, as the config has it: they say it to their system
/// account alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum StreamDurability {
    /// They sync later.
    #[default]
    #[serde(rename = "lazy")]
    Lazy,
    /// `sync_interval: always`.
    #[serde(rename = "synced")]
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

/// A journal in a stream.
pub type StreamJournal = JournalWriter<StreamLog>;

/// A stream that this pump leads.
#[derive(Debug)]
pub struct StreamLog {
    watch: LeadershipWatch,
    publisher: StreamPublisher,
    takeover: StreamTakeover,
}

impl StreamJournal {
    /// How much of the stream was proved when this pump took it over.
    pub fn takeover(&self) -> &StreamTakeover {
        &self.log.takeover
    }

    /// Says who is to have the lease next, also when the journal is in other hands.
    pub fn bequest(&self) -> LeaseHandover {
        self.log.watch.bequest()
    }
}

impl Log for StreamLog {
    const HAS_PROJECTION: bool = true;
    const REST: Duration = limits::LEASE_BEAT;

    fn check(&self) -> Result<(), Error> {
        self.watch.check(self.publisher.epoch)
    }

    fn verify_lead(&self) -> Result<(), Error> {
        self.publisher.verify_lead()
    }

    fn append(
        &mut self,
        group: &LogGroup<'_>,
        _: &mut JournalFile,
        _: &mut TreeHeads,
    ) -> Result<LogMark, Error> {
        let (seq, digest) = self.publisher.publish(&CommitEncoder::of(group))?;
        Ok(LogMark { seq, digest })
    }

    fn confirm(&mut self, mark: LogMark, journal: Uuid, position: Position, hash: Digest) {
        let seq = mark.seq;
        self.publisher.put(seq);
        self.watch.acknowledge(AcknowledgedMark { journal, seq, position, hash });
    }
}

/// What it means that a stream could not be had.
fn unfit(server: String, what: &str, failed: ApiFailure) -> Error {
    match failed {
        ApiFailure::Away(NoResponse::Nobody(_)) => {
            let detail = format!("{what}: JetStream does not answer; is it enabled here?");
            Error::Away { detail }
        }
        ApiFailure::Away(NoResponse::Denied(denied)) => Error::Denied(denied),
        ApiFailure::Refused { .. } if !failed.is_full() => {
            Error::Unfit { server, detail: format!("{what}: {failed}") }
        }
        other => refused(what, other),
    }
}

/// What it means that something was neither read nor written, whatever the reason: it may be, later.
fn away(what: &str, failed: &ApiFailure) -> Error {
    match failed {
        ApiFailure::Away(NoResponse::Denied(denied)) => Error::Denied(denied.clone()),
        other => Error::Away { detail: format!("{what}: {other}") },
    }
}

/// What it means that something of a stream could not be read.
fn refused(what: &str, failed: ApiFailure) -> Error {
    match failed {
        ApiFailure::Away(NoResponse::Denied(denied)) => Error::Denied(denied),
        ApiFailure::Away(away) => Error::Away { detail: format!("{what}: {away}") },
        full if full.is_full() => Error::Full { detail: format!("{what}: {full}") },
        other => Error::broken(0, format!("{what}: {other}")),
    }
}
