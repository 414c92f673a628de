//! The Rust kit on NATS, and the service information of all kits.

use std::thread::JoinHandle;
use std::time::Duration;

use organism::envelope::{AttemptFailure, MessageKind};
use organism::listener::{Listener, NatsEndpoint, Preview, Reply, Request};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Kit, Meeting, wait};
use crate::bus::harness::{SinkEvent, done, message, name};
use crate::bus::kit_language::KitLanguage;
use crate::nats::shared;
use crate::organism::{PATIENCE, Running, until};

/// A listener of the Rust kit on a thread.
pub struct Rust {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

impl Rust {
    pub fn start(meeting: &Meeting) -> Self {
        let mut here =
            wait(async { meeting.stranger().await.hears(&meeting.subjects.here()).await });
        let servers = organism::nats::Options {
            servers: vec![meeting.address.clone()],
            credentials: organism::nats::NatsCredentials::Anonymous,
            ca: None,
        };
        let mut place = NatsEndpoint::new(servers, meeting.organism.clone(), name("tested"));
        place.lease = Duration::from_secs(1);
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or_default() };
        let thread = std::thread::spawn(move || listener().serve_at(&place, stopped));
        wait(here.next());
        Self { stop, thread }
    }

    fn end(self) -> Result<(), String> {
        self.ask_to_end().join().unwrap()
    }

    pub fn ask_to_end(self) -> JoinHandle<Result<(), String>> {
        self.stop.send(()).unwrap();
        self.thread
    }
}

fn would_do(request: &Request) -> Preview {
    let text = request.payload().split(['<', '>']).nth(2).unwrap();
    Preview::new(&format!("would do {text}"))
}

fn listener() -> Listener {
    let listener = Listener::new().on_preview(|request| Ok::<_, String>(would_do(request)));
    listener.otherwise(|request: &Request| {
        let text = request.payload().split(['<', '>']).nth(2).unwrap();
        match text.split_once(' ').unwrap_or((text, "")) {
            ("fail" | "crash", why) => Err(why.to_owned()),
            ("panic", why) => panic!("{why}"),
            ("wait", _) => {
                request.heartbeat().map_err(|e| e.to_string())?;
                while !request.is_cancelled() {
                    std::thread::yield_now();
                }
                Ok(Reply::raw(done("gone")))
            }
            ("beat", times) => {
                for _ in 0..times.parse().unwrap() {
                    request.heartbeat().map_err(|e| e.to_string())?;
                }
                Ok(Reply::raw(done("beaten")))
            }
            ("count", _) => {
                let new = request.messages.iter().filter(|message| message.new).count();
                Ok(Reply::raw(done(&format!("{} {new}", request.messages.len()))))
            }
            ("who", _) => {
                let Request { listener, thread, attempt, timeout, .. } = request;
                let from = &request.message().from;
                let text = format!("{listener} {thread} {attempt} {timeout:?} {from}");
                Ok(Reply::raw(done(&text)))
            }
            ("if-shown", _) if !request.holds(&would_do(request)) => Ok(Reply::stale_preview("no")),
            ("nothing", _) => Ok(Reply::ack()),
            ("control", _) => Ok(Reply::raw(done("\0"))),
            (_, text) => Ok(Reply::raw(done(text))),
        }
    })
}

#[tokio::test]
async fn a_listener_of_the_rust_kit_needs_no_change_to_be_on_nats() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let rust = Rust::start(&meeting);
    assert_eq!(ear.ask("echo hello").await, "hello");
    assert_eq!(ear.ask("who").await, "tested sess-k3v9t2m8 1.2 1.5s tester");
    let number = ear.tell("nothing");
    ear.expect(SinkEvent::Answer(number, vec![])).await;
    let number = ear.deliver(
        vec![message(1, MessageKind::Call, "count"), message(2, MessageKind::Reply, "")],
        1,
    );
    ear.expect(SinkEvent::Answer(number, vec![done("2 1")])).await;
    let number = ear.tell("wait");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![done("gone")])).await;
    let number = ear.tell("fail for a\nreason");
    let detail = "{urn:test}do: for a reason".to_owned();
    ear.expect(SinkEvent::Failed(number, AttemptFailure::Crashed { detail })).await;
    assert_eq!(ear.ask("echo again").await, "again");
    assert_eq!(rust.end(), Ok(()));
    ear.tell("echo too late");
    let left = ear.next().await;
    assert!(matches!(left, SinkEvent::Left(_)), "{left:?}");
}

/// Environment variables with which a listener ends, and the line in its log.
type RefusedVariables = (Vec<(&'static str, &'static str)>, String);

/// Wrong values of variables, each with the reason in the log.
const REFUSED_VALUES: &[(&str, &[&str], &str)] = &[
    (
        "ORGANISM_BUS_LEASE",
        &["0.9", "0", "-5", "nan", "inf", "soon", "1e99"],
        "not a number of seconds from 1",
    ),
    (
        "ORGANISM_BUS_WORKERS",
        &["0", "-1", "10000", "1.5", "many"],
        "not a number of handlers from 1 to 9999",
    ),
    ("ORGANISM_NAME", &["Desk"], NO_NAME),
    ("ORGANISM_LISTENER", &["a.b", "shout\n"], NO_NAME),
];

