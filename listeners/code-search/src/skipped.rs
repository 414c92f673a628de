//! Reads the files of a search or query, and counts the files that are left out.

use std::path::Path;

use crate::text;
use crate::tree::{SearchTree, UnreadFile};

/// Numbers of files and directories that were left out, by reason. Hidden, ignored and binary files
/// are not counted.
#[derive(Debug, Default)]
pub(crate) struct SkippedFiles {
    pub tests: usize,
    pub large: usize,
    pub unreadable: usize,
    /// Number of directories that could not be read. The number of their files is not known.
    pub directories: usize,
}

impl SkippedFiles {
    /// Reads a file of the tree. Returns `None` if the file is too large, unreadable or binary.
    pub fn read(&mut self, tree: &SearchTree, file: &Path) -> Option<Vec<u8>> {
        match tree.read(file) {
            Ok(bytes) => (!text::is_binary(&bytes)).then_some(bytes),
            Err(UnreadFile::TooLarge(_)) => {
                self.large += 1;
                None
            }
            Err(_) => {
                self.unreadable += 1;
                None
            }
        }
    }

    /// Returns one note for each reason, with the number of files.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: usize, text: &str| {
            if count > 0 {
                let files =
                    if count == 1 { "1 file was".into() } else { format!("{count} files were") };
                notes.push(format!("{files} not searched: {text}"));
            }
        };

        note(self.tests, "tests; set allow_tests to true to include them");
        note(self.large, "larger than 4 MiB");
        note(self.unreadable, "could not be read");

        match self.directories {
            0 => {}
            1 => notes.push("1 directory could not be read, so nothing in it was searched".into()),
            more => notes.push(format!(
                "{more} directories could not be read, so nothing in them was searched"
            )),
        }

        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_one_note() {
        let skipped = SkippedFiles { tests: 0, large: 1, unreadable: 2, directories: 1 };
        assert_eq!(
            skipped.notes(),
            [
                "1 file was not searched: larger than 4 MiB",
                "2 files were not searched: could not be read",
                "1 directory could not be read, so nothing in it was searched",
            ]
        );
    }
}
