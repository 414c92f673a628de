//! The namespace bindings that are in force at one offset in the text of an action.

use super::tag::OpenTag;
use super::turn_bytes::TurnBytes;
use crate::xml::write::XML_NAMESPACE;

/// The prefixes in scope with their namespaces, the innermost last. The empty prefix stands for the
/// default namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct PrefixScope {
    bindings: Vec<(String, String)>,
}

/// A name as written, resolved against the bindings in scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WrittenName<'a> {
    /// A name without a prefix, at a place where no default namespace is declared.
    Bare(&'a str),
    /// A name with a namespace. The namespace is empty if the default namespace was undeclared.
    Bound(String, &'a str),
    /// A name whose prefix is not bound, written with its prefix.
    Unbound(&'a str),
}

impl<'a> WrittenName<'a> {
    pub fn local(&self) -> &'a str {
        match *self {
            Self::Bare(local) | Self::Bound(_, local) => local,
            Self::Unbound(name) => name.split_once(':').map_or(name, |(_, local)| local),
        }
    }
}

impl PrefixScope {
    pub fn depth(&self) -> usize {
        self.bindings.len()
    }

    /// Drops all bindings that were added since [`Self::depth`] returned `depth`.
    pub fn leave(&mut self, depth: usize) {
        self.bindings.truncate(depth);
    }

    /// Adds the namespace declarations of a tag.
    pub fn enter(&mut self, source: TurnBytes<'_>, tag: &OpenTag) {
        for attribute in &tag.attributes {
            let name = source.lossy(attribute.name.clone());
            let Some(prefix) = declared_prefix(&name) else { continue };
            let raw = source.lossy(attribute.value.clone());
            let uri = super::decode::attribute(&raw).into_owned();
            self.bindings.push((prefix.to_owned(), uri));
        }
    }

    fn lookup(&self, prefix: &str) -> Option<&str> {
        let mut found = self.bindings.iter().rev().filter(|(bound, _)| bound == prefix);
        if prefix == "xml" {
            Some(XML_NAMESPACE)
        } else {
            found.next().map(|(_, uri)| uri.as_str())
        }
    }

    /// Resolves the name of an element.
    pub fn element<'n>(&self, name: &'n str) -> WrittenName<'n> {
        if self.bindings.is_empty() && !name.bytes().any(|byte| byte == b':') {
            return WrittenName::Bare(name);
        }

        match name.split_once(':') {
            None => match self.lookup("") {
                Some(uri) => WrittenName::Bound(uri.to_owned(), name),
                None => WrittenName::Bare(name),
            },
            Some((prefix, local)) => match self.lookup(prefix).filter(|uri| !uri.is_empty()) {
                Some(uri) => WrittenName::Bound(uri.to_owned(), local),
                None => WrittenName::Unbound(name),
            },
        }
    }

    /// Resolves the name of an attribute. The default namespace does not apply to attributes.
    pub fn attribute<'n>(&self, name: &'n str) -> WrittenName<'n> {
        if name.contains(':') { self.element(name) } else { WrittenName::Bare(name) }
    }

    /// Returns the bindings in force, one for each prefix.
    pub fn visible(&self) -> Vec<(String, String)> {
        let mut visible: Vec<(String, String)> = Vec::new();
        for (prefix, uri) in self.bindings.iter().rev() {
            if visible.iter().all(|(seen, _)| seen != prefix) {
                visible.push((prefix.clone(), uri.clone()));
            }
        }

        visible.retain(|(prefix, uri)| prefix.is_empty() || !uri.is_empty());
        visible.sort();
        visible
    }
}

/// Returns the prefix that an attribute with the name `attribute` declares; `None` if the attribute
/// is no namespace declaration.
pub(super) fn declared_prefix(attribute: &str) -> Option<&str> {
    match attribute {
        "xmlns" => Some(""),
        _ => attribute.strip_prefix("xmlns:"),
    }
}
