//! The pipes between a child process and the pump: NUL-delimited frames on two file descriptors
//! (docs/PROTOCOL.md, section 2).
//!
//! A single OS thread reads deliveries, handles them and answers. The thread checks for a cancel
//! message only when the handler requests a check, so no second OS thread has to wake up for each
//! delivery.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::delivery_channel::{DeliveryChannel, HeartbeatFn};
use super::payload::Reply;
use super::pump_watch::PumpWatch;
use crate::envelope::NAMESPACE;
use crate::ids::{Attempt, CallId};
use crate::limits;
use crate::locks::locked;
use crate::xml::escape::escape_text;

const END: u8 = 0;
const READ_BYTES: usize = 64 << 10;
const WITHIN_FRAME: &str =
    "the input ended within a frame: try a listener with `organism listener test`";

/// The two pipes of a listener.
#[derive(Debug)]
pub(super) struct KitConnection {
    input: RefCell<FrameInput>,
    output: FrameOutput,
    watch: PumpWatch,
}

#[derive(Debug)]
struct FrameInput {
    from: File,
    /// Buffer for one read of at most `READ_BYTES` bytes. Initialised once and reused.
    chunk: Box<[u8]>,
    /// Beginning of a frame whose end has not arrived yet.
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

    /// Takes over standard input and standard output. From then on, everything that the handler
    /// prints goes to standard error, so that the pump cannot take it for a frame. Standard input
    /// becomes empty, so that programs that the handler starts read no frames and do not wait for
    /// input.
    pub fn standard() -> io::Result<Self> {
        // Close-on-exec, because a program that the handler starts could write frames.
        let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
        let watched = (input.try_clone()?, output.try_clone()?);
        let connection = Self::new(input, output);
        connection.watch.start(watched.0, watched.1)?;
        Ok(connection)
    }

    /// Returns the next frame; `None` if the pump has closed the pipe. Fails if the input has ended
    /// within a frame.
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let mut input = self.input.borrow_mut();
        loop {
            if let Some(frame) = input.frames.pop_front() {
                return Ok(Some(frame));
            }
            if !input.read()? {
                if input.partial.trim_ascii().is_empty() {
                    return Ok(None);
                }
                return Err(io::Error::other(WITHIN_FRAME));
            }
        }
    }

    /// Whether a frame that satisfies `wanted` has arrived, or the input has ended. All frames stay
    /// in the queue, so [`Self::next`] still returns them.
    pub fn has_come(&self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
        let mut input = self.input.borrow_mut();
        while input.is_ready()? {
            if !input.read()? {
                return Ok(true);
            }
        }

        Ok(input.frames.iter().any(|frame| wanted(frame)))
    }

    /// Whether the pump has sent a cancel message for `call`. The end of the input alone is no
    /// cancel message, in contrast to [`DeliveryChannel::is_cancelled`].
    pub fn has_cancel_message(&self, call: CallId) -> bool {
        let call = call.to_string();
        // If the pipe cannot be read any more, the frames that have arrived still count.
        let _ = self.has_come(|frame| is_cancel(frame, &call));
        self.input.borrow().frames.iter().any(|frame| is_cancel(frame, &call))
    }

    /// Writes an answer that names its call (docs/PROTOCOL.md, section 4). If `remembers` is true,
    /// the answer states that this listener remembers the call's messages, so that the pump may
    /// omit these messages from the next delivery. If the answer is too large for a frame, writes
    /// the reason in place of the payloads.
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
        let bytes: usize = parts.clone().map(str::len).sum();
        if bytes > limits::FRAME_BYTES_MAX {
            let max = limits::FRAME_BYTES_MAX;
            let reason = format!(
                "the answer cannot be sent: it has {bytes} bytes, and a frame has at most {max}"
            );
            return self.answer_with_reason(call, attempt, &reason);
        }

        self.output.write(parts)
    }

    /// Writes an answer that contains, in place of payloads, the reason why this program cannot
    /// answer the call. This reason is text outside of payloads. So the pump refuses the answer,
    /// and does not retry the call.
    pub fn answer_with_reason(
        &self,
        call: CallId,
        attempt: Attempt,
        reason: &str,
    ) -> io::Result<()> {
        // Standard error may be closed. The pump still learns the reason.
        let _ = writeln!(io::stderr(), "{reason}");
        let text = escape_text(reason);
        let frame = format!(
            "<e:answer xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\">{text}</e:answer>"
        );
        self.output.write(std::iter::once(frame.as_str()))
    }

    /// Requests all messages of a call, because a delivery builds on messages that this listener
    /// does not remember.
    pub fn miss_memory(&self, call: CallId, attempt: Attempt) -> io::Result<()> {
        self.output.write(std::iter::once(missing_memory(call, attempt).as_str()))
    }

    pub fn watch(&self) -> &PumpWatch {
        &self.watch
    }
}

/// Whether a frame is the cancel message for `call`.
fn is_cancel(frame: &[u8], call: &str) -> bool {
    std::str::from_utf8(frame).is_ok_and(|text| text.starts_with("<cancel") && text.contains(call))
}

/// Creates the answer that requests all messages of a call. A listener sends this answer if a
/// delivery builds on messages that the listener does not remember.
pub(super) fn missing_memory(call: CallId, attempt: Attempt) -> String {
    format!("<e:missing-memory xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\"/>")
}

impl DeliveryChannel for KitConnection {
    fn is_cancelled(&self, call: CallId) -> bool {
        let call = call.to_string();
        // A pipe that cannot be read has lost its other end.
        self.has_come(|frame| is_cancel(frame, &call)).unwrap_or(true)
    }

    fn heartbeat_fn(&self) -> HeartbeatFn {
        let output = self.output.clone();
        Arc::new(move || output.write(std::iter::once("<heartbeat/>")))
    }
}

impl FrameInput {
    fn is_ready(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.from, PollFlags::IN)];
        Ok(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
    }

    /// Reads once from the pipe, and queues each complete frame. Returns false at the end of input.
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

/// Writes frames to the pump, from any OS thread.
///
/// Lock: held while a frame is written, so that the bytes of two frames do not mix.
#[derive(Debug, Clone)]
pub(super) struct FrameOutput(Arc<Mutex<File>>);

impl FrameOutput {
    /// Writes `parts`, one after another, as one frame. Adds the NUL that ends the frame.
    pub fn write<'a>(&self, parts: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let mut frame = Vec::new();
        parts.for_each(|part| frame.extend_from_slice(part.as_bytes()));
        frame.push(END);
        locked(&self.0).write_all(&frame)
    }
}
