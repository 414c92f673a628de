//! The model of a schema as plain values: elements, types, particles, attributes and facets.
//!
//! The model serves descriptions and examples, not validation. Only libxml2 decides whether an
//! instance is valid.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::ids::PayloadName;
use crate::xml::shape::QName;

/// All global components of the documents of a schema.
#[derive(Debug, Default)]
pub struct SchemaModel {
    pub elements: HashMap<QName, Arc<ElementDecl>>,
    pub types: HashMap<QName, Arc<SchemaType>>,
    pub groups: HashMap<QName, Arc<Vec<ContentParticle>>>,
    pub attributes: HashMap<QName, Arc<AttributeDecl>>,
    pub attribute_groups: HashMap<QName, Arc<AttributeUses>>,
    /// For each element, the names of the elements that may substitute for it.
    pub substitutes: HashMap<QName, Vec<QName>>,
}

/// The content of a schema annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnnotationText {
    /// Documentation of the annotated component, on one line; `None` if there is none.
    pub doc: Option<String>,
    /// Examples from `<xs:appinfo><example>`: values, or whole elements as text.
    pub examples: Vec<String>,
}

#[derive(Debug)]
pub struct ElementDecl {
    pub name: QName,
    pub kind: TypeRef,
    pub default: Option<String>,
    pub fixed: Option<String>,
    pub is_abstract: bool,
    pub notes: AnnotationText,
}

#[derive(Debug, Clone)]
pub enum TypeRef {
    Named(QName),
    Inline(Arc<SchemaType>),
    /// `xs:anyType`, or a declaration without a type.
    Anything,
}

#[derive(Debug)]
pub enum SchemaType {
    Simple(Box<SimpleType>),
    Complex(Box<ComplexType>),
}

#[derive(Debug)]
pub struct SimpleType {
    pub base: SimpleTypeBase,
    pub facets: ValueFacets,
    pub notes: AnnotationText,
}

#[derive(Debug)]
pub enum SimpleTypeBase {
    Restriction(TypeRef),
    List(TypeRef),
    Union(Vec<TypeRef>),
}

#[derive(Debug, Clone, Default)]
pub struct ValueFacets {
    pub enumeration: Vec<EnumeratedValue>,
    pub patterns: Vec<String>,
    pub length: Option<u64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_inclusive: Option<String>,
    pub max_inclusive: Option<String>,
    pub min_exclusive: Option<String>,
    pub max_exclusive: Option<String>,
    pub total_digits: Option<u64>,
    pub fraction_digits: Option<u64>,
}

/// One enumerated value of a simple type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumeratedValue {
    pub value: String,
    pub doc: Option<String>,
}

#[derive(Debug)]
pub struct ComplexType {
    pub is_abstract: bool,
    pub mixed: bool,
    pub derivation: TypeDerivation,
    pub content: Vec<ContentParticle>,
    pub attributes: AttributeUses,
    pub notes: AnnotationText,
}

#[derive(Debug)]
pub enum TypeDerivation {
    None,
    Extends(TypeRef),
    Restricts(TypeRef),
    SimpleExtends(TypeRef),
    /// A restriction of a simple type: the base type, an optional inline type, and the facets. If
    /// there is an inline type, it replaces the base type.
    SimpleRestricts(TypeRef, Option<TypeRef>, Box<ValueFacets>),
}

#[derive(Debug, Clone, Default)]
pub struct AttributeUses {
    pub uses: Vec<AttributeUse>,
    pub groups: Vec<QName>,
    /// Whether an `xs:anyAttribute` permits attributes beyond the declared ones.
    pub open: bool,
}

#[derive(Debug, Clone)]
pub struct AttributeUse {
    pub declaration: AttributeDeclRef,
    pub required: bool,
    pub prohibited: bool,
    pub default: Option<String>,
    pub fixed: Option<String>,
    pub notes: AnnotationText,
}

#[derive(Debug, Clone)]
pub enum AttributeDeclRef {
    Local(Arc<AttributeDecl>),
    Global(QName),
}

