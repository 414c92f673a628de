//! Snapshots: the state of a pump at a checkpoint, so that a pump need not read every record at its
//! start.
//!
//! A snapshot consists of three files in the state directory: two databases and a header. The first
//! database contains the states of all trees, and of the keys with which clients may repeat
//! submissions. The second database contains the heads of all trees. The header names the digests
//! of the two databases, is signed with the host's key, and is written last. The state directory
//! also holds this key. So a program that can write only to the journal's directory cannot change a
//! snapshot.
//!
//! A pump compares the digests at its start, and then reads only the parts of the databases that it
//! needs. It continues to read from them later, and never writes to them. Snapshots are derived
//! data: a pump ignores a snapshot that is missing, damaged or of another version, or whose
//! checkpoint the journal lacks, and reads every record.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::durable_file;
use crate::failpoint::failpoint;
use crate::ids::{Digest, Position, ThreadId};
use crate::journal::checkpoint::{CheckpointKey, is_signed_by};
use crate::journal::mac::StoredCoverage;
use crate::journal::signers::CheckpointSigners;
use crate::journal::{Checkpoint, Error, MacCoverage, RedactedRecords, TreeHeads};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{AcceptedLoss, CommonState};

use super::RestingStore;
use super::block_digest::{copy_with_digest, file_digest};

/// Version of the format of a snapshot's files. A pump does not start from a snapshot of another
/// version.
const FORMAT: u32 = 4;
/// Version of this program. A pump starts only from snapshots that the same version has written,
/// because the form of the stored trees depends on the program's types.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
const HEADER: &str = "snapshot.json";
const UNFINISHED_HEADER: &str = "snapshot.json.new";
const DRAFT: &str = "snapshot.new";
const HEADS_DRAFT: &str = "snapshot-heads.new";
/// Files that an earlier version of this program made at its start. They remain if that program was
/// killed.
const EARLIER_COPIES: [&str; 2] = ["snapshot.copy", "snapshot-heads.copy"];
const TABLES: &str = "CREATE TABLE IF NOT EXISTS live(name TEXT PRIMARY KEY) WITHOUT ROWID;";

/// The state of a pump. A store contains the states of its trees, and of the keys under which
/// clients may repeat submissions.
#[derive(Debug)]
pub struct StoredState {
    pub common: CommonState,
    /// Roots of the trees that must be in memory after the start of a pump.
    pub live: Vec<ThreadId>,
    pub store: RestingStore,
}

/// Evidence about the records up to a checkpoint. With this evidence, a pump need not read these
/// records at its start.
#[derive(Debug)]
pub struct SnapshotEvidence {
    pub checkpoint: Checkpoint,
    pub heads: TreeHeads,
    pub coverage: MacCoverage,
    pub redactions: RedactedRecords,
    /// Losses of records that operators accepted in recorded actions.
    pub losses: Vec<AcceptedLoss>,
    /// Signers of the checkpoints inside the journal.
    pub signers: CheckpointSigners,
}

/// A snapshot that was read and verified.
#[derive(Debug)]
pub struct Snapshot {
    pub evidence: SnapshotEvidence,
    pub state: StoredState,
}

/// The signed header of a snapshot. The checkpoint in the header names the journal and the position
/// of the snapshot.
#[derive(Serialize, Deserialize)]
struct SnapshotHeader {
    #[serde(rename = "format")]
    format: u32,
    #[serde(rename = "core_version")]
    core_version: u32,
    #[serde(rename = "program")]
    program: String,
    /// Number of earlier snapshots in the chain of this snapshot. A snapshot that is made from
    /// every record begins a chain, and has the number 0. Each further snapshot of a chain is made
    /// from the previous one and the records after it.
    #[serde(rename = "generation")]
    generation: u32,
    #[serde(rename = "checkpoint")]
    checkpoint: Checkpoint,
    /// Hash of the record at the checkpoint's position.
    #[serde(rename = "hash")]
    hash: Digest,
    #[serde(rename = "coverage")]
    coverage: StoredCoverage,
    #[serde(rename = "redactions")]
    redactions: RedactedRecords,
    #[serde(rename = "losses", default, skip_serializing_if = "Vec::is_empty")]
    losses: Vec<AcceptedLoss>,
    #[serde(rename = "signers")]
    signers: CheckpointSigners,
    #[serde(rename = "common")]
    common: CommonState,
    /// Digest of the database with two kinds of states: those of trees, and those of client keys,
    /// under which clients may repeat submissions.
    #[serde(rename = "file")]
    file: Digest,
    /// Digest of the database with the heads of trees.
    #[serde(rename = "heads")]
    heads: Digest,
}

