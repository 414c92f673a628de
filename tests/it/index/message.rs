//! `organism message` on journals that a script wrote.

use std::sync::Arc;

use organism::envelope::{MessageKind, RefusalRule};
use organism::ids::{MessageId, Position};
use organism::index::{IndexReader, MessageSelector};
use organism::journal::sqlite::DATABASE;
use organism::limits;
use organism::thread::{Decision, Fact, Input, Record};
use serde_json::Value as Json;
use uuid::Uuid;

use super::{organism, rows, text, with_index};
use crate::journal::Place;
use crate::journal::script::{NAMESPACE, Script, name, research, thread};

const ROOT: &str = "sess-abcdefgh";

fn researched() -> Place {
    Place::with(&mut research(&mut Script::default(), ROOT))
}

/// Id of the first message with this payload.
fn id_of(place: &Place, payload: &str) -> String {
    let sql = format!("SELECT id FROM message WHERE payload = '{payload}' ORDER BY position, seq");
    rows(&place.data(), &sql)[0].clone()
}

fn shown(place: &Place, args: &[&str]) -> String {
    let output = organism(place, &[&["message"], args].concat());
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    text(&output.stdout)
}

fn report(place: &Place, id: &str) -> Json {
    serde_json::from_str(&shown(place, &[id, "--json"])).unwrap()
}

fn refused(place: &Place, args: &[&str], exit: i32) -> String {
    let output = organism(place, &[&["message"], args].concat());
    assert_eq!(text(&output.stdout), "", "{args:?}");
    assert_eq!(output.status.code(), Some(exit), "{args:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// Issue 17, 4.3: a message is shown as it is recorded, with its envelope and bytes, and with the
/// position and the hash of the record.
#[test]
fn a_message_is_shown_as_its_record_has_it() {
    let place = researched();
    let id = id_of(&place, "search");
    let shown = report(&place, &id);
    let sealed = &place.records()[1];
    let message = sealed.record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.id.to_string() == id => Some(message.clone()),
        _ => None,
    });
    let message = message.unwrap();

    assert_eq!(shown["id"], id);
    assert_eq!(shown["payload"], message.payload.as_str());
    assert_eq!(shown["digest"], message.payload.digest.to_string());
    assert_eq!(shown["bytes"], message.payload.len());
    assert_eq!(shown["time"], message.time.to_string());
    assert_eq!(shown["disposition"], "handled");
    assert_eq!(shown["disposed_position"], 3);
    assert_eq!(shown["opened_call"]["outcome"], "completed");
    let record = &shown["record"];
    assert_eq!(record["position"], 2);
    assert_eq!(record["hash"], sealed.hash.to_string());
    assert_eq!(record["previous_hash"], place.records()[0].hash.to_string());
    assert_eq!(record["head"], place.reader().last().unwrap().0);
    assert_eq!(record["head_hash"], place.records().last().unwrap().hash.to_string());
}

/// Issue 17, 4.3: each effect that is listed for a message names this message as its cause.
#[test]
fn causes_and_effects_are_each_others_reverse() {
    let place = researched();
    let asked = report(&place, &id_of(&place, "question"));
    let effects = asked["caused"]["messages"].as_array().unwrap();
    let sql =
        format!("SELECT id FROM message WHERE cause = {} ORDER BY position, seq", asked["id"]);
    let expected = rows(&place.data(), &sql.replace('"', "'"));
    let ids: Vec<_> = effects.iter().map(|effect| effect["id"].as_str().unwrap()).collect();
    assert_eq!(ids, expected);
    assert!(ids.len() > 3, "{ids:?}");
    assert_eq!(asked["caused"]["total"], ids.len());
    assert_eq!(asked["causes"], Json::Array(Vec::new()));
    for id in ids {
        let causes = report(&place, id)["causes"].clone();
        assert_eq!(causes.as_array().unwrap().len(), 1, "{causes}");
        assert_eq!(causes[0]["id"], asked["id"]);
    }
}

/// Issue 18, 3.6: the search for the first call in a chain of causes goes back at most `CAUSES_MAX`
/// causes. If the chain is longer, the search finds no first call.
#[test]
fn the_first_call_of_a_chain_is_found_up_to_the_bound() {
    let mut script = Script::default();
    let root = thread(ROOT);
    let (asked, first) = script.question(&root, "how far?");
    let mut records = vec![first];
    let mut chain = vec![asked];
    for n in 1..=limits::CAUSES_MAX {
        let mut step = script.outcome(&root, "researcher", asked);
        let body = format!("<note xmlns=\"{NAMESPACE}\">number {n}</note>");
        let cause = chain.last().copied();
        let note = step.say(MessageKind::Note, "researcher", "researcher", "note", &body, cause);
        chain.push(note);
        records.push(step.end());
    }
    let place = Place::with(&mut records);

    let first_call = |message: MessageId| {
        let query = &mut |index: &mut IndexReader| index.first_call_of(message);
        with_index(&place.data(), query).unwrap().map(|first| first.id)
    };
    assert_eq!(first_call(asked), Some(asked));
    assert_eq!(first_call(chain[limits::CAUSES_MAX - 1]), Some(asked));
    assert_eq!(first_call(chain[limits::CAUSES_MAX]), None);
}

