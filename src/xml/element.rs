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
    /// Stands in place of `content` where the inside was kept as it was written.
    pub verbatim: Option<Box<Verbatim>>,
    /// Empty in an element that was not read from a document.
    pub origin: ElementOrigin,
}

/// Namespaces by their prefix; the default namespace has the empty one. A list, since most scopes
/// hold two or three, and every element that declares one has a scope of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NamespaceScope(Arc<Vec<(Arc<str>, Arc<str>)>>);

impl NamespaceScope {
    pub(super) fn namespace(&self, prefix: &str) -> Option<&Arc<str>> {
        self.0.iter().find(|(bound, _)| **bound == *prefix).map(|(_, namespace)| namespace)
    }

    /// Binds a prefix in this scope, and in no other one that it was cloned from.
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

/// Where an element was read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElementOrigin {
    /// The start tag, in bytes.
    pub tag: Range<usize>,
    /// The end of the whole element, in bytes.
    pub end: usize,
    /// The bindings inside of the element.
    pub(super) scope: Option<NamespaceScope>,
}

/// A part of an element's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Characters, decoded; nothing trimmed.
    Text(String),
    Element(Element),
}

/// The inside of an element as XML text, with the namespace bindings it was written under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verbatim {
    /// Well-formed XML.
    pub xml: String,
    /// The element's name as written, when it had a prefix that is among the bindings.
    pub written: Option<String>,
    /// Prefix and namespace, one each; the empty prefix is the default namespace.
    pub bindings: Vec<(String, String)>,
}

impl Element {
    /// An element with no content yet.
    pub fn new(name: QName) -> Self {
        Self {
            name,
            attributes: Vec::new(),
            content: Vec::new(),
            verbatim: None,
            origin: ElementOrigin::default(),
        }
    }

    /// An element without a namespace.
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

    /// Adds a child behind the others.
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

    /// All text, that of the elements within included.
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

    /// The text that stands directly inside, without that of the elements within.
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
