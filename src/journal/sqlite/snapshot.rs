//! Snapshots: the state of a pump at a checkpoint, so that a start need not read every record.
//!
//! A snapshot is two files in the state directory, beside the host's key: a database with the heads
//! of all trees and with the texts of all trees and client keys, and a header that the key signs.
//! The header names the digest of the database's file, and is written last. A start works on a copy
//! of the database. All of it is in the state directory, because write access to the journal's
//! directory alone must not suffice to change what the key signs or has signed.
//!
//! Snapshots are derived data. If a snapshot is missing, damaged, of another version, or bound to
//! no checkpoint of the journal, the start ignores it and reads every record.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ring::digest;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Time;
use crate::failpoint::failpoint;
use crate::ids::{Digest, Position, ThreadId};
use crate::journal::checkpoint::{CheckpointKey, is_signed_by};
use crate::journal::mac::StoredCoverage;
use crate::journal::signers::CheckpointSigners;
use crate::journal::{
    Checkpoint, Error, MacCoverage, RedactedRecords, TreeHead, TreeHeads, durable_file,
};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{AcceptedLoss, CommonState};

use super::RestingStore;

/// Version of the files. A snapshot of another version is ignored.
const FORMAT: u32 = 2;
/// Version of this program. A snapshot must have the same version, because the form of the trees'
/// texts depends on the program's types.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
const HEADER: &str = "snapshot.json";
const UNFINISHED_HEADER: &str = "snapshot.json.new";
const DRAFT: &str = "snapshot.new";
const COPY: &str = "snapshot.copy";
const TABLES: &str = "CREATE TABLE IF NOT EXISTS head(number INTEGER PRIMARY KEY, \
                      root TEXT NOT NULL, first INTEGER NOT NULL, position INTEGER NOT NULL, \
                      hash BLOB NOT NULL, records INTEGER NOT NULL, opened INTEGER NOT NULL, \
                      updated INTEGER NOT NULL); \
                      CREATE TABLE IF NOT EXISTS live(name TEXT PRIMARY KEY) WITHOUT ROWID;";

/// The state of a pump, with the texts of its trees and client keys in a store.
#[derive(Debug)]
pub struct StoredState {
    pub common: CommonState,
    /// Roots of the trees that must be in memory.
    pub live: Vec<ThreadId>,
    pub store: RestingStore,
}

/// Evidence about the records up to a checkpoint. A start that has this evidence need not read
/// these records.
#[derive(Debug)]
pub struct SnapshotEvidence {
    pub checkpoint: Checkpoint,
    pub heads: TreeHeads,
    pub coverage: MacCoverage,
    pub redactions: RedactedRecords,
    /// Losses that operators accepted in recorded actions.
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

/// The signed part of a snapshot. Its checkpoint names the journal and the position of the
/// snapshot.
#[derive(Serialize, Deserialize)]
struct SnapshotHeader {
    #[serde(rename = "format")]
    format: u32,
    #[serde(rename = "core_version")]
    core_version: u32,
    #[serde(rename = "program")]
    program: String,
    /// Number of snapshots since the last one that was made from every record.
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
    /// Digest of the file with the snapshot's database.
    #[serde(rename = "file")]
    file: Digest,
}

/// The place of the snapshots of one journal, and the values that a snapshot must match.
#[derive(Debug)]
pub struct SnapshotPlace<'p> {
    pub state: &'p Path,
    pub key: &'p CheckpointKey,
    pub journal: Uuid,
    pub core_version: u32,
}

