//! Quotes paths and other words for the shell commands that error messages recommend.

use crate::xml::invisible_characters::visible;

/// Quotes a text as one word of a shell command. Makes control characters visible, so that a
/// terminal does not act on them.
pub fn in_shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+:@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    visible(&format!("'{}'", text.replace('\'', "'\\''")))
}
