//! `organism diff`: two runs of the essay example, whose agents play recordings.

use organism::audit::{TimelineEntry, TimelineEvent, compare_threads, thread_timeline};
use organism::ids::ThreadId;
use serde_json::Value as Json;

use super::terminal::in_colour;
use super::{CommandOutput, House, say};
use crate::docs::blocks::block;

const CONFIG: &str = include_str!("../../../config/essay.toml");
const RECORDING: &str = include_str!("../../../config/essay/recording.toml");

const REQUEST: &str = "<essay xmlns=\"https://xml-pipeline.org/ns/workflow/v1/essay\">\
    <topic>city parking</topic><readers>town councillors</readers><words>150</words></essay>";

/// A house in which one run has ended, in the thread `sess-essay000`.
pub fn essay_house() -> House {
    let house = House::with(&CONFIG.replace("name = \"essay\"", "name = \"talk\""));
    std::fs::create_dir(house.path("essay")).unwrap();
    house.write("essay/recording.toml", RECORDING);
    run(&house, "sess-essay000");
    house
}

fn run(house: &House, thread: &str) {
    let sent = house.send_text(REQUEST, &["--new", thread]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

/// Replaces a text in a file, and runs the workflow again, in the thread `sess-essay001`.
pub fn run_with(house: &House, file: &str, before: &str, after: &str) {
    let text = std::fs::read_to_string(house.path(file)).unwrap();
    assert!(text.contains(before), "{text}");
    house.write(file, text.replace(before, after));
    run(house, "sess-essay001");
}

fn diff(house: &House, more: &[&str]) -> CommandOutput {
    let compared = house.organism(&[&["diff", "sess-essay000", "sess-essay001"], more].concat());
    assert_eq!(compared.code, Some(0), "{compared:?}");
    compared
}

fn diff_json(house: &House) -> Json {
    diff(house, &["--json"]).json().remove(0)
}

#[test]
fn runs_with_equal_content_are_equal_whatever_their_ids_and_times() {
    let house = essay_house();
    run(&house, "sess-essay001");
    let found = diff_json(&house);
    assert_eq!(found["equal"], true, "{found}");
    let events = found["equal_events"].as_u64().unwrap();
    assert!(events > 20, "{found}");
    assert_eq!(found["a"]["turns"], 5, "{found}");
    assert_eq!(found["a"]["result"], found["b"]["result"]);
    let equal = format!("the events of both threads are equal: {events} events");
    assert!(diff(&house, &[]).err.contains(&equal));

    let data = house.data().display().to_string();
    let unknown = house.organism(&["diff", "sess-essay000", "sess-nowhere1", "--other", &data]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let advised = format!("`organism threads --data {data}` lists them");
    assert!(unknown.err.contains(&advised), "{unknown:?}");
}

/// The changed answer is the first difference, although everything after this answer differs as
/// well.
#[test]
fn the_first_difference_is_the_answer_that_changed() {
    let house = essay_house();
    run_with(&house, "essay/recording.toml", "\nREVISE", "\nIt is too long.\nREVISE");
    let found = diff_json(&house);
    let first = &found["first"]["event"];
    assert_eq!(first["a"]["thread"], "sess-essay000.critique_1", "{found}");
    assert_eq!(first["a"]["what"], "note core > critic model-turn");
    assert_eq!(first["b"]["thread"], "sess-essay001.critique_1");
    assert_eq!(found["differences"].as_array().unwrap().first().unwrap(), first);

    let shown = diff(&house, &[]);
    assert!(shown.out.contains("+  It is too long."), "{shown:?}");
    assert!(!shown.out.contains("draft_2"), "{shown:?}");
    let all = diff(&house, &["--all"]);
    assert!(all.out.contains("sess-essay001.draft_2"), "{all:?}");
    let count = found["differences"].as_array().unwrap().len();
    for number in [1, 2, count] {
        let title = format!("difference {number} of {count}\n");
        assert_eq!(all.out.matches(&title).count(), 1, "{all:?}");
    }
    assert!(all.err.contains(&format!("there are {count} differences;")), "{all:?}");
}

/// The first difference is a prompt if all messages before the turn of this prompt are equal.
#[test]
fn a_changed_prompt_comes_before_what_the_model_answered() {
    let house = essay_house();
    run_with(&house, "organism.toml", "hard to please", "easy to please");
    let found = diff_json(&house);
    let first = &found["first"]["prompt"];
    assert_eq!(first["a"]["agent"], "critic", "{found}");
    assert_eq!(first["a"]["thread"], "sess-essay000.critique_1");
    let changed = first["diff"].as_str().unwrap();
    assert!(changed.contains("+You are an editor who is easy to please."), "{changed}");
    assert_eq!(changed.lines().filter(|line| line.starts_with('-')).count(), 1, "{changed}");
    assert_eq!(found["differences"], Json::Array(Vec::new()), "{found}");

    let digests = [&first["a"]["prompt"], &first["b"]["prompt"]];
    let shown = digests.into_iter().fold(diff(&house, &[]).out, |shown, digest| {
        shown.replace(digest.as_str().unwrap(), "DIGEST")
    });
    let block = block("docs/AUDIT.md", "first difference");
    assert!(shown.starts_with(block.trim_end()), "{shown}");
    assert!(diff(&house, &[]).err.contains("there is 1 difference;"), "the prompt");
    assert_eq!((&found["equal"], &found["equal_results"]), (&false.into(), &true.into()));
}

/// A changed goal is the first difference between two runs. The report also states the digests of
/// the runs' definitions, and these digests differ.
#[test]
fn a_changed_goal_shows_in_its_message_and_in_the_definition() {
    let house = essay_house();
    run_with(&house, "organism.toml", "Quote what must change", "State what must change");
    let found = diff_json(&house);
    let first = &found["first"]["event"];
    assert_eq!(first["a"]["what"], "call essay > core spawn-thread", "{found}");
    assert_ne!(found["a"]["definition"], found["b"]["definition"]);
    assert!(diff(&house, &[]).out.contains("+    State what must change"));
}

/// The result of a failed thread is the fault that its opener got.
#[test]
fn a_run_that_failed_has_its_fault_as_the_result() {
    let house = essay_house();
    let recording = RECORDING.replace("thread = \"critique_1\"", "thread = \"critique_9\"");
    assert_ne!(recording, RECORDING);
    house.write("essay/recording.toml", recording);
    let sent = house.send_text(REQUEST, &["--new", "sess-essay001"]);
    assert_ne!(sent.code, Some(0), "{sent:?}");
    let threads = ["sess-essay000.critique_1", "sess-essay001.critique_1"];
    let found = house.organism(&["diff", threads[0], threads[1], "--json"]).json().remove(0);
    assert_eq!(found["b"]["status"], "failed", "{found}");
    let fault = found["b"]["result"].as_str().unwrap();
    assert!(fault.contains("listener-failed"), "{found}");
    assert_eq!(found["equal_results"], false);
}

/// The timeline of an open thread ends where the thread opened a subthread. The first difference
/// between two such threads is still found in their subthreads.
#[test]
fn an_open_thread_differs_first_where_its_subthread_does() {
    let house = essay_house();
    run_with(&house, "essay/recording.toml", "\nREVISE", "\nIt is too long.\nREVISE");
    let reader = house.reader();
    let read = |id: &str| {
        let thread = ThreadId::parse(id).unwrap();
        thread_timeline(&reader, &thread, None).unwrap().unwrap()
    };
    let mut open = read("sess-essay000");
    let is_critique = |item: &TimelineEntry| match &item.what {
        TimelineEvent::Subthread(child) => child.thread.as_str().ends_with(".critique_1"),
        _ => false,
    };
    let at = open.items.iter().position(is_critique).unwrap();
    open.items.truncate(at + 1);

    let other = read("sess-essay001");
    for (left, right) in [(&open, &other), (&other, &open)] {
        let found = compare_threads(left, right);
        let first = found.differences[0].left.as_ref().unwrap();
        assert!(first.thread.as_str().ends_with(".critique_1"), "{first:?}");
        assert_eq!(first.title, "note core > critic model-turn");
    }
}

#[test]
fn subthreads_and_threads_of_another_journal_can_be_compared() {
    let (house, other) = (essay_house(), essay_house());
    let data = other.data().display().to_string();
    let threads = ["sess-essay000.draft_1", "sess-essay000.draft_2"];
    let drafts = house.organism(&["diff", threads[0], threads[1], "--json"]).json().remove(0);
    assert_eq!(drafts["first"]["event"]["a"]["what"], "call essay > writer goal", "{drafts}");

    let compared = house.organism(&["diff", "sess-essay000", "sess-essay000", "--other", &data]);
    assert!(compared.err.contains("both threads are equal"), "{compared:?}");

    let unknown = house.organism(&["diff", "sess-essay000", "sess-unknown0"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.err.contains("no thread sess-unknown0 is on record"), "{unknown:?}");
    let missing = house.organism(&["diff", "sess-essay000", "sess-essay000", "--other", "absent"]);
    assert!(missing.err.contains("absent"), "{missing:?}");
}

/// The terminal gets the escapes of the colours. It gets a hidden character of a payload only as a
/// code point, so that this character has no effect.
#[test]
fn a_terminal_shows_colours_and_the_code_points_of_hidden_characters() {
    let house = House::new();
    let running = house.run();
    for (thread, text) in [("sess-plain001", "pay 1"), ("sess-hidden01", "pay \u{202e}1")] {
        let sent = house.send_text(&say(text), &["--new", thread]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(running.stop(), Some(0));

    let command = house.command(&["diff", "sess-plain001", "sess-hidden01"]);
    let (shown, code) = in_colour(&house, command);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("\u{1b}[1mfirst difference\u{1b}[0m"), "{shown:?}");
    assert!(shown.contains("\u{1b}[32m+"), "{shown:?}");
    assert!(shown.contains("pay \\u{202e}1"), "{shown:?}");
    assert!(!shown.contains('\u{202e}'), "{shown:?}");
    assert!(!shown.contains("\\u{1b}"), "{shown:?}");
}
