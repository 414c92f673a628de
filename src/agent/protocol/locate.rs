//! Maps positions in a payload to positions in the model's text. The checks of a payload report
//! positions in the payload. Feedback to the model must instead quote the text from which the
//! payload was built.

use crate::xml::element::{Element, Node};
use crate::xml::extract::ExtractedAction;
use crate::xml::findings::TextLocation;

/// Returns the location of an element in the model's text `raw`. `offset` is the start of the
/// element in `payload`, which was built from `action`. If the element cannot be found, returns the
/// location of the whole action.
pub(super) fn in_text(
    raw: &str,
    action: &ExtractedAction,
    payload: &str,
    offset: usize,
) -> TextLocation {
    let source = raw.get(action.source.clone()).unwrap_or_default();
    let before = payload.get(..offset).unwrap_or_default();
    let found = ElementFinder::find(source, &action.element, open_tags(before));
    TextLocation::at(raw.as_bytes(), action.source.start + found.unwrap_or_default())
}

/// Counts the start tags in a text that has no comments and no CDATA sections.
fn open_tags(xml: &str) -> usize {
    let opens = |(at, _): &(usize, &str)| {
        let next = xml.as_bytes().get(at + 1);
        next.is_some_and(|byte| !matches!(byte, b'/' | b'!' | b'?'))
    };
    xml.match_indices('<').filter(opens).count()
}

/// Search that finds an element of an action in the model's text by counting start tags.
struct ElementFinder<'s> {
    source: &'s str,
    /// Offset in the action's text at which the search continues.
    at: usize,
    /// Number of start tags that the search must still pass before it reaches the wanted element.
    left: usize,
}

impl<'s> ElementFinder<'s> {
    fn find(source: &'s str, root: &Element, index: usize) -> Option<usize> {
        let mut finder = Self { source, at: 0, left: index };
        finder.enter(root)
    }

    fn enter(&mut self, element: &Element) -> Option<usize> {
        let start = self.open_tag(&element.name.local)?;
        if self.left == 0 {
            return Some(start);
        }

        self.left -= 1;

        if let Some(verbatim) = &element.verbatim {
            let inside = open_tags(&verbatim.xml);
            if self.left < inside {
                return Some(start);
            }
            self.left -= inside;
            self.pass(&verbatim.xml);
            return None;
        }

        element.content.iter().find_map(|node| match node {
            Node::Element(child) => self.enter(child),
            Node::Text(text) => {
                // A verbatim value may contain text that looks like tags.
                if text.contains('<') {
                    self.pass(text);
                }
                None
            }
        })
    }

    /// Moves the search past the next occurrence of `content`. Does nothing if no such text
    /// follows.
    fn pass(&mut self, content: &str) {
        let rest = self.source.get(self.at..).unwrap_or_default();
        self.at += rest.find(content).map_or(0, |at| at + content.len());
    }

    /// Returns the position of the next start tag with the name `local`, and moves the search past
    /// this tag. Returns `None` if no such tag follows.
    fn open_tag(&mut self, local: &str) -> Option<usize> {
        let rest = self.source.get(self.at..)?;
        let mut tags = rest.match_indices('<').filter_map(|(at, _)| {
            let name = rest.get(at + 1..)?;
            let end = name.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/'))?;
            let name = name.get(..end)?;
            let written = name.rsplit_once(':').map_or(name, |(_, local)| local);
            (written == local).then_some((at, at + 1 + end))
        });
        let (start, end) = tags.next()?;
        let start = self.at + start;
        self.at += end;
        Some(start)
    }
}
