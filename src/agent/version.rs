//! Versions of the texts that models read: the rendering of a thread, and the texts around it.
//!
//! A turn records its version. Later programs rebuild its prompt with that version, so the output
//! of a version never changes: `tests/data/agent/renderer-N.txt` pins it.

/// One version of the renderer and its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RendererVersion {
    /// Results were escaped twice, stood in order of arrival, and a cleared context hid the open
    /// request.
    V3,
    /// Results are escaped once and stand in call order. The open request always stays.
    V4,
    /// As the fourth, and it names the core's words that came since: `cancel-thread`, and what bounds
    /// a spawned thread.
    V5,
}

impl RendererVersion {
    /// The version of new turns.
    pub const CURRENT: Self = Self::V5;

    /// All versions whose turns can be rebuilt.
    pub const ALL: [Self; 3] = [Self::V3, Self::V4, Self::V5];

    /// Name of the version on record.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V3 => "3",
            Self::V4 => "4",
            Self::V5 => "5",
        }
    }

    /// Parses a recorded version; `None` if this program lacks it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}
