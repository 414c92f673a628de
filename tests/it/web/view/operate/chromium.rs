//! An operator acts in a real Chromium: with a pointer, with the keyboard alone, with the script
//! off, and with a key that the browser made. `tests/data/web/operate.py` drives the browser.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use organism::thread::OperatorPublicKey;
use serde_json::json;

use super::super::ViewServer;
use super::super::browser::{PYTHON, chromium, pictures, repository};
use super::retries::{self, let_go, time_out};
use super::{CONFIG, ask, held, hold, house, house_with, operating, rows};
use crate::organism::kill::torture;
use crate::organism::{House, numbered};

/// Number of ways to use the pages: with a pointer, with the keyboard alone, and with the script
/// off.
const WAYS: usize = 3;

/// Number of ways in which a call is approved and messages are retried. A short run leaves out the
/// pointer here, because the view with signed decisions uses it.
fn deciding_ways() -> usize {
    if torture() { WAYS } else { WAYS - 1 }
}

/// A config with a listener that times out, and an operator whose key for the terminal is not used.
fn signing_config() -> String {
    let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    let key = OperatorPublicKey::of(&key);
    let holds = "accepts = [\"hold\"]";
    let config = CONFIG.replace(holds, &format!("timeout = \"1s\"\ninstances = 4\n{holds}"));
    format!("{config}\n[operators.ana] # decides\nkey = \"{key}\"\n")
}

/// Records failed requests. There are two for each way in which messages are retried: one of
/// `desk`, whose retry needs no confirmation, and one of `till`, whose work a retry could do twice.
/// Two further requests of `desk` follow.
fn prepare_failures(house: &House) {
    let clients = ["desk", "till"].repeat(deciding_ways()).into_iter().chain(["desk", "desk"]);
    for (number, client) in clients.enumerate() {
        let number = number.to_string();
        time_out(house, client, &number);
        let_go(house, &number);
    }
}

/// Records a request of a client, and calls and questions that wait for a person. Returns the id of
/// the request's message.
fn prepare(house: &House) -> String {
    let sent = house.send_text(&numbered("ping", "1"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    for number in 0..deciding_ways() {
        hold(house, &format!("text {number}"));
    }
    for number in 0..WAYS {
        ask(house, &format!("question {number}?"));
    }
    let request = rows(house, "SELECT id FROM message WHERE payload = 'ping' LIMIT 1");
    request[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn an_operator_acts_in_a_browser_by_keyboard_without_script_and_with_a_key() {
    if std::env::var_os("ORGANISM_TEST_NATS").is_some() {
        return;
    }
    // The test that opens every page reports a Chromium that is not found.
    let Some(chromium) = chromium() else { return };

    let house = house();
    let running = house.run();
    let message = prepare(&house);
    let view = operating(&house);

    let failed = House::with(retries::CONFIG);
    let failed_running = failed.run();
    prepare_failures(&failed);
    let failed_view = operating(&failed);

    let signed = house_with(&signing_config());
    let signed_running = signed.run();
    hold(&signed, "one");
    for number in ["1", "2"] {
        time_out(&signed, "desk", number);
    }
    signed.write("let-go", "");
    let signed_view = ViewServer::start(&signed, &["--operate", "--as", "ana"]);
    let order = json!({
        "chromium": chromium, "pictures": pictures(), "message": message, "is_short": !torture(),
        "view": {"name": "operate", "address": view.address()},
        "retries": {"name": "retries", "address": failed_view.address()},
        "signed": {"name": "signed", "address": signed_view.address()},
    });

    let mut command = Command::new(repository().join(PYTHON));
    command.arg(repository().join("tests/data/web/operate.py"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut walk = command.spawn().unwrap();
    let mut input = walk.stdin.take().unwrap();
    let mut output = BufReader::new(walk.stdout.take().unwrap());
    writeln!(input, "{order}").unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let mut rest = String::new();
    if let Some(command) = line.strip_prefix("key organism ") {
        // The page shows the whole command. An operator's key counts from the next start.
        let words: Vec<_> = command.split_whitespace().collect();
        let enrolled = signed.organism(&words);
        assert_eq!(enrolled.code, Some(0), "{enrolled:?}");
        assert_eq!(signed_running.stop(), Some(0));
        let running = signed.run();
        writeln!(input).unwrap();
        output.read_to_string(&mut rest).unwrap();
        let decided = rows(&signed, "SELECT person, signed, reason FROM action WHERE accepted");
        assert_eq!(decided.len(), 4, "{decided:?} {rest}");
        assert!(decided.iter().all(|row| row["person"] == "ana"), "{decided:?}");
        assert_eq!(running.stop(), Some(0));
    } else {
        output.read_to_string(&mut rest).unwrap();
    }
    let ended = walk.wait().unwrap();
    assert!(ended.success(), "{line}{rest}");
    println!("{rest}");

    // The forks' changed calls wait, and no other call does.
    let waiting = held(&house);
    assert!(waiting.iter().all(|call| call["to"] == "solo"), "each way approved one: {waiting:?}");
    let actions = rows(&house, "SELECT action, count(*) AS times FROM action GROUP BY action");
    let times = |name: &str| {
        let row = actions.iter().find(|row| row["action"] == name);
        row.and_then(|row| row["times"].as_u64()).unwrap_or_default()
    };
    let (pauses, cancels) = if torture() { (WAYS, WAYS) } else { (WAYS - 1, 1) };
    for (name, expected) in [
        ("approve", deciding_ways()),
        ("answer", WAYS),
        ("fork", WAYS),
        ("pause", pauses),
        ("pause-and-cancel", cancels),
        ("resume", pauses + cancels),
    ] {
        let expected = u64::try_from(expected).unwrap();
        assert_eq!(times(name), expected, "{name}: {actions:?}");
    }
    assert_eq!(running.stop(), Some(0));
    let retried = rows(&failed, "SELECT person FROM action WHERE action = 'retry' AND accepted");
    assert_eq!(retried.len(), 2 * deciding_ways() + 2, "{retried:?}");
    assert_eq!(failed_running.stop(), Some(0));
    signed.verified();
    failed.verified();
}
