//! `organism serve`: shows the record in a browser.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::config::{self, ConfigEnvironment};
use crate::ids::ListenerName;
use crate::web::{ViewOptions, ViewPerson, WebView};

use super::exit::{CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::{self, JournalTarget};
use super::render::put;
use super::startup;

/// The address unless `--listen` names another one.
const LISTEN: &str = "127.0.0.1:7717";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The view shows what is on record, and changes nothing. It needs no running \
                        organism. The address with its token stands on this terminal alone: whoever \
                        has it reads the record until the command ends. From another machine, use \
                        `ssh -L 7717:127.0.0.1:7717 HOST`."
)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Loopback address; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: SocketAddr,
    /// Operator or client of the config that the token belongs to. Default: a viewer without a name.
    #[arg(long = "as", value_name = "NAME", conflicts_with = "data")]
    person: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !std::io::stdout().is_terminal() {
        let text = "standard output is no terminal, and the token of the web view is shown on a \
                    terminal alone, so that no file keeps it; start `organism serve` in a terminal";
        return Err(CommandFailure::new(CommandExit::Usage, text).into());
    }

    // The token is a secret of this process.
    startup::hide_memory();
    let person = person(&args)?;
    let organism = organism_name(&args);
    journal_target::readers(&args.place)?;
    // Makes the index now, with progress, so that no page waits for it.
    indexed::read_all(&args.place, &mut |_| Ok(()))?;

    let data = journal_target::data_dir(&args.place)?;
    let proof = journal_target::proof_options(&args.place)?;
    let options = ViewOptions { listen: args.listen, data, organism, person, proof };
    startup::runtime()?.block_on(serve(options))?;
    Ok(CommandExit::Done.into())
}

async fn serve(options: ViewOptions) -> anyhow::Result<()> {
    let person = options.person.describe();
    let mut terminate = signal(SignalKind::terminate())?;
    let view = WebView::open(options).await;
    let view = view.map_err(|error| CommandFailure::new(CommandExit::Usage, error.to_string()))?;

    let token = view.token().reveal();
    put(&format!("http://{}/#token={token}\n", view.address()))?;
    note!("open this address in a browser ({person}); Ctrl-C ends the view");
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// The person that `--as` names.
fn person(args: &Args) -> anyhow::Result<ViewPerson> {
    let Some(name) = &args.person else { return Ok(ViewPerson::Viewer) };
    let around = ConfigEnvironment::of_process();
    let path = config::locate(args.place.config.as_deref(), &around);
    let loaded = path.and_then(|path| config::load_without_keys(&path, &around));
    let config = loaded.map_err(|problems| {
        super::config_error_carets::report(&problems);
        CommandFailure::silent(CommandExit::Config)
    })?;

    let is_named = |known: &ListenerName| known.as_str() == name;
    if let Some((operator, _)) = config.operators.iter().find(|(known, _)| is_named(known)) {
        return Ok(ViewPerson::Operator(operator.clone()));
    }
    match startup::client(&config, Some(name)) {
        Ok(client) => Ok(ViewPerson::Client(client)),
        Err(_) => {
            let text = format!("`{name}` is neither an operator nor a client of this config");
            Err(CommandFailure::new(CommandExit::Usage, text).into())
        }
    }
}

/// Name of the organism, if its config can be read.
fn organism_name(args: &Args) -> Option<String> {
    if args.place.data.is_some() {
        return None;
    }
    let around = ConfigEnvironment::of_process();
    let path = config::locate(args.place.config.as_deref(), &around).ok()?;
    config::load_without_keys(&path, &around).ok().map(|config| config.name)
}
