//! The command line. Each subcommand has one file, which parses the arguments, calls lower modules,
//! and prints. This module has no logic of its own.

/// Writes a line to standard output.
macro_rules! put_line {
    ($($text:tt)*) => { $crate::cli::output::put_line(format_args!($($text)*)) };
}

/// Writes a line to standard error.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::cli::output::note_line(format_args!($($text)*))
    };
}

/// Writes text to standard error without ending the line.
macro_rules! note_part {
    ($($text:tt)*) => { $crate::cli::output::note(format_args!($($text)*)) };
}

mod action_text;
mod adopt;
mod all_from;
mod answer;
mod approvals;
mod approve;
mod backup;
mod cancel;
mod check;
mod child_commands;
mod command_organism;
mod config;
mod config_error_carets;
mod confirmation;
pub mod debug;
mod decision;
mod deferred_args;
mod demo;
mod diff;
mod exit;
mod export;
mod fork;
mod held_page;
mod host;
mod indexed;
mod init;
mod journal_target;
mod key;
mod listener;
mod log_filter;
mod message;
mod message_lookup;
mod missing_partitions;
mod models;
mod money;
mod named_config;
mod nats_config;
mod new_files;
mod operator;
mod organism_reach;
mod output;
mod output_file;
mod passphrase;
mod past_prompt;
mod pause;
mod pause_action;
mod permitted_names;
mod promote;
mod prompt;
mod record;
mod refuse;
mod reload;
mod render;
mod repair;
mod replay;
mod resume;
mod retry;
mod run;
mod schema;
mod search;
mod secret;
mod send;
mod serve;
mod sql;
mod startup;
mod stats;
mod stderr_queue;
mod stop_signals;
mod submit_output;
mod tail;
mod thread;
mod thread_query;
mod threads;
mod trial;
mod verify;
mod waiting_message;
mod web_view;
mod workflow;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::builder::Styles;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::bus::nats::AGENT_PROTOCOL_VERSION;
use crate::bus::process::use_this_program;
use crate::clock::Time;
use crate::journal;
use crate::pump::core::CORE_VERSION;
use crate::service::encoding;
use crate::xml::invisible_characters::{hidden, is_hidden};
use deferred_args::DeferredArgs;
pub use exit::CommandExit;
use exit::CommandFailure;

/// Text that `--version` prints after the name of the program.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\njournal format {}, stream format {}, core version {CORE_VERSION}, service protocol \
         {}, agent protocol {AGENT_PROTOCOL_VERSION}",
        env!("CARGO_PKG_VERSION"),
        journal::FORMAT,
        journal::jetstream::STREAM_FORMAT,
        encoding::VERSION
    )
});

/// An XML message bus for multi-agent workflows.
#[derive(Debug, Parser)]
#[command(name = "organism", version, long_version = LONG_VERSION.as_str(), about)]
#[command(max_term_width = 100)]
#[command(
    after_help = "ORGANISM_LOG sets the log level: error, warn, info, debug or trace. Without \
                        it, warnings and what listeners write to standard error are shown."
)]
pub struct CommandLine {
    #[command(subcommand)]
    verb: CommandVerb,
}

