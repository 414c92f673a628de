//! Declarations of elements, and the XSD text that the schema generator makes from a declaration.

use std::fmt::Write as _;

use super::super::xsd::XSD;
use super::{Losses, OPTIONAL_MAX};
use crate::xml::escape::{escape_attribute, escape_text};

/// Placeholder for the type of a value for which the example has shown only `null` or an empty list
/// so far. The type of a later value in the example replaces the placeholder.
pub(super) const UNKNOWN: &str = "unknown";

/// All facets that a generated schema may contain.
pub(super) const FACETS: [&str; 8] = [
    "enumeration",
    "pattern",
    "minLength",
    "maxLength",
    "minInclusive",
    "minExclusive",
    "maxInclusive",
    "maxExclusive",
];

/// One element: its name, its number of occurrences in the parent, and its content.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ElementDeclaration {
    pub name: String,
    pub documentation: Option<String>,
    pub min: u64,
    /// Maximum number of occurrences; `None` if unbounded.
    pub max: Option<u64>,
    pub of: ContentType,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ContentType {
    Value(ValueType),
    Fields(FieldsType),
}

/// The type of a value: a built-in type with facets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueType {
    /// Local name of the type, such as `string`.
    pub base: &'static str,
    pub facets: Vec<(&'static str, String)>,
}

/// Returns the reason to leave out a facet with this name and value; `None` for a facet that the
/// schema can contain.
pub(super) type FacetDefect<'a> = dyn FnMut(&str, &str) -> Option<&'static str> + 'a;

/// Content of an element: attributes, and either child elements or a text. The text has a simple
/// type.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct FieldsType {
    pub attributes: Vec<AttributeDeclaration>,
    pub children: Vec<ElementDeclaration>,
    /// Whether the children may occur in any order and number.
    pub is_unordered: bool,
    /// The text of an element without children; `None` if the element has no text.
    pub text: Option<ValueType>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttributeDeclaration {
    pub name: String,
    pub is_required: bool,
    pub of: ValueType,
}

impl ValueType {
    pub fn plain(base: &'static str) -> Self {
        Self { base, facets: Vec::new() }
    }

    pub fn words(&self) -> Vec<&str> {
        let words = self.facets.iter().filter(|(facet, _)| *facet == "enumeration");
        words.map(|(_, word)| word.as_str()).collect()
    }
}

impl ElementDeclaration {
    pub fn new(name: String, of: ContentType) -> Self {
        Self { name, documentation: None, min: 1, max: Some(1), of }
    }

    /// Returns the number of elements that this declaration contains, including its own.
    pub fn size(&self) -> usize {
        let ContentType::Fields(fields) = &self.of else { return 1 };
        1 + fields.children.iter().map(Self::size).sum::<usize>()
    }

    /// Permits the children of an element in any order and number if more than `OPTIONAL_MAX` of
    /// them are optional. A fixed order of so many optional children would take too long to
    /// compile. Does the same for all elements inside the element.
    pub fn loosen(&mut self, path: &str, losses: &mut Losses) {
        let ContentType::Fields(fields) = &mut self.of else { return };
        let optional = fields.children.iter().filter(|child| child.min == 0).count();
        if optional > OPTIONAL_MAX && !fields.is_unordered {
            fields.is_unordered = true;
            let what = "the order and number of its children, as too many of them are optional";
            losses.add(path, what);
        }
        for child in &mut fields.children {
            let path = format!("{path}/{}", child.name);
            child.loosen(&path, losses);
        }
    }

    /// Removes facets from the element and from all elements inside it. `defect` gets the name and
    /// the value of each facet, and returns the reason to remove it, or `None` to keep it. Returns
    /// whether any facet was removed.
    pub fn drop_facets(
        &mut self,
        defect: &mut FacetDefect<'_>,
        path: &str,
        losses: &mut Losses,
    ) -> bool {
        match &mut self.of {
            ContentType::Value(of) => {
                let before = of.facets.len();
                of.facets.retain(|(facet, value)| {
                    let defect = defect(facet, value);
                    if let Some(defect) = defect {
                        losses.add(path, format_args!("the {facet} {value}, {defect}"));
                    }
                    defect.is_none()
                });
                of.facets.len() < before
            }
            ContentType::Fields(fields) => {
                let mut found = false;
                for child in &mut fields.children {
                    let path = format!("{path}/{}", child.name);
                    found |= child.drop_facets(defect, &path, losses);
                }
                found
            }
        }
    }
}

