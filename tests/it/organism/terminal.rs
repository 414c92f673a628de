//! `organism approve`, `organism answer` and `organism listener install --update` at a terminal.

use std::process::Command;

use serde_json::{Value as Json, json};

use super::{CommandOutput, House, say, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "boss"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"

[humans.boss]
schema = "people.xsd"
accepts = ["question"]
replies = ["decision"]
"#;

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

/// Texts for which a test waits, each with the input that is then typed.
pub type Typed<'a> = &'a [(&'a str, &'a str)];

fn house() -> House {
    let house = House::with(CONFIG);
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    house
}

/// Runs a command on a terminal. Returns its output and exit code.
pub fn at_terminal(house: &House, arguments: &[&str], typed: Typed<'_>) -> (String, i32) {
    run_at_terminal(house, &house.command(arguments), typed)
}

/// Runs a command on a terminal that shows colours. Returns its output and exit code.
pub fn in_colour(house: &House, mut organism: Command) -> (String, i32) {
    organism.env_remove("NO_COLOR");
    run_at_terminal(house, &organism, &[])
}

fn run_at_terminal(house: &House, organism: &Command, typed: Typed<'_>) -> (String, i32) {
    house.write("terminal.py", include_str!("../../data/organism/terminal.py"));
    let mut command = Command::new("python3");
    command.arg("terminal.py").arg(json!(typed).to_string()).arg(organism.get_program());
    command.args(organism.get_args()).current_dir(house.path("."));
    for (name, value) in organism.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let said: CommandOutput = command.output().unwrap().into();
    assert_eq!((said.code, &*said.err), (Some(0), ""), "{said:?}");
    assert!(!said.out.contains("never shown"), "{}", said.out);
    let (shown, code) = said.out.trim_end().rsplit_once('\n').unwrap();
    (shown.to_owned(), code.parse().unwrap())
}

/// The held calls that `organism approvals` or `organism answer` lists.
fn waiting(house: &House, list: &str) -> Vec<Json> {
    let listed = house.organism(&[list, "--json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    listed.json()
}

fn records(house: &House) -> u64 {
    house.reader().last().unwrap().0
}

/// Sends a payload, which opens a held call. Returns the message id of the call.
fn hold(house: &House, list: &str, payload: &str) -> String {
    let sent = house.send_text(payload, &["--no-wait"]);
    assert!(matches!(sent.code, Some(0 | 3)), "{sent:?}");
    waiting(house, list).pop().unwrap()["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_approval_on_a_terminal_takes_a_yes_a_no_and_nothing_else() {
    let house = house();
    let running = house.run();
    let id = hold(&house, "approvals", &say("pay \u{202e}001"));
    let before = records(&house);
    let ask = "approve exactly this? yes or no: ";
    for (typed, code, told) in [
        (&[(ask, "y\r"), ("say yes or no", "\r"), ("yes or no: ", "no\r")][..], 3, "it waits on"),
        (&[(ask, CTRL_D)], 3, "it waits on"),
        (&[(ask, "ye"), ("ye", CTRL_C)], 130, "^C"),
    ] {
        let (shown, ended) = at_terminal(&house, &["approve", &id], typed);
        assert_eq!(ended, code, "{shown}");
        assert!(shown.contains("pay \\u{202e}001"), "what is approved is shown: {shown}");
        assert!(shown.contains(told), "{shown}");
        assert_eq!(waiting(&house, "approvals").len(), 1);
        assert_eq!(records(&house), before, "everything is as it was");
    }
    let typed = [(ask, "Yes\r"), ("say yes or no: ", "yes\r"), ("approved", "")];
    let (shown, ended) = at_terminal(&house, &["approve", &id], &typed);
    assert_eq!(ended, 0, "{shown}");
    until("it is done", || (house.recorded("said") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn an_update_of_a_listener_takes_a_yes_a_no_and_nothing_else() {
    let house = house();
    let installed = house.organism(&["listener", "install", "calculator", "t"]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    let program = house.path("t/calculator.py");
    let shipped = std::fs::read_to_string(&program).unwrap();
    std::fs::write(&program, "mine\n").unwrap();

    let update = ["listener", "install", "calculator", "t", "--update"];
    let ask = "replace these files? yes or no: ";
    let typed = [(ask, "YES\r"), ("say yes or no: ", "no\r")];
    let (shown, ended) = at_terminal(&house, &update, &typed);
    assert_eq!(ended, 2, "{shown}");
    assert!(shown.contains("nothing was changed"), "{shown}");
    assert_eq!(std::fs::read_to_string(&program).unwrap(), "mine\n");

    let (shown, ended) = at_terminal(&house, &update, &[(ask, "yes\r")]);
    assert_eq!(ended, 0, "{shown}");
    assert_eq!(std::fs::read_to_string(&program).unwrap(), shipped);
}

#[test]
fn an_answer_is_typed_into_a_form_that_says_what_is_wrong_and_can_be_left() {
    let house = house();
    let running = house.run();
    let id = hold(&house, "answer", "<question xmlns=\"urn:example:people\">How?</question>");
    let before = records(&house);
    let verdict = "decision / verdict (one of do, leave): ";
    let wrong = [
        ("decision / by (text, may be left out): ", "me\r"),
        (verdict, "perhaps\r"),
        ("this is not one of the choices", "\r"),
        ("this has to be answered", ""),
        (verdict, "do\r"),
        ("decision / days (whole number from 1, may be left out): ", "2\r"),
        ("decision / remark (text, may be left out): ", "\r"),
        ("decision / price (add it, yes, no, may be left out): ", "no\r"),
    ];
    let sent = "send it (one of yes, no): ";
    for (last, code, told) in [
        (&[(sent, CTRL_C)][..], 130, "^C"),
        (&[(sent, CTRL_D)], 2, "nothing was sent"),
        (&[(sent, "perhaps\r"), (sent, "no\r")], 2, "the question is still open"),
    ] {
        let typed = [&wrong, last].concat();
        let (shown, ended) = at_terminal(&house, &["answer", &id], &typed);
        assert_eq!(ended, code, "{shown}");
        assert!(shown.contains("How?") && shown.contains(told), "{shown}");
        assert_eq!(waiting(&house, "answer").len(), 1);
        assert_eq!(records(&house), before, "everything is as it was");
    }
    let typed = [&wrong[..], &[(sent, "yes\r"), ("answered", "")]].concat();
    let (shown, ended) = at_terminal(&house, &["answer", &id], &typed);
    assert_eq!(ended, 0, "{shown}");
    let exported = house.organism(&["export", "--format", "jsonl"]);
    let filled = "<verdict xmlns=\\\"\\\">do</verdict><days xmlns=\\\"\\\">2</days></decision>";
    assert!(exported.out.contains(filled), "{}", exported.out);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
