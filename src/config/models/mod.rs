//! Reads the declared language models, each from its table in the config. The submodule `found`
//! then resolves the files, keys and routes that the declarations name.

mod found;

use std::time::Duration;

pub use found::shown;
pub(super) use found::specs;

use crate::limits;
use crate::model::TokenPrice;
use crate::model::http::HttpTimeouts;
use crate::model::remote::{AnswerSettings, PRESETS, ProviderPreset, WireFormat};
use crate::model::router::{RateLimits, RoutingStrategy};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys::did_you_mean_value;
use super::members::token;
use super::read::TableReader;
use super::source_text::SourceRange;
use super::tree::{ExpandedText, Located};

const PLAYBACK: &str = "playback";
/// Config keys of a playback model. They include prices and the context window, so that budgets can
/// be tested without a provider.
const PLAYBACK_KEYS: [&str; 10] = [
    "provider",
    "recording",
    "chunk_delay",
    "context_window",
    "max_tokens",
    "price_in",
    "price_out",
    "price_cached",
    "price_cache_written",
    "currency",
];
const STRATEGIES: [(&str, RoutingStrategy); 3] = [
    ("failover", RoutingStrategy::Failover),
    ("round-robin", RoutingStrategy::RoundRobin),
    ("least-loaded", RoutingStrategy::LeastLoaded),
];

/// A language model as the config declares it.
pub(super) struct DeclaredModel {
    pub name: Located<String>,
    window: Option<(u64, SourceRange)>,
    price: Option<TokenPrice>,
    /// Whether the model's table states any price, even an invalid one.
    has_price: bool,
    kind: Option<DeclaredKind>,
}

enum DeclaredKind {
    Playback {
        recording: Located<ExpandedText>,
        chunk_delay: Option<Duration>,
        max_tokens: Option<u32>,
    },
    Remote(Box<DeclaredRemote>),
    Routed {
        routes: Vec<Located<ExpandedText>>,
        strategy: RoutingStrategy,
        attempts: u32,
    },
}

struct DeclaredRemote {
    preset: &'static ProviderPreset,
    /// Range of the value of `provider` in the source text of the config.
    place: SourceRange,
    model: Located<ExpandedText>,
    base_url: Option<Located<ExpandedText>>,
    insecure: bool,
    key_env: Option<Located<ExpandedText>>,
    key_file: Option<Located<ExpandedText>>,
    settings: AnswerSettings,
    /// Range of the value of `temperature` in the source text of the config; the range of the
    /// model's name if there is no such value.
    temperature_place: SourceRange,
    timeouts: HttpTimeouts,
    pace: RateLimits,
    attempts: u32,
}

pub(super) fn read(name: &Located<String>, read: &mut TableReader<'_>) -> DeclaredModel {
    token(name, read.problems);
    let kind = if read.has("routes") { routed(read) } else { provided(read) };
    let context_window = read.count("context_window", limits::CONTEXT_TOKENS_CEILING);
    let window = context_window.map(|window| (window, read.place_of("context_window")));
    let has_price = read.has("price_in");
    DeclaredModel { name: name.clone(), window, price: price(read), has_price, kind }
}

impl DeclaredModel {
    /// Returns the maximum tokens of prompt and answer together, with the range of this setting in
    /// the config's text. Returns `None` if the config sets no such maximum.
    pub fn window(&self) -> Option<(u64, &SourceRange)> {
        self.window.as_ref().map(|(window, place)| (*window, place))
    }

    /// Returns the maximum tokens of one answer including reasoning; `None` if the config sets no
    /// maximum.
    pub fn answer(&self) -> Option<u64> {
        match self.kind.as_ref()? {
            DeclaredKind::Playback { max_tokens, .. } => max_tokens.map(u64::from),
            DeclaredKind::Remote(remote) => remote.settings.answer().map(u64::from),
            DeclaredKind::Routed { .. } => None,
        }
    }

    /// Returns the price of the model's tokens, with the currency; `None` if the config states no
    /// valid price.
    pub fn price(&self) -> Option<&TokenPrice> {
        self.price.as_ref()
    }

    pub fn has_price(&self) -> bool {
        self.has_price
    }

    /// Returns the key for which the provider refuses requests that force a tool call. Anthropic
    /// refuses such requests if the model has thinking enabled. Other servers of Anthropic's format,
    /// at a `base_url`, may accept them. Returns `None` if nothing is refused.
    pub fn key_against_forced_calls(&self) -> Option<&'static str> {
        match &self.kind {
            Some(DeclaredKind::Remote(remote)) if remote.base_url.is_none() => {
                remote.thinking_key()
            }
            _ => None,
        }
    }

    /// Returns the names of the models to which this model routes calls; empty for a model with a
    /// provider.
    pub fn routes(&self) -> &[Located<ExpandedText>] {
        match &self.kind {
            Some(DeclaredKind::Routed { routes, .. }) => routes,
            _ => &[],
        }
    }
}

