//! Lower bounds for the length of a stream. Each bound comes from one source, and names a record
//! that the stream once had. A process does not write to a stream that contradicts a bound. Such a
//! stream is shorter than the bound, or is forked: it has a different record at the position of the
//! bound.
//!
//! A lease states which process writes the stream of a partition. Servers may lose the leases
//! together with the end of a stream. So before a process begins to write a stream, it queries
//! every source that knows the position of a record:
//!
//! - the projection of this host, which is its copy of the stream
//! - the state directory of this host
//! - the directory with copied checkpoints
//! - the last acknowledged record in the lease
//! - the projections of the other processes

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::journal::checkpoint::CheckpointFile;
use crate::journal::commit_watermark::warn_of_damaged_watermark;
use crate::journal::sqlite::{self, JournalReader};
use crate::journal::{CheckpointCopies, Error, acknowledged, jetstream};
use crate::limits;
use crate::mutant::mutant;
use crate::nats::NatsRequest;

use super::Options;
use super::api::JetStreamApi;
use super::lease::{Lease, MemberId};

/// The last acknowledged record of a journal, and the last acknowledged message of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgedMark {
    #[serde(rename = "journal")]
    pub journal: Uuid,
    #[serde(rename = "seq")]
    pub seq: u64,
    #[serde(rename = "position")]
    pub position: Position,
    /// Hash of the record at `position`.
    #[serde(rename = "hash")]
    pub hash: Digest,
}

/// The last record of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectionHead {
    #[serde(rename = "journal")]
    pub journal: Uuid,
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "hash")]
    pub hash: Digest,
}

/// A process's report that names the last record of its projection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectionReport {
    #[serde(rename = "member")]
    pub member: MemberId,
    /// Name of the process, shown to people.
    #[serde(rename = "holder")]
    pub holder: String,
    /// Last record of the projection; `None` if the process has no projection, or an empty one.
    #[serde(rename = "projection", default, skip_serializing_if = "Option::is_none")]
    pub projection: Option<ProjectionHead>,
    /// Processes that the reporting process believes to be running, including itself. The querying
    /// process waits for the reports of all of them. Empty if the reporting process has not
    /// listened long enough to know which processes run.
    #[serde(rename = "members", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<MemberId, String>,
}

impl ProjectionReport {
    /// Returns the report of this process, whose projection is in `data`.
    pub fn of(data: &Path, members: BTreeMap<MemberId, String>) -> Result<Self, Error> {
        let member = MemberId::here();
        let holder = jetstream::this_process();
        Ok(Self { member, holder, projection: projection_head(data)?, members })
    }
}

/// Returns the last record of the projection in `data`; `None` if there is no projection, or if it
/// is empty.
pub fn projection_head(data: &Path) -> Result<Option<ProjectionHead>, Error> {
    let reader = match JournalReader::open(data) {
        Err(Error::Missing { .. }) => return Ok(None),
        other => other?,
    };

    let position = reader.last()?;
    let Some(sealed) = reader.record(position)? else { return Ok(None) };
    let journal = reader.about()?.journal;
    Ok(Some(ProjectionHead { journal, position, hash: sealed.hash }))
}

/// Returns the hash of the record at `position` in the projection in `data`; `None` if the
/// projection has no such record.
pub(super) fn hash_at(data: &Path, position: Position) -> Result<Option<Digest>, Error> {
    Ok(JournalReader::open(data)?.record(position)?.map(|sealed| sealed.hash))
}

impl Options {
    /// Returns the NATS subject for queries about this partition. Each process answers such a query
    /// with the last record of its projection.
    pub fn bound_subject(&self) -> String {
        format!("{}.{}", self.bound_subjects(), self.partition)
    }

    /// Returns the prefix that the subjects of all partitions have in common.
    /// [`Options::bound_subject`] returns the subject of one partition.
    pub fn bound_subjects(&self) -> String {
        format!("organism.{}.pump.bound.{}", self.organism, self.stream)
    }
}

/// Lower bound for the length of a stream, from one source. The bound has a position and, if the
/// source knows it, the hash of the record at this position.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StreamBound {
    /// Name of the source, shown to people.
    source: String,
    journal: Uuid,
    position: Position,
    /// Hash of the record at `position`; `None` if the source is a checkpoint, because checkpoints
    /// do not contain this hash.
    hash: Option<Digest>,
    /// Highest message number of the stream that the source knows; `None` if the source knows no
    /// message.
    seq: Option<u64>,
}

