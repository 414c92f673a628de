//! Prompts with placeholders: `{{XPath}}` inserts the value of an XPath expression as text.

use super::definition::Placed;

/// A part of a prompt: plain text, or the expression of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptPart<'a> {
    Text(&'a str),
    /// The expression between the double braces of a placeholder.
    Expression(&'a str),
}

/// Splits a prompt into its parts. A `{{` without its `}}` is text.
pub fn parts(prompt: &str) -> Vec<PromptPart<'_>> {
    let mut parts = Vec::new();
    let mut rest = prompt;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((expression, behind)) = after.split_once("}}") else { break };
        if !before.is_empty() {
            parts.push(PromptPart::Text(before));
        }
        parts.push(PromptPart::Expression(expression.trim()));
        rest = behind;
    }

    if !rest.is_empty() {
        parts.push(PromptPart::Text(rest));
    }

    parts
}

/// Returns the prompt with every placeholder replaced by the result of `insert` for its expression.
/// The inserted text is not searched for further placeholders.
pub fn fill<E>(
    prompt: &str,
    mut insert: impl FnMut(&str) -> Result<String, E>,
) -> Result<String, E> {
    let mut out = String::new();
    for part in parts(prompt) {
        match part {
            PromptPart::Text(text) => out.push_str(text),
            PromptPart::Expression(expression) => out.push_str(&insert(expression)?),
        }
    }

    Ok(out)
}

/// Returns the expressions of a prompt. Each expression has the place of the whole prompt in the
/// config.
pub fn expressions(prompt: &Placed<String>) -> impl Iterator<Item = Placed<String>> {
    parts(&prompt.value).into_iter().filter_map(|part| match part {
        PromptPart::Expression(text) => Some(Placed::new(text.to_owned(), prompt.place)),
        PromptPart::Text(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn filled(prompt: &str) -> String {
        let insert = |expression: &str| Ok::<_, Infallible>(format!("<{expression}>{{{{x}}}}"));
        match fill(prompt, insert) {
            Ok(text) => text,
            Err(never) => match never {},
        }
    }

    #[test]
    fn a_placeholder_is_replaced_and_its_text_is_not_read_again() {
        assert_eq!(filled("a {{ input/b }} c"), "a <input/b>{{x}} c");
        assert_eq!(filled("{{a}}{{b}}"), "<a>{{x}}<b>{{x}}");
    }

    #[test]
    fn an_open_brace_without_its_end_is_text() {
        for text in ["a {{ b", "{ {a} }", "}}", ""] {
            assert_eq!(filled(text), text);
        }
    }
}
