//! Source ranges of the values in a workflow definition. A definition holds only a [`PlaceId`] for
//! each of its values, so the code for workflows does not depend on the config's files.

use std::sync::Arc;

use crate::workflow::PlaceId;

use super::super::source_text::{ConfigSource, SourceRange};

#[derive(Default)]
pub(in super::super) struct PlaceTable {
    ranges: Vec<SourceRange>,
}

impl PlaceTable {
    pub fn add(&mut self, place: &SourceRange) -> PlaceId {
        self.ranges.push(place.clone());
        PlaceId(self.ranges.len() - 1)
    }

    pub fn range(&self, place: PlaceId) -> SourceRange {
        let found = self.ranges.get(place.0).cloned();
        found.unwrap_or_else(|| SourceRange::start(&ConfigSource::new("config", "")))
    }

    /// Returns the range of `part` within the source text of a value. In a prompt, prefers a
    /// placeholder that contains `part` to other text. If `part` is not found, returns the range of
    /// the whole value.
    pub fn range_of_part(&self, place: PlaceId, part: &str) -> SourceRange {
        let whole = self.range(place);
        let text = whole.source.slice(whole.span.clone());
        match offset_of(text, part).filter(|_| !part.is_empty()) {
            Some(at) => {
                let start = whole.span.start + at;
                SourceRange { source: Arc::clone(&whole.source), span: start..start + part.len() }
            }
            None => whole,
        }
    }
}

fn offset_of(text: &str, part: &str) -> Option<usize> {
    let mut openings = text.match_indices("{{");
    let in_placeholder = openings.find_map(|(open, _)| {
        let (placeholder, _) = text.get(open..)?.split_once("}}")?;
        placeholder.find(part).map(|at| open + at)
    });
    in_placeholder.or_else(|| text.find(part))
}
