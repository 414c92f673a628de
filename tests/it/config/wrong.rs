//! Wrong configs, each reported with its code, location and suggestion.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use organism::config::{ConfigEnvironment, ProblemCode, load, locate};

use super::{data, good_with, load_text, said, surroundings};

/// A file with its expected and its reported problems.
type Case = (String, Vec<String>, Vec<String>);

/// The results of all files, checked once for all tests. UPDATE_EXPECT writes the reported problems
/// into the files.
fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(judge_all);
    &CASES
}

fn judge_all() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(data()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = |mark: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(mark)).map(str::to_owned).collect()
        };
        let variables = lines("#env ");
        let variables: Vec<_> = variables.iter().map(|v| v.split_once('=').unwrap()).collect();
        let result = load(Path::new(&name), &surroundings(&data(), &variables));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let kept: String =
                text.split_inclusive('\n').filter(|l| !l.starts_with("#! ")).collect();
            let said: String = said(&result).iter().map(|line| format!("#! {line}\n")).collect();
            std::fs::write(&path, kept + &said).unwrap();
        }
        cases.push((name, lines("#! "), said(&result)));
    }
    cases.sort();
    cases
}

#[test]
fn each_wrong_config_is_answered_with_its_code_place_and_suggestion() {
    let cases = cases();
    let mut wrong = 0;
    for (name, expected, said) in cases {
        assert_eq!(expected, said, "{name}");
        wrong += usize::from(!expected.is_empty());
        assert_eq!(expected.is_empty(), name.starts_with("good"), "{name}");
    }
    assert!(wrong >= 45, "only {wrong} wrong configs");
}

#[test]
fn every_problem_says_what_to_do() {
    for (name, _, said) in cases() {
        for line in said {
            assert!(
                line.splitn(3, ' ').nth(2).is_some_and(|help| !help.is_empty()),
                "{name}: {line}"
            );
        }
    }
}

/// A text that is no config gives exactly one problem. The texts stand in this test, because such a
/// text cannot contain a comment with the expectation.
#[test]
fn texts_that_are_no_config_give_different_errors() {
    let good = std::fs::read_to_string(data().join("good.toml")).unwrap();
    let latin1 = [good.as_bytes(), b"\n# caf\xe9\n"].concat();
    let utf16: Vec<u8> = "\u{feff}[organism]".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let table: [(&str, Vec<u8>, &str); 8] = [
        ("nothing", b"".to_vec(), "file-empty 1:1"),
        ("white space", b" \n\t\r\n".to_vec(), "file-empty 1:1"),
        ("a byte order mark", "\u{feff}".into(), "file-empty 1:1"),
        ("Latin-1", latin1, "file-not-utf8 23:6"),
        ("UTF-16", utf16, "file-not-utf8 1:1"),
        ("control characters", good.replace("desk", "de\u{7}sk").into(), "syntax 2:11"),
        ("XML", b"<organism/>\n".to_vec(), "syntax 1:1"),
        ("JSON", b"{\"organism\": {}}\n".to_vec(), "syntax 1:1"),
    ];
    for (name, text, expected) in table {
        let said = said(&load_text(text, &[]));
        assert!(said.first().is_some_and(|s| s.starts_with(expected)), "{name}: {said:?}");
        assert_eq!(said.len(), 1, "{name}: {said:?}");
    }
}

#[test]
fn a_byte_order_mark_tabs_and_windows_line_ends_move_no_column() {
    let wrong = good_with("accepts = [\"search\"]", "\taccepts\t=\t[\"serch\"]");
    let plain = said(&load_text(&wrong, &[]));
    assert_eq!(plain, ["undeclared-payload 10:13 did you mean \"search\"?"]);
    let windows = wrong.replace('\n', "\r\n");
    assert_eq!(said(&load_text(&windows, &[])), plain);
    assert_eq!(said(&load_text(format!("\u{feff}{windows}"), &[])), plain);
    let first = "\u{feff}nmae = 1\n".to_owned() + &wrong;
    assert!(said(&load_text(first, &[]))[0].starts_with("unknown-section 1:1"));
}

