//! Publishes the part of a journal's file that the journal's stream lacks.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Checkpoint, Error};
use crate::limits;

use super::Options;
use super::api::{JetStreamApi, StreamDescription};
use super::commit_codec::{CommitEncoder, JournalIdentity};
use super::lease_renewal::LeaseRenewal;
use super::open::about;
use super::publish::StreamPublisher;
use super::stream_monitor::LeadershipWatch;

/// Copies records, checkpoints and files of a journal into its stream, unchanged, so that the hash
/// chain continues.
pub struct StreamCopier<'c> {
    pub publisher: StreamPublisher,
    pub watch: LeadershipWatch,
    reader: &'c JournalReader,
    options: &'c Options,
}

impl<'c> StreamCopier<'c> {
    /// Creates a copier for the parts of a journal that the journal's stream lacks. Also starts to
    /// monitor the stream. `epoch` is the epoch of the last pump that wrote the journal.
    pub fn start(
        api: &JetStreamApi,
        options: &'c Options,
        renewal: LeaseRenewal,
        info: StreamDescription,
        reader: &'c JournalReader,
        epoch: u32,
    ) -> Result<Self, Error> {
        let last = Arc::new(AtomicU64::new(info.state.last_seq));
        let watch = LeadershipWatch::start(api, options, renewal, info.created, Arc::clone(&last))?;
        let mut publisher = StreamPublisher::new(api, options, last);
        publisher.epoch = epoch;
        Ok(Self { publisher, watch, reader, options })
    }

    /// Publishes the first message of the stream. The message names `journal` and states that this
    /// journal is being moved. No pump writes to the stream until the message of
    /// [`CommitEncoder::moved`] ends the move.
    pub fn begin(&self, journal: Uuid) -> Result<(), Error> {
        self.publish(&CommitEncoder::about(JournalIdentity {
            moving: true,
            ..about(self.options, journal)
        }))
    }

    /// Publishes the files of the journal that the stream lacks. `present` contains the digests of
    /// the files that the stream has.
    pub fn publish_blobs(&self, present: &HashSet<Digest>) -> Result<(), Error> {
        let digests = self.reader.blobs()?;
        for digest in digests.iter().filter(|digest| !present.contains(digest)) {
            let gone = || Error::broken(0, format!("blob {digest} is gone"));
            let bytes = self.reader.blob(*digest)?.ok_or_else(gone)?;
            self.publish(&CommitEncoder::default().blob(*digest, &bytes))?;
        }

        Ok(())
    }

    /// Publishes the records after position `after`, up to and including `last`, in groups. Each
    /// checkpoint follows the records that it covers. After each full group, calls `published` with
    /// the position of the group's last record. Does not call `published` for the last group if it
    /// is not full.
    pub fn publish_records(
        &self,
        after: Position,
        last: Position,
        checkpoints: &[Checkpoint],
        published: &mut dyn FnMut(Position),
    ) -> Result<(), Error> {
        let mut checkpoints = checkpoints.iter().peekable();
        let mut group = CommitEncoder::default();
        self.reader.rows(Position(after.0 + 1), last, &mut |row| {
            let position = row.place.position;
            while let Some(due) = checkpoints.next_if(|due| due.position < position) {
                group = std::mem::take(&mut group).checkpoint(due);
            }

            group = std::mem::take(&mut group).step(&row.place, &row.encoded());
            if group.size() >= limits::PROMOTION_GROUP_BYTES {
                self.publish(&std::mem::take(&mut group))?;
                published(position);
            }
            Ok(())
        })?;

        let group = checkpoints.fold(group, CommitEncoder::checkpoint);
        match group.size() {
            0 => Ok(()),
            _ => self.publish(&group),
        }
    }

    /// Publishes a group of journal entries; retries for a limited time if the server is
    /// unreachable or full.
    pub fn publish(&self, group: &CommitEncoder) -> Result<(), Error> {
        let until = Instant::now() + limits::PROMOTION_TIMEOUT;
        loop {
            self.watch.check(self.publisher.epoch)?;
            match self.publisher.publish(group) {
                Err(Error::Full { .. } | Error::Unavailable { .. }) if Instant::now() < until => {
                    std::thread::sleep(limits::STREAM_RETRY_INTERVAL);
                }
                published => {
                    self.publisher.put(published?.0);
                    return Ok(());
                }
            }
        }
    }
}
