//! `organism run`: starts an organism and keeps it running until it is stopped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, interval};

use crate::config::Config;
use crate::limits;
use crate::organism::{
    self, HealthMonitor, Organism, PartitionStatus, PartitionedOrganism, ReloadService, operator,
    project,
};
use crate::thread::DecisionOrigin;
use crate::web;

use super::CommandExit;
use super::exit::CommandFailure;
use super::journal_target::{self, JournalTarget};
use super::render;
use super::startup::{self, ConfigArg};
use super::stderr_queue;
use super::stop_signals::report_stopping;
use super::web_view::{LISTEN, OpenView, ViewArgs, ViewContent};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Partitions that this process may pump, such as 0,2. Default: all. If another process already
    /// pumps one of them, this process waits to take over from the other process.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    partitions: Vec<u32>,
    /// Begin a new journal, beside the journals of other projects whose organisms have the same
    /// name.
    #[arg(long)]
    new: bool,
    /// Show the journal's records in a browser, as `organism serve` does. Default address:
    /// 127.0.0.1:7717.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = LISTEN)]
    web: Option<SocketAddr>,
    #[command(flatten)]
    view: ViewArgs,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    stderr_queue::start();
    let config = args.config.load()?;
    let partitions = startup::partitions(&config, args.partitions)?;
    if args.new {
        project::begin(&config.directories(), true).map_err(organism::Error::from)?;
    }

    if args.web.is_none() && args.view.is_given() {
        let text = "--as, --host, --tls-cert and --tls-key are of the web view: add --web";
        return Err(CommandFailure::usage(text).into());
    }
    // First, so that no address is printed if the command gets too few threads.
    let runtime = startup::runtime()?;
    let path = args.config.config;
    let view = args.web.map(|listen| open_view(listen, &args.view, path, &config)).transpose()?;
    let ended = runtime.block_on(async {
        let web = web::WebServer::open(&config).await?;
        match config.partitions() {
            1 => whole(config, web.as_ref()).await,
            _ => divided(config, &partitions, web.as_ref()).await,
        }
    });
    startup::end_orphans();
    // The view closes last, so that browsers see the last records of the organism.
    drop(view);
    ended
}

/// Opens the web view of this organism. The view runs on its own OS threads.
fn open_view(
    listen: SocketAddr,
    args: &ViewArgs,
    path: Option<PathBuf>,
    config: &Config,
) -> anyhow::Result<OpenView> {
    let person = args.person(Some(config))?;
    let data = config.data.clone();
    let place = JournalTarget { config: path, ..JournalTarget::default() };
    let proof = journal_target::proof_options(&place)?;
    let organism = Some(config.name.clone());
    let content = ViewContent { data, organism, operate: None, proof };
    args.open(listen, "--web", content, person)
}

async fn whole(config: Config, web: Option<&web::WebServer>) -> anyhow::Result<ExitCode> {
    let name = config.name.clone();
    let data = config.data.clone();
    let on_wait = |holder: &str| {
        note!("a command has started {name} for itself ({holder}); waiting until it ends");
    };

    let hangup = signal(SignalKind::hangup())?;
    let organism = Organism::start_announced(config, on_wait).await?;
    publish_health(web, organism.health());
    let mut watch = SignalWatch::start(hangup)?;
    note!("{name} is ready; journal {}", data.display());
    let reason_to_stop = loop {
        match watch.next().await {
            Some(WatchedSignal::Stop(signal)) => break Some(signal),
            Some(WatchedSignal::Reload) => {
                // A task of its own, so that a reload does not delay a stop.
                tokio::spawn(reload(organism.reloader()));
            }
            None if organism.has_ended() => break None,
            None => {}
        }
    };

    match reason_to_stop {
        None => organism.join().await?,
        Some(reason) => {
            report_stopping(reason);
            organism.stop(reason).await?;
        }
    }

    Ok(CommandExit::Done.into())
}

/// Reloads the config on SIGHUP, and logs the result.
async fn reload(reloader: ReloadService) {
    let note = "SIGHUP".to_owned();
    let origin = DecisionOrigin { who: operator::this_user(), note, signature: None };
    match reloader.reload(origin).await {
        Ok(report) => render::note_reload(&report),
        Err(error) => tracing::error!("SIGHUP: the config was not reloaded: {error}"),
    }
}

