//! Computes how many steps libxml2 needs at most to match a text against a pattern.
//!
//! libxml2 follows one way through its automaton after another. If a text can take several ways,
//! libxml2 tries them until one matches. Each transition that libxml2 tries is a step. A way may
//! fail after any prefix of the text. So the steps for all prefixes count, as well as those for the
//! whole text. For each length, this module counts the steps for the worst text of this length.

use std::collections::{BTreeMap, BTreeSet};

use super::pattern_automaton::PatternAutomaton;
use super::pattern_term::{ParsedPattern, parse};
use crate::limits;

/// An upper bound on the steps of a match. It depends on the length of the text in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchingCost {
    /// Maximum steps for a text of each length. The first item is for the empty text.
    steps: Vec<u64>,
    /// Maximum number of steps that each character beyond the longest length in `steps` adds;
    /// `None` if no limit is known.
    per_character: Option<u64>,
}

impl MatchingCost {
    /// Analyses a pattern that has passed `pattern_cost::check`. Returns `None` if the pattern is
    /// malformed or too large. `work` is the amount of work that the analysis may still do. The
    /// analysis reduces it by the work done.
    pub fn of(pattern: &str, work: &mut usize) -> Option<Self> {
        let parsed = parse(pattern)?;
        Self::of_parsed(&parsed, work)
    }

    fn of_parsed(pattern: &ParsedPattern, work: &mut usize) -> Option<Self> {
        let automaton = PatternAutomaton::of(pattern)?;
        let mut best: Option<Self> = None;
        // Fewer sets of states make the analysis faster, but its result less exact.
        for supports_max in [256, 64, 8] {
            let granted = limits::PATTERN_WORK_MAX.min(*work);
            let mut explorer = StepExplorer {
                automaton: &automaton,
                worst: Vec::new(),
                supports_max,
                is_merged: false,
                work_left: granted,
            };
            let cost = explorer.explore();
            *work -= granted - explorer.work_left;

            let is_exact = explorer.work_left > 0 && !explorer.is_merged;
            let is_final = is_exact || cost.per_character.is_some();
            if best.as_ref().is_none_or(|best| best.length_max() < cost.length_max()) {
                best = Some(cost);
            }
            if is_final {
                break;
            }
        }

        best
    }

    /// Returns the maximum number of steps for a text of `length` characters. If no limit is known,
    /// returns `u64::MAX`.
    pub fn of_length(&self, length: usize) -> u64 {
        if let Some(steps) = self.steps.get(length) {
            return *steps;
        }

        let Some(per_character) = self.per_character else { return u64::MAX };
        let last = self.steps.last().copied().unwrap_or_default();
        let further = (length + 1).saturating_sub(self.steps.len());
        let further = u64::try_from(further).unwrap_or(u64::MAX);
        last.saturating_add(per_character.saturating_mul(further))
    }

    /// Whether a text of at most `length` characters can exceed the bound on steps. False if the
    /// analysis ended before it came to a result.
    pub fn can_exceed(&self, length: usize) -> bool {
        let mut steps = self.steps.iter().take(length.saturating_add(1));
        steps.any(|steps| *steps > limits::PATTERN_STEPS_MAX)
    }

    /// Returns the length up to which every text stays within the bound on steps.
    pub fn length_max(&self) -> usize {
        let is_within = |length: usize| self.of_length(length) <= limits::PATTERN_STEPS_MAX;
        let mut low = 0;
        let mut high = limits::PAYLOAD_BYTES_MAX;
        while low < high {
            let middle = high - (high - low) / 2;
            if is_within(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }

        low
    }
}

/// The states that libxml2 can have reached after one prefix of a text, or after several prefixes
/// that are explored together.
struct WorstRuns {
    /// For each state, the maximum number of ways that lead into it.
    ways: BTreeMap<usize, u64>,
    is_changed: bool,
}

/// Explores texts in the order of their length. If one text leads into the same states as another
/// text, or into some of these states, both texts are explored together. For each state, the higher
/// of their two numbers of ways then counts.
struct StepExplorer<'a> {
    automaton: &'a PatternAutomaton,
    worst: Vec<WorstRuns>,
    /// Maximum number of sets of states that the analysis keeps apart.
    supports_max: usize,
    /// Whether the analysis had to merge sets of states because of the limit `supports_max`. The
    /// result is then less exact.
    is_merged: bool,
    work_left: usize,
}

