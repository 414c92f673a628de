//! `organism try --judge`: an agent decides whether results that differ mean the same (issue 18,
//! 2.3).

use serde_json::Value as Json;

use super::try_threads::{AGENTS, TURNS, changed, house, json, one, record, trial};
use super::{CommandOutput, House, numbered, say};

/// Config of an agent that judges, and of its model.
const REFEREE: &str = r#"
[agents.referee]
schema = "organism:judge.xsd"
accepts = ["compare-results"]
final = "results-verdict"
model = "verdicts"
transport = "xml"
max_iterations = 2

[models.verdicts]
provider = "playback"
recording = "verdicts.toml"
"#;

fn verdict(equal: &str, reason: &str) -> String {
    format!("<results-verdict><equal>{equal}</equal><reason>{reason}</reason></results-verdict>")
}

/// A house with the record of these requests, a config under which `first` and `second` answer
/// differently, and a judge that gives these verdicts.
fn judged(requests: &[(String, String)], answers: &[&str]) -> House {
    let house = house();
    record(&house, requests);
    let turns = TURNS
        .replace("before {{pong/n}}", "after {{pong/n}}")
        .replace("<done><n>{{pong/n}}</n></done>", "<done><n>1{{pong/n}}</n></done>");
    house.write("changed-turns.toml", turns);
    write_verdicts(&house, answers);
    let mut config = AGENTS
        .replace("turns.toml", "changed-turns.toml")
        .replace("\"third\"]", "\"third\", \"referee\"]");
    for agent in ["first", "second"] {
        config.push_str(&format!("\n[agents.{agent}.prompt]\nidentity = \"You are another.\"\n"));
    }
    house.write("changed.toml", format!("{config}{REFEREE}"));
    house
}

fn write_verdicts(house: &House, answers: &[&str]) {
    let mut turns = "recorded = \"for a test\"\n".to_owned();
    for (turn, answer) in (1..).zip(answers) {
        turns.push_str(&format!(
            "[[turn]]\nagent = \"referee\"\nturn = {turn}\ntext = '{answer}'\n\
             tokens_in = 100\ntokens_out = 10\n"
        ));
    }
    house.write("verdicts.toml", turns);
}

fn tried(house: &House, more: &[&str]) -> CommandOutput {
    let arguments = ["changed.toml", "--threads", "sess-source01", "--judge", "referee"];
    trial(house, &[&arguments[..], more].concat())
}

fn report(house: &House, more: &[&str]) -> (Option<i32>, Json) {
    let output = tried(house, &[more, &["--json"]].concat());
    (output.code, json(&output))
}

