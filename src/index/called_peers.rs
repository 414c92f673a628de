//! Counts the calls between each pair of a caller and a called listener.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _};

use super::{Error, IndexReader};

/// The calls from one caller to one listener. The caller is a listener or a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalledPeer {
    pub caller: String,
    pub listener: String,
    pub calls: u64,
    /// Number of calls without a result.
    pub open: u64,
    /// Number of open calls that wait for a person.
    pub held: u64,
}

/// A caller, and a listener that it has called. Both are numbers from the index's table of names.
type PeerNumbers = (i64, i64);

/// Counts of the calls in an index, by caller and listener. The counts can be brought up to date by
/// reading only the rows after the last counted row. This works because new calls get higher row
/// numbers, and the caller and the listener of a row never change.
///
/// The counts remain right if the index is made anew. A new index of the same journal has the same
/// calls in the same order, but it may number the names differently. For this reason, the counts
/// contain names instead of numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountedCalls {
    /// Number of calls, by the name of the caller and the name of the listener.
    calls: BTreeMap<(String, String), u64>,
    /// Row number of the last counted call.
    last: i64,
    /// Message id of the last counted call, as the index stores it; `None` before the first count.
    last_id: Option<Vec<u8>>,
}

/// Number of open calls from one caller to one listener, and how many of these calls wait for a
/// person.
#[derive(Debug, Clone, Copy, Default)]
struct OpenPeerCalls {
    open: u64,
    held: u64,
}

impl IndexReader {
    /// Returns, for each caller and each listener that it called, the number of calls, and how many
    /// of them are open or wait for a person. First adds the calls that `counted` does not contain
    /// yet. Reads only these new calls and the open calls. If `counted` contains calls that the
    /// index lacks, counts all calls anew.
    pub fn called_peers(&self, counted: &mut CountedCalls) -> Result<Vec<CalledPeer>, Error> {
        let names = counted.add_new(self.connection()).map_err(|error| self.failed(error))?;
        let open = self.open_calls_by_peers()?;
        let open = open.into_iter().map(|(peers, open)| (names_of(peers, &names), open));
        let open: BTreeMap<_, _> = open.collect();

        let peer = |(peers, calls): (&(String, String), &u64)| {
            let OpenPeerCalls { open, held } = open.get(peers).copied().unwrap_or_default();
            let (caller, listener) = peers.clone();
            CalledPeer { caller, listener, calls: *calls, open, held }
        };
        Ok(counted.calls.iter().map(peer).collect())
    }

    fn open_calls_by_peers(&self) -> Result<BTreeMap<PeerNumbers, OpenPeerCalls>, Error> {
        let sql = "SELECT caller, listener, count(*), sum(EXISTS (SELECT 1 FROM hold_row h \
                   INDEXED BY hold_open WHERE h.call = r.n AND h.ended IS NULL)) \
                   FROM call_row r INDEXED BY call_open WHERE r.closed IS NULL GROUP BY 1, 2";
        let rows = self.rows(sql, &[], |row| {
            let open = OpenPeerCalls { open: row.get(2)?, held: row.get(3)? };
            Ok(((row.get(0)?, row.get(1)?), open))
        })?;
        Ok(rows.into_iter().collect())
    }
}

impl CountedCalls {
    /// Adds the calls of an index that these counts do not contain yet. Counts the calls in Rust,
    /// because a `GROUP BY` in SQL would have to sort all calls. Returns the index's names, by
    /// number.
    fn add_new(&mut self, index: &Connection) -> rusqlite::Result<BTreeMap<i64, String>> {
        // The index of a restored journal may have other calls than those that were counted.
        if call_id(index, self.last)? != self.last_id {
            *self = Self::default();
        }

        let mut calls: BTreeMap<PeerNumbers, u64> = BTreeMap::new();
        let sql = "SELECT caller, listener, n FROM call_row WHERE n > ?1 ORDER BY n";
        let mut query = index.prepare_cached(sql)?;
        let mut rows = query.query([self.last])?;
        while let Some(row) = rows.next()? {
            *calls.entry((row.get(0)?, row.get(1)?)).or_default() += 1;
            self.last = row.get(2)?;
        }
        self.last_id = call_id(index, self.last)?;

        // The names are read after the calls, so that no name of a call is missing.
        let names = names(index)?;
        for (peers, calls) in calls {
            *self.calls.entry(names_of(peers, &names)).or_default() += calls;
        }
        Ok(names)
    }
}

