//! API keys of providers. Error messages may name the source of a key, but never contain its value.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use memchr::memmem;

use crate::limits;
use crate::mutant::mutant;

/// Text that is shown in place of a key.
pub const HIDDEN: &str = "***";

/// API key of a provider. Displayed as `***`; cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderKey {
    value: Arc<str>,
    source: KeySource,
}

/// Where a key was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    Variable(String),
    File(PathBuf),
}

/// Reason why a text is no valid key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("is empty")]
    Empty,
    #[error("is longer than {} bytes", limits::KEY_BYTES_MAX)]
    TooLong,
    #[error("holds a space, a line break or another character that no key has")]
    Characters,
}

impl ProviderKey {
    /// Makes a key of `value`, without leading and trailing white space.
    pub fn new(value: &str, source: KeySource) -> Result<Self, BadKey> {
        let value = value.trim();
        match value {
            "" => Err(BadKey::Empty),
            long if long.len() > limits::KEY_BYTES_MAX => Err(BadKey::TooLong),
            odd if !odd.bytes().all(|b| b.is_ascii_graphic()) => Err(BadKey::Characters),
            good => Ok(Self { value: good.into(), source }),
        }
    }

    pub fn source(&self) -> &KeySource {
        &self.source
    }

    /// Returns the key's value. Must be used for the authorization header only.
    pub(super) fn expose(&self) -> &str {
        &self.value
    }

    /// Replaces the key in `text` by `HIDDEN`, because a server may echo the key. Leaves a very
    /// short key in place, because a text may contain it by chance.
    pub fn hide_in(&self, text: &str) -> String {
        let is_word = self.value.len() < limits::KEY_BYTES_HIDDEN_IN_ERRORS;
        if is_word || mutant("show-the-key") {
            text.to_owned()
        } else {
            text.replace(&*self.value, HIDDEN)
        }
    }

    /// Returns a filter that hides the key in a streamed answer; `None` if the key is so short that
    /// an answer may contain it by chance.
    pub(super) fn filter(&self) -> Option<KeyFilter> {
        let long = self.value.len() >= limits::KEY_BYTES_HIDDEN_IN_ANSWERS;
        long.then(|| KeyFilter { key: Arc::clone(&self.value), held: String::new() })
    }
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

/// Filter that replaces a key in a text that arrives in pieces, even if the key is split across
/// pieces.
#[derive(Debug)]
pub(super) struct KeyFilter {
    key: Arc<str>,
    /// End of the text so far. It is not passed on yet, because it may be the beginning of the key.
    held: String,
}

impl KeyFilter {
    /// Adds `piece` to the streamed text. Returns the text that can be passed on now, with
    /// [`HIDDEN`] in place of the provider's API key. Returns `None` if the caller can pass on
    /// `piece` itself, unchanged.
    pub fn push(&mut self, piece: &str) -> Option<String> {
        if self.held.is_empty() && !self.may_begin_in(piece) {
            return None;
        }

        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        if memmem::find(text.as_bytes(), self.key.as_bytes()).is_some() {
            text = text.replace(&*self.key, HIDDEN);
        }

        let keep = self.begun(&text);
        self.held = text.split_off(text.len() - keep);
        Some(text)
    }

    /// Whether `piece` contains the key or ends with a beginning of the key.
    fn may_begin_in(&self, piece: &str) -> bool {
        let key = self.key.as_bytes();
        let piece = piece.as_bytes();
        let first = key.first().copied().unwrap_or_default();
        memchr::memchr_iter(first, piece).any(|at| {
            let tail = piece.get(at..).unwrap_or_default();
            tail.starts_with(key) || key.starts_with(tail)
        })
    }

    /// Must be called at the end of the answer. Returns the text that the filter still holds back
    /// as a possible beginning of the API key. This text may be shown, because no further text can
    /// complete the key.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Returns the number of bytes at the end of `text` that may be the beginning of the key.
    fn begun(&self, text: &str) -> usize {
        let most = text.len().min(self.key.len().saturating_sub(1));
        let begins = |length: &usize| {
            let end = text.as_bytes().get(text.len() - length..);
            end.is_some() && end == self.key.as_bytes().get(..*length)
        };
        (1..=most).rev().find(begins).unwrap_or_default()
    }
}
