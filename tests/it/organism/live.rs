//! The live channel shows people the states and the texts of model calls while the calls run.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use organism::clock::Time;
use organism::service::encoding::VERSION;
use organism::service::socket_path;
use serde_json::{Value as Json, json};

use super::model_calls::{CONFIG, THREAD, end, house, records, sending};
use super::operator_keys::write_operator_key;
use super::provider::{Provider, ScriptedResponse};
use super::{CommandOutput, House, PATIENCE, Running, TALK, say, until};

/// Lines of a command's output. A line is read only when the test requests it, so that the command
/// blocks while the test pauses.
pub struct OutputLines {
    lines: Receiver<String>,
    /// All lines so far, for the message of a failure.
    seen: Vec<String>,
}

impl OutputLines {
    pub fn of(output: impl Read + Send + 'static) -> Self {
        let (read, lines) = sync_channel(0);
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = String::new();
                if matches!(output.read_line(&mut line), Ok(0) | Err(_)) || read.send(line).is_err()
                {
                    return;
                }
            }
        });
        Self { lines, seen: Vec::new() }
    }

    /// The next line; `None` at the end of the output.
    fn next(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.fail("waited in vain for a line"),
        }
    }

    /// Reads up to the first line that contains this text.
    pub fn find(&mut self, text: &str) {
        while let Some(line) = self.next() {
            if line.contains(text) {
                return;
            }
        }
        self.fail(&format!("the output ends without `{text}`"));
    }

    /// Reads up to the end of the output. Returns all lines, including earlier ones.
    fn read_all(&mut self) -> String {
        while self.next().is_some() {}
        self.seen.concat()
    }

    fn fail(&self, what: &str) -> ! {
        let from = self.seen.len().saturating_sub(40);
        let last = self.seen.get(from..).unwrap_or_default().concat();
        panic!("{what} after {} lines, the last of which are\n{last}", self.seen.len());
    }
}

/// A running `organism tail --live`. Dropping this value kills the process.
pub struct LiveTail {
    pub child: Child,
    lines: OutputLines,
    errors: OutputLines,
}

impl LiveTail {
    /// Starts the command, and waits until its subscription is open.
    pub fn start(house: &House, args: &[&str]) -> Self {
        let mut command = house.command(&["tail", "--live", "--json", "-n", "0"]);
        command.args(args);
        Self::of(command)
    }

    /// Starts this command, which writes JSON, and waits until its subscription is open.
    pub fn of(command: Command) -> Self {
        let mut tail = Self::spawn(command);
        let opened = tail.find(|event| event["live"] == "opened");
        assert_eq!(opened["text"], true);
        tail
    }

    fn spawn(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let lines = OutputLines::of(child.stdout.take().unwrap());
        let errors = OutputLines::of(child.stderr.take().unwrap());
        Self { child, lines, errors }
    }

    fn next(&mut self) -> Json {
        let Some(line) = self.lines.next() else { self.lines.fail("the output ends") };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Reads up to the first line for which `fits` holds.
    pub fn find(&mut self, fits: impl Fn(&Json) -> bool) -> Json {
        loop {
            let line = self.next();
            if fits(&line) {
                return line;
            }
        }
    }

    /// Reads text events until their joined text contains `text`.
    pub fn find_text(&mut self, text: &str) {
        let mut all = String::new();
        while !all.contains(text) {
            let event = self.find(|event| event["live"] == "text");
            assert_eq!(event["part"], "answer");
            all += event["text"].as_str().unwrap();
        }
    }

    /// Reads up to the end of a model call.
    pub fn find_end(&mut self) -> Json {
        self.find(|event| event["live"] == "model" && event["state"] == "ended")
    }

    /// Waits until the command ends by itself.
    pub fn end(mut self) -> CommandOutput {
        let out = self.lines.read_all();
        let err = self.errors.read_all();
        let code = self.child.wait().unwrap().code();
        CommandOutput { code, out, err }
    }
}

impl Drop for LiveTail {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn state<'a>(name: &'a str) -> impl Fn(&Json) -> bool + use<'a> {
    move |event| event["live"] == "model" && !event["state"][name].is_null()
}

