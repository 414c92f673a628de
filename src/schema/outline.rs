//! Outlines of schema types. An outline states the content that a type permits. It contains no
//! unresolved derivations, groups or references.

use std::sync::Arc;

use super::model::{
    AnnotationText, AttributeDecl, AttributeDeclRef, AttributeUse, AttributeUses, ContentParticle,
    ElementDecl, EnumeratedValue, ParticleTerm, SchemaModel, SchemaType, SimpleTypeBase,
    TypeDerivation, TypeRef, ValueFacets,
};
use super::xsd::{XSD, is_xsd};
use crate::limits;
use crate::xml::shape::QName;

/// The permitted content of an element.
#[derive(Debug, Default)]
pub struct ElementOutline {
    /// The permitted text. `None` if the content of the element is not a text of a simple type.
    pub text: Option<SimpleTypeOutline>,
    /// Whether text may stand between the children.
    pub mixed: bool,
    pub content: Vec<ContentParticle>,
    pub attributes: Vec<OutlineAttribute>,
    /// Whether attributes beyond `attributes` are permitted.
    pub any_attribute: bool,
    /// Whether any well-formed content is permitted.
    pub anything: bool,
    pub notes: AnnotationText,
}

#[derive(Debug, Clone)]
pub struct OutlineAttribute {
    pub name: QName,
    pub value: SimpleTypeOutline,
    pub required: bool,
    pub default: Option<String>,
    pub fixed: Option<String>,
    pub notes: AnnotationText,
}

/// The permitted text of a simple type.
#[derive(Debug, Clone, Default)]
pub struct SimpleTypeOutline {
    /// Name of the built-in base type, such as `integer`.
    pub builtin: String,
    /// Facets of the type, including inherited facets.
    pub facets: ValueFacets,
    /// Patterns of the type, one list for each derivation step. A text must match at least one
    /// pattern of every list.
    pub pattern_steps: Vec<Vec<String>>,
    pub list_of: Option<Box<SimpleTypeOutline>>,
    pub union_of: Vec<SimpleTypeOutline>,
    pub notes: AnnotationText,
}

impl ElementOutline {
    /// Whether the content of the element is only text, without children and wildcards.
    pub fn is_text(&self) -> bool {
        self.text.is_some() || (self.mixed && self.content.is_empty() && !self.anything)
    }
}

impl SchemaModel {
    pub fn outline(&self, reference: &TypeRef) -> ElementOutline {
        self.outline_at(reference, 0)
    }

    fn outline_at(&self, reference: &TypeRef, depth: usize) -> ElementOutline {
        let anything = ElementOutline { anything: true, mixed: true, ..ElementOutline::default() };
        if depth > limits::OUTLINE_DEPTH_MAX {
            return anything;
        }

        match self.type_of(reference) {
            None => match reference {
                TypeRef::Named(name) if is_xsd(name) && &*name.local != "anyType" => {
                    ElementOutline {
                        text: Some(self.value(reference)),
                        ..ElementOutline::default()
                    }
                }
                _ => anything,
            },
            Some(SchemaType::Simple(simple)) => ElementOutline {
                text: Some(self.value(reference)),
                notes: simple.notes.clone(),
                ..ElementOutline::default()
            },
            Some(SchemaType::Complex(complex)) => {
                let mut outline = self.derived(&complex.derivation, &complex.content, depth);
                outline.mixed = complex.mixed || (outline.mixed && complex.content.is_empty());
                self.add_attributes(&mut outline, &complex.attributes, depth);
                outline.notes = complex.notes.clone();
                outline
            }
        }
    }

