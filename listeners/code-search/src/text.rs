//! Prepares the text of files for XML.

/// Replaces each character that XML does not preserve with the visible character U+FFFD.
pub fn legible(text: &str) -> String {
    text.chars().map(|c| if is_xml(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Whether XML preserves a character. A carriage return is not preserved, because a parser reads it
/// as a line feed.
fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Returns the longest prefix of `text` that has at most `bytes` bytes and ends between two
/// characters.
pub fn head(text: &str, bytes: usize) -> &str {
    (0..=bytes.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Returns the part of `text` from the first character boundary at or after the byte offset
/// `bytes`.
pub fn tail(text: &str, bytes: usize) -> &str {
    (bytes..=text.len()).find_map(|start| text.get(start..)).unwrap_or_default()
}

/// Whether the content of a file is binary. As in `grep`, content counts as binary if it contains a
/// NUL.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_carry_is_replaced_visibly() {
        assert_eq!(
            legible("a\u{1b}[0m\u{0}b\r\u{ffff}\tc"),
            "a\u{fffd}[0m\u{fffd}b\u{fffd}\u{fffd}\tc"
        );
    }

    #[test]
    fn a_cut_falls_between_characters() {
        assert_eq!(head("aéb", 2), "a");
        assert_eq!(tail("aéb", 2), "b");
    }
}
