//! The names that Rust code declares: types, fields, variants, functions, modules, constants.

use crate::source::{closing, words};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    Struct,
    Enum,
    Trait,
    TypeAlias,
    Field,
    Variant,
    Function,
    Module,
    Constant,
}

impl ItemKind {
    pub fn is_type(self) -> bool {
        matches!(self, Self::Struct | Self::Enum | Self::Trait | Self::TypeAlias)
    }

    pub fn noun(self) -> &'static str {
        match self {
            Self::Struct | Self::Enum | Self::Trait | Self::TypeAlias => "type",
            Self::Field => "field",
            Self::Variant => "variant",
            Self::Function => "function",
            Self::Module => "module",
            Self::Constant => "constant",
        }
    }
}

/// A declared name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredItem {
    pub kind: ItemKind,
    pub name: String,
    /// Offset of the keyword, or of the name of a field or a variant.
    pub at: usize,
    /// Whether the item is declared `pub` without a restriction.
    pub is_public: bool,
}

const KEYWORDS: [(&str, ItemKind); 8] = [
    ("struct", ItemKind::Struct),
    ("enum", ItemKind::Enum),
    ("trait", ItemKind::Trait),
    ("type", ItemKind::TypeAlias),
    ("fn", ItemKind::Function),
    ("mod", ItemKind::Module),
    ("const", ItemKind::Constant),
    ("static", ItemKind::Constant),
];

/// Every declaration in `code`, where comments and literals must be blanked.
pub fn declared_items(code: &str) -> Vec<DeclaredItem> {
    let mut found = Vec::new();
    for (keyword, kind) in KEYWORDS {
        for at in words(code, keyword) {
            if let Some(item) = declared_at(code, keyword, kind, at) {
                let members = members(code, &item).into_iter();
                found.extend(members.flat_map(|member| {
                    let fields = member.fields.into_iter().map(|field| field.item);
                    std::iter::once(member.item).chain(fields)
                }));
                found.push(item);
            }
        }
    }
    found.sort_by_key(|item| item.at);
    found
}

fn declared_at(code: &str, keyword: &str, kind: ItemKind, at: usize) -> Option<DeclaredItem> {
    let rest = &code[at + keyword.len()..];
    let gap = rest.len() - rest.trim_start().len();
    let name = identifier(rest.trim_start());
    if gap == 0 || name.is_empty() {
        return None;
    }

    let before = code[..at].trim_end();
    let is_declared = match kind {
        // An associated type declares no type of the tree.
        ItemKind::TypeAlias => depth_at(code, at) == 0,
        ItemKind::Constant => {
            rest.trim_start()[name.len()..].trim_start().starts_with(':')
                && !before.ends_with(['*', '<', ','])
        }
        _ => true,
    };
    let is_public = before
        .rsplit(['\n', '{', '}', ';', ']'])
        .next()
        .is_some_and(|line| line.split_whitespace().any(|word| word == "pub"));
    is_declared.then(|| DeclaredItem { kind, name: name.to_owned(), at, is_public })
}

