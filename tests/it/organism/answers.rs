//! `organism answer`: open questions, and the ways to answer them.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value as Json, json};

use super::{CommandOutput, House, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["boss"]

[clients.other]
peers = ["boss"]

[humans.boss]
description = "Decides."
schema = "people.xsd"
accepts = ["question"]
replies = ["decision", "pass"]
"#;

const NS: &str = "urn:example:people";

fn house() -> House {
    let house = House::with(CONFIG);
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    house
}

fn ask(house: &House, text: &str) -> String {
    let question = format!("<question xmlns=\"{NS}\">{text}</question>");
    let sent = house.send_text(&question, &["--no-wait", "--key", text]);
    assert_eq!(sent.code, Some(0), "a question waits for no approval: {sent:?}");
    open(house).last().unwrap()["message"].as_str().unwrap().to_owned()
}

fn open(house: &House) -> Vec<Json> {
    let listed = house.organism(&["answer", "--json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    listed.json()
}

fn result(house: &House, text: &str) -> CommandOutput {
    let question = format!("<question xmlns=\"{NS}\">{text}</question>");
    house.send_text(&question, &["--key", text])
}

/// Runs `organism answer` with these lines on its standard input.
fn answer(house: &House, arguments: &[&str], input: &str) -> CommandOutput {
    let mut command = house.command(&[&["answer"], arguments].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_question_is_listed_and_answered_from_a_file_or_standard_input() {
    let house = house();
    let running = house.run();
    let (first, second) = (ask(&house, "left or right?"), ask(&house, "when?"));
    let listed = house.organism(&["answer"]);
    for part in [&*first, "left or right?", "organism answer", "for      boss", "from     desk"] {
        assert!(listed.out.contains(part), "{part} in {}", listed.out);
    }
    let decision = format!("<decision xmlns=\"{NS}\"><verdict xmlns=\"\">do</verdict></decision>");
    house.write("answer.xml", &decision);
    let answered = house.organism(&["answer", &first, "answer.xml", "--json"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert_eq!(answered.json(), [json!({"message": first, "result": "done"})]);
    let pass = format!("<pass xmlns=\"{NS}\">no idea</pass>");
    assert_eq!(answer(&house, &[&second], &pass).code, Some(0));
    assert_eq!(result(&house, "left or right?").out, format!("{decision}\n"));
    assert_eq!(result(&house, "when?").out, format!("{pass}\n"));
    let again = house.organism(&["answer", &first, "answer.xml", "--json"]);
    assert_eq!(again.code, Some(65), "{again:?}");
    assert_eq!(again.json()[0]["refusal"]["rule"], "not-waiting", "{again:?}");
    let no_form = answer(&house, &[&first, "--form"], "");
    assert_eq!(no_form.code, Some(65), "{no_form:?}");
    assert!(no_form.err.contains("is not an open question"), "{no_form:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn an_answer_that_is_refused_says_why_and_leaves_the_question_open() {
    let house = house();
    let running = house.run();
    let id = ask(&house, "really?");
    let wrong = format!("<decision xmlns=\"{NS}\"><verdict xmlns=\"\">maybe</verdict></decision>");
    let foreign = "<decision xmlns=\"urn:example:other\"/>";
    for text in ["nonsense", foreign, "<decision>"] {
        let refused = answer(&house, &[&id, "-"], text);
        let example = ["expected, for example:", "decision xmlns", "<remark>remark</remark>"];
        assert!(example.iter().all(|part| refused.err.contains(part)), "{refused:?}");
    }
    let rules =
        [(&*wrong, "schema-invalid"), ("nonsense", "not-one-root"), (foreign, "not-in-vocabulary")];
    for (text, rule) in rules {
        let refused = answer(&house, &[&id, "-"], text);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.err.contains(rule), "{refused:?}");
    }
    let refused = answer(&house, &[&id, "-"], "<pass>no idea</pass>");
    let hint = "is pass, without a namespace (xmlns); write one of these, nearest first:";
    assert!(refused.err.contains(&format!("{hint}\n  {{{NS}}}pass\n")), "{refused:?}");
    let [reason, example, names] = ["refused: ", "for example:", "write one of these"]
        .map(|part| refused.err.find(part).unwrap());
    assert!(reason < example, "{refused:?}");
    assert!(example < names, "{refused:?}");
    let as_json = answer(&house, &[&id, "-", "--json"], "<pass>no idea</pass>");
    assert_eq!(as_json.json()[0]["result"], "refused", "{as_json:?}");
    assert!(!as_json.err.contains("nearest first"), "{as_json:?}");
    let begun = answer(&house, &[&id[..id.len() - 1], "-"], "nonsense");
    assert_eq!(begun.code, Some(65), "the beginning of an id is enough: {begun:?}");
    assert!(begun.err.contains("not-one-root"), "{begun:?}");
    let approved = house.organism(&["approve", &id[..id.len() - 1]]);
    assert_eq!(approved.code, Some(65), "{approved:?}");
    let command = format!("{id} waits for an answer: `organism answer {id}`");
    assert!(approved.err.contains(&command), "{approved:?}");
    let refused = answer(&house, &[&id, "-", "--json"], "nonsense").json();
    assert_eq!((&refused[0]["message"], &refused[0]["result"]), (&json!(id), &json!("refused")));
    assert_eq!(refused[0]["refusal"]["rule"], "not-one-root");
    assert_eq!(open(&house).len(), 1);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_form_prompts_for_each_field_and_its_payload_passes_the_gate() {
    let house = house();
    let running = house.run();
    let id = ask(&house, "how?");
    let typed = [
        "decide",
        "decision",
        "",
        "maybe",
        "do",
        "3",
        "first <remark>",
        "second",
        "",
        "yes",
        "EUR",
        "9.50",
        "yes",
    ];
    let filled = answer(&house, &[&id, "--form"], &(typed.join("\n") + "\n"));
    assert_eq!(filled.code, Some(0), "{filled:?}");
    for said in [
        "decision: What is to be done.",
        "decision / verdict (one of do, leave)",
        "this is not one of the choices",
        "decision / days (whole number from 1, may be left out)",
        "decision / price / currency (text)",
    ] {
        assert!(filled.err.contains(said), "{said} in {}", filled.err);
    }
    let expected = format!(
        "<decision xmlns=\"{NS}\"><verdict xmlns=\"\">do</verdict><days xmlns=\"\">3</days>\
         <remark xmlns=\"\">first &lt;remark&gt;</remark><remark xmlns=\"\">second</remark>\
         <price xmlns=\"\" currency=\"EUR\">9.50</price></decision>\n"
    );
    assert_eq!(result(&house, "how?").out, expected);

    let id = ask(&house, "again?");
    let cut = answer(&house, &[&id, "--form"], "decision\n\n");
    assert_eq!(cut.code, Some(2), "{cut:?}");
    assert!(cut.err.contains("nothing was sent"), "{cut:?}");
    assert_eq!(open(&house).len(), 1);
    assert_eq!(running.stop(), Some(0));
}

/// During a pause, no time counts for a question. The list of questions then shows no time limit,
/// although one is on record.
#[test]
fn a_paused_question_has_no_limit_that_passes() {
    let house = House::with(&CONFIG.replace("replies =", "timeout = \"1h\"\nreplies ="));
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    let running = house.run();
    ask(&house, "how long?");
    assert!(open(&house)[0]["until"].is_string());

    assert_eq!(house.organism(&["pause", "boss"]).code, Some(0));
    assert!(open(&house)[0]["until"].is_null(), "the pump moves the limit");
    assert_eq!(running.stop(), Some(0));
    assert!(open(&house)[0]["until"].is_null(), "the record of the pause is read");

    let running = house.run();
    assert_eq!(house.organism(&["resume", "boss"]).code, Some(0));
    assert!(open(&house)[0]["until"].is_string());
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_question_survives_a_kill_and_its_answer_reaches_the_repeated_request() {
    let house = house();
    let mut running = house.run();
    let id = ask(&house, "still there?");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let running = house.run();
    assert_eq!(open(&house)[0]["message"], *id);
    let pass = format!("<pass xmlns=\"{NS}\">yes</pass>");
    assert_eq!(answer(&house, &[&id, "-"], &pass).code, Some(0));
    assert_eq!(result(&house, "still there?").out, format!("{pass}\n"));
    let declined = ask(&house, "and now?");
    let said = house.organism(&["refuse", &declined, "--reason", "ask me tomorrow"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    until("it is told", || result(&house, "and now?").out.contains("denied").then_some(()));
    assert_eq!(running.stop(), Some(0), "an open or answered question holds up no stop");
    house.verified();
}

#[test]
fn a_client_whose_questions_wait_is_busy_and_another_client_is_served() {
    let house = House::with(&format!("{CONFIG}backlog = 2\n"));
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    let running = house.run();
    ask(&house, "first");
    ask(&house, "second");

    let question = format!("<question xmlns=\"{NS}\">third</question>");
    let busy = house.send_text(&question, &["--no-wait"]);
    assert_eq!(busy.code, Some(75), "{busy:?}");
    assert!(busy.err.contains("2 of your calls to boss wait for a person"), "{busy:?}");

    house.write("question.xml", &question);
    let other = house.organism(&["send", "question.xml", "--as", "other", "--no-wait"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(running.stop(), Some(0));
}
