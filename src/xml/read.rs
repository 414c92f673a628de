//! The only parser that turns XML text into an [`Element`].
//!
//! The parser gets only checked texts: the gate checks payloads, and libxml2 checks schemas. Still,
//! the parser returns no element for a text that is not namespace-well-formed or that exceeds a
//! limit.

use std::ops::Range;
use std::sync::LazyLock;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::element::{Element, ElementOrigin, NamespaceScope, Node};
use super::escape::{reference, unescape_attribute};
use super::shape::QName;
use super::write::XML_NAMESPACE;
use crate::limits;

impl Element {
    /// Parses the element at the beginning of `text`, after comments and an XML declaration.
    /// Ignores everything after the element. Keeps line ends as written. Returns `None` if the
    /// element is not well-formed or exceeds a limit.
    pub fn read(text: &str) -> Option<Self> {
        TreeReader::new(text).tree()
    }

    /// Parses as [`Element::read`] does. In addition, records the position of each element, and
    /// turns each line end into a line feed, as XML 1.0 requires. Returns `None` in the same cases.
    pub fn read_document(text: &str) -> Option<Self> {
        TreeReader { is_document: true, ..TreeReader::new(text) }.tree()
    }

    /// Parses only the first start tag of `text`, after comments and an XML declaration.
    /// [`ElementOrigin::end`] is then the end of that tag. Returns `None` if there is no valid
    /// start tag.
    pub fn head(text: &str) -> Option<Self> {
        let mut reader = TreeReader { is_document: true, ..TreeReader::new(text) };
        loop {
            let start = reader.position();
            match reader.events.read_event().ok()? {
                Event::Start(tag) | Event::Empty(tag) => {
                    return Some(reader.opened(&tag, start..reader.position())?.element);
                }
                Event::Decl(_) | Event::Comment(_) => {}
                Event::Text(text) if text.trim_ascii().is_empty() => {}
                _ => return None,
            }
        }
    }

    /// Resolves a name of the form `prefix:local` that a value inside this element contains.
    /// Returns `None` if the prefix is not bound.
    pub fn resolve(&self, written: &str) -> Option<QName> {
        resolve(self.origin.scope.as_ref()?, written.trim(), true)
    }
}

/// The namespace bindings that apply to the root element of every document: the prefix `xml`.
static OUTERMOST: LazyLock<NamespaceScope> = LazyLock::new(|| {
    let mut scope = NamespaceScope::default();
    scope.bind("xml", XML_NAMESPACE.into());
    scope
});

/// An element whose end tag has not been read, with the namespace bindings inside it.
struct OpenElement {
    element: Element,
    scope: NamespaceScope,
}

struct TreeReader<'a> {
    events: Reader<&'a [u8]>,
    is_document: bool,
    open: Vec<OpenElement>,
}

impl<'a> TreeReader<'a> {
    fn new(text: &'a str) -> Self {
        Self { events: Reader::from_str(text), is_document: false, open: Vec::new() }
    }

    fn tree(mut self) -> Option<Element> {
        loop {
            let start = self.position();
            let event = self.events.read_event().ok()?;
            let place = start..self.position();

            match event {
                Event::Start(tag) => {
                    let opened = self.opened(&tag, place)?;
                    self.open.push(opened);
                }
                Event::Empty(tag) => {
                    let opened = self.opened(&tag, place)?;
                    if let Some(root) = self.close(opened) {
                        return Some(root);
                    }
                }
                Event::End(_) => {
                    let opened = self.open.pop()?;
                    if let Some(root) = self.close(opened) {
                        return Some(root);
                    }
                }
                Event::Text(piece) if self.is_document => self.add_text(&piece.xml10_content()),
                Event::Text(piece) => self.add_text(&piece.into_inner()),
                Event::CData(piece) if self.is_document => self.add_text(&piece.xml10_content()),
                Event::CData(piece) => self.add_text(&piece.into_inner()),
                Event::GeneralRef(name) => {
                    let (c, _) = reference(&format!("&{};", &*name))?;
                    self.add_text(c.encode_utf8(&mut [0; 4]));
                }
                Event::Eof => return None,
                _ => {}
            }
        }
    }

