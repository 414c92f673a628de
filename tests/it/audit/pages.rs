//! Commands that show a part of a thread: one page, some classes of events, or the thread at an
//! earlier time.

use organism::envelope::MessageKind;
use organism::thread::Record;
use serde_json::Value as Json;

use super::{ROOT, organism, researched, stdout};
use crate::journal::Place;
use crate::journal::script::{Script, thread};

/// A thread of `count` questions.
fn long(count: usize) -> Place {
    let mut script = Script::default();
    let root = thread(ROOT);
    let (asked, first) = script.question(&root, "question 1");
    let mut records: Vec<Record> = vec![first];
    for n in 2..=count {
        let mut step = script.outcome(&root, "researcher", asked);
        let body = format!("<note>number {n}</note>");
        step.say(MessageKind::Note, "researcher", "researcher", "note", &body, Some(asked));
        records.push(step.end());
    }
    Place::with(&mut records)
}

fn shown(place: &Place, more: &[&str]) -> String {
    stdout(organism(place, &[&["thread", ROOT], more].concat()))
}

/// Returns the arguments that a recommended `organism thread` contains: the thread, and the
/// directory of its journal.
fn named(place: &Place) -> String {
    format!("{ROOT} --data {}", place.data().display())
}

fn seqs(text: &str) -> Vec<u64> {
    let lines = text.lines().filter_map(|line| line.split_once("  seq ").map(|(_, rest)| rest));
    lines.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn the_pages_of_a_long_thread_are_the_whole_thread() {
    let place = long(1203);
    let whole = seqs(&shown(&place, &["--all", "--ids"]));
    assert_eq!(whole.len(), 1203);

    let mut pages = Vec::new();
    let mut next = None;
    loop {
        let from = next.clone().unwrap_or_else(|| "0".to_owned());
        let page = shown(&place, &["--ids", "--from-seq", &from]);
        assert!(seqs(&page).len() <= 500);
        pages.extend(seqs(&page));
        let command = page.lines().last().unwrap().rsplit_once(" --from-seq ");
        let Some((head, seq)) = command else { break };
        let command = format!("more events: organism thread {}", named(&place));
        assert!(head.ends_with(&command), "{head}");
        next = Some(seq.to_owned());
    }
    assert_eq!(pages, whole);

    let last = shown(&place, &["--last", "--limit", "3", "--ids"]);
    assert_eq!(seqs(&last), whole[1200..]);
    assert!(last.contains("… 1200 earlier events"), "{last}");
    let small = shown(&place, &["--last", "--limit", "5000", "--ids"]);
    assert_eq!(seqs(&small), whole);
}

#[test]
fn json_has_all_events_unless_a_limit_is_given() {
    let place = long(700);
    let all: Json = serde_json::from_str(&shown(&place, &["--json"])).unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 700);
    assert_eq!(all["rest"], Json::Null);

    let some: Json = serde_json::from_str(&shown(&place, &["--json", "--limit", "10"])).unwrap();
    assert_eq!(some["items"].as_array().unwrap().len(), 10);
    assert_eq!(some["messages"], 700);
    assert_eq!(some["rest"]["events"], 690);
}

#[test]
fn a_thread_is_restricted_to_classes_of_events() {
    let place = researched();
    let refused = shown(&place, &["--only", "refused"]);
    assert!(refused.contains("refused: ") && !refused.contains(" → "), "{refused}");

    let both = shown(&place, &["--only", "refused,replies"]);
    assert!(both.contains("refused: ") && both.contains("  answer"), "{both}");
    assert!(!both.contains("  question"), "{both}");
    // The subthread has a reply of its own.
    assert!(both.contains(".depth"), "{both}");

    let unknown = organism(&place, &["thread", ROOT, "--only", "refusals"]);
    assert_eq!(unknown.status.code(), Some(2));
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(text.contains("refused, model"), "{text}");
}

#[test]
fn a_thread_is_shown_as_it_was_at_a_moment() {
    let place = researched();
    let all: Json = serde_json::from_str(&shown(&place, &["--json"])).unwrap();
    let last = all["items"].as_array().unwrap().last().unwrap()["position"].as_u64().unwrap();

    for position in 1..=last {
        let then: Json =
            serde_json::from_str(&shown(&place, &["--json", "--at", &position.to_string()]))
                .unwrap();
        let is_over = position == last;
        assert_eq!(then["status"] == "completed", is_over, "{position}");
    }

    let before = shown(&place, &["--at", "2026-11-20T10:00:00.3Z"]);
    assert!(before.contains("  running  ") && !before.contains(".822s"), "{before}");
    assert_eq!(shown(&place, &["--at", "2030-01-01"]), shown(&place, &[]));

    let never = organism(&place, &["thread", ROOT, "--at", "2020-01-01"]);
    assert_eq!(never.status.code(), Some(2));
    let text = String::from_utf8_lossy(&never.stderr).into_owned();
    assert!(text.contains("was opened later: its first record is at position 1, 2026-"), "{text}");

    let wrong = organism(&place, &["thread", ROOT, "--at", "noon"]);
    assert_eq!(wrong.status.code(), Some(2));
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(text.contains("`noon` is no moment; write a position, 2026-11-20"), "{text}");
}

