//! `organism check` and `organism init`, through the real command.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use expect_test::{Expect, expect};
use organism::config::directory_name;

use super::data;
use crate::json_schemas::assert_described;

fn organism(directory: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_organism"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/home/me")
        .output()
        .unwrap();
    assert_described(arguments, text(&output.stdout));
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Compares the report for a wrong config with `expected`. The report must be on stderr, with exit
/// code 78 and an empty stdout.
fn drawn(file: &str, expected: &Expect) {
    let output = organism(&data(), &["check", "--config", file]);
    assert_eq!(output.status.code(), Some(78), "{file}");
    assert_eq!(text(&output.stdout), "");
    let drawing = text(&output.stderr);
    assert!(drawing.is_ascii() && !drawing.contains('\u{1b}'), "{drawing}");
    let trimmed: String = drawing.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    expected.assert_eq(&trimmed);
}

#[test]
fn a_typo_in_a_peer_is_drawn_with_a_caret() {
    drawn(
        "typo-in-a-peer.toml",
        &expect![[r#"
            typo-in-a-peer.toml:17:10: unknown-peer
              x there is no listener or agent `serach`
                ,-[typo-in-a-peer.toml:17:10]
             16 | accepts = ["research"]
             17 | peers = ["serach"]
                :          ^^^^^^^^
             18 |
                `----
              help: did you mean `search`?

            1 problem; nothing was started
        "#]],
    );
}

#[test]
fn columns_and_carets_agree_where_characters_are_wide() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = "[organism]\r\nname = \"d\"\r\n[clients.ü]\r\npeers = [\"größe\", \"b\"]\r\n";
    std::fs::write(directory.path().join("organism.toml"), wrong).unwrap();
    let output = organism(directory.path(), &["check"]);
    let drawing = text(&output.stderr);
    let places: Vec<_> = drawing.lines().filter(|line| line.contains(",-[")).collect();
    let headings: Vec<_> = drawing.lines().filter(|l| l.starts_with("organism.toml:")).collect();
    assert_eq!(places.len(), headings.len(), "{drawing}");
    for (place, heading) in places.iter().zip(headings) {
        let place = place.split(['[', ']']).nth(1).unwrap();
        assert!(heading.starts_with(&format!("{place}: ")), "{drawing}");
    }
}

#[test]
fn a_broken_schema_is_drawn_at_its_own_place() {
    drawn(
        "schema-broken.toml",
        &expect![[r#"
            broken.xsd:4:3: schema-broken
              x element decl. 'search', attribute 'type': the QName value 'strnig' does
              | not resolve to a(n) type definition (schema-compile)
               ,-[broken.xsd:4:3]
             3 |            targetNamespace="urn:example:broken">
             4 |   <xs:element name="search" type="xs:strnig"/>
               :   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
             5 | </xs:schema>
               `----
              help: the schema is named at schema-broken.toml:9

            1 problem; nothing was started
        "#]],
    );
}

#[test]
fn a_wrong_override_is_shown_as_a_separate_source() {
    let output = Command::new(env!("CARGO_BIN_EXE_organism"))
        .args(["check", "--config", "good.toml"])
        .current_dir(data())
        .env("ORGANISM_LISTENERS__SEARCH__TIMEOUT", "5 sec")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(78));
    expect![[r#"
        ORGANISM_LISTENERS__SEARCH__TIMEOUT:1:1: bad-duration
          x `5 sec` is not a duration
           ,-[ORGANISM_LISTENERS__SEARCH__TIMEOUT:1:1]
         1 | 5 sec
           : ^^^^^
           `----
          help: did you mean "5s"?

        1 problem; nothing was started
    "#]]
    .assert_eq(text(&output.stderr));
}

#[test]
fn syntax_is_drawn_in_every_place_it_is_wrong() {
    drawn(
        "syntax-in-two-places.toml",
        &expect![[r#"
            syntax-in-two-places.toml:2:8: syntax
              x this is not TOML: string values must be quoted, expected literal string
               ,-[syntax-in-two-places.toml:2:8]
             1 | [organism]
             2 | name = desk
               :        ^^^^
             3 |
               `----
              help: strings stand in quotes

            syntax-in-two-places.toml:14:9: syntax
              x this is not TOML: string values must be quoted, expected literal string
                ,-[syntax-in-two-places.toml:14:9]
             13 | [agents.researcher]
             14 | model = recorded
                :         ^^^^^^^^
             15 | schema = "researcher.xsd"
                `----
              help: strings stand in quotes

            2 problems; nothing was started
        "#]],
    );
}

#[test]
fn eight_problems_are_reported_at_once() {
    drawn(
        "eight-problems.toml",
        &expect![[r#"
            eight-problems.toml:2:8: bad-name
              x `Desk` is not a name: a lowercase letter, then up to 63 lowercase letters,
              | digits or hyphens
               ,-[eight-problems.toml:2:8]
             1 | [organism]
             2 | name = "Desk"
               :        ^^^^^^
             3 |
               `----
              help: did you mean `desk`?

            eight-problems.toml:5:10: unknown-peer
              x there is no listener or agent `reseacher`
               ,-[eight-problems.toml:5:10]
             4 | [clients.user]
             5 | peers = ["reseacher"]
               :          ^^^^^^^^^^^
             6 |
               `----
              help: did you mean `researcher`?

            eight-problems.toml:8:12: command-missing
              x there is no program `./rnu`
               ,-[eight-problems.toml:8:12]
             7 | [listeners.search]
             8 | command = ["./rnu"]
               :            ^^^^^^^
             9 | schema = "search.xsd"
               `----
              help: did you mean `run` in the same directory?

            eight-problems.toml:10:11: bad-duration
              x `5 minutess` is not a duration
                ,-[eight-problems.toml:10:11]
              9 | schema = "search.xsd"
             10 | timeout = "5 minutess"
                :           ^^^^^^^^^^^^
             11 | accepts = ["search"]
                `----
              help: did you mean "5m"?

            eight-problems.toml:15:9: unknown-model
              x there is no model `recordde`
                ,-[eight-problems.toml:15:9]
             14 | [agents.researcher]
             15 | model = "recordde"
                :         ^^^^^^^^^^
             16 | max_iterations = 0
                `----
              help: did you mean `recorded`?

            eight-problems.toml:16:18: out-of-range
              x `max_iterations` of agent `researcher` is zero
                ,-[eight-problems.toml:16:18]
             15 | model = "recordde"
             16 | max_iterations = 0
                :                  ^
             17 | memry = "own"
                `----
              help: a whole number from 1 to 1000; without the key the default holds

            eight-problems.toml:17:1: unknown-key
              x agent `researcher` has no key `memry`
                ,-[eight-problems.toml:17:1]
             16 | max_iterations = 0
             17 | memry = "own"
                : ^^^^^
             18 | schema = "researcher.xsd"
                `----
              help: did you mean `memory`?

            eight-problems.toml:24:13: recording-missing
              x there is no recording `turns.xml`
                ,-[eight-problems.toml:24:13]
             23 | provider = "playback"
             24 | recording = "turns.xml"
                :             ^^^^^^^^^^^
             25 | #! bad-name 2:8 did you mean `desk`?
                `----
              help: paths are relative to the config's directory

            8 problems; nothing was started
        "#]],
    );
}

#[test]
fn wrong_configs_exit_with_78_and_start_nothing() {
    for file in ["unset-variable.toml", "no-client.toml", "tabs.toml", "no-such-file.toml", "."] {
        let output = organism(&data(), &["check", "--config", file]);
        assert_eq!(output.status.code(), Some(78), "{file}");
        assert!(text(&output.stderr).contains("nothing was started"), "{file}");
    }
}

#[test]
fn problems_are_written_as_json_for_programs() {
    let output = organism(&data(), &["check", "--json", "--config", "eight-problems.toml"]);
    assert_eq!(output.status.code(), Some(78));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["ok"], false);
    let problems = json["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 8);
    assert_eq!(problems[1]["code"], "unknown-peer");
    assert_eq!((&problems[1]["line"], &problems[1]["column"]), (&5.into(), &10.into()));
    assert_eq!(problems[1]["help"], "did you mean `researcher`?");
}

#[test]
fn a_good_config_is_shown_on_one_screen() {
    let output = organism(&data(), &["check", "--config", "good.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let here = data().display().to_string();
    let own = directory_name("desk", &data().join("good.toml"));
    let shown = text(&output.stdout).replace(&here, "HERE").replace(&own, "desk-DIGITS");
    expect![[r#"
        desk is good: good.toml

        clients
          user  may address researcher

        listeners
          search  takes search; runs HERE/run

        agents
          researcher  takes research; may address search; model recorded; xml; ends with
                      attempt_completion, which holds plain text

        models
          recorded  plays HERE/turns.recording.xml

        limits        depth 16, 1000 threads, 64 children each, 10000 messages, 1000
                      model calls, 10000000 tokens, 1d
        journal       /home/me/.local/share/organism/desk-DIGITS
        checkpoints   /home/me/.local/state/organism/desk-DIGITS
    "#]]
    .assert_eq(&shown);
    let json = organism(&data(), &["check", "--json", "--config", "good.toml"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["ok"], &json["config"]["name"]), (&true.into(), &"desk".into()));
}

#[test]
fn a_project_has_the_same_journal_in_every_current_directory_without_home() {
    let config = data().join("good.toml");
    let checked = |home: Option<&str>| {
        let directory = tempfile::tempdir().unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_organism"));
        check.arg("check").arg("--config").arg(&config).current_dir(directory.path()).env_clear();
        check.env("PATH", std::env::var_os("PATH").unwrap());
        check.envs(home.map(|home| ("HOME", home)));
        let output = check.output().unwrap();
        [output.stdout, output.stderr].map(|bytes| text(&bytes).to_owned())
    };

    let unset = checked(None);
    assert_eq!(checked(None), unset);
    assert_eq!(checked(Some("")), unset);
    let [_, relative] = checked(Some("relative"));
    assert!(relative.contains("home-missing"), "{relative}");
}

#[test]
fn init_writes_an_organism_that_passes_check_and_answers() {
    let directory = tempfile::tempdir().unwrap();
    let output = organism(directory.path(), &["init", "first-steps"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let made = directory.path().join("first-steps");
    let check = organism(&made, &["check"]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
    assert!(text(&check.stdout).starts_with("first-steps is good: organism.toml\n"));
    assert!(!text(&check.stdout).contains("no payload"), "{}", text(&check.stdout));

    let config = std::fs::read_to_string(made.join("organism.toml")).unwrap();
    let replies = "replies = [\"greeting\"]\n";
    assert!(config.contains(replies), "{config}");
    let silent = config.replace(replies, "");
    let (_, listener) = silent.split_once("[listeners.greeter]").unwrap();
    let (listener, _) = listener.split_once("\n# ").unwrap();
    let caller = format!("[listeners.caller]{listener}peers = [\"greeter\"]\n");
    std::fs::write(made.join("silent.toml"), format!("{silent}\n{caller}")).unwrap();
    let silent = organism(&made, &["check", "silent.toml"]);
    for row in [
        "greeter  takes greet; replies with no payload; runs",
        "caller   takes greet; replies with no payload; may address greeter;",
    ] {
        assert!(text(&silent.stdout).contains(row), "{}", text(&silent.stdout));
    }
    let valid = organism(&made, &["schema", "validate", "schema/greeter.xsd", "hello.xml"]);
    assert_eq!(valid.status.code(), Some(0), "{}", text(&valid.stderr));
    assert_eq!(
        greeted(&made, "R&amp;D"),
        "<e:answer xmlns:e=\"https://xml-pipeline.org/ns/envelope/v1\" call=\"c\" attempt=\"1.1\">\
         <greeting xmlns=\"urn:example:greeter\">Hello, R&amp;D!</greeting></e:answer>\0",
        "its answer names the delivery"
    );
}

/// Checks a config in `directory` whose listener has this command, and `key` as its last line.
/// Returns the exit code and the report.
fn check_command(directory: &Path, command: &[&str], key: &str) -> (Option<i32>, String) {
    let config = format!(
        "[organism]\nname = \"d\"\n[clients.desk]\npeers = [\"hands\"]\n[listeners.hands]\n\
         command = {command:?}\nschema = \"organism:code-search.xsd\"\naccepts = [\"search\"]\n\
         {key}\n"
    );
    std::fs::write(directory.join("organism.toml"), config).unwrap();
    let output = organism(directory, &["check"]);
    (output.status.code(), text(&output.stderr).to_owned())
}

/// Writes a program in `directory` with this text.
fn write_program(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_script_is_required_only_where_its_interpreter_would_look_for_it() {
    let directory = tempfile::tempdir().unwrap();
    for program in ["bash", "node", "perl", "python3", "on-path"] {
        write_program(directory.path(), program, "#!/bin/sh\n");
    }
    std::fs::write(directory.path().join("server.js"), "").unwrap();
    let check = |command: &[&str]| check_command(directory.path(), command, "");

    for command in [
        &["perl", "-E", "print 1"][..],
        &["node", "server"],
        &["node", "server.js"],
        &["bash", "on-path"],
        &["bash", "-c", "exit"],
        &["python3", "-u", "-m", "http.server"],
        &["./node", "serve"],
    ] {
        let (code, report) = check(command);
        assert_eq!(code, Some(0), "{command:?}: {report}");
    }
    for command in [
        &["perl", "gone"][..],
        &["node", "serve"],
        &["bash", "./on-paht"],
        &["python3", "-u", "gone.py"],
    ] {
        let (code, report) = check(command);
        assert_eq!(code, Some(78), "{command:?}");
        assert!(report.contains("finds no script"), "{command:?}: {report}");
    }
}

#[test]
fn the_first_line_of_a_program_names_an_interpreter_that_exists() {
    let directory = tempfile::tempdir().unwrap();
    let check = |line: &str, key: &str| {
        write_program(directory.path(), "program", &format!("{line}\nexit\n"));
        check_command(directory.path(), &["./program"], key)
    };
    for line in [
        "#!/usr/bin/env sh",
        "#!/usr/bin/env -S A=b sh -e\r",
        "#!/usr/bin/env -S PATH=/elsewhere nosuchprog",
        "#!/usr/bin/env -S TITLE=\"my small tool\" sh",
        r"#!/usr/bin/env -S TITLE=my\ tool sh",
        "#!/usr/bin/env -i nosuchprog",
        "#!/usr/bin/env",
    ] {
        let (code, report) = check(line, "");
        assert_eq!(code, Some(0), "{line}: {report}");
    }
    for (line, interpreter) in [
        ("#!/usr/bin/env nosuchprog", "nosuchprog"),
        ("#! /usr/bin/env -S A=b nosuchprog -e", "nosuchprog"),
        ("#!/usr/bin/env sh\r", r"sh\r"),
        ("#! /no/such/sh -e", "/no/such/sh"),
    ] {
        let (code, report) = check(line, "");
        assert_eq!(code, Some(78), "{line}: {report}");
        let problem = format!("names \"{interpreter}\", which is missing");
        assert!(report.contains(&problem), "{line}: {report}");
        let advises = report.contains("save the file with Unix line ends");
        assert_eq!(advises, line.ends_with('\r'), "{line}: {report}");
    }
    let other_path = "env = { PATH = \"/elsewhere\" }";
    let (code, report) = check("#!/usr/bin/env nosuchprog", other_path);
    assert_eq!(code, Some(0), "{report}");

    write_program(directory.path(), "program", "#! /no/such/sh -e\nexit\n");
    std::fs::write(directory.path().join("payload.xml"), "<search/>").unwrap();
    let test = ["listener", "test", "--payload", "payload.xml", "./program"];
    let tested = organism(directory.path(), &test);
    let swallowed = ["listener", "test", "./program", "--payload", "payload.xml"];
    let swallowed = organism(directory.path(), &swallowed);
    let reason = "--payload stands after the program, and so belongs to it";
    assert!(text(&swallowed.stderr).contains(reason), "{swallowed:?}");
    let shown = [text(&tested.stdout), text(&tested.stderr)].concat();
    assert!(shown.contains("/no/such/sh"), "{shown}");
}

#[test]
fn a_shipped_schema_is_named_without_a_path() {
    let directory = tempfile::tempdir().unwrap();
    let check = |schema: &str, accepts: &str| {
        let config = format!(
            "[organism]\nname = \"d\"\n[clients.desk]\npeers = [\"hands\"]\n[listeners.hands]\n\
             command = [\"/bin/cat\"]\nschema = \"{schema}\"\naccepts = [\"{accepts}\"]\n"
        );
        std::fs::write(directory.path().join("organism.toml"), config).unwrap();
        let output = organism(directory.path(), &["check"]);
        (output.status.code(), text(&output.stderr).to_owned())
    };
    assert_eq!(check("organism:code-search.xsd", "search"), (Some(0), String::new()));
    for (schema, accepts, problems) in [
        (
            "organism:code-serch.xsd",
            "search",
            vec!["schema-missing", "`organism:code-search.xsd`?"],
        ),
        (
            "organism:",
            "search",
            vec!["schema-missing", "organism:actions.xsd, organism:calculator"],
        ),
        ("organism:core.xsd", "wait", vec!["schema-missing", "the core's own words"]),
        ("organism:code-search.xsd", "serch", vec!["not declared in organism:code-search.xsd"]),
        ("./organism:actions.xsd", "shell", vec!["cannot be read"]),
    ] {
        let (code, report) = check(schema, accepts);
        assert_eq!(code, Some(78), "{schema}: {report}");
        for problem in problems {
            assert!(report.contains(problem), "{schema}: {problem}: {report}");
        }
    }
}

#[test]
fn every_shipped_schema_can_be_described() {
    for schema in organism::shipped::SCHEMAS {
        let described = organism(&data(), &["schema", "describe", schema.name]);
        assert_eq!(described.status.code(), Some(0), "{}", text(&described.stderr));
        assert!(!described.stdout.is_empty(), "{}", schema.name);
    }
}

/// Runs the listener that `init` has written, for one delivery. Returns the listener's answer.
fn greeted(directory: &Path, who: &str) -> String {
    use std::io::Write as _;
    let mut child = Command::new(directory.join("greeter.py"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let message = format!(
        "<e:message><e:meta/><greet xmlns=\"urn:example:greeter\"><who>{who}</who></greet></e:message>"
    );
    let frame = format!(
        "<e:delivery xmlns:e=\"urn:e\" call=\"c\" attempt=\"1.1\">{message}</e:delivery>\0"
    );
    let frames = format!("<cancel call=\"x\"/>\0{frame}");
    child.stdin.take().unwrap().write_all(frames.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    text(&output.stdout).to_owned()
}

#[test]
fn init_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("README.md"), "mine").unwrap();
    let output = organism(directory.path(), &["init"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("already has README.md"));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert_eq!(std::fs::read_to_string(directory.path().join("README.md")).unwrap(), "mine");
}

// A13
#[test]
fn dangerous_is_the_default_where_the_schema_has_the_flag_and_giving_it_up_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/actions.xsd");
    std::fs::copy(schema, directory.path().join("actions.xsd")).unwrap();
    let check = |more: &str, accepts: &str| {
        let config = format!(
            "[organism]\nname = \"d\"\n[clients.desk]\npeers = [\"hands\"]\n[listeners.hands]\n\
             command = [\"/bin/cat\"]\nschema = \"actions.xsd\"\naccepts = [\"{accepts}\"]\n{more}\n"
        );
        std::fs::write(directory.path().join("organism.toml"), config).unwrap();
        let output = organism(directory.path(), &["check"]);
        let (out, said) = (text(&output.stdout).to_owned(), text(&output.stderr).to_owned());
        assert!(output.status.success(), "{said}");
        (out, said)
    };
    let held = "needs an approval unless";
    let command = "proposed_shell_command";

    let (screen, said) = check("", command);
    assert!(screen.contains(held), "{screen}");
    assert!(!said.contains("gives up"), "{said}");

    let (screen, said) = check("approval = \"never\"", command);
    assert!(!screen.contains("needs an approval"), "{screen}");
    assert!(said.contains("listener hands") && said.contains("gives up the approval"), "{said}");

    let (screen, _) = check("approval_timeout = \"5m\"", command);
    assert!(screen.contains(held), "{screen}");

    let (screen, _) = check("previews = true", command);
    let screen = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(screen.contains("and shows a preview within 5s"), "{screen}");

    let (screen, said) = check("", "proposed_file_replace");
    assert!(!screen.contains("needs an approval") && !said.contains("gives up"), "{screen}{said}");
}

#[test]
fn schema_show_prints_the_schema_that_declares_a_payload() {
    let show = |payload: &str| {
        let config = ["schema", "show", payload, "--config", "good-payloads.toml"];
        organism(&data(), &config)
    };
    let generated = show("review");
    assert_eq!(generated.status.code(), Some(0), "{}", text(&generated.stderr));
    expect![[r#"
        <xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="https://xml-pipeline.org/ns/payloads/v1" elementFormDefault="qualified">
          <xs:element name="note" type="xs:string"/>
          <xs:element name="review">
            <xs:complexType>
              <xs:sequence>
                <xs:element name="file" type="xs:string"/>
                <xs:element name="risk">
                  <xs:simpleType>
                    <xs:restriction base="xs:string">
                      <xs:enumeration value="low"/>
                      <xs:enumeration value="high"/>
                    </xs:restriction>
                  </xs:simpleType>
                </xs:element>
                <xs:element name="line" type="xs:integer" minOccurs="0"/>
              </xs:sequence>
            </xs:complexType>
          </xs:element>
          <xs:element name="findings">
            <xs:complexType>
              <xs:sequence>
                <xs:element name="finding" minOccurs="0" maxOccurs="unbounded">
                  <xs:complexType>
                    <xs:sequence>
                      <xs:element name="line" type="xs:integer"/>
                      <xs:element name="fault" type="xs:string"/>
                      <xs:element name="seen" type="xs:date" minOccurs="0"/>
                    </xs:sequence>
                  </xs:complexType>
                </xs:element>
                <xs:element name="verdict">
                  <xs:complexType>
                    <xs:sequence>
                      <xs:element name="ship" type="xs:boolean"/>
                      <xs:element name="weight" type="xs:decimal"/>
                    </xs:sequence>
                  </xs:complexType>
                </xs:element>
              </xs:sequence>
            </xs:complexType>
          </xs:element>
        </xs:schema>
    "#]].assert_eq(text(&generated.stdout));

    let missing = show("reveiw");
    assert_eq!(missing.status.code(), Some(2));
    let message = text(&missing.stderr);
    assert!(message.contains("desk has no payload `reveiw`; did you mean `review`?"), "{message}");
}

#[test]
fn schema_show_prints_a_schema_file_as_it_is() {
    let shown = organism(&data(), &["schema", "show", "research", "--config", "good.toml"]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let file = std::fs::read_to_string(data().join("researcher.xsd")).unwrap();
    let (_, declared) = file.split_once("<xs:schema").unwrap();
    let (_, printed) = text(&shown.stdout).split_once("<xs:schema").unwrap();
    assert_eq!(printed, declared);
}

#[test]
fn an_address_is_shown_and_only_what_may_be_secret_is_masked() {
    let drawing = |line: &str| {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "[organism]\nname = \"d\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\n{line}\n"
        );
        std::fs::write(directory.path().join("organism.toml"), config).unwrap();
        let output = organism(directory.path(), &["check"]);
        assert_eq!(output.status.code(), Some(78), "{line}");
        text(&output.stderr).to_owned()
    };
    let shown = drawing("base_url = \"http://models.example:8000/v1\"");
    assert!(shown.contains("http://models.example:8000/v1"), "{shown}");
    let shown = drawing("api_key_file = \"keys/mine\"\napi_key_env = \"WORK_KEY\"");
    assert!(shown.contains("WORK_KEY"), "{shown}");
    for secret in [
        "base_url = \"http://me:hunter2@models.example/v1\"",
        "base_url = \"http://models.example/v1?key=hunter2\"",
        "api_key_env = \"sk-hunter2\"",
        "api_key = \"hunter2\"",
        "base_url = \"sk-live-hunter2\"",
        "base_url = \"https:me:hunter2\"",
        "base_url = \"http://h/v1/hunter2\"",
        "base_url = \"http://h/hunter2\"",
        "base_url = \"http://h:hunter2\"",
        "api_key_env = \"AKIAHUNTER2XYZ\"",
        // These are no TOML.
        "base_url = \"http://models.example:8000/v1\"  api_key = \"hunter2\"",
        "  base_url = \"http://models.example:8000/v1\", api_key = \"hunter2\" x",
        "url = \"nats://127.0.0.1:4222\", credentials = \"hunter2\"",
        "base_url = \"https://me:hunter2",
        "model = \"y\", api_key = \"hunter2\"",
        "own = { name = \"y\" api_key = \"hunter2\" }",
    ] {
        let shown = drawing(secret);
        assert!(!shown.to_ascii_lowercase().contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_structured_final_is_not_described_as_plain_text() {
    let directory = tempfile::tempdir().unwrap();
    let config = "[organism]\nname = \"d\"\n[clients.desk]\npeers = [\"critic\"]\n\
        [payloads.ask]\ntext = \"text\"\n\
        [payloads.review]\nverdict = \"ship | revise\"\nscore = \"integer\"\n\
        [models.m]\nprovider = \"openai\"\nmodel = \"m\"\n\
        [agents.critic]\nmodel = \"m\"\naccepts = [\"ask\"]\nfinal = \"review\"\n";
    for transport in ["xml", "native"] {
        let config = format!("{config}transport = \"{transport}\"\n");
        std::fs::write(directory.path().join("organism.toml"), config).unwrap();
        let output = organism(directory.path(), &["check"]);
        let screen = text(&output.stdout);
        assert!(screen.contains(&format!("{transport}; ends with review\n")), "{screen}");
        let output = organism(directory.path(), &["prompt", "critic"]);
        let prompt = text(&output.stdout);
        assert!(prompt.contains("everything the asker needs to know"), "{output:?}");
        assert!(!prompt.contains("in plain text"), "{prompt}");
    }
}

#[test]
fn a_prompt_is_counted_against_its_window_and_its_largest_payload_is_named() {
    let checked = |window: &str| {
        Command::new(env!("CARGO_BIN_EXE_organism"))
            .args(["check", "--config", "good.toml"])
            .current_dir(data())
            .env("ORGANISM_MODELS__RECORDED__CONTEXT_WINDOW", window)
            .output()
            .unwrap()
    };
    let roomy = checked("200000");
    assert_eq!(roomy.status.code(), Some(0), "{}", text(&roomy.stderr));
    let shown = text(&roomy.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("prompts researcher "), "{shown}");
    assert!(
        shown.contains("beside an answer in a window of 200000; the largest part is "),
        "{shown}"
    );

    let narrow = checked("600");
    let told = text(&narrow.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(narrow.status.code(), Some(78), "{told}");
    assert!(told.contains("the prompt of researcher does not fit: "), "{told}");
    let first = text(&narrow.stdout).lines().next();
    assert_eq!(first, Some("desk has 1 error: good.toml"));
}

/// The sizes of the prompts, as `check --json` states them, and the exit code.
fn prompt_sizes(config: &str, schema: &str) -> (Vec<serde_json::Value>, Option<i32>) {
    let (summary, code) = check_summary(config, schema);
    (summary["prompts"].as_array().unwrap().clone(), code)
}

/// The summary that `check --json` writes, and the exit code.
fn check_summary(config: &str, schema: &str) -> (serde_json::Value, Option<i32>) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("organism.toml"), config).unwrap();
    std::fs::write(directory.path().join("tasks.xsd"), schema).unwrap();
    let output = organism(directory.path(), &["check", "--json"]);
    let summary: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (summary, output.status.code())
}

/// Schema of a payload `sum`, and of a payload `odd` for which no example can be generated.
const TASKS: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:tasks">
  <xs:element name="sum" type="xs:string"/>
  <xs:element name="odd"><xs:simpleType><xs:restriction base="xs:string">
    <xs:pattern value="\p{IsGreek}{7}"/>
  </xs:restriction></xs:simpleType></xs:element>
</xs:schema>"#;

#[test]
fn a_prompt_is_compared_with_the_room_beside_an_answer() {
    let config = |most: u32| {
        format!(
            "[organism]\nname = \"x\"\n[clients.desk]\npeers = [\"a\"]\n[models.m]\nprovider = \"openai\"\nmodel = \"m\"\n\
             context_window = 20000\nmax_tokens = {most}\n[agents.a]\nmodel = \"m\"\n\
             schema = \"tasks.xsd\"\naccepts = [\"sum\"]\n"
        )
    };
    let (sizes, code) = prompt_sizes(&config(1_000), TASKS);
    assert_eq!((&sizes[0]["room"], code), (&serde_json::json!(19_000), Some(0)), "{sizes:?}");
    assert!(sizes[0]["with_task"].as_u64() > sizes[0]["tokens"].as_u64(), "{sizes:?}");

    // The prompt fits into the window, but not beside the answer.
    let (sizes, code) = prompt_sizes(&config(19_900), TASKS);
    assert!(sizes[0]["tokens"].as_u64().unwrap() < 20_000, "{sizes:?}");
    assert_eq!(code, Some(78), "{sizes:?}");
}

#[test]
fn a_prompt_that_does_not_fit_is_a_problem_at_its_agent() {
    let config = |window: u32| {
        format!(
            "[organism]\nname = \"x\"\n[clients.desk]\npeers = [\"a\"]\n[models.m]\n\
             provider = \"openai\"\nmodel = \"m\"\ncontext_window = {window}\n[agents.a]\n\
             model = \"m\"\nschema = \"tasks.xsd\"\naccepts = [\"sum\"]\n"
        )
    };
    let (roomy, _) = check_summary(&config(200_000), TASKS);
    assert_eq!(roomy["ok"], true, "{roomy}");
    assert_eq!(roomy["problems"], serde_json::json!([]), "{roomy}");

    let (narrow, code) = check_summary(&config(600), TASKS);
    assert_eq!(code, Some(78), "{narrow}");
    assert_eq!(narrow["ok"], false, "{narrow}");
    let problem = &narrow["problems"][0];
    assert_eq!(problem["code"], "prompt-too-large", "{narrow}");
    assert_eq!(problem["line"], 9, "{narrow}");
    let message = problem["message"].as_str().unwrap();
    assert!(message.starts_with("the prompt of a does not fit: "), "{message}");
}

#[test]
fn agents_without_an_example_and_agents_that_take_only_goals_are_counted() {
    let config = "[organism]\nname = \"x\"\n[clients.desk]\n\
        peers = [\"odd\", \"essay\"]\n[models.m]\nprovider = \"openai\"\nmodel = \"m\"\ncontext_window = 20000\n[agents.odd]\n\
        model = \"m\"\nschema = \"tasks.xsd\"\naccepts = [\"odd\"]\n\
        [agents.writer]\nmodel = \"m\"\n[workflows.essay]\ninput = { topic = \"text\" }\n\
        [workflows.essay.goals]\n\
        draft = { agent = \"writer\", output = { title = \"text\" }, prompt = \"{{input/topic}}\" }\n";
    let (sizes, code) = prompt_sizes(config, TASKS);
    assert_eq!(code, Some(0), "{sizes:?}");
    let names: Vec<&str> = sizes.iter().filter_map(|size| size["agent"].as_str()).collect();
    assert_eq!(names, ["odd", "writer"]);
    assert!(sizes.iter().all(|size| size["tokens"].as_u64() > Some(300)), "{sizes:?}");
}

#[test]
fn the_effective_config_states_the_catalogue() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tasks.xsd"), TASKS).unwrap();
    let config = "[organism]\nname = \"x\"\ncatalogue = [\".\"]\n[clients.desk]\n\
        peers = [\"a\"]\n[models.m]\nprovider = \"openai\"\nmodel = \"m\"\n[agents.a]\n\
        model = \"m\"\nschema = \"tasks.xsd\"\naccepts = [\"sum\"]\n";
    std::fs::write(directory.path().join("organism.toml"), config).unwrap();
    let output = organism(directory.path(), &["check", "--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["config"]["catalogue"], serde_json::json!(["."]), "{output:?}");
}

/// A table in a pipe is not shortened, because a pipe has no width.
#[test]
fn a_table_in_a_pipe_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let name = "m".repeat(150);
    let config = format!(
        "[organism]\nname = \"d\"\n[clients.desk]\npeers = [\"critic\"]\n\
         [payloads]\nask = \"text\"\nreview = \"text\"\n\
         [models.long]\nprovider = \"ollama\"\nmodel = \"{name}\"\n\
         [agents.critic]\nmodel = \"long\"\naccepts = [\"ask\"]\nfinal = \"review\"\n"
    );
    std::fs::write(directory.path().join("organism.toml"), &config).unwrap();
    let listed = organism(directory.path(), &["models"]);
    assert!(text(&listed.stdout).contains(&name), "{listed:?}");

    // The file may be named without `--config`, and each payload has its schema.
    std::fs::write(directory.path().join("other.toml"), config + "final_by = \"text\"\n").unwrap();
    let checked = organism(directory.path(), &["check", "other.toml"]);
    let words: Vec<_> = text(&checked.stdout).split_whitespace().collect();
    let ends = "ends with review, which holds plain text, or with the text of a turn";
    assert!(words.join(" ").contains(ends), "{checked:?}");
    let checked = organism(directory.path(), &["check"]);
    assert!(!text(&checked.stdout).contains("of a turn"), "{checked:?}");
    let both = organism(directory.path(), &["check", "other.toml", "--config", "organism.toml"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");

    let shown = organism(directory.path(), &["schema", "show", "ask", "review"]);
    assert_eq!(text(&shown.stdout).matches("<xs:schema ").count(), 1, "{shown:?}");
    let wrong = organism(directory.path(), &["schema", "show", "ask", "revew"]);
    assert_eq!((wrong.status.code(), text(&wrong.stdout)), (Some(2), ""), "{wrong:?}");
}

/// The JSON of a check has every note and warning that the check prints for people, and the next
/// time of each schedule.
#[test]
fn the_json_of_a_check_has_all_notes_warnings_and_next_times() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["researcher.xsd", "turns.recording.xml", "research.payload.xml"] {
        std::fs::copy(data().join(file), directory.path().join(file)).unwrap();
    }
    let lax = data().join("../xsd/hostile/any_lax_everything.xsd");
    std::fs::copy(lax, directory.path().join("lax.xsd")).unwrap();
    let config = std::fs::read_to_string(data().join("good-schedules.toml")).unwrap()
        + "[listeners.lax]\ncommand = [\"true\"]\nschema = \"lax.xsd\"\naccepts = [\"r\"]\n\
           [journal]\ncheckpoints = \"absent\"\n[telemetry]\nservice = \"x\"\n";
    let config = config.replace("peers = [\"researcher\"]", "peers = [\"researcher\", \"lax\"]");
    std::fs::write(directory.path().join("organism.toml"), config).unwrap();

    let plain = organism(directory.path(), &["check"]);
    let notes = text(&plain.stderr);
    let output = organism(directory.path(), &["check", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = json["warnings"].as_array().unwrap();
    let warned: Vec<_> = warnings.iter().map(|warning| warning["code"].as_str()).collect();
    assert_eq!(warned, [Some("schema-skip"); 2], "{json}");
    for warning in warnings {
        let message = warning["message"].as_str().unwrap();
        let file = warning["file"].as_str().unwrap();
        let line = format!("note: {file}:{}: {message}", warning["line"]);
        assert!(notes.contains(&line), "{line} is not in {notes}");
    }

    assert_eq!(json["notes"].as_array().unwrap().len(), 1, "{json}");
    for note in [&json["notes"][0], &json["checkpoints_problem"]] {
        let note = note.as_str().unwrap();
        assert!(notes.contains(note), "{note} is not in {notes}");
    }
    let times: Vec<_> = json["schedules"].as_array().unwrap().iter().collect();
    assert_eq!(times[0], &serde_json::json!({"name": "often", "next": null}));
    assert_eq!(times[1]["name"], "weekly");
    assert!(times[1]["next"].as_str().unwrap().ends_with(":30:00.000000Z"), "{json}");
}
