//! Splits payloads and queries into the words of the full-text table.
//!
//! A word is a run of letters, digits and marks. Hyphens and underscores inside a run belong to the
//! word, so `INV-777` is one word. Runs in scripts that are written without spaces (Chinese,
//! Japanese, Thai and others) are cut into overlapping groups of three characters, so that any part
//! of a run can be found. The tables of Rust state which characters are letters.

use std::borrow::Cow;

use unicode_general_category::{GeneralCategory, get_general_category};

use crate::envelope::Payload;
use crate::shorten::truncate_chars;
use crate::xml::element::{Element, Node};
use crate::xml::escape::reference;
use crate::xml::invisible_characters::is_hidden;

/// First character of the special word with which the index marks the tree of each message. Unicode
/// reserves the character for private use, so no word of a text or of a query contains it.
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
            add_verbatim_words(text, false, out);
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

/// Adds the words of a text to `out`, separated by spaces. Decodes XML references.
pub fn add_words(text: &str, out: &mut String) {
    if text.is_ascii() && !text.contains(['-', '_', '&']) {
        begin_word(out);
        return out.push_str(text);
    }
    add_verbatim_words(&decoded(text), false, out);
}

fn begin_word(out: &mut String) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
}

/// Adds the words of a text without XML references to `out`, as [`add_words`] does. `goes_on`
/// states whether the text may end in the middle of a word, as `INV-` does in the query `INV-*`. A
/// hyphen or underscore at the end then belongs to the word.
fn add_verbatim_words(text: &str, goes_on: bool, out: &mut String) {
    begin_word(out);
    let mut run = Vec::new();
    let mut chars = visible_chars(text).peekable();
    // Whether the character before is part of a word, and no hyphen or underscore.
    let mut is_in_word = false;
    while let Some(char) = chars.next() {
        if is_unspaced(char) {
            run.push(char);
            is_in_word = false;
            continue;
        }
        add_groups(&mut run, out);
        let is_joint = matches!(char, '-' | '_');
        // The tables of SQLite are older than those of Rust, and take each unknown character for
        // part of a word. So a space replaces each character that separates words.
        let is_part = if is_joint {
            let continues = |after: &char| is_word_char(*after) && !is_unspaced(*after);
            is_in_word && chars.peek().map_or(goes_on, continues)
        } else {
            is_word_char(char) || is_in_word && is_mark(char)
        };
        out.push(if is_part { char } else { ' ' });
        is_in_word = is_part && !is_joint;
    }
    add_groups(&mut run, out);
}

/// Returns the characters of a text without hidden marks. Such a mark, for example a variation
/// selector, changes at most the shape of the characters beside it.
fn visible_chars(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|char| !(is_hidden(*char) && is_mark(*char)))
}

/// Whether the character is a letter or digit. Encircled letters, such as `Ⓐ`, are symbols, and
/// blank letters, such as the Hangul filler, are spaces.
fn is_word_char(char: char) -> bool {
    char.is_alphanumeric()
        && !matches!(char, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f189}')
        && !is_hidden(char)
}

/// Whether the character is a mark that belongs to the letter before it, such as an accent. False
/// for a mark that encloses a character, as in a keycap, because the two together are a symbol.
fn is_mark(char: char) -> bool {
    let marks = [GeneralCategory::NonspacingMark, GeneralCategory::SpacingMark];
    !char.is_ascii() && marks.contains(&get_general_category(char))
}

