//! `organism fork` at turns of recorded runs, and kill -9 during such forks (issue 18, part 1).
//! With `ORGANISM_TORTURE=1`, every failpoint is tested, otherwise only some of them.
//! `examples::forks` forks at every message of the examples.

use std::sync::Arc;

use organism::audit::{ForkObstacle, ForkPoint, VerifyOptions, verify_with};
use organism::envelope::{Message, Payload};
use organism::ids::{ListenerName, ThreadId};
use organism::journal::Journal as _;
use organism::journal::sqlite::SqliteJournal;
use organism::thread::{Fact, Input};

use super::proof::sql;
use super::recorded_turns::{NO_TURNS, chain, chain_in};
use super::{House, numbered, until};
use crate::journal::script::{Script, name, thread};

const ESSAY: &str = include_str!("../../../config/essay.toml");
const RECORDING: &str = include_str!("../../../config/essay/recording.toml");

fn is_torture() -> bool {
    std::env::var_os("ORGANISM_TORTURE").is_some()
}

fn until_all_ended(house: &House) {
    until("all forks have ended", || {
        let open = house.organism(&["threads", "--status", "running", "--json"]);
        let page = open.json().first().cloned();
        page.is_none_or(|page| page["threads"] == serde_json::json!([])).then_some(())
    });
}

/// Returns the agent and the thread of the first turn in a tree.
fn first_turn(house: &House, root: &str) -> (ListenerName, ThreadId) {
    let root = ThreadId::parse(root).unwrap();
    let records = house.reader().tree(&root, None).unwrap();
    let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    let mut turns = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if &*message.name.local == "model-turn" => {
            Some((message.to.clone(), message.thread.clone()))
        }
        _ => None,
    });
    turns.next().unwrap()
}

/// A config in which a listener that is not an agent calls an agent.
const BENEATH: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["front"]

[listeners.front]
command = ["./player.pl", "front"]
schema = "talk.xsd"
accepts = ["order"]
replies = ["done"]
peers = ["back"]

[agents.back]
schema = "talk.xsd"
accepts = ["work"]
final = "worked"
model = "recorded"
transport = "xml"

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

