//! Whether a description lists all attributes and children that an element may have.

use std::collections::HashSet;

use super::model::{ComplexType, SchemaModel, SchemaType, TypeDerivation, TypeRef};
use super::outline::ElementOutline;
use super::xsd::is_xsd;
use crate::xml::shape::QName;

/// Whether a description lists all attributes and children that an element may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PartCoverage {
    /// The description lists all of them.
    #[default]
    Complete,
    /// The description lists all children. The element may have attributes of any name beyond the
    /// listed ones.
    AnyAttribute,
    /// The description lists the attributes and children that the schema declares for the element.
    /// The element may have others: those of a derived type that it chooses with `xsi:type`.
    DeclaredType,
    /// The description leaves out some of them. A payload that has only the listed parts may be
    /// invalid.
    Partial,
}

/// Returns the coverage of a description that lists all attributes and children of `outline`, the
/// outline of the type `kind`. `extended` contains the result of [`extended_types`].
pub fn coverage_of(
    model: &SchemaModel,
    kind: &TypeRef,
    outline: &ElementOutline,
    extended: &HashSet<QName>,
) -> PartCoverage {
    let is_abstract =
        matches!(model.type_of(kind), Some(SchemaType::Complex(complex)) if complex.is_abstract);
    let is_extended = matches!(kind, TypeRef::Named(name) if extended.contains(name));

    if outline.anything || is_abstract {
        PartCoverage::Partial
    } else if is_extended {
        PartCoverage::DeclaredType
    } else if outline.any_attribute {
        PartCoverage::AnyAttribute
    } else {
        PartCoverage::Complete
    }
}

/// Returns the names of the types that have a derived type with further attributes or children.
/// Leaves out built-in types such as `xs:string`. Otherwise, one type that adds an attribute to
/// `xs:string` would make the parts of every text unknown.
pub fn extended_types(model: &SchemaModel) -> HashSet<QName> {
    let mut extended = HashSet::new();
    for schema_type in model.types.values() {
        let SchemaType::Complex(complex) = schema_type.as_ref() else { continue };
        if !adds_parts(complex) {
            continue;
        }

        // The bases of a type that is already in the set are in the set, too.
        let mut base = complex.derivation.base();
        while let Some(TypeRef::Named(name)) = base
            && !is_xsd(name)
            && extended.insert(name.clone())
        {
            base = match model.types.get(name).map(AsRef::as_ref) {
                Some(SchemaType::Complex(complex)) => complex.derivation.base(),
                _ => None,
            };
        }
    }

    extended
}

/// Whether the type extends its base type by attributes or children.
fn adds_parts(complex: &ComplexType) -> bool {
    let extends =
        matches!(complex.derivation, TypeDerivation::Extends(_) | TypeDerivation::SimpleExtends(_));
    let attributes = &complex.attributes;
    let has_attributes =
        !attributes.uses.is_empty() || !attributes.groups.is_empty() || attributes.open;
    extends && (has_attributes || !complex.content.is_empty())
}
