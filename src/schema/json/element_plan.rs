//! Plans of the JSON form of elements. The plan of an element names the JSON property that holds
//! each attribute, each child and the text.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::json_schema::JsonSchemaForm;
use crate::ids::PayloadName;
use crate::limits;
use crate::schema::model::{
    ContentParticle, ElementDecl, ParticleTerm, SchemaModel, SchemaType, TypeRef,
};
use crate::schema::outline::{ElementOutline, OutlineAttribute, SimpleTypeOutline};
use crate::schema::undescribed_parts::{self, UndescribedParts};
use crate::xml::shape::QName;

/// Name of the property that holds the content of an element as a whole: the text of an element
/// with attributes, a list of ordered children, or a string of XML.
const CONTENT: &str = "content";
/// Maximum length, in characters, of a property name that providers accept.
const KEY_CHARS_MAX: usize = 64;

/// The JSON properties of one element.
#[derive(Debug, Default)]
pub struct ElementPlan {
    pub attributes: Vec<(String, OutlineAttribute)>,
    pub content: PlanContent,
}

#[derive(Debug, Default)]
pub enum PlanContent {
    #[default]
    Nothing,
    Text {
        key: String,
        value: Box<SimpleTypeOutline>,
    },
    /// Each child has a property of its own, with the name of the child. The order of the
    /// properties in the JSON does not matter. If `ordered` is set, the children are written to the
    /// XML in the order of `slots`.
    Keyed {
        slots: Vec<ChildProperty>,
        ordered: bool,
    },
    /// The children are a list of objects, because their order matters. Each object has one
    /// property, which holds a child.
    Listed {
        key: String,
        slots: Vec<ChildProperty>,
        required: bool,
    },
    /// The content mixes text with child elements, or has elements that only a wildcard permits.
    /// JSON holds the content as a string of XML.
    Markup {
        key: String,
        /// Whether a name without a prefix has no namespace in the string of XML. True if the
        /// schema declares child elements for this element and none of them has a namespace. If
        /// false, such a name has the namespace of the element.
        unqualified: bool,
    },
    /// The type is abstract. Each element must name a concrete type with `xsi:type`, which JSON
    /// cannot express.
    Abstract,
}

/// The property for a child element.
#[derive(Debug, Clone)]
pub struct ChildProperty {
    pub key: String,
    pub element: Arc<ElementDecl>,
    pub many: bool,
    pub required: bool,
}

/// The plans for the elements of a schema model. Each named type is planned once.
pub struct ElementPlans<'a> {
    model: &'a SchemaModel,
    form: JsonSchemaForm,
    named: HashMap<QName, Rc<PlannedType>>,
}

/// A type with its plan and its outline. The plan contains the JSON properties. The outline states
/// the permitted content.
pub struct PlannedType {
    pub plan: ElementPlan,
    pub outline: ElementOutline,
    pub parts: UndescribedParts,
    /// JSON Schema that only lists the names of the attributes and children. Made on first use.
    pub undescribed: OnceCell<Json>,
}

impl<'a> ElementPlans<'a> {
    pub fn new(model: &'a SchemaModel, form: JsonSchemaForm) -> Self {
        Self { model, form, named: HashMap::new() }
    }

    pub fn get(&mut self, element: &ElementDecl) -> Rc<PlannedType> {
        let planned = || {
            let (plan, outline) = ElementPlan::of(self.model, element, self.form);
            let parts = undescribed_parts::parts_of(self.model, &outline);
            Rc::new(PlannedType { plan, outline, parts, undescribed: OnceCell::new() })
        };

        match &element.kind {
            TypeRef::Named(name) => {
                Rc::clone(self.named.entry(name.clone()).or_insert_with(planned))
            }
            _ => planned(),
        }
    }
}

impl ElementPlan {
    pub fn of(
        model: &SchemaModel,
        element: &ElementDecl,
        form: JsonSchemaForm,
    ) -> (Self, ElementOutline) {
        let outline = model.outline(&element.kind);
        let content = if is_abstract(model, &element.kind) {
            PlanContent::Abstract
        } else {
            content(model, &outline, form)
        };

        let mut plan = Self { attributes: Vec::new(), content };
        plan.name(&outline);
        (plan, outline)
    }

    /// Whether the JSON form of the element is a plain value instead of an object.
    pub fn is_bare(&self) -> bool {
        let plain = matches!(self.content, PlanContent::Text { .. } | PlanContent::Markup { .. });
        plain && self.attributes.is_empty()
    }

    /// Whether the element has text, and only optional attributes. A model may then write the text
    /// as a plain value, without an object around it.
    pub fn is_text_with_optional_attributes(&self) -> bool {
        let is_text = matches!(self.content, PlanContent::Text { .. });
        is_text && self.attributes.iter().all(|(_, attribute)| !attribute.required)
    }

