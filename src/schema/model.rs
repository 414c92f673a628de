//! What a schema means, as plain values: elements, types, particles, attributes, facets.
//!
//! A reading for people and models, not for judging: libxml2 alone says what is valid.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ids::PayloadName;
use crate::xml::shape::QName;

/// All global components of a schema's documents.
#[derive(Debug, Default)]
pub struct Model {
    pub elements: HashMap<QName, Arc<ElementDecl>>,
    pub types: HashMap<QName, Arc<Type>>,
    pub groups: HashMap<QName, Arc<Vec<Particle>>>,
    pub attributes: HashMap<QName, Arc<AttributeDecl>>,
    pub attribute_groups: HashMap<QName, Arc<Attributes>>,
    /// Who may stand in for an element, by its name.
    pub substitutes: HashMap<QName, Vec<QName>>,
}

/// What an annotation says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// One line of prose.
    pub doc: Option<String>,
    /// From `<xs:appinfo><example>`: values, or whole elements as text.
    pub examples: Vec<String>,
}

#[derive(Debug)]
pub struct ElementDecl {
    pub name: QName,
    pub kind: TypeRef,
    pub default: Option<String>,
    pub fixed: Option<String>,
    pub is_abstract: bool,
    pub notes: Notes,
}

#[derive(Debug, Clone)]
pub enum TypeRef {
    Named(QName),
    Inline(Arc<Type>),
    /// `xs:anyType`: no type was given.
    Anything,
}

#[derive(Debug)]
pub enum Type {
    Simple(Box<SimpleType>),
    Complex(Box<ComplexType>),
}

#[derive(Debug)]
pub struct SimpleType {
    pub base: SimpleBase,
    pub facets: Facets,
    pub notes: Notes,
}

#[derive(Debug)]
pub enum SimpleBase {
    Restriction(TypeRef),
    List(TypeRef),
    Union(Vec<TypeRef>),
}

#[derive(Debug, Clone, Default)]
pub struct Facets {
    pub enumeration: Vec<Choice>,
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

/// One enumerated value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub value: String,
    pub doc: Option<String>,
}

#[derive(Debug)]
pub struct ComplexType {
    pub is_abstract: bool,
    pub mixed: bool,
    pub derivation: Derivation,
    pub content: Vec<Particle>,
    pub attributes: Attributes,
    pub notes: Notes,
}

#[derive(Debug)]
pub enum Derivation {
    None,
    Extends(TypeRef),
    Restricts(TypeRef),
    SimpleExtends(TypeRef),
    /// With facets, and a base given in place where there is one.
    SimpleRestricts(TypeRef, Option<TypeRef>, Box<Facets>),
}

#[derive(Debug, Clone, Default)]
pub struct Attributes {
    pub uses: Vec<AttributeUse>,
    pub groups: Vec<QName>,
    /// Others are allowed too.
    pub open: bool,
}

#[derive(Debug, Clone)]
pub struct AttributeUse {
    pub of: AttributeOf,
    pub required: bool,
    pub prohibited: bool,
    pub default: Option<String>,
    pub fixed: Option<String>,
    pub notes: Notes,
}

#[derive(Debug, Clone)]
pub enum AttributeOf {
    Local(Arc<AttributeDecl>),
    Global(QName),
}

#[derive(Debug)]
pub struct AttributeDecl {
    pub name: QName,
    pub kind: TypeRef,
    pub default: Option<String>,
    pub fixed: Option<String>,
    pub notes: Notes,
}

#[derive(Debug, Clone)]
pub struct Particle {
    pub min: u64,
    /// None is unbounded.
    pub max: Option<u64>,
    pub term: Term,
}

#[derive(Debug, Clone)]
pub enum Term {
    Element(Arc<ElementDecl>),
    ElementRef(QName),
    Sequence(Vec<Particle>),
    Choice(Vec<Particle>),
    All(Vec<Particle>),
    GroupRef(QName),
    Any(Wildcard),
}

/// What `xs:any` lets in.
#[derive(Debug, Clone)]
pub struct Wildcard {
    pub namespace: String,
    /// What fits must be declared somewhere.
    pub strict: bool,
}

impl Model {
    /// The declaration of a payload.
    pub fn element(&self, name: &PayloadName) -> Option<&Arc<ElementDecl>> {
        self.elements.get(&QName::from(name))
    }

    /// The definition behind a reference; none for what the schema language has built in.
    pub fn type_of<'a>(&'a self, reference: &'a TypeRef) -> Option<&'a Type> {
        match reference {
            TypeRef::Named(name) => self.types.get(name).map(AsRef::as_ref),
            TypeRef::Inline(inline) => Some(inline),
            TypeRef::Anything => None,
        }
    }

    /// The elements that may stand where `name` is referred to, itself first unless abstract.
    pub fn standing_for(&self, name: &QName) -> Vec<Arc<ElementDecl>> {
        let mut out = Vec::new();
        let mut open = vec![name.clone()];
        let mut seen = Vec::new();

        while let Some(name) = open.pop() {
            if seen.contains(&name) {
                continue;
            }
            if let Some(element) = self.elements.get(&name).filter(|e| !e.is_abstract) {
                out.push(element.clone());
            }
            open.extend(self.substitutes.get(&name).into_iter().flatten().cloned());
            seen.push(name);
        }

        out
    }

    /// A type that can be used where an abstract one is asked for.
    pub fn concrete(&self, wanted: &QName) -> Option<QName> {
        let mut names: Vec<&QName> = self.types.keys().collect();
        names.sort();
        let fits = |name: &&&QName| {
            let Some(Type::Complex(complex)) = self.types.get(**name).map(AsRef::as_ref) else {
                return false;
            };
            !complex.is_abstract && self.descends(complex, wanted, 0)
        };

        names.iter().find(fits).map(|name| (*name).clone())
    }

    fn descends(&self, complex: &ComplexType, wanted: &QName, depth: usize) -> bool {
        let base = match &complex.derivation {
            Derivation::Extends(base)
            | Derivation::Restricts(base)
            | Derivation::SimpleExtends(base)
            | Derivation::SimpleRestricts(base, ..) => base,
            Derivation::None => return false,
        };

        if matches!(base, TypeRef::Named(name) if name == wanted) {
            return true;
        }

        match self.type_of(base) {
            Some(Type::Complex(base)) if depth < crate::limits::OUTLINE_DEPTH_MAX => {
                self.descends(base, wanted, depth + 1)
            }
            _ => false,
        }
    }
}
