//! Permissions at the control socket. A process that the organism hosts may act only as the client
//! that the config assigns to the process's listener.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use organism::bus::process::PumpMark;
use organism::ids::{ListenerName, ThreadId};
use organism::limits;
use organism::service::encoding::VERSION;
use organism::service::handshake::Handshake;
use organism::service::{
    ResultsRequest, ServiceRequest, ServiceResponse, SocketTransport, SubmitUpdate, response_queue,
    socket_path,
};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::{CommandOutput, House, TALK, numbered, say, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["commander", "sender", "echo", "boss"]
secret_file = "desk.secret"

[clients.errands]
peers = ["echo"]

[humans.boss]
schema = "people.xsd"
accepts = ["question"]
replies = ["decision", "pass"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
approval = "always"

[listeners.commander]
command = ["./commander.py"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[listeners.sender]
command = ["./commander.py"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
client = "errands"
"#;

/// Returns the config in which `commander` is the only peer that accepts `say`. `commander` names
/// one of the listeners `commander` and `sender`. The other listener is removed from all lists of
/// peers.
fn config(commander: &str) -> String {
    let other = if commander == "sender" { "commander" } else { "sender" };
    let peers = CONFIG.replace(&format!("\"{other}\", "), "");
    peers.replace(&format!(", \"{other}\""), "")
}

struct Hosted {
    house: House,
    running: super::Running,
}

/// A directory with the program of the listeners and the secret of the client `desk`.
fn house(commander: &str) -> House {
    furnished(House::with(&config(commander)))
}

/// Adds the program of the listeners and the secret of the client `desk` to a directory.
fn furnished(house: House) -> House {
    house.copy("commander.py");
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    let made = house.organism(&["secret", "new", "--out", "desk.secret"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    house
}

/// An organism whose listener `commander` runs the commands that it receives.
fn hosted(commander: &str) -> Hosted {
    let house = house(commander);
    house.write("payload.xml", numbered("ping", "forged"));
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"));
    let running = house.run_with(command);
    Hosted { house, running }
}

impl Hosted {
    /// Makes a listener run `command`. Returns the exit code and the last line of the output.
    fn runs(&self, command: &str) -> String {
        let said = self.house.send_text(&say(command), &[]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let text = said.out.trim_end().strip_prefix(&format!("<said xmlns=\"{TALK}\">"));
        let text = text.and_then(|text| text.strip_suffix("</said>"));
        text.unwrap_or_else(|| panic!("{said:?}")).to_owned()
    }

    /// Submits a ping. The submission starts a call, which is held. Returns the message id of the
    /// call and the hash of its payload.
    fn hold(&self, number: &str) -> (String, String) {
        let sent = self.house.send_text(&numbered("ping", number), &["--no-wait"]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
        let held = self.held().pop().unwrap();
        let text = |key: &str| held[key].as_str().unwrap().to_owned();
        (text("message"), text("sha256"))
    }

    fn held(&self) -> Vec<Json> {
        self.house.organism(&["approvals", "--json"]).json()
    }

    /// The sender that each recorded refusal of a hosted process names.
    fn refused_senders(&self) -> Vec<String> {
        let exported = self.house.organism(&["export", "--format", "jsonl"]).json();
        let refused = exported.iter().filter(|line| line["rule"] == "hosted-process");
        refused.map(|line| line["sender"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn a_hosted_process_uses_no_verb_of_the_control_socket() {
    let hosted = hosted("commander");
    let (message, hash) = hosted.hold("1");
    let thread = hosted.held()[0]["thread"].as_str().unwrap().to_owned();
    let decisions = [
        format!("approve {message} --hash {hash}"),
        format!("refuse {message}"),
        format!("cancel {thread}"),
        "pause all --cancel".to_owned(),
        "resume all".to_owned(),
        format!("retry {message}"),
        "reload".to_owned(),
        "send --as desk --no-wait -".to_owned(),
        "send --as errands --no-wait -".to_owned(),
    ];

    for mode in ["plain", "unmarked"] {
        for command in &decisions {
            let told = hosted.runs(&format!("{mode} {command}"));
            assert!(told.starts_with("65 "), "{command}: {told}");
            assert!(told.contains("hosted-process: this process runs in the listener"), "{told}");
        }
    }

    assert_eq!(hosted.house.recorded("ping"), 1, "nothing was forged");
    assert_eq!(hosted.held()[0]["message"], *message, "it waits on");
    assert_eq!(hosted.refused_senders(), ["commander"; 18]);
    assert_eq!(hosted.running.stop(), Some(0));
    hosted.house.verified();
}

#[cfg(target_os = "linux")]
#[test]
fn a_hosted_process_answers_no_question_to_a_person() {
    let hosted = hosted("commander");
    hosted.house.write("question.xml", "<question xmlns=\"urn:example:people\">May I?</question>");
    hosted.house.write("pass.xml", "<pass xmlns=\"urn:example:people\"/>");
    let sent = hosted.house.organism(&["send", "--as", "desk", "--no-wait", "question.xml"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let open = || hosted.house.organism(&["answer", "--json"]).json();
    let question = until("the question is open", || open().pop());
    let text = |key: &str| question[key].as_str().unwrap().to_owned();
    let (message, thread) = (text("message"), text("thread"));

    for mode in ["plain", "unmarked", "detached"] {
        let told = hosted.runs(&format!("{mode} answer {message} pass.xml"));
        let expected = if mode == "detached" { "detached itself" } else { "hosted-process: " };
        assert!(told.starts_with("65 ") && told.contains(expected), "{mode}: {told}");
    }

    assert_eq!(open().len(), 1, "the question is open");
    let note = ["answer", &message, "pass.xml", "--note", "after lunch"];
    let answered = hosted.house.organism(&note);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    let uid = u64::from(rustix::process::geteuid().as_raw());
    let expected = ("answer".to_owned(), uid, "after lunch".to_owned());
    assert_eq!(decisions(&hosted.house, &thread), [expected]);
    assert_eq!(hosted.running.stop(), Some(0));
    hosted.house.verified();
}

#[test]
fn a_listener_with_a_client_sends_as_this_client_alone() {
    let hosted = hosted("sender");
    let told = hosted.runs("plain send --as errands --no-wait -");
    assert!(told.starts_with("3 "), "{told}");
    assert_eq!(hosted.held().len(), 1);
    assert_eq!(hosted.held()[0]["from"], "errands");
    let message = hosted.held()[0]["message"].as_str().unwrap().to_owned();
    let hash = hosted.held()[0]["sha256"].as_str().unwrap().to_owned();

    for command in
        ["send --as desk --no-wait -".to_owned(), format!("approve {message} --hash {hash}")]
    {
        let told = hosted.runs(&format!("plain {command}"));
        let expected = "which sends as the client `errands` and does nothing else here";
        assert!(told.starts_with("65 ") && told.contains(expected), "{command}: {told}");
    }

    assert_eq!(hosted.house.recorded("ping"), 1);
    assert_eq!(hosted.running.stop(), Some(0));
    hosted.house.verified();
}

/// At the maximum number of connections, a hosted process is refused, but the organism still
/// carries out the actions of operators.
#[test]
fn a_hosted_process_gets_no_place_beyond_the_maximum_number_of_connections() {
    let hosted = hosted("sender");
    let connect = |_| UnixStream::connect(socket_path(&hosted.house.data())).unwrap();
    // The submission to the listener has the last place.
    let open: Vec<_> = (1..limits::CONTROL_CONNECTIONS_MAX).map(connect).collect();
    let ended = hosted.runs("plain send --as errands --no-wait -");
    let expected = "too many commands of this listener, or of all listeners";
    assert!(ended.starts_with("75 ") && ended.contains(expected), "{ended}");

    let last = connect(0);
    let paused = hosted.house.organism(&["pause", "all"]);
    assert_eq!(paused.code, Some(0), "{paused:?}");
    drop(open);
    drop(last);
    assert_eq!(hosted.house.recorded("ping"), 0);
    assert_eq!(hosted.running.stop(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_detached_from_its_listener_is_still_refused() {
    let hosted = hosted("sender");
    for command in ["send --as desk --no-wait -", "send --as errands --no-wait -"] {
        let told = hosted.runs(&format!("detached {command}"));
        let expected = "a hosted process that detached itself sends and decides nothing";
        assert!(told.starts_with("65 ") && told.contains(expected), "{command}: {told}");
    }
    assert_eq!(hosted.house.recorded("ping"), 0);
    assert_eq!(hosted.refused_senders(), ["hosted-process"; 2]);

    until("no ended orphan is left", || {
        let own = i64::from(hosted.running.child.id());
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let status = organism::children::status;
        let is_left = |pid: i64| status(pid).is_some_and(|one| one.parent == own && one.is_zombie);
        (!pids.any(is_left)).then_some(())
    });
    assert_eq!(hosted.running.stop(), Some(0));
    hosted.house.verified();
}

/// If no journal is on this host, only the listener's name in the environment shows that this
/// organism hosts a process. The name is enough to refuse the start of a pump.
#[test]
fn a_hosted_process_cannot_start_a_pump_whose_journal_is_on_jetstream() {
    let journal = "[journal]\nstore = \"jetstream\"\ndurability = \"synced\"";
    let nats = "[nats]\nurl = \"nats://127.0.0.1:9\"";
    let house =
        furnished(House::settled(&format!("{}\n{journal}\n\n{nats}\n", config("commander"))));
    for arguments in [["run"].as_slice(), &["send", "--as", "desk", "organism.toml"]] {
        let mut command = house.command(arguments);
        let mark = PumpMark::of_this_process(Uuid::from_u128(7), 1).to_string();
        command.env("ORGANISM_LISTENER", "commander").env("ORGANISM_PUMP", mark);
        let told = super::CommandOutput::from(command.output().unwrap());
        assert_eq!(told.code, Some(65), "{told:?}");
        assert!(told.err.contains("a hosted process starts no pump"), "{told:?}");
    }
    assert!(!house.data().join("journal.db").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_listener_of_another_organism_may_have_the_name_of_a_listener_of_this_one() {
    let house = furnished(House::settled(&config("commander")));
    house.write("payload.xml", numbered("ping", "1"));
    let mut command = house.command(&["send", "--as", "desk", "--no-wait", "payload.xml"]);
    let mark = PumpMark::of_this_process(Uuid::from_u128(7), 1).to_string();
    command.env("ORGANISM_LISTENER", "commander").env("ORGANISM_PUMP", mark);
    let sent = super::CommandOutput::from(command.output().unwrap());
    assert_eq!(sent.code, Some(3), "{sent:?}");
    assert_eq!(house.recorded("ping"), 1);
}

#[test]
fn a_start_is_refused_by_the_mark_of_a_pump_and_not_by_the_name_of_a_listener() {
    let house = house("commander");
    house.write("payload.xml", numbered("ping", "1"));
    let send = |variable: &str, value: &str| -> super::CommandOutput {
        let mut command = house.command(&["send", "--as", "desk", "--no-wait", "payload.xml"]);
        command.env_remove("ORGANISM_LISTENER").env(variable, value).output().unwrap().into()
    };
    // The environment of a service that a program on NATS may have.
    let sent = send("ORGANISM_LISTENER", "commander");
    assert_eq!(sent.code, Some(3), "{sent:?}");

    let own = house.reader().about().unwrap().journal;
    let mark = |journal| PumpMark::of_this_process(journal, 1).to_string();
    let refused = send("ORGANISM_PUMP", &mark(own));
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.err.contains("a hosted process starts no pump"), "{refused:?}");
    let of_another = send("ORGANISM_PUMP", &mark(Uuid::from_u128(7)));
    assert_eq!(of_another.code, Some(3), "{of_another:?}");
    assert_eq!(house.recorded("ping"), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn a_hosted_cancel_ends_with_one_code_whatever_has_become_of_its_organism() {
    let house = House::new();
    let mut running = house.run();
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--new", "sess-hold0000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let journal = house.reader().about().unwrap().journal;
    let cancel = || -> super::CommandOutput {
        let command = house.command(&["cancel", "sess-hold0000"]);
        // A command hides its environment, but the environment of its shell shows the mark.
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "\"$@\"; exit $?", "sh"]).arg(command.get_program());
        shell.args(command.get_args()).current_dir(house.path(""));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.env("ORGANISM_PUMP", PumpMark::of_this_process(journal, 1).to_string());
        shell.output().unwrap().into()
    };

    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let by_the_socket = cancel();
    house.write("organism.toml", format!("{config}\n[nonsense]\n"));
    let beside_a_broken_config = cancel();
    house.write("organism.toml", &config);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let without_a_pump = cancel();

    for refused in [by_the_socket, beside_a_broken_config, without_a_pump] {
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.err.contains("hosted process"), "{refused:?}");
    }
}

const SECRET: &str = "ZGVzay1zZWNyZXQtb2YtdGhlLXRlc3Rz";

/// Starts an organism that cannot determine the origin of its callers.
fn blind() -> (House, super::Running) {
    let listener = "[listeners.echo]\ncommand = [\"./player.pl\", \"echo\"]\nschema = \"talk.xsd\"";
    let client = "[clients.desk]\npeers = [\"echo\"]\nsecret_env = \"DESK_SECRET\"";
    let payloads = "accepts = [\"say\"]\nreplies = [\"said\"]\napproval = \"dangerous\"";
    let house = House::with(&format!(
        "[organism]\nname = \"talk\"\n\n{client}\n\n{listener}\n{payloads}\n"
    ));
    house.write("say.xml", format!("<say xmlns=\"{TALK}\">hello</say>"));
    let mut command = house.command(&["run"]);
    let others = std::env::var("ORGANISM_MUTANT").unwrap_or_default();
    command.env("ORGANISM_MUTANT", format!("hide-the-caller,{others}"));
    command.env("DESK_SECRET", SECRET);
    let running = house.run_with(command);
    (house, running)
}

#[test]
fn a_caller_that_nothing_shows_needs_the_secret_of_its_client() {
    let (house, running) = blind();
    let send = |secret: Option<&str>| -> super::CommandOutput {
        let mut command = house.command(&["send", "--no-wait", "say.xml"]);
        if let Some(secret) = secret {
            command.env("DESK_SECRET", secret);
        }
        command.output().unwrap().into()
    };

    for wrong in [None, Some("b3RoZXItc2VjcmV0LW9mLW5vLWNsaWVudA")] {
        let refused = send(wrong);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.err.contains("unknown-caller"), "{refused:?}");
        let names_key = "set secret_env or secret_file of [clients.desk]";
        assert!(refused.err.contains(names_key), "{refused:?}");
    }
    let sent = send(Some(SECRET));
    assert_eq!(sent.code, Some(3), "{sent:?}");

    let held = house.organism(&["approvals", "--json"]).json().remove(0);
    let (message, hash) = (held["message"].as_str().unwrap(), held["sha256"].as_str().unwrap());
    let mut approve = house.command(&["approve", message, "--hash", hash]);
    let approved = super::CommandOutput::from(approve.env("DESK_SECRET", SECRET).output().unwrap());
    assert_eq!(approved.code, Some(65), "a client's secret makes no operator: {approved:?}");
    assert!(approved.err.contains("unknown-caller"), "{approved:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The response to a request that a caller of unknown ancestry sends.
fn response(house: &House, request: &ServiceRequest) -> ServiceResponse {
    let handshake = Handshake::of_path(&house.path("organism.toml"));
    let socket = SocketTransport::new(&house.data(), handshake);
    let (responses, mut received) = response_queue();
    let sent = tokio::runtime::Runtime::new().unwrap().block_on(socket.send(request, &responses));
    sent.unwrap();
    received.try_recv().unwrap()
}

#[test]
fn a_client_waits_for_results_with_its_secret_and_in_its_own_threads_alone() {
    let (house, running) = blind();
    let mut send = house.command(&["send", "--no-wait", "--json", "say.xml"]);
    let sent = super::CommandOutput::from(send.env("DESK_SECRET", SECRET).output().unwrap());
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let receipt = sent.json().remove(0);
    let secret = |text: &str| serde_json::from_value(json!(text)).ok();

    let unknown = ("sess-nothere1", secret(SECRET), "has no thread sess-nothere1 to wait for");
    let unproved = (receipt["thread"].as_str().unwrap(), secret("wrong"), "unknown-caller");
    let without = (receipt["thread"].as_str().unwrap(), None, "unknown-caller");
    for (thread, secret, expected) in [unknown, unproved, without] {
        let request = ServiceRequest::AwaitResults(ResultsRequest {
            thread: ThreadId::parse(thread).unwrap(),
            calls: serde_json::from_value(receipt["calls"].clone()).unwrap(),
            client: ListenerName::parse("desk").ok(),
            secret,
        });
        let refused = match response(&house, &request) {
            ServiceResponse::Failed(refused) => refused,
            ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, .. }) => {
                refusal.to_string()
            }
            other => panic!("{other:?}"),
        };
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(running.stop(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_clients_secret_is_in_no_record_no_log_and_no_listeners_environment() {
    let (house, running) = blind();
    let mut send = house.command(&["send", "--no-wait", "say.xml"]);
    assert_eq!(send.env("DESK_SECRET", SECRET).status().unwrap().code(), Some(3));

    let own = i64::from(running.child.id());
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i64>().ok());
    let is_child =
        |pid: &i64| organism::children::status(*pid).is_some_and(|status| status.parent == own);
    let environments: Vec<_> = pids
        .filter(is_child)
        .filter_map(|pid| std::fs::read(format!("/proc/{pid}/environ")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .filter(|environment| environment.contains("ORGANISM_LISTENER=echo"))
        .collect();
    assert_eq!(environments.len(), 1);
    assert!(!environments[0].contains("DESK_SECRET"), "{environments:?}");

    assert_eq!(running.stop(), Some(0));
    assert!(!house.log().contains(SECRET));
    let mut directories = vec![house.path("data"), house.path("state")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().filter_map(Result::ok) {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => directories.push(entry.path()),
                _ => {
                    let bytes = std::fs::read(entry.path()).unwrap_or_default();
                    let found = memchr::memmem::find(&bytes, SECRET.as_bytes());
                    assert_eq!(found, None, "{}", entry.path().display());
                }
            }
        }
    }
}

#[test]
fn a_new_secret_is_long_enough_and_its_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let house = House::with(&config("commander"));
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    house.copy("commander.py");
    let printed = house.organism(&["secret", "new"]);
    assert_eq!((printed.code, printed.out.trim().len()), (Some(0), 43), "{printed:?}");

    let check = || house.organism(&["check"]);
    let missing = check();
    assert_eq!(missing.code, Some(78));
    assert!(missing.err.contains("secret-missing"), "{missing:?}");

    // A secret that cannot be written leaves no file, which would block the next attempt.
    let mut limited = std::process::Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" secret new --out desk.secret";
    limited.args(["-c", script]).arg(house.command(&[]).get_program());
    limited.current_dir(house.path("."));
    let unwritten = CommandOutput::from(limited.output().unwrap());
    assert_eq!(unwritten.code, Some(2), "{unwritten:?}");
    assert!(unwritten.err.contains("cannot write desk.secret"), "{unwritten:?}");

    assert_eq!(house.organism(&["secret", "new", "--out", "desk.secret"]).code, Some(0));
    let good = check();
    assert_eq!(good.code, Some(0), "{good:?}");
    let again = house.organism(&["secret", "new", "--out", "desk.secret"]);
    assert_eq!(again.code, Some(2), "nothing is overwritten: {again:?}");
    assert!(again.err.contains("desk.secret exists, and a secret is never"), "{again:?}");
    assert!(again.err.contains("; name another file"), "{again:?}");

    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(house.path("desk.secret"), mode).unwrap();
    let open = check();
    assert!(open.code == Some(78) && open.err.contains("secret-readable"), "{open:?}");

    std::fs::remove_file(house.path("desk.secret")).unwrap();
    house.write("desk.secret", "hunter2");
    let weak = check();
    assert!(weak.code == Some(78) && weak.err.contains("secret-weak"), "{weak:?}");
}

/// The login name of this user; `null` if the system's file of users has none.
fn login() -> Json {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let uid = rustix::process::geteuid().as_raw().to_string();
    let own = users.lines().find(|line| line.split(':').nth(2) == Some(&uid));
    own.map_or(Json::Null, |line| line.split(':').next().into())
}

/// The decisions in the timeline of a thread: verb, uid and note. Asserts that the user who runs
/// the tests took each decision.
fn decisions(house: &House, thread: &str) -> Vec<(String, u64, String)> {
    let shown = house.organism(&["thread", thread, "--json"]);
    let story: Json = serde_json::from_str(&shown.out).unwrap_or_else(|e| panic!("{e}: {shown:?}"));
    let items = story["items"].as_array().unwrap().iter().map(|item| &item["decision"]);
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let shown = items.filter(|decision| decision.is_object()).map(|decision| {
        let origin = &decision["origin"];
        let uid = origin["who"]["uid"].as_u64().unwrap();
        assert_eq!(origin["who"]["login"], login(), "{origin}");
        (text(&decision["verb"]), uid, text(&origin["note"]))
    });
    shown.collect()
}

/// Sends a request unchanged to the control socket. Returns the response.
fn answer_to(house: &House, mut request: Json) -> String {
    request["project"] = json!(house.handshake().project.unwrap());
    let path = organism::service::socket_path(&house.data());
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    socket.write_all(format!("organism/{VERSION} {request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_decision_is_recorded_under_its_signer_whatever_name_its_request_contains() {
    let hosted = hosted("commander");
    let forged = |thread: &str, request: Json| {
        let answer = answer_to(&hosted.house, request);
        assert!(answer.contains("\"ruled\":null") || answer.contains("taken"), "{answer}");
        let shown = hosted.house.organism(&["thread", thread, "--json"]).out;
        let story: Json = serde_json::from_str(&shown).unwrap();
        let deciders =
            story["items"].as_array().unwrap().iter().map(|item| &item["decision"]["by"]);
        assert_eq!(
            deciders.filter(|by| !by.is_null()).collect::<Vec<_>>(),
            ["operator"],
            "{shown}"
        );
        assert!(!shown.contains("forger"), "{shown}");
    };
    for verb in ["approve", "refuse", "cancel"] {
        let (message, hash) = hosted.hold(verb);
        let thread = hosted.held()[0]["thread"].as_str().unwrap().to_owned();
        let what = match verb {
            "approve" => json!({"approve": {"hash": hash}}),
            _ => json!({"refuse": {"reason": "no"}}),
        };
        let request = match verb {
            "cancel" => json!({"do": "cancel", "thread": thread, "reason": "no"}),
            _ => json!({"do": "decide", "message": message, "what": what}),
        };
        let mut request = request;
        request["by"] = json!("forger");
        forged(&thread, request);
    }
    assert_eq!(hosted.running.stop(), Some(0));
    let record = hosted.house.organism(&["export", "--format", "jsonl"]).out;
    assert!(!record.contains("forger"), "{record}");
}

#[test]
fn a_decision_is_on_record_with_the_user_that_the_system_names() {
    let hosted = hosted("commander");
    let uid = u64::from(rustix::process::geteuid().as_raw());
    let (message, hash) = hosted.hold("1");
    let thread = hosted.held()[0]["thread"].as_str().unwrap().to_owned();
    let approve = ["approve", &message, "--hash", &hash, "--note", "seen by two"];
    let approved = hosted.house.organism(&approve);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    assert_eq!(decisions(&hosted.house, &thread), [("approve".into(), uid, "seen by two".into())]);

    let (message, _) = hosted.hold("2");
    let thread = hosted.held()[0]["thread"].as_str().unwrap().to_owned();
    let told = answer_to(
        &hosted.house,
        json!({
            "do": "decide", "message": message, "by": "operator",
            "what": {"refuse": {"reason": "no"}},
            "origin": {"who": {"uid": 4242, "login": "boss"}, "note": "mine"},
        }),
    );
    assert!(told.contains("\"ruled\":null"), "{told}");
    assert_eq!(decisions(&hosted.house, &thread), [("refuse".into(), uid, "mine".into())]);

    let (_, _) = hosted.hold("3");
    let thread = hosted.held()[0]["thread"].as_str().unwrap().to_owned();
    let cancelled = hosted.house.organism(&["cancel", &thread, "--note", "wrong order"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let cancel = || decisions(&hosted.house, &thread).pop();
    assert_eq!(until("it is cancelled", cancel), ("cancel".into(), uid, "wrong order".into()));
    let shown = hosted.house.organism(&["thread", &thread]);
    assert!(shown.out.contains("cancel by operator: "), "{}", shown.out);
    assert!(shown.out.contains("wrong order"), "{}", shown.out);
    assert_eq!(hosted.running.stop(), Some(0));
    hosted.house.verified();
}
