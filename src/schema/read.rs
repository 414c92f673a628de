//! Builds the schema model from the documents of a schema.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::link::LinkKind;
use super::load::SchemaBundle;
use super::model::{
    AnnotationText, AttributeDecl, AttributeDeclRef, AttributeUse, AttributeUses, ComplexType,
    ContentParticle, ElementDecl, ElementWildcard, EnumeratedValue, ParticleTerm, SchemaModel,
    SchemaType, SimpleType, SimpleTypeBase, TypeDerivation, TypeRef, ValueFacets,
};
use super::source::SchemaDocument;
use super::xsd::{SchemaElement, XSD, is_xsd};
use crate::xml::element::Element;
use crate::xml::shape::QName;

/// Builds the model of all documents of a schema. A document without a namespace of its own takes
/// the namespace of the document that includes it. If documents of several namespaces include such
/// a document, the model contains its definitions once for each of these namespaces.
pub fn model(bundle: &SchemaBundle) -> SchemaModel {
    let mut model = SchemaModel::default();
    let mut readings: Vec<(usize, String)> = readings(bundle).into_iter().collect();
    // The original of a redefined component must be read before the redefinition.
    readings.sort_by(|a, b| b.cmp(a));

    for (index, namespace) in readings {
        if let Some(source) = bundle.sources.get(index) {
            ModelReader::new(source, &namespace).read(&mut model);
        }
    }

    inherit_types(&mut model);
    model
}

/// Gives types to the elements of substitution groups. An element that has no type of its own gets
/// the type of its group's head.
fn inherit_types(model: &mut SchemaModel) {
    let mut open: Vec<QName> = model.substitutes.keys().cloned().collect();
    let mut seen = HashSet::new();
    while let Some(head) = open.pop() {
        let kind = model.elements.get(&head).map(|declared| declared.kind.clone());
        let Some(kind) = kind.filter(|kind| !matches!(kind, TypeRef::Anything)) else { continue };
        if !seen.insert(head.clone()) {
            continue;
        }

        for name in model.substitutes.get(&head).into_iter().flatten() {
            // A member may be the head of another group, and its own members take its type.
            open.push(name.clone());
            // No other reference to the declaration exists yet.
            let declared = model.elements.get_mut(name).and_then(Arc::get_mut);
            if let Some(declared) = declared.filter(|own| matches!(own.kind, TypeRef::Anything)) {
                declared.kind = kind.clone();
            }
        }
    }
}

/// Returns the documents that must be read to build the model of a schema. Each pair contains the
/// index of a document, and the namespace of its definitions. A document without a namespace of its
/// own is in one pair for each namespace from which it is included.
pub fn readings(bundle: &SchemaBundle) -> BTreeSet<(usize, String)> {
    let own = |index: usize| bundle.sources.get(index).map(|s| s.target().to_owned());
    let mut seen = BTreeSet::new();
    let mut open: Vec<(usize, String)> = own(0).map(|ns| (0, ns)).into_iter().collect();

    while let Some((index, namespace)) = open.pop() {
        if !seen.insert((index, namespace.clone())) {
            continue;
        }
        for link in bundle.links.iter().filter(|link| link.from == index) {
            let Some(to) = link.to else { continue };
            let target = own(to).unwrap_or_default();
            let adopts = link.kind != LinkKind::Import && target.is_empty();
            open.push((to, if adopts { namespace.clone() } else { target }));
        }
    }

    seen
}

struct ModelReader<'a> {
    root: &'a Element,
    namespace: &'a str,
    /// Whether the document has no namespace of its own, and so takes the namespace of the document
    /// that includes it.
    adopted: bool,
    elements_qualified: bool,
    attributes_qualified: bool,
}

/// Suffix of the name under which the original of a redefined component is stored. The redefinition
/// refers to the original by this name. If a redefinition is redefined again, the name has the
/// suffix several times.
const REPLACED: &str = "#replaced";

impl<'a> ModelReader<'a> {
    fn new(source: &'a SchemaDocument, namespace: &'a str) -> Self {
        let qualified = |name| source.root.attribute(name).map(str::trim) == Some("qualified");
        Self {
            root: &source.root,
            namespace,
            adopted: source.target().is_empty() && !namespace.is_empty(),
            elements_qualified: qualified("elementFormDefault"),
            attributes_qualified: qualified("attributeFormDefault"),
        }
    }

