//! What a wire format's reader says while it reads: pieces of the answer, or what is wrong.

use crate::limits;
use crate::model::answer::Chunk;
use crate::model::key::{Filter, Key};
use crate::model::{OnChunk, sse};

/// Whether a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Progress {
    More,
    /// The terminator was read.
    Done,
}

/// Why a stream cannot be read on.
#[derive(Debug)]
pub(in crate::model) enum Fault {
    /// An event that is not what the format says.
    Unreadable {
        detail: String,
    },
    /// The provider says what went wrong, as JSON.
    Told {
        error: String,
    },
    TooLong,
}

impl Fault {
    /// An event's data that are not the JSON they should be.
    pub fn json(error: &serde_json::Error, event: sse::Event<'_>) -> Self {
        let data = String::from_utf8_lossy(event.data);
        let head: String = data.chars().take(limits::ERROR_MESSAGE_CHARS_MAX / 4).collect();
        Self::Unreadable { detail: format!("{error} in `{head}`") }
    }
}

/// Where the pieces of an answer go: bounded, and without the key.
pub(in crate::model) struct Out<'a> {
    on_chunk: OnChunk<'a>,
    text_filter: Option<Filter>,
    reasoning_filter: Option<Filter>,
    text_bytes: usize,
    bytes: usize,
}

impl<'a> Out<'a> {
    pub fn new(on_chunk: OnChunk<'a>, key: Option<&Key>) -> Self {
        let filter = || key.and_then(Key::filter);
        let (text_filter, reasoning_filter) = (filter(), filter());
        Self { on_chunk, text_filter, reasoning_filter, text_bytes: 0, bytes: 0 }
    }

    pub fn text(&mut self, piece: &str) -> Result<(), Fault> {
        self.add(piece.len())?;
        self.text_bytes += piece.len();
        let passed = self.text_filter.as_mut().and_then(|filter| filter.push(piece));
        self.hand_on(passed.as_deref().unwrap_or(piece), Chunk::Text);
        Ok(())
    }

    pub fn reasoning(&mut self, piece: &str) -> Result<(), Fault> {
        self.add(piece.len())?;
        let passed = self.reasoning_filter.as_mut().and_then(|filter| filter.push(piece));
        self.hand_on(passed.as_deref().unwrap_or(piece), Chunk::Reasoning);
        Ok(())
    }

    /// Counts what the reader keeps for the end.
    pub fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        if bytes > 0 {
            (self.on_chunk)(Chunk::Withheld(bytes));
        }
        self.add(bytes)
    }

    fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > limits::ANSWER_BYTES_MAX { Err(Fault::TooLong) } else { Ok(()) }
    }

    /// Bytes of text so far.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Hands on what was held back; how many bytes the whole answer had.
    pub fn finish(mut self) -> usize {
        let reasoning = self.reasoning_filter.as_mut().map(Filter::finish);
        let text = self.text_filter.as_mut().map(Filter::finish);
        self.hand_on(&reasoning.unwrap_or_default(), Chunk::Reasoning);
        self.hand_on(&text.unwrap_or_default(), Chunk::Text);
        self.bytes
    }

    fn hand_on<'p>(&mut self, piece: &'p str, make: fn(&'p str) -> Chunk<'p>) {
        if !piece.is_empty() {
            (self.on_chunk)(make(piece));
        }
    }
}
