//! Finds definitions by name. Each language has regular expressions for its forms of definitions.
//! The search tries the expressions line by line.
//!
//! The expressions match code as it is usually written, and do not follow the grammar of the
//! language. So no parser is needed for any language.

use std::path::Path;

use grep_matcher::{Captures, Matcher};
use grep_regex::RegexMatcher;

use crate::block::{self, BlockShape};
use crate::limits;

/// First and last line of a definition, including the comments and attributes above the definition.
/// Line numbers count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionLines {
    pub first: usize,
    pub last: usize,
}

/// The definitions of one name in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDefinitions {
    pub first: DefinitionLines,
    /// First lines of the further definitions, at most [`limits::OTHER_DEFINITIONS_MAX`]. Line
    /// numbers count from 0.
    pub others: Vec<usize>,
    /// Number of all definitions after the first.
    pub others_total: usize,
}

const RUST: &[&str] = &[
    r#"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:(?:default|const|async|unsafe|extern(?:\s+"[^"]*")?)\s+)*fn\s+(?P<name>\w+)"#,
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|union|trait|type|const|static(?:\s+mut)?)\s+(?P<name>\w+)",
    // `mod x;` only declares a module whose definition is in another file.
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(?P<name>\w+)\s*\{",
    r"^\s*macro_rules!\s+(?P<name>\w+)",
];
/// Regular expressions for `impl` blocks of Rust. Such a block counts as a definition only if the
/// search finds no other definition of the name.
const RUST_IMPL: &[&str] =
    &[r"^\s*(?:unsafe\s+)?impl(?:<.*?>)?\s+(?:.*\bfor\s+)?(?:\w+::)*(?P<name>\w+)"];
const PYTHON: &[&str] = &[
    r"^\s*(?:async\s+)?(?:def|class)\s+(?P<name>\w+)",
    r"^(?P<name>[A-Za-z_]\w*)\s*(?::[^=]+)?=(?:[^=]|$)",
];
const SCRIPT: &[&str] = &[
    r"^\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?(?:function\s*\*?|class|interface|enum|type|namespace|const\s+enum|const|let|var)\s+(?P<name>[\w$]+)",
    r"^\s+(?:(?:public|private|protected|static|async|override|get|set)\s+)*\*?(?P<name>#?[\w$]+)\s*(?:<[^>]*>)?\([^;]*\)[^;]*\{\s*$",
];
const GO: &[&str] = &[
    r"^func\s+(?:\([^)]*\)\s*)?(?P<name>\w+)",
    r"^(?:type|var|const)\s+(?P<name>\w+)",
    r"^\t(?P<name>[A-Z]\w*)\b[^(){}]*=",
];
const C_LIKE: &[&str] = &[
    r"^\s*#\s*define\s+(?P<name>\w+)",
    r"^\s*(?:(?:public|private|protected|internal|static|final|abstract|sealed|open|data|partial|inline|typedef|export|template\s*<[^>]*>)\s+)*(?:struct|class|enum(?:\s+class)?|union|interface|record|namespace|object|trait|protocol|extension|fun|func|function)\s+(?P<name>\w+)\s*(?:[<({:]|extends\b|implements\b|final\b|$)",
    r"^\s*(?:[\w:<>,\[\]?@~]+[\s*&]+)+(?:\w+::)*(?P<name>~?\w+)\s*\([^;]*$",
    r"^(?:(?:static|const|constexpr|extern|inline)\s+)+[\w:<>,\s*&]*?\b(?P<name>\w+)\s*(?:\[[^\]]*\])*\s*=",
];
const SHELL: &[&str] = &[r"^\s*(?:function\s+)?(?P<name>[\w-]+)\s*\(\)", r"^(?P<name>\w+)="];
const HEADING: &[&str] = &[r"^#{1,6}\s+(?P<name>.+?)\s*#*\s*$"];
const ANY: &[&str] = &[
    r"^\s*(?:(?:pub|public|private|static|async|export|local|abstract)\s+)*(?:fn|fun|func|function|def|defp|defmodule|class|struct|enum|interface|trait|type|module|const|let|var|val|sub|proc)\s+(?P<name>[\w$]+)",
    r"^(?P<name>[A-Za-z_]\w*)\s*(?:=|:=|\(\)\s*\{)",
];

/// Keywords that begin a statement. The regular expressions for functions also match some lines
/// that begin with such a keyword, so the search skips every line that begins with one.
const STATEMENTS: &[&str] = &[
    "if", "for", "while", "switch", "catch", "return", "else", "new", "throw", "case", "goto",
    "delete", "do", "await", "typeof", "using",
];
/// Keywords that stand before a parenthesis. A regular expression can mistake such a keyword for
/// the name of a function, so the search ignores a match whose name is one of these keywords.
const CONTROLS: &[&str] = &["if", "for", "while", "switch", "sizeof"];

struct LanguageRules {
    /// Regular expressions in the order in which they are tried. The first expression that matches
    /// a line gives the defined name.
    patterns: &'static [&'static str],
    containers: &'static [&'static str],
    shape: BlockShape,
}

