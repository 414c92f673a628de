//! Builds the grammar of one agent, with which the extractor finds actions in the model's text.

use crate::ids::PayloadName;
use crate::schema::Schemas;
use crate::system::{self, NOTES, Primitive};
use crate::xml::extract::{ActionGrammar, ExtractLimits};
use crate::xml::shape::{ElementShape, QName, ShapeArena, ShapeContent, ShapeId};

use super::vocabulary::AgentVocabulary;

/// Names of elements whose content is reasoning. If the agent has its own payload with the local
/// name `think` or `reasoning`, an element with this name is that payload, and not reasoning.
const REASONING: [&str; 3] = ["thinking", "think", "reasoning"];
/// Name of the element in which prompts show the result of an action.
const RESULT: &str = "tool_result";

/// The elements that all grammars of one agent have in common. The names of slots differ between
/// turns, so [`GrammarWords::with_slots`] adds the slots.
#[derive(Debug, Clone)]
pub struct GrammarWords {
    shapes: ShapeArena,
    reasoning: Vec<String>,
    reserved: Vec<String>,
}

impl GrammarWords {
    pub fn grammar(&self) -> ActionGrammar {
        let reasoning = self.reasoning.clone();
        let reserved = self.reserved.clone();
        ActionGrammar::new(self.shapes.clone(), reasoning, reserved, ExtractLimits::default())
    }

    /// Returns the grammar of one turn. Its root elements are the payloads that the agent may write
    /// and the slots of the turn. A slot is an element with text, into which the model writes a
    /// report. `names` are the names of the slots.
    pub fn with_slots(&self, names: &[String]) -> ActionGrammar {
        let mut words = self.clone();
        for name in names {
            let id = words.shapes.add(ElementShape {
                name: QName::new(None, name),
                attributes: SLOT_ATTRIBUTES.map(|local| QName::new(None, local)).to_vec(),
                content: ShapeContent::Text,
            });
            words.shapes.roots.push(id);
        }

        words.grammar()
    }
}

/// Attributes that models sometimes write on a slot, which is an element for a report. The grammar
/// permits any value of these attributes, because other code checks the values.
const SLOT_ATTRIBUTES: [&str; 2] = ["format", "status"];

/// Builds the grammar for an agent's vocabulary. The core payloads `spawn-thread` and
/// `send-to-thread` contain another payload. The grammar lists all payloads that are permitted
/// inside them, so that the agent may write the inner payloads without namespaces.
pub fn of(vocabulary: &AgentVocabulary, schemas: &Schemas) -> GrammarWords {
    let mut shapes = ShapeArena::default();
    let mut addressable = Vec::new();
    for word in vocabulary.iter().filter(|word| word.name != system::name("thinking")) {
        let Some(id) = schemas.shape(&word.name, &mut shapes) else { continue };
        shapes.roots.push(id);
        if vocabulary.is_addressable(word) {
            addressable.push(id);
        }
    }

    for (parent, child) in [("spawn-thread", Some("initial-payload")), ("send-to-thread", None)] {
        if let Some(shape) = place(&mut shapes, parent, child) {
            shape.content = ShapeContent::Elements(addressable.clone());
        }
    }

    let taken = |local: &str| vocabulary.iter().any(|word| &*word.name.local == local);
    let reasoning = REASONING.into_iter().filter(|name| *name == "thinking" || !taken(name));
    let reasoning = reasoning.map(str::to_owned).collect();
    GrammarWords { shapes, reasoning, reserved: reserved(vocabulary, schemas) }
}

/// Returns the local names of elements that only the core may write.
fn reserved(vocabulary: &AgentVocabulary, schemas: &Schemas) -> Vec<String> {
    let core = schemas.names().filter(|name| &*name.namespace == system::NAMESPACE);
    // A core payload that the config does not allow is unknown to this agent, so an element with
    // its name is not reported as forged.
    let is_written = |name: &&PayloadName| {
        Primitive::WORDS.iter().chain(&NOTES).any(|word| **word == *name.local)
    };
    let only = core.filter(|name| !is_written(name) && vocabulary.get(name).is_none());
    let only = only.map(|name| name.local.to_string());
    only.chain([RESULT.to_owned()]).collect()
}

/// Returns the grammar's entry for the core element `parent`, or for its child element `child` if a
/// child is given. Returns `None` if the grammar lacks the element.
fn place<'s>(
    shapes: &'s mut ShapeArena,
    parent: &str,
    child: Option<&str>,
) -> Option<&'s mut ElementShape> {
    let named = |shapes: &ShapeArena, ids: &[ShapeId], local: &str| {
        ids.iter().copied().find(|id| {
            shapes.get(*id).is_some_and(|shape| {
                shape.name.namespace.as_deref() == Some(system::NAMESPACE)
                    && &*shape.name.local == local
            })
        })
    };

    let roots = shapes.roots.clone();
    let mut id = named(shapes, &roots, parent)?;
    if let Some(child) = child {
        let ShapeContent::Elements(children) = &shapes.get(id)?.content else { return None };
        id = named(shapes, children, child)?;
    }

    shapes.nodes.get_mut(id.0 as usize)
}
