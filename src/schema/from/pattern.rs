//! Converts regular expressions of JSON Schema to patterns of XSD, which match the whole value.

/// Returns an XSD pattern that matches the same texts as a pattern of JSON Schema. Returns `None`
/// if the pattern cannot be converted.
pub(super) fn of_json_schema(pattern: &str) -> Option<String> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::new();
    let mut depth = 0_usize;
    let mut alternatives = false;
    let mut starts = false;
    let mut ends = false;
    let mut at = 0;
    while let Some(c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        match c {
            '\\' => {
                out.push_str(&escape(next?)?);
                at += 1;
            }
            '[' => {
                let (class, length) = class(chars.get(at + 1..)?)?;
                out.push_str(&class);
                at += length;
            }
            // XSD could parse a brace that is literal in JSON Schema as a quantifier.
            ']' => out.push_str("\\]"),
            '{' if !next.is_some_and(|c| c.is_ascii_digit()) => return None,
            '^' if at == 0 => starts = true,
            '$' if at + 1 == chars.len() => ends = true,
            '^' | '$' => return None,
            '(' if next == Some('?') => {
                // Only a non-capturing group means the same in XSD.
                if chars.get(at + 2) != Some(&':') {
                    return None;
                }
                out.push('(');
                depth += 1;
                at += 2;
            }
            '(' => {
                depth += 1;
                out.push('(');
            }
            ')' => {
                depth = depth.checked_sub(1)?;
                out.push(')');
            }
            '|' => {
                alternatives |= depth == 0;
                out.push('|');
            }
            // XSD has no lazy or possessive quantifiers.
            '*' | '+' | '?' | '}' if matches!(next, Some('?' | '+')) => return None,
            c => out.push(*c),
        }
        at += 1;
    }

    // An anchor applies to one alternative only, so the whole pattern cannot be completed.
    if depth > 0 || alternatives && (starts || ends) {
        return None;
    }
    let open = if starts { "" } else { "[\\s\\S]*" };
    let close = if ends { "" } else { "[\\s\\S]*" };
    let out = if alternatives { format!("({out})") } else { out };
    Some(format!("{open}{out}{close}"))
}

/// Returns the reason why [`of_json_schema`] does not convert `pattern`.
pub(super) fn obstacle(pattern: &str) -> &'static str {
    match bracket_fault(pattern) {
        Some(fault) => fault,
        None if pattern.contains("(?=") || pattern.contains("(?!") => "XSD has no lookahead",
        None if pattern.contains("(?<") => "XSD has no lookbehind and no named groups",
        None => "XSD has no pattern with the same meaning",
    }
}

/// Returns the fault of a regular expression whose brackets or parentheses do not match; `None` if
/// they match.
fn bracket_fault(pattern: &str) -> Option<&'static str> {
    let mut depth = 0_usize;
    let mut is_in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let Some(_escaped) = chars.next() else {
                    return Some("it ends with a backslash");
                };
            }
            ']' => is_in_class = false,
            _ if is_in_class => {}
            '[' => is_in_class = true,
            '(' => depth += 1,
            ')' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some("it closes a parenthesis that it does not open"),
            },
            _ => {}
        }
    }
    match (is_in_class, depth) {
        (true, _) => Some("it does not close a bracket"),
        (false, 0) => None,
        (false, _) => Some("it does not close a parenthesis"),
    }
}

/// One member of a character class: its XSD text, and whether it is a set such as `\d`.
struct ClassMember {
    text: String,
    is_set: bool,
}

/// Converts a character class to XSD. `chars` is the text after its `[`. Returns the XSD text, and
/// the number of characters up to and including the `]`. Returns `None` if the class cannot be
/// converted.
fn class(chars: &[char]) -> Option<(String, usize)> {
    let mut out = "[".to_owned();
    let mut at = 0;
    if chars.first() == Some(&'^') {
        out.push('^');
        at = 1;
    }
    let start = at;
    loop {
        if *chars.get(at)? == ']' {
            // XSD has no empty class.
            let is_empty = at == start;
            out.push(']');
            return (!is_empty).then_some((out, at + 1));
        }
        let (first, length) = class_member(chars.get(at..)?)?;
        at += length;
        out.push_str(&first.text);

        // A hyphen before the end of the class, or next to a set, is literal.
        let is_range = chars.get(at) == Some(&'-') && chars.get(at + 1) != Some(&']');
        if !is_range {
            continue;
        }
        let (last, length) = class_member(chars.get(at + 1..)?)?;
        at += 1 + length;
        out.push_str(if first.is_set || last.is_set { "\\-" } else { "-" });
        out.push_str(&last.text);
    }
}

/// Converts the first member of a character class. Returns the member, and the number of its
/// characters in `chars`. Returns `None` if the member cannot be converted.
fn class_member(chars: &[char]) -> Option<(ClassMember, usize)> {
    let first = *chars.first()?;
    if first == '\\' {
        let letter = *chars.get(1)?;
        let text = match letter {
            'd' => "0-9".to_owned(),
            'w' => "A-Za-z0-9_".to_owned(),
            'D' | 'W' => return None,
            _ => escape(letter)?,
        };
        return Some((ClassMember { text, is_set: matches!(letter, 'd' | 'w' | 's' | 'S') }, 2));
    }
    let is_marked = matches!(first, '[' | '-' | '^' | '\\');
    let text = if is_marked { format!("\\{first}") } else { first.to_string() };
    Some((ClassMember { text, is_set: false }, 1))
}

/// Converts the escape sequence of a backslash and `letter` to XSD. Returns `None` if it cannot be
/// converted. For `d`, `D`, `w` and `W`, the result is a character class, which must not be
/// inserted into another class.
fn escape(letter: char) -> Option<String> {
    Some(match letter {
        // In XSD, these sets contain all scripts; in JSON Schema, only ASCII.
        'd' => "[0-9]".to_owned(),
        'D' => "[^0-9]".to_owned(),
        'w' => "[A-Za-z0-9_]".to_owned(),
        'W' => "[^A-Za-z0-9_]".to_owned(),
        's' | 'S' | 'n' | 'r' | 't' => format!("\\{letter}"),
        '/' | '"' | '\'' | ':' | ',' | '=' | '@' | '#' | '%' | '&' | ';' | '!' | '~' | '<'
        | '>' | ' ' | '_' | '`' => letter.to_string(),
        '\\' | '|' | '.' | '?' | '*' | '+' | '(' | ')' | '{' | '}' | '-' | '[' | ']' | '^' => {
            format!("\\{letter}")
        }
        '$' => "$".to_owned(),
        _ => return None,
    })
}
