//! Writes the index rows of pauses, and reads the pauses in force.

use std::fmt;

use rusqlite::params;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};

use super::fold::IndexFold;
use super::threads::TreeNameRole;
use super::trees::ListedTree;
use super::{Error, IndexReader};
use crate::clock::Time;
use crate::ids::ListenerName;
use crate::thread::{Fact, PauseTarget, Record};

/// A pause in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedPause {
    pub target: PauseTarget,
    pub since: Time,
    /// Recorded name of the person who paused: the operator who signed the pause, or `operator` for
    /// a pause without a signature.
    pub person: String,
    /// User who ran the command, if the record states the user.
    pub login: Option<String>,
    /// Name of the machine on which the command ran, if the record states it.
    pub host: Option<String>,
    pub note: String,
}

/// Reads the target of a pause from the text that the index stores for this target.
impl FromSql for PauseTarget {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

impl fmt::Display for IndexedPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, since, person, note, .. } = self;
        write!(f, "paused since {since} by {person}: {target}")?;
        if note.is_empty() { Ok(()) } else { write!(f, " ({note})") }
    }
}

/// The paused part of a tree's open work: all of it, or some of it. The pump does not hand over
/// paused work to listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausedPart {
    /// All open work is paused: a pause of the whole organism, or of the tree's root thread, is in
    /// force.
    Whole,
    /// Only a part of the open work is paused. A pause is in force for a subthread with an open
    /// call, or for a listener with an open call in the tree.
    Some,
}

impl PausedPart {
    /// Returns the state that a list shows for a tree of which this part is paused.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Whole => "paused",
            Self::Some => "paused in part",
        }
    }

    /// Returns the word that stands for this part in the JSON of `organism threads`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Some => "part",
        }
    }
}

/// Adds a row if `fact` begins a pause. If `fact` ends a pause, stores the end in the pause's row.
pub fn take(fold: &mut IndexFold<'_>, record: &Record, fact: &Fact) -> rusqlite::Result<()> {
    match fact {
        Fact::Paused { target, by, note } => {
            let person = fold.names.number(by.as_str())?;
            let sql = "INSERT INTO pause_row(position, since, target, person, note) \
                       VALUES (?1, ?2, ?3, ?4, ?5)";
            let target = target.to_string();
            let row = params![record.position.0, record.time.0, target, person, note];
            fold.db.prepare_cached(sql)?.execute(row)?;
        }
        Fact::Resumed { target } => {
            let sql = "UPDATE pause_row SET ended = ?2 WHERE target = ?1 AND ended IS NULL";
            let row = params![target.to_string(), record.time.0];
            fold.db.prepare_cached(sql)?.execute(row)?;
        }
        _ => {}
    }
    Ok(())
}

impl IndexReader {
    /// Returns the pauses in force, oldest first.
    pub fn pauses(&self) -> Result<Vec<IndexedPause>, Error> {
        let sql = "SELECT p.target, p.since, n.text, p.note, a.login, a.host \
                   FROM pause_row p INDEXED BY pause_open JOIN name n ON n.n = p.person \
                   LEFT JOIN action_row a ON a.position = p.position \
                   WHERE p.ended IS NULL ORDER BY p.position";
        let found = || -> rusqlite::Result<Vec<IndexedPause>> {
            let mut query = self.connection().prepare(sql)?;
            let rows = query.query_map([], |row| {
                Ok(IndexedPause {
                    target: row.get(0)?,
                    since: Time(row.get(1)?),
                    person: row.get(2)?,
                    note: row.get(3)?,
                    login: row.get(4)?,
                    host: row.get(5)?,
                })
            })?;
            rows.collect()
        };
        found().map_err(|error| self.failed(error))
    }

    /// Sets [`ListedTree::pause`] of each tree with open work, according to the pauses in force.
    pub(super) fn mark_paused<'t>(
        &self,
        trees: impl IntoIterator<Item = &'t mut ListedTree>,
    ) -> Result<(), Error> {
        let pauses = self.pauses()?;
        if pauses.is_empty() {
            return Ok(());
        }
        for tree in trees.into_iter().filter(|tree| tree.is_open()) {
            tree.pause = self.paused_part(tree, &pauses)?;
        }
        Ok(())
    }

    fn paused_part(
        &self,
        tree: &ListedTree,
        pauses: &[IndexedPause],
    ) -> Result<Option<PausedPart>, Error> {
        let mut part = None;
        for IndexedPause { target, .. } in pauses {
            let is_kept = match target {
                PauseTarget::All => return Ok(Some(PausedPart::Whole)),
                PauseTarget::Thread(thread) if thread.as_str() == tree.thread => {
                    return Ok(Some(PausedPart::Whole));
                }
                _ if part.is_some() => continue,
                PauseTarget::Thread(thread) if thread.root().as_str() == tree.thread => {
                    self.has_open_calls(thread)?
                }
                PauseTarget::Thread(_) => false,
                PauseTarget::Listener(listener) => self.has_open_call_to(&tree.thread, listener)?,
            };
            part = is_kept.then_some(PausedPart::Some);
        }
        Ok(part)
    }

    /// Whether a listener has an open call in a tree.
    fn has_open_call_to(&self, root: &str, listener: &ListenerName) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM thread_row r \
                   CROSS JOIN name l ON l.text = ?2 \
                   CROSS JOIN tree_name_row k ON k.role = ?3 AND k.name = l.n AND k.tree = r.n \
                   CROSS JOIN thread_row t INDEXED BY thread_tree ON t.tree = r.n \
                   CROSS JOIN call_row c INDEXED BY call_thread \
                   ON c.thread = t.n AND c.listener = l.n AND c.closed IS NULL \
                   WHERE r.id = ?1 AND t.open_calls > 0 LIMIT 1";
        let role = TreeNameRole::Listener as i64;
        Ok(!self.rows(sql, &[&root, &listener.as_str(), &role], |_| Ok(()))?.is_empty())
    }
}
