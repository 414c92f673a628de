//! Labels of subthreads. A label is suggested or generated, and gets a number if it is taken.

use super::Core;
use crate::ids::{Digest, ThreadId};
use crate::limits;
use crate::thread::SmallSet;

const SHORT_LABEL_CHARS: usize = 6;

impl Core {
    /// Returns a free label for a new subthread: `label`, or a short generated label if `label` is
    /// `None`. If this label is taken, appends the lowest free number, as in `label-1`.
    pub(super) fn free_label(&self, parent: &ThreadId, label: Option<String>) -> String {
        let children = self.state.thread(parent).map(|thread| &thread.children);
        let taken = |label: &String| children.is_some_and(|labels| labels.contains(label));
        let number = children.map_or(0, SmallSet::len);
        let base = label.unwrap_or_else(|| generated_label(parent, number));
        if !taken(&base) {
            return base;
        }

        let numbered = |n: u32| {
            let suffix = format!("-{n}");
            let room = limits::LABEL_CHARS_MAX - suffix.len();
            format!("{}{suffix}", base.get(..base.len().min(room)).unwrap_or_default())
        };

        (1..).map(numbered).find(|label| !taken(label)).unwrap_or(base)
    }
}

/// Generates a label for a new subthread of `parent`, which already has `number` subthreads. The
/// label depends only on `number` and on the labels of `parent` and its ancestors, and not on the
/// id of the root. So the same work gets the same labels in a fork or in a second run.
fn generated_label(parent: &ThreadId, number: usize) -> String {
    let labels = parent.as_str().split_once('.').map_or("", |(_, labels)| labels);
    let digest = Digest::of(format!("{labels}\0{number}").as_bytes()).to_string();
    digest.chars().take(SHORT_LABEL_CHARS).collect()
}
