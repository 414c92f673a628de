//! Reading a model's text: which payloads it holds, which notes, and what is wrong with it.

use crate::envelope::Broken;
use crate::ids::PayloadName;
use crate::model::StopReason;
use crate::schema::Schemas;
use crate::xml::findings::Finding;

use super::vocabulary::Lexicon;

/// An action of a turn, ready for the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    pub name: PayloadName,
    pub payload: Vec<u8>,
}

/// What came of a turn's text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Reasoning, checklists and progress, in order.
    pub notes: Vec<Vec<u8>>,
    pub actions: Vec<Action>,
    pub broken: Vec<Broken>,
    /// Everything found, for the record.
    pub findings: Vec<Finding>,
    /// The part of it the agent is told.
    pub told: Vec<Finding>,
}

/// Reads the turns of one agent.
pub struct Reader {}

impl Reader {
    pub fn new(lexicon: &Lexicon, schemas: &Schemas) -> Self {
        let _ = (lexicon, schemas);
        Self {}
    }

    pub fn start(&self) -> Started {
        Started {}
    }
}

/// A turn that is being read.
pub struct Started {}

impl Started {
    pub fn push(&mut self, chunk: &str) {
        let _ = chunk;
    }

    pub fn finish(self, raw: &str, stop: StopReason) -> Reading {
        let _ = (raw, stop);
        Reading::default()
    }
}
