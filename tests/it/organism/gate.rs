//! `organism debug gate`: verdicts of a config's gate, line by line.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value as Json;

use super::{House, TALK, say};

fn batch(house: &House, from: &str, lines: &[u8]) -> Vec<Json> {
    let mut command = house.command(&["debug", "gate", "--config", "organism.toml", "--batch"]);
    command.args(["--from", from]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines).unwrap();
    let said: super::CommandOutput = child.wait_with_output().unwrap().into();
    assert_eq!(said.code, Some(0), "{said:?}");
    said.json()
}

#[test]
fn every_line_of_a_batch_is_answered_with_rule_and_place_whatever_is_wrong_with_it() {
    let house = House::with_orders();
    house.write("good.xml", say("hello"));
    house.write("invalid.xml", format!("<order xmlns=\"{TALK}\"><m/></order>"));
    house.write("cut.xml", format!("<say xmlns=\"{TALK}\">hel"));
    house.write("latin1.xml", b"<say>\xe9</say>");
    house.write("foreign.xml", "<nobody xmlns=\"urn:example:else\"/>");
    let lines = r#"{"id":1,"file":"good.xml"}
{"id":"two","file":"invalid.xml"}
not json
{"id":4}

{"id":5,"file":"absent.xml"}
{"id":6,"file":"cut.xml"}
{"id":7,"file":"latin1.xml"}
{"id":8,"file":"foreign.xml"}
"#;
    let answers = batch(&house, "desk", &[b"\xff\n", lines.as_bytes()].concat());
    let brief = |a: &Json| format!("{} {} {}", a["id"], a["verdict"], a["rule"]).replace('"', "");
    let brief: Vec<String> = answers.iter().map(brief).collect();
    let expected = [
        "null error null",
        "1 accepted null",
        "two refused schema-invalid",
        "null error null",
        "4 error null",
        "5 error null",
        "6 refused not-well-formed",
        "7 refused not-utf8",
        "8 refused not-in-vocabulary",
    ];
    assert_eq!(brief, expected);
    assert_eq!(answers[2]["place"]["path"], "/order/m");
    assert_eq!(
        (&answers[7]["place"]["line"], &answers[7]["place"]["offset"]),
        (&1.into(), &5.into())
    );
}

#[test]
fn the_gate_judges_by_who_it_is_that_sends() {
    let house = House::with_orders();
    house.write("order.xml", super::numbered("order", "1"));
    let line = "{\"id\":1,\"file\":\"order.xml\"}\n";
    let verdict = |from: &str| batch(&house, from, line.as_bytes())[0]["verdict"].clone();
    assert_eq!(["desk", "other", "nobody"].map(verdict), ["accepted", "refused", "refused"]);
}

#[test]
fn every_line_of_a_schema_batch_is_answered() {
    let house = House::with_orders();
    house.write("good.xml", say("hello"));
    house.write("invalid.xml", format!("<order xmlns=\"{TALK}\"><m/></order>"));
    house.write("broken.xsd", "<schema");
    let lines = r#"{"id":1,"schema":"talk.xsd","instance":"good.xml"}
{}
{"id":3,"schema":"talk.xsd","instance":"invalid.xml"}
{"id":4,"schema":"broken.xsd","instance":"good.xml"}
{"id":5,"schema":"talk.xsd","instance":"talk.xsd"}
"#;
    let mut command = house.command(&["schema", "validate", "--batch"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = [b"\xff\n", lines.as_bytes()].concat();
    child.stdin.take().unwrap().write_all(&lines).unwrap();
    let said: super::CommandOutput = child.wait_with_output().unwrap().into();
    let verdicts: Vec<String> = said.json().iter().map(|a| a["verdict"].to_string()).collect();
    let verdicts = verdicts.join(" ").replace('"', "");
    assert_eq!(verdicts, "error valid error invalid schema-refused invalid");
}
