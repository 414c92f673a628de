//! The table of names. The index stores each name once, and rows refer to it by a number.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};

use crate::ids::PayloadName;

type NumberedNames<K> = HashMap<K, i64, foldhash::fast::RandomState>;

/// Table of names in the index, which gives each name a number. Used names and their numbers are
/// kept in memory.
pub struct NameTable<'d> {
    db: &'d Connection,
    texts: NumberedNames<Box<str>>,
    payloads: NumberedNames<PayloadName>,
}

impl<'d> NameTable<'d> {
    pub fn new(db: &'d Connection) -> Self {
        Self { db, texts: NumberedNames::default(), payloads: NumberedNames::default() }
    }

    /// Returns the number that stands for a name in the index. For payload names, use
    /// [`NameTable::payload`].
    pub fn number(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(n) = self.texts.get(text) {
            return Ok(*n);
        }
        let n = self.stored(text, text)?;
        self.texts.insert(text.into(), n);
        Ok(n)
    }

    /// Returns the number of a name as [`NameTable::number`] does; `None` if `text` is `None`.
    pub fn optional(&mut self, text: Option<&str>) -> rusqlite::Result<Option<i64>> {
        text.map(|text| self.number(text)).transpose()
    }

    pub fn payload(&mut self, name: &PayloadName) -> rusqlite::Result<i64> {
        if let Some(n) = self.payloads.get(name) {
            return Ok(*n);
        }
        let n = self.stored(&name.to_string(), &name.local)?;
        self.payloads.insert(name.clone(), n);
        Ok(n)
    }

    fn stored(&self, text: &str, local: &str) -> rusqlite::Result<i64> {
        let mut find = self.db.prepare_cached("SELECT n FROM name WHERE text = ?1")?;
        if let Some(n) = find.query_row([text], |row| row.get(0)).optional()? {
            return Ok(n);
        }
        let mut insert = self.db.prepare_cached("INSERT INTO name(text, local) VALUES (?1, ?2)")?;
        insert.insert((text, local))
    }

    /// Removes all names from memory if memory holds more than `rows_kept` names. A removed name is
    /// read again when it is used.
    pub fn trim(&mut self, rows_kept: usize) {
        if self.texts.len() + self.payloads.len() > rows_kept {
            self.texts.clear();
            self.payloads.clear();
        }
    }
}
