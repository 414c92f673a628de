//! Counts the model calls of each agent and model, with their tokens and cost.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::config::{AgentSpec, Config, ModelSpec, ProviderConfig};
use crate::envelope::Money;
use crate::ids::ListenerName;
use crate::locks::locked;
use crate::metrics::{Counter, Histogram, MetricUnit, MetricsPage};
use crate::model::{
    self, CallFuture, ModelRequest, ModelRoute, ModelTerms, OnChunk, RouteTerms, SharedModel,
};

/// Counters of the calls that one agent makes to one model.
#[derive(Debug)]
struct AgentModelCounters {
    answered: Counter,
    failed: Counter,
    cancelled: Counter,
    tokens_in: Counter,
    tokens_out: Counter,
    /// Cost in each currency, in billionths of the currency's unit. There are several currencies if
    /// a reload has changed the currency of the prices.
    // Locked only while numbers are added or written, never across an await.
    costs: Mutex<BTreeMap<String, u64>>,
    took: Histogram,
}

impl AgentModelCounters {
    /// Makes the counters of a model whose prices are in `currency`. `currency` is `None` if the
    /// model has no price.
    fn new(currency: Option<String>) -> Self {
        Self {
            answered: Counter::default(),
            failed: Counter::default(),
            cancelled: Counter::default(),
            tokens_in: Counter::default(),
            tokens_out: Counter::default(),
            costs: Mutex::new(currency.into_iter().map(|currency| (currency, 0)).collect()),
            took: Histogram::of_time(),
        }
    }

    fn add_cost(&self, currency: &str, cost: Money) {
        let mut costs = locked(&self.costs);
        let sum = costs.entry(currency.to_owned()).or_default();
        *sum = sum.saturating_add(cost.0);
    }
}

/// Counters of all model calls.
#[derive(Debug)]
pub struct ModelCounts {
    /// Rows in the order of the config. Each row has an agent, a model and the counters.
    rows: Vec<(ListenerName, String, AgentModelCounters)>,
    index: HashMap<String, HashMap<ListenerName, usize>>,
}

impl ModelCounts {
    /// Makes the counters, with a row for each model of each agent in `agents`. These are the
    /// agents that this process hosts.
    pub fn new<'a>(config: &Config, agents: impl Iterator<Item = &'a AgentSpec>) -> Self {
        let mut rows = Vec::new();
        let mut index = HashMap::<String, HashMap<_, _>>::new();
        for agent in agents {
            let own = config.models.iter().find(|model| model.name == agent.model);
            let routes = match own.map(|model| &model.provider) {
                Some(ProviderConfig::Routed { routes, .. }) => routes.clone(),
                Some(_) => vec![agent.model.clone()],
                None => Vec::new(),
            };
            for model in routes {
                let spec = config.models.iter().find(|spec| spec.name == model);
                let currency = spec.and_then(|spec| spec.price.as_ref());
                let currency = currency.map(|price| price.currency.clone());
                let of_model = index.entry(model.clone()).or_default();
                if of_model.insert(agent.name.clone(), rows.len()).is_none() {
                    rows.push((agent.name.clone(), model, AgentModelCounters::new(currency)));
                }
            }
        }

        Self { rows, index }
    }

    /// Wraps `model` so that its calls are counted.
    pub fn around(
        self: &Arc<Self>,
        model: SharedModel,
        spec: &ModelSpec,
        term: &RouteTerms,
    ) -> SharedModel {
        let terms = ModelTerms::new(vec![term.clone()]);
        Arc::new(MeteredModel { model, name: spec.name.clone(), terms, counts: Arc::clone(self) })
    }

    fn of(&self, model: &str, agent: &ListenerName) -> Option<&AgentModelCounters> {
        let row = self.index.get(model)?.get(agent)?;
        self.rows.get(*row).map(|(.., own)| own)
    }

    pub fn write(&self, page: &mut MetricsPage) {
        let mut calls = page
            .counters("organism_model_calls_total", "Model calls, by agent, model and outcome.");
        for (agent, model, own) in &self.rows {
            let outcomes = [
                ("answered", &own.answered),
                ("failed", &own.failed),
                ("cancelled", &own.cancelled),
            ];
            for (outcome, count) in outcomes {
                let labels = [("agent", agent.as_str()), ("model", model), ("outcome", outcome)];
                calls.counter(&labels, count);
            }
        }

        let mut tokens = page.counters(
            "organism_model_tokens_total",
            "Tokens of answered model calls: of the prompt (in) and of the answer (out).",
        );

        for (agent, model, own) in &self.rows {
            for (direction, count) in [("in", &own.tokens_in), ("out", &own.tokens_out)] {
                let labels =
                    [("agent", agent.as_str()), ("model", model), ("direction", direction)];
                tokens.counter(&labels, count);
            }
        }

        let mut cost = page.counters(
            "organism_model_cost_total",
            "Cost of answered model calls whose model has a price.",
        );

        for (agent, model, own) in &self.rows {
            for (currency, sum) in &*locked(&own.costs) {
                let labels = [("agent", agent.as_str()), ("model", model), ("currency", currency)];
                cost.decimal(&labels, *sum, 9);
            }
        }

        let mut took = page.histograms(
            "organism_model_call_seconds",
            "Seconds from a model request to its answer, failure or cancellation.",
        );
        for (agent, model, own) in &self.rows {
            let labels = [("agent", agent.as_str()), ("model", model)];
            took.histogram(&labels, &own.took, MetricUnit::Seconds);
        }
    }
}