#[derive(Debug, Subcommand)]
enum CommandVerb {
    /// Write a project to start from.
    Init(DeferredArgs<init::Args>),
    /// Run the research desk on a directory, with recorded model turns.
    Demo(DeferredArgs<demo::Args>),
    /// Start an organism and keep it running.
    Run(DeferredArgs<run::Args>),
    /// Make the running organism load its changed config.
    Reload(DeferredArgs<reload::Args>),
    /// Run agents in this process for a pump on another machine.
    Host(DeferredArgs<host::Args>),
    /// Send a payload and wait for the result.
    Send(DeferredArgs<send::Args>),
    /// Check a config without starting anything.
    Check(DeferredArgs<check::Args>),
    /// Show the present config, or an earlier one that is on record, and write its files into a
    /// directory.
    Config(DeferredArgs<config::Args>),
    /// Show the prompt of an agent without sending it.
    Prompt(DeferredArgs<prompt::Args>),
    /// List the models and try them.
    Models(DeferredArgs<models::Args>),
    /// Run an organism with live models, and write the answers of the models as a recording.
    Record(DeferredArgs<record::Args>),
    /// List threads.
    Threads(DeferredArgs<threads::Args>),
    /// Show one thread with its subthreads.
    Thread(DeferredArgs<thread::Args>),
    /// Compare two threads and show where they differ first.
    Diff(DeferredArgs<diff::Args>),
    /// Show everything on record about one message.
    Message(DeferredArgs<message::Args>),
    /// Follow messages as they are recorded.
    Tail(DeferredArgs<tail::Args>),
    /// Find messages by text.
    Search(DeferredArgs<search::Args>),
    /// Query the index, a database made from the journal's records, with SQL.
    Sql(DeferredArgs<sql::Args>),
    /// Show the journal's records in a browser.
    Serve(DeferredArgs<serve::Args>),
    /// Sum costs, times and refusals by agent, model, listener, rule or day.
    Stats(DeferredArgs<stats::Args>),
    /// Continue a recorded thread in a new thread, from one of the recorded messages, without
    /// repeating effects.
    Fork(DeferredArgs<fork::Args>),
    /// Send a refused or failed message again, as a new message of the same sender.
    Retry(DeferredArgs<retry::Args>),
    /// Run recorded threads under a changed config, without effects, and compare.
    Try(DeferredArgs<trial::Args>),
    /// Cancel a thread and everything beneath it.
    Cancel(DeferredArgs<cancel::Args>),
    /// Stop handing over calls of a thread, calls to a listener, or all calls, until `resume`.
    Pause(DeferredArgs<pause::Args>),
    /// End a pause.
    Resume(DeferredArgs<resume::Args>),
    /// List the calls that wait for an approval.
    Approvals(DeferredArgs<approvals::Args>),
    /// Approve a held call: exactly the bytes you have seen.
    Approve(DeferredArgs<approve::Args>),
    /// Refuse a held call.
    Refuse(DeferredArgs<refuse::Args>),
    /// List questions to people, and answer them.
    Answer(DeferredArgs<answer::Args>),
    /// Copy the journal while the organism runs.
    Backup(DeferredArgs<backup::Args>),
    /// Verify that no record of the journal was changed or removed.
    Verify(DeferredArgs<verify::Args>),
    /// Make each recorded decision again from its recorded input, and compare it with the record.
    Replay(DeferredArgs<replay::Args>),
    /// Write threads out as XML or JSON lines.
    Export(DeferredArgs<export::Args>),
    /// Show workflows, and run them.
    Workflow(DeferredArgs<workflow::Args>),
    /// Check and describe schemas, validate texts against them, and convert other formats to
    /// schemas.
    Schema(DeferredArgs<schema::Args>),
    /// Write the config and the keys of NATS servers.
    NatsConfig(DeferredArgs<nats_config::Args>),
    /// Accept the journal of a project that was moved, or a journal that an earlier version of this
    /// program made.
    Adopt(DeferredArgs<adopt::Args>),
    /// Move an embedded journal to NATS JetStream.
    Promote(DeferredArgs<promote::Args>),
    /// Accept damage that keeps an organism from starting: lost records, or records of another key.
    Repair(DeferredArgs<repair::Args>),
    /// Show the key that signs this host's checkpoints.
    Key(DeferredArgs<key::Args>),
    /// Make secrets for clients.
    Secret(DeferredArgs<secret::Args>),
    /// Make the key with which an operator signs decisions.
    Operator(DeferredArgs<operator::Args>),
    /// List, install and test listeners.
    Listener(DeferredArgs<listener::Args>),
    #[command(hide = true)]
    Debug(DeferredArgs<debug::Args>),
}

/// Parses the command line and runs its command.
pub fn main() -> ExitCode {
    if let Some(code) = child_commands::run() {
        return code;
    }

    log();
    use_this_program();
    let code = match CommandLine::try_parse() {
        Ok(command) => {
            let done = require_clock().and_then(|()| command.verb.run());
            done.unwrap_or_else(|error| exit::report(&error))
        }
        Err(error) => show_help(&error),
    };
    // The organisms of the command have stopped, and the end of the runtime may take a while.
    startup::end_orphans();
    startup::end_runtime();
    startup::end_orphans();
    let code = output::finish(code);
    stderr_queue::finish();
    code
}

