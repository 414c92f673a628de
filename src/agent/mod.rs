//! Agents: listeners whose handler is a model.
//!
//! In one delivery, an agent takes one turn. It renders the prompt from the journal, calls the
//! model, parses the text while it streams, and returns the parsed payloads as its outcome.
//! `docs/AGENTS.md` describes turns in detail. This module must not use the pump, because an agent
//! is a listener like any other.

mod fit_prompt;
pub mod history;
mod inputs;
pub mod protocol;
mod report;
mod stream_buffer;
pub mod system_prompt;
mod turn;
mod turn_note;
mod version;

pub use history::{AgentMemories, ThreadMemory, UnseenMessage};
pub use inputs::TurnInputs;
pub use report::{FinalFormat, FinalMode, ReportSchema, ReportSchemaError};
pub use system_prompt::{AgentEnvironment, STANDARD_SECTIONS};
pub use turn::{AgentOptions, ModelAgent, TurnServices};
pub use turn_note::PastTurn;
pub use version::RendererVersion;

use serde::{Deserialize, Serialize};

use crate::contract;
use crate::ids::PayloadName;

/// Namespace of the payloads that agents themselves define. Payloads of peers and of the core have
/// other namespaces.
pub const NAMESPACE: &str = contract::AGENT_NAMESPACE;

/// Schema of the namespace [`NAMESPACE`].
pub const SCHEMA: &str = include_str!("../../schemas/agent.xsd");

/// Returns the name of the default final payload, for agents that declare no final payload.
pub fn attempt_completion() -> PayloadName {
    contract::goal_answer()
}

/// How much of a thread an agent sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum MemoryScope {
    /// The whole thread.
    #[default]
    #[serde(rename = "thread")]
    Thread,
    /// Only messages that this agent sent or received.
    #[serde(rename = "own")]
    Own,
}

/// Format in which an agent writes its actions and its final payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ActionTransport {
    /// All payloads are XML in the model's text.
    #[default]
    #[serde(rename = "xml")]
    Xml,
    /// All payloads are native calls, which are tool calls in the API of the provider.
    #[serde(rename = "native")]
    Native,
    /// Actions are native calls. The model writes its final report, or a whole final payload as
    /// XML, into a slot. A slot is an element of the model's text, and its name is valid in one
    /// turn only.
    #[serde(rename = "xml-final")]
    XmlFinal,
}

impl ActionTransport {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Xml => "xml",
            Self::Native => "native",
            Self::XmlFinal => "xml-final",
        }
    }

    /// Whether the model writes the agent's actions as native calls (tool calls).
    pub const fn is_native(self) -> bool {
        !matches!(self, Self::Xml)
    }
}
