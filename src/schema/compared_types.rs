//! Types of values, with the data that determine how libxml2 compares these values with patterns.
//!
//! Elements and attributes are found by their local names. So all elements, or all attributes, with
//! the same local name are candidates for a value. A document without a target namespace may be
//! included in another document, so its types are candidates in each namespace.

use std::collections::HashMap;

use super::source::SchemaDocument;
use super::xsd::{SchemaElement, XSD};
use crate::xml::element::Element;
use crate::xml::shape::QName;

/// Facets that can make a value invalid, except patterns.
const OTHER_FACETS: [&str; 10] = [
    "enumeration",
    "fractionDigits",
    "length",
    "maxExclusive",
    "maxInclusive",
    "maxLength",
    "minExclusive",
    "minInclusive",
    "minLength",
    "totalDigits",
];

/// A named component of a schema: a type, an element or an attribute. The text is its local name.
/// Values of the component can be compared with patterns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueOwner {
    Type(String),
    Element(String),
    Attribute(String),
}

impl ValueOwner {
    /// Returns the type, element or attribute that an XML element of a schema document defines or
    /// declares by name. Returns `None` if the XML element does neither.
    pub fn of(element: &Element) -> Option<Self> {
        let name = element.attribute("name")?.trim().to_owned();
        if element.is("simpleType") || element.is("complexType") {
            Some(Self::Type(name))
        } else if element.is("element") {
            Some(Self::Element(name))
        } else if element.is("attribute") {
            Some(Self::Attribute(name))
        } else {
            None
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Type(_) => "type",
            Self::Element(_) => "element",
            Self::Attribute(_) => "attribute",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Type(name) | Self::Element(name) | Self::Attribute(name) => name,
        }
    }
}

/// How libxml2 changes the white space of a value before it compares the value with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhiteSpace {
    Preserve,
    Replace,
    Collapse,
    /// The change is unknown, because it depends on the value, or on a component that is not known.
    Unknown,
}

impl WhiteSpace {
    fn of_facet(element: &Element) -> Self {
        match element.attribute("value").unwrap_or_default().trim() {
            "preserve" => Self::Preserve,
            "replace" => Self::Replace,
            "collapse" => Self::Collapse,
            _ => Self::Unknown,
        }
    }

    /// Returns how libxml2 changes the white space of values of a built-in type of XML Schema.
    fn of_builtin(name: &str) -> Self {
        match name {
            "string" | "anySimpleType" => Self::Preserve,
            "normalizedString" => Self::Replace,
            _ => Self::Collapse,
        }
    }

    /// Returns how the white space of a value changes if the value may have either of two types.
    /// Returns `Unknown` if the two types change the white space differently. If only one change is
    /// known, returns that change; if neither is known, returns `None`.
    fn either(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) if one != other => Some(Self::Unknown),
            (one, other) => one.or(other),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeVariety {
    /// The values are values of one base type.
    Restriction,
    List,
    Union,
}

/// A reference to a type. A reference to an element means the type of this element.
#[derive(Debug)]
enum TypeReference {
    Named {
        owner: ValueOwner,
        /// Namespace of the referenced name; empty if the name is in no namespace.
        namespace: String,
    },
    /// The index of a type without a name.
    Anonymous(usize),
}

/// The types to which a reference may refer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TypeCandidates {
    /// The indices of the types; empty if the reference is to a built-in type of XML Schema.
    pub indices: Vec<usize>,
    /// Whether the reference is to a built-in type of XML Schema that permits every text.
    pub permits_all: bool,
    /// How libxml2 changes the white space of values, if the reference is to a built-in type of XML
    /// Schema; otherwise `None`.
    white_space: Option<WhiteSpace>,
}

/// A type, or an element or attribute together with the type of its values.
#[derive(Debug)]
pub struct ComparedType {
    pub variety: TypeVariety,
    references: Vec<TypeReference>,
    /// The base type of a restriction, the item type of a list, or the member types of a union in
    /// their order. Empty if values of the type are not compared with patterns.
    pub parts: Vec<TypeCandidates>,
    /// The indices of the type's own patterns, in the order in which libxml2 compares them. A value
    /// must match one of the patterns. `None` stands for a pattern that could not be analysed.
    pub patterns: Vec<Option<usize>>,
    /// Whether a value that matches the patterns can still be invalid because of another facet.
    pub has_other_facets: bool,
    own_white_space: Option<WhiteSpace>,
    /// How libxml2 changes the white space of values of the type. `None` until this is known for
    /// the base type.
    white_space: Option<WhiteSpace>,
    /// Whether libxml2 may match values of the type against a costly pattern, either of the type
    /// itself or of one of its parts.
    is_costly: bool,
}

impl ComparedType {
    pub fn white_space(&self) -> WhiteSpace {
        self.white_space.unwrap_or(WhiteSpace::Unknown)
    }

    /// Whether libxml2 makes the same comparisons for values of this type and of `other`.
    fn is_same(&self, other: &Self) -> bool {
        self.variety == other.variety
            && self.parts == other.parts
            && self.patterns == other.patterns
            && self.has_other_facets == other.has_other_facets
            && self.own_white_space == other.own_white_space
    }
}

