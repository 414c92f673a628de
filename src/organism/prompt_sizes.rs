//! Measures the prompts of agents. Compares the size of each prompt with the number of tokens that
//! the context window of the agent's model leaves for a prompt.

use std::sync::Arc;

use super::models::ConfiguredModels;
use super::{Error, prompt_preview, with_core_words};
use crate::agent::RendererVersion;
use crate::agent::protocol::AgentVocabulary;
use crate::agent::system_prompt::prompt_sections;
use crate::config::{AgentSpec, Config};
use crate::ids::ListenerName;
use crate::model::{ModelRequest, ModelTool};

/// Size of the prompt and the tools of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSize {
    pub agent: ListenerName,
    /// Tokens of the prompt and the tools, without any message of a thread.
    pub tokens: u64,
    /// Tokens of the whole first request, with an example task.
    pub with_task: u64,
    /// Tokens of the context window; `None` if the config states no context window.
    pub window: Option<u64>,
    /// Tokens of the context window that an answer of maximum length leaves for the prompt. `None`
    /// if the config states no context window.
    pub room: Option<u64>,
    /// The payload with the longest description in the request, and the share of the request's
    /// characters that this description takes, in percent. `None` if the request describes no
    /// payload.
    pub largest: Option<(String, usize)>,
}

impl PromptSize {
    /// Whether the first request of a thread leaves too little room for an answer.
    pub fn is_too_large(&self) -> bool {
        self.room.is_some_and(|room| self.with_task > room)
    }
}

/// Measures the prompts of each agent, one for each kind of task that the agent may get. Returns
/// the size of the largest prompt of each agent.
///
/// # Errors
///
/// Returns an error if a prompt cannot be rendered.
pub fn prompt_sizes(config: &Config) -> Result<Vec<PromptSize>, Error> {
    // Made once for all agents, because the core words of all workflows are compiled for it.
    let mut unbounded = with_core_words(config.clone())?;
    // A prompt beyond its window is refused and could not be counted.
    for model in &mut unbounded.models {
        model.context_window = None;
    }
    let unbounded = Arc::new(unbounded);

    let models = ConfiguredModels::of(config)?;
    let size = |spec: &AgentSpec| {
        let turns = prompt_preview::first_turns(&unbounded, &spec.name)?;
        let terms = models.named(&spec.model)?.terms;
        let sized = turns.into_iter().map(|turn| (turn.size(), turn));
        let largest = sized.max_by_key(|(size, _)| size.total());
        Ok(largest.map(|(size, turn)| PromptSize {
            agent: spec.name.clone(),
            tokens: size.schema,
            with_task: size.total(),
            window: terms.window(),
            room: terms.room(),
            largest: largest_payload(&unbounded, spec, &turn.request),
        }))
    };
    config.agents.iter().filter_map(|spec| size(spec).transpose()).collect()
}

/// Returns the payload with the longest description in the request, and the length of this
/// description in percent of the request. Returns `None` if the request describes no payload.
fn largest_payload(
    config: &Config,
    spec: &AgentSpec,
    request: &ModelRequest,
) -> Option<(String, usize)> {
    let text_of = |tool: &ModelTool| tool.description.len() + tool.parameters.to_string().len();
    let tools: usize = request.tools.iter().map(text_of).sum();
    let all = (request.system.len() + tools).max(1);
    let (name, length) = if request.tools.is_empty() {
        let contract = config.contracts.get(&spec.name)?;
        let vocabulary = AgentVocabulary::new(contract, &config.contracts, &config.schemas);
        let described = vocabulary.iter().map(|word| {
            let text = prompt_sections::described(word, RendererVersion::CURRENT);
            // This prompt does not contain the payloads of other kinds of tasks.
            let is_shown = request.system.contains(text.trim_end());
            (word.name.local.to_string(), if is_shown { text.len() } else { 0 })
        });
        described.max_by_key(|(_, length)| *length).filter(|(_, length)| *length > 0)?
    } else {
        let sized = request.tools.iter().map(|tool| (tool.name.clone(), text_of(tool)));
        sized.max_by_key(|(_, length)| *length)?
    };
    Some((name, (length * 100 / all).min(100)))
}