#[test]
fn a_text_is_shown_while_it_streams_and_a_pause_while_it_lasts_and_neither_is_recorded() {
    let provider = Provider::start(vec![
        ScriptedResponse::error("429 Too Many Requests", "Retry-After: 2\r\n", "slow down"),
        ScriptedResponse::Stall(3),
    ]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let mut tail = LiveTail::start(&house, &["--thread", THREAD]);
    let begun = Time::now().0;
    let sent = sending(&house);

    let requested = tail.find(state("requested"));
    assert_eq!(requested["agent"], "writer");
    assert_eq!(requested["thread"], THREAD);
    assert_eq!(requested["state"]["requested"], "openai-compatible/live-1");
    assert_eq!(requested["streams"], true);
    let delayed = tail.find(state("delayed"));
    let until = delayed["state"]["delayed"][1].as_i64().unwrap();
    assert!(until > begun, "{begun}, {delayed}");
    tail.find(state("requested"));
    tail.find(state("streaming"));
    // The model is silent from here on, so this came before the end of the answer.
    tail.find_text("word word word ");

    let mut late = LiveTail::start(&house, &[]);
    let running_call = late.find(|event| event["live"] == "model");
    assert_eq!(running_call["state"]["streaming"], "openai-compatible/live-1", "{running_call}");
    assert!(running_call["since"].as_i64().unwrap() > begun, "{running_call}, {begun}");

    assert_eq!(house.organism(&["cancel", THREAD]).code, Some(0));
    tail.find_end();
    late.find_end();
    assert_eq!(end(sent).code, Some(1));
    assert_eq!(running.stop(), Some(0));
    for tail in [tail, late] {
        let ended = tail.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let recorded = serde_json::to_string(&records(&house)).unwrap();
    assert!(!recorded.contains("word word"), "{recorded}");
    assert!(!recorded.contains("streaming"), "{recorded}");
}

#[test]
fn a_text_of_another_thread_is_not_shown() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(1), ScriptedResponse::Stall(2)]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let mut tail = LiveTail::start(&house, &["--thread", "sess-another0"]);
    let another = ["--no-wait", "--new", "sess-another0"];
    assert_eq!(house.send_text(&say("write"), &["--no-wait"]).code, Some(0));
    provider.sends(1);
    assert_eq!(house.send_text(&say("write"), &another).code, Some(0));
    let first = tail.find(|event| event["live"] != "opened" && event["live"].is_string());
    assert_eq!(first["thread"], "sess-another0", "{first}");
    tail.find_text("word word ");
    drop(running);
}

