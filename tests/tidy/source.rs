//! A minimal scanner of Rust code, which blanks comments, literals and test modules.

use std::ops::Range;

/// Blanks everything in `text` that is not product code; line numbers do not change.
pub fn code(text: &str) -> String {
    without_test_modules(&without_text(text))
}

/// Blanks comments, strings and characters.
pub fn without_text(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    for (range, _) in text_ranges(text) {
        for byte in out[range].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
    }
    String::from_utf8(out).expect("whole literals were blanked")
}

/// Returns the string literals of product code, each with the offset of its opening quote.
pub fn product_strings(text: &str) -> Vec<(usize, &str)> {
    let tests = test_items(&without_text(text));
    let is_product = |at: usize| !tests.iter().any(|item| item.contains(&at));
    let strings = text_ranges(text).into_iter().filter(|(_, is_string)| *is_string);
    let strings = strings.filter(|(range, _)| is_product(range.start));
    strings.map(|(range, _)| (range.start, &text[range])).collect()
}

/// Returns the ranges of comments, strings and characters, each with whether it is a string.
fn text_ranges(text: &str) -> Vec<(Range<usize>, bool)> {
    let bytes = text.as_bytes();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (length, is_string) = if rest.starts_with(b"//") {
            (rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with(b"/*") {
            (block_comment(rest), false)
        } else if is_word_start(bytes, at) && raw_string(rest).is_some() {
            (raw_string(rest).unwrap_or(1), true)
        } else if rest[0] == b'"' {
            (string(rest), true)
        } else if rest[0] == b'\'' {
            (character(rest), false)
        } else {
            (0, false)
        };
        if length > 0 {
            ranges.push((at..at + length, is_string));
        }
        at += length.max(1);
    }
    ranges
}

fn is_word_start(bytes: &[u8], at: usize) -> bool {
    at == 0 || !is_word(bytes[at - 1])
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Length of a raw string literal such as `r"…"`, `r#"…"#` or `br"…"`; `None` for other code.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = rest.iter().take_while(|b| matches!(b, b'b' | b'c' | b'r')).count();
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    let is_raw = prefix > 0 && rest[prefix - 1] == b'r' && rest.get(prefix + hashes) == Some(&b'"');
    if !is_raw {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let start = prefix + hashes + 1;
    let end = rest[start..].windows(close.len()).position(|window| window == close);
    Some(end.map_or(rest.len(), |end| start + end + close.len()))
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a character literal; 0 for a lifetime.
fn character(rest: &[u8]) -> usize {
    let text = std::str::from_utf8(rest).unwrap_or_default();
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // After the escaped character, which may itself be a quote.
            let close = text[3..].find('\'');
            close.map_or(0, |close| 3 + close + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// Blanks the items under `#[cfg(test)]`.
fn without_test_modules(code: &str) -> String {
    let mut out = code.to_owned();
    for item in test_items(code) {
        let blank: String =
            out[item.clone()].bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }).collect();
        out.replace_range(item, &blank);
    }
    out
}

/// Returns the ranges of the items under `#[cfg(test)]`. `code` contains no comments and literals.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    let mut from = 0;
    while let Some(start) = code[from..].find("#[cfg(test)]").map(|at| from + at) {
        let body = code[start..].find(['{', ';']).map_or(code.len(), |at| start + at);
        let end = if code[body..].starts_with('{') { closing(code, body) } else { body + 1 };
        from = end.min(code.len());
        items.push(start..from);
    }
    items
}

/// Offset after the closing brace of the block that opens at `open`.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].bytes().filter(|b| *b == b'\n').count() + 1
}

/// One function with a body.
pub struct Function<'a> {
    pub name: &'a str,
    pub line: usize,
    /// Number of lines from the function's name to its closing brace, without blank lines and
    /// comments.
    pub lines: usize,
    /// Range from `fn` to the closing brace.
    pub start: usize,
    pub end: usize,
}

/// Every function in blanked code.
pub fn functions(code: &str) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut counted = 0;
    for start in words(code, "fn") {
        let rest = &code[start + 2..];
        let name = rest.trim_start();
        let name = &name[..name.bytes().take_while(|b| is_word(*b)).count()];
        let Some(open) = rest.find(['{', ';']).map(|at| start + 2 + at) else { continue };
        if name.is_empty() || code[open..].starts_with(';') {
            continue;
        }
        let end = closing(code, open);
        // Counted on from the function before, because long files have many functions.
        line += line_of(&code[counted..], start - counted) - 1;
        counted = start;
        let lines = code[start..end].lines().filter(|line| !line.trim().is_empty()).count();
        found.push(Function { name, line, lines, start, end });
    }
    found
}

/// Offsets at which `word` occurs as a whole word.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let after = at + word.len();
        is_word_start(bytes, *at) && bytes.get(after).is_none_or(|b| !is_word(*b))
    })
}

#[test]
fn comments_literals_and_test_modules_are_blanked() {
    let text = "a /* x /* y */ z */ b // c\n\"d\\\"e\" 'f' '\\'' &'g r#\"h\"i\"# j\n#[cfg(test)]\nmod t { k }\nl";
    let code = code(text);
    let left: Vec<_> = code.split_whitespace().collect();
    assert_eq!(left, ["a", "b", "&'g", "j", "l"]);
    assert_eq!(code.lines().count(), text.lines().count());
}

#[test]
fn functions_are_measured_from_their_name_to_their_closing_brace() {
    let found = functions("fn a();\nfn b() {\n\n  { }\n}\n");
    let found: Vec<_> = found.iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(found, [("b", 2, 3)]);
}
