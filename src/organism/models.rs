//! Builds the models of a config. Each model exists once, so that all its callers share its limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::Error;
use super::agent_spans::TracedModel;
use super::model_metrics::ModelCounts;
use crate::config::{Config, ModelSpec, ProviderConfig};
use crate::ids::{ListenerName, ThreadId};
use crate::limits;
use crate::locks::locked;
use crate::model::http::{HttpClient, ProviderEndpoint};
use crate::model::remote::Options;
use crate::model::router::{RateLimiter, RateLimits, RoutedModel, RoutingStrategy};
use crate::model::{
    self, ChatMessage, ChatRole, ModelProvider as _, ModelRequest, ModelRouter, ModelTerms,
    PlaybackModel, ProviderKey, RemoteModel, RequestOrigin, RouteTerms, SharedModel, StreamEnd,
    UnaskedModel,
};
use crate::trace::SpanTracer;

/// The rate limiters of all models. A reload of the config keeps the limiter of each model that
/// still calls the same model of a provider, because a pause that the provider has requested and
/// the running calls count on.
#[derive(Debug, Default, Clone)]
pub struct ModelLimiters(Arc<Mutex<Vec<ModelLimiterEntry>>>);

type ModelLimiterEntry = (LimitedModel, Weak<RateLimiter>);

/// A model whose calls a limiter limits.
#[derive(Debug, PartialEq, Eq)]
struct LimitedModel {
    /// Name of the model in the config.
    name: String,
    preset: &'static str,
    model: String,
    endpoint: ProviderEndpoint,
    key: Option<ProviderKey>,
}

impl LimitedModel {
    fn of(spec: &ModelSpec, options: &Options) -> Self {
        Self {
            name: spec.name.clone(),
            preset: options.preset.name,
            model: options.model.clone(),
            endpoint: options.endpoint.clone(),
            key: options.key.clone(),
        }
    }
}

impl ModelLimiters {
    /// Returns the limiter of the model `spec`, which keeps its present limits. Makes one with the
    /// limits `pace` if no limiter of this model is in use.
    fn limiter(&self, spec: &ModelSpec, options: &Options, pace: RateLimits) -> Arc<RateLimiter> {
        let limited = LimitedModel::of(spec, options);
        // Held only to find or add an entry.
        let mut known = locked(&self.0);
        known.retain(|(_, limiter)| limiter.strong_count() > 0);
        let found = known.iter().find(|(model, _)| *model == limited);
        if let Some(limiter) = found.and_then(|(_, limiter)| limiter.upgrade()) {
            return limiter;
        }

        let limiter = Arc::new(RateLimiter::new(pace));
        known.push((limited, Arc::downgrade(&limiter)));
        limiter
    }

    /// Gives each limiter the limits of its model in `models`. Call when a config comes into force:
    /// a config whose reload fails must not change the limits.
    pub fn set_limits(&self, models: &[ModelSpec]) {
        let known = locked(&self.0);
        for spec in models {
            let ProviderConfig::Remote { options, pace, .. } = &spec.provider else { continue };
            let limited = LimitedModel::of(spec, options);
            let found = known.iter().filter(|(model, _)| *model == limited);
            for limiter in found.filter_map(|(_, limiter)| limiter.upgrade()) {
                limiter.set_limits(*pace);
            }
        }
    }
}

/// All models of a config, by name.
#[derive(Debug, Default)]
pub struct ConfiguredModels(HashMap<String, ConfiguredModel>);

/// A model with its [`ModelTerms`], which are the prices and token limits of the model's routes.
#[derive(Debug, Clone)]
pub struct ConfiguredModel {
    pub model: SharedModel,
    pub terms: ModelTerms,
}

impl ConfiguredModels {
    pub fn of(config: &Config) -> Result<Self, Error> {
        Self::made(config, &ModelLimiters::default(), &|model, _, _| model)
    }

    /// Builds models as [`ConfiguredModels::of`] does, with the limiters in `limiters`. The built
    /// models also count every call, and record a span of each call whose trace is exported.
    pub fn watched(
        config: &Config,
        limiters: &ModelLimiters,
        counts: &Arc<ModelCounts>,
        tracer: &SpanTracer,
    ) -> Result<Self, Error> {
        let watched = |model: SharedModel, spec: &ModelSpec, term: &RouteTerms| {
            if tracer.is_on() {
                counts.around(Arc::new(TracedModel::new(model, spec, tracer)), spec, term)
            } else {
                counts.around(model, spec, term)
            }
        };
        Self::made(config, limiters, &watched)
    }