/// Lower bounds for the length of one stream, from every source that answered. Also contains the
/// names of the sources that did not answer.
#[derive(Debug, Default)]
pub(super) struct StreamBounds {
    stream: String,
    all: Vec<StreamBound>,
    /// Names of the sources that did not answer in time, or could not be read.
    unreachable: Vec<String>,
}

/// Directories of a pump on this host.
#[derive(Debug, Clone)]
pub(super) struct PumpDirectories {
    pub data: PathBuf,
    pub state: PathBuf,
}

impl StreamBounds {
    /// Returns the bound of a single source: the last record of the projection in `data`. This
    /// projection is a copy of the stream of `options`. Returns no bound if the projection is
    /// missing or empty.
    pub fn of_projection(options: &Options, data: &Path) -> Result<Self, Error> {
        let mut bounds = Self { stream: options.stream(), ..Self::default() };
        let head = projection_head(data)?;
        if let Some(head) = head.filter(|_| !mutant("ignore-the-projection")) {
            bounds.add_head(format!("the projection in {}", data.display()), head);
        }
        Ok(bounds)
    }

    /// Collects lower bounds for the length of the stream from all sources that answer within
    /// [`limits::BOUNDS_TIMEOUT`], such as the projection of another process.
    pub fn gather(
        api: &JetStreamApi,
        options: &Options,
        host: &PumpDirectories,
        lease: &Lease,
    ) -> Result<Self, Error> {
        let mut bounds = Self::of_host(options, host, lease)?;
        bounds.ask_members(api, options);
        if !bounds.unreachable.is_empty() {
            tracing::warn!(
                stream = bounds.stream,
                "no response within {} s to the request for the last acknowledged record: {}",
                limits::BOUNDS_TIMEOUT.as_secs(),
                bounds.unreachable.join(", ")
            );
        }

        Ok(bounds)
    }

    /// Collects the lower bounds that this host and the lease know. Queries no other process.
    pub fn of_host(
        options: &Options,
        host: &PumpDirectories,
        lease: &Lease,
    ) -> Result<Self, Error> {
        let mut bounds = Self::of_projection(options, &host.data)?;
        if !mutant("ignore-the-state") {
            bounds.add_state(host)?;
        }

        if let Some(directory) = &options.checkpoints {
            let unread = bounds.add_copies(host, directory).err();
            bounds.unreachable.extend(unread);
        }

        if let Some(acknowledged) = lease.acknowledged().filter(|_| !mutant("ignore-the-lease")) {
            let AcknowledgedMark { journal, seq, position, hash } = acknowledged;
            let source = format!("the lease in {}", options.bucket());
            let hash = Some(hash);
            let seq = Some(seq);
            bounds.all.push(StreamBound { source, journal, position, hash, seq });
        }

        Ok(bounds)
    }

    /// Collects the lower bounds that the other processes know: the last records of their
    /// projections.
    pub fn of_members(api: &JetStreamApi, options: &Options) -> Self {
        let mut bounds = Self { stream: options.stream(), ..Self::default() };
        bounds.ask_members(api, options);
        bounds
    }

    /// Queries the other processes for the last records of their projections. Returns the names of
    /// the processes that know a later record than `last`; `None` if there are none. If no process
    /// answers and `waits` is true, waits a second and queries the processes once more.
    pub fn members_beyond(
        api: &JetStreamApi,
        options: &Options,
        last: Position,
        waits: bool,
    ) -> Option<String> {
        let mut bounds = Self::of_members(api, options);
        if bounds.all.is_empty() && waits {
            // After an outage or a freeze, the other processes may reconnect later than this one,
            // and this process may not know them yet.
            std::thread::sleep(2 * limits::MEMBER_ANNOUNCE_INTERVAL);
            bounds = Self::of_members(api, options);
        }

        bounds.beyond(last)
    }

    fn add_head(&mut self, source: String, head: ProjectionHead) {
        let ProjectionHead { journal, position, hash } = head;
        self.all.push(StreamBound { source, journal, position, hash: Some(hash), seq: None });
    }

