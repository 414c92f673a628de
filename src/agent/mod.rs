//! Agents: listeners whose handler is a model.
//!
//! One delivery is one turn: the prompt is rendered from the journal, the model is called, its
//! text is read as it streams, and what it wrote goes back as an outcome. `docs/AGENTS.md` tells
//! it at length. Must not know the pump: an agent meets it as any listener does.

mod fit_prompt;
pub mod history;
mod inputs;
pub mod prompt;
pub mod protocol;
mod report;
mod stream_buffer;
mod turn;
mod turn_note;
mod version;

pub use history::ThreadHistory;
pub use inputs::TurnInputs;
pub use prompt::AgentEnvironment;
pub use report::{FinalFormat, ReportSchema, ReportSchemaError};
pub use turn::{AgentOptions, ModelAgent, TurnContext};
pub use turn_note::PastTurn;
pub use version::RendererVersion;

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
pub enum MemoryScope {
    /// All of it.
    #[default]
    #[serde(rename = "thread")]
    Thread,
    /// Messages that this agent sent or received.
    #[serde(rename = "own")]
    Own,
}

/// How an agent's actions and its final report are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ActionTransport {
    /// Everything as XML in the model's text.
    #[default]
    #[serde(rename = "xml")]
    Xml,
    /// Everything as native calls of the provider.
    #[serde(rename = "native")]
    Native,
    /// Native calls, but for the final report: XML in a slot of the turn.
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

    /// Whether tools are offered as native calls.
    pub const fn is_native(self) -> bool {
        !matches!(self, Self::Xml)
    }
}