fn depth_at(code: &str, at: usize) -> usize {
    let open = code[..at].bytes().filter(|byte| *byte == b'{').count();
    let closed = code[..at].bytes().filter(|byte| *byte == b'}').count();
    open.saturating_sub(closed)
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// A field of a struct or of a variant, or a variant.
pub struct Member {
    pub item: DeclaredItem,
    /// Attributes and visibility before the name.
    pub attributes: String,
    /// Named fields of a variant.
    pub fields: Vec<Member>,
}

/// Fields of a struct; variants of an enum, with their fields.
pub fn members(code: &str, item: &DeclaredItem) -> Vec<Member> {
    let kind = match item.kind {
        ItemKind::Struct => ItemKind::Field,
        ItemKind::Enum => ItemKind::Variant,
        _ => return Vec::new(),
    };
    body_of(code, item).map_or_else(Vec::new, |(start, end)| listed(code, start, end, kind))
}

/// Range of an item's body, from after the opening brace to the closing brace.
fn body_of(code: &str, item: &DeclaredItem) -> Option<(usize, usize)> {
    let open = item.at + code[item.at..].find(['{', ';'])?;
    code[open..].starts_with('{').then(|| (open + 1, closing(code, open) - 1))
}

/// The members between two offsets, separated by commas.
fn listed(code: &str, start: usize, end: usize, kind: ItemKind) -> Vec<Member> {
    let mut found = Vec::new();
    for (from, to) in separated(code, start, end) {
        let (at, is_public) = past_attributes(code, from, to);
        let name = identifier(&code[at..to]).to_owned();
        if name.is_empty() {
            continue;
        }

        let after = at + name.len();
        let is_record = code[after..to].trim_start().starts_with('{');
        let fields = if kind == ItemKind::Variant && is_record {
            let open = after + code[after..to].find('{').unwrap_or_default();
            listed(code, open + 1, closing(code, open) - 1, ItemKind::Field)
        } else {
            Vec::new()
        };
        let attributes = code[from..at].to_owned();
        found.push(Member { item: DeclaredItem { kind, name, at, is_public }, attributes, fields });
    }
    found
}

/// Ranges between the commas that stand outside of brackets.
fn separated(code: &str, start: usize, end: usize) -> Vec<(usize, usize)> {
    let bytes = code.as_bytes();
    let mut ranges = Vec::new();
    let mut depth = 0_usize;
    let mut from = start;
    for at in start..end {
        match bytes[at] {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if bytes[at - 1] == b'-' || bytes[at - 1] == b'=' => {}
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                ranges.push((from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    ranges.push((from, end));
    ranges
}

/// Start of a member's name, and whether the member is `pub`.
fn past_attributes(code: &str, mut from: usize, to: usize) -> (usize, bool) {
    let mut is_public = false;
    loop {
        from += code[from..to].len() - code[from..to].trim_start().len();
        let rest = &code[from..to];
        if rest.starts_with("#[") {
            from += bracketed(rest);
        } else if let Some(after) = rest.strip_prefix("pub").filter(|r| !r.starts_with(['_'])) {
            let is_word = !after.starts_with(|c: char| c.is_alphanumeric());
            if !is_word {
                return (from, is_public);
            }
            is_public = !after.starts_with('(');
            from += 3 + if after.starts_with('(') { bracketed(after) } else { 0 };
        } else {
            return (from, is_public);
        }
    }
}

/// Length of the text up to the bracket that closes the first bracket of the text.
fn bracketed(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The words of a name in `snake_case` or `CamelCase`, in lower case.
pub fn words_of(name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in name.split('_') {
        let mut word = String::new();
        let mut before_is_lower = false;
        for c in part.chars() {
            if c.is_uppercase() && before_is_lower {
                found.push(std::mem::take(&mut word));
            }
            before_is_lower = c.is_lowercase() || c.is_ascii_digit();
            word.extend(c.to_lowercase());
        }
        found.push(word);
    }
    found.retain(|word| !word.is_empty());
    found
}

#[test]
fn declarations_are_found_with_their_members() {
    let code = "
        pub struct Door<T: Fn(u8) -> u8> { #[serde(default)] pub width: Map<u8, T>, pub(crate) open: bool }
        struct Pair(u8, [u8; 2]);
        pub(crate) enum Way { In, Out { via: Door, cost: u8 }, Up(u8), }
        impl X for Y { type Error = u8; const SIZE: usize = 1; fn go<const N: usize>(p: *const u8) {} }
        type Alias = u8;
        pub mod inner;
        static NAME: &str = x;
    ";
    let found: Vec<_> = declared_items(code)
        .into_iter()
        .map(|item| {
            format!("{} {}{}", item.kind.noun(), item.name, if item.is_public { "+" } else { "" })
        })
        .collect();
    let expected = [
        "type Door+",
        "field width+",
        "field open",
        "type Pair",
        "type Way",
        "variant In",
        "variant Out",
        "field via",
        "field cost",
        "variant Up",
        "constant SIZE",
        "function go",
        "type Alias",
        "module inner+",
        "constant NAME",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_name_is_split_into_its_words() {
    assert_eq!(words_of("front_door"), ["front", "door"]);
    assert_eq!(words_of("FrontDoor2Way"), ["front", "door2", "way"]);
    assert_eq!(words_of("INDOOR"), ["indoor"]);
    assert_eq!(words_of("__indoor"), ["indoor"]);
}
