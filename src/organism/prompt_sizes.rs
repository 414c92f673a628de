//! Sizes of the agents' prompts, compared with the context windows of their models.

use super::prompt_preview::{self, TurnSelector};
use crate::config::{AgentSpec, Config};
use crate::ids::ListenerName;
use crate::model::{ModelRequest, ModelTool};

/// Size of the prompt and the tools of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSize {
    pub agent: ListenerName,
    /// Tokens of the prompt and the tools, without a thread.
    pub tokens: u64,
    /// Tokens of the context window, if the config states one.
    pub window: Option<u64>,
    /// The payload that takes the most room, with its share of the characters in percent.
    pub largest: Option<(String, usize)>,
}

impl PromptSize {
    /// Whether the prompt leaves no room for a thread and an answer.
    pub fn is_too_large(&self) -> bool {
        self.window.is_some_and(|window| self.tokens >= window)
    }
}

/// The size of each agent's prompt. Leaves out an agent whose prompt cannot be shown before its
/// first task, such as one that takes only goals.
pub fn prompt_sizes(config: &Config) -> Vec<PromptSize> {
    // A prompt beyond its window is refused and could not be counted.
    let mut unbounded = config.clone();
    for model in &mut unbounded.models {
        model.context_window = None;
    }

    let size = |spec: &AgentSpec| {
        let unbounded = unbounded.clone();
        let shown = prompt_preview::preview(unbounded, &spec.name, &TurnSelector::Example).ok()?;
        Some(PromptSize {
            agent: spec.name.clone(),
            tokens: shown.size.schema,
            window: window_of(config, &spec.model),
            largest: largest(config, spec, &shown.request),
        })
    };
    config.agents.iter().filter_map(size).collect()
}

/// The smallest window of a model and of the models that it routes to.
fn window_of(config: &Config, model: &str) -> Option<u64> {
    let spec = config.models.iter().find(|spec| spec.name == *model)?;
    let routes = match &spec.provider {
        crate::config::ProviderConfig::Routed { routes, .. } => routes.as_slice(),
        _ => &[],
    };
    let named = |name: &String| config.models.iter().find(|spec| spec.name == *name);
    let windows = routes.iter().filter_map(named).filter_map(|spec| spec.context_window);
    windows.chain(spec.context_window).min()
}

/// The payload whose description takes the most room in the request, with its share in percent.
fn largest(config: &Config, spec: &AgentSpec, request: &ModelRequest) -> Option<(String, usize)> {
    let text_of = |tool: &ModelTool| tool.description.len() + tool.parameters.to_string().len();
    let tools: usize = request.tools.iter().map(text_of).sum();
    let all = (request.system.len() + tools).max(1);
    let (name, length) = if request.tools.is_empty() {
        let contract = config.contracts.get(&spec.name)?;
        let peers = config.contracts.iter().filter(|one| contract.peers.contains(&one.name));
        let names = peers.flat_map(|peer| &peer.accepts).chain(&contract.accepts);
        let sized = names.map(|name| {
            let example = config.schemas.example(name).unwrap_or_default();
            let outline = config.schemas.outline(name).to_string();
            (name.local.to_string(), outline.len() + example.len())
        });
        sized.max_by_key(|(_, length)| *length)?
    } else {
        let sized = request.tools.iter().map(|tool| (tool.name.clone(), text_of(tool)));
        sized.max_by_key(|(_, length)| *length)?
    };
    Some((name, (length * 100 / all).min(100)))
}
