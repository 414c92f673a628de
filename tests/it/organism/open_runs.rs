//! Open runs whose definition is edited, deleted or made invalid.

use organism::journal::sqlite::JournalReader;
use serde_json::Value as Json;

use super::{CommandOutput, House, until};

const CONFIG: &str = include_str!("../../data/organism/tour.toml");

/// A workflow whose runs stay open, because their first goal ends only after the file `let-go`
/// exists. The later goals have agents.
const DEFINITION: &str = r#"
[workflows.tour]
input = { topic = "text", unit = ["integer"] }
output = { text = "views/critic", units = "work/item" }

[workflows.tour.goals]
work = { each = "input/unit", listener = "back", with = { n = "item" } }
outline = { agent = "writer", prompt = "Outline {{input/topic}}." }
views = { all = ["writer", "critic"], prompt = "Judge the outline." }
"#;

/// The config without a workflow.
fn without_workflow() -> String {
    let (config, _) = CONFIG.split_once("[workflows.tour]").unwrap();
    let config = config
        .replace("player.pl\", \"back\"", "player.pl\", \"back\", \"let-go\"")
        .replace("accepts = [\"work\"]", "accepts = [\"hold\"]")
        .replace("replies = [\"worked\"]", "replies = [\"held\"]");
    // Its agents stay, since goals of workflows are all that they accept.
    let config = config.replace("peers = [\"tour\", \"back\"]", "peers = [\"back\"]");
    format!("{config}\n[workflows]\n")
}

fn with_workflow(definition: &str) -> String {
    let config = without_workflow().replace("peers = [\"back\"]", "peers = [\"tour\", \"back\"]");
    format!("{config}{definition}")
}

fn house(config: &str) -> House {
    let house = House::with(config);
    house.copy("tour-recording.toml");
    house
}

fn request(unit: usize) -> String {
    format!(
        "<tour xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\"><topic>light</topic>\
         <unit>{unit}</unit></tour>"
    )
}

fn output(unit: usize) -> String {
    format!(
        "<tour-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\">\
         <text>It is thin.</text><units><held xmlns=\"urn:example:talk\"><n>{unit}</n></held></units>\
         </tour-output>"
    )
}

/// Recorded messages with this local name, as `organism export` shows them.
fn messages(house: &House, name: &str) -> Vec<Json> {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let is_named = |line: &Json| {
        let named = line["name"].as_str().and_then(|name| name.rsplit('}').next());
        line["type"] == "message" && named == Some(name)
    };
    exported.into_iter().filter(is_named).collect()
}

fn payloads(house: &House, name: &str) -> Vec<String> {
    let messages = messages(house, name);
    let payloads = messages.iter().map(|message| message["payload"].as_str().unwrap().to_owned());
    payloads.collect()
}

