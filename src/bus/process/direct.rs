//! Runs a listener's process without a host, for the conformance tests of listeners. The test
//! itself writes the input of the process, and so decides which bytes the process can read at one
//! time.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, ChildStdout};

use crate::bus::Delivery;
use crate::ids::CallId;
use crate::limits;
use crate::plural::count;

use super::Options;
use super::child::{Child, has_read_nothing, unread_bytes};
use super::child_frames::UNSOLICITED_OUTPUT;
use super::frame::{self, ChildFrame, ChildFrameReader, FrameError};

/// A process that no host supervises. Dropping this value kills the process.
pub(crate) struct DirectProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Number of bytes that were written to the standard input since the start.
    sent_bytes: u64,
    frames: ChildFrameReader<ChildStdout>,
}

impl DirectProcess {
    pub async fn start(options: Options) -> Result<Self, String> {
        let started = Child::start(&Arc::new(options), 0).await;
        let (child, (stdin, stdout)) = started.map_err(|e| e.to_string())?;
        let frames = ChildFrameReader::new(stdout);
        Ok(Self { child, stdin: Some(stdin), sent_bytes: 0, frames })
    }

    /// Writes bytes to the standard input of the process. Reports no error if the process no longer
    /// reads, because [`Self::next`] reports the end of the process.
    pub async fn write(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin
            && stdin.write_all(bytes).await.is_ok()
        {
            self.sent_bytes += bytes.len() as u64;
        }
    }

    /// Whether the process has read every byte that [`Self::write`] wrote.
    pub fn has_read_all(&self) -> bool {
        self.stdin.as_ref().is_none_or(|stdin| unread_bytes(stdin) == 0)
    }

    /// Whether the process has read nothing of what [`Self::write`] wrote since its start.
    pub fn has_read_nothing(&self) -> bool {
        has_read_nothing(self.stdin.as_ref(), self.sent_bytes)
    }

    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Returns the next frame of the process. If no frame can be read, returns an error text. This
    /// text states the reason, and how the process ended.
    pub async fn next(&mut self) -> Result<ChildFrame, String> {
        let failed = match self.frames.next().await {
            Ok(frame) => return Ok(frame::read(frame)),
            Err(failed) => failed,
        };

        let how = match failed {
            FrameError::Closed { unfinished: 0 } => return Err(self.end().await),
            FrameError::Closed { unfinished } => {
                format!("wrote {} without a NUL", count(unfinished, "byte"))
            }
            FrameError::TooLong => {
                format!("a frame of more than {} bytes", limits::FRAME_BYTES_MAX)
            }
            FrameError::Unsolicited => UNSOLICITED_OUTPUT.to_owned(),
            FrameError::Failed(error) => format!("its standard output cannot be read: {error}"),
        };
        let end = self.end().await;
        Err(format!("{how}; {end}"))
    }

    /// Kills the process, and returns when it has ended.
    pub async fn kill(&mut self) {
        self.child.kill().await;
    }

    async fn end(&mut self) -> String {
        self.child.gone(limits::EXIT_GRACE).await
    }

    /// Returns the number of bytes that the process wrote after the last returned frame. White
    /// space around these bytes does not count.
    pub fn unfinished(&self) -> usize {
        self.frames.unfinished()
    }
}

/// Returns the frame that hands `delivery` to a process. The frame leaves out the first
/// `remembered` messages, because the process still has them from earlier deliveries of the call.
/// If `remembered` is `None`, the frame contains all messages.
pub(crate) fn delivery_text(delivery: &Delivery, remembered: Option<usize>) -> String {
    let mut text = String::new();
    frame::write_delivery(&mut text, delivery, remembered);
    text
}

/// Returns the frame that cancels a call.
pub(crate) fn cancel_text(call: CallId) -> String {
    let mut text = String::new();
    frame::write_cancel(&mut text, call);
    text
}
