//! A whole organism with a listener on NATS.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use organism::bus::nats::ListenerSubjects;
use organism::nats::{HeaderMap, Request, RequestErrorKind};

use super::{CommandOutput, House, TALK, say, talk_reply, until};
use crate::bus::harness::{name, script};
use crate::bus::remote::{Kit, Meeting, publish_headers, wait};
use crate::nats::{Server, Settings, is_streamed};

fn server() -> Server {
    Server::start()
}

fn house(server: &Server) -> House {
    house_with(server, "")
}

/// A house whose listener on NATS has these config keys.
fn house_with(server: &Server, keys: &str) -> House {
    // The listeners are on this server, and so is the journal if all journals of the test run are
    // on JetStream.
    let journal = match std::env::var_os("ORGANISM_TEST_NATS") {
        None => "",
        Some(_) => "[journal]\nstore = \"jetstream\"\ndurability = \"synced\"\n",
    };
    House::settled(&format!(
        r#"{journal}
[organism]
name = "talk"

[nats]
url = "{}"

[clients.desk]
peers = ["tested"]

[listeners.tested]
nats = true
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
{keys}
"#,
        server.address()
    ))
}

fn replica(meeting: &Meeting, name: &str, more: &[(&str, &str)]) -> Kit {
    let variables = [&[("REPLICA", name), ("ORGANISM_BUS_LEASE", "1")], more].concat();
    Kit::running(&script("replica.py"), meeting, &variables)
}

