//! `organism adopt`: lets this project take over the journal of a project at another path.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{ConfigEnvironment, path_of};
use crate::organism;
use crate::organism::project::{self, AdoptedProject};
use crate::organism::repair::AcceptedDamage;

use super::CommandExit;
use super::action_text::ActionText;
use super::startup::ConfigArg;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Directory of the journal to adopt, or config file of the project that owns the journal.
    /// Required if several projects with this organism's name have journals, or if the config file
    /// of the owning project still exists.
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// Begin a new journal instead of adopting one. The new journal lies beside the journals of
    /// other projects whose organisms have the same name.
    #[arg(long, conflicts_with_all = ["from", "accept_loss", "accept_key", "note"])]
    new: bool,
    /// Also accept that records of the journal are lost, as `organism repair --accept-loss` does.
    #[arg(long)]
    accept_loss: bool,
    /// Also accept records that were not signed with this host's key, as `organism repair
    /// --accept-key` does.
    #[arg(long)]
    accept_key: bool,
    /// Reason for the adoption, which goes on record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: ActionText,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load_unbound()?;
    if args.new {
        project::begin(&config.directories(), true).map_err(organism::Error::from)?;
        note!("the journal of {} is {}", config.project.path.display(), config.data.display());
        return Ok(CommandExit::Done.into());
    }

    let accepted =
        AcceptedDamage { loss: args.accept_loss, key: args.accept_key, redaction: false };
    let here = ConfigEnvironment::of_process().directory;
    let from = args.from.map(|from| path_of(&from, &here));
    let adopted = project::adopt(&config, from.as_deref(), accepted, args.note.as_str());
    let adopted = adopted.inspect_err(|error| {
        use crate::journal::Error::{Broken, OtherKey, Uncovered, UncoveredStream};
        let refused = matches!(
            error,
            organism::Error::Journal(
                Broken { .. } | OtherKey { .. } | Uncovered { .. } | UncoveredStream { .. }
            )
        );
        if refused {
            note!("`organism adopt` takes --accept-loss and --accept-key, too");
        }
    });

    match adopted? {
        None => note!("no journal to adopt for {}", config.project.path.display()),
        Some(AdoptedProject { before, renamed, copied, stream, is_unmoved }) => {
            let ours = config.project.path.display();
            match (stream, before) {
                (Some(stream), _) => {
                    note!("adopted the journal {stream} on JetStream for {ours}");
                }
                (None, Some(before)) => {
                    note!("adopted the journal of {} for {ours}", before.display());
                }
                (None, None) => note!("adopted a journal that named no project for {ours}"),
            }
            if let Some((from, to)) = copied {
                let from = from.display();
                let to = to.display();
                note!("copied {from} to {to}; other projects of this name may use the former, too");
            }
            for (from, to) in renamed {
                note!("renamed {} to {}", from.display(), to.display());
            }
            note!(
                "the adoption is recorded in sess-organism; the journal is {}",
                config.data.display()
            );
            match config.partitions() {
                _ if !is_unmoved => {}
                1 => {
                    note!(
                        "`organism promote` moves this journal to JetStream, as the config states"
                    );
                }
                several => note!(
                    "the journal is embedded, so it has one partition, and the config says \
                     {several}: after `partitions = 1` under [journal], `organism promote` moves \
                     it to JetStream"
                ),
            }
        }
    }

    Ok(CommandExit::Done.into())
}