    fn made(
        config: &Config,
        limiters: &ModelLimiters,
        around: &dyn Fn(SharedModel, &ModelSpec, &RouteTerms) -> SharedModel,
    ) -> Result<Self, Error> {
        let client = HttpClient::of_system();
        let mut routes: HashMap<&str, (RoutedModel, RouteTerms)> = HashMap::new();
        for spec in &config.models {
            if let Some(mut route) = route(spec, &client, limiters)? {
                let term = term(spec, &route);
                route.model = around(route.model, spec, &term);
                routes.insert(&spec.name, (route, term));
            }
        }

        let made = config.models.iter().map(|spec| {
            let find = |name: &str| {
                let found = routes.get(name).cloned();
                found.ok_or_else(|| failed(spec, format!("its route `{name}` is no model")))
            };
            let (model, terms): (SharedModel, Vec<RouteTerms>) = match &spec.provider {
                ProviderConfig::Playback { .. } => {
                    let (route, term) = find(&spec.name)?;
                    (route.model, vec![term])
                }
                ProviderConfig::Remote { attempts, .. } => {
                    let (route, term) = find(&spec.name)?;
                    let router =
                        ModelRouter::new(vec![route], RoutingStrategy::Failover, *attempts);
                    (Arc::new(router), vec![term])
                }
                ProviderConfig::Routed { routes, strategy, attempts } => {
                    let routes = routes.iter().map(|name| find(name));
                    let routes = routes.collect::<Result<Vec<_>, Error>>()?;
                    let (routes, mut terms): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
                    let own = spec.context_window.into_iter();
                    terms.iter_mut().for_each(|term| {
                        term.context_window = own.clone().chain(term.context_window).min();
                    });
                    (Arc::new(ModelRouter::new(routes, *strategy, *attempts)), terms)
                }
            };
            let is_asked = config.trial.as_ref().is_none_or(|trial| trial.asks_models);
            let model = if is_asked || !uses_network(spec, &config.models) {
                model
            } else {
                UnaskedModel::in_place_of(model)
            };
            let model = match &config.recorder {
                Some(recorder) => recorder.around(model),
                None => model,
            };
            Ok((spec.name.clone(), ConfiguredModel { model, terms: ModelTerms::new(terms) }))
        });
        made.collect::<Result<_, Error>>().map(Self)
    }

    /// Makes one short call to the model `spec`, without retries and without a record. Returns
    /// `None` if the model uses no network.
    pub async fn probe(spec: &ModelSpec) -> Option<Result<StreamEnd, model::Error>> {
        let ProviderConfig::Remote { options, .. } = &spec.provider else { return None };
        let remote = RemoteModel::new(options.as_ref().clone(), HttpClient::of_system());
        let agent = ListenerName::core();
        let thread = ThreadId::organism();
        let origin = RequestOrigin { agent, thread, turn: 1, trace: None };
        let request = ModelRequest {
            origin,
            system: String::new(),
            messages: vec![Arc::new(ChatMessage::text(ChatRole::User, "Say yes."))],
            tools: Vec::new(),
            tool_choice: None,
            one_call: false,
            max_tokens: Some(limits::PROBE_ANSWER_TOKENS_MAX),
            default_max_tokens: None,
        };

        Some(remote.call(&request, &mut |_| {}).await)
    }

    pub fn named(&self, name: &str) -> Result<ConfiguredModel, Error> {
        self.0.get(name).cloned().ok_or_else(|| Error::Model {
            model: name.to_owned(),
            detail: "not in the config".to_owned(),
        })
    }
}

/// Returns the name of the first model that uses the network and has no price; `None` if there is
/// no such model. A budget of money cannot bound the calls of such a model, because their cost is
/// unknown. Searches the models in `names`, and the models of their routes.
pub fn unpriced_model<'m>(
    names: impl IntoIterator<Item = &'m str>,
    models: &'m [ModelSpec],
) -> Option<&'m str> {
    let named = |name: &str| models.iter().find(|model| model.name == name);
    let mut reached = names.into_iter().filter_map(named).flat_map(|spec| match &spec.provider {
        ProviderConfig::Routed { routes, .. } => {
            routes.iter().filter_map(|route| named(route)).collect()
        }
        _ => vec![spec],
    });
    let is_unpriced = |spec: &&ModelSpec| spec.price.is_none() && uses_network(spec, models);
    reached.find(is_unpriced).map(|spec| spec.name.as_str())
}

/// Whether calls of this model, or of one of its routes, go over the network.
pub(super) fn uses_network(spec: &ModelSpec, models: &[ModelSpec]) -> bool {
    match &spec.provider {
        ProviderConfig::Playback { .. } => false,
        ProviderConfig::Remote { .. } => true,
        ProviderConfig::Routed { routes, .. } => {
            let is_remote = |model: &ModelSpec| {
                routes.contains(&model.name)
                    && matches!(model.provider, ProviderConfig::Remote { .. })
            };
            models.iter().any(is_remote)
        }
    }
}

