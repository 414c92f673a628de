//! The intake organism with hundreds of invoices: the verdicts of its gate alone, and runs of the
//! whole organism.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use organism::config::directory_name;
use organism::contract::{Contract, Contracts, Role};
use organism::ids::{ListenerName, PayloadName};
use organism::journal::sqlite::DATABASE;
use organism::pump::gate::Gate;
use serde::Deserialize;
use serde_json::Value;

use super::{listeners, python, schemas};
use crate::organism::kill::torture;
use crate::organism::{PATIENCE, until, until_within};

const CONFIG: &str = "config/intake.toml";
const UBL: &str = "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2";

#[test]
fn an_invoice_with_one_of_everything_is_valid() {
    let schemas = schemas(&["intake/schema/Invoice.xsd"]);
    let text = std::fs::read(listeners().join("intake/examples/full.xml")).unwrap();
    assert_eq!(schemas.validate(&PayloadName::new(UBL, "Invoice"), &text), Ok(()));
}

/// A line of the manifest: the expected outcome of one invoice.
#[derive(Deserialize)]
struct Expected {
    file: String,
    expect: String,
    by: String,
    reason: String,
}

/// Number of invoices in a long run.
const ALL: usize = 1000;
/// Number of invoices that the gate alone checks in a short run.
const CHECKED: usize = 200;
/// Number of invoices that the whole organism handles in a short run.
const FEW: usize = 100;
/// Number of invoices in the test that kills the organism while it books them.
const KILLED: usize = 140;
/// In each test, the number of invoices that must not be booked. The gate refuses [`REFUSED`] of
/// these invoices.
const BROKEN: usize = 50;
const REFUSED: usize = 35;

