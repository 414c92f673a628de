//! `organism serve`: shows the records of the journal in a browser.

use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::config::{self, Config, ConfigEnvironment};
use crate::web::{OperateOptions, ViewPerson};

use super::exit::{self, CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::{self, JournalTarget};
use super::startup;
use super::stderr_queue;
use super::web_view::{LISTEN, ViewArgs, ViewContent};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The view shows what is on record, and changes nothing without --operate. It needs \
                        no running organism to show it. The address with its token stands on this \
                        terminal alone: its holder can read the record until the command ends. With \
                        --as, the secret of a client that has one is the token. From another machine, \
                        use `ssh -L 7717:127.0.0.1:7717 HOST`, or TLS."
)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Address of the view; port 0 takes any free port. An address beyond loopback needs --tls-cert
    /// and --tls-key.
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: SocketAddr,
    #[command(flatten)]
    view: ViewArgs,
    /// Allow the operator given by --as to act in the browser: to decide, answer, pause, cancel,
    /// fork and retry. Without --as, or if --as gives a client, the view is read-only.
    #[arg(long)]
    operate: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    stderr_queue::start();
    // The token is a secret of this process.
    startup::hide_memory();
    let config = config(&args)?;
    let person = args.view.person(config.as_ref())?;
    journal_target::readers(&args.place)?;
    // Makes the index now, with progress, so that no page waits for it. While another process makes
    // it, the pages state that.
    match indexed::read_all(&args.place, &mut |_| Ok(())) {
        Err(error) if exit::code(&error) == CommandExit::TryAgain => note!("{error}"),
        other => drop(other?),
    }

    let data = journal_target::data_dir(&args.place)?;
    let proof = journal_target::proof_options(&args.place)?;
    let operate = operate(&args, &person.0);
    let organism = config.map(|config| config.name);
    let content = ViewContent { data, organism, operate, proof };
    // First, so that no address is printed if the command gets too few threads.
    let runtime = startup::runtime()?;
    let view = args.view.open(args.listen, "--listen", content, person)?;
    note!("Ctrl-C ends the view");
    runtime.block_on(ended())?;
    drop(view);
    Ok(CommandExit::Done.into())
}

async fn ended() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}

/// Loads the config. Returns `None` if `--data` is given instead of a config, or if the config is
/// invalid. With `--as`, both cases are errors, because only the config lists the people.
fn config(args: &Args) -> anyhow::Result<Option<Config>> {
    if args.place.data.is_some() {
        if args.view.person.is_some() {
            let text = "--as needs the config, which has the people: name it in place of --data";
            return Err(CommandFailure::usage(text).into());
        }
        return Ok(None);
    }

    let around = ConfigEnvironment::of_process();
    let path = config::locate(args.place.config.as_deref(), &around);
    match path.and_then(|path| config::load_without_keys(&path, &around)) {
        Ok(config) => Ok(Some(config)),
        Err(_) if args.view.person.is_none() => Ok(None),
        Err(problems) => {
            super::config_error_carets::report(&problems);
            Err(CommandFailure::silent(CommandExit::Config).into())
        }
    }
}

/// Returns the options of the pages on which an operator can act; `None` without `--operate`.
fn operate(args: &Args, person: &ViewPerson) -> Option<OperateOptions> {
    if !args.operate {
        return None;
    }
    match person {
        ViewPerson::Operator(_) => {}
        ViewPerson::Viewer => {
            note!("the view is read-only without a named person; --as names an operator");
        }
        ViewPerson::Client(name) => {
            note!("the view is read-only, because `{name}` is a client; --as names an operator");
        }
    }
    let around = ConfigEnvironment::of_process();
    let config = config::locate(args.place.config.as_deref(), &around).ok();
    config.map(|config| OperateOptions { config })
}
