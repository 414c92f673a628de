//! Warnings about valid but risky schemas, such as a wildcard that switches validation off.
//!
//! libxml2 deviates from XSD in two known cases. It ignores `fixed` on a reference to an attribute,
//! and so accepts too much: this module warns about such a schema. It also refuses white space
//! around a number in an element with attributes: this needs no warning, because a valid payload
//! fails visibly.

use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::xsd::SchemaElement;
use crate::xml::element::Element;

/// Returns the warnings for all documents.
pub fn check(sources: &[SchemaDocument]) -> Vec<SchemaProblem> {
    let mut warnings = Vec::new();
    for source in sources {
        walk(source, &source.root, &mut warnings);
    }
    warnings
}

fn walk(source: &SchemaDocument, element: &Element, warnings: &mut Vec<SchemaProblem>) {
    if let Some((code, message)) = doubt(element) {
        warnings.push(source.problem(element, code, message));
    }
    for child in element.children() {
        walk(source, child, warnings);
    }
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