/// Returns the XSD text that declares `root`.
pub(super) fn xsd(namespace: &str, is_qualified: bool, root: &ElementDeclaration) -> String {
    let target = match namespace {
        "" => String::new(),
        named => format!(" targetNamespace=\"{}\"", escape_attribute(named)),
    };
    let is_qualified = is_qualified && !namespace.is_empty();
    let form = if is_qualified { " elementFormDefault=\"qualified\"" } else { "" };
    let mut out = format!("<xs:schema xmlns:xs=\"{XSD}\"{target}{form}>\n\n");
    write_element(&mut out, root, false, 1);
    out.push_str("\n</xs:schema>\n");
    out
}

fn write_element(out: &mut String, element: &ElementDeclaration, in_choice: bool, depth: usize) {
    let indent = "  ".repeat(depth);
    let name = &element.name;
    let mut head = format!("{indent}<xs:element name=\"{name}\"");
    if let ContentType::Value(of) = &element.of
        && of.facets.is_empty()
    {
        let _ = write!(head, " type=\"xs:{}\"", of.base);
    }
    if !in_choice && element.min != 1 {
        let _ = write!(head, " minOccurs=\"{}\"", element.min);
    }
    match element.max {
        _ if in_choice => {}
        None => head.push_str(" maxOccurs=\"unbounded\""),
        Some(1) => {}
        Some(max) => {
            let _ = write!(head, " maxOccurs=\"{max}\"");
        }
    }

    let mut inner = String::new();
    if let Some(text) = &element.documentation {
        let text = escape_text(text);
        let _ = writeln!(
            inner,
            "{indent}  <xs:annotation><xs:documentation>{text}</xs:documentation></xs:annotation>"
        );
    }
    match &element.of {
        ContentType::Value(of) if of.facets.is_empty() => {}
        ContentType::Value(of) => write_value(&mut inner, of, depth + 1),
        ContentType::Fields(fields) => write_fields(&mut inner, fields, depth + 1),
    }

    if inner.is_empty() {
        let _ = writeln!(out, "{head}/>");
    } else {
        let _ = write!(out, "{head}>\n{inner}{indent}</xs:element>\n");
    }
}

fn write_value(out: &mut String, of: &ValueType, depth: usize) {
    let indent = "  ".repeat(depth);
    let _ = writeln!(out, "{indent}<xs:simpleType>");
    let _ = writeln!(out, "{indent}  <xs:restriction base=\"xs:{}\">", of.base);
    for (facet, value) in &of.facets {
        let value = escape_attribute(value);
        let _ = writeln!(out, "{indent}    <xs:{facet} value=\"{value}\"/>");
    }
    let _ = writeln!(out, "{indent}  </xs:restriction>");
    let _ = writeln!(out, "{indent}</xs:simpleType>");
}

fn write_fields(out: &mut String, fields: &FieldsType, depth: usize) {
    let indent = "  ".repeat(depth);
    if fields.attributes.is_empty() && fields.children.is_empty() && fields.text.is_none() {
        let _ = writeln!(out, "{indent}<xs:complexType/>");
        return;
    }

    let _ = writeln!(out, "{indent}<xs:complexType>");
    if let Some(text) = &fields.text {
        let _ = writeln!(out, "{indent}  <xs:simpleContent>");
        let _ = writeln!(out, "{indent}    <xs:extension base=\"xs:{}\">", text.base);
        write_attributes(out, &fields.attributes, depth + 3);
        let _ = writeln!(out, "{indent}    </xs:extension>");
        let _ = writeln!(out, "{indent}  </xs:simpleContent>");
    } else {
        if !fields.children.is_empty() {
            let group = if fields.is_unordered { "choice" } else { "sequence" };
            let any = " minOccurs=\"0\" maxOccurs=\"unbounded\"";
            let occurs = if fields.is_unordered { any } else { "" };
            let _ = writeln!(out, "{indent}  <xs:{group}{occurs}>");
            for child in &fields.children {
                write_element(out, child, fields.is_unordered, depth + 2);
            }
            let _ = writeln!(out, "{indent}  </xs:{group}>");
        }
        write_attributes(out, &fields.attributes, depth + 1);
    }
    let _ = writeln!(out, "{indent}</xs:complexType>");
}

fn write_attributes(out: &mut String, attributes: &[AttributeDeclaration], depth: usize) {
    let indent = "  ".repeat(depth);
    for attribute in attributes {
        let needed = if attribute.is_required { " use=\"required\"" } else { "" };
        let name = &attribute.name;
        let base = attribute.of.base;
        let _ = writeln!(out, "{indent}<xs:attribute name=\"{name}\" type=\"xs:{base}\"{needed}/>");
    }
}
