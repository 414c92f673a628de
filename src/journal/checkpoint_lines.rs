//! Reads the lines of checkpoint files. Such a file grows as long as its journal does, so no reader
//! holds it in memory: a start of a pump reads only its end, and other readers read it in blocks.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::limits;

use super::Checkpoint;

/// Splits the bytes of a checkpoint file into lines, and parses the lines. Ignores an incomplete
/// last line.
#[derive(Debug, Default)]
struct LineParser {
    /// Beginning of the next line. Never longer than the longest line of a checkpoint.
    line: Vec<u8>,
    /// Number of lines parsed so far.
    parsed: u64,
    /// Offset of the first parsed line in the file.
    from: u64,
    /// Description of the first damaged line; `None` if all lines so far are intact.
    damage: Option<String>,
}

impl LineParser {
    /// Parses the next bytes of the file. Calls `visit` with each intact checkpoint.
    fn parse(&mut self, bytes: &[u8], visit: &mut dyn FnMut(Checkpoint)) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.extend_line(rest.get(..end).unwrap_or_default());
            self.finish_line(visit);
            rest = rest.get(end + 1..).unwrap_or_default();
        }

        self.extend_line(rest);
    }

    /// Appends bytes to the present line. Drops the bytes beyond the longest possible line, so that
    /// a damaged file without line ends needs no memory.
    fn extend_line(&mut self, bytes: &[u8]) {
        let room = (limits::CHECKPOINT_LINE_BYTES_MAX as usize).saturating_sub(self.line.len());
        self.line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn finish_line(&mut self, visit: &mut dyn FnMut(Checkpoint)) {
        self.parsed += 1;
        if !self.line.trim_ascii().is_empty() {
            match serde_json::from_slice(&self.line) {
                Ok(checkpoint) => visit(checkpoint),
                Err(error) if self.damage.is_none() => {
                    self.damage = Some(self.damage_at(error.column()));
                }
                Err(_) => {}
            }
        }

        self.line.clear();
    }

    fn damage_at(&self, column: usize) -> String {
        let number = self.parsed;
        match self.from {
            0 => format!("line {number} is damaged at column {column}"),
            from => format!("line {number} after byte {from} is damaged at column {column}"),
        }
    }
}

/// Opens the checkpoint file `path`; `None` if it does not exist.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Calls `visit` with each intact checkpoint of the file `path`, oldest first. Visits nothing if
/// the file does not exist. Returns a description of the first damaged line; `None` if all lines
/// are intact.
pub fn visit_lines(path: &Path, visit: &mut dyn FnMut(Checkpoint)) -> io::Result<Option<String>> {
    let mut parser = LineParser::default();
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut block = vec![0; limits::CHECKPOINT_BLOCK_BYTES];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(parser.damage),
            Ok(length) => parser.parse(block.get(..length).unwrap_or_default(), visit),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The last lines of a checkpoint file.
#[derive(Debug, Default)]
pub struct LastLines {
    /// Checkpoints in the order of their lines. Contains only those in intact lines.
    pub checkpoints: Vec<Checkpoint>,
    /// Offset of the first of the last lines in the file; 0 if they are all lines of the file.
    pub from: u64,
    /// Description of the first damaged line among the last lines; `None` if they are intact.
    pub damage: Option<String>,
}

impl LastLines {
    /// Reads the whole lines in the last `bytes` bytes of the file `path`. If none of them is an
    /// intact checkpoint, reads the bytes before these, too, until it finds one. Calls `alive`
    /// before each further read. Returns no lines if the file does not exist.
    pub fn read(path: &Path, bytes: u64, alive: &mut dyn FnMut()) -> io::Result<Self> {
        let Some(mut file) = open(path)? else { return Ok(Self::default()) };
        let mut end = end_of_last_line(&mut file)?;
        let mut damage = None;
        loop {
            let start = end.saturating_sub(bytes);
            let read = Self::read_part(&mut file, start, end)?;
            let damage_before = read.damage.or(damage.take());
            if !read.checkpoints.is_empty() || start == 0 {
                return Ok(Self { damage: damage_before, ..read });
            }

            damage = damage_before;
            if read.from < end {
                end = read.from;
            } else {
                // The part has no line end, except perhaps as its last byte.
                damage.get_or_insert_with(|| {
                    format!("the line before byte {end} is damaged: it has {bytes} bytes or more")
                });
                end = start;
            }
            alive();
        }
    }

    /// Reads the whole lines between the offsets `start` and `end` of `file`. A line begins at
    /// `start` only if this is the beginning of the file.
    fn read_part(file: &mut File, start: u64, end: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(start))?;
        let mut part = Vec::new();
        file.take(end - start).read_to_end(&mut part)?;

        // Bytes from the middle of the file begin within a line.
        let cut = match start {
            0 => 0,
            _ => memchr::memchr(b'\n', &part).map_or(part.len(), |line_end| line_end + 1),
        };
        let from = start + cut as u64;
        let mut parser = LineParser { from, ..LineParser::default() };
        let mut checkpoints = Vec::new();
        let whole = part.get(cut..).unwrap_or_default();
        parser.parse(whole, &mut |checkpoint| checkpoints.push(checkpoint));
        Ok(Self { checkpoints, from, damage: parser.damage })
    }
}

