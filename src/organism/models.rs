//! The config's models, made: each once, so that whoever asks it shares its limits.

use std::collections::HashMap;
use std::sync::Arc;

use super::Error;
use crate::config::{Config, ModelSpec, Provider};
use crate::ids::{ListenerName, ThreadId};
use crate::model::http::Client;
use crate::model::router::{Pace, Routed, Strategy};
use crate::model::{
    self, End, Model, Origin, Playback, Provider as _, Remote, Request, Role, Router, Said,
};

/// Every model of a config, by name.
#[derive(Debug, Default)]
pub struct Models(HashMap<String, Model>);

impl Models {
    pub fn of(config: &Config) -> Result<Self, Error> {
        let client = Client::of_system();
        let mut routes: HashMap<&str, Routed> = HashMap::new();
        for spec in &config.models {
            if let Some(route) = route(spec, &client)? {
                routes.insert(&spec.name, route);
            }
        }
        let made = config.models.iter().map(|spec| {
            let find = |name: &str| {
                let found = routes.get(name).cloned();
                found.ok_or_else(|| failed(spec, format!("its route `{name}` is no model")))
            };
            let model: Model = match &spec.provider {
                Provider::Playback { .. } => find(&spec.name)?.model,
                Provider::Remote { attempts, .. } => {
                    let route = find(&spec.name)?;
                    Arc::new(Router::new(vec![route], Strategy::Failover, *attempts))
                }
                Provider::Routed { routes, strategy, attempts } => {
                    let routes = routes.iter().map(|name| find(name));
                    let routes = routes.collect::<Result<Vec<_>, Error>>()?;
                    Arc::new(Router::new(routes, *strategy, *attempts))
                }
            };
            let model = match &config.recorder {
                Some(recorder) => recorder.around(model),
                None => model,
            };
            Ok((spec.name.clone(), model))
        });
        made.collect::<Result<_, Error>>().map(Self)
    }

    /// One short call to a single model, tried once; nothing of it is recorded. `None` for what
    /// is not asked over the network.
    pub async fn probe(spec: &ModelSpec) -> Option<Result<End, model::Error>> {
        let Provider::Remote { options, .. } = &spec.provider else { return None };
        let remote = Remote::new(options.as_ref().clone(), Client::of_system());
        let origin = Origin { agent: ListenerName::core(), thread: ThreadId::organism(), turn: 1 };
        let request = Request {
            origin,
            system: String::new(),
            messages: vec![Said::text(Role::User, "Say yes.")],
            tools: Vec::new(),
            tool_choice: None,
            one_call: false,
            max_tokens: Some(1),
        };
        Some(remote.call(&request, &mut |_| {}).await)
    }

    pub fn named(&self, name: &str) -> Result<Model, Error> {
        self.0.get(name).cloned().ok_or_else(|| Error::Model {
            model: name.to_owned(),
            detail: "not in the config".to_owned(),
        })
    }
}

/// What a route leads to; nothing for what has routes itself.
fn route(spec: &ModelSpec, client: &Client) -> Result<Option<Routed>, Error> {
    Ok(match &spec.provider {
        Provider::Playback { recording } => {
            let playback = Playback::load(recording).map_err(|e| failed(spec, e.to_string()))?;
            Some(Routed::new(Arc::new(playback), Pace::default()))
        }
        Provider::Remote { options, pace, .. } => {
            let remote = Remote::new(options.as_ref().clone(), client.clone());
            Some(Routed::new(Arc::new(remote), *pace))
        }
        Provider::Routed { .. } => None,
    })
}

fn failed(spec: &ModelSpec, detail: String) -> Error {
    Error::Model { model: spec.name.clone(), detail }
}
