//! A command needs the keys of models only if it starts an organism itself, and not if it uses a
//! running organism.

use organism::config::{self, ConfigEnvironment};
use organism::journal;
use organism::journal::sqlite::SqliteJournal;
use organism::organism::{Error, Organism};

use super::{CommandOutput, House, say, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "boss", "writer"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"

[humans.boss]
schema = "people.xsd"
accepts = ["question"]
replies = ["decision", "pass"]

[agents.writer]
model = "live"
schema = "talk.xsd"
accepts = ["ping"]

[models.live]
provider = "openai"
model = "m"
api_key_env = "LIVE_KEY"
"#;

const QUESTION: &str = "<question xmlns=\"urn:example:people\">May I?</question>";
const PASS: &str = "<pass xmlns=\"urn:example:people\"/>";

fn house() -> House {
    let house = House::with(CONFIG);
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    house.write("say.xml", say("hello"));
    house.write("question.xml", QUESTION);
    house.write("pass.xml", PASS);
    house
}

/// Message and thread of the latest held call.
fn waiting(house: &House, list: &str) -> (String, String) {
    let listed = house.organism(&[list, "--json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let last = listed.json().pop().unwrap();
    let text = |key: &str| last[key].as_str().unwrap().to_owned();
    (text("message"), text("thread"))
}

/// Runs every command that needs an organism, one after the other.
fn all(house: &House, organism: impl Fn(&[&str]) -> CommandOutput) {
    let hand_in =
        |file: &str| assert!(matches!(organism(&["send", file, "--no-wait"]).code, Some(0 | 3)));
    hand_in("say.xml");
    let (id, thread) = waiting(house, "approvals");
    let hash = organism::ids::Digest::of(say("hello").as_bytes()).to_string();
    let approved = organism(&["approve", &id, "--hash", &hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    until("it is answered", || organism(&["thread", &thread]).out.contains("said").then_some(()));
    hand_in("say.xml");
    let refused = organism(&["refuse", &waiting(house, "approvals").0]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    hand_in("question.xml");
    let answered = organism(&["answer", &waiting(house, "answer").0, "pass.xml"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    hand_in("question.xml");
    let cancelled = organism(&["cancel", &waiting(house, "answer").1]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
}

#[test]
fn commands_need_no_model_keys_while_an_organism_runs() {
    let house = house();
    let mut run = house.command(&["run"]);
    run.env("LIVE_KEY", "sk-of-nobody-0000000000000000");
    let running = house.run_with(run);
    all(&house, |arguments| house.organism(arguments));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_start_without_a_key_names_the_key_and_starts_nothing() {
    let house = house();
    let send = ["send", "say.xml", "--no-wait"];
    let with_key = |arguments: &[&str]| -> CommandOutput {
        let mut command = house.command(arguments);
        command.env("LIVE_KEY", "sk-of-nobody-0000000000000000").output().unwrap().into()
    };
    let none = house.organism(&send);
    assert_eq!(none.code, Some(78), "{none:?}");
    assert!(none.err.contains("organism.toml:28:15: key-missing"), "{none:?}");
    assert!(none.err.contains("LIVE_KEY is not set"), "{none:?}");
    assert!(!house.data().exists(), "nothing was started");
    assert_eq!(with_key(&send).code, Some(3));
    let (id, thread) = waiting(&house, "approvals");
    for command in
        [&["approve", &id, "--hash", "00000000"][..], &["refuse", &id], &["cancel", &thread], &send]
    {
        let said = house.organism(command);
        assert_eq!(said.code, Some(78), "{said:?}");
        assert!(said.err.contains("1 problem; nothing was started"), "{said:?}");
    }
    assert_eq!(waiting(&house, "approvals").0, id, "it waits on");
    assert_eq!(with_key(&["refuse", &id]).code, Some(0));
    house.verified();
}

/// A command waits for an organism that another process is starting and that has no socket yet. The
/// command does not start a second organism without keys.
#[tokio::test]
async fn an_organism_that_another_process_starts_is_waited_for_and_not_started_without_keys() {
    let house = house();
    let mut around = ConfigEnvironment::of_process();
    let place = |name: &str| house.path(name).display().to_string();
    around.variables.insert("XDG_DATA_HOME".to_owned(), place("data"));
    around.variables.insert("XDG_STATE_HOME".to_owned(), place("state"));
    let config = config::load_without_keys(&house.path("organism.toml"), &around).unwrap();
    let start = || async { Organism::start(config.clone()).await.err().unwrap() };
    let alone = start().await;
    assert!(matches!(alone, Error::Keys(_)), "{alone}");
    let journal = SqliteJournal::open(&config.data, &config.state, &mut |_| Ok(())).unwrap();
    let beside = start().await;
    assert!(matches!(beside, Error::Journal(journal::Error::InUse { .. })), "{beside}");
    drop(journal);
}
