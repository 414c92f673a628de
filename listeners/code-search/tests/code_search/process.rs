//! Tests of the program through its standard input and output.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use super::tree_path;

/// Returns the answers of the program to the payloads, which are delivered one after another.
fn answers(payloads: &[&str]) -> Vec<String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_code-search"))
        .arg(tree_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();

    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut answers = Vec::new();

    for payload in payloads {
        input.write_all(delivery(payload).as_bytes()).unwrap();
        input.write_all(b"\0").unwrap();

        let mut frame = Vec::new();
        output.read_until(0, &mut frame).unwrap();
        if frame == b"<heartbeat/>\0" {
            frame.clear();
            output.read_until(0, &mut frame).unwrap();
        }
        assert_eq!(frame.pop(), Some(0), "the program ended without an answer");
        let answer = String::from_utf8(frame).unwrap();
        let (_, payloads) = answer.split_once('>').unwrap();
        answers.push(payloads.strip_suffix("</e:answer>").unwrap().to_owned());
    }

    drop(input);
    assert!(child.wait().unwrap().success());
    answers
}

fn delivery(payload: &str) -> String {
    let id = "0197a000-0000-7000-8000-000000000001";
    format!(
        r#"<e:delivery xmlns:e="https://xml-pipeline.org/ns/envelope/v1" listener="search" thread="sess-k3v9t2m8" call="{id}" attempt="1.1" timeout="PT60S"><e:message id="{id}" kind="call" seq="1" new="true"><e:meta><e:from>desk</e:from><e:to>search</e:to><e:thread>sess-k3v9t2m8</e:thread><e:call>{id}</e:call><e:time>2026-11-20T10:00:00Z</e:time></e:meta>{payload}</e:message></e:delivery>"#
    )
}

fn element(name: &str, content: &str) -> String {
    format!(r#"<{name} xmlns="https://xml-pipeline.org/ns/code-search/v1">{content}</{name}>"#)
}

// T3, T14
#[test]
fn search_extract_and_failure_are_answered_as_payloads() {
    let search = element("search", "<query>KEPT_MAX</query><path>src</path>");
    let extract = element("extract", "<file_path>src/view.ts#limit</file_path>");
    let failing = element("extract", "<file_path>../up</file_path>");
    let got = answers(&[&search, &extract, &failing]);
    assert_eq!(
        got[0],
        r#"<search-results xmlns="https://xml-pipeline.org/ns/code-search/v1" total="1" truncated="false"><query>KEPT_MAX</query><match file="src/pool.rs" line="6" column="11">pub const KEPT_MAX: usize = 8;</match></search-results>"#
    );
    assert_eq!(
        got[1],
        "<extract-result xmlns=\"https://xml-pipeline.org/ns/code-search/v1\">\
         <file_path>src/view.ts</file_path><line>12</line><end_line>12</end_line>\
         <symbol>limit</symbol><text>const limit = 5\n</text></extract-result>"
    );
    assert!(got[2].contains("<code>outside-root</code>"), "{}", got[2]);
}

// T7
#[test]
fn values_are_text_decoded_exactly_once() {
    let query = |text: &str| element("search", &format!("<query>{text}</query>"));
    let total = |answer: &String| {
        let (_, rest) = answer.split_once("total=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    };
    let got = answers(&[
        &query("&amp;self"),
        &query("<![CDATA[&mut self]]>"),
        &query("&amp;amp;self"),
        &query(r"    \(\$e, \$e\)"),
        &query("5"),
        &query("<!-- none -->fn fr<![CDATA[ee]]>"),
    ]);
    let totals: Vec<_> = got.iter().map(total).collect();
    assert_eq!(totals, ["2", "1", "0", "1", "1", "1"], "{got:#?}");
}

// T4
#[test]
fn an_optional_value_may_be_written_in_every_form_its_type_has() {
    let tests = r"<query>assert</query><allow_tests>
        1 </allow_tests><path>.</path>";
    let lines = "<line> +2 </line><file_path>docs/guide.md</file_path><end_line>3</end_line>";
    let default = "<query>assert</query><allow_tests/>";
    let beyond = "<file_path>docs/guide.md</file_path><line>99999999999999999999999</line>";
    let got = answers(&[
        &element("search", tests),
        &element("extract", lines),
        &element("search", default),
        &element("extract", beyond),
    ]);
    assert!(got[0].contains("tests/login_test.py"), "{}", got[0]);
    assert!(got[1].contains("<text>\nIntro.\n</text>"), "{}", got[1]);
    assert!(got[2].contains("total=\"0\""), "{}", got[2]);
    assert!(got[3].contains("<code>bad-range</code>"), "{}", got[3]);
}

// T3
#[test]
fn a_query_is_answered_with_the_places_that_have_its_shape() {
    let query = element("query", "<pattern>pub const $NAME: usize = $N;</pattern><path>src</path>");
    let bare = element("query", "<pattern>$$$</pattern>");
    let got = answers(&[&query, &bare]);
    assert!(got[0].starts_with("<query-results ") && got[0].contains("truncated=\"false\""));
    assert!(got[0].contains("<pattern>pub const $NAME: usize = $N;</pattern>"), "{}", got[0]);
    let place = "file=\"src/pool.rs\" line=\"6\" end_line=\"6\">pub const KEPT_MAX: usize = 8;<";
    assert!(got[0].contains(place), "{}", got[0]);
    assert!(got[1].contains("<code>bad-query</code>"), "{}", got[1]);
}
