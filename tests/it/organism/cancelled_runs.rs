//! Retries of runs that ended while goals were under way: cancelled runs, and runs whose tree has
//! no time left. A listener leaves the calls of these goals without an answer until a test releases
//! them.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use serde_json::Value as Json;

use super::bookings::{booking_listeners, copy_booker, ledger};
use super::workflow::messages;
use super::{CommandOutput, House, until};

const CONFIG: &str = concat!(
    r#"
organism.name = "talk"
clients.desk.peers = ["trip"]
humans.owner.description = "Owns the trip."
models.voice = { provider = "playback", recording = "recording.toml" }
agents.writer = { model = "voice", peers = ["bank"] }
agents.critic = { model = "voice", peers = ["bank"] }
agents.editor = { model = "voice", core = [] }
"#,
    booking_listeners!(),
    r#"
[workflows.leg]
input = { n = "text" }
[workflows.leg.goals]
tell = { listener = "bank", payload = "notify", with = { n = "input/n" } }

[workflows.trip]
input = { n = "text", item = ["text"] }
"#
);

const RECORDING: &str = r#"
recorded = "written by hand; no model is called"
model = "recorded"

[[turn]]
agent = "writer"
thread = "race_writer"
turn = 1
text = "<notify xmlns=\"urn:example:booking\"><n>7</n></notify>"

[[turn]]
agent = "critic"
thread = "race_critic"
turn = 1
text = "<notify xmlns=\"urn:example:booking\"><n>7</n></notify>"

[[turn]]
agent = "writer"
thread = "poll_writer"
turn = 1
text = "<notify xmlns=\"urn:example:booking\"><n>7</n></notify>"

[[turn]]
agent = "critic"
thread = "poll_critic"
turn = 1
text = "<notify xmlns=\"urn:example:booking\"><n>7</n></notify>"

[[turn]]
agent = "editor"
thread = "judged"
turn = 1
text = "Done."
"#;

/// A goal that fails by itself and is skipped, and a goal that completes.
const ENDED: &str = r#"
gone = { listener = "bank", payload = "charge", with = { n = "input/n" }, on_failure = "skip" }
kept = { listener = "hotel", payload = "book", with = { n = "input/n" } }
"#;

fn house(limits: &str, goals: &str) -> House {
    let house = House::with(&config(limits, goals));
    house.write("recording.toml", RECORDING);
    house.write("hold-notify-7", "");
    copy_booker(&house);
    house
}

fn config(limits: &str, goals: &str) -> String {
    format!("{limits}\n{CONFIG}\n{goals}")
}

const RUN: &[&str] = &[
    "workflow",
    "run",
    "trip",
    "--new",
    "sess-travel00",
    "--input",
    "n=7",
    "--input",
    "item=7",
    "--input",
    "item=8",
];

