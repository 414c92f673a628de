//! The fields of a form for a payload, and the payload that is built from the entered values.
//!
//! The name of a field consists of a word for the kind of the field and the path of its value. If a
//! value may occur more than once, its field has one value on each line.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use maud::{Markup, html};

use super::super::layout::shown;
use super::super::url_query::UrlQuery;
use crate::limits;
use crate::schema::{
    BOOLEAN_WORDS, FormField, PayloadDescription, PayloadParameter, TextContent, choice_groups,
    fill as fill_in, has_form, path_of_choice,
};

/// Kinds of content that a text field cannot express.
const WITHOUT_TEXT: [&str; 4] = ["anything", "empty", "elements", "any element"];

/// Kind of the field in which a person includes or leaves out an optional part of the payload.
const ADD_IT: &str = "add it,";
/// Kind of the field in which a person chooses one of several alternative parts of the payload.
const ONE_OF: &str = "one of";

/// Draws the fields of a payload; returns `None` if a form would have too many fields, or cannot
/// express the payload.
pub(super) fn draw(description: &PayloadDescription, typed: &UrlQuery) -> Option<Markup> {
    let fields = count(&description.parameters);
    if fields > limits::WEB_FORM_FIELDS_MAX || !has_fields(description) {
        return None;
    }
    let drawing = FieldDrawing { typed, next: Cell::new(0) };
    let path = description.name.local.to_string();
    Some(drawing.element(&path, description.text.as_ref(), &description.parameters, None))
}

/// Whether the fields of a page can express the payloads that `description` describes. In addition
/// to the conditions of [`has_form`], each field must have its own name. If an element may contain,
/// for example, a `note`, then an `amount`, then another `note`, the two notes would share one
/// field.
fn has_fields(description: &PayloadDescription) -> bool {
    has_form(description) && has_distinct_names(&description.parameters)
}

fn has_distinct_names(parameters: &[PayloadParameter]) -> bool {
    let mut names = HashSet::new();
    parameters.iter().all(|parameter| {
        // Elements of any name have no field.
        let is_new = parameter.name == "*" || names.insert((parameter.attribute, &parameter.name));
        is_new && has_distinct_names(&parameter.parameters)
    })
}

fn count(parameters: &[PayloadParameter]) -> usize {
    parameters.iter().map(|parameter| 1 + count(&parameter.parameters)).sum()
}

struct FieldDrawing<'a> {
    typed: &'a UrlQuery,
    /// Number of the next field, from which the unique id of the field is made.
    next: Cell<usize>,
}

/// Label, description and other properties of one form field.
struct FieldText<'a> {
    label: &'a str,
    /// Whether the field is that of an attribute, whose value has only one line.
    is_attribute: bool,
    doc: Option<&'a str>,
    default: Option<&'a str>,
    is_required: bool,
    /// The optional part of the payload that contains the field; `None` if the field is in no
    /// optional part.
    part: Option<&'a str>,
    is_repeated: bool,
}

impl<'a> FieldText<'a> {
    /// Creates the properties of an optional field that has the label `label` and a single value.
    fn labelled(label: &'a str) -> Self {
        Self {
            label,
            is_attribute: false,
            doc: None,
            default: None,
            is_required: false,
            part: None,
            is_repeated: false,
        }
    }
}

