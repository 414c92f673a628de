//! `organism host`: agents that run in separate processes.

mod costs;
mod guarded;
mod live;
mod strangers;
mod words;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use organism::ids::Position;
use organism::thread::Fact;
use serde_json::{Value as Json, json};

use super::{CommandOutput, House, Running, say, talk_reply, until};
use crate::bus::remote::publish_headers;
use crate::model::server::{KEY, Script};
use crate::nats::{Server, Settings};
use crate::web::ask;
use words::{NATIVE, TURNS};

pub const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
LIMITS

[nats]
url = "ADDRESS"

[clients.desk]
peers = ["writer", "planner", "editor"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[agents.writer]
nats = true
model = "MODEL"
schema = "talk.xsd"
accepts = ["say"]
final = "said"
peers = ["solo"]
BUDGET

[agents.planner]
model = "recorded"
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["writer"]

[agents.editor]
model = "recorded"
schema = "talk.xsd"
accepts = ["work"]
final = "worked"
peers = ["writer"]

[models.recorded]
provider = "playback"
recording = "turns.toml"
max_tokens = 1000
price_in = 2.0
price_out = 10.0
currency = "EUR"
"#;

pub fn server() -> Server {
    Server::start()
}

/// The config section of the journal. With `ORGANISM_TEST_NATS`, the journal is on the agents'
/// server.
fn journal() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    match std::env::var_os("ORGANISM_TEST_NATS") {
        None => String::new(),
        Some(_) => {
            let stream = COUNT.fetch_add(1, Ordering::Relaxed);
            let options = "store = \"jetstream\"\ndurability = \"synced\"";
            format!("\n[journal]\n{options}\nstream = \"hosted-{stream}\"\n")
        }
    }
}

/// A house with the config of these tests, in which `changes` replace the placeholders LIMITS,
/// MODEL and BUDGET. A placeholder that `changes` lacks gets its default.
fn house_with(server: &Server, changes: &[(&str, &str)]) -> House {
    house_of(&format!("{CONFIG}{}", journal()), server, changes)
}

fn house_of(config: &str, server: &Server, changes: &[(&str, &str)]) -> House {
    let mut config = config.replace("ADDRESS", &server.address());
    for (from, to) in changes {
        config = config.replace(from, to);
    }
    for (from, to) in [("LIMITS", ""), ("MODEL", "recorded"), ("BUDGET", "")] {
        config = config.replace(from, to);
    }
    let house = House::settled(&config);
    house.write("turns.toml", TURNS);
    house
}

pub fn house(server: &Server) -> House {
    house_with(server, &[])
}

/// A running `organism host`. Dropping this value kills the process.
pub struct Hosting {
    child: Child,
    log: std::path::PathBuf,
}

impl Hosting {
    pub fn start(house: &House, log: &str, arguments: &[&str]) -> Self {
        Self::of(house.command(&[&["host"], arguments].concat()), house, log)
    }