/// The state directory with the snapshots of one journal, and the values that a usable snapshot
/// must match: the host's key, the journal, and the version of the pump's rules.
#[derive(Debug)]
pub struct SnapshotPlace<'p> {
    pub state: &'p Path,
    pub key: &'p CheckpointKey,
    pub journal: Uuid,
    pub core_version: u32,
}

impl SnapshotPlace<'_> {
    /// Returns the position of the snapshot; 0 if there is no snapshot. Reads only the header of
    /// the snapshot. The caller uses the position to decide when to write the next snapshot.
    pub fn position(&self) -> Position {
        let header = self.header().ok().flatten();
        header.map(|header| header.checkpoint.position).unwrap_or_default()
    }

    /// Whether there may be a snapshot. Also true if this process cannot determine it.
    pub fn may_exist(&self) -> bool {
        durable_file::may_exist(&self.path(HEADER))
    }

    /// Reads the snapshot. If the snapshot cannot be used now, logs the reason and returns `None`.
    /// If the snapshot can never be used, also deletes its files. `is_known` states whether the
    /// journal has the given checkpoint and, at the checkpoint's position, a record with the given
    /// hash.
    pub fn load(&self, is_known: &dyn Fn(&Checkpoint, Digest) -> bool) -> Option<Snapshot> {
        remove_unfinished(self.state, self.journal);
        let error = match self.load_in_place(is_known) {
            Ok(snapshot) => {
                // A kill between two renames leaves databases that no header names.
                if let Some(Snapshot { evidence, .. }) = &snapshot {
                    let kept = self.databases(evidence.checkpoint.position);
                    remove_databases(self.state, self.journal, Some(&kept));
                }
                return snapshot;
            }
            Err(error) => error,
        };
        let file = self.path(HEADER);
        let file = file.display();
        tracing::warn!("the snapshot {file} is ignored, and every record is read: {error}");
        if matches!(error, Unusable::Rejected(_)) {
            remove(self.state, self.journal);
        }
        None
    }

    /// Reads the snapshot from its databases; `None` if there is no snapshot. The returned snapshot
    /// continues to read from the databases.
    fn load_in_place(
        &self,
        is_known: &dyn Fn(&Checkpoint, Digest) -> bool,
    ) -> Result<Option<Snapshot>, Unusable> {
        let Some((header, files)) = self.find(is_known)? else { return Ok(None) };
        require_signed(file_digest(&files.state)?, header.file)?;
        require_signed(file_digest(&files.heads)?, header.heads)?;

        let SnapshotHeader { checkpoint, hash, .. } = &header;
        let read = || -> Result<_, Error> {
            let heads = TreeHeads::over_file(&files.heads, checkpoint.position, *hash)?;
            Ok((heads, RestingStore::over_file(&files.state)?))
        };
        // The databases are those that were signed, so another start may be able to use them: the
        // disk may be full now.
        let (heads, store) = read().map_err(std::io::Error::other)?;
        self.assemble(header, heads, store).map(Some)
    }

    /// Copies the snapshot's databases to the paths in `copies`, and reads the snapshot from these
    /// files. Returns `None` if there is no snapshot. The returned snapshot continues to use the
    /// files, and may change them.
    fn load_copy(
        &self,
        copies: &SnapshotFiles,
        is_known: &dyn Fn(&Checkpoint, Digest) -> bool,
    ) -> Result<Option<Snapshot>, Unusable> {
        let Some((header, files)) = self.find(is_known)? else { return Ok(None) };
        require_signed(copy_with_digest(&files.state, &copies.state)?, header.file)?;
        require_signed(copy_with_digest(&files.heads, &copies.heads)?, header.heads)?;

        let SnapshotHeader { checkpoint, hash, .. } = &header;
        let read = || -> Result<_, Error> {
            let heads = TreeHeads::in_file(&copies.heads, checkpoint.position, *hash)?;
            Ok((heads, RestingStore::in_file(&copies.state)?))
        };
        let (heads, store) = read().map_err(|error| rejected(error.to_string()))?;
        self.assemble(header, heads, store).map(Some)
    }

    /// Returns the header and the paths of the databases of the snapshot; `None` if there is no
    /// snapshot. Returns an error if the journal lacks the checkpoint that the header names, or if
    /// a database is missing.
    fn find(
        &self,
        is_known: &dyn Fn(&Checkpoint, Digest) -> bool,
    ) -> Result<Option<(SnapshotHeader, SnapshotFiles)>, Unusable> {
        let Some(header) = self.header()? else { return Ok(None) };
        let position = header.checkpoint.position;
        if !is_known(&header.checkpoint, header.hash) {
            return Err(rejected(format!("the journal has no such checkpoint at {position}")));
        }

        let files = self.databases(position);
        if !files.state.exists() || !files.heads.exists() {
            return Err(rejected("its database is gone"));
        }
        Ok(Some((header, files)))
    }

    /// Makes the snapshot with this header from the contents of its two databases: `heads` and
    /// `store`. Returns an error if the snapshot is unusable, for example if `heads` is `None`,
    /// because the database of heads is damaged.
    fn assemble(
        &self,
        header: SnapshotHeader,
        heads: Option<TreeHeads>,
        store: RestingStore,
    ) -> Result<Snapshot, Unusable> {
        let damaged = || rejected("it is damaged");
        let mut heads = heads.ok_or_else(damaged)?;
        let live = store.snapshot().map(read_live).transpose();
        let live = live.map_err(|error| rejected(format!("its trees are unreadable: {error}")))?;
        let live = live.flatten().ok_or_else(damaged)?;

        let SnapshotHeader { checkpoint, coverage, redactions, losses, signers, common, .. } =
            header;
        if heads.merkle_root() != checkpoint.merkle_root {
            return Err(rejected("its heads are not those of the checkpoint"));
        }

        let fresh = MacCoverage::new(self.journal, Some(self.key.mac()));
        let coverage = fresh.continued(checkpoint.position, &coverage);
        let coverage = coverage.ok_or_else(|| rejected("its MAC is damaged"))?;
        let state = StoredState { common, live, store };
        let evidence =
            SnapshotEvidence { checkpoint, heads, coverage, redactions, losses, signers };
        Ok(Snapshot { evidence, state })
    }

    /// Returns the header of the snapshot; `None` if there is no snapshot. Returns an error if this
    /// host did not sign the header, or if the snapshot belongs to another journal or to another
    /// version of the program.
    fn header(&self) -> Result<Option<SnapshotHeader>, Unusable> {
        let Some(text) = durable_file::read(&self.path(HEADER))? else { return Ok(None) };
        let text = String::from_utf8(text).map_err(|_| rejected("its header is damaged"))?;
        let (line, signature) = text.trim_end().split_once('\n').unwrap_or_default();
        let is_signed = is_signed_by(&self.key.public(), &signed_bytes(line), signature);
        if !is_signed && !mutant("trust-any-snapshot") {
            return Err(rejected("this host's key did not sign it"));
        }

        // A header of another format may lack fields of this format.
        let other = || rejected("another version of organism wrote it");
        let header: SnapshotHeader = serde_json::from_str(line).map_err(|_| other())?;
        if header.checkpoint.journal != self.journal {
            return Err(rejected("it is of another journal"));
        }

        let is_ours = (header.format, header.core_version) == (FORMAT, self.core_version);
        if is_ours && header.program == PROGRAM { Ok(Some(header)) } else { Err(other()) }
    }

    /// Deletes the snapshot.
    pub fn remove(&self) {
        remove(self.state, self.journal);
    }

    /// Returns the path of the file `name` of this journal's snapshots.
    fn path(&self, name: &str) -> PathBuf {
        file_of(self.state, self.journal, name)
    }

    fn databases(&self, position: Position) -> SnapshotFiles {
        SnapshotFiles {
            state: self.path(&format!("snapshot-{position}.state.db")),
            heads: self.path(&format!("snapshot-{position}.heads.db")),
        }
    }

    /// Begins a draft: the unfinished files of the next snapshot. Usually, the draft begins with a
    /// copy of the present snapshot. In two cases, the draft begins empty, and the next snapshot is
    /// made from every record:
    ///
    /// - There is no usable snapshot.
    /// - [`limits::SNAPSHOT_GENERATIONS`] snapshots in a row were made from copies. A new beginning
    ///   is due then, because each copy keeps the errors of the earlier snapshot.
    pub fn draft(
        &self,
        is_known: &dyn Fn(&Checkpoint, Digest) -> bool,
    ) -> Result<SnapshotDraft, Error> {
        remove_unfinished(self.state, self.journal);
        let files = SnapshotFiles { state: self.path(DRAFT), heads: self.path(HEADS_DRAFT) };
        let files = DraftFiles(files);
        let generation = self.header().ok().flatten().map_or(0, |header| header.generation);
        let base = if generation >= limits::SNAPSHOT_GENERATIONS {
            None
        } else {
            match self.load_copy(&files.0, is_known) {
                Ok(base) => base,
                Err(Unusable::Rejected(reason)) => {
                    tracing::info!("the next snapshot is made from every record: {reason}");
                    None
                }
                Err(Unusable::Io(error)) => {
                    return Err(Error::io(files.0.state.display().to_string())(error));
                }
            }
        };

        if let Some(base) = base {
            return Ok(SnapshotDraft { files, generation: generation + 1, base: Ok(base) });
        }

        files.0.remove();
        let store = RestingStore::in_file(&files.0.state)?;
        let heads = TreeHeads::in_new_file(&files.0.heads)?;
        Ok(SnapshotDraft { files, generation: 0, base: Err((heads, store)) })
    }

    /// Writes a snapshot from the files of a draft. The store in `state` must already contain the
    /// states of trees and of the keys under which clients may repeat submissions.
    pub fn write(
        &self,
        (draft, generation): (DraftFiles, u32),
        evidence: SnapshotEvidence,
        state: StoredState,
    ) -> Result<(), Error> {
        let SnapshotEvidence { checkpoint, mut heads, coverage, redactions, losses, signers } =
            evidence;
        let Some(coverage) = coverage.stored(checkpoint.position) else {
            let detail = "no MAC of this host covers the records of a snapshot";
            return Err(Error::broken(checkpoint.position.0, detail));
        };

        let StoredState { common, live, store } = state;
        heads.store_all()?;
        let hash = heads.last_hash();
        drop(heads);
        let context = format!("writing {}", draft.0.state.display());
        write_tables(&store, &live).map_err(Error::sqlite(context))?;
        drop(store);

        failpoint("snapshot-filled");
        let header = SnapshotHeader {
            format: FORMAT,
            core_version: self.core_version,
            program: PROGRAM.to_owned(),
            generation,
            checkpoint: checkpoint.clone(),
            hash,
            coverage,
            redactions,
            losses,
            signers,
            common,
            file: synced_digest(&draft.0.state)?,
            heads: synced_digest(&draft.0.heads)?,
        };

        let io = || Error::io(draft.0.state.display().to_string());
        let line = serde_json::to_string(&header).map_err(std::io::Error::other).map_err(io())?;
        let signature = self.key.sign_bytes(&signed_bytes(&line));
        let databases = self.databases(checkpoint.position);
        std::fs::rename(&draft.0.state, &databases.state).map_err(io())?;
        std::fs::rename(&draft.0.heads, &databases.heads).map_err(io())?;
        failpoint("snapshot-renamed");
        let header = self.path(HEADER);
        let unfinished = self.path(UNFINISHED_HEADER);
        let text = format!("{line}\n{signature}\n");
        durable_file::replace(&header, &unfinished, text.as_bytes()).map_err(io())?;
        failpoint("snapshot-written");
        remove_databases(self.state, self.journal, Some(&databases));
        Ok(())
    }
}

