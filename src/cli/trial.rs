//! `organism try`: runs recorded threads under a changed config in a separate journal, and shows
//! the differences.

mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{Config, nearest};
use crate::ids::{ListenerName, ThreadId};
use crate::limits;
use crate::organism::{
    TemporaryDirectory, TrialJudge, TrialOptions, TrialOutcome, TrialThread, prepare_trial,
    try_threads,
};
use crate::schema::Schemas;

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::JournalTarget;
use super::money;
use super::render::count;
use super::stop_signals::watch_stop_signals;
use super::thread_query::ThreadQuery;
use super::{named_config, startup};
use report::TrialReport;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The changed config file.
    #[arg(value_name = "CONFIG")]
    changed: PathBuf,
    /// Threads to try: ids, separated by spaces; or filters and words, as `organism threads` takes
    /// them, such as "agent=writer since=2026-11-20"; or `all`.
    #[arg(long, value_name = "QUERY")]
    threads: String,
    /// Maximum number of threads that the trial runs. If the query finds more, the trial runs those
    /// with the newest records.
    #[arg(
        long,
        value_name = "N",
        default_value_t = limits::TRIAL_THREADS_DEFAULT,
        value_parser = startup::at_least_one,
        allow_negative_numbers = true,
    )]
    max: usize,
    /// Let every agent use this model of the changed config.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Let models answer prompts for which no answer is recorded, up to this number of tokens for
    /// all threads together. Also bounds the turns of `playback` models. Before each turn, its
    /// prompt and its longest possible answer must fit into the rest.
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// Let models answer prompts for which no answer is recorded, up to this amount of money for
    /// all threads together, as `--tokens` does. The amount is in the currency of the config CONFIG, under which the
    /// threads run.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    money: Option<f64>,
    /// Deliver calls to this listener, with real effects, if no result is recorded for them.
    /// Without this option, such a call ends as `not-recorded`.
    #[arg(long, value_name = "LISTENER")]
    live: Vec<String>,
    /// Agent of the changed config that decides whether two different results have the same
    /// meaning. The agent must accept the payload `compare-results` of the schema
    /// `organism:judge.xsd`.
    #[arg(long, value_name = "AGENT")]
    judge: Option<String>,
    /// Keep the journal of the runs in this directory, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    #[command(flatten)]
    place: JournalTarget,
    /// Show the first difference of every changed thread, with whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

/// Directory with the journal of the trial's runs: a temporary one, or the one that `--into` names.
enum TrialHome {
    Temporary(TemporaryDirectory),
    Kept(PathBuf),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let query = ThreadQuery::parse(&args.threads)?;
    let changed = startup::other_config(&args.changed)?;
    named_config::remember(args.place.config.as_deref());
    let options = options(args, &changed)?;
    let (mut threads, has_more) = query.threads(&args.place, args.max)?;
    // Tries the oldest threads first, in the order of the record.
    threads.reverse();
    if threads.is_empty() {
        let text = format!(
            "no thread matches --threads in this journal; `organism threads{}` takes the same \
             filters and lists them",
            named_config::option_or_data(args.place.data.as_deref())
        );
        return Err(CommandFailure::usage(text).into());
    }
    if has_more {
        let tried = count(threads.len() as u64, "thread");
        note!("more threads match; the newest {tried} are tried: --max tries more");
    }

    let runtime = startup::runtime()?;
    let home = TrialHome::open(args.into.as_deref())?;
    let mut journals: Vec<PathBuf> = threads.iter().map(|one| one.journal.clone()).collect();
    journals.sort();
    journals.dedup();
    let own = prepare_trial(&changed, &options, journals, home.path())?;
    let data = own.data.clone();
    note!("{} in {}", home.named(), home.path().display());

    let schemas = own.schemas.clone();
    let outcomes = runtime.block_on(try_all(own, &options, &threads))?;
    let report = compare(args, &data, &threads, &outcomes, &schemas)?;
    report.print(args.json, args.full)?;
    report.note_uncalled(&options.live);
    if matches!(home, TrialHome::Kept(_)) && !args.json {
        let source = named_config::option_or_data(args.place.data.as_deref());
        let runs = data.display();
        note!("`organism diff ID ID{source} --other {runs}` compares a thread with its run");
    }
    Ok(report.exit().into())
}

