//! The whole product: the real command with real child processes and real files.

mod access;
mod alert_restarts;
pub mod alerts;
mod announced;
mod answers;
mod approvals;
mod asleep;
pub mod auditor_questions;
mod backups;
mod blobs;
mod bookings;
mod budgets;
mod busy;
mod cancel;
mod cancelled_runs;
mod clock;
mod cluster;
mod configs;
mod connections;
mod copies;
mod core_words;
mod demo;
pub mod diff;
mod edited_turns;
mod enrolled;
mod escapes;
pub mod examples;
mod follow;
mod forged_tails;
mod forgers;
mod fork_points;
mod forks;
mod gate;
mod groups;
mod hidden;
pub mod hosted;
mod init;
mod keys;
pub mod kill;
mod known_keys;
mod leaves;
mod live;
mod losses;
mod lost;
mod message_reports;
pub mod model_calls;
mod nats_config;
mod neighbours;
mod open_runs;
mod operator_keys;
mod orphans;
mod partitions;
mod past_turns;
mod pauses;
mod pipes;
mod playback;
mod project;
mod promote;
mod prompts;
pub mod proof;
pub mod provider;
mod pumps;
mod record;
mod recorded_effects;
mod recorded_turns;
mod refused_payloads;
mod reloads;
mod remote;
mod renewals;
pub mod repeated_keys;
mod replays;
mod retries;
mod revoked;
mod rounds;
mod run;
mod schedules;
mod send;
mod signed;
pub mod snapshots;
mod stalled;
mod stopped_commands;
mod stray_answers;
mod streams;
mod terminal;
mod traces;
mod trial_listeners;
mod try_judge;
mod try_live_models;
mod try_threads;
mod unreadable;
mod versions;
mod waiters;
mod waits;
mod ways_on;
mod workflow;
mod workflow_asks;
mod workflow_cases;
mod workflow_kills;
mod workflow_reviews;
mod workflow_roles;
mod workflow_supervisors;
mod workflow_undo;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use organism::config::directory_name;
use organism::ids::{Digest, Position};
use organism::journal::partitions_in;
use organism::journal::sqlite::JournalReader;
use organism::service::handshake::Handshake;
use organism::thread::Fact;
use serde_json::Value as Json;
use tempfile::TempDir;
use uuid::Uuid;

use crate::json_schemas::assert_described;

/// Usual time-out of a wait in these tests. It is long enough for a machine that stands still for a
/// minute.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum time of a wait while a mutant breaks a rule. Many guards fail only when this time is
/// over.
const GUARD_PATIENCE: Duration = Duration::from_secs(30);
/// Shortest pause between two checks of the condition that a test waits for. The longest pause is
/// `POLL_MAX`.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(200);

/// Polls until `look` returns a value.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look)
}

/// Polls until `look` returns a value, and panics after `patience`. The pauses between polls grow,
/// because many tests start a process for each poll.
pub fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    let is_guard = std::env::var_os("ORGANISM_MUTANT").is_some();
    let deadline = begun + if is_guard { patience.min(GUARD_PATIENCE) } else { patience };
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep((begun.elapsed() / 16).clamp(POLL_MIN, POLL_MAX));
    }
}

/// A config with a listener that echoes.
pub const ECHO_CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo"]

[clients.other]
peers = ["echo"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
"#;

/// A config with a listener that echoes, a listener that holds its answer until a test releases it,
/// and a listener that only answers.
pub const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "holder", "solo"]

