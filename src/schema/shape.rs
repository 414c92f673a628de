//! Converts a schema model to shapes. The shape of an element states which children it may have.
//! Shapes are used to extract payloads from a model's text.

use std::collections::HashMap;
use std::sync::Arc;

use super::model::{ElementDecl, SchemaModel, TypeRef};
use crate::ids::PayloadName;
use crate::xml::shape::{ElementShape, QName, ShapeArena, ShapeContent, ShapeId};

/// Adds the shapes of a global element and of all elements within it to `shapes`. Returns the id of
/// the global element's shape; `None` if the model lacks the element.
pub fn add(model: &SchemaModel, name: &PayloadName, shapes: &mut ShapeArena) -> Option<ShapeId> {
    let element = model.element(name)?;
    let mut builder = ShapeBuilder { model, shapes, known: HashMap::new() };
    Some(builder.element(element))
}

/// Key of a shape. Elements with the same name and type share a shape, so a recursive type has a
/// finite number of shapes.
#[derive(PartialEq, Eq, Hash)]
enum ShapeKey {
    Named(QName, QName),
    Inline(QName, usize),
    Anything(QName),
}

struct ShapeBuilder<'a> {
    model: &'a SchemaModel,
    shapes: &'a mut ShapeArena,
    known: HashMap<ShapeKey, ShapeId>,
}

impl ShapeBuilder<'_> {
    fn element(&mut self, element: &ElementDecl) -> ShapeId {
        let name = element.name.clone();
        let key = match &element.kind {
            TypeRef::Named(kind) => ShapeKey::Named(name, kind.clone()),
            TypeRef::Inline(inline) => ShapeKey::Inline(name, Arc::as_ptr(inline) as usize),
            TypeRef::Anything => ShapeKey::Anything(name),
        };

        if let Some(id) = self.known.get(&key) {
            return *id;
        }

        let outline = self.model.outline(&element.kind);
        let id = self.shapes.add(ElementShape {
            name: element.name.clone(),
            attributes: outline.attributes.iter().map(|a| a.name.clone()).collect(),
            content: ShapeContent::Any { unqualified: false },
        });
        self.known.insert(key, id);
        let content = if outline.is_text() {
            ShapeContent::Text
        } else {
            let (children, wild) = self.model.elements_in(&outline.content);
            if wild || outline.mixed || outline.anything {
                let is_bare = |child: &Arc<ElementDecl>| child.name.namespace().is_empty();
                let unqualified = !children.is_empty() && children.iter().all(is_bare);
                ShapeContent::Any { unqualified }
            } else {
                let mut ids: Vec<ShapeId> = Vec::new();
                for child in children {
                    let child = self.element(&child);
                    if !ids.contains(&child) {
                        ids.push(child);
                    }
                }
                ShapeContent::Elements(ids)
            }
        };

        if let Some(shape) = self.shapes.nodes.get_mut(id.0 as usize) {
            shape.content = content;
        }

        id
    }
}
