//! Splits payloads and queries into the words of the full-text table.
//!
//! A word is a run of letters, digits and marks. Hyphens and underscores inside a run belong to the
//! word, so `INV-777` is one word. Runs in scripts that are written without spaces (Chinese,
//! Japanese, Thai and others) are cut into overlapping groups of three characters, so that any part
//! of a run can be found.

use crate::envelope::Payload;
use crate::shorten::truncate_chars;
use crate::xml::element::{Element, Node};

/// First character of the special word that the index adds to each message to name the message's
/// tree. No word of a text or of a query contains this character.
const TREE_MARK: char = '\u{f8f0}';

/// Number of characters in each group into which text without spaces, such as Chinese text, is cut.
const GROUP_CHARS: usize = 3;

/// Returns the first words of a payload's text, on one line: at most `most` characters. Returns
/// `None` if the payload was redacted or has no text.
pub fn first_words(payload: &Payload, most: usize) -> Option<String> {
    if payload.is_redacted() {
        return None;
    }

    let mut words = String::new();
    collect(&Element::read(payload.as_str())?, most, &mut words);
    truncate_chars(&mut words, most);
    (!words.is_empty()).then_some(words)
}

/// Adds words of an element to `words`, until `words` is long enough for [`first_words`].
fn collect(element: &Element, most: usize, words: &mut String) {
    for node in &element.content {
        match node {
            Node::Element(inner) => collect(inner, most, words),
            Node::Text(text) => {
                for word in text.split_whitespace() {
                    // A character has at most four bytes.
                    if words.len() >= most * 4 {
                        return;
                    }
                    if !words.is_empty() {
                        words.push(' ');
                    }
                    words.push_str(word);
                }
            }
        }
    }
}

/// Adds the words of an accepted payload to `out`. These are the words of its text and of its
/// attribute values, without the names of elements and without namespaces.
pub fn add_payload_words(payload: &str, out: &mut String) {
    let mut rest = payload;
    while let Some(at) = rest.find('<') {
        let (text, markup) = rest.split_at(at);
        add_words(text, out);
        rest = if let Some(comment) = markup.strip_prefix("<!--") {
            comment.split_once("-->").map_or("", |(_, rest)| rest)
        } else if let Some(verbatim) = markup.strip_prefix("<![CDATA[") {
            let (text, rest) = verbatim.split_once("]]>").unwrap_or((verbatim, ""));
            add_words(text, out);
            rest
        } else {
            add_tag_words(markup, out)
        };
    }
    add_words(rest, out);
}

/// Adds the attribute values of the tag at the beginning of `markup`. Returns the text after the
/// tag.
fn add_tag_words<'t>(markup: &'t str, out: &mut String) -> &'t str {
    let mut rest = markup;
    loop {
        let Some(at) = rest.find(['=', '>']) else { return "" };
        let (name, mark) = rest.split_at(at);
        let Some(value) = mark.strip_prefix('=') else {
            return mark.get(1..).unwrap_or_default();
        };

        let value = value.trim_start();
        let Some(quote) = value.chars().next() else { return "" };
        let quoted = value.get(quote.len_utf8()..).unwrap_or_default();
        let (value, after) = quoted.split_once(quote).unwrap_or((quoted, ""));
        let name = name.trim_end();
        let name = name.rsplit(char::is_whitespace).next().unwrap_or(name);
        if !name.starts_with("xmlns") {
            add_words(value, out);
        }
        rest = after;
    }
}

/// Adds the words of a text to `out`, separated by spaces.
pub fn add_words(text: &str, out: &mut String) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
    if text.is_ascii() && !text.contains(['-', '_', '&']) {
        return out.push_str(text);
    }

    let mut run = Vec::new();
    let mut chars = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((at, char)) = chars.next() {
        if is_unspaced(char) {
            run.push(char);
            before = char;
            continue;
        }
        add_groups(&mut run, out);
        let after = chars.peek().map_or(' ', |(_, after)| *after);
        let shown = match char {
            '-' | '_' if !(before.is_alphanumeric() && after.is_alphanumeric()) => ' ',
            TREE_MARK => ' ',
            '&' => {
                if let Some((decoded, length)) = reference(text.get(at..).unwrap_or_default()) {
                    for _ in 1..length {
                        chars.next();
                    }
                    if decoded == TREE_MARK { ' ' } else { decoded }
                } else {
                    ' '
                }
            }
            other => other,
        };
        out.push(shown);
        before = shown;
    }
    add_groups(&mut run, out);
}

/// Decodes the XML reference at the beginning of `text`. Returns the character, such as `A` for
/// `&#65;`, and the length of the reference. For a named reference, such as `&amp;`, returns a
/// space, because its character only separates words. Returns `None` if `text` does not begin with
/// a valid reference.
fn reference(text: &str) -> Option<(char, usize)> {
    let (name, _) = text.strip_prefix('&')?.split_once(';')?;
    let length = name.len() + 2;
    let number = match name.strip_prefix('#') {
        Some(digits) => match digits.strip_prefix('x') {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => digits.parse().ok()?,
        },
        None => {
            return ["lt", "gt", "amp", "quot", "apos"].contains(&name).then_some((' ', length));
        }
    };
    Some((char::from_u32(number)?, length))
}

