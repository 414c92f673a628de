//! Reports of failing cases, and of case files with mistakes.

use super::{ANSWERS, CONFIG, HEAD, assert_fails, case_with, house, tested};

/// A draft of this many lines, each of which is longer than a terminal is wide.
fn long_draft(lines: usize) -> String {
    (1..=lines).map(|line| format!("line {line} {}\\n", "word ".repeat(100))).collect()
}

#[test]
fn a_failing_case_shows_its_whole_evidence_with_full_or_json() {
    let case = case_with("\"A text.\"]", &format!("\"{}\"]", long_draft(20)));
    let house = house(CONFIG, &case);
    let brief = house.organism(&["workflow", "test", "cases.toml"]);
    assert_fails(&brief, &["line 11 ", "characters more; --full shows them"]);
    assert!(!brief.err.contains("line 13 "), "{brief:?}");

    let whole = house.organism(&["workflow", "test", "cases.toml", "--full"]);
    assert_fails(&whole, &["line 20"]);
    assert!(!whole.err.contains("--full"), "{whole:?}");

    let json = house.organism(&["workflow", "test", "cases.toml", "--json"]).json();
    let help = json[0]["problems"][0]["help"].as_str().unwrap();
    assert_eq!(help.matches("word ").count(), 2_000 - 1, "white space around it is left out");
}

#[test]
fn a_difference_late_in_a_line_is_quoted() {
    let line = "word ".repeat(100);
    let case = case_with("\"A text.\"]", &format!("\"{line}here.\"]"));
    let case = case.replace("output = \"A text.\"", &format!("output = \"{line}there.\""));
    let tested =
        house(CONFIG, &case).organism(&["workflow", "test", "cases.toml", "--json"]).json();
    let message = tested[0]["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("word there.`, got `…"), "{message}");
    assert!(message.ends_with("word here.`"), "{message}");
}

#[test]
fn a_call_that_was_not_to_be_is_shown_as_its_document() {
    let case = format!("{HEAD}{ANSWERS}[case.expect]\nnever = [\"draft\"]\n");
    let tested = tested(CONFIG, &case);
    assert_fails(&tested, &["`writer` was called at `draft`", "<current-goal id=\"draft\">"]);
    assert!(!tested.err.contains("&lt;"), "{tested:?}");
}

#[test]
fn a_refused_turn_of_an_agent_says_why_and_what_was_expected() {
    let case = case_with("\"<hold><n>4</n></hold>\", \"A text.\"", "\"<hold><m>4</m></hold>\"");
    let case = case.replace("\"draft/back\" = \"<held><n>4</n></held>\"\n", "");
    let house = house(CONFIG, &case);
    let tested = house.organism(&["workflow", "test", "cases.toml", "--json"]).json();
    let problem = &tested[0]["problems"][0];
    assert_eq!(problem["code"], "answer-refused", "{problem}");
    let message = problem["message"].as_str().unwrap();
    assert!(message.starts_with("the answer at `draft` is refused: "), "{message}");
    assert!(!message.contains("<m>"), "the attempt stands in the file: {message}");
    let help = problem["help"].as_str().unwrap();
    assert!(help.ends_with("\ncorrect it, or add the answer of the next turn"), "{help}");
}

#[test]
fn a_missing_answer_is_proposed_in_its_form() {
    for (line, proposal) in [
        ("tell = \"<pong><n>1</n></pong>\"\n", "add tell = \"<pong>…</pong>\" to [case.answers]"),
        (
            "ask = \"<ask><decision>continue</decision></ask>\"\n",
            "add ask = \"<ask>…</ask>\" to [case.answers], or ask = { fail = \"timeout\" }",
        ),
        (
            "\"draft/back\" = \"<held><n>4</n></held>\"\n",
            "add \"draft/back\" = \"<held>…</held>\" to [case.answers]",
        ),
        (
            "draft = [\"<hold><n>4</n></hold>\", \"A text.\"]\n\"draft/back\" = \"<held><n>4</n></held>\"\n",
            "add draft = \"…\" to [case.answers]",
        ),
    ] {
        let house = house(CONFIG, &case_with(line, ""));
        let tested = house.organism(&["workflow", "test", "cases.toml", "--json"]).json();
        let help = tested[0]["problems"][0]["help"].as_str().unwrap();
        assert!(help.starts_with(proposal), "{help}");
    }
}

#[test]
fn an_input_that_the_workflow_does_not_have_is_named_at_its_place() {
    let case = case_with("input.topic = ", "input.topik = ");
    let tested = tested(CONFIG, &case);
    assert_eq!(tested.code, Some(65), "{tested:?}");
    assert!(tested.err.contains("cases.toml:6:7: unknown-key"), "{tested:?}");
    assert!(tested.err.contains("did you mean `topic`?"), "{tested:?}");
    assert!(tested.err.ends_with("1 problem; nothing was started\n"), "{tested:?}");

    let without = case_with("input.topic = \"light\"\n", "");
    let tested = super::tested(CONFIG, &without);
    assert!(tested.err.contains("missing-key"), "{tested:?}");
    let twice = case_with("input.topic = \"light\"", "input.topic = [\"light\", \"dark\"]");
    let tested = super::tested(CONFIG, &twice);
    assert!(tested.err.contains("it takes one value"), "{tested:?}");
}

#[test]
fn a_wrong_key_does_not_hide_a_wrong_workflow() {
    let case = case_with("workflow = \"tour\"", "workflow = \"tuor\"");
    let tested = tested(CONFIG, &case.replace("[case.expect]", "[case.expct]"));
    assert_eq!(tested.code, Some(65), "{tested:?}");
    assert!(tested.err.contains("did you mean `tour`?"), "{tested:?}");
    assert!(tested.err.contains("did you mean `expect`?"), "{tested:?}");
}
