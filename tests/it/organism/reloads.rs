//! `organism reload` and SIGHUP: another config comes into force while work is in flight (design
//! 12.3).

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};

use organism::clock::Time;
use organism::config::{BootConfig, ConfigHistory};
use organism::ids::Position;
use organism::thread::{Fact, Input, OperatorVerb, Record};

use super::model_calls;
use super::provider::{Provider, ScriptedResponse};
use super::{CommandOutput, House, Running, numbered, say, talk_reply, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "holder", "front"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[listeners.holder]
command = ["./player.pl", "holder", "let-go-{n}"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
attempts = 1
instances = 2

[listeners.front]
command = ["./late.py"]
schema = "talk.xsd"
accepts = ["order"]
replies = ["done"]
peers = ["back"]

[listeners.back]
command = ["./player.pl", "back"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]
"#;

fn house() -> House {
    furnished(House::with(CONFIG))
}

fn furnished(house: House) -> House {
    house.copy("late.py");
    house
}

/// Replaces `old` by `new` in a file, which must contain `old`.
fn rewrite(house: &House, file: &str, old: &str, new: &str) {
    let text = std::fs::read_to_string(house.path(file)).unwrap();
    assert!(text.contains(old), "{file}: {old}");
    house.write(file, text.replace(old, new));
}

/// Starts a `send` that waits for its result.
fn sending(house: &House, text: &str, number: &str) -> Child {
    let file = format!("payload-{number}.xml");
    house.write(&file, text);
    let mut command = house.command(&["send", "--as", "desk", &file]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> CommandOutput {
    child.wait_with_output().unwrap().into()
}

fn reloaded(house: &House, code: i32) -> CommandOutput {
    let output = house.organism(&["reload", "--note", "for a test"]);
    assert_eq!(output.code, Some(code), "{output:?}");
    output
}

fn records(house: &House) -> Vec<Record> {
    let reader = house.reader();
    let sealed = reader.records(Position(1), reader.last().unwrap()).unwrap();
    sealed.into_iter().map(|sealed| sealed.record).collect()
}

fn handed_over(house: &House) -> usize {
    let is_hand_over = |fact: &&Fact| matches!(fact, Fact::HandedOver { .. });
    records(house).iter().flat_map(|record| &record.facts).filter(is_hand_over).count()
}

fn proved(house: &House) {
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// Design 12.3: work in flight keeps its schemas, and is neither aborted nor counted as failed.
#[test]
fn work_in_flight_ends_with_its_own_schemas_while_new_work_follows_the_new_config() {
    let house = house();
    let running = house.run();
    house.write("let-go-two", "");
    let with_key = || {
        let sent = house.send_text(&(numbered("hold", "two") + "\n"), &["--key", "k"]);
        (sent.code, sent.out)
    };
    let recorded = with_key();
    assert_eq!(recorded, (Some(0), numbered("held", "two") + "\n"));
    let held = sending(&house, &numbered("hold", "one"), "one");
    until("it is handed over", || (handed_over(&house) == 2).then_some(()));

    rewrite(&house, "talk.xsd", "name=\"n\" type=\"xs:token\"", "name=\"n\" type=\"xs:int\"");
    rewrite(&house, "organism.toml", "\"let-go-{n}\"]", "\"let-{n}\"]");
    let applied = reloaded(&house, 0);
    for key in ["listeners.holder.command", "schemas."] {
        assert!(applied.err.contains(key), "{applied:?}");
    }

    let refused = house.send_text(&numbered("hold", "three"), &[]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.err.contains("schema-invalid"), "{refused:?}");
    assert_eq!(with_key(), recorded, "a key gets its recorded answer");
    // The process of the new command answers while the earlier one still works.
    house.write("let-4", "");
    let new = house.send_text(&numbered("hold", "4"), &[]);
    assert_eq!((new.code, &*new.out), (Some(0), &*(numbered("held", "4") + "\n")), "{new:?}");

    house.write("let-go-one", "");
    let ended = ended(held);
    assert_eq!((ended.code, ended.out), (Some(0), numbered("held", "one") + "\n"));

    assert_eq!(running.stop(), Some(0));
    let failed = |fact: &&Fact| matches!(fact, Fact::AttemptFailed { .. } | Fact::NotTaken { .. });
    let records = records(&house);
    let failed: Vec<_> = records.iter().flat_map(|record| &record.facts).filter(failed).collect();
    assert!(failed.is_empty(), "{failed:?}");
    proved(&house);
}

/// Design 12.3: limits change at once, also for trees that are under way.
#[test]
fn changed_limits_hold_for_the_next_message() {
    let house = house();
    let running = house.run();
    let hold = ["--new", "sess-held0000", "--no-wait"];
    assert_eq!(house.send_text(&numbered("hold", "1"), &hold).code, Some(0));
    until("it is handed over", || (handed_over(&house) == 1).then_some(()));

    let before = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    house.write("organism.toml", before + "\n[limits]\nmessages = 1\n");
    reloaded(&house, 0);
    let beyond = house.send_text(&numbered("hold", "2"), &["--thread", "sess-held0000"]);
    assert_eq!(beyond.code, Some(65), "{beyond:?}");
    assert!(beyond.err.contains("messages"), "{beyond:?}");

    house.write("let-go-1", "");
    assert_eq!(running.stop(), Some(0));
    proved(&house);
}

/// Design 12.3: a removed listener may end its work in flight, and gets no further delivery, as
/// after a restart.
#[test]
fn a_removed_listener_may_end_its_work_and_gets_no_more() {
    let house = house();
    let running = house.run();
    let held = ["1", "2", "3"].map(|n| sending(&house, &numbered("hold", n), n));
    let mut order = sending(&house, &numbered("order", "1"), "order");
    until("three are handed over, and one waits", || {
        (handed_over(&house) == 3 && house.recorded("hold") == 3).then_some(())
    });

    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let (head, rest) = config.split_once("[listeners.holder]").unwrap();
    let (_, back) = rest.split_once("[listeners.back]").unwrap();
    let head = head.replace("[\"echo\", \"holder\", \"front\"]", "[\"echo\", \"back\"]");
    house.write("organism.toml", format!("{head}[listeners.back]{back}"));
    reloaded(&house, 0);

    let unknown = house.send_text(&numbered("hold", "4"), &[]);
    assert_eq!(unknown.code, Some(65), "{unknown:?}");
    assert!(unknown.err.contains("not-in-vocabulary"), "{unknown:?}");
    let added = house.send_text(&numbered("work", "5"), &[]);
    assert_eq!((added.code, added.out), (Some(0), numbered("worked", "5") + "\n"));

    for n in ["1", "2", "3"] {
        house.write(&format!("let-go-{n}"), "");
    }
    house.write("go", "");
    let mut codes = Vec::new();
    for ended in held.map(ended) {
        let is_gone = ended.out.contains("holder is no longer part of this organism");
        assert_eq!(is_gone, ended.code == Some(1), "{ended:?}");
        codes.push(ended.code.unwrap());
    }
    codes.sort_unstable();
    assert_eq!(codes, [0, 0, 1], "two were in flight, and one waited");
    // A call that nobody ends would hold up this test for ever.
    until("the order has ended", || order.try_wait().unwrap());
    let order = ended(order);
    assert!(order.out.contains("front is no longer part of this organism"), "{order:?}");

    assert_eq!(running.stop(), Some(0));
    proved(&house);
}

/// After a reload, a queued call waits for an approval. Its receipt did not state this, so the
/// client that waits for the result gets a report.
#[test]
fn a_call_that_a_reload_holds_is_reported_to_its_client() {
    let house = house();
    let running = house.run();
    let sent = ["1", "2", "3"].map(|n| sending(&house, &numbered("hold", n), n));
    until("two are handed over, and one waits", || {
        (handed_over(&house) == 2 && house.recorded("hold") == 3).then_some(())
    });

    rewrite(&house, "organism.toml", "attempts = 1", "attempts = 1\napproval = \"always\"");
    reloaded(&house, 0);
    let held = until("it is held", || house.organism(&["approvals", "--json"]).json().pop());
    let message = held["message"].as_str().unwrap();
    let on_record = || house.organism(&["sql", "--json", "select since_us from hold"]).json().pop();
    let on_record = until("the hold is in the index", on_record);
    let begin = Time(on_record["since_us"].as_i64().unwrap()).to_string();
    assert_eq!(held["since"], begin, "the call itself is older");
    let hash = held["sha256"].as_str().unwrap();
    let approved = house.organism(&["approve", message, "--hash", hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");

    for n in ["1", "2", "3"] {
        house.write(&format!("let-go-{n}"), "");
    }
    let ended = sent.map(ended);
    let reports = ended.iter().filter(|output| output.err.contains("waits for an approval"));
    assert_eq!(reports.count(), 1, "{ended:?}");
    assert!(ended.iter().all(|output| output.code == Some(0)), "{ended:?}");
    assert_eq!(running.stop(), Some(0));
    proved(&house);
}

#[test]
fn a_call_that_waits_for_its_model_begins_when_a_reload_raises_the_concurrency() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(1)]);
    let house = model_calls::house("", &provider.model("live", "concurrency = 1"));
    let running = house.run();
    for _ in 0..2 {
        let sent = house.send_text(&say("write"), &["--no-wait"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    provider.sends(1);
    assert_eq!(provider.requests(), 1);

    rewrite(&house, "organism.toml", "concurrency = 1", "concurrency = 2");
    reloaded(&house, 0);
    until("the other request is sent", || (provider.requests() == 2).then_some(()));
    drop(running);
}

/// The new host of a listener reports its return, although another host has reported that it left.
#[test]
fn the_return_of_a_listener_that_a_reload_repairs_is_on_record() {
    let broken = CONFIG.replace("[\"./player.pl\", \"echo\"]", "[\"./dead\"]");
    let house = furnished(House::with(&broken));
    house.write("dead", "#!/bin/sh\nexit 3\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(house.path("dead"), executable).unwrap();
    let running = house.run();
    let noted = |word: &str| {
        let thread = house.organism(&["thread", "sess-organism"]).out;
        thread.contains(word).then_some(())
    };
    until("the listener has left", || noted("listener-left"));

    rewrite(&house, "organism.toml", "[\"./dead\"]", "[\"./player.pl\", \"echo\"]");
    reloaded(&house, 0);
    until("its return is recorded", || noted("listener-joined"));
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    proved(&house);
}

/// Design 12.3: a config that is wrong or needs a restart is refused with the reason, and the
/// config in force stays.
#[test]
fn what_cannot_be_applied_changes_nothing_and_is_named() {
    let house = house();
    let running = house.run();
    let before = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let count = records(&house).len();

    let unchanged = reloaded(&house, 0);
    assert!(unchanged.err.contains("the config is unchanged"), "{unchanged:?}");
    assert!(unchanged.err.contains("an edited program takes effect when"), "{unchanged:?}");
    house.write("organism.toml", format!("# A comment.\n{before}"));
    let unchanged = house.organism(&["reload", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&unchanged.out).unwrap();
    assert_eq!(report["result"], "unchanged", "{unchanged:?}");

    house.write("organism.toml", before.replace("accepts = [\"work\"]", "accepts = [\"none\"]"));
    let invalid = reloaded(&house, 78);
    assert!(invalid.err.contains("undeclared-payload"), "{invalid:?}");
    assert!(invalid.err.contains("the organism goes on with the one in force"), "{invalid:?}");

    let serial = before.replace("attempts = 1", "attempts = 2\nserial_per_thread = true");
    house.write("organism.toml", serial + "\n[http]\nlisten = \"127.0.0.1:0\"\n");
    let restart = reloaded(&house, 78);
    for key in ["listeners.holder.serial_per_thread", "http"] {
        assert!(restart.err.contains(key), "{restart:?}");
    }
    assert!(!restart.err.contains("attempts"), "{restart:?}");

    // Under another name, the organism would have another journal.
    house.write("organism.toml", before.replace("name = \"talk\"", "name = \"other\""));
    let renamed = reloaded(&house, 78);
    assert!(renamed.err.contains("organism.name"), "{renamed:?}");

    house.write("organism.toml", &before);
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply("hello")));
    let all = records(&house);
    let reloads = all.iter().skip(count).filter(|record| is_reload(record)).count();
    assert_eq!(reloads, 0);
    assert_eq!(running.stop(), Some(0));

    let absent = house.organism(&["reload"]);
    assert_eq!(absent.code, Some(69), "{absent:?}");
}

/// A changed secret is a change, although the record has no secrets.
#[test]
fn a_value_that_no_record_shows_is_put_in_force_and_named() {
    let house = house();
    let env = "env = { LEVEL = \"debug\", KEY_file = \"key\" }\nattempts = 1";
    rewrite(&house, "organism.toml", "attempts = 1", env);
    house.write("key", "one");
    let running = house.run();

    rewrite(&house, "organism.toml", "debug", "info");
    let reload = reloaded(&house, 0);
    assert!(reload.err.contains("listeners.holder.env.LEVEL"), "{reload:?}");
    house.write("key", "two");
    let reload = reloaded(&house, 0);
    assert!(reload.err.contains("listeners.holder.env.KEY"), "{reload:?}");
    for secret in ["info", "two", "LEVEL"] {
        assert!(!reload.err.contains(secret), "{reload:?}");
    }
    let unchanged = reloaded(&house, 0);
    assert!(unchanged.err.contains("the config is unchanged"), "{unchanged:?}");

    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply("hello")));
    assert_eq!(running.stop(), Some(0));
    proved(&house);
}

fn is_reload(record: &Record) -> bool {
    record.facts.iter().any(|fact| matches!(fact, Fact::Reloaded { .. }))
}

/// Two simultaneous reloads are served one after the other. The second one finds no difference and
/// is not recorded.
#[test]
fn two_reloads_at_once_are_recorded_once_with_the_operator() {
    let house = house();
    let running = house.run();
    rewrite(&house, "organism.toml", "attempts = 1", "attempts = 2");
    let reloads = [(); 2].map(|()| {
        let mut command = house.command(&["reload", "--note", "for a test", "--json"]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    });
    let mut results = reloads.map(|child| {
        let report: serde_json::Value = serde_json::from_str(&ended(child).out).unwrap();
        report["result"].as_str().unwrap().to_owned()
    });
    results.sort_unstable();
    assert_eq!(results, ["applied", "unchanged"]);
    assert_eq!(house.log().matches("is in force").count(), 1, "{}", house.log());
    assert_eq!(running.stop(), Some(0));

    let records = records(&house);
    let [reload] = &records.iter().filter(|record| is_reload(record)).collect::<Vec<_>>()[..]
    else {
        panic!("one reload is on record");
    };
    let Input::Operator(action) = &reload.input else { panic!("{reload:?}") };
    assert_eq!((action.verb, &*action.note), (OperatorVerb::Reload, "for a test"));
    assert_eq!(action.who.uid, Some(rustix::process::geteuid().as_raw()));
    let history = ConfigHistory::read(&house.reader()).unwrap();
    assert_eq!(history.boots.len(), 2);
    assert_eq!(BootConfig::read_last(&house.reader()).unwrap().as_ref(), history.last());
    proved(&house);
}

const AGENT: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["order"]
final = "done"

[agents.writer.prompt]
rules_file = "rules.md"

[models.recorded]
provider = "playback"
recording = "turns.toml"
chunk_delay = "DELAY"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<done xmlns="urn:example:talk"><n>1</n></done>'
"#;

fn agents_house() -> House {
    let house = House::with(&AGENT.replace("DELAY", "1ms"));
    house.write("turns.toml", TURNS);
    house.write("rules.md", "Be brief.\n");
    house
}

fn rules_of_turn(house: &House, thread: &str) -> String {
    let arguments = ["prompt", "writer", "--thread", thread, "--turn", "1", "--json"];
    let shown = house.organism(&arguments);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let shown = shown.json()[0].clone();
    assert_eq!(shown["config_renders_it"], true, "{shown}");
    shown.to_string()
}

/// Design 8: the prompt of a turn is rendered with the config of the turn's hand-over, even if a
/// reload comes before the answer. Design 12.6: both configs can be loaded again.
#[test]
fn an_agent_takes_its_next_turn_with_the_prompt_that_sighup_puts_in_force() {
    let house = agents_house();
    // The turn takes longer than the reload.
    rewrite(&house, "organism.toml", "1ms", "5s");
    let running = house.run();
    let order =
        |thread: &str| house.send_text(&numbered("order", "1"), &["--new", thread, "--no-wait"]);
    let count = || {
        let completed = |fact: &&Fact| matches!(fact, Fact::OutcomeReceived { .. });
        records(&house).iter().flat_map(|record| &record.facts).filter(completed).count()
    };
    assert_eq!(order("sess-before00").code, Some(0));
    until("it is handed over", || (handed_over(&house) == 1).then_some(()));

    house.write("rules.md", "Be long.\n");
    rewrite(&house, "organism.toml", "5s", "1ms");
    running.signal("-HUP");
    until("the config is in force", || house.log().contains("is in force").then_some(()));
    assert_eq!(count(), 0, "the turn is in flight during the reload");
    assert_eq!(order("sess-after000").code, Some(0));
    until("both turns have ended", || (count() == 2).then_some(()));
    assert_eq!(running.stop(), Some(0));

    assert!(rules_of_turn(&house, "sess-before00").contains("Be brief."));
    assert!(rules_of_turn(&house, "sess-after000").contains("Be long."));
    for (thread, rules) in [("sess-before00", "Be brief.\n"), ("sess-after000", "Be long.\n")] {
        let out = format!("out-{thread}");
        let written = house.organism(&["config", "--at", thread, "--out", &out]);
        assert_eq!(written.code, Some(0), "{written:?}");
        let checked = house.organism(&["check", "--config", &format!("{out}/organism.toml")]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let prompt = std::fs::read_to_string(house.path(&out).join("rules.md")).unwrap();
        assert_eq!(prompt, rules);
    }
    proved(&house);
}

/// A pump that dies during a reload has recorded one of the two configs. The next start reads the
/// file as it is at that time.
#[test]
fn a_kill_at_a_reload_leaves_one_config_in_force() {
    for (place, recorded) in [("before-commit", 0), ("after-commit", 1)] {
        let house = furnished(House::settled(CONFIG));
        // The start commits a few times. The first pump that outlives it dies at the reload.
        let mut running = (2..).find_map(|nth| ready(&house, place, nth)).unwrap();
        rewrite(&house, "organism.toml", "attempts = 1", "attempts = 2");
        let reload = house.organism(&["reload"]);
        let status = until("the pump has died", || running.child.try_wait().unwrap());
        assert!(!status.success(), "{place}: {reload:?}");
        let reloads = records(&house).iter().filter(|record| is_reload(record)).count();
        assert_eq!(reloads, recorded, "{place}: {reload:?}");

        let running = house.run();
        let sent = house.send_text(&say("hello"), &[]);
        assert_eq!((sent.code, sent.out), (Some(0), talk_reply("hello")), "{place}");
        assert_eq!(running.stop(), Some(0));
        proved(&house);
        let shown = house.organism(&["config", "--at", "last"]);
        assert!(shown.out.contains("attempts = 2"), "{place}: {shown:?}");
    }
}

/// Starts an organism that aborts when it passes the failpoint for the `nth` time. Returns `None`
/// if it aborted before it was ready.
fn ready(house: &House, place: &str, nth: u32) -> Option<Running> {
    let log = std::fs::File::create(house.path("log")).unwrap();
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_FAILPOINT", format!("{place}:{nth}"));
    let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let mut running = Running { child };
    let is_ready = until("the organism is ready, or dead", || {
        let has_ended = running.child.try_wait().unwrap().is_some();
        let is_ready = house.log().contains("is ready");
        (has_ended || is_ready).then_some(is_ready && !has_ended)
    });
    is_ready.then_some(running)
}
