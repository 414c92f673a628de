//! An XML element as a value: parsed from XML, extracted from a model's text, or built.

use std::ops::Range;
use std::sync::Arc;

use super::shape::QName;

/// One element with its attributes and content, in the order of the text. Each name contains its
/// namespace, so namespace declarations are not among the attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    pub name: QName,
    pub attributes: Vec<(QName, String)>,
    pub content: Vec<Node>,
    /// The content as XML text, exactly as it was written; `None` if the field `content` contains
    /// the content. If this field is set, `content` has no meaning.
    pub verbatim: Option<Box<Verbatim>>,
    /// Position of the element in its source text. Has the default value if the element was not
    /// parsed from a document.
    pub origin: ElementOrigin,
}

/// The prefixes that apply inside one element, with their namespaces. The empty prefix stands for
/// the default namespace. A list is enough, because most scopes have two or three bindings. Every
/// element that declares a namespace has its own scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NamespaceScope(Arc<Vec<(Arc<str>, Arc<str>)>>);

impl NamespaceScope {
    pub(super) fn namespace(&self, prefix: &str) -> Option<&Arc<str>> {
        self.0.iter().find(|(bound, _)| **bound == *prefix).map(|(_, namespace)| namespace)
    }

    /// Binds a prefix in this scope only. Clones of the scope do not change.
    pub(super) fn bind(&mut self, prefix: &str, namespace: Arc<str>) {
        let bindings = Arc::make_mut(&mut self.0);
        match bindings.iter_mut().find(|(bound, _)| **bound == *prefix) {
            Some(binding) => binding.1 = namespace,
            None => bindings.push((prefix.into(), namespace)),
        }
    }

    /// Returns the bound prefixes other than `xml`, without the default namespace.
    fn prefixes(&self) -> impl Iterator<Item = (&str, &str)> {
        let bindings = self.0.iter().map(|(prefix, namespace)| (&**prefix, &**namespace));
        bindings.filter(|(prefix, _)| !prefix.is_empty() && *prefix != "xml")
    }

    /// Returns the number of bound prefixes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Position of an element in its source text, with the namespace bindings that apply inside the
/// element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElementOrigin {
    /// Byte range of the start tag.
    pub tag: Range<usize>,
    /// Byte offset of the end of the element.
    pub end: usize,
    /// Namespace bindings inside the element; `None` if the element was not parsed from a document.
    pub(super) scope: Option<NamespaceScope>,
}

/// A part of the content of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Text with its references decoded and its white space kept.
    Text(String),
    Element(Element),
}

/// The content of an element as XML text, with the namespace bindings that the text depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim {
    /// The content as well-formed XML text.
    pub xml: String,
    /// The name of the element as it was written, with its prefix; `None` for a name without a
    /// prefix. `bindings` contains the prefix, if it is bound.
    pub written: Option<String>,
    /// Pairs of prefix and namespace. Each prefix occurs once; the empty prefix stands for the
    /// default namespace.
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

    /// Creates an element whose name has no namespace.
    pub fn local(local: &str) -> Self {
        Self::new(QName::new(None, local))
    }

    /// Releases the spare capacity of the lists in the element and in its descendants. A parsed
    /// element has room for several attributes and children, but most elements have fewer.
    pub fn shrink_to_fit(&mut self) {
        self.attributes.shrink_to_fit();
        self.content.shrink_to_fit();
        for node in &mut self.content {
            match node {
                Node::Text(text) => text.shrink_to_fit(),
                Node::Element(child) => child.shrink_to_fit(),
            }
        }
    }

    #[must_use]
    pub fn with_attribute(mut self, local: &str, value: impl Into<String>) -> Self {
        self.attributes.push((QName::new(None, local), value.into()));
        self
    }

    /// Replaces the whole content by `text`.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.content = vec![Node::Text(text.into())];
        self
    }

    /// Appends a child element.
    #[must_use]
    pub fn with_child(mut self, child: Self) -> Self {
        self.content.push(Node::Element(child));
        self
    }

    pub fn local_name(&self) -> &str {
        &self.name.local
    }

    /// Returns the value of the attribute with the local name `local` and without a namespace;
    /// `None` if there is no such attribute.
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

    /// Returns the first child element with the local name `local`; `None` if there is no such
    /// child.
    pub fn child(&self, local: &str) -> Option<&Self> {
        self.children().find(|child| child.local_name() == local)
    }

    /// Returns all text inside the element, including the text of nested elements.
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

    /// Returns the number of bytes in all names, attributes and texts of the element.
    pub fn text_bytes(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, value)| name.local.len() + value.len());
        let content = self.content.iter().map(|node| match node {
            Node::Text(text) => text.len(),
            Node::Element(element) => element.text_bytes(),
        });
        self.name.local.len() + attributes.sum::<usize>() + content.sum::<usize>()
    }

    /// Returns the text directly inside the element, without the text of nested elements.
    pub fn own_text(&self) -> String {
        let texts = self.content.iter().filter_map(|node| match node {
            Node::Text(text) => Some(text.as_str()),
            Node::Element(_) => None,
        });
        texts.collect()
    }

    /// Returns the namespaces of the prefixes in the attribute values of the element and in the
    /// text directly inside it, such as `p` in `xsi:type="p:circle"`. Returns none if the element
    /// was not parsed from a document.
    pub(super) fn bindings_of_values(&self) -> Vec<(String, String)> {
        let Some(scope) = &self.origin.scope else { return Vec::new() };
        let used = scope.prefixes().filter(|(prefix, _)| {
            let marks = format!("{prefix}:");
            self.attributes.iter().any(|(_, value)| has_prefix(value, &marks))
                || self.content.iter().any(|node| match node {
                    Node::Text(text) => has_prefix(text, &marks),
                    Node::Element(_) => false,
                })
        });
        used.map(|(prefix, namespace)| (prefix.to_owned(), namespace.to_owned())).collect()
    }

    /// Returns the canonical XML text of the element; see [`super::write::payload`].
    pub fn to_xml(&self) -> String {
        super::write::payload(self)
    }
}

/// Whether `text` contains `marks`, a prefix with its colon, at the beginning of a name.
fn has_prefix(text: &str, marks: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    text.match_indices(marks).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(is_part)
    })
}
