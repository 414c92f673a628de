//! Writes the index rows of threads and of trees, with their totals.

use std::collections::HashMap;
use std::sync::LazyLock;

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use crate::contract::Gather;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, ThreadId};
use crate::limits;
use crate::system::is_thread_cancelled;
use crate::thread::{Closing, Record, RecordByCall};

use super::calls::{closing, closing_of};

/// Totals of a thread, or of a tree, such as its messages, its tokens and its cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowTotals {
    pub messages: i64,
    pub settled: i64,
    pub refusals: i64,
    pub errors: i64,
    pub turns: i64,
    pub tokens_in: i64,
    pub tokens_out: i64,
    pub tokens_charged: i64,
    pub cost: i64,
    pub open_calls: i64,
    pub held: i64,
    /// Number of timeline entries.
    pub events: i64,
}

/// Columns of [`RowTotals`].
const TOTALS: &str = "messages, settled, refusals, errors, turns, tokens_in, tokens_out, \
                      tokens_charged, cost, open_calls, held, events";

/// Number of columns in [`TOTALS`].
const TOTALS_COUNT: usize = 12;

impl RowTotals {
    /// Reads the columns [`TOTALS`] from a row. `from` is the number of the first of these columns
    /// in the row, counted from 0.
    fn read(row: &Row<'_>, from: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            messages: row.get(from)?,
            settled: row.get(from + 1)?,
            refusals: row.get(from + 2)?,
            errors: row.get(from + 3)?,
            turns: row.get(from + 4)?,
            tokens_in: row.get(from + 5)?,
            tokens_out: row.get(from + 6)?,
            tokens_charged: row.get(from + 7)?,
            cost: row.get(from + 8)?,
            open_calls: row.get(from + 9)?,
            held: row.get(from + 10)?,
            events: row.get(from + 11)?,
        })
    }

    /// Returns the values of the columns [`TOTALS`], in their order.
    fn values(&self) -> [i64; TOTALS_COUNT] {
        [
            self.messages,
            self.settled,
            self.refusals,
            self.errors,
            self.turns,
            self.tokens_in,
            self.tokens_out,
            self.tokens_charged,
            self.cost,
            self.open_calls,
            self.held,
            self.events,
        ]
    }
}

/// The first call of a thread. The caller, the listener and the payload name of the request are
/// numbers from the index's table of names. `words` are the first words of the request.
#[derive(Debug, Clone)]
pub struct FirstCall {
    pub requested_by: i64,
    pub listener: i64,
    pub request: i64,
    pub words: Option<String>,
}

/// Row of a thread in the index.
#[derive(Debug)]
struct IndexedThread {
    id: ThreadId,
    tree: i64,
    parent: Option<i64>,
    opened_by: Option<i64>,
    opened: i64,
    updated: i64,
    worked: i64,
    position: u64,
    first: Option<FirstCall>,
    totals: RowTotals,
    ended: Option<(String, i64)>,
    last_event: i64,
    is_changed: bool,
}

/// Kind of a name that the index stores for a tree. A search finds trees by the names of listeners,
/// agents and payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeNameRole {
    /// A listener that was called.
    Listener = 1,
    /// An agent that took a turn.
    Agent = 2,
    Payload = 3,
    /// A currency of the cost of a turn.
    Currency = 4,
}

/// Row of a tree, with the number of its root thread.
#[derive(Debug)]
struct IndexedTree {
    opened: i64,
    updated: i64,
    worked: i64,
    first: u64,
    head: u64,
    records: u64,
    subthreads: u64,
    totals: RowTotals,
    /// Names that the index already stores for this tree, so that they need not be written again.
    /// The list is limited and may be incomplete.
    names: Vec<(TreeNameRole, i64)>,
    is_changed: bool,
}

/// Rows of threads and trees that are in memory, by their numbers.
pub struct ThreadRows<'d> {
    db: &'d Connection,
    numbers: HashMap<ThreadId, i64, foldhash::fast::RandomState>,
    threads: HashMap<i64, IndexedThread, foldhash::fast::RandomState>,
    trees: HashMap<i64, IndexedTree, foldhash::fast::RandomState>,
    last: i64,
}

