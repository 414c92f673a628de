//! The manifest of a set of changes. It is stored before the first change is made.

use organism::ids::Digest;
use serde::{Deserialize, Serialize};

use crate::root::Owner;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// From 1, rising.
    #[serde(rename = "set")]
    pub set: u64,
    /// Id of the message that requested the set.
    #[serde(rename = "message")]
    pub message: String,
    #[serde(rename = "summary", default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Number of the set that this set takes back.
    #[serde(rename = "undoes", default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    #[serde(rename = "files")]
    pub files: Vec<Entry>,
    /// Directories that are made for it, from the top.
    #[serde(rename = "directories")]
    pub directories: Vec<String>,
    /// The answer to the caller, as XML.
    #[serde(rename = "answer")]
    pub answer: String,
}

/// One file of a set. Its contents are stored beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    #[serde(rename = "path")]
    pub path: String,
    /// Content before the change; `None` if there was no file.
    #[serde(rename = "before", default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Content>,
    /// Absent where there is none any more.
    #[serde(rename = "after", default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Content>,
    /// Of the file as it was, and as it shall be again.
    #[serde(rename = "owner", default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    #[serde(rename = "sha256")]
    pub sha256: String,
}

impl Content {
    pub fn of(bytes: &[u8]) -> Self {
        Self { sha256: Digest::of(bytes).to_string() }
    }
}

impl Manifest {
    /// What the new content of a file is called until it takes its place.
    pub fn temporary(&self, index: usize) -> String {
        format!("{}{}-{index}.tmp", crate::place::TEMPORARY, self.set)
    }

    /// What a file's content is kept as.
    pub fn kept(index: usize, side: Side) -> String {
        match side {
            Side::Before => format!("{index}.before"),
            Side::After => format!("{index}.after"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}
