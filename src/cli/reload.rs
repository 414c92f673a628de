//! `organism reload`: has the running organism take its config file again.

use std::process::ExitCode;

use crate::organism::operator;
use crate::service::{ReloadReport, ServiceClient, ServiceTransport};
use crate::thread::DecisionOrigin;

use super::exit::{CommandExit, CommandFailure};
use super::organism_reach::{handshake_in, socket_in};
use super::render::note_reload;
use super::startup::{self, ConfigArg};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Note for the record.
    #[arg(long, default_value = "")]
    note: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let directories = startup::directories_alone(args.config.config.as_deref())?;
    let data = directories.data;
    let socket = socket_in(&data, handshake_in(&data)?);
    let origin = DecisionOrigin { who: operator::this_user(), note: args.note, signature: None };

    let report = startup::runtime()?.block_on(async {
        if !socket.locate().await? {
            return anyhow::Ok(None);
        }
        let client = ServiceClient::new(&data, ServiceTransport::Socket(socket));
        Ok(Some(client.reload(origin).await?))
    })?;
    let Some(report) = report else {
        let text = format!(
            "no organism runs on {}, so there is nothing to reload: the next start reads the config \
             as it is",
            data.display()
        );
        return Err(CommandFailure::new(CommandExit::Unavailable, text).into());
    };

    if args.json {
        put_line!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        note_reload(&report);
    }
    Ok(exit_of(&report).into())
}

fn exit_of(report: &ReloadReport) -> CommandExit {
    match report {
        ReloadReport::Applied { .. } | ReloadReport::Unchanged { .. } => CommandExit::Done,
        ReloadReport::Invalid { .. } | ReloadReport::NeedsRestart { .. } => CommandExit::Config,
    }
}
