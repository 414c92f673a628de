//! Tests that a parser reads back exactly the element that was written.

use std::sync::Arc;

use organism::xml::element::{Element, Node};
use organism::xml::escape::{escape_attribute, escape_text};
use organism::xml::extract::{ActionGrammar, Extractor};
use organism::xml::shape::{ElementShape, QName, ShapeArena, ShapeContent, ShapeId};
use organism::xml::write::payload;
use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;

use super::chunks::Numbers;

const NAMESPACES: [Option<&str>; 3] = [None, Some("urn:a"), Some("urn:b?x=1&y=\"2\"")];
const PIECES: [&str; 20] = [
    "",
    "a",
    " ",
    "\n",
    "\t",
    "\r",
    "\r\n",
    "<",
    ">",
    "&",
    "\"",
    "'",
    "]]>",
    "<![CDATA[",
    "&amp;",
    "<!--",
    "é",
    "日本",
    "😀",
    "</x>",
];

fn text(numbers: &mut Numbers) -> String {
    (0..numbers.below(6)).map(|_| PIECES[numbers.below(PIECES.len())]).collect()
}

fn name(numbers: &mut Numbers) -> QName {
    let local = ["x", "item", "a-b", "ü_1"][numbers.below(4)];
    QName::new(NAMESPACES[numbers.below(3)], local)
}

fn element(numbers: &mut Numbers, depth: usize) -> Element {
    let mut element = Element::new(name(numbers));
    for local in ["id", "class", "z"].into_iter().take(numbers.below(4)) {
        let namespace = NAMESPACES[numbers.below(3)];
        element.attributes.push((QName::new(namespace, local), text(numbers)));
    }
    let children = if depth == 0 { 0 } else { numbers.below(4) };
    element.content = match children {
        0 => vec![Node::Text(text(numbers))],
        _ => (0..children).map(|_| Node::Element(self::element(numbers, depth - 1))).collect(),
    };
    element
}

/// Parses XML with an independent parser.
fn parse(xml: &str) -> Element {
    let mut reader = NsReader::from_str(xml);
    let mut open: Vec<Element> = Vec::new();
    loop {
        let event = reader.read_event().unwrap();
        match event {
            Event::Start(start) | Event::Empty(start) if start.is_empty() => unreachable!("{xml}"),
            Event::Start(ref start) | Event::Empty(ref start) => {
                let resolve = |(result, local): (ResolveResult<'_>, &str)| {
                    let namespace = match result {
                        ResolveResult::Bound(ns) => Some(unescaped(ns.into_inner())),
                        _ => None,
                    };
                    QName::new(namespace.as_deref(), local)
                };
                let (result, local) = reader.resolver().resolve_element(start.name());
                let mut element = Element::new(resolve((result, local.into_inner())));
                for attribute in start.attributes().map(Result::unwrap) {
                    if attribute.key.as_namespace_binding().is_some() {
                        continue;
                    }
                    let (result, local) = reader.resolver().resolve_attribute(attribute.key);
                    let name = resolve((result, local.into_inner()));
                    element.attributes.push((name, unescaped(&attribute.value)));
                }
                element = element.with_text("");
                if matches!(event, Event::Empty(_)) {
                    close(&mut open, element.clone());
                    if open.is_empty() {
                        return element;
                    }
                } else {
                    open.push(element);
                }
            }
            Event::Text(characters) => add(&mut open, &characters),
            Event::GeneralRef(name) => {
                let reference = format!("&{};", &*name);
                add(&mut open, &unescaped(&reference));
            }
            Event::End(_) => {
                let element = open.pop().unwrap();
                if open.is_empty() {
                    return element;
                }
                close(&mut open, element);
            }
            other => panic!("{other:?} in {xml}"),
        }
    }
}

fn unescaped(raw: &str) -> String {
    quick_xml::escape::unescape(raw).unwrap().into_owned()
}

