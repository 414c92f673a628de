//! The change of one file.

use crate::place::WorkspacePath;
use crate::root::FileOwner;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub place: WorkspacePath,
    /// Content before the change; `None` if there is no file.
    pub before: Option<Vec<u8>>,
    /// Content after the change; `None` if the file is removed.
    pub after: Option<Vec<u8>>,
    /// Owner and mode of the file before the change. The file keeps both when its content changes.
    pub owner: Option<FileOwner>,
}

impl FileChange {
    pub fn is_one(&self) -> bool {
        self.before != self.after
    }

    /// Total bytes of the content before the change and the content after it.
    pub fn bytes(&self) -> usize {
        let length = |content: &Option<Vec<u8>>| content.as_ref().map_or(0, Vec::len);
        length(&self.before) + length(&self.after)
    }

    pub fn word(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "created",
            (Some(_), None) => "deleted",
            (Some(_), Some(_)) => "changed",
        }
    }
}
