//! Placeholders in a recorded text. Playback fills them from the conversation so far.
//!
//! - `{{search-results/match/file}}` stands for the text of the first `file` in the first `match`
//!   of the latest `search-results`. `match[2]` means the second `match`, and `@name` an attribute.
//! - `{{nonce}}` stands for the nonce of the turn.
//!
//! Values are escaped as XML text, so that they cannot become markup. A missing value becomes
//! [`MISSING`].

use crate::xml::element::Element;
use crate::xml::escape::{escape_text, unescape_text};

pub const MISSING: &str = "(nothing found)";
const NONCE: &str = "nonce";

/// Fills the placeholders of `template`. `texts` are the texts of the user's messages, oldest
/// first; `nonce` is the nonce of the turn.
pub(super) fn fill<'a>(
    template: &str,
    nonce: Option<&str>,
    texts: impl Iterator<Item = &'a str>,
) -> String {
    if !template.contains("{{") {
        return template.to_owned();
    }

    let texts: Vec<String> = texts.map(unwrap_results).collect();
    let mut out = String::with_capacity(template.len());
    let mut rest = template;

    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let Some((path, after)) = after.split_once("}}") else {
            out.push_str("{{");
            rest = after;
            continue;
        };
        let found = match path.trim() {
            NONCE => nonce.map(str::to_owned),
            path => select(&texts, path),
        };
        out.push_str(&escape_text(found.as_deref().unwrap_or(MISSING)));
        rest = after;
    }

    out.push_str(rest);
    out
}

/// Unescapes the content of each `<tool_result>` element, because old versions of this program
/// escaped the payload in it. Content that begins with `<` is not escaped, and stays unchanged.
fn unwrap_results(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<tool_result") {
        out.push_str(before);
        let (_, after) = after.split_once('>').unwrap_or(("", after));
        let (content, after) = after.split_once("</tool_result>").unwrap_or((after, ""));
        match unescape_text(content) {
            Some(text) if !content.starts_with('<') => out.push_str(&text),
            _ => out.push_str(content),
        }
        rest = after;
    }

    out.push_str(rest);
    out
}

fn select(texts: &[String], path: &str) -> Option<String> {
    let mut steps = path.split('/').map(PathStep::parse);
    let root = steps.next()?;
    let steps: Vec<PathStep<'_>> = steps.collect();
    texts.iter().rev().find_map(|text| {
        let (_, element) = starts(text, root.name).next_back()?;
        follow(&Element::read(element)?, &steps)
    })
}

/// Finds the start tags of elements with the local name `name`. Returns the offset of each start
/// tag, and the text from this offset on.
fn starts<'t>(text: &'t str, name: &str) -> impl DoubleEndedIterator<Item = (usize, &'t str)> {
    let opens = text.match_indices('<').filter_map(|(at, _)| Some((at, text.get(at..)?)));
    opens.filter(move |(_, rest)| local_name(rest) == Some(name)).collect::<Vec<_>>().into_iter()
}

fn local_name(tag: &str) -> Option<&str> {
    let name = tag.strip_prefix('<')?;
    let end = name.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/'))?;
    let name = name.get(..end)?;
    Some(name.rsplit_once(':').map_or(name, |(_, local)| local))
}

struct PathStep<'a> {
    name: &'a str,
    /// Index among siblings of the same name, counted from 0.
    index: usize,
}

impl<'a> PathStep<'a> {
    fn parse(text: &'a str) -> Self {
        let indexed = text.strip_suffix(']').and_then(|text| text.split_once('['));
        match indexed.and_then(|(name, n)| Some((name, n.parse::<usize>().ok()?))) {
            Some((name, n)) => Self { name, index: n.saturating_sub(1) },
            None => Self { name: text, index: 0 },
        }
    }
}

fn follow(element: &Element, steps: &[PathStep<'_>]) -> Option<String> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(element.text().trim().to_owned());
    };

    if let Some(attribute) = step.name.strip_prefix('@') {
        return element.attribute(attribute).map(str::to_owned);
    }

    let child =
        element.children().filter(|child| child.local_name() == step.name).nth(step.index)?;
    follow(child, rest)
}
