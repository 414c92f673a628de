//! `organism try`: recorded threads under a changed config, without effects (issue 18, 2.2 and
//! 2.3).

use std::process::{Command, Stdio};

use organism::ids::{Position, ThreadId};
use organism::journal::sqlite::JournalReader;
use serde_json::Value as Json;

use super::kill::torture;
use super::proof::sql;
use super::terminal::in_colour;
use super::{CommandOutput, House, Running, numbered, say, until};

/// A config with three agents that each call the same listener.
pub(super) const AGENTS: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["first", "second", "third"]

[agents.first]
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["solo"]
model = "recorded"
transport = "xml"

[agents.second]
schema = "talk.xsd"
accepts = ["say"]
final = "said"
peers = ["solo"]
model = "recorded"
transport = "xml"

[agents.third]
schema = "talk.xsd"
accepts = ["hold"]
final = "held"
peers = ["solo"]
model = "recorded"
transport = "xml"

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

pub(super) const TURNS: &str = r#"
recorded = "for a test"
[[turn]]
agent = "first"
turn = 1
text = '<ping><n>{{order/n}}</n></ping>'
[[turn]]
agent = "first"
turn = 2
text = '<done><n>{{pong/n}}</n></done>'
[[turn]]
agent = "first"
turn = 3
text = '<done><n>{{order/n}}</n></done>'
[[turn]]
agent = "second"
turn = 1
text = '<ping><n>2</n></ping>'
[[turn]]
agent = "second"
turn = 2
text = '<said>before {{pong/n}}</said>'
[[turn]]
agent = "third"
turn = 1
text = '<ping><n>3</n></ping>'
[[turn]]
agent = "third"
turn = 2
text = '<held><n>{{pong/n}}</n></held>'
"#;

pub(super) fn house() -> House {
    let house = House::with(AGENTS);
    house.write("turns.toml", TURNS);
    house
}

