//! Writes standard error on an OS thread of its own, so that a command that runs for long continues
//! its work while nothing reads its log.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::limits;
use crate::locks::locked;
use crate::plural::{count, form};

/// The queue of this process. Empty in commands that have not called [`start`].
static QUEUE: OnceLock<StderrQueue> = OnceLock::new();

/// Starts the queue of this process. From then on, its log lines, notes and panics go through this
/// queue.
pub fn start() {
    let output = BlockingOutput(std::io::stderr());
    match StderrQueue::start(output, limits::STDERR_LINE_WAIT) {
        Ok(queue) => {
            QUEUE.set(queue).ok();
            // Rust's own hook writes to standard error directly, so that a thread that panics would
            // wait until something reads the log.
            std::panic::set_hook(Box::new(write_panic));
        }
        Err(error) => tracing::warn!("the log stops this process while nothing reads it: {error}"),
    }
}

/// Adds a panic hook to this process. Where `hook` returns false for a panic, the hooks that were
/// set before handle the panic, too.
pub fn add_panic_hook(hook: impl Fn(&PanicHookInfo<'_>) -> bool + Send + Sync + 'static) {
    static ADDING: Mutex<()> = Mutex::new(());
    // Lock: held from the take to the set, so that two threads lose neither of their hooks.
    let _adding = locked(&ADDING);
    let other = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !hook(panic) {
            other(panic);
        }
    }));
}

fn write_panic(panic: &PanicHookInfo<'_>) {
    if let Some(queue) = started() {
        queue.write(panic_text(panic));
    }
}

/// Returns the text that Rust's own hook writes about a panic: its thread, its place, its message
/// and, if `RUST_BACKTRACE` requests it, its backtrace.
fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => {
            format!("\nthread '{name}' {panic}\nstack backtrace:\n{backtrace}\n")
        }
        _ => format!("\nthread '{name}' {panic}\n"),
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

/// Output whose writes wait for room, also if its file description does not block. Another process
/// that shares the description, such as that of a terminal, may have set `O_NONBLOCK`.
struct BlockingOutput<F>(F);

impl<F: Write + AsFd> Write for BlockingOutput<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Queue of texts for an output that may block, such as a pipe that nothing reads.
pub struct StderrQueue {
    shared: Arc<SharedQueue>,
    /// Maximum time for which a writer waits until its text has room, or is written.
    wait: Duration,
}

struct SharedQueue {
    // Never locked during a write to the output, because that write may never end.
    state: Mutex<StderrQueueState>,
    /// Notified after a text is added. Only the OS thread waits for it.
    text_added: Condvar,
    /// Notified after a text is written. Writers wait for it, and are not woken by added texts.
    text_written: Condvar,
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
    /// Lines that found the queue full, and that no notice states yet.
    lost: usize,
    /// Value of `written` at the end of the last wait that found no room for a text.
    written_without_room: Option<u64>,
    /// Whether a text was not written in time. Until the queue is empty, writers then do not wait
    /// until their texts are written.
    is_blocked: bool,
}

impl StderrQueue {
    /// Starts the OS thread that writes to `output`. If `output` blocks for good, the thread ends
    /// with the process.
    fn start(output: impl Write + Send + 'static, wait: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(SharedQueue {
            state: Mutex::default(),
            text_added: Condvar::new(),
            text_written: Condvar::new(),
        });
        let queue = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("stderr".to_owned());
        thread.spawn(move || queue.write_to(output))?;
        Ok(Self { shared, wait })
    }

    /// Writes text after all earlier texts. Usually waits until the text is written, so that the
    /// text is not lost if the process dies. While the output is blocked, waits only if the queue
    /// is full and texts are still written now and then. If the text gets no room, it is lost, and
    /// only counted.
    pub fn write(&self, text: String) {
        let mut state = self.wait_for_room(&text);
        let Some(number) = state.add(text) else { return };
        self.shared.text_added.notify_one();
        if state.is_blocked {
            return;
        }

        let is_waiting = |state: &mut StderrQueueState| state.written < number;
        let waited = self.shared.text_written.wait_timeout_while(state, self.wait, is_waiting);
        let (mut state, wait) = waited.unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            state.is_blocked = true;
        }
    }

    /// Locks the state, and waits until the queue has room for `text`, so that an output that is
    /// read slowly slows the writers down. Does not wait if no text was written since the last such
    /// wait ended in vain, so that an output that nothing reads delays no further text.
    fn wait_for_room(&self, text: &str) -> MutexGuard<'_, StderrQueueState> {
        let state = locked(&self.shared.state);
        if state.written_without_room == Some(state.written) {
            return state;
        }

        let is_full = |state: &mut StderrQueueState| !state.has_room(text);
        let waited = self.shared.text_written.wait_timeout_while(state, self.wait, is_full);
        let (mut state, wait) = waited.unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            state.written_without_room = Some(state.written);
        }
        state
    }

    /// Waits until all texts are written, for at most `wait`.
    fn wait_until_written(&self, wait: Duration) {
        let state = locked(&self.shared.state);
        let is_waiting =
            |state: &mut StderrQueueState| state.written < state.queued || state.lost > 0;
        drop(self.shared.text_written.wait_timeout_while(state, wait, is_waiting));
    }
}