#[test]
fn a_reader_that_stands_still_or_dies_delays_no_run_and_learns_of_its_loss() {
    let large = format!("{}<said xmlns=\"{TALK}\">done</said>", "large text ".repeat(60_000));
    let provider = Provider::start(vec![ScriptedResponse::Text(large)]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let mut dead = LiveTail::start(&house, &[]);
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    // This one reads nothing until the run is over.
    let mut stalled = LiveTail::start(&house, &["--thread", THREAD]);

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let lost = stalled.find(|event| event["live"] == "lost");
    assert!(lost["events"].as_u64().unwrap() > 0, "{lost}");
    stalled.find_end();
    assert_eq!(running.stop(), Some(0));
    assert_eq!(stalled.end().code, Some(0));
}

#[test]
fn no_escape_sequence_of_a_model_reaches_the_terminal() {
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}";
    let text = format!("{hostile}<said xmlns=\"{TALK}\">done</said>");
    let provider = Provider::start(vec![ScriptedResponse::Text(text)]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let mut tails = Vec::new();
    for args in [["tail", "--live", "-n", "0"].as_slice(), &["tail", "--live", "-n", "0", "--json"]]
    {
        let mut tail = LiveTail::spawn(house.command(args));
        tail.errors.find("before any check");
        tails.push(tail);
    }

    assert_eq!(end(sending(&house)).code, Some(0));
    for tail in &mut tails {
        tail.lines.find("owned");
    }
    assert_eq!(running.stop(), Some(0));
    for tail in tails {
        let out = tail.end().out;
        let controls = out.chars().filter(|c| c.is_control() && *c != '\n');
        assert_eq!(controls.count(), 0, "{out:?}");
        assert!(!out.contains('\u{202e}'), "{out:?}");
    }
}

const PASSPHRASE: &str = "correct horse battery";

/// Keys of an operator and of a stranger, in the files `ana.key` and `stranger.key`.
pub struct OperatorKeyFiles {
    /// The config section that names the operator.
    pub operators: String,
}

impl OperatorKeyFiles {
    pub fn make(house: &House) -> Self {
        house.write("passphrase", format!("{PASSPHRASE}\n"));
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(house.path("passphrase"), mode).unwrap();
        let [ana, _] = ["ana", "stranger"]
            .map(|name| write_operator_key(&house.path(&format!("{name}.key")), PASSPHRASE));
        Self { operators: format!("[operators.ana]\nkey = \"{ana}\"") }
    }
}

/// Creates a command whose environment names the passphrase of the keys.
pub fn signing(house: &House, args: &[&str]) -> Command {
    let mut command = house.command(args);
    command.env("ORGANISM_PASSPHRASE_FILE", house.path("passphrase"));
    command
}

/// A program that subscribes to the live channel, and claims that it may see everything.
const WATCHER: &str = r#"
import socket, sys
watcher = socket.socket(socket.AF_UNIX)
watcher.settimeout(60)
watcher.connect(sys.argv[1])
watcher.sendall(sys.argv[2].encode() + b"\n")
lines = watcher.makefile()
for _ in range(int(sys.argv[3])):
    print(lines.readline(), end="")
"#;

/// Subscribes to the live channel with a request that claims to be granted already. Returns the
/// first response.
fn claimed(house: &House, mark: Option<String>) -> String {
    watched(house, mark, json!({}), 1)
}

/// Subscribes to the live channel with a request that claims to be granted already. Returns the
/// first `lines` lines of the responses.
fn watched(house: &House, mark: Option<String>, mut request: Json, lines: usize) -> String {
    request["do"] = "live".into();
    request["granted"] = "text".into();
    let checked = with_secrets(house.command(&["check", "--json"])).output().unwrap();
    let checked: Json = serde_json::from_slice(&checked.stdout).unwrap();
    request["project"] = checked["project"].clone();
    let request = format!("organism/{VERSION} {request}");
    let mut command = Command::new("python3");
    command.args(["-S", "-c", WATCHER]).arg(socket_path(&house.data())).arg(request);
    command.arg(lines.to_string());
    command.current_dir(house.path("")).env_remove("ORGANISM_PUMP");
    if let Some(mark) = mark {
        command.env("ORGANISM_PUMP", mark);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_the_organism_hosts_sees_no_text_whatever_it_claims() {
    use organism::bus::process::PumpMark;

    let provider = Provider::start(vec![ScriptedResponse::Stall(1)]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let outside = claimed(&house, None);
    assert!(outside.contains(r#"{"live":"opened","text":true}"#), "{outside}");

    let journal = house.reader().about().unwrap().journal;
    let hosted = claimed(&house, Some(PumpMark::of_this_process(journal, 1).to_string()));
    assert!(hosted.contains("hosted-process"), "{hosted}");
    assert!(!hosted.contains("\"live\""), "{hosted}");
    let refusals = || house.organism(&["export", "--format", "jsonl"]).json();
    let refusals = refusals().into_iter().filter(|line| line["rule"] == "hosted-process");
    assert_eq!(refusals.count(), 1);
    assert_eq!(running.stop(), Some(0));
}

/// Starts an organism that cannot determine the origin of its callers.
fn blind(house: &House) -> Running {
    let mut command = with_secrets(house.command(&["run"]));
    let others = std::env::var("ORGANISM_MUTANT").unwrap_or_default();
    command.env("ORGANISM_MUTANT", format!("hide-the-caller,{others}"));
    house.run_with(command)
}

#[test]
fn a_caller_that_nothing_shows_needs_the_key_of_an_operator() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(2)]);
    let config = format!("{CONFIG}{}", provider.model("live", ""));
    let house = House::with(&config);
    let keys = OperatorKeyFiles::make(&house);
    house.write("organism.toml", format!("{config}\n{}\n", keys.operators));

    let running = blind(&house);
    let claimed = claimed(&house, None);
    assert!(claimed.contains("unknown-caller: only operators may see"), "{claimed}");
    for args in [["tail", "--live"].as_slice(), &["tail", "--live", "--sign", "stranger.key"]] {
        let refused = CommandOutput::from(signing(&house, args).output().unwrap());
        assert_eq!(refused.code, Some(69), "{refused:?}");
        assert!(refused.err.contains("the key of one of [operators] (ana)"), "{refused:?}");
    }

    let args = ["tail", "--live", "--json", "-n", "0", "--sign", "ana.key"];
    let tail = LiveTail::of(signing(&house, &args));
    assert_eq!(running.stop(), Some(0));
    let ended = tail.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("messages are not followed"), "{ended:?}");
}

/// A secret that belongs to no client.
pub const STRANGE_SECRET: &str = "b3RoZXItc2VjcmV0LW9mLW5vLWNsaWVudA";

/// The secret of the client `desk`. The secret of `other` is the same text in reverse.
pub const SECRET: &str = "ZGVzay1zZWNyZXQtb2YtdGhlLXRlc3Rz";

/// Adds the secrets of the clients `desk` and `other` to the environment of a command.
pub fn with_secrets(mut command: Command) -> Command {
    command.env("DESK_SECRET", SECRET).env("OTHER_SECRET", other_secret());
    command
}

pub fn other_secret() -> String {
    SECRET.chars().rev().collect()
}

/// The config with secrets for `desk` and a second client `other`. `lines` are added to the section
/// of `desk`.
pub fn two_clients(config: &str, lines: &str) -> String {
    let other = "[clients.other]\npeers = [\"writer\"]\nsecret_env = \"OTHER_SECRET\"\n\n";
    let desk = format!("{other}[clients.desk]\nsecret_env = \"DESK_SECRET\"\n{lines}");
    config.replace("[clients.desk]\n", &desk)
}

#[test]
fn a_client_sees_states_of_its_own_threads_and_texts_only_with_steps() {
    for steps in [false, true] {
        // The model writes on, so that each subscription has something to show.
        let provider = Provider::start(vec![ScriptedResponse::Trickle]);
        let config = two_clients(CONFIG, if steps { "steps = true\n" } else { "" });
        let house = House::with(&format!("{config}{}", provider.model("live", "")));
        let running = blind(&house);
        house.write("say.xml", say("write"));
        let send = ["send", "say.xml", "--as", "desk", "--no-wait", "--new", THREAD];
        let sent = CommandOutput::from(with_secrets(house.command(&send)).output().unwrap());
        assert_eq!(sent.code, Some(0), "{sent:?}");
        provider.sends(1);

        let watch = |thread: Option<&str>, client: &str, secret: &str| {
            let named = json!({"thread": thread, "client": client, "secret": secret});
            watched(&house, None, named, if steps { 6 } else { 2 })
        };
        let own = watch(Some(THREAD), "desk", SECRET);
        let opened = format!("{{\"live\":\"opened\",\"text\":{steps}}}");
        assert!(own.contains(&opened) && own.contains("\"live\":\"model\""), "{own}");
        assert_eq!(own.contains("word "), steps, "{own}");

        let strange = format!("{THREAD}x");
        let secret = other_secret();
        for (thread, client, secret) in [
            (Some(THREAD), "other", &*secret),
            (Some(&*strange), "desk", SECRET),
            (None, "desk", SECRET),
        ] {
            let refused = watch(thread, client, secret);
            assert!(refused.contains("has no thread"), "{refused}");
            assert!(!refused.contains("\"live\":"), "{refused}");
        }
        for (client, secret) in [("desk", STRANGE_SECRET), ("desk", &*secret), ("nobody", SECRET)] {
            let refused = watch(Some(THREAD), client, secret);
            assert!(refused.contains("unknown-caller"), "{refused}");
            assert!(!refused.contains("\"live\":"), "{refused}");
        }
        drop(running);
    }
}

const POEM: &str = r#"
[agents.poet]
model = "live"

[workflows.poem]
input = { topic = "text" }
output = "verse"
[workflows.poem.goals]
verse = { agent = "poet", prompt = "Write a verse on {{input/topic}}." }
"#;

#[test]
fn a_client_that_runs_a_workflow_sees_texts_only_with_steps() {
    for steps in [false, true] {
        let provider = Provider::start(vec![ScriptedResponse::Trickle]);
        let config = two_clients(CONFIG, if steps { "steps = true\n" } else { "" });
        let config =
            config.replace("peers = [\"writer\"]\n\n[agents", "peers = [\"poem\"]\n\n[agents");
        let house = House::with(&format!("{config}{POEM}{}", provider.model("live", "")));
        let running = blind(&house);
        let run = ["workflow", "run", "poem", "--as", "desk", "--json", "--input", "topic=rain"];
        let mut shown = LiveTail::spawn(with_secrets(house.command(&run)));

        let opened = shown.find(|line| line["live"] == "opened");
        assert_eq!(opened["text"], steps, "{opened}");
        if steps {
            shown.find_text("word word ");
        } else {
            assert_eq!(shown.find(|line| line["live"] == "model")["agent"], "poet");
        }
        shown.child.kill().unwrap();
        shown.child.wait().unwrap();
        drop(running);
    }
}

#[test]
fn a_watch_ends_when_its_organism_is_killed() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(2)]);
    let house = house("", &provider.model("live", ""));
    let mut running = house.run();
    let mut tail = LiveTail::start(&house, &[]);
    assert_eq!(house.send_text(&say("write"), &["--no-wait"]).code, Some(0));
    tail.find_text("word word ");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let ended = until("it ends", || tail.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_watch_waits_for_the_organism_and_the_thread_and_ends_with_the_thread() {
    let provider = Provider::start(vec![ScriptedResponse::text(&format!(
        "<said xmlns=\"{TALK}\">done</said>"
    ))]);
    let house = house("", &provider.model("live", ""));
    let args = ["tail", "--live", "--json", "-n", "0", "--thread", THREAD];
    let mut tail = LiveTail::spawn(house.command(&args));
    tail.errors.find("waiting for one");
    let running = house.run();
    tail.errors.find("is not on record yet; waiting for it");
    tail.find(|event| event["live"] == "opened");

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    tail.find_end();
    let ended = tail.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.err.contains("no organism responds"), "the organism still runs: {ended:?}");

    let late = house.organism(&args);
    assert_eq!(late.code, Some(0), "{late:?}");
    assert!(late.err.contains(&format!("{THREAD} has ended; `organism thread")), "{late:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_watch_names_its_client() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let config = two_clients(CONFIG, "");
    let house = House::with(&format!("{config}{}", provider.model("live", "")));
    let running = blind(&house);
    house.write("say.xml", say("write"));
    let send = ["send", "say.xml", "--as", "desk", "--no-wait", "--new", THREAD];
    let sent = CommandOutput::from(with_secrets(house.command(&send)).output().unwrap());
    assert_eq!(sent.code, Some(0), "{sent:?}");

    let watch = |more: &[&str]| {
        let args = [&["tail", "--live", "--json", "-n", "0"], more].concat();
        with_secrets(house.command(&args))
    };
    let mut own = LiveTail::spawn(watch(&["--thread", THREAD, "--as", "desk"]));
    let opened = own.find(|event| event["live"] == "opened");
    assert_eq!(opened["text"], false, "{opened}");
    own.find(|event| event["live"] == "model");

    for (more, code, why) in [
        (["--thread", THREAD, "--as", "other"].as_slice(), 69, "has no thread"),
        (&["--thread", THREAD, "--as", "nobody"], 2, "the clients are"),
        (&["--as", "desk"], 2, "--thread"),
    ] {
        let refused = CommandOutput::from(watch(more).output().unwrap());
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
    }
    drop(running);
}
