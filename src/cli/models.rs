//! `organism models`: lists the configured models, states whether their keys are available, and
//! shows the results of test calls.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::config::{
    self, ConfigEnvironment, ConfigProblem, MissingKeys, ModelSpec, ProviderConfig,
};
use crate::organism::ConfiguredModels;
use crate::plural::count;

use super::exit::{CommandExit, CommandFailure};
use super::render::{RenderOutput, put, put_json, table};
use super::{config_error_carets, startup};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show only these models.
    names: Vec<String>,
    /// Config file. Default: ORGANISM_CONFIG, ./organism.toml, or the only ./config/*.toml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask each model for a short answer and print the result.
    #[arg(long = "try")]
    tries: bool,
    /// Write one line of JSON for each model.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let around = ConfigEnvironment::of_process();
    let path = config::locate(args.config.as_deref(), &around);
    let loaded = path.and_then(|path| config::load_without_keys(&path, &around));
    let config = match loaded {
        Ok(config) => config,
        Err(found) => return Ok(config_error_carets::report(&found)),
    };

    let mut models = chosen(&config.models, &args.names)?;
    if args.tries {
        add_routes(&mut models, &config.models);
    }
    let results = if args.tries {
        startup::runtime()?.block_on(probe_all(&models, &config.keys_missing))
    } else {
        models.iter().map(|_| None).collect()
    };

    if args.json {
        let missing = &config.keys_missing;
        let mut lines =
            models.iter().zip(&results).map(|(spec, result)| line(spec, missing, result));
        lines.try_for_each(|line| put_json(&line))?;
    } else {
        print(&models, &config.keys_missing, &results, args.tries)?;
    }

    let failed = results.iter().flatten().any(|result| result.is_err());
    Ok(if failed { CommandExit::Unavailable } else { CommandExit::Done }.into())
}

fn chosen<'a>(models: &'a [ModelSpec], names: &[String]) -> anyhow::Result<Vec<&'a ModelSpec>> {
    if names.is_empty() {
        return Ok(models.iter().collect());
    }

    let found = names.iter().map(|name| {
        let found = models.iter().find(|model| model.name == *name);
        found.ok_or_else(|| {
            let known: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
            let rest = match known.as_slice() {
                [] => "this config has no models".to_owned(),
                known => format!("the models are {}", known.join(", ")),
            };
            CommandFailure::usage(format!("no model `{name}`; {rest}")).into()
        })
    });
    found.collect()
}

/// Adds the models to which the chosen models route calls. A model with routes gets no test call of
/// its own, because each of its routes gets one.
fn add_routes<'a>(chosen: &mut Vec<&'a ModelSpec>, models: &'a [ModelSpec]) {
    let routes = chosen.iter().copied().flat_map(routes_of);
    let routes: Vec<&String> = routes.collect();
    for spec in models.iter().filter(|spec| routes.contains(&&spec.name)) {
        if chosen.iter().all(|other| other.name != spec.name) {
            chosen.push(spec);
        }
    }
}

fn routes_of(spec: &ModelSpec) -> &[String] {
    match &spec.provider {
        ProviderConfig::Routed { routes, .. } => routes,
        _ => &[],
    }
}

/// End of the description of an answer whose provider states no usage, or an impossible one.
const ESTIMATED: &str = "; both are estimates, because the provider does not state them";

/// Result of a test call: a description of the answer, or of the error. `None` for a model that
/// gets no test call: one without network, or one with routes.
type ProbeResult = Option<Result<String, String>>;

/// Makes a test call to each model, one after another, so that no call affects another.
async fn probe_all(models: &[&ModelSpec], missing: &MissingKeys) -> Vec<ProbeResult> {
    let mut all = Vec::new();
    for spec in models {
        let began = Instant::now();
        let result = match missing.of_model(&spec.name) {
            Some(problem) => Some(Err(described(problem))),
            None => ConfiguredModels::probe(spec).await.map(|answer| match answer {
                Ok(end) => {
                    let took = began.elapsed().as_millis();
                    let read = end.usage.tokens_in;
                    let wrote = end.usage.tokens_out;
                    let counted = if end.usage.estimated { ESTIMATED } else { "" };
                    Ok(format!(
                        "answered in {took} ms; {read} tokens read, {wrote} written{counted}"
                    ))
                }
                Err(error) => Err(error.to_string()),
            }),
        };
        all.push(result);
    }

    all
}

