//! Messages of libxml2 that quote a long value or a long list of permitted values. The quotations
//! are shortened, so that the reason that follows them is kept.

use libxml::bindings as c;

use crate::shorten::shorten;

/// Maximum characters of the quoted value, which the sender has written.
const VALUE_CHARS: usize = 80;
/// Maximum bytes of any quotation other than the value, such as a pattern or a list of permitted
/// values.
const RULE_BYTES: usize = 640;
/// Maximum characters of each value in a shortened list of permitted values.
const WORD_CHARS: usize = 60;
/// Number of values that a shortened list of permitted values shows.
const WORDS_SHOWN: usize = 12;
/// Text between two values in a list of permitted values.
const BETWEEN: &str = "', '";
/// Length from which libxml2 may cut a message. The place of the cut depends on the version of
/// libxml2.
const UNCUT_BYTES_MAX: usize = 63_000;
/// Mark at the place where a text is cut.
const MARK: char = '\u{2026}';
/// Returns the message with short quotations of values. Names of elements, attributes and types are
/// not shortened. `quoted` are the texts that the message quotes, in their order; an empty text
/// stands for no quotation.
pub fn shortened(code: u32, message: &str, quoted: &[String; 3]) -> String {
    let [value, rule, other] = quoted;
    if !is_value(code, value) {
        return message.to_owned();
    }

    let shown = [value_shown(value), rule_shown(code, rule), rule_shown(code, other)];
    let length: usize = quoted.iter().map(String::len).sum();
    let is_cut = message.len() < length || message.len() >= UNCUT_BYTES_MAX;
    if is_cut {
        return rewritten(code, message, &shown);
    }

    let (head, mut rest) = message.split_at(start_of_detail(message));
    let mut out = head.to_owned();
    for (whole, short) in quoted.iter().zip(&shown).filter(|(whole, short)| whole != short) {
        if let Some((before, after)) = split_at_quotation(rest, whole) {
            out.push_str(before);
            out.push_str(short);
            rest = after;
        }
    }

    out.push_str(rest);
    out
}

/// Cuts a text to at most `most` bytes, with a mark at its end.
pub fn bounded(mut text: String, most: usize) -> String {
    if text.len() > most {
        let mut end = most.saturating_sub(MARK.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push(MARK);
    }

    text
}

/// Whether the first text that a message quotes is a value, and not a name.
fn is_value(code: u32, quoted: &str) -> bool {
    match code {
        c::xmlParserErrors_XML_SCHEMAV_CVC_IDC => quoted.starts_with("['"),
        c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_1
        | c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_2
        | c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_3
        | c::xmlParserErrors_XML_SCHEMAV_CVC_FACET_VALID
            ..=c::xmlParserErrors_XML_SCHEMAV_CVC_ENUMERATION_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_5_2_2_2_1
        | c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_5_2_2_2_2
        | c::xmlParserErrors_XML_SCHEMAV_CVC_ATTRIBUTE_4
        | c::xmlParserErrors_XML_SCHEMAV_CVC_AU => !quoted.is_empty(),
        _ => false,
    }
}

fn value_shown(value: &str) -> String {
    if value.chars().nth(VALUE_CHARS).is_none() {
        return value.to_owned();
    }

    // White space at the ends may be the reason of the refusal.
    let blank = |is_blank: bool| if is_blank { " " } else { "" };
    let start = blank(value.starts_with(char::is_whitespace));
    let end = blank(value.ends_with(char::is_whitespace));
    let words: Vec<&str> = value.split_whitespace().collect();
    let shown = shorten(&words.join(" "), VALUE_CHARS);
    format!("{start}{shown}{end}")
}

fn rule_shown(code: u32, rule: &str) -> String {
    // A message about a key quotes the name of the key.
    if rule.len() <= RULE_BYTES || code == c::xmlParserErrors_XML_SCHEMAV_CVC_IDC {
        return rule.to_owned();
    }

    if code != c::xmlParserErrors_XML_SCHEMAV_CVC_ENUMERATION_VALID {
        return bounded(rule.to_owned(), RULE_BYTES);
    }

    let list = rule.strip_prefix('\'').unwrap_or(rule);
    let list = list.strip_suffix('\'').unwrap_or(list);
    let short = |word: &str| shorten(word, WORD_CHARS);
    let mut length = 0;
    let fits = |word: &String| {
        length += word.len() + BETWEEN.len();
        length <= RULE_BYTES
    };
    let words = list.split(BETWEEN).map(short).take(WORDS_SHOWN);
    let shown: Vec<String> = words.take_while(fits).collect();
    let words = shown.join(BETWEEN);
    match list.split(BETWEEN).count() - shown.len() {
        0 => format!("'{words}'"),
        more => format!("'{words}', and {more} more"),
    }
}

/// Returns the offset after the names with which a message begins: those of the element, the
/// attribute and the facet. No value is quoted before this offset.
fn start_of_detail(message: &str) -> usize {
    let subject = message.find("': ").map_or(0, |at| at + "': ".len());
    let (_, detail) = message.split_at(subject);
    let facet = detail.strip_prefix("[facet '").and_then(|facet| facet.split_once("'] "));
    facet.map_or(subject, |(_, rest)| message.len() - rest.len())
}

/// Splits a text at the quotation of `quoted`, and returns the parts before and after the quoted
/// text. Prefers a quotation at the first quotation mark, because a value may repeat words of the
/// message. Returns `None` if no quotation is found.
fn split_at_quotation<'a>(text: &'a str, quoted: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = text.split_at(text.find('\'')? + 1);
    match after.strip_prefix(quoted) {
        Some(rest) => Some((before, rest)),
        None => text.split_once(quoted),
    }
}

