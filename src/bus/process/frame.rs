//! Codec of the frames between a host and its child (docs/PROTOCOL.md, sections 2 to 6).

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::bus::answer::{self, ListenerAnswer};
use crate::bus::{Delivery, delivery_frame};
use crate::envelope::{self, AttemptFailure};
use crate::ids::CallId;
use crate::limits;
use crate::xml::element::{Element, Node};
use crate::xml::scan::scan;

/// The byte that ends every frame. XML cannot contain it.
const END: u8 = 0;
const READ_BYTES: usize = 64 << 10;
/// Maximum length of a frame that can be a heartbeat.
const HEARTBEAT_BYTES_MAX: usize = 1024;

/// Appends a delivery frame (docs/PROTOCOL.md, section 3). Leaves out the first `remembered`
/// messages, because the child remembers them. If `remembered` is `None`, writes all messages.
pub(super) fn write_delivery(out: &mut String, delivery: &Delivery, remembered: Option<usize>) {
    delivery_frame::write(out, delivery, remembered);
    out.push(char::from(END));
}

/// Appends a delivery frame as [`write_delivery`] does. If the frame would be larger than frames
/// may be, appends nothing, and returns the failure of the attempt.
pub(super) fn write_bounded_delivery(
    out: &mut String,
    delivery: &Delivery,
    remembered: Option<usize>,
) -> Result<(), AttemptFailure> {
    let start = out.len();
    write_delivery(out, delivery, remembered);

    let bytes = out.len() - start - 1;
    let max = limits::FRAME_BYTES_MAX;
    if bytes > max {
        out.truncate(start);
        let detail = format!(
            "the delivery has {bytes} bytes, and a frame has at most {max}: see that the calls of \
             the listener return less"
        );
        return Err(AttemptFailure::TooLarge { detail });
    }

    Ok(())
}

/// Appends a cancel frame (docs/PROTOCOL.md, section 6).
pub(super) fn write_cancel(out: &mut String, call: CallId) {
    out.push_str("<cancel call=\"");
    out.push_str(&call.to_string());
    out.push_str("\"/>");
    out.push(char::from(END));
}

/// Content of one frame from a child.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildFrame {
    Heartbeat,
    Answer(ListenerAnswer),
}

pub(super) fn read(frame: &[u8]) -> ChildFrame {
    if is_heartbeat(frame) {
        ChildFrame::Heartbeat
    } else {
        ChildFrame::Answer(answer::read(frame))
    }
}

/// Whether the frame is one `<heartbeat>` element without content, in any form that XML permits.
/// The element must either have the namespace of envelopes, or have no namespace and no attributes.
/// Without a namespace, an element with attributes is a payload, because a schema may declare it.
fn is_heartbeat(frame: &[u8]) -> bool {
    // Most heartbeats have this form. The comparison saves the parser.
    if frame.trim_ascii() == b"<heartbeat/>" {
        return true;
    }
    if frame.len() > HEARTBEAT_BYTES_MAX || memchr::memmem::find(frame, b"heartbeat").is_none() {
        return false;
    }

    let Ok(scanned) = scan(frame) else { return false };
    let namespace = &*scanned.name.namespace;
    if &*scanned.name.local != "heartbeat" || !["", envelope::NAMESPACE].contains(&namespace) {
        return false;
    }

    let root = frame.get(scanned.root).and_then(|root| std::str::from_utf8(root).ok());
    root.and_then(Element::read).is_some_and(|heartbeat| {
        if namespace.is_empty() && !heartbeat.attributes.is_empty() {
            return false;
        }
        let is_space = |node: &Node| matches!(node, Node::Text(text) if text.trim().is_empty());
        heartbeat.content.iter().all(is_space)
    })
}

/// Reason why no further frame can be read.
#[derive(Debug)]
pub(super) enum FrameError {
    /// The child closed its output in the middle of a frame, after `unfinished` bytes of the frame.
    Closed {
        unfinished: usize,
    },
    TooLong,
    /// The child began a frame although the child handles no delivery.
    Unsolicited,
    Failed(io::Error),
}