/// If a listener that is not an agent calls an agent, no fork begins at the agent's turn. The
/// reason is that a fork answers the listener's whole call from the record. The fork begins at the
/// request before that call, and the command names the listener and the request.
#[test]
fn a_turn_beneath_the_call_of_a_listener_forks_at_the_place_before_the_call() {
    let house = House::with(BENEATH);
    let turn = "<worked><n>{{work/n}}</n></worked>";
    house.write(
        "turns.toml",
        format!(
            "recorded = \"for a test\"\n[[turn]]\nagent = \"back\"\nturn = 1\ntext = '{turn}'\n"
        ),
    );
    let running = house.run_noting();
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01"]);
    assert_eq!((sent.code, sent.out.trim()), (Some(0), &*numbered("done", "1")), "{sent:?}");
    let done = house.effects();
    assert_eq!(done, 2);
    let (request, _) = house.messages("order")[0].clone();

    for local in ["model-turn", "worked"] {
        let (id, _) = house.messages(local)[0].clone();
        let forked = house.organism(&["fork", &id.to_string()]);
        assert_eq!((forked.code, &forked.out), (Some(0), &sent.out), "{forked:?}");
        let named = format!(
            "{id} is beneath a call of front, which a fork answers from the record as a whole, so the \
             fork begins at the request {request} before it"
        );
        assert!(forked.err.contains(&named), "{named}: {forked:?}");
    }
    let (turn, _) = house.messages("model-turn")[0].clone();
    house.write("edit.xml", numbered("worked", "2"));
    let edited = house.organism(&["fork", &turn.to_string(), "--edit", "edit.xml"]);
    assert_eq!(edited.code, Some(2), "{edited:?}");
    assert!(edited.err.contains("cannot be edited, because"), "{edited:?}");
    assert_eq!(house.effects(), done, "no effect happened again");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// After a kill -9 at any step of a fork at a turn, the fork exists once or not at all. It goes on
/// after the next start, and no effect happens twice.
#[test]
fn a_fork_at_a_turn_survives_kill_9_at_every_point() {
    let all = [
        "after-append",
        "stepped",
        "after-commit",
        "before-append",
        "before-commit",
        "before-result",
        "after-result",
    ];
    let points = if is_torture() { &all[..] } else { &all[..3] };
    let house = chain();
    let running = house.run_noting();
    let sent = house.send_text(&numbered("work", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.write("turns.toml", NO_TURNS);
    let before = house.extent("sess-source01");
    let turns = house.messages_of("sess-source01").into_iter();
    let turns: Vec<_> = turns.filter(|(_, name)| name == "model-turn").collect();

    for point in points {
        // The boot of the pump steps and appends, too.
        for (nth, (turn, _)) in (2..=if is_torture() { 8 } else { 4 }).zip(turns.iter().cycle()) {
            let mut command = house.command(&["fork", &turn.to_string()]);
            command.env("EFFECTS", house.path("effects"));
            command.env("ORGANISM_FAILPOINT", format!("{point}:{nth}"));
            command.output().unwrap();
        }
        let running = house.run_noting();
        until_all_ended(&house);
        assert_eq!(house.effects(), 2, "{point}");
        assert_eq!(house.extent("sess-source01"), before, "the source is untouched");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }
    let all = house.organism(&["threads", "--json"]).out;
    assert!(!all.contains("\"failed\""), "every fork has the result of its source: {all}");
}

/// Appends a fork at the thinker's second turn. `change` may edit the facts of the fork before they
/// are appended. Returns the fault that `verify` finds in the journal, or `None`.
fn appended(house: &House, fork: &str, change: impl FnOnce(&mut Vec<Fact>)) -> Option<String> {
    let reader = house.reader();
    let records = reader.tree(&ThreadId::parse("sess-source01").unwrap(), None).unwrap();
    let is_turn = |fact: &Fact| match fact {
        Fact::Accepted { message, .. } if &*message.name.local == "model-turn" => Some(message.id),
        _ => None,
    };
    let turns = records.iter().filter_map(|sealed| {
        Some((sealed.record.position, sealed.record.facts.iter().find_map(is_turn)?))
    });
    let (position, turn) = turns.into_iter().nth(2).unwrap();
    let fork = thread(fork);
    let is_answered = |name: &ListenerName| name.as_str() == "solo";
    let point = ForkPoint::find(&reader, position, turn, is_answered).unwrap().unwrap();
    assert_eq!(point.source.message, turn);
    let (threads, work) = point.taken_over(&reader, &fork, is_answered).unwrap().unwrap();
    let last = reader.last().unwrap();
    let time = reader.existing_record(last).unwrap().record.time;
    drop(reader);

    let first = threads[0].seq + 1;
    let mut facts = vec![Fact::Forked {
        thread: fork.clone(),
        by: name("desk"),
        source: point.source,
        live: Vec::new(),
        allotment: None,
        threads,
    }];
    for (seq, (message, opening)) in (first..).zip(work.messages) {
        let message = Message { seq, time, ..message }.into();
        facts.push(Fact::Accepted { message, opening, key: None });
    }
    facts.extend(work.calls.into_iter().map(|call| Fact::Reopened(Box::new(call))));
    change(&mut facts);

    let mut journal = SqliteJournal::open(&house.data(), &house.state(), &mut |_| Ok(())).unwrap();
    let mut script = Script::default();
    let step = script.step(&fork, Input::Shutdown { detail: "a fork".to_owned() });
    let mut record = step.end();
    record.facts = facts;
    record.time = time;
    journal.append(&mut [record]).unwrap();
    journal.close(time).unwrap();

    let options = VerifyOptions { state: Some(house.state()), ..VerifyOptions::default() };
    let report = verify_with(&house.data(), &options, &mut |_, _| {}).unwrap();
    report.broken.map(|broken| broken.detail)
}

/// `verify` derives the open work of a fork from the fork's source, and compares this work with the
/// record of the fork.
#[test]
fn verify_compares_what_a_fork_has_opened_again() {
    let change_call = |facts: &mut Vec<Fact>| {
        for fact in facts {
            if let Fact::Reopened(call) = fact {
                call.turns += 1;
            }
        }
    };
    let change_payload = |facts: &mut Vec<Fact>| {
        let accepted = facts.iter_mut().rev().find_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(message),
            _ => None,
        });
        let message = Arc::make_mut(accepted.unwrap());
        message.payload = Payload::new(numbered("pong", "8"));
    };
    let drop_call = |facts: &mut Vec<Fact>| {
        facts.retain(|fact| !matches!(fact, Fact::Reopened(_)));
    };

    let changes: [fn(&mut Vec<Fact>); 3] = [change_call, change_payload, drop_call];
    for change in changes {
        let house = chain_in(House::settled);
        let sent = house.send_text(&numbered("work", "1"), &["--new", "sess-source01"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert_eq!(appended(&house, "sess-forked01", |_| {}), None);
        let detail = appended(&house, "sess-forked02", change).unwrap();
        let expected = ["open calls are not those of its history", "threads are not those"];
        assert!(expected.iter().any(|text| detail.contains(text)), "{detail}");
    }
}

/// A recorded redaction in the history of a fork breaks no proof: `verify` names the fork and what
/// it cannot compare.
#[test]
fn a_redaction_in_the_history_of_a_fork_is_no_break() {
    let house = House::settled(&ESSAY.replace("name = \"essay\"", "name = \"talk\""));
    std::fs::create_dir(house.path("essay")).unwrap();
    house.write("essay/recording.toml", RECORDING);
    let request = "<essay xmlns=\"https://xml-pipeline.org/ns/workflow/v1/essay\">\
        <topic>city parking</topic><readers>town councillors</readers><words>150</words></essay>";
    let sent = house.send_text(request, &["--new", "sess-essay000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let turns = house.messages_of("sess-essay000").into_iter();
    let turns: Vec<_> = turns.filter(|(_, name)| name == "model-turn").collect();
    let (first, _) = turns[0];
    // Its record follows that of the first turn, whose result is the last one that its run has.
    let (next, _) = turns[1];
    let fork_of_next = house.organism(&["fork", &next.to_string()]);
    assert_eq!(fork_of_next.code, Some(0), "{fork_of_next:?}");
    let (forked, _) = turns[2];
    let fork = house.organism(&["fork", &forked.to_string()]);
    assert_eq!((fork.code, &fork.out), (Some(0), &sent.out), "{fork:?}");
    house.verified();

    let [fork, of_next] = [&fork, &fork_of_next].map(|fork| {
        let (before, _) = fork.err.split_once(", a fork of sess-essay000").unwrap();
        before.rsplit(' ').next().unwrap()
    });
    let (agent, agent_thread) = first_turn(&house, "sess-essay000");
    let [inherited, original] = [fork, "sess-essay000"].map(|root| {
        let shown = agent_thread.under(&ThreadId::parse(root).unwrap()).unwrap().to_string();
        house.organism(&["prompt", agent.as_str(), "--thread", &shown, "--turn", "1", "--wire"])
    });
    assert_eq!(inherited.code, Some(0), "{inherited:?}");
    assert_eq!(inherited.out, original.out, "the prompt of a turn that the fork inherits");

    let is_redacted = || {
        let shown = agent_thread.under(&ThreadId::parse(fork).unwrap()).unwrap().to_string();
        let absent = house.organism(&["prompt", agent.as_str(), "--thread", &shown, "--turn", "1"]);
        absent.code == Some(2) && absent.err.contains("has no readable turn 1")
    };
    assert!(!is_redacted());

    // The record of the first turn also has a message to the open run, which the fork has reopened.
    let redacted = [(first, "payloads of its open calls"), (forked, "payloads of the turn")];
    for (turn, expected) in redacted {
        let records = house.reader().tree(&thread("sess-essay000"), None).unwrap();
        let holds =
            |fact: &Fact| matches!(fact, Fact::Accepted { message, .. } if message.id == turn);
        let record = records.iter().find(|sealed| sealed.record.facts.iter().any(holds)).unwrap();
        let blanked = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position =";
        sql(&house, &format!("{blanked} {}", record.record.position));
        let repaired = house.organism(&["repair", "--accept-redaction", "--note", "privacy"]);
        assert_eq!(repaired.code, Some(0), "{repaired:?}");

        let verified = house.organism(&["verify"]);
        assert_eq!(verified.code, Some(5), "{verified:?}");
        for fork in [fork, of_next] {
            let lineage = format!("{fork} is a fork of sess-essay000");
            assert!(verified.out.contains(&lineage), "{verified:?}");
        }
        assert!(verified.out.contains(expected), "{verified:?}");
    }
    assert!(is_redacted(), "the turn that the fork inherits was redacted in its source");
}

/// A fork copies the messages of the calls that it opens again. If such a message was redacted, no
/// fork begins at the turn: a copy of blanked bytes would make the journal count as broken.
#[test]
fn no_fork_begins_at_a_turn_with_a_redacted_message_of_an_open_call() {
    let house = chain_in(House::settled);
    let sent = house.send_text(&numbered("work", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let turns = house.messages_of("sess-source01").into_iter();
    let turns: Vec<_> = turns.filter(|(_, name)| name == "model-turn").map(|(id, _)| id).collect();
    let point_of = |turn| {
        let reader = house.reader();
        let records = reader.tree(&thread("sess-source01"), None).unwrap();
        let holds =
            |fact: &Fact| matches!(fact, Fact::Accepted { message, .. } if message.id == turn);
        let record = records.iter().find(|sealed| sealed.record.facts.iter().any(holds)).unwrap();
        let is_answered = |name: &ListenerName| name.as_str() == "solo";
        let position = record.record.position;
        (position, ForkPoint::find(&reader, position, turn, is_answered).unwrap().unwrap())
    };
    // At the thinker's second turn, the reply that it got is a message of its open call.
    let turn = turns[2];
    let (_, stale) = point_of(turn);
    assert_eq!(stale.source.message, turn);

    let pong = house.messages("pong")[0].0;
    let (position, _) = point_of(pong);
    let blanked = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position =";
    sql(&house, &format!("{blanked} {position}"));
    let repaired = house.organism(&["repair", "--accept-redaction", "--note", "privacy"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");

    let (_, point) = point_of(turn);
    assert_eq!(point.source.message, turns[1]);
    assert_eq!(point.obstacle, Some(ForkObstacle::RedactedWork));
    // A caller that found the point before the redaction gets no calls for it.
    let fork = thread("sess-forked01");
    let is_answered = |name: &ListenerName| name.as_str() == "solo";
    assert_eq!(stale.taken_over(&house.reader(), &fork, is_answered).unwrap(), None);

    let forked = house.organism(&["fork", &turn.to_string(), "--no-wait"]);
    let why = "at which a call was open that has a redacted message";
    assert!(forked.err.contains(why), "{forked:?}");
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let again = house.organism(&["fork", &turns[3].to_string()]);
    assert_eq!((again.code, &again.out), (Some(0), &sent.out), "a later turn: {again:?}");
}
