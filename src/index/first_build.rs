//! Makes the missing index of a long journal.
//!
//! A first build has no readers, so it may use separate files, and may write in an order in which
//! the index is incomplete for a long time. It first writes all rows, and then makes the SQL
//! indexes by sorting the rows. A separate OS thread writes the words of messages to a second
//! database. Each commit is durable, and an interrupted build continues after its last commit.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};

use rusqlite::{Connection, ErrorCode, InterruptHandle};

use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::journal::sqlite::{JournalReader, keep_plans};
use crate::limits;

use super::Error;
use super::catch_up::IndexWriter;
use super::file::{self, failed};
use super::fold;
use super::follow::NextPosition;
use super::word_thread::{self, WordTable, WordThread};

/// The result of a first build of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildEnd {
    /// The build is complete. It contains all records up to the requested position, and is now the
    /// index of the journal.
    Built,
    /// The caller stopped the build. The next build continues with the files of this build.
    Stopped,
}

/// Tables whose SQL indexes are made after all rows are written. Other tables have their SQL
/// indexes from the beginning, because they stay small, or because the build uses these indexes.
const SORTED_LATER: [&str; 7] =
    ["message_row", "call_row", "thread_row", "tree_row", "turn_row", "refusal_row", "error_row"];

/// Builds the index of `journal` at `path`, up to the record at `last`. The caller must hold the
/// lock of the index. If the disk of the index has no room for the build, deletes the files of the
/// build, so that the organism gets their space back. After any other error, the next build
/// continues with these files.
///
/// During the reading of records, calls `next` repeatedly with the position that the build has
/// reached, and stops if `next` returns `None`. After the last record is read, stops when
/// `is_stopped` returns true.
pub fn build(
    path: &Path,
    journal: &JournalReader,
    last: Position,
    is_stopped: &mut dyn FnMut() -> bool,
    next: &mut NextPosition<'_>,
) -> Result<BuildEnd, Error> {
    let _progress = NotedProgress { path };
    let filled = match fill(path, journal, last, next) {
        Ok(Some(filled)) => filled,
        Ok(None) => return Ok(BuildEnd::Stopped),
        Err(error) => {
            if error.is_disk_full() {
                give_back_space(path);
            }
            return Err(error);
        }
    };
    if is_stopped() {
        return Ok(BuildEnd::Stopped);
    }

    let result = complete_and_publish(path, filled, is_stopped);
    if let Err(error) = &result
        && error.is_disk_full()
        && lacks_room(path)
    {
        give_back_space(path);
    }
    result
}

/// Deletes the files of a build. Logs an error instead of returning it, because the caller returns
/// the earlier error of the build.
fn give_back_space(path: &Path) {
    if let Err(error) = file::remove_building(path) {
        tracing::warn!("the files of an unfinished index stay: {error}");
    }
}

/// Whether the disk of the index has too little room for completing a build. Completing takes at most
/// as much room as the files of the build have. With more room, the directory for temporary files was
/// full, where SQLite sorts rows.
fn lacks_room(path: &Path) -> bool {
    let rows = file::building(path);
    let files = [&rows, &file::building_words(path)];
    let bytes: u64 =
        files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    let disk = rustix::fs::statvfs(&rows);
    disk.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < bytes)
}

/// A build that has the rows of all records.
struct FilledBuild {
    db: Connection,
    word_thread: WordThread,
    interrupts: [InterruptHandle; 2],
}

