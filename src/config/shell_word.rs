//! Quotes paths and other words for the shell commands that error messages recommend.

use std::fmt::Write as _;

use crate::xml::invisible_characters::is_hidden;

/// Quotes a text as one word of a shell command. Writes line breaks, and characters that a screen
/// would interpret or hide, as escapes of the form `$'\033'`. So the screen shows the whole word,
/// and the shell still reads the same text.
pub fn in_shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+:@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if !text.contains(|c: char| is_hidden(c) || c == '\n') {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }

    let mut word = "$'".to_owned();
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if is_hidden(c) || c == '\n' => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(word, "\\{byte:03o}");
                }
            }
            c => word.push(c),
        }
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_its_meaning_for_the_shell_and_none_for_the_screen() {
        assert_eq!(in_shell("a/b-c.toml"), "a/b-c.toml");
        assert_eq!(in_shell("it's here"), "'it'\\''s here'");
        let hostile = "d\u{1b}[31m\u{9b}1mX\u{202e}\n'\\9";
        let word = in_shell(hostile);
        assert_eq!(word, "$'d\\033[31m\\302\\2331mX\\342\\200\\256\\012\\'\\\\9'");
        let printed = std::process::Command::new("bash")
            .args(["-c", &format!("printf %s {word}")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), hostile);
    }
}
