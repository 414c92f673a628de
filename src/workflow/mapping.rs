//! Payloads that `with` makes of the view of a run.

use crate::ids::ListenerName;
use crate::schema::XPathError;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::definition::Mapping;
use super::view::RunView;

/// Expressions of a mapping.
pub fn expressions(with: &Mapping) -> Vec<&str> {
    match with {
        Mapping::Element(expression) => vec![expression.value.as_str()],
        Mapping::Fields(fields) => fields.iter().map(|(_, value)| value.value.as_str()).collect(),
    }
}

/// The payload that a mapping makes for `listener`, which takes payloads of this name.
///
/// # Errors
/// An expression has no value, or selects an element of another name: a call goes wherever the name
/// of its payload leads, and an input may hold any element.
pub fn payload(
    view: &RunView,
    with: &Mapping,
    name: Option<QName>,
    listener: &ListenerName,
) -> Result<Element, XPathError> {
    let name = name.unwrap_or_else(|| QName::new(None, listener.as_str()));
    match with {
        Mapping::Element(expression) => {
            let selected = view.payload(&expression.value)?;
            let nothing = || format!("{} selects no element", expression.value);
            let selected = selected.ok_or_else(|| XPathError::Invalid(nothing()))?;
            if selected.name != name {
                let (found, wanted) = (written(&selected.name), written(&name));
                return Err(XPathError::OtherElement { found, wanted });
            }
            Ok(selected)
        }
        Mapping::Fields(fields) => {
            let namespace = name.namespace.clone();
            let mut payload = Element::new(name);
            for (field, expression) in fields {
                // A value that selects nothing leaves its child out.
                let Some(value) = view.text(&expression.value)? else { continue };
                match field.strip_prefix('@') {
                    Some(attribute) => {
                        payload.attributes.push((qualified(attribute, None), value));
                    }
                    None => {
                        let child = Element::new(qualified(field, namespace.as_deref()));
                        payload = payload.with_child(child.with_text(value));
                    }
                }
            }
            Ok(payload)
        }
    }
}

/// The name that a key stands for: `{NAMESPACE}name`, or a name in the namespace `by_default`.
fn qualified(key: &str, by_default: Option<&str>) -> QName {
    match key.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some((namespace, local)) => {
            QName::new(Some(namespace).filter(|namespace| !namespace.is_empty()), local)
        }
        None => QName::new(by_default, key),
    }
}

fn written(name: &QName) -> String {
    format!("`{{{}}}{}`", name.namespace(), name.local)
}
