//! Repairs a stream that is forked, or that lacks acknowledged records at its end. There are two
//! kinds of repair:
//!
//! - The missing records are published again, from a projection that has all records of the stream.
//! - An operator continues with the stream as it is.
//!
//! Neither kind begins while another process has records that the repair would lose.
//!
//! Before a repair begins, this module writes a note about it into the state directory. The caller
//! records the finished repair in the journal, and then removes the note. So an interrupted repair
//! can be resumed, and every repair is recorded only once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::durable_file;
use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::journal::checkpoint::CheckpointFile;
use crate::journal::sqlite::{self, DATABASE, JournalReader, LockedJournalDir};
use crate::journal::{Error, KeyId};
use crate::limits;
use crate::mutant::mutant;
use crate::nats;

use super::acknowledged_bounds::{AcknowledgedMark, PumpDirectories, StreamBounds, hash_at};
use super::api::{JetStreamApi, StreamDescription, code};
use super::commit_codec::CommitEncoder;
use super::identity::JoiningHost;
use super::lease::{Lease, LeaseEntry};
use super::lease_renewal::LeaseRenewal;
use super::open::{connect, found};
use super::projection_alignment::{ComparedProjection, ProjectionAlignment, ProjectionComparison};
use super::stream_copier::StreamCopier;
use super::stream_reading::StreamReading;
use super::{Options, creation_failed, first_message, settings};

/// The side whose records are kept if a stream and a projection differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepairSource {
    /// Keeps the records of this host's projection, and publishes again those that the stream
    /// lacks.
    Projection,
    /// Keeps the stream, and sets this host's projection aside.
    Stream,
}

/// A repair of a stream. A note in the state directory contains this value, from before the repair
/// begins until the repair is recorded in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRepair {
    pub from: RepairSource,
    /// The last record of the stream before the repair.
    pub kept: Position,
    /// The last record that the repair publishes again or gives up.
    pub acknowledged: Position,
    /// The first record that the repair gives up although the stream has a record at this position:
    /// the stream's record is a different one. `None` if the stream is not forked.
    #[serde(rename = "forked_at", default, skip_serializing_if = "Option::is_none")]
    pub forked_at: Option<Position>,
    /// Path to which the projection was moved aside; `None` if no projection was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<PathBuf>,
}

/// Reconciles stream and projection. Returns `None` if nothing needs repair. The caller must record
/// the returned repair, then call [`recorded`].
///
/// Returns [`Error::OtherHostAhead`] if a repair on another host could keep more records. Nothing
/// was changed then.
///
/// While another process pumps the stream, changes nothing. If a repair is needed, returns
/// [`Error::StreamForked`] with both sides, or [`Error::InUse`].
pub fn repair(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
    state: &Path,
    from: Option<RepairSource>,
) -> Result<Option<StreamRepair>, Error> {
    let opening = LockedJournalDir::begin(data, state)?.with_copies(options.checkpoints.as_deref());
    let api = connect(servers, options)?;
    let member = JoiningHost::new(data, state);
    let lease = Lease::of(&api, options, LeaseEntry::here(data), &member)?;
    let noted = read_note(options, state)?;
    let free = match lease.wait_until_free(options) {
        Err(Error::InUse { holder, .. }) if noted.is_none() => {
            let data = data.to_owned();
            let state = state.to_owned();
            let host = PumpDirectories { data, state };
            return compare_while_pumped(&api, options, &host, &lease, holder);
        }
        free => free?,
    };
    lease.take(free, options)?;
    let renewal = LeaseRenewal::start(options, Arc::new(lease))?;
    let host = LockedHost { api: &api, options, data, state, opening: &opening, renewal };
    let is_pending = noted.is_some();
    let noted = noted.filter(|noted| from.is_none_or(|from| from == noted.from));
    match from.or(noted.as_ref().map(|noted| noted.from)) {
        Some(RepairSource::Stream) => host.keep_stream(noted, is_pending),
        _ => host.publish_rest(noted, from),
    }
}

