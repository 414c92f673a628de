//! Builds the payload that begins a workflow run from the values of the workflow's inputs.

use std::collections::HashMap;

use crate::ids::PayloadName;
use crate::schema::{
    FieldCount, PartCoverage, PayloadDescription, PayloadParameter, Schemas, ShortType,
};
use crate::xml::element::{Element, Node};
use crate::xml::scan::is_ncname;
use crate::xml::shape::QName;

use super::definition::{WorkflowDefinition, WorkflowInput};
use super::payloads::input_name;

/// Why the given values cannot be the input of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("the workflow has no input `{name}`{}", listed(known))]
    Unknown { name: String, known: Vec<String> },
    #[error("the input `{0}` is given twice")]
    Twice(String),
    #[error("the input `{0}` is missing; add --input {0}=VALUE")]
    Missing(String),
    #[error(
        "the input `{0}` has children or attributes: send the whole payload with `organism send`"
    )]
    Nested(String),
}

/// Returns the end of a message that an input is unknown.
fn listed(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) }
}

/// An input of a workflow, with the number of values that it may have.
struct InputField {
    name: String,
    part: InputPart,
    is_required: bool,
    is_repeatable: bool,
    /// Whether a value must have children or attributes, so that a text is no value.
    is_nested: bool,
    /// Whether [`input_payload`] writes the stand-in of the input. Otherwise, [`with_stand_ins`]
    /// writes it.
    has_stand_in: bool,
}

/// The part of a payload that contains the value of an input.
enum InputPart {
    Text,
    Attribute(QName),
    Child(QName),
}

impl InputField {
    /// Makes the input for a child or an attribute of a payload that a schema declares.
    fn of_parameter(parameter: &PayloadParameter) -> Self {
        let written = parameter.written.clone();
        Self {
            name: parameter.key(),
            part: if parameter.attribute {
                InputPart::Attribute(written)
            } else {
                InputPart::Child(written)
            },
            is_required: parameter.required,
            is_repeatable: parameter.repeated,
            is_nested: parameter.parameters.iter().any(|inner| inner.required),
            has_stand_in: false,
        }
    }

    /// Returns `payload` with a value of the input.
    fn add_to(&self, mut payload: Element, value: String) -> Element {
        match &self.part {
            InputPart::Text => payload.with_text(value),
            InputPart::Attribute(name) => {
                payload.attributes.push((name.clone(), value));
                payload
            }
            InputPart::Child(name) => {
                payload.with_child(Element::new(name.clone()).with_text(value))
            }
        }
    }
}

/// Builds the payload that begins a run of a workflow. Each pair in `values` is the name of an
/// input and a value for this input. A name that begins with `@` is that of an attribute. If the
/// payload contains only text, the text is an input with the name of the payload. With
/// `stand_ins`, each input of a table of types that has no value gets a stand-in: its path in
/// brackets, such as `[input/topic]`. All other stand-ins are written by [`with_stand_ins`].
///
/// # Errors
///
/// Fails if a value is for an unknown input or for an input with children, or if an input has too
/// many values. Without `stand_ins`, also fails if a required input has no value.
pub fn input_payload(
    schemas: &Schemas,
    definition: &WorkflowDefinition,
    values: &[(String, String)],
    stand_ins: bool,
) -> Result<Element, InputError> {
    let fields = fields_of(schemas, definition, values);
    for (given, _) in values {
        if !fields.iter().any(|field| field.name == *given) {
            let known = fields.into_iter().map(|field| field.name).collect();
            return Err(InputError::Unknown { name: given.clone(), known });
        }
    }

    let mut payload = Element::new(QName::from(&input_name(definition)));
    for field in fields {
        let name = &field.name;
        let given = values.iter().filter(|(given, _)| given == name).map(|(_, value)| value);
        let mut texts: Vec<String> = given.cloned().collect();
        match texts.len() {
            0 if stand_ins => {
                texts.extend(field.has_stand_in.then(|| format!("[input/{name}]")));
            }
            0 if !field.is_required => {}
            2.. if !field.is_repeatable => return Err(InputError::Twice(field.name)),
            _ if field.is_nested => return Err(InputError::Nested(field.name)),
            0 => return Err(InputError::Missing(field.name)),
            _ => {}
        }
        for text in texts {
            payload = field.add_to(payload, text);
        }
    }

    Ok(payload)
}