    pub fn of(mut command: Command, house: &House, log: &str) -> Self {
        let path = house.path(log);
        let file = std::fs::File::create(&path).unwrap();
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        let mut hosting = Self { child, log: path };
        until("the agent is hosted", || {
            assert_eq!(hosting.child.try_wait().unwrap(), None, "{}", hosting.log());
            hosting.log().contains("hosted here").then_some(())
        });
        hosting
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub fn ended(&mut self) -> Option<i32> {
        until("the host ends", || self.child.try_wait().unwrap()).code()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Hosting {
    fn drop(&mut self) {
        // A process that has exited cannot be killed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// All recorded facts, without values that differ between runs.
fn record(house: &House) -> Vec<String> {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let mut names = HashMap::new();
    let sealed = reader.records(Position(1), last).unwrap();
    let facts = sealed.iter().flat_map(|sealed| &sealed.record.facts);
    let written = facts.map(|fact| {
        let mut told = serde_json::to_value(fact).unwrap();
        timeless(&mut told);
        let payload = match fact {
            Fact::Accepted { message, .. } => message.payload.as_str(),
            _ => "",
        };
        masked(&format!("{told} {payload}"), &mut names)
    });
    written.collect()
}

fn timeless(told: &mut Json) {
    match told {
        Json::Object(fields) => {
            // The stored config, one of the blobs, states where an agent runs. Its digest does not.
            for key in ["time", "fires_at", "digest", "len", "blobs"] {
                fields.remove(key);
            }
            fields.values_mut().for_each(timeless);
        }
        Json::Array(all) => all.iter_mut().for_each(timeless),
        _ => {}
    }
}

/// Replaces ids by numbers, in the order of their first occurrence.
fn masked(text: &str, names: &mut HashMap<String, usize>) -> String {
    let (mut out, mut at) = (String::new(), 0);
    while at < text.len() {
        let rest = &text[at..];
        let is_id = |id: &&str| uuid::Uuid::try_parse(id).is_ok();
        let id = rest.get(..36).filter(is_id).or_else(|| {
            let name = rest.strip_prefix("sess-").filter(|name| !name.starts_with("organism"))?;
            let length = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
            rest.get(..5 + length)
        });
        if let Some(id) = id {
            let next = names.len();
            let number = *names.entry(id.to_owned()).or_insert(next);
            out += &format!("<{number}>");
            at += id.len();
        } else if let Some(latency) = rest.strip_prefix("latency_ms=\"") {
            at += "latency_ms=\"".len() + latency.find('"').unwrap();
        } else {
            let c = rest.chars().next().unwrap();
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}

/// Plays a run and returns its records. The agent runs on a remote host if `is_far`, and otherwise
/// in the pump's process.
fn left(server: &Server, is_far: bool, budget: &str, turns: &str, texts: &[&str]) -> Vec<String> {
    let mut changes = vec![("BUDGET", budget)];
    if !is_far {
        changes.push(("nats = true\n", ""));
    }
    let house = house_with(server, &changes);
    house.write("turns.toml", turns);
    let running = house.run();
    let hosting = is_far.then(|| Hosting::start(&house, "host", &["--only", "writer"]));
    for (text, thread) in texts.iter().zip(["sess-first000", "sess-second00"]) {
        let sent = house.send_text(text, &["--new", thread]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(running.stop(), Some(0));
    drop(hosting);
    house.verified();
    record(&house)
}

/// The record has the same facts and prompt digests whether the agent runs on a remote host or in
/// the pump's process.
#[test]
fn a_remote_agent_leaves_the_same_record_as_an_agent_in_the_pumps_process() {
    let server = server();
    let work = "<work xmlns=\"urn:example:talk\"><n>7</n></work>";
    for (budget, turns, texts) in [
        ("", TURNS, &[&*say("write"), work][..]),
        ("transport = \"native\"", NATIVE, &[&*say("write")]),
    ] {
        let near = left(&server, false, budget, turns, texts);
        let far = left(&server, true, budget, turns, texts);
        for part in ["<huh ", "<pong "] {
            assert!(near.iter().any(|fact| fact.contains(part)), "{part}: {near:#?}");
        }
        let turns = near.iter().filter(|fact| fact.contains("agent=\"writer\"")).count();
        assert_eq!(turns, 3 * texts.len(), "{near:#?}");
        for (near, far) in near.iter().zip(&far) {
            assert_eq!(near, far);
        }
        assert_eq!(near.len(), far.len());
    }
}

/// F16, law 8: the prompt of a recorded turn is shown as it was sent, even if the agent ran on a
/// machine of another kind.
#[test]
fn a_turn_that_was_taken_elsewhere_is_shown_as_it_was_sent() {
    let server = server();
    let house = house(&server);
    let running = house.run();
    let mut command = house.command(&["host"]);
    command.env("SHELL", "/opt/nowhere-else-sh");
    let _hosting = Hosting::of(command, &house, "host");
    let sent = house.send_text(&say("write"), &["--json"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
    for turn in ["1", "3"] {
        let arguments = ["prompt", "writer", "--thread", &thread, "--turn", turn, "--json"];
        let shown = house.organism(&arguments);
        let json: Json = serde_json::from_str(&shown.out).unwrap();
        assert_eq!(json["prompt"], json["recorded"], "{shown:?}");
        assert!(shown.out.contains("nowhere-else-sh"), "{shown:?}");
    }
    assert_eq!(running.stop(), Some(0));
}

/// A model that answers only after the test releases it.
struct Slow {
    port: u16,
    state: Arc<(Mutex<SlowModelState>, Condvar)>,
}

#[derive(Default)]
struct SlowModelState {
    count: usize,
    answered: usize,
    /// Text of the last request.
    last_request: String,
    may_answer: bool,
}

impl Slow {
    fn start(text: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new((Mutex::new(SlowModelState::default()), Condvar::new()));
        let answer = answer(text);
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, answer) = (Arc::clone(&shared), answer.clone());
                std::thread::spawn(move || attend(stream, &answer, &state));
            }
        });
        Self { port, state }
    }

    fn model(&self) -> String {
        format!(
            "[models.live]\nprovider = \"openai-compatible\"\nmodel = \"m-1\"\n\
             base_url = \"http://127.0.0.1:{}/v1\"\napi_key_env = \"LIVE_KEY\"\n\n[models.recorded]",
            self.port
        )
    }

    fn wait_for_requests(&self, times: usize) {
        until("the model is asked", || (self.state.0.lock().unwrap().count >= times).then_some(()));
    }

    fn count(&self) -> usize {
        self.state.0.lock().unwrap().count
    }

    fn has_answered(&self, times: usize) -> bool {
        self.state.0.lock().unwrap().answered >= times
    }

    fn last_request(&self) -> String {
        self.state.0.lock().unwrap().last_request.clone()
    }

    fn let_go(&self) {
        self.state.0.lock().unwrap().may_answer = true;
        self.state.1.notify_all();
    }
}

fn answer(text: &str) -> Vec<u8> {
    let chunk = |delta: Json, finish: Json| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": [choice]}))
    };
    let events = [
        chunk(json!({"role": "assistant", "content": text}), Json::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    Script::stream(&events).bytes()
}

fn attend(mut stream: TcpStream, answer: &[u8], (state, told): &(Mutex<SlowModelState>, Condvar)) {
    let (mut request, mut buffer) = (Vec::new(), [0; 8192]);
    // The last brace ends the body.
    while !request.ends_with(b"}") {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    {
        let mut asked = state.lock().unwrap();
        asked.count += 1;
        asked.last_request = String::from_utf8_lossy(&request).into_owned();
    }
    drop(told.wait_while(state.lock().unwrap(), |asked| !asked.may_answer).unwrap());
    // The client may have been killed.
    stream.write_all(answer).ok();
    state.lock().unwrap().answered += 1;
}

/// A slow model, a house whose writer calls it, and the running pump. The pump needs no key of the
/// model.
fn slow(server: &Server) -> (Slow, House, Running) {
    let slow = Slow::start("<said xmlns=\"urn:example:talk\">at last</said>");
    let models = slow.model();
    let house = house_with(server, &[("MODEL", "live"), ("[models.recorded]", &models)]);
    // The pump needs no key of a model that only another process calls.
    let running = house.run();
    (slow, house, running)
}

fn host_with_key(house: &House, log: &str) -> Hosting {
    let mut command = house.command(&["host", "--only", "writer"]);
    command.env("LIVE_KEY", KEY);
    Hosting::of(command, house, log)
}

fn sending(house: &House) -> Child {
    let mut command = house.command(&["send", "-", "--as", "desk"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(say("write").as_bytes()).unwrap();
    child
}

fn finish(child: Child) -> CommandOutput {
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_turn_that_a_killed_host_was_in_is_taken_by_another_and_has_one_result() {
    let server = server();
    let (model, house, running) = slow(&server);
    let mut doomed = host_with_key(&house, "first");
    let sent = sending(&house);
    model.wait_for_requests(1);
    let _other = host_with_key(&house, "second");
    doomed.kill();
    model.wait_for_requests(2);
    model.let_go();
    let told = finish(sent);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("at last")), "{}", told.err);
    assert_eq!((house.recorded("say"), house.recorded("said"), model.count()), (1, 1, 2));
    assert_eq!(running.stop(), Some(0));
    let record = record(&house);
    let failed = record.iter().filter(|fact| fact.contains("attempt-failed"));
    assert_eq!(failed.count(), 1, "{record:#?}");
    house.verified();
}

#[test]
fn a_stopping_host_ends_its_turns_and_takes_no_more() {
    let server = server();
    let (model, house, running) = slow(&server);
    let mut hosting = host_with_key(&house, "first");
    let sent = sending(&house);
    model.wait_for_requests(1);
    hosting.terminate();
    until("it says so", || hosting.log().contains("stopping on SIGTERM").then_some(()));
    let mut after = sending(&house);
    until("nobody takes it", || {
        record(&house).iter().any(|fact| fact.contains("not-taken")).then_some(())
    });
    model.let_go();
    let told = finish(sent);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("at last")), "{}", told.err);
    assert_eq!(hosting.ended(), Some(0), "{}", hosting.log());
    after.kill().unwrap();
    after.wait().unwrap();
    assert_eq!(model.count(), 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// If the NATS server fails while the model answers, the answer waits until the server is back, and
/// the model is not called again.
#[test]
fn an_answer_waits_for_a_server_that_is_away_and_costs_no_second_model_call() {
    let server = server();
    let (model, house, running) = slow(&server);
    let _hosting = host_with_key(&house, "first");
    let sent = house.send_text(&say("write"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    model.wait_for_requests(1);
    server.kill();
    model.let_go();
    until("the model has answered", || model.has_answered(1).then_some(()));
    server.restart();
    until("it is answered", || (house.recorded("said") == 1).then_some(()));
    assert_eq!(model.count(), 1);
    let record = record(&house);
    assert!(!record.iter().any(|fact| fact.contains("attempt-failed")), "{record:#?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// W3C Trace Context: a remote agent calls its model in the client's trace.
#[test]
fn a_trace_continues_in_the_turn_of_a_remote_agent() {
    let server = server();
    let (model, house, running) = slow(&server);
    let _hosting = host_with_key(&house, "first");
    model.let_go();
    let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sent = house.send_text(&say("write"), &["--traceparent", given]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply("at last")), "{}", sent.err);
    let heard = model.last_request();
    assert!(heard.contains("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{heard}");
    assert_eq!(running.stop(), Some(0));
}

/// Replicas of an agent host share the deliveries of all pumps, while each pump serves the threads
/// of its own partition.
#[test]
fn two_hosts_share_the_turns_of_two_pumps_on_jetstream() {
    let server = Server::start();
    let journal = "\n[journal]\nstore = \"jetstream\"\npartitions = 2\ndurability = \"lazy\"\n";
    let house = house_of(&format!("{CONFIG}{journal}"), &server, &[]);
    let running = house.run();
    let host = |shell: &str| {
        let mut command = house.command(&["host", "--only", "writer"]);
        command.env("SHELL", shell);
        Hosting::of(command, &house, shell)
    };
    let _hosts = [host("one-sh"), host("two-sh")];
    for _ in 0..8 {
        let sent = house.send_text(&say("write"), &[]);
        assert_eq!((sent.code, sent.out), (Some(0), talk_reply("done")), "{}", sent.err);
    }
    assert_eq!(running.stop(), Some(0));
    let exported = house.organism(&["export", "--format", "jsonl"]).out;
    assert_eq!(exported.matches("<model-turn ").count(), 24);
    for shell in ["Shell: one-sh", "Shell: two-sh"] {
        assert!(exported.contains(shell), "{shell} took no turn");
    }
    for partition in ["p0", "p1"] {
        let journal = house.data().join(partition);
        assert!(journal.is_dir(), "{}", journal.display());
    }
    house.verified();
}

/// A pump that restarts during a turn delivers the turn again. The answer to the dead pump's
/// delivery is dropped.
#[test]
fn a_remote_turn_continues_after_its_pump_was_killed_and_restarted() {
    let server = server();
    let (model, house, mut running) = slow(&server);
    let _hosting = host_with_key(&house, "first");
    let sent = house.send_text(&say("write"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    model.wait_for_requests(1);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let running = house.run();
    model.wait_for_requests(2);
    model.let_go();
    until("it is answered", || (house.recorded("said") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// O11, F14: a remote agent's model request is sent only after the pump has reserved its tokens and
/// money.
#[test]
fn a_budget_is_kept_across_the_wire() {
    let server = server();
    for (limits, budget, told, turns) in [
        ("money = 0.0145", "", "of the 0.0145 of this tree is left", 1),
        ("", "tokens = 2500", "of the 2500 of writer are left", 1),
        ("tokens = 1100", "", "the next model call may take", 0),
    ] {
        let house = house_with(&server, &[("LIMITS", limits), ("BUDGET", budget)]);
        let running = house.run();
        let _hosting = Hosting::start(&house, "host", &[]);
        let sent = house.send_text(&say("write"), &[]);
        assert_eq!(sent.code, Some(1), "{sent:?}");
        let all = sent.out + &sent.err;
        assert!(all.contains("budget-spent") && all.contains(told), "{limits} {budget}: {all}");
        let exported = house.organism(&["export", "--format", "jsonl"]).out;
        assert_eq!(exported.matches("<model-turn ").count(), turns, "{limits} {budget}");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }
}

/// Threads and answers that exceed one message are sent in parts, and no part is lost.
#[test]
fn a_thread_and_an_answer_larger_than_any_message_come_through() {
    let little = Server::start_with(Settings { jetstream: None, more: "max_payload: 25000" });
    // A journal cannot be on a server with such a small message size.
    let house = house_of(CONFIG, &little, &[("LIMITS", "payload_bytes = 20000")]);
    let long = "long ".repeat(3_000);
    let turns = format!(
        "recorded = \"for a test\"\n[[turn]]\nagent = \"writer\"\nturn = 1\n\
         text = '<said xmlns=\"urn:example:talk\">{long}</said>'\n\
         [[turn]]\nagent = \"writer\"\nturn = 2\n\
         text = '<said xmlns=\"urn:example:talk\">{long}</said>'\n"
    );
    house.write("turns.toml", turns);
    let running = house.run();
    let asks = strangers::asks(&little);
    let _hosting = Hosting::start(&house, "host", &[]);
    let first = house.send_text(&say(&long), &["--json"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let thread = first.json()[0]["thread"].as_str().unwrap().to_owned();
    let second = house.send_text(&say(&long), &["--thread", &thread]);
    assert_eq!((second.code, second.out), (Some(0), talk_reply(&long)), "{}", second.err);
    assert_eq!(running.stop(), Some(0));
    let asked = asks.stop();
    let of = |what: &str| asked.iter().filter(|asked| *asked == what).count();
    assert!(of("thread") >= 4 && of("answer") >= 4, "{asked:?}");
    house.verified();
}

#[test]
fn an_agent_that_cannot_be_hosted_gets_advice_for_the_config() {
    let server = server();
    let house = house_of(CONFIG, &server, &[]);
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let nowhere = config.replace("nats = true\n", "");
    let without = nowhere.replace(&format!("[nats]\nurl = \"{}\"\n", server.address()), "");
    house.write("nowhere.toml", &nowhere);
    house.write("without.toml", &without);
    let far = without.replace("[agents.writer]\n", "[agents.writer]\nnats = true\n");
    house.write("far.toml", &far);
    for (arguments, code, told) in [
        (&["--only", "writr"][..], 2, "did you mean `writer`?"),
        (&["--only", "somebody"], 2, "can be hosted are writer"),
        (&["--only", "writer,solo"], 2, "`solo` is a listener"),
        (&["--only", "planner"], 78, "write nats = true under [agents.planner]"),
        (&["--config", "nowhere.toml"], 78, "write nats = true under [agents.writer]"),
        (&["--config", "without.toml"], 78, "and a section [nats]"),
        (&["--config", "far.toml"], 78, "`writer` is on NATS and no server is named"),
        (&["--keys", "nowhere"], 69, "listener-writer.nk"),
    ] {
        let said = house.organism(&[&["host"], arguments].concat());
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.err.contains(told), "{arguments:?}: {said:?}");
    }
    let checked = house.organism(&["check"]).out;
    let words: Vec<_> = checked.split_whitespace().collect();
    assert!(words.join(" ").contains("on NATS: `organism host` takes its turns"), "{checked}");
    let shown = house.organism(&["prompt", "writer"]);
    assert!(shown.out.contains("You are writer."), "{shown:?}");
}

/// A host does not open the journal, so it does not query the servers' sync settings either.
#[test]
fn a_host_needs_no_key_of_the_system_account() {
    let server = server();
    let address = "url = \"ADDRESS\"";
    let asks = format!("{address}\nsystem_nkey_file = \"nats/system.nk\"");
    let journal = "\n[journal]\nstore = \"jetstream\"\ndurability = \"synced\"\n";
    let config = CONFIG.replace(address, &asks) + journal;
    let house = house_of(&config, &server, &[]);
    house.write("listener-writer.nk", nkeys::KeyPair::new_user().seed().unwrap());
    for arguments in [&[][..], &["--keys", "."]] {
        let mut hosting = Hosting::start(&house, "host.log", arguments);
        hosting.terminate();
        assert_eq!(hosting.ended(), Some(0), "{arguments:?}: {}", hosting.log());
    }
    let pump = house.organism(&["run"]);
    assert_eq!(pump.code, Some(78), "{pump:?}");
    assert!(pump.err.contains("nats/system.nk"), "{pump:?}");
}

#[test]
fn the_key_of_a_model_is_needed_where_its_agent_is() {
    let server = server();
    let (_model, house, running) = slow(&server);
    let without = house.organism(&["host"]);
    assert_eq!(without.code, Some(78), "{without:?}");
    assert!(without.err.contains("LIVE_KEY is not set"), "{without:?}");
    assert_eq!(house.organism(&["check"]).code, Some(0), "the pump needs no such key");
    assert_eq!(running.stop(), Some(0));
    // The pump's own process needs the key there.
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    house.write("organism.toml", config.replace("nats = true\n", ""));
    let without = house.organism(&["run"]);
    assert_eq!(without.code, Some(78), "{without:?}");
    assert!(without.err.contains("LIVE_KEY is not set"), "{without:?}");
}

/// `record` runs a remote agent in its own process, because `record` cannot record the answers of
/// another process.
#[test]
fn a_recording_is_made_of_agents_that_run_elsewhere_too() {
    let server = server();
    let (model, house, running) = slow(&server);
    assert_eq!(running.stop(), Some(0));
    model.let_go();
    house.write("say.xml", say("write"));
    let without = house.organism(&["record", "out.toml", "say.xml"]);
    assert_eq!(without.code, Some(78), "{without:?}");
    assert!(!house.path("out.toml").exists());
    let mut command = house.command(&["record", "out.toml", "say.xml"]);
    let made: CommandOutput = command.env("LIVE_KEY", KEY).output().unwrap().into();
    assert_eq!((made.code, made.out), (Some(0), talk_reply("at last")), "{}", made.err);
    assert!(made.err.contains("1 turn in out.toml"), "{}", made.err);
}

/// An agent host reports its readiness and counts the model calls of its agents.
#[test]
fn a_host_tells_whether_it_is_ready_and_what_its_agents_took() {
    let server = server();
    let house = house(&server);
    let running = house.run();
    let wrong = house.organism(&["host", "--http", "192.0.2.1:80"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let mut hosting = Hosting::start(&house, "host", &["--http", "127.0.0.1:0"]);
    let log = hosting.log();
    let (_, rest) = log.split_once("health and metrics on http://").unwrap();
    let at = rest.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(ask(at, "/readyz").status, 200);
    assert_eq!(house.send_text(&say("write"), &[]).out, talk_reply("done"));
    let metrics = ask(at, "/metrics").body;
    for line in [
        "organism_model_calls_total{agent=\"writer\",model=\"recorded\",outcome=\"answered\"} 3",
        "organism_model_tokens_total{agent=\"writer\",model=\"recorded\",direction=\"in\"} 3000",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("planner"), "{metrics}");
    server.kill();
    until("it is not connected", || {
        let told = ask(at, "/readyz");
        (told.status == 503 && told.body.contains("writer is not connected")).then_some(())
    });
    assert_eq!(ask(at, "/healthz").status, 200);
    server.restart();
    until("it is connected again", || (ask(at, "/readyz").status == 200).then_some(()));
    // A turn proves that the subscriptions are made again, too.
    assert_eq!(house.send_text(&say("write"), &[]).out, talk_reply("done"));

    // The malformed header ends the agent's client. A supervisor starts the process again.
    publish_headers(&server.address(), "$SRV.PING", "NATS/1.0\r\nA: x\ry\r\n\r\n");
    assert_eq!(hosting.ended(), Some(69));
    let log = hosting.log();
    let error = log.lines().find(|line| line.contains("ERROR") && line.contains("agent=writer"));
    assert!(error.is_some_and(|line| line.contains("has ended")), "{log}");
    assert_eq!(running.stop(), Some(0));
}

/// A malformed header ends the agent host's NATS client, so the host cannot report the result of a
/// running turn. The host ends without waiting for the model, and another host takes the turn.
#[test]
fn a_host_whose_connection_ended_ends_although_a_turn_runs() {
    let server = server();
    let (model, house, running) = slow(&server);
    let mut doomed = host_with_key(&house, "first");
    let sent = sending(&house);
    model.wait_for_requests(1);
    publish_headers(&server.address(), "$SRV.PING", "NATS/1.0\r\nA: x\ry\r\n\r\n");
    assert_eq!(doomed.ended(), Some(69), "{}", doomed.log());
    assert!(!model.has_answered(1));

    let _other = host_with_key(&house, "second");
    model.wait_for_requests(2);
    model.let_go();
    let told = finish(sent);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("at last")), "{}", told.err);
    assert_eq!(house.recorded("said"), 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Law 8: an agent host with another config than the pump's takes no turn, because a prompt is
/// rendered only from the recorded config.
#[test]
fn a_host_with_another_config_than_its_pump_takes_no_turn_and_says_why() {
    let server = server();
    let house = house_with(&server, &[("BUDGET", "attempts = 2")]);
    let running = house.run();
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let other = config.replace("[agents.writer]\n", "[agents.writer]\ndescription = \"Writes.\"\n");
    house.write("other.toml", other);
    let hosting = Hosting::start(&house, "host", &["--config", "other.toml"]);
    let sent = house.send_text(&say("write"), &[]);
    assert!(sent.out.contains("undeliverable"), "{sent:?}");
    assert!(hosting.log().contains("another config than the pump"), "{}", hosting.log());
    assert!(record(&house).iter().any(|fact| fact.contains("another config than the pump")));
    let log = house.log();
    let warning = "failed: unreachable: its host has another config than the pump";
    assert_eq!(log.matches(warning).count(), 1, "two attempts have one line: {log}");
    assert_eq!(house.recorded("said"), 0);
    assert_eq!(running.stop(), Some(0));
}

/// Prompt of the first turn of `writer` in a thread.
fn prompt_of(house: &House, thread: &str) -> String {
    let arguments = ["prompt", "writer", "--thread", thread, "--turn", "1", "--json"];
    let shown = house.organism(&arguments);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    shown.out
}

/// Design 12.3: no turn fails while another config comes into force, first in the hosts of an agent
/// and then in the pump.
#[test]
fn an_agent_elsewhere_takes_its_next_turn_under_the_reloaded_config() {
    let server = server();
    let house = house(&server);
    let running = house.run();
    let hosting = Hosting::start(&house, "host", &[]);
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let described = "[agents.writer]\ndescription = \"Writes with care.\"\n";
    house.write("organism.toml", config.replace("[agents.writer]\n", described));
    let pid = rustix::process::Pid::from_child(&hosting.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    until("the host has the config", || hosting.log().contains("is in force").then_some(()));

    // The pump still delivers under the config before. A command must have that one, too.
    house.write("organism.toml", &config);
    let before = house.send_text(&say("write"), &["--new", "sess-before00"]);
    assert_eq!((before.code, before.out), (Some(0), talk_reply("done")), "{}", before.err);
    assert!(!prompt_of(&house, "sess-before00").contains("with care"));

    house.write("organism.toml", config.replace("[agents.writer]\n", described));
    let reloaded = house.organism(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    let after = house.send_text(&say("write"), &["--new", "sess-after000"]);
    assert_eq!((after.code, after.out), (Some(0), talk_reply("done")), "{}", after.err);
    assert!(prompt_of(&house, "sess-after000").contains("with care"));

    let far = config.replace("[agents.writer]\nnats = true\n", "[agents.writer]\n");
    assert_ne!(far, config);
    house.write("organism.toml", far);
    let moved = house.organism(&["reload"]);
    assert_eq!(moved.code, Some(78), "{moved:?}");
    assert!(moved.err.contains("agents.writer.nats"), "{moved:?}");

    assert!(!hosting.log().contains("another config"), "{}", hosting.log());
    let failed = |fact: &String| fact.contains("attempt_failed") || fact.contains("not_taken");
    assert!(!record(&house).iter().any(failed));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
