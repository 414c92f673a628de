//! Warnings about valid but risky schemas, such as a wildcard that switches validation off.
//!
//! libxml2 deviates from XSD in four known cases, and this module warns about each:
//!
//! - libxml2 ignores `fixed` on a reference to an attribute.
//! - libxml2 accepts child elements in an element with mixed content and a `fixed` value.
//! - libxml2 does not check that a restriction permits only what its base permits.
//! - libxml2 refuses white space around the values of some number and date types, although XSD
//!   permits it. Almost every schema has such types. So there is a warning only where a value of
//!   such a type is the text of an element with attributes.

use std::collections::{HashMap, HashSet};

use super::load::SchemaBundle;
use super::read::readings;
use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::xsd::{SchemaElement, XSD, is_xsd};
use crate::xml::element::Element;
use crate::xml::shape::QName;

/// Returns the warnings for all documents.
pub fn check(bundle: &SchemaBundle) -> Vec<SchemaProblem> {
    let readings = readings(bundle);
    let mut definitions = Definitions::default();
    for (index, namespace) in &readings {
        if let Some(source) = bundle.sources.get(*index) {
            definitions.add(SchemaComponent::root(source, namespace));
        }
    }

    let mut warnings = Vec::new();
    // A document without a namespace is read once for each namespace, and warned of once.
    let mut reported = HashSet::new();
    for (index, namespace) in &readings {
        let Some(source) = bundle.sources.get(*index) else { continue };
        walk(SchemaComponent::root(source, namespace), &mut |component| {
            let element = component.element;
            let doubt = doubt(element).or_else(|| doubt_about_types(&definitions, component));
            if let Some((code, message)) = doubt
                && reported.insert((*index, element.origin.tag.start))
            {
                warnings.push(source.problem(element, code, message));
            }
        });
    }
    warnings
}

/// Calls `visit` with an element and then with each element inside it.
fn walk<'a>(component: SchemaComponent<'a>, visit: &mut impl FnMut(SchemaComponent<'a>)) {
    visit(component);
    for child in component.children() {
        walk(child, visit);
    }
}

/// An element of a schema document. `namespace` is the namespace of the document's definitions.
#[derive(Clone, Copy)]
struct SchemaComponent<'a> {
    element: &'a Element,
    namespace: &'a str,
    /// Whether the document has no namespace of its own, and so takes the namespace of the document
    /// that includes it.
    is_adopted: bool,
}

impl<'a> SchemaComponent<'a> {
    fn root(source: &'a SchemaDocument, namespace: &'a str) -> Self {
        let is_adopted = source.target().is_empty() && !namespace.is_empty();
        Self { element: &source.root, namespace, is_adopted }
    }

    fn children(self) -> impl Iterator<Item = Self> {
        self.element.children().map(move |element| Self { element, ..self })
    }

    /// Returns the first child that is the XML Schema element `local`; `None` if there is none.
    fn child(self, local: &str) -> Option<Self> {
        self.children().find(|child| child.element.is(local))
    }

    /// Returns the qualified name of this component, which must be a definition.
    fn own_name(self) -> QName {
        let local = self.element.attribute("name").unwrap_or_default();
        QName::new(Some(self.namespace), local.trim())
    }

    /// Returns the qualified name to which `attribute` refers; `None` if the attribute is missing
    /// or has an unknown prefix.
    fn name(self, attribute: &str) -> Option<QName> {
        let name = self.element.resolve(self.element.attribute(attribute)?)?;
        if name.namespace.is_none() && self.is_adopted {
            return Some(QName::new(Some(self.namespace), &name.local));
        }

        Some(name)
    }
}

/// Returns a warning if libxml2 does not check the type of this component as XSD requires, and
/// otherwise `None`.
fn doubt_about_types<'a>(
    definitions: &Definitions<'a>,
    component: SchemaComponent<'a>,
) -> Option<(&'static str, &'static str)> {
    let element = component.element;
    let is_fixed = element.is("element") && element.attribute("fixed").is_some();
    if is_fixed && definitions.is_mixed_element(component, &mut Visited::default()) {
        return Some((
            "schema-fixed-mixed",
            "`fixed` on mixed content does not refuse child elements; use a type without children",
        ));
    }

    if restricts_groups(component) {
        return Some((
            "schema-restriction-unchecked",
            "it is not checked that this restriction permits only what its base permits; compare \
             them yourself",
        ));
    }

    let extension = component.child("extension").filter(|_| element.is("simpleContent"));
    let base = extension.and_then(|extension| extension.name("base"));
    if base.is_some_and(|base| definitions.refuses_white_space(&base, &mut Visited::default())) {
        return Some((
            "schema-white-space",
            "white space around this value is refused although XSD permits it; write the value alone",
        ));
    }

    None
}

/// Whether a schema component restricts a content model. libxml2 does not check such a restriction.
/// Returns true for:
///
/// - a restriction of a complex type,
/// - a redefinition of a group without a reference to the original group, because its new content
///   must be a restriction of the original content.
fn restricts_groups(component: SchemaComponent<'_>) -> bool {
    let element = component.element;
    if element.is("redefine") {
        let mut groups = component.children().filter(|child| child.element.is("group"));
        return groups.any(|group| !refers_to(group, &group.own_name()));
    }

    if !element.is("complexContent") {
        return false;
    }

    component.child("restriction").is_some_and(|restriction| {
        has_group(restriction.element) && restriction.name("base") != Some(any_type())
    })
}