    fn read(&self, model: &mut SchemaModel) {
        for child in self.root.children() {
            self.component(child, model);
        }

        for redefine in self.root.all("redefine") {
            for child in redefine.children() {
                self.redefine(child, model);
            }
        }
    }

    fn own(&self, element: &Element) -> Option<QName> {
        Some(QName::new(Some(self.namespace), element.attribute("name")?.trim()))
    }

    fn name(&self, element: &Element, attribute: &str) -> Option<QName> {
        self.resolve(element, element.attribute(attribute)?)
    }

    fn resolve(&self, element: &Element, text: &str) -> Option<QName> {
        let name = element.resolve(text)?;
        if self.adopted && name.namespace.is_none() {
            return Some(QName::new(Some(self.namespace), &name.local));
        }
        Some(name)
    }

    fn component(&self, element: &Element, model: &mut SchemaModel) {
        if !is_xsd(&element.name) {
            return;
        }

        let Some(name) = self.own(element) else { return };
        match &*element.name.local {
            "element" => {
                if let Some(head) = self.name(element, "substitutionGroup") {
                    model.substitutes.entry(head).or_default().push(name.clone());
                }
                let declared = self.element(element, name.clone());
                model.elements.insert(name, Arc::new(declared));
            }
            "complexType" => {
                model
                    .types
                    .insert(name, Arc::new(SchemaType::Complex(Box::new(self.complex(element)))));
            }
            "simpleType" => {
                model
                    .types
                    .insert(name, Arc::new(SchemaType::Simple(Box::new(self.simple(element)))));
            }
            "group" => {
                model.groups.insert(name, Arc::new(self.particles(element)));
            }
            "attribute" => {
                model.attributes.insert(name.clone(), Arc::new(self.attribute(element, name)));
            }
            "attributeGroup" => {
                model.attribute_groups.insert(name, Arc::new(self.attributes(element)));
            }
            _ => {}
        }
    }

    /// Reads the redefinition of a component. Within a redefinition, the component's own name
    /// refers to the original component.
    fn redefine(&self, element: &Element, model: &mut SchemaModel) {
        let Some(name) = self.own(element) else { return };
        let mut aside = format!("{}{REPLACED}", name.local);
        let aside = loop {
            let free = QName::new(name.namespace.as_deref(), &aside);
            let is_taken = model.types.contains_key(&free)
                || model.groups.contains_key(&free)
                || model.attribute_groups.contains_key(&free);
            if !is_taken {
                break free;
            }
            aside.push_str(REPLACED);
        };

        if let Some(old) = model.types.get(&name).cloned() {
            model.types.insert(aside.clone(), old);
        }

        if let Some(old) = model.groups.get(&name).cloned() {
            model.groups.insert(aside.clone(), old);
        }

        if let Some(old) = model.attribute_groups.get(&name).cloned() {
            model.attribute_groups.insert(aside.clone(), old);
        }

        self.component(element, model);

        match &*element.name.local {
            "complexType" => {
                let mut complex = self.complex(element);
                if let TypeDerivation::Extends(base)
                | TypeDerivation::Restricts(base)
                | TypeDerivation::SimpleExtends(base)
                | TypeDerivation::SimpleRestricts(base, ..) = &mut complex.derivation
                {
                    *base = TypeRef::Named(aside);
                }
                model.types.insert(name, Arc::new(SchemaType::Complex(Box::new(complex))));
            }
            "simpleType" => {
                let mut simple = self.simple(element);
                simple.base = SimpleTypeBase::Restriction(TypeRef::Named(aside));
                model.types.insert(name, Arc::new(SchemaType::Simple(Box::new(simple))));
            }
            "group" => {
                let mut particles = self.particles(element);
                particles.iter_mut().for_each(|p| rename(p, &name, &aside));
                model.groups.insert(name, Arc::new(particles));
            }
            "attributeGroup" => {
                let mut attributes = self.attributes(element);
                let own = attributes.groups.iter_mut().filter(|group| **group == name);
                own.for_each(|group| group.clone_from(&aside));
                model.attribute_groups.insert(name, Arc::new(attributes));
            }
            _ => {}
        }
    }

    fn element(&self, element: &Element, name: QName) -> ElementDecl {
        ElementDecl {
            name,
            kind: self.kind(element),
            default: element.attribute("default").map(str::to_owned),
            fixed: element.attribute("fixed").map(str::to_owned),
            is_abstract: is_true(element, "abstract"),
            notes: notes(element),
        }
    }