impl SnapshotPlace<'_> {
    /// Returns the position of the snapshot, read from its header alone; 0 if there is no snapshot.
    /// The caller decides by it when to write the next snapshot.
    pub fn position(&self) -> Position {
        let header = self.header().ok().flatten();
        header.map(|header| header.checkpoint.position).unwrap_or_default()
    }

    /// Reads the snapshot. If the snapshot cannot be used now, logs why and returns `None`. Also
    /// deletes the snapshot if it can never be used. `is_known` states whether the journal has this
    /// checkpoint, and a record with this hash at its position.
    pub fn load(&self, is_known: &dyn Fn(&Checkpoint, Digest) -> bool) -> Option<Snapshot> {
        remove_unfinished(self.state, self.journal);
        let copy = self.path(COPY);
        let loaded = self.load_through(&copy, is_known);
        if let Err(error) = durable_file::remove(&copy) {
            tracing::warn!("could not delete {}: {error}", copy.display());
        }

        let error = match loaded {
            Ok(snapshot) => return snapshot,
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

    /// Copies the snapshot's database to `copy` and reads the snapshot from that copy. The store of
    /// the returned state is the copy.
    fn load_through(
        &self,
        copy: &Path,
        is_known: &dyn Fn(&Checkpoint, Digest) -> bool,
    ) -> Result<Option<Snapshot>, Unusable> {
        let Some(header) = self.header()? else { return Ok(None) };
        let checkpoint = &header.checkpoint;
        if !is_known(checkpoint, header.hash) {
            let position = checkpoint.position;
            return Err(rejected(format!("the journal has no such checkpoint at {position}")));
        }

        let source = self.database(checkpoint.position);
        if !source.exists() {
            return Err(rejected("its database is gone"));
        }

        std::fs::copy(&source, copy)?;
        let digest = digest_of(&mut File::open(copy)?)?;
        if digest != header.file && !mutant("trust-any-snapshot") {
            return Err(rejected("its database is not the one that was signed"));
        }

        let read = read_database(copy, &header).map_err(|error| rejected(error.to_string()))?;
        let Some((heads, live, store)) = read else { return Err(rejected("it is damaged")) };
        self.assemble(header, heads, live, store).map(Some)
    }

    fn assemble(
        &self,
        header: SnapshotHeader,
        mut heads: TreeHeads,
        live: Vec<ThreadId>,
        store: RestingStore,
    ) -> Result<Snapshot, Unusable> {
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

    /// Returns the header of the snapshot, if this host signed it for this journal and this version
    /// of the program.
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

    fn database(&self, position: Position) -> PathBuf {
        self.path(&format!("snapshot-{position}.db"))
    }

    /// Begins a draft of the next snapshot with the content of the present one. After
    /// [`limits::SNAPSHOT_GENERATIONS`] snapshots, the draft begins empty, so that later snapshots
    /// do not inherit an error of a snapshot for ever.
    pub fn draft(
        &self,
        is_known: &dyn Fn(&Checkpoint, Digest) -> bool,
    ) -> Result<SnapshotDraft, Error> {
        remove_unfinished(self.state, self.journal);
        let path = self.path(DRAFT);
        let file = DraftFile { path: path.clone() };
        let generation = self.header().ok().flatten().map_or(0, |header| header.generation);
        let base = if generation >= limits::SNAPSHOT_GENERATIONS {
            None
        } else {
            match self.load_through(&path, is_known) {
                Ok(base) => base,
                Err(Unusable::Rejected(reason)) => {
                    tracing::info!("the next snapshot is made from every record: {reason}");
                    None
                }
                Err(Unusable::Io(error)) => {
                    return Err(Error::io(path.display().to_string())(error));
                }
            }
        };

        let Some(Snapshot { mut evidence, state }) = base else {
            durable_file::remove(&path).map_err(Error::io(path.display().to_string()))?;
            let store = RestingStore::in_file(&path)?;
            return Ok(SnapshotDraft { file, generation: 0, base: None, store });
        };

        evidence.heads.saved();
        let StoredState { common, live, store } = state;
        let base = Some((evidence, common, live));
        Ok(SnapshotDraft { file, generation: generation + 1, base, store })
    }

    /// Writes a snapshot from a draft, whose store already contains the texts of trees and client
    /// keys.
    pub fn write(
        &self,
        (draft, generation): (DraftFile, u32),
        evidence: &SnapshotEvidence,
        state: StoredState,
    ) -> Result<(), Error> {
        let draft = &draft.path;
        let SnapshotEvidence { checkpoint, heads, coverage, redactions, losses, signers } =
            evidence;
        let Some(coverage) = coverage.stored(checkpoint.position) else {
            let detail = "no MAC of this host covers the records of a snapshot";
            return Err(Error::broken(checkpoint.position.0, detail));
        };

        let StoredState { common, live, store } = state;
        let failed = || Error::sqlite("writing a snapshot");
        let db = store.connection().expect("the store of a draft is open");
        write_tables(db, heads, &live).map_err(failed())?;
        drop(store);

        failpoint("snapshot-filled");
        let io = || Error::io(draft.display().to_string());
        let mut file = File::open(draft).map_err(io())?;
        file.sync_all().map_err(io())?;
        let header = SnapshotHeader {
            format: FORMAT,
            core_version: self.core_version,
            program: PROGRAM.to_owned(),
            generation,
            checkpoint: checkpoint.clone(),
            hash: heads.last_hash(),
            coverage,
            redactions: redactions.clone(),
            losses: losses.clone(),
            signers: signers.clone(),
            common,
            file: digest_of(&mut file).map_err(io())?,
        };

        let line = serde_json::to_string(&header).map_err(std::io::Error::other).map_err(io())?;
        let signature = self.key.sign_bytes(&signed_bytes(&line));
        let database = self.database(checkpoint.position);
        std::fs::rename(draft, &database).map_err(io())?;
        failpoint("snapshot-renamed");
        let header = self.path(HEADER);
        let unfinished = self.path(UNFINISHED_HEADER);
        let text = format!("{line}\n{signature}\n");
        durable_file::replace(&header, &unfinished, text.as_bytes()).map_err(io())?;
        failpoint("snapshot-written");
        remove_databases(self.state, self.journal, Some(&database));
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

/// The file of a draft. Dropping this value deletes the file, unless the file was renamed.
#[derive(Debug)]
pub struct DraftFile {
    path: PathBuf,
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        remove_file(&self.path);
    }
}

/// An unfinished snapshot in its own file.
#[derive(Debug)]
pub struct SnapshotDraft {
    pub file: DraftFile,
    /// Number of snapshots since the last one that began empty.
    pub generation: u32,
    /// The content of the earlier snapshot with which the draft begins, without its store; `None`
    /// if the draft begins empty.
    pub base: Option<(SnapshotEvidence, CommonState, Vec<ThreadId>)>,
    pub store: RestingStore,
}

fn signed_bytes(line: &str) -> Vec<u8> {
    [b"organism snapshot\n", line.as_bytes()].concat()
}

fn file_of(state: &Path, journal: Uuid, name: &str) -> PathBuf {
    state.join(format!("{journal}.{name}"))
}

fn digest_of(file: &mut File) -> std::io::Result<Digest> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut block = vec![0; limits::SNAPSHOT_BLOCK_BYTES];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            break;
        }
        context.update(block.get(..read).unwrap_or_default());
    }

    let digest = context.finish();
    Ok(Digest(digest.as_ref().try_into().expect("a SHA-256 digest has 32 bytes")))
}

