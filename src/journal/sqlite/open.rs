//! Opening a journal to write: nothing is written before everything that stands there is proved.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::journal::checkpoint::{CheckpointFile, CheckpointKey};
use crate::journal::checkpoint_signer::CheckpointSigner;
use crate::journal::copy_directory::{CopyDirectory, UncopiedCheckpoints};
use crate::journal::log::LogMark;
use crate::journal::mac::{HeadSealer, MacCoverage};
use crate::journal::record_codec::RecordBatch;
use crate::journal::writer::{JournalRecovery, JournalWriter};
use crate::journal::{Error, FORMAT, HashedRecord, TreeHeads, durable_file};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::AcceptedLoss;

use super::directory::{self, CommitWatermark, DATABASE, DirectoryLock, make};
use super::external_marks::{ExternalMarks, agree, refuse_lost_file, unreadable};
use super::judge::{ProvedFile, is_lost};
use super::redactions::RedactedRecords;
use super::repair::{
    TableRepair, TakenOut, drop_checkpoints_behind, keep_uncovered_aside, set_file_aside,
};
use super::wal_checkpointer::WalCheckpointer;
use super::{
    JournalFile, JournalMetadata, JournalReader, SCHEMA, STREAM, SqliteJournal, SqliteLog, scan,
    write,
};

/// A journal's directory that is ours, before anything in it was read.
pub struct LockedJournalDir {
    data: PathBuf,
    state: PathBuf,
    /// Where checkpoints are copied to.
    copies: Option<PathBuf>,
    lock: DirectoryLock,
    key: CheckpointKey,
}

/// Locks a directory that journals of several partitions lie in. The key that they all sign with
/// is there then.
pub fn hold(data: &Path, state: &Path) -> Result<DirectoryLock, Error> {
    make(data)?;
    make(state)?;
    let lock = DirectoryLock::take(data)?;
    CheckpointKey::open(state)?;
    Ok(lock)
}

impl LockedJournalDir {
    pub fn begin(data: &Path, state: &Path) -> Result<Self, Error> {
        for directory in [data, state] {
            make(directory)?;
        }
        let lock = DirectoryLock::take(data)?;
        let key = CheckpointKey::open(state)?;
        Ok(Self { data: data.to_owned(), state: state.to_owned(), copies: None, lock, key })
    }

    /// Compares the journal with the copies of its checkpoints in that directory, and goes on with
    /// them.
    pub fn with_copies(self, directory: Option<&Path>) -> Self {
        Self { copies: directory.map(Path::to_owned), ..self }
    }