const COLUMNS: &str = "tree, parent, opened_by, opened, updated, position, requested_by, listener, \
                       request, first_words, ended_how, ended, \
                       last_event, worked";

static SAVE_THREAD: LazyLock<String> =
    LazyLock::new(|| replace_sql("thread_row", &format!("n, id, {COLUMNS}, {TOTALS}")));

static SAVE_TREE: LazyLock<String> = LazyLock::new(|| {
    let columns = "n, status, opened, updated, first, head, records, subthreads, worked";
    replace_sql("tree_row", &format!("{columns}, {TOTALS}"))
});

/// Returns the SQL statement that writes a row with the columns `columns` to `table`. The statement
/// replaces an earlier row with the same key.
fn replace_sql(table: &str, columns: &str) -> String {
    let parameters = vec!["?"; columns.split(',').count()].join(", ");
    format!("INSERT OR REPLACE INTO {table}({columns}) VALUES ({parameters})")
}

/// Returns the parameters for a statement of [`replace_sql`] whose last columns are [`TOTALS`]:
/// first `values`, then `totals`.
fn with_totals<'v>(
    values: &[&'v dyn ToSql],
    totals: &'v [i64; TOTALS_COUNT],
) -> Vec<&'v dyn ToSql> {
    let totals = totals.iter().map(|total| total as &'v dyn ToSql);
    values.iter().copied().chain(totals).collect()
}

impl<'d> ThreadRows<'d> {
    pub fn new(db: &'d Connection) -> rusqlite::Result<Self> {
        let last = "SELECT coalesce(max(n), 0) FROM thread_row";
        let last = db.query_row(last, [], |row| row.get(0))?;
        Ok(Self {
            db,
            numbers: HashMap::default(),
            threads: HashMap::default(),
            trees: HashMap::default(),
            last,
        })
    }

    /// Returns the number of a thread, and loads its row into memory. Returns `None` if the thread
    /// is not on record.
    pub fn find(&mut self, id: &ThreadId) -> rusqlite::Result<Option<i64>> {
        if let Some(n) = self.numbers.get(id) {
            return Ok(Some(*n));
        }
        let mut find = self.db.prepare_cached("SELECT n FROM thread_row WHERE id = ?1")?;
        let n: Option<i64> = find.query_row([id.as_str()], |row| row.get(0)).optional()?;
        if let Some(n) = n {
            self.load(n)?;
        }
        Ok(n)
    }

    /// Returns the number of a thread. Adds the thread if it is new.
    pub fn number(
        &mut self,
        id: &ThreadId,
        opened_by: Option<i64>,
        record: &Record,
    ) -> rusqlite::Result<i64> {
        if let Some(n) = self.find(id)? {
            return Ok(n);
        }

        let parent = id.parent().map(|parent| self.number(&parent, None, record)).transpose()?;
        self.last += 1;
        let n = self.last;
        let tree = match parent {
            None => n,
            Some(_) => self.number(&id.root(), None, record)?,
        };

        let time = record.time.0;
        let row = IndexedThread {
            id: id.clone(),
            tree,
            parent,
            opened_by,
            opened: time,
            updated: time,
            worked: time,
            position: record.position.0,
            first: None,
            totals: RowTotals::default(),
            ended: None,
            last_event: time,
            is_changed: true,
        };
        self.threads.insert(n, row);
        self.numbers.insert(id.clone(), n);
        if parent.is_none() {
            self.trees.insert(n, IndexedTree::new(record));
        } else if let Some(tree) = self.tree(tree)? {
            tree.subthreads += 1;
        }
        Ok(n)
    }

    /// Counts a record in the row of the record's tree.
    pub fn count_record(&mut self, record: &Record) -> rusqlite::Result<()> {
        let root = self.number(&record.tree, None, record)?;
        if let Some(tree) = self.tree(root)? {
            tree.records += 1;
            tree.head = record.position.0;
            tree.updated = record.time.0;
        }
        Ok(())
    }