/// Fails if the system clock is before 1970, because no id can be made then.
fn require_clock() -> anyhow::Result<()> {
    let now = Time::now();
    if !now.is_before_epoch() {
        return Ok(());
    }
    let text = format!(
        "the clock of this machine is before 1970, at {now}: set it, for example with a time \
         server, and run the command again; nothing was done"
    );
    Err(CommandFailure::new(CommandExit::Unavailable, text).into())
}

/// Prints a help text, the version, or an error in the arguments, for a command line that runs no
/// command. Returns the exit code of the process.
fn show_help(text: &clap::Error) -> ExitCode {
    if !text.use_stderr() {
        output::note_written(text.print());
        return CommandExit::Done.into();
    }

    // Without styles, each hidden character in the text is from the arguments.
    let plain = CommandLine::command().styles(Styles::plain()).try_get_matches();
    let plain = plain.err().map(|text| text.render().ansi().to_string());
    match plain {
        Some(plain) if hidden(&plain) > 0 => note!("{}", plain.trim_end()),
        // The exit code states the error, even if its text cannot be written.
        _ => drop(text.print()),
    }
    CommandExit::Usage.into()
}

impl CommandVerb {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Init(DeferredArgs(args)) => init::run(args),
            Self::Demo(DeferredArgs(args)) => demo::run(args),
            Self::Run(DeferredArgs(args)) => run::run(args),
            Self::Reload(DeferredArgs(args)) => reload::run(args),
            Self::Host(DeferredArgs(args)) => host::run(args),
            Self::Send(DeferredArgs(args)) => send::run(args),
            Self::Check(DeferredArgs(args)) => check::run(args),
            Self::Config(DeferredArgs(args)) => config::run(args),
            Self::Prompt(DeferredArgs(args)) => prompt::run(args),
            Self::Models(DeferredArgs(args)) => models::run(args),
            Self::Record(DeferredArgs(args)) => record::run(args),
            Self::Threads(DeferredArgs(args)) => threads::run(args),
            Self::Thread(DeferredArgs(args)) => thread::run(args),
            Self::Diff(DeferredArgs(args)) => diff::run(&args),
            Self::Message(DeferredArgs(args)) => message::run(args),
            Self::Tail(DeferredArgs(args)) => tail::run(args),
            Self::Search(DeferredArgs(args)) => search::run(args),
            Self::Sql(DeferredArgs(args)) => sql::run(args),
            Self::Serve(DeferredArgs(args)) => serve::run(args),
            Self::Stats(DeferredArgs(args)) => stats::run(args),
            Self::Fork(DeferredArgs(args)) => fork::run(args),
            Self::Retry(DeferredArgs(args)) => retry::run(args),
            Self::Try(DeferredArgs(args)) => trial::run(&args),
            Self::Cancel(DeferredArgs(args)) => cancel::run(args),
            Self::Pause(DeferredArgs(args)) => pause::run(args),
            Self::Resume(DeferredArgs(args)) => resume::run(args),
            Self::Approvals(DeferredArgs(args)) => approvals::run(args),
            Self::Approve(DeferredArgs(args)) => approve::run(args),
            Self::Refuse(DeferredArgs(args)) => refuse::run(args),
            Self::Answer(DeferredArgs(args)) => answer::run(args),
            Self::Backup(DeferredArgs(args)) => backup::run(args),
            Self::Verify(DeferredArgs(args)) => verify::run(args),
            Self::Replay(DeferredArgs(args)) => replay::run(args),
            Self::Export(DeferredArgs(args)) => export::run(args),
            Self::Workflow(DeferredArgs(args)) => workflow::run(args),
            Self::Schema(DeferredArgs(args)) => schema::run(args),
            Self::NatsConfig(DeferredArgs(args)) => nats_config::run(args),
            Self::Adopt(DeferredArgs(args)) => adopt::run(args),
            Self::Promote(DeferredArgs(args)) => promote::run(args),
            Self::Repair(DeferredArgs(args)) => repair::run(args),
            Self::Key(DeferredArgs(args)) => key::run(args),
            Self::Secret(DeferredArgs(args)) => secret::run(args),
            Self::Operator(DeferredArgs(args)) => operator::run(args),
            Self::Listener(DeferredArgs(args)) => listener::run(args),
            Self::Debug(DeferredArgs(args)) => debug::run(args),
        }
    }
}

/// Target of the log lines that listeners wrote to their standard error.
const LISTENER_TARGET: &str = "listener";

