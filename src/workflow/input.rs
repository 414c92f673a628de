//! Builds the payload that begins a workflow run from the values of the workflow's inputs.

use std::collections::HashSet;

use crate::ids::PayloadName;
use crate::schema::{FieldCount, PayloadParameter, Schemas, ShortType};
use crate::xml::element::{Element, Node};
use crate::xml::shape::QName;

use super::definition::{WorkflowDefinition, WorkflowInput};
use super::payloads::input_name;

/// Why the given values cannot be the input of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("the workflow has no input `{name}`; it has {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("the input `{0}` is given twice")]
    Twice(String),
    #[error("the input `{0}` is missing; add --input {0}=VALUE")]
    Missing(String),
    #[error("the input `{0}` has children: send the whole payload with `organism send`")]
    Nested(String),
}

/// An input of a workflow, with the number of values that it may have.
struct InputField {
    name: String,
    occurs: FieldCount,
    is_nested: bool,
}

/// Builds the payload that begins a run of a workflow. Each pair in `values` is the name of an
/// input and a value for this input. With `stand_ins`, each input without a value gets a stand-in:
/// the name of the input in brackets.
///
/// # Errors
///
/// Fails if a value is for an unknown input or for an input with children, or if an input
/// has too many values. Without `stand_ins`, also fails if a required input has no value.
pub fn input_payload(
    definition: &WorkflowDefinition,
    values: &[(String, String)],
    stand_ins: bool,
) -> Result<Element, InputError> {
    let fields = fields_of(definition, values);
    for (given, _) in values {
        if !fields.iter().any(|field| field.name == *given) {
            let known = fields.into_iter().map(|field| field.name).collect();
            return Err(InputError::Unknown { name: given.clone(), known });
        }
    }

    let name = QName::from(&input_name(definition));
    let namespace = name.namespace.clone();
    let mut payload = Element::new(name);
    for InputField { name, occurs, is_nested } in fields {
        let given = values.iter().filter(|(given, _)| *given == name).map(|(_, value)| value);
        let mut texts: Vec<String> = given.cloned().collect();
        match occurs {
            _ if texts.is_empty() && stand_ins => texts.push(format!("[input/{name}]")),
            FieldCount::Once if texts.is_empty() && is_nested => {
                return Err(InputError::Nested(name));
            }
            FieldCount::Once if texts.is_empty() => return Err(InputError::Missing(name)),
            FieldCount::Once | FieldCount::AtMostOnce if texts.len() > 1 => {
                return Err(InputError::Twice(name));
            }
            _ if is_nested && !texts.is_empty() => return Err(InputError::Nested(name)),
            _ => {}
        }
        for text in texts {
            let child = Element::new(QName::new(namespace.as_deref(), &name));
            payload = payload.with_child(child.with_text(text));
        }
    }

    Ok(payload)
}

/// Puts the children of a payload into the order and the namespaces of their schema.
pub fn fit_children(schemas: &Schemas, mut payload: Element) -> Element {
    let name = PayloadName::new(payload.name.namespace(), payload.local_name());
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
    payload
}

/// Returns the inputs of a workflow, in order. If a schema declares the payload of the workflow,
/// the names in `values` count as inputs, without a check against the schema.
fn fields_of(definition: &WorkflowDefinition, values: &[(String, String)]) -> Vec<InputField> {
    match &definition.input {
        WorkflowInput::Types(ShortType::Fields(fields)) => {
            let fields = fields.iter().map(|field| InputField {
                name: field.name.clone(),
                occurs: field.occurs,
                is_nested: matches!(field.short_type, ShortType::Fields(_)),
            });
            fields.collect()
        }
        WorkflowInput::Types(_) => Vec::new(),
        WorkflowInput::Payload(_) => {
            let mut known = HashSet::new();
            let names = values.iter().map(|(name, _)| name);
            let names = names.filter(|name| known.insert(name.as_str()));
            let field = |name: &String| InputField {
                name: name.clone(),
                occurs: FieldCount::AnyNumber,
                is_nested: false,
            };
            names.map(field).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
                        targetNamespace=\"urn:shop\" elementFormDefault=\"unqualified\">\
                        <xs:element name=\"order\"><xs:complexType><xs:sequence>\
                        <xs:element name=\"a\" type=\"xs:string\" maxOccurs=\"9\"/>\
                        <xs:element name=\"b\" type=\"xs:string\"/></xs:sequence></xs:complexType>\
                        </xs:element></xs:schema>";

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
