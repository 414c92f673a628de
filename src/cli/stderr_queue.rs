//! Writes standard error on an OS thread of its own, so that a command that runs for long continues
//! its work while nothing reads its log.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::limits;
use crate::locks::locked;

/// The queue of this process. Empty in commands that have not called [`start`].
static QUEUE: OnceLock<StderrQueue> = OnceLock::new();

/// Starts the queue of this process. From then on, its log lines and notes go through this queue.
pub fn start() {
    match StderrQueue::start(std::io::stderr(), limits::STDERR_LINE_WAIT) {
        Ok(queue) => drop(QUEUE.set(queue)),
        Err(error) => tracing::warn!("the log stops this process while nothing reads it: {error}"),
    }
}

/// Returns the queue of this process. Returns `None` if this command writes to standard error
/// without a queue.
pub fn started() -> Option<&'static StderrQueue> {
    QUEUE.get()
}

/// Waits until the queue of this process is written, for at most [`limits::STDERR_END_WAIT`].
pub fn finish() {
    if let Some(queue) = started() {
        queue.wait_until_written(limits::STDERR_END_WAIT);
    }
}

/// Queue of texts for an output that may block, such as a pipe that nothing reads.
pub struct StderrQueue {
    shared: Arc<SharedQueue>,
    /// Maximum time for which a writer waits for its text, as long as the output is not blocked.
    wait: Duration,
}

struct SharedQueue {
    // Never locked during a write to the output, because that write may never end.
    state: Mutex<StderrQueueState>,
    /// Notified after each change of the state.
    changed: Condvar,
}

#[derive(Default)]
struct StderrQueueState {
    /// Texts that the OS thread has not taken yet.
    texts: VecDeque<String>,
    /// Total bytes of `texts`.
    bytes: usize,
    /// Number of all texts that were ever added to the queue.
    queued: u64,
    /// Number of all texts that were ever written.
    written: u64,
    /// Lines that found the queue full, since the queue was last empty.
    lost: usize,
    /// Whether a text was not written in time. Writers then wait for no text until the queue is
    /// empty.
    is_blocked: bool,
}

impl StderrQueue {
    /// Starts the OS thread that writes to `output`. If `output` blocks for good, the thread ends
    /// with the process.
    fn start(output: impl Write + Send + 'static, wait: Duration) -> std::io::Result<Self> {
        let state = Mutex::default();
        let shared = Arc::new(SharedQueue { state, changed: Condvar::new() });
        let queue = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("stderr".to_owned());
        thread.spawn(move || queue.write_to(output))?;
        Ok(Self { shared, wait })
    }

    /// Writes text after all earlier texts. Usually waits until the text is written, so that the
    /// text is not lost if the process dies. Does not wait while the output is blocked. Then, the
    /// text may be lost, and only counted, if the queue is full.
    pub fn write(&self, text: String) {
        let mut state = locked(&self.shared.state);
        let Some(number) = state.add(text) else { return };
        self.shared.changed.notify_all();
        if state.is_blocked {
            return;
        }

        let is_waiting = |state: &mut StderrQueueState| state.written < number;
        let waited = self.shared.changed.wait_timeout_while(state, self.wait, is_waiting);
        let (mut state, wait) = waited.unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            state.is_blocked = true;
        }
    }

    /// Waits until all texts are written, for at most `wait`.
    fn wait_until_written(&self, wait: Duration) {
        let state = locked(&self.shared.state);
        let is_waiting =
            |state: &mut StderrQueueState| state.written < state.queued || state.lost > 0;
        drop(self.shared.changed.wait_timeout_while(state, wait, is_waiting));
    }
}

impl SharedQueue {
    /// Writes the texts to `output` as they arrive. Never returns.
    fn write_to(&self, mut output: impl Write) {
        let mut state = locked(&self.state);
        loop {
            let Some(text) = state.take() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            // There is no place to report an error, such as that of a closed pipe.
            output.write_all(text.as_bytes()).and_then(|()| output.flush()).ok();

            state = locked(&self.state);
            state.written += 1;
            if state.texts.is_empty() && state.lost == 0 {
                state.is_blocked = false;
            }
            self.changed.notify_all();
        }
    }
}

impl StderrQueueState {
    /// Adds a text to the queue, and returns its number. Returns `None` if the text is lost,
    /// because the queue is full. After a loss, all further texts are lost, too, until the queue is
    /// empty, so that one notice states the loss at its place.
    fn add(&mut self, text: String) -> Option<u64> {
        let bytes = self.bytes + text.len();
        let is_full = !self.texts.is_empty() && bytes > limits::STDERR_QUEUE_BYTES_MAX;
        if is_full || self.lost > 0 {
            self.lost += text.lines().count();
            return None;
        }

        self.bytes = bytes;
        self.texts.push_back(text);
        self.queued += 1;
        Some(self.queued)
    }

    /// Takes the next text to write: the oldest of the queue or, after the last one, the notice of
    /// the lines that were lost.
    fn take(&mut self) -> Option<String> {
        if let Some(text) = self.texts.pop_front() {
            self.bytes -= text.len();
            return Some(text);
        }

        match std::mem::take(&mut self.lost) {
            0 => None,
            lost => {
                self.queued += 1;
                Some(lost_notice(lost))
            }
        }
    }
}

fn lost_notice(lines: usize) -> String {
    match lines {
        1 => "organism: 1 line of the log was lost, because nothing read it\n".to_owned(),
        _ => format!("organism: {lines} lines of the log were lost, because nothing read them\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// An output that blocks until the sender of `gate` is dropped.
    struct GatedOutput {
        begun: Sender<()>,
        gate: Receiver<()>,
        written: Arc<Mutex<String>>,
    }

    impl Write for GatedOutput {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.begun.send(()).ok();
            self.gate.recv().ok();
            locked(&self.written).push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_output_that_blocks_holds_up_no_line_and_gets_the_number_of_lost_lines() {
        let (begun, has_begun) = channel();
        let (open, gate) = channel();
        let written = Arc::new(Mutex::new(String::new()));
        let output = GatedOutput { begun, gate, written: Arc::clone(&written) };
        let queue = StderrQueue::start(output, Duration::from_millis(1)).unwrap();

        queue.write("first\n".to_owned());
        has_begun.recv().unwrap();
        let long = "x".repeat(limits::STDERR_QUEUE_BYTES_MAX) + "\n";
        queue.write(long.clone());
        queue.write("lost\n".to_owned());
        queue.write("lost\nlost\n".to_owned());
        queue.wait_until_written(Duration::from_millis(1));
        assert_eq!(*locked(&written), "");

        drop(open);
        queue.wait_until_written(LONG);
        queue.write("last\n".to_owned());
        queue.wait_until_written(LONG);
        let notice = "organism: 3 lines of the log were lost, because nothing read them\n";
        assert_eq!(*locked(&written), format!("first\n{long}{notice}last\n"));
    }

    #[test]
    fn a_line_is_written_when_the_writer_continues() {
        let (begun, _has_begun) = channel();
        let (_, gate) = channel();
        let written = Arc::new(Mutex::new(String::new()));
        let output = GatedOutput { begun, gate, written: Arc::clone(&written) };
        let queue = StderrQueue::start(output, LONG).unwrap();
        queue.write("line\n".to_owned());
        assert_eq!(*locked(&written), "line\n");
    }
}
