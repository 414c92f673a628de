//! Tests that the index finds the same held calls as a search of the whole journal.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use organism::audit::{self, HeldCall, HeldPage};
use organism::clock::Time;
use organism::envelope::{Disposition, MessageKind};
use organism::ids::CallId;
use organism::index::{self, WorkFilter};
use organism::journal::Journal as _;
use organism::system::WaitFor;
use organism::thread::{Closing, Fact, Hold, Record};

use super::{organism, text, with_index};
use crate::fixtures::compared_journals;
use crate::journal::Place;
use crate::journal::script::{CORE, Script, research, thread};

const HOLDS: [Hold; 2] = [Hold::Approval, Hold::Answer];

/// All held calls, of both kinds.
fn indexed(place: &Place) -> Vec<HeldCall> {
    let pages = HOLDS.map(|hold| page(place, hold, usize::MAX));
    assert!(pages.iter().all(|page| page.calls.len() as u64 == page.all), "{pages:?}");
    let mut calls = pages.map(|page| page.calls).concat();
    HeldCall::sort(&mut calls);
    calls
}

fn page(place: &Place, hold: Hold, most: usize) -> HeldPage {
    with_index(&place.data(), &mut |index| audit::held_in(index, hold, most)).unwrap()
}

/// Returns the records of trees with held calls. In every second tree, the call still waits. In the
/// other trees, the wait has ended in one of three ways.
pub fn waiting(script: &mut Script, trees: usize) -> Vec<Record> {
    let mut records = Vec::new();
    for number in 0..trees {
        let tree = thread(&format!("sess-waiting{number}"));
        let (asked, mut first) = script.question(&tree, &format!("question {number}"));
        let call = CallId(asked);
        let until = Some(Time(first.time.0 + 3_600_000_000));
        first.facts.push(Fact::Held { call, hold: Hold::Approval, until });
        records.push(first);

        let mut step = script.outcome(&tree, "researcher", asked);
        let why =
            format!("<approval-requested xmlns=\"{CORE}\" message_id=\"{asked}\" why=\"large\"/>");
        step.say(MessageKind::System, "core", "operator", "approval-requested", &why, None);
        let mut more = step.end();
        let facts = match number % 6 {
            1 => vec![Fact::Released { call, lapsed: false }],
            3 => vec![Fact::CallClosed { call, how: Closing::Cancelled }],
            // A wait that was renewed has not ended.
            4 => vec![Fact::Held { call, hold: Hold::Answer, until: None }],
            5 => vec![Fact::Released { call, lapsed: true }],
            _ => Vec::new(),
        };
        more.facts.extend(facts);
        records.push(more);
    }
    records
}

/// Asserts that pages of several lengths have the calls that a search of the whole journal finds.
fn assert_pages(place: &Place) {
    let held = audit::held(&place.reader()).unwrap();
    for hold in HOLDS {
        for most in [0, 1, 30, 1_000] {
            let expected = HeldPage::of(held.clone(), hold, most);
            assert_eq!(page(place, hold, most), expected);
            // Two partitions have the same list as one journal with the calls of both.
            let (one, other) =
                held.iter().cloned().partition(|call| call.message.0.as_u128() % 2 == 0);
            let [one, other] = [one, other].map(|calls| HeldPage::of(calls, hold, most));
            assert_eq!(one.merged(other, most), expected);
        }
    }
}

/// Returns the records of a call that has opened two threads and waits for them. The call of each
/// thread then completes, in a record of its own.
fn waiting_for_threads(until: WaitFor) -> Vec<Record> {
    let mut script = Script::default();
    let tree = thread("sess-abcdefgh");
    let children = ["one", "two"].map(|label| tree.child(label));
    let (asked, first) = script.question(&tree, "Book a trip");

    let mut step = script.outcome(&tree, "researcher", asked);
    step.dispose(asked, Disposition::Handled);
    let system = |name: &str| format!("<{name} xmlns=\"{CORE}\"/>");
    for name in ["thread-spawned", "thread-spawned", "waiting"] {
        step.say(MessageKind::System, "core", "researcher", name, &system(name), Some(asked));
    }
    let inner = children.each_ref().map(|child| {
        step.open(child, "researcher").within(child);
        step.say(MessageKind::Call, "researcher", "code-search", "search", "<search/>", None)
    });
    let mut second = step.end();
    second.facts.push(Fact::Waiting { call: CallId(asked), until });

    let mut records = vec![first, second];
    for (child, inner) in children.iter().zip(inner) {
        let mut step = script.outcome(child, "code-search", inner);
        step.dispose(inner, Disposition::Handled).close(inner, Closing::Completed).within(&tree);
        let result = system("thread-result");
        step.say(MessageKind::System, "core", "researcher", "thread-result", &result, Some(asked));
        records.push(step.end());
    }
    records
}

