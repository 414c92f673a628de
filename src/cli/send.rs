//! `organism send`: submits a payload, waits for the result, and prints the result.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgGroup;
use clap::builder::NonEmptyStringValueParser;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::Notify;

use crate::config::Config;
use crate::ids::Digest;
use crate::io_reason::io_reason;
use crate::limits;
use crate::plural::count;
use crate::service::{self, BearerSecret, SubmitRequest, SubmitUpdate, TreeWait, WaitKind};
use crate::trace::TraceParent;

use super::CommandExit;
use super::command_organism::CommandOrganism;
use super::exit::CommandFailure;
use super::named_config;
use super::output::{put_line, recorded};
use super::permitted_names::{note_permitted, permitted_names};
use super::render::one_line;
use super::startup::{self, ConfigArg};
use super::submit_output::{
    approval_note, exit_of, print_json, print_plain, print_unsent_json, worse,
};

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("payloads").required(true))]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// File with the payload, or `-` for standard input.
    #[arg(group = "payloads")]
    payload: Option<PathBuf>,
    /// Send every .xml file of a directory, each into its own thread.
    #[arg(
        long,
        value_name = "DIR",
        group = "payloads",
        conflicts_with_all = ["thread", "new", "key"]
    )]
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
    let sender = FileSender {
        organism: &organism,
        bar: progress(files.len()),
        window: SendWindow::default(),
        wait,
        json,
    };
    let mut tally = SendTally { is_divided, ..SendTally::default() };

    let sending = async {
        let mut unsent = files.iter();
        let mut in_flight = FuturesUnordered::new();
        loop {
            let can_send = unsent.len() > 0 && sender.window.is_open(in_flight.len());
            tokio::select! {
                () = tokio::task::yield_now(), if can_send => {
                    let Some(path) = unsent.next() else { break };
                    match make(path) {
                        Ok(submission) => {
                            sender.window.count_sent();
                            in_flight.push(sender.send(path, submission));
                        }
                        Err(error) => sender.show_end(|| tally.count_unsent(path, &error, json)),
                    }
                }
                Some((path, exit, sent)) = in_flight.next() => sender.show_end(|| match sent {
                    Ok(()) => tally.count(exit),
                    Err(error) => tally.fail(path, error),
                }),
                () = sender.window.changed.notified(), if !in_flight.is_empty() => {}
                else => break,
            }
            // Files in flight may wait for a person for days. If they are on record, their work
            // goes on without this command.
            if tally.fatal.is_some() {
                break;
            }
        }
    };
    // A signal or an error leaves files without a result. They count as files to send again.
    organism.until_stopped(sending).await.ok();

    sender.bar.finish_and_clear();
    note!("{}", tally.summary(files.len()));
    let closed = organism
        .close(
            "send the directory again later; files that were accepted are recognised by their \
             keys, and their work goes on at the next start",
        )
        .await;
    let exit = tally.exit(files.len());
    if let Some(fatal) = tally.fatal {
        return Err(fatal.into());
    }
    closed?;
    Ok(exit.into())
}

/// Maximum number of files of a directory that are in progress at the same time, not counting files
/// that have waited for a person. Including these files, the maximum is twice this number. The
/// double is less than the connections of one hosted listener, and at most a quarter of the
/// connections that an organism serves. The person's commands can therefore still connect.
const IN_PARALLEL: usize = 30;
const _: () = assert!(IN_PARALLEL * 2 < limits::LISTENER_CONNECTIONS_MAX);

/// Limit for the number of files of a directory that are in progress at the same time.
#[derive(Default)]
struct SendWindow {
    /// Number of unfinished files that have waited for a person at least once. Other files may be
    /// sent in their place. A file counts until it ends, because no update states that the wait of
    /// a whole thread tree is over.
    held: Cell<usize>,
    /// Number of files sent since the last response of a pump to any file.
    unanswered: Cell<usize>,
    /// Notified when an update of an unfinished file may permit a further file to be sent.
    changed: Notify,
}