    pub fn exists(&self) -> bool {
        self.data.join(DATABASE).exists()
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// `mark`: of a projection, how far it followed its stream.
    pub fn create(&self, journal: Uuid, mark: Option<LogMark>) -> Result<(), Error> {
        create(&self.data, &JournalMetadata { journal, epoch: 0, key: self.key.public() }, mark)
    }

    /// Whose journal the file is, and how far it followed which stream, if it is a projection.
    pub fn found(&self) -> Result<(Uuid, Option<String>), Error> {
        let reader = JournalReader::open(&self.data)?;
        Ok((reader.about()?.journal, reader.meta(STREAM)?))
    }

    /// Reads and proves everything that is there, and opens it to write.
    ///
    /// The connection that writes later takes the write lock first and keeps it until everything
    /// is proved: the end of the write-ahead log that it found is the end that was proved. Without
    /// that, a commit that reached the log of a killed pump, but not its index, would appear
    /// behind what was proved as soon as the last reader let go of the index.
    pub(super) fn prove(
        self,
        purpose: OpenPurpose,
        accept: OperatorAcceptance,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<(SqliteJournal, ExternalMarks, JournalMetadata), Error> {
        JournalReader::open(&self.data)?.check_tables()?;
        let db = connect(&self.data).map_err(Error::sqlite("opening the journal"))?;
        write::begin(&db)?;
        // Where another key is accepted, what stands there counts as it is.
        let taken_out = match accept.loss && !accept.key {
            true => keep_uncovered_aside(&self.data, &self.state, &self.key)?,
            false => None,
        };

        let end = taken_out.as_ref().map(|out| Position(out.first.0 - 1));
        let mut proved = self.prove_file(purpose, accept, end, visit)?;
        if end.is_none() {
            proved.take_rest(&db, visit)?;
        }

        if purpose != OpenPurpose::Follow {
            let accept = OperatorAcceptance { key: false, ..accept };
            proved.known.with_key = proved.is_under_another_key(&self.key, accept);
        }

        let (loss, mend) = proved.judge_known(purpose, accept, &self.state)?;
        let before = proved.about.key.clone();

        match purpose {
            OpenPurpose::Follow => {
                drop_checkpoints_behind(&db, proved.heads.last()).map_err(write::failed)?;
            }
            OpenPurpose::Write | OpenPurpose::Move => {
                let is_lost = is_lost(&loss, &mend);
                proved.judge_end(&self.data, &self.key, accept, is_lost)?;
                proved.redactions.judge(accept)?;
            }
        }

        if purpose == OpenPurpose::Write {
            // Where another key is accepted, the old one stays known until the action is on record.
            let key = if accept.key { before.clone() } else { self.key.public() };
            proved.about = JournalMetadata { epoch: proved.about.epoch + 1, key, ..proved.about };
            write::about(&db, &proved.about).map_err(write::failed)?;
        }

        if !write::has_mac(&db).map_err(write::failed)? {
            db.execute_batch(super::MAC_COLUMN).map_err(write::failed)?;
        }

        write::commit(&db)?;
        let found = FoundJournal {
            key: before,
            without_mac: proved.coverage.first().is_none(),
            covered: proved.coverage.covered(),
            last: proved.heads.last(),
            loss,
            taken_out,
            put_back: mend.put_back.len(),
            set_aside: None,
        };

        self.journal(db, proved, found, mend, accept != OperatorAcceptance::default())
    }

    /// The journal that was proved, in the hands of this process.
    fn journal(
        self,
        db: Connection,
        proved: ProvedFile,
        found: FoundJournal,
        mend: TableRepair,
        awaits_action: bool,
    ) -> Result<(SqliteJournal, ExternalMarks, JournalMetadata), Error> {
        let ProvedFile {
            about, known, heads, coverage, unwritten, checked, refreshed, kept, ..
        } = proved;
        let sealer = sealer(&self.key, about.journal, &coverage, &heads);
        let signer = CheckpointSigner {
            journal: about.journal,
            public_key: self.key.public(),
            key: self.key,
            outside: CheckpointFile::new(&self.state, about.journal),
            unwritten,
            copying: CopyDirectory::new(self.copies, proved.uncopied, proved.given_up),
            checked,
            checked_at: None,
        };

        let watermark = CommitWatermark::open(&self.state, about.journal)?;
        let file = JournalFile {
            db,
            epoch: about.epoch,
            mend,
            refreshed,
            wal_bytes: 0,
            mover: WalCheckpointer::new(&self.data),
            data: self.data,
            state: self.state,
            _lock: self.lock,
        };

        let journal = JournalWriter {
            id: about.journal,
            heads,
            rows: RecordBatch::default(),
            coverage,
            sealer,
            watermark,
            signer,
            recovery: JournalRecovery { found, kept, awaits_action },
            owed: None,
            unshown: None,
            stopped: None,
            log: SqliteLog,
            file,
        };

        Ok((journal, known, about))
    }
}

/// What a journal is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenPurpose {
    /// To append to it, in a new epoch.
    Write,
    /// To move it elsewhere: everything is in the file.
    Move,
    /// To follow a stream, which may hold more than the file.
    Follow,
}

/// What an operator accepts of a journal that a start refuses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperatorAcceptance {
    /// That it was kept before there were MACs.
    pub without_mac: bool,
    /// That it ends before what was acknowledged.
    pub loss: bool,
    /// That its MACs are of another key, or missing: what stands there counts as it is.
    pub key: bool,
    /// That payloads were blanked.
    pub redaction: bool,
}

/// How a journal was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundJournal {
    /// The public key of the pump that had it last.
    pub key: String,
    /// None of its records has a MAC.
    pub without_mac: bool,
    /// The last record that a MAC of this host's key covers.
    pub covered: Position,
    /// The last record that was kept of it.
    pub last: Position,
    /// What an operator accepts as lost of it: what was known outside it and does not stand in it.
    pub loss: AcceptedLoss,
    /// Records behind the last that was kept, which go with the commit of the operator's action.
    pub taken_out: Option<TakenOut>,
    /// Checkpoints that were missing in it and stand outside: they are put back with that commit.
    pub put_back: usize,
    /// The file that lay in its place and was no journal, under its name of now.
    pub set_aside: Option<PathBuf>,
}

impl SqliteJournal {
    /// Opens the journal in directory `data`, or makes one, and hands every record to `visit`,
    /// in order. `state` keeps the signing key and the checkpoints outside.
    ///
    /// A commit that was cut short before it was acknowledged is dropped; anything else that is
    /// missing or different from what was acknowledged is [`Error::Broken`].
    pub fn open(
        data: &Path,
        state: &Path,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        Self::open_accepting(data, state, OperatorAcceptance::default(), visit)
    }

