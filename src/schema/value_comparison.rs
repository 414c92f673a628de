//! Computes how many steps libxml2 needs at most to compare a value with the patterns of its type.
//!
//! The computation follows these rules of libxml2:
//!
//! - libxml2 normalizes the white space of a value before it compares the value.
//! - libxml2 compares the items of a list one after another.
//! - libxml2 stops at the first pattern that the value matches, and at the first member type of a
//!   union that the value matches.
//!
//! If it is unknown which of several types a value has, or how libxml2 normalizes its white space,
//! the computation counts the steps of the costliest case.

use super::compared_types::{ComparedTypes, TypeCandidates, TypeVariety, WhiteSpace};
use super::pattern_automaton::PatternAutomaton;
use super::text_comparison::TextComparison;
use crate::limits;

/// The characters that are white space in XML.
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

/// Computes the steps for comparing the values of one payload with patterns.
pub struct ValueComparison<'a> {
    types: &'a ComparedTypes,
    automata: &'a [PatternAutomaton],
    /// Remaining work units. At 0, every further comparison counts `u64::MAX` steps.
    work: usize,
    /// Indices of the types that enclose the current comparison. A type in this list is skipped,
    /// which prevents endless cycles of types with the same local name.
    path: Vec<usize>,
    /// The costliest comparison of the current value with one pattern: its steps, and the index of
    /// the pattern.
    costliest: Option<(u64, usize)>,
}

impl<'a> ValueComparison<'a> {
    pub fn new(types: &'a ComparedTypes, automata: &'a [PatternAutomaton]) -> Self {
        let work = limits::PATTERN_COMPARISON_WORK_MAX;
        Self { types, automata, work, path: Vec::new(), costliest: None }
    }

    /// Returns the maximum number of steps for a value whose type is one of `candidates`, and the
    /// index of the pattern whose comparison needs the most steps; `None` if no pattern was
    /// compared.
    pub fn steps(&mut self, candidates: &[usize], value: &str) -> (u64, Option<usize>) {
        self.costliest = None;
        let worst = self
            .compare_candidates(candidates, |this, index| this.compare_value(index, value, false));
        (worst.steps, self.costliest.map(|(_, pattern)| pattern))
    }

    /// Compares a value with each type of `candidates` by `compare`, and combines the results: the
    /// steps are those of the costliest type, and the value matches only if it matches every type.
    fn compare_candidates(
        &mut self,
        candidates: &[usize],
        mut compare: impl FnMut(&mut Self, usize) -> TextComparison,
    ) -> TextComparison {
        let mut worst: Option<TextComparison> = None;
        for index in candidates {
            if self.path.contains(index) {
                continue;
            }

            if self.work == 0 || self.path.len() >= limits::COMPARED_TYPES_DEPTH_MAX {
                return TextComparison { steps: u64::MAX, is_match: false };
            }

            self.work -= 1;
            self.path.push(*index);
            let compared = compare(self, *index);
            self.path.pop();
            worst = Some(worst.map_or(compared, |worst| worst.either(compared)));
        }

        worst.unwrap_or_default()
    }

    /// Calls `compare` with each type that the reference `part` can mean, and returns the worst
    /// result.
    fn compare_part(
        &mut self,
        part: &TypeCandidates,
        compare: impl FnMut(&mut Self, usize) -> TextComparison,
    ) -> TextComparison {
        if part.indices.is_empty() {
            return TextComparison { steps: 0, is_match: part.permits_all };
        }

        self.compare_candidates(&part.indices, compare)
    }

    /// Compares a value with the type at `index`. `is_normalized` states whether the white space of
    /// the value is already normalized, so that it stays unchanged.
    fn compare_value(&mut self, index: usize, value: &str, is_normalized: bool) -> TextComparison {
        let white_space = match self.types.get(index) {
            Some(found) if !is_normalized => found.white_space(),
            _ => WhiteSpace::Preserve,
        };

        let mut worst: Option<TextComparison> = None;
        for form in normalized_values(value, white_space) {
            let compared = self.compare_normalized(index, &form, value, is_normalized);
            worst = Some(worst.map_or(compared, |worst| worst.either(compared)));
        }

        worst.unwrap_or_default()
    }

    /// Compares a value with the type at `index`. `value` is the original value, and `form` is the
    /// value after the type's white space rule was applied.
    fn compare_normalized(
        &mut self,
        index: usize,
        form: &str,
        value: &str,
        is_normalized: bool,
    ) -> TextComparison {
        let types = self.types;
        let Some(found) = types.get(index) else { return TextComparison::default() };
        let patterns = self.compare_patterns(&found.patterns, form);

        let mut parts = TextComparison::default();
        match found.variety {
            TypeVariety::Restriction => {
                for part in &found.parts {
                    let compared = self.compare_part(part, |this, index| {
                        this.compare_normalized(index, form, value, is_normalized)
                    });
                    parts.steps = parts.steps.max(compared.steps);
                    parts.is_match = compared.is_match;
                }
            }
            TypeVariety::List => {
                parts.is_match = true;
                for part in &found.parts {
                    for item in form.split(BLANKS).filter(|item| !item.is_empty()) {
                        let compared = self.compare_part(part, |this, index| {
                            this.compare_value(index, item, true)
                        });
                        parts.steps = parts.steps.saturating_add(compared.steps);
                        parts.is_match &= compared.is_match;
                    }
                }
            }
            TypeVariety::Union => {
                for part in &found.parts {
                    let compared = self.compare_part(part, |this, index| {
                        this.compare_value(index, value, is_normalized)
                    });
                    parts.steps = parts.steps.saturating_add(compared.steps);
                    parts.is_match = compared.is_match;
                    if parts.is_match {
                        break;
                    }
                }
            }
        }

        TextComparison {
            steps: patterns.steps.saturating_add(parts.steps),
            is_match: patterns.is_match && parts.is_match && !found.has_other_facets,
        }
    }

    /// Compares a text with each pattern in turn, until one matches. The text needs to match only
    /// one pattern.
    fn compare_patterns(&mut self, patterns: &[Option<usize>], text: &str) -> TextComparison {
        let mut all = TextComparison { steps: 0, is_match: patterns.is_empty() };
        for index in patterns.iter().flatten() {
            let Some(automaton) = self.automata.get(*index) else { continue };
            let compared = TextComparison::of(automaton, text, &mut self.work);
            let compared = compared.unwrap_or_else(|| {
                self.work = 0;
                TextComparison { steps: u64::MAX, is_match: false }
            });

            all.steps = all.steps.saturating_add(compared.steps);
            if self.costliest.is_none_or(|(steps, _)| compared.steps > steps) {
                self.costliest = Some((compared.steps, *index));
            }
            if compared.is_match {
                return TextComparison { is_match: true, ..all };
            }
        }

        all
    }
}

/// Returns each text that libxml2 may compare with patterns after it has changed the white space of
/// `value`.
fn normalized_values(value: &str, white_space: WhiteSpace) -> Vec<String> {
    let preserved = || value.to_owned();
    let replaced = || value.replace(BLANKS, " ");
    let collapsed = || {
        let words = value.split(BLANKS).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ")
    };

    match white_space {
        WhiteSpace::Preserve => vec![preserved()],
        WhiteSpace::Replace => vec![replaced()],
        WhiteSpace::Collapse => vec![collapsed()],
        WhiteSpace::Unknown if value.contains(BLANKS) => vec![preserved(), replaced(), collapsed()],
        WhiteSpace::Unknown => vec![preserved()],
    }
}
