//! Elements of the XML Schema language.

use crate::xml::element::Element;
use crate::xml::shape::QName;
use crate::xml::write::XSI_NAMESPACE;

/// The namespace of XML Schema.
pub const XSD: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of the attributes that XML Schema adds to documents, such as `xsi:type`.
pub const XSI: &str = XSI_NAMESPACE;

/// Whether a name is in the namespace of XML Schema.
pub fn is_xsd(name: &QName) -> bool {
    name.namespace() == XSD
}

/// Whether a name is that of the attribute `xsi:type`.
pub fn is_xsi_type(name: &QName) -> bool {
    name.namespace() == XSI && &*name.local == "type"
}

/// An element of a schema document.
pub trait SchemaElement {
    /// Whether this element has the local name `local` and is in the namespace of XML Schema.
    fn is(&self, local: &str) -> bool;

    /// Returns the children that have the local name `local` and are in the namespace of XML
    /// Schema.
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