/// A call that waits for threads beneath it, as the run of a workflow does, is not queued for its
/// listener. It is queued when it has the results that it waits for.
#[test]
fn a_call_that_waits_for_threads_beneath_it_is_not_queued() {
    let cases = [(WaitFor::All, [1, 0, 0, 1]), (WaitFor::Any, [1, 0, 1, 1])];
    for (until, expected) in cases {
        let records = waiting_for_threads(until);
        for (ended, queued) in expected.into_iter().enumerate() {
            let place = Place::with(&mut records[..=ended].to_vec());
            let (loads, work) = with_index(&place.data(), &mut |index| {
                let (loads, _) = index.listener_loads(Time(0))?;
                Ok((loads, index.open_work(&WorkFilter::Listener("researcher".to_owned()), 9)?))
            })
            .unwrap();
            let own = loads.iter().filter(|load| load.listener == "researcher");
            let found: u64 = own.map(|load| load.queued).sum();
            assert_eq!(found, queued, "{until:?} after record {}", ended + 1);
            assert_eq!([work.queued, work.waiting], [queued, 1 - queued], "{until:?}");
        }
    }
}

/// Calls that began to wait at the same time, in one commit of the pump, have the order of their
/// ids.
#[test]
fn calls_of_one_time_have_one_order_with_and_without_the_index() {
    let mut records = waiting(&mut Script::default(), 300);
    for record in &mut records {
        record.time = Time(1_000);
        for fact in &mut record.facts {
            if let Fact::Accepted { message, .. } = fact {
                Arc::make_mut(message).time = record.time;
            }
        }
    }
    assert_pages(&Place::with(&mut records));
}

/// A call that ends between the two reads, of the index and of the journal, is neither listed nor
/// counted.
#[test]
fn a_call_that_ends_while_the_list_is_read_is_not_counted() {
    let mut script = Script::default();
    let place = Place::with(&mut waiting(&mut script, 12));
    let before = page(&place, Hold::Approval, usize::MAX);
    assert_eq!(before.all, 4);
    let ended = &before.calls[0];
    let mut record = script.outcome(&ended.thread, "researcher", ended.message).end();
    record.facts.push(Fact::CallClosed { call: CallId(ended.message), how: Closing::Cancelled });
    let during = with_index(&place.data(), &mut |index| {
        place.open().unwrap().append(&mut [record.clone()]).unwrap();
        audit::held_in(index, Hold::Approval, usize::MAX)
    });
    assert_eq!(during.unwrap(), HeldPage { calls: before.calls[1..].to_vec(), all: 3 });
}

/// Design 8.17: the index misses no held call, whatever has happened in its tree.
#[test]
fn held_calls_found_with_the_index_are_those_of_the_journal() {
    let mut script = Script::default();
    let mut records = research(&mut script, "sess-abcdefgh");
    // As many as are read in several shares.
    records.extend(waiting(&mut script, 300));
    let place = Place::with(&mut records);
    let held = audit::held(&place.reader()).unwrap();
    assert_eq!(held.len(), 150);
    assert!(held.iter().all(|call| call.why.as_deref() == Some("large")));
    let is_hold =
        |fact: &Fact, message| matches!(fact, Fact::Held { call, .. } if call.0 == message);
    for call in &held {
        let mut records = records.iter().rev();
        let begin = records.find(|r| r.facts.iter().any(|fact| is_hold(fact, call.message)));
        assert_eq!(call.since, begin.unwrap().time.to_string());
    }
    assert_eq!(indexed(&place), held);
    assert_pages(&place);

    let mut found = 0;
    for (journal, place) in compared_journals() {
        let held = audit::held(&place.reader()).unwrap();
        assert_eq!(indexed(&place), held, "{journal}");
        found += held.len();
    }
    assert!(found > 0);
}

/// Items that are read in shares keep their order, and each item is read once. This holds for one
/// reader, and for threads that read shares at the same time.
#[test]
fn shares_are_read_in_order_whether_by_one_reader_or_by_threads() {
    let place = Place::with(&mut waiting(&mut Script::default(), 300));
    let waiting =
        with_index(&place.data(), &mut |index| index.waiting_calls(Hold::Approval, usize::MAX));
    let (calls, all) = waiting.unwrap();
    assert_eq!(calls.len() as u64, all);
    let numbers: Vec<i64> = calls.iter().copied().cycle().take(1_000).collect();

    for (patience, shares) in [(Duration::MAX, 2), (Duration::ZERO, 9)] {
        let read = with_index(&place.data(), &mut |index| {
            index.read_in_shares(&numbers, patience, |index, share| {
                let positions = share.iter().map(|call| index.trees_of(&[*call]));
                Ok((share.to_vec(), positions.collect::<Result<Vec<_>, _>>()?.concat()))
            })
        });
        let read = read.unwrap();
        assert_eq!(read.len(), shares);
        let items: Vec<i64> = read.iter().flat_map(|(items, _)| items.clone()).collect();
        assert_eq!(items, numbers);
        let trees: Vec<_> = read.into_iter().flat_map(|(_, trees)| trees).collect();
        assert_eq!(trees[..calls.len()], trees[calls.len()..2 * calls.len()]);
        assert_eq!(trees.len(), numbers.len());
    }
}