/// Writes `count` invoices into `folder`. Returns the expected outcome of each invoice.
fn documents(folder: &Path, count: usize) -> Vec<Expected> {
    let count = count.to_string();
    python("intake", &["make_invoices.py", folder.to_str().unwrap(), "--count", &count]);
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.jsonl")).unwrap();
    manifest.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_gate_refuses_each_broken_invoice_by_the_rule_it_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let gate = intake_gate();
    let inbox = ListenerName::parse("inbox").unwrap();
    let mut wrong = Vec::new();
    let mut refused = BTreeMap::new();
    for expected in documents(folder.path(), if torture() { ALL } else { CHECKED }) {
        let text = std::fs::read(folder.path().join(&expected.file)).unwrap();
        let verdict = gate.check(&inbox, &text);
        let by_gate = expected.by.strip_prefix("gate:");
        if verdict.as_ref().err().map(|refusal| refusal.rule.as_str()) != by_gate {
            wrong.push(format!("{}: expected {}, got {verdict:?}", expected.file, expected.by));
        }
        if let Err(refusal) = verdict {
            *refused.entry(refusal.rule.as_str()).or_insert(0) += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let expected = [
        ("forbidden", 5),
        ("not-in-vocabulary", 5),
        ("not-one-root", 5),
        ("not-well-formed", 5),
        ("schema-invalid", 15),
    ];
    assert_eq!(refused, BTreeMap::from(expected));
}

/// Returns a gate with the contracts of the client in `config/intake.toml` and of its peer.
fn intake_gate() -> Gate {
    let name = |text: &str| ListenerName::parse(text).unwrap();
    let mut inbox = Contract::new(name("inbox"), Role::Client);
    inbox.peers = vec![name("reception")];
    let mut reception = Contract::new(name("reception"), Role::Listener);
    reception.accepts = vec![PayloadName::new(UBL, "Invoice")];
    let contracts = Contracts::new(vec![inbox, reception]).unwrap();
    Gate::new(Arc::new(contracts), schemas(&["intake/schema/Invoice.xsd"]))
}

#[test]
fn invoices_are_each_booked_or_refused_by_whom_and_for_what_they_should() {
    let folder = tempfile::tempdir().unwrap();
    let invoices = folder.path().join("invoices");
    let expected = documents(&invoices, if torture() { ALL } else { FEW });
    let output = send(folder.path()).output().unwrap();
    each_became_what_it_should(&output, &expected);
    books_agree_with_the_journal(folder.path(), expected.len());
    assert_eq!(count(folder.path(), "SELECT count(*) FROM refusal"), REFUSED);
}

#[test]
fn a_kill_in_the_middle_and_the_folder_again_books_each_invoice_once() {
    let folder = tempfile::tempdir().unwrap();
    let invoices = folder.path().join("invoices");
    let expected = documents(&invoices, KILLED);
    let mut pump = organism(folder.path(), &["run"]).stderr(Stdio::null()).spawn().unwrap();
    let socket = data(folder.path()).join("control.sock");
    until("the organism is ready", || socket.exists().then_some(()));
    let sender = send(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ledger = folder.path().join("books/ledger.jsonl");
    until_within(4 * PATIENCE, "half of them are booked", || {
        let booked = std::fs::read_to_string(&ledger).unwrap_or_default().lines().count();
        (booked > KILLED * 2 / 5).then_some(())
    });
    pump.kill().unwrap();
    pump.wait().unwrap();
    let told = sender.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(75), "{said}");

    let output = send(folder.path()).output().unwrap();
    each_became_what_it_should(&output, &expected);
    books_agree_with_the_journal(folder.path(), expected.len());
    assert!(count(folder.path(), "SELECT count(*) FROM refusal") >= REFUSED);
}

/// A command on the intake organism, which writes all its files in `folder`.
fn organism(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command
        .args(arguments)
        .args(["--config", CONFIG])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("XDG_DATA_HOME", folder.join("data"))
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("INTAKE_DATA", folder.join("books"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .envs(crate::nats::substrate(folder));
    command
}

/// Returns a command that sends every invoice in the folder.
fn send(folder: &Path) -> Command {
    let invoices = folder.join("invoices");
    organism(folder, &["send", "--json", "--each", invoices.to_str().unwrap()])
}

fn each_became_what_it_should(output: &Output, expected: &[Expected]) {
    let told = String::from_utf8_lossy(&output.stderr);
    let done = expected.len() - REFUSED;
    let summary = format!("{} files: {done} done, {REFUSED} refused, 0 failed", expected.len());
    assert!(told.contains(&summary), "{told}");
    let became = became(std::str::from_utf8(&output.stdout).unwrap());
    let wrong: Vec<_> = expected
        .iter()
        .map(|e| (&e.file, [&e.expect, &e.by, &e.reason].map(String::clone)))
        .filter(|(file, outcome)| became.get(*file) != Some(outcome))
        .map(|(file, outcome)| format!("{file}: expected {outcome:?}, got {:?}", became.get(file)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn count(folder: &Path, query: &str) -> usize {
    let journal = rusqlite::Connection::open(data(folder).join(DATABASE)).unwrap();
    journal.query_row(query, [], |row| row.get(0)).unwrap()
}

fn data(folder: &Path) -> PathBuf {
    let name = directory_name("intake", &Path::new(env!("CARGO_MANIFEST_DIR")).join(CONFIG));
    folder.join("data/organism").join(name)
}

/// Returns the actual outcome of each file in the form of the manifest: the outcome, the gate rule
/// or the listener that decided it, and the reason.
fn became(lines: &str) -> BTreeMap<String, [String; 3]> {
    let mut became = BTreeMap::new();
    for line in lines.lines() {
        let sent: Value = serde_json::from_str(line).unwrap();
        let outcome = match sent["sent"].as_str().unwrap() {
            "refused" => {
                let rule = sent["refusal"]["rule"].as_str().unwrap();
                assert_ne!(sent["refusal"]["message"], "", "{line}");
                ["refused".to_owned(), format!("gate:{rule}"), rule.to_owned()]
            }
            "result" => answered(sent["replies"][0]["payload"].as_str().unwrap()),
            _ => continue,
        };
        let file = sent["file"].as_str().unwrap().to_owned();
        assert_eq!(became.insert(file, outcome), None, "two results: {line}");
    }
    became
}

fn answered(reply: &str) -> [String; 3] {
    if reply.starts_with("<invoice-accepted ") {
        return ["handled", "listener:ledger", "booked"].map(str::to_owned);
    }
    let reason = text_of(reply, "reason");
    assert!(reason.ends_with('.') && reason.contains(' '), "no sentence: {reply}");
    let by = format!("listener:{}", text_of(reply, "by"));
    ["refused".to_owned(), by, text_of(reply, "code").to_owned()]
}

fn text_of<'a>(payload: &'a str, element: &str) -> &'a str {
    let (_, rest) = payload.split_once(&format!("<{element}>")).unwrap();
    rest.split_once("</").unwrap().0
}

/// Asserts that the ledger and the rejects in the listeners' books agree with the calls in the
/// journal, and that no message is unsettled.
fn books_agree_with_the_journal(folder: &Path, sent: usize) {
    let journal = rusqlite::Connection::open(data(folder).join(DATABASE)).unwrap();
    let ids = |name: &str| -> BTreeSet<String> {
        let query = "SELECT id FROM message WHERE kind = 'call' AND name LIKE '%}' || ?1";
        let mut query = journal.prepare(query).unwrap();
        query.query_map([name], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let rejected = messages(&folder.join("books/rejects.jsonl"));
    let booked = messages(&folder.join("books/ledger.jsonl"));
    assert_eq!((booked.len(), rejected.len()), (sent - BROKEN, BROKEN - REFUSED));
    assert_eq!(rejected, ids("rejection"));
    let not_booked: BTreeSet<_> = ids("booking").difference(&booked).cloned().collect();
    assert_eq!(not_booked.len(), 5, "only the duplicates were asked for and not booked");
    assert!(booked.is_subset(&ids("booking")));
    let open = "SELECT count(*) FROM message WHERE disposition IS NULL";
    assert_eq!(count(folder, open), 0);
}

/// Ids of the messages that the entries of a book name.
fn messages(book: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(book).unwrap();
    let entry = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    text.lines().map(|line| entry(line)["message"].as_str().unwrap().to_owned()).collect()
}
