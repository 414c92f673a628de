//! The automaton by which libxml2 matches a pattern: one state for each character set that the
//! pattern lists, and a start state.
//!
//! A counted repetition is written out if it is small. A large one becomes a repetition without
//! upper limit, which can only raise the number of ways to match a text.

use std::collections::{BTreeMap, BTreeSet};

use super::character_set::{CharacterSet, SYMBOLS_END, contains_xml};
use super::pattern_term::{ParsedPattern, PatternTerm};
use crate::limits;

/// Maximum transitions that [`PatternAutomaton::can_match`] tries. So many take about 1 s.
const TRIED_MAX: usize = 100_000_000;

/// Transitions from a state: the next state, and the number of ways in which libxml2 makes this
/// transition.
pub type Transitions = BTreeMap<usize, u64>;

pub struct PatternAutomaton {
    /// Transitions from each state. The last state is the start state.
    transitions: Vec<Transitions>,
    /// The set of characters that leads into each state but the start state.
    sets: Vec<usize>,
    /// For each set of characters, its groups of symbols.
    groups_of_set: Vec<Vec<usize>>,
    /// States in which every continuation of the text matches.
    universal: BTreeSet<usize>,
    /// States in which a match can end.
    last: BTreeSet<usize>,
    /// The sets of characters of the pattern.
    characters: Vec<CharacterSet>,
}

impl PatternAutomaton {
    /// Builds the automaton of a pattern. Returns `None` if the automaton would be too large.
    pub fn of(pattern: &ParsedPattern) -> Option<Self> {
        let written_out = AutomatonBuilder::build(pattern, limits::PATTERN_REPEATS_WRITTEN_OUT);
        let (mut builder, whole) = match written_out {
            Some(built) => built,
            None => AutomatonBuilder::build(pattern, 1)?,
        };

        let partition = SymbolPartition::of(&pattern.sets)?;
        let universal = partition.universal_states(&builder, &whole.last);
        let start = whole.first.iter().map(|state| (*state, 1)).collect();
        let mut last: BTreeSet<usize> = whole.last.into_iter().collect();
        if whole.is_nullable {
            last.insert(builder.transitions.len());
        }
        builder.transitions.push(start);

        Some(Self {
            transitions: builder.transitions,
            sets: builder.sets,
            groups_of_set: partition.groups_of_set,
            universal,
            last,
            characters: pattern.sets.clone(),
        })
    }

    /// Whether `text` may match. If false, the text does certainly not match, or the check would
    /// take too long. Follows all ways at once, so its time grows with the length of the text.
    pub fn can_match(&self, text: &str) -> bool {
        let mut states = BTreeSet::from([self.start()]);
        let mut tried = 0_usize;
        for c in text.chars() {
            let mut known: BTreeMap<usize, bool> = BTreeMap::new();
            let mut next_states = BTreeSet::new();
            for state in &states {
                for (next, _) in self.transitions(*state) {
                    tried += 1;
                    let set = self.sets.get(next).copied().unwrap_or(usize::MAX);
                    let characters = self.characters.get(set);
                    let is_possible = || characters.is_some_and(|set| set.may_contain(c));
                    if *known.entry(set).or_insert_with(is_possible) {
                        next_states.insert(next);
                    }
                }
            }

            if next_states.is_empty() || tried > TRIED_MAX {
                return false;
            }
            states = next_states;
        }

        !states.is_disjoint(&self.last)
    }

    pub fn start(&self) -> usize {
        self.transitions.len() - 1
    }

    pub fn transitions(&self, state: usize) -> impl Iterator<Item = (usize, u64)> {
        let from = self.transitions.get(state).into_iter().flatten();
        from.map(|(next, ways)| (*next, *ways))
    }

    /// Returns the number of transitions from a state.
    pub fn degree(&self, state: usize) -> u64 {
        self.transitions(state).fold(0, |sum: u64, (_, ways)| sum.saturating_add(ways))
    }