[clients.other]
peers = ["echo"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[listeners.holder]
command = ["./player.pl", "holder", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
"#;

/// Returns `CONFIG` with two more listeners: `back`, and `front`, which calls `back`. Each of the
/// two has `instances` processes.
pub fn order_config(instances: u8) -> String {
    let added = format!(
        r#"
[listeners.front]
command = ["./player.pl", "front"]
schema = "talk.xsd"
accepts = ["order"]
replies = ["done"]
peers = ["back"]
instances = {instances}

[listeners.back]
command = ["./player.pl", "back"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]
instances = {instances}

[listeners.solo]"#
    );
    let config = CONFIG.replace("\n[listeners.solo]", &added);
    config.replace("\"holder\", \"solo\"", "\"holder\", \"front\", \"solo\"")
}

pub const TALK: &str = "urn:example:talk";

pub fn say(text: &str) -> String {
    format!("<say xmlns=\"{TALK}\">{text}</say>")
}

pub fn talk_reply(text: &str) -> String {
    format!("<said xmlns=\"{TALK}\">{text}</said>\n")
}

pub fn numbered(name: &str, number: &str) -> String {
    format!("<{name} xmlns=\"{TALK}\"><n>{number}</n></{name}>")
}

/// The config key of the directory for copies of checkpoints.
pub const COPIES_KEY: &str = "ORGANISM_JOURNAL__CHECKPOINTS";

/// Commands that only read the index.
const QUERIES: [&str; 7] = ["approvals", "message", "search", "sql", "stats", "thread", "threads"];

/// A directory with a config, its listeners and its journal.
pub struct House {
    directory: TempDir,
    /// Whether the journal stays where the config states, even if `ORGANISM_TEST_NATS` puts the
    /// journals of other houses on JetStream.
    settled: bool,
}

/// Output and exit code of a command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// Whether a query states that its answer lacks the latest records, or that the index is still
    /// being made.
    pub fn is_behind(&self) -> bool {
        self.err.contains("has not caught up")
            || self.err.contains("another process makes the index")
    }

    /// Whether a command ended without any effect, because the index lacks the message that the
    /// command names. The index may be behind the record.
    fn lacks_message(&self) -> bool {
        self.code == Some(75) && self.err.contains("has no message")
    }

    /// The lines of the standard output, as JSON.
    pub fn json(&self) -> Vec<Json> {
        let line = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        self.out.lines().map(line).collect()
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl House {
    pub fn new() -> Self {
        Self::with(CONFIG)
    }

    pub fn with_echo() -> Self {
        Self::with(ECHO_CONFIG)
    }

    /// A house with `order_config`, and one process for each listener.
    pub fn with_orders() -> Self {
        Self::with(&order_config(1))
    }

    pub fn with(config: &str) -> Self {
        let house = Self { directory: TempDir::new().unwrap(), settled: false };
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/organism");
        for file in ["player.pl", "talk.xsd"] {
            std::fs::copy(data.join(file), house.path(file)).unwrap();
        }
        house.write("organism.toml", config);
        std::fs::create_dir(house.copies()).unwrap();
        house
    }

    /// Creates a house as [`House::with`] does, but keeps its journal where the config states, even
    /// if `ORGANISM_TEST_NATS` is set. On JetStream, houses with the same stream are hosts of one
    /// organism.
    pub fn settled(config: &str) -> Self {
        let house = Self { settled: true, ..Self::with(config) };
        if config.contains("store = \"jetstream\"") {
            let stream = config.lines().find_map(|line| line.strip_prefix("stream = "));
            let stream = stream.unwrap_or("ORGANISM-talk").trim_matches('"');
            let journal = Uuid::new_v5(&Uuid::NAMESPACE_OID, stream.as_bytes());
            std::fs::create_dir_all(house.state()).unwrap();
            std::fs::write(house.stream_note(stream), journal.to_string()).unwrap();
        }
        house
    }

    /// The file in which this host stores the id of a stream's journal.
    pub fn stream_note(&self, stream: &str) -> PathBuf {
        self.state().join(format!("{stream}.organism"))
    }

    /// Runs `organism adopt`, with which this project takes over the journal of another project or
    /// host.
    pub fn adopt(&self) {
        let adopted = self.organism(&["adopt"]);
        assert_eq!(adopted.code, Some(0), "{adopted:?}");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Adds one of the test files.
    pub fn copy(&self, file: &str) {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/organism");
        std::fs::copy(data.join(file), self.path(file)).unwrap();
    }

    pub fn data(&self) -> PathBuf {
        self.default_directory("data")
    }

    pub fn state(&self) -> PathBuf {
        self.default_directory("state")
    }

    /// The directory for copies of this house's checkpoints.
    pub fn copies(&self) -> PathBuf {
        self.path("copies")
    }

    /// The handshake with which commands of this house begin a connection to the control socket.
    pub fn handshake(&self) -> Handshake {
        let checked = self.organism(&["check", "--json"]).out;
        let checked: Json = serde_json::from_str(&checked).unwrap();
        let text = |key: &str| checked[key].as_str().unwrap().to_owned();
        let config = Digest::parse(&text("digest")).unwrap();
        Handshake { project: Some(text("project")), config: Some(config), partitions: None }
    }

    fn default_directory(&self, kind: &str) -> PathBuf {
        let name = directory_name("talk", &self.path("organism.toml"));
        self.path(kind).join("organism").join(name)
    }

    pub fn reader(&self) -> JournalReader {
        JournalReader::open(&self.data()).unwrap()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env(COPIES_KEY, self.copies())
            .env("NO_COLOR", "1")
            // Perl, in which listeners are written, warns of a locale that is not installed.
            .env("PERL_BADLANG", "0")
            .env_remove("ORGANISM_CONFIG")
            .stdin(Stdio::null());
        if !self.settled {
            command.envs(crate::nats::substrate(self.directory.path()));
        }
        command
    }

    /// Returns a command that runs a shell script, in which `"$0" "$@"` runs `organism`.
    pub fn script(&self, script: &str, arguments: &[&str]) -> Command {
        let command = self.command(arguments);
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.current_dir(self.directory.path()).stdin(Stdio::null());
        shell
    }

    /// Runs a command until it exits. If the command queries the index, repeats it until the answer
    /// covers every record. If the index lacks the message of a command, repeats the command, too.
    /// The reason is that the writer of the index gets little time on a busy machine.
    pub fn organism(&self, arguments: &[&str]) -> CommandOutput {
        let is_query = arguments.first().is_some_and(|name| QUERIES.contains(name));
        until("the index has caught up", || {
            let answer = self.run_once(arguments);
            let is_early = is_query && answer.is_behind() || answer.lacks_message();
            (!is_early).then_some(answer)
        })
    }

    /// Runs a command once, until it exits.
    pub fn run_once(&self, arguments: &[&str]) -> CommandOutput {
        let output = CommandOutput::from(self.command(arguments).output().unwrap());
        assert_described(arguments, &output.out);
        output
    }

    pub fn send_text(&self, text: &str, arguments: &[&str]) -> CommandOutput {
        self.send_bytes(text.as_bytes(), arguments)
    }

    /// Sends bytes with `organism send -` over standard input.
    pub fn send_bytes(&self, bytes: &[u8], arguments: &[&str]) -> CommandOutput {
        let mut command = self.command(&["send", "-", "--as", "desk"]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let written = child.stdin.take().unwrap().write_all(bytes);
        let output = CommandOutput::from(child.wait_with_output().unwrap());
        // A command whose arguments are wrong ends before it reads.
        assert!(written.is_ok() || output.code == Some(2), "{written:?}: {output:?}");
        assert_described(&[&["send"], arguments].concat(), &output.out);
        output
    }

    /// Starts `organism run` and waits until the control socket accepts connections.
    pub fn run(&self) -> Running {
        self.run_with(self.command(&["run"]))
    }

    pub fn run_with(&self, mut command: Command) -> Running {
        let log = std::fs::File::create(self.path("log")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut running = Running { child };
        until("the organism is ready", || {
            assert_eq!(running.child.try_wait().unwrap(), None, "{}", self.log());
            self.log().contains("is ready").then_some(())
        });
        running
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Asserts that `organism verify` accepts the journal. With `REPLAY_ALL=1`, the command also
    /// decides every record again.
    pub fn verified(&self) {
        if std::env::var("REPLAY_ALL").is_ok() {
            let replayed = self.organism(&["replay"]);
            assert_eq!(replayed.code, Some(0), "{replayed:?}");
        }
        let verified = self.organism(&["verify"]);
        // A journal that was killed before its first checkpoint has no checkpoint outside. A
        // journal with a checkpoint must have it outside, too, except for the first one: a pump that was
        // killed may not have copied it. A projection proves nothing by itself.
        let count = |text: &str| verified.out.matches(text).count();
        let unseen = count("no checkpoint outside the journal was seen");
        let lacking =
            ["0", "1"].map(|made| format!("checkpoints  {made}, none outside the journal"));
        let first = lacking.iter().map(|text| count(text)).sum::<usize>();
        assert_eq!(unseen, first, "{verified:?}");
        // A killed pump may not have copied its last checkpoint.
        let lags =
            count("only the state directory vouches") + count("not up to the last checkpoint");
        let is_proved = unseen == 0 && lags == 0 && count("this is a projection") == 0;
        let expected = if is_proved { self.proof_code() } else { 5 };
        assert_eq!(verified.code, Some(expected), "{verified:?}");
        if self.is_projection() {
            let compared = self.organism(&["verify", "--stream"]);
            // With pumps on several hosts, each host lacks the keys of the others.
            assert!(matches!(compared.code, Some(0 | 5)), "{compared:?}");
        }
    }

    /// Exit code of `verify` for a sound journal: 5 for a projection, which proves nothing by
    /// itself, and 0 for any other journal.
    pub fn proof_code(&self) -> i32 {
        if self.is_projection() { 5 } else { 0 }
    }

    pub fn is_projection(&self) -> bool {
        JournalReader::open(&self.data()).is_ok_and(|reader| reader.is_projection().unwrap())
    }

    /// Number of recorded messages with this local name, in all partitions.
    pub fn recorded(&self, name: &str) -> usize {
        let journals = partitions_in(&self.data()).into_iter();
        // A journal that no pump has begun has no file.
        let readers = journals.filter_map(|(_, data)| JournalReader::open(&data).ok());
        let records = readers.flat_map(|reader| {
            let last = reader.last().unwrap();
            reader.records(Position(1), last).unwrap()
        });
        let facts = records.flat_map(|sealed| sealed.record.facts);
        let is_named = |fact: &Fact| match fact {
            Fact::Accepted { message, .. } => {
                *message.name.namespace == *TALK && *message.name.local == *name
            }
            _ => false,
        };
        facts.filter(is_named).count()
    }
}

/// A running `organism run`. It is killed at the end of the test, if it still runs.
pub struct Running {
    pub child: Child,
}

impl Running {
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Sends SIGTERM. Returns the exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("-TERM");
        let child = &mut self.child;
        until("the organism stops", || child.try_wait().unwrap()).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
