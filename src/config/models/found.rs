//! Resolves the recordings, keys, addresses and routes that the declarations of language models
//! name.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::model::http::{BadAddress, ProviderEndpoint};
use crate::model::playback::{LoadError, PlaybackModel};
use crate::model::remote::Options;
use crate::model::{KeySource, ProviderKey};

use super::super::agents::digest_of;
use super::super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::super::environment::ConfigEnvironment;
use super::super::file::UnreadableFile;
use super::super::keys::{did_you_mean_value, nearest};
use super::super::load::KeyRequirement;
use super::super::sections::DeclaredSections;
use super::super::source_text::SourceRange;
use super::super::tree::{ExpandedText, Located};
use super::super::{MissingKeys, ModelSpec, ProviderConfig, duration, file};
use super::{DeclaredKind, DeclaredModel, DeclaredRemote, PLAYBACK, STRATEGIES};

/// Resolves the files, keys and routes that the models of `sections` name. Adds missing keys to
/// `missing`, because only some commands need the keys. Adds all other problems to `problems`.
pub fn specs(
    sections: &DeclaredSections,
    (directory, keys): (&Path, KeyRequirement),
    around: &ConfigEnvironment,
    missing: &mut MissingKeys,
    problems: &mut ConfigProblems,
) -> Vec<ModelSpec> {
    let is_stored = keys == KeyRequirement::Stored;
    let models = &sections.models;
    let specs = models.iter().filter_map(|model| {
        let provider = match model.kind.as_ref()? {
            DeclaredKind::Playback { recording, chunk_delay, max_tokens } => {
                let recording = recording_file(recording, (directory, is_stored), problems);
                let chunk_delay = *chunk_delay;
                let max_tokens = *max_tokens;
                ProviderConfig::Playback { recording, chunk_delay, max_tokens }
            }
            DeclaredKind::Remote(remote) => {
                let mut own = ConfigProblems::default();
                let provider = provider(remote, directory, around, &mut own);
                let keys = own.take_code(ProblemCode::KeyMissing);
                keys.into_iter().for_each(|problem| missing.push(&model.name.value, problem));
                own.into_iter().for_each(|problem| problems.push(problem));
                provider?
            }
            DeclaredKind::Routed { routes, strategy, attempts } => {
                for route in routes {
                    problems_of_route(route, model, models, problems);
                }

                let routes = routes.iter().map(|route| route.value.value.clone()).collect();
                ProviderConfig::Routed { routes, strategy: *strategy, attempts: *attempts }
            }
        };

        Some(ModelSpec {
            name: model.name.value.clone(),
            provider,
            context_window: model.window().map(|(window, _)| window),
            price: model.price.clone(),
        })
    });
    specs.collect()
}

/// Returns the full path of a recording. Reports a recording that is missing or that cannot be
/// played. `is_stored` states whether the config comes from a journal.
fn recording_file(
    recording: &Located<ExpandedText>,
    (directory, is_stored): (&Path, bool),
    problems: &mut ConfigProblems,
) -> PathBuf {
    let full = directory.join(&recording.value.value);
    let written = &recording.value.written;
    let not_played = |reason: String| {
        let message = format!("the recording `{written}` cannot be played: {reason}");
        let help = "docs/AGENTS.md describes the form of a recording".to_owned();
        (ProblemCode::RecordingUnreadable, message, help)
    };

    let (code, message, help) = match PlaybackModel::load(&full) {
        Ok(playback) => {
            // Earlier versions of the program accepted turn 0, and never played it.
            let agent = playback.agent_of_turn_zero().filter(|_| !is_stored);
            let Some(agent) = agent else { return full };
            not_played(format!("it holds turn 0 of agent `{agent}`, and the first turn is 1"))
        }
        Err(LoadError::Io { source, .. }) => {
            let unreadable = UnreadableFile::new(&full, &source);
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                let message = format!("there is no recording `{written}`");
                (ProblemCode::RecordingMissing, message, unreadable.help)
            } else {
                let message = format!("the recording `{written}` cannot be read: {unreadable}");
                (ProblemCode::RecordingUnreadable, message, unreadable.help)
            }
        }
        Err(error) => not_played(error.reason()),
    };

    problems.push(ConfigProblem::new(code, &recording.place, message).help(help));
    full
}

fn problems_of_route(
    route: &Located<ExpandedText>,
    owner: &DeclaredModel,
    models: &[DeclaredModel],
    problems: &mut ConfigProblems,
) {
    let name = &route.value.value;
    let found = models.iter().find(|model| model.name.value == *name);
    let (message, help) = match found {
        Some(model) if matches!(model.kind, Some(DeclaredKind::Routed { .. })) => {
            let message =
                format!("the route `{name}` of model `{}` has routes itself", owner.name.value);
            (message, "name the models it leads to instead".to_owned())
        }
        Some(_) => return,
        None => {
            let known: Vec<_> = models.iter().map(|model| model.name.value.as_str()).collect();
            let help = did_you_mean_value(name, known.iter().copied(), || {
                format!("the models are {}", known.join(", "))
            });
            (format!("model `{}` routes to `{name}`, which is no model", owner.name.value), help)
        }
    };

    problems.push(ConfigProblem::new(ProblemCode::UnknownRoute, &route.place, message).help(help));
}