    /// Returns the type of an element or attribute: a named type, an inline type, or no type.
    fn kind(&self, element: &Element) -> TypeRef {
        if let Some(name) = self.name(element, "type") {
            return TypeRef::Named(name);
        }

        if let Some(inline) = element.first("complexType") {
            return TypeRef::Inline(Arc::new(SchemaType::Complex(Box::new(self.complex(inline)))));
        }

        self.inline_simple(element).unwrap_or(TypeRef::Anything)
    }

    fn inline_simple(&self, element: &Element) -> Option<TypeRef> {
        let inline = element.first("simpleType")?;
        Some(TypeRef::Inline(Arc::new(SchemaType::Simple(Box::new(self.simple(inline))))))
    }

    fn simple(&self, element: &Element) -> SimpleType {
        let notes = notes(element);
        let named = |e: &Element, a: &str| self.name(e, a).map(TypeRef::Named);
        if let Some(list) = element.first("list") {
            let item = named(list, "itemType").or_else(|| self.inline_simple(list));
            let base = SimpleTypeBase::List(item.unwrap_or(TypeRef::Anything));
            return SimpleType { base, facets: ValueFacets::default(), notes };
        }

        if let Some(union) = element.first("union") {
            let members = union.attribute("memberTypes").unwrap_or_default();
            let named = members.split_whitespace().filter_map(|m| self.resolve(union, m));
            let inline = union
                .all("simpleType")
                .map(|s| TypeRef::Inline(Arc::new(SchemaType::Simple(Box::new(self.simple(s))))));
            let base = SimpleTypeBase::Union(named.map(TypeRef::Named).chain(inline).collect());
            return SimpleType { base, facets: ValueFacets::default(), notes };
        }

        let restriction = element.first("restriction");
        let base = restriction
            .and_then(|r| named(r, "base").or_else(|| self.inline_simple(r)))
            .unwrap_or_else(|| TypeRef::Named(QName::new(Some(XSD), "string")));
        let facets = restriction.map(facets).unwrap_or_default();
        SimpleType { base: SimpleTypeBase::Restriction(base), facets, notes }
    }

    fn complex(&self, element: &Element) -> ComplexType {
        let mut mixed = is_true(element, "mixed");
        let mut body = element;
        let mut derivation = TypeDerivation::None;
        let content = element.first("complexContent").or_else(|| element.first("simpleContent"));
        if let Some(content) = content {
            mixed |= is_true(content, "mixed");
            let simple = content.is("simpleContent");
            let extension = content.first("extension");
            if let Some(inner) = extension.or_else(|| content.first("restriction")) {
                let base = self.name(inner, "base").map_or(TypeRef::Anything, TypeRef::Named);
                derivation = match (simple, extension.is_some()) {
                    (false, true) => TypeDerivation::Extends(base),
                    (false, false) => TypeDerivation::Restricts(base),
                    (true, true) => TypeDerivation::SimpleExtends(base),
                    (true, false) => TypeDerivation::SimpleRestricts(
                        base,
                        self.inline_simple(inner),
                        Box::new(facets(inner)),
                    ),
                };
                body = inner;
            }
        }

        ComplexType {
            is_abstract: is_true(element, "abstract"),
            mixed,
            derivation,
            content: self.particles(body),
            attributes: self.attributes(body),
            notes: notes(element),
        }
    }

    fn particles(&self, element: &Element) -> Vec<ContentParticle> {
        element.children().filter_map(|child| self.particle(child)).collect()
    }

    fn particle(&self, element: &Element) -> Option<ContentParticle> {
        if !is_xsd(&element.name) {
            return None;
        }

        let term = match &*element.name.local {
            "element" => match self.name(element, "ref") {
                Some(name) => ParticleTerm::ElementRef(name),
                None => {
                    let form = element.attribute("form").map(str::trim);
                    let qualified = form.map_or(self.elements_qualified, |f| f == "qualified");
                    let namespace = if qualified { self.namespace } else { "" };
                    let name = QName::new(Some(namespace), element.attribute("name")?.trim());
                    ParticleTerm::Element(Arc::new(self.element(element, name)))
                }
            },
            "sequence" => ParticleTerm::Sequence(self.particles(element)),
            "choice" => ParticleTerm::Choice(self.particles(element)),
            "all" => ParticleTerm::All(self.particles(element)),
            "group" => ParticleTerm::GroupRef(self.name(element, "ref")?),
            "any" => ParticleTerm::Any(ElementWildcard {
                namespace: element.attribute("namespace").unwrap_or("##any").to_owned(),
                strict: element.attribute("processContents").is_none_or(|p| p.trim() == "strict"),
            }),
            _ => return None,
        };

        let count = |name: &str| element.attribute(name).map(str::trim);
        let min = count("minOccurs").and_then(|n| n.parse().ok()).unwrap_or(1);
        let max = match count("maxOccurs") {
            Some("unbounded") => None,
            Some(number) => Some(number.parse().unwrap_or(1)),
            None => Some(1),
        };

        (max != Some(0)).then_some(ContentParticle { min, max, term })
    }

