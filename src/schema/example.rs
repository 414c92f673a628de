//! Generates examples of a payload from its schema.
//!
//! Generates several candidates, the most informative first. The caller validates them with libxml2
//! and keeps the first valid one.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::model::{ContentParticle, ElementDecl, ParticleTerm, SchemaModel, SchemaType, TypeRef};
use super::outline::ElementOutline;
use super::sample;
use super::xsd::{XSI, is_xsi_type};
use crate::ids::PayloadName;
use crate::limits;
use crate::xml::element::{Element, Node};
use crate::xml::escape::{escape_attribute, escape_text};
use crate::xml::shape::QName;
use crate::xml::write::XML_NAMESPACE;

/// Maximum depth at which an example contains optional parts.
const OPTIONAL_DEPTH: usize = 3;
/// Number of attempts to generate an example. Each attempt makes one candidate with optional parts
/// and one without. Attempts differ in their values and in the branches of choices.
const ATTEMPTS: usize = 4;

/// Returns texts that may be valid examples of the payload `name`, the most informative first. The
/// caller must validate them in this order, and use the first valid one.
pub fn candidates(model: &SchemaModel, name: &PayloadName) -> Vec<String> {
    let Some(element) = model.element(name) else { return Vec::new() };
    let outline = model.outline(&element.kind);
    let given = element.notes.examples.iter().chain(&outline.notes.examples);
    let mut out: Vec<String> = given.filter(|e| e.starts_with('<')).cloned().collect();

    for optional in [true, false] {
        for attempt in 0..ATTEMPTS {
            let budget = limits::EXAMPLE_ELEMENTS_MAX;
            let mut build = ExampleBuilder { model, optional, attempt, budget, above: Vec::new() };
            if let Some(node) = build.element(element) {
                out.push(written(&node));
            }
        }
    }

    out.dedup();
    out
}

struct ExampleBuilder<'a> {
    model: &'a SchemaModel,
    /// Whether the example contains optional parts.
    optional: bool,
    attempt: usize,
    budget: usize,
    above: Vec<QName>,
}