impl SendWindow {
    /// Whether a further file may be sent while `in_flight` files have not ended.
    fn is_open(&self, in_flight: usize) -> bool {
        in_flight < 2 * IN_PARALLEL
            && in_flight - self.held.get() < IN_PARALLEL
            && self.unanswered.get() < IN_PARALLEL
    }

    fn count_sent(&self) {
        self.unanswered.update(|count| count + 1);
    }

    /// Counts an update from a pump. `begins_hold` states whether the file of this update now waits
    /// for a person for the first time.
    fn count_update(&self, begins_hold: bool) {
        self.unanswered.set(0);
        if begins_hold {
            self.held.update(|count| count + 1);
        }
        self.changed.notify_one();
    }

    /// Counts the end of a file that has waited for a person.
    fn count_end_of_held(&self) {
        self.held.update(|count| count - 1);
    }
}

/// Sends files of a directory, and prints each update when it arrives.
struct FileSender<'a> {
    organism: &'a CommandOrganism,
    bar: ProgressBar,
    window: SendWindow,
    wait: bool,
    json: bool,
}

impl FileSender<'_> {
    /// Sends a file, and waits for its results. Returns the path of the file, the exit code for the
    /// received updates, and the result of the submission. The exit code is `None` if no update has
    /// arrived.
    async fn send<'p>(
        &self,
        path: &'p Path,
        submission: SubmitRequest,
    ) -> (&'p Path, Option<CommandExit>, Result<(), service::Error>) {
        let mut exit = None;
        let mut was_held = false;

        let sending = self.organism.submit(submission, |sent| {
            exit = Some(worse(exit.unwrap_or(CommandExit::Done), exit_of(&sent, self.wait)));
            self.bar.suspend(|| self.show(path, &sent));
            let begins_hold = !was_held && is_held(&sent);
            was_held |= begins_hold;
            self.window.count_update(begins_hold);
        });
        let sent = sending.await;

        if was_held {
            self.window.count_end_of_held();
        }
        (path, exit, sent)
    }

    fn show(&self, path: &Path, sent: &SubmitUpdate) {
        let file = file_name(path);
        let shown = one_line(&file);
        note_wait(&shown, sent, self.wait);
        if self.json { print_json(Some(&file), sent) } else { print_brief(&shown, sent) }
    }

    /// Calls `count`, which counts a finished file and may print. Then moves the progress bar.
    fn show_end(&self, count: impl FnOnce()) {
        self.bar.suspend(count);
        self.bar.inc(1);
    }
}

/// Whether `sent` states that the work of a file stands still until a person acts.
fn is_held(sent: &SubmitUpdate) -> bool {
    match sent {
        SubmitUpdate::Accepted { held, .. } => *held,
        SubmitUpdate::Waits(TreeWait { wait, .. }) => matches!(
            wait,
            WaitKind::Approval { .. } | WaitKind::Answer { .. } | WaitKind::Paused { .. }
        ),
        _ => false,
    }
}

/// Counts of the results for the files of a directory.
#[derive(Default)]
struct SendTally {
    done: usize,
    held: usize,
    refused: usize,
    failed: usize,
    /// Number of files that could not be read or are too large, and so were not sent.
    unsent: usize,
    /// The first error that concerns all files, and so ends the command.
    fatal: Option<service::Error>,
    /// Whether the journal has several partitions. If true, a partition whose pump does not respond
    /// does not keep the command from sending files to the other partitions.
    is_divided: bool,
}

impl SendTally {
    /// Counts a file whose updates have the exit code `exit`. `None` counts as success.
    fn count(&mut self, exit: Option<CommandExit>) {
        match exit.unwrap_or(CommandExit::Done) {
            CommandExit::Done => self.done += 1,
            CommandExit::ApprovalPending => self.held += 1,
            CommandExit::InvalidData => self.refused += 1,
            CommandExit::TryAgain => {}
            _ => self.failed += 1,
        }
    }