/// Compares the stream, which `holder` pumps, with everything that this host knows. Returns
/// `Ok(None)` if nothing needs repair.
fn compare_while_pumped(
    api: &JetStreamApi,
    options: &Options,
    host: &PumpDirectories,
    lease: &Lease,
    holder: String,
) -> Result<Option<StreamRepair>, Error> {
    let stream = options.stream();
    let info = match api.info(&stream) {
        Ok(info) => info,
        // The pump ends as soon as it notices that the stream is gone.
        Err(failed) if failed.is(code::STREAM_NOT_FOUND) => {
            return Err(Error::InUse { path: stream, holder });
        }
        Err(failed) => {
            let what = format!("the stream {stream}");
            return Err(creation_failed(api.link.server(), &what, failed));
        }
    };
    let reading = StreamReading::of(api, options, host, lease, info.state.last_seq)?;
    if reading.is_whole {
        return Ok(None);
    }

    let StreamReading { last, forked_at, lost, .. } = reading;
    let Some(position) = forked_at else {
        return Err(Error::InUse { path: stream, holder });
    };

    let sources = format!(
        "what {} and {} show, which goes up to record {} (the stream goes up to record {last}, and \
         is pumped by {holder}; `--from stream` keeps that, if you first stop the organism there, \
         too, so that the repair can be recorded)",
        host.data.display(),
        host.state.display(),
        lost.unwrap_or(position),
    );
    Err(Error::StreamForked { stream, position, sources })
}

/// Removes the note of a repair from the state directory. Must be called only after the repair was
/// recorded in the journal.
pub fn recorded(options: &Options, state: &Path) -> Result<(), Error> {
    let path = note_path(options, state);
    durable_file::remove(&path).map_err(Error::io(path.display().to_string()))
}

fn note_path(options: &Options, state: &Path) -> PathBuf {
    state.join(format!("{}.repair", options.stream()))
}

fn read_note(options: &Options, state: &Path) -> Result<Option<StreamRepair>, Error> {
    let path = note_path(options, state);
    let note = durable_file::read(&path).and_then(|bytes| match bytes {
        Some(bytes) => serde_json::from_slice(&bytes).map_err(std::io::Error::other),
        None => Ok(None),
    });
    note.map_err(Error::io(path.display().to_string()))
}

fn write_note(options: &Options, state: &Path, note: &StreamRepair) -> Result<(), Error> {
    if mutant("forget-the-repair") {
        return Ok(());
    }

    let path = note_path(options, state);
    let bytes = serde_json::to_vec(note).expect("plain data is JSON");
    let written = durable_file::replace(&path, &path.with_extension("repair.new"), &bytes);
    written.map_err(Error::io(path.display().to_string()))
}

/// A host that is being repaired: this process holds the locks of the host's directories and the
/// lease of the partition.
struct LockedHost<'h> {
    api: &'h JetStreamApi,
    options: &'h Options,
    data: &'h Path,
    state: &'h Path,
    opening: &'h LockedJournalDir,
    renewal: LeaseRenewal,
}

