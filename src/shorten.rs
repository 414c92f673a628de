//! Cuts long texts after a number of characters.

/// Cuts `text` after `chars_max` characters. Nothing marks the cut.
pub fn truncate_chars(text: &mut String, chars_max: usize) {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
    }
}

/// Returns `text`, or its first `chars_max` characters and `…` if it is longer.
pub fn shorten(text: &str, chars_max: usize) -> String {
    let mut short = text.to_owned();
    truncate_chars(&mut short, chars_max);
    if short.len() < text.len() {
        short.push('…');
    }

    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut text = "äöü".to_owned();
        truncate_chars(&mut text, 3);
        assert_eq!(text, "äöü");

        truncate_chars(&mut text, 2);
        assert_eq!(text, "äö");
    }

    #[test]
    fn only_a_cut_is_marked() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöü", 2), "äö…");
    }
}
