//! Damage in a stream that a pump refuses until an operator accepts it: records that no MAC of a
//! pump covers, a stream that was written before MACs existed, and blanked payloads. The damage is
//! found before anything is written, because nothing can be removed from a stream.

use std::collections::BTreeSet;
use std::path::Path;

use crate::ids::Position;
use crate::journal::log::StreamItem;
use crate::journal::redactions::refuse_blanked;
use crate::journal::sqlite::{JournalReader, RecordProof};
use crate::journal::{Error, OperatorAcceptance};
use crate::mutant::mutant;
use crate::nats;
use crate::thread::text::InternedNames;

use super::api::code;
use super::open::connect;
use super::stream_reader::StreamReader;
use super::{Options, read_failed};

/// Damage in the records of a stream, up to the last record. Only an operator can accept this
/// damage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamDamage {
    /// First and last of the unproved records at the end of the stream; `None` if there are none.
    ///
    /// - Usually, these are the records after the last MAC.
    /// - If the last MAC of this host's key is wrong, these are all records after the last record
    ///   that a right MAC of this host's key covers. MACs of other hosts prove nothing in this
    ///   case.
    pub uncovered: Option<(Position, Position)>,
    /// Position of the stream's last record, if no record has a MAC and the stream may have been
    /// written before MACs existed. Otherwise, `None`.
    pub without_mac: Option<Position>,
    /// Records with blanked payloads that no recorded action of an operator accepts.
    pub redacted: Vec<Position>,
}

impl StreamDamage {
    /// Finds the damage in the part of a stream that `proof` covers.
    pub fn of(proof: &RecordProof<'_>) -> Self {
        let RecordProof { coverage, redactions, last, is_old } = *proof;
        let is_without_mac = coverage.last().is_none() && last > Position(0);
        Self {
            uncovered: coverage.uncovered_end(last, is_old).map(|first| (first, last)),
            without_mac: (is_without_mac && is_old).then_some(last),
            redacted: redactions.unrecorded().collect(),
        }
    }

    /// Returns the first and the last of the unproved records at the end of the stream: no MAC
    /// proves that a pump wrote them. Returns `None` if there are no such records.
    pub fn unproved(&self) -> Option<(Position, Position)> {
        self.uncovered.or(self.without_mac.map(|last| (Position(1), last)))
    }

    /// Returns an error for the damage, unless the operator accepts the damage.
    pub fn refuse(&self, accept: OperatorAcceptance, stream: &str) -> Result<(), Error> {
        if !accept.key && !mutant("trust-the-mac") {
            if let Some((first, last)) = self.uncovered {
                return Err(Error::UncoveredStream { stream: stream.to_owned(), first, last });
            }
            if let Some(records) = self.without_mac.filter(|_| !accept.without_mac) {
                return Err(Error::WithoutMac { path: stream.to_owned(), records });
            }
        }

        refuse_blanked(self.redacted.first().copied(), accept)
    }
}

/// Kinds of content of a stream. The kind decides whether an operator must accept the content
/// before a pump uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamContent {
    NoRecords,
    /// The stream has records but no MAC. Such a stream was written before MACs existed.
    WithoutMac,
    WithMac,
}

/// Returns whether the stream that `options` names has records, and whether any of them has a MAC.
/// Stops reading at the first record with a MAC.
pub fn stream_content(servers: &nats::Options, options: &Options) -> Result<StreamContent, Error> {
    let api = connect(servers, options)?;
    let name = options.stream();
    let last = match api.info(&name) {
        Err(failed) if failed.is(code::STREAM_NOT_FOUND) => return Ok(StreamContent::NoRecords),
        info => info.map_err(|f| read_failed(&format!("the stream {name}"), f))?.state.last_seq,
    };

    let mut content = StreamContent::NoRecords;
    let read = StreamReader::new(&api, options).each_group(last, &mut |_, contents| {
        for item in &contents.taken {
            let StreamItem::Step(row) = item else { continue };
            content = StreamContent::WithoutMac;
            if row.mac.is_some() {
                content = StreamContent::WithMac;
                // Ends the read; the error is dropped below.
                return Err(Error::Stopped { cause: "a MAC was found".to_owned() });
            }
        }
        Ok(())
    });
    match content {
        StreamContent::WithMac => Ok(content),
        StreamContent::NoRecords | StreamContent::WithoutMac => read.map(|()| content),
    }
}

/// Returns [`Error::PayloadInStream`] if the stream still has a payload that is blanked in the
/// projection in `data`. `blanked` are the positions of the records with blanked payloads. Such a
/// redaction would be undone, because every host copies the stream.
pub fn refuse_payloads_in_stream(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
    blanked: &BTreeSet<Position>,
) -> Result<(), Error> {
    if blanked.is_empty() {
        return Ok(());
    }

    let projection = JournalReader::open(data)?;
    let api = connect(servers, options)?;
    let name = options.stream();
    let info = api.info(&name).map_err(|f| read_failed(&format!("the stream {name}"), f))?;
    let mut names = InternedNames::default();
    StreamReader::new(&api, options).each_group(info.state.last_seq, &mut |_, contents| {
        for item in &contents.taken {
            let StreamItem::Step(row) = item else { continue };
            let position = row.place.position;
            if !blanked.contains(&position) {
                continue;
            }
            let ours = projection.existing_record(position)?.record;
            let theirs = row.unseal(position, &mut names)?.record;
            let mut pairs = ours.payloads().zip(theirs.payloads());
            if pairs.any(|(ours, theirs)| ours.is_redacted() && !theirs.is_redacted()) {
                let stream = name.clone();
                return Err(Error::PayloadInStream { stream, position, data: data.to_owned() });
            }
        }
        Ok(())
    })
}