impl StepExplorer<'_> {
    fn explore(&mut self) -> MatchingCost {
        let start = BTreeMap::from([(self.automaton.start(), 1)]);
        self.worst.push(WorstRuns { ways: start, is_changed: true });
        let mut steps = Vec::new();
        let mut sum = 0_u64;

        loop {
            let rate = self.worst.iter().map(|runs| self.steps_of(runs)).max().unwrap_or_default();
            sum = sum.saturating_add(rate);
            steps.push(sum);
            if sum > limits::PATTERN_STEPS_MAX || steps.len() > limits::PATTERN_LENGTHS_MAX {
                return MatchingCost { steps, per_character: None };
            }

            let changed = self.worst.iter_mut().filter(|runs| runs.is_changed);
            let changed: Vec<BTreeMap<usize, u64>> = changed
                .map(|runs| {
                    runs.is_changed = false;
                    runs.ways.clone()
                })
                .collect();
            if changed.is_empty() {
                return MatchingCost { steps, per_character: Some(rate) };
            }

            for ways in changed {
                for next in self.next_of(&ways) {
                    self.add(next);
                }
                if self.work_left == 0 {
                    return MatchingCost { steps, per_character: None };
                }
            }
        }
    }

    /// Returns the number of transitions that libxml2 tries for the next character, summed over all
    /// ways in `runs`.
    fn steps_of(&self, runs: &WorstRuns) -> u64 {
        runs.ways.iter().fold(0, |sum: u64, (state, ways)| {
            let tried = self.automaton.count_ways(*state).saturating_add(1);
            sum.saturating_add(ways.saturating_mul(tried))
        })
    }

    /// Returns the reached states for each possible next character, with the number of ways into
    /// each state. Leaves out states in which every continuation matches, because libxml2 never
    /// goes back from them.
    fn next_of(&mut self, from: &BTreeMap<usize, u64>) -> BTreeSet<BTreeMap<usize, u64>> {
        let mut by_group: BTreeMap<usize, BTreeMap<usize, u64>> = BTreeMap::new();
        for (state, ways) in from {
            for (next, times) in self.automaton.transitions(*state) {
                if self.automaton.is_universal(next) {
                    continue;
                }

                let groups = self.automaton.groups(next);
                self.work_left = self.work_left.saturating_sub(1 + groups.len());
                if self.work_left == 0 {
                    return BTreeSet::new();
                }
                for group in groups {
                    let reached = by_group.entry(*group).or_default().entry(next).or_insert(0);
                    *reached = reached.saturating_add(ways.saturating_mul(times));
                }
            }
        }

        by_group.into_values().collect()
    }

    /// Adds the states into which one more text leads, with their numbers of ways, to `worst`.
    /// Merges these states with an entry of `worst` if one of the two contains all states of the
    /// other, or if `worst` has its maximum number of entries.
    fn add(&mut self, ways: BTreeMap<usize, u64>) {
        let compared: usize = self.worst.iter().map(|runs| runs.ways.len().min(ways.len())).sum();
        self.work_left = self.work_left.saturating_sub(1 + compared);
        if let Some(home) = self.worst.iter_mut().find(|runs| is_subset(&ways, &runs.ways)) {
            home.is_changed |= raise(&mut home.ways, &ways);
            return;
        }

        let mut ways = ways;
        if self.worst.len() >= self.supports_max {
            self.is_merged = true;
            let overlap = |runs: &WorstRuns| {
                runs.ways.keys().filter(|state| ways.contains_key(*state)).count()
            };
            let nearest =
                (0..self.worst.len()).max_by_key(|index| self.worst.get(*index).map_or(0, overlap));
            if let Some(nearest) = nearest {
                let merged = self.worst.swap_remove(nearest);
                raise(&mut ways, &merged.ways);
            }
        }

        let known = std::mem::take(&mut self.worst);
        for runs in known {
            if is_subset(&runs.ways, &ways) {
                raise(&mut ways, &runs.ways);
            } else {
                self.worst.push(runs);
            }
        }
        self.worst.push(WorstRuns { ways, is_changed: true });
    }
}