/// Describes a missing key, with the same advice as the error with which an organism would fail to
/// start.
fn described(problem: &ConfigProblem) -> String {
    match &problem.help {
        Some(help) => format!("{}; {help}", problem.message),
        None => problem.message.clone(),
    }
}

fn print(
    models: &[&ModelSpec],
    missing: &MissingKeys,
    results: &[ProbeResult],
    has_tried: bool,
) -> anyhow::Result<()> {
    if models.is_empty() {
        note!("this config has no models");
        return Ok(());
    }

    let headers = ["model", "provider", "asks for", "key", "limits"];
    let rows: Vec<_> = models.iter().map(|spec| row(spec, missing)).collect();
    put(&table(&RenderOutput::stdout(false), &headers, &rows))?;
    if has_tried {
        let lines = models.iter().zip(results).map(|(spec, result)| {
            let text = match result {
                Some(Ok(answer)) => answer.clone(),
                Some(Err(why)) => format!("failed: {why}"),
                None => untested(spec),
            };
            format!("{}: {text}\n", spec.name)
        });
        put(&format!("\n{}", lines.collect::<String>()))?;
    }

    Ok(())
}

/// States why a model gets no test call of its own.
fn untested(spec: &ModelSpec) -> String {
    match &spec.provider {
        ProviderConfig::Playback { recording, .. } => {
            format!("not asked, it plays {}", file_name(recording))
        }
        ProviderConfig::Routed { routes, .. } => {
            format!("tested by its routes {}", routes.join(", "))
        }
        ProviderConfig::Remote { .. } => "not asked".to_owned(),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

fn row(spec: &ModelSpec, missing: &MissingKeys) -> Vec<String> {
    let name = spec.name.clone();
    match &spec.provider {
        ProviderConfig::Playback { recording, .. } => {
            vec![
                name,
                "playback".to_owned(),
                file_name(recording),
                "none needed".to_owned(),
                String::new(),
            ]
        }
        ProviderConfig::Routed { routes, attempts, .. } => {
            let limits = count(*attempts, "attempt");
            vec![name, "routes".to_owned(), routes.join(", "), String::new(), limits]
        }
        ProviderConfig::Remote { options, pace, attempts } => {
            let key = match (&options.key, missing.of_model(&spec.name)) {
                (Some(key), _) => format!("from {}", key.source()),
                (None, Some(_)) => "missing".to_owned(),
                (None, None) => "none".to_owned(),
            };

            let mut limits = vec![format!("{} at once", pace.concurrency)];
            limits
                .extend(pace.tokens_per_minute.map(|n| format!("{} a minute", count(n, "token"))));
            limits.push(count(*attempts, "attempt"));
            limits.extend(spec.context_window.map(|n| format!("window {n}")));

            let target = format!("{} at {}", options.model, options.endpoint);
            vec![name, options.preset.name.to_owned(), target, key, limits.join(", ")]
        }
    }
}

fn line(spec: &ModelSpec, missing: &MissingKeys, tried: &ProbeResult) -> Json {
    let mut line = config::shown_model(spec);
    let key = match &spec.provider {
        ProviderConfig::Remote { options, .. } => {
            options.key.as_ref().map(|key| key.source().to_string())
        }
        _ => None,
    };
    let is_missing = missing.of_model(&spec.name).is_some();

    if let Some(line) = line.as_object_mut() {
        line.insert("key".to_owned(), json!(key));
        line.insert("key_missing".to_owned(), json!(is_missing));
        if let Some(tried) = tried {
            let (word, answer) = match tried {
                Ok(answer) => ("answered", answer),
                Err(why) => ("failed", why),
            };
            line.insert("tried".to_owned(), json!({ "how": word, "detail": answer }));
        }
    }

    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_in_a_config_without_models_is_reported_as_such() {
        let error = chosen(&[], &["fast".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "no model `fast`; this config has no models");
    }
}