    /// Returns the id of the journal on this host. The id comes from the host's projection or, if
    /// there is none, from the id that the state directory notes. Returns `None` if neither exists.
    fn journal_of(&self, host: &PumpDirectories) -> Option<Uuid> {
        let projection = self.all.first().map(|bound| bound.journal);
        projection.or_else(|| sqlite::noted_journal(&host.data, &host.state))
    }

    /// Adds a lower bound for the length of the stream: the position of the last checkpoint that
    /// was copied into `directory`. `Err` explains why the copied checkpoints cannot be read.
    fn add_copies(&mut self, host: &PumpDirectories, directory: &Path) -> Result<(), String> {
        let Some(journal) = self.journal_of(host) else { return Ok(()) };
        let copies = CheckpointCopies::read(directory, journal)
            .map_err(|reason| format!("the copies in {} ({reason})", directory.display()))?;
        if let Some(last) = copies.lines.last() {
            let source = format!("the checkpoints in {}", copies.file.display());
            let position = last.position;
            self.all.push(StreamBound { source, journal, position, hash: None, seq: None });
        }

        match copies.damage {
            Some(damage) => Err(format!("some copies in {} ({damage})", copies.file.display())),
            None => Ok(()),
        }
    }

    fn add_state(&mut self, host: &PumpDirectories) -> Result<(), Error> {
        let PumpDirectories { state, .. } = host;
        let Some(journal) = self.journal_of(host) else { return Ok(()) };
        warn_of_damaged_watermark(state, journal)?;
        let (position, hash) = acknowledged(state, journal)?;
        if position > Position(0) {
            let source = format!("the watermark in {}", state.display());
            self.all.push(StreamBound { source, journal, position, hash: Some(hash), seq: None });
        }

        let outside = CheckpointFile::new(state, journal);
        if let Some(latest) = outside.last()? {
            let source = format!("the checkpoints in {}", outside.path().display());
            let position = latest.position;
            self.all.push(StreamBound { source, journal, position, hash: None, seq: None });
        }

        Ok(())
    }

    /// Queries the other processes over NATS for the last records of their projections, and adds
    /// these as lower bounds for the length of the stream. Each report also names the processes
    /// that its sender believes to be running. Waits for the reports of all of these, but at most
    /// [`limits::BOUNDS_TIMEOUT`].
    fn ask_members(&mut self, api: &JetStreamApi, options: &Options) {
        if mutant("ignore-the-members") {
            return;
        }

        let patience = limits::BOUNDS_TIMEOUT;
        let until = Instant::now() + patience;
        let subject = options.bound_subject();
        let body = Vec::new();
        let reports =
            api.link.request_from_listeners(NatsRequest { subject, headers: None, body, patience });
        let mut expected = BTreeMap::new();
        let mut answered = BTreeSet::new();

        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(report) = reports.recv_timeout(left) else { break };
            let Ok(report) = serde_json::from_slice::<ProjectionReport>(&report) else { continue };
            if let Some(head) = report.projection.filter(|_| report.member != MemberId::here()) {
                self.add_head(format!("the projection of {}", report.holder), head);
            }
            answered.insert(report.member);
            expected.extend(report.members);
            let is_known = !expected.is_empty();
            if is_known && expected.keys().all(|member| answered.contains(member)) {
                break;
            }
        }

        // Without a subscriber, the server ends the request at once. That does not prove that no
        // process exists.
        if answered.is_empty() && until.saturating_duration_since(Instant::now()) < patience / 4 {
            expected.insert(MemberId::new(), "a process that listens".to_owned());
        }

