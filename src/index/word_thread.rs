//! The full-text table that receives the words of messages. It is usually in the database of the
//! index.
//!
//! During a first build, the table is in a separate database, and another OS thread writes the
//! words. Writing the words takes a third of the time of a build. No other row depends on words, so
//! the builder makes the other rows meanwhile.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use rusqlite::Connection;

use crate::limits;
use crate::owned_tasks::JoinOnDrop;

use super::WORDS_SCHEMA;

/// The full-text table that receives the words of messages and refusals.
pub enum WordTable {
    /// The full-text table is in the database of the index, beside the rows of messages.
    Beside,
    /// The full-text table is in a separate database, and an OS thread writes to it.
    Thread(WordThread),
}

impl WordTable {
    /// Adds the words of the message or refusal with the number `n`. `rows` is the database of the
    /// index.
    pub fn add(&mut self, rows: &Connection, n: i64, text: &str) -> rusqlite::Result<()> {
        match self {
            Self::Beside => {
                let sql = "INSERT INTO word(rowid, text) VALUES (?1, ?2)";
                rows.prepare_cached(sql)?.execute((n, text)).map(drop)
            }
            Self::Thread(thread) => {
                thread.add(n, text);
                Ok(())
            }
        }
    }

    /// Commits the added words if the table is in a separate database. Otherwise, does nothing.
    pub fn commit(&mut self) -> rusqlite::Result<()> {
        match self {
            Self::Beside => Ok(()),
            Self::Thread(thread) => thread.commit(),
        }
    }
}

/// Batch of texts of messages and refusals. Each message or refusal has a number in the index, and
/// the texts are in ascending order of these numbers.
#[derive(Debug, Default)]
struct WordBatch {
    /// Texts of all messages and refusals of the batch, one after another.
    text: String,
    /// Number of each message or refusal, and the end of its text in `text`.
    ends: Vec<(i64, usize)>,
}

enum WordRequest {
    Add(WordBatch),
    /// Commits all words that were added before this request, and sends the result of the commit.
    Commit(Sender<rusqlite::Result<()>>),
    /// Merges all segments of the full-text table, and then sends the success or the error of the
    /// merge through the channel.
    Merge(Sender<rusqlite::Result<()>>),
}

/// Handle to the OS thread that writes the words of messages and refusals into a full-text table
/// during the first build of an index. The OS thread ends when the handle is dropped.
pub struct WordThread {
    batch: WordBatch,
    /// Queue of requests to the OS thread. Dropping the queue ends the OS thread. The length of the
    /// queue is bounded, because the builder may make texts faster than the thread writes their
    /// words.
    requests: SyncSender<WordRequest>,
    _thread: JoinOnDrop,
}

impl WordThread {
    /// Starts an OS thread that writes the words of messages and refusals into a database. `words`
    /// comes from [`open`]: the connection to this database, and the number of the last message or
    /// refusal whose words this database already has.
    pub fn start(words: (Connection, i64)) -> std::io::Result<Self> {
        let (db, last) = words;
        let writer = WordWriter { db, last };
        let (requests, queue) = sync_channel(limits::INDEX_WORD_BATCHES);
        let thread = std::thread::Builder::new().name("index-words".to_owned());
        let thread = thread.spawn(move || writer.run(&queue))?;
        Ok(Self { batch: WordBatch::default(), requests, _thread: JoinOnDrop::new(thread) })
    }

    /// Adds the words of the message or refusal with the number `n`. An error in the OS thread that
    /// writes the words is returned by the next [`Self::commit`].
    pub fn add(&mut self, n: i64, text: &str) {
        self.batch.text.push_str(text);
        self.batch.ends.push((n, self.batch.text.len()));
        if self.batch.text.len() >= limits::INDEX_WORD_BATCH_BYTES {
            self.send_batch();
        }
    }

    /// Commits all added words, and waits for the result.
    pub fn commit(&mut self) -> rusqlite::Result<()> {
        self.send_batch();
        let (sender, receiver) = channel();
        self.send(WordRequest::Commit(sender));
        receiver.recv().expect("the thread of words replies to each request for a commit")
    }

    /// Begins to merge all committed words. The result comes from the returned channel.
    pub fn merge(&self) -> Receiver<rusqlite::Result<()>> {
        let (sender, receiver) = channel();
        self.send(WordRequest::Merge(sender));
        receiver
    }

    fn send_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.send(WordRequest::Add(batch));
    }

    fn send(&self, request: WordRequest) {
        self.requests.send(request).expect("the thread of words runs until its channel is closed");
    }
}

/// Opens the database of words at `path`, and creates it if it is missing. Returns the database and
/// the number of the last message or refusal in it.
pub fn open(path: &Path) -> rusqlite::Result<(Connection, i64)> {
    let db = Connection::open(path)?;
    super::first_build::set_up(&db, limits::INDEX_LIVE_CACHE_KIB)?;
    let is_new = db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if is_new {
        db.execute_batch("BEGIN IMMEDIATE")?;
        db.execute_batch(WORDS_SCHEMA)?;
        super::file::configure_words(&db)?;
        db.execute_batch("CREATE TABLE last(n INTEGER NOT NULL); INSERT INTO last VALUES (0)")?;
        db.execute_batch("COMMIT")?;
    }
    let last = db.query_row("SELECT n FROM last", [], |row| row.get(0))?;
    Ok((db, last))
}

/// Writes words into the database `db`. `last` is the number of the last message or refusal whose
/// words were added.
struct WordWriter {
    db: Connection,
    last: i64,
}

impl WordWriter {
    /// Carries out requests until the channel is closed. After an error, adds no words until the
    /// next commit request, and replies to this request with the error.
    fn run(mut self, queue: &Receiver<WordRequest>) {
        let mut added = Ok(());
        for request in queue {
            // A builder that no longer waits for a reply has ended.
            match request {
                WordRequest::Add(batch) => added = added.and_then(|()| self.add(&batch)),
                WordRequest::Commit(reply) => {
                    let result = std::mem::replace(&mut added, Ok(())).and_then(|()| self.commit());
                    let _ = reply.send(result);
                }
                WordRequest::Merge(reply) => {
                    let merged = "INSERT INTO word(word) VALUES ('optimize')";
                    let _ = reply.send(self.db.execute_batch(merged));
                }
            }
        }
    }

    fn add(&mut self, batch: &WordBatch) -> rusqlite::Result<()> {
        if self.db.is_autocommit() {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
        }
        let mut insert = self.db.prepare_cached("INSERT INTO word(rowid, text) VALUES (?1, ?2)")?;
        let mut from = 0;
        for (n, end) in &batch.ends {
            let text = batch.text.get(from..*end).unwrap_or_default();
            from = *end;
            insert.execute((n, text))?;
            self.last = *n;
        }
        Ok(())
    }

    fn commit(&self) -> rusqlite::Result<()> {
        if self.db.is_autocommit() {
            return Ok(());
        }
        // Done only here, because a change of another table makes FTS5 write a segment.
        self.db.execute("UPDATE last SET n = ?1", [self.last])?;
        self.db.execute_batch("COMMIT")
    }
}
