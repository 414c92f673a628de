//! Complexity: how deep, how wide and how long things may be. Looks at tags alone, and leaves
//! what is malformed to the next stage.

use super::markup::{Kind, Markup, Piece};
use super::tag::open_tag;
use super::{Breach, Violation};
use crate::limits;

pub(super) fn check(text: &str, start: usize) -> Result<(), Violation> {
    let mut bounds = Bounds::default();
    for piece in Markup::new(text, start) {
        match piece {
            Ok(piece) => bounds.see(text, &piece)?,
            Err(violation) if violation.breach == Breach::Complexity => return Err(violation),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

#[derive(Default)]
struct Bounds {
    elements: usize,
    /// Namespace declarations of each open element; as deep as the text is here.
    declared: Vec<usize>,
    in_scope: usize,
}

impl Bounds {
    fn see(&mut self, text: &str, piece: &Piece) -> Result<(), Violation> {
        match piece.kind {
            Kind::Start => self.open(tag_bounds(text, piece)?, piece.start),
            Kind::Empty => {
                self.open(tag_bounds(text, piece)?, piece.start)?;
                self.close();
                Ok(())
            }
            Kind::End => {
                self.close();
                Ok(())
            }
            Kind::Comment | Kind::Cdata | Kind::Instruction => Ok(()),
        }
    }

    fn open(&mut self, declared: usize, offset: usize) -> Result<(), Violation> {
        self.elements += 1;
        self.declared.push(declared);
        self.in_scope += declared;
        let over = |what: &str, max: usize| {
            Err(Violation::complexity(offset, format!("{what}, where {max} is the most")))
        };
        if self.declared.len() > limits::XML_DEPTH_MAX {
            return over("elements nested deeper", limits::XML_DEPTH_MAX);
        }
        if self.elements > limits::XML_ELEMENTS_MAX {
            return over("more elements", limits::XML_ELEMENTS_MAX);
        }
        if self.in_scope > limits::XML_NAMESPACES_MAX {
            return over("more namespace declarations in scope", limits::XML_NAMESPACES_MAX);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.in_scope -= self.declared.pop().unwrap_or_default();
    }
}

/// Holds one start tag to the limits; gives how many namespaces it declares.
fn tag_bounds(text: &str, tag: &Piece) -> Result<usize, Violation> {
    let length = tag.end - tag.start;
    if tag.values == 0 && length <= limits::XML_NAME_BYTES_MAX {
        return Ok(0);
    }
    let (name, attributes) = open_tag(text, tag);
    name_bounds(name, tag.start)?;
    if length > limits::XML_ATTRIBUTE_BYTES_MAX {
        let max = limits::XML_ATTRIBUTE_BYTES_MAX;
        let message = format!("attributes of {length} bytes, where {max} is the most");
        return Err(Violation::complexity(tag.start, message));
    }
    let mut declared = 0;
    for attribute in attributes.map_while(Result::ok) {
        name_bounds(attribute.name, attribute.offset)?;
        declared += usize::from(attribute.declares().is_some());
    }
    Ok(declared)
}

fn name_bounds(name: &str, offset: usize) -> Result<(), Violation> {
    if name.len() <= limits::XML_NAME_BYTES_MAX {
        return Ok(());
    }
    let max = limits::XML_NAME_BYTES_MAX;
    let message = format!("a name of {} bytes, where {max} is the most", name.len());
    Err(Violation::complexity(offset, message))
}
