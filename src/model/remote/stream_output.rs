//! Output of a stream reader: pieces of the answer, or an error.

use crate::limits;
use crate::model::answer::AnswerChunk;
use crate::model::key::{KeyFilter, ProviderKey};
use crate::model::{OnChunk, sse};
use crate::xml::escape::escape_attribute;

/// Whether the stream continues after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum ReadProgress {
    More,
    /// The terminator was read.
    Done,
}

/// Reason why a stream cannot be read any further.
#[derive(Debug)]
pub(in crate::model) enum StreamFault {
    /// An event does not follow the wire format. `detail` may contain the API key of the
    /// provider.
    Unreadable {
        detail: String,
    },
    /// The provider reported an error. `error` is that error as JSON.
    Reported {
        error: String,
    },
    TooLong,
}

impl StreamFault {
    /// Makes the fault for an event whose data is not the expected JSON.
    pub fn json(error: &serde_json::Error, event: sse::SseEvent<'_>) -> Self {
        // The data stays whole: a key that is cut here could not be found and hidden later.
        let data = String::from_utf8_lossy(event.data);
        Self::Unreadable { detail: format!("{error} in: {data}") }
    }
}

/// Checks the size of a native call's id. A call with a longer id cannot be recorded.
pub(in crate::model) fn check_call_id(id: &str) -> Result<(), StreamFault> {
    let length = escape_attribute(id).len();
    let max = limits::NATIVE_ID_BYTES_MAX;
    if length > max {
        let detail =
            format!("the id of a call takes {length} bytes in XML, where {max} is the most");
        return Err(StreamFault::Unreadable { detail });
    }
    Ok(())
}

/// Writer that passes on the pieces of an answer. The writer bounds the size of the answer, and
/// removes the provider's API key from its text.
pub(in crate::model) struct AnswerWriter<'a> {
    on_chunk: OnChunk<'a>,
    text_filter: Option<KeyFilter>,
    reasoning_filter: Option<KeyFilter>,
    text_bytes: usize,
    bytes: usize,
}

impl<'a> AnswerWriter<'a> {
    pub fn new(on_chunk: OnChunk<'a>, key: Option<&ProviderKey>) -> Self {
        let filter = || key.and_then(ProviderKey::filter);
        let text_filter = filter();
        let reasoning_filter = filter();
        Self { on_chunk, text_filter, reasoning_filter, text_bytes: 0, bytes: 0 }
    }

    pub fn text(&mut self, piece: &str) -> Result<(), StreamFault> {
        self.add_piece(piece)?;
        self.text_bytes += piece.len();
        let passed = self.text_filter.as_mut().and_then(|filter| filter.push(piece));
        self.emit(passed.as_deref().unwrap_or(piece), AnswerChunk::Text);
        Ok(())
    }

    pub fn reasoning(&mut self, piece: &str) -> Result<(), StreamFault> {
        self.add_piece(piece)?;
        let passed = self.reasoning_filter.as_mut().and_then(|filter| filter.push(piece));
        self.emit(passed.as_deref().unwrap_or(piece), AnswerChunk::Reasoning);
        Ok(())
    }

    /// Reports that the first event of the stream has been read.
    pub fn begin(&mut self) {
        (self.on_chunk)(AnswerChunk::Begun);
    }

    /// Counts `bytes` bytes of the answer that have arrived but are passed on only at the end of
    /// the stream, such as the bytes of a native call. Reports them as [`AnswerChunk::Withheld`].
    /// Fails if the whole answer exceeds its maximum size.
    pub fn count(&mut self, bytes: usize) -> Result<(), StreamFault> {
        if bytes > 0 {
            (self.on_chunk)(AnswerChunk::Withheld(bytes));
        }
        self.add(bytes)
    }

    /// Returns the fault for an event that exceeds its maximum size. Counts the answer as one of
    /// the maximum size, because its request is charged.
    pub fn overlong(&mut self) -> StreamFault {
        let rest = limits::ANSWER_BYTES_MAX.saturating_sub(self.bytes);
        self.count(rest).err().unwrap_or(StreamFault::TooLong)
    }

    /// Counts a piece that is about to be passed on. A piece with which the answer exceeds its
    /// maximum size is withheld, and its request is charged for it.
    fn add_piece(&mut self, piece: &str) -> Result<(), StreamFault> {
        let added = self.add(piece.len());
        if added.is_err() {
            (self.on_chunk)(AnswerChunk::Withheld(piece.len()));
        }
        added
    }

    fn add(&mut self, bytes: usize) -> Result<(), StreamFault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > limits::ANSWER_BYTES_MAX { Err(StreamFault::TooLong) } else { Ok(()) }
    }

    /// Returns how many bytes of text were passed on so far.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Passes on the text that the key filter has held back. Returns the size of the answer in
    /// bytes.
    pub fn finish(mut self) -> usize {
        let reasoning = self.reasoning_filter.as_mut().map(KeyFilter::finish);
        let text = self.text_filter.as_mut().map(KeyFilter::finish);
        self.emit(&reasoning.unwrap_or_default(), AnswerChunk::Reasoning);
        self.emit(&text.unwrap_or_default(), AnswerChunk::Text);
        self.bytes
    }

    fn emit<'p>(&mut self, piece: &'p str, make: fn(&'p str) -> AnswerChunk<'p>) {
        if !piece.is_empty() {
            (self.on_chunk)(make(piece));
        }
    }
}
