//! Listeners in a trial of recorded threads have no more rights than other listeners: they get no
//! secret of the organism, and may use no verb of its control socket.

use super::try_threads::{AGENTS, TURNS, json, one, record, trial_command};
use super::{CommandOutput, House, numbered};

/// A listener that notes its variables in the file `variables`, and then plays a role of
/// `player.pl`. If `ORGANISM_UNDER_TEST` names the program, the listener first runs `pause all`
/// with it, and notes the output and the exit code.
pub(super) const SPY: &str = r#"
env > variables
if [ -n "$ORGANISM_UNDER_TEST" ]; then
    "$ORGANISM_UNDER_TEST" pause all >paused 2>&1 </dev/null
    echo "exit code $?" >>paused
fi
exec ./player.pl "$@"
"#;

pub(super) const NATS: &str =
    "[nats]\nurl = \"nats://localhost\"\nuser = \"pump\"\npassword_env = \"WORD\"\n";

/// Variables with secrets, which a listener must not inherit.
pub(super) const SECRETS: [(&str, &str); 3] = [
    ("NO_SUCH_KEY", "sk-hidden-0001"),
    ("WORD", "hidden-0002"),
    ("ORGANISM_LISTENERS__SOLO__ENV__TOKEN", "hidden-0003"),
];

/// Records a thread and writes a changed config, with which a trial calls the listener. The
/// listener of the changed config is the spy.
fn house(more: &str) -> House {
    let house = House::settled(AGENTS);
    house.write("turns.toml", TURNS);
    record(&house, &one(numbered("order", "1")));
    house.write("turns.toml", TURNS.replace("<n>{{order/n}}</n></ping>", "<n>99</n></ping>"));
    let changed =
        AGENTS.replace("peers = [\"solo\"]\nmodel", "peers = [\"solo\"]\nnotice = false\nmodel");
    let changed = changed.replace("\"./player.pl\"", "\"sh\", \"spy.sh\"");
    house.write("changed.toml", format!("{changed}\n{more}"));
    house.write("spy.sh", SPY);
    house
}

fn tried(house: &House, variables: &[(&str, &str)]) {
    let arguments =
        ["try", "changed.toml", "--threads", "sess-source01", "--json", "--live", "solo"];
    let mut command = trial_command(house, &arguments);
    command.envs(variables.iter().copied());
    let output = CommandOutput::from(command.output().unwrap());
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(json(&output)["threads"][0]["b"]["result"].to_string().contains("99"), "{output:?}");
}

#[test]
fn a_listener_in_a_trial_gets_no_password_of_nats() {
    let house = house(NATS);
    tried(&house, &SECRETS[1..2]);
    let variables = std::fs::read_to_string(house.path("variables")).unwrap();
    assert!(variables.contains("ORGANISM_LISTENER=solo"), "{variables}");
    assert!(!variables.contains("hidden-"), "{variables}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_listener_in_a_trial_is_no_operator_of_the_running_organism() {
    let house = house("");
    let running = house.run();
    tried(&house, &[("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"))]);
    let paused = std::fs::read_to_string(house.path("paused")).unwrap();
    assert!(paused.ends_with("exit code 65\n"), "{paused}");
    assert!(paused.contains("hosted-process"), "{paused}");

    let by_a_person = house.organism(&["pause", "all"]);
    assert_eq!(by_a_person.code, Some(0), "{by_a_person:?}");
    assert_eq!(running.stop(), Some(0));
}

/// A listener in a trial is refused when it starts a pump of the organism. Only the process of the
/// trial shows to which organism the listener belongs, because the trial has a journal of its own.
#[cfg(target_os = "linux")]
#[test]
fn a_listener_in_a_trial_starts_no_organism() {
    let house = house("");
    house.write("order.xml", numbered("order", "2"));
    house.write("spy.sh", SPY.replace("pause all", "send order.xml --no-wait"));
    tried(&house, &[("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"))]);
    let started = std::fs::read_to_string(house.path("paused")).unwrap();
    assert!(started.ends_with("exit code 65\n"), "{started}");
    assert!(started.contains("a hosted process starts no pump"), "{started}");
}
