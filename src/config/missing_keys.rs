//! API keys that are missing, with the models that need these keys.

use super::config_problem::{ConfigProblem, ConfigProblems};
use super::{AgentSpec, ModelSpec, ProviderConfig};

/// API keys that are missing, each with the name of its model.
#[derive(Debug, Default)]
pub struct MissingKeys(Vec<(String, ConfigProblem)>);

impl MissingKeys {
    pub(super) fn push(&mut self, model: &str, problem: ConfigProblem) {
        self.0.push((model.to_owned(), problem));
    }

    /// Returns the problem of the missing key of a model; `None` if no key of the model is missing.
    pub fn of_model(&self, model: &str) -> Option<&ConfigProblem> {
        self.0.iter().find(|(name, _)| name == model).map(|(_, problem)| problem)
    }

    /// Returns the missing keys of the models that `agents` use.
    pub fn of_agents<'a>(
        &self,
        agents: impl Iterator<Item = &'a AgentSpec>,
        models: &'a [ModelSpec],
    ) -> ConfigProblems {
        let used = used(agents, models);
        self.0.iter().filter(|(model, _)| used.contains(&&**model)).map(problem_of).collect()
    }

    /// Returns the missing keys that a pump needs. The key of a model is not needed if only agents
    /// on other machines use the model.
    pub fn of_pump(&self, agents: &[AgentSpec], models: &[ModelSpec]) -> ConfigProblems {
        let remote = used(agents.iter().filter(|agent| agent.is_remote), models);
        let local = used(agents.iter().filter(|agent| !agent.is_remote), models);
        let is_needed = |model: &&str| !remote.contains(model) || local.contains(model);
        self.0.iter().filter(|(model, _)| is_needed(&&**model)).map(problem_of).collect()
    }
}

fn problem_of((_, problem): &(String, ConfigProblem)) -> ConfigProblem {
    problem.clone()
}

/// Returns the names of the models that `agents` use. If a model is a router, also returns the
/// models to which it routes calls.
fn used<'a>(agents: impl Iterator<Item = &'a AgentSpec>, models: &'a [ModelSpec]) -> Vec<&'a str> {
    let mut used: Vec<&str> = agents.map(|agent| agent.model.as_str()).collect();
    for model in models {
        if let (ProviderConfig::Routed { routes, .. }, true) =
            (&model.provider, used.contains(&model.name.as_str()))
        {
            used.extend(routes.iter().map(String::as_str));
        }
    }

    used
}
