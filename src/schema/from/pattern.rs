//! Regular expressions of JSON Schema as patterns of XSD, which match the whole value.

/// The pattern of XSD that matches the same texts; `None` if XSD has no such pattern.
pub(super) fn of_json_schema(pattern: &str) -> Option<String> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::new();
    let mut is_in_class = false;
    let mut depth = 0_usize;
    let mut alternatives = false;
    let mut starts = false;
    let mut ends = false;
    let mut at = 0;
    while let Some(c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        match c {
            '\\' => {
                out.push_str(&escape(next?, is_in_class)?);
                at += 1;
            }
            '[' if !is_in_class => {
                is_in_class = true;
                out.push('[');
            }
            '[' => out.push_str("\\["),
            ']' => {
                is_in_class = false;
                out.push(']');
            }
            _ if is_in_class => out.push(*c),
            '^' if at == 0 => starts = true,
            '$' if at + 1 == chars.len() => ends = true,
            '^' | '$' => return None,
            '(' if next == Some('?') => {
                // Only a group without a number is the same in XSD.
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
            // A lazy or a possessive quantifier.
            '*' | '+' | '?' | '}' if matches!(next, Some('?' | '+')) => return None,
            c => out.push(*c),
        }
        at += 1;
    }

    // Anchors belong to one alternative, so that the whole pattern cannot be completed.
    if is_in_class || depth > 0 || alternatives && (starts || ends) {
        return None;
    }
    let open = if starts { "" } else { "[\\s\\S]*" };
    let close = if ends { "" } else { "[\\s\\S]*" };
    let out = if alternatives { format!("({out})") } else { out };
    Some(format!("{open}{out}{close}"))
}

/// The escape sequence of XSD for the one of this letter.
fn escape(letter: char, is_in_class: bool) -> Option<String> {
    Some(match letter {
        // XSD takes digits and letters of all scripts; JSON Schema those of ASCII.
        'd' if is_in_class => "0-9".to_owned(),
        'd' => "[0-9]".to_owned(),
        'D' if !is_in_class => "[^0-9]".to_owned(),
        'w' if is_in_class => "A-Za-z0-9_".to_owned(),
        'w' => "[A-Za-z0-9_]".to_owned(),
        'W' if !is_in_class => "[^A-Za-z0-9_]".to_owned(),
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
