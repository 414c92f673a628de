//! Agents: listeners whose handler is a model.
//!
//! One delivery is one turn: the prompt is rendered from the journal, the model is called, its
//! text is read as it streams, and what it wrote goes back as an outcome. `docs/AGENTS.md` tells
//! it at length. Must not know the pump: an agent meets it as any listener does.

pub mod history;
mod note;
pub mod prompt;
pub mod protocol;
mod turn;

pub use history::History;
pub use note::PastTurn;
pub use prompt::Environment;
pub use turn::{Agent, AgentOptions};

use serde::{Deserialize, Serialize};

use crate::ids::PayloadName;

/// The namespace of what agents write beside their peers' words and the core's.
pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/agent/v1";

/// Its schema.
pub const SCHEMA: &str = include_str!("../../schemas/agent.xsd");

/// The final of an agent that declares none of its own.
pub fn attempt_completion() -> PayloadName {
    PayloadName::new(NAMESPACE, "attempt_completion")
}

/// How much of a thread an agent is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// All of it.
    #[default]
    Thread,
    /// What this agent sent or was sent.
    Own,
}

/// What an agent's final report is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinalFormat {
    #[default]
    Text,
    Markdown,
}