    /// Applies `change` to the totals of a thread and to the totals of its tree. `record` counts as
    /// work of the thread.
    pub fn add(
        &mut self,
        n: i64,
        record: &Record,
        change: impl Fn(&mut RowTotals),
    ) -> rusqlite::Result<()> {
        self.change_totals(n, record, true, change)
    }

    /// Adds `refusals` to the totals of a thread and of its tree. A refusal does not count as work.
    /// A person's action that is refused therefore does not change how long a finished thread took.
    pub fn add_refusals(&mut self, n: i64, record: &Record, refusals: i64) -> rusqlite::Result<()> {
        self.change_totals(n, record, false, |sums| sums.refusals += refusals)
    }

    /// Applies `change` to the totals of a thread and to the totals of its tree. `is_work` states
    /// whether `record` counts as work of the thread.
    fn change_totals(
        &mut self,
        n: i64,
        record: &Record,
        is_work: bool,
        change: impl Fn(&mut RowTotals),
    ) -> rusqlite::Result<()> {
        let time = record.time.0;
        let Some(thread) = self.thread(n)? else { return Ok(()) };
        thread.updated = time;
        if is_work {
            thread.worked = time;
        }
        change(&mut thread.totals);

        let root = thread.tree;
        if let Some(tree) = self.tree(root)? {
            if is_work {
                tree.worked = time;
            }
            change(&mut tree.totals);
        }
        Ok(())
    }

    /// Counts a message in the row of its thread. The message may state that the thread was
    /// cancelled. If so, and if no call was opened in the thread before, also stores the
    /// cancellation as the end of the thread.
    pub fn count_message(
        &mut self,
        n: i64,
        record: &Record,
        message: &Message,
    ) -> rusqlite::Result<()> {
        self.add(n, record, |sums| sums.messages += 1)?;
        if !is_thread_cancelled(message) {
            return Ok(());
        }

        let thread = self.thread(n)?;
        if thread.is_some_and(|thread| thread.first.is_none() && thread.ended.is_none()) {
            self.end(n, Closing::Cancelled, record)?;
        }
        Ok(())
    }

    /// Returns the number of the tree that contains the thread with the number `n`; `None` if the
    /// index has no such thread.
    pub fn tree_of(&mut self, n: i64) -> rusqlite::Result<Option<i64>> {
        self.load(n)?;
        Ok(self.threads.get(&n).map(|thread| thread.tree))
    }

    /// Adds `events` to the number of timeline entries of a thread. `are_work` is false if all of
    /// them are refusals or decisions of persons. The time of the last entry is set only if
    /// `are_work` is true, or if the thread has no earlier entry.
    pub fn count_events(
        &mut self,
        n: i64,
        record: &Record,
        events: i64,
        are_work: bool,
    ) -> rusqlite::Result<()> {
        self.change_totals(n, record, are_work, |sums| sums.events += events)?;
        if let Some(thread) = self.thread(n)?
            && (are_work || thread.totals.events == events)
        {
            thread.last_event = record.time.0;
        }
        Ok(())
    }

    /// Stores `name`, so that a search by this name finds the tree of a thread.
    pub fn add_name(&mut self, n: i64, role: TreeNameRole, name: i64) -> rusqlite::Result<()> {
        let Some(root) = self.thread(n)?.map(|thread| thread.tree) else { return Ok(()) };
        let Some(tree) = self.tree(root)? else { return Ok(()) };
        if tree.names.contains(&(role, name)) {
            return Ok(());
        }
        if tree.names.len() < limits::INDEX_TREE_NAMES_KEPT {
            tree.names.push((role, name));
        }
        let sql = "INSERT OR IGNORE INTO tree_name_row(role, name, tree) VALUES (?1, ?2, ?3)";
        self.db.prepare_cached(sql)?.execute((role as i64, name, root))?;
        Ok(())
    }

    /// Sets the first call of a thread if the thread has no first call yet.
    pub fn set_first_call(
        &mut self,
        n: i64,
        first: impl FnOnce() -> rusqlite::Result<FirstCall>,
    ) -> rusqlite::Result<()> {
        if let Some(thread) = self.thread(n)?
            && thread.first.is_none()
        {
            thread.first = Some(first()?);
        }
        Ok(())
    }

