//! `organism listener test`, run as a listener author runs it.

use std::path::Path;
use std::process::Command;

use super::harness::{repository, script};
use super::kit_language::KitLanguage;
use crate::json_schemas::assert_described;
use crate::nats::shared;

/// Runs the conformance kit. Returns the exit code, the checklist and the text on standard error.
fn test(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(["listener", "test"]).args(arguments).current_dir(repository());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let lines = text(output.stdout);
    assert_described(&[&["listener", "test"], arguments].concat(), &lines);
    (output.status.code().unwrap(), lines, text(output.stderr))
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
        ok    reads a large request that comes in two pieces (2)
        ok    answers after the result of a peer (3)
        ok    has the messages of a call, if it says that it remembers (3)
        ok    names the attempt that it answers, if it names any (4)
        ok    goes on after a cancel (6)
        ok    ends when its input is closed (8)
    "#]]
    .assert_eq(&checklist.replace("  ok", "ok"));
    assert!(talk.starts_with("10 of 10 checks passed"), "{talk}");

    // The program may hold a lock, because one program runs at a time.
    let lock = tempfile::NamedTempFile::new().unwrap();
    let alone = ["--", "python3", "-c", LOCKED, lock.path().to_str().unwrap(), program];
    let options = &arguments[..arguments.len() - 1];
    let (code, lines, _) = test(&[&["--json"], options, &alone].concat());
    assert_eq!((code, lines.lines().count()), (0, 10), "{lines}");
}

/// Python program that locks the file in its first argument, and then becomes the program in its
/// second argument. It fails if another process has locked the file.
const LOCKED: &str = "
import fcntl, os, sys
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.set_inheritable(lock.fileno(), True)
os.execv(sys.argv[2], sys.argv[2:])
";

