//! Makes invisible characters visible. A character is replaced by its code point if a screen would
//! act on it, reorder it or not show it.
//!
//! The result is unambiguous: backslashes directly before a replaced character, or before `u{` in
//! the text, are doubled.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// The characters of Unicode 17.0 with the property Default_Ignorable_Code_Point or the category Cf
/// (format). Leaves out characters with the property Prepended_Concatenation_Mark, because they are
/// visible signs around numbers.
const FORMAT_OR_IGNORABLE: &[RangeInclusive<char>] = &[
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Characters that are blank on a screen although no property in Unicode states this. They are
/// chosen by their names in Unicode 17.0.
const BLANK: &[RangeInclusive<char>] = &[
    // Tifinagh consonant joiner.
    '\u{2d7f}'..='\u{2d7f}',
    // Braille pattern blank.
    '\u{2800}'..='\u{2800}',
    // Brahmi number joiner.
    '\u{1107f}'..='\u{1107f}',
    // Egyptian hieroglyph mirror horizontally, full blank, half blank, lost signs, and modifiers
    // of damaged signs.
    '\u{13440}'..='\u{13455}',
    // Khitan small script filler.
    '\u{16fe4}'..='\u{16fe4}',
    // Musical symbol null notehead.
    '\u{1d159}'..='\u{1d159}',
];

/// Whether a screen would hide the character `c` or show something else in its place.
pub fn is_hidden(c: char) -> bool {
    if matches!(c, '\n' | '\t' | ' '..='~') {
        return false;
    }

    let mut tables = FORMAT_OR_IGNORABLE.iter().chain(BLANK);
    c.is_control() || c.is_whitespace() || tables.any(|range| range.contains(&c))
}

/// Returns the number of characters that [`visible`] would write as code points.
pub fn hidden(text: &str) -> usize {
    text.chars().filter(|c| is_hidden(*c)).count()
}

/// Returns `text` with each hidden character as `\u{…}`. Line breaks stay.
pub fn visible(text: &str) -> String {
    escaped(text, is_hidden)
}

/// Returns `text` as one line, with each hidden character, line break and tab as `\u{…}`.
pub fn visible_line(text: &str) -> String {
    escaped(text, |c| is_hidden(c) || matches!(c, '\n' | '\t'))
}

/// Returns `text` with each character for which `is_escaped` returns true as `\u{…}`.
fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    // Number of backslashes just written. Before an escape they are written twice, so that the
    // escape stays unambiguous.
    let mut backslashes = 0;
    let mut rest = text.chars().peekable();

    while let Some(c) = rest.next() {
        let looks_escaped = c == 'u' && rest.peek() == Some(&'{');
        if is_escaped(c) || looks_escaped {
            (0..backslashes).for_each(|_| out.push('\\'));
        }

        if is_escaped(c) {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }

        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
    }

    out
}

/// Escapes the hidden characters in JSON with JSON's own escapes, so that a JSON parser reads the
/// same value.
pub fn visible_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }

    out
}

/// Replaces the hidden characters in parts of an XML document, so that an XML parser reads the same
/// text and attributes. Only comments differ afterwards. A part must not end within a delimiter of
/// a CDATA section or a comment, or between `\r` and `\n`. Parts that consist of whole lines meet
/// this condition.
#[derive(Default)]
pub struct VisibleXml {
    section: XmlSection,
}

/// The kind of the place that [`VisibleXml`] has reached in its document.
#[derive(Clone, Copy, Default)]
enum XmlSection {
    #[default]
    Markup,
    CData,
    Comment,
}

impl VisibleXml {
    /// Takes `xml`, the next part of the document, and returns it without hidden characters.
    pub fn visible(&mut self, xml: &str) -> String {
        let mut out = String::with_capacity(xml.len());
        let mut rest = xml;
        while let Some(c) = rest.chars().next() {
            if let Some((delimiter, section)) = self.delimiter(rest) {
                out.push_str(delimiter);
                rest = rest.strip_prefix(delimiter).unwrap_or_default();
                self.section = section;
                continue;
            }

            rest = rest.strip_prefix(c).unwrap_or_default();
            if is_hidden(c) {
                self.push_visible(&mut out, c, rest);
            } else {
                out.push(c);
            }
        }

        out
    }

    /// Returns the delimiter with which `rest` begins, and the section that begins after it.
    fn delimiter(&self, rest: &str) -> Option<(&'static str, XmlSection)> {
        let delimiters = match self.section {
            XmlSection::Markup => {
                &[("<![CDATA[", XmlSection::CData), ("<!--", XmlSection::Comment)][..]
            }
            XmlSection::CData => &[("]]>", XmlSection::Markup)],
            XmlSection::Comment => &[("-->", XmlSection::Markup)],
        };
        delimiters.iter().find(|(delimiter, _)| rest.starts_with(delimiter)).copied()
    }

