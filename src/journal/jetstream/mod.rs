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

use crate::ids::{Digest, Position};
use crate::limits;
use crate::nats::{self, Away};

use super::log::{Log, LogGroup, LogMark};
use super::sqlite::JournalFile;
use super::writer::JournalWriter;
use super::{Error, Heads};
use api::Failed;
use group::Group;
use publish::Publisher;
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

/// A journal in a stream.
pub type Journal = JournalWriter<StreamLog>;

/// A stream that this pump leads.
#[derive(Debug)]
pub struct StreamLog {
    watch: Watch,
    publisher: Publisher,
    takeover: Takeover,
}

impl Journal {
    /// How much of the stream was proved when this pump took it over.
    pub fn takeover(&self) -> &Takeover {
        &self.log.takeover
    }

    /// Says who is to have the lease next, also when the journal is in other hands.
    pub fn bequest(&self) -> Bequest {
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
        _: &mut Heads,
    ) -> Result<LogMark, Error> {
        let (seq, digest) = self.publisher.publish(&Group::of(group))?;
        Ok(LogMark { seq, digest })
    }

    fn confirm(&mut self, mark: LogMark, journal: Uuid, position: Position, hash: Digest) {
        let seq = mark.seq;
        self.publisher.put(seq);
        self.watch.acknowledge(Acknowledged { journal, seq, position, hash });
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