fn term(spec: &ModelSpec, route: &RoutedModel) -> RouteTerms {
    let max_tokens = match &spec.provider {
        ProviderConfig::Playback { max_tokens, .. } => *max_tokens,
        ProviderConfig::Remote { options, .. } => options.answer.answer(),
        ProviderConfig::Routed { .. } => None,
    };

    let context_window = spec.context_window;
    let price = spec.price.clone();
    RouteTerms { route: route.model.route(), context_window, max_tokens, price }
}

/// Builds a model as the target of a route. Returns `None` if the model itself consists of routes.
fn route(
    spec: &ModelSpec,
    client: &HttpClient,
    limiters: &ModelLimiters,
) -> Result<Option<RoutedModel>, Error> {
    Ok(match &spec.provider {
        ProviderConfig::Playback { recording, chunk_delay, .. } => {
            let playback =
                PlaybackModel::load(recording).map_err(|e| failed(spec, e.to_string()))?;
            let playback = playback.paced(chunk_delay.unwrap_or_default());
            Some(RoutedModel::new(Arc::new(playback), RateLimits::default()))
        }
        ProviderConfig::Remote { options, pace, .. } => {
            let remote = RemoteModel::new(options.as_ref().clone(), client.clone());
            let limiter = limiters.limiter(spec, options, *pace);
            Some(RoutedModel { model: Arc::new(remote), limiter })
        }
        ProviderConfig::Routed { .. } => None,
    })
}

fn failed(spec: &ModelSpec, detail: String) -> Error {
    Error::Model { model: spec.name.clone(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KeySource;
    use crate::model::http::HttpTimeouts;
    use crate::model::remote::{AnswerSettings, ProviderPreset};

    fn spec(url: &str, concurrency: u32) -> ModelSpec {
        let options = Options {
            preset: ProviderPreset::named("openai-compatible").unwrap(),
            model: "m-1".to_owned(),
            endpoint: ProviderEndpoint::parse(url, false).unwrap(),
            key: None,
            timeouts: HttpTimeouts::default(),
            answer: AnswerSettings::default(),
        };
        let pace = RateLimits { concurrency, tokens_per_minute: None };
        let provider = ProviderConfig::Remote { options: Box::new(options), pace, attempts: 3 };
        ModelSpec { name: "voice".to_owned(), provider, context_window: None, price: None }
    }

    fn with_key(mut spec: ModelSpec, key: &str) -> ModelSpec {
        let ProviderConfig::Remote { options, .. } = &mut spec.provider else { unreachable!() };
        options.key = Some(ProviderKey::new(key, KeySource::Variable("KEY".to_owned())).unwrap());
        spec
    }

    fn limiter(limiters: &ModelLimiters, spec: &ModelSpec) -> Arc<RateLimiter> {
        let client = HttpClient::of_system();
        route(spec, &client, limiters).unwrap().unwrap().limiter
    }

    #[test]
    fn a_reload_keeps_the_limiter_of_a_model_at_the_same_address_with_the_same_key() {
        let limiters = ModelLimiters::default();
        let url = "https://a.example.com/v1";
        let before = limiter(&limiters, &with_key(spec(url, 2), "key-1"));
        let after = limiter(&limiters, &with_key(spec(url, 6), "key-1"));
        assert!(Arc::ptr_eq(&before, &after));

        let elsewhere = with_key(spec("https://b.example.com/v1", 6), "key-1");
        assert!(!Arc::ptr_eq(&before, &limiter(&limiters, &elsewhere)));
        let other_key = limiter(&limiters, &with_key(spec(url, 6), "key-2"));
        assert!(!Arc::ptr_eq(&before, &other_key));
        assert_eq!(other_key.allowed(), (6.0, None));
    }

    #[test]
    fn limits_change_when_their_config_comes_into_force_and_not_in_a_failed_reload() {
        let limiters = ModelLimiters::default();
        let url = "https://a.example.com/v1";
        let before = limiter(&limiters, &spec(url, 2));
        let after = spec(url, 6);
        let prepared = limiter(&limiters, &after);
        assert_eq!(prepared.allowed(), (2.0, None), "the config is not in force yet");
        drop(prepared);
        assert_eq!(before.allowed(), (2.0, None), "the reload has failed");

        let elsewhere = limiter(&limiters, &spec("https://b.example.com/v1", 3));
        limiters.set_limits(&[after]);
        assert_eq!(before.allowed(), (6.0, None));
        assert_eq!(elsewhere.allowed(), (3.0, None));
    }
}