/// Deletes all files of a journal's snapshots.
pub fn remove(state: &Path, journal: Uuid) {
    remove_file(&file_of(state, journal, HEADER));
    remove_unfinished(state, journal);
    remove_databases(state, journal, None);
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The snapshot can never be used.
    #[error("{0}")]
    Rejected(String),
}

fn rejected(reason: impl Into<String>) -> Unusable {
    Unusable::Rejected(reason.into())
}

/// The two databases of a snapshot.
#[derive(Debug)]
struct SnapshotFiles {
    /// Database with two kinds of states: those of trees, and those of client keys, under which
    /// clients may repeat submissions.
    state: PathBuf,
    /// Database with the heads of trees.
    heads: PathBuf,
}

impl SnapshotFiles {
    fn remove(&self) {
        remove_file(&self.state);
        remove_file(&self.heads);
    }
}

/// The files of an unfinished snapshot. Dropping this value deletes those files that were not
/// renamed.
#[derive(Debug)]
pub struct DraftFiles(SnapshotFiles);

impl Drop for DraftFiles {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// An unfinished snapshot in its own files.
#[derive(Debug)]
pub struct SnapshotDraft {
    pub files: DraftFiles,
    /// Number of earlier snapshots in the chain of copies that ends with this draft; 0 if the draft
    /// begins empty.
    pub generation: u32,
    /// Content with which the draft begins. `Ok` contains the present snapshot, and `Err` contains
    /// empty heads and an empty store.
    pub base: Result<Snapshot, (TreeHeads, RestingStore)>,
}

fn signed_bytes(line: &str) -> Vec<u8> {
    [b"organism snapshot\n", line.as_bytes()].concat()
}

fn file_of(state: &Path, journal: Uuid, name: &str) -> PathBuf {
    state.join(format!("{journal}.{name}"))
}

/// Syncs the file at `path` to the disk, and returns the digest of the file.
fn synced_digest(path: &Path) -> Result<Digest, Error> {
    let failed = || Error::io(path.display().to_string());
    File::open(path).and_then(|file| file.sync_all()).map_err(failed())?;
    file_digest(path).map_err(failed())
}

/// Returns an error if a database has another digest than the one in the signed header.
fn require_signed(digest: Digest, signed: Digest) -> Result<(), Unusable> {
    if digest != signed && !mutant("trust-any-snapshot") {
        return Err(rejected("its database is not the one that was signed"));
    }
    Ok(())
}

/// Reads the roots of the trees that must be in memory. Returns `None` if a root is not a valid
/// thread id.
fn read_live(db: &Connection) -> rusqlite::Result<Option<Vec<ThreadId>>> {
    let mut query = db.prepare("SELECT name FROM live")?;
    let names = query.query_map([], |row| row.get::<_, String>(0))?;
    let names = names.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(names.iter().map(|name| ThreadId::parse(name).ok()).collect())
}

/// Writes two tables of a snapshot: the roots of the trees that must be in memory, and the Bloom
/// filter of all names in the store.
fn write_tables(store: &RestingStore, live: &[ThreadId]) -> rusqlite::Result<()> {
    let db = store.connection().expect("the store of a draft is open");
    let write = db.unchecked_transaction()?;
    db.execute_batch(TABLES)?;
    db.execute("DELETE FROM live", [])?;
    let mut insert = db.prepare("INSERT INTO live(name) VALUES (?1)")?;
    for root in live {
        insert.execute([root.as_str()])?;
    }

    store.write_filter()?;
    write.commit()
}

/// Deletes the databases of a journal's snapshots, except for `kept`.
fn remove_databases(state: &Path, journal: Uuid, kept: Option<&SnapshotFiles>) {
    let begin = format!("{journal}.snapshot-");
    for entry in std::fs::read_dir(state).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_kept = kept.is_some_and(|kept| path == kept.state || path == kept.heads);
        if name.starts_with(&begin) && name.ends_with(".db") && !is_kept {
            remove_file(&path);
        }
    }
}

/// Deletes the unfinished files that a killed process has left.
pub(super) fn remove_unfinished(state: &Path, journal: Uuid) {
    for name in [DRAFT, HEADS_DRAFT, UNFINISHED_HEADER].iter().chain(&EARLIER_COPIES) {
        remove_file(&file_of(state, journal, name));
    }
}

fn remove_file(path: &Path) {
    if let Err(error) = durable_file::remove(path) {
        tracing::warn!("could not delete {}: {error}", path.display());
    }
}