    /// As [`SqliteJournal::open`], for an operator who accepts what it would refuse. What is accepted
    /// takes effect with the commit of the first records, which hold the operator's action: a crash
    /// before it leaves everything as it was.
    pub fn open_accepting(
        data: &Path,
        state: &Path,
        accept: OperatorAcceptance,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        Self::open_with_copies(data, state, None, accept, visit)
    }

    /// As [`SqliteJournal::open_accepting`]; checkpoints are copied into `copies` as well, and the journal
    /// is held to those that are there.
    pub fn open_with_copies(
        data: &Path,
        state: &Path,
        copies: Option<&Path>,
        accept: OperatorAcceptance,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let opening = LockedJournalDir::begin(data, state)?.with_copies(copies);
        let set_aside = opening.make_room(accept)?;
        if !opening.exists() {
            if !accept.loss {
                refuse_lost_file(data, state)?;
            }
            opening.create(Uuid::now_v7(), None)?;
        } else if opening.found()?.1.is_some() {
            let detail = "follows a journal on JetStream, which goes on there alone: start it \
                          with `store = \"jetstream\"`, or name another directory";
            return Err(Error::Strange { path: data.display().to_string(), detail: detail.into() });
        }

        let (mut journal, ..) = opening.prove(OpenPurpose::Write, accept, visit)?;
        journal.recovery.found.set_aside = set_aside;
        failpoint("epoch-raised");
        if !journal.recovery.awaits_action {
            journal.settle()?;
        }

        Ok(journal)
    }

    /// Puts copies of checkpoints aside that are over what an operator accepted as lost, on record.
    pub fn put_aside_lost_copies(&mut self) {
        self.signer.copying.put_aside_given_up(self.id);
    }

    /// The MAC of the next commit follows the last one that covers everything there is.
    pub(super) fn renew_sealer(&mut self) {
        self.sealer = sealer(&self.signer.key, self.id, &self.coverage, &self.heads);
    }

    /// A new epoch for this pump: from here on, commits of any earlier one are fenced off.
    pub(super) fn raise_epoch(
        &mut self,
        before: &JournalMetadata,
        epoch: u32,
    ) -> Result<(), Error> {
        let after = JournalMetadata { epoch, key: self.signer.key.public(), ..before.clone() };
        write::transaction(&self.file.db, before.epoch, |db| write::about(db, &after))?;
        self.file.epoch = epoch;
        Ok(())
    }
}

impl<L> JournalWriter<L> {
    /// Does what a crash may have left undone: the watermark, lines outside, the trees' table.
    pub(in crate::journal) fn settle(&mut self) -> Result<(), Error> {
        let file = &mut self.file;
        let kept = self.recovery.kept.take().unwrap_or(self.heads.last());
        self.signer.outside.keep_up_to(kept).map_err(Error::io("checkpoints outside"))?;
        // Also in an empty journal: where the disk is full later, the mark has its room.
        // A journal from before MACs keeps its old mark until its first commit has one.
        if self.heads.last() == Position(0) || self.coverage.last().is_some() {
            self.watermark.set(self.heads.last(), self.heads.last_hash())?;
            CommitWatermark::remove_beside(&file.data)?;
        }

        directory::note_journal(&file.data, &file.state, self.id)?;
        self.signer.write_outside();
        self.signer.copying.put_aside_given_up(self.id);
        self.signer.copying.copy(self.id, []);
        if file.refreshed < self.heads.last() {
            return file.refresh_trees(&mut self.heads);
        }

        self.heads.saved();
        Ok(())
    }
}

/// Makes the file complete under another name first: no crash leaves half a journal.
fn create(data: &Path, about: &JournalMetadata, mark: Option<LogMark>) -> Result<(), Error> {
    let half = data.join("journal.new");
    for name in ["journal.new", "journal.new-journal"] {
        let removed = durable_file::remove(&data.join(name));
        removed.map_err(Error::io(half.display().to_string()))?;
    }

    let fill = || -> rusqlite::Result<()> {
        let db = Connection::open(&half)?;
        db.pragma_update(None, "page_size", limits::JOURNAL_PAGE_BYTES as i64)?;
        db.execute_batch(&format!("BEGIN; {SCHEMA} {};", super::MAC_COLUMN))?;
        write::set_meta(&db, "format", &FORMAT.to_string())?;
        write::about(&db, about)?;
        mark.map_or(Ok(()), |mark| write::set_meta(&db, STREAM, &mark.to_string()))?;
        write::set_meta(&db, "refreshed", "0")?;
        db.execute_batch("COMMIT")
    };

    fill().map_err(Error::sqlite("making the journal"))?;
    let file = data.join(DATABASE);
    let renamed = std::fs::rename(&half, &file).and_then(|()| durable_file::sync_parent(&file));
    renamed.map_err(Error::io(file.display().to_string()))
}

