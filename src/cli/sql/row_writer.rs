//! Writes rows to standard output on an OS thread of its own, so that a query can end although the
//! reader of the output takes nothing more.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use crate::cli::render::put;
use crate::limits;

/// Writer of rows to standard output.
pub struct RowWriter {
    /// Rows that are not passed to the OS thread yet.
    rows: String,
    /// Queue of texts to the OS thread. At most one text is not written yet, so that the length of
    /// the queue is bounded.
    texts: Sender<String>,
    /// Receives a value after each written text.
    written: Receiver<()>,
    is_writing: bool,
    has_begun: bool,
}

impl RowWriter {
    /// Starts the OS thread that writes to standard output. The thread ends with the process if the
    /// reader of the output takes nothing more.
    pub fn start() -> std::io::Result<Self> {
        let (texts, queue) = channel::<String>();
        let (sender, written) = channel();
        std::thread::Builder::new().name("rows".to_owned()).spawn(
            move || -> anyhow::Result<()> {
                for text in queue {
                    put(&text)?;
                    sender.send(())?;
                }
                Ok(())
            },
        )?;
        Ok(Self { rows: String::new(), texts, written, is_writing: false, has_begun: false })
    }

    /// Adds rows to the output. Returns false if many rows wait because the reader of the output has
    /// taken nothing until `until`.
    pub fn add(&mut self, rows: &str, until: Option<Instant>) -> bool {
        self.rows.push_str(rows);
        if self.is_writing && self.written.try_recv().is_ok() {
            self.is_writing = false;
        }
        let is_full = self.rows.len() >= limits::SQL_OUTPUT_BYTES;
        if self.is_writing && !is_full {
            return true;
        }
        self.write(until)
    }

    /// Discards the rows that are not passed to the OS thread yet.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// Whether rows were already passed to the OS thread.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Waits until all rows are written. Returns false if they are not written at `until`, and gives
    /// up the rest.
    pub fn finish(mut self, until: Option<Instant>) -> bool {
        self.write(until) && self.wait(until)
    }

    fn write(&mut self, until: Option<Instant>) -> bool {
        if !self.wait(until) {
            return false;
        }
        if self.rows.is_empty() {
            return true;
        }
        self.is_writing = self.texts.send(std::mem::take(&mut self.rows)).is_ok();
        self.has_begun = true;
        self.is_writing
    }

    /// Waits until the OS thread has written its text. Returns false if it has not done so until
    /// `until`.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        if self.is_writing {
            let is_written = match until {
                None => self.written.recv().is_ok(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    self.written.recv_timeout(left).is_ok()
                }
            };
            self.is_writing = !is_written;
        }
        !self.is_writing
    }
}
