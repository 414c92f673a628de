//! Models: recordings, providers with their keys, and those that stand in for each other.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::limits;
use crate::model::http::{BadAddress, Endpoint, Timeouts};
use crate::model::remote::{Asked, Options, PRESETS, Preset, Wire};
use crate::model::router::{Pace, Strategy};
use crate::model::{Key, KeySource};

use super::agents::{digest_of, near_or_rule};
use super::duration;
use super::keys::nearest;
use super::members::token;
use super::problem::{Code, Problem, Problems};
use super::read::Reader;
use super::source::Place;
use super::surroundings::Surroundings;
use super::tree::{At, Text};
use super::{ModelSpec, Price, Provider};

const PLAYBACK: &str = "playback";
const STRATEGIES: [(&str, Strategy); 3] = [
    ("failover", Strategy::Failover),
    ("round-robin", Strategy::RoundRobin),
    ("least-loaded", Strategy::LeastLoaded),
];

/// A model as it was written.
pub(super) struct Model {
    pub name: At<String>,
    context_window: Option<u64>,
    price: Option<Price>,
    kind: Option<Kind>,
}

enum Kind {
    Playback { recording: At<Text> },
    Remote(Box<Remote>),
    Routed { routes: Vec<At<Text>>, strategy: Strategy, attempts: u32 },
}

struct Remote {
    preset: &'static Preset,
    /// Where `provider` stands.
    place: Place,
    model: At<Text>,
    base_url: Option<At<Text>>,
    insecure: bool,
    key_env: Option<At<Text>>,
    key_file: Option<At<Text>>,
    asked: Asked,
    timeouts: Timeouts,
    pace: Pace,
    attempts: u32,
}

pub(super) fn read(name: &At<String>, read: &mut Reader<'_>) -> Model {
    token(name, read.problems);
    let kind = if read.has("routes") { routed(read) } else { provided(read) };
    let context_window = read.count("context_window", limits::CONTEXT_TOKENS_CEILING);
    Model { name: name.clone(), context_window, price: price(read), kind }
}

fn provided(read: &mut Reader<'_>) -> Option<Kind> {
    let provider = read.required_text("provider", "\"anthropic\", \"openai\", \"ollama\" …")?;
    let named = provider.value.value.as_str();
    if named == PLAYBACK {
        read.only(&["provider", "recording", "context_window"], "playback");
        let recording = read.required_text("recording", "\"recording.toml\"")?;
        return Some(Kind::Playback { recording });
    }
    let Some(preset) = Preset::named(named) else {
        let known = || std::iter::once(PLAYBACK).chain(PRESETS.iter().map(|preset| preset.name));
        let message = format!("there is no provider `{}`", provider.value.written);
        let help = match nearest(named, known()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!(
                "one of {}; others that speak OpenAI's format are \"openai-compatible\"",
                known().collect::<Vec<_>>().join(", ")
            ),
        };
        read.problem(Problem::new(Code::UnknownChoice, &provider.place, message).help(help));
        return None;
    };
    remote(preset, provider.place, read)
}

fn remote(preset: &'static Preset, place: Place, read: &mut Reader<'_>) -> Option<Kind> {
    if read.has("recording") || read.has("strategy") {
        let place = read.place_of(if read.has("recording") { "recording" } else { "strategy" });
        let message = "a model has one of `provider`, `recording` and `routes`";
        let problem = Problem::new(Code::UnknownKey, &place, message);
        read.problem(problem.help("recordings are for \"playback\", a strategy is for `routes`"));
    }
    let asked = asked(preset, read);
    let timeouts = timeouts(read);
    let pace = Pace {
        concurrency: read
            .count32("concurrency", limits::MODEL_CONCURRENCY_CEILING)
            .unwrap_or(limits::MODEL_CONCURRENCY_DEFAULT),
        tokens_per_minute: read.count("tokens_per_minute", limits::TOKENS_PER_MINUTE_CEILING),
    };
    let attempts = attempts(read);
    let base_url = match preset.base_url {
        Some(_) => read.text("base_url"),
        None => read.required_text("base_url", "\"https://host/v1\""),
    };
    let insecure = read.flag("insecure").unwrap_or_default();
    let (key_env, key_file) = (read.text("api_key_env"), read.text("api_key_file"));
    if let (Some(_), Some(file)) = (&key_env, &key_file) {
        let message = "the key is named twice";
        let problem = Problem::new(Code::WrittenTwice, &file.place, message);
        read.problem(problem.help("keep either `api_key_env` or `api_key_file`"));
    }
    let model = read.required_text("model", "\"what the provider calls it\"")?;
    Some(Kind::Remote(Box::new(Remote {
        preset,
        place,
        model,
        base_url,
        insecure,
        key_env,
        key_file,
        asked,
        timeouts,
        pace,
        attempts,
    })))
}

