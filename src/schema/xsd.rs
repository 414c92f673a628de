//! Elements of the XML Schema language.

use crate::xml::element::Element;
use crate::xml::shape::QName;

/// The namespace of XML Schema.
pub const XSD: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of schema attributes in instances, such as `xsi:type`.
pub const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Whether a name is in the namespace of XML Schema.
pub fn is_xsd(name: &QName) -> bool {
    name.namespace() == XSD
}

/// An element of a schema document.
pub trait SchemaElement {
    /// Whether this element is the XML Schema element `local`.
    fn is(&self, local: &str) -> bool;

    /// Returns the children of this element that are the XML Schema element `local`.
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
