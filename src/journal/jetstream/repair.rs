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
use super::open::{connect, found, refuse_embedded};
use super::projection_alignment::{ComparedProjection, ProjectionAlignment, ProjectionComparison};
use super::repair_note::{read_note, recorded, write_note};
use super::set_aside::{has_database, move_file, unused};
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
    /// The first record that the repair gives up because the stream has a different record at the
    /// same position. `None` if the stream is not forked.
    #[serde(rename = "forked_at", default, skip_serializing_if = "Option::is_none")]
    pub forked_at: Option<Position>,
    /// Path to which the projection was moved aside; `None` if no projection was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<PathBuf>,
    /// Whether everything that showed the records up to `acknowledged` was moved aside. A record
    /// that the stream lacks is a later one then, whatever its position is.
    #[serde(rename = "moved", default)]
    pub has_moved: bool,
}

/// Reconciles stream and projection. Returns `None` if nothing needs repair. The caller must record
/// the returned repair, then call [`super::recorded`].
///
/// Returns [`Error::OtherHostAhead`] if a repair on another host could keep more records. Nothing
/// was changed then.
///
/// While another process pumps the stream, changes nothing. If a repair is needed then, returns
/// [`Error::StreamForked`] for a forked stream, with the records of both sides, and otherwise
/// [`Error::InUse`].
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
    refuse_embedded(&opening, &api, options, &member)?;
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
    host.refuse_other_side(from, noted.as_ref())?;
    let is_pending = noted.is_some();
    let noted = noted.filter(|noted| from.is_none_or(|from| from == noted.from));
    match from.or(noted.as_ref().map(|noted| noted.from)) {
        Some(RepairSource::Stream) => host.keep_stream(noted, is_pending, from.is_some()),
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
        let Some((journal, _)) = found(self.opening, self.api, self.options)? else {
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

        // The choice of an interrupted repair does not cover records that the projection got later.
        let noted = noted.filter(|noted| kept == last || noted.acknowledged >= last);
        // Ordering rule: checked before anything is published, because the host then appends the
        // record of the repair, and no later records can be published after it.
        if kept < last {
            self.check_other_hosts(journal, &projection, from.is_some() || noted.is_some())?;
        }

        let from = from.unwrap_or(RepairSource::Projection);
        let fresh = StreamRepair {
            from,
            kept,
            acknowledged: last,
            forked_at: None,
            aside: None,
            has_moved: false,
        };
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
    /// `is_chosen` states whether the operator chose this projection. If not, also refuses to
    /// publish if there is one of these, because it may have later records and cannot be queried:
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

    /// Searches `projection`, from its end, for a record with a MAC of another host's pump. Returns
    /// the id of that host's key; `None` if there is no such record.
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

    /// Whether the stream has lost messages at its end, but only messages without records, such as
    /// messages with checkpoints. In this case, the lease names a message after the stream's last
    /// message, but no record after `last`, the last record of the projection.
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
        let checkpoints = reader.checkpoints_after(kept)?;
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
    /// If the stream has everything that this host and the lease know, moves nothing. An interrupted
    /// repair that has moved the files must only be recorded then. The note of one that has moved
    /// nothing is removed, and `None` is returned, as without an interrupted repair. Exception: if the operator chose another side before the interruption
    /// (`is_pending` without `noted`), moves the projection even for such a stream.
    ///
    /// `is_chosen` states whether this command names the stream as the side to keep. If not, an
    /// interrupted repair gives up no more records than before.
    fn keep_stream(
        self,
        noted: Option<StreamRepair>,
        is_pending: bool,
        is_chosen: bool,
    ) -> Result<Option<StreamRepair>, Error> {
        let Some(info) = self.info()? else {
            let end = "is gone".to_owned();
            let sources = "there is nothing to go on with".to_owned();
            return Err(Error::StreamShorter { stream: self.options.stream(), end, sources });
        };

        if let Some((journal, _)) = found(self.opening, self.api, self.options)? {
            // The directories may be restored from a backup, which does not note the journal.
            sqlite::note_journal(self.data, self.state, journal)?;
        }

        let reading = self.read_stream(info.state.last_seq)?;
        if reading.is_whole && (noted.is_some() || !is_pending) {
            let Some(note) = noted else { return Ok(None) };
            let aside = note.aside.filter(|aside| has_database(aside));
            if aside.is_none() && !note.has_moved && self.opening.exists() {
                // The stream has got its records back, so the repair gives up nothing.
                recorded(self.options, self.state)?;
                return Ok(None);
            }

            if let Some(aside) = aside.as_deref().filter(|_| !self.opening.exists()) {
                // A kill during the moves has left the log of the database in `aside`.
                self.move_projection(aside)?;
            }
            return Ok(Some(StreamRepair { aside, ..note }));
        }

        let last = reading.last;
        let members = StreamBounds::of_members(self.api, self.options);
        if let Some(sources) = members.beyond(last) {
            let ours = format!("the stream goes up to record {last}");
            return Err(self.ahead(&ours, &sources));
        }

        let note = self.note_of_stream(&reading, noted, is_chosen)?;
        write_note(self.options, self.state, &note)?;
        failpoint("repair-noted");
        self.set_aside(note.aside.as_deref())?;
        self.renewal.forget();
        let note = StreamRepair { has_moved: true, ..note };
        write_note(self.options, self.state, &note)?;
        Ok(Some(note))
    }

    /// Refuses to publish from a projection if an interrupted repair keeps the stream and has already
    /// moved a projection aside. That repair would never be recorded otherwise. Refuses nothing if the
    /// stream is gone, because that repair cannot end then.
    fn refuse_other_side(
        &self,
        from: Option<RepairSource>,
        noted: Option<&StreamRepair>,
    ) -> Result<(), Error> {
        let noted = noted.filter(|noted| noted.from == RepairSource::Stream);
        let aside =
            noted.and_then(|noted| noted.aside.as_deref()).filter(|aside| has_database(aside));
        let (Some(RepairSource::Projection), Some(aside)) = (from, aside) else { return Ok(()) };

        if self.info()?.is_none() {
            return Ok(());
        }

        let aside = aside.display();
        let reason = format!(
            "a repair that keeps the stream has not ended, and has moved the projection to {aside}. \
             End it first: `organism repair`"
        );
        Err(Error::OtherHostAhead { stream: self.options.stream(), reason })
    }

    fn read_stream(&self, last_seq: u64) -> Result<StreamReading, Error> {
        let data = self.data.to_owned();
        let state = self.state.to_owned();
        let host = PumpDirectories { data, state };
        StreamReading::of(self.api, self.options, &host, &self.renewal.lease, last_seq)
    }

    /// Returns the description of a repair that keeps the stream. `noted` describes the interrupted
    /// repair that this one continues. Fails if the stream lacks a record that the interrupted
    /// repair does not give up, and the operator did not choose to give it up (`is_chosen`). This is
    /// so if the stream has a new record since, if a later position is missing, and always after
    /// the files were moved.
    fn note_of_stream(
        &self,
        reading: &StreamReading,
        noted: Option<StreamRepair>,
        is_chosen: bool,
    ) -> Result<StreamRepair, Error> {
        let lost = reading.lost.unwrap_or(reading.last);
        let Some(noted) = noted else {
            return Ok(StreamRepair {
                from: RepairSource::Stream,
                kept: reading.last,
                acknowledged: lost,
                forked_at: reading.forked_at,
                aside: self.directory_aside(None),
                has_moved: false,
            });
        };

        let StreamRepair { kept, acknowledged, has_moved, .. } = noted;
        let has_continued = reading.last > kept;
        let is_later = |lost| has_moved || has_continued || lost > acknowledged;
        let gives_up_more = reading.lost.is_some_and(is_later);
        if gives_up_more && !is_chosen {
            let last = reading.last;
            let reason = format!(
                "a repair that has not ended keeps the stream up to record {kept} and gives up \
                 those up to {acknowledged}; the stream now ends at record {last} and lacks \
                 acknowledged records up to {lost}. Run `organism repair` on the host that pumped \
                 it since, and then here again. If that is refused, too, or that host is lost, \
                 `organism repair --from stream` gives them up, too"
            );
            return Err(Error::OtherHostAhead { stream: self.options.stream(), reason });
        }

        let aside = self.directory_aside(noted.aside.as_deref());
        if !gives_up_more {
            return Ok(StreamRepair { aside, ..noted });
        }

        // The stream has other records in place of the first ones that the interrupted repair
        // gives up.
        let replaced = has_continued.then_some(Position(kept.0 + 1));
        let forks = [noted.forked_at, reading.forked_at, replaced];
        Ok(StreamRepair {
            from: RepairSource::Stream,
            kept: reading.last,
            acknowledged: acknowledged.max(lost),
            forked_at: forks.into_iter().flatten().min(),
            aside,
            has_moved: false,
        })
    }

    /// Returns the directory into which the projection is moved: `earlier`, the directory that an
    /// interrupted repair chose, or an unused one. Never returns a directory that already has
    /// another projection. Returns `None` if there is no projection to move.
    fn directory_aside(&self, earlier: Option<&Path>) -> Option<PathBuf> {
        let exists = self.opening.exists();
        match earlier {
            Some(earlier) if !exists || !has_database(earlier) => Some(earlier.to_owned()),
            Some(earlier) => {
                let earlier = earlier.display();
                tracing::warn!("this repair has set another projection aside before, in {earlier}");
                Some(unused(self.data))
            }
            None => exists.then(|| unused(self.data)),
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
            self.move_projection(aside)?;
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

    /// Moves the files of the projection into `aside`, except those that `aside` already has.
    fn move_projection(&self, aside: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(aside).map_err(Error::io(aside.display().to_string()))?;
        // Ordering rule: the database is moved first. If its log were moved first, a crash in
        // between would leave a database that the next attempt opens without its log.
        for end in sqlite::FILE_ENDS.iter().rev() {
            let file = format!("{DATABASE}{end}");
            let to = aside.join(&file);
            if !durable_file::may_exist(&to) {
                move_file(&self.data.join(&file), &to)?;
            }
        }

        Ok(())
    }
}