        expected.retain(|member, _| !answered.contains(member));
        self.unreachable.extend(expected.into_values());
    }

    /// Returns the positions of all bounds.
    pub fn positions(&self) -> BTreeSet<Position> {
        self.all.iter().map(|bound| bound.position).collect()
    }

    /// Returns the names of the sources that know a later record than `last`, in one text; `None`
    /// if there are no such sources.
    pub fn beyond(&self, last: Position) -> Option<String> {
        let sources = named(self.all.iter().filter(|bound| bound.position > last));
        (!sources.is_empty()).then_some(sources)
    }

    /// Returns the names of the sources that did not answer in time or could not be read, in one
    /// text; `None` if there are no such sources.
    pub fn silent(&self) -> Option<String> {
        (!self.unreachable.is_empty()).then(|| self.unreachable.join(", "))
    }

    /// Returns the highest message number that any of the sources knows; 0 if no source knows a
    /// message.
    pub fn last_seq(&self) -> u64 {
        self.all.iter().filter_map(|bound| bound.seq).max().unwrap_or_default()
    }

    /// Returns an error if a bound shows that the stream once had records. Must be called only for
    /// a stream that is missing or empty.
    pub fn check_empty(&self) -> Result<(), Error> {
        let is_new = self.all.iter().all(|bound| bound.position == Position(0));
        if is_new { Ok(()) } else { Err(self.shorter(None)) }
    }

    /// Checks a stream of `journal` that ends at record `last` and message `seq`. Returns an error
    /// if a source knows a later record or message, or a record that differs from the stream's
    /// record at the same position. `hash_at` returns the hash of the stream's record at a
    /// position.
    pub fn check(
        &self,
        journal: Uuid,
        seq: u64,
        last: Position,
        hash_at: &dyn Fn(Position) -> Result<Option<Digest>, Error>,
    ) -> Result<(), Error> {
        for bound in &self.all {
            let Some(hash) = bound.hash.filter(|_| bound.position <= last) else { continue };
            let differs = bound.journal != journal || hash_at(bound.position)? != Some(hash);
            if differs && bound.position > Position(0) && !mutant("lead-a-fork") {
                return Err(self.forked(bound.position));
            }
        }

        let is_shorter = |bound: &StreamBound| {
            bound.position > last || bound.seq.is_some_and(|known| known > seq)
        };
        if self.all.iter().any(is_shorter) { Err(self.shorter(Some(last))) } else { Ok(()) }
    }

    /// Returns the positions of the records that a source knows and a stream of `journal` lacks.
    /// `last` is the last record of the stream, and `hash_at` returns the hash of its record at a
    /// position. The stream lacks a record if it ends before the record's position, or has a
    /// different record there.
    pub fn missing(
        &self,
        journal: Uuid,
        last: Position,
        hash_at: &dyn Fn(Position) -> Option<Digest>,
    ) -> BTreeSet<Position> {
        let is_missing = |bound: &&StreamBound| {
            bound.position > last
                || bound.journal != journal
                || bound.hash.is_some_and(|hash| hash_at(bound.position) != Some(hash))
        };
        let known = self.all.iter().filter(|bound| bound.position > Position(0));
        known.filter(is_missing).map(|bound| bound.position).collect()
    }

    /// Returns the error for a stream that lacks records or messages that a source knows. `last` is
    /// the last record of the stream; `None` if the stream is missing or empty.
    pub fn shorter(&self, last: Option<Position>) -> Error {
        let end = match last {
            Some(last) => format!("ends at record {last}"),
            None => "is gone".to_owned(),
        };

        let beyond = |bound: &&StreamBound| bound.position > last.unwrap_or_default();
        let mut sources = named(self.all.iter().filter(beyond));
        if sources.is_empty() {
            // Only messages without records are missing.
            sources = named(self.all.iter());
        }

        Error::StreamShorter {
            stream: self.stream.clone(),
            end,
            sources: self.with_silent(sources),
        }
    }

    /// Returns the error for a stream whose record at `position` differs from the record that one
    /// of the sources knows.
    pub fn forked(&self, position: Position) -> Error {
        let sources = named(self.all.iter().filter(|bound| bound.position >= position));
        let stream = self.stream.clone();
        Error::StreamForked { stream, position, sources: self.with_silent(sources) }
    }

    fn with_silent(&self, sources: String) -> String {
        if self.unreachable.is_empty() {
            sources
        } else {
            let silent = self.unreachable.join(", ");
            format!("{sources} (no answer from {silent})")
        }
    }
}

