//! `organism demo`: lets the agents of the research desk example answer a question about a
//! directory, and then verifies the journal.
//!
//! The model's turns come from a recording, and the output marks them as recorded. Everything else
//! runs as usual.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::audit::VerifyOptions;
use crate::config::{self, Config, ConfigEnvironment};
use crate::ids::{ListenerName, Position, ThreadId};
use crate::journal::CheckpointCopies;
use crate::journal::sqlite::JournalReader;
use crate::organism::Organism;
use crate::plural::count;
use crate::service::{SubmitRequest, SubmitUpdate, socket_path};
use crate::{audit, file_limit, limits, thread};

use super::command_organism::CommandOrganism;
use super::exit::CommandFailure;
use super::render::{RenderOutput, demo_view, payload_lines, put, wrap};
use super::{CommandExit, config_error_carets};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory that the question is about. Default: the project that contains the demo's config.
    directory: Option<PathBuf>,
    /// Config of the demo. Default: config/research-desk.toml in the current directory, or else in
    /// the source tree from which this program was built. An installed program has no source tree.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = config_file(args.config)?;
    if let Some(missing) = args.directory.as_deref().filter(|directory| !directory.is_dir()) {
        let text = format!("no directory {}", missing.display());
        return Err(CommandFailure::usage(text).into());
    }

    let place = run_directory(&std::env::temp_dir(), cfg!(target_os = "linux"));
    file_limit::raise();
    let config = match load(&file, args.directory.as_deref(), &place)? {
        Ok(config) => config,
        Err(found) => return Ok(config_error_carets::report(&found)),
    };

    let question = file.with_extension("").join("question.xml");
    let payload = std::fs::read(&question)
        .with_context(|| format!("the demo's question {}", question.display()))?;
    create_run_directory(&place)?;
    let output = RenderOutput::stdout(false);
    put(&opening(&output, &file, args.directory.as_deref()))?;
    let data = config.data.clone();
    let state = config.state.clone();
    let answered = super::startup::runtime()?.block_on(ask(config, payload, &output))?;
    let again = format!("--config {} {}", file.display(), question.display());
    let copies = place.join("copies");
    put(&closing(&output, &again, [&data, &state, &copies], answered.as_deref())?)?;
    Ok(if answered.is_some() { CommandExit::Done } else { CommandExit::WorkflowFailed }.into())
}

/// Returns the config file of the demo: `given` or, without `given`, the file in the current
/// directory, or else the file in the source tree of this program.
fn config_file(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    const NAME: &str = "config/research-desk.toml";
    if let Some(given) = given {
        return Ok(given);
    }

    let program = std::env::current_exe().ok();
    let built_in = program.as_deref().and_then(source_tree).map(|tree| tree.join(NAME));
    let mut places = [Some(PathBuf::from(NAME)), built_in].into_iter().flatten();
    places.find(|path| path.is_file()).ok_or_else(|| {
        let text = format!(
            "no ./{NAME} in this directory; run the command in the project, or pass --config FILE"
        );
        CommandFailure::usage(text).into()
    })
}

/// Returns the source tree from which `program` was built. This is the directory that contains the
/// directory `target` of the build. Returns `None` for an installed program.
fn source_tree(program: &Path) -> Option<&Path> {
    let target = program.ancestors().nth(2)?;
    target.parent().filter(|_| target.ends_with("target"))
}