/// Writes the rows of all records up to `last` into the files of a build. Returns `None` if `next`
/// has stopped the build.
fn fill(
    path: &Path,
    journal: &JournalReader,
    last: Position,
    next: &mut NextPosition<'_>,
) -> Result<Option<FilledBuild>, Error> {
    let rows = file::building(path);
    let words = file::building_words(path);
    let (db, open_words) = match open(&rows, &words, journal)? {
        Some(open) => open,
        None => {
            file::remove_building(path)?;
            create(&rows, &words, journal)?
        }
    };

    let interrupts = [db.get_interrupt_handle(), open_words.0.get_interrupt_handle()];
    let word_thread = WordThread::start(open_words)
        .map_err(|source| Error::Io { path: words.clone(), source })?;
    let mut writer = IndexWriter::new(&rows, &db, journal, WordTable::Thread(word_thread))?;
    writer.set_up_first_build();
    loop {
        let reached = file::position(&db).map_err(failed(&rows))?;
        file::note_progress(path, Some([reached, last]));
        if reached >= last {
            break;
        }
        if next(reached).is_none() {
            writer.commit()?;
            return Ok(None);
        }
        let round = Position(last.0.min(reached.0 + limits::INDEX_COMMIT_RECORDS));
        writer.add(round, &mut |_, _| {})?;
    }
    writer.commit()?;
    let word_thread = writer.into_words().expect("a first build has a thread of words");
    Ok(Some(FilledBuild { db, word_thread, interrupts }))
}

/// Completes a build and makes it the index, unless `is_stopped` returns true meanwhile.
fn complete_and_publish(
    path: &Path,
    filled: FilledBuild,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<BuildEnd, Error> {
    let FilledBuild { db, word_thread, interrupts } = filled;
    let rows = file::building(path);
    let words = file::building_words(path);
    let work = || complete(db, word_thread, [&rows, &words]);
    match unless_stopped(is_stopped, &interrupts, work) {
        Err(Error::Sqlite { source, .. })
            if source.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) =>
        {
            return Ok(BuildEnd::Stopped);
        }
        other => other?,
    }
    failpoint("index-complete");
    file::publish_building(path)?;
    Ok(BuildEnd::Built)
}

/// Guard for the progress that a build notes in the lock file. Removes the noted progress when the
/// build ends, even after an error.
struct NotedProgress<'p> {
    path: &'p Path,
}

impl Drop for NotedProgress<'_> {
    fn drop(&mut self) {
        file::note_progress(self.path, None);
    }
}