/// Opens this many runs, and kills the organism while the first goal of each run waits.
fn left_open(house: &House, runs: usize) {
    let running = house.run();
    for run in 0..runs {
        let sent = house.send_text(&request(run), &["--no-wait"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    until("every run waits for its unit", || (messages(house, "hold").len() == runs).then_some(()));
    // Killed, as with kill -9.
    drop(running);
}

/// Number of compiled definitions in the journal.
fn definitions(house: &House) -> usize {
    let reader = JournalReader::open(&house.data()).unwrap();
    let digests = reader.blobs().unwrap();
    let blobs = digests.into_iter().filter_map(|digest| reader.blob(digest).unwrap());
    blobs.filter(|bytes| bytes.starts_with(b"<workflow ")).count()
}

fn assert_outputs(house: &House, runs: usize) {
    let outputs = until("every run has its output", || {
        let failed = payloads(house, "tour-failed");
        assert!(failed.is_empty(), "{failed:?}");
        let outputs = payloads(house, "tour-output");
        (outputs.len() == runs).then_some(outputs)
    });
    for run in 0..runs {
        assert!(outputs.contains(&output(run)), "{run}: {outputs:?}");
    }
}

#[test]
fn twenty_open_runs_finish_on_their_definition_after_it_was_edited() {
    let house = house(&with_workflow(DEFINITION));
    left_open(&house, 20);
    assert_eq!(messages(&house, "run-definition").len(), 20);
    assert_eq!(definitions(&house), 1);

    // Other goals, prompts, an output of another form, and another input.
    let edited = DEFINITION
        .replace(
            "output = { text = \"views/critic\", units = \"work/item\" }",
            "output = \"views/critic\"",
        )
        .replace("topic = \"text\", unit", "unit")
        .replace("work = {", "outline = { agent = \"writer\", prompt = \"Outline.\" }\nwork = {")
        .replace("outline = { agent = \"writer\", prompt = \"Outline {{input/topic}}.\" }\n", "");
    house.write("organism.toml", with_workflow(&edited));
    let running = house.run();
    house.write("let-go", "");
    assert_outputs(&house, 20);

    // A new run begins on the edited definition.
    let request = request(7).replace("<topic>light</topic>", "");
    let sent = house.send_text(&request, &[]);
    assert_eq!(
        sent.out,
        "<tour-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\">It is thin.\
         </tour-output>\n",
        "{sent:?}"
    );
    assert_eq!(running.stop(), Some(0));
    assert_eq!(definitions(&house), 2);
    house.verified();
}

#[test]
fn twenty_open_runs_finish_after_their_workflow_was_made_invalid_and_deleted() {
    let house = house(&with_workflow(DEFINITION));
    left_open(&house, 20);

    house
        .write("organism.toml", with_workflow(&DEFINITION.replace("views/critic", "views/nobody")));
    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");

    house.write("organism.toml", without_workflow());
    let running = house.run();
    // It accepts no new call.
    let sent = house.send_text(&request(21), &[]);
    assert_eq!(sent.code, Some(65), "{sent:?}");
    house.write("let-go", "");
    assert_outputs(&house, 20);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_goal_whose_peer_was_withdrawn_is_refused_and_its_policy_applies() {
    let only_writer = DEFINITION.replace("[\"writer\", \"critic\"]", "[\"writer\"]");
    let only_writer = only_writer.replace("views/critic", "views/writer");
    let skipped = DEFINITION.replace("prompt = \"Judge", "on_failure = \"skip\", prompt = \"Judge");
    for (definition, expected) in [
        (DEFINITION, "<goal>views</goal><code>not-in-vocabulary</code>"),
        (&skipped, "<tour-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\"><units>"),
    ] {
        let house = house(&with_workflow(definition));
        left_open(&house, 1);
        house.write("organism.toml", with_workflow(&only_writer));
        let running = house.run();
        house.write("let-go", "");
        let ended = until("the run ends", || {
            let failed = payloads(&house, "tour-failed");
            failed.into_iter().chain(payloads(&house, "tour-output")).next()
        });
        assert!(ended.contains(expected), "{ended}");
        let goals = messages(&house, "goal");
        assert!(goals.iter().all(|goal| goal["to"] != "critic"), "{goals:?}");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }
}

/// A workflow that calls another listener after the goal that keeps its runs open, and then puts a
/// question to a person.
const CALLING: &str = r#"
[workflows.tour]
input = { topic = "text", unit = ["integer"] }
output = "second/n"

[workflows.tour.goals]
work = { each = "input/unit", listener = "back", with = { n = "item" } }
second = { listener = "far", payload = "ping", with = { n = "input/unit" } }
sign = { ask = "owner", prompt = "Does {{input/topic}} go on?" }

[humans.owner]
description = "Owns the tour."

[humans.boss]
description = "Runs the tour."

[listeners.far]
command = ["./player.pl", "far"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
"#;

/// The workflow [`CALLING`] after an edit: its second goal calls `far` with another payload, a new
/// goal calls `near`, and another person gets the question. Both listeners accept the payload with
/// which the earlier second goal called `far`, and both persons are peers.
fn shared_payload() -> String {
    let near = "[listeners.near]\ncommand = [\"./player.pl\", \"near\"]\nschema = \"talk.xsd\"\n\
                accepts = [\"ping\", \"order\"]\nreplies = [\"pong\", \"done\"]\n";
    let goals = "third = { listener = \"near\", payload = \"order\", with = { n = \"input/unit\" } }\n\
                 copy = { ask = \"owner\", prompt = \"Is there a copy?\" }\n\
                 sign = { ask = \"boss\"";
    let edited = CALLING
        .replace("payload = \"ping\"", "payload = \"work\"")
        .replace("accepts = [\"ping\"]", "accepts = [\"ping\", \"work\"]")
        .replace("replies = [\"pong\"]", "replies = [\"pong\", \"worked\"]")
        .replace("sign = { ask = \"owner\"", goals);
    with_workflow(&format!("{edited}\n{near}"))
}

#[test]
fn a_run_calls_no_listener_and_no_person_but_those_of_its_definition() {
    let house = house(&with_workflow(CALLING));
    house.write("shared.toml", shared_payload());
    let moved = CALLING
        .replace("listener = \"far\"", "listener = \"near\"")
        .replace("[listeners.far]", "[listeners.near]")
        .replace("ask = \"owner\"", "ask = \"boss\"");
    house.write("moved.toml", with_workflow(&moved));
    let other = CALLING.replace("\"ping\"", "\"work\"").replace("\"pong\"", "\"worked\"");
    house.write("other.toml", with_workflow(&other));
    let refused = |config: &str| {
        let diff = house.organism(&["workflow", "diff", "organism.toml", config]);
        assert_eq!(diff.code, Some(0), "{diff:?}");
        let lines = diff.out.lines().filter_map(|line| line.split_once(" is refused from then on"));
        let lines = lines.map(|(subject, reason)| format!("{}{reason}", subject.trim()));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(refused("shared.toml"), Vec::<String>::new());
    let gone = "in runs under way, `second`: `far` is no peer any more";
    let person = "in runs under way, `sign`: `owner` is no peer any more";
    assert_eq!(refused("moved.toml"), [gone, person]);
    let declined = "in runs under way, `second`: `far` does not accept `ping` any more";
    assert_eq!(refused("other.toml"), [declined]);

    left_open(&house, 1);
    house.write("organism.toml", with_workflow(&moved));
    let running = house.run();
    house.write("let-go", "");
    let failed = until("the run fails", || payloads(&house, "tour-failed").pop());
    let expected = "<goal>second</goal><code>not-in-vocabulary</code>";
    assert!(failed.contains(expected), "{failed}");
    assert_eq!(messages(&house, "ping"), Vec::<Json>::new());
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_call_of_a_run_goes_only_to_its_listener_although_another_peer_accepts_the_payload() {
    let house = house(&with_workflow(CALLING));
    left_open(&house, 1);
    house.write("organism.toml", shared_payload());
    let running = house.run();
    house.write("let-go", "");
    let question = until("the question waits", || messages(&house, "sign").pop());
    assert_eq!(question["to"], "owner");
    assert_eq!(messages(&house, "sign").len(), 1);
    let calls = messages(&house, "ping");
    let callees: Vec<_> = calls.iter().map(|call| call["to"].as_str().unwrap()).collect();
    assert_eq!(callees, ["far"]);
    assert_eq!(running.stop(), Some(0));
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    house.verified();
}

#[test]
fn a_run_whose_workflow_name_another_listener_has_ends() {
    let house = house(&with_workflow(DEFINITION));
    left_open(&house, 1);
    let other = "\n[listeners.tour]\ncommand = [\"./player.pl\", \"tour\"]\nschema = \"talk.xsd\"\n\
                 accepts = [\"ping\"]\nreplies = [\"pong\"]\nattempts = 1\n";
    house.write("organism.toml", format!("{}{other}", without_workflow()));
    let running = house.run();
    house.write("let-go", "");
    until("nothing is open", || {
        let closed = messages(&house, "system-error");
        (!closed.is_empty()).then_some(())
    });
    assert!(payloads(&house, "tour-output").is_empty());
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn the_budget_of_a_deleted_workflow_limits_its_open_runs() {
    let limited = DEFINITION.replace("output = {", "tokens = 3\noutput = {");
    let house = house(&with_workflow(&limited));
    left_open(&house, 1);
    house.write("organism.toml", without_workflow());
    let running = house.run();
    house.write("let-go", "");
    let failed = until("the run has failed", || payloads(&house, "tour-failed").pop());
    assert!(failed.contains("<code>budget-spent</code>"), "{failed}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// A workflow whose last goal fails until the recording has an answer of `critic`.
const FAILING: &str = r#"
[workflows.tour]
input = { topic = "text", unit = ["integer"] }
output = { text = "verdict", units = "work/item" }

[workflows.tour.goals]
outline = { agent = "writer", prompt = "Outline {{input/topic}}." }
work = { each = "input/unit", listener = "back", with = { n = "item" } }
verdict = { agent = "critic", prompt = "Judge: {{outline}}" }
"#;

const VERDICT: &str = "\n[[turn]]\nagent = \"critic\"\nthread = \"verdict-1\"\nturn = 1\n\
                       text = \"Good.\"\n";

fn failed_once() -> House {
    failed_once_on(FAILING)
}

fn failed_once_on(definition: &str) -> House {
    let house = house(&with_workflow(definition));
    house.write("let-go", "");
    let sent = house.send_text(&request(5), &["--new", "sess-toured00"]);
    assert!(sent.out.contains("<goal>verdict</goal>"), "{sent:?}");
    let recording = std::fs::read_to_string(house.path("tour-recording.toml")).unwrap();
    house.write("tour-recording.toml", format!("{recording}{VERDICT}"));
    house
}

fn threads_of(house: &House, name: &str) -> Vec<String> {
    let messages = messages(house, name);
    let threads = messages.iter().map(|message| message["thread"].as_str().unwrap().to_owned());
    threads.collect()
}

#[test]
fn a_retry_takes_over_the_results_of_the_run_and_runs_the_other_goals() {
    let house = failed_once();
    // The config has another definition by now; the retry runs on that of the run.
    let edited = FAILING
        .replace("verdict", "opinion")
        .replace("units = \"work/item\"", "more = \"outline\"");
    house.write("organism.toml", with_workflow(&edited));
    let retried = house.organism(&["workflow", "retry", "sess-toured00", "--json"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let lines = retried.json();
    let result = lines.iter().find(|line| line["sent"] == "result").unwrap();
    assert_eq!(
        result["replies"][0]["payload"],
        "<tour-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\"><text>Good.</text>\
         <units><held xmlns=\"urn:example:talk\"><n>5</n></held></units></tour-output>"
    );
    assert_eq!(messages(&house, "tour-retry").len(), 1);
    // No goal with a result ran again.
    assert_eq!(messages(&house, "hold").len(), 1);
    let goals = threads_of(&house, "goal");
    assert_eq!(
        goals,
        ["sess-toured00.outline", "sess-toured00.verdict", "sess-toured00.verdict-1"]
    );
    // Both runs are on one definition.
    let records = payloads(&house, "run-definition");
    assert_eq!(records.len(), 2);
    assert_eq!(records[0], records[1]);
    house.verified();
}

#[test]
fn a_run_that_ends_in_its_first_outcome_records_its_definition_and_can_be_retried() {
    let limited =
        DEFINITION.replace("with = { n = \"item\" }", "with = { n = \"item\" }, max_items = 1");
    let house = house(&with_workflow(&limited));
    house.write("let-go", "");
    let request = request(1).replace("</unit>", "</unit><unit>2</unit>");
    let sent = house.send_text(&request, &["--new", "sess-toured00"]);
    assert!(sent.out.contains("<code>too-many-items</code>"), "{sent:?}");
    let only = payloads(&house, "run-definition");
    assert_eq!(only.len(), 1);

    // The retry runs on the definition on record, which the config no longer has.
    house.write("organism.toml", with_workflow(&limited.replace("max_items = 1", "max_items = 2")));
    for retries in 1..=2 {
        let retried = house.organism(&["workflow", "retry", "sess-toured00", "--quiet"]);
        assert!(retried.out.contains("<code>too-many-items</code>"), "{retried:?}");
        assert_eq!(payloads(&house, "run-definition"), vec![only[0].clone(); retries + 1]);
    }
    assert_eq!(messages(&house, "thread-spawned").len(), 0);
    house.verified();
}

/// A run that ends in its first outcome gives its result even if the request has used up the budget
/// of messages. The outcome's reply needs no budget, and neither does the recorded definition of
/// the run.
#[test]
fn a_run_that_ends_in_its_first_outcome_gives_its_result_also_without_messages_left() {
    let limited =
        DEFINITION.replace("with = { n = \"item\" }", "with = { n = \"item\" }, max_items = 1");
    let house = house(&format!("{}\n[limits]\nmessages = 1\n", with_workflow(&limited)));
    let request = request(1).replace("</unit>", "</unit><unit>2</unit>");
    let sent = house.send_text(&request, &[]);
    assert!(sent.out.contains("<code>too-many-items</code>"), "{sent:?}");
    assert_eq!(payloads(&house, "run-definition").len(), 1);
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

#[test]
fn a_retry_from_a_goal_runs_it_and_all_that_need_it_again() {
    let house = failed_once();
    let retried = house.organism(&["workflow", "retry", "sess-toured00", "--from", "work"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert_eq!(messages(&house, "hold").len(), 2);
    assert_eq!(threads_of(&house, "goal").len(), 3);

    // It is shown as a run is, with the goals whose results it takes over.
    for line in ["run sess-toured00\n", "✓ outline  done\n", "▸ work  running", "✓ verdict  done"]
    {
        assert!(retried.err.contains(line), "no `{line}` in {retried:?}");
    }
    assert!(!retried.err.contains("outline  running"), "{retried:?}");

    let wrong = house.organism(&["workflow", "retry", "sess-toured00", "--from", "wrok"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("did you mean `work`?"), "{wrong:?}");
    let nothing = house.organism(&["workflow", "retry", "sess-nothing0"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    house.verified();
}

#[test]
fn a_retry_that_is_killed_resumes_with_the_results_that_it_took_over() {
    let house = failed_once();
    std::fs::remove_file(house.path("let-go")).unwrap();
    let running = house.run();
    let retried =
        house.organism(&["workflow", "retry", "sess-toured00", "--from", "work", "--no-wait"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    until("the unit is under way", || (messages(&house, "hold").len() == 2).then_some(()));
    drop(running);
    let running = house.run();
    house.write("let-go", "");
    let output = until("the retry ends", || payloads(&house, "tour-output").pop());
    assert!(output.contains("<text>Good.</text>"), "{output}");
    assert_eq!(threads_of(&house, "goal").len(), 3);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_retry_has_the_whole_time_of_a_run() {
    let timed = FAILING.replace("output = { text", "timeout = \"1h\"\noutput = { text");
    let house = failed_once_on(&timed);
    // Ten hours later.
    house.write("skew", "36000000000");
    let mut retry = house.command(&["workflow", "retry", "sess-toured00", "--quiet"]);
    let retried = retry.env("ORGANISM_CLOCK_SKEW", house.path("skew")).output().unwrap();
    let retried = CommandOutput::from(retried);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert!(retried.out.contains("<text>Good.</text>"), "{retried:?}");
    house.verified();
}

/// Retries the run of `failed_once` with a key, and returns the output of the command.
fn retry_with_key(house: &House, key: &str, options: &[&str]) -> CommandOutput {
    house.organism(&[&["workflow", "retry", "sess-toured00", "--key", key], options].concat())
}

#[test]
fn a_retry_with_the_key_of_an_earlier_one_returns_its_output_and_runs_nothing() {
    let house = failed_once();
    std::fs::remove_file(house.path("let-go")).unwrap();
    let running = house.run();
    let from_work = ["--from", "work", "--no-wait"];
    for attempt in 1..=2 {
        let open = retry_with_key(&house, "first", &from_work);
        assert_eq!(open.code, Some(0), "{attempt}: {open:?}");
        assert_eq!(messages(&house, "tour-retry").len(), 1, "{attempt}");
        until("the unit is under way", || (messages(&house, "hold").len() == 2).then_some(()));
    }

    house.write("let-go", "");
    let output = |retried: CommandOutput| {
        assert_eq!(retried.code, Some(0), "{retried:?}");
        retried.out
    };
    let first = output(retry_with_key(&house, "first", &["--from", "work", "--quiet"]));
    assert!(first.contains("<text>Good.</text>"), "{first}");
    assert_eq!(output(retry_with_key(&house, "first", &["--from", "work"])), first);
    assert_eq!(messages(&house, "tour-retry").len(), 1);

    // A later retry changes nothing for the first key.
    assert_eq!(output(retry_with_key(&house, "second", &["--quiet"])), first);
    for _ in 0..2 {
        assert_eq!(output(retry_with_key(&house, "second", &["--quiet"])), first);
        assert_eq!(output(retry_with_key(&house, "first", &["--from", "work"])), first);
    }
    assert_eq!(messages(&house, "tour-retry").len(), 2);
    assert_eq!(messages(&house, "hold").len(), 2);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_retry_with_a_key_that_was_used_for_something_else_is_refused() {
    let house = failed_once();
    // These runs fail, because the recording has no turns for them.
    let sent = house.send_text(&request(6), &["--key", "sent"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    let beside = house.send_text(&request(7), &["--thread", "sess-toured00", "--key", "beside"]);
    assert_eq!(beside.code, Some(1), "{beside:?}");
    let retried = retry_with_key(&house, "again", &["--from", "work", "--quiet"]);
    assert_eq!(retried.code, Some(1), "{retried:?}");

    for (key, options) in [
        ("sent", &["--quiet"][..]),
        ("beside", &["--quiet"]),
        ("again", &["--quiet"]),
        ("again", &["--from", "verdict", "--quiet"]),
    ] {
        let refused = retry_with_key(&house, key, options);
        assert_eq!(refused.code, Some(65), "{key}: {refused:?}");
        assert!(refused.err.contains("key-reused"), "{key}: {refused:?}");
    }
    assert_eq!(messages(&house, "tour-retry").len(), 1);

    // The result of that retry is not the result of a later run.
    let later = house.send_text(&request(8), &["--thread", "sess-toured00"]);
    assert_eq!(later.code, Some(1), "{later:?}");
    let refused = retry_with_key(&house, "again", &["--from", "work", "--quiet"]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    house.verified();
}

#[test]
fn a_retry_with_an_expired_key_is_a_new_one() {
    let config =
        with_workflow(FAILING).replace("[clients.desk]", "[clients.desk]\nkeys_for = \"1h\"");
    let house = failed_once();
    house.write("organism.toml", config);
    let retried = retry_with_key(&house, "daily", &["--from", "work", "--quiet"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    // The command cannot know whether such a key has expired, so it never repeats that retry.
    let repeated = retry_with_key(&house, "daily", &["--from", "work", "--quiet"]);
    assert_eq!(repeated.code, Some(65), "{repeated:?}");
    assert!(repeated.err.contains("key-reused"), "{repeated:?}");
    assert_eq!(messages(&house, "tour-retry").len(), 1);

    // Ten hours later.
    house.write("skew", "36000000000");
    let later =
        ["workflow", "retry", "sess-toured00", "--key", "daily", "--from", "work", "--quiet"];
    let later = house.command(&later).env("ORGANISM_CLOCK_SKEW", house.path("skew")).output();
    let later = CommandOutput::from(later.unwrap());
    // Its last goal fails, because the recording has no further turn.
    assert_eq!(later.code, Some(1), "{later:?}");
    let retries = payloads(&house, "tour-retry");
    assert_eq!(retries.len(), 2);
    assert_ne!(retries[0], retries[1], "the new retry names the latest run");
    house.verified();
}

#[test]
fn a_key_of_a_retry_in_the_history_of_a_fork_belongs_to_the_source() {
    let house = failed_once();
    let retried = retry_with_key(&house, "first", &["--quiet"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let output = messages(&house, "tour-output").pop().unwrap();
    let forked = house.organism(&["fork", output["id"].as_str().unwrap(), "--json"]);
    assert_eq!(forked.code, Some(0), "{forked:?}");
    let fork = forked.json()[0]["fork"].as_str().unwrap().to_owned();

    let refused = house.organism(&["workflow", "retry", &fork, "--key", "first", "--quiet"]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.err.contains("key-reused"), "{refused:?}");
    assert_eq!(messages(&house, "tour-retry").len(), 1);
    house.verified();
}

#[test]
fn an_open_run_and_a_run_of_another_thread_are_not_retried() {
    let house = house(&with_workflow(FAILING));
    let running = house.run();
    house.send_text(&request(5), &["--new", "sess-toured00", "--no-wait"]);
    until("the unit is under way", || (messages(&house, "hold").len() == 1).then_some(()));
    let open = house.organism(&["workflow", "retry", "sess-toured00"]);
    assert!(open.out.contains("<code>run-not-ended</code>"), "{open:?}");
    assert_eq!(open.code, Some(1));
    let run = messages(&house, "tour").pop().unwrap();
    let other = format!(
        "<tour-retry xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\" run=\"{}\"/>",
        run["id"].as_str().unwrap()
    );
    let other = house.send_text(&other, &[]);
    assert!(other.out.contains("<code>unknown-run</code>"), "{other:?}");
    house.write("let-go", "");
    until("the run ends", || payloads(&house, "tour-failed").len().eq(&3).then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_difference_shows_settings_and_what_it_means_for_runs_under_way() {
    let house = house(&with_workflow(DEFINITION));
    left_open(&house, 1);
    let edited = DEFINITION
        .replace("[\"writer\", \"critic\"]", "[\"writer\"]")
        .replace("views/critic", "views/writer")
        .replace("Outline {{input/topic}}.", "Outline {{input/topic}}\\nin one line.");
    house.write("other.toml", with_workflow(&edited));
    let run = threads_of(&house, "run-definition").pop().unwrap();
    let run = run.as_str();
    for before in ["organism.toml", run] {
        let diff = house.organism(&["workflow", "diff", before, "other.toml"]);
        assert_eq!(diff.code, Some(0), "{diff:?}");
        for line in [
            "tour: changed\n",
            "  ~ goal[outline]/agent[writer]/prompt\n      - Outline {{input/topic}}.\n      + \
             Outline {{input/topic}}\n      + in one line.\n",
            "  - goal[views]/all/agent[critic]",
            "in runs under way, `views` is refused from then on: `critic` is no peer any more\n",
        ] {
            assert!(diff.out.contains(line), "no {line} in {diff:?}");
        }
    }

    let same = house.organism(&["workflow", "diff", run, "organism.toml"]);
    assert_eq!(same.out, "tour: unchanged\n", "{same:?}");
    house.write("other.toml", without_workflow());
    let removed = house.organism(&["workflow", "diff", "organism.toml", "other.toml", "--json"]);
    let lines = removed.json();
    assert_eq!(lines[0]["state"], "removed", "{removed:?}");
    let unknown = house.organism(&["workflow", "diff", "sess-nothing0", "other.toml"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    house.verified();
}
