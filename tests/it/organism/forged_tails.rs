//! An attacker with write access changes the tail of the journal's file while the organism is down.
//! Every start refuses the changed journal, and no part of a forged record is ever executed. The
//! organism continues after an operator has accepted the loss, which is then on record.
//!
//! The simulation keeps its records in a list without MACs, so this test uses the file. `KILLS=…`
//! sets the number of kills; `SEED=…` repeats the choices.

use std::process::Stdio;

use organism::ids::{CallId, MessageId, Position, ThreadId};
use organism::journal::HashedRecord;
use organism::thread::{Fact, Input, Record};
use rusqlite::Connection;

use super::kill::{choices, environment, torture};
use super::{House, Running, numbered, until};
use crate::campaign::Campaign;
use crate::journal::attacks::{LAST_MAC, put};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["solo", "vault"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[listeners.vault]
command = ["./player.pl", "vault"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]
approval = "always"
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    /// Appends a record that releases the held call and has no MAC.
    Append,
    /// Appends a record that releases the held call and has a copy of the last MAC.
    AppendWithCopiedMac,
    /// Removes the last MAC.
    DeleteMac,
}

use Attack::{Append, AppendWithCopiedMac, DeleteMac};

const ATTACKS: [Attack; 3] = [Append, AppendWithCopiedMac, DeleteMac];

/// A call that waits for an approval.
struct HeldCall {
    message: String,
    call: CallId,
    thread: ThreadId,
}

fn hold(house: &House) -> HeldCall {
    let sent = house.send_text(&numbered("work", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json().remove(0);
    let text = |key: &str| held[key].as_str().unwrap().to_owned();
    let message = text("message");
    let call = CallId(MessageId(message.parse().unwrap()));
    HeldCall { message, call, thread: ThreadId::parse(&text("thread")).unwrap() }
}

/// Returns a forged record that releases a held call. The record belongs to the tree of the call.
fn release(house: &House, held: &HeldCall) -> Record {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let records = reader.records(Position(1), last).unwrap();
    let time = records.last().unwrap().record.time;
    let in_tree = records.into_iter().rfind(|sealed| sealed.record.tree == held.thread.root());
    let HashedRecord { record, hash, .. } = in_tree.unwrap();
    Record {
        previous: record.position,
        previous_hash: hash,
        position: Position(last.0 + 1),
        time,
        input: Input::Held { call: held.call },
        facts: vec![Fact::Released { call: held.call, lapsed: false }],
        ..record
    }
}

fn attack(house: &House, held: &HeldCall, attack: Attack) {
    match attack {
        Append => put(&house.data(), &release(house, held), "NULL"),
        AppendWithCopiedMac => put(&house.data(), &release(house, held), LAST_MAC),
        DeleteMac => {
            let db = Connection::open(house.data().join("journal.db")).unwrap();
            let last = "(SELECT max(position) FROM step)";
            db.execute(&format!("UPDATE step SET mac = NULL WHERE position = {last}"), ()).unwrap();
        }
    }
}

fn run(house: &House) -> Running {
    let mut command = house.command(&["run"]);
    command.env("EFFECTS", house.path("effects"));
    house.run_with(command)
}

/// Starts an organism that must exit by itself. Returns its exit code and its log.
fn refused(house: &House) -> (Option<i32>, String) {
    let log = std::fs::File::create(house.path("log")).unwrap();
    let mut run = house.command(&["run"]);
    run.env("EFFECTS", house.path("effects")).stdout(Stdio::null()).stderr(log);
    let mut running = Running { child: run.spawn().unwrap() };
    let ended = until("the start is refused", || {
        assert!(!house.log().contains("is ready"), "a start took it: {}", house.log());
        running.child.try_wait().unwrap()
    });
    (ended.code(), house.log())
}

/// Asserts that the vault did nothing, and that the held call still waits for an approval.
fn is_held(house: &House, held: &HeldCall) {
    let effects = std::fs::read_to_string(house.path("effects")).unwrap_or_default();
    let done: Vec<_> = effects.lines().filter(|line| line.starts_with("vault ")).collect();
    assert_eq!(done, Vec::<&str>::new());
    let waiting = house.organism(&["approvals", "--json"]).json();
    let waiting: Vec<_> = waiting.iter().map(|call| call["message"].as_str().unwrap()).collect();
    assert_eq!(waiting, [held.message.as_str()]);
}

fn ping(house: &House, number: u64) {
    let number = number.to_string();
    let sent = house.send_text(&numbered("ping", &number), &["--key", &number]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[test]
fn no_start_takes_a_forged_tail_and_nothing_of_it_is_executed() {
    let mut report = Campaign::new("forged tails");
    let mut choices = choices();
    let rounds = environment("KILLS").unwrap_or(if torture() { 100 } else { 3 });
    let house = House::settled(CONFIG);
    let mut running = run(&house);
    let held = hold(&house);
    let first = choices.below(ATTACKS.len() as u64);
    for round in 0..rounds {
        let number = usize::try_from((first + round) % ATTACKS.len() as u64).unwrap();
        let tampering = ATTACKS[number];
        ping(&house, round);
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        attack(&house, &held, tampering);

        let (code, log) = refused(&house);
        assert_eq!(code, Some(4), "{tampering:?}: {log}");
        let repaired = house.organism(&["repair", "--accept-loss"]);
        assert_eq!(repaired.code, Some(0), "{tampering:?}: {repaired:?}");
        running = run(&house);
        is_held(&house, &held);
    }

    // The submissions whose records the operator gave up are repeated under their keys, and no
    // others.
    (0..rounds).for_each(|round| ping(&house, round));
    assert_eq!(house.recorded("pong") as u64, rounds);
    is_held(&house, &held);
    assert_eq!(running.stop(), Some(0));
    house.verified();
    report.note(format!("{rounds} kills with a forged tail, {rounds} of {rounds} starts refused"));
}