/// Adds the groups of a run of characters that is written without spaces. Each character begins a
/// group of up to three characters.
fn add_groups(run: &mut Vec<char>, out: &mut String) {
    if run.is_empty() {
        return;
    }
    out.push(' ');
    for from in 0..run.len() {
        out.extend(run.iter().skip(from).take(GROUP_CHARS));
        out.push(' ');
    }
    run.clear();
}

/// Adds the special word that stands for the tree with the number `tree`.
pub fn add_tree_word(tree: i64, out: &mut String) {
    out.push(' ');
    out.push(TREE_MARK);
    out.push_str(&tree.to_string());
}

/// Returns the query for the messages that match `query` and belong to the tree `tree`.
pub fn match_in_tree(query: &str, tree: i64) -> String {
    format!("{query} AND \"{TREE_MARK}{tree}\"")
}

/// Whether the character belongs to a script that is written without spaces between words.
fn is_unspaced(char: char) -> bool {
    matches!(char,
        '\u{0e00}'..='\u{0eff}' // Thai, Lao
        | '\u{1000}'..='\u{109f}' // Burmese
        | '\u{1780}'..='\u{17ff}' // Khmer
        | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{30ff}' // Hiragana, katakana
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' // Han
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}'
        | '\u{20000}'..='\u{323af}')
}

/// Error: the text of a search filter contains no word, as in `€` or `*`. Such a text would set no
/// condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{words}` contains no word")]
pub struct MissingSearchWord {
    words: String,
}

/// Returns an error if `words`, the text of a search filter, is not empty but contains no word.
pub fn check_words(words: &str) -> Result<(), MissingSearchWord> {
    if words.is_empty() || match_query(words).is_some() {
        return Ok(());
    }
    Err(MissingSearchWord { words: words.to_owned() })
}

/// Returns the query of the full-text table for messages that contain all words of `text`. A word
/// that ends with `*` matches all words with that beginning. Quoted words must follow each other.
/// Returns `None` if the text has no word.
pub fn match_query(text: &str) -> Option<String> {
    // SQLite would end the query at a NUL.
    let text = text.replace(char::is_control, " ");
    let mut terms = Vec::new();
    for (at, part) in text.split('"').enumerate() {
        if at % 2 == 1 {
            add_phrase(part, false, &mut terms);
        } else {
            for word in part.split_whitespace() {
                let stem = word.trim_end_matches('*');
                add_phrase(stem, stem.len() < word.len(), &mut terms);
            }
        }
    }
    (!terms.is_empty()).then(|| terms.join(" AND "))
}

/// Splits `text` at each run of characters in a script without spaces, such as Chinese. Adds one
/// search term for each run, and one for each other part of `text`. The words of one term must
/// follow each other in a message.
fn add_phrase(text: &str, is_prefix: bool, terms: &mut Vec<String>) {
    let mut words = String::new();
    let mut run = Vec::new();
    for char in text.chars() {
        if is_unspaced(char) {
            add_word_terms(&mut words, false, terms);
            run.push(char);
        } else {
            add_run(&mut run, terms);
            words.push(char);
        }
    }
    add_run(&mut run, terms);
    add_word_terms(&mut words, is_prefix, terms);
}

/// Returns the last character of `text` if this is a hyphen or underscore after a letter or digit.
/// A search for `INV-*` must keep this character, because the words to be found, such as `INV-777`,
/// contain it.
fn joining_mark(text: &str) -> Option<char> {
    let mut chars = text.chars().rev();
    let mark = chars.next().filter(|last| matches!(last, '-' | '_'))?;
    chars.next().filter(|before| before.is_alphanumeric()).map(|_| mark)
}

fn add_word_terms(text: &mut String, is_prefix: bool, terms: &mut Vec<String>) {
    let mut words = String::new();
    add_words(&text.replace('"', " "), &mut words);
    if let Some(mark) = joining_mark(text).filter(|_| is_prefix) {
        words.pop();
        words.push(mark);
    }
    text.clear();
    // After a separator, the `*` begins another word.
    let is_prefix = is_prefix && !words.ends_with(' ');
    if words.chars().any(char::is_alphanumeric) {
        terms.push(format!("\"{}\"{}", words.trim(), if is_prefix { " *" } else { "" }));
    }
}

/// Adds the search term for `run`, a run of characters in a script without spaces. A message
/// matches if it contains all groups of three neighbouring characters of the run, one after
/// another. For a run of one or two characters, a message matches if it contains a group that
/// begins with the run.
fn add_run(run: &mut Vec<char>, terms: &mut Vec<String>) {
    if run.is_empty() {
        return;
    }
    let groups: Vec<String> =
        run.windows(GROUP_CHARS).map(|group| group.iter().collect()).collect();
    terms.push(if groups.is_empty() {
        format!("\"{}\" *", run.iter().collect::<String>())
    } else {
        format!("\"{}\"", groups.join(" "))
    });
    run.clear();
}