    /// Returns the groups of symbols that lead into a state. Any two symbols of one group lead into
    /// the same states.
    pub fn groups(&self, state: usize) -> &[usize] {
        let set = self.sets.get(state).copied().unwrap_or(usize::MAX);
        self.groups_of_set.get(set).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether every continuation of the text matches once the automaton is in `state`. libxml2
    /// reaches the end of the text from there without going back.
    pub fn is_universal(&self, state: usize) -> bool {
        self.universal.contains(&state)
    }
}

/// The states of one term of the pattern.
#[derive(Default)]
struct AutomatonFragment {
    /// Whether the term matches the empty text.
    is_nullable: bool,
    /// States that a match of the term can enter first.
    first: Vec<usize>,
    /// States in which a match of the term can end.
    last: Vec<usize>,
}

impl AutomatonFragment {
    fn empty() -> Self {
        Self { is_nullable: true, ..Self::default() }
    }
}

struct AutomatonBuilder {
    /// The set of characters that leads into each state.
    sets: Vec<usize>,
    transitions: Vec<Transitions>,
    count: usize,
    /// Maximum size of a counted repetition that is written out.
    written_out: usize,
}

impl AutomatonBuilder {
    /// Builds the states of a pattern. Returns `None` if there are too many states or transitions.
    fn build(pattern: &ParsedPattern, written_out: usize) -> Option<(Self, AutomatonFragment)> {
        let mut builder = Self { sets: Vec::new(), transitions: Vec::new(), count: 0, written_out };
        let whole = builder.term(&pattern.term)?;
        Some((builder, whole))
    }

    fn term(&mut self, term: &PatternTerm) -> Option<AutomatonFragment> {
        match term {
            PatternTerm::Set(set) => {
                let state = self.sets.len();
                if state >= limits::PATTERN_STATES_MAX {
                    return None;
                }
                self.sets.push(*set);
                self.transitions.push(Transitions::new());
                Some(AutomatonFragment {
                    is_nullable: false,
                    first: vec![state],
                    last: vec![state],
                })
            }
            PatternTerm::Sequence(terms) => {
                let mut whole = AutomatonFragment::empty();
                for term in terms {
                    let next = self.term(term)?;
                    self.append(&mut whole, next)?;
                }
                Some(whole)
            }
            PatternTerm::Choice(branches) => {
                let mut whole = AutomatonFragment::default();
                for branch in branches {
                    let branch = self.term(branch)?;
                    whole.is_nullable |= branch.is_nullable;
                    whole.first.extend(branch.first);
                    whole.last.extend(branch.last);
                }
                Some(whole)
            }
            PatternTerm::Repeat { inner, min, max } => self.repeat(inner, *min, *max),
        }
    }

    fn repeat(
        &mut self,
        inner: &PatternTerm,
        min: usize,
        max: Option<usize>,
    ) -> Option<AutomatonFragment> {
        let copies = max.unwrap_or(min.max(1));
        if copies == 0 {
            return Some(AutomatonFragment::empty());
        }

        if copies > 1 && inner.size().saturating_mul(copies) > self.written_out {
            let once = self.term(inner)?;
            // libxml2 counts empty repetitions, so a loop would hide ways to match a text.
            if once.is_nullable {
                return None;
            }
            self.link(&once.last, &once.first, Linking::Counted)?;
            return Some(AutomatonFragment { is_nullable: min == 0, ..once });
        }

        let mut whole = AutomatonFragment::empty();
        let mut ends = Vec::new();
        let mut is_inner_nullable = false;
        for index in 1..=copies {
            let copy = self.term(inner)?;
            is_inner_nullable = copy.is_nullable;
            if max.is_none() && index == copies {
                let linking = if copies > 1 { Linking::Counted } else { Linking::Plain };
                self.link(&copy.last, &copy.first, linking)?;
            }
            if index >= min {
                ends.extend_from_slice(&copy.last);
            }
            self.append(&mut whole, copy)?;
        }

        if !is_inner_nullable {
            whole.last = ends;
        }
        whole.is_nullable |= min == 0;
        Some(whole)
    }

    /// Appends `next` to a sequence.
    fn append(&mut self, whole: &mut AutomatonFragment, next: AutomatonFragment) -> Option<()> {
        self.link(&whole.last, &next.first, Linking::Plain)?;
        if whole.is_nullable {
            whole.first.extend_from_slice(&next.first);
        }

        if !next.is_nullable {
            whole.last.clear();
        }
        whole.last.extend(next.last);
        whole.is_nullable &= next.is_nullable;
        Some(())
    }