    /// Handles `error`, with which the submission of the file at `path` has ended. If the error
    /// concerns only one of several partitions, prints the error. The command then continues with
    /// the other files, and the file counts as one to send again. Any other error ends the command.
    fn fail(&mut self, path: &Path, error: service::Error) {
        match error {
            service::Error::NoPump { .. }
            | service::Error::Unanswered { .. }
            | service::Error::Lost
                if self.is_divided =>
            {
                note!("{}: {error}", one_line(&file_name(path)));
            }
            error => {
                self.fatal.get_or_insert(error);
            }
        }
    }

    /// Counts a file that was not sent because of `error`, and prints the error, with `json` also
    /// as a line of JSON. The command still sends the other files.
    fn count_unsent(&mut self, path: &Path, error: &anyhow::Error, json: bool) {
        self.unsent += 1;
        let file = file_name(path);
        let error = format!("{error:#}");
        note!("{} was not sent: {}", one_line(&file), one_line(&error));
        if json {
            print_unsent_json(&file, &error);
        }
    }

    /// Returns how many of all `files` must be sent again later. These are the files without any
    /// other result, for one of these reasons:
    ///
    /// - The organism had no room for the file, or was stopping.
    /// - No pump of the file's partition responded.
    /// - The command ended before it had the results of the file.
    fn to_repeat(&self, files: usize) -> usize {
        let Self { done, held, refused, failed, unsent, .. } = self;
        files.saturating_sub(done + held + refused + failed + unsent)
    }

    /// Describes the results of all `files` on one line, and states whether to repeat the command.
    fn summary(&self, files: usize) -> String {
        let Self { done, held, refused, failed, unsent, .. } = self;
        let held = if *held > 0 { format!(" {held} held,") } else { String::new() };
        let unsent = if *unsent > 0 { format!(", {unsent} not sent") } else { String::new() };
        let of = count(files, "file");
        let counts = format!("{of}: {done} done,{held} {refused} refused, {failed} failed{unsent}");
        match self.to_repeat(files) {
            0 => counts,
            n => format!(
                "{counts}, {n} to send again: repeat the command later; files that were accepted \
                 are recognised by their keys"
            ),
        }
    }