/// Reads frames from a byte stream into one reused buffer.
#[derive(Debug)]
pub(super) struct ChildFrameReader<R> {
    from: R,
    buffer: Vec<u8>,
    /// Offset of the first byte after the last returned frame.
    start: usize,
    /// Offset up to which the buffer is known to contain no [`END`] byte.
    scanned: usize,
}

impl<R: AsyncRead + Unpin> ChildFrameReader<R> {
    pub fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), start: 0, scanned: 0 }
    }

    /// Returns the next frame without its [`END`] byte. Cancel-safe: dropping the future loses no
    /// bytes.
    pub async fn next(&mut self) -> Result<&[u8], FrameError> {
        self.next_of_child(false).await
    }

    /// Returns the next frame as [`Self::next`] does. If `is_idle` is true, the child handles no
    /// delivery, and may send only an answer that names its attempt. Any other frame is then an
    /// error as soon as its beginning has arrived. Without this rule, the end of such a frame could
    /// arrive after the next delivery, and the frame would count as the answer to that delivery.
    pub async fn next_of_child(&mut self, is_idle: bool) -> Result<&[u8], FrameError> {
        let range = loop {
            match self.buffered_range() {
                Some(range) => break range,
                None if is_idle && !self.may_name_attempt() => return Err(FrameError::Unsolicited),
                None => self.fill().await?,
            }
        };

        self.checked(range)
    }

    /// Returns the next frame, or `None` if the buffer does not contain the whole frame yet.
    pub fn next_buffered(&mut self) -> Option<Result<&[u8], FrameError>> {
        let range = self.buffered_range()?;
        Some(self.checked(range))
    }

    fn buffered_range(&mut self) -> Option<Range<usize>> {
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(found) = memchr::memchr(END, unseen) else {
            self.scanned = self.buffer.len();
            return None;
        };

        let end = self.scanned + found;
        let begin = std::mem::replace(&mut self.start, end + 1);
        self.scanned = self.start;
        Some(begin..end)
    }

    fn checked(&self, range: Range<usize>) -> Result<&[u8], FrameError> {
        if range.len() > limits::FRAME_BYTES_MAX {
            return Err(FrameError::TooLong);
        }
        Ok(self.buffer.get(range).unwrap_or_default())
    }

    fn discard_used(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
    }

    async fn fill(&mut self) -> Result<(), FrameError> {
        self.discard_used();
        if self.buffer.len() > limits::FRAME_BYTES_MAX {
            return Err(FrameError::TooLong);
        }

        self.buffer.reserve(READ_BYTES);

        match self.from.read_buf(&mut self.buffer).await {
            Ok(0) => Err(FrameError::Closed { unfinished: self.unfinished() }),
            Ok(_) => Ok(()),
            Err(error) => Err(FrameError::Failed(error)),
        }
    }

    /// Whether the bytes after the last returned frame can be the beginning of an answer that names
    /// its attempt. Returns true if there are no such bytes yet.
    pub fn may_name_attempt(&self) -> bool {
        answer::may_name_attempt(self.unread())
    }

    /// Whether the buffer contains more than white space after the last returned frame.
    pub fn has_more(&self) -> bool {
        self.unfinished() > 0
    }

    /// Returns the number of buffered bytes after the last returned frame. White space at the
    /// beginning and at the end does not count, because a child may write it at any time.
    pub fn unfinished(&self) -> usize {
        self.unread().trim_ascii().len()
    }

    /// Returns the buffered bytes after the last returned frame.
    pub fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Returns the number of buffered bytes of a frame whose [`END`] has not arrived. White space
    /// at the beginning and at the end does not count. Returns 0 while a whole frame is in the
    /// buffer.
    pub fn bytes_without_end(&self) -> usize {
        if memchr::memchr(END, self.unread()).is_some() { 0 } else { self.unfinished() }
    }
}