fn has_group(element: &Element) -> bool {
    let groups = ["sequence", "choice", "all", "group"];
    element.children().any(|child| groups.iter().any(|group| child.is(group)))
}

/// Whether a group contains a reference to the group `name`.
fn refers_to(component: SchemaComponent<'_>, name: &QName) -> bool {
    component.children().any(|child| {
        let is_group = child.element.is("group");
        let is_reference = is_group && child.name("ref").as_ref() == Some(name);
        is_reference || refers_to(child, name)
    })
}

fn any_type() -> QName {
    QName::new(Some(XSD), "anyType")
}

/// Built-in types for which libxml2 refuses white space around a value.
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

/// Names that a search has visited, so that the search follows each name only once.
#[derive(Default)]
struct Visited {
    types: HashSet<QName>,
    elements: HashSet<QName>,
}

/// Global definitions by name. If a name is redefined, its list contains both the original and the
/// new definition.
type DefinitionsByName<'a> = HashMap<QName, Vec<SchemaComponent<'a>>>;

/// The global definitions of all documents.
#[derive(Default)]
struct Definitions<'a> {
    complex: DefinitionsByName<'a>,
    simple: DefinitionsByName<'a>,
    elements: DefinitionsByName<'a>,
}

impl<'a> Definitions<'a> {
    /// Adds the global definitions of a document, including its redefinitions.
    fn add(&mut self, root: SchemaComponent<'a>) {
        let redefines = root.children().filter(|child| child.element.is("redefine"));
        let redefined = redefines.flat_map(SchemaComponent::children);
        for definition in root.children().chain(redefined) {
            let by_name = match definition.element.local_name() {
                "complexType" => &mut self.complex,
                "simpleType" => &mut self.simple,
                "element" => &mut self.elements,
                _ => continue,
            };
            if is_xsd(&definition.element.name) {
                by_name.entry(definition.own_name()).or_default().push(definition);
            }
        }
    }

    /// Whether an element may contain both text and child elements.
    fn is_mixed_element(&self, element: SchemaComponent<'a>, visited: &mut Visited) -> bool {
        if element.child("simpleType").is_some() {
            return false;
        }

        if let Some(inline) = element.child("complexType") {
            return self.is_mixed(inline, visited);
        }

        match (element.name("type"), element.name("substitutionGroup")) {
            (Some(name), _) => self.is_mixed_name(&name, visited),
            // The element has the type of the head of its group.
            (None, Some(head)) => {
                let is_new = visited.elements.insert(head.clone());
                let heads = self.elements.get(&head).filter(|_| is_new);
                let mut heads = heads.into_iter().flatten();
                heads.any(|head| self.is_mixed_element(*head, visited))
            }
            // An element without a type may contain anything.
            (None, None) => true,
        }
    }

    fn is_mixed_name(&self, name: &QName, visited: &mut Visited) -> bool {
        let is_new = visited.types.insert(name.clone());
        let mut named = self.complex.get(name).filter(|_| is_new).into_iter().flatten();
        *name == any_type() || named.any(|kind| self.is_mixed(*kind, visited))
    }

    /// Whether a complex type has mixed content. An extension that adds no content has the content
    /// of its base type.
    fn is_mixed(&self, kind: SchemaComponent<'a>, visited: &mut Visited) -> bool {
        let is_true = |component: SchemaComponent<'_>| {
            let mixed = component.element.attribute("mixed");
            matches!(mixed.map(str::trim), Some("true" | "1"))
        };
        let content = kind.child("complexContent");
        if is_true(kind) || content.is_some_and(is_true) {
            return true;
        }

        let extension = content.and_then(|content| content.child("extension"));
        let extension = extension.filter(|extension| !has_group(extension.element));
        let base = extension.and_then(|extension| extension.name("base"));
        base.is_some_and(|base| self.is_mixed_name(&base, visited))
    }

    /// Whether libxml2 refuses white space around values of a simple type.
    fn refuses_white_space(&self, name: &QName, visited: &mut Visited) -> bool {
        if is_xsd(name) {
            return WITHOUT_WHITE_SPACE.contains(&&*name.local);
        }

        let is_new = visited.types.insert(name.clone());
        let mut named = self.simple.get(name).filter(|_| is_new).into_iter().flatten();
        named.any(|kind| self.restricts_such(*kind, visited))
    }

    fn restricts_such(&self, kind: SchemaComponent<'a>, visited: &mut Visited) -> bool {
        let Some(restriction) = kind.child("restriction") else {
            return false;
        };
        match restriction.name("base") {
            Some(base) => self.refuses_white_space(&base, visited),
            None => {
                let inline = restriction.child("simpleType");
                inline.is_some_and(|kind| self.restricts_such(kind, visited))
            }
        }
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
            "`fixed` on a reference is not enforced; put it on the attribute's declaration alone",
        ));
    }

    None
}
