//! `organism pause` and `organism resume` (issue 18, part 4).

use std::process::Stdio;

use organism::ids::Position;
use organism::journal::sqlite::DirectoryLock;
use organism::service::announcement::CommandPresence;
use organism::thread::Fact;
use serde_json::Value as Json;

use super::{CommandOutput, House, Running, numbered, until};

/// Runs an organism whose listeners note their deliveries.
fn run(house: &House) -> Running {
    let mut command = house.command(&["run"]);
    command.env("EFFECTS", house.path("effects"));
    house.run_with(command)
}

fn send(house: &House, name: &str, number: &str) {
    let sent = house.send_text(&numbered(name, number), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

/// The only JSON value in a command's output.
pub fn value(output: &CommandOutput) -> Json {
    serde_json::from_str(&output.out).unwrap()
}

/// All facts of the journal from the last pause on.
fn facts_since_pause(house: &House) -> Vec<Fact> {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let records = reader.records(Position(1), last).unwrap().into_iter();
    let facts: Vec<_> = records.flat_map(|sealed| sealed.record.facts).collect();
    let paused = facts.iter().rposition(|fact| matches!(fact, Fact::Paused { .. })).unwrap();
    facts[paused..].to_vec()
}

fn handed_over(facts: &[Fact]) -> usize {
    facts.iter().filter(|fact| matches!(fact, Fact::HandedOver { .. })).count()
}

/// During a pause nothing is handed over, even after a kill -9. Work in flight ends by itself.
#[test]
fn a_pause_survives_kill_9_and_nothing_is_handed_over_during_it() {
    let house = House::new();
    let mut running = run(&house);
    send(&house, "hold", "1");
    until("it is in flight", || house.path("effects").exists().then_some(()));

    let paused = house.organism(&["pause", "all", "--note", "looking into it"]);
    assert_eq!(paused.code, Some(0), "{paused:?}");
    let expected = "everything is paused: nothing more is handed over until `organism resume all`; \
                    deliveries in flight that end by themselves: 1\n";
    assert_eq!(paused.err, expected);
    let again = house.organism(&["pause", "all", "--json"]);
    assert_eq!(value(&again)["partitions"][0]["result"], "unchanged", "{again:?}");

    send(&house, "ping", "1");
    for arguments in
        [&["threads"][..], &["stats", "--by", "listener"], &["sql", "SELECT target FROM pause"]]
    {
        let shown = house.organism(arguments);
        assert!(shown.err.contains("by operator: all (looking into it)"), "{shown:?}");
    }
    assert!(house.organism(&["threads"]).out.contains("running, paused"));
    let listed = house.organism(&["threads", "--json"]).json();
    assert!(listed.iter().all(|tree| tree["pause"] == "whole"), "{listed:?}");
    house.write("let-go", "");
    until("work in flight finishes", || (house.recorded("held") == 1).then_some(()));
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    let running = run(&house);
    // The pump logs on a thread of its own, so the line may follow the one of readiness.
    let is_logged = || house.log().contains("by operator: all; nothing of it is handed over");
    until("the start names the pause", || is_logged().then_some(()));
    send(&house, "ping", "2");
    assert_eq!(handed_over(&facts_since_pause(&house)), 0);
    assert_eq!(house.recorded("pong"), 0);

    let resumed = house.organism(&["resume", "all"]);
    assert_eq!((resumed.code, resumed.err.trim()), (Some(0), "everything is resumed"));
    until("what waited is done", || (house.recorded("pong") == 2).then_some(()));
    let facts = facts_since_pause(&house);
    let resumed = facts.iter().position(|fact| matches!(fact, Fact::Resumed { .. })).unwrap();
    assert_eq!(handed_over(&facts[..resumed]), 0);
    let listed = house.organism(&["threads"]);
    assert!(!listed.err.contains("paused since") && !listed.out.contains("paused"), "{listed:?}");
    let ended = house.organism(&["sql", "SELECT target FROM pause WHERE ended IS NOT NULL"]);
    assert!(ended.out.contains("all"), "{ended:?}");
    let again = house.organism(&["resume", "all"]);
    assert_eq!((again.code, again.err.trim()), (Some(0), "everything was not paused"));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// After the kill switch no work is in flight, and no listener gets a cancelled call again.
#[test]
fn after_the_kill_switch_no_work_is_in_flight() {
    let house = House::new();
    let running = run(&house);
    send(&house, "hold", "1");
    until("it is in flight", || house.path("effects").exists().then_some(()));

    let killed = house.organism(&["pause", "holder", "--cancel", "--note", "stop", "--json"]);
    assert_eq!(killed.code, Some(0), "{killed:?}");
    let result = value(&killed);
    assert_eq!(
        (&result["action"], &result["target"]["name"]),
        (&"pause-and-cancel".into(), &"holder".into())
    );
    assert_eq!(result["partitions"][0]["in_flight"], 1);
    let thread = house.organism(&["threads", "--json"]).json()[0]["thread"].clone();
    let thread = thread.as_str().unwrap();
    until("its call is cancelled", || {
        let shown = house.organism(&["thread", thread]).out;
        (shown.contains("cancelled by the operator: stop")).then_some(())
    });

    house.write("let-go", "");
    let resumed = house.organism(&["resume", "holder"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let next = house.send_text(&numbered("hold", "2"), &[]);
    assert_eq!(next.code, Some(0), "{next:?}");
    let effects = std::fs::read_to_string(house.path("effects")).unwrap();
    assert_eq!(effects.lines().count(), 2, "each call once: {effects}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn what_cannot_be_paused_is_named() {
    let house = House::new();
    let stopped = house.organism(&["pause", "all"]);
    assert_eq!(stopped.code, Some(69), "{stopped:?}");
    assert!(stopped.err.contains("no organism runs on"), "{stopped:?}");

    let running = run(&house);
    let client = house.organism(&["pause", "desk"]);
    assert_eq!(client.code, Some(2), "{client:?}");
    assert!(client.err.contains("`desk` is a client"), "{client:?}");
    let near = house.organism(&["pause", "hodler"]);
    assert_eq!(near.code, Some(2), "{near:?}");
    assert!(near.err.contains("did you mean `holder`?"), "{near:?}");
    let thread = house.organism(&["pause", "sess-absent00"]);
    assert!(thread.err.contains("no thread sess-absent00 is on record"), "{thread:?}");
    let strange = house.organism(&["resume", "What?"]);
    assert_eq!(strange.code, Some(2), "{strange:?}");
    assert!(strange.err.contains("neither a thread (sess-…) nor the name"), "{strange:?}");
    let other = house.organism(&["resume", "holdre"]);
    assert!(other.err.contains("neither a thread nor an agent"), "{other:?}");
    assert!(other.err.contains("did you mean `holder`?"), "{other:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();

    // The organism of a command is starting. Meanwhile, the pause waits until one takes requests.
    let presence = CommandPresence::take(&house.data()).unwrap();
    let mut command = house.command(&["pause", "all", "--cancel"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut pausing = command.spawn().unwrap();
    for _ in 0..3 {
        assert_eq!(house.organism(&["threads"]).code, Some(0));
        assert_eq!(pausing.try_wait().unwrap(), None, "it waits for the socket");
    }
    let running = run(&house);
    let paused: CommandOutput = pausing.wait_with_output().unwrap().into();
    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert_eq!(running.stop(), Some(0));
    drop(presence);

    // An organism that stops has no socket any more, and still holds the journal.
    let _lock = DirectoryLock::take(&house.data()).unwrap();
    let holder = format!("in use by process {}", std::process::id());
    let data = house.data().display().to_string();
    let by_directory = ["pause", "all", "--data", &data];
    for command in
        [&["pause", "all", "--cancel"][..], &["resume", "all"], &["reload"], &by_directory]
    {
        let stopping = house.organism(command);
        assert_eq!(stopping.code, Some(75), "{stopping:?}");
        for text in [holder.as_str(), "maybe because it is starting or stopping"] {
            assert!(stopping.err.contains(text), "{stopping:?}");
        }
    }

    std::fs::create_dir_all(house.data().join("control.sock")).unwrap();
    for command in [&["pause", "all"][..], &["reload"], &by_directory] {
        let unreachable = house.organism(command);
        assert_eq!(unreachable.code, Some(75), "{unreachable:?}");
        assert!(unreachable.err.contains("is no socket: remove it"), "{unreachable:?}");
    }
}
