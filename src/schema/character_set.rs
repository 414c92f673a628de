//! Sets of characters in patterns of XSD, made to decide whether two sets have a common character.
//!
//! The members of a set are symbols. An ASCII character is one symbol. For the other characters,
//! this program has no table of general categories. So each of them is represented by 29 symbols,
//! one for each category to which the character may belong. For example, the set of all letters
//! contains, for every such character, its symbols for the categories of letters. So this set
//! shares no symbol with the set of all digits.

use std::ops::Range;

const ASCII_END: u32 = 128;
/// Number of Unicode code points. Each general category has as many symbols, one for each code
/// point.
const PLANE: u32 = 0x11_0000;

const CATEGORIES: [&str; 29] = [
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
    "Pf", "Po", "Zs", "Zl", "Zp", "Sm", "Sc", "Sk", "So", "Cc", "Cf", "Co", "Cn",
];

/// Exclusive end of the range of all symbols. The range begins with 0.
pub const SYMBOLS_END: u32 = ASCII_END + PLANE * CATEGORIES.len() as u32;

/// Whether a character belongs to a set, as far as this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMembership {
    Certain,
    Possible,
    Impossible,
}

/// A set of symbols. For some sets, such as the characters of XML names, this program does not know
/// which characters outside ASCII belong to them. So a set has two bounds: the symbols that may
/// belong to it, and the symbols that certainly do.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CharacterSet {
    /// Sorted ranges that contain every symbol of the set, and possibly more.
    possible: Vec<(u32, u32)>,
    /// Sorted ranges that contain only symbols of the set.
    certain: Vec<(u32, u32)>,
}

impl CharacterSet {
    fn exact(ranges: Vec<(u32, u32)>) -> Self {
        Self { possible: ranges.clone(), certain: ranges }
    }

    pub fn of_char(c: char) -> Self {
        Self::of_range(c, c)
    }

    /// Returns the set of the characters from `low` to `high`, both included.
    pub fn of_range(low: char, high: char) -> Self {
        let start = u32::from(low);
        let end = u32::from(high) + 1;
        let mut ranges = Vec::new();
        if start < ASCII_END {
            ranges.push((start, end.min(ASCII_END)));
        }

        if end > ASCII_END {
            let planes = planes(|_| true);
            let start = start.max(ASCII_END);
            ranges.extend(planes.map(|plane| (plane.start + start, plane.start + end)));
        }

        Self::exact(union(&[], &ranges))
    }