/// Records one thread for each pair of a thread id and a request.
pub(super) fn record(house: &House, threads: &[(String, String)]) {
    let running = house.run_noting();
    for (thread, request) in threads {
        let sent = house.send_text(request, &["--new", thread]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(running.stop(), Some(0));
}

pub(super) fn one(request: String) -> Vec<(String, String)> {
    vec![("sess-source01".to_owned(), request)]
}

/// Runs `organism try`, which makes its temporary directories in the house.
pub(super) fn trial(house: &House, arguments: &[&str]) -> CommandOutput {
    let arguments = [&["try"], arguments].concat();
    let output = CommandOutput::from(trial_command(house, &arguments).output().unwrap());
    crate::json_schemas::assert_described(&arguments, &output.out);
    output
}

pub(super) fn trial_command(house: &House, arguments: &[&str]) -> Command {
    let mut command = house.command(arguments);
    command.env("EFFECTS", house.path("effects")).env("TMPDIR", house.path("tmp"));
    std::fs::create_dir_all(house.path("tmp")).unwrap();
    command
}

pub(super) fn json(output: &CommandOutput) -> Json {
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Threads of a report with this kind of change.
pub(super) fn changed(report: &Json, change: &str) -> Vec<String> {
    let threads = report["threads"].as_array().unwrap().iter();
    let changed = threads.filter(|thread| thread["change"] == change);
    changed.map(|thread| thread["thread"].as_str().unwrap().to_owned()).collect()
}

/// Position and hash of the last record.
fn head(house: &House) -> (Position, String) {
    let reader = house.reader();
    let last = reader.last().unwrap();
    (last, reader.existing_record(last).unwrap().hash.to_string())
}

fn leftovers(house: &House) -> usize {
    std::fs::read_dir(house.path("tmp")).map_or(0, Iterator::count)
}

/// If two of three agents have other prompts, and one of the two also gives other answers, the
/// report names exactly the changed threads.
#[test]
fn a_changed_prompt_names_exactly_the_threads_that_changed() {
    let house = house();
    let tens = if torture() { 10 } else { 3 };
    let threads: Vec<_> = (0..10 * tens)
        .map(|number| {
            let request = match number % 10 {
                0 => say(&number.to_string()),
                5 => numbered("hold", &number.to_string()),
                _ => numbered("order", &number.to_string()),
            };
            (format!("sess-source{number:03}"), request)
        })
        .collect();
    record(&house, &threads);
    let done = house.effects();
    assert_eq!(done, threads.len());
    let before = head(&house);

    let mut config = AGENTS.replace("turns.toml", "changed-turns.toml");
    for agent in ["second", "third"] {
        let prompt = format!("\n[agents.{agent}.prompt]\nidentity = \"You are another.\"\n");
        config.push_str(&prompt);
    }
    house.write("changed.toml", config);
    // The turns of the first agent are not among them: they come from the record.
    let turns = TURNS.replace("before {{pong/n}}", "after {{pong/n}}");
    let rest = turns.split_once("[[turn]]\nagent = \"second\"").unwrap().1;
    house.write(
        "changed-turns.toml",
        format!("recorded = \"for a test\"\n[[turn]]\nagent = \"second\"{rest}"),
    );

    let tried = trial(&house, &["changed.toml", "--threads", "all", "--json"]);
    assert_eq!(tried.code, Some(1), "{}", tried.err);
    let report = json(&tried);
    let expected = |rest: usize| -> Vec<String> {
        (0..tens).map(|ten| format!("sess-source{:03}", 10 * ten + rest)).collect()
    };
    assert_eq!(changed(&report, "finals"), expected(0));
    assert_eq!(changed(&report, "course"), expected(5));
    assert_eq!(changed(&report, "none").len(), 8 * tens);
    assert_eq!(report["total"]["finals"], tens);
    assert!(report["threads"][0]["first"]["prompt"]["diff"].to_string().contains("another"));

    assert_eq!(house.effects(), done, "no effect happened again");
    assert_eq!(head(&house), before, "the source is untouched");
    assert_eq!(leftovers(&house), 0, "the journal of the runs is gone");

    let negative = trial(&house, &["changed.toml", "--threads", "all", "--max", "-1"]);
    assert_eq!(negative.code, Some(2), "{negative:?}");
    assert!(negative.err.contains("write a number of at least 1"), "{negative:?}");
    let some = ["changed.toml", "--threads", "agent=first", "--max", "3"];
    let tried = trial(&house, &some);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.err.contains("more threads match"), "{tried:?}");
    assert!(tried.err.contains("3 threads: 0 with other finals"), "{tried:?}");
    let shown = trial(&house, &["changed.toml", "--threads", "agent=second"]);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    let all = format!("{tens} of {tens}");
    assert!(shown.out.contains("first difference") && shown.out.contains(&all), "{shown:?}");
    house.verified();
}

/// Program of a listener that crashes in its first attempt.
const FLAKY: &str = r"
if [ ! -e crashed ]; then touch crashed; head -c 1 >/dev/null; exit 7; fi
exec ./player.pl solo
";

/// Under an unchanged config, a conversation runs again as a whole, has no differences and costs
/// nothing. An attempt that failed before the recorded result is no difference, nor is a refused
/// request.
#[test]
fn an_unchanged_config_changes_nothing_and_costs_nothing() {
    let house = house();
    let command = "[\"./player.pl\", \"solo\"]";
    assert!(AGENTS.contains(command));
    house.write("organism.toml", AGENTS.replace(command, "[\"sh\", \"flaky.sh\"]"));
    house.write("flaky.sh", FLAKY);
    let running = house.run_noting();
    let [wrong, order] = [numbered("ordre", "7"), numbered("order", "7")];
    for (request, how, code) in
        [(&order, "--new", 0), (&wrong, "--thread", 65), (&order, "--thread", 0)]
    {
        let sent = house.send_text(request, &[how, "sess-source01"]);
        assert_eq!(sent.code, Some(code), "{sent:?}");
    }
    let done = house.effects();

    // The organism of the source may run.
    house.write("no-turns.toml", "recorded = \"empty\"\n");
    house.write("changed.toml", AGENTS.replace("turns.toml", "no-turns.toml"));
    let into = house.path("kept");
    let arguments = ["changed.toml", "--threads", "sess-source01", "--json", "--into"];
    let tried = trial(&house, &[&arguments[..], &[into.to_str().unwrap()]].concat());
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let report = json(&tried);
    assert_eq!(changed(&report, "none"), ["sess-source01"], "{report:#}");
    let thread = &report["threads"][0];
    assert_eq!(thread["a"]["failed_attempts"], 1);
    assert_eq!(thread["b"]["failed_attempts"], 0);
    assert_eq!(thread["a"]["refusals"], 1);
    assert_eq!(thread["a"]["turns"], 3);
    assert_eq!(thread["b"]["turns"], 3);
    assert_eq!(thread["b"]["spent"]["tokens"], 0);
    assert_eq!(house.effects(), done);
    assert_eq!(running.stop(), Some(0));

    // The journal of the runs is whole, and every record in it is decided again.
    let [data, state] = ["data", "state"].map(|part| into.join(part));
    let [data, state] = [data.to_str().unwrap(), state.to_str().unwrap()];
    let verified = house.organism(&["verify", "--data", data, "--state", state]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
    let replayed = house.organism(&["replay", "--data", data]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    let compared = house.organism(&["diff", "sess-source01", "sess-source01", "--other", data]);
    assert!(compared.err.contains("the events of both threads are equal"), "{compared:?}");
    let full = trial(&house, &["changed.toml", "--threads", "sess-source01", "--into", data]);
    assert_eq!(full.code, Some(2), "{full:?}");
    assert!(full.err.contains("not empty"), "{full:?}");
}

/// A call without a recorded result ends as `not-recorded`, unless the operator names the listener
/// of the call.
#[test]
fn a_call_without_a_recorded_result_ends_as_not_recorded() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    house.write("turns.toml", TURNS.replace("<n>{{order/n}}</n></ping>", "<n>99</n></ping>"));
    house.write(
        "changed.toml",
        AGENTS.replace("peers = [\"solo\"]\nmodel", "peers = [\"solo\"]\nnotice = false\nmodel"),
    );

    let arguments = ["changed.toml", "--threads", "sess-source01", "--json"];
    let tried = trial(&house, &arguments);
    assert_eq!(tried.code, Some(1), "{tried:?}");
    let report = json(&tried);
    assert_eq!(changed(&report, "finals"), ["sess-source01"], "{report:#}");
    assert_eq!(house.effects(), 1);
    let kept = house.path("kept");
    trial(&house, &[&arguments[..], &["--into", kept.to_str().unwrap()]].concat());
    let shown =
        house.organism(&["thread", "sess-source01", "--data", kept.join("data").to_str().unwrap()]);
    assert!(shown.out.contains("not-recorded"), "{shown:?}");

    let live = trial(&house, &[&arguments[..], &["--live", "solo"]].concat());
    assert_eq!(live.code, Some(1), "{live:?}");
    assert!(json(&live)["threads"][0]["b"]["result"].to_string().contains("99"), "{live:?}");
    assert!(!live.err.contains("was not called"), "{live:?}");
    assert_eq!(house.effects(), 2);

    // The unchanged config calls the listener with the payload on record.
    house.write("turns.toml", TURNS);
    let same = ["organism.toml", "--threads", "sess-source01", "--json", "--live", "solo"];
    let same = trial(&house, &same);
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.err.contains("--live solo: solo was not called"), "{same:?}");
    assert_eq!(house.effects(), 2);
}

/// Without a recorded turn, a playback model fails in a trial as it does in a run.
#[test]
fn a_thread_that_failed_because_its_recording_lacks_a_turn_is_unchanged() {
    let house = house();
    house.write("turns.toml", "recorded = \"empty\"\n");
    let running = house.run_noting();
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.out.contains("listener-failed"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    let tried = trial(&house, &["organism.toml", "--threads", "sess-source01", "--json"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert_eq!(changed(&json(&tried), "none"), ["sess-source01"], "{tried:?}");
}

/// The report of a trial shows the same colours as `organism diff`, and no escapes as text.
#[test]
fn a_report_on_a_terminal_is_in_colour() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    // The changed prompts get other answers than those on record.
    house.write("turns.toml", TURNS.replace("<n>{{order/n}}</n></ping>", "<n>99</n></ping>"));
    house.write(
        "changed.toml",
        AGENTS.replace("peers = [\"solo\"]\nmodel", "peers = [\"solo\"]\nnotice = false\nmodel"),
    );

    let arguments = ["try", "changed.toml", "--threads", "sess-source01"];
    let (shown, code) = in_colour(&house, trial_command(&house, &arguments));
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("\u{1b}[1mfirst difference\u{1b}[0m"), "{shown:?}");
    assert!(shown.contains("\u{1b}[1msess-source01\u{1b}[0m"), "{shown:?}");
    assert!(!shown.contains("\\u{1b}"), "{shown:?}");
}

/// Without a budget, a turn without a recorded answer calls no model.
#[test]
fn a_turn_without_a_recorded_answer_asks_no_model_without_a_budget() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    let remote = "[models.remote]\nprovider = \"openai\"\nmodel = \"m\"\n\
        base_url = \"http://127.0.0.1:9/v1\"\napi_key_env = \"NO_SUCH_KEY\"\n";
    house.write("changed.toml", format!("{AGENTS}\n{remote}"));
    let arguments = ["changed.toml", "--threads", "sess-source01", "--json", "--model", "remote"];
    let tried = trial(&house, &arguments);
    assert_eq!(tried.code, Some(1), "{tried:?}");
    let report = json(&tried);
    let result = report["threads"][0]["b"]["result"].to_string();
    assert!(result.contains("not-recorded") && result.contains("--tokens"), "{report:#}");
    assert_eq!(report["threads"][0]["b"]["spent"]["tokens"], 0);

    // With one, the model is asked, for which a key is missing.
    let asked = trial(&house, &[&arguments[..], &["--tokens", "100"]].concat());
    assert_eq!(asked.code, Some(78), "{asked:?}");
    assert!(asked.err.contains("NO_SUCH_KEY"), "{asked:?}");
}

/// Final payloads with the same values in different notations count as equal.
#[test]
fn finals_are_compared_by_their_schema() {
    let house = house();
    let schema = std::fs::read_to_string(house.path("talk.xsd")).unwrap();
    house.write("talk.xsd", schema.replace("xs:token", "xs:decimal"));
    record(&house, &one(numbered("order", "1.5")));
    let notation = "<done> <n>+1.50</n> </done>";
    house.write("turns.toml", TURNS.replace("<done><n>{{pong/n}}</n></done>", notation));
    house
        .write("changed.toml", format!("{AGENTS}\n[agents.first.prompt]\nidentity = \"Other.\"\n"));
    let tried = trial(&house, &["changed.toml", "--threads", "sess-source01", "--json"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert_eq!(changed(&json(&tried), "course"), ["sess-source01"]);

    let other = notation.replace("1.50", "1.51");
    house.write("turns.toml", TURNS.replace("<done><n>{{pong/n}}</n></done>", &other));
    let tried = trial(&house, &["changed.toml", "--threads", "sess-source01", "--json"]);
    assert_eq!(tried.code, Some(1), "{tried:?}");

    // A schema that refuses the recorded request: the difference shows the refusal and its reason.
    house.write("narrow.xsd", schema.replace("xs:token", "xs:integer"));
    house.write("narrow.toml", AGENTS.replace("talk.xsd", "narrow.xsd"));
    let refused = trial(&house, &["narrow.toml", "--threads", "sess-source01", "--full"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for part in ["\n- sess-source01 ", "\n+ sess-source01 ", "refused desk by schema-invalid"] {
        assert!(refused.out.contains(part), "{part}: {refused:?}");
    }
    assert!(refused.out.contains("element 'n'"), "{refused:?}");
}

/// A call that needed an approval gets its recorded result in a trial, which waits for no approval.
#[test]
fn a_call_that_needed_an_approval_gets_its_recorded_result() {
    let config =
        AGENTS.replace("replies = [\"pong\"]", "replies = [\"pong\"]\napproval = \"always\"");
    let house = House::with(&config);
    house.write("turns.toml", TURNS);
    let running = house.run_noting();
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01", "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let held = until("it is held", || {
        let listed = house.organism(&["approvals", "--json"]).json();
        let held = listed.first()?.clone();
        held["message"].as_str().map(|message| (message.to_owned(), held["sha256"].clone()))
    });
    // An open call has no result that a trial could repeat.
    let tried = trial(&house, &["organism.toml", "--threads", "all", "--json"]);
    assert_eq!(tried.code, Some(69), "{tried:?}");
    let report = json(&tried);
    assert!(report["not_tried"][0]["reason"].to_string().contains("has not ended"), "{report:#}");
    let approved = house.organism(&["approve", &held.0, "--hash", held.1.as_str().unwrap()]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    until("it is done", || (house.recorded("done") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));

    let tried = trial(&house, &["organism.toml", "--threads", "sess-source01", "--json"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    // The agent saw the notes about the approval, so only its later prompt differs.
    let report = json(&tried);
    assert_eq!(changed(&report, "course"), ["sess-source01"]);
    assert!(report["threads"][0]["first"]["prompt"].is_object(), "{report:#}");

    // Another call has no result, and nobody to approve it.
    house.write("turns.toml", TURNS.replace("<n>{{order/n}}</n></ping>", "<n>99</n></ping>"));
    house
        .write("changed.toml", format!("{config}\n[agents.first.prompt]\nidentity = \"Other.\"\n"));
    let arguments = ["changed.toml", "--threads", "sess-source01", "--json", "--live", "solo"];
    let tried = trial(&house, &arguments);
    assert_eq!(tried.code, Some(1), "{tried:?}");
    assert_eq!(house.effects(), 1, "also a live listener needs its approval");
}

#[test]
fn bad_input_is_named_before_anything_runs() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    house.write("typo.toml", AGENTS.replace("transport = \"xml\"", "transpotr = \"xml\""));
    let typo = trial(&house, &["typo.toml", "--threads", "all"]);
    assert_eq!(typo.code, Some(78), "{typo:?}");
    assert!(typo.err.contains("transpotr") && typo.err.contains('^'), "{typo:?}");

    for (arguments, expected) in [
        (&["--threads", "sess-unknown1"][..], "no thread sess-unknown1 is on record"),
        (&["--threads", "sess-source01.a"], "name the whole thread"),
        (&["--threads", "sess-source01 agent=first"], "ids or filters"),
        (&["--threads", "agnet=first"], "did you mean `agent`?"),
        (&["--threads", "status=done"], "one of"),
        (&["--threads", "agent=nobody"], "no thread matches --threads"),
        (&["--threads", ""], "--threads takes ids"),
        (&["--threads", "all", "--live", "sollo"], "did you mean `solo`?"),
        (&["--threads", "all", "--model", "recordd"], "did you mean `recorded`?"),
        (&["--threads", "all", "--money", "nan"], "--money takes an amount"),
        (&["--threads", "all", "--max", "0"], "write a number of at least 1"),
    ] {
        let wrong = trial(&house, &[&["organism.toml"], arguments].concat());
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.err.contains(expected), "{wrong:?}");
    }
    assert_eq!(leftovers(&house), 0);
}

/// The advice names the config of the recorded threads. With the changed config, the advised
/// command would move the project's journal to that config.
#[test]
fn advice_names_the_config_of_the_recorded_threads() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    house.write("changed.toml", AGENTS);
    let name = "name = \"talk\"";
    let copy = format!("{name}\ndata = \"{}\"", house.data().display());
    house.write("copy.toml", AGENTS.replace(name, &copy));

    for (recorded, query, code, advised) in [
        ("organism.toml", "sess-unknown1", 2, "`organism threads --config organism.toml` lists"),
        ("organism.toml", "agent=nobody", 2, "`organism threads --config organism.toml` takes"),
        ("copy.toml", "all", 78, "organism.toml --config copy.toml`"),
    ] {
        let wrong = trial(&house, &["changed.toml", "--config", recorded, "--threads", query]);
        assert_eq!(wrong.code, Some(code), "{wrong:?}");
        assert!(wrong.err.contains(advised), "{wrong:?}");
        assert!(!wrong.err.contains("changed.toml"), "{wrong:?}");
    }
}

#[test]
fn a_thread_whose_request_is_redacted_is_not_tried() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    sql(&house, "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE length(payloads) > 0");
    let arguments = ["organism.toml", "--threads", "sess-source01", "--json", "--live", "solo"];
    let tried = trial(&house, &arguments);
    assert_eq!(tried.code, Some(69), "{tried:?}");
    assert!(!tried.err.contains("--live solo"), "{tried:?}");
    let report = json(&tried);
    assert!(report["not_tried"][0]["reason"].to_string().contains("redacted"), "{report:#}");
}

/// A config with an agent that takes the first reply of two listeners. Each of them replies as soon
/// as its file exists: `quick` waits for `let-go-first`, and `slow` for `let-go`.
const RACE: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["first"]

[agents.first]
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["quick", "slow"]
gather = "first"
model = "recorded"
transport = "xml"

[listeners.quick]
command = ["./player.pl", "quick", "let-go-first"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]

[listeners.slow]
command = ["./player.pl", "slow", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

#[test]
fn a_late_reply_of_a_group_that_no_turn_shows_changes_the_course_alone() {
    let house = House::with(RACE);
    house.write("turns.toml", TURNS.replace("ping>", "hold>").replace("pong/", "held/"));
    let running = house.run_noting();
    let request = numbered("order", "1");
    let sent = house.send_text(&request, &["--new", "sess-source01", "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    // A call that has not reached its listener when the agent ends gets no reply.
    until("both listeners have a call", || (house.effects() == 2).then_some(()));
    house.write("let-go-first", "");
    until("the agent has its final", || (house.recorded("done") == 1).then_some(()));
    house.write("let-go", "");
    until("the late answer is on record", || (house.recorded("held") == 2).then_some(()));

    // No turn shows the late answer yet.
    let arguments = ["organism.toml", "--threads", "sess-source01", "--json"];
    let tried = trial(&house, &arguments);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert_eq!(changed(&json(&tried), "course"), ["sess-source01"], "{tried:?}");

    let sent = house.send_text(&request, &["--thread", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    // Since renderer version 12, no turn shows the late reply of a group that has a reply.
    let tried = trial(&house, &arguments);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert_eq!(changed(&json(&tried), "course"), ["sess-source01"], "{tried:?}");
}

/// Returns a house with its config and its recording. An agent calls a listener, which replies as
/// soon as the file `let-go` exists. The file exists.
fn waiting_house() -> (House, String, String) {
    let (agent, rest) = AGENTS.split_once("[agents.second]").unwrap();
    let (_, listener) = rest.split_once("[listeners.solo]").unwrap();
    let config = format!("{agent}[listeners.solo]{listener}")
        .replace("peers = [\"first\", \"second\", \"third\"]", "peers = [\"first\"]")
        .replace("\"solo\"]\nschema", "\"solo\", \"let-go\"]\nschema")
        .replace(
            "accepts = [\"ping\"]\nreplies = [\"pong\"]",
            "accepts = [\"hold\"]\nreplies = [\"held\"]",
        );
    let (turns, _) = TURNS.split_once("[[turn]]\nagent = \"second\"").unwrap();
    let turns = turns.replace("ping>", "hold>").replace("pong/", "held/");
    let house = House::with(&config);
    house.write("turns.toml", &turns);
    house.write("let-go", "");
    (house, config, turns)
}

/// If a signal ends a trial, the source is untouched. At that moment the trial waits for a live
/// listener that has not answered.
#[test]
fn a_trial_that_is_stopped_or_killed_leaves_the_source_untouched() {
    let (house, config, turns) = waiting_house();
    record(&house, &one(numbered("order", "1")));
    assert_eq!(house.effects(), 1);
    let before = head(&house);

    std::fs::remove_file(house.path("let-go")).unwrap();
    house.write("turns.toml", turns.replace("<n>{{order/n}}</n></hold>", "<n>99</n></hold>"));
    let changed = format!("{config}\n[agents.first.prompt]\nidentity = \"Other.\"\n");
    house.write("changed.toml", changed);
    std::fs::create_dir_all(house.path("tmp")).unwrap();
    let arguments = ["try", "changed.toml", "--threads", "sess-source01"];
    for (number, signal) in [(2, "-TERM"), (3, "-KILL")] {
        let mut command = house.command(&[&arguments[..], &["--live", "solo"]].concat());
        command.env("EFFECTS", house.path("effects")).env("TMPDIR", house.path("tmp"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Running { child };
        until("the listener has the call", || (house.effects() == number).then_some(()));
        running.signal(signal);
        let stderr = running.child.stderr.take().unwrap();
        let code = until("it ends", || running.child.try_wait().unwrap()).code();
        let errors = std::io::read_to_string(stderr).unwrap();
        assert!(errors.contains(house.path("tmp").to_str().unwrap()), "{errors}");
        if signal == "-TERM" {
            assert_eq!(code, Some(75), "{errors}");
            assert!(errors.contains("stopped by a signal after 0 of 1 thread"), "{errors}");
            assert_eq!(leftovers(&house), 0);
        }
        assert_eq!(head(&house), before, "{signal}");
    }

    // A listener that nobody named gets nothing.
    let tried = trial(&house, &arguments[1..]);
    assert_eq!(tried.code, Some(1), "{tried:?}");
    assert_eq!(house.effects(), 3);
    assert_eq!(head(&house), before);
}

/// The results are compared with those of the requests that the trial has sent again. A request
/// that came to the recorded thread meanwhile is no difference.
#[test]
fn a_request_that_is_recorded_during_a_trial_does_not_count() {
    let (house, config, turns) = waiting_house();
    let running = house.run_noting();
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    std::fs::remove_file(house.path("let-go")).unwrap();

    let other = turns.replace("<n>{{order/n}}</n></hold>", "<n>99</n></hold>");
    house.write("changed-turns.toml", other.replace("{{held/n}}", "{{order/n}}"));
    let changed = config.replace("turns.toml", "changed-turns.toml");
    let changed = format!("{changed}\n[agents.first.prompt]\nidentity = \"Other.\"\n");
    house.write("changed.toml", changed);
    let arguments = ["try", "changed.toml", "--threads", "all", "--json", "--live", "solo"];
    let mut command = trial_command(&house, &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the listener has the call", || (house.effects() == 2).then_some(()));
    let sent = house.send_text(&numbered("order", "2"), &["--thread", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    house.write("let-go", "");

    let tried = CommandOutput::from(child.wait_with_output().unwrap());
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert_eq!(self::changed(&json(&tried), "course"), ["sess-source01"], "{tried:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn two_trials_at_once_do_not_meet() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    std::fs::create_dir_all(house.path("tmp")).unwrap();
    let children: Vec<_> = (0..2)
        .map(|_| {
            let mut command =
                house.command(&["try", "organism.toml", "--threads", "sess-source01", "--json"]);
            command.env("EFFECTS", house.path("effects")).env("TMPDIR", house.path("tmp"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let tried = CommandOutput::from(child.wait_with_output().unwrap());
        assert_eq!(tried.code, Some(0), "{tried:?}");
        assert_eq!(changed(&json(&tried), "none"), ["sess-source01"]);
    }
    assert_eq!(house.effects(), 1);
    assert_eq!(leftovers(&house), 0);
}

/// Here, stacks that are too large for the memory stand for a system that does not start all
/// threads.
#[cfg(target_os = "linux")]
#[test]
fn a_trial_that_gets_only_a_part_of_its_threads_leaves_no_directory() {
    let house = house();
    record(&house, &one(numbered("order", "1")));
    std::fs::create_dir_all(house.path("tmp")).unwrap();
    // Without an end, the command is killed with 124.
    let script = "ulimit -v 6000000; exec timeout 60 \"$0\" \"$@\"";
    let mut command = house.script(script, &["try", "organism.toml", "--threads", "all"]);
    command.env("RUST_MIN_STACK", "268435456").env("TOKIO_WORKER_THREADS", "64");
    command.env("EFFECTS", house.path("effects")).env("TMPDIR", house.path("tmp"));
    let tried = CommandOutput::from(command.output().unwrap());
    assert_eq!(tried.code, Some(69), "{tried:?}");
    assert!(tried.err.contains("could not start the threads of this command"), "{tried:?}");
    assert_eq!(leftovers(&house), 0);
}

/// A fork that begins within a thread is not tried, and the output names that thread. A fork from
/// the beginning is tried.
#[test]
fn a_fork_within_a_thread_is_not_tried() {
    let house = house();
    let running = house.run_noting();
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01", "--json"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let reader = JournalReader::open(&house.data()).unwrap();
    let source = ThreadId::parse("sess-source01").unwrap();
    let records = reader.tree(&source, None).unwrap();
    let of = |local: &str| {
        let messages = records.iter().flat_map(|sealed| sealed.record.facts.iter());
        let mut found = messages.filter_map(|fact| match fact {
            organism::thread::Fact::Accepted { message, .. } if &*message.name.local == local => {
                Some(message.id)
            }
            _ => None,
        });
        found.next_back().unwrap()
    };
    let mut forks = Vec::new();
    for local in ["order", "done"] {
        let forked = house.organism(&["fork", &of(local).to_string(), "--json"]);
        forks.push(forked.json().remove(0)["fork"].as_str().unwrap().to_owned());
    }
    assert_eq!(running.stop(), Some(0));

    let threads = forks.join(" ");
    let arguments = ["organism.toml", "--threads", &threads, "--json", "--live", "solo"];
    let tried = trial(&house, &arguments);
    assert_eq!(tried.code, Some(69), "{tried:?}");
    let uncalled = "no compared thread has a call to solo without a recorded result; 1 not tried";
    assert!(tried.err.contains(&format!("--live solo: {uncalled}")), "{tried:?}");
    let report = json(&tried);
    assert_eq!(changed(&report, "none"), [forks[0].clone()], "{report:#}");
    assert!(report["not_tried"][0]["reason"].to_string().contains("sess-source01"), "{report:#}");
    assert!(report["not_tried"][0]["thread"] == forks[1].as_str());
}