impl FieldDrawing<'_> {
    fn element(
        &self,
        path: &str,
        text: Option<&TextContent>,
        parameters: &[PayloadParameter],
        part: Option<&str>,
    ) -> Markup {
        let label = path.rsplit(" / ").next().unwrap_or(path);
        let own = FieldText { is_required: true, part, ..FieldText::labelled(label) };
        html! {
            @for group in choice_groups(parameters) {
                @if group.len() > 1 { (self.choice(path, group, part)) }
                @for parameter in group.iter().filter(|parameter| parameter.name != "*") {
                    @let label = label_of(parameter, parameters);
                    (self.parameter(path, &label, parameter, is_needed(parameter, group), part))
                }
            }
            @if let Some(text) = text { (self.value(path, text, &own)) }
        }
    }

    fn choice(&self, path: &str, alternatives: &[PayloadParameter], part: Option<&str>) -> Markup {
        let choices = alternatives.iter().map(|parameter| parameter.name.clone()).collect();
        let content =
            TextContent { kind: ONE_OF.to_owned(), choices, more_choices: 0, range: None };
        let doc = Some("The fields of the others do not count.");
        let choice = alternatives.first().and_then(|parameter| parameter.choice);
        let is_required = choice.is_some_and(|own| own.is_choice_required);
        let text = FieldText { doc, is_required, part, ..FieldText::labelled("One of these") };
        self.value(&path_of_choice(path, alternatives), &content, &text)
    }

    fn parameter(
        &self,
        parent: &str,
        label: &str,
        parameter: &PayloadParameter,
        is_needed: bool,
        part: Option<&str>,
    ) -> Markup {
        let path = format!("{parent} / {}", parameter.name);
        let text = FieldText {
            label,
            is_attribute: parameter.attribute,
            doc: parameter.doc.as_deref(),
            default: parameter.default.as_deref(),
            is_required: parameter.required,
            part,
            is_repeated: parameter.repeated,
        };
        let is_plain = parameter.parameters.is_empty() && is_text(&parameter.content);
        if parameter.attribute || is_plain {
            return self.value(&path, &parameter.content, &text);
        }

        let content = is_text(&parameter.content).then_some(&parameter.content);
        let part = if parameter.required { part } else { Some(&*parameter.name) };
        let kind = if is_needed { "" } else { "optional" };
        html! {
            fieldset.(kind) {
                legend { (shown(&parameter.name)) }
                @if let Some(doc) = &parameter.doc { p.hint { (shown(doc)) } }
                @if parameter.repeated { p.hint { "For more than one, write the XML." } }
                @if !is_needed {
                    div.part { (self.question(&path)) }
                    p.hint.off { "The fields of this part count only if it is part of the answer." }
                }
                (self.element(&path, content, &parameter.parameters, part))
            }
        }
    }

    /// Draws the field in which a person includes or leaves out an optional part of the payload.
    fn question(&self, path: &str) -> Markup {
        let choices = ["yes", "no"].map(str::to_owned).to_vec();
        let content =
            TextContent { kind: ADD_IT.to_owned(), choices, more_choices: 0, range: None };
        let label = "Part of the answer";
        self.value(path, &content, &FieldText::labelled(label))
    }

    fn value(&self, path: &str, content: &TextContent, text: &FieldText<'_>) -> Markup {
        let number = self.next.get();
        self.next.set(number + 1);
        let id = format!("field-{number}");
        let hint = format!("hint-{number}");
        let name = field_name(path, &content.kind, text.is_attribute);
        let typed = self.typed.written(&name);
        html! {
            div.field {
                label for=(id) {
                    (shown(text.label))
                    @if text.is_required && !text.is_repeated {
                        @match text.part {
                            Some(part) => { " (required if " (shown(part)) " is part of the answer)" }
                            None => { " (required)" }
                        }
                    }
                }
                (input(&id, &name, &hint, content, &typed, text))
                p.hint id=(hint) { (explain(content, text)) }
            }
        }
    }
}

fn input(
    id: &str,
    name: &str,
    hint: &str,
    content: &TextContent,
    typed: &str,
    text: &FieldText<'_>,
) -> Markup {
    let choices = choices(content);
    let is_long = content.kind == "text" && content.range.is_none() && !text.is_attribute;
    html! {
        @if !choices.is_empty() && !text.is_repeated {
            select id=(id) name=(name) aria-describedby=(hint) {
                option value="" selected[typed.is_empty()] { "–" }
                @for choice in &choices {
                    option value=(choice) selected[choice == typed] { (shown(choice)) }
                }
            }
        } @else if text.is_repeated || is_long {
            textarea id=(id) name=(name) rows="3" aria-describedby=(hint) { "\n" (typed) }
        } @else {
            input id=(id) name=(name) value=(typed) aria-describedby=(hint) autocomplete="off";
        }
    }
}

fn choices(content: &TextContent) -> Vec<String> {
    if content.kind == BOOLEAN_WORDS {
        return ["yes", "no"].map(str::to_owned).to_vec();
    }
    if content.more_choices > 0 { Vec::new() } else { content.choices.clone() }
}

fn explain(content: &TextContent, text: &FieldText<'_>) -> Markup {
    // A list shows its choices itself.
    let is_list = content.kind == ADD_IT || (content.kind == ONE_OF && !text.is_repeated);
    html! {
        @if !is_list { (shown(&content.to_string())) }
        @if text.is_repeated { "; one a line" }
        @if let Some(default) = text.default { "; " (shown(default)) " if left out" }
        @if let Some(doc) = text.doc {
            @if !is_list { ". " }
            (shown(doc))
        }
    }
}

