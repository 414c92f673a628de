//! The words of payloads.

use crate::envelope::Payload;
use crate::limits;
use crate::xml::element::{Element, Node};

/// The first words of a payload's text, on one line. `None` if the payload was redacted or has no
/// text.
pub fn first_words(payload: &Payload) -> Option<String> {
    if payload.is_redacted() {
        return None;
    }

    let mut words = String::new();
    collect(&Element::read(payload.as_str())?, &mut words);
    if let Some((end, _)) = words.char_indices().nth(limits::FIRST_WORDS_CHARS_MAX) {
        words.truncate(end);
    }
    (!words.is_empty()).then_some(words)
}

/// Adds the words of an element to `words`, until there are enough.
fn collect(element: &Element, words: &mut String) {
    for node in &element.content {
        match node {
            Node::Element(inner) => collect(inner, words),
            Node::Text(text) => {
                for word in text.split_whitespace() {
                    // A character has at most four bytes.
                    if words.len() >= limits::FIRST_WORDS_CHARS_MAX * 4 {
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
