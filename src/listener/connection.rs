//! Pipe connection of a child process: NUL-delimited frames on two file descriptors
//! (docs/PROTOCOL.md, section 2).
//!
//! One thread reads, handles and answers. It checks for a cancel only when the handler asks, so
//! that a delivery wakes no second thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::delivery_channel::{DeliveryChannel, HeartbeatFn};
use super::payload::Reply;
use super::pump_watch::PumpWatch;
use crate::envelope::NAMESPACE;
use crate::ids::{Attempt, CallId};

const END: u8 = 0;
const READ_BYTES: usize = 64 << 10;

/// The pipes of a listener.
#[derive(Debug)]
pub(super) struct KitConnection {
    input: RefCell<FrameInput>,
    output: FrameOutput,
    watch: PumpWatch,
}

#[derive(Debug)]
struct FrameInput {
    from: File,
    /// Buffer of the last read, `READ_BYTES` long and initialised once.
    chunk: Box<[u8]>,
    /// Start of an incomplete frame.
    partial: Vec<u8>,
    frames: VecDeque<Vec<u8>>,
}

impl KitConnection {
    pub fn new(input: OwnedFd, output: OwnedFd) -> Self {
        let input = FrameInput {
            from: input.into(),
            chunk: vec![0; READ_BYTES].into_boxed_slice(),
            partial: Vec::new(),
            frames: VecDeque::default(),
        };
        let output = FrameOutput(Arc::new(Mutex::new(output.into())));
        Self { input: RefCell::new(input), output, watch: PumpWatch::default() }
    }

    /// Takes over standard input and output. Later output of the handler to standard output goes to
    /// standard error, where it cannot be mistaken for a frame.
    pub fn standard() -> io::Result<Self> {
        // Close-on-exec, because programs that the handler starts could write frames.
        let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
        let watched = (input.try_clone()?, output.try_clone()?);
        let connection = Self::new(input, output);
        connection.watch.start(watched.0, watched.1)?;
        Ok(connection)
    }

    /// Returns the next frame, or `None` when the other side has closed the pipe.
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let mut input = self.input.borrow_mut();
        loop {
            if let Some(frame) = input.frames.pop_front() {
                return Ok(Some(frame));
            }
            if !input.read()? {
                return Ok(None);
            }
        }
    }

    /// Whether a frame that satisfies `wanted`, or the end of input, has arrived. The frames stay
    /// queued.
    pub fn has_come(&self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
        let mut input = self.input.borrow_mut();
        while input.is_ready()? {
            if !input.read()? {
                return Ok(true);
            }
        }

        Ok(input.frames.iter().any(|frame| wanted(frame)))
    }

    /// Writes an answer that names its call (docs/PROTOCOL.md, section 4). With `remembers`, the
    /// next delivery of the call may leave out its messages.
    pub fn answer(
        &self,
        call: CallId,
        attempt: Attempt,
        reply: &Reply,
        remembers: bool,
    ) -> io::Result<()> {
        let memory = if remembers { " remembers=\"true\"" } else { "" };
        let open = format!(
            "<e:answer xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\"{memory}>"
        );
        let payloads = reply.payloads().iter().map(String::as_str);
        let parts = std::iter::once(open.as_str()).chain(payloads).chain(["</e:answer>"]);
        self.output.write(parts)
    }

    /// Requests all messages of a delivery that builds on messages which are not remembered.
    pub fn miss_memory(&self, call: CallId, attempt: Attempt) -> io::Result<()> {
        self.output.write(std::iter::once(missing_memory(call, attempt).as_str()))
    }

    pub fn watch(&self) -> &PumpWatch {
        &self.watch
    }
}

/// The answer to a delivery that builds on messages which are not remembered.
pub(super) fn missing_memory(call: CallId, attempt: Attempt) -> String {
    format!("<e:missing-memory xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\"/>")
}

impl DeliveryChannel for KitConnection {
    fn is_cancelled(&self, call: CallId) -> bool {
        let call = call.to_string();
        let cancels = |frame: &[u8]| {
            std::str::from_utf8(frame)
                .is_ok_and(|text| text.starts_with("<cancel") && text.contains(&call))
        };

        // An unreadable pipe has lost its other end.
        self.has_come(cancels).unwrap_or(true)
    }

    fn beat(&self) -> HeartbeatFn {
        let output = self.output.clone();
        Arc::new(move || output.write(std::iter::once("<heartbeat/>")))
    }
}

impl FrameInput {
    fn is_ready(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.from, PollFlags::IN)];
        Ok(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
    }

    /// Reads once; returns false at the end of input.
    fn read(&mut self) -> io::Result<bool> {
        let count = self.from.read(&mut self.chunk)?;
        let mut rest = self.chunk.get(..count).unwrap_or_default();

        while let Some(end) = memchr::memchr(END, rest) {
            let (frame, after) = rest.split_at(end);
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(frame);
            self.frames.push_back(whole);
            rest = after.get(1..).unwrap_or_default();
        }
        self.partial.extend_from_slice(rest);

        Ok(count > 0)
    }
}

/// Lock: frames are written whole and one at a time, from any thread.
#[derive(Debug, Clone)]
pub(super) struct FrameOutput(Arc<Mutex<File>>);

impl FrameOutput {
    /// Writes the parts and the end mark as one frame.
    pub fn write<'a>(&self, parts: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let mut frame = Vec::new();
        parts.for_each(|part| frame.extend_from_slice(part.as_bytes()));
        frame.push(END);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame)
    }
}
