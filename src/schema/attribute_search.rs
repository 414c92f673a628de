//! Searches the documents of a schema for an attribute that a payload can contain.
//!
//! A safety rule depends on the result. So if the search cannot decide, the attribute counts as
//! found. For example, the search compares only local names, and a wildcard stands for everything
//! that the schema declares.

use std::collections::{HashMap, HashSet};

use super::source::SchemaDocument;
use super::xsd::{SchemaElement, is_xsd};
use crate::xml::element::Element;

/// Key of a global component of a schema: its kind, such as `element`, and its local name.
type ComponentKey<'a> = (&'a str, &'a str);

const ELEMENT: &str = "element";
/// Kind of those components that are types, both simple and complex ones. A schema never gives the
/// same name to a simple and a complex type, so one kind is enough.
const TYPE: &str = "type";
/// Key that stands for every simple type.
const SIMPLE_TYPE: ComponentKey<'static> = (TYPE, "");

/// Returns the local names of all attributes that the documents of a schema declare.
pub fn declared_attributes(documents: &[SchemaDocument]) -> HashSet<String> {
    let elements = documents.iter().flat_map(|document| descendants(&document.root));
    let attributes = elements.filter(|element| is_declaration(element));
    let names =
        attributes.flat_map(|element| [element.attribute("name"), element.attribute("ref")]);
    names.flatten().map(|name| local(name).to_owned()).collect()
}

/// Whether an instance of the global element `payload` can contain the attribute `attribute`, at
/// any depth. `documents` are all documents of the schema. `attribute` must be one of their
/// [`declared_attributes`]: no payload can contain any other attribute.
///
/// Takes into account elements of a substitution group, and types that an instance chooses by
/// `xsi:type`. Ignores namespaces. An element with a wildcard, or of the type `xs:anyType`, can
/// contain every attribute that the documents declare.
pub fn can_contain(documents: &[SchemaDocument], payload: &str, attribute: &str) -> bool {
    let mut search = AttributeSearch::new(documents, attribute);
    search.open.push((ELEMENT, payload));
    while let Some(key) = search.open.pop() {
        if !search.visited.insert(key) {
            continue;
        }
        let components = search.components.get(&key).cloned().unwrap_or_default();
        if components.into_iter().any(|component| search.search_component(component)) {
            return true;
        }
    }

    false
}

/// A search through the global components to which a payload refers, directly or through other
/// components. Visits each component once, so that the search ends even if types are recursive.
struct AttributeSearch<'a> {
    attribute: &'a str,
    components: HashMap<ComponentKey<'a>, Vec<&'a Element>>,
    /// For each component, the components that an instance can choose in its place. For an element,
    /// these are the elements of its substitution group. For a type, these are the types that are
    /// derived from it.
    substitutes: HashMap<ComponentKey<'a>, Vec<ComponentKey<'a>>>,
    open: Vec<ComponentKey<'a>>,
    visited: HashSet<ComponentKey<'a>>,
    /// Components whose substitutes are already in `open`.
    substituted: HashSet<ComponentKey<'a>>,
}

impl<'a> AttributeSearch<'a> {
    fn new(documents: &'a [SchemaDocument], attribute: &'a str) -> Self {
        let mut search = Self {
            attribute,
            components: HashMap::new(),
            substitutes: HashMap::new(),
            open: Vec::new(),
            visited: HashSet::new(),
            substituted: HashSet::new(),
        };
        for document in documents {
            let redefined = document.root.all("redefine").flat_map(|redefine| redefine.children());
            for component in document.root.children().chain(redefined) {
                search.add(component);
            }
        }

        search
    }

    fn add(&mut self, component: &'a Element) {
        let Some(name) = component.attribute("name") else { return };
        let kind = match component.local_name() {
            "simpleType" | "complexType" => TYPE,
            other => other,
        };
        let key = (kind, name.trim());
        self.components.entry(key).or_default().push(component);

        if let Some(head) = component.attribute("substitutionGroup") {
            self.substitutes.entry((ELEMENT, local(head))).or_default().push(key);
        }
        if !component.is("complexType") {
            return;
        }

        // A complex type with simple content is derived from a simple type, so it can replace one.
        let simple = component.first("simpleContent");
        if simple.is_some() {
            self.substitutes.entry(SIMPLE_TYPE).or_default().push(key);
        }
        let Some(content) = simple.or_else(|| component.first("complexContent")) else { return };
        let derivation = content.first("extension").or_else(|| content.first("restriction"));
        if let Some(base) = derivation.and_then(|derivation| derivation.attribute("base")) {
            self.substitutes.entry((TYPE, local(base))).or_default().push(key);
        }
    }

