//! `organism send`: submits a payload, waits for the result, and prints the result.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use futures_util::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};

use crate::config::Config;
use crate::ids::Digest;
use crate::service::{self, BearerSecret, SubmitRequest, SubmitUpdate};
use crate::trace::TraceParent;

use super::CommandExit;
use super::command_organism::CommandOrganism;
use super::exit::CommandFailure;
use super::named_config;
use super::output::put_recorded_line;
use super::permitted_names::{note_permitted, permitted_names};
use super::startup::{self, ConfigArg};
use super::submit_output::{exit_of, print_json, print_plain, worse};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// File with the payload, or `-` for standard input.
    #[arg(required_unless_present = "each")]
    payload: Option<PathBuf>,
    /// Send every file of a directory, each into its own thread.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["payload", "thread", "new", "key"])]
    each: Option<PathBuf>,
    /// Continue an existing thread.
    #[arg(long, value_name = "ID", conflicts_with = "new")]
    thread: Option<String>,
    /// Id of the new thread.
    #[arg(long, value_name = "ID")]
    new: Option<String>,
    /// A key of your choice. Sending with the same key again returns the recorded answer and does
    /// nothing twice.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// W3C trace of the request. Default: the variable TRACEPARENT, if it is set.
    #[arg(long)]
    traceparent: Option<TraceParent>,
    /// Client in whose name the command sends. Required if the config has several clients.
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// Return as soon as the payload is on record.
    #[arg(long)]
    no_wait: bool,
    /// Write the progress as JSON lines.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load_without_keys()?;
    let client = startup::client(&config, args.client.as_deref())?;
    let trace = args.traceparent.or_else(surrounding_trace);
    let secret = config.secret_of(&client).as_ref().map(BearerSecret::of);
    let submission = |payload: Vec<u8>, key: Option<String>| SubmitRequest {
        client: client.clone(),
        thread: args.thread.clone(),
        suggested: args.new.clone(),
        key,
        payload,
        wait: !args.no_wait,
        trace,
        secret: secret.clone(),
    };

    let runtime = startup::runtime()?;

    match (&args.each, &args.payload) {
        (Some(directory), _) => {
            let files = files_of(directory)?;
            let make = |path: &Path| {
                let payload = startup::bytes(path)?;
                let key = key_of(path, &payload);
                Ok(submission(payload, Some(key)))
            };
            runtime.block_on(send_each(config, &files, make, !args.no_wait, args.json))
        }
        (None, Some(path)) => {
            let submission = submission(startup::bytes(path)?, args.key.clone());
            runtime.block_on(send_one(config, submission, args.json))
        }
        (None, None) => Err(CommandFailure::usage("nothing to send: name a file").into()),
    }
}

/// Returns the trace context of the program that started this command, from the variable
/// `TRACEPARENT`. Returns `None` if the variable is not set or invalid. An invalid value is no
/// error, because the user did not type it for this command.
fn surrounding_trace() -> Option<TraceParent> {
    std::env::var("TRACEPARENT").ok()?.parse().ok()
}

async fn send_one(
    config: Config,
    submission: SubmitRequest,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let permitted = permitted_names(&config.contracts, &submission.client);
    let organism = CommandOrganism::open(config).await?;

    let mut exit = CommandExit::Done;
    let mut opened = None;
    let mut is_group = false;
    let wait = submission.wait;
    let thread = submission.thread.clone();

    let sending = organism.submit(submission, |sent| {
        exit = worse(exit, exit_of(&sent, wait));
        if let SubmitUpdate::Accepted { thread, calls, .. } = &sent {
            opened = Some(thread.clone());
            is_group = calls.len() > 1;
        }
        match (json, &sent, &thread) {
            (true, ..) => print_json(None, &sent),
            (false, SubmitUpdate::NoThread { .. }, Some(thread)) => note_unknown_thread(thread),
            (false, ..) => print_plain(&sent, wait, is_group),
        }
        if let (SubmitUpdate::Refused { refusal, .. }, false) = (&sent, json) {
            note_permitted(refusal, &permitted);
        }
    });
    let sent = organism.until_stopped(sending).await;

    let is_own = organism.is_own();
    organism.close_after(sent, opened.as_ref()).await?;
    if is_own && !wait && !json && opened.is_some() {
        note!(
            "no organism was running, so one ran for this command alone: the payload is on record, \
             and work that had not ended goes on with `organism run{}`",
            named_config::option()
        );
    }
    if let (CommandExit::WorkflowFailed, Some(thread), false) = (exit, opened, json) {
        note!("failed; `organism thread {thread}` shows how");
    }

    Ok(exit.into())
}