    /// Removes the stored end of the thread `n`, because a client or another thread has begun a
    /// request to several peers in this thread. The thread's new end follows from the calls of this
    /// request alone.
    pub fn begin_group(&mut self, n: i64) -> rusqlite::Result<()> {
        if let Some(thread) = self.thread(n)? {
            thread.ended = None;
        }
        Ok(())
    }

    /// Stores the end of the call `id`, which a client or another thread has opened, as the end of
    /// the thread `n`. If the call belongs to a request to several peers, stores one common end. It
    /// follows from those calls of the request that have ended so far.
    pub fn end_call(
        &mut self,
        n: i64,
        (id, how, gather): (CallId, Closing, Option<Gather>),
        (record, by_call): (&Record, &RecordByCall<'_>),
    ) -> rusqlite::Result<()> {
        let Some(gather) = gather else { return self.end(n, how, record) };
        let thread = self.thread(n)?;
        let earlier = thread.and_then(|thread| closing_of(&thread.ended.as_ref()?.0));
        let has_reply = by_call.result_of(id).any(|message| message.kind == MessageKind::Reply);
        self.end(n, how.of_group(earlier, gather, has_reply), record)
    }

    /// Stores how the thread `n` has ended.
    pub fn end(&mut self, n: i64, how: Closing, record: &Record) -> rusqlite::Result<()> {
        if let Some(thread) = self.thread(n)? {
            thread.ended = Some((closing(how).to_owned(), record.time.0));
        }
        Ok(())
    }

    /// Returns the row of the thread with the number `n`, and marks the row as changed. Returns
    /// `None` if the index has no such thread.
    fn thread(&mut self, n: i64) -> rusqlite::Result<Option<&mut IndexedThread>> {
        self.load(n)?;
        let mut row = self.threads.get_mut(&n);
        if let Some(row) = &mut row {
            row.is_changed = true;
        }
        Ok(row)
    }

    /// Returns the row of the tree with the root thread `n`, and marks the row as changed. Returns
    /// `None` if the index has no such tree.
    fn tree(&mut self, n: i64) -> rusqlite::Result<Option<&mut IndexedTree>> {
        self.load(n)?;
        let mut row = self.trees.get_mut(&n);
        if let Some(row) = &mut row {
            row.is_changed = true;
        }
        Ok(row)
    }

    /// Loads the row of a thread into memory. For a root thread, also loads the row of its tree.
    fn load(&mut self, n: i64) -> rusqlite::Result<()> {
        if self.threads.contains_key(&n) {
            return Ok(());
        }

        let sql = format!("SELECT id, {COLUMNS}, {TOTALS} FROM thread_row WHERE n = ?1");
        let read = |row: &Row<'_>| read_thread(row);
        let row = self.db.prepare_cached(&sql)?.query_row([n], read).optional()?;
        let Some(Some(row)) = row else { return Ok(()) };
        self.numbers.insert(row.id.clone(), n);
        let is_root = row.parent.is_none();
        self.threads.insert(n, row);
        if is_root {
            let sql = format!(
                "SELECT opened, updated, first, head, records, subthreads, worked, {TOTALS} \
                 FROM tree_row WHERE n = ?1"
            );
            let row = self.db.prepare_cached(&sql)?.query_row([n], read_tree).optional()?;
            if let Some(row) = row {
                self.trees.insert(n, row);
            }
        }
        Ok(())
    }

    /// Writes all changed rows. Removes all rows from memory if there are more than `rows_kept`.
    pub fn flush(&mut self, rows_kept: usize) -> rusqlite::Result<()> {
        let changed: Vec<i64> =
            self.trees.iter().filter(|(_, row)| row.is_changed).map(|(n, _)| *n).collect();
        for n in changed {
            self.save_tree(n)?;
        }
        for (n, row) in self.threads.iter_mut().filter(|(_, row)| row.is_changed) {
            save_thread(self.db, *n, row)?;
            row.is_changed = false;
        }

        if self.threads.len() > rows_kept {
            self.threads.clear();
            self.trees.clear();
            self.numbers.clear();
        }
        Ok(())
    }

    fn save_tree(&mut self, n: i64) -> rusqlite::Result<()> {
        let (Some(tree), Some(root)) = (self.trees.get_mut(&n), self.threads.get(&n)) else {
            return Ok(());
        };
        let values = params![
            n,
            status(root, tree),
            tree.opened,
            tree.updated,
            tree.first,
            tree.head,
            tree.records,
            tree.subthreads,
            tree.worked
        ];
        let totals = tree.totals.values();
        let values = with_totals(values, &totals);
        self.db.prepare_cached(&SAVE_TREE)?.execute(values.as_slice())?;
        tree.is_changed = false;
        Ok(())
    }
}

impl IndexedTree {
    fn new(record: &Record) -> Self {
        Self {
            opened: record.time.0,
            updated: record.time.0,
            worked: record.time.0,
            first: record.position.0,
            head: record.position.0,
            records: 0,
            subthreads: 0,
            totals: RowTotals::default(),
            names: Vec::new(),
            is_changed: true,
        }
    }
}

/// Returns the phase of a root thread: `running`, `idle`, `draining`, or the way in which the
/// thread ended. A thread that has ended is `draining` while calls in threads beneath it are open.
fn status<'r>(root: &'r IndexedThread, tree: &IndexedTree) -> &'r str {
    if root.totals.open_calls > 0 {
        return "running";
    }
    let Some((how, _)) = &root.ended else { return "idle" };
    if tree.totals.open_calls > root.totals.open_calls { "draining" } else { how }
}

