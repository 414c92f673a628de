//! Warnings about valid but risky schemas, such as a wildcard that switches validation off.
//!
//! libxml2 deviates from XSD in four known cases, and this module warns about each. libxml2 ignores
//! `fixed` on a reference to an attribute. It ignores child elements where an element of mixed
//! content is `fixed`. It does not check that a restriction permits only what its base permits. And
//! it refuses white space around some numbers and dates, which XSD permits: the warning stands only
//! at elements with attributes, because almost every schema has such values elsewhere.

use std::collections::{HashMap, HashSet};

use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::xsd::SchemaElement;
use crate::xml::element::Element;

/// Returns the warnings for all documents.
pub fn check(sources: &[SchemaDocument]) -> Vec<SchemaProblem> {
    let definitions = Definitions::of(sources);
    let mut warnings = Vec::new();
    for source in sources {
        walk(&definitions, source, &source.root, &mut warnings);
    }
    warnings
}

fn walk<'a>(
    definitions: &Definitions<'a>,
    source: &'a SchemaDocument,
    element: &'a Element,
    warnings: &mut Vec<SchemaProblem>,
) {
    let doubt = doubt(element).or_else(|| doubt_about_types(definitions, element));
    if let Some((code, message)) = doubt {
        warnings.push(source.problem(element, code, message));
    }
    for child in element.children() {
        walk(definitions, source, child, warnings);
    }
}

/// A deviation of libxml2 that concerns the type of an element.
fn doubt_about_types<'a>(
    definitions: &Definitions<'a>,
    element: &'a Element,
) -> Option<(&'static str, &'static str)> {
    let is_fixed = element.is("element") && element.attribute("fixed").is_some();
    if is_fixed && definitions.is_mixed_element(element, &mut Visited::default()) {
        return Some((
            "schema-fixed-mixed",
            "`fixed` on mixed content does not refuse child elements; use a type without children",
        ));
    }

    if restricts_groups(element) {
        return Some((
            "schema-restriction-unchecked",
            "it is not checked that this restriction permits only what its base permits; compare \
             them yourself",
        ));
    }

    let is_simple = element.is("simpleContent");
    let extension = element.children().find(|child| is_simple && child.is("extension"));
    let base = extension.and_then(|extension| extension.attribute("base"));
    if base.is_some_and(|base| definitions.refuses_white_space(base, &mut Visited::default())) {
        return Some((
            "schema-white-space",
            "white space around this value is refused although XSD permits it; write the value alone",
        ));
    }

    None
}

/// Whether an element restricts the content model of a type, or of the group that it redefines.
fn restricts_groups(element: &Element) -> bool {
    if element.is("redefine") {
        let groups = element.children().filter(|child| child.is("group"));
        return groups.into_iter().any(|group| !refers_to(group, group.attribute("name")));
    }

    let is_complex = element.is("complexContent");
    let restriction = element.children().find(|child| is_complex && child.is("restriction"));
    restriction.is_some_and(|restriction| {
        let base = restriction.attribute("base").unwrap_or_default();
        has_group(restriction) && local(base) != "anyType"
    })
}

fn has_group(element: &Element) -> bool {
    let groups = ["sequence", "choice", "all", "group"];
    element.children().any(|child| groups.iter().any(|group| child.is(group)))
}

/// Whether a group contains a reference to a group of this name.
fn refers_to(element: &Element, name: Option<&str>) -> bool {
    element.children().any(|child| {
        let is_reference = child.is("group") && child.attribute("ref").map(local) == name;
        is_reference || refers_to(child, name)
    })
}

/// Built-in types around whose values libxml2 refuses white space.
const WITHOUT_WHITE_SPACE: [&str; 17] = [
    "int",
    "long",
    "short",
    "byte",
    "unsignedInt",
    "unsignedLong",
    "unsignedShort",
    "unsignedByte",
    "date",
    "dateTime",
    "time",
    "duration",
    "gYear",
    "gYearMonth",
    "gMonthDay",
    "gMonth",
    "gDay",
];

/// Local names that a search has visited, so that it follows each of them once.
#[derive(Default)]
struct Visited<'a> {
    types: HashSet<&'a str>,
    elements: HashSet<&'a str>,
}

/// The global definitions of all documents, by local name.
struct Definitions<'a> {
    complex: HashMap<&'a str, Vec<&'a Element>>,
    simple: HashMap<&'a str, Vec<&'a Element>>,
    elements: HashMap<&'a str, Vec<&'a Element>>,
}

