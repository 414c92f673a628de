//! Opening a journal to write: nothing is written before everything that stands there is proved.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::journal::checkpoint::{Key, Outside};
use crate::journal::{Checkpoint, Error, FORMAT, Heads, Sealed};
use crate::limits;
use crate::mutant::mutant;

use super::directory::{DATABASE, Lock, Watermark};
use super::mover::Mover;
use super::row::Rows;
use super::{About, Journal, Reader, SCHEMA, scan, write};

impl Journal {
    /// Opens the journal in directory `data`, or makes one, and hands every record to `visit`,
    /// in order. `state` keeps the signing key and the checkpoints outside.
    ///
    /// A commit that was cut short before it was acknowledged is dropped; anything else that is
    /// missing or different from what was acknowledged is [`Error::Broken`].
    pub fn open(
        data: &Path,
        state: &Path,
        visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        for directory in [data, state] {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(Error::io(directory.display().to_string()))?;
        }
        let lock = Lock::take(data)?;
        let key = Key::open(state)?;
        if !data.join(DATABASE).exists() {
            refuse_lost_file(data)?;
            create(data, &key)?;
        }
        let proved = prove(data, state, visit)?;
        let db = connect(data).map_err(Error::sqlite("opening the journal"))?;
        let epoch = raise_epoch(&db, &proved.about, &key)?;
        failpoint("epoch-raised");
        let mut journal = Self {
            db,
            id: proved.about.journal,
            epoch,
            watermark: Watermark::open(data)?,
            key,
            outside: proved.outside,
            unwritten: proved.unwritten,
            checked: proved.checked,
            checked_at: None,
            refreshed: proved.refreshed,
            heads: proved.heads,
            rows: Rows::default(),
            wal_bytes: 0,
            mover: Mover::new(data),
            stopped: None,
            _lock: lock,
        };
        journal.settle()?;
        Ok(journal)
    }

    /// Does what a crash may have left undone: the watermark, lines outside, the trees' table.
    fn settle(&mut self) -> Result<(), Error> {
        // Also in an empty journal: where the disk is full later, the mark has its room.
        self.watermark.set(self.heads.last(), self.heads.last_hash())?;
        self.write_outside();
        if self.refreshed < self.heads.last() {
            return self.refresh_trees();
        }
        self.heads.saved();
        Ok(())
    }
}

fn refuse_lost_file(data: &Path) -> Result<(), Error> {
    match Watermark::read(data)? {
        Some((position, _)) if position > Position(0) => {
            let detail = format!("{DATABASE} is gone, but {position} records were acknowledged");
            Err(Error::broken(1, detail))
        }
        _ => Ok(()),
    }
}

/// Makes the file complete under another name first: no crash leaves half a journal.
fn create(data: &Path, key: &Key) -> Result<(), Error> {
    let half = data.join("journal.new");
    for name in ["journal.new", "journal.new-journal"] {
        match std::fs::remove_file(data.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(half.display().to_string())(error));
            }
            _ => {}
        }
    }
    let fill = || -> rusqlite::Result<()> {
        let db = Connection::open(&half)?;
        db.pragma_update(None, "page_size", limits::JOURNAL_PAGE_BYTES as i64)?;
        db.execute_batch(&format!("BEGIN; {SCHEMA}"))?;
        write::set_meta(&db, "format", &FORMAT.to_string())?;
        write::about(&db, &About { journal: Uuid::now_v7(), epoch: 0, key: key.public() })?;
        write::set_meta(&db, "refreshed", "0")?;
        db.execute_batch("COMMIT")
    };
    fill().map_err(Error::sqlite("making the journal"))?;
    let renamed = std::fs::rename(&half, data.join(DATABASE))
        .and_then(|()| std::fs::File::open(data)?.sync_all());
    renamed.map_err(Error::io(data.join(DATABASE).display().to_string()))
}

struct Proved {
    about: About,
    heads: Heads,
    outside: Outside,
    unwritten: Vec<Checkpoint>,
    checked: Position,
    /// How far the table of trees is right.
    refreshed: Position,
}

/// Reads everything, holding it against what is known from outside the file. Read-only, so
/// that a damaged journal stays as it is for whoever looks into it.
fn prove(
    data: &Path,
    state: &Path,
    visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
) -> Result<Proved, Error> {
    let reader = Reader::open(data)?;
    let about = reader.about()?;
    reader.check_tables()?;
    let last = reader.last()?;
    let mark = Watermark::read(data)?.unwrap_or_default();
    refuse_cut_tail(last, mark.0, "acknowledged")?;
    let outside = Outside::new(state, about.journal);
    let latest = outside.read()?.pop();
    let latest_position = latest.as_ref().map(|latest| latest.position).unwrap_or_default();
    refuse_cut_tail(last, latest_position, "signed in a checkpoint outside")?;
    let mut heads = Heads::default();
    scan(data, last, &mut heads, &mut |sealed, heads| {
        let position = sealed.record.position;
        if position == mark.0 && sealed.hash != mark.1 {
            return Err(Error::broken(position.0, "it is not the record that was acknowledged"));
        }
        if let Some(latest) = latest.as_ref().filter(|latest| latest.position == position) {
            agree(latest, heads)?;
        }
        visit(sealed)
    })?;
    let mut unwritten = reader.checkpoints()?;
    let checked = unwritten.last().map(|last| last.position).unwrap_or_default();
    unwritten.retain(|checkpoint| checkpoint.position > latest_position);
    let refreshed = if reader.agrees_with(&heads)? { heads.last() } else { Position(0) };
    Ok(Proved { about, heads, outside, unwritten, checked, refreshed })
}

fn refuse_cut_tail(last: Position, known: Position, how: &str) -> Result<(), Error> {
    if known <= last || mutant("trust-the-tail") {
        return Ok(());
    }
    let detail =
        format!("it ends here, but records up to {known} were {how}: its tail was cut or damaged");
    Err(Error::broken(last.0 + 1, detail))
}

fn agree(checkpoint: &Checkpoint, heads: &mut Heads) -> Result<(), Error> {
    let position = checkpoint.position.0;
    if !checkpoint.is_genuine() {
        return Err(Error::broken(position, "the checkpoint outside has a false signature"));
    }
    if checkpoint.merkle_root != heads.merkle_root() {
        let detail = "the records up to here are not those of the checkpoint outside";
        return Err(Error::broken(position, detail));
    }
    Ok(())
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

/// A new epoch for this pump: from here on, commits of any earlier one are fenced off.
fn raise_epoch(db: &Connection, before: &About, key: &Key) -> Result<u32, Error> {
    let after = About { epoch: before.epoch + 1, key: key.public(), ..before.clone() };
    write::transaction(db, before.epoch, |db| write::about(db, &after))?;
    Ok(after.epoch)
}
