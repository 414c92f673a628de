//! Generates texts that match an XSD pattern, and checks whether a text matches a pattern. Examples
//! of payloads need both.
//!
//! Only the common part of the pattern language is supported.

use std::collections::BTreeSet;

/// Generates a text that should match `pattern`. Each repetition gets the permitted number that is
/// closest to `wish`. Returns `None` if the pattern is not supported, or if the text would be too
/// long.
pub fn sample(pattern: &str, wish: usize) -> Option<String> {
    let tree = parse(pattern)?;
    let mut out = String::new();
    write(&tree, wish, &mut out);
    (out.len() <= LENGTH_MAX).then_some(out)
}

/// Whether the whole `text` matches `pattern`. Returns `None` if the pattern is not supported.
pub fn matches(pattern: &str, text: &str) -> Option<bool> {
    let tree = parse(pattern)?;
    let text: Vec<char> = text.chars().take(LENGTH_MAX).collect();
    Some(ends(&tree, &text, &BTreeSet::from([0])).contains(&text.len()))
}

fn parse(pattern: &str) -> Option<PatternNode> {
    let mut reader = PatternReader { rest: pattern.chars().peekable(), depth: 0 };
    let tree = reader.alternatives()?;
    reader.rest.next().is_none().then_some(tree)
}

/// Returns the positions at which a match of `node` can end. The match begins at one of the
/// positions `starts`.
fn ends(node: &PatternNode, text: &[char], starts: &BTreeSet<usize>) -> BTreeSet<usize> {
    let one = |holds: &dyn Fn(char) -> bool| {
        let fits = starts.iter().filter(|at| text.get(**at).is_some_and(|c| holds(*c)));
        fits.map(|at| at + 1).collect()
    };

    match node {
        PatternNode::Char(wanted) => one(&|c| c == *wanted),
        PatternNode::Class(class) => one(&|c| class.holds(c)),
        PatternNode::Sequence(nodes) => {
            nodes.iter().fold(starts.clone(), |starts, node| ends(node, text, &starts))
        }
        PatternNode::Choice(branches) => {
            branches.iter().flat_map(|branch| ends(branch, text, starts)).collect()
        }
        PatternNode::Repeat { inner, min, max } => {
            let mut last = starts.clone();
            for _ in 0..(*min).min(text.len() + 1) {
                last = ends(inner, text, &last);
            }

            let mut all = last.clone();
            for _ in *min..(*max).min(text.len() + 1) {
                last = ends(inner, text, &last).difference(&all).copied().collect();
                if last.is_empty() {
                    break;
                }
                all.extend(&last);
            }

            all
        }
    }
}

const LENGTH_MAX: usize = 4096;
const DEPTH_MAX: usize = 32;
/// Characters from which a text for a character class is chosen, in order of preference.
const CANDIDATES: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/,;@#+*?!$%&=()[]{}<>'\"\\|^~` \t\n\u{e9}\u{4e2d}\u{3b1}\u{416}";

enum PatternNode {
    Char(char),
    Class(CharacterClass),
    Sequence(Vec<PatternNode>),
    /// Alternatives. A generated text uses the first alternative that is not the empty text.
    Choice(Vec<PatternNode>),
    Repeat {
        inner: Box<PatternNode>,
        min: usize,
        max: usize,
    },
}

/// A set of characters.
struct CharacterClass {
    negated: bool,
    items: Vec<ClassItem>,
    without: Option<Box<CharacterClass>>,
}

enum ClassItem {
    Range(char, char),
    Known(char),
    Nested(CharacterClass),
}

impl CharacterClass {
    fn holds(&self, c: char) -> bool {
        let listed = self.items.iter().any(|item| match item {
            ClassItem::Range(low, high) => (*low..=*high).contains(&c),
            ClassItem::Known(name) => known(*name, c),
            ClassItem::Nested(class) => class.holds(c),
        });
        listed != self.negated && !self.without.as_ref().is_some_and(|w| w.holds(c))
    }

    fn pick(&self) -> char {
        let candidate = CANDIDATES.chars().find(|c| self.holds(*c));
        let listed = self.items.iter().find_map(|item| match item {
            ClassItem::Range(low, _) => Some(*low),
            ClassItem::Known(_) | ClassItem::Nested(_) => None,
        });
        candidate.or(listed).unwrap_or('a')
    }
}

/// Whether `c` belongs to the predefined class `name`, such as `d` for digits.
fn known(name: char, c: char) -> bool {
    let start = c.is_alphabetic() || c == '_' || c == ':';
    match name {
        'd' => c.is_ascii_digit(),
        'D' => !c.is_ascii_digit(),
        's' => matches!(c, ' ' | '\t' | '\n' | '\r'),
        'S' => !matches!(c, ' ' | '\t' | '\n' | '\r'),
        'w' => c.is_alphanumeric(),
        'W' => !c.is_alphanumeric(),
        'i' => start,
        'I' => !start,
        'c' => start || c.is_numeric() || c == '-' || c == '.',
        'C' => !(start || c.is_numeric() || c == '-' || c == '.'),
        _ => c != '\n' && c != '\r',
    }
}

struct PatternReader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    depth: usize,
}

