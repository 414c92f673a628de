//! `organism listener test`, run as a listener author runs it.

use std::process::Command;

use super::harness::{repository, script};
use crate::nats::shared;

/// Runs the conformance kit. Returns the exit code, the checklist and the text on standard error.
fn test(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(["listener", "test"]).args(arguments).current_dir(repository());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const SCHEMA: &str = "listeners/shell-echo/schema/shell-echo.xsd";

fn request() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let say = "<say xmlns=\"https://xml-pipeline.org/ns/shell-echo/v1\"><text>hi</text></say>";
    std::fs::write(file.path(), say).unwrap();
    file
}

#[test]
fn the_shell_listener_keeps_to_the_protocol() {
    let program = "listeners/shell-echo/shell-echo";
    let arguments = ["--schema", SCHEMA, "--accepts", "say", "--replies", "echo", program];
    let (code, checklist, talk) = test(&arguments);
    assert_eq!(code, 0, "{checklist}{talk}");
    expect_test::expect![[r#"
        ok    starts, and is quiet until it is asked (2)
        ok    answers {https://xml-pipeline.org/ns/shell-echo/v1}say (4)
        ok    answers two requests in a row (2)
        ok    is quiet after its answer (2)
        ok    goes on after a cancel (6)
        ok    ends when its input is closed (8)
    "#]]
    .assert_eq(&checklist.replace("  ok", "ok"));
    assert!(talk.starts_with("6 of 6 checks passed"), "{talk}");
}

#[test]
fn the_same_program_is_tried_on_nats() {
    let request = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(request.path(), "<do xmlns=\"urn:test\">echo hello</do>").unwrap();
    let python = repository().join("target/natspy/bin/python");
    let (kit, address) = (repository().join("listeners/python"), shared().address());
    let arguments = ["listener", "test", "--nats", &address, "--payload"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(arguments).arg(request.path()).arg(python).arg(script("obedient.py"));
    let output = command.env("PYTHONPATH", kit).output().unwrap();
    let checklist = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{checklist}");
    expect_test::expect![[r#"
        ok    starts, and is quiet until it is asked (2)
        ok    answers {urn:test}do (4)
        ok    answers two requests in a row (2)
        ok    is quiet after its answer (2)
        ok    goes on after a cancel (6)
        ok    ends on SIGTERM (12)
    "#]]
    .assert_eq(&checklist.replace("  ok", "ok"));
    let absent = ["--nats", &address, "--payload", request.path().to_str().unwrap(), "false"];
    let (code, checklist, _) = test(&absent);
    assert_eq!(code, 1);
    assert!(checklist.contains("it ended, exit status: 1"), "{checklist}");
}

#[test]
fn each_breach_fails_its_own_check() {
    let cases: &[(&[&str], &str)] = &[
        // The kit notices the stray answer at once or together with the true answer, depending on
        // the machine.
        (&["python3", "rude.py", "speaks-first"], ""),
        (&["python3", "rude.py", "half"], "answers {https"),
        (&["python3", "rude.py", "exit"], "answers {https"),
        (&["python3", "rude.py", "not-xml"], "answers {https"),
        (&["python3", "rude.py", "twice"], "answers two requests in a row"),
        (&["python3", "named.py", "other"], "answers {https"),
        (&["python3", "named.py", "stale"], "answers two requests in a row"),
        (&["python3", "named.py", "twice"], "answers two requests in a row"),
        (&["python3", "rude.py", "stays"], "ends when its input is closed"),
        (&["cat"], "answers {https"),
        (&["no-such-program"], "starts, and is quiet until it is asked"),
    ];
    let request = request();
    let payload = request.path().to_str().unwrap();
    let (rude, named) = (script("rude.py"), script("named.py"));
    for (command, claim) in cases {
        let words = command.iter().map(|word| match *word {
            "rude.py" => rude.as_str(),
            "named.py" => named.as_str(),
            word => word,
        });
        let arguments: Vec<_> = ["--payload", payload, "--"].into_iter().chain(words).collect();
        let (code, checklist, talk) = test(&arguments);
        assert_eq!(code, 1, "{command:?}: {checklist}{talk}");
        let failed = checklist.lines().find_map(|line| line.strip_prefix("  FAIL  "));
        assert!(failed.is_some_and(|line| line.starts_with(claim)), "{command:?}: {checklist}");
    }
}

#[test]
fn an_answer_is_held_to_its_schema_and_to_the_replies() {
    let request = request();
    let payload = request.path().to_str().unwrap();
    let echo = "listeners/shell-echo/shell-echo";
    let wrong = r#"while read -rd '' f; do printf '<echo xmlns="https://xml-pipeline.org/ns/shell-echo/v1"/>\0'; done"#;
    let cases: &[(&[&str], &str)] = &[
        (&["--replies", "say", echo], "echo is not among its replies"),
        (&["--", "bash", "-c", wrong], "schema-"),
    ];
    for (rest, why) in cases {
        let arguments: Vec<_> =
            ["--schema", SCHEMA, "--payload", payload].iter().chain(*rest).copied().collect();
        let (code, checklist, talk) = test(&arguments);
        assert_eq!(code, 1, "{rest:?}: {checklist}{talk}");
        assert!(checklist.contains(why), "{rest:?}: {checklist}{talk}");
    }
}

#[test]
fn a_program_that_cannot_be_tested_gives_its_exit_code() {
    let broken = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(broken.path(), "<say>").unwrap();
    let broken = broken.path().to_str().unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["cat"], 2, "--payload FILE"),
        (&["--payload", broken, "cat"], 65, "not closed"),
        (&["--schema", "Cargo.toml", "--accepts", "say", "cat"], 78, "Cargo.toml"),
        (&["--schema", SCHEMA, "--accepts", "sing", "cat"], 2, "no schema defines sing"),
        (&["--payload", "no-such-file", "cat"], 2, "no-such-file"),
    ];
    for (arguments, expected, why) in cases {
        let (code, checklist, talk) = test(arguments);
        assert_eq!(code, *expected, "{arguments:?}: {checklist}{talk}");
        assert!(talk.contains(why), "{arguments:?}: {talk}");
    }
}
