//! Fitting text into columns.

/// How many columns a text takes: wide characters take two, marks none.
pub fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

fn char_columns(char: char) -> usize {
    match u32::from(char) {
        0x300..=0x36F | 0x200B..=0x200D | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1F64F
        | 0x1F900..=0x1F9FF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// Without what could steer a terminal or turn text around: control characters become `·`.
pub fn clean(text: &str) -> String {
    let harmless = |char| match char {
        '\n' => '\n',
        '\t' => ' ',
        '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => '·',
        char if char.is_control() => '·',
        char => char,
    };

    text.chars().map(harmless).collect()
}

/// Lines of at most `width` columns, broken at spaces where there are any; a broken line's rest
/// keeps its indentation.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = Vec::new();
    for line in clean(text).lines() {
        wrap_line(line.trim_end(), width, &mut lines);
    }
    lines
}

fn wrap_line(line: &str, width: usize, lines: &mut Vec<String>) {
    if columns(line) <= width {
        lines.push(line.to_owned());
        return;
    }

    let depth = line.len() - line.trim_start().len();
    let indent = " ".repeat(depth.min(width / 2));
    let mut current = indent.clone();
    let mut filled = false;

    for word in line.trim_start().split(' ') {
        let gap = usize::from(filled);
        if filled && columns(&current) + gap + columns(word) > width {
            lines.push(std::mem::replace(&mut current, indent.clone()));
        } else if filled {
            current.push(' ');
        }
        for char in word.chars() {
            if columns(&current) + char_columns(char) > width {
                lines.push(std::mem::replace(&mut current, indent.clone()));
            }
            current.push(char);
        }
        filled = true;
    }

    lines.push(current);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_asked_and_no_word_is_lost() {
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
        assert_eq!(clean(hostile), "a·[31mb··2J·c··");
    }
}
