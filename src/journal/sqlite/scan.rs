//! Reads all records in order, quickly: several OS threads read, parse and check chunks, and the
//! caller's OS thread checks that each record follows from the record before it.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::Connection;

use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::journal::{Error, HashedRecord, TreeHeads};
use crate::limits;
use crate::thread::text::InternedNames;

use super::reader::JournalReader;
use super::row;

/// The records of one chunk, each converted by the `prepare` function of the scan, or the error
/// that occurred when the chunk was read.
type Chunk<T> = Result<Vec<T>, Error>;

/// Reads the records that follow the last record of `heads`, up to and including `last`. Passes
/// each record to `visit`, in order, with the heads as they are after this record.
pub fn scan(
    reader: &JournalReader,
    last: Position,
    heads: &mut TreeHeads,
    visit: &mut dyn FnMut(HashedRecord, &mut TreeHeads) -> Result<(), Error>,
) -> Result<(), Error> {
    let first = Position(heads.last().0 + 1);
    let mut take = |chunk: Vec<HashedRecord>| {
        failpoint("during-recovery");
        chunk.into_iter().try_for_each(|sealed| {
            heads.follow(&sealed)?;
            visit(sealed, heads)
        })
    };
    in_order(reader, first, last, |sealed| sealed, &mut take)
}

/// Scans as [`scan`] does, but on one OS thread and chunk by chunk, so that the scan hardly
/// disturbs a running pump. Calls `is_stopped` before each chunk. If `is_stopped` returns true,
/// stops the scan and returns false.
pub fn scan_alone(
    data: &Path,
    last: Position,
    heads: &mut TreeHeads,
    is_stopped: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(HashedRecord, &mut TreeHeads) -> Result<(), Error>,
) -> Result<bool, Error> {
    let reader = JournalReader::open(data)?;
    while heads.last() < last {
        if is_stopped() {
            return Ok(false);
        }

        let from = Position(heads.last().0 + 1);
        let to = last.min(Position(heads.last().0 + limits::SCAN_CHUNK_RECORDS));
        for sealed in reader.records(from, to)? {
            heads.follow(&sealed)?;
            visit(sealed, heads)?;
        }
    }

    Ok(true)
}

/// Reads the records from position `first` to `last`, and calls `take` for chunks of them, in
/// order. Several OS threads read the records and apply `prepare` to each. Each of them opens a
/// reader of its own. `reader` itself reads a range of at most one chunk. Verifies each record alone,
/// but not that it follows from the records before it.
pub fn in_order<T: Send, E: From<Error>>(
    reader: &JournalReader,
    first: Position,
    last: Position,
    prepare: fn(HashedRecord) -> T,
    take: &mut dyn FnMut(Vec<T>) -> Result<(), E>,
) -> Result<(), E> {
    let first = first.0;
    let chunks = (last.0 + 1).saturating_sub(first).div_ceil(limits::SCAN_CHUNK_RECORDS);
    let span = |chunk: u64| {
        let from = first + chunk * limits::SCAN_CHUNK_RECORDS;
        (Position(from), Position(last.0.min(from + limits::SCAN_CHUNK_RECORDS - 1)))
    };

    if chunks <= 1 {
        return match chunks {
            0 => Ok(()),
            _ => {
                let (from, to) = span(0);
                take(read_chunk(reader, from, to, prepare)?)
            }
        };
    }

    let data = reader.data();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.min(limits::SCAN_WORKERS_MAX) as u64;
    std::thread::scope(|scope| {
        let work = |worker: u64| {
            // Queue: bounded, because workers read faster than the caller verifies, and a journal
            // does not fit into memory. Each worker has its own queue, so that the caller takes the
            // chunks in order although they are read in parallel.
            let (sender, receiver) = sync_channel(limits::SCAN_CHUNKS_AHEAD);
            let mine = (worker..chunks).step_by(workers as usize).map(span);
            scope.spawn(move || send_all(data, mine, prepare, &sender));
            receiver
        };
        let receivers: Vec<Receiver<Chunk<T>>> = (0..workers).map(work).collect();
        let mut turns = receivers.iter().cycle();
        (0..chunks).try_for_each(|_| {
            let chunk = turns.next().and_then(|receiver| receiver.recv().ok());
            take(chunk.expect("a worker sends every one of its chunks, or an error")?)
        })
    })
}

/// Passes records to `take` as [`in_order`] does, but reads each chunk on the caller's OS thread,
/// and only after `take` has processed the previous chunk. So only one chunk is in memory.
pub fn in_order_alone<T, E: From<Error>>(
    reader: &JournalReader,
    first: Position,
    last: Position,
    prepare: fn(HashedRecord) -> T,
    take: &mut dyn FnMut(Vec<T>) -> Result<(), E>,
) -> Result<(), E> {
    let mut from = first;
    while from <= last {
        let to = last.min(Position(from.0 + limits::SCAN_CHUNK_RECORDS - 1));
        take(read_chunk(reader, from, to, prepare)?)?;
        from = Position(to.0 + 1);
    }
    Ok(())
}

/// Calls `visit` for every record after the last record of `heads`, as [`scan`] does. Reads the
/// records through the connection `db`.
pub(super) fn rest(
    db: &Connection,
    heads: &mut TreeHeads,
    visit: &mut dyn FnMut(HashedRecord, &mut TreeHeads) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |error| Error::sqlite("reading the journal's last records")(error);
    let has_mac = super::write::has_mac(db).map_err(failed)?;
    let select =
        format!("SELECT {} FROM step WHERE position > ?1 ORDER BY position", row::columns(has_mac));
    let mut query = db.prepare(&select).map_err(failed)?;
    let mut rows = query.query([heads.last().0]).map_err(failed)?;
    let mut names = InternedNames::default();

    while let Some(next) = rows.next().map_err(failed)? {
        let sealed = row::decode(Position(heads.last().0 + 1), next, &mut names)?;
        heads.follow(&sealed)?;
        visit(sealed, heads)?;
    }

    Ok(())
}

fn send_all<T>(
    data: &Path,
    spans: impl Iterator<Item = (Position, Position)>,
    prepare: fn(HashedRecord) -> T,
    chunks: &SyncSender<Chunk<T>>,
) {
    // Each query is a transaction of its own, so the reader may stay open between them.
    let reader = match JournalReader::open(data) {
        Ok(reader) => reader,
        Err(error) => return chunks.send(Err(error)).unwrap_or_default(),
    };

    for (from, to) in spans {
        let chunk = read_chunk(&reader, from, to, prepare);
        let failed = chunk.is_err();
        // The receiver is gone once an earlier chunk was broken.
        if chunks.send(chunk).is_err() || failed {
            return;
        }
    }
}

fn read_chunk<T>(
    reader: &JournalReader,
    from: Position,
    to: Position,
    prepare: fn(HashedRecord) -> T,
) -> Chunk<T> {
    Ok(reader.scan_records(from, to)?.into_iter().map(prepare).collect())
}