/// A thread or a position that is not on record must not look like a search without a result, or
/// like the present state.
#[test]
fn positions_threads_and_rules_that_do_not_exist_are_refused() {
    let place = researched();
    for (arguments, expected) in [
        (&["thread", ROOT, "--at", "99999"][..], "position 99999 is not on record; the last is "),
        (&["thread", ROOT, "--limit", "-1"], "write a number of at least 1"),
        (&["search", "--thread", "sess-absent00"], "no thread sess-absent00 is on record"),
        (
            &["tail", "--no-follow", "--thread", "sess-absent00"],
            "no thread sess-absent00 is on record",
        ),
        (
            &["tail", "--until", "2h", "--thread", "sess-absent00", "--json"],
            "no thread sess-absent00 is on record",
        ),
        (
            &["search", "--rule", "schema_invalid"],
            "--rule schema_invalid: write one of too-large, not-utf8, ",
        ),
        (&["search", "--limit", "-1"], "write a number of at least 1"),
        (&["threads", "--limit", "0"], "write a number of at least 1"),
        (&["threads", "--cost-over", "-1"], "it is an amount such as 0.50"),
    ] {
        let refused = organism(&place, arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!text.contains("'-- -1'"), "{arguments:?}: {text}");
    }

    let subthread = format!("{ROOT}.absent");
    let unknown = organism(&place, &["search", "--thread", &subthread]);
    assert_eq!(unknown.status.code(), Some(2));
    let later = organism(&place, &["tail", "--thread", "sess-absent00"]);
    assert_eq!(later.status.code(), Some(0));
    let text = String::from_utf8_lossy(&later.stderr).into_owned();
    assert!(text.contains("sess-absent00 is not on record yet\n"), "{text}");
    let nobody = organism(&place, &["search", "--from", "nobody"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&nobody.stderr), "nothing matches\n");
}

#[test]
fn the_command_for_the_next_page_of_an_earlier_state_names_the_moment() {
    let place = long(20);
    let whole = seqs(&shown(&place, &["--at", "10", "--ids"]));
    assert_eq!(whole.len(), 10);

    let page = shown(&place, &["--at", "10", "--limit", "3", "--ids"]);
    let command = format!("organism thread {} --at 10 --from-seq 4", named(&place));
    assert!(page.trim_end().ends_with(&command), "{page}");
    let rest = shown(&place, &["--at", "10", "--from-seq", "4", "--ids"]);
    assert_eq!([seqs(&page), seqs(&rest)].concat(), whole);

    let page = shown(&place, &["--at", "2030-01-01T00:00:00Z", "--limit", "3"]);
    let options = "--at 2030-01-01T00:00:00.000000Z --from-seq 4";
    let command = format!("organism thread {} {options}", named(&place));
    assert!(page.trim_end().ends_with(&command), "{page}");
}

#[test]
fn the_command_for_the_next_page_of_some_classes_names_the_classes() {
    let place = long(20);
    let only = ["--only", "notes,calls", "--ids"];
    let whole = seqs(&shown(&place, &only));
    assert_eq!(whole.len(), 20);

    let page = shown(&place, &[&only[..], &["--limit", "3"]].concat());
    let (command, next) = page.trim_end().rsplit_once(" --from-seq ").unwrap();
    let expected = format!("organism thread {} --only notes,calls", named(&place));
    assert!(command.ends_with(&expected), "{page}");
    let rest = shown(&place, &[&only[..], &["--from-seq", next]].concat());
    assert_eq!([seqs(&page), seqs(&rest)].concat(), whole);
}

#[test]
fn positions_ids_and_absolute_times_stand_on_request() {
    let place = researched();
    let plain = shown(&place, &[]);
    assert!(!plain.contains("position ") && !plain.contains("2026-"), "{plain}");

    let more = shown(&place, &["--ids", "--absolute"]);
    assert!(more.contains("\n2026-11-20T10:00:00.137Z  operator → researcher  question"), "{more}");
    assert!(more.contains("position 1  seq 1  id "), "{more}");
}

#[test]
fn invisible_characters_of_a_thread_stand_as_their_code_points() {
    let mut script = Script::default();
    let hostile = "pay \u{202e}dab\u{202c} a\u{200b}b \u{e0041}\u{feff}\u{ad}";
    let (_, first) = script.question(&thread(ROOT), hostile);
    let text = shown(&Place::with(&mut [first]), &[]);
    for code in ["202e", "202c", "200b", "e0041", "feff", "ad"] {
        assert!(text.contains(&format!("\\u{{{code}}}")), "{code}: {text}");
    }
}

/// If a line of a payload is cut, no later line of the payload is shown. Otherwise a sender could
/// hide a text between two lines that an auditor sees.
#[test]
fn a_very_long_payload_shows_nothing_behind_a_line_that_it_cuts() {
    let words = format!("first\n{}hidden\nlast", " ".repeat(70_000));
    let (_, first) = Script::default().question(&thread(ROOT), &words);
    let text = shown(&Place::with(&mut [first]), &[]);
    assert!(text.contains("first"), "{text}");
    assert!(!text.contains("last"), "{text}");
    assert!(text.contains("… more, of "), "{text}");
}

#[test]
fn a_very_long_payload_is_shown_by_its_first_lines_and_its_size() {
    for (words, first_line) in [
        ("many words ".repeat(20_000), "many words ".repeat(6)),
        ("many\n".repeat(20_000), "many".to_owned()),
    ] {
        let (_, first) = Script::default().question(&thread(ROOT), &words);
        let place = Place::with(&mut [first]);
        let whole: Json = serde_json::from_str(&shown(&place, &["--json"])).unwrap();
        let payload = whole["items"][0]["message"]["payload"].as_str().unwrap();

        let text = shown(&place, &[]);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let size = format!("… more, of {} bytes in all (--full)", payload.len());
        assert_eq!(lines[2..10], [first_line.trim(); 8]);
        assert_eq!(lines[10..], [size]);
        assert_eq!(shown(&place, &["--full"]).matches("many").count(), 20_000);
    }
}
