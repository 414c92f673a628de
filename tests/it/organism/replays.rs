//! `organism replay` lets the core decide again on every recorded input of real runs. The report
//! names a record that the core would not write.

use std::path::{Path, PathBuf};

use organism::envelope::Disposition;
use organism::ids::Position;
use organism::organism::replay::{ReplayReport, ReplayVerdict, UndecidedReason, replay};
use organism::thread::{Fact, Input, Record};
use rusqlite::Connection;

use super::proof::copy;
use super::{CommandOutput, House, TALK, numbered, say, until};
use crate::journal::attacks::put;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "writer"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["echo"]

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<say xmlns="urn:example:talk">hello</say><say>'

[[turn]]
agent = "writer"
turn = 2
text = '<done xmlns="urn:example:talk"><n>1</n></done>'
"#;

fn sent(house: &House, text: &str, mutant: &str, code: i32) {
    house.write("payload.xml", text);
    let mut command = house.command(&["send", "payload.xml", "--as", "desk"]);
    if !mutant.is_empty() {
        command.env("ORGANISM_MUTANT", mutant);
    }
    let sent: CommandOutput = command.output().unwrap().into();
    assert_eq!(sent.code, Some(code), "{sent:?}");
}

/// A house that was started with two configs, one after the other. The gate of the second config
/// refuses payloads that the gate of the first config accepted.
fn house() -> House {
    let house = House::with(CONFIG);
    house.write("turns.toml", TURNS);
    sent(&house, &say("hello"), "", 0);
    sent(&house, &numbered("order", "1"), "", 0);
    sent(&house, "<unknown/>", "", 65);

    let xsd = std::fs::read_to_string(house.path("talk.xsd")).unwrap();
    let changed =
        xsd.replacen("name=\"say\" type=\"xs:string\"", "name=\"say\" type=\"xs:int\"", 1);
    assert_ne!(xsd, changed);
    house.write("talk.xsd", changed);
    sent(&house, &say("hello"), "", 65);
    sent(&house, &say("17"), "", 0);
    house
}

fn replayed(house: &House) -> ReplayReport {
    replay(&house.data(), 0, &mut |_, _| {}).unwrap()
}

/// The records of a house, and a copy of the house. A test writes the records into the copy with
/// one record changed.
struct Forgery {
    house: House,
    records: Vec<Record>,
}

impl Forgery {
    fn of(original: &House) -> Self {
        let house = House::with(CONFIG);
        copy(&original.data(), &house.data());
        let reader = house.reader();
        let sealed = reader.records(Position(1), reader.last().unwrap()).unwrap();
        let records = sealed.into_iter().map(|sealed| sealed.record).collect();
        Self { house, records }
    }

    /// Changes the record at `index`, writes all records so that their hashes match again, and
    /// replays them.
    fn with(&self, index: usize, change: impl Fn(&mut Record)) -> ReplayReport {
        let mut records = self.records.clone();
        change(&mut records[index]);
        self.replay(records)
    }

    /// Writes `records` in place of the house's records with the same positions, and replays all.
    fn replay(&self, mut records: Vec<Record>) -> ReplayReport {
        for record in &mut records {
            if record.previous > Position(0) {
                let reader = self.house.reader();
                let previous = reader.existing_record(record.previous).unwrap();
                record.previous_hash = previous.hash;
            }
            put(&self.house.data(), record, "NULL");
        }
        replayed(&self.house)
    }
}