async fn send_each(
    config: Config,
    files: &[PathBuf],
    make: impl Fn(&Path) -> anyhow::Result<SubmitRequest>,
    wait: bool,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let is_divided = config.partitions() > 1;
    let organism = CommandOrganism::open(config).await?;
    let bar = progress(files.len());
    let mut tally = SendTally { wait, is_divided, ..SendTally::default() };
    let mut sent_files = 0;

    for chunk in files.chunks(IN_PARALLEL) {
        let submissions = chunk.iter().filter_map(|path| match make(path) {
            Ok(submission) => Some((path, submission)),
            Err(error) => {
                bar.suspend(|| tally.unread(path, &error));
                None
            }
        });
        let submissions: Vec<_> = submissions.collect();
        let mut is_reached = submissions.is_empty();
        let sending = submissions.into_iter().map(|(path, submission)| {
            let organism = &organism;
            let bar = &bar;
            async move {
                let mut all = Vec::new();
                let sent = organism.submit(submission, |sent| {
                    // Other results are printed in the order of the files, which may take as long
                    // as the slowest of them.
                    bar.suspend(|| note_wait(path, &sent, wait));
                    all.push(sent);
                });
                let sent = sent.await;
                (path, all, sent)
            }
        });
        let Ok(results) = organism.until_stopped(join_all(sending)).await else { break };
        for (path, all, sent) in results {
            is_reached |= sent.is_ok() || !all.is_empty();
            bar.suspend(|| match sent {
                Ok(()) => tally.count(path, &all, json),
                Err(error) => tally.fail(path, &all, error, json),
            });
            bar.inc(1);
        }

        sent_files += chunk.len();
        if tally.fatal.is_some() || !is_reached {
            break;
        }
    }

    bar.finish_and_clear();
    let closed = organism
        .close(
            "send the directory again later; files that were accepted are recognised by their \
             keys, and their work goes on at the next start",
        )
        .await;
    if let Some(fatal) = tally.fatal.take() {
        return Err(fatal.into());
    }
    closed?;
    // No pump responded to any file of the last chunk, so the rest was not tried.
    tally.to_repeat += files.len() - sent_files;
    note!("{}", tally.summary(files.len()));
    Ok(tally.exit().into())
}

/// Maximum number of files of a directory that are sent at the same time.
const IN_PARALLEL: usize = 64;

/// Counts of the results for the files of a directory.
#[derive(Default)]
struct SendTally {
    done: usize,
    held: usize,
    refused: usize,
    failed: usize,
    /// Number of files to send again later, for one of these reasons:
    ///
    /// - The organism had no room for the file, or was stopping.
    /// - No pump of the file's partition responded.
    /// - The command ended before it sent the file.
    to_repeat: usize,
    /// The first error that concerns all files, and so ends the command.
    fatal: Option<service::Error>,
    wait: bool,
    /// Whether the journal has several partitions. If the pump of one partition does not respond,
    /// the command then still sends files to the other partitions.
    is_divided: bool,
}

impl SendTally {
    fn count(&mut self, path: &Path, all: &[SubmitUpdate], json: bool) {
        let exit = all.iter().map(|sent| exit_of(sent, self.wait));
        match exit.fold(CommandExit::Done, worse) {
            CommandExit::Done => self.done += 1,
            CommandExit::ApprovalPending => self.held += 1,
            CommandExit::InvalidData => self.refused += 1,
            CommandExit::TryAgain => self.to_repeat += 1,
            _ => self.failed += 1,
        }

        print_all(path, all, json);
    }

    /// Prints the responses that arrived for a file before its submission ended with `error`. If
    /// the error concerns only one of several partitions, also prints the error, and counts the
    /// file as one to send again. The command then still sends the other files. Any other error
    /// ends the command.
    fn fail(&mut self, path: &Path, all: &[SubmitUpdate], error: service::Error, json: bool) {
        print_all(path, all, json);
        match error {
            service::Error::NoPump { .. }
            | service::Error::Unanswered { .. }
            | service::Error::Lost
                if self.is_divided =>
            {
                self.to_repeat += 1;
                note!("{}: {error}", file_name(path));
            }
            error => {
                self.fatal.get_or_insert(error);
            }
        }
    }

    /// Counts a file that was not sent because of `error`, and prints the error. The command still
    /// sends the other files.
    fn unread(&mut self, path: &Path, error: &anyhow::Error) {
        self.failed += 1;
        note!("{} was not sent: {error:#}", file_name(path));
    }

    /// Describes the results of all `files` on one line, and states whether to repeat the command.
    fn summary(&self, files: usize) -> String {
        let Self { done, held, refused, failed, to_repeat, .. } = self;
        let held = if *held > 0 { format!(" {held} held,") } else { String::new() };
        let counts = format!("{files} sent: {done} done,{held} {refused} refused, {failed} failed");
        match to_repeat {
            0 => counts,
            n => format!(
                "{counts}, {n} to send again: repeat the command later; files that were accepted \
                 are recognised by their keys"
            ),
        }
    }

    /// Returns the exit code for the most serious result. A failed or refused file is more serious
    /// than a file that must only be sent again.
    fn exit(&self) -> CommandExit {
        if self.failed > 0 {
            CommandExit::WorkflowFailed
        } else if self.refused > 0 {
            CommandExit::InvalidData
        } else if self.to_repeat > 0 {
            CommandExit::TryAgain
        } else if self.held > 0 {
            CommandExit::ApprovalPending
        } else {
            CommandExit::Done
        }
    }
}