    /// Returns the set of characters that an escape such as `\d` means. `name` is the letter after
    /// the backslash. Returns `None` if the letter does not name a set.
    pub fn of_escape(name: char) -> Option<Self> {
        let is_name_start = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':');
        Some(match name {
            'd' => Self::of_category("Nd"),
            's' => [' ', '\t', '\n', '\r']
                .into_iter()
                .map(Self::of_char)
                .fold(Self::default(), |all, one| all.union(&one)),
            'w' => ["P", "Z", "C"]
                .into_iter()
                .map(Self::of_category)
                .fold(Self::default(), |all, one| all.union(&one))
                .complement(),
            'i' => Self::of_ascii(is_name_start),
            'c' => {
                Self::of_ascii(|c| is_name_start(c) || c.is_ascii_digit() || matches!(c, '-' | '.'))
            }
            'D' | 'S' | 'W' | 'I' | 'C' => Self::of_escape(name.to_ascii_lowercase())?.complement(),
            _ => return None,
        })
    }

    /// Returns the set of `.`: every character except line ends.
    pub fn of_dot() -> Self {
        Self::of_char('\n').union(&Self::of_char('\r')).complement()
    }

    /// Returns the set of characters that a property such as `\p{Lu}` means. `name` is the name of
    /// a general category (`Lu`), a letter for all categories that begin with it (`L`), or the name
    /// of a block (`IsBasicLatin`).
    pub fn of_property(name: &str) -> Self {
        match name.strip_prefix("Is") {
            Some("BasicLatin") => Self::exact(vec![(0, ASCII_END)]),
            Some(_) => Self { possible: vec![(ASCII_END, SYMBOLS_END)], certain: Vec::new() },
            None => Self::of_category(name),
        }
    }

    fn of_category(name: &str) -> Self {
        let is_in = |c: &u8| ascii_category(char::from(*c)).starts_with(name);
        let mut ranges: Vec<(u32, u32)> =
            (0..128_u8).filter(is_in).map(|c| (u32::from(c), u32::from(c) + 1)).collect();
        ranges.extend(planes(|category| category.starts_with(name)).map(|p| (p.start, p.end)));
        Self::exact(union(&[], &ranges))
    }

    /// Returns a set of which only the ASCII members are known. Any other character may belong to
    /// it.
    fn of_ascii(is_in: impl Fn(char) -> bool) -> Self {
        let known = (0..128_u8).filter(|c| is_in(char::from(*c)));
        let known: Vec<(u32, u32)> = known.map(|c| (u32::from(c), u32::from(c) + 1)).collect();
        Self { possible: union(&known, &[(ASCII_END, SYMBOLS_END)]), certain: union(&known, &[]) }
    }

    pub fn union(&self, other: &Self) -> Self {
        Self {
            possible: union(&self.possible, &other.possible),
            certain: union(&self.certain, &other.certain),
        }
    }

    pub fn complement(&self) -> Self {
        Self { possible: complement(&self.certain), certain: complement(&self.possible) }
    }

    /// Returns the symbols of this set that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        self.complement().union(other).complement()
    }

    /// Returns the ranges that contain every symbol of the set, and possibly more.
    pub fn possible(&self) -> &[(u32, u32)] {
        &self.possible
    }

    /// Returns whether a character belongs to the set. The general category of a character outside
    /// ASCII is unknown. So the membership of such a character is certain only if the set contains
    /// it in every category.
    pub fn membership(&self, c: char) -> SetMembership {
        let c = u32::from(c);
        let symbols: Vec<u32> = if c < ASCII_END {
            vec![c]
        } else {
            planes(|_| true).map(|plane| plane.start + c).collect()
        };

        if symbols.iter().all(|symbol| contains(&self.certain, *symbol)) {
            SetMembership::Certain
        } else if symbols.iter().any(|symbol| contains(&self.possible, *symbol)) {
            SetMembership::Possible
        } else {
            SetMembership::Impossible
        }
    }

    /// Returns ranges that contain only symbols of the set.
    pub fn certain(&self) -> &[(u32, u32)] {
        &self.certain
    }
}

/// Whether sorted ranges contain a symbol.
fn contains(ranges: &[(u32, u32)], symbol: u32) -> bool {
    let next = ranges.partition_point(|(start, _)| *start <= symbol);
    let range = next.checked_sub(1).and_then(|index| ranges.get(index));
    range.is_some_and(|(_, end)| symbol < *end)
}

/// Whether a range of symbols contains a character that XML permits.
pub fn contains_xml(symbols: &Range<u32>) -> bool {
    let is_permitted = |c: u32| matches!(c, 9 | 10 | 13) || c >= 32;
    symbols.end > 32 || symbols.clone().any(is_permitted)
}

/// Returns the symbols of all characters outside ASCII for each category that `is_wanted` selects.
fn planes(is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = Range<u32>> {
    let starts = (0_u32..).map(|index| ASCII_END + index * PLANE);
    let wanted = CATEGORIES.iter().zip(starts).filter(move |(category, _)| is_wanted(category));
    wanted.map(|(_, start)| start..start + PLANE)
}

/// Returns the general category of a character of ASCII.
fn ascii_category(c: char) -> &'static str {
    match c {
        'A'..='Z' => "Lu",
        'a'..='z' => "Ll",
        '0'..='9' => "Nd",
        ' ' => "Zs",
        '_' => "Pc",
        '-' => "Pd",
        '(' | '[' | '{' => "Ps",
        ')' | ']' | '}' => "Pe",
        '$' => "Sc",
        '+' | '<' | '=' | '>' | '|' | '~' => "Sm",
        '^' | '`' => "Sk",
        c if c.is_ascii_control() => "Cc",
        _ => "Po",
    }
}