    fn attribute(&self, element: &Element, name: QName) -> AttributeDecl {
        AttributeDecl {
            name,
            kind: self.kind(element),
            default: element.attribute("default").map(str::to_owned),
            fixed: element.attribute("fixed").map(str::to_owned),
            notes: notes(element),
        }
    }

    fn attributes(&self, element: &Element) -> AttributeUses {
        let mut out = AttributeUses::default();
        for child in element.children().filter(|c| is_xsd(&c.name)) {
            match &*child.name.local {
                "attribute" => out.uses.extend(self.attribute_use(child)),
                "attributeGroup" => out.groups.extend(self.name(child, "ref")),
                "anyAttribute" => out.open = true,
                _ => {}
            }
        }

        out
    }

    fn attribute_use(&self, element: &Element) -> Option<AttributeUse> {
        let declaration = match self.name(element, "ref") {
            Some(name) => AttributeDeclRef::Global(name),
            None => {
                let form = element.attribute("form").map(str::trim);
                let qualified = form.map_or(self.attributes_qualified, |f| f == "qualified");
                let namespace = if qualified { self.namespace } else { "" };
                let name = QName::new(Some(namespace), element.attribute("name")?.trim());
                AttributeDeclRef::Local(Arc::new(self.attribute(element, name)))
            }
        };

        let usage = element.attribute("use").map(str::trim);
        Some(AttributeUse {
            declaration,
            required: usage == Some("required"),
            prohibited: usage == Some("prohibited"),
            default: element.attribute("default").map(str::to_owned),
            fixed: element.attribute("fixed").map(str::to_owned),
            notes: notes(element),
        })
    }
}

fn rename(particle: &mut ContentParticle, from: &QName, to: &QName) {
    match &mut particle.term {
        ParticleTerm::GroupRef(name) if name == from => *name = to.clone(),
        ParticleTerm::Sequence(inner) | ParticleTerm::Choice(inner) | ParticleTerm::All(inner) => {
            inner.iter_mut().for_each(|p| rename(p, from, to));
        }
        _ => {}
    }
}

fn is_true(element: &Element, attribute: &str) -> bool {
    matches!(element.attribute(attribute).map(str::trim), Some("true" | "1"))
}

fn facets(restriction: &Element) -> ValueFacets {
    let mut out = ValueFacets::default();
    for child in restriction.children().filter(|c| is_xsd(&c.name)) {
        let Some(value) = child.attribute("value").map(str::to_owned) else { continue };
        let number = value.trim().parse().ok();
        match &*child.name.local {
            "enumeration" => out.enumeration.push(EnumeratedValue { value, doc: notes(child).doc }),
            "pattern" => out.patterns.push(value),
            "length" => out.length = number,
            "minLength" => out.min_length = number,
            "maxLength" => out.max_length = number,
            "minInclusive" => out.min_inclusive = Some(value),
            "maxInclusive" => out.max_inclusive = Some(value),
            "minExclusive" => out.min_exclusive = Some(value),
            "maxExclusive" => out.max_exclusive = Some(value),
            "totalDigits" => out.total_digits = number,
            "fractionDigits" => out.fraction_digits = number,
            _ => {}
        }
    }

    out
}

fn notes(element: &Element) -> AnnotationText {
    let mut out = AnnotationText::default();
    for annotation in element.all("annotation") {
        for doc in annotation.all("documentation") {
            let doc_text = doc.own_text();
            let words: Vec<&str> = doc_text.split_whitespace().collect();
            if out.doc.is_none() && !words.is_empty() {
                out.doc = Some(words.join(" "));
            }
        }
        for info in annotation.all("appinfo") {
            let examples = info.children().filter(|c| &*c.name.local == "example");
            out.examples.extend(examples.map(|e| e.own_text().trim().to_owned()));
        }
    }

    out
}
