//! `organism check`: checks a config without starting anything, and prints a summary that fits on a
//! screen.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::agent::protocol::takes_report;
use crate::agent::{FinalMode, attempt_completion};
use crate::clock::Time;
use crate::config::{
    self, Config, ConfigEnvironment, ConfigProblem, ConfigProblems, ProblemCode, ProviderConfig,
    StorageConfig,
};
use crate::contract::{Approval, Contract, MissedPolicy, Role, Schedule, ScheduleTimes};
use crate::journal::{directory_problem, readable_key_warning};
use crate::organism::{PromptSize, project, prompt_sizes};
use crate::plural::{count, form};

use super::render::{RenderOutput, put, wrap};
use super::{CommandExit, config_error_carets, named_config};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Config file. Default: ORGANISM_CONFIG, ./organism.toml, or the only ./config/*.toml.
    file: Option<PathBuf>,
    /// Config file, with the same effect as the argument FILE.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match load(args.config.or(args.file)) {
        Ok(config) if args.json => {
            let sizes = prompt_sizes(&config)?;
            put_line!("{}", serde_json::to_string_pretty(&summary(&config, &sizes)?)?);
            Ok(exit_of(&sizes).into())
        }
        Ok(config) => {
            let sizes = prompt_sizes(&config)?;
            put(&screen(&config, problems(&config, &sizes).iter().count()))?;
            let bounded = sizes.iter().filter(|size| size.window.is_some());
            let rows = bounded.map(|size| (size.agent.to_string(), prompt(size)));
            let mut prompts = String::new();
            section(&mut prompts, "prompts", rows);
            put(&prompts)?;

            for warning in config.schemas.warnings() {
                note!("\nnote: {}:{}: {}", warning.file, warning.line, warning.message);
            }
            for note in &config.notes {
                note!("\nnote: {note}");
            }
            for missing in config.keys_missing_here().iter() {
                note!("\nnote: {}", missing.on_one_line());
            }
            if let Some(problem) = config.checkpoints.as_deref().and_then(directory_problem) {
                note!("\nnote: checkpoints cannot be copied yet: {problem}");
            }

            if let Some(warning) = readable_key_warning(&config.state) {
                note!("\nnote: {warning}");
            }

            if let Some(problem) = start_problem(&config) {
                note!("\nnote: if this config is started: {problem}");
            }

            for problem in problems(&config, &sizes).iter() {
                note!("\nerror: {}", problem.on_one_line());
            }

            Ok(exit_of(&sizes).into())
        }
        Err(found) if args.json => config_error_carets::report_json(&found),
        Err(found) => Ok(config_error_carets::report(&found)),
    }
}

fn load(given: Option<PathBuf>) -> Result<Config, ConfigProblems> {
    let around = ConfigEnvironment::of_process();
    named_config::remember(given.as_deref());
    let path = config::locate(given.as_deref(), &around)?;
    config::load_for_check(&path, &around)
}

/// Returns why the first start of this config would be refused: its project has no journal yet, and
/// another project of the same name has one. Returns `None` if there is no such project.
fn start_problem(config: &Config) -> Option<Cow<'static, str>> {
    let problem = "another project of this name has a journal; `organism adopt --new` begins one \
                   for this config, and `organism adopt` takes over the other if the config was \
                   moved";
    match project::check_to_read(&config.directories()) {
        Err(project::Error::Earlier { .. }) => Some(named_config::with_option(problem)),
        _ => None,
    }
}

/// Returns the code for an invalid config if any prompt does not fit into the context window of its
/// model. Otherwise, returns the code for success.
fn exit_of(sizes: &[PromptSize]) -> CommandExit {
    if sizes.iter().any(PromptSize::is_too_large) { CommandExit::Config } else { CommandExit::Done }
}

/// Returns one problem for each agent whose prompt does not fit into the context window of the
/// agent's model.
fn problems(config: &Config, sizes: &[PromptSize]) -> ConfigProblems {
    let too_large = sizes.iter().filter(|size| size.is_too_large());
    let problems = too_large.filter_map(|size| {
        let place = config.agent_places.get(&size.agent)?;
        let message = format!("the prompt of {} does not fit: {}", size.agent, prompt(size));
        let help = "let the agent's peers accept fewer or smaller payloads, lower max_tokens of \
                    the model, or choose a model with a larger window";
        Some(ConfigProblem::new(ProblemCode::PromptTooLarge, place, message).help(help))
    });
    problems.collect()
}

/// Describes the size of an agent's prompt, and how many tokens the model's context window leaves
/// for the prompt.
fn prompt(size: &PromptSize) -> String {
    let room = size.room.zip(size.window).map(|(room, window)| {
        let whole = size.with_task;
        format!(", {whole} with a task, of {room} beside an answer in a window of {window}")
    });
    let largest = size.largest.as_ref();
    let largest =
        largest.map(|(name, percent)| format!("; the largest part is {name} ({percent} %)"));
    format!(
        "{} tokens of prompt and tools{}{}",
        size.tokens,
        room.unwrap_or_default(),
        largest.unwrap_or_default()
    )
}

/// Builds the summary of the config as JSON. The summary contains the effective config, the sizes
/// of the prompts, the directories on this machine, the next times of the schedules, and all
/// problems, notes and warnings.
fn summary(config: &Config, sizes: &[PromptSize]) -> anyhow::Result<serde_json::Value> {
    let effective: serde_json::Value = serde_json::from_str(&config.text)?;
    let prompts = sizes.iter().map(|size| {
        serde_json::json!({
            "agent": size.agent,
            "tokens": size.tokens,
            "with_task": size.with_task,
            "room": size.room,
            "window": size.window,
            "largest": size.largest.as_ref().map(|(name, _)| name),
        })
    });
    let warnings = config.schemas.warnings().iter().map(|warning| {
        serde_json::json!({
            "code": warning.code,
            "file": warning.file,
            "line": warning.line,
            "message": warning.message,
        })
    });
    let schedules = config.schedules.iter().map(|schedule| {
        serde_json::json!({
            "name": schedule.name.to_string(),
            "next": next_time(&schedule.times).map(|time| time.to_string()),
        })
    });
    Ok(serde_json::json!({
        "ok": !sizes.iter().any(PromptSize::is_too_large),
        "problems": problems(config, sizes).iter().collect::<Vec<_>>(),
        "file": config.file,
        "digest": config.digest,
        "project": config.project.path,
        "data": config.data,
        "state": config.state,
        "checkpoints": config.checkpoints,
        "checkpoints_problem": config.checkpoints.as_deref().and_then(directory_problem),
        "start_problem": start_problem(config),
        "keys_missing": config.keys_missing_here().iter().collect::<Vec<_>>(),
        "warnings": warnings.collect::<Vec<_>>(),
        "notes": config.notes,
        "schedules": schedules.collect::<Vec<_>>(),
        "prompts": prompts.collect::<Vec<_>>(),
        "config": effective,
    }))
}

/// Describes a config that can be loaded. `errors` is the number of its errors, which follow the
/// description.
fn screen(config: &Config, errors: usize) -> String {
    let state =
        if errors == 0 { "is good".to_owned() } else { format!("has {}", count(errors, "error")) };
    let mut out = format!("{} {state}: {}\n", config.name, config.file.display());

    let members = |role: Role| config.contracts.iter().filter(move |c| c.role == role);
    section(&mut out, "clients", members(Role::Client).map(|c| (c.name.to_string(), peers(c))));

    let listeners = members(Role::Listener);
    section(&mut out, "listeners", listeners.map(|c| (c.name.to_string(), listener(config, c))));

    let humans = members(Role::Human).map(|c| (c.name.to_string(), human(c)));
    section(&mut out, "humans", humans);

    let agents = members(Role::Agent);
    section(&mut out, "agents", agents.map(|c| (c.name.to_string(), agent(config, c))));

    let workflows = config.workflows.iter().map(|workflow| {
        let definition = &workflow.definition;
        let goals = definition.goals.len();
        (definition.name.value.to_string(), count(goals, "goal"))
    });
    section(&mut out, "workflows", workflows);

    let schedules = config.schedules.iter().map(|one| (one.name.to_string(), schedule(one)));
    section(&mut out, "schedules", schedules);

    let models = config.models.iter().map(|model| {
        let description = match &model.provider {
            ProviderConfig::Playback { recording, .. } => format!("plays {}", recording.display()),
            ProviderConfig::Remote { options, .. } => {
                format!("{} of {} at {}", options.model, options.preset.name, options.endpoint)
            }
            ProviderConfig::Routed { routes, .. } => format!("one of {}", routes.join(", ")),
        };
        (model.name.clone(), description)
    });
    section(&mut out, "models", models);

    let limits = &config.limits;
    let of_tree = format!(
        "depth {}, {}, {} {} each, {}, {}, {}, {}",
        limits.depth,
        count(limits.threads, "thread"),
        limits.children,
        form(limits.children, "child", "children"),
        count(limits.messages, "message"),
        count(limits.model_calls, "model call"),
        count(limits.tokens, "token"),
        config::show_duration(limits.wall_time),
    );

    let of_tree = match (limits.money, config.models.iter().find_map(|m| m.price.as_ref())) {
        (Some(money), Some(price)) => format!("{of_tree}, {money} {}", price.currency),
        _ => of_tree,
    };

    let of_request = [
        limits
            .per_request_tokens
            .map(|tokens| format!(", {} each request", count(tokens, "token"))),
        limits.per_request_money.map(|money| format!(", {money} each request")),
    ];
    let of_tree = of_request.into_iter().flatten().fold(of_tree, |all, own| all + &own);
    out.push('\n');
    row(&mut out, &format!("{:<12}", "limits"), &of_tree);
    if let Some(stream) = stream(config) {
        row(&mut out, &format!("{:<12}", "record"), &stream);
    }

    // A path is never wrapped, so that it can be copied.
    out.push_str(&format!("{:<12}  {}\n", "journal", config.data.display()));
    out.push_str(&format!("{:<12}  {}\n", "checkpoints", config.state.display()));
    if let Some(copies) = &config.checkpoints {
        out.push_str(&format!("{:<12}  {}\n", "copies", copies.display()));
    }

    out
}

/// Describes the streams of a journal on JetStream; `None` for an embedded journal.
fn stream(config: &Config) -> Option<String> {
    let StorageConfig::JetStream { servers, journal } = &config.storage else { return None };
    let names = match journal.partitions {
        1 => format!("the stream {}-0", journal.stream),
        several => format!("the streams {0}-0 to {0}-{1}", journal.stream, several - 1),
    };

    let at = servers.servers.join(", ");
    Some(format!("{names} at {at}; the journal is a copy, and made anew where it is not there"))
}

fn section(out: &mut String, title: &str, rows: impl Iterator<Item = (String, String)>) {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }

    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    out.push_str(&format!("\n{title}\n"));
    for (name, text) in rows {
        row(out, &format!("  {name:<width$}"), &text);
    }
}

/// Appends a row with a name and a text to `out`. Wraps the text to the width of the output.
fn row(out: &mut String, name: &str, text: &str) {
    let left = name.chars().count() + 2;
    let columns = RenderOutput::stdout(false).columns;
    for (index, line) in wrap(text, columns.saturating_sub(left)).iter().enumerate() {
        let before = if index == 0 { name } else { "" };
        out.push_str(&format!("{before:<width$}  {line}\n", width = left - 2));
    }
}

fn peers(contract: &Contract) -> String {
    if contract.peers.is_empty() {
        return "addresses no listener".to_owned();
    }
    let names: Vec<_> = contract.peers.iter().map(ToString::to_string).collect();
    format!("may address {}", names.join(", "))
}

/// Returns when a schedule with fixed times of day runs next. Returns `None` for a schedule with an
/// interval, because the interval begins only at the start of the pump.
fn next_time(times: &ScheduleTimes) -> Option<Time> {
    match times {
        ScheduleTimes::Every(_) => None,
        ScheduleTimes::Daily(_) => Some(times.after(Time::now())),
    }
}

/// Describes a schedule: its times, the time of the next run if it is known, its client, and how it
/// handles missed times and several runs at once.
fn schedule(schedule: &Schedule) -> String {
    let times = match (&schedule.times, next_time(&schedule.times)) {
        (ScheduleTimes::Every(interval), _) => {
            format!("every {}", config::show_duration(*interval))
        }
        (daily, Some(next)) => format!("{daily}, next at {next}"),
        (daily, None) => daily.to_string(),
    };

    let most = match schedule.concurrency {
        1 => String::new(),
        most => format!("; up to {most} runs at once"),
    };
    let missed = match schedule.missed {
        MissedPolicy::Once => "a missed time is made up once",
        MissedPolicy::Skip => "a missed time is skipped",
    };
    format!("{times}; sends as {}; {missed}{most}", schedule.client)
}

/// Describes which payloads a listener accepts. If the contract lists no payloads, only workflows
/// call the listener. Workflows send questions to a person, and goals to any other listener.
fn takes(contract: &Contract) -> String {
    if contract.accepts.is_empty() {
        let calls = if contract.role == Role::Human { "questions" } else { "goals" };
        return format!("takes {calls} of workflows");
    }

    let names: Vec<_> = contract.accepts.iter().map(|name| name.local.to_string()).collect();
    format!("takes {}", names.join(", "))
}

fn listener(config: &Config, contract: &Contract) -> String {
    let process = config.processes.iter().find(|process| process.name == contract.name);
    let program = process.and_then(|process| process.command.first());
    let by = match program {
        Some(program) => format!("; runs {program}"),
        None if config.remotes.contains(&contract.name) => {
            format!("; on NATS, {} at once", contract.concurrency)
        }
        None => String::new(),
    };

    let times = process.filter(|process| process.instances > 1);
    let times =
        times.map(|process| format!(" ({} instances)", process.instances)).unwrap_or_default();
    let peers =
        if contract.peers.is_empty() { String::new() } else { format!("; {}", peers(contract)) };

    // Either `replies` was forgotten, or the program only takes payloads in. A payload that the
    // listener forwards to a peer is among its `replies`, too.
    let is_silent = contract.replies.is_empty() && !contract.accepts.is_empty();
    let silent = if is_silent { "; replies with no payload" } else { "" };

    format!("{}{silent}{peers}{by}{times}{}", takes(contract), approval(contract))
}

fn approval(contract: &Contract) -> String {
    let which = match contract.approval {
        Approval::Never => return String::new(),
        Approval::Dangerous => "; needs an approval unless is_dangerous=\"false\"",
        Approval::Always => "; needs an approval",
    };
    let shown = contract.previews.map(config::show_duration);
    let shown = shown.map_or(String::new(), |time| format!(", and shows a preview within {time}"));
    format!("{which}{}{shown}", within(contract))
}

fn within(contract: &Contract) -> String {
    let patience = contract.patience.map(config::show_duration);
    patience.map_or(String::new(), |patience| format!(" within {patience}"))
}

fn human(contract: &Contract) -> String {
    format!("{}; a person, answers{}", takes(contract), within(contract))
}

fn agent(config: &Config, contract: &Contract) -> String {
    let spec = config.agents.iter().find(|agent| agent.name == contract.name);
    let model = spec.map(|agent| format!("; model {}", agent.model)).unwrap_or_default();
    let last = spec.map(|agent| {
        let name = &agent.final_name;
        // Any other final has the format of its schema, unless the final takes a report.
        let is_report =
            *name == attempt_completion() || takes_report(&config.schemas.describe(name));
        let format = if is_report {
            format!(", which holds {}", agent.final_format.words())
        } else {
            String::new()
        };
        let by = match agent.final_by {
            FinalMode::Text => ", or with the text of a turn",
            FinalMode::Action => "",
        };
        format!("; {}; ends with {}{format}{by}", agent.transport.as_str(), name.local)
    });
    let remote = spec.is_some_and(|spec| spec.is_remote);
    let remote = if remote { "; on NATS: `organism host` takes its turns" } else { "" };
    let remote = named_config::with_option(remote);
    format!("{}; {}{model}{}{remote}", takes(contract), peers(contract), last.unwrap_or_default())
}
