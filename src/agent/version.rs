//! Versions of the texts that models read: the rendering of a thread, and the fixed texts around
//! it.
//!
//! Each turn records its version. Later programs rebuild the turn's prompt in that version, so the
//! output of a version must never change: `tests/data/agent/renderer-N.txt` pins it.

/// A version of the prompt renderer and its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RendererVersion {
    /// Third version, which escapes results twice and shows them in the order of arrival. Clearing
    /// the context hides the open request.
    V3,
    /// Fourth version, which escapes results once and shows them in the order of their calls. The
    /// open request always stays.
    V4,
    /// Fifth version, which adds `cancel-thread`, and the attribute `bound` of `spawn-thread`. A
    /// bound thread is cancelled when the call that spawned it closes.
    V5,
    /// Sixth version, which adds the attributes that limit a spawned thread.
    V6,
    /// Seventh version, which differs from the sixth in one rule: a goal of another agent in the
    /// same thread is shown like any message.
    V7,
    /// Eighth version, which differs from the seventh in two rules: the system prompt describes
    /// each tool and each peer once, and native tools that contain a payload do not repeat the
    /// schemas of other tools.
    V8,
}

impl RendererVersion {
    /// Version of new turns.
    pub const CURRENT: Self = Self::V8;

    /// All versions whose turns can be rebuilt.
    pub const ALL: [Self; 6] = [Self::V3, Self::V4, Self::V5, Self::V6, Self::V7, Self::V8];

    /// Returns the name of the version in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V3 => "3",
            Self::V4 => "4",
            Self::V5 => "5",
            Self::V6 => "6",
            Self::V7 => "7",
            Self::V8 => "8",
        }
    }

    /// Parses a recorded version. Returns `None` if this program lacks the version.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}