/// Whether the payload must contain this parameter of `group`. If `group` consists of alternatives,
/// the result holds for payloads with the alternative that contains the parameter.
fn is_needed(parameter: &PayloadParameter, group: &[PayloadParameter]) -> bool {
    if group.len() > 1 { parameter.is_needed() } else { parameter.required }
}

fn is_text(content: &TextContent) -> bool {
    !WITHOUT_TEXT.contains(&content.kind.as_str())
}

/// Returns the label of a parameter within its form. If an attribute has the same name as a child
/// element, the label of the attribute ends with `(attribute)`.
fn label_of<'p>(parameter: &'p PayloadParameter, siblings: &[PayloadParameter]) -> Cow<'p, str> {
    let is_child = |other: &PayloadParameter| !other.attribute && other.name == parameter.name;
    if parameter.attribute && siblings.iter().any(is_child) {
        return Cow::Owned(format!("{} (attribute)", parameter.name));
    }
    Cow::Borrowed(&parameter.name)
}

/// Returns the name of the field for the value at `path`. An attribute and a child element with the
/// same path have fields of different names.
fn field_name(path: &str, kind: &str, is_attribute: bool) -> String {
    if is_attribute {
        return format!("attribute {path}");
    }
    match kind {
        ADD_IT => format!("has {path}"),
        ONE_OF => format!("which {path}"),
        _ => format!("value {path}"),
    }
}

/// Builds the payload from the entered values. If this fails, the error names the wrong field.
pub(super) fn fill(description: &PayloadDescription, typed: &UrlQuery) -> Result<String, String> {
    if !has_fields(description) {
        return Err("No form can express this answer: write the XML.".to_owned());
    }
    let mut repeated = BTreeSet::new();
    add_repeated(&description.name.local, &description.parameters, &mut repeated);
    let mut values: BTreeMap<String, VecDeque<String>> = BTreeMap::new();
    let mut answer = |field: FormField<'_>| {
        if let Some(again) = field.again {
            return Err(format!("{}: {again}", field.path));
        }
        let name = field_name(field.path, &field.content.kind, field.attribute);
        let is_repeated = repeated.contains(&name);
        // The lines of a list are read only once, not again for each value.
        let written = || values_of(&typed.written(&name), is_repeated);
        let left = values.entry(name.clone()).or_insert_with(written);
        Ok(left.pop_front().unwrap_or_default())
    };
    let filled = fill_in(description, &mut answer)?;
    Ok(filled.to_xml())
}

/// A field of a payload, with the value that the confirmation page shows for this field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EnteredField {
    /// Path of the field within the payload.
    pub path: String,
    pub value: String,
}

/// Returns the fields of the form with their values. An optional part that the person left out
/// gives a single field, with the value `not part of the answer`.
pub(super) fn entered(description: &PayloadDescription, typed: &UrlQuery) -> Vec<EnteredField> {
    let root = &*description.name.local;
    let mut fields = Vec::new();
    add_entered(root, root, &description.parameters, typed, &mut fields);
    if let Some(text) = &description.text {
        let name = field_name(root, &text.kind, false);
        fields.push(entered_value(&name, root.to_owned(), None, typed));
    }
    fields
}

fn add_entered(
    root: &str,
    parent: &str,
    parameters: &[PayloadParameter],
    typed: &UrlQuery,
    fields: &mut Vec<EnteredField>,
) {
    let groups = choice_groups(parameters);
    for (group, parameter) in groups.flat_map(|group| group.iter().map(move |own| (group, own))) {
        let chosen = || typed.written(&field_name(&path_of_choice(parent, group), ONE_OF, false));
        // The fields of an alternative that was not chosen do not count.
        let is_left_out = group.len() > 1 && parameter.name != chosen().trim();
        if is_left_out || parameter.name == "*" {
            continue;
        }
        let path = format!("{parent} / {}", parameter.name);
        let name = field_name(&path, &parameter.content.kind, parameter.attribute);
        let label = format!("{parent} / {}", label_of(parameter, parameters));
        let label = shown_path(root, &label);
        let is_field =
            parameter.attribute || (parameter.parameters.is_empty() && is_text(&parameter.content));
        if is_field {
            let default = parameter.default.as_deref();
            fields.push(entered_value(&name, label, default, typed));
            continue;
        }

        let is_included = typed.written(&field_name(&path, ADD_IT, false)).trim() == "yes";
        if !is_needed(parameter, group) && !is_included {
            let value = "not part of the answer".to_owned();
            fields.push(EnteredField { path: label, value });
            continue;
        }
        add_entered(root, &path, &parameter.parameters, typed, fields);
        if is_text(&parameter.content) {
            fields.push(entered_value(&name, label, None, typed));
        }
    }
}