impl DeclaredRemote {
    /// Returns the key that enables thinking in Anthropic's format. Returns `None` if thinking is
    /// not enabled, and for other formats.
    fn thinking_key(&self) -> Option<&'static str> {
        if !matches!(self.preset.wire, WireFormat::Anthropic) {
            None
        } else if self.settings.thinking_tokens.is_some() {
            Some("thinking_tokens")
        } else {
            self.settings.reasoning_effort.as_ref().map(|_| "reasoning_effort")
        }
    }
}

/// Returns one note for each base address that ends with the path that organism appends to it.
/// Requests to such an address usually fail, because its path has this part twice.
pub(super) fn address_notes(models: &[DeclaredModel]) -> impl Iterator<Item = String> {
    models.iter().filter_map(|model| {
        let Some(DeclaredKind::Remote(remote)) = &model.kind else { return None };
        let path = remote.preset.wire.path();
        let base_url = remote.base_url.as_ref()?.value.value.trim_end_matches('/');
        base_url.ends_with(path).then(|| {
            format!(
                "{}: `base_url` ends with `{path}`, which is appended to it again; write the part \
                 before it",
                model.name.value
            )
        })
    })
}

/// Reports each temperature that Anthropic refuses. Other servers of Anthropic's format, at a
/// `base_url`, may accept it. Not for stored configs, because earlier versions of the program
/// accepted such temperatures.
pub(super) fn check_temperatures(models: &[DeclaredModel], problems: &mut ConfigProblems) {
    for model in models {
        let Some(DeclaredKind::Remote(remote)) = &model.kind else { continue };
        let is_anthropic = matches!(remote.preset.wire, WireFormat::Anthropic);
        let Some(temperature) = remote.settings.temperature else { continue };
        if !is_anthropic || remote.base_url.is_some() {
            continue;
        }

        let help = match remote.thinking_key() {
            Some(key) if temperature != 1.0 => {
                format!("beside {key}, \"anthropic\" takes only 1; leave temperature out")
            }
            _ if temperature > 1.0 => "\"anthropic\" takes a number from 0 to 1".to_owned(),
            _ => continue,
        };

        let name = &model.name.value;
        let message = format!("`temperature` of model `{name}` is out of range");
        let place = &remote.temperature_place;
        problems.push(ConfigProblem::new(ProblemCode::OutOfRange, place, message).help(help));
    }
}

fn provided(read: &mut TableReader<'_>) -> Option<DeclaredKind> {
    let provider = read.required_text("provider", "\"anthropic\", \"openai\", \"ollama\" …")?;
    let named = provider.value.value.as_str();
    if named == PLAYBACK {
        read.only(&PLAYBACK_KEYS, "playback");
        let max_tokens = read.count32("max_tokens", limits::ANSWER_TOKENS_CEILING);
        let chunk_delay = read.duration("chunk_delay", limits::PLAYBACK_CHUNK_DELAY_MAX);
        let recording = read.required_text("recording", "\"recording.toml\"")?;
        return Some(DeclaredKind::Playback { recording, chunk_delay, max_tokens });
    }

    let Some(preset) = ProviderPreset::named(named) else {
        let known = || std::iter::once(PLAYBACK).chain(PRESETS.iter().map(|preset| preset.name));
        let message = format!("there is no provider `{}`", provider.value.written);
        let help = did_you_mean_value(named, known(), || {
            let all: Vec<_> = known().collect();
            let all = all.join(", ");
            format!("one of {all}; others that speak OpenAI's format are \"openai-compatible\"")
        });
        read.problem(
            ConfigProblem::new(ProblemCode::UnknownChoice, &provider.place, message).help(help),
        );
        return None;
    };

    remote(preset, provider.place, read)
}

fn remote(
    preset: &'static ProviderPreset,
    place: SourceRange,
    read: &mut TableReader<'_>,
) -> Option<DeclaredKind> {
    if read.has("recording") || read.has("strategy") {
        let place = read.place_of(if read.has("recording") { "recording" } else { "strategy" });
        let message = "a model has one of `provider`, `recording` and `routes`";
        let problem = ConfigProblem::new(ProblemCode::UnknownKey, &place, message);
        read.problem(problem.help("recordings are for \"playback\", a strategy is for `routes`"));
    }

    let settings = settings(preset, read);
    let temperature_place = read.place_of_value("temperature");
    let timeouts = timeouts(read);
    let pace = RateLimits {
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
    let key_env = read.text("api_key_env");
    let key_file = read.text("api_key_file");
    if let (Some(_), Some(file)) = (&key_env, &key_file) {
        let message = "the key is named twice";
        let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &file.place, message);
        read.problem(problem.help("keep either `api_key_env` or `api_key_file`"));
    }

    let model = read.required_text("model", "\"what the provider calls it\"")?;
    Some(DeclaredKind::Remote(Box::new(DeclaredRemote {
        preset,
        place,
        model,
        base_url,
        insecure,
        key_env,
        key_file,
        settings,
        temperature_place,
        timeouts,
        pace,
        attempts,
    })))
}