#[derive(Debug)]
pub struct AttributeDecl {
    pub name: QName,
    pub kind: TypeRef,
    pub default: Option<String>,
    pub fixed: Option<String>,
    pub notes: AnnotationText,
}

#[derive(Debug, Clone)]
pub struct ContentParticle {
    pub min: u64,
    /// Maximum occurrences; `None` if unbounded.
    pub max: Option<u64>,
    pub term: ParticleTerm,
}

#[derive(Debug, Clone)]
pub enum ParticleTerm {
    Element(Arc<ElementDecl>),
    ElementRef(QName),
    Sequence(Vec<ContentParticle>),
    Choice(Vec<ContentParticle>),
    All(Vec<ContentParticle>),
    GroupRef(QName),
    Any(ElementWildcard),
}

/// The elements that an `xs:any` permits.
#[derive(Debug, Clone)]
pub struct ElementWildcard {
    pub namespace: String,
    /// Whether each permitted element must be declared in a schema.
    pub strict: bool,
}

impl TypeDerivation {
    /// Returns the base type; `None` for a type that is not derived from another type.
    pub fn base(&self) -> Option<&TypeRef> {
        match self {
            Self::Extends(base)
            | Self::Restricts(base)
            | Self::SimpleExtends(base)
            | Self::SimpleRestricts(base, ..) => Some(base),
            Self::None => None,
        }
    }
}

impl ContentParticle {
    /// Whether the particle may occur more than once.
    pub fn is_repeated(&self) -> bool {
        self.max.is_none_or(|max| max > 1)
    }
}

impl SchemaModel {
    /// Returns the element declaration of a payload; `None` if the schema does not declare it.
    pub fn element(&self, name: &PayloadName) -> Option<&Arc<ElementDecl>> {
        self.elements.get(&QName::from(name))
    }

    /// Returns the definition of a referenced type; `None` for a built-in type.
    pub fn type_of<'a>(&'a self, reference: &'a TypeRef) -> Option<&'a SchemaType> {
        match reference {
            TypeRef::Named(name) => self.types.get(name).map(AsRef::as_ref),
            TypeRef::Inline(inline) => Some(inline),
            TypeRef::Anything => None,
        }
    }

    /// Returns the elements that an instance may contain where the schema refers to `name`: the
    /// element `name`, then its substitutes. Leaves out abstract elements.
    pub fn standing_for(&self, name: &QName) -> Vec<Arc<ElementDecl>> {
        let mut out = Vec::new();
        let mut open = vec![name.clone()];
        let mut seen = HashSet::new();

        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            if let Some(element) = self.elements.get(&name).filter(|e| !e.is_abstract) {
                out.push(element.clone());
            }
            open.extend(self.substitutes.get(&name).into_iter().flatten().cloned());
        }

        out
    }

    /// Returns a concrete type that an instance can choose for the abstract type `wanted`. Returns
    /// `None` if the schema has no such type.
    pub fn concrete(&self, wanted: &QName) -> Option<QName> {
        let mut names: Vec<&QName> = self.types.keys().collect();
        names.sort();
        let fits = |name: &&&QName| {
            let Some(SchemaType::Complex(complex)) = self.types.get(**name).map(AsRef::as_ref)
            else {
                return false;
            };
            !complex.is_abstract && self.is_derived_from(complex, wanted, 0)
        };

        names.iter().find(fits).map(|name| (*name).clone())
    }

    fn is_derived_from(&self, complex: &ComplexType, wanted: &QName, depth: usize) -> bool {
        let Some(base) = complex.derivation.base() else { return false };
        if matches!(base, TypeRef::Named(name) if name == wanted) {
            return true;
        }

        match self.type_of(base) {
            Some(SchemaType::Complex(base)) if depth < crate::limits::OUTLINE_DEPTH_MAX => {
                self.is_derived_from(base, wanted, depth + 1)
            }
            _ => false,
        }
    }
}