/// All types, elements and attributes of a schema.
#[derive(Debug, Default)]
pub struct ComparedTypes {
    types: Vec<ComparedType>,
    /// For each kind and local name, the components with this name: the target namespace and the
    /// index of each.
    by_owner: HashMap<ValueOwner, Vec<(String, usize)>>,
    /// The indices of the costly types of each element and attribute. Of several types with the
    /// same comparisons, contains only one.
    costly: HashMap<ValueOwner, Vec<usize>>,
}

impl ComparedTypes {
    /// Reads the types of a schema. `pattern_index` returns the index of a pattern, or `None` if
    /// the pattern was not analysed. `is_costly` returns whether the pattern with the given index
    /// is costly.
    pub fn of(
        sources: &[SchemaDocument],
        pattern_index: &dyn Fn(&str) -> Option<usize>,
        is_costly: &dyn Fn(usize) -> bool,
    ) -> Self {
        let mut types = Self::default();
        for source in sources {
            types.add_named(&source.root, source.target(), pattern_index);
        }

        for index in 0..types.types.len() {
            let Some(found) = types.types.get(index) else { continue };
            let parts = found.references.iter().map(|part| types.candidates(part)).collect();
            if let Some(found) = types.types.get_mut(index) {
                found.parts = parts;
                found.is_costly = found.patterns.iter().flatten().any(|index| is_costly(*index));
            }
        }
        types.inherit();
        types.note_costly();
        types
    }

    /// Returns the indices of the costly types that the values of an element or attribute may have.
    pub fn costly(&self, owner: &ValueOwner) -> &[usize] {
        self.costly.get(owner).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the indices of the costly types to which the type name `name` may refer.
    pub fn costly_named(&self, name: &QName) -> Vec<usize> {
        let named = self.named(&ValueOwner::Type((*name.local).to_owned()), name.namespace());
        named.into_iter().filter(|index| self.is_costly(*index)).collect()
    }

    fn is_costly(&self, index: usize) -> bool {
        self.types.get(index).is_some_and(|found| found.is_costly)
    }

    pub fn get(&self, index: usize) -> Option<&ComparedType> {
        self.types.get(index)
    }

    /// Returns the indices of all components that have the kind and the local name of `owner`, and
    /// whose namespace is `namespace` or unknown. The namespace is unknown if the component's
    /// schema document has no target namespace, because documents with any namespace may include
    /// it. If `namespace` is empty, returns the components of all namespaces.
    fn named(&self, owner: &ValueOwner, namespace: &str) -> Vec<usize> {
        let named = self.by_owner.get(owner).into_iter().flatten();
        let is_possible =
            |target: &str| namespace.is_empty() || target.is_empty() || target == namespace;
        named.filter(|(target, _)| is_possible(target)).map(|(_, index)| *index).collect()
    }

    fn candidates(&self, reference: &TypeReference) -> TypeCandidates {
        match reference {
            TypeReference::Anonymous(index) => {
                TypeCandidates { indices: vec![*index], ..TypeCandidates::default() }
            }
            TypeReference::Named { owner, namespace } if namespace == XSD => TypeCandidates {
                indices: Vec::new(),
                permits_all: matches!(owner.name(), "string" | "normalizedString" | "token"),
                white_space: Some(WhiteSpace::of_builtin(owner.name())),
            },
            TypeReference::Named { owner, namespace } => TypeCandidates {
                indices: self.named(owner, namespace),
                ..TypeCandidates::default()
            },
        }
    }

    /// Adds `element` and its descendants at any depth, as far as they are named components.
    /// `target` is the target namespace of their schema document.
    fn add_named(
        &mut self,
        element: &Element,
        target: &str,
        pattern_index: &dyn Fn(&str) -> Option<usize>,
    ) {
        if let Some(owner) = ValueOwner::of(element) {
            let index = self.add(element, pattern_index);
            self.by_owner.entry(owner).or_default().push((target.to_owned(), index));
        }

        for child in element.children() {
            self.add_named(child, target, pattern_index);
        }
    }

    /// Adds a component, and the anonymous types within it. Returns the index of the component.
    fn add(&mut self, element: &Element, pattern_index: &dyn Fn(&str) -> Option<usize>) -> usize {
        let body = body(element);
        let references = body.map(|body| self.references(body, pattern_index)).unwrap_or_default();
        let variety = match body {
            Some(body) if body.is("list") => TypeVariety::List,
            Some(body) if body.is("union") => TypeVariety::Union,
            _ => TypeVariety::Restriction,
        };

        let facets = || body.into_iter().flat_map(|body| body.children());
        let patterns = facets().filter(|facet| facet.is("pattern"));
        let patterns =
            patterns.map(|facet| pattern_index(facet.attribute("value").unwrap_or_default()));
        let is_other = |facet: &Element| OTHER_FACETS.iter().any(|name| facet.is(name));
        let own_white_space = match variety {
            TypeVariety::List => Some(WhiteSpace::Collapse),
            TypeVariety::Union => Some(WhiteSpace::Unknown),
            TypeVariety::Restriction => {
                facets().find(|facet| facet.is("whiteSpace")).map(WhiteSpace::of_facet)
            }
        };

        let added = ComparedType {
            variety,
            references,
            parts: Vec::new(),
            patterns: patterns.collect(),
            has_other_facets: facets().any(is_other),
            own_white_space,
            white_space: own_white_space,
            is_costly: false,
        };
        self.types.push(added);
        self.types.len() - 1
    }

    /// Returns the references to types in `body`, which is the body of a type, or an element or
    /// attribute. Adds the anonymous types in `body`.
    fn references(
        &mut self,
        body: &Element,
        pattern_index: &dyn Fn(&str) -> Option<usize>,
    ) -> Vec<TypeReference> {
        // A type without a name replaces the base type of a restriction.
        let is_replaced = body.is("restriction") && body.first("simpleType").is_some();
        let attributes = ["type", "base", "itemType", "memberTypes"];
        let names = attributes.iter().filter(|_| !is_replaced);
        let names = names.filter_map(|attribute| body.attribute(attribute));
        let names = names.flat_map(str::split_whitespace);
        let mut references: Vec<TypeReference> =
            names.map(|name| reference(body, name, ValueOwner::Type)).collect();

        for child in body.children() {
            if child.is("simpleType") || child.is("complexType") {
                references.push(TypeReference::Anonymous(self.add(child, pattern_index)));
            }
        }

        // An element without a type of its own has the type of the element that it substitutes.
        let head = body.attribute("substitutionGroup").filter(|_| references.is_empty());
        references.extend(head.map(|head| reference(body, head.trim(), ValueOwner::Element)));
        references
    }

    /// Completes the white space and the cost of all types. A type that does not set its own white
    /// space takes that of its base type. A type is costly if one of its parts, such as its base
    /// type, is costly.
    fn inherit(&mut self) {
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for index in 0..self.types.len() {
                let Some(found) = self.types.get(index) else { continue };
                let inherited = self.inherited(found);
                let is_new = inherited != (found.white_space, found.is_costly);
                if let Some(found) = self.types.get_mut(index).filter(|_| is_new) {
                    found.white_space = inherited.0;
                    found.is_costly = inherited.1;
                    is_changed = true;
                }
            }
        }
    }