fn close(open: &mut [Element], child: Element) {
    let Some(parent) = open.last_mut() else { return };
    parent.content.retain(|node| matches!(node, Node::Element(_)));
    parent.content.push(Node::Element(child));
}

fn add(open: &mut [Element], characters: &str) {
    let Some(element) = open.last_mut() else { return };
    if let [Node::Text(text)] = element.content.as_mut_slice() {
        text.push_str(characters);
    }
}

/// Adds the shape that permits exactly the content of this element. Returns the id of the shape.
fn shape_of(element: &Element, shapes: &mut ShapeArena) -> ShapeId {
    let content = match element.content.as_slice() {
        [Node::Text(_)] => ShapeContent::Text,
        _ => ShapeContent::Elements(
            element.children().map(|child| shape_of(child, shapes)).collect(),
        ),
    };
    shapes.add(ElementShape { name: element.name.clone(), attributes: Vec::new(), content })
}

/// Whether the children of each element have different names. Children with the same name have the
/// same shape in a schema, so a written element with such children may be read differently.
fn is_readable(element: &Element) -> bool {
    let mut names: Vec<&QName> = element.children().map(|child| &child.name).collect();
    names.sort();
    names.dedup();
    names.len() == element.children().count() && element.children().all(is_readable)
}

// T7 T8
#[test]
fn another_parser_reads_back_the_written_values() {
    let mut numbers = Numbers::new("write");
    for _ in 0..5_000 {
        let written = element(&mut numbers, 3);
        let xml = payload(&written);
        assert_eq!(parse(&xml), written, "{xml}");
    }
}

// T7, R4 R5 R15 R16
#[test]
fn written_actions_are_extracted_unchanged() {
    let mut numbers = Numbers::new("extract");
    let mut read = 0;
    while read < 3_000 {
        let written = element(&mut numbers, 3);
        if !is_readable(&written) {
            continue;
        }
        read += 1;
        let mut shapes = ShapeArena::default();
        let root = shape_of(&written, &mut shapes);
        shapes.roots.push(root);
        let grammar = ActionGrammar::new(shapes, Vec::new(), Vec::new(), Default::default());
        let xml = payload(&written);
        let mut extractor = Extractor::new(Arc::new(grammar));
        extractor.push(xml.as_bytes());
        let extraction = extractor.finish();
        let actions: Vec<&Element> = extraction.actions().map(|action| &action.element).collect();
        let defects: Vec<_> = extraction.defects().map(ToString::to_string).collect();
        assert!(actions == [&written], "{xml}\n{defects:?}");
    }
}

#[test]
fn escaped_text_keeps_every_legal_character_and_shows_the_others() {
    assert_eq!(escape_text("a\r\n\t<&>\"'"), "a&#13;\n\t&lt;&amp;&gt;\"'");
    assert_eq!(escape_attribute("a\r\n\t<&>\"'"), "a&#13;&#10;&#9;&lt;&amp;&gt;&quot;'");
    assert_eq!(escape_text("a\u{0}\u{1b}\u{fffe}b"), "a\u{fffd}\u{fffd}\u{fffd}b");
    let wide = "\u{f000}\u{feff}！\u{fdd0}\u{fffd}\u{7f}\u{85}é🦀\n";
    assert_eq!(escape_text(wide), wide, "they only begin like those that XML cannot hold");
    assert_eq!(escape_text(&format!("{wide}\u{ffff}{wide}<")), format!("{wide}\u{fffd}{wide}&lt;"));
}

#[test]
fn elements_are_written_by_hand_in_one_expression() {
    let result = Element::local("tool_result")
        .with_attribute("tool_name", "search & find")
        .with_child(Element::local("hit").with_attribute("line", "3").with_text("a < b"));
    assert_eq!(
        result.to_xml(),
        "<tool_result tool_name=\"search &amp; find\"><hit line=\"3\">a &lt; b</hit>\
         </tool_result>"
    );
}
