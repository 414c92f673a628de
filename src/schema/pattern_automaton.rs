//! The automaton with which libxml2 matches a pattern. It has one state for each character set in
//! the text of the pattern, and a start state.
//!
//! A small counted repetition is written out. A large one becomes a repetition without an upper
//! limit, which can only raise the number of ways to match a text.

use std::collections::{BTreeMap, BTreeSet};

use super::character_set::{CharacterSet, SYMBOLS_END, SetMembership, contains_xml};
use super::pattern_term::{ParsedPattern, PatternTerm};
use crate::limits;

/// Transitions from a state: each next state, with the number of ways in which libxml2 makes the
/// transition to it.
pub type Transitions = BTreeMap<usize, u64>;

pub struct PatternAutomaton {
    /// Transitions from each state. The last state is the start state.
    transitions: Vec<Transitions>,
    /// For each state except the start state, the set of characters that leads into the state.
    sets: Vec<usize>,
    /// For each set of characters, the groups of symbols that can belong to the set.
    groups_of_set: Vec<Vec<usize>>,
    /// States in which every continuation of the text matches.
    universal: BTreeSet<usize>,
    /// States in which a match can end.
    last: BTreeSet<usize>,
    /// The sets of characters of the pattern.
    characters: Vec<CharacterSet>,
    /// Whether libxml2 finds a match for every text that the automaton matches.
    is_reliable: bool,
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
            is_reliable: pattern.is_reliable && !builder.is_wider,
        })
    }

    /// Returns, for each set of characters of the pattern, whether `c` belongs to the set.
    pub fn memberships(&self, c: char) -> Vec<SetMembership> {
        self.characters.iter().map(|set| set.membership(c)).collect()
    }

    /// Returns the set of characters that leads into a state; `None` for the start state.
    pub fn set_of(&self, state: usize) -> Option<usize> {
        self.sets.get(state).copied()
    }

    /// Whether libxml2 certainly accepts a text if the automaton is in `state` at the end of the
    /// text.
    pub fn is_end(&self, state: usize) -> bool {
        self.is_reliable && self.last.contains(&state)
    }

    pub fn start(&self) -> usize {
        self.transitions.len() - 1
    }

    pub fn transitions(&self, state: usize) -> impl Iterator<Item = (usize, u64)> {
        let from = self.transitions.get(state).into_iter().flatten();
        from.map(|(next, ways)| (*next, *ways))
    }

    /// Returns the number of ways in which libxml2 makes transitions from a state.
    pub fn count_ways(&self, state: usize) -> u64 {
        self.transitions(state).fold(0, |sum: u64, (_, ways)| sum.saturating_add(ways))
    }

    /// Returns the groups of symbols that lead into a state. Any two symbols of one group lead into
    /// the same states.
    pub fn groups(&self, state: usize) -> &[usize] {
        let groups = self.set_of(state).and_then(|set| self.groups_of_set.get(set));
        groups.map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether every continuation of the text matches once the automaton is in `state`. From this
    /// state, libxml2 reaches the end of the text without going back.
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
    /// If the term ends with a repeated group, the states that libxml2 can enter from the end of
    /// the term to repeat the group.
    again: Vec<usize>,
    /// If the term can begin with a counted repetition, the states directly before the last
    /// character of this repetition. From these states, libxml2 also tries those alternatives to
    /// the repetition that come later in the order that `append` describes.
    retried: Vec<usize>,
    /// Those `retried` states of the term's parts from which libxml2 can skip the rest of the term.
    /// From these states, libxml2 also tries each way into the part of the pattern that follows the
    /// term.
    open: Vec<usize>,
    /// If the term ends with a repeated group, the `retried` states of this group. From these
    /// states, libxml2 also tries a group that follows the term.
    repeated: Vec<usize>,
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
    /// Number of transitions that were added, repeated ones included.
    added: usize,
    /// Maximum size, in character sets, of a counted repetition that is written out.
    written_out: usize,
    /// Whether the automaton has ways that the automaton of libxml2 does not have.
    is_wider: bool,
    /// Additional ways for counted repetitions: pairs of a state and the next state.
    retries: Vec<(usize, usize)>,
}

