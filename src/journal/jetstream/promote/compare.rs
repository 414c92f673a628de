//! Compares the content of a stream with the journal that is moved there.

use std::collections::HashSet;

use crate::ids::{Digest, Position};
use crate::journal::log::LogMark;
use crate::journal::record_codec::StoredRow;
use crate::journal::sqlite::StreamItem;
use crate::journal::{Checkpoint, Error, HeadMac};

use super::super::Options;
use super::super::api::JetStreamApi;
use super::super::commit_codec::CommitContents;
use super::super::stream_reader::StreamReader;
use super::PromotionSource;

/// The error for a message that does not belong to the journal.
fn strange(options: &Options, seq: u64, detail: &str) -> Error {
    Error::Strange {
        path: format!("the stream {}", options.stream()),
        detail: format!(
            "keeps something else (message {seq}: {detail}): name another `stream`, or remove that \
             one if nobody needs it"
        ),
    }
}

/// How much of the journal the stream has.
#[derive(Debug, Default)]
pub struct CopiedPrefix {
    pub begun: bool,
    pub records: u64,
    pub checkpoints: usize,
    pub blobs: HashSet<Digest>,
    /// The final count of records, if the stream states that it is complete.
    pub moved: Option<u64>,
    /// The last message of the last complete group.
    pub mark: LogMark,
}

impl CopiedPrefix {
    /// Reads up to message `last`. Anything that does not belong to the journal is
    /// [`Error::Strange`].
    pub fn read(
        api: &JetStreamApi,
        options: &Options,
        source: &PromotionSource,
        last: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, Error> {
        let mut found = Self::default();
        let reader = StreamReader { damaged: strange, ..StreamReader::new(api, options) };
        reader.each_group(last, &mut |mark, contents| {
            let taken = found.take(options, source, contents)?;
            taken.map_err(|detail| strange(options, mark.seq, &detail))?;
            found.mark = mark;
            progress(found.records);
            Ok(())
        })?;
        Ok(found)
    }

    /// The inner error says how the content differs from the journal.
    fn take(
        &mut self,
        options: &Options,
        source: &PromotionSource,
        contents: CommitContents<'_>,
    ) -> Result<Result<(), String>, Error> {
        if let Some(about) = &contents.journal {
            let same = (about.id, &*about.name, about.partition, about.partitions)
                == (source.journal, &options.organism, options.partition, options.partitions);
            if !same || !about.moving || self.begun {
                let whose = format!("the journal {} of `{}`", about.id, about.name);
                return Ok(Err(whose));
            }
            self.begun = true;
        }

        if !self.begun {
            return Ok(Err("it does not say whose journal begins here".to_owned()));
        }

        if contents.epoch.is_some_and(|epoch| epoch > source.epoch) {
            return Ok(Err("a pump went on with it there".to_owned()));
        }

        for taken in &contents.taken {
            let taken = match taken {
                StreamItem::Step(row) => self.step(source, row)?,
                StreamItem::Mac(mac) => self.mac(source, *mac)?,
                StreamItem::Checkpoint(checkpoint) => self.checkpoint(source, checkpoint),
                StreamItem::Blob(digest, bytes) => self.blob(source, *digest, bytes),
            };
            if taken.is_err() {
                return Ok(taken);
            }
        }

        self.moved = contents.moved.or(self.moved);

        match contents.moved {
            Some(records) if records != self.records => {
                Ok(Err(format!("{records} records are not what stands before it")))
            }
            _ => Ok(Ok(())),
        }
    }

    fn step(
        &mut self,
        source: &PromotionSource,
        row: &StoredRow<'_>,
    ) -> Result<Result<(), String>, Error> {
        let expected = Position(self.records + 1);
        if row.place.position != expected || expected > source.last {
            return Ok(Err(format!("record {}, not {expected}", row.place.position)));
        }

        let same = source.reader.row_is(expected, &mut |ours| ours.is_same_record(row))?;
        self.records += 1;
        Ok(same.then_some(()).ok_or_else(|| format!("another record {expected}")))
    }

    fn mac(&self, source: &PromotionSource, mac: HeadMac) -> Result<Result<(), String>, Error> {
        let at = Position(self.records);
        let same = source.reader.row_is(at, &mut |ours| ours.mac == Some(mac))?;
        Ok(same.then_some(()).ok_or_else(|| format!("another MAC over {at}")))
    }

    fn checkpoint(
        &mut self,
        source: &PromotionSource,
        checkpoint: &Checkpoint,
    ) -> Result<(), String> {
        let ours = source.checkpoints.get(self.checkpoints);
        if ours != Some(checkpoint) || checkpoint.position.0 != self.records {
            return Err(format!("another checkpoint over {}", checkpoint.position));
        }
        self.checkpoints += 1;
        Ok(())
    }

    fn blob(
        &mut self,
        source: &PromotionSource,
        digest: Digest,
        bytes: &[u8],
    ) -> Result<(), String> {
        if Digest::of(bytes) != digest || source.blobs.binary_search(&digest).is_err() {
            return Err(format!("a blob {digest} that the journal does not have"));
        }
        self.blobs.insert(digest);
        Ok(())
    }

    pub fn is_whole(&self, source: &PromotionSource) -> bool {
        self.begun
            && self.records == source.last.0
            && self.checkpoints == source.checkpoints.len()
            && self.blobs.len() == source.blobs.len()
    }

    /// Describes what is missing; `None` if the stream is complete and nothing follows.
    pub fn missing(&self, source: &PromotionSource, last: u64) -> Option<String> {
        if !self.is_whole(source) {
            let Self { records, checkpoints, .. } = self;
            return Some(format!("it has {records} records and {checkpoints} checkpoints"));
        }

        if self.moved != Some(source.last.0) || self.mark.seq != last {
            return Some("it does not end where it says so".to_owned());
        }

        None
    }
}
