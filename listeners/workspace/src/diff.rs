//! Shows changes as a unified diff, and counts the lines that they add and remove.
//!
//! **Invariant:** a diff depends on nothing but the contents of the files. A person approves a
//! preview by its digest, so a diff that depends on the clock would make the approval invalid.

use std::time::Instant;

use similar::{ChangeTag, DiffableStr as _, TextDiff};

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
        let lines = write_change(change, &mut text, limits::DIFF_STEPS_MAX);
        diff.files.push(LineCounts { path: change.place.to_string(), word: change.word(), lines });
    }

    diff.bytes = text.len();
    diff.text = cut(text);
    diff
}

/// Appends the diff of one file to `out`, and returns the number of added and of removed lines.
/// `steps` is the maximum number of comparison steps for a minimal diff.
fn write_change(change: &FileChange, out: &mut String, steps: usize) -> Option<(usize, usize)> {
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

    let mut configured = TextDiff::configure();
    if !takes_at_most(steps, old, new) {
        // A deadline that has passed makes the algorithm compare only the equal lines at the
        // beginning and at the end. Everything between them becomes one block of changed lines.
        configured.deadline(Instant::now());
    }
    let diff = configured.diff_lines(old, new);
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

/// Whether a minimal diff of two texts takes at most this number of comparison steps. Compares the
/// texts as the diff algorithm of Myers does, but keeps no record of the edits.
fn takes_at_most(mut steps: usize, old: &str, new: &str) -> bool {
    let old = old.tokenize_lines();
    let new = new.tokenize_lines();
    // For each number of deletions among the edits so far: how many old lines these edits and the
    // equal lines between them can cover.
    let mut covered = vec![0];

    for edits in 0..=old.len() + new.len() {
        for (deletions, old_lines) in covered.iter_mut().enumerate() {
            let new_lines = *old_lines + edits - 2 * deletions;
            let old_rest = old.get(*old_lines..).unwrap_or_default();
            let new_rest = new.get(new_lines..).unwrap_or_default();
            let equal = old_rest.iter().zip(new_rest).take_while(|(old, new)| old == new).count();
            *old_lines += equal;
            if *old_lines >= old.len() && new_lines + equal >= new.len() {
                return true;
            }

            match steps.checked_sub(equal + 1) {
                Some(left) => steps = left,
                None => return false,
            }
        }

        // One edit more: an insertion covers no further old line, and a deletion covers one.
        let inserted = covered.iter().copied().chain([0]);
        let deleted = [0].into_iter().chain(covered.iter().map(|lines| lines + 1));
        covered = inserted.zip(deleted).map(|(inserted, deleted)| inserted.max(deleted)).collect();
    }

    true
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::place::WorkspacePath;

    fn change(before: &str, after: &str) -> FileChange {
        let place = WorkspacePath::file("f", Path::new("/")).unwrap();
        let content = |text: &str| Some(text.as_bytes().to_vec());
        FileChange { place, before: content(before), after: content(after), owner: None }
    }

    fn lines(range: std::ops::Range<usize>) -> String {
        range.map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn a_diff_that_takes_too_many_steps_is_one_block_and_depends_on_no_clock() {
        let before = format!("head\n{}middle\n{}tail\n", lines(0..40), lines(40..80));
        let after = format!("head\n{}middle\n{}tail\n", lines(80..120), lines(120..160));
        let change = change(&before, &after);
        let counts = |steps: usize| write_change(&change, &mut String::new(), steps);
        assert_eq!(counts(1_000), Some((81, 81)), "the equal line is in the block");
        assert_eq!(counts(100_000), Some((80, 80)));
    }

    #[test]
    fn a_long_change_of_one_file_leaves_the_diffs_of_the_others_minimal() {
        let generated = change(&lines(0..3_000), &lines(3_000..6_000));
        let source = change(&lines(0..400), &lines(0..400).replace("line 3\n", "line three\n"));
        for changes in [[&generated, &source], [&source, &generated]] {
            let diff = of(&changes.map(FileChange::clone));
            let counts = diff.files.iter().filter_map(|file| file.lines);
            assert_eq!(counts.min(), Some((1, 1)));
        }
    }

    #[test]
    fn distant_edits_of_a_long_file_are_shown_line_by_line() {
        let before = format!("first\n{}last\n", lines(0..20_000));
        let after = format!("FIRST\n{}LAST\n", lines(0..20_000));
        let diff = of(&[change(&before, &after)]);
        assert_eq!(diff.files[0].lines, Some((2, 2)));
        assert!(diff.text.contains("-first\n+FIRST\n line 0\n"), "{}", diff.text);
        assert!(diff.text.contains(" line 19999\n-last\n+LAST\n"), "{}", diff.text);
    }
}
