//! Draws unified diffs as coloured lines.

use maud::{Markup, html};

use super::layout::{cut, shown};
use super::payload_text::PageRoom;
use crate::limits;
use crate::plural::count;

/// Draws the lines of a unified diff. Replaces the line numbers in the diff's headers by `…`. Keeps
/// the signs `+` and `-`, so that a change is visible without colours.
pub(super) fn changed_lines(diff: &str, room: &PageRoom) -> Markup {
    if !room.claim_room() {
        return html! {};
    }
    let lines = diff.lines().take(limits::WEB_DIFF_LINES);
    let written = html! { @for line in lines { (changed_line(line)) } };
    let left = diff.lines().count().saturating_sub(limits::WEB_DIFF_LINES) as u64;
    html! {
        pre.body.diff { (room.take(written)) }
        @if left > 0 { p.more { "… " (count(left, "more line")) } }
    }
}

fn changed_line(line: &str) -> Markup {
    let (text, more) = cut(line, limits::WEB_EXCERPT_CHARS);
    html! {
        @match text.chars().next() {
            Some('@') => "…\n",
            Some('-') => { del { (shown(text)) (more) } "\n" }
            Some('+') => { ins { (shown(text)) (more) } "\n" }
            _ => { (shown(text)) (more) "\n" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_text_with_its_signs_and_no_longer_than_its_bound() {
        let room = PageRoom::new();
        let drawn = changed_lines("@@ -1 +1 @@\n-<b>\u{202e}\n+x\n same", &room).into_string();
        let expected = "<pre class=\"body diff\">…\n<del>-&lt;b&gt;\\u{202e}</del>\n\
                        <ins>+x</ins>\n same\n</pre>";
        assert_eq!(drawn, expected);

        let long = format!("-{}", "漢".repeat(1 << 20));
        let drawn = changed_lines(&long, &room).into_string();
        assert!(drawn.len() < 4 * limits::WEB_EXCERPT_CHARS, "{}", drawn.len());
        let many = "+x\n".repeat(10 * limits::WEB_DIFF_LINES);
        let drawn = changed_lines(&many, &room).into_string();
        assert_eq!(drawn.matches("<ins>").count(), limits::WEB_DIFF_LINES);
        assert!(drawn.contains("more lines"), "{drawn}");
    }
}