/// Output of the log, with a [`LogWriter`] for each log line.
struct LogOutput;

/// Writer of a log line to standard error.
struct LogWriter {
    /// Whether this program, and not a listener, wrote the log line. If true, the writer adds the
    /// `--config` option of the present command to each command that the line recommends.
    is_own: bool,
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for LogOutput {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        LogWriter { is_own: true }
    }

    fn make_writer_for(&'a self, metadata: &tracing::Metadata<'_>) -> LogWriter {
        LogWriter { is_own: metadata.target() != LISTENER_TARGET }
    }
}

impl std::io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let mut text = visible_log(&String::from_utf8_lossy(line));
        if self.is_own {
            text = named_config::with_option(&text).into_owned();
        }

        match stderr_queue::started() {
            Some(queue) => queue.write(text),
            None => workflow::write_log(&text)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        // Standard error has no buffer. Its lock may be held for long by a write that blocks.
        Ok(())
    }
}

/// Returns log lines in which each character that a screen would hide or interpret is replaced by
/// its code point. Keeps terminal escapes, which can only be colours of the log itself: the log
/// library has already replaced all other escapes.
fn visible_log(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && c != '\u{1b}' {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }

    shown
}

/// Starts logging to stderr. `ORGANISM_LOG` sets the level.
fn log() {
    let variable = std::env::var_os("ORGANISM_LOG");
    let given = log_filter::from_variable(variable.as_deref()).unwrap_or_else(|problem| {
        note!("{problem}");
        None
    });
    let is_given = given.is_some();
    let filter = given.unwrap_or_else(log_filter::by_default);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogOutput)
        .with_target(is_given)
        .with_ansi(output::has_colours(&std::io::stderr()))
        // A closed stderr must not end the command.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_same_description_in_the_list_and_in_its_own_help() {
        let listed = CommandLine::command();
        let mut built = listed.clone();
        built.build();
        for command in listed.get_subcommands() {
            let own = built.find_subcommand(command.get_name()).unwrap();
            assert_eq!(own.get_about(), command.get_about(), "{}", command.get_name());
            assert_eq!(own.get_long_about(), command.get_long_about(), "{}", command.get_name());
        }
    }

    /// Every option for the reason or the note of an action refuses a text that the journal would cut.
    #[test]
    fn every_note_and_reason_of_an_action_has_a_limit() {
        fn checked(command: &clap::Command, found: &mut usize) {
            for option in command.get_arguments() {
                let name = option.get_long().unwrap_or_default();
                // `retry --reason` selects requests.
                let is_filter = command.get_name() == "retry" && name == "reason";
                if is_filter || !["note", "reason"].contains(&name) {
                    continue;
                }
                let parsed = option.get_value_parser().type_id();
                let text = std::any::TypeId::of::<action_text::ActionText>();
                assert!(parsed == text, "{} --{name}", command.get_name());
                *found += 1;
            }
            command.get_subcommands().for_each(|command| checked(command, found));
        }

        let mut built = CommandLine::command();
        built.build();
        let mut found = 0;
        checked(&built, &mut found);
        assert!(found >= 14, "{found}");
    }

    #[test]
    fn a_command_without_its_argument_names_the_option_that_replaces_the_argument() {
        for (words, expected) in [
            (&["approve"][..], "<MESSAGE|--all-from <THREAD>>"),
            (&["refuse"], "<MESSAGE|--all-from <THREAD>>"),
            (&["send"], "<PAYLOAD|--each <DIR>>"),
            (&["schema", "validate"], "<SCHEMA|--batch>"),
            (&["workflow", "test"], "<FILE|--from <RUN>>"),
        ] {
            let words = ["organism"].iter().chain(words);
            let error = CommandLine::command().try_get_matches_from(words).unwrap_err().to_string();
            let (missing, usage) = error.split_once("Usage").unwrap();
            assert!(missing.contains(expected) && usage.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_log_line_keeps_its_colours_and_shows_what_would_rewrite_it() {
        let line = "\u{1b}[32m INFO\u{1b}[0m a\r\u{202e}b\u{2028}\\u{d}\tc\n";
        let shown = "\u{1b}[32m INFO\u{1b}[0m a\\u{d}\\u{202e}b\\u{2028}\\u{d}\tc\n";
        assert_eq!(visible_log(line), shown);
    }
}
