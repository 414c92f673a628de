//! Two pumps on one stream, each on a separate host. One of them leads, and the other takes over.

mod replicas;
mod shorter;
mod snapshots;
mod trusted;
mod unproved;

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use organism::failpoint::BEGINNING;
use organism::service::announcement::CommandPresence;

use super::{CONFIG, House, PATIENCE, TALK, numbered, say, until_within};
use crate::nats::{Server, shared};

/// A host whose journal is on `server`.
fn host(server: &Server, stream: &str) -> House {
    host_of(CONFIG, server, stream)
}

/// A host with this config, whose journal is on `server`.
fn host_of(config: &str, server: &Server, stream: &str) -> House {
    let address = server.address();
    House::settled(&format!(
        "{config}\n[journal]\nstore = \"jetstream\"\nstream = \"{stream}\"\n\
         durability = \"synced\"\n\n[nats]\nurl = \"{address}\"\n"
    ))
}

fn stream(what: &str) -> String {
    format!("pumps-{what}-{}", std::process::id())
}

fn ask(house: &House, number: &str) -> String {
    let sent = house.send_text(&numbered("ping", number), &["--key", number]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    sent.out
}

#[test]
fn a_frozen_pump_is_replaced_within_seconds_and_stops_when_it_wakes() {
    let stream = stream("frozen");
    let (one, other) = (host(shared(), &stream), host(shared(), &stream));
    let mut frozen = one.run();
    let first = ask(&one, "1");
    frozen.signal("-STOP");
    let begun = Instant::now();
    let second = other.run();
    // Five seconds, and a margin for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(ask(&other, "1"), first, "the same key gets the recorded answer");
    ask(&other, "2");
    frozen.signal("-CONT");
    let ended = until_within(PATIENCE, "the first pump stops", || frozen.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(69), "{}", one.log());
    assert!(one.log().contains("another pump took over"), "{}", one.log());
    ask(&other, "3");
    assert_eq!(other.recorded("ping"), 3);
    assert_eq!(other.recorded("pong"), 3);
    assert_eq!(second.stop(), Some(0));
    other.verified();
    // The first host reads the records that it missed.
    assert_eq!(ask(&one, "3"), ask(&other, "3"));
    assert_eq!(one.recorded("pong"), 3);
    one.verified();
}

/// A pump that was frozen before a delivery and then replaced does not deliver when it wakes,
/// because its successor may have delivered.
#[test]
fn a_pump_that_was_frozen_and_replaced_delivers_nothing_when_it_wakes() {
    let stream = stream("unverified");
    let (one, other) = (host(shared(), &stream), host(shared(), &stream));
    let effects = other.path("effects");
    let mut command = one.command(&["run"]);
    command.env("EFFECTS", &effects).env("ORGANISM_FAILPOINT", "before-deliver");
    command.env("ORGANISM_FAILPOINT_UNTIL", one.path("go-on"));
    let mut frozen = one.run_with(command);
    let mut send = one.command(&["send", "-", "--as", "desk", "--key", "1"]);
    let mut send = send.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    send.stdin.take().unwrap().write_all(numbered("ping", "1").as_bytes()).unwrap();
    until_within(PATIENCE, "it is about to deliver", || {
        one.log().contains("this thread waits at a failpoint of a test").then_some(())
    });
    frozen.signal("-STOP");

    let mut command = other.command(&["run"]);
    command.env("EFFECTS", &effects);
    let second = other.run_with(command);
    ask(&other, "1");
    one.write("go-on", "");
    frozen.signal("-CONT");
    let ended = until_within(PATIENCE, "the first pump stops", || frozen.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(69), "{}", one.log());
    assert!(one.log().contains("another pump took over"), "{}", one.log());
    send.kill().unwrap();
    send.wait().unwrap();

    let delivered = std::fs::read_to_string(&effects).unwrap();
    let attempts: Vec<_> = delivered.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(attempts, ["2.1"], "{delivered}");
    assert_eq!(second.stop(), Some(0));
    other.verified();
}

/// The later one of two hosts that begin an organism at the same moment is refused, and knows no
/// journal afterwards.
#[test]
fn a_host_that_begins_an_organism_too_late_keeps_no_note_of_a_journal() {
    let stream = stream("begun-twice");
    let (one, other) = (host(shared(), &stream), host(shared(), &stream));
    for house in [&one, &other] {
        std::fs::remove_file(house.stream_note(&stream)).unwrap();
    }

    let [place] = BEGINNING;
    let mut late = other.command(&["run"]);
    late.env("ORGANISM_FAILPOINT", place).env("ORGANISM_FAILPOINT_UNTIL", other.path("go-on"));
    let log = other.path("late.txt");
    let mut late = late.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let read = || std::fs::read_to_string(&log).unwrap();
    until_within(PATIENCE, "it has chosen an id", || read().contains(place).then_some(()));
    let running = one.run();
    other.write("go-on", "");

    assert_eq!(late.wait().unwrap().code(), Some(78), "{}", read());
    assert!(read().contains("knows none of its own there"), "{}", read());
    assert!(!other.stream_note(&stream).exists());
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_second_pump_on_another_host_is_refused_with_the_holders_name() {
    let stream = stream("held");
    let (one, other) = (host(shared(), &stream), host(shared(), &stream));
    let running = one.run();
    let refused = other.organism(&["run"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    let holder = format!("in use by process {}", running.child.id());
    assert!(refused.err.contains(&holder), "{}", refused.err);
    assert_eq!(running.stop(), Some(0));
    // After the release, the lease has no holder.
    ask(&other, "1");
}

#[test]
fn a_run_waits_for_no_command_of_its_host_while_another_host_pumps() {
    let stream = stream("command");
    let (one, other) = (host(shared(), &stream), host(shared(), &stream));
    let running = one.run();
    assert_eq!(other.organism(&["run"]).code, Some(75));
    // As during a command that tries to start an organism of its own.
    let _presence = CommandPresence::take(&other.data()).unwrap();
    let refused = other.organism(&["run"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    let holder = format!("in use by process {}", running.child.id());
    assert!(refused.err.contains(&holder), "{refused:?}");
    assert!(!refused.err.contains("a command has started"), "{refused:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_pump_that_was_killed_is_at_once_followed_by_another_on_its_own_host() {
    let house = host(shared(), &stream("killed"));
    let mut running = house.run();
    ask(&house, "1");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let begun = Instant::now();
    let running = house.run();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    ask(&house, "2");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.recorded("pong"), 2);
    house.verified();
}

#[test]
fn the_pump_that_takes_over_goes_on_with_the_schedules() {
    let stream = stream("schedules");
    let config =
        format!("{CONFIG}\n[schedules.tick]\nevery = \"1s\"\nsend = \"tick.xml\"\nas = \"desk\"\n");
    let [one, other] = [0, 1].map(|_| {
        let house = host_of(&config, shared(), &stream);
        house.write("tick.xml", say("tick"));
        house
    });
    let more = |house: &House, than: usize| {
        until_within(PATIENCE, "a run is answered", || {
            (house.recorded("said") > than).then_some(())
        })
    };

    let mut first = one.run();
    more(&one, 0);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let second = other.run();
    more(&other, other.recorded("say"));
    assert_eq!(second.stop(), Some(0));

    let exported = other.organism(&["export", "--format", "jsonl"]).out;
    assert_eq!(exported.matches("event=\\\"planned\\\"").count(), 1, "{exported}");
    let started = exported.matches("event=\\\"started\\\"").count();
    // The pump may have stopped between the event of a run and its request.
    assert!(started - other.recorded("say") <= 1, "{started}");
    other.verified();
}

#[test]
fn submissions_are_refused_during_a_server_outage_and_accepted_afterwards() {
    let server = Server::start();
    let house = host(&server, &stream("away"));
    let running = house.run();
    ask(&house, "1");
    server.kill();
    let busy = until_within(PATIENCE, "somebody is turned away", || {
        // The first submission may wait, because the pump is committing it.
        let sent = house.command(&["send", "-", "--as", "desk", "--json", "--no-wait"]);
        let sent = briefly(sent, &numbered("ping", "2"))?;
        sent.contains("busy").then_some(sent)
    });
    assert!(busy.contains("send the payload again later"), "{busy}");
    let log = house.log();
    let reasons = log.lines().filter_map(|line| line.split_once("until the journal accepts"));
    let reasons: Vec<_> = reasons.map(|(_, reason)| reason).collect();
    assert!(!reasons.is_empty(), "{log}");
    assert!(reasons.windows(2).all(|pair| pair[0] != pair[1]), "{reasons:?}");
    server.restart();
    until_within(PATIENCE, "it goes on", || {
        let sent = house.send_text(&numbered("ping", "3"), &["--key", "3"]);
        assert!(matches!(sent.code, Some(0 | 75)), "{sent:?}");
        (sent.code == Some(0)).then_some(())
    });
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.recorded("ping"), house.recorded("pong"));
    house.verified();
    let exported = house.organism(&["export", "--format", "jsonl"]).out;
    assert!(exported.contains(TALK));
}

/// Subscribes to `subject`. The returned thread ends when a request arrives.
fn observe_request(server: &Server, subject: String) -> std::thread::JoinHandle<()> {
    use futures_util::StreamExt as _;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = server.options();
    let mut asked = runtime.block_on(async {
        let client = organism::nats::connect(&options, "spy").await.unwrap();
        let asked = client.subscribe(subject).await.unwrap();
        client.flush().await.unwrap();
        asked
    });
    std::thread::spawn(move || drop(runtime.block_on(asked.next())))
}

/// A start waits for a server that does not respond for a while, for example during an election.
/// The start does not report the journal as broken.
#[test]
fn a_journal_whose_server_says_nothing_at_the_start_is_waited_for_and_not_called_broken() {
    let (server, stream) = (Server::start(), stream("silent"));
    let (one, other) = (host(&server, &stream), host(&server, &stream));
    let frozen = one.run();
    ask(&one, "1");
    // A standby observes the lease for a while before it takes the lease.
    frozen.signal("-STOP");
    let looks = observe_request(&server, format!("$JS.API.STREAM.MSG.GET.KV_{stream}-pumps"));
    let running = std::thread::scope(|scope| {
        let run = scope.spawn(|| other.run());
        looks.join().unwrap();
        server.signal("-STOP");
        until_within(PATIENCE, "it waits", || {
            let waits = other.log().contains("JetStream is unavailable");
            (waits || run.is_finished()).then_some(())
        });
        server.signal("-CONT");
        run.join().unwrap()
    });
    assert!(other.log().contains("JetStream is unavailable"), "{}", other.log());
    ask(&other, "2");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(other.recorded("pong"), 2);
    other.verified();
}

#[test]
fn a_stream_deleted_under_load_stops_its_organism_within_seconds_and_is_not_made_again() {
    let (server, stream) = (Server::start(), stream("deleted"));
    let house = host(&server, &stream);
    let mut running = house.run();
    ask(&house, "1");
    let (begun, ended) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let send = |n: u32| house.send_text(&numbered("ping", &n.to_string()), &[]);
            (2..).map(send).find(|sent| sent.code != Some(0)).unwrap()
        });
        until_within(PATIENCE, "there is load", || (house.recorded("pong") > 3).then_some(()));
        server.admin().delete(&format!("{stream}-0"));
        let begun = Instant::now();
        let ended = until_within(PATIENCE, "it ends", || running.child.try_wait().unwrap());
        let ended = (begun.elapsed(), ended);
        load.join().unwrap();
        ended
    });
    println!("the organism stopped {begun:?} after its stream was deleted");
    // Five seconds, and a margin for a busy machine.
    assert!(begun < Duration::from_secs(8), "{begun:?}");
    assert_eq!(ended.code(), Some(4), "{}", house.log());
    assert!(house.log().contains(&format!("the stream {stream}-0 is gone")), "{}", house.log());
    let again = house.organism(&["send", "organism.toml", "--as", "desk"]);
    assert_eq!(again.code, Some(4), "{again:?}");
    assert!(again.err.contains("is gone, but more was acknowledged"), "{again:?}");
    let left = server.admin().ask(&format!("STREAM.INFO.{stream}-0"), &serde_json::json!({}));
    assert!(left.get("error").is_some(), "it was made again: {left}");
    let compared = house.organism(&["verify", "--stream"]);
    assert_eq!(compared.code, Some(4), "{compared:?}");
    // The stream is gone, so the projection cannot be compared.
    let alone = house.organism(&["verify"]);
    assert_eq!(alone.code, Some(5), "{alone:?}");
}

/// Output of a command; `None` if the command waits for too long and is killed.
fn briefly(mut command: std::process::Command, text: &str) -> Option<String> {
    use std::io::{Read as _, Write as _};
    use std::process::Stdio;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let begun = Instant::now();
    let has_ended = until_within(PATIENCE, "it ends, or its time is over", || {
        let has_ended = child.try_wait().unwrap().is_some();
        (has_ended || begun.elapsed() > Duration::from_secs(5)).then_some(has_ended)
    });
    if !has_ended {
        child.kill().unwrap();
        child.wait().unwrap();
        return None;
    }
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    Some(said)
}

#[test]
fn a_checkpoint_that_waits_for_the_server_is_reported_once_for_each_reason() {
    const ATTEMPTS: Duration = Duration::from_secs(4);

    let server = Server::start();
    let house = host(&server, &stream("put-off"));
    let running = house.run();
    ask(&house, "1");
    server.kill();
    let reasons = || {
        let log = house.log();
        let lines = log.lines().filter_map(|line| line.split_once("write a checkpoint; retrying"));
        lines.map(|(_, reason)| reason.to_owned()).collect::<Vec<_>>()
    };
    until_within(PATIENCE, "a checkpoint is due", || (!reasons().is_empty()).then_some(()));

    // The pump makes several attempts meanwhile.
    let begun = Instant::now();
    until_within(PATIENCE, "it has made several attempts", || {
        assert_eq!(house.organism(&["threads"]).code, Some(0));
        (begun.elapsed() >= ATTEMPTS).then_some(())
    });
    let reasons = reasons();
    assert!(reasons.windows(2).all(|pair| pair[0] != pair[1]), "{reasons:?}");
    server.restart();
    until_within(PATIENCE, "the server is used again", || {
        let sent = house.send_text(&numbered("ping", "2"), &["--key", "2"]);
        (sent.code == Some(0)).then_some(())
    });
    assert_eq!(running.stop(), Some(0));
}