/// Returns the union of two lists of ranges. The result is sorted, and ranges that overlap or touch
/// are merged.
fn union(one: &[(u32, u32)], other: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut ranges = [one, other].concat();
    ranges.sort_unstable();
    let mut out: Vec<(u32, u32)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }

    out
}

/// Returns all symbols outside the given ranges, which are sorted.
fn complement(ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    let mut at = 0;
    for (start, end) in ranges {
        if *start > at {
            out.push((at, *start));
        }
        at = *end;
    }

    if at < SYMBOLS_END {
        out.push((at, SYMBOLS_END));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_a_symbol(one: &CharacterSet, other: &CharacterSet) -> bool {
        let common = complement(&union(&complement(&one.possible), &complement(&other.possible)));
        !common.is_empty()
    }

    #[test]
    fn sets_share_a_symbol_only_if_a_character_can_be_in_both() {
        let letters = CharacterSet::of_property("L");
        let digits = CharacterSet::of_escape('d').unwrap();
        let words = CharacterSet::of_escape('w').unwrap();
        let spaces = CharacterSet::of_escape('s').unwrap();
        let names = CharacterSet::of_escape('i').unwrap();
        let umlauts = CharacterSet::of_range('\u{e4}', '\u{fc}');

        assert!(!share_a_symbol(&letters, &digits));
        assert!(share_a_symbol(&letters, &words));
        assert!(share_a_symbol(&letters, &umlauts));
        assert!(share_a_symbol(&names, &umlauts));
        assert!(!share_a_symbol(&words, &spaces));
        assert!(!share_a_symbol(&words, &CharacterSet::of_char('-')));
        assert!(share_a_symbol(&words, &CharacterSet::of_char('+')));
        assert!(!share_a_symbol(&CharacterSet::of_dot(), &CharacterSet::of_char('\n')));
        assert!(!share_a_symbol(&letters.without(&umlauts), &umlauts));
        assert!(!share_a_symbol(&umlauts.complement(), &umlauts));
    }

    #[test]
    fn a_character_is_certainly_in_the_sets_that_name_it_and_possibly_in_those_of_a_category() {
        let words = CharacterSet::of_escape('w').unwrap();
        let dot = CharacterSet::of_dot();
        assert_eq!(words.membership('a'), SetMembership::Certain);
        assert_eq!(words.membership('\u{e4}'), SetMembership::Possible);
        assert_eq!(words.membership(' '), SetMembership::Impossible);
        assert_eq!(dot.membership('\u{1f600}'), SetMembership::Certain);
        assert_eq!(dot.membership('\n'), SetMembership::Impossible);
        let umlauts = CharacterSet::of_range('\u{e4}', '\u{fc}');
        assert_eq!(umlauts.membership('\u{fc}'), SetMembership::Certain);
        assert_eq!(umlauts.membership('\u{fd}'), SetMembership::Impossible);
    }

    #[test]
    fn an_unknown_membership_is_possible_and_not_certain() {
        let names = CharacterSet::of_escape('i').unwrap();
        let others = CharacterSet::of_escape('I').unwrap();
        let umlaut = CharacterSet::of_char('\u{e4}');
        assert!(share_a_symbol(&names, &umlaut));
        assert!(share_a_symbol(&others, &umlaut));
        assert!(names.certain().iter().all(|(_, end)| *end <= ASCII_END));
        assert!(others.certain().iter().all(|(_, end)| *end <= ASCII_END));
    }
}