    fn position(&self) -> usize {
        usize::try_from(self.events.buffer_position()).unwrap_or(usize::MAX)
    }

    fn opened(&self, tag: &BytesStart<'_>, place: Range<usize>) -> Option<OpenElement> {
        if self.open.len() >= limits::XML_TREE_DEPTH_MAX {
            return None;
        }

        let mut scope = self.open.last().map_or(&*OUTERMOST, |open| &open.scope).clone();
        let mut written = Vec::new();

        for (number, attribute) in tag.attributes().enumerate() {
            let attribute = attribute.ok()?;
            if number >= limits::XML_ATTRIBUTES_MAX {
                return None;
            }
            let name = attribute.key.into_inner();
            let value = unescape_attribute(&attribute.value)?;
            match name.strip_prefix("xmlns") {
                Some("") => scope.bind("", value.into()),
                Some(rest) if rest.starts_with(':') => {
                    let prefix = rest.strip_prefix(':').filter(|prefix| !prefix.is_empty())?;
                    scope.bind(prefix, value.into());
                }
                _ => written.push((name, value.into_owned())),
            }
        }

        if scope.len() > OUTERMOST.len() + limits::XML_NAMESPACES_MAX {
            return None;
        }

        let mut element = Element::new(resolve(&scope, tag.name().into_inner(), true)?);
        for (name, value) in written {
            element.attributes.push((resolve(&scope, name, false)?, value));
        }

        if self.is_document {
            let scope = Some(scope.clone());
            element.origin = ElementOrigin { end: place.end, tag: place, scope };
        }

        Some(OpenElement { element, scope })
    }

    /// Adds a finished element to its parent. Returns the element if it is the root.
    fn close(&mut self, OpenElement { mut element, .. }: OpenElement) -> Option<Element> {
        if self.is_document {
            element.origin.end = self.position();
        }
        let Some(parent) = self.open.last_mut() else { return Some(element) };
        parent.element.content.push(Node::Element(element));
        None
    }

    fn add_text(&mut self, text: &str) {
        let Some(OpenElement { element, .. }) = self.open.last_mut() else { return };
        match element.content.last_mut() {
            Some(Node::Text(before)) => before.push_str(text),
            _ => element.content.push(Node::Text(text.to_owned())),
        }
    }
}

