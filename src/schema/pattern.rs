//! A text that matches a pattern of the schema language, for examples.
//!
//! Reads the common part of the language; what it cannot read it gives up on.

/// A text that should match, with `wish` repetitions where the pattern leaves the number open.
pub fn sample(pattern: &str, wish: usize) -> Option<String> {
    let mut reader = Reader { rest: pattern.chars().peekable(), depth: 0 };
    let tree = reader.alternatives()?;
    if reader.rest.next().is_some() {
        return None;
    }
    let mut out = String::new();
    write(&tree, wish, &mut out);
    (out.len() <= LENGTH_MAX).then_some(out)
}

const LENGTH_MAX: usize = 4096;
const DEPTH_MAX: usize = 32;
/// Tried in this order for a class of characters.
const CANDIDATES: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/,;@#+*?!$%&=()[]{}<>'\"\\|^~` \t\n\u{e9}\u{4e2d}\u{3b1}\u{416}";

enum Node {
    Char(char),
    Class(Class),
    Sequence(Vec<Node>),
    /// Only the first alternative is ever used.
    Repeat {
        inner: Box<Node>,
        min: usize,
        max: usize,
    },
}

/// A set of characters.
struct Class {
    negated: bool,
    items: Vec<Item>,
    without: Option<Box<Class>>,
}

enum Item {
    Range(char, char),
    Known(char),
    Nested(Class),
}

impl Class {
    fn holds(&self, c: char) -> bool {
        let listed = self.items.iter().any(|item| match item {
            Item::Range(low, high) => (*low..=*high).contains(&c),
            Item::Known(name) => known(*name, c),
            Item::Nested(class) => class.holds(c),
        });
        listed != self.negated && !self.without.as_ref().is_some_and(|w| w.holds(c))
    }

    fn pick(&self) -> char {
        let candidate = CANDIDATES.chars().find(|c| self.holds(*c));
        let listed = self.items.iter().find_map(|item| match item {
            Item::Range(low, _) => Some(*low),
            Item::Known(_) | Item::Nested(_) => None,
        });
        candidate.or(listed).unwrap_or('a')
    }
}

/// Whether `c` belongs to a class with a letter for a name.
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

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    depth: usize,
}

impl Reader<'_> {
    /// The first branch that is not empty; the others are only read.
    fn alternatives(&mut self) -> Option<Node> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut chosen = self.branch()?;
        while self.rest.next_if_eq(&'|').is_some() {
            let other = self.branch()?;
            if matches!(&chosen, Node::Sequence(nodes) if nodes.is_empty()) {
                chosen = other;
            }
        }
        self.depth -= 1;
        Some(chosen)
    }

    fn branch(&mut self) -> Option<Node> {
        let mut nodes = Vec::new();
        while let Some(c) = self.rest.peek().copied() {
            if c == '|' || c == ')' {
                break;
            }
            self.rest.next();
            let node = self.atom(c)?;
            nodes.push(self.repeated(node)?);
        }
        Some(Node::Sequence(nodes))
    }

    fn atom(&mut self, c: char) -> Option<Node> {
        Some(match c {
            '(' => {
                let inner = self.alternatives()?;
                self.rest.next_if_eq(&')')?;
                inner
            }
            '[' => Node::Class(self.class()?),
            '.' => {
                Node::Class(Class { negated: false, items: vec![Item::Known('.')], without: None })
            }
            '\\' => match self.escape()? {
                Item::Range(c, _) => Node::Char(c),
                item => Node::Class(Class { negated: false, items: vec![item], without: None }),
            },
            c => Node::Char(c),
        })
    }

    /// After a backslash: one character, or a class.
    fn escape(&mut self) -> Option<Item> {
        let one = |c| Item::Range(c, c);
        Some(match self.rest.next()? {
            'n' => one('\n'),
            'r' => one('\r'),
            't' => one('\t'),
            name @ ('d' | 'D' | 's' | 'S' | 'w' | 'W' | 'i' | 'I' | 'c' | 'C') => Item::Known(name),
            sign @ ('p' | 'P') => {
                self.rest.next_if_eq(&'{')?;
                let name: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
                Item::Nested(Class { negated: sign == 'P', items: category(&name)?, without: None })
            }
            c => one(c),
        })
    }

    /// After an opening bracket, to the closing one.
    fn class(&mut self) -> Option<Class> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        let mut items: Vec<Item> = Vec::new();
        loop {
            let item = match self.rest.next()? {
                ']' => return Some(Class { negated, items, without: None }),
                '-' if self.rest.peek() == Some(&'[') => {
                    self.rest.next();
                    let without = Some(Box::new(self.class()?));
                    self.rest.next_if_eq(&']')?;
                    return Some(Class { negated, items, without });
                }
                '\\' => self.escape()?,
                c => Item::Range(c, c),
            };
            let Item::Range(low, _) = item else {
                items.push(item);
                continue;
            };
            items.push(self.range_from(low)?);
        }
    }

    /// `low` alone, or with what follows a hyphen.
    fn range_from(&mut self, low: char) -> Option<Item> {
        let mut ahead = self.rest.clone();
        let range = ahead.next() == Some('-') && !matches!(ahead.peek(), Some(']' | '[') | None);
        if !range {
            return Some(Item::Range(low, low));
        }
        self.rest.next();
        let high = match self.rest.next()? {
            '\\' => match self.escape()? {
                Item::Range(c, _) => c,
                _ => return None,
            },
            c => c,
        };
        Some(Item::Range(low, high))
    }

    fn repeated(&mut self, node: Node) -> Option<Node> {
        let (min, max) = match self.rest.peek() {
            Some('?') => (0, 1),
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('{') => {
                self.rest.next();
                let inside: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
                let (low, high) = inside.split_once(',').unwrap_or((&inside, &inside));
                let max = if high.is_empty() { usize::MAX } else { high.parse().ok()? };
                return Some(Node::Repeat { inner: Box::new(node), min: low.parse().ok()?, max });
            }
            _ => return Some(node),
        };
        self.rest.next();
        Some(Node::Repeat { inner: Box::new(node), min, max })
    }
}

/// The general categories, as far as the candidates tell them apart.
fn category(name: &str) -> Option<Vec<Item>> {
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
    Some(ranges.iter().map(|(low, high)| Item::Range(*low, *high)).collect())
}

fn write(node: &Node, wish: usize, out: &mut String) {
    if out.len() > LENGTH_MAX {
        return;
    }
    match node {
        Node::Char(c) => out.push(*c),
        Node::Class(class) => out.push(class.pick()),
        Node::Sequence(nodes) => nodes.iter().for_each(|n| write(n, wish, out)),
        Node::Repeat { inner, min, max } => {
            let times = wish.clamp(*min, *max).min(LENGTH_MAX);
            for _ in 0..times {
                write(inner, wish, out);
            }
        }
    }
}