/// Submits a payload without waiting for the answer.
fn sending(house: &House, text: &str) -> Child {
    let mut command = house.command(&["send", "-", "--as", "desk"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(say(text).as_bytes()).unwrap();
    child
}

fn answer(child: Child) -> CommandOutput {
    child.wait_with_output().unwrap().into()
}

/// Number of occurrences of a text in the output of `organism export`.
fn on_record(house: &House, text: &str) -> usize {
    house.organism(&["export", "--format", "jsonl"]).out.matches(text).count()
}

#[test]
fn the_deliveries_of_a_killed_replica_are_repeated_and_have_one_result() {
    let server = server();
    let (house, meeting) = (house(&server), Meeting::of("talk", &server));
    let running = house.run();
    let mark = house.path("holding");
    let mut doomed = replica(&meeting, "the first", &[("HOLD", mark.to_str().unwrap())]);
    let sent = sending(&house, "hello");
    let attempt = until("the first holds it", || {
        std::fs::read_to_string(&mark).ok().filter(|attempt| !attempt.is_empty())
    });
    assert!(attempt.ends_with(".1"), "{attempt}");
    let _other = replica(&meeting, "the second", &[]);
    doomed.kill();
    let told = answer(sent);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("hello, the second")), "{}", told.err);
    assert_eq!((house.recorded("say"), house.recorded("said")), (1, 1));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_listener_that_is_away_for_a_while_fails_no_call() {
    let server = server();
    let (house, meeting) = (house_with(&server, "attempts = 1"), Meeting::of("talk", &server));
    let running = house.run();
    let sent = [sending(&house, "one"), sending(&house, "two")];
    until("both are on record", || (house.recorded("say") == 2).then_some(()));
    until("it has left", || (on_record(&house, "<listener-left ") == 1).then_some(()));
    assert_eq!(on_record(&house, "<listener-joined "), 0);
    let _kit = replica(&meeting, "there", &[]);
    let [one, two] = sent.map(answer);
    assert_eq!((one.code, one.out), (Some(0), talk_reply("one, there")), "{}", one.err);
    assert_eq!((two.code, two.out), (Some(0), talk_reply("two, there")), "{}", two.err);
    let news = ["<listener-left ", "<listener-joined "].map(|word| on_record(&house, word));
    assert_eq!(news, [1, 1]);
    let log = house.log();
    let warnings = |text: &str| {
        log.lines().filter(|line| line.contains("WARN") && line.contains(text)).count()
    };
    assert_eq!(warnings("no replica of tested is connected to NATS: start one"), 1, "{log}");
    assert_eq!(warnings("is connected to NATS"), 1, "the return is no warning: {log}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_listener_that_does_not_come_within_the_time_out_is_undeliverable() {
    let server = server();
    let house = house_with(&server, "timeout = \"1s\"");
    let running = house.run();
    let told = answer(sending(&house, "hello"));
    assert_ne!(told.code, Some(0), "{told:?}");
    assert!(told.out.contains("undeliverable"), "{told:?}");
    let news = ["<listener-left ", "<listener-joined "].map(|word| on_record(&house, word));
    assert_eq!(news, [1, 0]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The listener may have answered while the connection of the pump was broken. So the request may
/// have had its effects, and its caller must not repeat it.
#[test]
fn a_single_attempt_whose_connection_broke_has_an_unknown_outcome_although_its_replica_has_a_lease()
{
    let server = server();
    let (house, meeting) = (house_with(&server, "attempts = 1"), Meeting::of("talk", &server));
    let running = house.run();
    let sent = sending(&house, "hello");
    until("it has left", || (on_record(&house, "<listener-left ") == 1).then_some(()));
    let reply = wait(async {
        let stranger = meeting.stranger().await;
        let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
        // With this lease, the replica counts as alive until the end of the outage.
        stranger.say(&meeting.subjects.here(), &[("Organism-Lease", "60")], "").await;
        deliveries.next().await.reply.unwrap()
    });
    until("it is back", || (on_record(&house, "<listener-joined ") == 1).then_some(()));
    server.kill();
    server.restart();

    wait(async {
        let stranger = meeting.stranger().await;
        let lease = || {
            let mut headers = HeaderMap::new();
            headers.insert("Organism-Lease", "1");
            Request::new().headers(headers).timeout(Some(Duration::from_secs(1)))
        };
        let says = async || stranger.0.send_request(reply.clone(), lease()).await.unwrap_err();
        while says().await.kind() == RequestErrorKind::NoResponders {}
    });
    let told = answer(sent);
    assert_eq!(told.code, Some(1), "{told:?}");
    let told = told.out;
    assert!(told.contains("unknown-outcome") && told.contains("retry_allowed=\"false\""), "{told}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn an_answer_to_an_attempt_that_was_given_up_is_refused_on_record() {
    let server = server();
    let (house, meeting) = (house(&server), Meeting::of("talk", &server));
    let running = house.run();
    let (stranger, mut deliveries) = wait(async {
        let stranger = meeting.stranger().await;
        let deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
        (stranger, deliveries)
    });
    let sent = sending(&house, "hello");
    let first = wait(deliveries.next()).reply.unwrap();
    wait(stranger.say(&first, &[("Organism-Lease", "1")], ""));
    let second = wait(deliveries.next());
    let attempt = second.headers.as_ref().unwrap().get("Organism-Attempt").unwrap();
    assert!(attempt.as_str().ends_with(".2"), "{attempt}");
    let reply = |text: &str| format!("<said xmlns=\"{TALK}\">{text}</said>");
    wait(stranger.say(&first, &[], &reply("late")));
    let second = second.reply.unwrap();
    wait(stranger.say(&second, &[], &reply("in time")));
    let told = answer(sent);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("in time")), "{}", told.err);

    // A sign of life that arrives after the answer is no answer. Another answer is one.
    for header in [("Organism-Lease", "1"), ("Organism-Heartbeat", "1")] {
        wait(stranger.say(&second, &[header], ""));
    }
    wait(stranger.say(&second, &[], &reply("again")));
    let refused = || house.log().matches("no attempt in flight has this subject").count();
    until("the other answer is refused", || (refused() > 0).then_some(()));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(refused(), 1, "{}", house.log());
    assert_eq!(on_record(&house, "stale-attempt"), 1);
    house.verified();
}

/// Another listener, for the config of [`house_with`].
const OTHER: &str = r#"
attempts = 1

[listeners.other]
nats = true
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
"#;

/// One listener publishes two malformed headers. The first makes the pump's NATS client connect
/// again, and the second ends the client. A call to another listener still gets its answer.
#[test]
fn malformed_headers_from_one_listener_interrupt_no_call_of_another() {
    let server = server();
    let (house, meeting) = (house_with(&server, OTHER), Meeting::of("talk", &server));
    let running = house.run();
    let (stranger, mut deliveries) = wait(async {
        let stranger = meeting.stranger().await;
        let deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
        (stranger, deliveries)
    });
    let sent = sending(&house, "hello");
    let reply = wait(deliveries.next()).reply.unwrap();

    let subject = ListenerSubjects::new("talk", &name("other")).denied();
    for (headers, logged) in [
        ("NATS/1.0\r\nno colon here\r\n\r\n", "connected to NATS again"),
        ("NATS/1.0\r\nA: x\ry\r\n\r\n", "connected to NATS anew"),
    ] {
        // A client that has just connected may not have subscribed again. The server drops the message
        // then.
        until(logged, || {
            publish_headers(&server.address(), &subject, headers);
            house.log().contains(logged).then_some(())
        });
    }

    wait(stranger.say(&reply, &[], &format!("<said xmlns=\"{TALK}\">in time</said>")));
    let told = answer(sent);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("in time")), "{}", told.err);
    let log = house.log();
    let error = log.lines().find(|line| line.contains("ERROR") && line.contains("listener other"));
    assert!(error.is_some_and(|line| line.contains("has ended")), "{log}");
    assert!(!log.contains("organism talk, listener tested"), "{log}");
    // Journals on JetStream come with other log levels.
    assert!(is_streamed() || log.contains("no header version line found"), "{log}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn an_organism_whose_server_takes_too_little_or_is_not_there_does_not_start() {
    let more = "max_payload: 500000";
    let little = Server::start_with(Settings { jetstream: Some(""), more });
    let refused = house(&little).organism(&["run"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    let told = refused.err.contains("max_payload") && refused.err.contains("raise it");
    assert!(told, "{refused:?}");
    let absent = server();
    let house = house(&absent);
    absent.kill();
    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.err.contains("connect to NATS"), "{refused:?}");
    absent.restart();
}