impl ExampleBuilder<'_> {
    fn element(&mut self, element: &ElementDecl) -> Option<Element> {
        self.budget = self.budget.checked_sub(1)?;
        if self.above.len() > limits::OUTLINE_DEPTH_MAX {
            return None;
        }

        let kind = self.concrete(&element.kind)?;
        let outline = self.model.outline(kind.as_ref().unwrap_or(&element.kind));
        self.above.push(element.name.clone());
        let node = self.content(element, &outline);
        self.above.pop();
        let mut node = node?;
        if let Some(TypeRef::Named(kind)) = kind {
            // The attribute gets its prefix later, when all prefixes are known.
            let kind = PayloadName::from(&kind);
            node.attributes.insert(0, (QName::new(Some(XSI), "type"), kind.to_string()));
        }

        Some(node)
    }

    /// Chooses the concrete type with which an example replaces the type `kind`, if `kind` is
    /// abstract:
    ///
    /// - If `kind` is not abstract, returns `Some(None)`, because the example can use `kind`
    ///   itself.
    /// - If the schema has a concrete type for `kind`, returns this type in `Some(Some(_))`.
    /// - If the schema has no concrete type for `kind`, returns `None`.
    fn concrete(&self, kind: &TypeRef) -> Option<Option<TypeRef>> {
        match (self.model.type_of(kind), kind) {
            (Some(SchemaType::Complex(complex)), TypeRef::Named(name)) if complex.is_abstract => {
                self.model.concrete(name).map(|name| Some(TypeRef::Named(name)))
            }
            _ => Some(None),
        }
    }

    fn content(&mut self, element: &ElementDecl, outline: &ElementOutline) -> Option<Element> {
        let mut node = Element::new(element.name.clone());
        for attribute in &outline.attributes {
            if attribute.required || self.shows_optional() {
                let given = attribute.fixed.clone().or_else(|| attribute.default.clone());
                let name = &attribute.name.local;
                let notes = &attribute.notes;
                let value = given
                    .unwrap_or_else(|| sample::value(&attribute.value, notes, name, self.attempt));
                node.attributes.push((attribute.name.clone(), value));
            }
        }

        if outline.is_text() {
            node = node.with_text(self.text(element, outline));
        } else {
            self.particles(&outline.content, &mut node.content)?;
        }

        Some(node)
    }

    fn text(&self, element: &ElementDecl, outline: &ElementOutline) -> String {
        if let Some(given) = element.fixed.as_ref().or(element.default.as_ref()) {
            return given.clone();
        }
        let any =
            super::outline::SimpleTypeOutline { builtin: "string".into(), ..Default::default() };
        let value = outline.text.as_ref().unwrap_or(&any);
        sample::value(value, &element.notes, &element.name.local, self.attempt)
    }

    fn shows_optional(&self) -> bool {
        self.optional && self.above.len() <= OPTIONAL_DEPTH
    }

    fn particles(&mut self, particles: &[ContentParticle], out: &mut Vec<Node>) -> Option<()> {
        for particle in particles {
            let required = particle.min > 0;
            if !required && !self.shows_optional() {
                continue;
            }
            let times = usize::try_from(particle.min.max(1)).unwrap_or(usize::MAX);
            let before = out.len();
            for _ in 0..times.min(limits::EXAMPLE_ELEMENTS_MAX) {
                if self.term(particle, required, out).is_none() {
                    if required {
                        return None;
                    }
                    // An optional part that cannot be generated is left out.
                    out.truncate(before);
                    break;
                }
            }
        }

        Some(())
    }

    fn term(
        &mut self,
        particle: &ContentParticle,
        required: bool,
        out: &mut Vec<Node>,
    ) -> Option<()> {
        match &particle.term {
            ParticleTerm::Element(element) => {
                if !required && self.above.contains(&element.name) {
                    return None;
                }

                out.push(Node::Element(self.element(element)?));
                Some(())
            }
            ParticleTerm::ElementRef(name) => {
                let mut all = self.model.standing_for(name);
                all.sort_by_key(|element| self.above.contains(&element.name));
                let element = all.into_iter().next()?;
                if !required && self.above.contains(&element.name) {
                    return None;
                }

                out.push(Node::Element(self.element(&element)?));
                Some(())
            }
            ParticleTerm::Sequence(inner) | ParticleTerm::All(inner) => self.particles(inner, out),
            ParticleTerm::Choice(inner) => self.choice(inner, out),
            ParticleTerm::GroupRef(name) => {
                let inner = self.model.groups.get(name)?.clone();
                self.particles(&inner, out)
            }
            ParticleTerm::Any(wildcard) if required => {
                let stranger = stranger(&wildcard.namespace).filter(|_| !wildcard.strict)?;
                out.push(Node::Element(stranger));
                Some(())
            }
            ParticleTerm::Any(_) => None,
        }
    }

    /// Generates one branch of a choice, preferably one without recursion. Each attempt begins with
    /// another branch. Returns `None` if no branch can be generated.
    fn choice(&mut self, branches: &[ContentParticle], out: &mut Vec<Node>) -> Option<()> {
        if branches.is_empty() {
            return Some(());
        }

        let start = self.attempt % branches.len();
        let order = branches.iter().cycle().skip(start).take(branches.len());
        let mut order: Vec<&ContentParticle> = order.collect();
        order.sort_by_key(|particle| self.leads_back(particle));

        for branch in order {
            let before = out.len();
            let particle = ContentParticle { min: branch.min.max(1), ..branch.clone() };
            if self.particles(std::slice::from_ref(&particle), out).is_some() {
                return Some(());
            }
            out.truncate(before);
        }

        None
    }

    fn leads_back(&self, particle: &ContentParticle) -> bool {
        let (elements, wild) = self.model.elements_in(std::slice::from_ref(particle));
        wild || elements.iter().any(|element| self.above.contains(&element.name))
    }
}

/// Returns an example element for a wildcard. `namespace` is the wildcard's attribute of this name:
/// `##any`, `##other`, or a list of permitted namespaces. For a list, the element has the first
/// namespace of the list. Returns `None` if the list begins with `##targetNamespace`.
fn stranger(namespace: &str) -> Option<Element> {
    let namespace = match namespace.split_whitespace().next().unwrap_or("##any") {
        "##any" | "##other" => "urn:example",
        "##local" => "",
        "##targetNamespace" => return None,
        given => given,
    };

    Some(Element::new(QName::new(Some(namespace), "example")))
}