impl LockedJournalDir {
    /// Puts a file aside that is no journal and lies in the place of one, where an operator accepts
    /// the loss of that one.
    fn make_room(&self, accept: OperatorAcceptance) -> Result<Option<PathBuf>, Error> {
        let found = match self.exists() {
            true => self.found(),
            false => return Ok(None),
        };

        match found.map_err(|error| unreadable(&self.data, &self.state, error)) {
            Ok(_) => Ok(None),
            Err(Error::Broken { .. }) if accept.loss && self.is_no_journal() => {
                set_file_aside(&self.data).map(Some)
            }
            Err(error) => Err(error),
        }
    }

    fn is_no_journal(&self) -> bool {
        matches!(JournalReader::open(&self.data), Err(Error::Unreadable { .. }))
    }

    /// Reads everything up to `end`, holding it against what is known from outside the file.
    /// Read-only, so that a damaged journal stays as it is for whoever looks into it.
    fn prove_file(
        &self,
        purpose: OpenPurpose,
        accept: OperatorAcceptance,
        end: Option<Position>,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<ProvedFile, Error> {
        let reader = JournalReader::open(&self.data)?;
        let about = reader.about()?;
        let last = end.map_or_else(|| reader.last(), Ok)?;
        let copies = self.copies.as_deref();
        let mut known = ExternalMarks::read(&self.data, &self.state, copies, about.journal)?;
        if purpose == OpenPurpose::Follow {
            // The stream says which journal it is.
            known.before = None;
        }

        let mut uncopied = UncopiedCheckpoints::default();
        let mut due = reader.checkpoints()?;
        due.reverse();
        let mut heads = TreeHeads::default();
        let mut coverage = MacCoverage::new(about.journal, Some(self.key.mac()));
        let mut redactions = RedactedRecords::default();
        let scanned = scan(&self.data, last, &mut heads, &mut |sealed, heads| {
            coverage.take(sealed.hash, sealed.mac, heads);
            redactions.take(&sealed);
            known.take(&sealed, heads);
            if let Some(line) = due.pop_if(|line| line.position == sealed.record.position) {
                uncopied.take(&line, &known.copies, heads);
                // Those of other hosts prove what their pumps wrote.
                if purpose == OpenPurpose::Follow {
                    agree(&line, heads)?;
                    known.signers.take_checkpoint(&line);
                }
            }
            visit(sealed)
        });
        if scanned.is_err() && purpose != OpenPurpose::Follow && !accept.loss {
            // What is known outside explains more than the first record that does not follow.
            known.check_end(last)?;
            known.disagreement()?;
        }

        scanned?;

        let mut unwritten = reader.checkpoints()?;
        unwritten.retain(|checkpoint| end.is_none_or(|end| checkpoint.position <= end));
        let is_right = !accept.loss && reader.agrees_with(&heads)?;
        let refreshed = if is_right { heads.last() } else { Position(0) };
        let (checked, kept) = (Position(0), None);
        Ok(ProvedFile {
            uncopied: uncopied.lines,
            given_up: Vec::new(),
            about,
            redactions,
            known,
            heads,
            coverage,
            unwritten,
            checked,
            refreshed,
            kept,
        })
    }
}

pub(super) fn connect(data: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(data.join(DATABASE), flags)?;
    db.busy_timeout(limits::JOURNAL_BUSY_TIMEOUT)?;
    // Let go of after an error, everything stays where it is: only a pump that ends as it should
    // moves the write-ahead log.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        let unusable = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        let detail = format!("the file system allows no write-ahead log (`{mode}`)");
        return Err(rusqlite::Error::SqliteFailure(unusable, Some(detail)));
    }

    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;")?;
    if mutant("skip-the-fsync") {
        db.execute_batch("PRAGMA synchronous = OFF")?;
    }

    Ok(db)
}

/// Continues the chain of MACs where the last one covers the end of the journal; begins a new
/// chain otherwise.
fn sealer(
    key: &CheckpointKey,
    journal: Uuid,
    coverage: &MacCoverage,
    heads: &TreeHeads,
) -> HeadSealer {
    let is_covered = coverage.covered() == heads.last();
    let last = coverage.last().filter(|_| is_covered).map(|(_, mac)| mac);
    HeadSealer::new(key.mac(), journal, last)
}