/// Prints advice for people about an unknown thread, because the pump's own answer contains only
/// advice for agents.
fn note_unknown_thread(thread: &str) {
    note!(
        "refused: unknown-thread: this client has no thread {thread}; `organism threads` lists what \
         is on record. Without --thread a new thread is opened, with --new ID under that id"
    );
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

/// Prints a note if the work of a file waits for a person, or for something else that is missing.
fn note_wait(path: &Path, sent: &SubmitUpdate, wait: bool) {
    let file = file_name(path);
    match sent {
        SubmitUpdate::Accepted { thread, held: true, .. } if wait => {
            note!(
                "{file}: it waits for an approval; `organism approvals --all-from {thread}` shows it"
            );
        }
        SubmitUpdate::Waits(wait) => note!("{file}: {wait}"),
        _ => {}
    }
}

/// Prints the responses for one file of a directory.
fn print_all(path: &Path, all: &[SubmitUpdate], json: bool) {
    let file = file_name(path);
    for sent in all {
        if json { print_json(Some(&file), sent) } else { print_brief(&file, sent) }
    }
}

/// Prints the result of one file of a directory on one line.
fn print_brief(file: &str, sent: &SubmitUpdate) {
    match sent {
        SubmitUpdate::Accepted { .. } | SubmitUpdate::Waits(_) => {}
        SubmitUpdate::Refused { refusal, .. } => {
            put_recorded_line(&format!("{file}: refused: {refusal}"));
        }
        SubmitUpdate::NoThread { payload } => put_recorded_line(&format!("{file}: {payload}")),
        SubmitUpdate::Result { replies, .. } => {
            for reply in replies {
                put_recorded_line(&format!("{file}: {}", reply.text()));
            }
        }
    }
}

fn progress(files: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{pos}/{len} {bar:40} {eta}");
    let bar = ProgressBar::new(files as u64);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Derives the client key of a file from its name and its content. If the file is sent again, the
/// organism recognizes the key and does not process the file a second time.
fn key_of(path: &Path, payload: &[u8]) -> String {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    format!("file:{}", Digest::of_parts(&[name, b"\0", payload]))
}

/// Lists the regular files with the extension `xml` in a directory, sorted by name.
fn files_of(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = |e: std::io::Error| {
        CommandFailure::usage(format!("{} cannot be read: {e}", directory.display()))
    };

    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_xml = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("xml"));
        if path.is_file() && is_xml {
            files.push(path);
        }
    }

    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use crate::envelope::{Refusal, RefusalRule};

    use super::*;

    fn tally_of(rules: &[RefusalRule]) -> SendTally {
        let mut tally = SendTally::default();
        for rule in rules {
            let refusal = Refusal::new(*rule, "refused", b"<say/>");
            let refused = SubmitUpdate::Refused { refusal, retry_after_ms: None };
            tally.count(Path::new("in/1.xml"), &[refused], true);
        }
        tally
    }

    #[test]
    fn files_refused_for_now_are_to_be_sent_again_and_have_not_failed() {
        let for_now = [RefusalRule::Busy, RefusalRule::Draining, RefusalRule::StorageFull];
        let tally = tally_of(&for_now);
        assert_eq!(tally.exit(), CommandExit::TryAgain);
        let counts = "3 sent: 0 done, 0 refused, 0 failed, 3 to send again: repeat the command";
        assert!(tally.summary(3).starts_with(counts), "{}", tally.summary(3));

        let held = SendTally { held: 1, ..tally_of(&for_now) };
        assert_eq!(held.exit(), CommandExit::TryAgain);
        let refused = tally_of(&[RefusalRule::Busy, RefusalRule::SchemaInvalid]);
        assert_eq!(refused.exit(), CommandExit::InvalidData);
        let failed = SendTally { failed: 1, ..tally_of(&for_now) };
        assert_eq!(failed.exit(), CommandExit::WorkflowFailed);
    }

    #[test]
    fn a_file_of_a_partition_without_a_pump_is_to_be_sent_again_and_ends_nothing() {
        let mut tally = SendTally { is_divided: true, ..SendTally::default() };
        let detail = "no pump holds its lease".to_owned();
        let path = Path::new("in/1.xml");
        tally.fail(path, &[], service::Error::NoPump { partition: 1, detail }, true);
        tally.fail(path, &[], service::Error::Lost, true);
        assert_eq!(tally.exit(), CommandExit::TryAgain);
        assert_eq!(tally.to_repeat, 2);
        assert!(tally.fatal.is_none());

        tally.fail(path, &[], service::Error::Stopped, true);
        assert!(tally.fatal.is_some());

        let mut undivided = SendTally::default();
        undivided.fail(path, &[], service::Error::Lost, true);
        assert!(undivided.fatal.is_some());
    }
}