/// Returns the end of the last whole line of `file`: the offset after its line end. Reads backwards
/// from the end of the file.
pub fn end_of_last_line(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(limits::CHECKPOINT_BLOCK_BYTES as u64);
        file.seek(SeekFrom::Start(start))?;
        let mut block = Vec::new();
        file.by_ref().take(end - start).read_to_end(&mut block)?;
        if let Some(at) = memchr::memrchr(b'\n', &block) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }

    Ok(0)
}

/// Reader of the checkpoints in a file on a server that may be unreachable. An OS thread reads the
/// file in blocks, because a read from an unreachable server may block forever.
#[derive(Debug)]
pub struct TimedLineReader {
    path: PathBuf,
    /// Blocks of the file. The channel closes at the end of the file.
    blocks: Receiver<io::Result<Vec<u8>>>,
    parser: LineParser,
    ready: VecDeque<Checkpoint>,
    /// Time that is left to wait for the blocks.
    patience: Duration,
}

impl TimedLineReader {
    /// Begins to read the first `bytes` bytes of the file `path`. A file that does not exist counts
    /// as empty. `patience` is the total time to wait for the file.
    pub fn start(path: &Path, bytes: u64, patience: Duration) -> io::Result<Self> {
        // Queue: one block, so that a slow caller does not need the memory for the whole file.
        let (sender, blocks) = sync_channel(1);
        let file = path.to_owned();
        let thread = std::thread::Builder::new().name("checkpoint-copies".to_owned());
        thread.spawn(move || send_blocks(&file, bytes, &sender))?;
        let parser = LineParser::default();
        Ok(Self { path: path.to_owned(), blocks, parser, ready: VecDeque::new(), patience })
    }

    /// Returns the checkpoint in the next intact line; `None` at the end. `Err` explains why the
    /// file cannot be read, or states that a block took longer than [`limits::BOUNDS_TIMEOUT`], or
    /// that all blocks took longer than the total time to wait.
    pub fn next_checkpoint(&mut self) -> Result<Option<Checkpoint>, String> {
        while self.ready.is_empty() {
            let begun = Instant::now();
            let patience = self.patience.min(limits::BOUNDS_TIMEOUT);
            let received = self.blocks.recv_timeout(patience);
            self.patience = self.patience.saturating_sub(begun.elapsed());
            match received {
                Ok(block) => {
                    let block = block.map_err(|error| unreadable(&self.path, &error))?;
                    let ready = &mut self.ready;
                    self.parser.parse(&block, &mut |checkpoint| ready.push_back(checkpoint));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.patience.is_zero() => {
                    return Err(format!("{} is read too slowly", self.path.display()));
                }
                Err(RecvTimeoutError::Timeout) => return Err(no_response(&self.path)),
            }
        }

        Ok(self.ready.pop_front())
    }

    /// Returns a description of the first damaged line so far; `None` if all of them are intact.
    pub fn damage(&self) -> Option<&str> {
        self.parser.damage.as_deref()
    }
}

/// Describes why the file `path` cannot be read.
pub fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}

/// Describes that a read of the file `path` took longer than [`limits::BOUNDS_TIMEOUT`].
pub fn no_response(path: &Path) -> String {
    let seconds = limits::BOUNDS_TIMEOUT.as_secs();
    format!("{} gave nothing within {seconds} s", path.display())
}

fn send_blocks(path: &Path, bytes: u64, blocks: &SyncSender<io::Result<Vec<u8>>>) {
    let mut file = match open(path) {
        Ok(Some(file)) => file.take(bytes),
        Ok(None) => return,
        Err(error) => {
            blocks.send(Err(error)).ok();
            return;
        }
    };

    loop {
        let mut block = Vec::new();
        let mut part = file.by_ref().take(limits::CHECKPOINT_BLOCK_BYTES as u64);
        let read = part.read_to_end(&mut block);
        if matches!(read, Ok(0)) {
            return;
        }

        let is_failed = read.is_err();
        // The send fails if the receiver needs no further block.
        if blocks.send(read.map(|_| block)).is_err() || is_failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_size_of_a_part_is_damage_and_an_incomplete_last_one_is_none() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("checkpoints");
        let damage = |text: String| {
            std::fs::write(&path, text).unwrap();
            LastLines::read(&path, 100, &mut || {}).unwrap().damage
        };

        for length in [99, 100, 199, 200, 250] {
            let line = "x".repeat(length - 1);
            assert!(damage(format!("\n{line}\n")).is_some(), "{length} bytes");
            assert_eq!(damage(format!("\n{line}")), None, "{length} bytes");
        }
    }
}