/// Runs the conformance kit on a listener with this request. All checks must pass.
fn test_with(payload: &str, options: &[&str], listener: &Command) -> String {
    let request = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(request.path(), payload).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(["listener", "test"]).args(options).arg("--payload").arg(request.path());
    command.arg("--").arg(listener.get_program()).args(listener.get_args());
    command.envs(listener.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let checklist = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{listener:?}: {checklist}");
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(!log.contains("no replica"), "the start of the program causes a warning: {log}");
    checklist
}

#[test]
fn a_listener_of_the_rust_kit_passes_every_check() {
    let mut search =
        Command::new(Path::new(env!("CARGO_BIN_EXE_organism")).with_file_name("code-search"));
    search.arg(repository().join("tests/data/listeners"));
    let namespace = "https://xml-pipeline.org/ns/code-search/v1";
    let query = format!("<search xmlns=\"{namespace}\"><query>careless</query></search>");
    let checklist = test_with(&query, &[], &search);
    assert_eq!(checklist.matches("  ok").count(), 10, "{checklist}");
}

#[test]
fn a_program_that_ends_without_an_answer_fails_on_nats() {
    let address = shared().address();
    let request = request();
    let absent = ["--nats", &address, "--payload", request.path().to_str().unwrap(), "false"];
    let (code, checklist, _) = test(&absent);
    assert_eq!(code, 1);
    assert!(checklist.contains("it ended, exit status: 1"), "{checklist}");
}

/// With `--previews`, the conformance kit checks previews after all other checks. The listeners of
/// all kits pass every check, as child processes and on NATS.
#[test]
fn the_kits_of_programs_pass_every_check_and_those_of_previews() {
    let address = shared().address();
    let request = "<do xmlns=\"urn:test\">if-shown hello</do>";
    let remote = ["--previews", "--nats", &address];
    for language in KitLanguage::ALL {
        // A child process does not inherit the variables of a listener on NATS.
        let mut child = language.listener("obedient");
        child.env("ORGANISM_BUS_NKEY", "listener.nk").env("ORGANISM_NAME", "desk");
        let checklist = test_with(request, &remote[..1], &child);
        assert_eq!(checklist.matches("  ok").count(), 13, "{checklist}");
        for claim in ["shows what", "does nothing where another", "carries out a call whose"] {
            assert!(checklist.contains(&format!("ok    {claim}")), "{claim}: {checklist}");
        }

        // The servers of the check require no credentials, so the shell's own are withheld.
        let mut program = language.on_nats("obedient");
        program.env("ORGANISM_BUS_NKEY", "listener.nk").env("ORGANISM_BUS_CA", "ca.pem");
        let checklist = test_with(request, &remote, &program);
        expect_test::expect![[r#"
            ok    starts, and is quiet until it is asked (2)
            ok    answers {urn:test}do (4)
            ok    answers two requests in a row (2)
            ok    is quiet after its answer (2)
            ok    shares its deliveries with other replicas of its name (12)
            ok    answers after the result of a peer (3)
            ok    has the messages of a call, if it says that it remembers (3)
            ok    names the attempt that it answers, if it names any (4)
            ok    goes on after a cancel (6)
            ok    ends on SIGTERM (12)
            ok    shows what a call would do, and the same again (3)
            ok    does nothing where another preview was approved (3)
            ok    carries out a call whose preview was approved (3)
        "#]]
        .assert_eq(&checklist.replace("  ok", "ok"));
    }
}

const SHARES: &str = "shares its deliveries";
const JOIN_GROUP: &str = "subscribe to the deliveries in the queue group";

/// Each listener answers deliveries with a valid payload, but not as the protocol requires.
#[test]
fn a_listener_on_nats_that_answers_twice_or_outside_of_its_queue_group_fails() {
    let address = shared().address();
    let request = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(request.path(), "<say xmlns=\"urn:example:talk\">hi</say>").unwrap();
    let payload = request.path().to_str().unwrap();
    let python = super::remote::python();
    let program = script("stock.py");
    let cases = [
        ("twice", "answers two requests in a row", "publish one message for each delivery"),
        ("other-group", SHARES, JOIN_GROUP),
        ("other-group-named", SHARES, JOIN_GROUP),
        ("other-group-heartbeats", SHARES, JOIN_GROUP),
    ];
    let fails = |(manner, claim, found): (&str, &str, &str)| {
        let python = python.get_program().to_str().unwrap();
        let options = ["--nats", &address, "--payload", payload, "--"];
        let (code, checklist, _) = test(&[&options[..], &[python, &program, manner]].concat());
        assert_eq!(code, 1, "{manner}: {checklist}");
        let failed = format!("FAIL  {claim}");
        let (_, why) =
            checklist.split_once(&failed).unwrap_or_else(|| panic!("{manner}: {checklist}"));
        let why = why.lines().nth(1).unwrap();
        assert!(why.contains(found), "{manner}: {why}");
    };
    // Each waits for its own program most of the time.
    std::thread::scope(|scope| {
        cases.into_iter().for_each(|case| drop(scope.spawn(move || fails(case))));
    });
}

#[test]
fn each_breach_of_previews_fails_its_own_check() {
    let cases = [
        ("none", "shows what a call would do", "it answered without any"),
        ("other", "shows what a call would do", "and this is none: <said "),
        ("times", "shows what a call would do", "contains no times"),
        ("careless", "does nothing where another", "answer `<stale-preview>`"),
        ("stubborn", "carries out a call whose", "although its own preview was approved"),
    ];
    let request = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(request.path(), "<say xmlns=\"urn:example:talk\">hi</say>").unwrap();
    let payload = request.path().to_str().unwrap();
    let program = script("misleading.py");
    for (manner, claim, found) in cases {
        let arguments = ["--previews", "--payload", payload, "python3", &program, manner];
        let (code, checklist, _) = test(&arguments);
        assert_eq!(code, 1, "{manner}: {checklist}");
        let failed = format!("FAIL  {claim}");
        let (_, why) =
            checklist.split_once(&failed).unwrap_or_else(|| panic!("{manner}: {checklist}"));
        let why = why.lines().nth(1).unwrap();
        assert!(why.contains(found), "{manner}: {why}");
    }
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
        (&["python3", "careless.py", "one-read"], "reads a large request"),
        (&["python3", "careless.py", "last-message"], "answers after the result of a peer"),
        (&["python3", "careless.py", "forgets"], "has the messages of a call"),
        (&["python3", "careless.py", "first-attempt"], "names the attempt that it answers"),
        (&["cat"], "answers {https"),
        (&["sh", "-c", "echo ready; exec cat >/dev/null"], "starts, and is quiet"),
        (&["no-such-program"], "starts, and is quiet until it is asked"),
    ];
    let request = request();
    let payload = request.path().to_str().unwrap();
    let scripts = ["rude.py", "named.py", "careless.py"];
    let breaks = |(command, claim): &(&[&str], &str)| {
        let path = |word: &&str| {
            if scripts.contains(word) { script(word) } else { (*word).to_owned() }
        };
        let words: Vec<_> = command.iter().map(path).collect();
        let words = words.iter().map(String::as_str);
        let arguments: Vec<_> = ["--payload", payload, "--"].into_iter().chain(words).collect();
        let (code, checklist, talk) = test(&arguments);
        assert_eq!(code, 1, "{command:?}: {checklist}{talk}");
        let failed = checklist.lines().find_map(|line| line.strip_prefix("  FAIL  "));
        assert!(failed.is_some_and(|line| line.starts_with(claim)), "{command:?}: {checklist}");
    };
    // Each waits for its own program most of the time.
    for some in cases.chunks(4) {
        std::thread::scope(|scope| {
            some.iter().for_each(|case| drop(scope.spawn(|| breaks(case))));
        });
    }
}

#[test]
fn a_listener_may_write_white_space_between_its_frames() {
    let mut lines = Command::new("python3");
    lines.arg(script("careless.py")).arg("lines");
    let checklist = test_with("<say xmlns=\"urn:example:talk\">hi</say>", &[], &lines);
    assert_eq!(checklist.matches("  ok").count(), 10, "{checklist}");
}

/// The failed checks of the careless listener, each with its reason.
fn failures(options: &[&str], how: &str) -> Vec<(String, String)> {
    let request = request();
    let payload = request.path().to_str().unwrap();
    let careless = script("careless.py");
    let listener = ["--payload", payload, "--", "python3", &careless, how];
    let arguments: Vec<_> = options.iter().copied().chain(listener).collect();
    let (code, checklist, talk) = test(&arguments);
    assert_eq!(code, 1, "{how}: {checklist}{talk}");
    let lines: Vec<_> = checklist.lines().collect();
    let failed = lines.windows(2).filter_map(|pair| {
        let claim = pair[0].strip_prefix("  FAIL  ")?;
        Some((claim.to_owned(), pair[1].trim().to_owned()))
    });
    failed.collect()
}

/// The second answer of the program names the attempt of the first answer. The failed check states
/// that the program has answered this attempt already.
#[test]
fn a_listener_that_answers_twice_learns_which_answer_it_repeated() {
    let request = request();
    let payload = request.path().to_str().unwrap();
    let (code, checklist, _) =
        test(&["--payload", payload, "--", "python3", &script("named.py"), "twice"]);
    assert_eq!(code, 1, "{checklist}");
    let (_, quiet) = checklist.split_once("FAIL  is quiet after its answer").unwrap();
    let reason = quiet.lines().nth(1).unwrap();
    assert!(reason.contains("it answers attempt 1."), "{reason}");
    assert!(reason.contains(" again, which it has answered already"), "{reason}");
    assert!(!checklist.contains("Some("), "{checklist}");
    assert!(!checklist.contains("not its own"), "{checklist}");
}

#[test]
fn a_listener_that_mishandles_cancels_fails_each_time() {
    let cases = [
        ("answers-cancels", "it wrote a frame more after its answers, for a cancel"),
        ("answers-cancels", "it wrote a frame more after its answers, for a cancel"),
        ("dies-of-cancels", "the next request: exited with code 1"),
        ("dies-of-cancels", "the next request: exited with code 1"),
        ("deaf-to-cancels", "the next request: no answer within 10s"),
    ];
    // Each waits for its own program.
    let failed = std::thread::scope(|scope| {
        cases.map(|(how, _)| scope.spawn(move || failures(&[], how))).map(|run| run.join().unwrap())
    });
    for ((how, why), failed) in cases.into_iter().zip(failed) {
        let [(claim, reason)] = failed.as_slice() else { panic!("{how}: {failed:?}") };
        assert_eq!(claim, "goes on after a cancel (6)", "{how}: {reason}");
        assert!(reason.starts_with(why), "{how}: {reason}");
    }
}

#[test]
fn a_listener_without_an_answer_is_described_by_what_it_wrote() {
    let cases = [
        ("silent", "3s", "no answer within 3s; it wrote nothing: did it flush?"),
        ("buffers", "3.5", "no answer within 3.5s; it wrote nothing: did it flush?"),
        ("no-nul", "10s", "no answer within 10s; it wrote 12 bytes without a NUL"),
        (
            "never-reads",
            "500ms",
            "no answer within 500ms; it has read nothing since its start: does it start so slowly?",
        ),
    ];
    for (how, patience, why) in cases {
        let failed = failures(&["--timeout", patience], how);
        let reasons: Vec<_> = failed.iter().map(|(_, reason)| reason.as_str()).collect();
        assert_eq!(reasons, [why], "{how}");
    }
}

#[test]
fn an_answer_is_held_to_its_schema_and_to_the_replies() {
    let request = request();
    let payload = request.path().to_str().unwrap();
    let echo = "listeners/shell-echo/shell-echo";
    let wrong = r#"while read -rd '' f; do printf '<echo xmlns="https://xml-pipeline.org/ns/shell-echo/v1"/>\0'; done"#;
    let silent = r"while read -rd '' f; do printf '\0'; done";
    let cases: &[(&[&str], &str)] = &[
        (&["--replies", "say", echo], "echo is not among its replies"),
        (&["--", "bash", "-c", wrong], "schema-"),
        (&["--replies", "echo", "--", "bash", "-c", silent], "it only acknowledges"),
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

#[test]
fn a_time_has_a_unit_and_a_wrong_one_is_explained() {
    let request = request();
    let payload = request.path().to_str().unwrap();
    for time in ["1 second", "soon", "-1s", "0", "0ms"] {
        let option = format!("--timeout={time}");
        let (code, _, talk) = test(&[&option, "--payload", payload, "cat"]);
        assert_eq!(code, 2, "{time}: {talk}");
        assert!(talk.contains("write a time with its unit, such as 500ms"), "{time}: {talk}");
    }
}

/// A program that flushes only because of a variable in its author's shell fails `organism listener
/// test`, because the organism does not set that variable.
#[test]
fn a_program_that_flushes_in_its_authors_shell_alone_fails() {
    let request = request();
    let program = "import os, sys\nwhile os.read(0, 65536): print('<echo xmlns=\"https://xml-pipeline.org/ns/shell-echo/v1\"><text>hi</text></echo>', end='\\0')";
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(["listener", "test", "--timeout", "1s", "--payload"]).arg(request.path());
    command.args(["--", "python3", "-c", program]).env("PYTHONUNBUFFERED", "1");
    let output = command.output().unwrap();
    let checklist = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{checklist}");
    assert!(checklist.contains("it wrote nothing: did it flush?"), "{checklist}");
}