fn routed(read: &mut Reader<'_>) -> Option<Kind> {
    let keys = ["routes", "strategy", "attempts", "context_window"];
    read.only(&keys, "a model with routes");
    let routes = read.list("routes");
    if routes.is_empty() && read.is_empty_list("routes") {
        let place = read.place_of("routes");
        read.empty("routes", &place);
    }
    if let Some(excess) = routes.get(limits::ROUTES_MAX) {
        let message = format!("there are more than {} routes", limits::ROUTES_MAX);
        let problem = Problem::new(Code::OutOfRange, &excess.place, message);
        read.problem(problem.help("take some out"));
    }
    let strategy = read.choice("strategy", &STRATEGIES).unwrap_or_default();
    let attempts = attempts(read);
    (!routes.is_empty()).then_some(Kind::Routed { routes, strategy, attempts })
}

fn attempts(read: &mut Reader<'_>) -> u32 {
    let written = read.count32("attempts", limits::MODEL_ATTEMPTS_CEILING);
    written.unwrap_or(limits::MODEL_ATTEMPTS_DEFAULT)
}

fn asked(preset: &Preset, read: &mut Reader<'_>) -> Asked {
    let asked = Asked {
        max_tokens: read.count32("max_tokens", limits::ANSWER_TOKENS_CEILING),
        temperature: read.number("temperature", 0.0, 2.0),
        top_p: read.number("top_p", 0.0, 1.0),
        reasoning_effort: read.text("reasoning_effort").map(|text| text.value.value),
        thinking_tokens: read.count32("thinking_tokens", limits::ANSWER_TOKENS_CEILING),
    };
    if asked.thinking_tokens.is_some_and(|tokens| tokens < limits::THINKING_TOKENS_MIN) {
        let place = read.place_of("thinking_tokens");
        let message = format!("`thinking_tokens` is below {}", limits::THINKING_TOKENS_MIN);
        let problem = Problem::new(Code::OutOfRange, &place, message);
        read.problem(problem.help("write a larger number, or leave the key out for no thinking"));
    }
    let other = match preset.wire {
        Wire::Anthropic => asked.reasoning_effort.as_ref().map(|_| "reasoning_effort"),
        Wire::OpenAi(_) => asked.thinking_tokens.map(|_| "thinking_tokens"),
    };
    if let Some(key) = other {
        let place = read.place_of(key);
        let message = format!("`{key}` means nothing to \"{}\"", preset.name);
        let help = match preset.wire {
            Wire::Anthropic => "write thinking_tokens = 4096, say",
            Wire::OpenAi(_) => "write reasoning_effort = \"low\", say",
        };
        read.problem(Problem::new(Code::UnknownKey, &place, message).help(help));
    }
    asked
}

fn timeouts(read: &mut Reader<'_>) -> Timeouts {
    let or = Timeouts::default();
    let mut one = |key: &str, default: Duration| {
        read.duration(key, limits::MODEL_TIMEOUT_CEILING).unwrap_or(default)
    };
    Timeouts {
        connect: one("connect_timeout", or.connect),
        first_byte: one("first_byte_timeout", or.first_byte),
        stall: one("stall_timeout", or.stall),
        total: one("total_timeout", or.total),
    }
}

fn price(read: &mut Reader<'_>) -> Option<Price> {
    let (input, output) = (read.number("price_in", 0.0, 1e6), read.number("price_out", 0.0, 1e6));
    let currency = read.text("currency");
    let missing = match (read.has("price_in"), read.has("price_out"), read.has("currency")) {
        (true, false, _) => Some(("price_out", "15.0, what a million tokens of an answer cost")),
        (false, true, _) => Some(("price_in", "3.0, what a million tokens of a prompt cost")),
        (true, true, false) => Some(("currency", "\"USD\"")),
        _ => None,
    };
    if let Some((key, example)) = missing {
        read.required(key, example);
    }
    Some(Price { input: input?, output: output?, currency: currency?.value.value })
}

