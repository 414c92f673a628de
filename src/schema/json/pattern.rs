//! Converts patterns of XSD, which match the whole value, to regular expressions of JSON Schema.

/// Converts an XSD pattern to a regular expression of JSON Schema. The expression matches only
/// texts that the pattern matches. Returns `None` if the pattern cannot be converted.
pub(super) fn of_xsd(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut in_class = false;
    let mut is_negated = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // The digits of JSON Schema are only some of those of XSD, so all others would match.
            '\\' if is_negated && chars.peek() == Some(&'d') => return None,
            '\\' => escape(chars.next()?, in_class, &mut out)?,
            // JSON Schema has no subtraction of classes.
            '-' if in_class && chars.peek() == Some(&'[') => return None,
            // White space consists of several characters, so it begins no range.
            '-' if in_class && out.ends_with("\\r") && chars.peek() != Some(&']') => return None,
            '[' if in_class => return None,
            '[' | ']' => {
                in_class = c == '[';
                is_negated = in_class && chars.peek() == Some(&'^');
                out.push(c);
            }
            // Only JSON Schema has anchors: in XSD, both characters stand for themselves.
            '^' | '$' if !in_class => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    (!in_class).then_some(out)
}

/// Converts the XSD escape of `c`, and appends the result to `out`. `in_class` states whether the
/// escape is inside a character class. Returns `None` if JSON Schema has no equal escape.
fn escape(c: char, in_class: bool, out: &mut String) -> Option<()> {
    match c {
        // JSON Schema has no classes for characters of XML names. The names of other properties
        // differ, such as those of blocks. The words of JSON Schema contain `_`, and its digits are
        // only those of ASCII.
        'i' | 'I' | 'c' | 'C' | 'p' | 'P' | 'w' | 'W' | 'D' => return None,
        // In JSON Schema, white space contains more characters than in XSD.
        's' if in_class => out.push_str(" \\t\\n\\r"),
        's' => out.push_str("[ \\t\\n\\r]"),
        'S' if in_class => return None,
        'S' => out.push_str("[^ \\t\\n\\r]"),
        // Outside of a class, the hyphen has no escape.
        '-' if !in_class => out.push('-'),
        c => out.extend(['\\', c]),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_are_anchors_in_json_schema_alone_are_escaped() {
        assert_eq!(of_xsd("$[0-9]+").as_deref(), Some("\\$[0-9]+"));
        assert_eq!(of_xsd("a^b[^$]").as_deref(), Some("a\\^b[^$]"));
        assert_eq!(of_xsd("[A-Z]{2}\\-\\d{4}").as_deref(), Some("[A-Z]{2}-\\d{4}"));
        assert_eq!(of_xsd("[\\-a]\\.").as_deref(), Some("[\\-a]\\."));
    }

    #[test]
    fn white_space_is_that_of_xsd() {
        assert_eq!(of_xsd("a\\sb").as_deref(), Some("a[ \\t\\n\\r]b"));
        assert_eq!(of_xsd("[a\\s]+").as_deref(), Some("[a \\t\\n\\r]+"));
        assert_eq!(of_xsd("\\S+").as_deref(), Some("[^ \\t\\n\\r]+"));
    }

    #[test]
    fn a_pattern_without_an_equal_is_not_converted() {
        for pattern in ["\\i\\c*", "\\p{IsBasicLatin}", "[a-z-[aeiou]]", "[\\c]", "a\\"] {
            assert_eq!(of_xsd(pattern), None, "{pattern}");
        }
        for pattern in ["\\w+", "[\\w.]", "\\W", "\\D", "[\\S]", "[^\\d]", "[\\s-x]"] {
            assert_eq!(of_xsd(pattern), None, "{pattern}");
        }
    }
}