impl<R: AsFd> ChildFrameReader<R> {
    /// Reads the bytes that the pipe contains now. Never waits, because the pipe is non-blocking.
    pub fn read_available(&mut self) {
        while self.buffer.len() <= self.start + limits::FRAME_BYTES_MAX {
            self.buffer.reserve(READ_BYTES);
            match rustix::io::read(&self.from, spare_capacity(&mut self.buffer)) {
                Err(rustix::io::Errno::INTR) => {}
                // The next asynchronous read finds the same end or error.
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::unix::pipe::pipe;

    use super::*;

    #[tokio::test]
    async fn what_the_pipe_holds_is_read_without_waiting() {
        let (mut child, ours) = pipe().unwrap();
        let mut frames = ChildFrameReader::new(ours);
        child.write_all(b"<a/>\0").await.unwrap();
        assert_eq!(frames.next().await.unwrap(), b"<a/>");
        frames.read_available();
        assert!(!frames.has_more(), "nothing is there, and nothing is waited for");

        child.write_all(b"<b/>\0<c").await.unwrap();
        assert!(!frames.has_more());
        frames.read_available();
        assert!(frames.has_more());
        assert_eq!(frames.bytes_without_end(), 0, "a whole frame is not read yet");
        assert_eq!(frames.next_buffered().unwrap().unwrap(), b"<b/>");
        assert!(frames.next_buffered().is_none());
        assert_eq!(frames.unfinished(), 2);
        assert_eq!(frames.bytes_without_end(), 2);

        child.write_all(b"/>\0").await.unwrap();
        assert_eq!(frames.next().await.unwrap(), b"<c/>");
    }

    #[tokio::test]
    async fn an_idle_child_may_only_begin_an_answer_with_a_name() {
        let (mut child, ours) = pipe().unwrap();
        let mut frames = ChildFrameReader::new(ours);
        child.write_all(b"<done>1</done>\0\n").await.unwrap();
        assert_eq!(frames.next_of_child(true).await.unwrap(), b"<done>1</done>");
        frames.read_available();
        assert!(frames.may_name_attempt(), "white space is harmless");
        assert!(!frames.has_more(), "white space is no surplus");
        assert_eq!(frames.bytes_without_end(), 0);

        child.write_all(b"<e:answer ").await.unwrap();
        frames.read_available();
        assert!(frames.may_name_attempt());
        child.write_all(b"\0ready").await.unwrap();
        assert_eq!(frames.next_of_child(true).await.unwrap(), b"\n<e:answer ");
        let begun = frames.next_of_child(true).await;
        assert!(matches!(begun, Err(FrameError::Unsolicited)), "{begun:?}");
    }

    #[test]
    fn a_heartbeat_has_any_form_that_xml_permits() {
        let of_envelope = format!("<e:heartbeat xmlns:e=\"{}\" call=\"c\"/>", envelope::NAMESPACE);
        for text in [
            "<heartbeat/>",
            "<heartbeat />\n",
            "\u{feff}<heartbeat/>",
            "<heartbeat></heartbeat>",
            "<heartbeat>\n</heartbeat>",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<heartbeat/>",
            "<!-- still at work --><heartbeat/>",
            "<heartbeat xmlns:e=\"urn:mine\"/>",
            &of_envelope,
        ] {
            assert_eq!(read(text.as_bytes()), ChildFrame::Heartbeat, "{text}");
        }
    }

    #[test]
    fn a_frame_with_more_than_an_empty_heartbeat_is_an_answer() {
        let long = format!("<heartbeat/>{}<done/>", " ".repeat(HEARTBEAT_BYTES_MAX));
        for text in [
            "<heartbeat>60</heartbeat>",
            "<heartbeat at=\"now\"/>",
            "<heartbeat><done/></heartbeat>",
            "<heartbeat/><done/>",
            "<heartbeat xmlns=\"urn:mine\"/>",
            "<heartbeats/>",
            "<heartbeat",
            "<done>heartbeat</done>",
            &long,
        ] {
            assert!(matches!(read(text.as_bytes()), ChildFrame::Answer(_)), "{text}");
        }
    }
}