    /// Gives each property a unique name. The children get their names first, then the attributes,
    /// then the content.
    fn name(&mut self, outline: &ElementOutline) {
        let mut taken: HashSet<String> = HashSet::new();
        if let PlanContent::Keyed { slots, .. } | PlanContent::Listed { slots, .. } =
            &mut self.content
        {
            for slot in slots {
                slot.key = free(&taken, plain(&slot.element.name.local));
                taken.insert(slot.key.clone());
            }
        }

        if !matches!(self.content, PlanContent::Keyed { .. }) {
            taken.clear();
        }

        for attribute in &outline.attributes {
            let local = plain(&attribute.name.local);
            let key = if taken.contains(&local) { format!("attribute.{local}") } else { local };
            let key = free(&taken, key);
            taken.insert(key.clone());
            self.attributes.push((key, attribute.clone()));
        }

        match &mut self.content {
            PlanContent::Text { key, .. }
            | PlanContent::Listed { key, .. }
            | PlanContent::Markup { key, .. } => {
                *key = free(&taken, CONTENT.to_owned());
            }
            _ => {}
        }
    }

    /// Returns the name of the JSON property that holds the whole content of the element: its text,
    /// its list of children, or its content as XML. Returns `None` if there is no such property,
    /// for example because each child has a property of its own.
    pub fn content_key(&self) -> Option<&str> {
        match &self.content {
            PlanContent::Text { key, .. }
            | PlanContent::Listed { key, .. }
            | PlanContent::Markup { key, .. } => Some(key),
            PlanContent::Nothing | PlanContent::Keyed { .. } | PlanContent::Abstract => None,
        }
    }

    /// Returns all properties: the name of each, and whether it is required.
    pub fn properties(&self) -> Vec<(&str, bool)> {
        let attributes = self.attributes.iter();
        let mut all: Vec<(&str, bool)> =
            attributes.map(|(key, attribute)| (key.as_str(), attribute.required)).collect();
        match &self.content {
            PlanContent::Text { key, .. } | PlanContent::Markup { key, .. } => {
                all.push((key, true));
            }
            PlanContent::Listed { key, required, .. } => all.push((key, *required)),
            PlanContent::Keyed { slots, .. } => {
                all.extend(slots.iter().map(|slot| (slot.key.as_str(), slot.required)));
            }
            PlanContent::Nothing | PlanContent::Abstract => {}
        }

        all
    }
}

/// Returns the name of the property that holds the whole content of the payload `name` in a JSON
/// Schema of the given form. Returns `None` if there is no such property.
pub fn content_key(
    model: &SchemaModel,
    name: &PayloadName,
    form: JsonSchemaForm,
) -> Option<String> {
    let (plan, _) = ElementPlan::of(model, model.element(name)?, form);
    plan.content_key().map(str::to_owned)
}

/// Returns the name of the property that holds the child element `child` of the payload `name` in a
/// JSON Schema of the given form. Returns `None` if there is no such property.
pub fn child_key(
    model: &SchemaModel,
    name: &PayloadName,
    child: &str,
    form: JsonSchemaForm,
) -> Option<String> {
    let (plan, _) = ElementPlan::of(model, model.element(name)?, form);
    let PlanContent::Keyed { slots, .. } = plan.content else { return None };
    let slot = slots.into_iter().find(|slot| *slot.element.name.local == *child)?;
    Some(slot.key)
}

/// Replaces each character of `local` that providers refuse in the name of a property.
fn plain(local: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    local.chars().map(allowed).take(KEY_CHARS_MAX).collect()
}

fn free(taken: &HashSet<String>, wanted: String) -> String {
    let mut name = wanted.clone();
    let mut n = 2;
    while taken.contains(&name) {
        let suffix = format!(".{n}");
        let room = KEY_CHARS_MAX.saturating_sub(suffix.len());
        name = wanted.chars().take(room).collect::<String>() + &suffix;
        n += 1;
    }

    name
}

fn is_abstract(model: &SchemaModel, kind: &TypeRef) -> bool {
    matches!(model.type_of(kind), Some(SchemaType::Complex(complex)) if complex.is_abstract)
}

fn content(model: &SchemaModel, outline: &ElementOutline, form: JsonSchemaForm) -> PlanContent {
    let key = String::new();
    if outline.is_text() {
        let any = || SimpleTypeOutline { builtin: "string".into(), ..SimpleTypeOutline::default() };
        return PlanContent::Text {
            key,
            value: Box::new(outline.text.clone().unwrap_or_else(any)),
        };
    }

    let mut walk = ModelWalk {
        model,
        slots: Vec::new(),
        known: HashMap::new(),
        found: Vec::new(),
        form,
        wild: false,
        listed: false,
        ordered: true,
        depth: 0,
    };
    walk.particles(&outline.content, ParticleTurn { required: true, many: false, choice: false });
    if outline.anything || outline.mixed || walk.wild {
        let is_bare = |slot: &ChildProperty| slot.element.name.namespace().is_empty();
        let unqualified = !walk.slots.is_empty() && walk.slots.iter().all(is_bare);
        return PlanContent::Markup { key, unqualified };
    }

    let ModelWalk { slots, listed, ordered, .. } = walk;

    if slots.is_empty() {
        PlanContent::Nothing
    } else if listed {
        let required = slots.iter().any(|slot| slot.required);
        PlanContent::Listed { key, slots: distinct(slots), required }
    } else {
        PlanContent::Keyed { slots, ordered }
    }
}

