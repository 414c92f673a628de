//! Workflows whose agents delegate to roles, run by the real command.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::bookings::{booking_listeners, copy_booker, ledger};
use super::workflow::messages;
use super::workflow_reviews::{KilledRun, dies_and_ends_alike};
use super::{CommandOutput, House};

const CONFIG: &str = r#"
organism.name = "talk"
clients.desk.peers = ["research"]
models.voice = { provider = "playback", recording = "recording.toml" }
agents.lead = { model = "voice", transport = "xml", max_actions_per_turn = 3 }
agents.specialist = { model = "voice", transport = "xml" }

[workflows.research]
input = { question = "text" }

[workflows.research.goals]
report = { agent = "lead", roles = { agent = "specialist", max = 2 }, prompt = "Answer: {{input/question}}" }
"#;

const REQUEST: &str = "<research xmlns=\"https://xml-pipeline.org/ns/workflow/v1/research\">\
                       <question>Why?</question></research>";

fn delegate(role: &str, task: &str) -> String {
    format!("<delegate role=\"{role}\">{task}</delegate>")
}

/// A recording of these turns: agent, thread and text.
pub fn recording(turns: &[(&str, &str, &str)]) -> String {
    let mut out =
        "recorded = \"written by hand; no model is called\"\nmodel = \"recorded\"\n".to_owned();
    for (number, (agent, thread, text)) in turns.iter().enumerate() {
        let is_same =
            |(one, in_thread, _): &&(&str, &str, &str)| one == agent && in_thread == thread;
        let turn = 1 + turns.iter().take(number).filter(is_same).count();
        let text = toml::Value::String((*text).to_owned());
        let _ = write!(
            out,
            "\n[[turn]]\nagent = \"{agent}\"\nthread = \"{thread}\"\nturn = {turn}\ntext = {text}\n"
        );
    }
    out
}

fn house(config: &str, turns: &[(&str, &str, &str)]) -> House {
    let house = House::with(config);
    house.write("recording.toml", recording(turns));
    house
}

fn send(house: &House, more: &[&str]) -> CommandOutput {
    house.send_text(REQUEST, &[&["--new", "sess-delegate"], more].concat())
}

/// For each goal that an agent got: the goal's thread and document. The goals are in the order of
/// the record.
fn documents(house: &House) -> Vec<(String, String)> {
    let goals = messages(house, "goal");
    let document = |goal: &Json| {
        let payload = organism::xml::element::Element::read(goal["payload"].as_str().unwrap());
        (goal["thread"].as_str().unwrap().to_owned(), payload.unwrap().text())
    };
    goals.iter().map(document).collect()
}

fn output(text: &str) -> String {
    format!(
        "<research-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/research\">{text}\
         </research-output>\n"
    )
}

const TASK: &str = "Does a replay keep the recorded sender?";