#[test]
fn every_record_is_decided_again_with_the_config_in_force() {
    let house = house();
    let output = house.organism(&["replay"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.out.ends_with("\nequal\n"), "{output:?}");
    assert!(output.out.contains("taken as recorded"), "{output:?}");

    let report = &house.organism(&["replay", "--json"]).json()[0];
    assert_eq!(report["verdict"], "equal");
    assert_eq!(report["epochs"].as_array().unwrap().len(), 5);
    assert_eq!(report["records"], house.reader().last().unwrap().0);
    assert!(report["refusals_as_recorded"].as_u64().unwrap() >= 2, "{report}");
    let configs: std::collections::BTreeSet<_> =
        report["epochs"].as_array().unwrap().iter().map(|e| e["config"].to_string()).collect();
    assert_eq!(configs.len(), 2);

    // Neither the config of today nor a secret is needed.
    house.write("organism.toml", "[organism\n");
    assert_eq!(house.organism(&["replay"]).code, Some(0));
}

#[test]
fn a_lost_fact_is_named_wherever_it_is() {
    let original = house();
    let forgery = Forgery::of(&original);
    let mut changed = 0;
    for (index, record) in forgery.records.iter().enumerate() {
        // A boot without its first fact is no boot.
        if record.facts.len() < 2 {
            continue;
        }
        let report = forgery.with(index, |record| drop(record.facts.pop()));
        let difference = report.difference.unwrap_or_else(|| panic!("{record:#?}"));
        assert_eq!(difference.position, record.position, "{difference:?}");
        assert_eq!(difference.thread, record.tree);
        assert!(!difference.decided.is_empty(), "{difference:?}");
        changed += 1;
    }
    assert!(changed > 10, "{changed}");
    assert_eq!(forgery.with(0, |_| {}).verdict(), ReplayVerdict::Equal);
}

#[test]
fn another_disposition_is_named_with_both_values() {
    let original = house();
    let forgery = Forgery::of(&original);
    let is_handled = |fact: &Fact| matches!(fact, Fact::Disposed { how: Disposition::Handled, .. });
    let index = forgery.records.iter().position(|record| record.facts.iter().any(is_handled));
    let index = index.unwrap();
    forgery.with(index, |record| {
        for fact in &mut record.facts {
            if let Fact::Disposed { how, .. } = fact {
                *how = Disposition::Late;
            }
        }
    });

    let data = forgery.house.data();
    let output = forgery.house.organism(&["replay", "--data", data.to_str().unwrap()]);
    assert_eq!(output.code, Some(6), "{output:?}");
    let record = &forgery.records[index];
    let place = format!("DIFFERS at position {} of {}, fact ", record.position, record.tree);
    for part in
        [place.as_str(), "  recorded: {\"disposed\"", "\"late\"", "  decided:  {\"disposed\""]
    {
        assert!(output.out.contains(part), "{part}: {output:?}");
    }
}

#[test]
fn a_payload_that_the_gate_does_not_pass_is_a_difference() {
    let original = house();
    let forgery = Forgery::of(&original);
    let is_submitted = |record: &Record| matches!(record.input, Input::Submitted { .. });
    let index = forgery.records.iter().position(is_submitted).unwrap();
    let report = forgery.with(index, |record| {
        let bytes = format!("<say xmlns=\"{TALK}\"><b/></say>");
        let payload = organism::envelope::Payload::new(bytes);
        if let Input::Submitted { verdict, .. } = &mut record.input {
            *verdict = organism::thread::Verdict::Passed(payload.digest);
        }
        *record.payloads_mut().next().unwrap() = payload;
    });
    let difference = report.difference.unwrap();
    assert_eq!(difference.part, "gate");
    assert_eq!(difference.position, forgery.records[index].position);
}

/// A pump that drains from its boot on hands nothing over at the boot. Its next record is the
/// shutdown, so a boot without its hand-overs differs if another record follows.
#[test]
fn a_boot_that_hands_nothing_over_differs_without_a_shutdown_after_it() {
    let original = House::new();
    let mut running = original.run();
    for number in ["1", "2"] {
        let sent = original.send_text(&numbered("hold", number), &["--no-wait"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    original.write("let-go", "");
    let running = original.run();
    until("a call has its result", || (original.recorded("held") > 0).then_some(()));
    assert_eq!(running.stop(), Some(0));

    let forgery = Forgery::of(&original);
    let is_hand_over = |fact: &Fact| matches!(fact, Fact::HandedOver { .. });
    let index = forgery.records.iter().position(|record| {
        matches!(record.input, Input::Boot { .. }) && record.facts.iter().any(is_hand_over)
    });
    let index = index.unwrap();
    let report = forgery.with(index, |record| record.facts.retain(|fact| !is_hand_over(fact)));
    let difference = report.difference.unwrap();
    assert_eq!(difference.position, forgery.records[index].position, "{difference:?}");

    // The boot is the last record of its epoch.
    let mut records = forgery.records[..=index + 1].to_vec();
    records[index].facts.retain(|fact| !is_hand_over(fact));
    let mut next = forgery.records[index].clone();
    next.position = records[index + 1].position;
    next.previous = records[index].position;
    next.facts.retain(|fact| matches!(fact, Fact::Booted { .. }));
    for fact in &mut next.facts {
        if let Fact::Booted { epoch, .. } = fact {
            *epoch += 1;
        }
    }
    records[index + 1] = next;
    let difference = forgery.replay(records).difference.unwrap();
    assert_eq!(difference.position, forgery.records[index].position, "{difference:?}");
}

/// A replay shows that the pump which wrote a record broke a rule.
#[test]
fn the_record_of_a_pump_that_broke_a_rule_differs() {
    for mutant in ["forget-a-disposition", "drop-a-refusal"] {
        let house = House::with(CONFIG);
        house.write("turns.toml", TURNS);
        sent(&house, &say("hello"), "", 0);
        assert_eq!(house.organism(&["replay"]).code, Some(0));

        house.write("payload.xml", "<unknown/>");
        for file in ["payload.xml", "order.xml"] {
            house.write("order.xml", numbered("order", "1"));
            let mut command = house.command(&["send", file, "--as", "desk", "--no-wait"]);
            command.env("ORGANISM_MUTANT", mutant).output().unwrap();
        }
        let output = house.organism(&["replay"]);
        assert_eq!(output.code, Some(6), "{mutant}: {output:?}");
    }
}

#[test]
fn epochs_of_another_core_are_folded_and_named() {
    let original = house();
    let forgery = Forgery::of(&original);
    let is_boot = |record: &Record| matches!(record.input, Input::Boot { .. });
    let boots: Vec<_> = forgery.records.iter().filter(|record| is_boot(record)).collect();
    let index = usize::try_from(boots[1].position.0).unwrap() - 1;
    let report = forgery.with(index, |record| {
        for fact in &mut record.facts {
            if let Fact::Booted { core_version, .. } = fact {
                *core_version = 41;
            }
        }
    });
    assert_eq!(report.verdict(), ReplayVerdict::Undecided, "{report:#?}");
    let undecided: Vec<_> = report.epochs.iter().filter(|epoch| epoch.folded > 0).collect();
    assert_eq!(undecided.len(), 1);
    assert_eq!(undecided[0].from, boots[1].position);
    assert!(matches!(undecided[0].reason, Some(UndecidedReason::CoreVersion { .. })));
    assert_eq!(undecided[0].to.0 + 1, boots[2].position.0);
    assert_eq!(report.decided() + report.folded(), forgery.records.len() as u64);

    let data = forgery.house.data();
    let output = forgery.house.organism(&["replay", "--data", data.to_str().unwrap()]);
    assert_eq!(output.code, Some(5), "{output:?}");
    for part in ["in epoch 2 (positions", "its core has version 41", "NOT PROVED"] {
        assert!(output.out.contains(part), "{part}: {output:?}");
    }
}

#[test]
fn records_after_a_redacted_input_are_folded_until_the_next_start() {
    let house = house();
    let db = Connection::open(house.data().join("journal.db")).unwrap();
    let records = Forgery::of(&house).records;
    let is_submitted = |record: &&Record| matches!(record.input, Input::Submitted { .. });
    let submitted = records.iter().find(is_submitted).unwrap();
    let blank = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position = ?1";
    assert_eq!(db.execute(blank, [submitted.position.0]).unwrap(), 1);
    drop(db);

    let report = replayed(&house);
    assert_eq!(report.verdict(), ReplayVerdict::Undecided, "{report:#?}");
    assert!(report.redacted >= 1);
    let reason = UndecidedReason::Redacted { position: submitted.position };
    assert_eq!(report.epochs[0].reason, Some(reason));
    assert!(report.epochs[0].decided > 0 && report.epochs[0].folded > 0);
    assert!(report.epochs[1..].iter().all(|epoch| epoch.folded == 0), "{report:#?}");
    let output = house.organism(&["replay"]);
    assert_eq!(output.code, Some(5), "{output:?}");
    assert!(output.out.contains("was redacted"), "{output:?}");
}

/// Makes a time-zone database in which `Europe/Berlin` has the fixed rule `rule`.
fn write_zone(house: &House, database: &str, rule: &str) -> PathBuf {
    let (name, offset) = rule.split_at(3);
    let hours: i32 = offset.parse().unwrap();
    let mut part = b"TZif2".to_vec();
    part.extend([0; 15]);
    for count in [0, 0, 0, 0, 1, 4u32] {
        part.extend(count.to_be_bytes());
    }
    part.extend((-hours * 3600).to_be_bytes());
    part.extend([0, 0]);
    part.extend(name.as_bytes());
    part.push(0);

    let directory = house.path(database);
    std::fs::create_dir_all(directory.join("Europe")).unwrap();
    let footer = format!("\n{rule}\n");
    let file = [&part[..], &part, footer.as_bytes()].concat();
    std::fs::write(directory.join("Europe/Berlin"), file).unwrap();
    directory
}

#[test]
fn other_rules_of_a_time_zone_are_no_difference() {
    let schedule = "[schedules.daily]\nat = \"12:00\"\nzone = \"Europe/Berlin\"\n\
                    send = \"hello.xml\"\nas = \"desk\"\n";
    let house = House::with(&format!("{CONFIG}\n{schedule}"));
    house.write("turns.toml", TURNS);
    house.write("hello.xml", say("hello"));
    let rules = write_zone(&house, "then", "CET-1");
    let mut command = house.command(&["run"]);
    command.env("TZDIR", &rules);
    let running = house.run_with(command);
    let sent: CommandOutput = {
        let mut command = house.command(&["send", "hello.xml", "--as", "desk"]);
        command.env("TZDIR", &rules).output().unwrap().into()
    };
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    let replay = |rules: &Path| -> CommandOutput {
        let mut command = house.command(&["replay", "--json"]);
        command.env("TZDIR", rules).output().unwrap().into()
    };
    let equal = replay(&rules);
    assert_eq!(equal.code, Some(0), "{equal:?}");
    let other = replay(&write_zone(&house, "now", "JST-9"));
    assert_eq!(other.code, Some(5), "{other:?}");
    let epoch = &other.json()[0]["epochs"][0];
    assert_eq!(epoch["folded"], 1, "all other records are decided: {epoch}");
    assert_eq!(epoch["reason"]["code"], "zone-rules", "{epoch}");
    assert_eq!(epoch["reason"]["zone"], "Europe/Berlin", "{epoch}");
}

#[test]
fn an_epoch_without_a_stored_config_is_folded() {
    let house = House::with(CONFIG);
    house.write("turns.toml", TURNS);
    sent(&house, &say("hello"), "forget-the-config", 0);
    sent(&house, &say("hello"), "", 0);
    let report = replayed(&house);
    assert_eq!(report.verdict(), ReplayVerdict::Undecided);
    assert!(matches!(&report.epochs[0].reason, Some(UndecidedReason::Config { detail })
        if detail.contains("is not stored in a form that can be loaded")));
    assert_eq!((report.epochs[0].decided, report.epochs[1].folded), (0, 0));
}

#[test]
fn a_broken_chain_ends_the_replay() {
    let house = house();
    super::proof::sql(&house, "UPDATE step SET time = time + 1 WHERE position = 3");
    let output = house.organism(&["replay"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.out.contains("BROKEN at position 3"), "{output:?}");
    let report = &house.organism(&["replay", "--json"]).json()[0];
    assert_eq!((&report["verdict"], &report["position"]), (&"broken".into(), &3.into()));
}
