//! `organism reload`: makes the running organism read its config file again.

use std::process::ExitCode;

use crate::organism::operator;
use crate::service::{ReloadReport, ServiceClient, ServiceTransport};
use crate::thread::DecisionOrigin;

use super::action_text::ActionText;
use super::decision;
use super::exit::{CommandExit, CommandFailure};
use super::organism_reach::{handshake_in, is_running, require_no_holder, socket_in};
use super::output::put_json_line;
use super::render::note_reload;
use super::startup::{self, ConfigArg};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Note on the reload, which goes on record.
    #[arg(long, default_value = "")]
    note: ActionText,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let given = args.config.config.as_deref();
    let data = startup::directories_alone(given)?.data;
    // After a change of its name, the organism still runs on the directory of the earlier name.
    let earlier = startup::directory_by_path(given).filter(|earlier| *earlier != data);
    let places: Vec<_> = std::iter::once(data.clone()).chain(earlier).collect();
    let note = args.note.into_string();
    let origin = DecisionOrigin { who: operator::this_user(), note, signature: None };

    let report = startup::runtime()?.block_on(async {
        for place in &places {
            let socket = socket_in(place, handshake_in(place)?);
            if is_running(&socket).await? {
                let client = ServiceClient::new(place, ServiceTransport::Socket(socket));
                return anyhow::Ok(Some(client.reload(origin).await?));
            }
        }
        Ok(None)
    })?;
    let Some(report) = report else {
        places.iter().try_for_each(|place| require_no_holder(place))?;
        let text = format!(
            "no organism runs on {}, so there is nothing to reload: the next start reads the config \
             as it is",
            data.display()
        );
        return Err(CommandFailure::new(CommandExit::Unavailable, text).into());
    };
    let report = report.map_err(|refusal| {
        CommandFailure::new(decision::exit_of_refusal(&refusal), refusal.to_string())
    })?;

    if args.json {
        put_json_line(&serde_json::to_string_pretty(&report)?);
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
