//! Fills in a payload value by value, with a question to the user for each value.
//!
//! The gate still has to check the result. This module must not know terminals or browsers.

use std::collections::HashSet;

use super::describe::{BOOLEAN_WORDS, PayloadDescription, PayloadParameter, TextContent};
use super::part_coverage::PartCoverage;
use crate::xml::element::Element;
use crate::xml::escape::is_xml_char;
use crate::xml::shape::QName;

/// A value that the form requests from the user.
#[derive(Debug, Clone, Copy)]
pub struct FormField<'a> {
    /// Path of the value as the user sees it, such as `report / finding / line`.
    pub path: &'a str,
    /// Whether the value is that of an attribute. An element may have an attribute and a child
    /// element of the same name, whose values then have the same path.
    pub attribute: bool,
    pub content: &'a TextContent,
    pub doc: Option<&'a str>,
    /// Whether the value is required. If not, an empty answer leaves the value out.
    pub required: bool,
    /// Default of the value. If the value is required, an empty answer stands for the default.
    /// Otherwise, the default applies if the value is left out.
    pub default: Option<&'a str>,
    /// Reason why the previous answer to the same question was not accepted; `None` at first.
    pub again: Option<&'static str>,
}

/// Fills in a payload by asking questions. The function `ask` returns the answer to each question,
/// or an error that aborts the form.
pub fn fill<E>(
    description: &PayloadDescription,
    ask: &mut dyn FnMut(FormField<'_>) -> Result<String, E>,
) -> Result<Element, E> {
    let name = &description.name;
    let mut filling = FormFilling { ask, path: vec![name.local.to_string()] };
    let element = Element::new(QName::from(name));
    filling.element(element, description.text.as_ref(), &description.parameters)
}

struct FormFilling<'a, E> {
    ask: &'a mut dyn FnMut(FormField<'_>) -> Result<String, E>,
    path: Vec<String>,
}

