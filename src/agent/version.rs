//! Versions of what models read: the form in which a thread is rendered, and the texts around it.
//!
//! A turn records the version that it was sent in. Later programs rebuild its prompt with that
//! version, so what a version writes never changes: `tests/data/agent/renderer-N.txt` pins it.

/// One version of the renderer and of its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RendererVersion {
    /// Results were escaped twice in text, stood in order of arrival, and a cleared context hid
    /// the open request.
    V3,
    /// Results are escaped once and stand in call order; the open request always stays.
    V4,
}

impl RendererVersion {
    /// The version of new turns.
    pub const CURRENT: Self = Self::V4;

    /// Every version whose turns can be rebuilt.
    pub const ALL: [Self; 2] = [Self::V3, Self::V4];

    /// As turns record it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V3 => "3",
            Self::V4 => "4",
        }
    }

    /// Reads what a turn recorded; `None` where this program has no such version.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}