/// Adds a stand-in for each child and attribute that `payload`, the input of a run, lacks. A
/// stand-in is the path of the value in brackets, such as `[input/who/name]`.
pub fn with_stand_ins(schemas: &Schemas, payload: Element) -> Element {
    let description = schemas.describe(&PayloadName::from(&payload.name));
    let is_empty_text = description.text.is_some() && payload.content.is_empty();
    let payload = if is_empty_text { payload.with_text("[input]") } else { payload };
    add_stand_ins(payload, "input", &description.parameters)
}

/// Whether `text` contains the stand-in of a child or an attribute, as [`input_payload`] and
/// [`with_stand_ins`] write it.
pub(super) fn has_stand_in(text: &str) -> bool {
    text.contains("[input/")
}

/// Adds stand-ins for the missing `parameters` of `element`. `path` is the path of the element.
fn add_stand_ins(mut element: Element, path: &str, parameters: &[PayloadParameter]) -> Element {
    for parameter in parameters.iter().filter(|parameter| !parameter.is_any_element()) {
        let path = format!("{path}/{}", parameter.key());
        let text = format!("[{path}]");
        if parameter.attribute {
            if element.attribute(&parameter.name).is_none() {
                element.attributes.push((parameter.written.clone(), text));
            }
        } else if element.child(&parameter.name).is_none() {
            let child = Element::new(parameter.written.clone());
            let has_children = parameter.parameters.iter().any(|inner| !inner.attribute);
            let child = if has_children { child } else { child.with_text(text) };
            element = element.with_child(add_stand_ins(child, &path, &parameter.parameters));
        }
    }
    element
}

/// Puts the children of a payload into the order of its schema, and gives them the namespaces of
/// the schema. If the schema requires that children of several repeated names alternate, puts these
/// children into the order of `alternate_children`.
pub fn fit_children(schemas: &Schemas, mut payload: Element) -> Element {
    let name = PayloadName::from(&payload.name);
    let parameters = schemas.describe(&name).parameters;
    let is_of = |parameter: &PayloadParameter, child: &Node| match child {
        Node::Element(child) => !parameter.attribute && parameter.name == child.local_name(),
        Node::Text(_) => false,
    };
    // A child that the schema does not have stays at the end, so that the gate refuses it.
    payload.content.sort_by_key(|child| {
        parameters.iter().position(|parameter| is_of(parameter, child)).unwrap_or(usize::MAX)
    });
    for child in &mut payload.content {
        let parameter = parameters.iter().find(|parameter| is_of(parameter, child));
        if let (Node::Element(child), Some(parameter)) = (child, parameter) {
            child.name = parameter.written.clone();
        }
    }
    alternate_children(schemas, &mut payload);
    payload
}

