//! A pause of everything, or of a listener, reaches the pump of every partition. A pause of a
//! thread reaches only the pump of that thread.

use super::*;
use crate::organism::pauses::value;

fn results(output: &CommandOutput) -> Vec<String> {
    let partitions = value(output)["partitions"].as_array().unwrap().clone();
    partitions.iter().map(|one| one["result"].as_str().unwrap().to_owned()).collect()
}

fn pongs(house: &House) -> usize {
    effects(house).iter().filter(|effect| effect.starts_with("solo ")).count()
}

#[test]
fn a_pause_reaches_every_pump_and_survives_a_takeover() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let mut first = run(&one, "0,1");
    let second = run(&other, "0,1,2,3");

    let paused = one.organism(&["pause", "solo", "--json"]);
    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert_eq!(results(&paused), ["done"; 4]);
    let thread = root(2, 0);
    for partition in 0..PARTITIONS {
        let new = root(partition, 0);
        let sent =
            one.send_text(&numbered("ping", "1"), &["--new", &new, "--no-wait", "--key", &new]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let own = other.organism(&["pause", &thread, "--json"]);
    assert_eq!(results(&own), ["done"], "{own:?}");
    assert_eq!(value(&own)["partitions"][0]["partition"], 2);

    // The organism of this host refuses it, and then the streams, as no organism runs here.
    one.write("organism.toml", config(&server, PARTITIONS - 1));
    let refused = one.organism(&["pause", "all"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    for refused in [refused, one.organism(&["pause", "all"])] {
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.err.contains("write `partitions = 4` under [journal]"), "{refused:?}");
    }
    one.write("organism.toml", config(&server, PARTITIONS));
    until_within(TAKEOVER, "the other has all", || {
        let log = other.log();
        (log.contains("partition 0: pumped here") && log.contains("partition 1: pumped here"))
            .then_some(())
    });
    let named = || other.log().matches("paused since").count();
    until("both starts name the pause", || (named() == 2).then_some(()));
    assert_eq!((pongs(&one), pongs(&other)), (0, 0));

    let resumed = other.organism(&["resume", "solo", "--json"]);
    assert_eq!(results(&resumed), ["done"; 4], "{resumed:?}");
    until("all but the paused thread are done", || (pongs(&other) == 3).then_some(()));
    let again = other.organism(&["resume", "solo", "--json"]);
    assert_eq!(results(&again), ["unchanged"; 4], "{again:?}");
    let resumed = other.organism(&["resume", &thread]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    until("the paused thread is done", || (pongs(&other) == 4).then_some(()));
    assert_eq!(second.stop(), Some(0));
    all_verified(&other);
}
