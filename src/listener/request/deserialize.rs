//! Deserializes typed payloads. The deserializer of quick-xml ignores namespaces and skips blank
//! text. So this module first removes the elements and attributes of other namespaces, and reads
//! blank text itself.

use std::borrow::Cow;

use quick_xml::de::SimpleTypeDeserializer;
use quick_xml::{DeError, de};
use serde::de::value::MapDeserializer;

use crate::listener::payload::TypedPayload;
use crate::xml::element::{Element, Node};
use crate::xml::shape::QName;
use crate::xml::write::{XML_NAMESPACE, XSI_NAMESPACE};

/// Name of the field that contains the text of a payload's root element.
const TEXT_FIELD: &str = "$text";

/// Entry of [`TypedPayload::IMPORTED_NAMESPACES`] that stands for all namespaces.
const ANY_NAMESPACE: &str = "*";

pub(super) fn deserialize<P: TypedPayload>(payload: &str) -> Result<P, DeError> {
    // The pump delivers only payloads that this parser accepts.
    let Some(mut root) = Element::read_document(payload) else { return de::from_str(payload) };

    let is_changed = remove_foreign::<P>(&mut root);
    let read = || -> Result<P, DeError> {
        if is_changed { de::from_str(&root.to_xml()) } else { de::from_str(payload) }
    };

    // An empty text is `None` in an optional field, as the deserializer reads it. Only a field that
    // requires a text gets the empty text.
    if root.own_text().is_empty() {
        return read().or_else(|error| read_blank(&root).ok_or(error));
    }

    read_blank(&root).map_or_else(read, Ok)
}

/// Removes the elements and attributes in namespaces that do not belong to the type `P`. Returns
/// true if it removed anything.
fn remove_foreign<P: TypedPayload>(element: &mut Element) -> bool {
    let attributes = element.attributes.len();
    element.attributes.retain(|(name, _)| is_own_attribute::<P>(name));
    let mut is_changed = element.attributes.len() < attributes;

    let nodes = element.content.len();
    element.content.retain(|node| match node {
        Node::Element(child) => is_own::<P>(&child.name),
        Node::Text(_) => true,
    });
    is_changed |= element.content.len() < nodes;

    for node in &mut element.content {
        if let Node::Element(child) = node {
            is_changed |= remove_foreign::<P>(child);
        }
    }

    is_changed
}

fn is_own<P: TypedPayload>(name: &QName) -> bool {
    let namespace = name.namespace();
    let is_imported = |imported: &&str| *imported == ANY_NAMESPACE || *imported == namespace;
    namespace.is_empty()
        || namespace == P::NAMESPACE
        || P::IMPORTED_NAMESPACES.iter().any(is_imported)
}

/// Whether an attribute may be a field of the type `P`. Also true for `xsi:nil`, which the
/// deserializer handles, and for attributes such as `xml:lang`, whose fields have names with the
/// prefix `xml:`.
fn is_own_attribute<P: TypedPayload>(name: &QName) -> bool {
    match name.namespace() {
        XML_NAMESPACE => true,
        XSI_NAMESPACE => &*name.local == "nil",
        _ => is_own::<P>(name),
    }
}

/// Deserializes a payload whose root element contains nothing, or only blank text. This text
/// becomes the field [`TEXT_FIELD`]. Returns `None` for any other payload, or if the type `P`
/// cannot be read from such a text.
fn read_blank<P: TypedPayload>(root: &Element) -> Option<P> {
    let text = root.own_text();
    if root.children().next().is_some() || !text.trim().is_empty() {
        return None;
    }

    let attributes = root.attributes.iter().map(|(name, value)| {
        let prefix = if name.namespace() == XML_NAMESPACE { "xml:" } else { "" };
        (format!("@{prefix}{}", name.local), value.clone())
    });
    let fields = attributes.chain([(TEXT_FIELD.to_owned(), text)]);
    let fields =
        fields.map(|(name, value)| (name, SimpleTypeDeserializer::from_text(Cow::Owned(value))));
    P::deserialize(MapDeserializer::<_, DeError>::new(fields)).ok()
}