#[test]
fn columns_count_characters() {
    let wrong = good_with("peers = [\"search\"]", "peers = [\"größe-é-🦀\", \"serach\"]");
    let said = said(&load_text(wrong, &[]));
    assert_eq!(said[1], "unknown-peer 17:23 did you mean `search`?");
}

/// A misspelled workflow is reported with a suggestion even if the config has only clients and
/// workflows.
#[test]
fn a_misspelled_workflow_is_reported_without_any_listener_or_agent() {
    let config = "[organism]\nname = \"desk\"\n\n[clients.user]\npeers = [\"esay\"]\n\n\
                  [workflows.essay]\ninput = { topic = \"text\" }\n\n[workflows.essay.goals]\n\
                  draft = { agent = \"writer\", prompt = \"On {{input/topic}}.\" }\n";
    let said = said(&load_text(config, &[]));
    let expected = "unknown-peer 5:10 did you mean `essay`?";
    assert!(said.iter().any(|line| line == expected), "{said:?}");
}

/// The contract of a declaration with a problem is unknown, so no other problem follows from it.
#[test]
fn one_mistake_in_a_declaration_is_the_only_problem() {
    let good = std::fs::read_to_string(data().join("good-undo.toml")).unwrap();
    let two = "[agents.room]\nmodel = \"recorded\"\n\n[agents.guide]";
    let file = "[workflows.other]\nfile = \"other.toml\"\n\n[workflows.visit]";
    for (from, to, expected) in [
        ("room.xsd", "broken.xsd", "schema-broken broken.xsd:4:3"),
        ("room.xsd", "rooms.xsd", "schema-missing 12:10"),
        ("accepts =", "acepts =", "unknown-key 13:1"),
        ("[\"reserve\",", "[\"reserv\",", "undeclared-payload 13:12"),
        ("[\"reserved\"]", "[\"${REPLY}\"]", "unset-variable 14:13"),
        ("\"1h\"", "\"1 hour\"", "bad-duration 15:20"),
        ("clock]\npeers = [\"visit\"]", "clock]\npeers = [\"vist\"]", "unknown-peer 8:10"),
        ("[agents.guide]", two, "duplicate-name 22:9"),
        ("visit.goals]", "visit.goal]", "unknown-key 35:18"),
        ("[\"date\"]", "[\"dat\"]", "bad-type 30:18"),
        ("\"undo\"", "\"undoo\"", "unknown-choice 32:14"),
        ("[workflows.visit]", file, "file-missing 30:8"),
    ] {
        assert!(good.contains(from), "the good config has no `{from}`");
        let said = said(&load_text(good.replacen(from, to, 1), &[]));
        assert_eq!(said.len(), 1, "{to}: {said:?}");
        assert!(said[0].starts_with(expected), "{to}: {said:?}");
    }
}

#[test]
fn a_client_with_a_bad_name_is_not_missing() {
    let said = said(&load_text(good_with("[clients.user]", "[clients.User]"), &[]));
    assert_eq!(said, ["bad-name 4:10 did you mean `user`?"]);
}

/// With a workflow, a member needs no schema, but the names of its payloads need a declaration.
#[test]
fn payloads_that_nothing_declares_are_reported_beside_a_workflow() {
    let without = |name: &str, from: &str, to: &str| {
        let good = std::fs::read_to_string(data().join(name)).unwrap();
        assert!(good.contains(from), "{name} has no `{from}`");
        said(&load_text(good.replacen(from, to, 1), &[]))
    };
    assert_eq!(
        without("good-undo.toml", "schema = \"room.xsd\"\n", ""),
        [
            "undeclared-payload 12:12 add [payloads.reserve]",
            "undeclared-payload 12:23 add [payloads.release]",
            "undeclared-payload 13:12 add [payloads.reserved]",
        ]
    );
    assert_eq!(
        without("good-workflow.toml", "{ topic = \"text\" }", "\"topic\""),
        ["undeclared-payload 15:9 add [payloads.topic]"]
    );
}

