//! The text of one turn of a model, with a mark at each finding. Also lists the messages that the
//! turn's prompt left out.

use maud::{Markup, html};

use super::layout::{cut, inline, shown};
use super::message;
use crate::audit::{TurnFinding, TurnText};
use crate::limits;
use crate::plural::count;

/// Draws the sections of a turn on the page of a message.
pub(super) fn sections(text: &TurnText) -> Markup {
    let lines = text.raw.lines().count();
    let cut = lines.saturating_sub(limits::WEB_DIFF_LINES) as u64;
    let is_later = |finding: &&TurnFinding| {
        finding.line == 0 || finding.line > lines.min(limits::WEB_DIFF_LINES)
    };
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        text.findings.iter().partition(|finding| !is_later(finding));
    let shown_lines = text.raw.lines().take(limits::WEB_DIFF_LINES);
    html! {
        details open[!text.findings.is_empty()] {
            summary {
                "Raw text of the turn, " (count(text.findings.len() as u64, "finding"))
            }
            pre.body.written.numbered {
                @for (number, line) in (1..).zip(shown_lines) {
                    (line_of(line, &numbered(&here, number)))
                }
            }
            @if cut > 0 { p.more { "… " (count(cut, "more line")) "; the note has them all." } }
            @if !here.is_empty() {
                ol.findings {
                    @for finding in here.iter().take(limits::WEB_PAGE_ROWS) {
                        li { "line " (finding.line) ", column " (finding.column) ": " (self::finding(finding)) }
                    }
                }
            }
            @if !elsewhere.is_empty() {
                ul {
                    @for finding in elsewhere.iter().take(limits::WEB_PAGE_ROWS) {
                        li { (self::finding(finding)) @if finding.line > 0 { ", line " (finding.line) } }
                    }
                }
            }
        }
        @if !text.left_out.is_empty() {
            h2 { "What the model did not get to see" }
            p {
                "The context window had no room for "
                (count(text.left_out.len() as u64, "message"))
                ". In the prompt, a stub stands for each."
            }
            ul {
                @for left_out in text.left_out.iter().take(limits::WEB_PAGE_ROWS) {
                    li { (message::link(*left_out)) }
                }
            }
        }
    }
}

/// Returns the findings of a line, each with its number in the list of findings.
fn numbered<'f>(findings: &[&'f TurnFinding], line: usize) -> Vec<(usize, &'f TurnFinding)> {
    let numbers = (1..).zip(findings.iter().copied());
    let own = numbers.filter(|(_, finding)| finding.line == line);
    own.take(limits::WEB_LINE_FINDINGS).collect()
}

/// Draws a line of a model's text. Marks the place of each finding, and adds the finding's number.
/// The marks are part of the text, so they stay correct when the browser wraps the line.
fn line_of(line: &str, findings: &[(usize, &TurnFinding)]) -> Markup {
    let (text, more) = cut(line, limits::WEB_EXCERPT_CHARS);
    let mut parts = Vec::new();
    let mut shown_to = 0;
    for (number, finding) in findings {
        let begin = byte_of_column(text, finding.column).max(shown_to);
        let until = begin + marked_bytes(text.get(begin..).unwrap_or_default());
        parts.push(html! {
            (shown(text.get(shown_to..begin).unwrap_or_default()))
            mark { (shown(text.get(begin..until).unwrap_or_default())) sup { (number) } }
        });
        shown_to = until;
    }
    html! {
        @for part in &parts { (part) }
        (shown(text.get(shown_to..).unwrap_or_default())) (more) "\n"
    }
}

/// Returns the byte index at which a column begins. Columns are counted from 1. For a column after
/// the end of the line, returns the end.
fn byte_of_column(line: &str, column: usize) -> usize {
    let at = line.char_indices().nth(column.saturating_sub(1));
    at.map_or(line.len(), |(at, _)| at)
}

/// Returns the length, in bytes, of the mark for a finding at the beginning of `rest`. The mark
/// covers a tag up to its `>`, or one word.
fn marked_bytes(rest: &str) -> usize {
    let is_tag = rest.starts_with('<');
    let end = if is_tag {
        rest.find('>').map(|at| at + 1)
    } else {
        rest.char_indices().skip(1).find(|(_, c)| c.is_whitespace() || *c == '<').map(|(at, _)| at)
    };
    end.unwrap_or(rest.len())
}

fn finding(finding: &TurnFinding) -> Markup {
    html! {
        code { (inline(&finding.code)) } ": " (inline(&finding.message))
        @if finding.is_accepted { " (accepted)" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_at(line: usize, column: usize) -> TurnFinding {
        TurnFinding {
            line,
            column,
            code: "schema-invalid".to_owned(),
            message: "<b> is not expected".to_owned(),
            is_accepted: false,
        }
    }

    fn drawn(raw: &str, findings: Vec<TurnFinding>) -> String {
        sections(&TurnText { raw: raw.to_owned(), findings, left_out: Vec::new() }).into_string()
    }

    #[test]
    fn a_finding_marks_its_characters_and_stands_in_a_list() {
        let page = drawn("first\n  <b>\u{202e}\nlast", vec![finding_at(2, 3)]);
        let marked = "first\n  <mark>&lt;b&gt;<sup>1</sup></mark>\\u{202e}\nlast\n</pre>";
        assert!(page.contains(marked), "{page}");
        let (_, list) = page.split_once("<ol class=\"findings\">").unwrap();
        assert!(list.starts_with("<li>line 2, column 3: <code>"), "{list}");
        assert!(list.contains("&lt;b&gt; is not expected"), "{list}");

        let long = drawn(&"x".repeat(1 << 20), Vec::new());
        assert!(long.len() < 2 * limits::WEB_EXCERPT_CHARS);
    }

    #[test]
    fn a_mark_far_to_the_right_covers_the_faulty_tag() {
        let raw = format!("<say>{}</say><order><m/></order>", "ä".repeat(100));
        let page = drawn(&raw, vec![finding_at(1, 119), finding_at(1, 500)]);
        let marked = "&lt;order&gt;<mark>&lt;m/&gt;<sup>1</sup></mark>&lt;/order&gt;";
        assert!(page.contains(marked), "{page}");
        assert!(page.contains("<mark><sup>2</sup></mark>\n"), "{page}");
    }
}
