//! Queries of an auditor, and the format of the answers.

mod lineage;
mod pages;
mod partitions;
mod times;

use std::process::{Command, Output};

use expect_test::expect;
use organism::audit::{self, ExportFilter, ExportFormat, OutsideVerdict};
use organism::envelope::{Disposition, MessageKind};
use organism::ids::{Attempt, CallId, MessageId};
use organism::journal::sqlite::DATABASE;
use organism::journal::{CheckpointCopies, Journal as _};
use organism::thread::{Fact, Input, Record};
use uuid::Uuid;

use crate::journal::Place;
use crate::journal::script::{Script, name, research, thread};
use crate::json_schemas::assert_described;

const ROOT: &str = "sess-abcdefgh";

fn organism(place: &Place, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_organism"))
        .args(args)
        .arg("--data")
        .arg(place.data())
        .arg("--state")
        .arg(place.state())
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    assert_described(args, &String::from_utf8_lossy(&output.stdout));
    output
}

fn stdout(output: Output) -> String {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

fn researched() -> Place {
    Place::with(&mut research(&mut Script::default(), ROOT))
}

fn verify(place: &Place) -> audit::ProofReport {
    audit::verify(&place.data(), Some(&place.state()), &mut |_, _| {}).unwrap()
}

#[test]
fn a_sound_journal_is_proved_with_its_counts() {
    let place = researched();
    let report = verify(&place);
    assert_eq!(report.broken, None);
    assert_eq!((report.records, report.trees, report.threads), (7, 1, 2));
    let tally = report.messages;
    assert_eq!((tally.accepted, tally.settled, tally.refused), (10, 10, 1));
    assert_eq!((report.checkpoints, report.outside), (1, OutsideVerdict::StateAgrees));
    let alone = audit::verify(&place.data(), None, &mut |_, _| {}).unwrap();
    assert_eq!((alone.broken, alone.outside), (None, OutsideVerdict::NotCompared));
}

#[test]
fn messages_in_flight_are_counted_and_are_no_break() {
    let mut records = research(&mut Script::default(), ROOT);
    for left in 1..=records.len() {
        let place = Place::with(&mut records[..left]);
        let report = verify(&place);
        assert_eq!(report.broken, None, "{left} records");
        assert_eq!(report.messages.accepted, report.messages.settled + report.in_flight);
        assert_eq!(report.in_flight == 0, left == records.len(), "{left} records");
    }
}

fn accepted(record: &mut Record) -> &mut organism::envelope::Message {
    let message = record.facts.iter_mut().find_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(message),
        _ => None,
    });
    std::sync::Arc::make_mut(message.unwrap())
}

// O9
#[test]
fn every_broken_law_is_named_at_its_record() {
    type Break = fn(&mut [Record]);
    let unknown = MessageId(Uuid::nil());
    assert_eq!(unknown.to_string().len(), 36);
    let cases: [(&str, u64, Break); 5] = [
        ("has a second disposition", 3, |records| {
            let again = records[1].facts.iter().find(|f| matches!(f, Fact::Disposed { .. }));
            let again = again.unwrap().clone();
            records[2].facts.push(again);
        }),
        ("was never accepted", 4, |records| {
            let message = MessageId(Uuid::nil());
            records[3].facts.push(Fact::Disposed { message, how: Disposition::Handled });
        }),
        ("has seq 9 in sess-abcdefgh, where 4 is due", 3, |records| {
            accepted(&mut records[2]).seq = 9;
        }),
        ("is accepted a second time", 3, |records| {
            let id = accepted(&mut records[0]).id;
            accepted(&mut records[2]).id = id;
        }),
        ("of sess-zzzzzzzz is recorded in sess-abcdefgh", 3, |records| {
            accepted(&mut records[2]).thread = thread("sess-zzzzzzzz");
        }),
    ];
    for (expected, at, break_it) in cases {
        let mut records = research(&mut Script::default(), ROOT);
        break_it(&mut records);
        let place = Place::with(&mut records);
        let broken = verify(&place).broken.unwrap_or_else(|| panic!("not found: {expected}"));
        assert!(broken.detail.contains(expected), "{}", broken.detail);
        assert_eq!(broken.position, at, "{expected}");
    }
}