/// Finds the files, keys and models that models name.
pub(super) fn specs(
    models: &[Model],
    directory: &Path,
    around: &Surroundings,
    problems: &mut Problems,
) -> Vec<ModelSpec> {
    let specs = models.iter().filter_map(|model| {
        let provider = match model.kind.as_ref()? {
            Kind::Playback { recording } => playback(recording, directory, problems),
            Kind::Remote(remote) => provider(remote, directory, around, problems)?,
            Kind::Routed { routes, strategy, attempts } => {
                for route in routes {
                    problems_of_route(route, model, models, problems);
                }
                let routes = routes.iter().map(|route| route.value.value.clone()).collect();
                Provider::Routed { routes, strategy: *strategy, attempts: *attempts }
            }
        };
        Some(ModelSpec {
            name: model.name.value.clone(),
            provider,
            context_window: model.context_window,
            price: model.price.clone(),
        })
    });
    specs.collect()
}

fn playback(recording: &At<Text>, directory: &Path, problems: &mut Problems) -> Provider {
    let full = directory.join(&recording.value.value);
    if !full.is_file() {
        let message = format!("there is no recording `{}`", recording.value.written);
        let problem = Problem::new(Code::RecordingMissing, &recording.place, message);
        problems.push(problem.help(near_or_rule(&full)));
    }
    Provider::Playback { recording: full }
}

fn problems_of_route(route: &At<Text>, of: &Model, models: &[Model], problems: &mut Problems) {
    let name = &route.value.value;
    let found = models.iter().find(|model| model.name.value == *name);
    let (message, help) = match found {
        Some(model) if matches!(model.kind, Some(Kind::Routed { .. })) => {
            let message =
                format!("the route `{name}` of model `{}` has routes itself", of.name.value);
            (message, "name the models it leads to instead".to_owned())
        }
        Some(_) => return,
        None => {
            let known: Vec<_> = models.iter().map(|model| model.name.value.as_str()).collect();
            let help = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("the models are {}", known.join(", ")),
            };
            (format!("model `{}` routes to `{name}`, which is no model", of.name.value), help)
        }
    };
    problems.push(Problem::new(Code::UnknownRoute, &route.place, message).help(help));
}

fn provider(
    remote: &Remote,
    directory: &Path,
    around: &Surroundings,
    problems: &mut Problems,
) -> Option<Provider> {
    let key = key(remote, directory, around, problems);
    let (url, place) = match &remote.base_url {
        Some(url) => (url.value.value.as_str(), &url.place),
        None => (remote.preset.base_url?, &remote.place),
    };
    let endpoint = Endpoint::parse(url, remote.insecure).map_err(|bad| {
        let help = match bad {
            BadAddress::Form => "write \"https://host/v1\"; the provider's docs name it",
            BadAddress::Credentials => "keys belong in `api_key_env` or `api_key_file`",
            BadAddress::Query => "write the address without what follows `?` or `#`",
            BadAddress::Plain => "write https, or insecure = true if the network is your own",
        };
        let message = format!("`base_url` {bad}");
        problems.push(Problem::new(Code::BadAddress, place, message).help(help));
    });
    let options = Options {
        preset: remote.preset,
        model: remote.model.value.value.clone(),
        endpoint: endpoint.ok()?,
        key,
        timeouts: remote.timeouts,
        asked: remote.asked.clone(),
    };
    let (pace, attempts) = (remote.pace, remote.attempts);
    Some(Provider::Remote { options: Box::new(options), pace, attempts })
}

/// The key where the config says, or where it usually is.
fn key(
    remote: &Remote,
    directory: &Path,
    around: &Surroundings,
    problems: &mut Problems,
) -> Option<Key> {
    if let Some(file) = &remote.key_file {
        return key_in_file(file, directory, problems);
    }
    if let Some(named) = &remote.key_env {
        return key_in_variable(&named.value.value, &named.place, around, problems);
    }
    let usual = remote.preset.key_variable?;
    let is_needed = remote.preset.needs_key && remote.base_url.is_none();
    match around.variable(usual).is_some_and(|value| !value.is_empty()) || is_needed {
        true => key_in_variable(usual, &remote.place, around, problems),
        false => None,
    }
}

