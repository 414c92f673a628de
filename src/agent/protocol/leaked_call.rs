//! Calls that a server left in the text of an answer. A server that has no tool parser for its model
//! passes the calls of the model on as text, in the format of the model's vendor.

use crate::xml::extract::{is_list_marker, is_vendor_call};

/// Texts with which a call begins in formats that are not XML.
const MARKERS: [&str; 6] = [
    // Llama, Qwen3-Coder
    "<function=",
    // Mistral
    "[TOOL_CALLS]",
    // Kimi, Phi
    "<|tool_call",
    // Llama
    "<|python_tag|>",
    // DeepSeek
    "<\u{ff5c}tool\u{2581}call",
    // gpt-oss
    "<|channel|>commentary to=",
];

/// Returns the first marker of a call in a vendor's format, such as `<tool_call`. A marker counts
/// at the beginning of a line outside of code fences.
pub(super) fn marker_in(text: &str) -> Option<&str> {
    let mut open: Option<CodeFence<'_>> = None;
    for line in text.lines().map(str::trim_start) {
        match (&open, CodeFence::at_start(line)) {
            (Some(fence), Some(other)) if fence.ends_with(&other) => open = None,
            (Some(_), _) => {}
            (None, Some(fence)) if fence.opens() => open = Some(fence),
            (None, _) => {
                if let Some(marker) = marker_at_start(line) {
                    return Some(marker);
                }
            }
        }
    }

    None
}

/// A line of Markdown that may begin or end a block of code.
struct CodeFence<'t> {
    tick: char,
    length: usize,
    /// The text after the ticks.
    info: &'t str,
    /// Whether the ticks follow the marker of a list item.
    is_in_item: bool,
}

impl<'t> CodeFence<'t> {
    fn at_start(line: &'t str) -> Option<Self> {
        let (before, ticks) = line.split_at(line.find(['`', '~'])?);
        // Marks of quotes may stand anywhere before the ticks, and one marker of a list item.
        let mut words = before.split([' ', '\t', '>']).filter(|word| !word.is_empty());
        let is_in_item = match (words.next(), words.next()) {
            (None, _) => false,
            (Some(word), None)
                if is_list_marker(word.as_bytes()) && before.ends_with([' ', '\t']) =>
            {
                true
            }
            _ => return None,
        };

        let tick = ticks.chars().next()?;
        let info = ticks.trim_start_matches(tick);
        let length = ticks.len() - info.len();
        (length >= 3).then_some(Self { tick, length, info, is_in_item })
    }

    /// Whether the line begins a block. A line with further backticks is inline code.
    fn opens(&self) -> bool {
        self.tick == '~' || !self.info.contains('`')
    }

    /// Whether `other` ends the block that this line begins.
    fn ends_with(&self, other: &Self) -> bool {
        let is_bare = other.info.trim().is_empty() && !other.is_in_item;
        is_bare && other.tick == self.tick && other.length >= self.length
    }
}

/// Returns the marker with which `text` begins. Returns `None` if the text begins with no call in a
/// vendor's format.
fn marker_at_start(text: &str) -> Option<&str> {
    let marker = MARKERS.iter().find(|marker| text.starts_with(**marker));
    let length = marker.map(|marker| marker.len()).or_else(|| {
        let name = text.strip_prefix('<')?.split([' ', '\t', '\r', '\n', '/', '>']).next()?;
        is_vendor_call(name.as_bytes()).then_some(1 + name.len())
    });
    text.get(..length?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_recognised_at_the_beginning_of_a_line_outside_of_fences() {
        for (text, expected) in [
            ("<tool_call>\n{\"name\": \"a\"}", Some("<tool_call")),
            ("Look.\n <fc:invoke name=\"a\">", Some("<fc:invoke")),
            ("Look.\r\n\r\n<function=a>", Some("<function=")),
            ("[TOOL_CALLS]a[ARGS]{}", Some("[TOOL_CALLS]")),
            ("<|tool_calls_section_begin|>", Some("<|tool_call")),
            ("<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>", Some("<\u{ff5c}tool\u{2581}call")),
            ("<|channel|>commentary to=functions.a", Some("<|channel|>commentary to=")),
            ("<|channel|>final<|message|>Yes.", None),
            ("```\n<tool_call>\n```\nSo.", None),
            ("```\na\n```\n<tool_call>", Some("<tool_call")),
            ("````\n```\n<tool_call>\n```\n````\nSo.", None),
            ("~~~\n```\n<tool_call>\n~~~\nSo.", None),
            ("- ```xml\n  <tool_call>\n  ```\n```\n<tool_call>\n```", None),
            ("- ```xml\n  a\n  ```\n<tool_call>", Some("<tool_call")),
            ("```a``` is code.\n<tool_call>", Some("<tool_call")),
            ("> ```\n> a\n> ```\n<tool_call>", Some("<tool_call")),
            ("1. ```\n<tool_call>\n```", None),
            ("In ```\n<tool_call>", Some("<tool_call")),
            ("```\n- ```\n<tool_call>\n```", None),
            ("It writes <tool_call> first, or [TOOL_CALLS].", None),
            ("<tool_caller>\n<function>", None),
            ("<actions>\n</actions>", None),
            ("", None),
        ] {
            assert_eq!(marker_in(text), expected, "{text}");
        }
    }
}