impl<E> FormFilling<'_, E> {
    fn element(
        &mut self,
        mut element: Element,
        text: Option<&TextContent>,
        parameters: &[PayloadParameter],
    ) -> Result<Element, E> {
        for group in choice_groups(parameters) {
            match group {
                [] => {}
                [own] if own.attribute => {
                    if let Some(value) = self.within(own, |this| this.value(own))? {
                        element.attributes.push((own.written.clone(), value));
                    }
                }
                [own] if own.name == "*" => {}
                [own] => element = self.children(element, own, own.required)?,
                alternatives => {
                    if let Some(chosen) = self.choose(alternatives)? {
                        element = self.children(element, chosen, chosen.is_needed())?;
                    }
                }
            }
        }

        match text {
            Some(content) => {
                let text = self.put(content, None, true, None, false)?.unwrap_or_default();
                Ok(element.with_text(text))
            }
            None => Ok(element),
        }
    }

    /// Fills in a child element. If the element may be repeated, fills in more elements of the same
    /// name until the user wants no more.
    fn children(
        &mut self,
        mut element: Element,
        parameter: &PayloadParameter,
        required: bool,
    ) -> Result<Element, E> {
        let mut count = 0_usize;
        loop {
            let required = required && count == 0;
            let Some(child) = self.within(parameter, |this| this.child(parameter, required))?
            else {
                break;
            };
            element = element.with_child(child);
            count += 1;
            if !parameter.repeated {
                break;
            }
        }

        Ok(element)
    }

    fn child(
        &mut self,
        parameter: &PayloadParameter,
        required: bool,
    ) -> Result<Option<Element>, E> {
        let element = Element::new(parameter.written.clone());
        let is_plain = parameter.parameters.is_empty() && is_text(&parameter.content);
        if is_plain {
            let value = self.put(
                &parameter.content,
                parameter.doc.as_deref(),
                required,
                parameter.default.as_deref(),
                false,
            )?;
            return Ok(value.map(|value| element.with_text(value)));
        }

        if !required && !self.ask_whether(parameter.doc.as_deref())? {
            return Ok(None);
        }

        let text = is_text(&parameter.content).then_some(&parameter.content);
        self.element(element, text, &parameter.parameters).map(Some)
    }

    fn value(&mut self, parameter: &PayloadParameter) -> Result<Option<String>, E> {
        self.put(
            &parameter.content,
            parameter.doc.as_deref(),
            parameter.required,
            parameter.default.as_deref(),
            parameter.attribute,
        )
    }

    /// Lets the user choose one of several alternatives, which form one choice. Returns `None` if
    /// the user chooses none of them.
    fn choose<'p>(
        &mut self,
        among: &'p [PayloadParameter],
    ) -> Result<Option<&'p PayloadParameter>, E> {
        let choices = among.iter().map(|parameter| parameter.name.clone()).collect();
        let content =
            TextContent { kind: "one of".to_owned(), choices, more_choices: 0, range: None };
        let choice = among.first().and_then(|parameter| parameter.choice);
        let required = choice.is_some_and(|own| own.is_choice_required);
        let place = choice.and_then(|own| choice_label(own.choice));

        let depth = self.path.len();
        self.path.extend(place);
        let chosen = self.put(&content, None, required, None, false)?;
        self.path.truncate(depth);
        Ok(chosen.and_then(|name| among.iter().find(|parameter| parameter.name == name)))
    }

    fn ask_whether(&mut self, doc: Option<&str>) -> Result<bool, E> {
        let choices = vec!["yes".to_owned(), "no".to_owned()];
        let content =
            TextContent { kind: "add it,".to_owned(), choices, more_choices: 0, range: None };
        Ok(self.put(&content, doc, false, None, false)?.is_some_and(|answer| answer == "yes"))
    }

    /// Requests a value from the user until the answer is acceptable. Returns `None` if the user
    /// leaves the value out.
    fn put(
        &mut self,
        content: &TextContent,
        doc: Option<&str>,
        required: bool,
        default: Option<&str>,
        attribute: bool,
    ) -> Result<Option<String>, E> {
        let path = self.path.join(" / ");
        let path = path.as_str();
        let mut again = None;
        loop {
            let question = FormField { path, attribute, content, doc, required, default, again };
            let answer = (self.ask)(question)?;
            let answer = boolean_value(content, &answer).map_or(answer, str::to_owned);
            let known = content.choices.is_empty() || content.choices.contains(&answer);
            again = match (answer.is_empty(), required) {
                _ if !answer.chars().all(is_xml_char) => {
                    Some("this has a character that XML does not allow")
                }
                (true, false) => return Ok(None),
                (true, true) if default.is_some() => return Ok(default.map(str::to_owned)),
                // An empty text is a valid answer here.
                (true, true) if content.kind == "text" && content.range.is_none() => {
                    return Ok(Some(answer));
                }
                (true, true) if content.choices.contains(&answer) => return Ok(Some(answer)),
                (true, true) => Some("this has to be answered"),
                (false, _) if known => return Ok(Some(answer)),
                (false, _) => Some("this is not one of the choices"),
            };
        }
    }

    fn within<T>(
        &mut self,
        parameter: &PayloadParameter,
        fill: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.path.push(parameter.name.clone());
        let filled = fill(self);
        self.path.pop();
        filled
    }
}

/// Converts the answer to a question for a Boolean: `yes` and `y` become `true`, `no` and `n`
/// become `false`. Returns `None` for any other answer, and if the question is not for a Boolean.
fn boolean_value(content: &TextContent, answer: &str) -> Option<&'static str> {
    if content.kind != BOOLEAN_WORDS {
        return None;
    }

    match answer.to_ascii_lowercase().as_str() {
        "yes" | "y" => Some("true"),
        "no" | "n" => Some("false"),
        _ => None,
    }
}

/// Splits parameters into groups. The alternatives of a choice are one group, and every other
/// parameter is a group of its own.
pub fn choice_groups(parameters: &[PayloadParameter]) -> impl Iterator<Item = &[PayloadParameter]> {
    let number = |parameter: &PayloadParameter| parameter.choice.map(|own| own.choice);
    parameters.chunk_by(move |one, next| number(one).is_some() && number(one) == number(next))
}

/// Returns the path of a question to the user: which of `alternatives` does the element at `path`
/// contain? The alternatives form one choice of this element.
pub fn path_of_choice(path: &str, alternatives: &[PayloadParameter]) -> String {
    let choice = alternatives.first().and_then(|parameter| parameter.choice);
    match choice.and_then(|own| choice_label(own.choice)) {
        Some(label) => format!("{path} / {label}"),
        None => path.to_owned(),
    }
}