    fn derived(
        &self,
        derivation: &TypeDerivation,
        own: &[ContentParticle],
        depth: usize,
    ) -> ElementOutline {
        let base = |reference: &TypeRef| self.outline_at(reference, depth + 1);

        match derivation {
            TypeDerivation::None => {
                ElementOutline { content: own.to_vec(), ..ElementOutline::default() }
            }
            TypeDerivation::Extends(reference) => {
                let mut outline = base(reference);
                outline.content.extend_from_slice(own);
                outline
            }
            TypeDerivation::Restricts(reference) => {
                let base = base(reference);
                ElementOutline {
                    content: own.to_vec(),
                    attributes: base.attributes,
                    ..ElementOutline::default()
                }
            }
            TypeDerivation::SimpleExtends(reference) => base(reference),
            TypeDerivation::SimpleRestricts(reference, inline, facets) => {
                let mut outline = base(reference);
                if let Some(inline) = inline {
                    outline.text = Some(self.value(inline));
                }

                let text = outline.text.get_or_insert_default();
                text.restrict(facets);
                outline
            }
        }
    }

    fn add_attributes(&self, outline: &mut ElementOutline, new: &AttributeUses, depth: usize) {
        outline.any_attribute |= new.open;
        let all = &mut outline.attributes;
        for usage in &new.uses {
            let Some(declared) = self.declared(usage) else { continue };
            all.retain(|a| a.name != declared.name);
            if !usage.prohibited {
                all.push(self.attribute(usage, &declared));
            }
        }

        for group in new.groups.iter().filter_map(|name| self.attribute_groups.get(name)) {
            if depth < limits::OUTLINE_DEPTH_MAX {
                self.add_attributes(outline, group, depth + 1);
            }
        }
    }

    fn declared(&self, usage: &AttributeUse) -> Option<Arc<AttributeDecl>> {
        match &usage.declaration {
            AttributeDeclRef::Local(declared) => Some(declared.clone()),
            AttributeDeclRef::Global(name) => self.attributes.get(name).cloned(),
        }
    }

    fn attribute(&self, usage: &AttributeUse, declared: &AttributeDecl) -> OutlineAttribute {
        let kind = match &declared.kind {
            TypeRef::Anything => TypeRef::Named(QName::new(Some(XSD), "string")),
            kind => kind.clone(),
        };

        let mut notes = usage.notes.clone();
        notes.doc = notes.doc.or_else(|| declared.notes.doc.clone());
        notes.examples.extend_from_slice(&declared.notes.examples);
        OutlineAttribute {
            name: declared.name.clone(),
            value: self.value(&kind),
            required: usage.required,
            default: usage.default.clone().or_else(|| declared.default.clone()),
            fixed: usage.fixed.clone().or_else(|| declared.fixed.clone()),
            notes,
        }
    }

    /// Returns the permitted text of a simple type.
    pub fn value(&self, reference: &TypeRef) -> SimpleTypeOutline {
        self.value_at(reference, 0)
    }

    fn value_at(&self, reference: &TypeRef, depth: usize) -> SimpleTypeOutline {
        let simple = match self.type_of(reference) {
            Some(SchemaType::Simple(simple)) if depth <= limits::OUTLINE_DEPTH_MAX => simple,
            Some(_) => {
                return SimpleTypeOutline {
                    builtin: "string".into(),
                    ..SimpleTypeOutline::default()
                };
            }
            None => {
                let builtin = match reference {
                    TypeRef::Named(name) if is_xsd(name) => name.local.to_string(),
                    _ => "string".to_owned(),
                };
                return SimpleTypeOutline::builtin(builtin);
            }
        };

        let mut value = match &simple.base {
            SimpleTypeBase::Restriction(base) => self.value_at(base, depth + 1),
            SimpleTypeBase::List(item) => {
                let item = Box::new(self.value_at(item, depth + 1));
                SimpleTypeOutline {
                    builtin: "list".into(),
                    list_of: Some(item),
                    ..SimpleTypeOutline::default()
                }
            }
            SimpleTypeBase::Union(members) => {
                let members = members.iter().map(|m| self.value_at(m, depth + 1)).collect();
                SimpleTypeOutline {
                    builtin: "union".into(),
                    union_of: members,
                    ..SimpleTypeOutline::default()
                }
            }
        };

        value.restrict(&simple.facets);
        if simple.notes.doc.is_some() {
            value.notes.doc = simple.notes.doc.clone();
        }

        if !simple.notes.examples.is_empty() {
            value.notes.examples = simple.notes.examples.clone();
        }

        value
    }