impl SharedQueue {
    /// Writes the texts to `output` as they arrive. Never returns.
    fn write_to(&self, mut output: impl Write) {
        let mut state = locked(&self.state);
        loop {
            let Some(text) = state.take() else {
                state = self.text_added.wait(state).unwrap_or_else(PoisonError::into_inner);
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
            self.text_written.notify_all();
        }
    }
}

impl StderrQueueState {
    /// Whether `text` fits into the queue. An empty queue has room for any text.
    fn has_room(&self, text: &str) -> bool {
        self.texts.is_empty() || self.bytes + text.len() <= limits::STDERR_QUEUE_BYTES_MAX
    }

    /// Adds a text to the queue, and returns its number. Returns `None` if the text is lost,
    /// because the queue is full. The first text after a loss follows the notice of the loss.
    fn add(&mut self, text: String) -> Option<u64> {
        if !self.has_room(&text) {
            self.lost += text.lines().count();
            return None;
        }

        self.add_notice();
        self.push(text);
        Some(self.queued)
    }

    /// Adds the notice of the lines that were lost, if there are any.
    fn add_notice(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.push(lost_notice(lost));
        }
    }

    fn push(&mut self, text: String) {
        self.bytes += text.len();
        self.texts.push_back(text);
        self.queued += 1;
    }

    /// Takes the next text to write: the oldest of the queue or, after the last one, the notice of
    /// the lines that were lost.
    fn take(&mut self) -> Option<String> {
        if self.texts.is_empty() {
            self.add_notice();
        }

        let text = self.texts.pop_front()?;
        self.bytes -= text.len();
        Some(text)
    }
}

fn lost_notice(lines: usize) -> String {
    format!(
        "organism: {} of the log {} lost, because {} not read in time\n",
        count(lines, "line"),
        form(lines, "was", "were"),
        form(lines, "it was", "they were")
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use rustix::io::ioctl_fionbio;

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
        let mut queue = StderrQueue::start(output, Duration::from_millis(1)).unwrap();

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
        // The output is no longer blocked, so that the writer of a line waits for it again.
        queue.wait = LONG;
        queue.write("last\n".to_owned());
        let notice = "organism: 3 lines of the log were lost, because they were not read in time\n";
        assert_eq!(*locked(&written), format!("first\n{long}{notice}last\n"));
    }

    #[test]
    fn an_output_that_continues_slowly_loses_no_line() {
        let (begun, has_begun) = channel();
        let (open, gate) = channel();
        let written = Arc::new(Mutex::new(String::new()));
        let output = GatedOutput { begun, gate, written: Arc::clone(&written) };
        let mut queue = StderrQueue::start(output, Duration::from_millis(1)).unwrap();

        queue.write("first\n".to_owned());
        has_begun.recv().unwrap();
        let long = "x".repeat(limits::STDERR_QUEUE_BYTES_MAX) + "\n";
        queue.write(long.clone());

        // The queue is full until the output continues.
        queue.wait = LONG;
        std::thread::spawn(move || drop(open));
        queue.write("last\n".to_owned());
        queue.wait_until_written(LONG);
        assert_eq!(*locked(&written), format!("first\n{long}last\n"));
    }

    #[test]
    fn the_notice_of_a_loss_precedes_the_next_line_that_has_room() {
        let mut state = StderrQueueState::default();
        let half = "x".repeat(limits::STDERR_QUEUE_BYTES_MAX / 2);
        assert_eq!(state.add(half.clone()), Some(1));
        assert_eq!(state.add(half.clone()), Some(2));
        assert_eq!(state.add("lost\n".to_owned()), None);

        assert_eq!(state.take().as_deref(), Some(&*half));
        assert_eq!(state.add("next\n".to_owned()), Some(4));
        assert_eq!(state.take().as_deref(), Some(&*half));
        let notice = "organism: 1 line of the log was lost, because it was not read in time\n";
        assert_eq!(state.take().as_deref(), Some(notice));
        assert_eq!(state.take().as_deref(), Some("next\n"));
        assert_eq!(state.take(), None);
        assert_eq!(state.bytes, 0);
    }

    #[test]
    fn a_text_is_written_whole_to_a_pipe_that_does_not_block() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        ioctl_fionbio(&writer, true).unwrap();
        let text = vec![b'x'; limits::STDERR_QUEUE_BYTES_MAX];
        let mut read = Vec::new();
        std::thread::scope(|scope| {
            let mut output = BlockingOutput(writer);
            let text = text.as_slice();
            let writing = scope.spawn(move || output.write_all(text));
            reader.read_to_end(&mut read).unwrap();
            writing.join().unwrap().unwrap();
        });
        assert_eq!(read.len(), text.len());
    }

    #[test]
    fn the_text_of_a_panic_names_its_thread_its_place_and_its_message() {
        const NAME: &str = "a thread that panics";
        let (sender, texts) = channel();
        // Other tests of this process may panic meanwhile.
        add_panic_hook(move |panic| {
            let is_own = std::thread::current().name() == Some(NAME);
            if is_own {
                sender.send(panic_text(panic)).unwrap();
            }
            is_own
        });

        let thread = std::thread::Builder::new().name(NAME.to_owned());
        thread.spawn(|| panic!("it fails")).unwrap().join().unwrap_err();
        let text = texts.recv().unwrap();
        let begin = format!("\nthread '{NAME}' panicked at {}:", file!());
        assert!(text.starts_with(&begin), "{text}");
        assert!(text.contains(":\nit fails\n"), "{text}");
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