const NO_NAME: &str =
    "not a name: a lowercase letter, then up to 63 lowercase letters, digits or hyphens";

fn refused_variables() -> Vec<RefusedVariables> {
    let refused = |(variable, values, reason): &(&'static str, &'static [&'static str], &str)| {
        let (variable, reason) = (*variable, (*reason).to_owned());
        let line = move |value| format!("{variable} is `{value}`, {reason}\n");
        values.iter().map(move |value| (vec![(variable, *value)], line(value))).collect::<Vec<_>>()
    };
    let mut cases: Vec<_> = REFUSED_VALUES.iter().flat_map(refused).collect();

    let either = "ORGANISM_BUS_CREDENTIALS or ORGANISM_BUS_NKEY";
    let both = vec![("ORGANISM_BUS_CREDENTIALS", "x"), ("ORGANISM_BUS_NKEY", "y")];
    cases.push((both, format!("set {either}, not both\n")));
    let url = vec![("ORGANISM_BUS_URL", "nats://me:secret@127.0.0.1:1")];
    cases.push((url, format!("ORGANISM_BUS_URL holds credentials; set {either}\n")));
    cases
}

/// Runs the program that serves once with each of these variables, and is refused each time. It ends
/// with the last. Returns its log.
pub fn log_of_refusals(language: KitLanguage, url: &str, cases: &[Vec<(&str, &str)>]) -> String {
    let object = |variables: &Vec<(&str, &str)>| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        Value::Object(variables.collect()).to_string()
    };
    let mut command = language.on_nats("refused");
    command
        .args(cases.iter().map(object))
        .env("ORGANISM_BUS_URL", url)
        .env("ORGANISM_NAME", "talk")
        .env("ORGANISM_LISTENER", "tested");
    let log = tempfile::NamedTempFile::new().unwrap();
    let child = command.stderr(log.reopen().unwrap()).spawn().unwrap();
    let mut running = Running { child };
    let ended = until("the listener ends", || running.child.try_wait().unwrap());
    let lines = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(ended.code(), Some(1), "{language:?}: {lines}");
    lines
}

/// A wrong lease, number of workers or name, and contradictory credentials.
async fn a_wrong_variable_is_refused_with_its_reason_alone(language: KitLanguage) {
    let (cases, expected): (Vec<_>, Vec<_>) = refused_variables().into_iter().unzip();
    assert_eq!(log_of_refusals(language, "nats://127.0.0.1:1", &cases), expected.concat());
}

/// A program without the address of a server would find an empty input, and end with a success.
async fn variables_of_nats_without_the_address_of_a_server_are_refused(language: KitLanguage) {
    let variables = ["NKEY", "CREDENTIALS", "CA", "LEASE", "WORKERS"];
    let variables = variables.map(|name| format!("ORGANISM_BUS_{name}"));
    let cases = variables.iter().map(|variable| vec![(variable.as_str(), "1")]);
    // The program always has a name of its organism.
    let cases: Vec<_> = cases.chain([vec![]]).collect();
    let refused = variables.iter().map(String::as_str).chain(["ORGANISM_NAME"]);
    let advice = "; leave it out for a child process\n";
    let expected = refused
        .map(|variable| format!("{variable} is set, and needs ORGANISM_BUS_URL beside it{advice}"));
    assert_eq!(log_of_refusals(language, "", &cases), expected.collect::<String>());
}

async fn what_is_no_address_of_a_server_is_refused(language: KitLanguage) {
    let addresses = ["foo://", "nats://", "http://127.0.0.1:4222", "127.0.0.1:port", "a b", ""];
    let lists = addresses.map(|address| format!("nats://127.0.0.1:1, {address}"));
    let cases = lists.each_ref().map(|list| vec![("ORGANISM_BUS_URL", list.as_str())]);
    let expected = addresses.map(|address| {
        format!(
            "ORGANISM_BUS_URL has `{address}`, not the address of a NATS server: write it like \
             nats://127.0.0.1:4222 or tls://host:4222\n"
        )
    });
    assert_eq!(log_of_refusals(language, "nats://127.0.0.1:1", &cases), expected.concat());
}

#[tokio::test]
async fn a_panic_in_the_rust_kit_is_a_crashed_attempt_and_the_programs_end() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let rust = Rust::start(&meeting);
    let number = ear.tell("panic now");
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::Crashed { .. }) if *n == number),
        "{failed:?}"
    );
    assert!(rust.thread.join().is_err());
}

#[tokio::test]
async fn waiting_deliveries_in_the_rust_kit_are_answered_before_it_ends() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let rust = Rust::start(&meeting);
    let numbers = [ear.tell("wait"), ear.tell("echo last")];
    ear.expect(SinkEvent::Beat(numbers[0])).await;
    let ended = tokio::task::spawn_blocking(move || rust.end());
    ear.cancel(numbers[0]);
    ear.expect(SinkEvent::Answer(numbers[0], vec![done("gone")])).await;
    ear.expect(SinkEvent::Answer(numbers[1], vec![done("last")])).await;
    assert_eq!(ended.await.unwrap(), Ok(()));
}

