//! `organism host`: hosts agents for a pump on another machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::config::{self, Config};
use crate::limits;
use crate::organism::{HostedAgents, NotHosted, chosen};
use crate::web;

use super::exit::{CommandExit, CommandFailure};
use super::render;
use super::startup::{self, ConfigArg};
use super::stderr_queue;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Agents to host, such as researcher,critic. Default: all agents with nats = true.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Directory with the keys that `organism nats-config` writes. Each agent connects with the key
    /// in its own file, `listener-NAME.nk`. Default: all agents connect with the credentials in the
    /// section [nats] of the config.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Serve health and metrics of these agents at this address, such as 127.0.0.1:9465. The
    /// address in [http] is for the pump alone.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    stderr_queue::start();
    let config = args.config.load_for_host(args.keys.is_some())?;
    let agents = chosen(&config, &args.only).map_err(|error| explained(&config, &error))?;
    let names: Vec<_> = agents.iter().map(|agent| agent.name.to_string()).collect();
    let name = config.name.clone();
    let names = names.join(", ");
    let http = args.http.as_deref().map(address).transpose()?;

    startup::runtime()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;

        let web = listen(http).await?;
        let hosting = HostedAgents::start(config, &agents, args.keys.as_deref()).await?;
        if let Some(web) = &web {
            web.set_health_source(hosting.health());
            note!("health and metrics on http://{}", web.address());
        }
        note!("{name}: {names} hosted here; deliveries come over NATS");

        let mut poll = tokio::time::interval(limits::HOST_END_POLL_INTERVAL);
        let signal = loop {
            tokio::select! {
                _ = interrupt.recv() => break "SIGINT",
                _ = terminate.recv() => break "SIGTERM",
                _ = hangup.recv() => match hosting.reload().await {
                    Ok(report) => render::note_reload(&report),
                    Err(error) => {
                        tracing::error!("SIGHUP: the config was not reloaded: {error}");
                    }
                },
                _ = poll.tick() => if hosting.has_ended() {
                    // The turns of the other agents may end. The supervisor then starts this
                    // process again, with new connections.
                    hosting.stop().await;
                    let text = "the connection to NATS ended; the log has the reason";
                    return Err(CommandFailure::new(CommandExit::Unavailable, text).into());
                },
            }
        };

        note!("stopping on {signal}: running turns are finished, other turns go to another host");
        hosting.stop().await;
        Ok(CommandExit::Done.into())
    })
}

fn address(text: &str) -> anyhow::Result<SocketAddr> {
    config::loopback(text).ok_or_else(|| {
        let text = format!(
            "`--http {text}` is not a loopback address with a port: write for example \
             127.0.0.1:9465"
        );
        CommandFailure::usage(text).into()
    })
}

async fn listen(http: Option<SocketAddr>) -> anyhow::Result<Option<web::WebServer>> {
    let Some(address) = http else { return Ok(None) };
    let server = web::WebServer::listen(address).await.map_err(|error| {
        CommandFailure::new(CommandExit::Unavailable, format!("listening on {address}: {error}"))
    })?;
    Ok(Some(server))
}

/// Adds advice to the error: lines to add to the config, or another command to use.
fn explained(config: &Config, error: &NotHosted) -> anyhow::Error {
    let (exit, help) = match error {
        NotHosted::NoRemoteAgents => {
            let first = config.agents.first().map(|agent| agent.name.as_str());
            let first = first.unwrap_or("some-name");
            let nats = match config.nats {
                Some(_) => String::new(),
                None => " and a section [nats] with url = \"nats://127.0.0.1:4222\"".to_owned(),
            };
            (CommandExit::Config, format!(": write nats = true under [agents.{first}]{nats}"))
        }
        NotHosted::Near { name } => (
            CommandExit::Config,
            format!(": write nats = true under [agents.{name}] to host it here"),
        ),
        NotHosted::NoAgent { .. } => (
            CommandExit::Usage,
            "; a listener on NATS is started by itself (docs/PROTOCOL.md)".to_owned(),
        ),
        NotHosted::Unknown { name, .. } => {
            let known = config.remote_agents().map(|agent| agent.name.as_str());
            let near = config::nearest(name, known);
            (
                CommandExit::Usage,
                near.map_or(String::new(), |near| format!("; did you mean `{near}`?")),
            )
        }
    };

    CommandFailure::new(exit, format!("{error}{help}")).into()
}
