//! Agents: listeners whose handler is a model.
//!
//! One delivery is one turn: the prompt is rendered from the journal, the model is called, its
//! text is read as it streams, and what it wrote goes back as an outcome. `docs/AGENTS.md` tells
//! it at length. Must not know the pump: an agent meets it as any listener does.

pub mod history;
mod note;

pub use history::History;

use serde::{Deserialize, Serialize};

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