fn is_subset(ways: &BTreeMap<usize, u64>, of: &BTreeMap<usize, u64>) -> bool {
    ways.len() <= of.len() && ways.keys().all(|state| of.contains_key(state))
}

/// Raises each number in `ways` to the number of the same state in `other`, if that number is
/// higher. Returns whether a number changed.
fn raise(ways: &mut BTreeMap<usize, u64>, other: &BTreeMap<usize, u64>) -> bool {
    let mut is_changed = false;
    for (state, count) in other {
        let known = ways.entry(*state).or_insert(0);
        is_changed |= *count > *known;
        *known = (*known).max(*count);
    }

    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(pattern: &str) -> MatchingCost {
        let mut work = limits::SCHEMA_PATTERN_WORK_MAX;
        MatchingCost::of(pattern, &mut work).unwrap()
    }

    /// Whether a text of at most `PATTERN_LENGTH_MIN` characters can exceed the bound on steps.
    fn is_too_costly(pattern: &str) -> bool {
        cost(pattern).can_exceed(limits::PATTERN_LENGTH_MIN)
    }

    #[test]
    fn patterns_with_many_ways_to_match_one_text_are_too_costly() {
        for pattern in [
            r"\s*(\w+)?\s*[\w ]*\s*[\w ,]*\s*[\w .]*;",
            r"[\w ]+( [\w ]+)*\.",
            r"([a-z]+ ?[a-z]*)+\.",
            r"(\d{1,3},?\d*)+;",
            "(a|aa)*b",
            "a*a*a*a*a*b",
            "(a|b|ab){0,40}c",
            "(a+){1,40}b",
            "(a+){1,500}b",
            "(a?){40}a",
            r"\s*[^\s,&<]+/[^\s,&<]+(\s+[^\s,&<]+/[^\s,&<]+)*\s*",
        ] {
            assert!(is_too_costly(pattern), "{pattern}: {}", cost(pattern).length_max());
        }
    }

    #[test]
    fn the_patterns_of_common_data_cost_little_for_every_text() {
        for pattern in [
            r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})",
            r"-?([1-9][0-9]{3,}|0[0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
            r"[\w.+-]+@[\w-]+(\.[\w-]+)+",
            r"[^@]+@[^\.]+\..+",
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            r"\+?[0-9 ()-]{6,20}",
            r"(\+\d{1,3}[- ]?)?\(?\d{3}\)?[- ]?\d{3}[- ]?\d{4}",
            "[A-Z]{2,4}-[0-9]{4}-[0-9]{1,6}",
            r"\d{4}(-?\d{4}){3}",
            "[A-Z]{2,2}[0-9]{2,2}[a-zA-Z0-9]{1,30}",
            r"([0-9]{1,3}\.){3}[0-9]{1,3}",
            r"[\i-[:]][\c-[:]]*",
            r"\s*\S+(\s+\S+)*\s*",
            r"(\p{L}|\p{N}|[ -])*",
            r"[\s\S]*\S[\s\S]*",
            r"[\s\S]*[A-Z]{2}\d+[\s\S]*",
            ".{1,2000}",
            "([a-z]+,?)*;",
            r"sess-[a-z0-9]{8,}(\.[A-Za-z0-9_\-]{1,64})*",
        ] {
            let length = cost(pattern).length_max();
            assert_eq!(length, limits::PAYLOAD_BYTES_MAX, "{pattern}");
        }
    }

    #[test]
    fn the_patterns_of_common_schemas_are_not_refused() {
        let patterns = [
            "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
            "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?",
            "([0-9a-fA-F]{2})*",
            "([0-9a-fA-F]{2})+",
            "[0-9A-F]{2}(:[0-9A-F]{2}){5}",
            "([0-9A-F]{2}[:-]){5}[0-9A-F]{2}",
            "(sha256:)?[0-9a-f]{64}",
            "sha(256|512)-[A-Za-z0-9+/]{43,86}={0,2}",
            "[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64}",
            r"\d+\.\d+\.\d+(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
            r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)",
            r"[~^]?\d+(\.\d+){0,2}",
            r"(>=|<=|>|<|=)?\d+(\.\d+)*( (>=|<=|>|<|=)?\d+(\.\d+)*)*",
            "[a-zA-Z]{1,8}(-[a-zA-Z0-9]{1,8})*",
            r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|\d{3}))?",
            "[a-z]{2}(_[A-Z]{2})?",
            r"[\i-[:]][\c-[:]]*(:[\i-[:]][\c-[:]]*)?",
            "[A-Za-z_][A-Za-z0-9_.-]*",
            r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*",
            "[A-Z][a-zA-Z0-9]*",
            "[a-z]+(-[a-z]+)*",
            r"-?\d{1,3}(,\d{3})*(\.\d{2})?",
            r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?",
            r"\d{1,13}(\.\d{1,2})?",
            r"P(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
            r"-?P((\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?|\d+W)",
            r"(97[89]-)?\d{1,5}-\d{1,7}-\d{1,6}-[\dX]",
            r"(97[89])?\d{9}[\dX]",
            r"\d{4}-\d{3}[\dX]",
            r"[A-Z]{2}\d{2}([A-Z0-9]{4}){2,7}[A-Z0-9]{1,2}",
            r"[A-Z]{2}\d{2}( ?[A-Z0-9]{4}){2,7}( ?[A-Z0-9]{1,3})?",
            "[A-Z]{6}[A-Z2-9][A-NP-Z0-9]([A-Z0-9]{3})?",
            "[A-Z]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?",
            "[A-Z]{2}[0-9A-Za-z+*.]{2,12}",
            r"DE\d{9}|ATU\d{8}|FR[A-Z0-9]{2}\d{9}",
            r"[A-Z]{1,3}-[A-Z]{1,2} \d{1,4}[EH]?",
            "[A-Z0-9]{1,3}[ -]?[A-Z0-9]{1,4}[ -]?[A-Z0-9]{0,3}",
            "[a-z]+/[a-z0-9.+-]+(;.*)?",
            "[a-z]+/[a-zA-Z0-9.+-]+(; ?[a-z]+=[^;]+)*",
            "(/[^/]+)+",
            "/?([^/]+/)*[^/]*",
            r#"[A-Z]:(\\[^\\/:*?"|]+)+"#,
            r"(\*|\d{1,2})( (\*|\d{1,2})){4}",
            r"(\*|\d{1,2}(-\d{1,2})?(,\d{1,2}(-\d{1,2})?)*)(/\d{1,2})?",
            r"-?\d{1,2}(\.\d+)?,-?\d{1,3}(\.\d+)?",
            r"[-+]?([1-8]?\d(\.\d+)?|90(\.0+)?), ?[-+]?(180(\.0+)?|((1[0-7]\d)|([1-9]?\d))(\.\d+)?)",
            r"https?://[^\s/]+(/[^\s]*)?",
            r"https?://[^\s/?#]+(:\d+)?(/[^\s?#]*)?(\?[^\s#]*)?(#\S*)?",
            r"urn:[a-z0-9][a-z0-9-]{0,31}:\S+",
            r"[a-zA-Z][a-zA-Z0-9+.-]*:\S+",
            r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
            r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
            r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)",
            "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
            r"(\+\d{1,3}[ -]?)?(\(\d+\)[ -]?)?\d+([ -]\d+)*",
            r"\+[1-9]\d{1,14}",
            r"\d{3}-\d{2}-\d{4}",
            r"\d{5}(-\d{4})?",
            r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}",
            r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?",
            r"\d{1,2}[./]\d{1,2}[./]\d{2,4}",
            r"\d{4}-W(0[1-9]|[1-4]\d|5[0-3])(-[1-7])?",
            r"\d{4}-(0[1-9]|1[0-2])",
            r"\d{4}-Q[1-4]",
            "#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})",
            r"v?\d+(\.\d+)*",
            r"INV-\d{4}-\d+",
            r"(feature|fix|chore)(\([a-z0-9-]+\))?!?: .+",
            r"\p{Lu}\p{L}+( \p{Lu}\p{L}+)+",
            r"[A-Za-z]+(\s[A-Za-z]+){0,4}",
            r"\w+( \w+)*",
            "[^,]+(,[^,]+)*",
            r"\d+(,\d+)*",
            r"(\d{3},)*\d{3}",
            r"(#\w+ ?)+",
            "[01]{8}( [01]{8})*",
            "[A-Z]{3}( [A-Z]{3})*",
            "M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})",
            r"([A-Z]\d{2})(\.\d{1,4})?",
            r"\d{4} ?\d{4} ?\d{4} ?\d{4}",
            r"\d{4}([ -]?\d{4}){3}",
            r"10\.\d{4,9}/[-._;()/:A-Za-z0-9]+",
            r"(\d+(px|em|%))( \d+(px|em|%)){0,3}",
            "([a-z]+)(:[a-z]+)*",
            r"\S+",
            r"\s*\S[\s\S]*",
            "[!-~]([ -~]*[!-~])?",
            r"[A-Z]{3}\d{3}[A-Z]{1}",
            "[0-9]{1}[0-9]{1,2}",
            "[A-Z]{1}[a-z]+( [A-Z]{1}[a-z]+)*",
            r"0\.|1\.[0-9]{1,3}",
            r"([0-2])((\.0)|(\.[1-9][0-9]*))*",
        ];
        for pattern in patterns {
            let length = cost(pattern).length_max();
            assert!(length >= limits::PATTERN_LENGTH_MIN, "{pattern}: {length}");
        }
    }

    #[test]
    fn a_pattern_of_square_cost_permits_texts_of_some_thousand_characters() {
        for pattern in [".*a.*", r".*\S.*", r"[+]?\d*[.]?\d*", ".{0,1000}x.{0,1000}"] {
            let length = cost(pattern).length_max();
            assert!((2_000..10_000).contains(&length), "{pattern}: {length}");
        }

        let cubic = cost(r".+@.+\..+").length_max();
        assert!((200..500).contains(&cubic), "{cubic}");
    }

    /// Near the end of the counted repetition, libxml2 also tries to repeat the group. These
    /// additional ways make the patterns costly.
    #[test]
    fn a_counted_repetition_after_a_repeated_group_is_costly_for_some_hundred_characters() {
        let length = cost(r"(([a-z0-9-]+\.)+[a-z]{2,6})(/.*)?").length_max();
        assert!((limits::PATTERN_LENGTH_MIN..1_000).contains(&length), "{length}");
        for pattern in ["(.)+[ab]{2}", r"([a-z]+\.)+[a-z]{2}", "(a{2})*a{1}", "((a{2})+(a))*b"] {
            assert!(is_too_costly(pattern), "{pattern}");
        }
    }

    /// If another group follows a repeated group, libxml2 tries the following group last. So inside
    /// the following group, no alternative is left to try.
    #[test]
    fn a_group_of_counted_repetitions_after_a_repeated_group_costs_little() {
        for pattern in ["(a{4})*(a{2}b|a{3}c)?", "(a{4})+(a{2}b|a{3}c)", r"([a-z]+\.)+([a-z]{2})"] {
            let length = cost(pattern).length_max();
            assert_eq!(length, limits::PAYLOAD_BYTES_MAX, "{pattern}");
        }
    }

    #[test]
    fn many_sets_of_states_are_merged_and_cost_no_more_than_a_bound() {
        let merged = cost(".*(foo|bar).{0,30}(baz)");
        assert!(merged.length_max() >= limits::PATTERN_LENGTH_MIN, "{}", merged.length_max());
    }

    #[test]
    fn the_analysis_ends_when_its_work_is_used_up() {
        assert_eq!(cost(".*a.*").per_character, None);
        let mut work = 50;
        let stopped = MatchingCost::of(".*a.*", &mut work).unwrap();
        assert_eq!(stopped.of_length(10_000), u64::MAX);
        assert!(stopped.length_max() < 100, "{}", stopped.length_max());
        assert!(!stopped.can_exceed(limits::PATTERN_LENGTH_MIN));
        assert_eq!(work, 0);
    }

    #[test]
    fn a_repeated_choice_of_very_many_words_is_not_analysed() {
        let words: Vec<String> = (0..1_000).map(|n| format!("w{n:03}")).collect();
        let pattern = format!("({})*", words.join("|"));
        let mut work = limits::SCHEMA_PATTERN_WORK_MAX;
        assert_eq!(MatchingCost::of(&pattern, &mut work), None);
    }
}