impl LockedHost<'_> {
    fn info(&self) -> Result<Option<StreamDescription>, Error> {
        let name = self.options.stream();
        match self.api.info(&name) {
            Ok(info) => Ok(Some(info)),
            Err(failed) if failed.is(code::STREAM_NOT_FOUND) => Ok(None),
            Err(failed) => {
                Err(creation_failed(self.api.link.server(), &format!("the stream {name}"), failed))
            }
        }
    }

    /// Publishes the records and files that only the projection has. Returns `None` if nothing
    /// needs repair.
    fn publish_rest(
        self,
        noted: Option<StreamRepair>,
        from: Option<RepairSource>,
    ) -> Result<Option<StreamRepair>, Error> {
        let Some((journal, _)) = found(self.opening)? else {
            if noted.is_none() {
                self.check_without_projection()?;
            }
            return Ok(noted);
        };

        let projection = ComparedProjection::open(self.data)?;
        let last = projection.last;
        let info = self.info()?;
        let last_seq = info.as_ref().map_or(0, |info| info.state.last_seq);
        let compared = projection.compare(self.api, self.options, last_seq)?;
        if last_seq > 0 && first_message::journal(self.api, self.options)? != journal {
            return Err(self.forked(Position(1), compared.records, last));
        }

        let kept = match compared.alignment {
            ProjectionAlignment::Forked(at) if !mutant("lead-a-fork") => {
                return Err(self.forked(at, compared.records, last));
            }
            ProjectionAlignment::Whole { .. } if noted.is_none() && !self.is_behind_lease(last) => {
                return Ok(None);
            }
            _ => compared.records.min(last),
        };

        // Ordering rule: verified before anything is published, because published records must be
        // intact.
        let uncovered = self.opening.uncovered_end(journal, last)?;
        if let (Some(first), None) = (uncovered.filter(|first| *first > kept), from) {
            return Err(self.unpublished(first, last));
        }

        // Ordering rule: checked before anything is published, because the host then appends the
        // record of the repair, and no later records can be published after it.
        if kept < last {
            self.check_other_hosts(journal, &projection, from.is_some() || noted.is_some())?;
        }

        let from = from.unwrap_or(RepairSource::Projection);
        let fresh = StreamRepair { from, kept, acknowledged: last, forked_at: None, aside: None };
        let note = noted.unwrap_or(fresh);
        write_note(self.options, self.state, &note)?;
        if let Some(hash) = hash_at(self.data, last)? {
            // States the goal in the lease, so that a process that takes over before the end knows
            // how far the stream has to go.
            let known = self.renewal.acknowledged().map_or(Position(0), |known| known.position);
            if known <= last {
                let bound = AcknowledgedMark { journal, seq: 0, position: last, hash };
                self.renewal.acknowledge_now(bound)?;
            }
        }

        failpoint("repair-noted");
        let info = match info {
            Some(info) => info,
            None => {
                let name = self.options.stream();
                let made = self.api.create(&name, &settings::of(self.options));
                made.map_err(|f| {
                    creation_failed(self.api.link.server(), &format!("the stream {name}"), f)
                })?
            }
        };

        self.send(&projection.reader, info, &compared, last)?;
        Ok(Some(note))
    }

    /// Refuses to publish from `projection` if another process has later records of `journal`, or a
    /// different record at some position.
    ///
    /// If the operator did not choose this projection (`is_chosen` is false), also refuses to
    /// publish if one of these may have later records and cannot be queried:
    /// - A process that runs and does not answer.
    /// - Another host whose pump wrote the projection's last record, or an earlier one: a pump of
    ///   that host may have continued the journal after the pump of this host had ended.
    fn check_other_hosts(
        &self,
        journal: Uuid,
        projection: &ComparedProjection,
        is_chosen: bool,
    ) -> Result<(), Error> {
        let last = projection.last;
        let members = StreamBounds::of_members(self.api, self.options);
        if let Some(sources) = members.beyond(last) {
            let ours = format!("its projection goes up to record {last}");
            return Err(self.ahead(&ours, &sources));
        }

        members.check(journal, 0, last, &|at| hash_at(self.data, at))?;
        if is_chosen {
            return Ok(());
        }

        let advice = match (members.silent(), self.other_writer(projection)?) {
            (Some(silent), _) => format!(
                "{silent} did not answer and may have later ones. Repeat the command when it \
                 answers or has ended"
            ),
            (None, Some(key)) => format!(
                "the host with the key {key} (`organism key show`) wrote this record, and may have \
                 later ones. Run `organism repair` on that host first"
            ),
            (None, None) => match self.earlier_writer(projection)? {
                Some(key) => format!(
                    "the host with the key {key} (`organism key show`) has pumped this journal, \
                     too, and may have later ones. Compare this number with that of the same \
                     command there, and repair the host with the higher one"
                ),
                None => return Ok(()),
            },
        };

        let partition = self.options.partition;
        let reason = format!(
            "its projection goes up to record {last}, and {advice}; if no other host has later \
             records, or they are lost, `organism repair --from projection --partitions \
             {partition}` publishes from here"
        );
        Err(Error::OtherHostAhead { stream: self.options.stream(), reason })
    }

    /// Returns the id of the key with which another host's pump wrote the last record of
    /// `projection`. Returns `None` if this host's pump wrote the record, or if the record has no
    /// MAC.
    fn other_writer(&self, projection: &ComparedProjection) -> Result<Option<KeyId>, Error> {
        let sealed = projection.reader.record(projection.last)?;
        let writer = sealed.and_then(|sealed| sealed.mac).map(|mac| mac.key());
        let other = writer.filter(|writer| *writer != self.opening.key_id());
        Ok(other.filter(|_| !mutant("publish-for-another-host")))
    }

    /// Returns the id of another host's key with which a pump wrote the newest record of
    /// `projection` that this host's pump did not write. Returns `None` if there is no such record.
    fn earlier_writer(&self, projection: &ComparedProjection) -> Result<Option<KeyId>, Error> {
        let own = self.opening.key_id();
        let mut end = projection.last.0;
        while end > 0 {
            let begin = end.saturating_sub(limits::SCAN_RECORDS) + 1;
            let records = projection.reader.records(Position(begin), Position(end))?;
            let writers =
                records.iter().rev().filter_map(|sealed| Some(sealed.mac.as_ref()?.key()));
            if let Some(other) = writers.into_iter().find(|writer| *writer != own) {
                return Ok(Some(other).filter(|_| !mutant("publish-for-another-host")));
            }
            end = begin - 1;
        }
        Ok(None)
    }

    /// Returns the error for a repair that would lose records. `ours` states the last record that
    /// this repair could keep, and `sources` names the processes that have later records.
    fn ahead(&self, ours: &str, sources: &str) -> Error {
        let reason = format!(
            "{ours}, and {sources}. Stop the organism there, and run `organism repair` on that host"
        );
        Error::OtherHostAhead { stream: self.options.stream(), reason }
    }

    /// Verifies that the stream has every record that is known from the state directory, the copied
    /// checkpoints or the lease. Called on a host without a projection, because such a host cannot
    /// publish missing records.
    fn check_without_projection(&self) -> Result<(), Error> {
        let last_seq = self.info()?.map_or(0, |info| info.state.last_seq);
        let StreamReading { last, lost, .. } = self.read_stream(last_seq)?;
        let Some(known) = lost.filter(|lost| *lost > last) else { return Ok(()) };

        let end = match last_seq {
            0 => "is gone".to_owned(),
            _ => format!("ends at record {last}"),
        };

        let sources = format!(
            "the notes in {} or the lease in {} go up to record {known}, and {} has no projection \
             to publish the rest from (to begin a new journal, see docs/OPERATIONS.md, A server \
             is down)",
            self.state.display(),
            self.options.bucket(),
            self.data.display()
        );
        Err(Error::StreamShorter { stream: self.options.stream(), end, sources })
    }

    /// Whether the stream has lost messages at its end, but no records; for example, only messages
    /// with checkpoints. In this case, the lease names a message after the stream's last message,
    /// but no record after `last`, the last record of the projection.
    fn is_behind_lease(&self, last: Position) -> bool {
        let seq = self.info().ok().flatten().map_or(0, |info| info.state.last_seq);
        let known = self.renewal.acknowledged();
        known.is_some_and(|known| known.seq > seq && known.position <= last)
    }

    /// Returns the error for the records from `first` to `last` of the projection. These records
    /// were not published, because no MAC of a pump covers them.
    fn unpublished(&self, first: Position, last: Position) -> Error {
        let data = self.data.display();
        let detail = format!(
            "no MAC of a pump covers the records up to {last} of the projection in {data}, so they \
             were not published, because nothing can be taken out of a stream. `organism repair \
             --from stream` sets the projection aside, and `--from projection` publishes them all \
             the same"
        );
        Error::broken(first.0, detail)
    }

    fn forked(&self, position: Position, stream: Position, projection: Position) -> Error {
        let data = self.data.display();
        let name = self.options.stream();
        let sources = format!(
            "the projection in {data}, which goes up to record {projection} (the stream goes up to \
             record {stream}; `--from stream` keeps that, and to keep the projection delete the \
             stream first)"
        );
        Error::StreamForked { stream: name, position, sources }
    }

    fn send(
        self,
        reader: &JournalReader,
        info: StreamDescription,
        compared: &ProjectionComparison,
        last: Position,
    ) -> Result<(), Error> {
        let Self { api, options, renewal, .. } = self;
        let about = reader.about()?;
        let is_empty = info.state.last_seq == 0;
        let copier = StreamCopier::start(api, options, renewal, info, reader, about.epoch)?;
        if is_empty {
            copier.begin(about.journal)?;
        }

        copier.publish_blobs(&compared.blobs)?;

        let kept = compared.records;
        let mut checkpoints = reader.checkpoints()?;
        checkpoints.retain(|checkpoint| checkpoint.position > kept);
        copier
            .publish_records(kept, last, &checkpoints, &mut |_| failpoint("repair-publishing"))?;

        if first_message::first(api, options)?.moving && !compared.has_epoch {
            // No pump continues a newly created stream before this message.
            copier.publish(&CommitEncoder::moved(last.0, about.epoch))?;
        }

        failpoint("repair-published");
        Ok(())
    }

    /// Keeps the stream as it is. Moves the projection aside, together with the state directory's
    /// notes about the projection, and returns the description of the repair.
    ///
    /// If the stream has everything that this host and the lease know, nothing needs repair: moves
    /// nothing and returns `None`. Exception: if `is_pending` is true, completes an interrupted
    /// repair even for such a stream.
    fn keep_stream(
        self,
        noted: Option<StreamRepair>,
        is_pending: bool,
    ) -> Result<Option<StreamRepair>, Error> {
        let Some(info) = self.info()? else {
            let end = "is gone".to_owned();
            let sources = "there is nothing to go on with".to_owned();
            return Err(Error::StreamShorter { stream: self.options.stream(), end, sources });
        };

        if let Some((journal, _)) = found(self.opening)? {
            // The directories may be restored from a backup, which does not note the journal.
            sqlite::note_journal(self.data, self.state, journal)?;
        }

        let note = match noted {
            Some(note) => note,
            None => {
                let reading = self.read_stream(info.state.last_seq)?;
                if reading.is_whole && !is_pending {
                    return Ok(None);
                }

                let last = reading.last;
                let members = StreamBounds::of_members(self.api, self.options);
                if let Some(sources) = members.beyond(last) {
                    let ours = format!("the stream goes up to record {last}");
                    return Err(self.ahead(&ours, &sources));
                }

                self.note_of_stream(&reading)
            }
        };

        write_note(self.options, self.state, &note)?;
        failpoint("repair-noted");
        self.set_aside(note.aside.as_deref())?;
        self.renewal.forget();
        Ok(Some(note))
    }

    fn read_stream(&self, last_seq: u64) -> Result<StreamReading, Error> {
        let data = self.data.to_owned();
        let state = self.state.to_owned();
        let host = PumpDirectories { data, state };
        StreamReading::of(self.api, self.options, &host, &self.renewal.lease, last_seq)
    }

    /// Returns the description of a repair that keeps the stream.
    fn note_of_stream(&self, reading: &StreamReading) -> StreamRepair {
        StreamRepair {
            from: RepairSource::Stream,
            kept: reading.last,
            acknowledged: reading.lost.unwrap_or(reading.last),
            forked_at: reading.forked_at,
            aside: self.opening.exists().then(|| unused(self.data)),
        }
    }

    fn set_aside(&self, aside: Option<&Path>) -> Result<(), Error> {
        let noted = sqlite::noted_journal(self.data, self.state);
        if let (Some(journal), Some(directory)) = (noted, &self.options.checkpoints) {
            // Ordering rule: the copies are moved first, because this can fail. While they remain,
            // no pump may lead the stream, because they show records that the stream lacks.
            let copies = CheckpointFile::new(directory, journal);
            let put_aside = copies.keep(|_| false);
            put_aside.map_err(Error::io(copies.path().display().to_string()))?;
        }

        if let Some(aside) = aside {
            std::fs::create_dir_all(aside).map_err(Error::io(aside.display().to_string()))?;
            // Ordering rule: the database is moved last, so that a crash leaves no write-ahead log
            // without its database.
            for end in sqlite::FILE_ENDS {
                let file = format!("{DATABASE}{end}");
                move_file(&self.data.join(&file), &aside.join(&file))?;
            }
        }

        if let Some(journal) = noted {
            let directory = aside.map_or_else(|| unused(self.data), Path::to_owned);
            let shown = directory.display().to_string();
            std::fs::create_dir_all(&directory).map_err(Error::io(shown))?;
            for kind in ["watermark", "checkpoints"] {
                let file = format!("{journal}.{kind}");
                move_file(&self.state.join(&file), &directory.join(&file))?;
            }
        }

        Ok(())
    }
}

/// Returns a path in `data` that is not in use.
fn unused(data: &Path) -> PathBuf {
    let mut all = (1..).map(|n: u32| data.join(format!("set-aside-{n}")));
    all.find(|path| !path.exists()).unwrap_or_default()
}

fn move_file(from: &Path, to: &Path) -> Result<(), Error> {
    if !from.exists() {
        return Ok(());
    }

    let copied = std::fs::copy(from, to)
        .and_then(|_| std::fs::File::open(to)?.sync_all())
        .and_then(|()| std::fs::remove_file(from));
    copied.map_err(Error::io(from.display().to_string()))
}