    /// Returns true if the component itself can contain the attribute. Otherwise, adds to `open`
    /// all components to which the component refers, and returns false.
    fn search_component(&mut self, component: &'a Element) -> bool {
        for element in descendants(component) {
            if declares(element, self.attribute) || is_unbounded(element) {
                return true;
            }
            self.follow(element);
        }

        false
    }

    /// Adds to `open` all components to which `element` refers.
    fn follow(&mut self, element: &'a Element) {
        match element.local_name() {
            "element" => {
                if let Some(name) = element.attribute("ref") {
                    self.open_substitutes((ELEMENT, local(name)));
                }
                // Without a type of its own, the element has the type of the group's head.
                if let Some(head) = element.attribute("substitutionGroup") {
                    self.open.push((ELEMENT, local(head)));
                }
                if let Some(name) = element.attribute("type") {
                    self.open_type(element, name);
                } else if element.first("simpleType").is_some() {
                    self.open_substitutes(SIMPLE_TYPE);
                }
            }
            kind @ ("group" | "attributeGroup") => {
                if let Some(name) = element.attribute("ref") {
                    self.open.push((kind, local(name)));
                }
            }
            "extension" | "restriction" => {
                if let Some(base) = element.attribute("base") {
                    self.open.push((TYPE, local(base)));
                }
            }
            _ => {}
        }
    }

    /// Adds to `open` the type of an element, and all types that an instance can choose in its
    /// place. `written` is the name of the type as the schema contains it.
    fn open_type(&mut self, element: &'a Element, written: &'a str) {
        let key = (TYPE, local(written));
        self.open_substitutes(key);

        let is_built_in = element.resolve(written).is_some_and(|name| is_xsd(&name));
        let mut declared = self.components.get(&key).into_iter().flatten();
        let is_complex = declared.any(|component| component.is("complexType"));
        if is_built_in || !is_complex {
            self.open_substitutes(SIMPLE_TYPE);
        }
    }

    /// Adds to `open` a component, and all components that an instance can choose in its place.
    fn open_substitutes(&mut self, key: ComponentKey<'a>) {
        let mut next = vec![key];
        while let Some(key) = next.pop() {
            if self.substituted.insert(key) {
                self.open.push(key);
                next.extend(self.substitutes.get(&key).into_iter().flatten().copied());
            }
        }
    }
}

/// Returns `root` and the elements within it, except annotations.
fn descendants(root: &Element) -> impl Iterator<Item = &Element> {
    let mut open = vec![root];
    std::iter::from_fn(move || {
        let element = open.pop()?;
        open.extend(element.children().filter(|child| !child.is("annotation")));
        Some(element)
    })
}

/// Whether `element` declares the attribute `attribute`, or refers to a declaration of it. A
/// declaration that prohibits the attribute does not count.
fn declares(element: &Element, attribute: &str) -> bool {
    let names = [element.attribute("name"), element.attribute("ref")];
    let is_named = names.into_iter().flatten().any(|name| local(name) == attribute);
    is_declaration(element) && is_named
}

/// Whether `element` declares or permits an attribute.
fn is_declaration(element: &Element) -> bool {
    let is_prohibited = element.attribute("use").map(str::trim) == Some("prohibited");
    element.is("attribute") && !is_prohibited
}

/// Whether `element` permits attributes or content that it does not declare: it is a wildcard, or
/// has the type `xs:anyType`.
fn is_unbounded(element: &Element) -> bool {
    let is_anything = |name: &str| local(name) == "anyType";
    match element.local_name() {
        "any" | "anyAttribute" => true,
        "extension" => element.attribute("base").is_some_and(is_anything),
        "element" if element.attribute("ref").is_none() => match element.attribute("type") {
            Some(name) => is_anything(name),
            None => {
                element.first("complexType").is_none()
                    && element.first("simpleType").is_none()
                    && element.attribute("substitutionGroup").is_none()
            }
        },
        _ => false,
    }
}

