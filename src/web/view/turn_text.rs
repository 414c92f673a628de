//! The text of one turn of a model, with each finding beneath its line, and the messages that the
//! prompt of the turn left out.

use maud::{Markup, html};

use super::layout::{inline, shown};
use super::message;
use crate::audit::amounts::count;
use crate::audit::{TurnFinding, TurnText};
use crate::limits;

/// Draws the sections of a turn on the page of a message.
pub(super) fn sections(text: &TurnText) -> Markup {
    let lines = text.raw.lines().count();
    let cut = lines.saturating_sub(limits::WEB_DIFF_LINES) as u64;
    let is_later = |finding: &&TurnFinding| {
        finding.line == 0 || finding.line > lines.min(limits::WEB_DIFF_LINES)
    };
    let elsewhere: Vec<_> = text.findings.iter().filter(is_later).collect();
    html! {
        details open[!text.findings.is_empty()] {
            summary {
                "Raw text of the turn, " (count(text.findings.len() as u64, "finding"))
            }
            pre.body.written.numbered {
                @for (number, line) in (1..).zip(text.raw.lines().take(limits::WEB_DIFF_LINES)) {
                    (line_of(line, text.findings.iter().filter(|finding| finding.line == number)))
                }
            }
            @if cut > 0 { p.more { "… " (count(cut, "more line")) "; the note has them all." } }
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

/// Draws a line with its findings, each marked beneath its column.
fn line_of<'f>(line: &str, findings: impl Iterator<Item = &'f TurnFinding>) -> Markup {
    let end = line.char_indices().nth(limits::WEB_EXCERPT_CHARS).map(|(at, _)| at);
    let cut = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
    html! {
        (shown(cut)) @if end.is_some() { "…" } "\n"
        @for finding in findings.take(limits::WEB_LINE_FINDINGS) {
            @let indent = finding.column.saturating_sub(1).min(limits::WEB_EXCERPT_LINES);
            mark { (" ".repeat(indent)) "↑ " (self::finding(finding)) } "\n"
        }
    }
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

    #[test]
    fn a_finding_stands_beneath_its_line_as_text() {
        let finding = TurnFinding {
            line: 2,
            column: 3,
            code: "schema-invalid".to_owned(),
            message: "<b> is not expected".to_owned(),
            is_accepted: false,
        };
        let raw = "first\n  <b>\u{202e}\nlast".to_owned();
        let text = TurnText { raw, findings: vec![finding], left_out: Vec::new() };
        let page = sections(&text).into_string();
        let (_, rest) = page.split_once("  &lt;b&gt;\\u{202e}\n<mark>  ↑ ").unwrap();
        let (finding, rest) = rest.split_once("</mark>").unwrap();
        assert!(
            finding.contains("schema-invalid") && finding.contains("&lt;b&gt; is"),
            "{finding}"
        );
        assert!(rest.starts_with("\nlast\n"), "{rest}");

        let long = "x".repeat(1 << 20);
        let text = TurnText { raw: long, findings: Vec::new(), left_out: Vec::new() };
        assert!(sections(&text).into_string().len() < 2 * limits::WEB_EXCERPT_CHARS);
    }
}