#[test]
fn missing_files_and_directories_give_different_errors() {
    let around = surroundings(&data(), &[]);
    let of = |path: &str| said(&load(Path::new(path), &around));
    assert_eq!(
        of("goood.toml"),
        ["file-missing 1:1 did you mean `good.toml` in the same directory?"]
    );
    let other = of("gnat.toml");
    let rule = "file-missing 1:1 check the path, or write a config with `organism init`";
    assert_eq!(other, [rule], "`good.toml` differs from it in three of four letters");
    assert_eq!(of("."), ["file-is-directory .:1:1 name the file in it"]);
    let nowhere = of("nowhere/organism.toml");
    assert_eq!(nowhere, [rule]);
}

#[test]
fn a_config_is_found_or_the_searched_paths_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let around = surroundings(directory.path(), &[]);
    let found = |around| locate(None, around).map(|path| path.display().to_string());
    assert!(found(&around).unwrap_err().to_string().contains("there is no config"));
    std::fs::create_dir(directory.path().join("config")).unwrap();
    std::fs::write(directory.path().join("config/desk.toml"), "").unwrap();
    assert_eq!(found(&around).unwrap(), "config/desk.toml");
    std::fs::write(directory.path().join("config/other.toml"), "").unwrap();
    let several = found(&around).unwrap_err().to_string();
    assert!(
        several.contains("which config? there are several: desk.toml, other.toml"),
        "{several}"
    );
    std::fs::write(directory.path().join("organism.toml"), "").unwrap();
    assert_eq!(found(&around).unwrap(), "organism.toml");
    let variable = surroundings(directory.path(), &[("ORGANISM_CONFIG", "/etc/desk.toml")]);
    assert_eq!(found(&variable).unwrap(), "/etc/desk.toml");
    let given = locate(Some(Path::new("given.toml")), &variable).unwrap();
    assert_eq!(given, Path::new("given.toml"));
}

#[test]
fn the_current_directory_never_takes_the_place_of_an_unknown_home_directory() {
    let directory = data();
    let around = ConfigEnvironment { home: None, ..surroundings(&directory, &[]) };
    let problems = load(Path::new("good.toml"), &around).map(drop).unwrap_err().to_string();
    assert!(problems.contains("home-missing"), "{problems}");
    let problems = organism::config::directories(Path::new("good.toml"), &around).unwrap_err();
    assert!(problems.to_string().contains("home-missing"), "{problems}");
    assert_eq!(around.operator_key(), None);

    let named = [("XDG_DATA_HOME", "/d"), ("XDG_STATE_HOME", "/s")];
    let around = ConfigEnvironment { home: None, ..surroundings(&directory, &named) };
    let config = load(Path::new("good.toml"), &around).unwrap();
    assert!(config.data.starts_with("/d/organism"), "{}", config.data.display());
}

/// Checks that every code has a case here, except for the code of unreadable files, which needs a
/// user other than root.
#[test]
fn every_code_has_a_wrong_config_and_a_line_in_the_docs() {
    let shown: BTreeSet<String> = cases()
        .iter()
        .flat_map(|(_, _, said)| said)
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .chain(["file-empty", "file-not-utf8", "file-missing", "file-is-directory"].map(Into::into))
        .chain(["file-unreadable"].map(Into::into))
        // Cases of workflows are not a part of a config: organism/workflow_cases.rs shows these.
        .chain(["case-failed", "answer-missing", "answer-unused", "answer-refused"].map(Into::into))
        // The cases are loaded with a home directory: another test here loads a config without one.
        .chain(["home-missing"].map(Into::into))
        // `organism check` measures prompts after the config is loaded: command.rs shows this.
        .chain(["prompt-too-large"].map(Into::into))
        .collect();
    let all: BTreeSet<String> =
        ProblemCode::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(shown, all);
    let docs = include_str!("../../../docs/CONFIG.md");
    for code in all {
        assert!(docs.contains(&format!("| `{code}` |")), "docs/CONFIG.md has no row for {code}");
    }
}