/// Lets children of several repeated names take turns: the first child of each name, then the
/// second child of each name, and so on. Changes the order only if:
/// - the schema does not permit the present order, but permits the new one;
/// - all children that the schema permits several times occur equally often.
pub fn alternate_children(schemas: &Schemas, payload: &mut Element) {
    let mut counts: HashMap<QName, usize> = HashMap::new();
    for child in payload.children() {
        *counts.entry(child.name.clone()).or_default() += 1;
    }
    if counts.values().filter(|count| **count > 1).count() < 2 {
        return;
    }

    let name = PayloadName::from(&payload.name);
    let parameters = schemas.describe(&name).parameters;
    let is_repeatable = |child: &QName| {
        let mut own = parameters.iter().filter(|parameter| !parameter.attribute);
        own.any(|parameter| parameter.repeated && parameter.written == *child)
    };
    counts.retain(|child, count| *count > 1 || is_repeatable(child));
    // With fewer children of one name, it is not known to which of the others they belong.
    let most = counts.values().copied().max();
    let is_uneven = counts.values().any(|count| Some(*count) != most);
    let is_valid = |payload: &Element| schemas.validate(&name, payload.to_xml().as_bytes()).is_ok();
    if is_uneven || is_valid(&*payload) {
        return;
    }

    let is_repeated = |node: &Node| match node {
        Node::Element(child) => counts.contains_key(&child.name),
        Node::Text(_) => false,
    };
    let first = payload.content.iter().position(is_repeated).unwrap_or_default();
    let mut numbers: HashMap<QName, usize> = HashMap::new();
    let mut placed = Vec::new();
    for (position, node) in payload.content.iter().enumerate() {
        let place = match node {
            Node::Element(child) if is_repeated(node) => {
                let number = numbers.entry(child.name.clone()).or_default();
                *number += 1;
                (first, *number)
            }
            _ => (position, 0),
        };
        placed.push((place, node.clone()));
    }

    // Sorting is stable, so that children with the same number keep their order.
    placed.sort_by_key(|(place, _)| *place);
    let content = placed.into_iter().map(|(_, node)| node).collect();
    let ordered = Element { content, ..payload.clone() };
    if is_valid(&ordered) {
        *payload = ordered;
    }
}

/// Returns the inputs of a workflow, in order. If the payload of the workflow may have children or
/// attributes of any name, the names in `values` count as inputs, too.
fn fields_of(
    schemas: &Schemas,
    definition: &WorkflowDefinition,
    values: &[(String, String)],
) -> Vec<InputField> {
    let payload = input_name(definition);
    match &definition.input {
        WorkflowInput::Types(ShortType::Fields(fields)) => {
            let fields = fields.iter().map(|field| {
                let is_nested = matches!(field.short_type, ShortType::Fields(_));
                InputField {
                    name: field.name.clone(),
                    part: InputPart::Child(QName::new(Some(&payload.namespace), &field.name)),
                    is_required: field.occurs == FieldCount::Once,
                    is_repeatable: field.occurs == FieldCount::AnyNumber,
                    is_nested,
                    has_stand_in: !is_nested,
                }
            });
            fields.collect()
        }
        WorkflowInput::Types(_) => Vec::new(),
        WorkflowInput::Payload(_) => {
            let description = schemas.describe(&payload);
            let mut fields = described_fields(&description);
            for (given, _) in values {
                if !fields.iter().any(|field| field.name == *given) {
                    fields.extend(undescribed_field(&description, given));
                }
            }
            fields
        }
    }
}

/// Returns the inputs that the schema of a payload declares: its text, attributes and children.
fn described_fields(description: &PayloadDescription) -> Vec<InputField> {
    let text = description.text.iter().map(|_| InputField {
        name: description.name.local.to_string(),
        part: InputPart::Text,
        is_required: description.default.is_none(),
        is_repeatable: false,
        is_nested: false,
        has_stand_in: false,
    });
    let mut fields: Vec<InputField> = text.collect();
    let parameters = description.parameters.iter();
    for parameter in parameters.filter(|parameter| !parameter.is_any_element()) {
        let key = parameter.key();
        match fields.iter_mut().find(|field| field.name == key) {
            // The schema has the child in several places.
            Some(field) => {
                field.is_required |= parameter.required;
                field.is_repeatable = true;
            }
            None => fields.push(InputField::of_parameter(parameter)),
        }
    }
    fields
}