/// The namespace prefixes of an example. The root element declares all of them.
struct PrefixBindings {
    default: String,
    prefixed: Vec<(String, String)>,
}

impl PrefixBindings {
    fn of(root: &Element) -> Self {
        let mut elements = Vec::new();
        let mut others = Vec::new();
        collect(root, &mut elements, &mut others);
        // With a default namespace, an unqualified element would be in that namespace.
        let bare = elements.iter().any(String::is_empty);
        let default = if bare { String::new() } else { root.name.namespace().to_owned() };
        let mut prefixed: Vec<(String, String)> = Vec::new();
        others.extend(elements.into_iter().filter(|ns| *ns != default));

        for namespace in others {
            let known = namespace.is_empty()
                || namespace == XML_NAMESPACE
                || prefixed.iter().any(|(_, bound)| *bound == namespace);
            if !known {
                let prefix = match namespace.as_str() {
                    XSI => "xsi".to_owned(),
                    _ => format!("n{}", prefixed.len() + 1),
                };
                prefixed.push((prefix, namespace));
            }
        }

        Self { default, prefixed }
    }

    fn element(&self, name: &QName) -> String {
        if name.namespace() == self.default { name.local.to_string() } else { self.attribute(name) }
    }

    fn attribute(&self, name: &QName) -> String {
        if name.namespace() == XML_NAMESPACE {
            return format!("xml:{}", name.local);
        }

        match self.prefixed.iter().find(|(_, ns)| *ns == name.namespace()) {
            Some((prefix, _)) => format!("{prefix}:{}", name.local),
            None => name.local.to_string(),
        }
    }
}

fn collect(node: &Element, elements: &mut Vec<String>, others: &mut Vec<String>) {
    elements.push(node.name.namespace().to_owned());
    for (name, value) in &node.attributes {
        others.push(name.namespace().to_owned());
        elements.extend(chosen_type(name, value).map(|kind| kind.namespace().to_owned()));
    }
    node.children().for_each(|child| collect(child, elements, others));
}

/// Returns the type that `value` names, if the attribute `name` is `xsi:type`. Returns `None` for
/// any other attribute.
fn chosen_type(name: &QName, value: &str) -> Option<QName> {
    let kind = is_xsi_type(name).then(|| PayloadName::parse(value).ok()).flatten()?;
    Some(QName::from(&kind))
}

fn written(root: &Element) -> String {
    let bindings = PrefixBindings::of(root);
    let mut declared = String::new();
    if !bindings.default.is_empty() {
        let _ = write!(declared, " xmlns=\"{}\"", escape_attribute(&bindings.default));
    }

    for (prefix, namespace) in &bindings.prefixed {
        let _ = write!(declared, " xmlns:{prefix}=\"{}\"", escape_attribute(namespace));
    }

    let mut out = String::new();
    put(root, &bindings, &declared, 0, &mut out);
    out
}

fn put(node: &Element, bindings: &PrefixBindings, declared: &str, depth: usize, out: &mut String) {
    let name = bindings.element(&node.name);
    let indent = "  ".repeat(depth);
    let _ = write!(out, "{indent}<{name}{declared}");

    for (attribute, value) in &node.attributes {
        let kind = chosen_type(attribute, value).map(|kind| bindings.element(&kind));
        let value = kind.map_or_else(|| escape_attribute(value), Cow::Owned);
        let _ = write!(out, " {}=\"{value}\"", bindings.attribute(attribute));
    }

    let text = node.own_text();
    if node.children().next().is_some() {
        out.push('>');
        for child in node.children() {
            out.push('\n');
            put(child, bindings, "", depth + 1, out);
        }
        let _ = write!(out, "\n{indent}</{name}>");
    } else if text.is_empty() {
        out.push_str("/>");
    } else {
        let _ = write!(out, ">{}</{name}>", escape_text(&text));
    }
}
