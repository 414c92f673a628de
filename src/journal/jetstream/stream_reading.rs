//! Reads a whole stream, and compares it with everything that this host and the lease know, to find
//! out whether the stream needs a repair.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::Error;
use crate::journal::log::StreamItem;

use super::acknowledged_bounds::{PumpDirectories, StreamBounds};
use super::api::JetStreamApi;
use super::lease::Lease;
use super::projection_alignment::{ComparedProjection, ProjectionAlignment};
use super::stream_reader::StreamReader;
use super::{Options, first_message};

/// A stream, compared with everything that a host and the lease know.
#[derive(Debug)]
pub(super) struct StreamReading {
    /// The last record of the stream.
    pub last: Position,
    /// The first record that differs from a known one at the same position; `None` if there is no
    /// such record.
    pub forked_at: Option<Position>,
    /// The last known record that the stream lacks, or has replaced with a different record. `None`
    /// if there is no such record.
    pub lost: Option<Position>,
    /// Whether the stream has everything that is known.
    pub is_whole: bool,
}

impl StreamReading {
    /// Reads the stream up to message `last_seq`, and compares it with everything that `host` and
    /// the lease know: all records and files of the projection, and each record that the state
    /// directory, the copied checkpoints or the lease name.
    pub fn of(
        api: &JetStreamApi,
        options: &Options,
        host: &PumpDirectories,
        lease: &Lease,
        last_seq: u64,
    ) -> Result<Self, Error> {
        let bounds = StreamBounds::of_host(options, host, lease)?;
        if last_seq == 0 {
            return Ok(Self {
                last: Position(0),
                forked_at: None,
                lost: bounds.missing(Uuid::nil(), Position(0), &|_| None).last().copied(),
                is_whole: bounds.check_empty().is_ok(),
            });
        }

        let known = bounds.positions();
        let mut hashes = BTreeMap::new();
        let mut last = Position(0);
        StreamReader::new(api, options).each_group(last_seq, &mut |_, contents| {
            for item in &contents.taken {
                if let StreamItem::Step(row) = item {
                    last = row.place.position;
                    if known.contains(&last) {
                        hashes.insert(last, row.hash);
                    }
                }
            }
            Ok(())
        })?;

        let journal = first_message::journal(api, options)?;
        let hash_at = |at: Position| hashes.get(&at).copied();
        let has_known = match bounds.check(journal, last_seq, last, &|at| Ok(hash_at(at))) {
            Err(Error::StreamShorter { .. } | Error::StreamForked { .. }) => false,
            checked => checked.map(|()| true)?,
        };

        let missing = bounds.missing(journal, last, &hash_at);
        let forked_at = missing.first().copied().filter(|first| *first <= last);
        let lost = missing.last().copied();
        let mut reading = Self { last, forked_at, lost, is_whole: has_known };
        reading.compare_projection(api, options, host, last_seq)?;
        Ok(reading)
    }

    /// Compares the stream with the projection of `host`, if there is one.
    fn compare_projection(
        &mut self,
        api: &JetStreamApi,
        options: &Options,
        host: &PumpDirectories,
        last_seq: u64,
    ) -> Result<(), Error> {
        let projection = match ComparedProjection::open(&host.data) {
            Err(Error::Missing { .. }) => return Ok(()),
            opened => opened?,
        };

        let alignment = projection.compare(api, options, last_seq)?.alignment;
        self.is_whole &= matches!(alignment, ProjectionAlignment::Whole { .. });
        if let ProjectionAlignment::Forked(at) = alignment {
            self.forked_at = Some(self.forked_at.map_or(at, |known| known.min(at)));
            self.lost = self.lost.max(Some(projection.last));
        }

        Ok(())
    }
}