/// Returns the message id of the call in row `number`; `None` if the index has no such row.
fn call_id(index: &Connection, number: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut find = index.prepare_cached("SELECT id FROM call_row WHERE n = ?1")?;
    find.query_row([number], |row| row.get(0)).optional()
}

/// Returns the index's table of names, by number.
fn names(index: &Connection) -> rusqlite::Result<BTreeMap<i64, String>> {
    let mut query = index.prepare_cached("SELECT n, text FROM name")?;
    let names = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    names.collect()
}

/// Returns the names of a caller and of a listener that it has called.
fn names_of((caller, listener): PeerNumbers, names: &BTreeMap<i64, String>) -> (String, String) {
    let name = |number: i64| names.get(&number).cloned().unwrap_or_default();
    (name(caller), name(listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the tables that the counts read, as in the index of `journal`. `names` are numbered
    /// from 1. Each call has its row number, and the numbers of its caller and of its listener.
    fn index(journal: &str, names: &[&str], calls: &[(i64, i64, i64)]) -> Connection {
        let db = Connection::open_in_memory().unwrap();
        let tables = "CREATE TABLE name(n INTEGER PRIMARY KEY, text TEXT); \
                      CREATE TABLE call_row(n INTEGER PRIMARY KEY, id BLOB, caller INTEGER, \
                      listener INTEGER)";
        db.execute_batch(tables).unwrap();
        for name in names {
            db.execute("INSERT INTO name(text) VALUES (?1)", [name]).unwrap();
        }
        for (n, caller, listener) in calls {
            let id = format!("call {n} of {journal}").into_bytes();
            let row = (n, id, caller, listener);
            let sql = "INSERT INTO call_row(n, id, caller, listener) VALUES (?1, ?2, ?3, ?4)";
            db.execute(sql, row).unwrap();
        }
        db
    }

    fn counts(counted: &CountedCalls) -> Vec<(&str, &str, u64)> {
        let calls = counted.calls.iter();
        calls.map(|((from, to), calls)| (from.as_str(), to.as_str(), *calls)).collect()
    }

    #[test]
    fn counts_stay_right_when_a_new_index_numbers_names_differently() {
        let mut counted = CountedCalls::default();
        let first = index("one", &["desk", "flow", "ledger"], &[(1, 1, 2), (3, 2, 3)]);
        counted.add_new(&first).unwrap();
        assert_eq!(counts(&counted), [("desk", "flow", 1), ("flow", "ledger", 1)]);

        let anew = index("one", &["ledger", "desk", "flow"], &[(1, 2, 3), (3, 3, 1), (4, 3, 1)]);
        counted.add_new(&anew).unwrap();
        assert_eq!(counts(&counted), [("desk", "flow", 1), ("flow", "ledger", 2)]);
        counted.add_new(&anew).unwrap();
        assert_eq!(counts(&counted), [("desk", "flow", 1), ("flow", "ledger", 2)]);
    }

    #[test]
    fn counts_begin_anew_with_the_index_of_another_journal() {
        let mut counted = CountedCalls::default();
        let first = index("one", &["desk", "flow"], &[(1, 1, 2)]);
        counted.add_new(&first).unwrap();

        let restored = index("other", &["desk", "other"], &[(1, 1, 2), (2, 1, 2)]);
        counted.add_new(&restored).unwrap();
        assert_eq!(counts(&counted), [("desk", "other", 2)]);
        counted.add_new(&index("empty", &[], &[])).unwrap();
        assert_eq!(counted, CountedCalls::default());
    }
}
