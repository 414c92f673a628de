//! Runs of workflows in a whole organism, with recorded agents.

use serde_json::Value as Json;

use super::kill::{start, torture};
use super::{CommandOutput, House, until};

const CONFIG: &str = include_str!("../../data/organism/tour.toml");

/// The request of a run with these units of work.
fn request(units: &[u32]) -> String {
    let units: String = units.iter().map(|unit| format!("<unit>{unit}</unit>")).collect();
    format!(
        "<tour xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\"><topic>light</topic>{units}\
         </tour>"
    )
}

const OUTPUT: &str = concat!(
    "<tour-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\">",
    "<text>A second text, with &lt;/current-goal&gt; in it.</text>",
    "<units>",
    "<worked xmlns=\"urn:example:talk\"><n>3</n></worked>",
    "<worked xmlns=\"urn:example:talk\"><n>1</n></worked>",
    "<worked xmlns=\"urn:example:talk\"><n>2</n></worked>",
    "</units>",
    "<side>It is thin.</side><note>Units done.</note></tour-output>\n",
);

fn house(config: &str) -> House {
    let house = House::with(config);
    house.copy("tour-recording.toml");
    house
}

/// Recorded messages with this local name, as `organism export` shows them.
pub fn messages(house: &House, name: &str) -> Vec<Json> {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let is_named = |line: &Json| {
        let named = line["name"].as_str().and_then(|name| name.rsplit('}').next());
        line["type"] == "message" && named == Some(name)
    };
    exported.into_iter().filter(is_named).collect()
}

fn send(house: &House, units: &[u32], more: &[&str]) -> CommandOutput {
    house.send_text(&request(units), &[&["--new", "sess-toured00"], more].concat())
}

