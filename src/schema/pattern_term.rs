//! Parses a pattern of XSD into terms. Supports every kind of character set that the pattern
//! language has.

use std::collections::BTreeMap;
use std::ops::Range;

use super::character_set::CharacterSet;
use crate::limits;

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternTerm {
    /// One character of a set. The number is the index of the set in [`ParsedPattern::sets`].
    Set(usize),
    Sequence(Vec<PatternTerm>),
    Choice(Vec<PatternTerm>),
    Repeat {
        inner: Box<PatternTerm>,
        min: usize,
        /// Maximum number of repetitions; `None` if there is no upper limit.
        max: Option<usize>,
    },
}

impl PatternTerm {
    /// Returns the number of character sets in the term if each counted repetition is written out.
    pub fn size(&self) -> usize {
        let sum = |terms: &[Self]| {
            terms.iter().fold(0, |sum: usize, term| sum.saturating_add(term.size()))
        };

        match self {
            Self::Set(_) => 1,
            Self::Sequence(terms) | Self::Choice(terms) => sum(terms),
            Self::Repeat { inner, min, max } => {
                inner.size().saturating_mul(max.unwrap_or(*min).max(1))
            }
        }
    }
}

/// A pattern as a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedPattern {
    pub term: PatternTerm,
    /// The sets of characters in the pattern, each set once.
    pub sets: Vec<CharacterSet>,
    /// The byte ranges of the groups that the pattern repeats, each with its quantifier. Inner
    /// groups come before the groups that contain them.
    pub repeated_groups: Vec<Range<usize>>,
    /// Whether libxml2 finds every match of the pattern. libxml2 misses some matches of counted
    /// groups. It also misses some matches of patterns such as `(a{2}|a?)`, because it confuses
    /// counted characters with the same characters elsewhere in the pattern.
    pub is_reliable: bool,
}

/// Parses a pattern. Returns `None` if the text is not a pattern of XSD. The caller must have
/// checked how deep the groups of the pattern are nested.
pub fn parse(pattern: &str) -> Option<ParsedPattern> {
    let mut reader = TermReader {
        pattern,
        at: 0,
        sets: BTreeMap::new(),
        uses: Vec::new(),
        counted: Vec::new(),
        repeated_groups: Vec::new(),
    };
    let term = reader.choice()?;
    if reader.peek().is_some() {
        return None;
    }

    let is_counted_alone = |term: &PatternTerm| match term {
        PatternTerm::Set(set) => reader.uses.iter().filter(|used| *used == set).count() == 1,
        _ => false,
    };
    let is_reliable = reader.counted.iter().all(is_counted_alone);

    let mut sets: Vec<(usize, CharacterSet)> =
        reader.sets.into_iter().map(|(set, index)| (index, set)).collect();
    sets.sort_unstable_by_key(|(index, _)| *index);
    let sets = sets.into_iter().map(|(_, set)| set).collect();
    Some(ParsedPattern { term, sets, repeated_groups: reader.repeated_groups, is_reliable })
}

struct TermReader<'a> {
    pattern: &'a str,
    /// Byte offset of the next character.
    at: usize,
    sets: BTreeMap<CharacterSet, usize>,
    /// For each character or set in the text of the pattern, the index of its set.
    uses: Vec<usize>,
    /// Terms with a counted quantifier such as `{2,4}`.
    counted: Vec<PatternTerm>,
    repeated_groups: Vec<Range<usize>>,
}

/// An item of a character class: one character, which may begin a range, or a set.
enum SetItem {
    Char(char),
    Set(CharacterSet),
}

impl SetItem {
    fn into_set(self) -> CharacterSet {
        match self {
            Self::Char(c) => CharacterSet::of_char(c),
            Self::Set(set) => set,
        }
    }
}