fn distinct(mut slots: Vec<ChildProperty>) -> Vec<ChildProperty> {
    let mut seen = HashSet::new();
    slots.retain(|slot| seen.insert(slot.element.name.clone()));
    slots
}

/// A walk over a content model. It collects the elements, and determines whether their order may
/// vary.
struct ModelWalk<'a> {
    model: &'a SchemaModel,
    slots: Vec<ChildProperty>,
    /// For each element, the index of its property in `slots`.
    known: HashMap<QName, usize>,
    /// The indices in `slots` of the elements in the order of the walk. An element that occurs
    /// again is listed again, except in forms before [`JsonSchemaForm::Current`].
    found: Vec<usize>,
    form: JsonSchemaForm,
    wild: bool,
    listed: bool,
    ordered: bool,
    depth: usize,
}

#[derive(Clone, Copy)]
struct ParticleTurn {
    required: bool,
    many: bool,
    choice: bool,
}

impl ModelWalk<'_> {
    fn particles(&mut self, particles: &[ContentParticle], place: ParticleTurn) {
        if self.depth > limits::OUTLINE_DEPTH_MAX {
            self.wild = true;
            return;
        }

        self.depth += 1;
        for particle in particles.iter().filter(|particle| particle.max != Some(0)) {
            self.particle(particle, place);
        }

        self.depth -= 1;
    }

    fn particle(&mut self, particle: &ContentParticle, place: ParticleTurn) {
        let repeats = particle.max.is_none_or(|max| max > 1);
        let within = ParticleTurn {
            required: place.required && particle.min > 0,
            many: place.many || repeats,
            ..place
        };

        match &particle.term {
            ParticleTerm::Element(element) => self.add(element.clone(), within),
            ParticleTerm::ElementRef(name) => {
                let all = self.model.standing_for(name);
                self.listed |= within.many && all.len() > 1;
                let within = ParticleTurn { required: within.required && all.len() == 1, ..within };
                all.into_iter().for_each(|element| self.add(element, within));
            }
            ParticleTerm::Sequence(inner) => self.group(inner, repeats, within),
            ParticleTerm::All(inner) => {
                self.ordered = false;
                self.group(inner, repeats, within);
            }
            ParticleTerm::Choice(inner) => {
                let only = inner.len() == 1;
                let within =
                    ParticleTurn { required: within.required && only, choice: !only, ..within };
                self.group(inner, repeats, within);
            }
            ParticleTerm::GroupRef(name) => match self.model.groups.get(name) {
                Some(inner) => self.group(&inner.clone(), repeats, within),
                None => self.wild = true,
            },
            ParticleTerm::Any(_) => self.wild = true,
        }
    }

    /// Processes a group of particles. If the group repeats and contains elements with different
    /// names, their order matters.
    fn group(&mut self, inner: &[ContentParticle], repeats: bool, within: ParticleTurn) {
        let before = self.found.len();
        self.particles(inner, within);
        let found = self.found.get(before..).unwrap_or_default();
        let several = found.iter().any(|slot| Some(slot) != found.first());
        self.listed |= repeats && several;
    }

    fn add(&mut self, element: Arc<ElementDecl>, place: ParticleTurn) {
        let known = self.known.get(&element.name).copied();
        if known.is_none() || self.form == JsonSchemaForm::Current {
            self.found.push(known.unwrap_or(self.slots.len()));
        }

        match known {
            None => {
                let ParticleTurn { required, many, .. } = place;
                self.known.insert(element.name.clone(), self.slots.len());
                self.slots.push(ChildProperty { key: String::new(), element, many, required });
            }
            // Two adjacent children with the same name form a list as well.
            Some(at) if at + 1 == self.slots.len() && !place.choice => {
                if let Some(slot) = self.slots.last_mut() {
                    slot.many = true;
                    slot.required |= place.required;
                }
            }
            Some(_) => self.listed = true,
        }
    }
}

/// Returns the property in `slots` for the child element `name`, with the index of the property.
/// Returns `None` if `slots` has no property for this element.
pub fn named<'s>(slots: &'s [ChildProperty], name: &QName) -> Option<(usize, &'s ChildProperty)> {
    slots.iter().enumerate().find(|(_, slot)| slot.element.name == *name)
}
