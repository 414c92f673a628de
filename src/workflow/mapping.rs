//! Builds the payload of a call as the setting `with` of a goal prescribes. The expressions of this
//! setting select values from the view of the run. The view is a document with the input of the run
//! and the outputs of its goals.

use crate::ids::ListenerName;
use crate::schema::XPathError;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::definition::Mapping;
use super::view::RunView;

/// Returns the expressions in `with`, the setting that states how the payload of a call is built.
pub fn expressions(with: &Mapping) -> Vec<&str> {
    match with {
        Mapping::Element(expression) => vec![expression.value.as_str()],
        Mapping::Fields(fields) => fields.iter().map(|(_, value)| value.value.as_str()).collect(),
    }
}

/// Builds the payload of a call to `listener`. The payload has the name `name`, or the name of the
/// listener if `name` is `None`. If the expression of a child selects several nodes, each node
/// becomes a child. With `takes_first`, only the first node of each expression counts.
///
/// # Errors
///
/// Fails if:
/// - an expression cannot be evaluated;
/// - the expression of an attribute or a single element selects several nodes, and `takes_first` is
///   false;
/// - the expression of a single element selects no element, or an element whose name is not that of
///   the payload. The name is checked because an input may hold any element, and the name decides
///   which listener gets the call.
pub fn payload(
    view: &RunView,
    with: &Mapping,
    name: Option<QName>,
    listener: &ListenerName,
    takes_first: bool,
) -> Result<Element, XPathError> {
    let name = name.unwrap_or_else(|| QName::new(None, listener.as_str()));
    match with {
        Mapping::Element(expression) => {
            let selected = view.payload(&expression.value, takes_first)?;
            let nothing = || format!("{} selects no element", expression.value);
            let selected = selected.ok_or_else(|| XPathError::Invalid(nothing()))?;
            if selected.name != name {
                let found = written(&selected.name);
                let wanted = written(&name);
                return Err(XPathError::OtherElement { found, wanted });
            }
            Ok(selected)
        }
        Mapping::Fields(fields) => {
            let namespace = name.namespace.clone();
            let mut payload = Element::new(name);
            for (field, expression) in fields {
                // An expression that selects nothing leaves its field out.
                let mut values = view.texts(&expression.value)?;
                if takes_first {
                    values.truncate(1);
                }

                let Some(attribute) = field.strip_prefix('@') else {
                    let child = Element::new(qualified(field, namespace.as_deref()));
                    let children = values.into_iter().map(|value| child.clone().with_text(value));
                    payload = children.fold(payload, Element::with_child);
                    continue;
                };
                if values.len() > 1 {
                    return Err(several_in_attribute(attribute, &expression.value, values.len()));
                }

                let name = qualified(attribute, None);
                payload.attributes.extend(values.into_iter().map(|value| (name.clone(), value)));
            }
            Ok(payload)
        }
    }
}

/// Returns the error for an attribute whose expression selects `count` nodes.
fn several_in_attribute(attribute: &str, expression: &str, count: usize) -> XPathError {
    let message = format!("{expression} selects {count} nodes, and `@{attribute}` takes one");
    XPathError::Invalid(message)
}

/// Returns the name that a key of `with` stands for. A key `{NAMESPACE}name` names its namespace;
/// any other key is a name in the namespace `by_default`.
fn qualified(key: &str, by_default: Option<&str>) -> QName {
    match key.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some((namespace, local)) => {
            QName::new(Some(namespace).filter(|namespace| !namespace.is_empty()), local)
        }
        None => QName::new(by_default, key),
    }
}

/// Returns a name as messages show it, with its namespace.
pub(super) fn written(name: &QName) -> String {
    format!("`{{{}}}{}`", name.namespace(), name.local)
}