    /// Stores for each element and attribute the costly types that its values may have.
    fn note_costly(&mut self) {
        let mut costly: HashMap<ValueOwner, Vec<usize>> = HashMap::new();
        for (owner, named) in &self.by_owner {
            if matches!(owner, ValueOwner::Type(_)) {
                continue;
            }

            let declared = named.iter().filter_map(|(_, index)| self.types.get(*index));
            let indices = declared.flat_map(|found| &found.parts).flat_map(|part| &part.indices);
            for index in indices.filter(|index| self.is_costly(**index)) {
                let known = costly.entry(owner.clone()).or_default();
                let is_same = |known: &usize| match (self.types.get(*known), self.types.get(*index))
                {
                    (Some(one), Some(other)) => one.is_same(other),
                    _ => false,
                };
                if !known.iter().any(is_same) {
                    known.push(*index);
                }
            }
        }
        self.costly = costly;
    }

    /// Returns the white space of a type and whether the type is costly, as far as both follow from
    /// the present knowledge about its parts.
    fn inherited(&self, found: &ComparedType) -> (Option<WhiteSpace>, bool) {
        let mut white_space = None;
        let mut is_costly = found.is_costly;
        for part in &found.parts {
            white_space = WhiteSpace::either(white_space, part.white_space);
            for candidate in part.indices.iter().filter_map(|index| self.types.get(*index)) {
                white_space = WhiteSpace::either(white_space, candidate.white_space);
                is_costly |= candidate.is_costly;
            }
        }

        (found.own_white_space.or(white_space), is_costly)
    }
}

/// For a type, returns the element in it that refers to other types and contains the facets, such
/// as `xs:restriction`. For an element or attribute, returns `element` itself. Returns `None` for a
/// type whose values are not compared with patterns.
fn body(element: &Element) -> Option<&Element> {
    if element.is("simpleType") {
        first_of(element, &["restriction", "list", "union"])
    } else if element.is("complexType") {
        first_of(element.first("simpleContent")?, &["extension", "restriction"])
    } else {
        Some(element)
    }
}

/// Returns the first child whose local name is among `names`.
fn first_of<'a>(element: &'a Element, names: &[&str]) -> Option<&'a Element> {
    element.children().find(|child| names.iter().any(|name| child.is(name)))
}

/// Resolves `name`, which is written in an attribute of `element`, to a reference. `owner_of` makes
/// the referenced component from its local name.
fn reference(
    element: &Element,
    name: &str,
    owner_of: impl Fn(String) -> ValueOwner,
) -> TypeReference {
    let local = name.rsplit(':').next().unwrap_or_default();
    let name = element.resolve(name).unwrap_or_else(|| QName::new(None, local));
    let namespace = name.namespace().to_owned();
    TypeReference::Named { owner: owner_of((*name.local).to_owned()), namespace }
}
