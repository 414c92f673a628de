//! Decides whether a schema is so simple that libxml2 surely compiles it quickly. For most of
//! these schemas, starting a process takes much longer than the compilation.
//!
//! Only some parts of XML Schema are simple. Among those that are not: patterns, counted
//! repetitions, repeated groups inside one another, named groups, and further documents. libxml2
//! builds an automaton of each content model, and these parts can make the automaton large.

use super::source::SchemaDocument;
use super::xsd::{SchemaElement, is_xsd};
use crate::limits;
use crate::xml::element::Element;

/// Local names of the elements of XML Schema that a simple schema may contain.
const SIMPLE_ELEMENTS: &[&str] = &[
    "annotation",
    "appinfo",
    "attribute",
    "choice",
    "complexType",
    "documentation",
    "element",
    "enumeration",
    "extension",
    "fractionDigits",
    "length",
    "list",
    "maxExclusive",
    "maxInclusive",
    "maxLength",
    "minExclusive",
    "minInclusive",
    "minLength",
    "restriction",
    "schema",
    "sequence",
    "simpleContent",
    "simpleType",
    "totalDigits",
    "whiteSpace",
];

/// Whether libxml2 compiles the schema in a short time and with little memory. Returns false if
/// this is not certain.
pub fn is_small(sources: &[SchemaDocument]) -> bool {
    match sources {
        [source] => {
            source.text.len() <= limits::SMALL_SCHEMA_BYTES_MAX && is_simple(&source.root, 0)
        }
        _ => false,
    }
}

/// Whether an element and its content are simple. `repeated` is the number of repeated or optional
/// groups around the element in its content model.
fn is_simple(element: &Element, repeated: usize) -> bool {
    if !is_xsd(&element.name) {
        // An annotation may contain any element, and libxml2 compiles none of them.
        return true;
    }

    let name = &*element.name.local;
    let repeated = match name {
        // A type within a type has a content model of its own.
        "complexType" => 0,
        "sequence" | "choice" if is_repeated(element) => repeated + 1,
        _ => repeated,
    };
    let is_type = name == "complexType";

    SIMPLE_ELEMENTS.contains(&name)
        && element.attribute("substitutionGroup").is_none()
        && is_uncounted(element)
        && repeated <= 1
        && (!is_type || element_declarations(element) <= limits::SMALL_SCHEMA_PARTICLES_MAX)
        && element.children().all(|child| is_simple(child, repeated))
}

/// Returns the number of elements that are declared or referred to within `element`. No content
/// model within `element` has more particles.
fn element_declarations(element: &Element) -> usize {
    let is_declaration = |child: &Element| child.is("element");
    element.children().map(|c| usize::from(is_declaration(c)) + element_declarations(c)).sum()
}

/// Whether `minOccurs` is 0 or 1, and `maxOccurs` is 0, 1 or unbounded. libxml2 then has no
/// occurrences to count.
fn is_uncounted(element: &Element) -> bool {
    let is_one_of = |name: &str, permitted: &[&str]| {
        element.attribute(name).is_none_or(|value| permitted.contains(&value.trim()))
    };
    is_one_of("minOccurs", &["0", "1"]) && is_one_of("maxOccurs", &["0", "1", "unbounded"])
}

fn is_repeated(element: &Element) -> bool {
    let is_once = |name: &str| element.attribute(name).is_none_or(|value| value.trim() == "1");
    !is_once("minOccurs") || !is_once("maxOccurs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_small_with(content: &str) -> bool {
        let text = format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='a'>\
             <xs:complexType>{content}</xs:complexType></xs:element></xs:schema>"
        );
        let source = SchemaDocument::parse(text.as_bytes(), "a.xsd", None).expect("a schema");
        is_small(&[source])
    }

    /// A schema of elements, optional elements, lists and enumerations is small.
    #[test]
    fn a_schema_of_simple_parts_is_small() {
        assert!(is_small_with(
            "<xs:sequence><xs:annotation><xs:documentation><b/></xs:documentation></xs:annotation>\
             <xs:element name='b' minOccurs='0' maxOccurs='unbounded'/>\
             <xs:choice maxOccurs='unbounded'><xs:element name='c'><xs:simpleType>\
             <xs:restriction base='xs:string'><xs:enumeration value='d'/></xs:restriction>\
             </xs:simpleType></xs:element></xs:choice></xs:sequence>\
             <xs:attribute name='e' type='xs:int' use='required'/>"
        ));
    }

    /// A schema is not small if it has a part whose automaton can be large: a pattern, a counted
    /// repetition, a repeated group in a repeated group, a named group or a substitution.
    #[test]
    fn a_schema_with_a_costly_part_is_not_small() {
        let parts = [
            "<xs:sequence><xs:element name='b' maxOccurs='2'/></xs:sequence>",
            "<xs:sequence><xs:element name='b' minOccurs='2' maxOccurs='unbounded'/></xs:sequence>",
            "<xs:sequence maxOccurs='2'><xs:element name='b'/></xs:sequence>",
            "<xs:sequence minOccurs='0'><xs:choice maxOccurs='unbounded'><xs:element name='b'/>\
             </xs:choice></xs:sequence>",
            "<xs:all><xs:element name='b'/></xs:all>",
            "<xs:sequence><xs:any/></xs:sequence>",
            "<xs:sequence><xs:element name='b'><xs:simpleType><xs:restriction base='xs:string'>\
             <xs:pattern value='a*'/></xs:restriction></xs:simpleType></xs:element></xs:sequence>",
            "<xs:group ref='b'/>",
            "<xs:sequence><xs:element name='b' substitutionGroup='c'/></xs:sequence>",
            "<xs:complexContent><xs:extension base='b'/></xs:complexContent>",
        ];

        for part in parts {
            assert!(!is_small_with(part), "{part}");
        }
    }

    /// The particles of nested groups count together, because they are in one content model.
    #[test]
    fn a_content_model_of_many_particles_is_not_small() {
        let group = |particles: usize| {
            let particles = "<xs:element name='b' minOccurs='0'/>".repeat(particles);
            format!("<xs:sequence>{particles}</xs:sequence>")
        };
        let of = |particles: usize| {
            format!("<xs:sequence>{}{}</xs:sequence>", group(particles / 2), group(particles / 2))
        };

        assert!(is_small_with(&of(limits::SMALL_SCHEMA_PARTICLES_MAX)));
        assert!(!is_small_with(&of(limits::SMALL_SCHEMA_PARTICLES_MAX + 2)));
    }

    /// A schema of several documents, or a long one, is not small.
    #[test]
    fn a_long_schema_is_not_small() {
        let schema = |documentation: &str| {
            let text = format!(
                "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:annotation>\
                 <xs:documentation>{documentation}</xs:documentation></xs:annotation></xs:schema>"
            );
            SchemaDocument::parse(text.as_bytes(), "a.xsd", None).expect("a schema")
        };

        assert!(is_small(&[schema("")]));
        assert!(!is_small(&[schema(""), schema("")]));
        assert!(!is_small(&[schema(&"a".repeat(limits::SMALL_SCHEMA_BYTES_MAX))]));
    }
}
