//! Measures, cleans and wraps text for terminal columns.

use std::borrow::Cow;

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::UnicodeWidthStr as _;

use crate::xml::invisible_characters::{hidden, visible};

/// Returns the number of terminal columns that a text takes: two for wide characters, none for
/// combining marks.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// Replaces each tab by a space. Writes the code point in place of each character that a screen
/// would interpret, reorder or hide. Keeps line breaks.
pub fn clean(text: &str) -> String {
    visible(text).replace('\t', " ")
}

/// Cleans a text as [`clean`] does, and writes line breaks as `\n`, so that the text cannot imitate
/// another line of the output.
pub fn one_line(text: &str) -> String {
    clean(text).replace('\n', "\\n")
}

/// Writes the code point in place of each character that a screen would interpret, reorder or hide.
/// Keeps tabs and line breaks. This function is idempotent.
pub fn show_hidden(text: &str) -> Cow<'_, str> {
    if hidden(text) == 0 { Cow::Borrowed(text) } else { Cow::Owned(visible(text)) }
}

/// Wraps a text to lines of at most `width` columns, at spaces if possible. A continuation line
/// gets the indentation of the line that it continues.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    clean(text).lines().flat_map(|line| wrap_line(line.trim_end(), width)).collect()
}

fn wrap_line(line: &str, width: usize) -> Vec<String> {
    if columns(line) <= width {
        return vec![line.to_owned()];
    }

    let depth = line.len() - line.trim_start().len();
    let indent = " ".repeat(depth.min(width / 2));
    let options = Options::new(width)
        .initial_indent(&indent)
        .subsequent_indent(&indent)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let lines = textwrap::wrap(line.trim_start(), options);
    lines.into_iter().map(Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wrapped_line_is_too_wide_and_no_word_is_lost() {
        let texts = [
            "a short one",
            "one two three four five six seven eight nine ten eleven twelve",
            "https://example.org/a/very/long/address/that/has/no/space/in/it/at/all",
            "    indented code keeps its indentation when it is broken into lines",
            "漢字は二つの列を取るので半分しか入らない文章",
        ];
        for text in texts {
            for width in [8, 13, 20, 79] {
                let lines = wrap(text, width);
                assert!(lines.iter().all(|line| columns(line) <= width), "{lines:?}");
                let joined: String = lines.concat().split(' ').collect();
                assert_eq!(joined, text.split(' ').collect::<String>(), "{width}");
            }
        }
    }

    #[test]
    fn nothing_in_a_text_can_steer_the_terminal() {
        let hostile = "a\u{1b}[31mb\u{7}\u{9b}2J\u{202e}c\r\u{8}";
        assert_eq!(clean(hostile), "a\\u{1b}[31mb\\u{7}\\u{9b}2J\\u{202e}c\\u{d}\\u{8}");
    }
}
