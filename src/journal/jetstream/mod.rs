//! The journal on JetStream. Each partition has one stream, to which only the partition's pump
//! writes. The pump's host also keeps a projection for readers: a copy of the records in SQLite.
//!
//! A group of records is sent as one message, or as several if the group is large. The group is
//! durable when the server acknowledges its last message. Each message names the message that must
//! directly precede it in the stream. If the stream ends with a different message, the server
//! refuses the new one. So no other pump can write between two messages of this pump.
//! `commit_codec` describes the content of messages.
//!
//! This module must not know how a connection is made; module `nats` makes it.

mod acknowledged_bounds;
mod api;
mod commit_codec;
mod fencing;
mod first_message;
pub mod identity;
mod lease;
mod lease_lapse;
mod lease_renewal;
mod open;
mod partition_count;
mod periodic_thread;
mod projection_alignment;
mod projection_catch_up;
mod projection_check;
mod promote;
mod publish;
mod repair;
mod repair_note;
mod set_aside;
mod settings;
mod standby;
mod stream_copier;
mod stream_damage;
mod stream_monitor;
mod stream_reader;
mod stream_reading;
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

pub use acknowledged_bounds::{AcknowledgedMark, ProjectionHead, ProjectionReport};
pub use commit_codec::FORMAT as STREAM_FORMAT;
pub use identity::JoiningHost;
pub use lease::{LeaseHandover, MemberId, this_process};
pub use projection_check::{StreamAgreement, compare_with_stream};
pub use promote::{PromotedJournal, PromotionPhase, promote};
pub use repair::{RepairSource, StreamRepair, repair};
pub use repair_note::recorded;
pub use standby::{LeaseCheck, Standby};
pub use stream_damage::{StreamContent, StreamDamage, refuse_payloads_in_stream, stream_content};
pub use takeover::StreamTakeover;

/// Names and settings of a journal on JetStream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Name of the organism.
    pub organism: String,
    /// Prefix of the names of the organism's streams.
    pub stream: String,
    pub partition: u32,
    /// Number of partitions; fixed for the life of a journal.
    pub partitions: u32,
    /// Number of replicas of the stream. Each replica is on another server.
    pub replicas: u32,
    pub durability: StreamDurability,
    /// Credentials of the servers' system account; `None` if the config names none. This account
    /// may query whether the servers sync a message before they acknowledge it.
    pub system: Option<Box<nats::NatsCredentials>>,
    /// Public keys of the other hosts of this organism. Checkpoints that were signed with these
    /// keys are trusted.
    pub known_keys: Vec<String>,
    /// Directory of this host into which checkpoints are copied; `None` if they are not copied.
    pub checkpoints: Option<PathBuf>,
}

/// When the servers sync a message, as the config states it: before or after they acknowledge the
/// message. Only the system account of the servers can verify this statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum StreamDurability {
    /// The servers acknowledge a message before they sync it.
    #[default]
    #[serde(rename = "lazy")]
    Lazy,
    /// The servers sync a message before they acknowledge it (`sync_interval: always`).
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

    /// Returns the name of the bucket with the leases of all partitions.
    pub fn bucket(&self) -> String {
        format!("{}-pumps", self.stream)
    }

    /// Returns the key of this partition's lease in the bucket of leases.
    pub fn lease(&self) -> String {
        format!("$KV.{}.{}", self.bucket(), self.partition)
    }

    /// Returns the key under which the bucket of leases stores the journal's number of partitions.
    pub fn count(&self) -> String {
        format!("$KV.{}.partitions", self.bucket())
    }
}

/// A journal in a stream, opened for writing.
pub type StreamJournal = JournalWriter<StreamLog>;

/// The log of a journal on JetStream: a stream to which this pump alone writes.
#[derive(Debug)]
pub struct StreamLog {
    watch: LeadershipWatch,
    publisher: StreamPublisher,
    takeover: StreamTakeover,
    damage: StreamDamage,
}

impl StreamJournal {
    /// Returns the part of the stream that MACs or signed checkpoints proved to be genuine when
    /// this pump took over.
    pub fn takeover(&self) -> &StreamTakeover {
        &self.log.takeover
    }

    /// Returns the damage that an operator accepted when this pump took over the stream.
    pub fn damage(&self) -> &StreamDamage {
        &self.log.damage
    }

    /// Returns a handle with which the next holder of the lease can be set. The handle stays valid
    /// after this journal was moved to another OS thread.
    pub fn handover(&self) -> LeaseHandover {
        self.log.watch.handover()
    }
}

impl Log for StreamLog {
    const HAS_PROJECTION: bool = true;
    const REST: Duration = limits::LEASE_RENEWAL_INTERVAL;

    fn check(&self) -> Result<(), Error> {
        self.watch.check(self.publisher.epoch)
    }

    fn verify_lead(&self) -> Result<(), Error> {
        self.watch.verify_after_lapse(self.publisher.epoch)?;
        self.publisher.verify_lead()
    }

    fn append(
        &mut self,
        group: &LogGroup<'_>,
        _: &mut JournalFile,
        _: &mut TreeHeads,
    ) -> Result<LogMark, Error> {
        self.watch.verify_after_lapse(self.publisher.epoch)?;
        let (seq, digest) = self.publisher.publish(&CommitEncoder::of(group))?;
        Ok(LogMark { seq, digest })
    }

    fn confirm(&mut self, mark: LogMark, journal: Uuid, position: Position, hash: Digest) {
        let seq = mark.seq;
        self.publisher.put(seq);
        self.watch.acknowledge(AcknowledgedMark { journal, seq, position, hash });
    }
}

/// Maps a failed creation of a stream to an error.
fn creation_failed(server: String, what: &str, failed: ApiFailure) -> Error {
    match failed {
        ApiFailure::NoResponse(NoResponse::NoResponders(_)) => {
            let detail = format!("{what}: JetStream does not answer; is it enabled here?");
            Error::Unavailable { detail }
        }
        ApiFailure::NoResponse(NoResponse::Denied(denied)) => Error::Denied(denied),
        ApiFailure::Refused { .. } if !failed.is_full() => {
            Error::UnsafeServer { server, detail: format!("{what}: {failed}") }
        }
        other => read_failed(what, other),
    }
}

/// Maps a failed request to a retryable error.
fn unavailable(what: &str, failed: &ApiFailure) -> Error {
    match failed {
        ApiFailure::NoResponse(NoResponse::Denied(denied)) => Error::Denied(denied.clone()),
        other => Error::Unavailable { detail: format!("{what}: {other}") },
    }
}

/// Maps a failed read of a stream to an error.
fn read_failed(what: &str, failed: ApiFailure) -> Error {
    match failed {
        ApiFailure::NoResponse(NoResponse::Denied(denied)) => Error::Denied(denied),
        ApiFailure::NoResponse(away) => Error::Unavailable { detail: format!("{what}: {away}") },
        full if full.is_full() => Error::Full { detail: format!("{what}: {full}") },
        other => Error::broken(0, format!("{what}: {other}")),
    }
}