fn language(file: &str) -> LanguageRules {
    let extension = Path::new(file).extension().and_then(|e| e.to_str()).unwrap_or_default();
    let (patterns, shape) = match extension {
        "rs" => (RUST, BlockShape::RUST),
        "py" | "pyi" => (PYTHON, BlockShape::Indented),
        "js" | "jsx" | "mjs" | "cjs" | "ts" | "tsx" | "mts" => (SCRIPT, BlockShape::SCRIPT),
        "go" => (GO, BlockShape::GO),
        "kt" | "swift" | "scala" => (C_LIKE, BlockShape::SCRIPT),
        "c" | "h" | "cc" | "cpp" | "cxx" | "hpp" | "hh" | "java" | "cs" | "php" | "m" | "zig" => {
            (C_LIKE, BlockShape::C)
        }
        "sh" | "bash" | "zsh" => (SHELL, BlockShape::SHELL),
        "md" | "markdown" => (HEADING, BlockShape::Headings),
        _ => (ANY, BlockShape::Guessed),
    };

    LanguageRules { patterns, containers: if extension == "rs" { RUST_IMPL } else { &[] }, shape }
}

/// Finds the definitions of `wanted` in the order of the file. `Outer::inner` and `Outer.inner`
/// stand for the definition of `inner` inside `Outer`.
///
/// A file can define one name on every line, and a definition can reach to the end of the file. So
/// only the end of the first definition is computed.
pub fn find(file: &str, lines: &[&str], wanted: &str) -> Option<FoundDefinitions> {
    let shape = language(file).shape;
    let starts = find_starts(file, lines, wanted);
    let (start, others) = starts.split_first()?;
    let first = DefinitionLines {
        first: block::lead(lines, *start, shape),
        last: block::end(lines, *start, shape),
    };

    let shown = others.iter().take(limits::OTHER_DEFINITIONS_MAX);
    Some(FoundDefinitions {
        first,
        others: shown.map(|line| block::lead(lines, *line, shape)).collect(),
        others_total: others.len(),
    })
}

/// Returns the lines that begin definitions of `wanted`, in the order of the file.
fn find_starts(file: &str, lines: &[&str], wanted: &str) -> Vec<usize> {
    let language = language(file);
    let own = named(lines, language.patterns, language.shape);
    let whole = lines_of(&own, |name| same(language.shape, name, wanted));
    if !whole.is_empty() {
        return whole;
    }

    let containers = named(lines, language.containers, language.shape);
    if let Some((outer, inner)) = wanted.rsplit_once("::").or_else(|| wanted.rsplit_once('.')) {
        let outer = outer.rsplit([':', '.']).next().unwrap_or(outer);
        return within(&own, &containers, lines, language.shape, outer, inner);
    }

    lines_of(&containers, |name| name == wanted)
}

/// Returns the names that a file defines, each once, in the order of the file.
pub fn names(file: &str, lines: &[&str]) -> Vec<String> {
    let language = language(file);
    let mut seen = std::collections::HashSet::new();
    let all = named(lines, language.patterns, language.shape).into_iter().map(|(_, name)| name);
    all.filter(|name| seen.insert(name.clone())).collect()
}

fn within(
    own: &[(usize, String)],
    containers: &[(usize, String)],
    lines: &[&str],
    shape: BlockShape,
    outer: &str,
    inner: &str,
) -> Vec<usize> {
    let mut starts = lines_of(own, |name| name == outer);
    starts.extend(lines_of(containers, |name| name == outer));
    starts.sort_unstable();

    // First and last lines. A holder that begins inside another one holds nothing more, so it is
    // left out, and no line of the file is read for two holders.
    let mut holders: Vec<(usize, usize)> = Vec::new();
    for start in starts {
        if holders.last().is_none_or(|(_, last)| *last < start) {
            holders.push((start, block::end(lines, start, shape)));
        }
    }

    let mut all = lines_of(own, |name| name == inner);
    all.retain(|line| {
        let before = holders.partition_point(|(first, _)| first < line);
        let holder = before.checked_sub(1).and_then(|index| holders.get(index));
        let held = holder.is_some_and(|(_, last)| line <= last);
        // In languages such as Go or C++, a method names its type on its own line.
        held || lines.get(*line).is_some_and(|text| has_word(text, outer))
    });
    all
}

fn lines_of(named: &[(usize, String)], is_wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    named.iter().filter(|(_, name)| is_wanted(name)).map(|(line, _)| *line).collect()
}

/// Whether a definition named `name` is the wanted one. For a heading, `wanted` may also be the
/// anchor that renderers make from the heading.
fn same(shape: BlockShape, name: &str, wanted: &str) -> bool {
    if shape != BlockShape::Headings {
        return name == wanted;
    }

    let anchor = |text: &str| -> String {
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };

    anchor(name) == anchor(wanted)
}

/// Finds the lines that begin definitions, and returns each with the defined name.
fn named(lines: &[&str], patterns: &[&str], shape: BlockShape) -> Vec<(usize, String)> {
    let matchers: Vec<_> = patterns.iter().filter_map(|p| RegexMatcher::new(p).ok()).collect();
    let code = block::code_lines(lines, shape);
    let candidates = lines.iter().enumerate().filter(|(at, _)| code.get(*at) == Some(&true));
    candidates.filter_map(|(at, line)| Some((at, name_on(line, &matchers)?))).collect()
}

fn name_on(line: &str, matchers: &[RegexMatcher]) -> Option<String> {
    let first = line.split_whitespace().next()?;
    if STATEMENTS.contains(&first) {
        return None;
    }

    matchers.iter().find_map(|matcher| {
        let mut captures = matcher.new_captures().ok()?;
        if !matcher.captures(line.as_bytes(), &mut captures).ok()? {
            return None;
        }
        let found = captures.get(matcher.capture_index("name")?)?;
        let name = line.get(found.start()..found.end())?;
        (!CONTROLS.contains(&name)).then(|| name.to_owned())
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}