/// Starts the run, and shows its goals as JSON lines.
fn shown_run(house: &House) -> Child {
    let mut command = house.command(&[RUN, &["--json"]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn reload(house: &House, limits: &str, goals: &str) {
    house.write("organism.toml", config(limits, goals));
    let reloaded = house.organism(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
}

/// Checks the last state of each goal in the JSON lines that a command wrote.
#[track_caller]
fn assert_last_states(goals: &[(&str, &str)], lines: &str) {
    let lines: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (goal, state) in goals {
        let last = lines.iter().rfind(|line| line["goal"] == *goal);
        let last = last.map(|line| line["state"].as_str().unwrap().to_owned());
        assert_eq!(last.as_deref(), Some(*state), "{goal}: {lines:?}");
    }
}

/// Names of the goals that a retry has started again, each in a thread with a label that ends with
/// `-1`. Leaves out the goals inside loops.
fn repeated(house: &House) -> BTreeSet<String> {
    let opened = messages(house, "thread-spawned").into_iter();
    let opened = opened.filter_map(|message| {
        let payload = message["payload"].as_str().unwrap().to_owned();
        let (_, rest) = payload.split_once("assigned_id=\"sess-travel00.")?;
        rest.split_once('"').map(|(label, _)| label.to_owned())
    });
    let repeated = opened.filter(|label| label.ends_with("-1") && !label.contains('.'));
    repeated.map(|label| label.split(['_', '-']).next().unwrap().to_owned()).collect()
}

#[test]
fn a_retry_runs_all_goals_that_were_under_way_when_the_run_was_cancelled() {
    let under_way = r#"
lone = { needs = ["kept"], listener = "bank", payload = "notify", with = { n = "input/n" }, on_failure = "skip" }
gathered = { needs = ["kept"], each = "input/item", listener = "bank", payload = "notify", with = { n = "item" }, on_item_failure = "collect" }
thinned = { needs = ["kept"], each = "input/item", listener = "bank", payload = "notify", with = { n = "item" }, on_item_failure = "skip" }
race = { needs = ["kept"], first = ["writer", "critic"], prompt = "Tell it.", on_failure = "skip" }
poll = { needs = ["kept"], all = ["writer", "critic"], vote = { by = "last-line" }, prompt = "Tell it.", on_failure = "skip" }
judged = { needs = ["kept"], agent = "editor", prompt = "Edit it.", supervisor = "owner", on_failure = "skip" }
question = { needs = ["kept"], ask = "owner", prompt = "May it?", form = { text = "text" }, on_failure = "skip" }
replaced = { needs = ["kept"], listener = "bank", payload = "notify", with = { n = "input/n" }, on_failure = "spare" }
spare = { agent = "editor", prompt = "Edit it." }
round = { needs = ["kept"], loop = ["step"], until = "true()", max = 1 }
step = { listener = "bank", payload = "notify", with = { n = "input/n" }, on_failure = "skip" }
beneath = { needs = ["kept"], workflow = "leg", with = { n = "input/n" }, on_failure = "skip" }
"#;
    let house = house("", &format!("[workflows.trip.goals]{ENDED}{under_way}"));
    let running = house.run();
    let child = shown_run(&house);
    until("all calls are under way", || (messages(&house, "notify").len() == 12).then_some(()));
    until("a person has both questions", || {
        (house.organism(&["answer", "--json"]).json().len() == 2).then_some(())
    });
    let cancelled = house.organism(&["cancel", "sess-travel00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let shown = CommandOutput::from(child.wait_with_output().unwrap());
    let under_way = [
        "lone", "gathered", "thinned", "race", "poll", "judged", "question", "replaced", "round",
        "step", "beneath",
    ];
    assert_last_states(&under_way.map(|goal| (goal, "cancelled")), &shown.out);
    assert_last_states(&[("gone", "skipped"), ("kept", "done"), ("spare", "skipped")], &shown.out);

    let retried = house.organism(&["workflow", "retry", "sess-travel00", "--no-wait"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let expected: BTreeSet<_> =
        under_way.into_iter().filter(|goal| *goal != "round").map(str::to_owned).collect();
    until("all goals run again", || repeated(&house).is_superset(&expected).then_some(()));
    assert_eq!(repeated(&house), expected, "no other goal runs again");
    let ended = ledger(&house).into_iter().filter(|line| !line.starts_with("notify"));
    assert_eq!(ended.collect::<Vec<_>>(), ["charge 7", "book 7"]);
    std::fs::remove_file(house.path("hold-notify-7")).unwrap();
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_retry_runs_the_goals_that_were_under_way_when_the_time_of_the_tree_was_over() {
    let goals = r#"
lone = { needs = ["gone"], listener = "bank", payload = "notify", with = { n = "input/n" }, on_failure = "skip" }
gathered = { needs = ["gone", "kept"], each = "input/item", listener = "bank", payload = "notify", with = { n = "item" }, on_item_failure = "collect" }
"#;
    let goals = format!(
        "output = {{ lone = \"lone\", items = \"gathered/item/n\", failed = \"gathered/failed\" }}\n\
         [workflows.trip.goals]{ENDED}{goals}"
    );
    let long = "limits.wall_time = \"100s\"";
    let house = house(long, &goals);
    let running = house.run();
    let child = shown_run(&house);
    until("all calls are under way", || (messages(&house, "notify").len() == 3).then_some(()));
    reload(&house, "limits.wall_time = \"1s\"", &goals);
    let ended = CommandOutput::from(child.wait_with_output().unwrap());
    assert!(ended.out.contains("budget-spent"), "{ended:?}");
    let states =
        [("gone", "skipped"), ("kept", "done"), ("lone", "cancelled"), ("gathered", "cancelled")];
    assert_last_states(&states, &ended.out);

    reload(&house, long, &goals);
    std::fs::remove_file(house.path("hold-notify-7")).unwrap();
    let retried = house.organism(&["workflow", "retry", "sess-travel00", "--quiet"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert!(retried.out.contains("<items>7"), "{retried:?}");
    assert!(!retried.out.contains("failed"), "{retried:?}");
    assert!(retried.out.contains("<lone>"), "{retried:?}");
    let ended = ledger(&house).into_iter().filter(|line| !line.starts_with("notify"));
    assert_eq!(ended.collect::<Vec<_>>(), ["charge 7", "book 7"]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn results_that_a_paused_run_did_not_handle_end_no_goal() {
    let goals = r#"
lost = { listener = "hotel", payload = "book", with = { n = "input/n" }, on_failure = "skip" }
work = { needs = [], loop = ["step"], until = "false()", max = 1, on_failure = "skip" }
step = { listener = "bank", payload = "notify", with = { n = "input/n" } }
after = { needs = ["lost", "work"], each = "input/item", listener = "bank", payload = "charge", with = { n = "item" } }
"#;
    let house = house("", &format!("[workflows.trip.goals]{goals}"));
    for file in ["hold-book-7", "refuse-book", "accept-charge"] {
        house.write(file, "");
    }
    let running = house.run();
    let child = shown_run(&house);
    until("both calls are under way", || (ledger(&house).len() == 2).then_some(()));
    assert_eq!(house.organism(&["pause", "all"]).code, Some(0));
    for file in ["hold-book-7", "hold-notify-7"] {
        std::fs::remove_file(house.path(file)).unwrap();
    }
    until("both threads have ended", || {
        (messages(&house, "thread-result").len() == 2).then_some(())
    });
    assert_eq!(house.organism(&["cancel", "sess-travel00"]).code, Some(0));
    let shown = CommandOutput::from(child.wait_with_output().unwrap());
    let states =
        [("lost", "cancelled"), ("work", "cancelled"), ("step", "done"), ("after", "skipped")];
    assert_last_states(&states, &shown.out);

    assert_eq!(house.organism(&["resume", "all"]).code, Some(0));
    std::fs::remove_file(house.path("refuse-book")).unwrap();
    let retry = ["workflow", "retry", "sess-travel00", "--again", "--quiet"];
    let retried = house.organism(&retry);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let mut called = ledger(&house);
    called.sort();
    assert_eq!(called, ["book 7", "book 7", "charge 7", "charge 8", "notify 7", "notify 7"]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_cancelled_run_becomes_a_case_that_passes() {
    let goals = r#"
kept = { listener = "hotel", payload = "book", with = { n = "input/n" } }
round = { needs = ["kept"], loop = ["step"], until = "true()", max = 1 }
step = { listener = "bank", payload = "notify", with = { n = "input/n" } }
after = { needs = ["round"], each = "input/item", listener = "bank", payload = "charge", with = { n = "item" } }
"#;
    let house = house("", &format!("[workflows.trip.goals]{goals}"));
    let running = house.run();
    let child = shown_run(&house);
    until("the last call is under way", || (ledger(&house).len() == 2).then_some(()));
    assert_eq!(house.organism(&["cancel", "sess-travel00"]).code, Some(0));
    let shown = CommandOutput::from(child.wait_with_output().unwrap());
    assert_last_states(&[("step", "cancelled"), ("after", "skipped")], &shown.out);
    std::fs::remove_file(house.path("hold-notify-7")).unwrap();
    assert_eq!(running.stop(), Some(0));

    let written = house.organism(&["workflow", "test", "--from", "sess-travel00", "cases.toml"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let case = std::fs::read_to_string(house.path("cases.toml")).unwrap();
    assert!(case.contains("\nstep_1 = { fail = \"cancelled\" }\n"), "{case}");
    assert!(case.contains("\nfailed = \"cancelled\"\n"), "{case}");
    assert!(case.contains("\ngoals = { kept = \"done\", after = \"skipped\" }\n"), "{case}");
    let tested = house.organism(&["workflow", "test", "cases.toml"]);
    assert_eq!(tested.code, Some(0), "{tested:?}\n{case}");
}
