//! A reload puts the config in force in every pump of a host, and in pumps that the host starts
//! later (design 12.3).

use super::*;

/// Rewrites the config so that `desk` may no longer send to `solo`.
fn withdraw_solo(house: &House) {
    let text = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    assert!(text.contains(", \"solo\"]"), "{text}");
    house.write("organism.toml", text.replace(", \"solo\"]", "]"));
}

fn reloaded(house: &House) {
    let output = house.organism(&["reload", "--json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report["result"], "applied", "{output:?}");
}

fn is_refused(output: &CommandOutput) -> bool {
    output.code == Some(65) && output.err.contains("not-in-vocabulary")
}

/// Number of recorded reloads in the partitions of this host.
fn reloads(house: &House) -> usize {
    let recorded = |partition: u32| {
        let number = partition.to_string();
        let query = "SELECT action FROM action";
        let actions = house.organism(&["sql", query, "--csv", "--partition", &number]);
        assert_eq!(actions.code, Some(0), "{actions:?}");
        actions.out.lines().filter(|line| line.contains("reload")).count()
    };
    (0..PARTITIONS).map(recorded).sum()
}

#[test]
fn a_reload_reaches_every_pump_of_the_host_while_work_is_in_flight() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    for partition in 0..PARTITIONS {
        let sent = ask_in(&house, partition, 0);
        assert_eq!(sent.code, Some(0), "{sent:?}\n{}", house.log());
    }
    let held = root(1, 7);
    let sent = house.send_text(&numbered("hold", "1"), &["--new", &held, "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");

    withdraw_solo(&house);
    reloaded(&house);
    for partition in 0..PARTITIONS {
        let sent = ask_in(&house, partition, 1);
        assert!(is_refused(&sent), "partition {partition}: {sent:?}");
    }
    let again = house.organism(&["reload"]);
    assert!(again.err.contains("the config is unchanged"), "{again:?}");
    assert_eq!(reloads(&house), PARTITIONS as usize);

    house.write("let-go", "");
    until("the work in flight has ended", || (house.recorded("held") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
    all_verified(&house);
}

#[test]
fn a_pump_that_takes_over_later_has_the_reloaded_config() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let mut first = run(&one, "0,1,2,3");
    let second = run(&other, "0,1,2,3");
    assert!(other.log().contains("stands by for"), "{}", other.log());

    // The standby has no pump or some; each host has a file of its own.
    withdraw_solo(&other);
    reloaded(&other);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    for partition in 0..PARTITIONS {
        let sent = ask_until_served(&other, partition, 1);
        assert!(is_refused(&sent), "partition {partition}: {sent:?}");
    }
    assert_eq!(second.stop(), Some(0));
    all_verified(&other);
}

#[test]
fn a_difference_that_needs_a_restart_reaches_no_partition() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    withdraw_solo(&house);
    let text = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let serial =
        text.replace("accepts = [\"hold\"]", "accepts = [\"hold\"]\nserial_per_thread = true");
    house.write("organism.toml", serial);

    let refused = house.organism(&["reload"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.err.contains("listeners.holder.serial_per_thread"), "{refused:?}");
    assert_eq!(reloads(&house), 0);
    assert_eq!(running.stop(), Some(0));
}