// C6
#[test]
fn a_run_carries_out_its_goals_and_replies_with_its_output() {
    let house = house(CONFIG);
    let sent = send(&house, &[3, 1, 2], &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(sent.out, OUTPUT);
    // Seven goals of agents, and three units, each in a separate thread.
    assert_eq!(messages(&house, "goal").len(), 8);
    assert_eq!(messages(&house, "thread-spawned").len(), 11);
    assert_eq!(messages(&house, "thread-result").len(), 11);
    house.verified();
}

#[test]
fn a_goal_holds_the_document_of_the_run() {
    let house = house(CONFIG);
    send(&house, &[1], &[]);
    let goals = messages(&house, "goal");
    let last = goals.iter().find(|goal| goal["thread"] == "sess-toured00.critique_2").unwrap();
    let payload = last["payload"].as_str().unwrap();
    let goal = organism::xml::element::Element::read(payload).unwrap();
    expect_test::expect![[r#"
        <workflow name="tour">

        <context>
          <iteration n="1">
            <goal id="draft">
        A first text.
            </goal>
          </iteration>

          <iteration n="2">
            <goal id="draft">
        A second text, with &lt;/current-goal&gt; in it.
            </goal>
          </iteration>
        </context>

        <current-goal id="critique" loop="improve" iteration="2">
        Judge the draft. End with PUBLISH or REVISE.
        </current-goal>

        </workflow>"#]]
    .assert_eq(&goal.text());
}

#[test]
fn a_goal_starts_as_many_items_at_once_as_its_concurrency_allows() {
    let house = House::with(
        r#"
[organism]
name = "talk"

[clients.desk]
peers = ["wide"]

[limits]
children = 2000
threads = 2000

[listeners.back]
command = ["./player.pl", "back"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]

[workflows.wide]
input = { unit = ["integer"] }
output = "'done'"

[workflows.wide.goals]
work = { each = "input/unit", listener = "back", with = { n = "item" }, max_items = 1000, concurrency = 1000 }
"#,
    );
    let mut running = start(&house, None);
    let paused = until("it runs", || {
        Some(house.organism(&["pause", "back"])).filter(|paused| paused.code == Some(0))
    });
    assert!(paused.err.contains("paused"), "{paused:?}");
    let units: String = (1..=1000).map(|unit| format!("<unit>{unit}</unit>")).collect();
    let wide =
        format!("<wide xmlns=\"https://xml-pipeline.org/ns/workflow/v1/wide\">{units}</wide>");
    let sent = house.send_text(&wide, &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("all items are begun", || (messages(&house, "work").len() == 1000).then_some(()));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

#[test]
fn a_run_whose_goal_fails_replies_with_goal_code_and_reason() {
    let config = CONFIG.replace("max = 3", "max = 1");
    let house = house(&config);
    let sent = send(&house, &[], &[]);
    let expected = "<tour-failed xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\">\
                    <goal>improve</goal><code>iterations-spent</code>\
                    <reason>its condition did not hold after 1 passes</reason></tour-failed>\n";
    assert_eq!(sent.out, expected, "{sent:?}");
    house.verified();
}

#[test]
fn a_run_whose_reply_is_larger_than_a_payload_may_be_fails_as_too_large() {
    let limited = CONFIG.replace(
        "output = { text = \"draft\"",
        "output = { topic = \"input/topic\", again = \"input/topic\", text = \"draft\"",
    );
    let house = house(&format!("{limited}\n[limits]\npayload_bytes = 4000\n"));
    let request = request(&[1]).replace("light", &"light ".repeat(400));
    let sent = house.send_text(&request, &["--new", "sess-toured00"]);
    assert!(sent.out.starts_with("<tour-failed"), "{sent:?}");
    assert!(sent.out.contains("<code>too-large</code>"), "{sent:?}");
    assert!(sent.out.contains("the reply of the run was refused: "), "{sent:?}");
    // The goals have run once.
    assert_eq!(messages(&house, "goal").len(), 8);
    house.verified();
}

#[test]
fn a_goal_without_an_answer_fails_the_run_after_its_retries() {
    // The recording has no turn for an `outline` of another name, so its model call fails.
    let config = CONFIG.replace("outline = { agent", "plan = { retry = 2, agent");
    let house = house(&config.replace("needs = [\"outline\"]", "needs = [\"plan\"]"));
    let sent = send(&house, &[], &[]);
    assert!(sent.out.contains("<goal>plan</goal>"), "{sent:?}");
    let threads: Vec<_> = messages(&house, "goal");
    assert_eq!(threads.len(), 3, "{threads:?}");
    house.verified();
}

#[test]
fn a_cancelled_run_leaves_no_goal_under_way() {
    let house = house(&with_held_units());
    let running = house.run();
    let sent = send(&house, &[1, 2, 3], &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("both units are under way", || (messages(&house, "hold").len() == 2).then_some(()));
    let cancelled = house.organism(&["cancel", "sess-toured00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    house.write("let-go", "");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(messages(&house, "hold").len(), 2);
    assert_eq!(messages(&house, "tour-output").len(), 0);
    house.verified();
}

/// The config of the workflow `tour`, with a listener that never finishes a unit of work.
fn with_held_units() -> String {
    let config = CONFIG.replace("player.pl\", \"back\"", "player.pl\", \"back\", \"let-go\"");
    let hold = config.replace("accepts = [\"work\"]", "accepts = [\"hold\"]");
    hold.replace("replies = [\"worked\"]", "replies = [\"held\"]")
}

#[test]
fn a_goal_that_times_out_follows_its_policy() {
    let limited = "work = { timeout = \"300ms\", on_item_failure = \"collect\", needs";
    let house = house(&with_held_units().replace("work = { needs", limited));
    let sent = send(&house, &[1, 2], &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let expected = OUTPUT.split("<units>").next().unwrap();
    assert_eq!(sent.out.split("<side>").next(), Some(expected), "{sent:?}");
    let failed = messages(&house, "thread-result");
    let timed_out = failed.iter().filter(|result| {
        let payload = result["payload"].as_str().unwrap();
        payload.contains("status=\"failed\"") && payload.contains("code=\"timeout\"")
    });
    assert_eq!(timed_out.count(), 2, "{failed:?}");
    house.verified();
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let limited = with_held_units().replace("output = { text", "timeout = \"1s\"\noutput = { text");
    let house = house(&limited);
    let sent = send(&house, &[1, 2], &[]);
    // Which goals were done by then depends on the machine.
    let expected = "</goal><code>timeout</code><reason>the time of the run, 1 s, is over</reason>";
    assert!(sent.out.contains(expected), "{sent:?}");
    house.verified();
}

#[test]
fn a_goal_that_has_used_its_tokens_fails_and_is_not_retried() {
    let house =
        house(&CONFIG.replace("outline = { agent", "outline = { retry = 2, tokens = 3, agent"));
    let sent = send(&house, &[], &[]);
    assert!(sent.out.contains("<goal>outline</goal><code>budget-spent</code>"), "{sent:?}");
    assert_eq!(messages(&house, "goal").len(), 1);
    house.verified();
}

#[test]
fn a_run_that_has_used_its_tokens_fails_its_goals() {
    let limited = CONFIG.replace("output = { text", "tokens = 3\noutput = { text");
    let house = house(&limited);
    let sent = send(&house, &[], &[]);
    assert!(sent.out.contains("<goal>outline</goal><code>budget-spent</code>"), "{sent:?}");
    assert!(sent.out.contains("this run of tour"), "{sent:?}");
    house.verified();
}

#[test]
fn two_hundred_items_that_all_fail_are_collected_and_the_run_goes_on() {
    let failing = CONFIG.replace(
        "with = { n = \"item\" }, concurrency = 2",
        "with = { n = \"item\" }, max_items = 200, on_item_failure = \"collect\"",
    );
    let house = house(&format!("{failing}\n[limits]\nchildren = 300\n"));
    let schema = std::fs::read_to_string(house.path("talk.xsd")).unwrap();
    let schema = schema.replace("xs:token", "xs:negativeInteger");
    house.write("talk.xsd", schema);
    let units: Vec<_> = (1..=200).collect();
    let sent = send(&house, &units, &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.out.contains("<note>Units done.</note>"), "{sent:?}");
    // The gate refuses each of these calls with its thread.
    assert_eq!(messages(&house, "huh").len(), 200);
    assert_eq!(messages(&house, "thread-spawned").len(), 8);
    house.verified();
}

#[test]
fn a_run_that_exceeds_a_limit_of_its_tree_fails_with_the_limits_name() {
    let house = house(&format!("{CONFIG}\n[limits]\nchildren = 3\n"));
    let checked = house.organism(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.err.contains("`children` in [limits] is 3"), "{checked:?}");
    let sent = send(&house, &[1, 2], &[]);
    assert!(sent.out.contains("<code>limit-reached</code>"), "{sent:?}");
    assert!(sent.out.contains("a thread may have at most 3 children"), "{sent:?}");
    house.verified();
}

/// Kills the organism at the `nth` pass of a failpoint, and starts it again. Asserts that the run
/// ends as it would without a kill. Returns whether the organism died before the run was over.
fn dies_and_ends_alike(place: &str, nth: u32) -> bool {
    let house = house(CONFIG);
    let mut running = start(&house, Some(&format!("{place}:{nth}")));
    until("the organism is ready or gone", || {
        let is_gone = running.child.try_wait().unwrap().is_some();
        (is_gone || house.log().contains("is ready")).then_some(())
    });
    let first = send(&house, &[3, 1, 2], &["--key", "once", "--no-wait"]);
    let died = first.code != Some(0)
        || until("it dies, or the run ends", || {
            let is_gone = running.child.try_wait().unwrap().is_some();
            let is_over = || !messages(&house, "tour-output").is_empty();
            if is_gone { Some(true) } else { is_over().then_some(false) }
        });
    drop(running);
    let again = house.run();
    let sent = send(&house, &[3, 1, 2], &["--key", "once"]);
    assert_eq!(sent.out, OUTPUT, "{place}:{nth}: {sent:?}");
    assert_eq!(again.stop(), Some(0));
    // No goal with an answer ran again in a second thread.
    assert_eq!(messages(&house, "goal").len(), 8, "{place}:{nth}");
    assert_eq!(messages(&house, "thread-spawned").len(), 11, "{place}:{nth}");
    house.verified();
    died
}

#[test]
fn a_killed_run_resumes_from_its_record_and_ends_with_the_same_output() {
    let stepped = [4, 9, 14, 19, 24, 29].map(|nth| ("stepped", nth));
    let delivered = [3, 8, 13].map(|nth| ("after-deliver", nth));
    let places = stepped.into_iter().chain(delivered);
    // A short run leaves out every second place.
    let step = if torture() { 1 } else { 2 };
    let deaths = places.step_by(step).filter(|(place, nth)| dies_and_ends_alike(place, *nth));
    let deaths = deaths.count();
    assert!(deaths >= 3, "it died {deaths} times before the run was over");
}

/// Runs the workflow `tour` with three units from the command line, with the further arguments
/// `more`.
fn run(house: &House, more: &[&str]) -> CommandOutput {
    let inputs = ["topic=light", "unit=3", "unit=1", "unit=2"];
    let inputs = inputs.iter().flat_map(|input| ["--input", input]);
    let base = ["workflow", "run", "tour"].into_iter().chain(inputs);
    house.organism(&base.chain(more.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn the_command_runs_a_workflow_and_shows_its_goals() {
    let house = house(CONFIG);
    let ran = run(&house, &["--new", "sess-toured00"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, OUTPUT);
    assert!(ran.err.contains("run sess-toured00\n"), "{ran:?}");
    let state = |line: &str| ran.err.lines().any(|shown| shown.starts_with(line));
    for line in ["▸ outline  running", "✓ outline  done", "▸ work  running, 1 of 3"] {
        assert!(state(line), "no `{line}` in {ran:?}");
    }
    for line in ["▸   draft  running, pass 2", "✓ improve  done", "✓   note  done"] {
        assert!(state(line), "no `{line}` in {ran:?}");
    }

    let quiet = run(&house, &["--quiet"]);
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (Some(0), OUTPUT, ""));
}

#[test]
fn workflows_are_listed_where_none_is_named() {
    let house = house(CONFIG);
    let listed = house.organism(&["workflow", "show"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let lines: Vec<_> = listed.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let [headers, tour]: &[Vec<_>; 2] = lines[..].try_into().unwrap();
    assert_eq!((&headers[..2], &tour[..2]), (&["workflow", "goals"][..], &["tour", "9"][..]));

    let listed = house.organism(&["workflow", "show", "--json"]).json();
    assert_eq!(listed[0]["workflow"], "tour", "{listed:?}");
    let none = House::new().organism(&["workflow", "show"]);
    assert_eq!((none.code, &*none.out), (Some(0), ""), "{none:?}");
    assert!(none.err.contains("[workflows.NAME]"), "{none:?}");

    let unnamed = house.organism(&["workflow", "show", "--format", "mermaid"]);
    assert_eq!(unnamed.code, Some(2), "{unnamed:?}");
    assert!(unnamed.err.contains("<NAME>"), "{unnamed:?}");
}

#[test]
fn a_loop_ends_in_what_is_shown_after_its_last_goal_and_a_send_exits_as_a_run_does() {
    let house = house(CONFIG);
    let ran = run(&house, &[]);
    let lines: Vec<_> = ran.err.lines().collect();
    let place = |line: &str| lines.iter().rposition(|shown| shown.starts_with(line));
    let inner = place("✓   draft  done").unwrap_or_else(|| panic!("{ran:?}"));
    assert!(Some(inner) < place("✓ improve  done"), "{ran:?}");

    house.write("organism.toml", CONFIG.replace("max = 3", "max = 1"));
    let sent = house.send_text(&request(&[1]), &[]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.out.contains("tour-failed"), "{sent:?}");
}

#[test]
fn the_command_draws_its_goals_on_a_terminal_and_leaves_them_there() {
    let house = house(CONFIG);
    house.write("terminal.py", include_str!("../../data/organism/terminal.py"));
    let args = ["workflow", "run", "tour", "--input", "topic=light", "--input", "unit=1"];
    let (shown, code) = super::terminal::at_terminal(&house, &args, &[]);
    assert_eq!(code, 0, "{shown}");
    // The last drawing is the whole tree.
    let last = shown.rsplit("\u{1b}[J").nth(1).unwrap_or_else(|| panic!("{shown:?}"));
    for line in ["✓ outline  done", "✓   draft  done", "✓ improve  done", " tokens"] {
        assert!(last.contains(line), "no `{line}` in {shown}");
    }
    assert!(shown.contains("A second text"), "{shown}");

    // The docs show the same goals of another workflow.
    let docs = include_str!("../../../docs/WORKFLOWS.md");
    let (_, docs) = docs.split_once("    essay  sess-").unwrap();
    let docs: Vec<_> =
        docs.lines().map(|line| form(line.trim_start()).replace("  N EUR", "")).collect();
    for goal in ["✓ outline  ", "✓   draft  "] {
        let own = last.lines().find(|line| line.starts_with(goal));
        let own = own.unwrap_or_else(|| panic!("no `{goal}` in {last}"));
        // A drawn line ends with a sequence that clears the rest of its row.
        let own = own.split('\u{1b}').next().map(form).unwrap();
        assert!(docs.contains(&own), "no line of the docs is `{own}`");
    }
    let ran = run(&house, &[]);
    let own: Vec<_> = ran.err.lines().map(form).collect();
    for line in ["▸ improve  running, pass N", "▸   draft  running, pass N"] {
        let of_docs = line.replace("draft", "critique");
        assert!(docs.iter().any(|shown| shown.starts_with(&of_docs)), "{of_docs}, {docs:?}");
        assert!(own.iter().any(|shown| shown.starts_with(line)), "{line}, {own:?}");
    }
}

/// Replaces each number in a line by `N`.
fn form(line: &str) -> String {
    let mut form = String::new();
    for char in line.chars() {
        let is_number = char.is_ascii_digit() || (char == '.' && form.ends_with('N'));
        match is_number {
            true if form.ends_with('N') => {}
            true => form.push('N'),
            false => form.push(char),
        }
    }
    form
}

#[test]
fn the_command_writes_goals_and_updates_as_json() {
    let house = house(CONFIG);
    let ran = run(&house, &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = ran.json();
    let is_done = |line: &Json| line["goal"] == "improve" && line["state"] == "done";
    assert!(lines.iter().any(is_done), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!(last["sent"], "result", "{last}");
}

#[test]
fn the_command_prints_text_and_exits_as_a_failed_run_does() {
    let house = house(&CONFIG.replace("output = { text", "output = \"draft\" # { text"));
    let ran = run(&house, &["--quiet"]);
    assert_eq!(ran.out, "A second text, with </current-goal> in it.\n", "{ran:?}");

    house.write("organism.toml", CONFIG.replace("max = 3", "max = 1"));
    let failed = run(&house, &["--quiet"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.out.contains("<code>iterations-spent</code>"), "{failed:?}");

    let missing = house.organism(&["workflow", "run", "tour"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.err.contains("add --input topic=VALUE"), "{missing:?}");

    let dry = ["workflow", "run", "tour", "--dry-run", "--input"];
    let shown = house.organism(&[&dry[..], &["unit=4"]].concat());
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let refused = house.organism(&[&dry[..], &["unit=four"]].concat());
    assert_eq!((refused.code, &*refused.out), (Some(65), ""), "{refused:?}");
    assert!(refused.err.contains("'four' is not a valid value"), "{refused:?}");
}

const OUTER: &str = r#"
[workflows.outer]
input = { topic = "text" }
output = "inner/text"

[workflows.outer.goals]
inner = { workflow = "tour", with = { topic = "input/topic" } }
"#;

#[test]
fn a_workflow_is_called_by_another_one_like_a_listener() {
    let config =
        format!("{}{OUTER}", CONFIG.replace("\"back\"]\n\n[models", "\"outer\"]\n\n[models"));
    let recorded = |house: &House| {
        let text = std::fs::read_to_string(house.path("tour-recording.toml")).unwrap();
        house.write("tour-recording.toml", text.replace("thread = \"", "thread = \"inner."));
    };
    let house = house(&config);
    recorded(&house);
    let request = "<outer xmlns=\"https://xml-pipeline.org/ns/workflow/v1/outer\">\
                   <topic>light</topic></outer>";
    let sent = house.send_text(request, &[]);
    let expected = "<outer-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/outer\">A second \
                    text, with &lt;/current-goal&gt; in it.</outer-output>\n";
    assert_eq!(sent.out, expected, "{sent:?}");

    house.write("organism.toml", config.replace("max = 3", "max = 1"));
    let failed = house.send_text(request, &[]);
    assert!(failed.out.contains("<goal>inner</goal><code>iterations-spent</code>"), "{failed:?}");
    house.verified();
}

#[test]
fn a_payload_that_two_peers_of_a_workflow_accept_is_reported() {
    let twin = "[listeners.twin]\ncommand = [\"./player.pl\", \"back\"]\nschema = \"talk.xsd\"\n\
                accepts = [\"work\"]\nreplies = [\"worked\"]\n\n[workflows.tour]\npeers = [\"twin\"]";
    let house = house(&CONFIG.replace("[workflows.tour]", twin));
    let checked = house.organism(&["check"]);
    assert_eq!(checked.code, Some(78), "{checked:?}");
    assert!(checked.err.contains("`back` and `twin` both accept `work`"), "{checked:?}");
}