fn named<'b>(bounds: impl Iterator<Item = &'b StreamBound>) -> String {
    let description =
        |bound: &StreamBound| format!("{} goes up to record {}", bound.source, bound.position);
    bounds.map(description).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../tests/data/fixtures/projections.txt");

    fn reports() -> [(&'static str, ProjectionReport); 2] {
        let id = "\"01970000-0000-7000-8000-000000000001\"";
        let member: MemberId = serde_json::from_str(id).unwrap();
        let journal = Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0002);
        let head = ProjectionHead { journal, position: Position(75), hash: Digest::of(b"75") };
        let holder = "process 12 on host".to_owned();
        let members = BTreeMap::from([(member, holder.clone())]);
        let full = ProjectionReport { member, holder, projection: Some(head), members };
        let holder = full.holder.clone();
        let empty = ProjectionReport { member, holder, projection: None, members: BTreeMap::new() };
        [("a projection", full), ("no projection", empty)]
    }

    #[test]
    fn a_report_of_a_projection_is_written_in_the_bytes_of_its_fixture() {
        let line = |(name, report): (&str, ProjectionReport)| {
            format!("{name}\t{}\n", serde_json::to_string(&report).unwrap())
        };
        let written: String = reports().into_iter().map(line).collect();
        assert_eq!(written, FIXTURE);
    }

    #[test]
    fn a_report_of_a_fixture_is_read() {
        for (line, (name, report)) in FIXTURE.lines().zip(reports()) {
            let (_, text) = line.split_once('\t').unwrap();
            let read: ProjectionReport = serde_json::from_str(text).unwrap();
            assert_eq!(read, report, "{name}");
        }
    }

    fn bounds(journal: Uuid, seq: Option<u64>) -> StreamBounds {
        let bound = |source: &str, position: u64, seq| StreamBound {
            source: source.to_owned(),
            journal,
            position: Position(position),
            hash: Some(Digest::of(&position.to_be_bytes())),
            seq,
        };

        let all = vec![bound("the projection", 7, None), bound("the lease", 9, seq)];
        StreamBounds { stream: "S-0".to_owned(), all, unreachable: vec!["process 3".to_owned()] }
    }

    fn hash_at(position: Position) -> Result<Option<Digest>, Error> {
        Ok(Some(Digest::of(&position.0.to_be_bytes())))
    }

    #[test]
    fn a_stream_is_led_that_holds_everything_that_is_known_of_it() {
        let journal = Uuid::now_v7();
        bounds(journal, Some(12)).check(journal, 12, Position(9), &hash_at).unwrap();
        bounds(journal, Some(12)).check(journal, 40, Position(30), &hash_at).unwrap();
    }

    #[test]
    fn a_shorter_stream_is_refused_with_the_places_that_show_more() {
        let journal = Uuid::now_v7();
        let refused = bounds(journal, None).check(journal, 40, Position(8), &hash_at).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, Error::StreamShorter { .. }), "{text}");
        assert!(text.contains("ends at record 8"), "{text}");
        assert!(text.contains("the lease goes up to record 9"), "{text}");
        assert!(!text.contains("the projection goes up to"), "{text}");
        assert!(text.contains("no answer from process 3"), "{text}");
        let refused = bounds(journal, Some(13)).check(journal, 12, Position(9), &hash_at);
        assert!(matches!(refused, Err(Error::StreamShorter { .. })), "a message was lost");
        assert!(bounds(journal, None).check_empty().unwrap_err().to_string().contains("is gone"));
        StreamBounds::default().check_empty().unwrap();
    }

    #[test]
    fn a_damaged_watermark_is_no_bound_and_is_in_the_log() {
        let home = tempfile::tempdir().unwrap();
        let journal = Uuid::now_v7();
        std::fs::write(home.path().join(format!("{journal}.watermark")), "garbage").unwrap();
        let host = PumpDirectories { data: home.path().join("data"), state: home.path().into() };

        let file = home.path().join("log");
        let log = std::sync::Mutex::new(std::fs::File::create(&file).unwrap());
        let logs = tracing_subscriber::fmt().with_writer(log).finish();
        let mut known = bounds(journal, None);
        tracing::subscriber::with_default(logs, || known.add_state(&host).unwrap());
        assert_eq!(known.positions(), BTreeSet::from([Position(7), Position(9)]));
        let log = std::fs::read_to_string(&file).unwrap();
        assert!(log.contains(".watermark is damaged, so a loss of records"), "{log}");
    }

    #[test]
    fn another_record_or_another_journal_is_a_fork() {
        let journal = Uuid::now_v7();
        let other = |_: Position| Ok(Some(Digest::of(b"another")));
        let refused = bounds(journal, None).check(journal, 40, Position(9), &other).unwrap_err();
        assert!(matches!(refused, Error::StreamForked { .. }), "{refused}");
        let refused = bounds(journal, None).check(Uuid::now_v7(), 40, Position(9), &hash_at);
        assert!(matches!(refused, Err(Error::StreamForked { .. })));
    }
}
