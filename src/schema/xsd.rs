//! Elements of the schema language.

use crate::xml::element::Element;
use crate::xml::shape::QName;

/// The namespace of schemas themselves.
pub const XSD: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of schema attributes in instances.
pub const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Whether a name belongs to the schema language.
pub fn is_xsd(name: &QName) -> bool {
    name.namespace() == XSD
}

/// An element of a schema document.
pub trait SchemaElement {
    /// Whether this is the element `local` of the schema language.
    fn is(&self, local: &str) -> bool;

    /// The children named `local` of the schema language.
    fn all<'a>(&'a self, local: &'a str) -> impl Iterator<Item = &'a Element>;

    fn first<'a>(&'a self, local: &'a str) -> Option<&'a Element> {
        self.all(local).next()
    }
}

impl SchemaElement for Element {
    fn is(&self, local: &str) -> bool {
        is_xsd(&self.name) && self.local_name() == local
    }

    fn all<'a>(&'a self, local: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children().filter(move |child| child.is(local))
    }
}
