//! Converts patterns of XSD, which match the whole value, to regular expressions of JSON Schema.

/// Returns a regular expression of JSON Schema that matches only texts that the XSD pattern matches.
/// Returns `None` if the pattern cannot be converted.
pub(super) fn of_xsd(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut in_class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => escape(chars.next()?, in_class, &mut out)?,
            // JSON Schema has no subtraction of classes.
            '-' if in_class && chars.peek() == Some(&'[') => return None,
            '[' if in_class => return None,
            '[' | ']' => {
                in_class = c == '[';
                out.push(c);
            }
            // Only JSON Schema has anchors: in XSD, both characters stand for themselves.
            '^' | '$' if !in_class => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    (!in_class).then_some(out)
}

/// Converts the escape of `c`. Returns `None` if JSON Schema has no equal escape.
fn escape(c: char, in_class: bool, out: &mut String) -> Option<()> {
    match c {
        // JSON Schema has no classes for characters of XML names. The names of other properties
        // differ, such as those of blocks.
        'i' | 'I' | 'c' | 'C' | 'p' | 'P' => return None,
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
    fn a_pattern_without_an_equal_is_not_converted() {
        for pattern in ["\\i\\c*", "\\p{IsBasicLatin}", "[a-z-[aeiou]]", "[\\c]", "a\\"] {
            assert_eq!(of_xsd(pattern), None, "{pattern}");
        }
    }
}