#[test]
fn secrets_never_appear_in_messages() {
    const SECRET: &str = "hunter2";
    let env = "[listeners.search]\nenv = { TOKEN = \"hunter2\", A_B = 5, \"C-D\" = \"hunter2\" }";
    let payloads = "[payloads.note]\nquery = \"${PEER}\"\nword = \"a | ${PEER} b\"\n\
                    api_token = \"hunter2\"\nid_key = \"text\"\n[listeners.search]";
    let variable = [
        ("PEER", SECRET),
        ("ORGANISM_LISTENERS__SEARCH__ENV__A-B", SECRET),
        ("ORGANISM_listeners__SEARCH__env__E-F", SECRET),
        ("ORGANISM_NATS__URL", "nats://me:hunter2@localhost"),
        ("ORGANISM_TELEMETRY__ENDPOINT", "http://me:hunter2@localhost"),
        ("ORGANISM_PAYLOADS__NOTE__ID_KEY", SECRET),
    ];
    let wrongs = [
        good_with("[listeners.search]", env),
        good_with("peers = [\"search\"]", "peers = [\"${PEER}\"]"),
        good_with("accepts = [\"search\"]", "accepts = [\"${PEER}\"]"),
        good_with("\"./run\"", "\"${PEER}\""),
        good_with("model = \"recorded\"", "model = \"${PEER}\"\ntimeout = \"${PEER}\""),
        good_with("[listeners.search]", "[listeners.search]\nenv = { TOKEN = \"hunter2 }"),
        good_with("recording =", "api_key = \"hunter2\"\nrecordings ="),
        good_with("[listeners.search]", "[listeners.search]\nenv = \"hunter2\""),
        good_with("[listeners.search]", payloads),
        good_with("[listeners.search]", "[listeners.search]\nenv = { TOKEN = \"a${b!hunter2}\" }"),
        good_with("[clients.user]", "[clients.user]\nsecret_env = \"hunter2-hunter2\""),
    ];
    // These values have several lines, and are no TOML.
    let long_values = [
        "env = { A = '''\n[x]\nhunter2\nB = \"hunter2\"''' B }",
        "env = { A = \"\"\"\nhunter2\n\"\"\", B = '''\nhunter2''' C }",
        "env = { A = \"x\" B,\n  C = \"hunter2\",\n  D = \"hunter2\" E }",
        "api_key = \"\"\"\nx\nhunter2\n",
        "description = \"\"\"Searches.\n[listeners.search.env]\nPGPASS = \"hunter2\"\n",
        "description = \"\"x\"\"\"\n[listeners.search.env]\nPGPASS = \"hunter2\"\n",
        "description = \"\"\"Searches.\napi_key = \"\"\"\nhunter2\n\"\"\"\n",
    ];
    let long_values = long_values
        .map(|value| good_with("[listeners.search]", &format!("[listeners.search]\n{value}")));
    for wrong in wrongs.into_iter().chain(long_values) {
        let Err(problems) = load_text(&wrong, &variable) else { panic!("this is good:\n{wrong}") };
        for problem in problems.iter() {
            let shown = problem.place.source.shown().inner();
            assert!(!shown.contains(SECRET), "{problem}\n{shown}");
        }
        let json = serde_json::to_string(&problems.iter().collect::<Vec<_>>()).unwrap();
        assert!(!json.contains(SECRET), "{json}");
    }
}

#[test]
fn a_prompt_is_no_secret_and_is_shown_beside_what_is_wrong_with_it() {
    let prompt = "[agents.researcher]\nprompt = { identity = \"Be kind.\", \"X\" = \"Be brief.\" }";
    let wrong = good_with("[agents.researcher]", prompt);
    let Err(problems) = load_text(&wrong, &[]) else { panic!("this is good:\n{wrong}") };
    let shown = problems.iter().next().unwrap().place.source.shown().inner();
    assert!(shown.contains("Be kind.") && shown.contains("Be brief."), "{shown}");
}
