//! Reads the heads of all trees. Most heads come from a derived table of trees. The records contain
//! the heads that are newer than this table.

use std::collections::HashMap;

use rusqlite::OptionalExtension as _;

use crate::clock::Time;
use crate::ids::{Position, ThreadId};
use crate::journal::{Error, TreeHead, TreeHeads};

use super::JournalReader;

/// The first and the last record of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRow {
    pub root: ThreadId,
    pub first: Position,
    pub head: Position,
    pub records: u64,
    pub opened: Time,
    pub updated: Time,
}

const COLUMNS: &str = "SELECT root, first, head, records, opened, updated FROM tree";

impl TreeRow {
    /// Whether the row has the same content as `head`.
    fn is_of(&self, head: &TreeHead) -> bool {
        self.root == head.root
            && (self.first, self.head, self.records) == (head.first, head.position, head.records)
            && (self.opened, self.updated) == (head.opened, head.updated)
    }
}

impl JournalReader {
    /// Returns all trees, in order of first appearance.
    pub fn trees(&self) -> Result<Vec<TreeRow>, Error> {
        let failed = |error| self.read_error("its trees", error);
        let refreshed = self.refreshed()?;
        let sql = format!("{COLUMNS} ORDER BY first");
        let mut trees = Vec::new();
        let mut query = self.db.prepare(&sql).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            trees.push(tree_of(row)?);
        }

        let mut places: HashMap<ThreadId, usize> =
            trees.iter().enumerate().map(|(at, tree)| (tree.root.clone(), at)).collect();
        let sql = "SELECT tree, position, position, 1, time, time FROM step \
                   WHERE position > ?1 ORDER BY position";
        let mut query = self.db.prepare(sql).map_err(failed)?;
        let mut rows = query.query([refreshed.0]).map_err(failed)?;

        while let Some(row) = rows.next().map_err(failed)? {
            let step = tree_of(row)?;
            match places.get(&step.root).and_then(|at| trees.get_mut(*at)) {
                // The table was updated between the two queries.
                Some(tree) if tree.head >= step.head => {}
                Some(tree) => {
                    tree.head = step.head;
                    tree.updated = step.updated;
                    tree.records += 1;
                }
                None => {
                    places.insert(step.root.clone(), trees.len());
                    trees.push(step);
                }
            }
        }