/// Returns the local part of a name that may have a prefix.
fn local(name: &str) -> &str {
    let name = name.trim();
    name.split_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAG: &str = "<xs:attribute name='flag' type='xs:string'/>";

    /// Whether the payload `run` can contain `flag`, if its schema has these global components.
    fn finds(components: &str) -> bool {
        let text = format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' xmlns='urn:t' \
             targetNamespace='urn:t'>{}</xs:schema>",
            components.replace("FLAG", FLAG)
        );
        let document = SchemaDocument::parse(text.as_bytes(), "test", None);
        let document = document.unwrap_or_else(|problem| panic!("{problem}: {text}"));
        let documents = [document];
        declared_attributes(&documents).contains("flag") && can_contain(&documents, "run", "flag")
    }

    /// Returns the payload `run` with this content.
    fn run_with(content: &str) -> String {
        let content = format!("<xs:complexType>{content}</xs:complexType>");
        format!("<xs:element name='run'>{content}</xs:element>")
    }

    /// Asserts that `run` with this content can contain `flag`, if the schema has these components.
    fn check_found(content: &str, components: &str) {
        let run = run_with(content);
        assert!(finds(&format!("{run}{components}")), "{content} {components}");
    }

    #[test]
    fn an_attribute_is_found_at_any_depth_and_in_a_child_of_the_same_name() {
        let mut content = "FLAG".to_owned();
        for _ in 0..20 {
            content = format!(
                "<xs:sequence><xs:element name='w'><xs:complexType>{content}</xs:complexType>\
                 </xs:element></xs:sequence>"
            );
        }
        check_found(&content, "");

        let inner = "<xs:sequence><xs:element name='run'><xs:complexType>FLAG</xs:complexType>\
                     </xs:element></xs:sequence>";
        check_found(inner, "");
    }

    #[test]
    fn an_attribute_is_found_through_references() {
        let group = "<xs:attributeGroup name='more'>FLAG</xs:attributeGroup>";
        check_found("<xs:attributeGroup ref='more'/>", group);

        let part = "<xs:element name='part'><xs:complexType>FLAG</xs:complexType></xs:element>";
        check_found("<xs:sequence><xs:element ref='part'/></xs:sequence>", part);

        let group = "<xs:group name='parts'><xs:sequence><xs:element ref='part'/></xs:sequence>\
                     </xs:group>";
        check_found("<xs:group ref='parts'/>", &format!("{group}{part}"));

        let member = "<xs:complexType name='Plain'/><xs:element name='head' type='Plain'/>\
                      <xs:element name='part' substitutionGroup='head'><xs:complexType>\
                      <xs:complexContent><xs:extension base='Plain'>FLAG</xs:extension>\
                      </xs:complexContent></xs:complexType></xs:element>";
        check_found("<xs:sequence><xs:element ref='head'/></xs:sequence>", member);

        check_found("<xs:attribute ref='flag'/>", FLAG);
    }

    #[test]
    fn an_attribute_is_found_in_a_base_type_and_in_a_type_that_an_instance_chooses() {
        let base = "<xs:complexType name='Base'>FLAG</xs:complexType>";
        let extends = "<xs:complexContent><xs:extension base='Base'/></xs:complexContent>";
        check_found(extends, base);

        let typed = "<xs:sequence><xs:element name='cmd' type='Base'/></xs:sequence>";
        let derived = "<xs:complexType name='Base'/>\
                       <xs:complexType name='Middle'><xs:complexContent>\
                       <xs:extension base='Base'/></xs:complexContent></xs:complexType>\
                       <xs:complexType name='Danger'><xs:complexContent>\
                       <xs:extension base='Middle'>FLAG</xs:extension></xs:complexContent>\
                       </xs:complexType>";
        check_found(typed, derived);

        let typed = "<xs:sequence><xs:element name='cmd' type='xs:string'/></xs:sequence>";
        let derived = "<xs:complexType name='Danger'><xs:simpleContent>\
                       <xs:extension base='xs:token'>FLAG</xs:extension></xs:simpleContent>\
                       </xs:complexType>";
        check_found(typed, derived);
    }

    #[test]
    fn a_wildcard_and_any_type_contain_every_declared_attribute() {
        let other = "<xs:element name='other'><xs:complexType>FLAG</xs:complexType></xs:element>";
        for content in [
            "<xs:sequence><xs:any processContents='lax'/></xs:sequence>",
            "<xs:anyAttribute/>",
            "<xs:sequence><xs:element name='a'/></xs:sequence>",
            "<xs:sequence><xs:element name='a' type='xs:anyType'/></xs:sequence>",
        ] {
            check_found(content, other);
            assert!(!finds(&run_with(content)), "no document declares it: {content}");
        }
    }

    #[test]
    fn an_attribute_of_another_payload_is_not_found() {
        let other = "<xs:element name='other'><xs:complexType>FLAG</xs:complexType></xs:element>";
        let child = "<xs:sequence><xs:element name='flag' type='xs:string'/></xs:sequence>";
        let run = run_with(child);
        assert!(!finds(&format!("{run}{other}")));

        let prohibited = "<xs:attribute name='flag' use='prohibited'/>";
        assert!(!finds(&run_with(prohibited)));
    }
}
