//! Counts the calls between each pair of a caller and a called listener.

use std::collections::BTreeMap;

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountedCalls {
    calls: BTreeMap<PeerNumbers, u64>,
    /// Row number of the last counted call.
    last: i64,
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
        self.count_calls(counted).map_err(|error| self.failed(error))?;
        let open = self.open_calls_by_peers()?;
        let names = self.rows("SELECT n, text FROM name", &[], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?;
        let names: BTreeMap<i64, String> = names.into_iter().collect();
        let name = |number: &i64| names.get(number).cloned().unwrap_or_default();
        let peer = |(peers, calls): (&PeerNumbers, &u64)| {
            let OpenPeerCalls { open, held } = open.get(peers).copied().unwrap_or_default();
            let (caller, listener) = peers;
            CalledPeer { caller: name(caller), listener: name(listener), calls: *calls, open, held }
        };
        Ok(counted.calls.iter().map(peer).collect())
    }

    /// Adds the calls that `counted` does not contain yet. Counts the calls in Rust, because a
    /// `GROUP BY` in SQL would have to sort all calls.
    fn count_calls(&self, counted: &mut CountedCalls) -> rusqlite::Result<()> {
        // The index of a restored journal may end before the calls that were counted.
        let sql = "SELECT coalesce(max(n), 0) FROM call_row";
        let end: i64 = self.connection().query_row(sql, [], |row| row.get(0))?;
        if end < counted.last {
            *counted = CountedCalls::default();
        }

        let sql = "SELECT caller, listener, n FROM call_row WHERE n > ?1 ORDER BY n";
        let mut query = self.connection().prepare_cached(sql)?;
        let mut rows = query.query([counted.last])?;
        while let Some(row) = rows.next()? {
            *counted.calls.entry((row.get(0)?, row.get(1)?)).or_default() += 1;
            counted.last = row.get(2)?;
        }
        Ok(())
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