impl TermReader<'_> {
    fn peek(&self) -> Option<char> {
        self.pattern.get(self.at..)?.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip(&mut self, c: char) -> bool {
        let is_next = self.peek() == Some(c);
        if is_next {
            self.at += c.len_utf8();
        }
        is_next
    }

    fn choice(&mut self) -> Option<PatternTerm> {
        let mut branches = vec![self.branch()?];
        while self.skip('|') {
            branches.push(self.branch()?);
        }

        Some(PatternTerm::Choice(branches))
    }

    fn branch(&mut self) -> Option<PatternTerm> {
        let mut terms = Vec::new();
        while !matches!(self.peek(), None | Some('|' | ')')) {
            let start = self.at;
            let is_group = self.peek() == Some('(');
            let mut term = self.atom()?;
            if self.peek() == Some('{') {
                self.counted.push(term.clone());
            }
            if let Some((min, max)) = self.quantifier()? {
                term = PatternTerm::Repeat { inner: Box::new(term), min, max };
                if is_group {
                    self.repeated_groups.push(start..self.at);
                }
                if matches!(self.peek(), Some('?' | '*' | '+' | '{')) {
                    return None;
                }
            }
            terms.push(term);
        }

        Some(PatternTerm::Sequence(terms))
    }

    fn atom(&mut self) -> Option<PatternTerm> {
        let set = match self.next()? {
            '(' => {
                let inner = self.choice()?;
                return self.skip(')').then_some(inner);
            }
            '[' => self.class(1)?,
            '.' => CharacterSet::of_dot(),
            '\\' => self.escape()?.into_set(),
            '*' | '+' | '?' => return None,
            c => CharacterSet::of_char(c),
        };

        let next = self.sets.len();
        let index = *self.sets.entry(set).or_insert(next);
        self.uses.push(index);
        Some(PatternTerm::Set(index))
    }

    /// Parses a quantifier. Returns the outer `None` for a malformed quantifier, and the inner
    /// `None` if there is no quantifier.
    fn quantifier(&mut self) -> Option<Option<(usize, Option<usize>)>> {
        let range = match self.peek() {
            Some('?') => (0, Some(1)),
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('{') => return self.counted().map(Some),
            _ => return Some(None),
        };

        self.next();
        Some(Some(range))
    }

    /// Parses a counted quantifier such as `{2,4}`.
    fn counted(&mut self) -> Option<(usize, Option<usize>)> {
        let rest = self.pattern.get(self.at + 1..)?;
        let (inside, _) = rest.split_once('}')?;
        self.at += inside.len() + 2;
        let (min, max) = inside.split_once(',').unwrap_or((inside, inside));
        let max: Option<usize> = if max.is_empty() { None } else { Some(max.parse().ok()?) };
        let min: usize = min.parse().ok()?;
        max.is_none_or(|max| min <= max).then_some((min, max))
    }

    /// Parses an escape after its backslash.
    fn escape(&mut self) -> Option<SetItem> {
        let c = self.next()?;
        Some(match c {
            'n' => SetItem::Char('\n'),
            'r' => SetItem::Char('\r'),
            't' => SetItem::Char('\t'),
            'p' | 'P' => {
                let rest = self.pattern.get(self.at..)?.strip_prefix('{')?;
                let (name, _) = rest.split_once('}')?;
                self.at += name.len() + 2;
                let set = CharacterSet::of_property(name);
                SetItem::Set(if c == 'p' { set } else { set.complement() })
            }
            c => match CharacterSet::of_escape(c) {
                Some(set) => SetItem::Set(set),
                None => SetItem::Char(c),
            },
        })
    }

    /// Parses the rest of a character class after its opening bracket, including a class that it
    /// subtracts. `depth` is the nesting depth of the class, which is 1 for the outermost class.
    fn class(&mut self, depth: usize) -> Option<CharacterSet> {
        if depth > limits::PATTERN_DEPTH_MAX {
            return None;
        }

        let is_negated = self.skip('^');
        let mut set = CharacterSet::default();
        let settled = |set: CharacterSet| if is_negated { set.complement() } else { set };

        loop {
            let item = match self.next()? {
                ']' => return Some(settled(set)),
                '-' if self.skip('[') => {
                    let removed = self.class(depth + 1)?;
                    return self.skip(']').then(|| settled(set).without(&removed));
                }
                '\\' => self.escape()?,
                c => SetItem::Char(c),
            };

            let item = match item {
                SetItem::Char(low) if self.begins_range() => self.range_from(low)?,
                item => item.into_set(),
            };
            set = set.union(&item);
        }
    }

    /// Whether the next character is a hyphen between the two ends of a range.
    fn begins_range(&self) -> bool {
        let mut ahead = self.pattern.get(self.at..).unwrap_or_default().chars();
        ahead.next() == Some('-') && !matches!(ahead.next(), None | Some('[' | ']'))
    }

    fn range_from(&mut self, low: char) -> Option<CharacterSet> {
        self.next();
        let high = match self.next()? {
            '\\' => match self.escape()? {
                SetItem::Char(c) => c,
                SetItem::Set(_) => return None,
            },
            c => c,
        };

        (low <= high).then(|| CharacterSet::of_range(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_read_with_its_repeated_groups() {
        let parsed = parse(r"(a{2}(b|\d)*)+c").unwrap();
        let groups: Vec<&str> =
            parsed.repeated_groups.iter().map(|range| &r"(a{2}(b|\d)*)+c"[range.clone()]).collect();
        assert_eq!(groups, [r"(b|\d)*", r"(a{2}(b|\d)*)+"]);
        assert_eq!(parsed.sets.len(), 4);
        assert_eq!(parsed.term.size(), 5);
    }

    #[test]
    fn a_set_that_occurs_twice_is_kept_once() {
        assert_eq!(parse(r"\d{2}-\d{2}[0-9]").unwrap().sets.len(), 3);
        assert_eq!(parse("[a-c][abc][c-ca-b]").unwrap().sets.len(), 1);
        assert_eq!(parse("[a-z-[aeiou]][^-a][-a][a-]").unwrap().sets.len(), 3);
    }

    #[test]
    fn a_counted_repetition_is_reliable_only_of_characters_that_do_not_occur_elsewhere() {
        for pattern in ["a+(b|a)*", ".*[0-9]{3}.*", "[A-Z]{2,4}-[0-9]{1,6}"] {
            assert!(parse(pattern).unwrap().is_reliable, "{pattern}");
        }
        for pattern in ["(a{2})|a?", "(ab?){2}", "a{0,3}ba{0,3}"] {
            assert!(!parse(pattern).unwrap().is_reliable, "{pattern}");
        }
    }

    #[test]
    fn a_malformed_pattern_is_not_read() {
        let deep = format!("{}{}", "[a-".repeat(5_000), "]".repeat(5_000));
        for pattern in [
            "(a",
            "a)",
            "*a",
            "a{x}",
            "a{2",
            "a{3,2}",
            "a{2}{3}",
            "[a",
            "[z-a]",
            "a\\",
            r"\pL",
            r"[a-\d]",
            deep.as_str(),
        ] {
            assert_eq!(parse(pattern), None, "{pattern}");
        }
    }
}
