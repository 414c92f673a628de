//! The time in which a pump does not run, because its process is stopped or the machine is
//! suspended.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{CONFIG, CommandOutput, House, numbered, until};

#[test]
fn time_in_which_the_pump_stood_still_is_not_its_listeners() {
    let short =
        CONFIG.replacen("accepts = [\"hold\"]", "accepts = [\"hold\"]\ntimeout = \"2s\"", 1);
    let house = House::with(&short);
    let running = house.run();
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--new", "sess-hold0000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it is on record", || (house.recorded("hold") == 1).then_some(()));
    running.signal("-STOP");
    house.write("let-go", "");
    let due = Instant::now() + Duration::from_secs(4);
    until("its time was over long ago", || (Instant::now() >= due).then_some(()));
    running.signal("-CONT");
    until("it is answered", || (house.recorded("held") == 1).then_some(()));
    let shown = house.organism(&["thread", "sess-hold0000"]);
    assert!(shown.out.starts_with("sess-hold0000  completed"), "{}", shown.out);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn commands_to_a_stopped_organism_end_and_name_its_process() {
    let house = House::new();
    let running = house.run();
    running.signal("-STOP");
    house.write("ping.xml", numbered("ping", "1"));
    let commands: [(&[&str], i32); 4] = [
        (&["send", "ping.xml", "--as", "desk"], 75),
        (&["pause", "all"], 75),
        (&["reload"], 75),
        // The journal answers in place of the pump.
        (&["approvals"], 0),
    ];
    let started = commands.map(|(command, code)| {
        let mut child = house.command(command);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (command, code, child)
    });

    let process = format!("process {} holds the journal", running.child.id());
    for (command, code, child) in started {
        let ended: CommandOutput = child.wait_with_output().unwrap().into();
        assert_eq!(ended.code, Some(code), "{command:?}: {ended:?}");
        assert!(ended.err.contains(&process), "{command:?}: {ended:?}");
        // A process whose queue of connections is long is as silent as a stopped one.
        let causes = "it may be stopped, or too many commands are connected";
        assert!(ended.err.contains(causes), "{command:?}: {ended:?}");
    }

    running.signal("-CONT");
    let resumed = house.organism(&["resume", "all"]);
    assert!(resumed.err.contains("everything was not paused"), "{resumed:?}");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.recorded("ping"), 0);
}