#[test]
fn results_that_a_judge_calls_equal_count_as_equal_and_are_shown_to_differ() {
    let requests = [
        ("sess-source01".to_owned(), say("x")),
        ("sess-source02".to_owned(), numbered("hold", "7")),
    ];
    let same = verdict("true", "Only {{compare-results/result/after}} is new.");
    let house = judged(&requests, &[&same]);
    let arguments = ["changed.toml", "--threads", "all", "--judge", "referee"];
    let output = trial(&house, &[&arguments[..], &["--json"]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let report = json(&output);
    assert_eq!(changed(&report, "wording"), ["sess-source01"], "{report:#}");
    assert_eq!(changed(&report, "none"), ["sess-source02"], "{report:#}");
    let judge = &report["threads"][0]["judge"];
    assert_eq!(judge["verdict"], "equal", "{report:#}");
    assert!(judge["reason"].as_str().unwrap().contains("after 2"), "{report:#}");
    assert_eq!(judge["spent"]["tokens"], 110, "{report:#}");
    let result = |side: &str| report["threads"][0][side]["result"].as_str().unwrap().to_owned();
    assert!(result("a").contains("before 2") && result("b").contains("after 2"), "{report:#}");
    assert_eq!(report["threads"][1]["judge"], Json::Null, "its results are equal: {report:#}");
    assert_eq!(report["total"]["wording"], 1);
    assert_eq!(report["total"]["finals"], 0);
    assert_eq!(report["total"]["judge"]["equal"], 1);
    assert_eq!(report["total"]["judge"]["spent"]["tokens"], 110);
    assert_eq!(house.effects(), 2, "no effect happened again");

    let shown = trial(&house, &arguments);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out.contains("wording"), "{shown:?}");
    assert!(shown.out.contains("is new."), "{shown:?}");
    assert!(shown.err.contains("1 with finals that mean the same"), "{shown:?}");
}

#[test]
fn results_that_a_judge_calls_different_or_gives_no_verdict_about_count_as_different() {
    let same_answer = verdict("true", "It is the same.");
    let house = judged(&one(say("x")), &[&verdict("false", "Another word.")]);
    let (code, different) = report(&house, &[]);
    assert_eq!(code, Some(1), "{different:#}");
    assert_eq!(changed(&different, "finals"), ["sess-source01"]);
    assert_eq!(different["threads"][0]["judge"]["verdict"], "different");
    assert_eq!(different["threads"][0]["judge"]["reason"], "Another word.");

    let nonsense = verdict("perhaps", "Who knows?");
    for (answers, reason) in [
        // The judge may correct itself.
        (&[&*nonsense, &same_answer][..], "It is the same."),
        (&[&nonsense, &nonsense], "iterations-spent"),
        (&["They look alike.", "Yes."], "iterations-spent"),
        (&[], "no turn is recorded"),
    ] {
        write_verdicts(&house, answers);
        let (code, judged) = report(&house, &[]);
        let judge = &judged["threads"][0]["judge"];
        assert!(judge["reason"].to_string().contains(reason), "{reason}: {judged:#}");
        let is_equal = judge["verdict"] == "equal";
        assert_eq!(is_equal, reason == "It is the same.", "{judged:#}");
        assert_eq!(judge["verdict"] == "none", !is_equal, "{judged:#}");
        assert_eq!(code, Some(if is_equal { 0 } else { 1 }), "{judged:#}");
        assert_eq!(judged["total"]["judge"]["none"], if is_equal { 0 } else { 1 });
    }
}

/// A judge gives no verdict if the trial has used up its budget, which also covers the judge.
#[test]
fn a_judge_without_the_rest_of_a_budget_gives_no_verdict() {
    let house = judged(&one(say("x")), &[&verdict("true", "It is the same.")]);
    // The run itself takes more than the budget in its last turn.
    let turns = std::fs::read_to_string(house.path("changed-turns.toml")).unwrap();
    let spent = "after {{pong/n}}</said>'\ntokens_in = 200000";
    house.write("changed-turns.toml", turns.replace("after {{pong/n}}</said>'", spent));
    let (code, judged) = report(&house, &["--tokens", "100000"]);
    assert_eq!(code, Some(1), "{judged:#}");
    let judge = &judged["threads"][0]["judge"];
    assert_eq!(judge["verdict"], "none", "{judged:#}");
    assert!(judge["reason"].to_string().contains("budget-spent"), "{judged:#}");
}

/// A fault in place of a reply is given to no judge, because a fault and a reply can never mean the
/// same.
#[test]
fn a_fault_instead_of_a_reply_is_given_to_no_judge() {
    let house = judged(&one(say("x")), &[&verdict("true", "It is the same.")]);
    house.write("changed-turns.toml", "recorded = \"empty\"\n");
    let (code, judged) = report(&house, &[]);
    assert_eq!(code, Some(1), "{judged:#}");
    let judge = &judged["threads"][0]["judge"];
    assert_eq!(judge["thread"], Json::Null, "{judged:#}");
    assert!(judge["reason"].to_string().contains("a fault stands against a reply"), "{judged:#}");
}

/// The judge has a thread in the journal of the trial, and `organism replay` accepts that journal.
#[test]
fn a_judgement_is_a_thread_of_the_trials_journal() {
    let house = judged(&one(say("x")), &[&verdict("true", "It is the same.")]);
    let into = house.path("kept");
    let (code, judged) = report(&house, &["--into", into.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{judged:#}");
    let thread = judged["threads"][0]["judge"]["thread"].as_str().unwrap().to_owned();
    let data = into.join("data");
    let data = data.to_str().unwrap();
    let shown = house.organism(&["thread", &thread, "--full", "--data", data]);
    for part in ["before 2", "after 2", "It is the same."] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    let replayed = house.organism(&["replay", "--data", data]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

#[test]
fn an_agent_that_cannot_judge_is_named_before_anything_runs() {
    let house = judged(&one(say("x")), &[]);
    let config = std::fs::read_to_string(house.path("changed.toml")).unwrap();
    let remote = "[models.verdicts]\nprovider = \"openai\"\nmodel = \"m\"\n\
        base_url = \"http://127.0.0.1:9/v1\"\napi_key_env = \"NO_SUCH_KEY\"\n";
    let (head, _) = config.split_once("[models.verdicts]").unwrap();
    house.write("remote.toml", format!("{head}{remote}"));
    house.write("alone.toml", config.replace(", \"referee\"]", "]"));

    for (file, judge, expected) in [
        ("changed.toml", "referree", "did you mean `referee`?"),
        ("changed.toml", "solo", "it is no agent of this config"),
        ("changed.toml", "first", "set schema = \"organism:judge.xsd\""),
        ("alone.toml", "referee", "no client of this config may call it"),
        ("remote.toml", "referee", "add --tokens or --money"),
    ] {
        let wrong = trial(&house, &[file, "--threads", "all", "--judge", judge]);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.err.contains(expected), "{wrong:?}");
    }
}