/// A model that counts its calls, with their tokens and cost.
#[derive(Debug)]
struct MeteredModel {
    model: SharedModel,
    name: String,
    terms: ModelTerms,
    counts: Arc<ModelCounts>,
}

/// Guard for the counters of one model call. If the guard is dropped before the model call has
/// ended, the guard counts the model call as cancelled.
struct CallCountGuard<'a> {
    counters: &'a AgentModelCounters,
    /// Counter of the outcome.
    outcome: &'a Counter,
    started: Instant,
}

impl<'a> CallCountGuard<'a> {
    fn new(counters: &'a AgentModelCounters) -> Self {
        Self { counters, outcome: &counters.cancelled, started: Instant::now() }
    }

    /// Counts the model call under `outcome`.
    fn end(mut self, outcome: &'a Counter) {
        self.outcome = outcome;
    }
}

impl Drop for CallCountGuard<'_> {
    fn drop(&mut self) {
        self.counters.took.took(self.started.elapsed());
        self.outcome.increment();
    }
}

impl model::ModelProvider for MeteredModel {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let guard = self.counts.of(&self.name, &request.origin.agent).map(CallCountGuard::new);
            let answered = self.model.call(request, on_chunk).await;
            if let Some(guard) = guard {
                let own = guard.counters;
                match &answered {
                    Ok(end) => {
                        guard.end(&own.answered);
                        own.tokens_in.add(end.usage.tokens_in);
                        own.tokens_out.add(end.usage.tokens_out);
                        let cost = self.terms.cost(&end.route, None, &end.usage);
                        if let Some((currency, cost)) = self.terms.currency().zip(cost) {
                            own.add_cost(currency, cost);
                        }
                    }
                    Err(_) => guard.end(&own.failed),
                }
            }
            answered
        })
    }

    fn settings(&self, route: &ModelRoute) -> Vec<model::WireSettings> {
        self.model.settings(route)
    }

    fn route(&self) -> ModelRoute {
        self.model.route()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_in_a_new_currency_has_a_sum_of_its_own() {
        let own = AgentModelCounters::new(Some("EUR".to_owned()));
        own.add_cost("EUR", Money(5));
        own.add_cost("USD", Money(7));
        own.add_cost("USD", Money(1));
        let costs: Vec<_> = locked(&own.costs).clone().into_iter().collect();
        assert_eq!(costs, [("EUR".to_owned(), 5), ("USD".to_owned(), 8)]);
    }
}
