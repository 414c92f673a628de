//! Agents: listeners whose handler is a model.
//!
//! One delivery is one turn: the agent renders the prompt from the journal, calls the model, parses
//! the text as it streams, and returns the result as an outcome. `docs/AGENTS.md` describes it in
//! detail. Must not know the pump: an agent is a listener like any other.

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

pub use history::ThreadHistory;
pub use inputs::TurnInputs;
pub use report::{FinalFormat, FinalMode, ReportSchema, ReportSchemaError};
pub use system_prompt::AgentEnvironment;
pub use turn::{AgentOptions, ModelAgent, TurnContext};
pub use turn_note::PastTurn;
pub use version::RendererVersion;

use serde::{Deserialize, Serialize};

use crate::ids::PayloadName;

/// Namespace of the payloads that agents have besides their peers' and the core's.
pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/agent/v1";

/// Schema of this namespace.
pub const SCHEMA: &str = include_str!("../../schemas/agent.xsd");

/// Default final, for agents that declare none of their own.
pub fn attempt_completion() -> PayloadName {
    PayloadName::new(NAMESPACE, "attempt_completion")
}

/// Part of a thread that an agent sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum MemoryScope {
    /// The whole thread.
    #[default]
    #[serde(rename = "thread")]
    Thread,
    /// Messages that this agent sent or received.
    #[serde(rename = "own")]
    Own,
}

/// Format of an agent's actions and of its final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ActionTransport {
    /// All payloads as XML in the model's text.
    #[default]
    #[serde(rename = "xml")]
    Xml,
    /// All payloads as native calls of the provider.
    #[serde(rename = "native")]
    Native,
    /// Actions as native calls, and the final as XML in a slot of the turn.
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