/// Returns the answer of a service to a request without a payload, as the NATS command line sends
/// it.
async fn service_answer(meeting: &Meeting, subject: &str) -> Value {
    let client = meeting.stranger().await.0;
    let answer = timeout(PATIENCE, client.request(subject.to_owned(), "".into())).await;
    serde_json::from_slice(&answer.unwrap().unwrap().payload).unwrap()
}

async fn tells_of_itself(meeting: &Meeting, kit: &str) {
    let mut ear = meeting.ear();
    ear.ask("echo one").await;
    ear.tell("crash two");
    ear.next().await;
    // Other tests use the same names, but ids are unique.
    let here = ping_answer(meeting).await;
    let id = here["id"].as_str().unwrap();
    let [ping, info, stats] =
        ["PING", "INFO", "STATS"].map(|verb| format!("$SRV.{verb}.tested.{id}"));
    let (ping, info, stats) = (
        service_answer(meeting, &ping).await,
        service_answer(meeting, &info).await,
        service_answer(meeting, &stats).await,
    );
    for (answer, kind) in [(&ping, "ping"), (&info, "info"), (&stats, "stats")] {
        assert_eq!(answer["type"], format!("io.nats.micro.v1.{kind}_response"));
        assert_eq!((&answer["name"], &answer["id"]), (&json!("tested"), &json!(id)));
        assert_eq!(answer["metadata"]["organism"], meeting.organism);
        assert_eq!(answer["metadata"]["kit"], kit);
        assert!(answer["version"].as_str().unwrap().split('.').count() == 3, "{answer}");
    }
    let subject = meeting.subjects.deliveries();
    for answer in [&info, &stats] {
        let endpoint = &answer["endpoints"][0];
        assert_eq!(
            (&endpoint["subject"], &endpoint["queue_group"]),
            (&json!(subject), &json!("tested"))
        );
    }
    assert!(info["description"].is_string() && stats["started"].as_str().unwrap().ends_with('Z'));
    let counts = &stats["endpoints"][0];
    assert_eq!(
        (&counts["num_requests"], &counts["num_errors"]),
        (&json!(2), &json!(1)),
        "{counts}"
    );
    assert!(counts["last_error"].as_str().unwrap().contains("two"), "{counts}");
    let (all, each) = (&counts["processing_time"], &counts["average_processing_time"]);
    assert_eq!(all.as_u64().unwrap() / 2, each.as_u64().unwrap());
    is_nobody_elses(meeting, &format!("$SRV.PING.tested.{id}")).await;
}

/// Checks that the listener under test never announces itself to another organism. The ping `ping`
/// names a subject of another organism for the reply.
async fn is_nobody_elses(meeting: &Meeting, ping: &str) {
    let stranger = meeting.stranger().await;
    let mut theirs = stranger.hears("organism.another.re.tested.>").await;
    let here = "organism.another.re.tested.here";
    stranger.0.publish_with_reply(ping.to_owned(), here, "".into()).await.unwrap();
    let after = service_answer(meeting, ping).await;
    stranger.say("organism.another.re.tested.end", &[], "").await;
    assert_eq!(&*theirs.next().await.subject, "organism.another.re.tested.end", "{after}");
}

/// Answer of the listener under test to a ping of all services.
pub async fn ping_answer(meeting: &Meeting) -> Value {
    let stranger = meeting.stranger().await;
    let inbox = stranger.0.new_inbox();
    let mut answers = stranger.hears(&inbox).await;
    stranger.0.publish_with_reply("$SRV.PING", inbox, "".into()).await.unwrap();
    loop {
        let answer: Value = serde_json::from_slice(&answers.next().await.payload).unwrap();
        if answer["metadata"]["organism"] == meeting.organism {
            return answer;
        }
    }
}

#[tokio::test]
async fn the_rust_kit_tells_of_itself_as_services_do() {
    let meeting = Meeting::at(shared());
    let rust = Rust::start(&meeting);
    tells_of_itself(&meeting, "rust").await;
    assert_eq!(rust.end(), Ok(()));
}

#[tokio::test]
async fn the_python_kit_tells_of_itself_as_services_do() {
    let meeting = Meeting::at(shared());
    let _kit = Kit::start(KitLanguage::Python, &meeting, &[]);
    tells_of_itself(&meeting, "python").await;
}

#[tokio::test]
async fn the_typescript_kit_tells_of_itself_as_services_do() {
    let meeting = Meeting::at(shared());
    let _kit = Kit::start(KitLanguage::TypeScript, &meeting, &[]);
    tells_of_itself(&meeting, "typescript").await;
}

each_kit!(
    a_wrong_variable_is_refused_with_its_reason_alone
    variables_of_nats_without_the_address_of_a_server_are_refused
    what_is_no_address_of_a_server_is_refused
);