/// Issue 17, 4.3: only a limited number of effects is listed, together with the total number of
/// effects.
#[test]
fn the_first_and_the_last_effects_are_shown_with_the_total() {
    let mut script = Script::default();
    let root = thread(ROOT);
    let (asked, first) = script.question(&root, "how many?");
    let mut records: Vec<Record> = vec![first];
    for n in 1..=60 {
        let mut step = script.outcome(&root, "researcher", asked);
        let body = format!("<note xmlns=\"{NAMESPACE}\">number {n}</note>");
        step.say(MessageKind::Note, "researcher", "researcher", "note", &body, Some(asked));
        records.push(step.end());
    }
    let place = Place::with(&mut records);

    let seqs = |limit: &str| {
        let shown = shown(&place, &[&asked.to_string(), "--json", "--limit", limit]);
        let shown: Json = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["caused"]["total"], 60);
        let effects = shown["caused"]["messages"].as_array().unwrap().clone();
        effects.iter().map(|effect| effect["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(seqs("4"), [2, 3, 60, 61]);
    assert_eq!(seqs("3"), [2, 3, 61]);
    assert_eq!(seqs("60"), (2..=61).collect::<Vec<_>>());
    let drawn = shown(&place, &[&asked.to_string()]);
    assert!(drawn.contains("Caused 60 messages"), "{drawn}");
    assert!(drawn.contains("… 40 more between"), "{drawn}");
}

/// The accepted decision about a call is shown, however many decisions the organism refused. The
/// output states how many are left out.
#[test]
fn the_accepted_decision_is_shown_among_many_refused_ones() {
    let mut script = Script::default();
    let root = thread(ROOT);
    let (asked, first) = script.question(&root, "May I?");
    let mut records = vec![first];
    for number in 0..112 {
        let is_accepted = number == 51;
        let input = Input::Decided {
            message: asked,
            by: name(if is_accepted { "maria" } else { "eve" }),
            decision: Decision::Approve { hash: "abcd".to_owned(), preview: None },
            origin: None,
        };
        let mut step = script.step(&root, input);
        if !is_accepted {
            step.refuse("operator", RefusalRule::SchemaInvalid, "it has another hash", "abcd");
        }
        records.push(step.end());
    }
    let place = Place::with(&mut records);

    let id = asked.to_string();
    let shown_report = report(&place, &id);
    let decisions = shown_report["decisions"].as_array().unwrap();
    let positions: Vec<_> = decisions.iter().map(|one| one["position"].as_u64().unwrap()).collect();
    let accepted: Vec<_> = decisions.iter().filter(|one| one["accepted"] == true).collect();
    // The first record is the question, so the accepted decision is in record 53.
    let expected: Vec<u64> = [53].into_iter().chain(65..=113).collect();
    assert_eq!(positions, expected);
    assert_eq!(accepted.len(), 1);
    assert_eq!(accepted[0]["by"], "maria");
    assert_eq!(shown_report["decisions_total"], 112);

    let drawn = shown(&place, &[&id]);
    assert!(drawn.contains("by maria at "), "{drawn}");
    assert!(drawn.contains("… 62 earlier refused decisions"), "{drawn}");
}

/// Issue 17, 4.3: `--raw` writes exactly the recorded bytes; everywhere else, characters that a
/// screen would hide or act on are escaped.
#[test]
fn raw_bytes_are_exact_and_shown_bytes_have_nothing_invisible() {
    let hostile = "pay \u{202e}001\u{202c}\u{200b} to \u{9b}2J me\u{feff}\n  gate      passed";
    let mut script = Script::default();
    let (asked, record) = script.question(&thread(ROOT), hostile);
    let place = Place::with(&mut [record]);
    let id = asked.to_string();

    let raw = shown(&place, &[&id, "--raw"]);
    assert_eq!(raw, format!("<question xmlns=\"{NAMESPACE}\">{hostile}</question>"));
    for args in [&[&*id][..], &[&id, "--full"], &[&id, "--json"]] {
        let shown = shown(&place, args);
        for hidden in ['\u{202e}', '\u{202c}', '\u{200b}', '\u{9b}', '\u{feff}'] {
            assert!(!shown.contains(hidden), "{args:?}: {hidden:?} in {shown}");
        }
    }
    let drawn = shown(&place, &[&id]);
    assert!(drawn.contains("\\u{202e}001"), "{drawn}");
    // A line of the payload never looks like a line of the program.
    assert!(drawn.contains("│   gate      passed"), "{drawn}");
    assert_eq!(report(&place, &id)["payload"], raw);
}

/// Issue 17, 4.3: the beginning of an id names a message if no other id begins in the same way.
#[test]
fn the_beginning_of_an_id_names_its_message_or_lists_the_candidates() {
    let mut records = research(&mut Script::default(), ROOT);
    let twins = ["abcdef01-0000-4000-8000-000000000001", "abcdef01-0000-4000-8000-000000000002"];
    let ids: Vec<MessageId> = twins.iter().map(|id| MessageId(id.parse().unwrap())).collect();
    let mut changed = ids.iter();
    for fact in records.iter_mut().flat_map(|record| &mut record.facts) {
        // Their dispositions do not matter here.
        if let Fact::Accepted { message, .. } = fact
            && ["huh", "thread-spawned", "thread-result"].contains(&&*message.name.local)
            && let Some(id) = changed.next()
        {
            Arc::make_mut(message).id = *id;
        }
    }
    assert!(changed.next().is_none(), "two messages got an id");
    let place = Place::with(&mut records);

    let error = refused(&place, &["abcdef01"], 2);
    assert!(error.contains("several messages begin with abcdef01"), "{error}");
    for twin in twins {
        assert!(error.contains(twin), "{error}");
        assert_eq!(report(&place, twin)["id"], twin);
    }
    let id = id_of(&place, "search");
    for prefix in [&id[..8], &id[..13], &id.to_uppercase(), &id.replace('-', "")] {
        assert_eq!(report(&place, prefix)["id"], id, "{prefix}");
    }
}

#[test]
fn an_id_that_names_no_message_is_an_error_that_says_what_to_do() {
    let place = researched();
    for id in ["80be37", "sess-abcdefgh", "", "not-an-id-at-all"] {
        let error = refused(&place, &[id], 2);
        assert!(error.contains("at least its first 8"), "{id}: {error}");
    }
    let unknown = Uuid::nil().to_string();
    let error = refused(&place, &[&unknown], 2);
    assert!(error.contains(&format!("no message {unknown} is on record")), "{error}");

    let nowhere = Place::new();
    let error = refused(&nowhere, &[&unknown], 69);
    assert!(error.contains("--data takes the directory of a journal"), "{error}");
}

/// A message with a redacted payload is shown without the payload, but with its digest.
#[test]
fn a_redacted_payload_is_stated() {
    let place = researched();
    let id = id_of(&place, "search");
    let digest = report(&place, &id)["digest"].clone();
    let blank = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position = 2";
    let db = rusqlite::Connection::open(place.data().join(DATABASE)).unwrap();
    assert_eq!(db.execute(blank, []).unwrap(), 1);

    assert_eq!(report(&place, &id)["payload"], Json::Null);
    assert_eq!(report(&place, &id)["digest"], digest);
    let drawn = shown(&place, &[&id]);
    assert!(drawn.contains("redacted"), "{drawn}");
    let error = refused(&place, &[&id, "--raw"], 69);
    assert!(error.contains("was redacted") && error.contains(digest.as_str().unwrap()), "{error}");
}

/// Every message in the stored journals of each generation can be shown. No cause of a message is
/// recorded after the message.
#[test]
fn each_message_of_journals_of_every_generation_is_shown() {
    let mut messages = 0;
    for (journal, place) in crate::fixtures::compared_journals() {
        let ids = rows(&place.data(), "SELECT id FROM message");
        let reports = with_index(&place.data(), &mut |reader| {
            let report = |id: &String| {
                let prefix = MessageSelector::parse(id).unwrap();
                organism::audit::message_report(reader, &prefix, 20)
            };
            ids.iter().map(report).collect::<Result<Vec<_>, _>>()
        });
        for (id, found) in ids.iter().zip(reports.unwrap()) {
            let organism::audit::FoundMessage::One(report) = found else {
                panic!("{journal}: {id} is not found");
            };
            assert_eq!(report.message.id.to_string(), *id);
            let mut before = report.message.position;
            for cause in &report.causes {
                assert!(
                    cause.position <= before && cause.position > Position(0),
                    "{journal}: {id}"
                );
                before = cause.position;
            }
            let is_settled = report.message.disposition.is_some();
            assert_eq!(is_settled, report.disposed.is_some(), "{journal}: {id}");
        }
        messages += ids.len();
    }
    assert!(messages > 500, "{messages}");
}