    /// Returns the elements that `particles` permit, in order, and whether `particles` contain a
    /// wildcard. Groups and substitutions are resolved.
    pub fn elements_in(&self, particles: &[ContentParticle]) -> (Vec<Arc<ElementDecl>>, bool) {
        let mut found = (Vec::new(), false);
        self.gather(particles, &mut found, 0);
        found
    }

    /// Whether `particle` is a repeated group of several elements, or refers to one.
    pub fn repeats_several(&self, particle: &ContentParticle) -> bool {
        if !particle.is_repeated() {
            return false;
        }

        let (elements, has_wildcard) = self.elements_in(std::slice::from_ref(particle));
        elements.len() + usize::from(has_wildcard) > 1
    }

    fn gather(
        &self,
        particles: &[ContentParticle],
        found: &mut (Vec<Arc<ElementDecl>>, bool),
        depth: usize,
    ) {
        if depth > limits::OUTLINE_DEPTH_MAX {
            return;
        }

        for particle in particles {
            match &particle.term {
                ParticleTerm::Element(element) => found.0.push(element.clone()),
                ParticleTerm::ElementRef(name) => found.0.extend(self.standing_for(name)),
                ParticleTerm::Sequence(inner)
                | ParticleTerm::Choice(inner)
                | ParticleTerm::All(inner) => {
                    self.gather(inner, found, depth + 1);
                }
                ParticleTerm::GroupRef(name) => {
                    if let Some(inner) = self.groups.get(name) {
                        self.gather(inner, found, depth + 1);
                    }
                }
                ParticleTerm::Any(_) => found.1 = true,
            }
        }
    }
}

impl SimpleTypeOutline {
    /// Returns the outline of a built-in type. A built-in list type becomes a list of its item
    /// type.
    fn builtin(name: String) -> Self {
        let item = match name.as_str() {
            "NMTOKENS" => "NMTOKEN",
            "IDREFS" => "IDREF",
            "ENTITIES" => "ENTITY",
            _ => return Self { builtin: name, ..Self::default() },
        };

        let item = Self { builtin: item.into(), ..Self::default() };
        Self { builtin: "list".into(), list_of: Some(Box::new(item)), ..Self::default() }
    }

    fn restrict(&mut self, new: &ValueFacets) {
        let facets = &mut self.facets;
        let swap = |old: &mut Option<u64>, new: Option<u64>| *old = new.or(*old);
        let put = |old: &mut Option<String>, new: &Option<String>| {
            if new.is_some() {
                old.clone_from(new);
            }
        };

        swap(&mut facets.length, new.length);
        swap(&mut facets.min_length, new.min_length);
        swap(&mut facets.max_length, new.max_length);
        swap(&mut facets.total_digits, new.total_digits);
        swap(&mut facets.fraction_digits, new.fraction_digits);
        put(&mut facets.min_inclusive, &new.min_inclusive);
        put(&mut facets.max_inclusive, &new.max_inclusive);
        put(&mut facets.min_exclusive, &new.min_exclusive);
        put(&mut facets.max_exclusive, &new.max_exclusive);
        if !new.enumeration.is_empty() {
            facets.enumeration = new.enumeration.clone();
        }

        if !new.patterns.is_empty() {
            self.pattern_steps.push(new.patterns.clone());
        }
    }

    /// Returns the enumerated values of the type. For a union, returns the enumerated values of all
    /// its member types. If one of the member types does not enumerate its values, returns an empty
    /// list.
    pub fn choices(&self) -> Vec<EnumeratedValue> {
        if !self.facets.enumeration.is_empty() || self.union_of.is_empty() {
            return self.facets.enumeration.clone();
        }
        let members: Vec<Vec<EnumeratedValue>> =
            self.union_of.iter().map(SimpleTypeOutline::choices).collect();
        // A member without enumerated values permits other values, so the union lists none.
        if members.iter().any(Vec::is_empty) { Vec::new() } else { members.concat() }
    }
}