/// Returns a new message, with the reason of the refusal, in place of a message that libxml2 has
/// cut. `shown` are the shortened quotations.
fn rewritten(code: u32, message: &str, shown: &[String; 3]) -> String {
    let [value, rule, other] = shown;
    let detail = match code {
        c::xmlParserErrors_XML_SCHEMAV_CVC_ENUMERATION_VALID => {
            format!("The value '{value}' is not an element of the set {{{rule}}}")
        }
        c::xmlParserErrors_XML_SCHEMAV_CVC_PATTERN_VALID => {
            format!("The value '{value}' is not accepted by the pattern '{rule}'")
        }
        c::xmlParserErrors_XML_SCHEMAV_CVC_LENGTH_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_MINLENGTH_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_MAXLENGTH_VALID => {
            format!("The value '{value}' has a length of '{rule}'; the limit is '{other}'")
        }
        c::xmlParserErrors_XML_SCHEMAV_CVC_MININCLUSIVE_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_MAXINCLUSIVE_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_MINEXCLUSIVE_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_MAXEXCLUSIVE_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_TOTALDIGITS_VALID
        | c::xmlParserErrors_XML_SCHEMAV_CVC_FRACTIONDIGITS_VALID => {
            format!("The value '{value}' is beyond the limit '{rule}' of its type")
        }
        c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_1
        | c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_2
        | c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_3 => {
            format!("'{value}' is not a valid value of its type")
        }
        c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_5_2_2_2_1
        | c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_5_2_2_2_2
        | c::xmlParserErrors_XML_SCHEMAV_CVC_ATTRIBUTE_4
        | c::xmlParserErrors_XML_SCHEMAV_CVC_AU => {
            format!("The value '{value}' does not match the fixed value '{rule}'")
        }
        _ => format!("The value '{value}' is not permitted"),
    };

    // The subject may be cut, too.
    let subject = message.split_once("': ").map(|(subject, _)| subject.to_owned());
    let subject = subject.unwrap_or_else(|| format!("{message}{MARK}"));
    format!("{subject}': {detail}.\n")
}