fn provider(
    remote: &DeclaredRemote,
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<ProviderConfig> {
    let key = key(remote, directory, around, problems);
    let (url, place) = match &remote.base_url {
        Some(url) => (url.value.value.as_str(), &url.place),
        None => (remote.preset.base_url?, &remote.place),
    };

    let endpoint = ProviderEndpoint::parse(url, remote.insecure).map_err(|bad| {
        let help = match bad {
            BadAddress::Form => "write \"https://host/v1\"; the provider's docs name it",
            BadAddress::Credentials => "keys belong in `api_key_env` or `api_key_file`",
            BadAddress::Query => "write the address without what follows `?` or `#`",
            BadAddress::Plain => "write https, or insecure = true if the network is your own",
        };
        let message = format!("`base_url` {bad}");
        problems.push(ConfigProblem::new(ProblemCode::BadAddress, place, message).help(help));
    });
    let options = Options {
        preset: remote.preset,
        model: remote.model.value.value.clone(),
        endpoint: endpoint.ok()?,
        key,
        timeouts: remote.timeouts,
        answer: remote.settings.clone(),
    };

    let pace = remote.pace;
    let attempts = remote.attempts;
    Some(ProviderConfig::Remote { options: Box::new(options), pace, attempts })
}

/// Reads the key of a provider from the file or variable that the config names. If the config names
/// neither, reads the usual variable of the provider, such as `OPENAI_API_KEY`. If the key is
/// missing or invalid, reports this and returns `None`. If the provider needs no key and the usual
/// variable is unset, returns `None` without a report.
fn key(
    remote: &DeclaredRemote,
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<ProviderKey> {
    if let Some(file) = &remote.key_file {
        return key_in_file(file, directory, problems);
    }

    if let Some(named) = &remote.key_env {
        return key_in_variable(&named.value.value, &named.place, around, problems);
    }

    let usual = remote.preset.key_variable?;
    let is_needed = remote.preset.needs_key && remote.base_url.is_none();
    if around.variable(usual).is_some_and(|value| !value.is_empty()) || is_needed {
        key_in_variable(usual, &remote.place, around, problems)
    } else {
        None
    }
}

fn key_in_variable(
    name: &str,
    place: &SourceRange,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<ProviderKey> {
    let is_name = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if !is_name {
        let message = "`api_key_env` holds no name of a variable in capitals";
        let help = "write api_key_env = \"MY_API_KEY\", and the key itself into that variable; \
                    a key that stood in a file should be replaced";
        problems.push(ConfigProblem::new(ProblemCode::BadKey, place, message).help(help));
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
        problems.push(ConfigProblem::new(ProblemCode::KeyMissing, place, message).help(help));
        return None;
    };

    let key = ProviderKey::new(value, KeySource::Variable(name.to_owned()));
    let bad = |bad| {
        let message = format!("the key in the environment variable {name} {bad}");
        let help = "copy it again, the key alone, without quotes";
        problems.push(ConfigProblem::new(ProblemCode::BadKey, place, message).help(help));
    };

    key.map_err(bad).ok()
}

fn key_in_file(
    named: &Located<ExpandedText>,
    directory: &Path,
    problems: &mut ConfigProblems,
) -> Option<ProviderKey> {
    let text = file::named_text(named, directory, "key file", ProblemCode::KeyMissing, problems)?;

    let bad = |bad| {
        let message = format!("the key in the file `{}` {bad}", named.value.written);
        let help = "the file holds the key alone, on one line";
        problems.push(ConfigProblem::new(ProblemCode::BadKey, &named.place, message).help(help));
    };

    let path = directory.join(&named.value.value);
    ProviderKey::new(&text, KeySource::File(path)).map_err(bad).ok()
}

/// Returns the settings of a model in the form that the journal records, without the API key. For a
/// model that plays back a recording, also leaves out the delay between the parts of an answer.
pub fn shown(model: &ModelSpec) -> Json {
    let mut shown = match &model.provider {
        ProviderConfig::Playback { recording, max_tokens, .. } => json!({
            "provider": PLAYBACK,
            "recording": digest_of(recording),
            "max_tokens": max_tokens,
        }),
        ProviderConfig::Remote { options, pace, attempts } => json!({
            "provider": options.preset.name,
            "model": options.model,
            "base_url": options.endpoint.to_string(),
            "max_tokens": options.answer.max_tokens,
            "temperature": options.answer.temperature,
            "top_p": options.answer.top_p,
            "reasoning_effort": options.answer.reasoning_effort,
            "thinking_tokens": options.answer.thinking_tokens,
            "connect_timeout": duration::show(options.timeouts.connect),
            "first_byte_timeout": duration::show(options.timeouts.first_byte),
            "stall_timeout": duration::show(options.timeouts.stall),
            "total_timeout": duration::show(options.timeouts.total),
            "tokens_per_minute": pace.tokens_per_minute,
            "concurrency": pace.concurrency,
            "attempts": attempts,
        }),
        ProviderConfig::Routed { routes, strategy, attempts } => {
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
            shown.insert("price_cached".to_owned(), price.cached.into());
            shown.insert("price_cache_written".to_owned(), price.cache_written.into());
            shown.insert("currency".to_owned(), price.currency.clone().into());
        }
        shown.retain(|_, value| !value.is_null());
        shown.shift_insert(0, "name".to_owned(), model.name.clone().into());
    }

    shown
}
