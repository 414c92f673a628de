//! Kills during a delivery. The call was handed over, so the outcome of the attempt is unknown.

use super::{CONFIG, House, numbered, until};

fn house(attempts: u32) -> House {
    let limited = format!("accepts = [\"hold\"]\nattempts = {attempts}");
    let house = House::with(&CONFIG.replacen("accepts = [\"hold\"]", &limited, 1));
    // The handler of a killed run answers no pump.
    house.write("effects", "");
    house
}

/// Number of deliveries that the listener received.
fn begun(house: &House) -> usize {
    std::fs::read_to_string(house.path("effects")).unwrap().lines().count()
}

fn run(house: &House) -> super::Running {
    let mut command = house.command(&["run"]);
    command.env("EFFECTS", house.path("effects"));
    house.run_with(command)
}

fn killed_with_a_delivery_out(house: &House) {
    let mut running = run(house);
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--new", "sess-hold0000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("its handler has begun", || (begun(house) == 1).then_some(()));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

fn shown(house: &House) -> String {
    house.organism(&["thread", "sess-hold0000"]).out
}

#[test]
fn a_call_with_a_single_attempt_ends_as_unknown_outcome_when_its_pump_is_killed() {
    let house = house(1);
    killed_with_a_delivery_out(&house);
    let running = run(&house);
    until("it has ended", || shown(&house).contains("unknown-outcome").then_some(()));
    house.write("let-go", "");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(begun(&house), 1, "it was not delivered again");
    assert!(shown(&house).contains("holder  attempt 1.1 failed"), "{}", shown(&house));
    house.verified();
}

#[test]
fn a_delivery_that_ends_its_pump_is_handed_over_as_often_as_it_has_attempts() {
    let house = house(2);
    killed_with_a_delivery_out(&house);
    for start in [2, 3] {
        let mut running = run(&house);
        until("it goes on", || {
            (begun(&house) == start || shown(&house).contains("unknown-outcome")).then_some(())
        });
        running.child.kill().unwrap();
        running.child.wait().unwrap();
    }
    assert_eq!(begun(&house), 2);
    assert!(shown(&house).contains("unknown-outcome"), "{}", shown(&house));
    house.write("let-go", "");
    // A regular stop signs the records of the killed runs.
    assert_eq!(run(&house).stop(), Some(0));
    house.verified();
}