        Ok(trees)
    }

    /// Returns the position of the last record of a tree; `None` if the tree has no record.
    pub fn head(&self, root: &ThreadId) -> Result<Option<Position>, Error> {
        // One statement, because outside a view each statement takes a lock. The records after the
        // last update of the table come first.
        let sql = "SELECT coalesce(\
                     (SELECT position FROM step WHERE tree = ?1 AND position > coalesce(\
                        (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'refreshed'), 0) \
                      ORDER BY position DESC LIMIT 1), \
                     (SELECT head FROM tree WHERE root = ?1))";
        let head: rusqlite::Result<Option<u64>> =
            self.query_cached(sql, [root.as_str()], |row| row.get(0));
        head.map(|head| head.map(Position)).map_err(|error| self.read_error("a tree's head", error))
    }

    /// Returns the position of the first record whose time is `time` or later. If all records are
    /// earlier, returns the position after the last record. Times of records never decrease.
    pub fn first_since(&self, time: Time) -> Result<Position, Error> {
        let sql = "SELECT time FROM step WHERE position = ?1";
        let failed = |error| self.read_error("the time of a record", error);
        let mut query = self.db.prepare(sql).map_err(failed)?;
        let mut first = 1;
        let mut end = self.last()?.0 + 1;
        while first < end {
            let middle = first + (end - first) / 2;
            let at: i64 = query.query_row([middle], |row| row.get(0)).map_err(failed)?;
            if at < time.0 {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(Position(first))
    }

    /// Returns the number of records of a tree, as the table of trees states it. Records since the
    /// last update of the table do not count.
    pub fn records_of(&self, root: &ThreadId) -> Result<u64, Error> {
        let sql = "SELECT records FROM tree WHERE root = ?1";
        let records = self.query_cached(sql, [root.as_str()], |row| row.get(0)).optional();
        let records = records.map_err(|error| self.read_error("a tree", error))?;
        Ok(records.unwrap_or_default())
    }

    /// Returns the position up to which the table of trees agrees with `heads`, the last records of
    /// all trees. Returns 0 if the whole table must be written again.
    ///
    /// If `snapshot` is `None`, `heads` were built from all records, and the function compares the
    /// whole table. It returns an error if the table's structure is damaged, because a damaged
    /// table cannot be written again.
    ///
    /// Otherwise, `heads` continue from the snapshot at the position `snapshot`. The function then
    /// compares at most the trees with records after the snapshot.
    /// [`JournalReader::agrees_about_older`] compares the other trees.
    pub(super) fn right_up_to(
        &self,
        heads: &mut TreeHeads,
        snapshot: Option<Position>,
    ) -> Result<Position, Error> {
        let last = heads.last();
        let refreshed = self.refreshed()?;
        if let Some(snapshot) = snapshot.filter(|snapshot| refreshed < *snapshot) {
            self.note_between(refreshed, snapshot, heads)?;
        }
        let is_right = match snapshot {
            None => {
                self.check_trees_structure()?;
                refreshed == last && self.agrees_about_older(heads)?
            }
            Some(_) if last < refreshed => false,
            // Trees with records after `refreshed` are written again in any case.
            Some(_) if refreshed < last => return Ok(refreshed),
            Some(_) => self.agrees_about_recent(heads)?,
        };
        Ok(if is_right { last } else { Position(0) })
    }

    /// Marks the heads of all trees that have a record between the position `refreshed`, which is
    /// excluded, and the position `snapshot`, which is included. The next update of the table of
    /// trees then writes these heads. `refreshed` is the last record that the table includes.
    /// `snapshot` is the position of the snapshot from which `heads` continue, and must be higher
    /// than `refreshed`.
    fn note_between(
        &self,
        refreshed: Position,
        snapshot: Position,
        heads: &mut TreeHeads,
    ) -> Result<(), Error> {
        let failed = |error| self.trees_error(error);
        let sql = "SELECT DISTINCT tree FROM step WHERE position > ?1 AND position <= ?2";
        let mut query = self.db.prepare(sql).map_err(failed)?;
        let mut rows = query.query((refreshed.0, snapshot.0)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let root: String = row.get(0).map_err(failed)?;
            let root = ThreadId::parse(&root);
            heads.note_unsaved(&root.map_err(|error| Error::broken(0, error.to_string()))?);
        }
        Ok(())
    }

    /// Whether the table of trees agrees with `heads`, which contains the last record of each tree.
    /// Compares only the trees that have records after the snapshot from which `heads` continue.
    fn agrees_about_recent(&self, heads: &TreeHeads) -> Result<bool, Error> {
        let sql = format!("{COLUMNS} WHERE root = ?1");
        let mut query = self.db.prepare(&sql).map_err(|error| self.trees_error(error))?;
        let mut is_right = true;
        heads.each_unsaved(&mut |head| {
            let mut rows =
                query.query([head.root.as_str()]).map_err(|error| self.trees_error(error))?;
            let row = rows.next().map_err(|error| self.trees_error(error))?;
            let tree = row.map(tree_of).transpose().unwrap_or_default();
            is_right &= tree.is_some_and(|tree| tree.is_of(head));
            Ok(())
        })?;
        Ok(is_right)
    }

    /// Whether the table of trees agrees with `heads`. The table may include later records than
    /// `heads`. For a tree with such records, compares only the tree's first record.
    pub(in crate::journal) fn agrees_about_older(&self, heads: &TreeHeads) -> Result<bool, Error> {
        let failed = |error| self.trees_error(error);
        let sql = format!("{COLUMNS} ORDER BY root");
        let mut query = self.db.prepare(&sql).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        let sql = "SELECT 1 FROM step WHERE position = ?1 AND tree = ?2 AND previous = 0";
        let mut is_first = self.db.prepare(sql).map_err(failed)?;
        let mut trees = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            let Ok(tree) = tree_of(row) else { return Ok(false) };
            if tree.first > heads.last() {
                if is_first.exists((tree.first.0, tree.root.as_str())).map_err(failed)? {
                    continue;
                }
                return Ok(false);
            }

            let Some(head) = heads.find(&tree.root)? else { return Ok(false) };
            let has_grown =
                tree.head > heads.last() && (tree.first, tree.opened) == (head.first, head.opened);
            if !has_grown && !tree.is_of(&head) {
                return Ok(false);
            }
            trees += 1;
        }
        Ok(trees == heads.len())
    }

    /// Checks the structure of the table of trees.
    pub(in crate::journal) fn check_trees_structure(&self) -> Result<(), Error> {
        self.check_sound("PRAGMA quick_check('tree')")
    }

    fn trees_error(&self, error: rusqlite::Error) -> Error {
        self.read_error("its trees", error)
    }

    /// Returns the position up to which the `tree` table is up to date.
    fn refreshed(&self) -> Result<Position, Error> {
        let text = self.meta("refreshed")?.unwrap_or_default();
        Ok(Position(text.parse().unwrap_or(0)))
    }

    /// Compares two positions: that of the last record in the table of trees, and the one up to
    /// which the table claims to be up to date. Returns an error if they differ.
    pub fn check_refreshed(&self) -> Result<(), Error> {
        let sql = "SELECT value = (SELECT cast(coalesce(max(head), 0) AS TEXT) FROM tree) \
                   FROM meta WHERE key = 'refreshed'";
        let right = self.db.query_row(sql, [], |row| row.get(0)).optional();
        match right.map_err(|error| self.read_error("its trees", error))? {
            Some(true) => Ok(()),
            _ => Err(Error::broken(0, "the table of trees does not go as far as it says")),
        }
    }
}

fn tree_of(row: &rusqlite::Row<'_>) -> Result<TreeRow, Error> {
    let read = || -> rusqlite::Result<(String, TreeRow)> {
        let tree = TreeRow {
            root: ThreadId::organism(),
            first: Position(row.get(1)?),
            head: Position(row.get(2)?),
            records: row.get(3)?,
            opened: Time(row.get(4)?),
            updated: Time(row.get(5)?),
        };
        Ok((row.get(0)?, tree))
    };

    let damaged = |detail: String| Error::broken(0, format!("its trees are damaged: {detail}"));
    let (root, tree) = read().map_err(|error| damaged(error.to_string()))?;
    let root = ThreadId::parse(&root).map_err(|error| damaged(error.to_string()))?;
    Ok(TreeRow { root, ..tree })
}