fn key_in_variable(
    name: &str,
    place: &Place,
    around: &Surroundings,
    problems: &mut Problems,
) -> Option<Key> {
    let is_name = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if !is_name {
        let message = "`api_key_env` holds no name of a variable in capitals";
        let help = "write api_key_env = \"MY_API_KEY\", and the key itself into that variable; \
                    a key that stood in a file should be replaced";
        problems.push(Problem::new(Code::BadKey, place, message).help(help));
        return None;
    }
    let set = around.variable(name);
    let Some(value) = set.filter(|value| !value.trim().is_empty()) else {
        let state = if set.is_some() { "empty" } else { "not set" };
        let near = around.variables.keys().map(String::as_str);
        let near = nearest(name, near.filter(|name| name.contains("KEY")));
        let help = match near {
            Some(near) => {
                format!("did you mean {near}? write api_key_env = \"{near}\", or set {name}")
            }
            None => format!(
                "set {name} in the environment, or name another variable in `api_key_env` or a \
                 file in `api_key_file`"
            ),
        };
        let message = format!("the key is missing: the environment variable {name} is {state}");
        problems.push(Problem::new(Code::KeyMissing, place, message).help(help));
        return None;
    };
    let key = Key::new(value, KeySource::Variable(name.to_owned()));
    let bad = |bad| {
        let message = format!("the key in the environment variable {name} {bad}");
        let help = "copy it again, the key alone, without quotes";
        problems.push(Problem::new(Code::BadKey, place, message).help(help));
    };
    key.map_err(bad).ok()
}

fn key_in_file(file: &At<Text>, directory: &Path, problems: &mut Problems) -> Option<Key> {
    let full = directory.join(&file.value.value);
    let text = match super::file::text(&full) {
        Ok(text) => text,
        Err(reason) => {
            let message = format!("the key file `{}` cannot be read: {reason}", file.value.written);
            let problem = Problem::new(Code::KeyMissing, &file.place, message);
            problems.push(problem.help(near_or_rule(&full)));
            return None;
        }
    };
    let bad = |bad| {
        let message = format!("the key in the file `{}` {bad}", file.value.written);
        let help = "the file holds the key alone, on one line";
        problems.push(Problem::new(Code::BadKey, &file.place, message).help(help));
    };
    Key::new(&text, KeySource::File(full)).map_err(bad).ok()
}

/// A model for the record: everything but its key.
pub fn shown(model: &ModelSpec) -> Json {
    let mut shown = match &model.provider {
        Provider::Playback { recording } => {
            json!({ "provider": PLAYBACK, "recording": digest_of(recording) })
        }
        Provider::Remote { options, pace, attempts } => json!({
            "provider": options.preset.name,
            "model": options.model,
            "base_url": options.endpoint.to_string(),
            "max_tokens": options.asked.max_tokens,
            "temperature": options.asked.temperature,
            "top_p": options.asked.top_p,
            "reasoning_effort": options.asked.reasoning_effort,
            "thinking_tokens": options.asked.thinking_tokens,
            "connect_timeout": duration::show(options.timeouts.connect),
            "first_byte_timeout": duration::show(options.timeouts.first_byte),
            "stall_timeout": duration::show(options.timeouts.stall),
            "total_timeout": duration::show(options.timeouts.total),
            "tokens_per_minute": pace.tokens_per_minute,
            "concurrency": pace.concurrency,
            "attempts": attempts,
        }),
        Provider::Routed { routes, strategy, attempts } => {
            let word = STRATEGIES.iter().find(|(_, known)| known == strategy);
            let word = word.map(|(word, _)| *word);
            json!({ "routes": routes, "strategy": word, "attempts": attempts })
        }
    };
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("context_window".to_owned(), model.context_window.into());
        if let Some(price) = &model.price {
            shown.insert("price_in".to_owned(), price.input.into());
            shown.insert("price_out".to_owned(), price.output.into());
            shown.insert("currency".to_owned(), price.currency.clone().into());
        }
        shown.retain(|_, value| !value.is_null());
        shown.shift_insert(0, "name".to_owned(), model.name.clone().into());
    }
    shown
}
