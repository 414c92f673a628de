//! Namespaces in scope: the prefixes that are bound to URIs. Each URI gets a small number, so that
//! two URIs of any length are compared in the same time.

use std::borrow::Cow;
use std::collections::HashMap;

use super::tag::TagAttribute;
use super::{ScanViolation, quoted};
use crate::xml::escape::unescape_attribute;
use crate::xml::write::XML_NAMESPACE as XML;

const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// Maximum number of namespaces for which comparing is faster than hashing.
const FEW: usize = 8;

/// A namespace, as an index into the namespaces that the text has declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NamespaceId(usize);

impl NamespaceId {
    /// The id that stands for no namespace.
    pub const NONE: Self = Self(0);
    const XML: Self = Self(1);
    const XMLNS: Self = Self(2);
}

pub(super) struct NamespaceTable<'a> {
    uris: Vec<Cow<'a, str>>,
    numbers: HashMap<Cow<'a, str>, NamespaceId>,
    /// Bindings of prefixes, the innermost last. The empty prefix stands for the default namespace.
    bindings: Vec<(&'a str, NamespaceId)>,
    /// Length that `bindings` had before the declarations of each open element. The end of the
    /// element cuts `bindings` to this length.
    marks: Vec<usize>,
}

impl<'a> NamespaceTable<'a> {
    pub fn new() -> Self {
        Self {
            uris: vec!["".into(), XML.into(), XMLNS.into()],
            numbers: HashMap::new(),
            bindings: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Opens an element. Must be called before [`Self::declare`], which adds the element's
    /// namespace declarations.
    pub fn open(&mut self) {
        self.marks.push(self.bindings.len());
    }

    pub fn close(&mut self) {
        self.bindings.truncate(self.marks.pop().unwrap_or_default());
    }

    /// Binds `prefix` to the namespace that `at`, an `xmlns` attribute, declares. The empty prefix
    /// stands for the default namespace.
    pub fn declare(&mut self, prefix: &'a str, at: &TagAttribute<'a>) -> Result<(), ScanViolation> {
        let wrong = |message: &str| Err(ScanViolation::form(at.offset, message));
        let uri = unescape_attribute(at.value).unwrap_or(Cow::Borrowed(at.value));
        match (prefix, uri.as_ref()) {
            ("xml", XML) => return Ok(()),
            ("xml", _) => return wrong("prefix `xml` bound to another namespace"),
            ("xmlns", _) => return wrong("prefix `xmlns` cannot be declared"),
            (_, XML) => return wrong("the namespace of `xml` bound to another prefix"),
            (_, XMLNS) => return wrong("the namespace of `xmlns` cannot be bound"),
            ("", _) => {}
            (_, "") => return wrong("a prefix cannot be undeclared"),
            _ => {}
        }

        let namespace = self.number(uri);
        self.bindings.push((prefix, namespace));
        Ok(())
    }

    fn number(&mut self, uri: Cow<'a, str>) -> NamespaceId {
        if uri.is_empty() {
            return NamespaceId::NONE;
        }

        if self.uris.len() <= FEW {
            let known = self.uris.iter().position(|known| *known == uri);
            return NamespaceId(known.unwrap_or_else(|| {
                self.uris.push(uri);
                self.uris.len() - 1
            }));
        }

        if self.numbers.is_empty() {
            let known = self.uris.iter().enumerate();
            self.numbers = known.map(|(at, uri)| (uri.clone(), NamespaceId(at))).collect();
        }

        let next = NamespaceId(self.uris.len());
        *self.numbers.entry(uri).or_insert_with_key(|uri| {
            self.uris.push(uri.clone());
            next
        })
    }

    /// Returns the namespace of an element whose name has the prefix `prefix`.
    pub fn of_element(&self, prefix: &str, offset: usize) -> Result<NamespaceId, ScanViolation> {
        let bound = self.bindings.iter().rev().find(|(bound, _)| *bound == prefix);
        match (bound, prefix) {
            (Some((_, namespace)), _) => Ok(*namespace),
            (None, "") => Ok(NamespaceId::NONE),
            (None, "xml") => Ok(NamespaceId::XML),
            (None, _) => {
                let message = format!("prefix `{}` is not declared", quoted(prefix));
                Err(ScanViolation::form(offset, message))
            }
        }
    }

    /// Returns the namespace of an attribute whose name has the prefix `prefix`. The default
    /// namespace does not apply to attributes.
    pub fn of_attribute(&self, prefix: &str, offset: usize) -> Result<NamespaceId, ScanViolation> {
        match prefix {
            "" => Ok(NamespaceId::NONE),
            "xmlns" => Ok(NamespaceId::XMLNS),
            _ => self.of_element(prefix, offset),
        }
    }

    pub fn uri(&self, namespace: NamespaceId) -> &str {
        self.uris.get(namespace.0).map_or("", AsRef::as_ref)
    }
}
