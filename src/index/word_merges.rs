//! Merges of the segments of the full-text table. Each commit adds a segment, and a search reads
//! all segments.

use rusqlite::Connection;

use crate::limits;

/// Number of segments that must be on one level of the full-text table before a write begins to
/// merge them. This is SQLite's default.
const MERGED_SEGMENTS: u32 = 4;

/// The ways in which writes to the full-text table merge its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordMerges {
    /// Each write merges a few segments in proportion to the words that it adds.
    Live,
    /// Writes merge no segments until one level has [`limits::INDEX_SEGMENTS_MAX`] segments.
    Backlog,
}

impl WordMerges {
    /// Stores this setting in the full-text table of the index `db`.
    pub fn set(self, db: &Connection) -> rusqlite::Result<()> {
        let merged = match self {
            Self::Live => MERGED_SEGMENTS,
            Self::Backlog => 0,
        };
        let sql = "INSERT INTO word(word, rank) VALUES (?1, ?2)";
        for (name, value) in [("automerge", merged), ("crisismerge", limits::INDEX_SEGMENTS_MAX)] {
            db.execute(sql, (name, value))?;
        }
        Ok(())
    }
}

/// Merges segments of the full-text table of `db`, up to a bounded number of pages. Returns true if
/// segments were merged; more segments may then still have to be merged. Otherwise, returns false.
pub fn merge_some(db: &Connection) -> rusqlite::Result<bool> {
    let before = db.total_changes();
    let sql = "INSERT INTO word(word, rank) VALUES ('merge', ?1)";
    db.execute(sql, [limits::INDEX_MERGED_PAGES])?;
    // SQLite counts the statement itself as one change.
    Ok(db.total_changes() - before >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::WORDS_SCHEMA;

    /// Adds one message with many words in a transaction of its own, which makes one segment.
    fn add(db: &Connection, n: i64) {
        let text: String = (0..5_000).map(|word| format!("w{word}x{n} ")).collect();
        db.execute("INSERT INTO word(rowid, text) VALUES (?1, ?2)", (n, text)).unwrap();
    }

    /// Returns the number of segments of the full-text table, from the table's index of segment
    /// pages.
    fn segments(db: &Connection) -> u64 {
        let sql = "SELECT count(DISTINCT segid) FROM word_idx";
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_backlog_merges_nothing_and_later_steps_merge_everything() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(WORDS_SCHEMA).unwrap();
        WordMerges::Backlog.set(&db).unwrap();
        (1..=20).for_each(|n| add(&db, n));
        assert_eq!(segments(&db), 20);

        WordMerges::Live.set(&db).unwrap();
        let mut steps = 0;
        while merge_some(&db).unwrap() {
            steps += 1;
            assert!(steps < 100, "the merges end");
        }
        assert!(steps > 0);
        assert!(segments(&db) < u64::from(MERGED_SEGMENTS), "{}", segments(&db));
        let sql = "SELECT count(*) FROM word WHERE word MATCH 'w7x13'";
        assert_eq!(db.query_row(sql, [], |row| row.get::<_, u64>(0)).unwrap(), 1);
    }
}