/// Runs `work` on another OS thread, and returns its result. The work sorts and merges millions of
/// rows, which may take longer than the caller can wait. Therefore, when `is_stopped` returns true,
/// this function interrupts the SQL statements in both databases of the build.
fn unless_stopped<T: Send>(
    is_stopped: &mut dyn FnMut() -> bool,
    statements: &[InterruptHandle; 2],
    work: impl FnOnce() -> T + Send,
) -> T {
    let (running, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            // The channel closes when the work ends, also by a panic.
            let _running = running;
            work()
        });
        while ended.recv_timeout(limits::INDEX_STOP_CHECK) == Err(RecvTimeoutError::Timeout) {
            if is_stopped() {
                statements.iter().for_each(InterruptHandle::interrupt);
            }
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Completes the build of an index after all rows are written: makes the SQL indexes in the
/// database `db`, and copies the full-text words of messages and refusals from the database at
/// `words` into `db`.
fn complete(
    db: Connection,
    word_thread: WordThread,
    [rows, words]: [&Path; 2],
) -> Result<(), Error> {
    let merged = word_thread.merge();
    make_indexes(&db).map_err(failed(rows))?;
    failpoint("index-sorted");
    let merged = merged.recv().expect("the thread of words replies to each request");
    merged.map_err(failed(words))?;
    drop(word_thread);
    copy_words(&db, words).map_err(failed(rows))?;
    db.close().map_err(|(_, error)| failed(rows)(error))
}

/// Configures one of the databases that a first build of the index writes. Uses a rollback journal
/// instead of a write-ahead log, so that a commit writes each page only once. The rollback journal
/// stays short, because almost all pages are new.
pub fn set_up(db: &Connection, cache_kib: u32) -> rusqlite::Result<()> {
    db.busy_timeout(limits::JOURNAL_BUSY_TIMEOUT)?;
    keep_plans(db)?;
    db.pragma_update(None, "page_size", limits::JOURNAL_PAGE_BYTES as i64)?;
    db.pragma_update_and_check(None, "journal_mode", "truncate", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "normal")?;
    db.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// The two open databases of a build: the database of the rows, and the database of the words. The
/// number is that of the last message or refusal in the database of the words.
type OpenBuild = (Connection, (Connection, i64));

/// Opens the databases of an interrupted build, so that the build can continue. Returns `None` if
/// the build must begin anew:
///
/// - a database is missing or damaged, or this process may not open or write it
/// - the two databases end with different messages or refusals
/// - the build has another format, or belongs to another journal
fn open(rows: &Path, words: &Path, journal: &JournalReader) -> Result<Option<OpenBuild>, Error> {
    if !rows.exists() || !words.exists() {
        return Ok(None);
    }

    let open = || -> Result<Option<OpenBuild>, Error> {
        let db = Connection::open(rows).map_err(failed(rows))?;
        set_up(&db, limits::INDEX_BUILD_CACHE_KIB).map_err(failed(rows))?;
        let words_db = word_thread::open(words).map_err(failed(words))?;
        // Words that are ahead may be words of payloads that were redacted since.
        let last = fold::last_number(&db).map_err(failed(rows))?;
        let is_ours = last == words_db.1 && file::is_of(rows, &db, journal)?;
        Ok(is_ours.then_some((db, words_db)))
    };
    match open() {
        Err(error) if error.is_damage() || error.is_denied() => Ok(None),
        other => other,
    }
}

fn create(rows: &Path, words: &Path, journal: &JournalReader) -> Result<OpenBuild, Error> {
    file::create_private(rows)?;
    let db = Connection::open(rows).map_err(failed(rows))?;
    set_up(&db, limits::INDEX_BUILD_CACHE_KIB).map_err(failed(rows))?;
    file::create(rows, &db, journal)?;
    drop_indexes(&db).map_err(failed(rows))?;
    file::create_private(words)?;
    let words_db = word_thread::open(words).map_err(failed(words))?;
    Ok((db, words_db))
}

fn drop_indexes(db: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL";
    let mut query = db.prepare(sql)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let indexes = rows.collect::<rusqlite::Result<Vec<(String, String)>>>()?;
    for (name, _) in indexes.iter().filter(|(_, table)| SORTED_LATER.contains(&table.as_str())) {
        db.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    Ok(())
}

/// Makes the SQL indexes. Then completes the column `cause` of the messages. This column contains
/// the id of the causing message if the number of that message was not yet known when the row was
/// written. Each such id is replaced by the number, unless the index lacks that message.
fn make_indexes(db: &Connection) -> rusqlite::Result<()> {
    // Sorting uses another core, where there is one.
    db.pragma_update(None, "threads", 1)?;
    for definition in file::missing_definitions(db)? {
        db.execute_batch(&definition)?;
    }
    // Blobs come after all numbers in the SQL index of causes.
    db.execute_batch(
        "UPDATE message_row AS m SET cause = (SELECT n FROM message_row WHERE id = m.cause) \
         WHERE cause >= x'' AND EXISTS (SELECT 1 FROM message_row WHERE id = m.cause)",
    )
}

/// Copies the words from the database at `words` into the full-text table in `db`.
fn copy_words(db: &Connection, words: &Path) -> rusqlite::Result<()> {
    let words = words.to_string_lossy();
    db.execute("ATTACH ?1 AS words", [words])?;
    db.execute_batch(
        "BEGIN IMMEDIATE;
         DELETE FROM main.word_data;
         DELETE FROM main.word_idx;
         INSERT INTO main.word_data SELECT * FROM words.word_data;
         INSERT INTO main.word_idx SELECT * FROM words.word_idx;
         COMMIT;
         DETACH words",
    )?;
    db.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))
}
