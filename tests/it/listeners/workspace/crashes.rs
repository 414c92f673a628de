//! A crash of the workspace during an action: the state of the files afterwards, and the answer of
//! the workspace when the message is delivered again.

use super::{action, ask, direct, house, read};

/// Command of a workspace that crashes once in the middle of a set of proposals.
const MORTAL: &str = r#"["sh", "-c", """
if [ -e died ]; then exec "$0" --state memory work; fi
touch died
ORGANISM_FAILPOINT=workspace-step:5 exec "$0" --state memory work""", "PROGRAM"]"#;

fn set() -> String {
    let proposals = "<proposed_file_replace_substring file_path='a'><old_str>one</old_str><new_str>two</new_str></proposed_file_replace_substring>\
         <proposed_file_insert file_path='b' line_number='0'>first\n</proposed_file_insert>\
         <proposed_file_replace file_path='c'>new\n</proposed_file_replace>";
    action("proposed_actions", "summary='three files'", proposals)
}

fn prepared(command: &str) -> crate::organism::House {
    let house = house(command);
    std::fs::write(super::file(&house, "a"), "one\n").unwrap();
    std::fs::write(super::file(&house, "b"), "second\n").unwrap();
    house
}

fn is_made_once(house: &crate::organism::House) {
    let files = ["a", "b", "c"].map(|path| read(house, path));
    assert_eq!(files, ["two\n", "first\nsecond\n", "new\n"]);
    let names: Vec<_> = std::fs::read_dir(house.path("work")).unwrap().collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_set_whose_listener_dies_in_the_middle_is_made_by_the_next_attempt() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_organism")).with_file_name("workspace");
    let house = prepared(&MORTAL.replace("PROGRAM", program.to_str().unwrap()));
    let said = ask(&house, &set());
    assert!(house.path("died").exists());
    assert!(
        said.out.starts_with("<changes-applied ") && said.out.contains("set=\"1\""),
        "{said:?}"
    );
    is_made_once(&house);
    house.verified();
}

#[test]
fn a_repeated_set_after_a_crash_of_the_pump_is_answered_and_not_executed_again() {
    let house = prepared(direct());
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_FAILPOINT", "answered:1");
    let mut running = house.run_with(command);
    let sent = house.send_text(&set(), &["--key", "once"]);
    assert_ne!(sent.code, Some(0), "{sent:?}");
    let ended = crate::organism::until("the pump dies", || running.child.try_wait().unwrap());
    assert_eq!(ended.code(), None);
    is_made_once(&house);

    let _running = house.run();
    let said = house.send_text(&set(), &["--key", "once"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.starts_with("<changes-applied ") && said.out.contains("set=\"1\""),
        "{said:?}"
    );
    is_made_once(&house);
    house.verified();
}