impl<'a> Definitions<'a> {
    fn of(sources: &'a [SchemaDocument]) -> Self {
        let named = |kind: &'static str| {
            let mut found: HashMap<&str, Vec<&Element>> = HashMap::new();
            for source in sources {
                let redefined = source.root.all("redefine").flat_map(move |one| one.all(kind));
                for definition in source.root.all(kind).chain(redefined) {
                    let name = definition.attribute("name").unwrap_or_default();
                    found.entry(name.trim()).or_default().push(definition);
                }
            }
            found
        };
        Self {
            complex: named("complexType"),
            simple: named("simpleType"),
            elements: named("element"),
        }
    }

    /// Whether an element may contain text and child elements.
    fn is_mixed_element(&self, element: &'a Element, visited: &mut Visited<'a>) -> bool {
        if element.children().any(|child| child.is("simpleType")) {
            return false;
        }

        if let Some(inline) = element.children().find(|child| child.is("complexType")) {
            return self.is_mixed(inline, visited);
        }

        match (element.attribute("type"), element.attribute("substitutionGroup")) {
            (Some(name), _) => self.is_mixed_name(name, visited),
            // The element has the type of the head of its group.
            (None, Some(head)) => {
                let is_new = visited.elements.insert(local(head));
                let heads = self.elements.get(local(head)).filter(|_| is_new);
                let mut heads = heads.into_iter().flatten();
                heads.any(|head| self.is_mixed_element(head, visited))
            }
            // An element without a type may contain anything.
            (None, None) => true,
        }
    }

    fn is_mixed_name(&self, name: &'a str, visited: &mut Visited<'a>) -> bool {
        let is_new = visited.types.insert(local(name));
        let mut named = self.complex.get(local(name)).filter(|_| is_new).into_iter().flatten();
        local(name) == "anyType" || named.any(|kind| self.is_mixed(kind, visited))
    }

    /// Whether a complex type has mixed content. An extension without content has that of its base.
    fn is_mixed(&self, kind: &'a Element, visited: &mut Visited<'a>) -> bool {
        let is_true = |element: &Element| {
            matches!(element.attribute("mixed").map(str::trim), Some("true" | "1"))
        };
        let content = kind.children().find(|child| child.is("complexContent"));
        if is_true(kind) || content.is_some_and(is_true) {
            return true;
        }

        let extension =
            content.and_then(|content| content.children().find(|child| child.is("extension")));
        let extension = extension.filter(|extension| !has_group(extension));
        let base = extension.and_then(|extension| extension.attribute("base"));
        base.is_some_and(|base| self.is_mixed_name(base, visited))
    }

    /// Whether libxml2 refuses white space around values of a simple type.
    fn refuses_white_space(&self, name: &'a str, visited: &mut Visited<'a>) -> bool {
        if WITHOUT_WHITE_SPACE.contains(&local(name)) {
            return true;
        }

        let is_new = visited.types.insert(local(name));
        let mut named = self.simple.get(local(name)).filter(|_| is_new).into_iter().flatten();
        named.any(|kind| self.restricts_such(kind, visited))
    }

    fn restricts_such(&self, kind: &'a Element, visited: &mut Visited<'a>) -> bool {
        let Some(restriction) = kind.children().find(|child| child.is("restriction")) else {
            return false;
        };
        match restriction.attribute("base") {
            Some(base) => self.refuses_white_space(base, visited),
            None => {
                let mut inline = restriction.children().filter(|child| child.is("simpleType"));
                inline.any(|kind| self.restricts_such(kind, visited))
            }
        }
    }
}

/// A name without its prefix.
fn local(name: &str) -> &str {
    name.trim().rsplit(':').next().unwrap_or_default()
}

fn doubt(element: &Element) -> Option<(&'static str, &'static str)> {
    let skips = element.attribute("processContents").map(str::trim) == Some("skip");
    if (element.is("any") || element.is("anyAttribute")) && skips {
        return Some((
            "schema-skip",
            "`processContents=\"skip\"` switches validation off here; use `strict` or `lax`",
        ));
    }

    let referred = element.attribute("ref").is_some() && element.attribute("fixed").is_some();
    if element.is("attribute") && referred {
        return Some((
            "schema-fixed-ref",
            "`fixed` on a reference is not enforced; put it on the attribute's declaration alone",
        ));
    }

    None
}
