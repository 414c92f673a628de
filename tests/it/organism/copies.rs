//! The configured directory for copies of checkpoints: its use by `check`, by a start and by
//! `verify`.

use std::process::Output;

use super::proof::{answered, copy};
use super::{COPIES_KEY, CommandOutput, ECHO_CONFIG, House, say, until};

fn without_copies(house: &House, arguments: &[&str]) -> CommandOutput {
    let output: Output = house.command(arguments).env_remove(COPIES_KEY).output().unwrap();
    output.into()
}

#[test]
fn a_record_rewritten_with_the_key_is_unproved_without_copies_and_broken_with_them() {
    let house = answered();
    house.verified();
    let older =
        [(house.data(), house.path("older/data")), (house.state(), house.path("older/state"))];
    older.iter().for_each(|(from, to)| copy(from, to));
    assert_eq!(house.send_text(&say("later"), &[]).code, Some(0));
    older.iter().for_each(|(to, from)| copy(from, to));
    house.write("forged.xml", say("forged"));
    let forged = without_copies(&house, &["send", "forged.xml", "--as", "desk"]);
    assert_eq!(forged.code, Some(0), "{forged:?}");

    let alone = without_copies(&house, &["verify"]);
    assert_eq!(alone.code, Some(5), "{alone:?}");
    assert!(alone.out.contains("only the state directory vouches for the journal"), "{alone:?}");
    let copies = house.copies().display().to_string();
    let compared = house.organism(&["verify"]);
    assert_eq!(compared.code, Some(4), "{compared:?}");
    assert!(compared.out.contains(&copies), "{compared:?}");
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains(&copies), "{refused:?}");
}

#[test]
fn a_place_that_is_not_there_is_named_and_stops_nothing() {
    let house = House::settled(ECHO_CONFIG);
    std::fs::remove_dir(house.copies()).unwrap();
    let named = format!("{} is not there: make it", house.copies().display());
    let checked = house.organism(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.err.contains(&named), "{checked:?}");

    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    assert!(house.log().contains("checkpoints cannot be copied to"), "{}", house.log());
    assert!(house.log().contains(&named), "{}", house.log());
    let unproved = house.organism(&["verify"]);
    assert_eq!(unproved.code, Some(5), "{unproved:?}");
    assert!(unproved.out.contains(&named), "{unproved:?}");

    std::fs::create_dir(house.copies()).unwrap();
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    let proved = house.organism(&["verify"]);
    assert_eq!(proved.code, Some(0), "{proved:?}");
    assert!(proved.out.contains("by a copy elsewhere"), "{proved:?}");
}

#[test]
fn a_kill_between_the_state_and_the_copy_is_completed_by_the_next_start() {
    let house = House::settled(ECHO_CONFIG);
    house.write("hello.xml", say("hello"));
    let mut killed = house.command(&["send", "hello.xml", "--as", "desk"]);
    let killed = killed.env("ORGANISM_FAILPOINT", "after-outside-line").output().unwrap();
    assert_eq!(killed.status.code(), None, "{killed:?}");
    let lagging = house.organism(&["verify"]);
    assert_eq!(lagging.code, Some(5), "{lagging:?}");

    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    let proved = house.organism(&["verify"]);
    assert_eq!(proved.code, Some(0), "{proved:?}");
}

#[test]
fn a_proof_of_a_running_organism_waits_for_its_last_copy() {
    let house = House::settled(ECHO_CONFIG);
    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    until("there is a checkpoint", || {
        (!house.reader().checkpoints().unwrap().is_empty()).then_some(())
    });
    let proved = house.organism(&["verify"]);
    assert_eq!(proved.code, Some(0), "{proved:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_place_in_data_or_state_is_a_problem_of_the_config() {
    let name = "name = \"talk\"";
    let house =
        House::settled(&ECHO_CONFIG.replace(name, &format!("{name}\ndata = \"d\"\nstate = \"s\"")));
    for place in ["d", "d/copies", "s/../s/copies"] {
        let mut check = house.command(&["check"]);
        let checked = CommandOutput::from(check.env(COPIES_KEY, place).output().unwrap());
        assert_eq!(checked.code, Some(78), "{place}: {checked:?}");
        assert!(checked.err.contains("checkpoints-inside"), "{place}: {checked:?}");
    }
    let mut check = house.command(&["check"]);
    let checked = CommandOutput::from(check.env(COPIES_KEY, "copies").output().unwrap());
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn a_key_that_is_none_is_a_usage_error_of_verify() {
    let house = answered();
    for key in ["abc", "", "7F"] {
        let refused = house.organism(&["verify", "--key", key]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
}
