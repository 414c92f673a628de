//! Computes how many steps libxml2 needs at most to compare one text with a pattern.
//!
//! libxml2 follows one way through its automaton after another, and ends with the first match. This
//! module does not know the order of the ways. It assumes the worst order: libxml2 tries every way
//! without a match before a way with a match. The computation itself follows all ways at once, so
//! its time grows with the length of the text.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use super::character_set::SetMembership;
use super::pattern_automaton::PatternAutomaton;
use crate::limits;

const _: () = assert!(limits::PATTERN_STATES_MAX < u16::MAX as usize);

/// The result of comparing a text, or the rest of a text, with a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextComparison {
    /// Maximum number of transitions that libxml2 tries.
    pub steps: u64,
    /// Whether libxml2 certainly finds a match.
    pub is_match: bool,
}

impl TextComparison {
    /// Compares `text` with a pattern. `work` is the amount of work that may still be done. The
    /// comparison reduces it by the work done. Returns `None` if the amount does not suffice.
    pub fn of(automaton: &PatternAutomaton, text: &str, work: &mut usize) -> Option<Self> {
        let mut memberships = HashMap::new();
        let reached = ReachedStates::of(automaton, text, &mut memberships, work)?;

        // The comparisons of the rest of the text, one for each state in `after`.
        let mut after = reached.at(&reached.end);
        let mut rests: Vec<Self> =
            after.iter().map(|state| Self::at_end(automaton, *state)).collect();
        for (c, range) in reached.characters.iter().rev() {
            let memberships = memberships.get(c)?;
            let states = reached.at(range);
            let mut before = Vec::with_capacity(states.len());
            for state in states {
                *work = work.checked_sub(1)?;
                let rest_of = |next: u16| {
                    let index = after.binary_search(&next).ok()?;
                    rests.get(index).copied()
                };
                before.push(Self::before(automaton, *state, memberships, rest_of));
            }
            after = states;
            rests = before;
        }

        rests.first().copied()
    }

    /// Combines two results if it is unknown which of the two comparisons libxml2 makes. Takes the
    /// worse value of each field.
    pub fn either(self, other: Self) -> Self {
        Self { steps: self.steps.max(other.steps), is_match: self.is_match && other.is_match }
    }

    fn at_end(automaton: &PatternAutomaton, state: u16) -> Self {
        let state = usize::from(state);
        let steps = automaton.count_ways(state).saturating_add(1);
        Self { steps, is_match: automaton.is_end(state) }
    }

    /// Returns the result of comparing the rest of the text, if libxml2 is in `state` before this
    /// rest. The first character of the rest may lead into several states. For each of them,
    /// `rest_of` returns the result for the text after this character.
    fn before(
        automaton: &PatternAutomaton,
        state: u16,
        memberships: &[SetMembership],
        rest_of: impl Fn(u16) -> Option<Self>,
    ) -> Self {
        let state = usize::from(state);
        let mut steps = automaton.count_ways(state).saturating_add(1);
        let mut steps_to_match = 0;
        let mut is_match = false;
        for (next, ways) in automaton.transitions(state) {
            let Some(rest) = u16::try_from(next).ok().and_then(&rest_of) else { continue };
            if rest.is_match {
                // libxml2 takes at most one of the ways that lead to a match.
                steps_to_match = steps_to_match.max(rest.steps);
                is_match |= membership(automaton, next, memberships) == SetMembership::Certain;
            } else {
                steps = steps.saturating_add(rest.steps.saturating_mul(ways));
            }
        }

        Self { steps: steps.saturating_add(steps_to_match), is_match }
    }
}

/// The states in which libxml2 can be before each character of a text.
struct ReachedStates {
    /// The states before the first character, then the states before the second character, and so
    /// on.
    states: Vec<u16>,
    /// Each character, with the range in `states` of the states before it. If a character leads
    /// into no state, it is the last character in this list.
    characters: Vec<(char, Range<usize>)>,
    /// The range in `states` of the states at the end of the text. Empty if a character leads into
    /// no state, so that the text cannot match.
    end: Range<usize>,
}

impl ReachedStates {
    /// Follows all ways through the automaton. For each character, adds to `memberships` its
    /// memberships in the sets of the pattern.
    fn of(
        automaton: &PatternAutomaton,
        text: &str,
        memberships: &mut HashMap<char, Vec<SetMembership>>,
        work: &mut usize,
    ) -> Option<Self> {
        let start = u16::try_from(automaton.start()).ok()?;
        let mut reached = Self { states: vec![start], characters: Vec::new(), end: 0..1 };
        for c in text.chars() {
            let known = match memberships.entry(c) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let known = automaton.memberships(c);
                    *work = work.checked_sub(known.len())?;
                    unknown.insert(known)
                }
            };