#[test]
fn verify_says_ok_or_where_it_breaks_with_exit_code_4() {
    let place = researched();
    let alone = organism(&place, &["verify"]);
    assert_eq!(alone.status.code(), Some(5));
    let text = stdout(alone);
    assert!(
        text.contains("NOT PROVED: only the state directory vouches for the journal"),
        "{text}"
    );
    let copy = place.home.path().join("copy");
    let journal = place.reader().about().unwrap().journal;
    std::fs::copy(CheckpointCopies::file_in(&place.state(), journal), &copy).unwrap();
    let sound = organism(&place, &["verify", "--checkpoint", copy.to_str().unwrap()]);
    assert_eq!(sound.status.code(), Some(0));
    let text = stdout(sound);
    assert!(
        text.contains("messages     10 accepted = 10 settled + 0 in flight; 1 refused"),
        "{text}"
    );
    assert!(text.ends_with("\nok\n"), "{text}");
    let db = rusqlite::Connection::open(place.data().join(DATABASE)).unwrap();
    db.execute(
        "UPDATE step SET body = replace(body, 'operator', 'operatar') WHERE position = 1",
        [],
    )
    .unwrap();
    let broken = organism(&place, &["verify"]);
    assert_eq!(broken.status.code(), Some(4));
    let text = stdout(broken);
    assert!(
        text.ends_with("\nBROKEN at position 1: its hash does not match what it says\n"),
        "{text}"
    );
    let json = organism(&place, &["verify", "--json"]);
    assert_eq!(json.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_str(&stdout(json)).unwrap();
    assert_eq!(report["broken"]["position"], 1);
    // The proof ended before it could see how many records there are.
    assert_eq!(report["unproved"], serde_json::json!([]));
}

// O4 O9
#[test]
fn a_timeline_names_senders_and_receivers_with_subthreads_beneath_their_spawn() {
    let place = researched();
    expect![[r#"
        sess-abcdefgh  completed  0.8 s  8 messages
          +0.000s  operator → researcher  question
                   How is a login checked, & where?
          +0.137s  researcher  thinking
                   I should look for “login” first.
          +0.137s  researcher → code-search  search
                   query: login
                   path: src
          +0.274s  code-search → researcher  results
                   hit (file=src/auth.rs, line=42): fn login(name: &str) {
          +0.411s  researcher  1 finding
                   unclosed-element: `<search>` was never closed at line 3, column 14
          +0.411s  researcher  refused: schema-invalid
                   `sum` is not an expression
                   <calculate><sum>1+</sum></calculate>
          +0.411s  core → researcher  ⚙ huh  schema-invalid
                   `sum` is not an expression
          +0.548s  core → researcher  ⚙ thread-spawned  sess-abcdefgh.depth
        │ sess-abcdefgh.depth  completed  0.1 s  2 messages
        │   +0.548s  researcher → researcher  question
        │            What does line 42 call?
        │   +0.685s  researcher → researcher  answer
        │            It calls verify.
          +0.685s  core → researcher  ⚙ thread-result  .depth  completed
                   answer: It calls verify.
          +0.822s  researcher → operator  answer
                   In src/auth.rs:42, by verify.
    "#]]
    .assert_eq(&stdout(organism(&place, &["thread", ROOT])));
}

#[test]
fn a_subthread_can_be_read_by_itself_and_an_unknown_one_is_an_error() {
    let place = researched();
    expect![[r#"
        sess-abcdefgh.depth  completed  0.1 s  2 messages
          +0.000s  researcher → researcher  question
                   What does line 42 call?
          +0.137s  researcher → researcher  answer
                   It calls verify.
    "#]]
    .assert_eq(&stdout(organism(&place, &["thread", "sess-abcdefgh.depth"])));
    let unknown = organism(&place, &["thread", "sess-nowhere1"]);
    assert_eq!(unknown.status.code(), Some(2));
    let error = String::from_utf8_lossy(&unknown.stderr);
    expect![[r#"
        organism: no thread sess-nowhere1 is on record; `organism threads --data DATA` lists them
    "#]]
    .assert_eq(&error.replace(&place.data().display().to_string(), "DATA"));
}

#[test]
fn failures_late_answers_and_unsettled_messages_are_marked() {
    let mut script = Script::default();
    let root = thread(ROOT);
    let (asked, first) = script.question(&root, &"many words ".repeat(120));
    let attempt = Attempt { epoch: 1, n: 1 };
    let failure = organism::envelope::AttemptFailure::Crashed { detail: "exit code 1".to_owned() };
    let (listener, call) = (name("researcher"), CallId(asked));
    let mut failed = script
        .step(&root, Input::Failed { listener, call, attempt, failure: failure.clone() })
        .end();
    failed.facts.push(Fact::AttemptFailed { call, attempt, failure });
    let mut step = script.outcome(&root, "researcher", asked);
    let late =
        step.say(MessageKind::Reply, "code-search", "researcher", "results", "<r/>", Some(asked));
    step.dispose(late, Disposition::Late);
    let place = Place::with(&mut [first, failed, step.end()]);
    expect![[r#"
        sess-abcdefgh  running  0.3 s  2 messages
          +0.000s  operator → researcher  question  unsettled
                   many words many words many words many words many words many words
                   many words many words many words many words many words many words
                   many words many words many words many words many words many words
                   many words many words many words many words many words many words
                   many words many words many words many words many words many words
                   many words many words many words many words many words many words
                   many words many words many words many words many words many words
                   many words many words many words many words many words many words
                   … 12 more lines (--full)
          +0.137s  researcher  attempt 1.1 failed
                   crashed: exit code 1
          +0.274s  code-search → researcher  results  late
    "#]]
    .assert_eq(&stdout(organism(&place, &["thread", ROOT])));
    let full = stdout(organism(&place, &["thread", "--full", ROOT]));
    assert_eq!(full.matches("many").count(), 120);
}

#[test]
fn nothing_is_wider_than_80_columns_and_no_text_reaches_the_terminal_raw() {
    let mut script = Script::default();
    let mut deepest = thread(ROOT);
    let (asked, first) = script.question(&deepest, "\u{9b}31m wide 漢字 ".repeat(40).as_str());
    let mut records = vec![first];
    for _ in 0..12 {
        let child = deepest.child("a-rather-long-label-for-a-subthread");
        let mut step = script.outcome(&deepest, "researcher", asked);
        step.open(&child, "researcher").within(&child);
        let body = format!("<deep><code>{}</code></deep>", "x".repeat(300));
        step.say(MessageKind::Note, "researcher", "researcher", "thinking", &body, Some(asked));
        records.push(step.end());
        deepest = child;
    }
    let place = Place::with(&mut records);
    for args in [&["thread", ROOT][..], &["threads"], &["search", "x*"], &["tail", "--no-follow"]] {
        let text = stdout(organism(&place, args));
        assert!(!text.is_empty());
        for line in text.lines() {
            let wide = line.chars().filter(|char| ('一'..='龥').contains(char)).count();
            assert!(line.chars().count() + wide <= 80, "{args:?}: {line}");
            assert!(!line.contains(['\u{1b}', '\u{9b}']), "{args:?}: {line}");
        }
    }
}

#[test]
fn threads_are_listed_with_how_they_stand() {
    let mut script = Script::default();
    let mut records = vec![script.boot(1)];
    records.extend(research(&mut script, "sess-finished"));
    records.extend(research(&mut script, "sess-underway").into_iter().take(4));
    records.extend(research(&mut script, "sess-draining").into_iter().take(5));
    let place = Place::with(&mut records);
    expect![[r#"
        thread         status     opened                 took         messages  asked
        sess-finished  completed  2026-11-20T10:00:00Z  0.8 s               10  question
        sess-underway  running    2026-11-20T10:00:01Z  0.4 s  5 (1 unsettled)  question
        sess-draining  running    2026-11-20T10:00:02Z  0.5 s  7 (2 unsettled)  question
    "#]]
    .assert_eq(&stdout(organism(&place, &["threads"])));
    let lines = stdout(organism(&place, &["threads", "--json", "--all"]));
    let threads: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(threads.len(), 4);
    assert_eq!(threads[0]["thread"], "sess-organism");
    assert_eq!(threads[1]["messages"]["settled"], 10);
    assert_eq!(stdout(organism(&place, &["threads", "--limit", "1", "--json"])).lines().count(), 1);
}

#[test]
fn search_finds_payloads_and_names_newest_last_and_says_when_there_is_nothing() {
    let place = researched();
    let found = stdout(organism(&place, &["search", "LOGIN"]));
    expect![[r#"
        2026-11-20T10:00:00Z  operator → researcher  question  sess-abcdefgh
                              How is a login checked, & where?
        2026-11-20T10:00:00Z  researcher  thinking  sess-abcdefgh
                              I should look for “login” first.
        2026-11-20T10:00:00Z  researcher → code-search  search  sess-abcdefgh
                              query: login
                              path: src
        2026-11-20T10:00:00Z  code-search → researcher  results  sess-abcdefgh
                              hit (file=src/auth.rs, line=42): fn login(name: &str) {
        4 of 4
    "#]]
    .assert_eq(&found);
    let ids = |args: &[&str]| stdout(organism(&place, args)).lines().count();
    assert_eq!(ids(&["search", "verify", "--json"]), 3);
    assert_eq!(ids(&["search", "verify", "--json", "--thread", "sess-abcdefgh.depth"]), 1);
    assert_eq!(ids(&["search", "code-search", "--json"]), 2);
    let nothing = organism(&place, &["search", "no such words"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert_eq!(nothing.stdout, b"");
}

#[test]
fn tail_shows_what_is_recorded_while_the_pump_runs() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut records = research(&mut Script::default(), ROOT);
    journal.append(&mut records).unwrap();
    let lines = stdout(organism(&place, &["tail", "--no-follow", "--json", "-n", "4"]));
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[0]["rule"], "schema-invalid");
    assert_eq!(lines[6]["to"], "operator");
    drop(journal);
}

#[test]
fn an_export_is_one_well_formed_document_or_a_line_per_message() {
    let place = researched();
    let reader = place.reader();
    let mut out = Vec::new();
    audit::export(
        std::slice::from_ref(&reader),
        &ExportFilter::default(),
        ExportFormat::Xml,
        &mut out,
    )
    .unwrap();
    let xml = String::from_utf8(out).unwrap();
    let document = libxml::parser::Parser::default().parse_string(&xml).unwrap();
    let root = document.get_root_element().unwrap();
    assert_eq!((root.get_name(), root.get_child_elements().len()), ("journal".to_owned(), 7));
    assert_eq!(xml.matches("<e:message ").count(), 10);
    assert_eq!(xml.matches("<e:disposition ").count(), 10);
    assert_eq!(xml.matches("<e:refusal ").count(), 1);
    for payload in place.records().iter().flat_map(|sealed| sealed.record.payloads()) {
        assert!(xml.contains(payload.as_str()), "{payload:?}");
    }
    let lines = stdout(organism(&place, &["export", "--format", "jsonl"]));
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 11);
    assert!(lines.iter().all(|line| line["type"] == "refusal" || line["disposition"] != "null"));
    let unknown = organism(&place, &["export", "sess-nowhere1"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn a_redacted_payload_is_shown_and_exported_as_such() {
    let place = researched();
    rusqlite::Connection::open(place.data().join(DATABASE))
        .unwrap()
        .execute("UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position = 3", [])
        .unwrap();
    assert!(stdout(organism(&place, &["thread", ROOT])).contains("[redacted]"));
    let xml = stdout(organism(&place, &["export"]));
    assert_eq!(xml.matches("<e:redacted length=").count(), 1);
    assert!(libxml::parser::Parser::default().parse_string(&xml).is_ok());
    assert!(stdout(organism(&place, &["verify"])).contains("redacted     1 payload, proved by"));
}

#[test]
fn where_there_is_no_journal_every_command_says_so() {
    let place = Place::new();
    for verb in ["threads", "thread", "tail", "verify", "export"] {
        let refused = organism(&place, &[verb]);
        assert_eq!(refused.status.code(), Some(69), "{verb}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("there is no journal at"), "{verb}: {text}");
        assert!(text.contains("; --data takes the directory of a journal"), "{verb}: {text}");
    }
    assert!(!place.data().exists());

    let mut verify = Command::new(env!("CARGO_BIN_EXE_organism"));
    verify.args(["verify", "nowhere"]).current_dir(place.home.path());
    let refused = verify.env("HOME", place.home.path()).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(69), "{text}");
    let expected =
        "no journal at nowhere/data; name the directory of a copy that `organism backup`";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn an_export_replaces_its_file_when_it_is_complete() {
    let place = researched();
    let names = || std::fs::read_dir(place.home.path()).unwrap().count();
    let file = place.home.path().join("export.xml");
    std::fs::write(&file, "an earlier export").unwrap();
    let before = names();
    let export = |file: &str| organism(&place, &["export", "--output", file]);
    let to_file = || export(file.to_str().unwrap());

    let journal = rusqlite::Connection::open(place.data().join(DATABASE)).unwrap();
    let last = "UPDATE step SET position = ?1 WHERE position = ?2";
    journal.execute(last, [9, 7]).unwrap();
    let broken = to_file();
    assert_eq!(broken.status.code(), Some(4), "{broken:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "an earlier export");
    assert_eq!(names(), before, "nothing is left of the export that failed");

    journal.execute(last, [7, 9]).unwrap();
    stdout(to_file());
    let whole = stdout(organism(&place, &["export"]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole);
    assert_eq!(stdout(export("/dev/stdout")), whole);
    assert_eq!(names(), before);

    let refused = export("/nonexistent/export.xml");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains(
            "cannot write /nonexistent/export.xml: its directory /nonexistent: there is no"
        ),
        "{text}"
    );
}

#[test]
fn a_thread_ends_with_the_tokens_and_the_cost_of_all_its_model_calls() {
    use organism::envelope::{Money, Spending};
    let mut records = research(&mut Script::default(), ROOT);
    let root = thread(ROOT);
    let calls = |records: &[Record]| {
        let accepted =
            records.iter().flat_map(|record| &record.facts).filter_map(|fact| match fact {
                Fact::Accepted { message, .. } if message.kind == MessageKind::Call => {
                    Some((message.thread.clone(), CallId(message.id)))
                }
                _ => None,
            });
        accepted.collect::<Vec<_>>()
    };
    let calls = calls(&records);
    let in_root = calls.iter().find(|(thread, _)| *thread == root).unwrap().1;
    let beneath = calls.iter().find(|(thread, _)| *thread != root).unwrap().1;
    let used = |call, tokens_in, money| Fact::Used {
        call,
        agent: Some(name("researcher")),
        tokens_in,
        tokens_out: 10,
        money: Money(money),
        attempt: None,
    };
    let opens = |record: &Record, call: CallId| {
        record.facts.iter().any(
            |fact| matches!(fact, Fact::Accepted { message, .. } if CallId(message.id) == call),
        )
    };
    for (call, tokens, money) in [(in_root, 100, 1_000_000), (beneath, 20, 2_000_000)] {
        // The costs of the call beneath arrive after its end, in the last record.
        let opened = records.iter().position(|record| opens(record, call)).unwrap();
        let at = if call == beneath { records.len() - 1 } else { opened };
        records[at].facts.push(used(call, tokens, money));
    }
    let attempt = Attempt { epoch: 1, n: 1 };
    let spending = Spending { tokens: 1000, money: Money(0) };
    let agent = name("researcher");
    records[0].facts.push(Fact::Charged { call: in_root, attempt, agent, spending });
    let place = Place::with(&mut records);

    let shown = stdout(organism(&place, &["thread", ROOT]));
    assert!(shown.ends_with("\nin all  1140 tokens  0.003\n"), "{shown}");
    let child = stdout(organism(&place, &["thread", "sess-abcdefgh.depth"]));
    assert!(child.ends_with("\nin all  30 tokens  0.002\n"), "{child}");
    let json = stdout(organism(&place, &["thread", ROOT, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["spent"], serde_json::json!({ "tokens": 1140, "money": 3_000_000 }));
}

#[test]
fn tables_are_as_wide_as_the_terminal() {
    let place = researched();
    let columns = |columns: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
        command.args(["threads", "--data"]).arg(place.data()).arg("--state").arg(place.state());
        let output = command.env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    let whole = columns("400");
    assert_eq!(columns("44"), 44, "cut to the terminal");
    assert!(whole > 44 && columns("500") == whole, "{whole}: nothing is cut");
}