/// Resolves `prefix:local`; `None` if the prefix is not bound. The default namespace applies only
/// if `is_element` is set.
fn resolve(scope: &NamespaceScope, written: &str, is_element: bool) -> Option<QName> {
    let (namespace, local) = match written.split_once(':') {
        Some(("", _)) => return None,
        Some((prefix, local)) => (Some(scope.namespace(prefix)?), local),
        None => (scope.namespace("").filter(|_| is_element), written),
    };

    let namespace = namespace.filter(|uri| !uri.is_empty()).cloned();
    Some(QName { namespace, local: local.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_once_and_what_follows_the_root_is_not_read() {
        let read = Element::read("<?xml version='1.0'?><!-- x --><p:a xmlns:p='urn:n' n='&lt;1'>x &amp;amp; <b><![CDATA[<c>]]>&#33;</b></p:a> tail <")
            .expect("it is one element");
        assert_eq!(read.name, QName::new(Some("urn:n"), "a"));
        assert_eq!(read.attributes, [(QName::new(None, "n"), "<1".to_owned())]);
        assert_eq!(read.text(), "x &amp; <c>!");
        assert_eq!(read.own_text(), "x &amp; ");
        assert_eq!(read.child("b").map(Element::text).as_deref(), Some("<c>!"));
    }

    #[test]
    fn a_head_is_the_start_tag_and_no_more() {
        let text = "<!-- <b n='0'/> --><p:a xmlns:p='urn:n' n='&lt;1'><b>text</b></p:a>";
        let head = Element::head(text).expect("it has a head");
        let whole = Element::read(text).expect("it is one element");
        assert_eq!(text.get(head.origin.tag.clone()), Some("<p:a xmlns:p='urn:n' n='&lt;1'>"));
        assert_eq!((head.name, head.attributes), (whole.name, whole.attributes));
        assert_eq!(head.content, []);
        for text in ["text <a/>", "<?pi?><a/>", "<!DOCTYPE a><a/>", "</a>", ""] {
            assert_eq!(Element::head(text), None, "{text}");
        }
    }

    #[test]
    fn names_have_the_namespaces_that_are_bound_where_they_stand() {
        let text = "<a xmlns='urn:a' xmlns:p='urn:p' p:x='1' y='2'><p:b/><c xmlns=''/><d/></a>";
        let read = Element::read(text).expect("it is one element");
        let names = read.children().map(|child| (child.name.namespace(), child.local_name()));
        assert_eq!(names.collect::<Vec<_>>(), [("urn:p", "b"), ("", "c"), ("urn:a", "d")]);
        let names = read.attributes.iter().map(|(name, _)| (name.namespace(), &*name.local));
        assert_eq!(names.collect::<Vec<_>>(), [("urn:p", "x"), ("", "y")]);
        assert_eq!(read.attribute("x"), None);
    }

    #[test]
    fn line_ends_in_text_are_kept_but_for_a_document() {
        let text = "<a b='1\r\n2'>1\r\n2\r3<![CDATA[\r\n]]>&#13;</a>";
        let kept = Element::read(text).expect("it is one element");
        let document = Element::read_document(text).expect("it is one element");
        assert_eq!(kept.text(), "1\r\n2\r3\r\n\r");
        assert_eq!(document.text(), "1\n2\n3\n\r");
        assert_eq!(kept.attribute("b"), Some("1 2"));
    }

    #[test]
    fn an_element_of_a_document_knows_its_place_and_its_prefixes() {
        let text = "<!-- x --><a xmlns:p='urn:p'>text<b c='p:d'>x</b></a> ";
        let read = Element::read_document(text).expect("it is one element");
        let child = read.child("b").expect("it has a child");
        assert_eq!(text.get(child.origin.tag.clone()), Some("<b c='p:d'>"));
        assert_eq!(text.get(child.origin.tag.start..child.origin.end), Some("<b c='p:d'>x</b>"));
        assert_eq!(read.origin.end, text.trim_end().len());
        assert_eq!(child.resolve(" p:d "), Some(QName::new(Some("urn:p"), "d")));
        assert_eq!(child.resolve("d"), Some(QName::new(None, "d")));
        assert_eq!(child.resolve("q:d"), None);
    }

    #[test]
    fn what_is_not_well_formed_is_no_element() {
        for text in [
            "<a><b></a>",
            "<a>text",
            "<a b='1' b='2'/>",
            "<a b=1/>",
            "<p:a/>",
            "<a p:b='1'/>",
            "<a>&nbsp;</a>",
            "<a b='&nbsp;'/>",
            "<a>&#0;</a>",
            "text",
            "",
        ] {
            assert_eq!(Element::read(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_beyond_the_limits_is_no_element() {
        let nested = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
        assert!(Element::read(&nested(limits::XML_TREE_DEPTH_MAX)).is_some());
        assert!(Element::read(&nested(limits::XML_TREE_DEPTH_MAX + 1)).is_none());
        let wide = |count: usize, name: &str| {
            let attributes: String = (0..count).map(|n| format!(" {name}{n}='u'")).collect();
            format!("<a{attributes}/>")
        };

        assert!(Element::read(&wide(limits::XML_ATTRIBUTES_MAX, "n")).is_some());
        assert!(Element::read(&wide(limits::XML_ATTRIBUTES_MAX + 1, "n")).is_none());
        assert!(Element::read(&wide(limits::XML_NAMESPACES_MAX, "xmlns:n")).is_some());
        assert!(Element::read(&wide(limits::XML_NAMESPACES_MAX + 1, "xmlns:n")).is_none());
    }

    #[test]
    fn an_empty_prefix_is_no_prefix() {
        assert!(Element::read("<:a xmlns='urn:a'/>").is_none());
        assert!(Element::read("<a xmlns:='urn:a'/>").is_none());
        assert!(
            Element::read("<a xmlns::b='urn:a'/>").is_some_and(|a| a.name.namespace().is_empty())
        );
    }
}
