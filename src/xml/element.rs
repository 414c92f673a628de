//! An element as a value: what was read from model text, and what is written by hand.

use super::shape::QName;

/// One element with its attributes and content, in the order of the text. Namespace
/// declarations are no attributes: names carry their namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    pub name: QName,
    pub attributes: Vec<(QName, String)>,
    pub content: Value,
}

/// What an element holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Characters, decoded; nothing trimmed.
    Text(String),
    Elements(Vec<Element>),
    /// Well-formed XML, kept as it was written.
    Verbatim(Box<Verbatim>),
}

/// The inside of an element as XML text, with the namespace bindings it was written under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verbatim {
    pub xml: String,
    /// The element's name as written, when it had a prefix that is among the bindings.
    pub written: Option<String>,
    /// Prefix and namespace, one each; the empty prefix is the default namespace.
    pub bindings: Vec<(String, String)>,
}

impl Element {
    /// An element with no content yet.
    pub fn new(name: QName) -> Self {
        Self { name, attributes: Vec::new(), content: Value::Elements(Vec::new()) }
    }

    /// An element without a namespace.
    pub fn local(local: &str) -> Self {
        Self::new(QName::new(None, local))
    }

    #[must_use]
    pub fn attribute(mut self, local: &str, value: impl Into<String>) -> Self {
        self.attributes.push((QName::new(None, local), value.into()));
        self
    }

    /// Makes `text` the whole content.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.content = Value::Text(text.into());
        self
    }

    /// Adds a child; what was there and was no child is replaced.
    #[must_use]
    pub fn child(mut self, child: Self) -> Self {
        match &mut self.content {
            Value::Elements(children) => children.push(child),
            other => *other = Value::Elements(vec![child]),
        }
        self
    }

    /// Makes `xml`, which must be well-formed and bind its own prefixes, the whole content.
    #[must_use]
    pub fn verbatim(mut self, xml: impl Into<String>) -> Self {
        let verbatim = Verbatim { xml: xml.into(), ..Verbatim::default() };
        self.content = Value::Verbatim(Box::new(verbatim));
        self
    }

    /// The first child with this local name.
    pub fn find(&self, local: &str) -> Option<&Self> {
        match &self.content {
            Value::Elements(children) => children.iter().find(|c| &*c.name.local == local),
            _ => None,
        }
    }

    pub fn get_attribute(&self, local: &str) -> Option<&str> {
        let named =
            |(name, _): &&(QName, String)| name.namespace.is_none() && &*name.local == local;
        self.attributes.iter().find(named).map(|(_, value)| value.as_str())
    }

    /// The canonical XML text; see [`super::write::payload`].
    pub fn to_xml(&self) -> String {
        super::write::payload(self)
    }
}
