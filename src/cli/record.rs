//! `organism record`: runs with live models and writes every answer into a recording.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Time;
use crate::config::Config;
use crate::io_reason::io_reason;
use crate::model::playback::{RecorderSummary, RecordingFailure, TurnRecorder};
use crate::organism::Organism;
use crate::plural::{count, form};
use crate::service::changed_config::forbids_new_work;
use crate::service::handshake::Handshake;
use crate::service::{self, SocketTransport, SubmitRequest, SubmitUpdate};

use super::CommandExit;
use super::command_organism::CommandOrganism;
use super::config_error_carets;
use super::exit::{self, CommandFailure};
use super::output::put_recorded_line;
use super::startup::{self, ConfigArg};
use super::stop_signals::watch_drain_signals;
use super::submit_output::{exit_of, worse};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recording file to write.
    out: PathBuf,
    /// File with a payload to send. If no file is given, nothing is sent, and the organism runs
    /// until it is stopped.
    payload: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
    /// Client in whose name the payload is sent. Required if the config has several clients.
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// Overwrite the recording file if it exists.
    #[arg(long)]
    force: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut config = args.config.load()?;
    // The recorder gets no answers of agents in other processes, so all agents run in this one.
    config.gather_agents();
    let missing = config.keys_missing_here();
    if !missing.is_empty() {
        return Ok(config_error_carets::report(&missing));
    }

    let mut recorder = recorder(&args, &config.name)?;
    let submission = match &args.payload {
        Some(path) => {
            // Work of earlier threads continues in the same organism, and may take the first turn.
            let thread = service::new_root_thread();
            recorder = recorder.of_thread(thread.clone());
            Some(SubmitRequest {
                client: startup::client(&config, args.client.as_deref())?,
                thread: None,
                suggested: Some(thread.to_string()),
                key: None,
                payload: startup::bytes(path)?,
                wait: true,
                trace: None,
                secret: None,
            })
        }
        None => None,
    };
    let recorder = Arc::new(recorder);
    config.recorder = Some(Arc::clone(&recorder));

    let exit = startup::runtime()?.block_on(async {
        refuse_changed(&config).await?;
        match submission {
            Some(submission) => {
                let organism = Organism::start_for_command(config).await?;
                send(CommandOrganism::of(organism.into())?, submission).await
            }
            None => until_stopped(Organism::start(config).await?).await,
        }
    })?;
    report(&args, recorder.summary())?;
    Ok(exit.into())
}

/// Reports the result of the recording. Returns an error if the file lacks turns.
fn report(args: &Args, summary: RecorderSummary) -> anyhow::Result<()> {
    if let Some(failure) = &summary.failure {
        return Err(incomplete(&args.out, summary.is_written, failure).into());
    }

    let out = args.out.display();

    match summary.turns {
        0 => note!("no turn was recorded, so {out} was not written"),
        turns => note!("{} in {out}", count(turns, "turn")),
    }
    if summary.skipped > 0 {
        let recorded = match args.payload {
            Some(_) => "that of the payload",
            None => "the first that takes a turn",
        };
        note!(
            "{} {} not recorded: a recording contains one thread, {recorded}",
            count(summary.skipped, "more turn"),
            form(summary.skipped, "was", "were")
        );
    }

    Ok(())
}

/// Makes the error of a command whose recording file `out` lacks turns. `is_written` is true if the
/// file has some of the turns.
fn incomplete(out: &Path, is_written: bool, failure: &RecordingFailure) -> CommandFailure {
    let what = if is_written { "is incomplete" } else { "was not written" };
    let text = format!("{} {what}: {}", out.display(), failure.message);
    CommandFailure::new(exit::of_written_file(&failure.kind.into()), text)
}

/// Refuses to record while the organism runs with another config. The error names both configs.
async fn refuse_changed(config: &Config) -> anyhow::Result<()> {
    let Some(socket) = SocketTransport::find(&config.data, Handshake::of(config)).await? else {
        return Ok(());
    };

    let ours = Some(config.digest);
    match socket.running_config().await? {
        Some(running) if forbids_new_work(running, ours) => {
            Err(service::Error::ConfigChanged { running, ours }.into())
        }
        _ => Ok(()),
    }
}

fn recorder(args: &Args, organism: &str) -> anyhow::Result<TurnRecorder> {
    let path = &args.out;
    if path.exists() && !args.force {
        let text = format!("{} is there already; --force writes over it", path.display());
        return Err(CommandFailure::usage(text).into());
    }

    let now = Time::now().to_string();
    let day = now.get(..10).unwrap_or(&now);
    let recorded = format!("by organism record, {day}, of {organism}");
    let recorder = TurnRecorder::create(path, &recorded).map_err(|error| {
        let text = format!("{} cannot be written: {}", path.display(), io_reason(&error));
        CommandFailure::new(exit::of_written_file(&error), text)
    })?;
    Ok(recorder.with_models_stated())
}

async fn send(organism: CommandOrganism, submission: SubmitRequest) -> anyhow::Result<CommandExit> {
    let mut exit = CommandExit::Done;
    let mut opened = None;
    let sending = organism.submit(submission, |sent| {
        exit = worse(exit, exit_of(&sent, true));
        match sent {
            SubmitUpdate::Accepted { thread, .. } => {
                note!("thread {thread}");
                opened = Some(thread);
            }
            SubmitUpdate::Refused { refusal, .. } => note!("refused: {refusal}"),
            SubmitUpdate::NoThread { payload } => put_recorded_line(&payload),
            SubmitUpdate::Waits(wait) => note!("{wait}"),
            SubmitUpdate::Result { replies, .. } => {
                replies.iter().for_each(|reply| put_recorded_line(reply.text()));
            }
        }
    });
    let sent = organism.until_stopped(sending).await;

    organism.close_after(sent, opened.as_ref()).await?;
    Ok(exit)
}

/// Keeps the organism running until a signal arrives or the pump has failed.
async fn until_stopped(organism: Organism) -> anyhow::Result<CommandExit> {
    let mut stopped = watch_drain_signals()?;
    note!("recording; stop with Ctrl-C");
    let mut look = tokio::time::interval(Duration::from_millis(200));

    loop {
        tokio::select! {
            _ = stopped.wait_for(Option::is_some) => break,
            _ = look.tick() => if organism.has_ended() {
                organism.join().await?;
                return Ok(CommandExit::Done);
            },
        }
    }

    organism.stop("the recording is done").await?;
    Ok(CommandExit::Done)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn the_exit_code_of_an_incomplete_recording_states_if_its_disk_is_full() {
        for (kind, expected) in [
            (ErrorKind::StorageFull, CommandExit::TryAgain),
            (ErrorKind::PermissionDenied, CommandExit::Usage),
        ] {
            let failure = RecordingFailure { kind, message: "no space".to_owned() };
            let CommandFailure { exit, message } = incomplete(Path::new("o.toml"), true, &failure);
            assert_eq!(exit, expected);
            assert_eq!(message, "o.toml is incomplete: no space");
        }
    }
}
