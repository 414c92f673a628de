//! The manifest of a set of changes. The manifest is stored before any file is changed.

use organism::ids::Digest;
use serde::{Deserialize, Serialize};

use crate::root::FileOwner;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetManifest {
    /// Number of the set, counted from 1.
    #[serde(rename = "set")]
    pub set: u64,
    /// Id of the message that requested the set.
    #[serde(rename = "message")]
    pub message: String,
    #[serde(rename = "summary", default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Number of the earlier set that this set undoes.
    #[serde(rename = "undoes", default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    #[serde(rename = "files")]
    pub files: Vec<FileEntry>,
    /// Directories that the set creates. A directory comes before the directories in it.
    #[serde(rename = "directories")]
    pub directories: Vec<String>,
    /// The answer to the caller's message, as XML.
    #[serde(rename = "answer")]
    pub answer: String,
}

/// One file of a set. Its contents are stored beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    #[serde(rename = "path")]
    pub path: String,
    /// Hash of the content before the change; `None` if there was no file.
    #[serde(rename = "before", default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ContentHash>,
    /// Hash of the content after the change; `None` if the file was removed.
    #[serde(rename = "after", default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ContentHash>,
    /// Owner and mode of the file before the change. The changed file keeps both.
    #[serde(rename = "owner", default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentHash {
    #[serde(rename = "sha256")]
    pub sha256: String,
}

impl ContentHash {
    pub fn of(bytes: &[u8]) -> Self {
        Self { sha256: Digest::of(bytes).to_string() }
    }
}

impl SetManifest {
    /// Returns the name of a temporary file that contains the new content of a file of the set.
    /// `index` is the index of the changed file in the set. Later, the temporary file takes the
    /// place of the changed file.
    pub fn temporary(&self, index: usize) -> String {
        format!("{}{}-{index}.tmp", crate::place::TEMPORARY, self.set)
    }

    /// Returns the name of the stored copy of a file's content. `side` selects the content before
    /// the set or the content after it.
    pub fn kept(index: usize, side: ContentSide) -> String {
        match side {
            ContentSide::Before => format!("{index}.before"),
            ContentSide::After => format!("{index}.after"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentSide {
    Before,
    After,
}