/// A list shows the calls that have waited longest, and states the number of all waiting calls. The
/// list is the same with and without an index.
#[test]
fn a_list_of_approvals_has_the_oldest_and_states_the_number_of_all() {
    let place = Place::with(&mut waiting(&mut Script::default(), 330));
    let listed = |arguments: &[&str]| {
        let output = organism(&place, &[&["approvals", "--json"], arguments].concat());
        let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        (lines, text(&output.stderr))
    };
    for has_index in [false, true] {
        if has_index {
            assert_eq!(indexed(&place).len(), 165);
        }
        let (all, note) = listed(&["--all"]);
        assert_eq!(all.len(), 110);
        assert!(!note.contains("--all"), "{note}");
        for (limit, first) in [(&[][..], 100), (&["--limit", "7"], 7)] {
            let (some, note) = listed(limit);
            assert_eq!(some, all[..first]);
            let expected = format!("the {first} oldest of 110 calls that wait for an approval");
            assert!(note.contains(&expected), "{note}");
        }
    }

    for wrong in [
        &["--all-from", "sess-waiting0", "--limit", "1"][..],
        &["--limit", "1", "--all"],
        &["--limit", "0"],
    ] {
        let (lines, note) = listed(wrong);
        assert!(lines.is_empty() && note.contains("--limit"), "{wrong:?}: {note}");
    }
    let mut answer = Command::new(env!("CARGO_BIN_EXE_organism"));
    answer.args(["answer", "--json", "--limit", "5", "--data"]).arg(place.data());
    let questions = answer.output().unwrap();
    assert_eq!(text(&questions.stdout).lines().count(), 5);
    let note = text(&questions.stderr);
    assert!(note.contains("the 5 oldest of 55 open questions"), "{note}");
}

/// `organism approvals` lists every held call without a running organism, even if the index is
/// missing, behind, damaged or of another journal. With an index, the command reads only the trees
/// with calls that wait.
#[test]
fn approvals_are_complete_whatever_state_the_index_is_in() {
    let mut script = Script::default();
    let mut records = research(&mut script, "sess-abcdefgh");
    records.extend(waiting(&mut script, 12));
    let place = Place::with(&mut records);
    let listed = |place: &Place| organism(place, &["approvals", "--json"]);
    let file = |place: &Place| place.data().join(index::INDEX_DATABASE);

    let expected = text(&listed(&place).stdout);
    assert_eq!(expected.lines().count(), 4);
    assert!(!file(&place).exists(), "a list of approvals makes no index");
    assert_eq!(indexed(&place).len(), 6);
    let indexed = listed(&place);
    assert_eq!(text(&indexed.stdout), expected);
    assert!(text(&indexed.stderr).contains("reads the journal"), "{}", text(&indexed.stderr));

    // The first record is in no tree that waits, so it is read only without an index.
    let damaged = place.copy();
    let journal = rusqlite::Connection::open(damaged.data().join("journal.db")).unwrap();
    journal.execute("UPDATE step SET hash = zeroblob(32) WHERE position = 2", []).unwrap();
    assert_eq!(text(&listed(&damaged).stdout), expected);
    std::fs::remove_file(file(&damaged)).unwrap();
    assert!(!listed(&damaged).status.success());

    let behind = place.copy();
    let mut more = waiting(&mut script, 0);
    let tree = thread("sess-latelatelate");
    let (asked, mut late) = script.question(&tree, "late");
    late.facts.push(Fact::Held { call: CallId(asked), hold: Hold::Approval, until: None });
    more.push(late);
    let mut opened = behind.open().unwrap();
    opened.append(&mut more).unwrap();
    let lock = index_lock(&behind);
    let locked = listed(&behind);
    assert_eq!(text(&locked.stdout).lines().count(), 5, "{}", text(&locked.stderr));
    drop(lock);
    assert_eq!(text(&listed(&behind).stdout).lines().count(), 5);

    let other = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    assert!(!super::rows(&other.data(), "SELECT thread FROM tree").is_empty());
    for bytes in [b"no database".to_vec(), std::fs::read(file(&other)).unwrap()] {
        let copy = place.copy();
        std::fs::write(file(&copy), bytes).unwrap();
        assert_eq!(text(&listed(&copy).stdout), expected);
    }
}

/// Takes the lock of the index's writer.
fn index_lock(place: &Place) -> std::fs::File {
    let mut options = std::fs::OpenOptions::new();
    let lock =
        options.create(true).append(true).open(place.data().join(index::INDEX_LOCK)).unwrap();
    lock.lock().unwrap();
    lock
}
