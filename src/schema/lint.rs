//! Warnings about valid but risky schemas, such as a wildcard that switches validation off.
//!
//! libxml2 deviates from XSD in four known cases, and this module warns about each. libxml2 ignores
//! `fixed` on a reference to an attribute. It ignores child elements where an element of mixed
//! content is `fixed`. It does not check that a restriction permits only what its base permits. And
//! it refuses white space around a number or date in an element with attributes, which XSD permits.

use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::xsd::SchemaElement;
use crate::xml::element::Element;

/// Returns the warnings for all documents.
pub fn check(sources: &[SchemaDocument]) -> Vec<SchemaProblem> {
    let mut warnings = Vec::new();
    for source in sources {
        walk(sources, source, &source.root, &mut warnings);
    }
    warnings
}

fn walk(
    sources: &[SchemaDocument],
    source: &SchemaDocument,
    element: &Element,
    warnings: &mut Vec<SchemaProblem>,
) {
    let doubt = doubt(element).or_else(|| doubt_about_types(sources, element));
    if let Some((code, message)) = doubt {
        warnings.push(source.problem(element, code, message));
    }
    for child in element.children() {
        walk(sources, source, child, warnings);
    }
}

/// A deviation of libxml2 that concerns the type of an element.
fn doubt_about_types(
    sources: &[SchemaDocument],
    element: &Element,
) -> Option<(&'static str, &'static str)> {
    if element.is("element") && element.attribute("fixed").is_some() && is_mixed(sources, element) {
        return Some((
            "schema-fixed-mixed",
            "`fixed` on mixed content does not refuse child elements; use a type without children",
        ));
    }

    let is_complex = element.is("complexContent");
    let restriction = element.children().find(|child| is_complex && child.is("restriction"));
    let restricts_group = restriction.is_some_and(|restriction| {
        let base = restriction.attribute("base").unwrap_or_default();
        let has_group = restriction.children().any(|child| {
            ["sequence", "choice", "all", "group"].iter().any(|group| child.is(group))
        });
        has_group && local(base) != "anyType"
    });
    if restricts_group {
        return Some((
            "schema-restriction-unchecked",
            "it is not checked that this restriction permits only what its base permits; compare \
             them yourself",
        ));
    }

    let extension =
        element.children().find(|child| element.is("simpleContent") && child.is("extension"));
    let base = extension.and_then(|extension| extension.attribute("base"));
    if base.is_some_and(|base| COLLAPSED.contains(&local(base))) {
        return Some((
            "schema-white-space",
            "white space around this value is refused although XSD permits it; write the value alone",
        ));
    }

    None
}

/// Built-in types whose values may have white space around them.
const COLLAPSED: [&str; 20] = [
    "boolean",
    "decimal",
    "float",
    "double",
    "integer",
    "int",
    "long",
    "short",
    "byte",
    "positiveInteger",
    "nonNegativeInteger",
    "negativeInteger",
    "nonPositiveInteger",
    "unsignedInt",
    "unsignedLong",
    "unsignedShort",
    "date",
    "dateTime",
    "time",
    "duration",
];

/// Whether the type of an element is a complex type with mixed content.
fn is_mixed(sources: &[SchemaDocument], element: &Element) -> bool {
    let is_true = |kind: &Element| matches!(kind.attribute("mixed"), Some("true" | "1"));
    let mut inline = element.children().filter(|child| child.is("complexType"));
    let named = element.attribute("type").map(local);
    let mut all = sources.iter().flat_map(|source| source.root.all("complexType"));
    inline.any(is_true)
        || all.any(|kind| named.is_some() && kind.attribute("name") == named && is_true(kind))
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
            "`fixed` on a reference is not enforced; put it on the attribute's declaration",
        ));
    }

    None
}
