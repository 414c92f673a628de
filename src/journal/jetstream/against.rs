//! Comparing a projection with the stream it follows, record by record.

use std::collections::BTreeSet;
use std::path::Path;

use crate::ids::{Digest, Position};
use crate::journal::row::Row;
use crate::journal::sqlite::{Reader, Taken};
use crate::journal::{Checkpoint, Error, HeadMac};
use crate::nats;

use super::open::connect;
use super::stream_reader::StreamReader;
use super::tail::journal;
use super::{Options, refused};

/// What a comparison found, where nothing differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamAgreement {
    /// Records that stand in both.
    pub records: u64,
    /// Records that the stream has and the projection does not have yet.
    pub ahead: u64,
}

/// Holds the projection in `data` against the stream of `options`. [`Error::Broken`] where a record
/// differs, or where the stream ends before the projection does.
pub fn compare_with_stream(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
) -> Result<StreamAgreement, Error> {
    let reader = Reader::open(data)?;
    let last = reader.last()?;
    // Read before the stream's end is, which a pump may move on meanwhile.
    let checkpoints = reader.checkpoints()?;
    let blobs = reader.blobs()?.into_iter().collect();
    let api = connect(servers, options)?;
    let name = options.stream();
    let info = api.info(&name).map_err(|f| refused(&format!("the stream {name}"), f))?;
    let theirs = journal(&api, options)?;
    if theirs != reader.about()?.journal {
        return Err(Error::broken(0, format!("the stream {name} keeps the journal {theirs}")));
    }

    let mut comparison =
        Comparison { last, records: 0, checkpoints, blobs, reader: &reader, name: &name };
    let last_seq = info.state.last_seq;
    StreamReader::new(&api, options)
        .each_group(last_seq, &mut |_, contents| comparison.take(&contents.taken))?;
    comparison.judge_rest()?;
    let records = comparison.records;
    if records < last.0 {
        let detail = format!("the stream {name} ends here, but the projection goes up to {last}");
        return Err(Error::broken(records + 1, detail));
    }
    Ok(StreamAgreement { records: last.0, ahead: records - last.0 })
}

struct Comparison<'c> {
    reader: &'c Reader,
    /// Of the projection.
    last: Position,
    /// So many records of the stream were seen.
    records: u64,
    /// Those of the projection that were not seen in the stream.
    checkpoints: Vec<Checkpoint>,
    blobs: BTreeSet<Digest>,
    name: &'c str,
}

impl Comparison<'_> {
    /// What the projection has besides records came from the stream, too.
    fn judge_rest(&self) -> Result<(), Error> {
        let name = self.name;
        if let Some(line) = self.checkpoints.first() {
            let detail = format!("its checkpoint does not stand in the stream {name}");
            return Err(Error::broken(line.position.0, detail));
        }
        match self.blobs.first() {
            Some(blob) => {
                let detail = format!("blob {blob} does not stand in the stream {name}");
                Err(Error::broken(0, detail))
            }
            None => Ok(()),
        }
    }

    fn take(&mut self, taken: &[Taken<'_>]) -> Result<(), Error> {
        for (at, one) in taken.iter().enumerate() {
            let theirs = match one {
                Taken::Step(theirs) => theirs,
                Taken::Checkpoint(line) => {
                    self.checkpoints.retain(|ours| ours != line);
                    continue;
                }
                Taken::Blob(digest, bytes) if Digest::of(bytes) == *digest => {
                    self.blobs.remove(digest);
                    continue;
                }
                Taken::Blob(..) | Taken::Mac(_) => continue,
            };
            self.records += 1;
            let position = Position(self.records);
            if theirs.place.position != position {
                let detail = format!("the stream has record {} here", theirs.place.position);
                return Err(Error::broken(position.0, detail));
            }
            if position > self.last {
                continue;
            }
            let mac: Option<HeadMac> = match taken.get(at + 1) {
                Some(Taken::Mac(mac)) => Some(*mac),
                _ => None,
            };
            let is_same = |ours: &Row<'_>| ours.is_same_record(theirs) && ours.mac == mac;
            if !self.reader.row_is(position, &is_same)? {
                let detail = format!("it is not the record of the stream {}", self.name);
                return Err(Error::broken(position.0, detail));
            }
        }
        Ok(())
    }
}
