//! Shows changes as a unified diff, and counts the lines that they add and remove.

use similar::{ChangeTag, TextDiff};

use crate::change::FileChange;
use crate::limits;

/// A unified diff. If the diff is too long, its end is cut off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnifiedDiff {
    pub text: String,
    /// Length in bytes of the whole diff, including a part that was cut off.
    pub bytes: usize,
    pub files: Vec<LineCounts>,
}

/// Number of lines that a change adds to and removes from one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineCounts {
    pub path: String,
    pub word: &'static str,
    /// Number of added and of removed lines; `None` if the file is not text.
    pub lines: Option<(usize, usize)>,
}

impl UnifiedDiff {
    pub fn is_cut(&self) -> bool {
        self.bytes > self.text.len()
    }
}

pub fn of(changes: &[FileChange]) -> UnifiedDiff {
    let mut diff = UnifiedDiff::default();
    let mut text = String::new();
    for change in changes.iter().filter(|change| change.is_one()) {
        let lines = write_change(change, &mut text);
        diff.files.push(LineCounts { path: change.place.to_string(), word: change.word(), lines });
    }

    diff.bytes = text.len();
    diff.text = cut(text);
    diff
}

fn write_change(change: &FileChange, out: &mut String) -> Option<(usize, usize)> {
    let side = |mark: &str, exists: bool| {
        if exists { format!("{mark}/{}", change.place) } else { "/dev/null".to_owned() }
    };

    let old_name = side("a", change.before.is_some());
    let new_name = side("b", change.after.is_some());
    let (Some(old), Some(new)) = (text(change.before.as_deref()), text(change.after.as_deref()))
    else {
        out.push_str(&format!("Binary files {old_name} and {new_name} differ\n"));
        return None;
    };

    let diff = TextDiff::configure().timeout(limits::DIFF_TIME_MAX).diff_lines(old, new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let counts = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    let unified = diff.unified_diff().context_radius(3).header(&old_name, &new_name).to_string();

    if unified.is_empty() {
        // An empty file has no line that a diff could show.
        out.push_str(&format!("--- {old_name}\n+++ {new_name}\n"));
    } else {
        out.push_str(&unified);
    }

    Some(counts)
}

fn text(content: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(content.unwrap_or_default()).ok().filter(|text| !text.contains('\0'))
}

/// Cuts the diff to its maximum length, at the end of a line.
fn cut(text: String) -> String {
    if text.len() <= limits::DIFF_BYTES_MAX {
        return text;
    }
    let head = text.as_bytes().get(..limits::DIFF_BYTES_MAX).unwrap_or_default();
    let end = memchr::memrchr(b'\n', head).map_or(0, |at| at + 1);
    text.get(..end).unwrap_or_default().to_owned()
}