fn options(args: &Args, changed: &Config) -> anyhow::Result<TrialOptions> {
    if let Some(model) = &args.model {
        let names = || changed.models.iter().map(|spec| spec.name.as_str());
        if !names().any(|name| name == model) {
            let near = nearest(model, names());
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let text = format!("--model {model}: it is no model of this config{near}");
            return Err(CommandFailure::usage(text).into());
        }
    }

    let models = changed.agents.iter().map(|agent| match &args.model {
        Some(model) if args.judge.as_deref() != Some(agent.name.as_str()) => model.as_str(),
        _ => agent.model.as_str(),
    });
    let money = money::amount(args.money, models, changed)?;

    let live = args.live.iter().map(|text| {
        let names = || changed.processes.iter().map(|process| &process.name);
        let found = names().find(|name| name.as_str() == text).cloned();
        found.ok_or_else(|| {
            let near = nearest(text, names().map(ListenerName::as_str));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            CommandFailure::usage(format!(
                "--live {text}: it is no listener that an organism of this config starts itself{near}"
            ))
        })
    });
    let asks_models = args.tokens.is_some() || args.money.is_some();
    let judge = args.judge.as_ref().map(|name| {
        let found = TrialJudge::find(changed, name, asks_models);
        found.map_err(|problem| CommandFailure::usage(format!("--judge {name}: {problem}")))
    });
    Ok(TrialOptions {
        model: args.model.clone(),
        live: live.collect::<Result<_, CommandFailure>>()?,
        tokens: args.tokens,
        money,
        judge: judge.transpose()?,
    })
}

impl TrialHome {
    fn open(into: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = into else {
            return Ok(Self::Temporary(TemporaryDirectory::create("try")?));
        };
        let failed = |error: std::io::Error| {
            CommandFailure::usage(format!("--into {}: {error}", path.display()))
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        if std::fs::read_dir(path).map_err(failed)?.next().is_some() {
            let text = format!("--into {}: the directory is not empty", path.display());
            return Err(CommandFailure::usage(text).into());
        }
        Ok(Self::Kept(std::path::absolute(path)?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(directory) => directory.path(),
            Self::Kept(path) => path,
        }
    }

    const fn named(&self) -> &'static str {
        match self {
            Self::Temporary(_) => "the runs are on record until this command ends",
            Self::Kept(_) => "the runs are on record",
        }
    }
}

async fn try_all(
    own: Config,
    options: &TrialOptions,
    threads: &[TrialThread],
) -> anyhow::Result<BTreeMap<ThreadId, TrialOutcome>> {
    let mut stop = watch_stop_signals(CommandExit::TryAgain)?;
    let mut outcomes = BTreeMap::new();
    let ended = |thread: &ThreadId, outcome| {
        outcomes.insert(thread.clone(), outcome);
    };
    let interrupted = async {
        stop.wait_for(|stop| *stop).await.ok();
    };
    if !try_threads(own, options, threads, ended, interrupted).await? {
        let ended = outcomes.len();
        let text = format!(
            "stopped by a signal after {ended} of {}; nothing is compared",
            count(threads.len() as u64, "thread")
        );
        return Err(CommandFailure::new(CommandExit::TryAgain, text).into());
    }
    Ok(outcomes)
}

fn compare(
    args: &Args,
    data: &Path,
    threads: &[TrialThread],
    outcomes: &BTreeMap<ThreadId, TrialOutcome>,
    schemas: &Schemas,
) -> anyhow::Result<TrialReport> {
    let own = JournalTarget { config: None, data: Some(data.to_owned()), state: None };
    let mut report = TrialReport::default();
    for TrialThread { thread, .. } in threads {
        match outcomes.get(thread) {
            Some(TrialOutcome::Ran { judgement, last }) => {
                let read = (thread, *last);
                report.compare((&args.place, &own), read, schemas, judgement.clone())?;
            }
            Some(TrialOutcome::NotTried(reason)) => report.add_not_tried(thread, reason.clone()),
            None => {}
        }
    }
    Ok(report)
}