async fn divided(
    config: Config,
    partitions: &[u32],
    web: Option<&web::WebServer>,
) -> anyhow::Result<ExitCode> {
    let name = config.name.clone();
    let data = config.data.clone();
    let hangup = signal(SignalKind::hangup())?;
    let organism = PartitionedOrganism::start(config, partitions).await?;
    publish_health(web, organism.health());

    let mut watch = SignalWatch::start(hangup)?;
    let mut reported: Vec<PartitionStatus> = Vec::new();

    let reason_to_stop = loop {
        let now = organism.statuses();
        let settled = is_settled(&now) && !organism.has_ended();
        if reported.is_empty() && settled {
            note!("{name} is ready; {}; journals {}", overview(&now), data.display());
            reported = now;
        } else if !reported.is_empty() {
            for (at, (was, is)) in reported.iter_mut().zip(now).enumerate() {
                // A wait is passing: the state after it is compared with the state before it.
                if !matches!(is, PartitionStatus::Waiting { .. }) {
                    report_change(at, was, &is);
                    *was = is;
                }
            }
        }

        match watch.next().await {
            Some(WatchedSignal::Stop(signal)) => break Some(signal),
            Some(WatchedSignal::Reload) => {
                tokio::spawn(reload(organism.reloader()));
            }
            None if organism.has_ended() => break None,
            None => {}
        }
    };

    match reason_to_stop {
        None => organism.join().await?,
        Some(reason) => {
            report_stopping(reason);
            organism.stop(reason).await?;
        }
    }

    Ok(CommandExit::Done.into())
}

/// Sets the health monitor of the web server. The web server then shows health and metrics.
fn publish_health(web: Option<&web::WebServer>, health: HealthMonitor) {
    if let Some(web) = web {
        web.set_health_source(health);
        note!("health and metrics on http://{}", web.address());
    }
}

/// Whether the start is over: no partition of this process is still starting, and at least one
/// partition has a pump, in this process or in another.
fn is_settled(statuses: &[PartitionStatus]) -> bool {
    let has_pump = |status: &PartitionStatus| {
        matches!(status, PartitionStatus::Here | PartitionStatus::Elsewhere(_))
    };
    !statuses.contains(&PartitionStatus::Starting) && statuses.iter().any(has_pump)
}

/// Describes the partitions of this process on one line:
///
/// - the partitions that the process pumps
/// - the partitions that the process is ready to take over from another process
/// - the partitions that the process cannot pump yet, because they wait for free disk space or for
///   the journal's server
fn overview(statuses: &[PartitionStatus]) -> String {
    let list = |of: fn(&PartitionStatus) -> bool| {
        let all = statuses.iter().enumerate().filter(|(_, status)| of(status));
        all.map(|(partition, _)| partition.to_string()).collect::<Vec<_>>().join(", ")
    };

    let here = list(|status| *status == PartitionStatus::Here);
    let elsewhere = list(|status| matches!(status, PartitionStatus::Elsewhere(_)));
    let all = statuses.len();
    let here = match here.as_str() {
        "" => format!("pumps none of {all} partitions"),
        here => format!("pumps {here} of {all} partitions"),
    };

    let waiting = list(|status| matches!(status, PartitionStatus::Waiting { .. }));
    let stands_by = (!elsewhere.is_empty()).then(|| format!(", stands by for {elsewhere}"));
    let waits = (!waiting.is_empty()).then(|| format!(", cannot pump {waiting} yet"));
    format!("{here}{}{}", stands_by.unwrap_or_default(), waits.unwrap_or_default())
}

fn report_change(partition: usize, was: &PartitionStatus, is: &PartitionStatus) {
    match (was, is) {
        (was, PartitionStatus::Here) if *was != PartitionStatus::Here => {
            note!("partition {partition}: pumped here now");
        }
        (PartitionStatus::Here | PartitionStatus::Leaving, PartitionStatus::Elsewhere(holder)) => {
            note!("partition {partition}: pumped by {holder} now; standing by");
        }
        _ => {}
    }
}

/// The signals that stop or reload the organism, with a timer for health checks.
struct SignalWatch {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    poll: Interval,
}

/// Action that a signal requests.
enum WatchedSignal {
    /// The signal with this name stops the organism.
    Stop(&'static str),
    Reload,
}

impl SignalWatch {
    fn start(hangup: Signal) -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
            poll: interval(limits::HOST_END_POLL_INTERVAL),
        })
    }

    /// Waits for a signal, and returns the action that it requests. Returns `None` if a health
    /// check is due.
    async fn next(&mut self) -> Option<WatchedSignal> {
        tokio::select! {
            _ = self.interrupt.recv() => Some(WatchedSignal::Stop("SIGINT")),
            _ = self.terminate.recv() => Some(WatchedSignal::Stop("SIGTERM")),
            _ = self.hangup.recv() => Some(WatchedSignal::Reload),
            _ = self.poll.tick() => None,
        }
    }
}