impl PatternReader<'_> {
    fn alternatives(&mut self) -> Option<PatternNode> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }

        let mut branches = vec![self.branch()?];
        while self.rest.next_if_eq(&'|').is_some() {
            branches.push(self.branch()?);
        }

        self.depth -= 1;
        Some(PatternNode::Choice(branches))
    }

    fn branch(&mut self) -> Option<PatternNode> {
        let mut nodes = Vec::new();
        while let Some(c) = self.rest.peek().copied() {
            if c == '|' || c == ')' {
                break;
            }
            self.rest.next();
            let node = self.atom(c)?;
            nodes.push(self.repeated(node)?);
        }

        Some(PatternNode::Sequence(nodes))
    }

    fn atom(&mut self, c: char) -> Option<PatternNode> {
        Some(match c {
            '(' => {
                let inner = self.alternatives()?;
                self.rest.next_if_eq(&')')?;
                inner
            }
            '[' => PatternNode::Class(self.class()?),
            '.' => PatternNode::Class(CharacterClass {
                negated: false,
                items: vec![ClassItem::Known('.')],
                without: None,
            }),
            '\\' => match self.escape()? {
                ClassItem::Range(c, _) => PatternNode::Char(c),
                item => PatternNode::Class(CharacterClass {
                    negated: false,
                    items: vec![item],
                    without: None,
                }),
            },
            c => PatternNode::Char(c),
        })
    }

    /// Parses the part of an escape after the backslash: a character, or a character class. Returns
    /// `None` if this module does not support the escape.
    fn escape(&mut self) -> Option<ClassItem> {
        let literal = |c| ClassItem::Range(c, c);
        Some(match self.rest.next()? {
            'n' => literal('\n'),
            'r' => literal('\r'),
            't' => literal('\t'),
            name @ ('d' | 'D' | 's' | 'S' | 'w' | 'W' | 'i' | 'I' | 'c' | 'C') => {
                ClassItem::Known(name)
            }
            sign @ ('p' | 'P') => {
                self.rest.next_if_eq(&'{')?;
                let name: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
                ClassItem::Nested(CharacterClass {
                    negated: sign == 'P',
                    items: category(&name)?,
                    without: None,
                })
            }
            c => literal(c),
        })
    }

    /// Parses the part of a character class after the opening bracket. Returns `None` if the class
    /// is incomplete, or if this module does not support it.
    fn class(&mut self) -> Option<CharacterClass> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        let mut items: Vec<ClassItem> = Vec::new();

        loop {
            let item = match self.rest.next()? {
                ']' => return Some(CharacterClass { negated, items, without: None }),
                '-' if self.rest.peek() == Some(&'[') => {
                    self.rest.next();
                    let without = Some(Box::new(self.class()?));
                    self.rest.next_if_eq(&']')?;
                    return Some(CharacterClass { negated, items, without });
                }
                '\\' => self.escape()?,
                c => ClassItem::Range(c, c),
            };

            let ClassItem::Range(low, _) = item else {
                items.push(item);
                continue;
            };
            items.push(self.range_from(low)?);
        }
    }

    /// Parses a range of characters that begins with `low`. If no range follows, returns only
    /// `low`. If the end of the range is invalid, returns `None`.
    fn range_from(&mut self, low: char) -> Option<ClassItem> {
        let mut ahead = self.rest.clone();
        let range = ahead.next() == Some('-') && !matches!(ahead.peek(), Some(']' | '[') | None);
        if !range {
            return Some(ClassItem::Range(low, low));
        }

        self.rest.next();
        let high = match self.rest.next()? {
            '\\' => match self.escape()? {
                ClassItem::Range(c, _) => c,
                _ => return None,
            },
            c => c,
        };

        Some(ClassItem::Range(low, high))
    }

    fn repeated(&mut self, node: PatternNode) -> Option<PatternNode> {
        let (min, max) = match self.rest.peek() {
            Some('?') => (0, 1),
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('{') => {
                self.rest.next();
                let inside: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
                let (low, high) = inside.split_once(',').unwrap_or((&inside, &inside));
                let max = if high.is_empty() { usize::MAX } else { high.parse().ok()? };
                return Some(PatternNode::Repeat {
                    inner: Box::new(node),
                    min: low.parse().ok()?,
                    max,
                });
            }
            _ => return Some(node),
        };

        self.rest.next();
        Some(PatternNode::Repeat { inner: Box::new(node), min, max })
    }
}

/// Returns some characters of a Unicode general category or block, for generated texts. Returns
/// `None` if this function knows no characters of it.
fn category(name: &str) -> Option<Vec<ClassItem>> {
    let ranges: &[(char, char)] = match name {
        "L" => &[('a', 'z'), ('A', 'Z'), ('\u{e9}', '\u{e9}')],
        "Lu" => &[('A', 'Z')],
        "Ll" => &[('a', 'z')],
        "N" | "Nd" => &[('0', '9')],
        "P" | "Po" => &[('.', '.'), (',', ',')],
        "Pd" => &[('-', '-')],
        "S" | "Sm" => &[('+', '+')],
        "Z" | "Zs" => &[(' ', ' ')],
        "IsBasicLatin" => &[('\u{0}', '\u{7f}')],
        _ => return None,
    };

    Some(ranges.iter().map(|(low, high)| ClassItem::Range(*low, *high)).collect())
}

fn write(node: &PatternNode, wish: usize, out: &mut String) {
    if out.len() > LENGTH_MAX {
        return;
    }

    match node {
        PatternNode::Char(c) => out.push(*c),
        PatternNode::Class(class) => out.push(class.pick()),
        PatternNode::Sequence(nodes) => nodes.iter().for_each(|n| write(n, wish, out)),
        PatternNode::Choice(branches) => {
            let is_empty =
                |node: &&PatternNode| matches!(node, PatternNode::Sequence(n) if n.is_empty());
            let chosen = branches.iter().find(|branch| !is_empty(branch)).or(branches.first());
            chosen.into_iter().for_each(|branch| write(branch, wish, out));
        }
        PatternNode::Repeat { inner, min, max } => {
            let times = wish.clamp(*min, *max).min(LENGTH_MAX);
            for _ in 0..times {
                write(inner, wish, out);
            }
        }
    }
}
