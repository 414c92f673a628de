//! Taking out records that no MAC covers, for an operator who accepts their loss.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::checkpoint::Key;
use crate::journal::mac::Coverage;
use crate::journal::{Error, Heads};

use super::open::{self, Opening};
use super::{Journal, Reader, scan, write};

/// What was taken out of the end of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOut {
    pub first: Position,
    pub last: Position,
    /// Where their rows were written first, one JSON value a line.
    pub file: PathBuf,
}

impl Journal {
    /// Takes the records out that stand behind the last one that a MAC of this host covers. None
    /// where there are none, or where there is no MAC at all.
    pub fn take_out_uncovered(data: &Path, state: &Path) -> Result<Option<TakenOut>, Error> {
        let opening = Opening::begin(data, state)?;
        if !opening.exists() {
            return Ok(None);
        }
        let reader = Reader::open(data)?;
        let (about, last) = (reader.about()?, reader.last()?);
        let covered = covered(data, state, about.journal, last)?;
        if covered == Position(0) || covered >= last {
            return Ok(None);
        }
        let first = Position(covered.0 + 1);
        let file = state.join(format!("{}.taken-out-{first}-{last}.jsonl", about.journal));
        keep_aside(&reader, first, last, &file)?;

        let db = open::connect(data).map_err(Error::sqlite("opening the journal"))?;
        write::transaction(&db, about.epoch, |db| {
            db.execute("DELETE FROM step WHERE position >= ?1", [first.0])?;
            db.execute("DELETE FROM checkpoint WHERE position >= ?1", [first.0])?;
            db.execute("DELETE FROM tree", [])?;
            write::set_meta(db, "refreshed", "0")
        })?;
        Ok(Some(TakenOut { first, last, file }))
    }
}

/// The last record that a MAC of this host covers. Whatever stands behind a break in the chain is
/// covered by nothing.
fn covered(data: &Path, state: &Path, journal: Uuid, last: Position) -> Result<Position, Error> {
    let mut coverage = Coverage::new(journal, Some(Key::open(state)?.mac()));
    let scanned = scan(data, last, &mut Heads::default(), &mut |sealed, heads| {
        coverage.take(sealed.hash, sealed.mac, heads);
        Ok(())
    });
    match scanned {
        Ok(()) | Err(Error::Broken { .. }) => Ok(coverage.covered()),
        Err(error) => Err(error),
    }
}

fn keep_aside(reader: &Reader, first: Position, last: Position, file: &Path) -> Result<(), Error> {
    let failed = |error| Error::io(file.display().to_string())(error);
    let mut out = std::fs::File::create(file).map_err(failed)?;
    reader.rows(first, last, &mut |row| {
        let line = serde_json::json!({
            "position": row.place.position,
            "tree": row.place.tree,
            "previous": row.place.previous,
            "previous_hash": row.place.previous_hash,
            "time": row.place.time.0,
            "hash": row.hash,
            "body": row.body,
            "payloads": row.payloads,
        });
        writeln!(out, "{line}").map_err(failed)
    })?;
    out.sync_all().map_err(failed)
}