/// Returns the label of a choice if it is not the first choice of its element: `choice` and a
/// number from 2. Returns `None` for the first choice. The label contains a blank, so no element
/// can have the same name.
fn choice_label(number: usize) -> Option<String> {
    (number > 0).then(|| format!("choice {}", number + 1))
}

/// Whether a form can express the payloads that `description` describes. It cannot in the following
/// cases:
///
/// - A choice may be repeated, or a group of several elements may be repeated.
/// - A branch of a choice is more than one element, such as a sequence, or may be any element.
/// - Two alternatives within one element have the same name, even in different choices.
/// - The payload must contain an element of any name.
/// - The description leaves out parts of an element, because the element is nested too deep or in
///   an element of the same name, may have any content, or has an abstract type.
pub fn has_form(description: &PayloadDescription) -> bool {
    description.coverage != PartCoverage::Partial && are_expressible(&description.parameters)
}

/// Whether a form can express all these parameters of an element, see [`has_form`].
fn are_expressible(parameters: &[PayloadParameter]) -> bool {
    let mut branches = HashSet::new();
    let mut names = HashSet::new();
    parameters.iter().all(|parameter| {
        let is_alone = parameter.choice.is_none_or(|own| {
            let is_new = branches.insert((own.choice, own.branch));
            let is_single = is_new && !own.is_choice_repeated && parameter.name != "*";
            is_single && names.insert(parameter.name.as_str())
        });
        let is_needed_wildcard = parameter.name == "*" && parameter.is_needed();
        let is_whole = parameter.coverage != PartCoverage::Partial;
        let has_fields = is_whole && !parameter.interleaved && !is_needed_wildcard;
        is_alone && has_fields && are_expressible(&parameter.parameters)
    })
}

fn is_text(content: &TextContent) -> bool {
    !matches!(content.kind.as_str(), "anything" | "empty" | "elements" | "any element")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yes_and_no_answer_a_boolean_field_alone() {
        let content = |kind: &str| {
            let kind = kind.to_owned();
            TextContent { kind, choices: Vec::new(), more_choices: 0, range: None }
        };
        let boolean = content(BOOLEAN_WORDS);
        assert_eq!(
            ["yes", "Y", "no", "N"].map(|answer| boolean_value(&boolean, answer)),
            [Some("true"), Some("true"), Some("false"), Some("false")]
        );
        assert_eq!(boolean_value(&boolean, "true"), None, "it stands as it is");
        assert_eq!(boolean_value(&content("text"), "yes"), None);
    }

    #[test]
    fn an_empty_answer_gives_a_required_value_its_default() {
        let kind = BOOLEAN_WORDS.to_owned();
        let content = TextContent { kind, choices: Vec::new(), more_choices: 0, range: None };
        let mut ask =
            |field: FormField<'_>| if field.again.is_none() { Ok(String::new()) } else { Err(()) };
        let mut filling = FormFilling { ask: &mut ask, path: Vec::new() };
        assert_eq!(
            filling.put(&content, None, true, Some("true"), false),
            Ok(Some("true".to_owned()))
        );
        assert_eq!(filling.put(&content, None, false, Some("true"), false), Ok(None));
        assert_eq!(filling.put(&content, None, true, None, false), Err(()));
    }

    #[test]
    fn a_form_repeats_its_question_after_a_character_that_xml_does_not_allow() {
        let kind = "text".to_owned();
        let content = TextContent { kind, choices: Vec::new(), more_choices: 0, range: None };
        let mut answers = ["a\u{1}b", "a b"].into_iter();
        let mut reasons = Vec::new();
        let mut ask = |field: FormField<'_>| {
            reasons.push(field.again);
            answers.next().map(str::to_owned).ok_or(())
        };
        let mut filling = FormFilling { ask: &mut ask, path: Vec::new() };
        let value = filling.put(&content, None, true, None, false);
        assert_eq!(value, Ok(Some("a b".to_owned())));
        assert_eq!(reasons, [None, Some("this has a character that XML does not allow")]);
    }
}