type DatabaseContent = (TreeHeads, Vec<ThreadId>, RestingStore);

/// Reads the database of a snapshot; `None` if a value in it is damaged.
fn read_database(file: &Path, header: &SnapshotHeader) -> Result<Option<DatabaseContent>, Error> {
    let failed = || Error::sqlite("reading a snapshot");
    let store = RestingStore::in_file(file)?;
    let Some(db) = store.connection() else { return Ok(None) };
    let heads = read_heads(db).map_err(failed())?;
    let live = read_live(db).map_err(failed())?;
    let Some((heads, live)) = heads.zip(live) else { return Ok(None) };
    let heads = TreeHeads::from_rows(heads, header.checkpoint.position, header.hash);
    Ok(Some((heads, live, store)))
}

fn read_heads(db: &Connection) -> rusqlite::Result<Option<Vec<TreeHead>>> {
    let sql = "SELECT root, first, position, hash, records, opened, updated FROM head \
               ORDER BY number";
    let mut query = db.prepare(sql)?;
    let mut rows = query.query([])?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next()? {
        let Ok(root) = ThreadId::parse(row.get_ref(0)?.as_str()?) else { return Ok(None) };
        heads.push(TreeHead {
            root,
            first: Position(row.get(1)?),
            position: Position(row.get(2)?),
            hash: Digest(row.get(3)?),
            records: row.get(4)?,
            opened: Time(row.get(5)?),
            updated: Time(row.get(6)?),
            unsummed: true,
            unsaved: true,
        });
    }

    Ok(Some(heads))
}

fn read_live(db: &Connection) -> rusqlite::Result<Option<Vec<ThreadId>>> {
    let mut query = db.prepare("SELECT name FROM live")?;
    let names = query.query_map([], |row| row.get::<_, String>(0))?;
    let names = names.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(names.iter().map(|name| ThreadId::parse(name).ok()).collect())
}

/// Writes the heads that changed since the draft began, and the names of the trees that must be in
/// memory.
fn write_tables(db: &Connection, heads: &TreeHeads, live: &[ThreadId]) -> rusqlite::Result<()> {
    let write = db.unchecked_transaction()?;
    db.execute_batch(TABLES)?;
    let sql = "INSERT OR REPLACE INTO head(number, root, first, position, hash, records, opened, \
               updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let mut insert = db.prepare(sql)?;
    for (number, head) in heads.unsaved_numbered() {
        insert.execute((
            number as u64,
            head.root.as_str(),
            head.first.0,
            head.position.0,
            head.hash.0,
            head.records,
            head.opened.0,
            head.updated.0,
        ))?;
    }

    db.execute("DELETE FROM live", [])?;
    let mut insert = db.prepare("INSERT INTO live(name) VALUES (?1)")?;
    for root in live {
        insert.execute([root.as_str()])?;
    }

    write.commit()
}

/// Deletes the databases of a journal's snapshots, except for `kept`.
fn remove_databases(state: &Path, journal: Uuid, kept: Option<&Path>) {
    let begin = format!("{journal}.snapshot-");
    for entry in std::fs::read_dir(state).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&begin) && name.ends_with(".db") && Some(path.as_path()) != kept {
            remove_file(&path);
        }
    }
}

/// Deletes unfinished files of a process that was killed before it could delete them.
fn remove_unfinished(state: &Path, journal: Uuid) {
    for name in [COPY, DRAFT, UNFINISHED_HEADER] {
        remove_file(&file_of(state, journal, name));
    }
}

fn remove_file(path: &Path) {
    if let Err(error) = durable_file::remove(path) {
        tracing::warn!("could not delete {}: {error}", path.display());
    }
}