            let mut next_states = Vec::new();
            for state in reached.at(&reached.end) {
                let state = usize::from(*state);
                *work = work.checked_sub(automaton.transitions(state).count() + 1)?;
                for (next, _) in automaton.transitions(state) {
                    if membership(automaton, next, known) != SetMembership::Impossible {
                        next_states.push(u16::try_from(next).ok()?);
                    }
                }
            }

            next_states.sort_unstable();
            next_states.dedup();
            let next_end = reached.states.len()..reached.states.len() + next_states.len();
            let before = std::mem::replace(&mut reached.end, next_end);
            reached.characters.push((c, before));
            reached.states.append(&mut next_states);
            if reached.end.is_empty() {
                break;
            }
        }

        Some(reached)
    }

    /// Returns the states of a range, in their order.
    fn at(&self, range: &Range<usize>) -> &[u16] {
        self.states.get(range.clone()).unwrap_or_default()
    }
}

/// Returns whether a character leads into a state: certainly, possibly or never. `memberships`
/// states to which sets of the pattern the character belongs.
fn membership(
    automaton: &PatternAutomaton,
    state: usize,
    memberships: &[SetMembership],
) -> SetMembership {
    let set = automaton.set_of(state);
    let known = set.and_then(|set| memberships.get(set)).copied();
    known.unwrap_or(SetMembership::Impossible)
}

#[cfg(test)]
mod tests {
    use super::super::pattern_term::parse;
    use super::*;

    fn compared(pattern: &str, text: &str) -> TextComparison {
        let automaton = PatternAutomaton::of(&parse(pattern).unwrap()).unwrap();
        let mut work = limits::PATTERN_COMPARISON_WORK_MAX;
        TextComparison::of(&automaton, text, &mut work).unwrap()
    }

    #[test]
    fn a_text_that_matches_early_costs_a_few_steps_for_each_character() {
        for (pattern, text) in [
            (".*a.*", "a".repeat(5_000)),
            (".*a.*", "\u{e4}".repeat(5_000) + "a"),
            (r".+@.+[.].+", "@.".repeat(1_000)),
            (".*[0-9]{3}.*", "123 ".repeat(1_000)),
            ("( ?x)*( ?x)*( ?x)*", " x".repeat(1_000)),
        ] {
            let compared = compared(pattern, &text);
            assert!(compared.is_match, "{pattern}");
            assert!(compared.steps < 20 * 5_000, "{pattern}: {compared:?}");
        }
    }

    #[test]
    fn a_text_that_almost_matches_costs_all_of_its_ways() {
        for (pattern, text) in [
            (".*a.*", "a".repeat(7_000) + "\n"),
            (r".+@.+[.].+", "@.".repeat(1_000) + "\n"),
            ("( ?x)*( ?x)*( ?x)*", " x".repeat(500) + "  x"),
            (".*a.*b|a+", "a".repeat(7_000)),
            ("a{0,3000}a{0,3000}", "a".repeat(7_000)),
            (r"([a-z]+\.)+[a-z]{2,6}", "abcdef.".repeat(30) + "!"),
            ("(ab?)*|[abc]+", "a".repeat(7_000) + "!"),
            ("(x(a|aa)*)*c", "a".repeat(64) + "!"),
        ] {
            let compared = compared(pattern, &text);
            assert!(compared.steps > limits::PATTERN_STEPS_MAX, "{pattern}: {compared:?}");
        }
    }

    #[test]
    fn a_text_that_hardly_begins_to_match_costs_little() {
        let text = "b".repeat(100_000);
        for pattern in [".*a.*a.*", ".+@.+[.].+", "(a|b)c", "ab*"] {
            let compared = compared(pattern, &text);
            assert!(!compared.is_match);
            assert!(compared.steps <= 400_004, "{pattern}: {compared:?}");
        }
    }

    #[test]
    fn a_match_is_certain_only_if_each_of_its_characters_certainly_belongs_to_its_set() {
        assert!(compared(r"\w+", "ab").is_match);
        assert!(!compared(r"\w+", "a\u{e4}").is_match);
        assert!(compared(r"\w+|.+", "a\u{e4}").is_match);
        assert!(compared("a*", "").is_match);
        assert!(!compared("a+", "").is_match);
        assert!(!compared("(a{2})|a?", "a").is_match);
    }

    #[test]
    fn a_comparison_ends_when_its_work_is_used_up() {
        let automaton = PatternAutomaton::of(&parse(".*a.*").unwrap()).unwrap();
        let mut work = 1_000;
        assert_eq!(TextComparison::of(&automaton, &"a".repeat(1_000), &mut work), None);
    }
}