/// Reads the row of a thread. Returns `None` if the row contains an invalid thread id.
fn read_thread(row: &Row<'_>) -> rusqlite::Result<Option<IndexedThread>> {
    let id: String = row.get(0)?;
    let Ok(id) = ThreadId::parse(&id) else { return Ok(None) };
    let requested_by: Option<i64> = row.get(7)?;
    let first = match requested_by {
        Some(requested_by) => Some(FirstCall {
            requested_by,
            listener: row.get(8)?,
            request: row.get(9)?,
            words: row.get(10)?,
        }),
        None => None,
    };
    let how: Option<String> = row.get(11)?;
    let ended: Option<i64> = row.get(12)?;
    Ok(Some(IndexedThread {
        id,
        tree: row.get(1)?,
        parent: row.get(2)?,
        opened_by: row.get(3)?,
        opened: row.get(4)?,
        updated: row.get(5)?,
        position: row.get(6)?,
        first,
        last_event: row.get(13)?,
        worked: row.get(14)?,
        totals: RowTotals::read(row, 15)?,
        ended: how.zip(ended),
        is_changed: false,
    }))
}

fn read_tree(row: &Row<'_>) -> rusqlite::Result<IndexedTree> {
    Ok(IndexedTree {
        opened: row.get(0)?,
        updated: row.get(1)?,
        first: row.get(2)?,
        head: row.get(3)?,
        records: row.get(4)?,
        subthreads: row.get(5)?,
        worked: row.get(6)?,
        totals: RowTotals::read(row, 7)?,
        names: Vec::new(),
        is_changed: false,
    })
}

fn save_thread(db: &Connection, n: i64, row: &IndexedThread) -> rusqlite::Result<()> {
    let first = row.first.as_ref();
    let ended = row.ended.as_ref();
    let values = params![
        n,
        row.id.as_str(),
        row.tree,
        row.parent,
        row.opened_by,
        row.opened,
        row.updated,
        row.position,
        first.map(|first| first.requested_by),
        first.map(|first| first.listener),
        first.map(|first| first.request),
        first.and_then(|first| first.words.as_deref()),
        ended.map(|(how, _)| how),
        ended.map(|(_, time)| time),
        row.last_event,
        row.worked
    ];
    let totals = row.totals.values();
    let values = with_totals(values, &totals);
    db.prepare_cached(&SAVE_THREAD)?.execute(values.as_slice())?;
    Ok(())
}
