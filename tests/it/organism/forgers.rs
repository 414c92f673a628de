//! A hosted process forges requests while clients send and the organism is killed repeatedly. The
//! process tries every verb of the control socket, and none of its requests is carried out.
//!
//! `KILLS=…` sets the number of kills.

use std::time::Duration;

use organism::thread::Input;
use serde_json::Value as Json;

use super::kill::{environment, torture};
use super::{CommandOutput, House, Running, numbered, until_within};
use crate::campaign::Campaign;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["solo", "vault", "forger"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
attempts = 50

[listeners.vault]
command = ["./player.pl", "holder", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
approval = "always"

[listeners.forger]
command = ["./forger.py"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]
"#;

const VERBS: [&str; 4] = ["send", "approve", "refuse", "cancel"];

/// Time-out of the forger's attempts: longer than four failing commands take on a busy machine.
const TRIES_PATIENCE: Duration = Duration::from_secs(120);

fn house() -> House {
    let house = House::with(CONFIG);
    house.copy("forger.py");
    house.write("forged.xml", numbered("ping", "forged"));
    house
}

fn run(house: &House) -> Running {
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"));
    house.run_with(command)
}

/// Attempts that the forger noted, one line `MODE VERB CODE` for each.
fn tries(house: &House) -> Vec<String> {
    let noted = std::fs::read_to_string(house.path("tries")).unwrap_or_default();
    noted.lines().map(str::to_owned).collect()
}

/// Makes a held call, and gives its id to the forger. Returns the id.
fn show_target(house: &House, modes: &str) -> String {
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json().remove(0);
    let text = |key: &str| held[key].as_str().unwrap().to_owned();
    house.write("modes", modes);
    let target = [text("message"), text("sha256"), text("thread")].join(" ");
    house.write("target.new", target);
    std::fs::rename(house.path("target.new"), house.path("target")).unwrap();
    text("message")
}

/// Sends a ping until it is answered, even if the pump restarts meanwhile.
fn ping(house: &House, number: usize) -> CommandOutput {
    let number = number.to_string();
    until_within(TRIES_PATIENCE, "an answer", || {
        let sent = house.send_text(&numbered("ping", &number), &["--key", &number]);
        (sent.code == Some(0)).then_some(sent)
    })
}

/// Asserts that the record contains only requests of the clients.
fn judge(house: &House, held: &str, pings: usize) {
    let waiting = house.organism(&["approvals", "--json"]).json();
    let waiting: Vec<_> = waiting.iter().map(|call| &call["message"]).collect();
    assert_eq!(waiting, [held], "it waits on");
    assert_eq!((house.recorded("ping"), house.recorded("pong")), (pings, pings));
    let reader = house.reader();
    let last = reader.last().unwrap();
    let records = reader.records(organism::ids::Position(1), last).unwrap();
    let decisions = records.iter().filter(|sealed| {
        matches!(sealed.record.input, Input::Decided { .. } | Input::Cancel { .. })
    });
    assert_eq!(decisions.count(), 0);
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let refused: Vec<_> = exported.iter().filter(|line| line["rule"] == "hosted-process").collect();
    assert!(!refused.is_empty(), "the attempts are on record");
    let senders = ["forger", "hosted-process"].map(Json::from);
    assert!(refused.iter().all(|line| senders.contains(&line["sender"])), "{refused:?}");
    house.verified();
}

#[test]
fn nothing_that_a_hosted_process_forges_is_done_while_its_organism_is_killed_under_load() {
    let mut report = Campaign::new("hosted processes that forge");
    let kills = environment("KILLS").unwrap_or(if torture() { 100 } else { 3 });
    let house = house();
    let mut running = run(&house);
    let held = show_target(&house, "plain unmarked");
    let mut pings = 0;
    for _ in 0..kills {
        let enough = tries(&house).len() + 2 * VERBS.len();
        until_within(TRIES_PATIENCE, "it tries every verb", || {
            pings += 1;
            ping(&house, pings);
            (tries(&house).len() >= enough).then_some(())
        });
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        running = run(&house);
    }

    let noted = tries(&house);
    for verb in VERBS {
        for mode in ["plain", "unmarked"] {
            let tried = noted.iter().filter(|line| line.starts_with(&format!("{mode} {verb} ")));
            assert!(tried.count() > 0, "{mode} {verb}: {noted:?}");
        }
    }
    let done: Vec<_> =
        noted.iter().filter(|line| line.ends_with(" 0") || line.ends_with(" 3")).collect();
    assert_eq!(done, Vec::<&String>::new());
    assert_eq!(running.stop(), Some(0));
    judge(&house, &held, pings);
    report.note(format!("{kills} kills, {} tries, {pings} messages beside them", noted.len()));
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_that_a_detached_process_forges_is_done_under_load() {
    use super::until;

    let house = house();
    let running = run(&house);
    let held = show_target(&house, "detached");
    let mut pings = 0;
    until_within(TRIES_PATIENCE, "it tries every verb", || {
        pings += 1;
        ping(&house, pings);
        let noted = tries(&house);
        let tried =
            |verb: &&str| noted.iter().any(|line| line.starts_with(&format!("detached {verb} ")));
        VERBS.iter().all(tried).then_some(())
    });
    // The origin of a process that outlives its pump with an empty environment is unknown: see
    // OPERATIONS.
    house.write("pause", "");
    until("the last try has ended", || {
        let noted = tries(&house);
        let count = |what: &str| noted.iter().filter(|line| *line == what).count();
        let is_paused = count("paused") > 0;
        (is_paused && count("detached begin") == count("detached end")).then_some(())
    });
    let noted = tries(&house);
    let done: Vec<_> =
        noted.iter().filter(|line| line.ends_with(" 0") || line.ends_with(" 3")).collect();
    assert_eq!(done, Vec::<&String>::new());
    assert_eq!(running.stop(), Some(0));
    judge(&house, &held, pings);
}
