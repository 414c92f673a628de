//! `organism approve`, `organism answer` and `organism listener install --update` at a terminal.

use std::process::Command;

use serde_json::{Value as Json, json};

use super::{CommandOutput, House, say, until};
use organism::xml::invisible_characters::is_hidden;

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
    organism.env_remove("NO_COLOR").env("TERM", "xterm");
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

/// A text that would write in red, set the title and reorder letters, if a terminal got it raw.
const HOSTILE: &str = "a\u{9b}31mred\u{9d}0;title\u{202e}rtl";

fn assert_harmless(shown: &str) {
    let is_active = |c: char| is_hidden(c) && c != '\r';
    assert!(!shown.contains(is_active), "{shown:?}");
}

#[test]
fn a_refused_text_cannot_control_the_terminal() {
    let talk = "schema = \"talk.xsd\"\naccepts = [\"say\"]\nreplies = [\"said\"]";
    let people = "schema = \"people.xsd\"\naccepts = [\"decision\"]\nreplies = [\"pass\"]";
    let house = House::with(&CONFIG.replace(talk, people));
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    let people = "urn:example:people";
    let verdict = format!("<verdict>{HOSTILE}</verdict>");
    house.write("bad.xml", format!("<p:decision xmlns:p=\"{people}\">{verdict}</p:decision>"));
    let (shown, code) = at_terminal(&house, &["send", "--as", "desk", "bad.xml"], &[]);
    assert_eq!(code, 65, "{shown}");
    assert_harmless(&shown);
    assert!(shown.contains("a\\u{9b}31mred\\u{9d}0;title\\u{202e}rtl"), "{shown}");

    let thread = ["send", "--as", "desk", "--thread", "x\u{1b}[31mX", "bad.xml"];
    let (shown, code) = at_terminal(&house, &thread, &[]);
    assert_eq!(code, 65, "{shown}");
    assert_harmless(&shown);
    assert!(shown.contains("no thread x\\u{1b}[31mX;"), "{shown}");
}

#[test]
fn a_wrong_argument_cannot_control_the_terminal() {
    let house = House::with_echo();
    let hostile = format!("x\u{1b}[31m{HOSTILE}");
    for arguments in [&["send", "--traceparent", &hostile, "x.xml"][..], &[&hostile]] {
        let (shown, code) = at_terminal(&house, arguments, &[]);
        assert_eq!(code, 2, "{shown}");
        assert_harmless(&shown);
        let visible = "x\\u{1b}[31ma\\u{9b}31mred\\u{9d}0;title\\u{202e}rtl";
        assert!(shown.contains(visible), "{shown}");
    }
}

#[test]
fn an_export_and_a_query_cannot_control_the_terminal_and_mean_the_same() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say(HOSTILE), &[]).code, Some(0));
    let section = say("<!--\u{9b}-->b<![CDATA[\u{9b}\r\n\u{202e}<]]>");
    assert_eq!(house.send_text(&section, &[]).code, Some(0));

    let shown_of = |arguments: &[&str]| {
        let (shown, code) = at_terminal(&house, arguments, &[]);
        assert_eq!(code, 0, "{shown}");
        assert_harmless(&shown);
        shown
    };
    let lines = shown_of(&["export", "--format", "jsonl"]);
    let shown: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown, house.organism(&["export", "--format", "jsonl"]).json());
    assert!(lines.contains("a\\u009b31mred\\u009d0;title\\u202ertl"), "{lines}");

    let xml = shown_of(&["export"]);
    assert!(xml.contains("a&#x9b;31mred&#x9d;0;title&#x202e;rtl"), "{xml}");
    let section = "b<![CDATA[]]>&#x9b;<![CDATA[\n]]>&#x202e;<![CDATA[<]]>";
    assert!(xml.contains(section), "{xml}");
    assert!(xml.contains("<!--\\u{9b}-->"), "{xml}");
    assert!(house.organism(&["export"]).out.contains(HOSTILE), "a file gets the text as recorded");

    let query = ["sql", "--csv", "select char(27)||'[31mX' as a"];
    assert_eq!(shown_of(&query).replace('\r', "").trim_end(), "a\n\\u{1b}[31mX");
    assert_eq!(house.organism(&query).out, "a\r\n\u{1b}[31mX\r\n");
}

#[test]
fn a_dumb_terminal_gets_no_colours() {
    let house = House::with_echo();
    house.write("bad.toml", "[organism]\nnam = \"talk\"\n");
    let thread = house.send_text(&say("x"), &["--json"]).json()[0]["thread"].clone();
    let thread = thread.as_str().unwrap();
    for arguments in [&["check", "--config", "bad.toml"][..], &["thread", thread]] {
        let mut command = house.command(arguments);
        command.env_remove("NO_COLOR").env("TERM", "xterm");
        let (shown, _) = run_at_terminal(&house, &command, &[]);
        command.env("TERM", "dumb");
        let (plain, _) = run_at_terminal(&house, &command, &[]);
        assert!(!plain.contains('\u{1b}'), "{arguments:?}: {plain:?}");
        assert!(shown.contains('\u{1b}'), "{arguments:?}: {shown:?}");
    }
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