fn routed(read: &mut TableReader<'_>) -> Option<DeclaredKind> {
    let keys = ["routes", "strategy", "attempts", "context_window"];
    read.only(&keys, "a model with routes");
    let routes = read.list("routes");
    if routes.is_empty() && read.is_empty_list("routes") {
        let place = read.place_of("routes");
        read.empty("routes", &place);
    }

    if let Some(excess) = routes.get(limits::ROUTES_MAX) {
        let message = format!("there are more than {} routes", limits::ROUTES_MAX);
        let problem = ConfigProblem::new(ProblemCode::OutOfRange, &excess.place, message);
        read.problem(problem.help("take some out"));
    }

    let strategy = read.choice("strategy", &STRATEGIES).unwrap_or_default();
    let attempts = attempts(read);
    (!routes.is_empty()).then_some(DeclaredKind::Routed { routes, strategy, attempts })
}

fn attempts(read: &mut TableReader<'_>) -> u32 {
    let written = read.count32("attempts", limits::MODEL_ATTEMPTS_CEILING);
    written.unwrap_or(limits::MODEL_ATTEMPTS_DEFAULT)
}

fn settings(preset: &ProviderPreset, read: &mut TableReader<'_>) -> AnswerSettings {
    let settings = AnswerSettings {
        max_tokens: read.count32("max_tokens", limits::ANSWER_TOKENS_CEILING),
        temperature: read.number("temperature", 0.0, 2.0),
        top_p: read.number("top_p", 0.0, 1.0),
        reasoning_effort: read.text("reasoning_effort").map(|text| text.value.value),
        thinking_tokens: read.count32("thinking_tokens", limits::ANSWER_TOKENS_CEILING),
    };

    if settings.thinking_tokens.is_some_and(|tokens| tokens < limits::THINKING_TOKENS_MIN) {
        let place = read.place_of("thinking_tokens");
        let message = format!("`thinking_tokens` is below {}", limits::THINKING_TOKENS_MIN);
        let problem = ConfigProblem::new(ProblemCode::OutOfRange, &place, message);
        read.problem(problem.help("write a larger number, or leave the key out for no thinking"));
    }

    if settings.thinking_tokens.is_some() {
        check_thinking_tokens(preset, settings.reasoning_effort.is_some(), read);
    }

    settings
}

/// Reports `thinking_tokens` for a format that has no such parameter. Also reports it beside
/// `reasoning_effort`, because each of the two keys selects another kind of thinking.
fn check_thinking_tokens(preset: &ProviderPreset, has_effort: bool, read: &mut TableReader<'_>) {
    let place = read.place_of("thinking_tokens");
    let problem = match preset.wire {
        WireFormat::OpenAi(_) => {
            let message = format!("`thinking_tokens` means nothing to \"{}\"", preset.name);
            let problem = ConfigProblem::new(ProblemCode::UnknownKey, &place, message);
            problem.help("write reasoning_effort = \"low\", say")
        }
        WireFormat::Anthropic if has_effort => {
            let message = "thinking is set twice";
            let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &place, message);
            problem.help("keep `reasoning_effort` for models from Claude 4.7 on")
        }
        WireFormat::Anthropic => return,
    };
    read.problem(problem);
}

fn timeouts(read: &mut TableReader<'_>) -> HttpTimeouts {
    let defaults = HttpTimeouts::default();
    let mut timeout = |key: &str, default: Duration| {
        read.duration(key, limits::MODEL_TIMEOUT_CEILING).unwrap_or(default)
    };

    HttpTimeouts {
        connect: timeout("connect_timeout", defaults.connect),
        first_byte: timeout("first_byte_timeout", defaults.first_byte),
        stall: timeout("stall_timeout", defaults.stall),
        total: timeout("total_timeout", defaults.total),
    }
}

fn price(read: &mut TableReader<'_>) -> Option<TokenPrice> {
    let mut price = |key| read.number(key, 0.0, limits::PRICE_CEILING);
    let input = price("price_in");
    let output = price("price_out");
    let cached = price("price_cached");
    let cache_written = price("price_cache_written");
    let currency = read.text("currency");
    let beside = ["price_cached", "price_cache_written", "currency"];
    let beside = beside.into_iter().any(|key| read.has(key));
    let missing = match (read.has("price_in"), read.has("price_out"), read.has("currency")) {
        (true, false, _) => Some(("price_out", "15.0, what a million tokens of an answer cost")),
        (false, true, _) => Some(("price_in", "3.0, what a million tokens of a prompt cost")),
        (false, false, _) if beside => {
            Some(("price_in", "3.0, what a million tokens of any other prompt cost"))
        }
        (true, true, false) => Some(("currency", "\"USD\"")),
        _ => None,
    };

    if let Some((key, example)) = missing {
        read.required(key, example);
    }

    let currency = currency?.value.value;
    Some(TokenPrice { input: input?, output: output?, cached, cache_written, currency })
}