    /// Returns the exit code for the most serious result. A failed, unsent or refused file is more
    /// serious than a file that must only be sent again.
    fn exit(&self, files: usize) -> CommandExit {
        if self.failed + self.unsent > 0 {
            CommandExit::WorkflowFailed
        } else if self.refused > 0 {
            CommandExit::InvalidData
        } else if self.to_repeat(files) > 0 {
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

/// If the work of a file makes no progress, prints a note with the reason, such as a missing
/// approval or a slow model.
fn note_wait(file: &str, sent: &SubmitUpdate, wait: bool) {
    match sent {
        SubmitUpdate::Accepted { thread, held: true, .. } if wait => {
            note!("{file}: {}", approval_note(thread));
        }
        SubmitUpdate::Waits(wait) => note!("{file}: {wait}"),
        _ => {}
    }
}

/// Prints the result of one file of a directory on one line. `file` is the name of the file in the
/// form of [`one_line`].
fn print_brief(file: &str, sent: &SubmitUpdate) {
    let print = |text: &str| put_line(format_args!("{file}: {}", recorded(text)));
    match sent {
        SubmitUpdate::Accepted { .. } | SubmitUpdate::Waits(_) => {}
        SubmitUpdate::Refused { refusal, .. } => print(&format!("refused: {refusal}")),
        SubmitUpdate::NoThread { payload } => print(payload),
        SubmitUpdate::Result { replies, .. } => {
            for reply in replies {
                print(reply.text());
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

/// Lists the regular files with the extension `xml` in a directory, sorted by name. A note states
/// how many other entries the directory has. A directory that has only other entries is an error.
fn files_of(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = |e: std::io::Error| {
        CommandFailure::usage(format!("{} cannot be read: {}", directory.display(), io_reason(&e)))
    };

    let mut files = Vec::new();
    let mut others = 0_usize;
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_xml = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("xml"));
        if path.is_file() && is_xml {
            files.push(path);
        } else {
            others += 1;
        }
    }

    if files.is_empty() && others > 0 {
        let text = format!("{} has no .xml file; nothing was sent", directory.display());
        return Err(CommandFailure::usage(text).into());
    }
    if others > 0 {
        note!("entries of {} that are no .xml files, left out: {others}", directory.display());
    }

    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use crate::envelope::{Refusal, RefusalRule};

    use super::*;

    /// Returns the counts after one refused file for each rule in `rules`.
    fn tally_of(rules: &[RefusalRule]) -> SendTally {
        let mut tally = SendTally::default();
        for rule in rules {
            let refusal = Refusal::new(*rule, "refused", b"<say/>");
            let refused = SubmitUpdate::Refused { refusal, retry_after_ms: None };
            tally.count(Some(exit_of(&refused, true)));
        }
        tally
    }

    #[test]
    fn files_refused_for_now_are_to_be_sent_again_and_have_not_failed() {
        let for_now = [RefusalRule::Busy, RefusalRule::Draining, RefusalRule::StorageFull];
        let tally = tally_of(&for_now);
        assert_eq!(tally.exit(3), CommandExit::TryAgain);
        let counts = "3 files: 0 done, 0 refused, 0 failed, 3 to send again: repeat the command";
        assert!(tally.summary(3).starts_with(counts), "{}", tally.summary(3));

        let held = SendTally { held: 1, ..tally_of(&for_now) };
        assert_eq!(held.exit(4), CommandExit::TryAgain);
        let refused = tally_of(&[RefusalRule::Busy, RefusalRule::SchemaInvalid]);
        assert_eq!(refused.exit(2), CommandExit::InvalidData);
        let failed = SendTally { failed: 1, ..tally_of(&for_now) };
        assert_eq!(failed.exit(4), CommandExit::WorkflowFailed);
    }

    #[test]
    fn a_file_of_a_partition_without_a_pump_is_to_be_sent_again_and_ends_nothing() {
        let mut tally = SendTally { is_divided: true, ..SendTally::default() };
        let no_pump = || service::Error::NoPump { partition: 1, detail: String::new() };
        let path = Path::new("in/1.xml");
        tally.fail(path, no_pump());
        tally.fail(path, service::Error::Lost);
        assert_eq!(tally.exit(2), CommandExit::TryAgain);
        assert_eq!(tally.to_repeat(2), 2);
        assert!(tally.fatal.is_none());

        tally.fail(path, service::Error::Stopped);
        assert!(tally.fatal.is_some());

        let mut undivided = SendTally::default();
        undivided.fail(path, service::Error::Lost);
        assert!(undivided.fatal.is_some());
    }

    #[test]
    fn held_files_leave_their_slots_to_others_up_to_a_limit() {
        let window = SendWindow::default();
        assert!(window.is_open(IN_PARALLEL - 1));
        assert!(!window.is_open(IN_PARALLEL));

        // Held files do not count, except for the limit of all files.
        (0..IN_PARALLEL + 2).for_each(|_| window.count_update(true));
        assert!(window.is_open(2 * IN_PARALLEL - 1));
        assert!(!window.is_open(2 * IN_PARALLEL));

        // One of them ends, and later others, each of which leaves its place to any file.
        window.count_end_of_held();
        assert!(window.is_open(2 * IN_PARALLEL - 1));
        (0..IN_PARALLEL).for_each(|_| window.count_end_of_held());
        assert!(window.is_open(IN_PARALLEL));
        assert!(!window.is_open(IN_PARALLEL + 1));
    }

    #[test]
    fn no_further_file_is_sent_after_many_to_which_no_pump_responds() {
        let window = SendWindow::default();
        (1..IN_PARALLEL).for_each(|_| window.count_sent());
        assert!(window.is_open(1));
        window.count_sent();
        assert!(!window.is_open(0));

        // A receipt of any file shows that a pump responds.
        window.count_update(false);
        assert!(window.is_open(1));
    }
}
