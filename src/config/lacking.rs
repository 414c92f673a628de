//! Keys of models that are not there, and who cannot do without them.

use super::problem::{Problem, Problems};
use super::{AgentSpec, ModelSpec, Provider};

/// Each with the model it is for.
#[derive(Debug, Default)]
pub struct Lacking(Vec<(String, Problem)>);

impl Lacking {
    pub(super) fn push(&mut self, model: &str, problem: Problem) {
        self.0.push((model.to_owned(), problem));
    }

    /// What is missing where only the turns of `agents` are taken.
    pub fn of_agents<'a>(
        &self,
        agents: impl Iterator<Item = &'a AgentSpec>,
        models: &'a [ModelSpec],
    ) -> Problems {
        let used = used(agents, models);
        self.0.iter().filter(|(model, _)| used.contains(&&**model)).map(told).collect()
    }

    /// What is missing beside the pump: all but the keys of models that only agents elsewhere use.
    pub fn of_pump(&self, agents: &[AgentSpec], models: &[ModelSpec]) -> Problems {
        let far = used(agents.iter().filter(|agent| agent.is_far), models);
        let near = used(agents.iter().filter(|agent| !agent.is_far), models);
        let is_needed = |model: &&str| !far.contains(model) || near.contains(model);
        self.0.iter().filter(|(model, _)| is_needed(&&**model)).map(told).collect()
    }
}

fn told((_, problem): &(String, Problem)) -> Problem {
    problem.clone()
}

/// The models of agents, and those that these lead to.
fn used<'a>(agents: impl Iterator<Item = &'a AgentSpec>, models: &'a [ModelSpec]) -> Vec<&'a str> {
    let mut used: Vec<&str> = agents.map(|agent| agent.model.as_str()).collect();
    for model in models {
        if let (Provider::Routed { routes, .. }, true) =
            (&model.provider, used.contains(&model.name.as_str()))
        {
            used.extend(routes.iter().map(String::as_str));
        }
    }
    used
}
