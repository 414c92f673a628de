//! `organism run`: starts an organism and keeps it running until it is told to stop.

use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::organism::Organism;
use crate::web;

use super::Exit;
use super::opened::{self, ConfigArg};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load()?;
    opened::runtime()?.block_on(async {
        let (name, data) = (config.name.clone(), config.data.clone());
        let web = web::Server::open(&config).await?;
        let organism = Organism::start(config).await?;
        if let Some(web) = &web {
            web.asks(organism.watcher());
            eprintln!("health and metrics on http://{}", web.address());
        }
        eprintln!("{name} is ready; journal {}", data.display());
        match until_told(&organism).await? {
            None => organism.join().await?,
            Some(reason) => {
                eprintln!(
                    "stopping on {reason}: what is handed over ends, what waits is on record"
                );
                organism.stop(reason).await?;
            }
        }
        Ok(Exit::Done.into())
    })
}

/// The signal that ends the run; `None` where the pump ended by itself.
async fn until_told(organism: &Organism) -> anyhow::Result<Option<&'static str>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut look = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(Some("SIGINT")),
            _ = terminate.recv() => return Ok(Some("SIGTERM")),
            _ = look.tick() => if organism.has_ended() { return Ok(None) },
        }
    }
}
