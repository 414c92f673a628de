//! The types of a schema model, resolved for descriptions.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::model::{SchemaModel, TypeRef};
use super::outline::ElementOutline;
use super::part_coverage::{PartCoverage, coverage_of, extended_types};
use super::undescribed_parts::{UndescribedParts, parts_of};
use crate::xml::shape::QName;

/// The types of a schema model. Each type is resolved only once.
pub struct DescribedTypes<'a> {
    model: &'a SchemaModel,
    named: RefCell<HashMap<QName, Rc<DescribedType>>>,
    extended: OnceCell<HashSet<QName>>,
}

/// A type with the names of the attributes and children that it permits.
pub struct DescribedType {
    pub outline: ElementOutline,
    pub parts: UndescribedParts,
    /// Whether `outline` contains all attributes and children that an element of this type may
    /// have.
    pub coverage: PartCoverage,
}

impl<'a> DescribedTypes<'a> {
    pub fn new(model: &'a SchemaModel) -> Self {
        Self { model, named: RefCell::default(), extended: OnceCell::new() }
    }

    pub fn model(&self) -> &'a SchemaModel {
        self.model
    }

    /// Returns the described type of the elements with the type `kind`.
    pub fn get(&self, kind: &TypeRef) -> Rc<DescribedType> {
        let TypeRef::Named(name) = kind else { return Rc::new(self.resolved(kind)) };
        if let Some(known) = self.named.borrow().get(name) {
            return Rc::clone(known);
        }

        let resolved = Rc::new(self.resolved(kind));
        self.named.borrow_mut().insert(name.clone(), Rc::clone(&resolved));
        resolved
    }

    fn resolved(&self, kind: &TypeRef) -> DescribedType {
        let outline = self.model.outline(kind);
        let parts = parts_of(self.model, &outline);
        let extended = self.extended.get_or_init(|| extended_types(self.model));
        let coverage = coverage_of(self.model, kind, &outline, extended);
        DescribedType { outline, parts, coverage }
    }
}
