//! An element as a value: read from a text, extracted from a model's text, or built.

use std::ops::Range;
use std::sync::Arc;

use super::shape::QName;

/// One element with its attributes and content, in the order of the text. Namespace
/// declarations are no attributes: names carry their namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    pub name: QName,
    pub attributes: Vec<(QName, String)>,
    pub content: Vec<Node>,
    /// Replaces `content` where the inside was kept exactly as it was written.
    pub verbatim: Option<Box<Verbatim>>,
    /// Origin in the source text; empty for an element that was not read from a document.
    pub origin: ElementOrigin,
}

/// Namespaces by prefix; the empty prefix is the default namespace. A list, because most scopes
/// hold two or three bindings and every element that declares one gets a scope of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NamespaceScope(Arc<Vec<(Arc<str>, Arc<str>)>>);

impl NamespaceScope {
    pub(super) fn namespace(&self, prefix: &str) -> Option<&Arc<str>> {
        self.0.iter().find(|(bound, _)| **bound == *prefix).map(|(_, namespace)| namespace)
    }

    /// Binds a prefix in this scope only, not in the scopes that it was cloned from.
    pub(super) fn bind(&mut self, prefix: &str, namespace: Arc<str>) {
        let bindings = Arc::make_mut(&mut self.0);
        match bindings.iter_mut().find(|(bound, _)| **bound == *prefix) {
            Some(binding) => binding.1 = namespace,
            None => bindings.push((prefix.into(), namespace)),
        }
    }

    /// Number of prefixes that are bound.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Position of an element in its source text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElementOrigin {
    /// Byte range of the start tag.
    pub tag: Range<usize>,
    /// Byte offset of the end of the whole element.
    pub end: usize,
    /// Namespace bindings inside the element.
    pub(super) scope: Option<NamespaceScope>,
}

/// A part of an element's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Decoded characters, not trimmed.
    Text(String),
    Element(Element),
}

/// The inside of an element as XML text, with the namespace bindings it was written under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verbatim {
    /// Well-formed XML.
    pub xml: String,
    /// The element's name as written, if its prefix is among the bindings.
    pub written: Option<String>,
    /// Pairs of prefix and namespace, each prefix once; the empty prefix is the default namespace.
    pub bindings: Vec<(String, String)>,
}

impl Element {
    /// Creates an element without content.
    pub fn new(name: QName) -> Self {
        Self {
            name,
            attributes: Vec::new(),
            content: Vec::new(),
            verbatim: None,
            origin: ElementOrigin::default(),
        }
    }

    /// Creates an element without a namespace.
    pub fn local(local: &str) -> Self {
        Self::new(QName::new(None, local))
    }

    #[must_use]
    pub fn with_attribute(mut self, local: &str, value: impl Into<String>) -> Self {
        self.attributes.push((QName::new(None, local), value.into()));
        self
    }

    /// Makes `text` the whole content.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.content = vec![Node::Text(text.into())];
        self
    }

    /// Appends a child.
    #[must_use]
    pub fn with_child(mut self, child: Self) -> Self {
        self.content.push(Node::Element(child));
        self
    }

    /// Makes `xml`, which must be well-formed and bind its own prefixes, the whole content.
    #[must_use]
    pub fn with_verbatim(mut self, xml: impl Into<String>) -> Self {
        self.verbatim = Some(Box::new(Verbatim { xml: xml.into(), ..Verbatim::default() }));
        self
    }

    pub fn local_name(&self) -> &str {
        &self.name.local
    }

    /// The value of the attribute with this name and no namespace.
    pub fn attribute(&self, local: &str) -> Option<&str> {
        let named =
            |(name, _): &&(QName, String)| name.namespace.is_none() && &*name.local == local;
        self.attributes.iter().find(named).map(|(_, value)| value.as_str())
    }

    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.content.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first child with this local name.
    pub fn child(&self, local: &str) -> Option<&Self> {
        self.children().find(|child| child.local_name() == local)
    }

    /// Returns all text, including that of nested elements.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.collect_text(&mut out);
        out
    }

    fn collect_text(&self, out: &mut String) {
        for node in &self.content {
            match node {
                Node::Text(text) => out.push_str(text),
                Node::Element(element) => element.collect_text(out),
            }
        }
    }

    /// Returns the text directly inside, without that of nested elements.
    pub fn own_text(&self) -> String {
        let texts = self.content.iter().filter_map(|node| match node {
            Node::Text(text) => Some(text.as_str()),
            Node::Element(_) => None,
        });
        texts.collect()
    }

    /// The canonical XML text; see [`super::write::payload`].
    pub fn to_xml(&self) -> String {
        super::write::payload(self)
    }
}
