//! Detects values that would join two elements into one, because a close tag is missing. For
//! example, the first value in `<a><b>one</a><a><b>two</b></a>` must not extend to `</b>`: it would
//! contain the end of the first `a` and the beginning of the second one. So the search for the end
//! of a value does not stop at such a close tag.

use super::close_tags::ParentElement;
use super::turn_bytes::{TurnBytes, is_name_byte};
use crate::mutant::mutant;

/// Counts, inside a value, the tags that have the name of an enclosing element. The enclosing
/// elements of a value are all elements around it.
pub(super) struct EnclosingTags<'a> {
    elements: Vec<CountedTags<'a>>,
    counted_to: usize,
    /// Whether the value contains a tag that closes an enclosing element, such as `</a>` in
    /// `<a><b>value</a>`.
    is_left: bool,
    /// Whether the value closes an enclosing element, and later opens an element with the name of
    /// any enclosing element.
    is_reopened: bool,
}

struct CountedTags<'a> {
    name: &'a [u8],
    open: usize,
    was_closed: bool,
}

impl<'a> EnclosingTags<'a> {
    pub fn new(parent: &ParentElement<'a>, from: usize) -> Self {
        let mut elements: Vec<CountedTags<'a>> = Vec::new();
        let mut next = Some(parent);
        while let Some(parent) = next {
            if elements.iter().all(|known| known.name != parent.name) {
                elements.push(CountedTags { name: parent.name, open: 0, was_closed: false });
            }
            next = parent.outer;
        }

        Self { elements, counted_to: from, is_left: false, is_reopened: false }
    }

    /// Scans the value up to the offset `to`, which must increase from call to call. Returns true
    /// if the value must not end at `to`, because it would then contain parts of two elements with
    /// the name of an enclosing element. This is so in two cases:
    /// - [`Self::is_reopened`] is true.
    /// - The value contains a complete element and an open tag without a close tag, both with the
    ///   name of the same enclosing element.
    pub fn scan_to(&mut self, source: TurnBytes<'_>, to: usize) -> bool {
        if mutant("merge-two-elements") {
            return false;
        }

        let part = source.slice(self.counted_to..to);
        for at in memchr::memchr_iter(b'<', part) {
            self.count(part.get(at + 1..).unwrap_or_default());
        }

        self.counted_to = to;
        self.is_reopened || self.elements.iter().any(|known| known.was_closed && known.open > 0)
    }

    /// Whether the scanned part of the value closes an enclosing element, and later opens an
    /// element with the name of any enclosing element. If so, no later close tag can end the value,
    /// because the value would join two elements.
    pub fn is_reopened(&self) -> bool {
        self.is_reopened
    }

    /// Counts a tag inside the scanned value, if the tag has the name of an enclosing element.
    /// `behind` is the text after the `<` of the tag.
    fn count(&mut self, behind: &[u8]) {
        let (name, closes) = match behind.strip_prefix(b"/") {
            Some(name) => (name, true),
            None => (behind, false),
        };

        let is_this = |known: &&mut CountedTags<'_>| {
            let rest = name.strip_prefix(known.name);
            rest.is_some_and(|rest| rest.first().is_some_and(|byte| !is_name_byte(*byte)))
        };

        let Some(known) = self.elements.iter_mut().find(is_this) else { return };
        match (closes, known.open) {
            (true, 0) => self.is_left = true,
            (true, _) => {
                known.open -= 1;
                known.was_closed = true;
            }
            (false, _) => {
                known.open += 1;
                self.is_reopened |= self.is_left;
            }
        }
    }
}