/// Returns the input `name` of a payload whose schema does not declare it, but permits it. Returns
/// `None` if the payload cannot have this child or attribute.
fn undescribed_field(description: &PayloadDescription, name: &str) -> Option<InputField> {
    let is_partial = description.coverage == PartCoverage::Partial;
    let attribute = name.strip_prefix('@');
    let is_open = match attribute {
        Some(_) => is_partial || description.coverage == PartCoverage::AnyAttribute,
        None => is_partial || description.parameters.iter().any(PayloadParameter::is_any_element),
    };
    if !is_open || !is_ncname(attribute.unwrap_or(name)) {
        return None;
    }

    Some(InputField {
        name: name.to_owned(),
        part: match attribute {
            Some(attribute) => InputPart::Attribute(QName::new(None, attribute)),
            None => InputPart::Child(QName::new(Some(&description.name.namespace), name)),
        },
        is_required: false,
        is_repeatable: attribute.is_none(),
        is_nested: false,
        has_stand_in: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::definition_examples;
    use super::*;

    const SHOP: &str = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
                        targetNamespace=\"urn:shop\" elementFormDefault=\"unqualified\">\
                        <xs:element name=\"order\"><xs:complexType><xs:sequence>\
                        <xs:element name=\"a\" type=\"xs:string\" maxOccurs=\"9\"/>\
                        <xs:element name=\"b\" type=\"xs:string\"/></xs:sequence></xs:complexType>\
                        </xs:element></xs:schema>";

    const PAIRS: &str = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
                         targetNamespace=\"urn:pairs\" elementFormDefault=\"qualified\">\
                         <xs:element name=\"pairs\"><xs:complexType><xs:sequence>\
                         <xs:element name=\"head\" type=\"xs:string\"/>\
                         <xs:sequence maxOccurs=\"unbounded\">\
                         <xs:element name=\"name\" type=\"xs:string\"/>\
                         <xs:element name=\"value\" type=\"xs:integer\"/></xs:sequence>\
                         <xs:element name=\"end\" type=\"xs:string\"/></xs:sequence>\
                         <xs:attribute name=\"id\" type=\"xs:string\"/>\
                         </xs:complexType></xs:element></xs:schema>";

    #[test]
    fn a_dry_run_has_a_stand_in_for_each_child_and_attribute_of_a_payload() {
        let mut schemas = Schemas::default();
        schemas.add_builtin("pairs", PAIRS).expect("it is a schema");
        let element = |name: &str| Element::new(QName::new(Some("urn:pairs"), name));
        let head = element("head").with_text("h");
        let filled = with_stand_ins(&schemas, element("pairs").with_child(head));
        let expected = "<pairs xmlns=\"urn:pairs\" id=\"[input/@id]\"><head>h</head>\
                        <name>[input/name]</name><value>[input/value]</value>\
                        <end>[input/end]</end></pairs>";
        assert_eq!(filled.to_xml(), expected);
    }

    #[test]
    fn a_payload_takes_what_its_schema_declares_and_any_name_where_the_schema_does() {
        let schema = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
            targetNamespace="urn:open" elementFormDefault="qualified">
            <xs:element name="open"><xs:complexType><xs:sequence>
            <xs:element name="a" type="xs:string"/>
            <xs:any processContents="skip" minOccurs="0"/></xs:sequence>
            <xs:attribute name="id" type="xs:string" use="required"/></xs:complexType></xs:element>
            <xs:element name="amount"><xs:complexType><xs:simpleContent>
            <xs:extension base="xs:integer"><xs:attribute name="unit" type="xs:string"/>
            <xs:anyAttribute processContents="skip"/></xs:extension>
            </xs:simpleContent></xs:complexType></xs:element></xs:schema>"#;
        let mut schemas = Schemas::default();
        schemas.add_builtin("open", schema).expect("it is a schema");
        let built = |payload: &str, given: &[&str]| {
            let mut definition = definition_examples::workflow(Vec::new());
            let name = PayloadName::new("urn:open", payload);
            definition.input = WorkflowInput::Payload(definition_examples::placed(name));
            let values = given.iter().map(|name| ((*name).to_owned(), "1".to_owned()));
            match input_payload(&schemas, &definition, &values.collect::<Vec<_>>(), false) {
                Ok(built) => built.to_xml(),
                Err(error) => error.to_string(),
            }
        };
        for (payload, given, expected) in [
            (
                "open",
                &["b", "a", "@id"][..],
                "<open xmlns=\"urn:open\" id=\"1\"><a>1</a><b>1</b></open>",
            ),
            ("open", &["a"], "the input `@id` is missing; add --input @id=VALUE"),
            ("open", &["a", "@id", "@id"], "the input `@id` is given twice"),
            ("open", &["a", "@no"], "the workflow has no input `@no`; it has @id, a"),
            ("open", &["a", "b/><c"], "the workflow has no input `b/><c`; it has @id, a"),
            (
                "amount",
                &["amount", "@unit", "@more"],
                "<amount xmlns=\"urn:open\" unit=\"1\" more=\"1\">1</amount>",
            ),
            ("amount", &["unit"], "the workflow has no input `unit`; it has amount, @unit"),
        ] {
            assert_eq!(built(payload, given), expected, "{given:?}");
        }
    }

    #[test]
    fn children_of_a_repeated_group_take_turns() {
        let mut schemas = Schemas::default();
        schemas.add_builtin("pairs", PAIRS).expect("it is a schema");
        let payload = |values: [(&str, &str); 6]| {
            let element = |name: &str| Element::new(QName::new(Some("urn:pairs"), name));
            values.into_iter().fold(element("pairs"), |payload, (name, text)| {
                payload.with_child(element(name).with_text(text))
            })
        };
        let given = [("name", "a"), ("name", "b"), ("value", "1"), ("value", "2")];
        let [a, b, one, two] = given;
        let ordered = payload([("head", "h"), a, one, b, two, ("end", "e")]);
        let fitted = fit_children(&schemas, payload([("end", "e"), a, b, one, two, ("head", "h")]));
        assert_eq!(fitted.to_xml(), ordered.to_xml());

        // Another order does not help here, so the gate refuses the children as they are.
        let wrong = payload([("head", "h"), a, b, one, ("value", "x"), ("end", "e")]);
        assert_eq!(fit_children(&schemas, wrong.clone()).to_xml(), wrong.to_xml());
    }

    #[test]
    fn children_of_a_repeated_group_with_a_child_left_out_keep_their_order() {
        let schema = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:rows"
            elementFormDefault="qualified"><xs:element name="rows"><xs:complexType>
            <xs:sequence maxOccurs="unbounded"><xs:element name="sku" type="xs:string"/>
            <xs:element name="qty" type="xs:int"/>
            <xs:element name="discount" type="xs:string" minOccurs="0"/>
            </xs:sequence></xs:complexType></xs:element></xs:schema>"#;
        let mut schemas = Schemas::default();
        schemas.add_builtin("rows", schema).expect("it is a schema");
        let element = |name: &str| Element::new(QName::new(Some("urn:rows"), name));
        let names = ["sku", "sku", "qty", "qty", "discount"];
        let payload = names.into_iter().fold(element("rows"), |payload, name| {
            payload.with_child(element(name).with_text("1"))
        });
        let fitted = fit_children(&schemas, payload.clone());
        assert_eq!(fitted.to_xml(), payload.to_xml(), "the discount may belong to either row");
    }

    #[test]
    fn children_stand_in_the_order_and_the_namespaces_of_their_schema() {
        let mut schemas = Schemas::default();
        schemas.add_builtin("shop", SHOP).expect("it is a schema");
        let child = |name: &str, text: &str| {
            Element::new(QName::new(Some("urn:shop"), name)).with_text(text)
        };
        let given = Element::new(QName::new(Some("urn:shop"), "order"))
            .with_child(child("b", "2"))
            .with_child(child("a", "1"))
            .with_child(child("a", "3"));
        let fitted = fit_children(&schemas, given).to_xml();
        assert_eq!(
            fitted,
            "<order xmlns=\"urn:shop\"><a xmlns=\"\">1</a><a xmlns=\"\">3</a><b xmlns=\"\">2</b></order>"
        );
        let name = PayloadName::new("urn:shop", "order");
        assert!(schemas.validate(&name, fitted.as_bytes()).is_ok(), "{fitted}");
    }
}
