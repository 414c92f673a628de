//! What is heard of a model while it speaks, and what was heard in vain: a try that broke off is
//! paid for like one that did not.

use crate::limits;
use crate::model::{Chunk, Request, Terms, Usage};

/// One answer, over all tries at it.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub raw: String,
    pub thoughts: String,
    /// It is longer than a turn may be; the rest was not kept.
    pub is_too_long: bool,
    /// How much of `raw` was handed out by [`Heard::unread`].
    read: usize,
    /// Of this try, what was not kept included.
    bytes: usize,
    /// Tries that broke off after something was heard, and how much that was.
    broken: u64,
    broken_bytes: usize,
}

impl Heard {
    /// Keeps a piece of it.
    pub fn keep(&mut self, chunk: Chunk<'_>) {
        let (text, kept) = match chunk {
            Chunk::Text(text) => (text, &mut self.raw),
            Chunk::Reasoning(text) => (text, &mut self.thoughts),
            Chunk::Restart => {
                self.break_off();
                return;
            }
        };
        self.bytes = self.bytes.saturating_add(text.len());
        self.is_too_long |= kept.len() + text.len() > limits::TURN_BYTES_MAX;
        if !self.is_too_long {
            kept.push_str(text);
        }
    }

    /// The text that nobody has read yet, once there are `least` bytes of it.
    pub fn unread(&mut self, least: usize) -> Option<&str> {
        let unread = self.raw.get(self.read..).filter(|unread| unread.len() >= least)?;
        self.read = self.raw.len();
        Some(unread)
    }

    /// Nothing more comes of this try, and what was heard of it is void.
    pub fn break_off(&mut self) {
        if self.bytes > 0 {
            self.broken += 1;
            self.broken_bytes = self.broken_bytes.saturating_add(self.bytes);
        }
        (self.bytes, self.read) = (0, 0);
        self.raw.clear();
        self.thoughts.clear();
        self.is_too_long = false;
    }

    /// What the tries that broke off took, as nobody else says it: the prompt of each, and a token
    /// for four bytes. `None` where there were none.
    pub fn in_vain(&self, terms: &Terms, request: &Request) -> Option<Usage> {
        (self.broken > 0).then(|| Usage {
            tokens_in: terms.size(request, None).total().saturating_mul(self.broken),
            tokens_out: u64::try_from(self.broken_bytes.div_ceil(4)).unwrap_or(u64::MAX),
            estimated: true,
            ..Usage::default()
        })
    }
}