/// Creates the directory `path` for the journal of this run. The directory stays, so that a person
/// can inspect the journal later.
fn create_run_directory(path: &Path) -> anyhow::Result<()> {
    for directory in [path.to_owned(), path.join("copies")] {
        std::fs::create_dir(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
    }

    Ok(())
}

/// Returns a new path for the directory of a run. The directory is in `temporary` or, if the path
/// of the control socket would be too long there, in `/tmp`. macOS gives each user a long path for
/// temporary files. If `has_long_names` is true, no path is too long, because the operating system
/// can name a directory by a file descriptor.
fn run_directory(temporary: &Path, has_long_names: bool) -> PathBuf {
    let name = format!("organism-demo-{}", uuid::Uuid::now_v7().simple());
    let path = temporary.join(&name);
    let socket = socket_path(&path.join("data"));
    let fits = has_long_names || socket.as_os_str().len() <= limits::SOCKET_NAME_BYTES;
    if fits { path } else { Path::new("/tmp").join(name) }
}

fn load(
    file: &Path,
    directory: Option<&Path>,
    place: &Path,
) -> anyhow::Result<Result<Config, config::ConfigProblems>> {
    let mut around = ConfigEnvironment::of_process();
    if let Some(directory) = directory {
        let root = std::path::absolute(directory)?;
        around.variables.insert("ROOT".to_owned(), root.display().to_string());
    }

    Ok(config::load(file, &around).map(|mut config| {
        config.data = place.join("data");
        config.state = place.join("state");
        config.checkpoints = Some(place.join("copies"));
        config.project.data_parent = None;
        config.project.state_parent = None;
        config
    }))
}

/// Sends the question of the demo to the organism, and shows the journal's records as they are
/// written. Returns the answer, or `None` if the question ended without an answer.
async fn ask(
    config: Config,
    payload: Vec<u8>,
    output: &RenderOutput,
) -> anyhow::Result<Option<String>> {
    let data = config.data.clone();
    let client = ListenerName::parse("desk")?;
    let organism = CommandOrganism::of(Organism::start(config).await?.into())?;
    let question = SubmitRequest {
        client,
        thread: None,
        suggested: None,
        key: None,
        payload,
        wait: true,
        trace: None,
        secret: None,
    };

    let mut answer = None;
    let mut view = demo_view::DemoView::new(*output);
    let mut seen = Position(0);
    let mut shown = Ok(());
    let asked = {
        let sending = organism.submit(question, |sent| match sent {
            SubmitUpdate::Result { how: thread::Closing::Completed, replies, .. } => {
                answer = replies.into_iter().next().and_then(|reply| reply.payload);
            }
            SubmitUpdate::Result { replies, .. } => {
                replies.iter().for_each(|reply| note!("{}", reply.text()));
            }
            SubmitUpdate::Refused { refusal, .. } => note!("refused: {refusal}"),
            SubmitUpdate::Accepted { .. }
            | SubmitUpdate::NoThread { .. }
            | SubmitUpdate::Waits(_) => {}
        });

        let following = organism.follow(|_, position| {
            if position > seen {
                shown = show_since(&data, &mut seen, &mut view);
            }
            match shown {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });

        let mut sending = std::pin::pin!(sending);
        let asking = async {
            tokio::select! {
                sent = &mut sending => sent,
                // The follower ends early if the output is closed.
                followed = following => {
                    followed?;
                    sending.await
                }
            }
        };
        organism.until_stopped(asking).await
    };

    if let Ok(asked) = asked {
        asked?;
    }
    shown?;
    show_since(&data, &mut seen, &mut view)?;
    organism.close(&format!("the journal of this demo is in {}", data.display())).await?;
    Ok(answer)
}

fn show_since(
    data: &Path,
    seen: &mut Position,
    view: &mut demo_view::DemoView,
) -> anyhow::Result<()> {
    let reader = JournalReader::open(data)?;
    let last = reader.last()?;
    for sealed in reader.records(Position(seen.0 + 1), last)? {
        put(&view.record(&sealed.record))?;
    }
    *seen = last;
    Ok(())
}

fn opening(output: &RenderOutput, file: &Path, directory: Option<&Path>) -> String {
    let of = directory.map_or("this source tree".to_owned(), |path| path.display().to_string());
    let title = output.bold(&format!("A research desk answers a question about {of}."));
    let lines = [
        "The model's turns are recorded. Everything else is real and happens now: the",
        "listener processes, the searches, every check, the timer, the journal.",
    ];
    format!(
        "{title}\n{}\n{}\n\n",
        lines.join("\n"),
        output.dim(&format!("config {}", file.display()))
    )
}

/// Describes the answer and the verification of the journal, and suggests further commands. `again`
/// contains the arguments with which the user can ask the question again.
fn closing(
    output: &RenderOutput,
    again: &str,
    [data, state, copies]: [&Path; 3],
    answer: Option<&str>,
) -> anyhow::Result<String> {
    let options = VerifyOptions {
        state: Some(state.to_owned()),
        checkpoints: Some(copies.to_owned()),
        ..VerifyOptions::default()
    };
    let report = audit::verify_with(data, &options, &mut |_, _| {})?;
    let tally = report.messages;

    let mut out = format!("\n{}\n", output.bold("The answer"));
    match answer {
        Some(answer) => {
            let lines = payload_lines(answer);
            for line in lines.iter().flat_map(|line| wrap(line, output.columns - 2)) {
                out.push_str(&format!("  {line}\n"));
            }
        }
        None => out.push_str("  none: the thread above shows the reason\n"),
    }

    out.push_str(&format!("\n{}\n", output.bold("The proof")));
    out.push_str(&format!(
        "  {}, {} accepted = {} settled + {} in flight, {} refused\n",
        count(report.records, "record"),
        tally.accepted,
        tally.settled,
        report.in_flight,
        tally.refused
    ));
    out.push_str(&match &report.broken {
        None => format!("  {}\n", output.green("the chain and its signed checkpoints are valid")),
        Some(broken) => format!("  {}\n", output.red(&format!("BROKEN: {}", broken.detail))),
    });

    out.push_str(&format!("\n{}\n", output.bold("Try next")));
    let summaries = audit::summaries(&JournalReader::open(data)?, None)?;
    let mut roots = summaries.iter().map(|summary| summary.thread.to_string());
    let thread = roots.find(|root| root != ThreadId::ORGANISM).unwrap_or_default();
    let data = data.display();
    let state = state.display();
    let copy = CheckpointCopies::file_in(copies, report.journal.unwrap_or_default());
    let copy = copy.display();

    for (command, what) in [
        (format!("organism thread {} --data {data}", thread), "read it again"),
        (
            format!("organism verify --data {data} --state {state} --checkpoint {copy}"),
            "prove it again",
        ),
        (format!("organism send {again}"), "ask it yourself"),
        ("organism init my-organism".to_owned(), "start one of your own"),
    ] {
        out.push_str(&format!("  {command}\n      {}\n", output.dim(what)));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_program_has_no_source_tree() {
        let built = Path::new("/src/organism/target/debug/organism");
        assert_eq!(source_tree(built), Some(Path::new("/src/organism")));
        assert_eq!(source_tree(Path::new("/opt/me/.cargo/bin/organism")), None);
        assert_eq!(source_tree(Path::new("/usr/bin/organism")), None);
    }

    #[test]
    fn a_demo_runs_in_the_temporary_directory_unless_the_path_of_its_socket_is_too_long_there() {
        let of_macos = "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T";
        for (temporary, parent) in [("/var/tmp", "/var/tmp"), (of_macos, "/tmp")] {
            let on_linux = run_directory(Path::new(temporary), true);
            assert_eq!(on_linux.parent(), Some(Path::new(temporary)));

            let directory = run_directory(Path::new(temporary), false);
            assert_eq!(directory.parent(), Some(Path::new(parent)));
            let socket = socket_path(&directory.join("data"));
            assert!(socket.as_os_str().len() <= limits::SOCKET_NAME_BYTES);
        }
    }
}