/// Returns the entered value of the field `name`, or a text that states that the person left out
/// the value. `path` is the path that the confirmation page shows for the field.
fn entered_value(
    name: &str,
    path: String,
    default: Option<&str>,
    typed: &UrlQuery,
) -> EnteredField {
    let written = typed.written(name);
    let value = match (written.trim(), default) {
        ("", Some(default)) => format!("left out, which means {default}"),
        ("", None) => "left out".to_owned(),
        (value, _) => value.to_owned(),
    };
    EnteredField { path, value }
}

/// Returns the path of a field without the name of the payload.
fn shown_path(root: &str, path: &str) -> String {
    let within = path.strip_prefix(root).and_then(|rest| rest.strip_prefix(" / "));
    within.unwrap_or(path).to_owned()
}

/// Collects the names of the repeated fields, which have one value on each line.
fn add_repeated(parent: &str, parameters: &[PayloadParameter], names: &mut BTreeSet<String>) {
    for parameter in parameters {
        let path = format!("{parent} / {}", parameter.name);
        if parameter.repeated && parameter.parameters.is_empty() {
            names.insert(field_name(&path, &parameter.content.kind, parameter.attribute));
        }
        add_repeated(&path, &parameter.parameters, names);
    }
}

/// Returns the values of a field in order. A repeated field has one value for each line, and any
/// other field has exactly one value.
fn values_of(written: &str, is_repeated: bool) -> VecDeque<String> {
    if !is_repeated {
        return VecDeque::from([written.trim().to_owned()]);
    }
    let lines = written.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schemas;

    const SCHEMA: &str = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' \
        targetNamespace='urn:g' xmlns='urn:g' elementFormDefault='qualified'>\
        <xs:element name='clash'><xs:complexType><xs:sequence>\
        <xs:element name='id' type='xs:string'/></xs:sequence>\
        <xs:attribute name='id' type='xs:int' use='required'/></xs:complexType></xs:element>\
        <xs:element name='twice'><xs:complexType><xs:sequence>\
        <xs:element name='v' type='xs:string'/><xs:element name='w' type='xs:int'/>\
        <xs:element name='v' type='xs:string' minOccurs='0'/>\
        </xs:sequence></xs:complexType></xs:element></xs:schema>";

    fn described(name: &str) -> PayloadDescription {
        let mut schemas = Schemas::default();
        let names = schemas.add_builtin("clash.xsd", SCHEMA).unwrap();
        schemas.describe(names.iter().find(|known| &*known.local == name).unwrap())
    }

    #[test]
    fn an_attribute_and_a_child_element_of_one_name_have_their_own_fields() {
        let clash = described("clash");
        let typed = UrlQuery::default().with("attribute clash / id", Some("5"));
        let typed = typed.with("value clash / id", Some("INV-777"));
        let filled = fill(&clash, &typed).unwrap();
        assert!(filled.contains(" id=\"5\""), "{filled}");
        assert!(filled.contains(">INV-777</id>"), "{filled}");

        let entered = entered(&clash, &typed);
        let rows: Vec<_> = entered.iter().map(|row| (&*row.path, &*row.value)).collect();
        assert_eq!(rows, [("id (attribute)", "5"), ("id", "INV-777")]);
        let page = draw(&clash, &typed).unwrap().into_string();
        for part in ["id (attribute)", "name=\"attribute clash / id\"", "name=\"value clash / id\""]
        {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn a_sequence_with_the_same_name_twice_has_no_fields() {
        let twice = described("twice");
        let typed = UrlQuery::default().with("value twice / v", Some("first"));
        assert!(draw(&twice, &typed).is_none());
        assert!(fill(&twice, &typed).is_err());
    }

    #[test]
    fn a_repeated_field_has_a_value_a_line_and_any_other_has_one() {
        let values: Vec<_> = values_of(" one \n\n two\n", true).into();
        assert_eq!(values, ["one", "two"]);
        let values: Vec<_> = values_of(" one\ntwo ", false).into();
        assert_eq!(values, ["one\ntwo"]);
        assert_eq!(values_of("", true).len(), 0);
    }
}