    /// Adds a transition from each of `from` to each of `to`. Returns `None` if there are too many.
    fn link(&mut self, from: &[usize], to: &[usize], linking: Linking) -> Option<()> {
        self.count = self.count.saturating_add(from.len().saturating_mul(to.len()));
        if self.count > limits::PATTERN_TRANSITIONS_MAX {
            return None;
        }

        for state in from {
            let transitions = self.transitions.get_mut(*state)?;
            for next in to {
                let ways = transitions.entry(*next).or_insert(0);
                match linking {
                    Linking::Plain => *ways = (*ways).max(1),
                    Linking::Counted => *ways += 1,
                }
            }
        }

        Some(())
    }
}

/// How libxml2 treats a transition that the automaton already has.
#[derive(Clone, Copy)]
enum Linking {
    /// libxml2 drops the second transition.
    Plain,
    /// libxml2 keeps both transitions, because one of them changes a counter.
    Counted,
}

/// All symbols, in groups: the symbols of one group belong to the same sets of a pattern.
struct SymbolPartition {
    /// For each set of the pattern, the groups whose symbols can belong to it.
    groups_of_set: Vec<Vec<usize>>,
    /// The pairs of sets that a symbol possibly belongs to, and sets that it certainly belongs to.
    memberships: BTreeSet<(BTreeSet<usize>, BTreeSet<usize>)>,
}

/// A symbol at which the membership in a set begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MembershipChange {
    symbol: u32,
    set: usize,
    is_certain: bool,
    is_start: bool,
}

impl SymbolPartition {
    /// Divides all symbols. Returns `None` if this would take too long.
    fn of(sets: &[CharacterSet]) -> Option<Self> {
        let mut memberships = BTreeSet::new();
        let mut possible = BTreeSet::new();
        let mut certain = BTreeSet::new();
        let mut work = 0_usize;

        let changes = membership_changes(sets);
        let mut changes = changes.iter().peekable();
        let mut at = 0;
        while at < SYMBOLS_END {
            while let Some(change) = changes.next_if(|change| change.symbol == at) {
                let members = if change.is_certain { &mut certain } else { &mut possible };
                if change.is_start {
                    members.insert(change.set);
                } else {
                    members.remove(&change.set);
                }
            }

            let end = changes.peek().map_or(SYMBOLS_END, |change| change.symbol);
            if contains_xml(&(at..end)) {
                work += possible.len() + certain.len() + 1;
                memberships.insert((possible.clone(), certain.clone()));
            }
            if work > limits::PATTERN_WORK_MAX {
                return None;
            }
            at = end;
        }

        let groups: BTreeSet<&BTreeSet<usize>> = memberships.iter().map(|(sets, _)| sets).collect();
        let mut groups_of_set = vec![Vec::new(); sets.len()];
        for (group, members) in groups.into_iter().enumerate() {
            for set in members {
                if let Some(groups) = groups_of_set.get_mut(*set) {
                    groups.push(group);
                }
            }
        }

        Some(Self { groups_of_set, memberships })
    }

    /// Returns the states in which every continuation of the text matches: a match can end there,
    /// every symbol has a transition, and all transitions lead to such states.
    fn universal_states(&self, builder: &AutomatonBuilder, last: &[usize]) -> BTreeSet<usize> {
        let next_of = |state: &usize| builder.transitions.get(*state).into_iter().flatten();
        let accepts_all = |state: &usize| {
            let sets = next_of(state).filter_map(|(next, _)| builder.sets.get(*next));
            let sets: BTreeSet<usize> = sets.copied().collect();
            self.memberships.iter().all(|(_, certain)| !certain.is_disjoint(&sets))
        };

        let mut universal: BTreeSet<usize> =
            last.iter().copied().filter(|state| accepts_all(state)).collect();
        loop {
            let stays = |state: &usize| next_of(state).all(|(next, _)| universal.contains(next));
            let kept: BTreeSet<usize> = universal.iter().copied().filter(stays).collect();
            if kept.len() == universal.len() {
                return kept;
            }
            universal = kept;
        }
    }
}

/// Returns the changes of membership in all sets, in the order of the symbols.
fn membership_changes(sets: &[CharacterSet]) -> Vec<MembershipChange> {
    let mut changes = Vec::new();
    for (set, members) in sets.iter().enumerate() {
        for (is_certain, ranges) in [(false, members.possible()), (true, members.certain())] {
            for (start, end) in ranges {
                changes.push(MembershipChange { symbol: *start, set, is_certain, is_start: true });
                changes.push(MembershipChange { symbol: *end, set, is_certain, is_start: false });
            }
        }
    }

    // ASCII is apart, because only ASCII contains symbols that XML does not permit.
    let ascii = [32, 128].map(|symbol| MembershipChange {
        symbol,
        set: usize::MAX,
        is_certain: false,
        is_start: false,
    });
    changes.extend(ascii);
    changes.sort_unstable();
    changes
}