impl AutomatonBuilder {
    /// Builds the states of a pattern. Returns `None` if there are too many states or transitions.
    fn build(pattern: &ParsedPattern, written_out: usize) -> Option<(Self, AutomatonFragment)> {
        let mut builder = Self {
            sets: Vec::new(),
            transitions: Vec::new(),
            added: 0,
            written_out,
            is_wider: false,
            retries: Vec::new(),
        };
        let whole = builder.term(&pattern.term)?;

        for (state, next) in std::mem::take(&mut builder.retries) {
            *builder.transitions.get_mut(state)?.entry(next).or_insert(0) += 1;
            builder.is_wider = true;
        }
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
                    first: vec![state],
                    last: vec![state],
                    ..AutomatonFragment::default()
                })
            }
            PatternTerm::Sequence(terms) => {
                let mut whole = AutomatonFragment::empty();
                for term in terms {
                    let next = self.term(term)?;
                    if is_counted_once(term) {
                        self.retry(&whole.last, &whole.again)?;
                    }
                    self.append(&mut whole, next, is_of_one_set(term))?;
                }
                Some(whole)
            }
            PatternTerm::Choice(branches) => {
                let (first, others) = branches.split_first()?;
                let mut whole = self.term(first)?;
                for branch in others {
                    let branch = self.term(branch)?;
                    // In libxml2, all branches end where the first branch ends. So after each of
                    // them it can repeat the group with which the first branch ends.
                    self.link(&branch.last, &whole.again, Linking::Plain)?;
                    self.retry(&whole.retried, &branch.first)?;
                    if branch.is_nullable {
                        whole.first.extend_from_slice(&whole.again);
                    }
                    whole.is_nullable |= branch.is_nullable;
                    whole.first.extend(branch.first);
                    whole.last.extend(branch.last);
                    whole.retried.extend(branch.retried);
                    whole.open.extend(branch.open);
                }

                if whole.is_nullable {
                    merge(&mut whole.open, &whole.retried);
                }
                Some(whole)
            }
            PatternTerm::Repeat { inner, min, max } => {
                let mut whole = self.repeat(inner, *min, *max)?;
                let is_group = !matches!(**inner, PatternTerm::Set(_));
                let is_repeated = is_group && *min <= 1 && max.is_none();
                if is_repeated && *min == 0 {
                    // In libxml2, a group ends where the repeated group at its end does. So where
                    // it leaves out the outer group, it can still repeat the inner one.
                    merge(&mut whole.first, &whole.again);
                }
                whole.again = if is_repeated { whole.first.clone() } else { Vec::new() };
                whole.repeated = if is_repeated { whole.retried.clone() } else { Vec::new() };
                Some(whole)
            }
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
            self.is_wider = true;
            return Some(AutomatonFragment { is_nullable: min == 0, ..once });
        }

        let mut whole = AutomatonFragment::empty();
        let mut ends = Vec::new();
        let mut retried = Vec::new();
        let mut is_inner_nullable = false;
        for index in 1..=copies {
            let copy = self.term(inner)?;
            is_inner_nullable = copy.is_nullable;
            if max.is_none() && index == copies {
                let linking = if copies > 1 { Linking::Counted } else { Linking::Plain };
                self.link(&copy.last, &copy.first, linking)?;
                self.retry(&copy.open, &copy.first)?;
            }
            if index >= min {
                ends.extend_from_slice(&copy.last);
            }
            if max.is_some() && index + 1 == copies && matches!(inner, PatternTerm::Set(_)) {
                retried.extend_from_slice(&copy.last);
            }
            self.append(&mut whole, copy, false)?;
        }

        if !is_inner_nullable {
            whole.last = ends;
        }
        whole.is_nullable |= min == 0;
        whole.retried.extend(retried);
        if min == 0 {
            merge(&mut whole.open, &whole.retried);
        }
        Some(whole)
    }

    /// Appends `next` to a sequence. `is_of_one_set` is true if `next` is a set of characters,
    /// possibly repeated.
    ///
    /// At the end of a repeated group, libxml2 tries three ways in this order: the characters that
    /// follow the group, a repetition of the group, and a group that follows. Near the end of a
    /// counted repetition, libxml2 also tries those alternatives to the repetition that come later
    /// in this order.
    fn append(
        &mut self,
        whole: &mut AutomatonFragment,
        next: AutomatonFragment,
        is_of_one_set: bool,
    ) -> Option<()> {
        self.link(&whole.last, &next.first, Linking::Plain)?;
        let mut before = whole.open.clone();
        if is_of_one_set {
            self.retry(&next.retried, &whole.again)?;
        } else {
            merge(&mut before, &whole.repeated);
        }
        self.retry(&before, &next.first)?;

        if whole.is_nullable {
            whole.first.extend_from_slice(&next.first);
            whole.retried.extend(next.retried);
        }
        if next.is_nullable {
            merge(&mut whole.open, &whole.repeated);
        } else {
            whole.last.clear();
            whole.open.clear();
        }
        whole.last.extend(next.last);
        merge(&mut whole.open, &next.open);
        whole.again = next.again;
        whole.repeated = next.repeated;
        whole.is_nullable &= next.is_nullable;
        Some(())
    }

    /// Records one additional way from each state in `from` to each state in `to`. Returns `None`
    /// if there are too many ways.
    fn retry(&mut self, from: &[usize], to: &[usize]) -> Option<()> {
        self.added = self.added.saturating_add(from.len().saturating_mul(to.len()));
        if self.added > limits::PATTERN_TRANSITIONS_MAX {
            return None;
        }

        for state in from {
            self.retries.extend(to.iter().map(|next| (*state, *next)));
        }
        Some(())
    }

    /// Adds a transition from each state in `from` to each state in `to`. Returns `None` if there
    /// are too many transitions.
    fn link(&mut self, from: &[usize], to: &[usize], linking: Linking) -> Option<()> {
        self.added = self.added.saturating_add(from.len().saturating_mul(to.len()));
        if self.added > limits::PATTERN_TRANSITIONS_MAX {
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

/// Whether a term is a single set of characters, possibly repeated. Returns false for a group.
fn is_of_one_set(term: &PatternTerm) -> bool {
    match term {
        PatternTerm::Set(_) => true,
        PatternTerm::Repeat { inner, .. } => matches!(**inner, PatternTerm::Set(_)),
        PatternTerm::Sequence(_) | PatternTerm::Choice(_) => false,
    }
}

/// Whether a term is a single set of characters with the count 1, as in `a{1}`. libxml2 treats such
/// a term as a counted repetition.
fn is_counted_once(term: &PatternTerm) -> bool {
    let is_once = matches!(term, PatternTerm::Repeat { min: 1, max: Some(1), .. });
    is_once && is_of_one_set(term)
}

/// Adds `others` to `states`, each state once.
fn merge(states: &mut Vec<usize>, others: &[usize]) {
    states.extend_from_slice(others);
    states.sort_unstable();
    states.dedup();
}

/// How libxml2 treats a new transition if the automaton already has one between the same two
/// states.
#[derive(Clone, Copy)]
enum Linking {
    /// If there already is a transition between the two states, libxml2 drops the new one.
    Plain,
    /// libxml2 keeps both transitions, because one of them changes a counter.
    Counted,
}

/// A division of all symbols into groups. All symbols of one group can belong to the same sets of a
/// pattern.
struct SymbolPartition {
    /// For each set of the pattern, the groups whose symbols can belong to it.
    groups_of_set: Vec<Vec<usize>>,
    /// The memberships that occur among the symbols. Each pair contains the sets to which a symbol
    /// possibly belongs, and the sets to which it certainly belongs.
    memberships: BTreeSet<(BTreeSet<usize>, BTreeSet<usize>)>,
}

/// A symbol at which a range of a set begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MembershipChange {
    symbol: u32,
    set: usize,
    is_certain: bool,
    is_start: bool,
}

impl SymbolPartition {
    /// Divides all symbols into groups by the sets of a pattern. Returns `None` if this would take
    /// too long.
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

    /// Returns the states in which every continuation of the text matches. In such a state, a match
    /// can end, there is a transition for every symbol, and all transitions lead to states of this
    /// kind.
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

/// Returns the symbols at which the ranges of the sets begin or end, in the order of the symbols.
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