    /// Appends the hidden character `c`, which comes before `rest`.
    fn push_visible(&self, out: &mut String, c: char, rest: &str) {
        let code = u32::from(c);
        let _ = match self.section {
            // A parser reads each end of a line as `\n`, but keeps a reference to `\r`.
            _ if c == '\r' => write!(out, "{}", if rest.starts_with('\n') { "" } else { "\n" }),
            XmlSection::Markup => write!(out, "&#x{code:x};"),
            // A CDATA section has no references, so it ends before the character.
            XmlSection::CData => write!(out, "]]>&#x{code:x};<![CDATA["),
            XmlSection::Comment => write!(out, "\\u{{{code:x}}}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use regex_syntax::hir::{Class, HirKind};

    use crate::xml::element::Element;

    use super::*;

    #[test]
    fn what_a_screen_would_hide_stands_as_its_code_point() {
        let cases = [
            ("rm -rf /tmp\n\tnext", "rm -rf /tmp\n\tnext"),
            ("a\u{1b}[2Jb\u{7}\r\u{8}", "a\\u{1b}[2Jb\\u{7}\\u{d}\\u{8}"),
            ("pay \u{202e}dab\u{202c}", "pay \\u{202e}dab\\u{202c}"),
            ("a\u{200b}\u{feff}\u{2066}b\u{2069}", "a\\u{200b}\\u{feff}\\u{2066}b\\u{2069}"),
            ("x\u{a0}y\u{3000}z\u{2028}", "x\\u{a0}y\\u{3000}z\\u{2028}"),
            ("\u{e0041}\u{fe0f}\u{ad}\u{3164}", "\\u{e0041}\\u{fe0f}\\u{ad}\\u{3164}"),
            ("é 漢字 ↻ שלום", "é 漢字 ↻ שלום"),
            ("C:\\new\\users", "C:\\new\\users"),
        ];
        for (text, expected) in cases {
            assert_eq!(visible(text), expected);
        }

        assert_eq!(hidden("a\u{202e}b\r\n"), 2);
        assert_eq!(visible_line("a\n\tb\u{202e} \\n"), "a\\u{a}\\u{9}b\\u{202e} \\n");
    }

    /// Returns all characters that match `pattern`, a character class of a regular expression. Uses
    /// the character tables of another crate, to check the tables of this module.
    fn class(pattern: &str) -> Vec<char> {
        let parsed = regex_syntax::parse(pattern).unwrap().into_kind();
        let HirKind::Class(Class::Unicode(class)) = parsed else { panic!("{pattern}") };
        class.iter().flat_map(|range| range.start()..=range.end()).collect()
    }

    #[test]
    fn the_characters_with_the_properties_of_unicode_are_hidden_and_of_the_others_only_blanks() {
        let properties = r"[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\p{White_Space}]";
        let shown = class(r"[\p{Prepended_Concatenation_Mark}\n\t\x20]");
        let mut expected: HashSet<char> = class(properties).into_iter().collect();
        expected.extend(BLANK.iter().cloned().flatten());
        shown.iter().for_each(|c| assert!(expected.remove(c), "{c:?}"));

        for c in '\0'..=char::MAX {
            assert_eq!(is_hidden(c), expected.contains(&c), "U+{:04X}", u32::from(c));
        }
    }

    #[test]
    fn blanks_without_a_property_are_counted_and_shown() {
        let text = "rm\u{13441}-rf\u{1d159} /\u{16fe4}tmp\u{13430}x\u{13442}";
        assert_eq!(hidden(text), 5);
        let shown = "rm\\u{13441}-rf\\u{1d159} /\\u{16fe4}tmp\\u{13430}x\\u{13442}";
        assert_eq!(visible(text), shown);
    }

    #[test]
    fn no_two_texts_look_alike() {
        let parts = ["\u{202e}", "\\", "\\\\", "u{202e}", "\\u{202e}", "u", "{", "202e}"];
        let mut seen = std::collections::HashMap::new();
        for a in parts {
            for b in parts {
                for c in parts {
                    let text = [a, b, c].concat();
                    let before = seen.insert(visible(&text), text.clone());
                    assert!(
                        before.as_ref().is_none_or(|before| *before == text),
                        "{before:?} {text:?}"
                    );
                }
            }
        }

        assert!(seen.len() > 100);
    }

    #[test]
    fn xml_means_the_same_afterwards() {
        let cases = [
            (
                "<a b=\"\u{202e}\">\u{9b}31m\n\u{e0041}é</a>",
                "<a b=\"&#x202e;\">&#x9b;31m\n&#xe0041;é</a>",
            ),
            ("<a>1\r\n2\r3</a>", "<a>1\n2\n3</a>"),
            (
                "<a><![CDATA[\u{9b}<!--]]\n\u{202e}>\r\n]]>\u{9b}</a>",
                "<a><![CDATA[]]>&#x9b;<![CDATA[<!--]]\n]]>&#x202e;<![CDATA[>\n]]>&#x9b;</a>",
            ),
        ];
        for (xml, expected) in cases {
            // The lines of an export arrive one by one.
            let mut document = VisibleXml::default();
            let shown: String =
                xml.split_inclusive('\n').map(|line| document.visible(line)).collect();
            assert_eq!(shown, expected);

            let element = |text| Element::read_document(text).unwrap();
            assert_eq!(element(&shown).text(), element(xml).text());
        }
    }

    #[test]
    fn a_comment_in_xml_has_code_points_instead_of_hidden_characters() {
        let xml = "<a><!-->\u{9b}<![CDATA[\n\u{202e}-->\u{9b}</a>";
        let expected = "<a><!-->\\u{9b}<![CDATA[\n\\u{202e}-->&#x9b;</a>";
        assert_eq!(VisibleXml::default().visible(xml), expected);
    }

    #[test]
    fn json_means_the_same_afterwards() {
        let text = "a\u{202e}b\u{200b}c\u{e0041}d\n\u{7f}";
        let json = visible_json(&serde_json::to_string(text).unwrap());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