/// Decodes the XML references in a text.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }

    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, behind) = rest.split_at(at);
        let (char, length) = reference(behind).unwrap_or((' ', 1));
        out.push_str(before);
        out.push(char);
        rest = behind.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    Cow::Owned(out)
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
    for char in visible_chars(&decoded(text)) {
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

/// Adds a search term for the words of `text`, and empties `text`.
fn add_word_terms(text: &mut String, is_prefix: bool, terms: &mut Vec<String>) {
    let mut words = String::new();
    add_verbatim_words(text, is_prefix, &mut words);
    text.clear();
    // After a separator, the `*` begins another word.
    let is_prefix = is_prefix && !words.ends_with(' ');
    let words = words.trim();
    if !words.is_empty() {
        terms.push(format!("\"{words}\"{}", if is_prefix { " *" } else { "" }));
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

#[cfg(test)]
mod tests {

    use rusqlite::Connection;

    use super::*;

    /// Creates the full-text table in memory. Its rows are the words of `payloads`, from row 0 on.
    fn table_of<'p>(payloads: impl IntoIterator<Item = &'p str>) -> Connection {
        let table = Connection::open_in_memory().unwrap();
        table.execute_batch(crate::index::WORDS_SCHEMA).unwrap();
        for (row, payload) in payloads.into_iter().enumerate() {
            let mut words = String::new();
            add_payload_words(payload, &mut words);
            add_row(&table, row, &words);
        }
        table
    }

    fn add_row(table: &Connection, row: usize, words: &str) {
        let insert = "INSERT INTO word(rowid, text) VALUES (?1, ?2)";
        let mut insert = table.prepare_cached(insert).unwrap();
        insert.execute((i64::try_from(row).unwrap(), words)).unwrap();
    }

    /// Returns the rows that match a query.
    fn found(table: &Connection, query: &str) -> Vec<i64> {
        let query = match_query(query).unwrap();
        let mut select = table.prepare("SELECT rowid FROM word WHERE word MATCH ?1").unwrap();
        let rows = select.query_map([query], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn sqlite_takes_each_word_with_any_character_of_unicode_for_one_token() {
        let table = table_of([]);
        let tokens = "CREATE VIRTUAL TABLE temp.token USING fts5vocab(main, word, instance)";
        table.execute_batch(tokens).unwrap();
        // One transaction, because each one takes time of its own.
        table.execute_batch("BEGIN").unwrap();
        // A sign in a script without spaces, such as `฿`, is part of a group whatever SQLite does.
        let is_exact = |char: &char| !is_unspaced(*char) || is_word_char(*char) || is_mark(*char);
        // Beyond the assigned planes, all characters have the same properties but for a few tags.
        let assigned = ('\0'..='\u{3ffff}').chain('\u{e0000}'..='\u{e0fff}');
        let unassigned = ('\u{40000}'..=char::MAX).step_by(251);
        let chars: Vec<char> = assigned.chain(unassigned).filter(is_exact).collect();
        let blocks: Vec<&[char]> = chars.chunks(256).collect();
        let mut expected = Vec::new();
        for (row, block) in blocks.iter().enumerate() {
            let texts = block.iter().map(|char| format!("a{char}-b {char}-b "));
            let mut words = String::new();
            add_words(&texts.collect::<String>(), &mut words);
            expected.push(words.split(' ').filter(|word| !word.is_empty()).count());
            add_row(&table, row, &words);
        }

        let select = "SELECT count(*), sum(term GLOB '[-_]*') FROM token GROUP BY doc ORDER BY doc";
        let mut select = table.prepare(select).unwrap();
        let tokens = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let tokens: Vec<(usize, usize)> = tokens.map(Result::unwrap).collect();
        assert_eq!(tokens.len(), expected.len());
        for ((block, words), (tokens, hyphens)) in blocks.iter().zip(expected).zip(tokens) {
            let range = format!("{:?} to {:?}", block.first(), block.last());
            assert_eq!(tokens, words, "{range}");
            assert_eq!(hyphens, 0, "{range}");
        }
    }

    #[test]
    fn a_word_beside_an_enclosing_mark_is_found() {
        let payloads = [
            "<p>step 1\u{fe0f}\u{20e3}-INV-701 paid</p>",
            "<p>step 1\u{20e3}_INV-701 paid</p>",
            "<p>a\u{20dd}-INV-701</p>",
            "<p>INV-701\u{3164}paid</p>",
        ];
        assert_eq!(found(&table_of(payloads), "INV-701"), [0, 1, 2, 3]);
    }

    #[test]
    fn a_beginning_with_a_hyphen_after_a_mark_is_found() {
        let payloads = [
            "<p>தமிழ்-2024</p>",
            "<p>cafe\u{301}-bar</p>",
            "<p>\u{a98f}\u{a9c0}-7</p>",
            "<p>INV\u{fe0f}-\u{e0100}7</p>",
        ];
        let table = table_of(payloads);
        for (query, row) in [
            ("தமிழ்-*", 0),
            ("cafe\u{301}-*", 1),
            ("café-*", 1),
            ("\u{a98f}\u{a9c0}-*", 2),
            ("INV-*", 3),
            ("INV-\u{fe0f}*", 3),
        ] {
            assert_eq!(found(&table, query), [row], "{query}");
        }
    }

    #[test]
    fn a_hidden_mark_changes_no_word() {
        let table = table_of(["<p>葛城</p>", "<p>葛飾と宮城</p>", "<p>\u{182a}\u{1822}</p>"]);
        assert_eq!(found(&table, "葛\u{e0100}城"), [0]);
        for mark in ['\u{34f}', '\u{180b}', '\u{180c}', '\u{180d}', '\u{180f}', '\u{fe00}'] {
            assert_eq!(found(&table, &format!("\u{182a}{mark}\u{1822}")), [2], "{mark:?}");
        }
    }

    #[test]
    fn references_are_decoded_except_in_cdata() {
        let table = table_of(["<p>&#65;&#x042;&#000067;</p>", "<p><![CDATA[&#65;BC]]></p>"]);
        assert_eq!(found(&table, "ABC"), [0]);
        assert_eq!(found(&table, "&#65;BC"), [0]);
        assert_eq!(found(&table, "65"), [1]);
        assert_eq!(found(&table, "BC"), [1]);
    }

    /// Adds the words of texts with two million `&`, none of which begins a reference. The test
    /// must end in seconds. If each `&` caused a search through the whole rest of the text for the
    /// end of a reference, the test would take minutes.
    #[test]
    fn many_ampersands_take_linear_time() {
        let mut words = String::new();
        add_words(&"&".repeat(2_000_000), &mut words);
        add_words(&"&#".repeat(2_000_000), &mut words);
        assert!(words.bytes().all(|byte| b" &#".contains(&byte)));
    }
}
