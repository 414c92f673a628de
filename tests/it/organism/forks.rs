//! `organism fork` on a real journal: recorded answers are used again, and no listener gets a call
//! twice (issue 18, part 1).

use std::path::Path;
use std::process::Stdio;

use organism::config::{ConfigEnvironment, load};
use organism::ids::{CallId, ListenerName, MessageId, Position, ThreadId};
use organism::service::{
    OpenedFork, ServiceClient, ServiceResponse, SocketTransport, SubmitUpdate, TreeWait, WaitKind,
};
use organism::thread::{Closing, Fact};
use uuid::Uuid;

use super::follow::{ScriptedOrganism, lines, settled};
use super::kill::torture;
use super::{CommandOutput, House, TALK, numbered, until};

const ESSAY: &str = include_str!("../../../config/essay.toml");
const RECORDING: &str = include_str!("../../../config/essay/recording.toml");

fn fork(house: &House, message: MessageId, more: &[&str]) -> CommandOutput {
    let id = message.to_string();
    house.organism(&[&["fork", id.as_str()], more].concat())
}

fn ask(house: &House, name: &str, number: &str, more: &[&str]) -> CommandOutput {
    let sent = house.send_text(&numbered(name, number), more);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    sent
}

/// The test forks every message of a thread, and every message of the forks. The source is
/// untouched, the lineage is proved, and no effect happens twice.
#[test]
fn forks_of_every_message_repeat_no_effect_and_leave_their_source_untouched() {
    let house = House::with_orders();
    let running = house.run_noting();
    ask(&house, "order", "1", &["--new", "sess-source01"]);
    ask(&house, "order", "2", &["--thread", "sess-source01"]);
    let done = house.effects();
    let source = ThreadId::parse("sess-source01").unwrap();
    let before = house.extent("sess-source01");

    let of_source = |local| {
        let found = house.messages(local).into_iter().filter(|(_, thread)| *thread == source);
        found.map(|(id, _)| id).collect::<Vec<_>>()
    };
    for (number, id) in of_source("order").into_iter().enumerate() {
        let forked = fork(&house, id, &[]);
        assert_eq!(forked.code, Some(0), "{forked:?}");
        assert_eq!(forked.out, format!("{}\n", numbered("done", &(number + 1).to_string())));
        assert!(forked.err.contains("a fork of sess-source01 at"), "{forked:?}");
    }
    // A call within the work of a listener is no place for a fork.
    for (number, id) in of_source("work").into_iter().enumerate() {
        let forked = fork(&house, id, &[]);
        assert_eq!(forked.code, Some(0), "{forked:?}");
        let expected = format!("calls are open at {id}, so the fork begins at the request");
        assert!(forked.err.contains(&expected), "{forked:?}");
        assert_eq!(forked.out, format!("{}\n", numbered("done", &(number + 1).to_string())));
    }
    for id in of_source("done") {
        let forked = fork(&house, id, &["--json"]);
        assert_eq!(forked.code, Some(0), "{forked:?}");
        let json = forked.json().remove(0);
        assert_eq!(json["calls"].as_array().unwrap().len(), 0, "{json}");
        assert_eq!(json["source"], "sess-source01", "{json}");
    }
    assert_eq!(house.effects(), done, "no effect happened again");
    assert_eq!(house.extent("sess-source01"), before, "the source is untouched");

    // Forks of a fork: at its own first request, and at one whose history is in the source.
    let orders = house.messages("order");
    let mut forks = orders.iter().filter(|(_, thread)| *thread != source);
    let (first, thread) = forks.next().unwrap();
    let (second, _) = forks.next().unwrap();
    for (request, root) in [(first, thread), (second, &source)] {
        let again = fork(&house, *request, &[]);
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(again.err.contains(&format!("a fork of {root}")), "{again:?}");
    }
    assert_eq!(house.effects(), done);

    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// A fork has the history of its source by reference, so `organism diff` compares what follows.
#[test]
fn a_fork_within_a_thread_differs_from_its_source_after_the_shared_history_alone() {
    let house = House::new();
    let running = house.run_noting();
    ask(&house, "ping", "1", &["--new", "sess-source01"]);
    ask(&house, "ping", "2", &["--thread", "sess-source01"]);
    let (second, _) = house.messages("ping")[1].clone();
    house.write("edit.xml", numbered("ping", "3"));

    let compared = |more: &[&str]| {
        let forked = fork(&house, second, more);
        assert_eq!(forked.code, Some(0), "{forked:?}");
        let id = forked.json().remove(0)["fork"].as_str().unwrap().to_owned();
        let sides = [["sess-source01", &id], [&id, "sess-source01"]];
        sides.map(|[left, right]| house.organism(&["diff", left, right, "--json"]).json().remove(0))
    };
    for found in compared(&["--json"]) {
        assert_eq!(found["equal"], true, "{found:#}");
        assert_eq!(found["equal_results"], true, "{found:#}");
        assert_eq!(found["equal_events"], 2, "{found:#}");
    }
    let (third, forked) = house.messages("ping").pop().unwrap();
    assert_ne!(third, second);
    let shown = house.organism(&["diff", "sess-source01", forked.as_str()]);
    assert!(shown.err.contains("note: the table counts the whole threads"), "{shown:?}");
    for found in compared(&["--json", "--no-wait", "--edit", "edit.xml"]) {
        let first = &found["first"]["event"];
        for side in ["a", "b"] {
            assert!(first[side]["what"].as_str().unwrap().ends_with(" ping"), "{found:#}");
        }
    }
    assert_eq!(running.stop(), Some(0));
}

/// A fork after a result is a conversation with the history of its source.
#[test]
fn a_fork_after_a_result_continues_the_conversation() {
    let house = House::new();
    let running = house.run_noting();
    ask(&house, "ping", "1", &["--new", "sess-source01"]);
    let (result, _) = house.messages("pong")[0].clone();
    let forked = fork(&house, result, &[]);
    assert_eq!((forked.code, &*forked.out), (Some(0), ""), "{forked:?}");
    let (_, continued) = forked.err.split_once("`organism send --thread ").unwrap();
    let (thread, _) = continued.split_once(' ').unwrap();

    ask(&house, "ping", "1", &["--thread", thread, "--no-wait"]);
    let held = until("its source has no second one", || {
        let listed = house.organism(&["approvals"]);
        listed.out.contains(thread).then_some(listed.out)
    });
    assert!(held.contains("solo"), "{held}");

    // The fork has the request, but no result of it. Thus a fork of the fork has none, either.
    let requests = house.messages("ping").into_iter();
    let of_fork = requests.map(|(id, own)| (id, own.to_string())).find(|(_, own)| own == thread);
    let (unanswered, _) = of_fork.unwrap();
    let again = fork(&house, unanswered, &["--no-wait"]);
    assert!(again.err.contains("unless --live names its listener"), "{again:?}");
    assert_eq!(house.effects(), 1);
    let shown = house.organism(&["thread", thread]);
    assert!(shown.out.contains("fork"), "{shown:?}");
    let listed = house.organism(&["threads"]);
    assert!(listed.out.contains(thread), "{listed:?}");
    let actions = house.organism(&["sql", "SELECT action FROM action"]);
    assert!(actions.out.contains("fork"), "{actions:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Asserts that the queries show the listeners that the only fork may call.
#[track_caller]
fn assert_permission_is_shown(house: &House) {
    let sql = "SELECT thread, details FROM action WHERE action = 'fork' AND accepted";
    let actions = house.organism(&["sql", "--json", sql]).json();
    let [action] = actions.as_slice() else { panic!("{actions:?}") };
    let details = action["details"].as_str().unwrap();
    let thread = action["thread"].as_str().unwrap();
    let shown = house.organism(&["thread", thread]);
    let json = house.organism(&["thread", thread, "--json"]);
    for listener in ["echo", "holder", "solo"] {
        let detail = format!("{{\"name\":\"live\",\"value\":\"{listener}\"}}");
        assert!(details.contains(&detail), "{details}");
        assert!(shown.out.contains(&format!("live: {listener}")), "{shown:?}");
        assert!(json.out.contains(&detail), "{json:?}");
    }
}

/// An edited request passes the gate. A call that the source does not have is held, unless `--live`
/// names its listener.
#[test]
fn an_edited_request_is_held_until_an_operator_approves_it() {
    let house = House::new();
    let running = house.run_noting();
    ask(&house, "ping", "1", &[]);
    let (id, _) = house.messages("ping")[0].clone();
    house.write("edit.xml", numbered("ping", "7"));
    house.write("bad.xml", format!("<pong xmlns=\"{TALK}\"><n>7</n></pong>"));
    house.write("short.xml", format!("<ping xmlns=\"{TALK}\"/>"));

    // The reason comes first, then the advice.
    for (file, advice) in [("bad.xml", "write one of these"), ("short.xml", "for example:")] {
        let refused = fork(&house, id, &["--edit", file]);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.err.find("refused: ").unwrap() < refused.err.find(advice).unwrap());
    }
    let advised = "unless --live names its listener";
    let live = ["--live", "echo", "--live", "holder", "--live", "solo"];
    let live = fork(&house, id, &[&["--edit", "edit.xml"], &live[..]].concat());
    assert!(!live.err.contains(advised), "no call can be held: {live:?}");
    assert_eq!((live.code, live.out), (Some(0), numbered("pong", "7") + "\n"));
    assert_eq!(house.effects(), 2);
    assert_permission_is_shown(&house);

    let mut waiting = house.command(&["fork", &id.to_string(), "--edit", "edit.xml"]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let held = until("it is held", || {
        let listed = house.organism(&["approvals", "--json"]).json();
        let held = listed.first()?.clone();
        held["message"].as_str().map(|message| (message.to_owned(), held["sha256"].clone()))
    });
    assert_eq!(house.effects(), 2, "no listener is given it");
    let approved = house.organism(&["approve", &held.0, "--hash", held.1.as_str().unwrap()]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let output = CommandOutput::from(waiting.wait_with_output().unwrap());
    assert!(output.err.contains(advised), "{output:?}");
    assert_eq!((output.code, output.out), (Some(0), numbered("pong", "7") + "\n"));
    assert_eq!(house.effects(), 3);

    for (arguments, expected) in [
        (&["--live", "sollo"][..], "did you mean `solo`?"),
        (&["--as", "nobody"], "is not a client of this config"),
        (&["--money", "nan"], "--money takes an amount"),
    ] {
        let wrong = fork(&house, id, arguments);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.err.contains(expected), "{wrong:?}");
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// After a kill -9 at any step of a fork, the fork exists once or not at all, and no effect happens
/// twice. A short run leaves out the failpoints that `fork_points` tests with a fork at a turn.
#[test]
fn a_fork_survives_kill_9_at_every_point() {
    let all = [
        "before-append",
        "before-commit",
        "before-result",
        "after-result",
        "stepped",
        "after-commit",
        "after-append",
    ];
    let points = if torture() { &all[..] } else { &all[..4] };
    for point in points {
        let house = House::new();
        let running = house.run_noting();
        ask(&house, "ping", "1", &[]);
        assert_eq!(running.stop(), Some(0));
        let (id, _) = house.messages("ping")[0].clone();

        // The boot of the pump steps and appends, too.
        for nth in 2..=4 {
            let mut command = house.command(&["fork", &id.to_string()]);
            command.env("EFFECTS", house.path("effects"));
            command.env("ORGANISM_FAILPOINT", format!("{point}:{nth}"));
            command.output().unwrap();
        }
        let running = house.run_noting();
        let forked = fork(&house, id, &[]);
        assert_eq!((forked.code, forked.out), (Some(0), numbered("pong", "1") + "\n"), "{point}");
        until("all forks have ended", || {
            let open = house.organism(&["threads", "--status", "running", "--json"]);
            open.json()
                .first()
                .is_none_or(|page| page["threads"] == serde_json::json!([]))
                .then_some(())
        });
        assert_eq!(house.effects(), 1, "{point}");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }
}

/// In a fork of a workflow's run, the agents run anew, and their models answer again.
#[test]
fn a_run_of_a_workflow_is_forked() {
    let house = House::with(&ESSAY.replace("name = \"essay\"", "name = \"talk\""));
    std::fs::create_dir(house.path("essay")).unwrap();
    house.write("essay/recording.toml", RECORDING);
    let request = "<essay xmlns=\"https://xml-pipeline.org/ns/workflow/v1/essay\">\
        <topic>city parking</topic><readers>town councillors</readers><words>150</words></essay>";
    let sent = house.send_text(request, &["--new", "sess-essay000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");

    let (id, _) = house.messages("essay")[0].clone();
    let forked = fork(&house, id, &[]);
    assert_eq!((forked.code, &forked.out), (Some(0), &sent.out), "{forked:?}");
    let thread = house.messages("essay").pop().unwrap().1;
    let compared = house.organism(&["diff", "sess-essay000", thread.as_str(), "--json"]);
    let compared = compared.json().remove(0);
    assert_eq!(compared["equal_results"], true, "{compared}");
    assert!(!forked.err.contains("--live"), "the config has no listener: {forked:?}");
    house.verified();
}

/// Recorded payloads of `run-definition` that contain a digest, in the order of the record. Each
/// states the definition of one run of a workflow.
fn run_definitions(house: &House) -> Vec<String> {
    let reader = house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    let recorded = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.payload.as_str().contains(" digest=\"") => {
            (&*message.name.local == "run-definition").then(|| message.payload.as_str().to_owned())
        }
        _ => None,
    });
    recorded.collect()
}

/// A run in a fork keeps the definition of the source's run, even if the config has changed since.
/// With `--config`, the run uses the definition of that config. A run that the source does not have
/// uses the definition of the config in force.
#[test]
fn a_run_of_a_fork_keeps_the_definition_of_its_source() {
    let essay = ESSAY.replace("name = \"essay\"", "name = \"talk\"");
    let house = House::with(&essay);
    std::fs::create_dir(house.path("essay")).unwrap();
    house.write("essay/recording.toml", RECORDING);
    let request = "<essay xmlns=\"https://xml-pipeline.org/ns/workflow/v1/essay\">\
        <topic>city parking</topic><readers>town councillors</readers><words>150</words></essay>";
    let sent = house.send_text(request, &["--new", "sess-essay000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let (id, _) = house.messages("essay")[0].clone();
    let (result, _) = house.messages("essay-output").pop().unwrap();

    house.write("organism.toml", essay.replace("Write the whole essay", "Write a whole essay"));
    house.write("essay/recording.toml", "recorded = \"empty\"\n");
    let forked = fork(&house, id, &[]);
    assert_eq!((forked.code, &forked.out), (Some(0), &sent.out), "{forked:?}");
    let pinned = run_definitions(&house);
    assert_eq!(pinned.len(), 2);
    assert_eq!(pinned[0], pinned[1], "no model is called: every prompt is that of the source");

    house.write("essay/recording.toml", RECORDING);
    let forked = fork(&house, id, &["--config", "organism.toml"]);
    assert_eq!((forked.code, &forked.out), (Some(0), &sent.out), "{forked:?}");
    let definitions = run_definitions(&house);
    assert_ne!(definitions[2], definitions[0], "the config changes it");

    let after = fork(&house, result, &["--json"]);
    assert_eq!(after.code, Some(0), "{after:?}");
    let thread = after.json()[0]["fork"].as_str().unwrap().to_owned();
    // Its subthreads have other labels, for which the recording has no turn.
    let more = house.send_text(request, &["--thread", &thread]);
    assert!(more.out.contains("outline-1"), "{more:?}");
    assert_eq!(run_definitions(&house)[3], definitions[2], "the source has no run after it");
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// A client for an organism with partitions repeats a request whose connection is lost. The fake
/// organism ends the first connection before the result.
#[tokio::test]
async fn a_wait_of_a_fork_is_shown_once_although_the_connection_is_lost() {
    let house = settled();
    let thread = ThreadId::parse("sess-waits0001").unwrap();
    let call = CallId(MessageId(Uuid::from_u128(1)));
    let waits = ServiceResponse::SubmitUpdate(SubmitUpdate::Waits(TreeWait {
        thread: thread.clone(),
        listener: ListenerName::parse("holder").unwrap(),
        wait: WaitKind::Paused { target: "all".to_owned() },
    }));
    let result = ServiceResponse::SubmitUpdate(SubmitUpdate::Result {
        call,
        how: Closing::Completed,
        replies: Vec::new(),
    });
    let first = lines(std::slice::from_ref(&waits));
    let second = lines(&[waits, result]);

    let socket = SocketTransport::new(&house.data(), house.handshake());
    let _organism = ScriptedOrganism::start(&house, vec![first, second]);
    let around = ConfigEnvironment {
        directory: house.path(""),
        home: Some(house.path("")),
        ..ConfigEnvironment::default()
    };
    let config = load(Path::new("organism.toml"), &around).unwrap();
    let client = ServiceClient::of_partitions(config, socket);

    let mut updates = Vec::new();
    let fork = OpenedFork {
        thread,
        calls: vec![call],
        client: ListenerName::parse("desk").unwrap(),
        secret: None,
    };
    client.fork_results(&fork, |update| updates.push(update)).await.unwrap();
    let begins_with_wait = matches!(updates[0], SubmitUpdate::Waits(_));
    assert_eq!((updates.len(), begins_with_wait), (2, true), "{updates:?}");
}