// C5
#[test]
fn an_agent_delegates_and_gets_the_answers_of_the_roles() {
    let both = format!(
        "{}\n{}",
        delegate("replay reader", TASK),
        delegate("&quot;NATS&quot; &#10;reader", "Is a &lt; b &amp; &lt;/task> here?")
    );
    let house = house(
        CONFIG,
        &[
            ("lead", "report", &both),
            ("specialist", "report.specialist_1", "It keeps </delegate-output> the sender."),
            ("specialist", "report.specialist_2", "Yes."),
            ("lead", "report", "Both hold."),
        ],
    );
    let sent = send(&house, &[]);
    assert_eq!(sent.out, output("Both hold."), "{sent:?}");

    let documents = documents(&house);
    let of = |thread: &str| {
        let thread = format!("sess-delegate.report.{thread}");
        documents.iter().find(|(one, _)| *one == thread).map(|(_, text)| text.as_str()).unwrap()
    };
    let golden = include_str!("../../data/workflow/research.documents");
    let (_, golden) = golden.split_once("== delegated by report\n").unwrap();
    assert_eq!(format!("{}\n", of("specialist_1")), golden);
    expect_test::expect![[r#"
        <task role="&quot;NATS&quot; reader" parent-goal="report">
        Is a &lt; b &amp; &lt;/task&gt; here?
        </task>"#]]
    .assert_eq(of("specialist_2"));

    let answers = messages(&house, "delegate-output");
    let answers: Vec<_> = answers.iter().map(|one| one["payload"].as_str().unwrap()).collect();
    let first = "<delegate-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1\" role=\"replay \
                 reader\">It keeps &lt;/delegate-output&gt; the sender.</delegate-output>";
    assert!(answers.contains(&first), "{answers:?}");
    house.verified();
}

#[test]
fn a_goal_delegates_no_more_often_than_its_workflow_allows() {
    let one = delegate("reader", TASK);
    let both = format!("{one}\n{one}");
    let house = house(
        CONFIG,
        &[
            ("lead", "report", &both),
            ("specialist", "report.specialist_1", "One."),
            ("specialist", "report.specialist_2", "Two."),
            ("lead", "report", &one),
            ("lead", "report", "Enough."),
        ],
    );
    let sent = send(&house, &[]);
    assert_eq!(sent.out, output("Enough."), "{sent:?}");
    let huhs = messages(&house, "huh");
    assert_eq!(huhs.len(), 1, "{huhs:?}");
    let huh = huhs[0]["payload"].as_str().unwrap();
    assert!(huh.contains("code=\"delegations-spent\""), "{huh}");
    assert!(huh.contains("has used 2 delegations"), "{huh}");
    assert_eq!(documents(&house).len(), 3);
    house.verified();
}

#[test]
fn a_role_that_is_not_named_is_refused_with_those_that_are() {
    let config = CONFIG.replace("max = 2", "max = 2, names = [\"gate reader\", \"B & C\"]");
    let house = house(
        &config,
        &[
            ("lead", "report", &delegate("gate raeder", TASK)),
            ("lead", "report", &delegate("B &amp; C", "  ")),
            ("lead", "report", &delegate("B &amp; C", TASK)),
            ("specialist", "report.specialist_1", "Found."),
            ("lead", "report", "Done."),
        ],
    );
    let sent = send(&house, &[]);
    assert_eq!(sent.out, output("Done."), "{sent:?}");
    let huhs = messages(&house, "huh");
    let huhs: Vec<_> = huhs.iter().map(|huh| huh["payload"].as_str().unwrap()).collect();
    assert_eq!(huhs.len(), 2, "{huhs:?}");
    assert!(huhs.iter().all(|huh| huh.contains("code=\"schema-invalid\"")), "{huhs:?}");
    assert!(huhs[0].contains("gate reader"), "{huhs:?}");
    let documents = documents(&house);
    assert!(documents[1].1.starts_with("<task role=\"B &amp; C\" "), "{documents:?}");
    house.verified();
}

#[test]
fn a_task_is_delegated_only_as_deep_as_its_workflow_allows() {
    let inner = delegate("helper", "Read a part.");
    let turns = [
        ("lead", "report", delegate("reader", TASK)),
        ("specialist", "report.specialist_1", inner.clone()),
        ("specialist", "report.specialist_1.specialist_1", inner.clone()),
        ("specialist", "report.specialist_1", "Read.".to_owned()),
        ("lead", "report", "Done.".to_owned()),
    ];
    let turns: Vec<_> =
        turns.iter().map(|(agent, thread, text)| (*agent, *thread, &**text)).collect();
    let config = CONFIG.replace("max = 2", "max = 5, depth = 2");
    let house = house(&config, &turns);
    let sent = send(&house, &[]);
    assert_eq!(sent.out, output("Done."), "{sent:?}");
    let documents = documents(&house);
    assert_eq!(documents.len(), 3, "{documents:?}");
    let deepest = "<task role=\"helper\" parent-goal=\"report\">\nRead a part.\n</task>";
    assert_eq!(documents[2].1, deepest);
    // At the last level it is no action any more, and so the text of the answer.
    let answers = messages(&house, "delegate-output");
    assert!(answers[0]["payload"].as_str().unwrap().contains("&lt;delegate role="), "{answers:?}");
    house.verified();

    let namespace = "https://xml-pipeline.org/ns/workflow/v1/research/roles/report";
    let named = inner.replace("<delegate ", &format!("<delegate xmlns=\"{namespace}\" "));
    let turns = [
        turns[0],
        ("specialist", "report.specialist_1", &*named),
        ("specialist", "report.specialist_1", "Read."),
        turns[4],
    ];
    let house = self::house(CONFIG, &turns);
    let sent = send(&house, &[]);
    assert_eq!(sent.out, output("Done."), "{sent:?}");
    let refused = messages(&house, "huh");
    assert!(refused[0]["payload"].as_str().unwrap().contains("not-in-vocabulary"), "{refused:?}");
    house.verified();
}

#[test]
fn a_role_that_fails_tells_the_agent_that_delegated() {
    let config = CONFIG.replace(
        "agents.specialist = { model = \"voice\",",
        "agents.specialist = { model = \"voice\", max_iterations = 1,",
    );
    let house = house(
        &config,
        &[
            ("lead", "report", &delegate("reader", TASK)),
            ("specialist", "report.specialist_1", " "),
            ("lead", "report", "Without it."),
        ],
    );
    let sent = send(&house, &[]);
    assert_eq!(sent.out, output("Without it."), "{sent:?}");
    let failed = messages(&house, "delegate-failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    let failed = failed[0]["payload"].as_str().unwrap();
    assert!(failed.contains("<code>iterations-spent</code>"), "{failed}");
    house.verified();
}

const STUDY: &str = r#"
[workflows.research]
input = { question = ["text"] }

[workflows.research.goals]
study = { each = "input/question", agent = "lead", roles = { agent = "specialist", max = 1 }, retry = 1, supervisor = "judge", corrections = 1, prompt = "Answer: {{item}}" }
"#;

/// A house with a run of two items. The first item is corrected, and the second item runs again
/// after a failure. Each time an item runs, the agent `lead` delegates a task to `specialist`.
fn study() -> House {
    let (config, _) = CONFIG.split_once("[workflows.research]").unwrap();
    let judge = "agents.judge = { model = \"voice\", transport = \"xml\" }\n";
    let config =
        config.replace("max_actions_per_turn = 3", "max_actions_per_turn = 3, max_iterations = 3");
    let one = delegate("reader", TASK);
    let verdict = |decision: &str| {
        format!("<verdict><decision>{decision}</decision><text>More.</text></verdict>")
    };
    let (go_on, correct) = (verdict("continue"), verdict("correct"));
    house(
        &format!("{config}{judge}{STUDY}"),
        &[
            ("lead", "study_1", &one),
            ("specialist", "study_1.specialist_1", "One."),
            ("lead", "study_1", "First."),
            ("judge", "study_1_supervisor", &correct),
            ("lead", "study_1-1", &one),
            ("specialist", "study_1-1.specialist_1", "One more."),
            ("lead", "study_1-1", "First, corrected."),
            ("judge", "study_1_supervisor-1", &go_on),
            ("lead", "study_2", &one),
            ("specialist", "study_2.specialist_1", "Two."),
            ("lead", "study_2", &one),
            ("lead", "study_2", &one),
            ("lead", "study_2-1", &one),
            ("specialist", "study_2-1.specialist_1", "Two again."),
            ("lead", "study_2-1", "Second."),
            ("judge", "study_2_supervisor", &go_on),
        ],
    )
}

fn send_study(house: &House, more: &[&str]) -> CommandOutput {
    let request = REQUEST.replace("Why?</question>", "Why?</question><question>How?</question>");
    house.send_text(&request, &[&["--new", "sess-delegate"], more].concat())
}

const STUDIED: &str = concat!(
    "<research-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/research\">",
    "<item>First, corrected.</item><item>Second.</item></research-output>\n",
);

#[test]
fn items_retries_and_corrections_delegate_each_on_their_own() {
    let house = study();
    let sent = send_study(&house, &[]);
    assert_eq!(sent.out, STUDIED, "{sent:?}");
    assert_eq!(messages(&house, "delegate-output").len(), 4);
    // Only the second delegation of one run of a goal was one too many.
    let refused = messages(&house, "huh");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["thread"], "sess-delegate.study_2");
    house.verified();
}

#[test]
fn a_run_that_is_killed_beside_a_delegation_resumes_and_ends_alike() {
    let run = KilledRun {
        house: study,
        send: send_study,
        output: STUDIED,
        reply: "research-output",
        goals: 11,
    };
    let steps = [6, 9, 12, 16, 21, 27];
    let deaths = steps.into_iter().filter(|nth| dies_and_ends_alike(&run, *nth)).count();
    assert!(deaths >= 3, "it died {deaths} times before the run was over");
}

const BOOKING: &str = concat!(
    booking_listeners!(),
    r#"
[workflows.research]
input = { question = "text" }
on_failure = "undo"
peers = ["hotel"]

[workflows.research.goals]
report = { agent = "lead", roles = { agent = "specialist", max = 2 }, prompt = "Answer: {{input/question}}" }
pay = { listener = "bank", payload = "charge", with = { n = "'1'" } }
"#
);

#[test]
fn calls_beneath_a_role_are_undone_and_a_role_cannot_hide_them_from_check() {
    let (config, _) = CONFIG.split_once("[workflows.research]").unwrap();
    let config = config.replace(
        "agents.specialist = { model = \"voice\",",
        "agents.specialist = { model = \"voice\", peers = [\"hotel\"],",
    );
    let turns = [
        ("lead", "report", &*delegate("booker", "Book a room.")),
        (
            "specialist",
            "report.specialist_1",
            "<book xmlns=\"urn:example:booking\"><n>7</n></book>",
        ),
        ("specialist", "report.specialist_1", "It is booked."),
        ("lead", "report", "Booked."),
    ];
    let house = house(&format!("{config}{BOOKING}"), &turns);
    copy_booker(&house);
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    assert_eq!(ledger(&house), ["book 7", "charge 1", "cancel 7-1"]);
    house.verified();

    let without = format!("{config}{}", BOOKING.replace("peers = [\"hotel\"]\n", ""));
    house.write("organism.toml", without);
    let checked = house.organism(&["check"]);
    assert_eq!(checked.code, Some(78), "{checked:?}");
    assert!(checked.err.contains("hotel"), "{checked:?}");
}

#[test]
fn a_run_delegates_as_its_definition_says_when_the_config_says_otherwise() {
    let config = format!(
        "{}\nask = {{ ask = \"owner\", prompt = \"Go on?\" }}\nagain = {{ agent = \"lead\", roles = {{ \
         agent = \"specialist\", max = 1 }}, prompt = \"Again.\" }}\n[humans.owner]\ndescription = \
         \"x\"\n",
        CONFIG.trim_end()
    );
    let one = delegate("reader", TASK);
    let turns = [
        ("lead", "report", "First."),
        ("lead", "again", &*one),
        ("specialist", "again.specialist_1", "Found."),
        ("lead", "again", "Second."),
    ];
    let house = house(&config, &turns);
    let running = house.run();
    send(&house, &["--no-wait", "--key", "once"]);
    let question = super::until("the owner is asked", || {
        let listed = house.organism(&["answer", "--json"]).json();
        listed.first().map(|one| one["message"].as_str().unwrap().to_owned())
    });
    assert_eq!(running.stop(), Some(0));

    let edited = config.replace(
        "again = { agent = \"lead\", roles = { agent = \"specialist\", max = 1 },",
        "again = { agent = \"lead\",",
    );
    assert_ne!(edited, config);
    house.write("organism.toml", edited);
    let running = house.run();
    let namespace = "https://xml-pipeline.org/ns/workflow/v1/research/goals";
    house.write(
        "answer.xml",
        format!("<ask xmlns=\"{namespace}\"><decision>continue</decision></ask>"),
    );
    let given = house.organism(&["answer", &question, "answer.xml"]);
    assert_eq!(given.code, Some(0), "{given:?}");
    let sent = send(&house, &["--key", "once"]);
    assert_eq!(sent.out, output("Second."), "{sent:?}");
    assert_eq!(messages(&house, "delegate-output").len(), 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

const PLAIN: &str = r#"
[workflows.plain]
input = { question = "text" }

[workflows.plain.goals]
ask = { ask = "owner", prompt = "Go on?" }
say = { agent = "specialist", prompt = "Say: {{input/question}}" }
"#;

const DELEGATES: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:t:post"><xs:element name="delegate" type="xs:string"/></xs:schema>"#;

/// The recorded definition of an open run clashes with the changed config: its roles need the
/// payload name `delegate`, and the config lets the same agent send `delegate` to a listener. Only
/// the runs of that workflow cannot continue.
#[test]
fn a_recorded_definition_that_clashes_with_the_config_takes_no_other_one_down() {
    let owner = "[humans.owner]\ndescription = \"x\"\n";
    let config = CONFIG.replace("[\"research\"]", "[\"research\", \"plain\"]");
    let asks = "ask = { ask = \"owner\", prompt = \"Go on?\" }\n";
    let before = format!("{}\n{asks}{PLAIN}{owner}", config.trim_end());
    let turns = [("lead", "report", "First."), ("specialist", "say", "Said.")];
    let house = house(&before, &turns);
    let running = house.run();
    send(&house, &["--no-wait"]);
    let request = REQUEST.replace("research", "plain");
    let plain = ["--new", "sess-plainrun", "--key", "once"];
    house.send_text(&request, &[&plain[..], &["--no-wait"]].concat());
    let question = super::until("both runs ask the owner", || {
        let listed = house.organism(&["answer", "--json"]).json();
        let of = listed.iter().find(|one| one["thread"].as_str().unwrap().contains("plainrun"));
        (listed.len() == 2).then(|| of.unwrap()["message"].as_str().unwrap().to_owned())
    });
    assert_eq!(running.stop(), Some(0));

    let without_roles = CONFIG
        .replace(" roles = { agent = \"specialist\", max = 2 },", "")
        .replace("max_actions_per_turn = 3", "peers = [\"post\"]");
    let post = "[listeners.post]\ncommand = [\"./player.pl\", \"echo\"]\nschema = \"post.xsd\"\n\
                accepts = [\"delegate\"]\n";
    house.write("post.xsd", DELEGATES);
    house.write("organism.toml", format!("{}\n{asks}{owner}{post}", without_roles.trim_end()));
    let running = house.run();
    let namespace = "https://xml-pipeline.org/ns/workflow/v1/plain/goals";
    let verdict = format!("<ask xmlns=\"{namespace}\"><decision>continue</decision></ask>");
    house.write("answer.xml", verdict);
    let given = house.organism(&["answer", &question, "answer.xml"]);
    assert_eq!(given.code, Some(0), "{given:?}\n{}", house.log());
    super::until("the run of the other workflow ends", || {
        let ended = messages(&house, "plain-output");
        ended.first().is_some_and(|one| one["payload"].to_string().contains("Said.")).then_some(())
    });
    assert!(house.log().contains("open runs of `research` cannot go on"), "{}", house.log());
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
