//! A page of a thread has the same content whether the page is made with the index or from the
//! whole journal.

use std::sync::Arc;

use organism::audit::{self, ThreadTimeline, TimelineEvent};
use organism::clock::Time;
use organism::envelope::{AttemptFailure, Disposition, MessageKind, Money, RefusalRule, Spending};
use organism::ids::{Attempt, CallId, Digest, MessageId, Position, ThreadId};
use organism::index::{self, HoldCount, TreeFilter};
use organism::limits;
use organism::thread::{
    Closing, Decision, DecisionOrigin, Fact, ForkSource, Hold, InheritedThread, Input,
    OperatorIdentity, Record, TimerEnd,
};
use uuid::Uuid;

use super::rows::{priced_turn, two_currencies};
use super::{organism, rows, text, with_index};
use crate::fixtures::compared_journals;
use crate::journal::Place;
use crate::journal::script::{CORE, Script, name, research, thread};

const ROOT: &str = "sess-abcdefgh";
const LIMITS: [usize; 4] = [1, 3, 9, 40];

/// A thread with every kind of event and two subthreads. Messages of the thread and its subthreads
/// alternate.
pub fn nested() -> Vec<Record> {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "Who?");
    let call = CallId(asked);
    let attempt = Attempt { epoch: 1, n: 1 };
    let mut records = vec![first];
    let note = |script: &mut Script, at: &ThreadId, text: &str| {
        let mut step = script.outcome(at, "researcher", asked);
        let body = format!("<note>{text}</note>");
        step.within(at);
        step.say(MessageKind::Note, "researcher", "researcher", "note", &body, Some(asked));
        step.end()
    };

    let children = ["left", "right"].map(|child| tree.child(child));
    let beneath = children[0].child("deep");
    let mut inner = Vec::new();
    for child in children.iter().chain([&beneath]) {
        records.push(note(&mut script, &tree, "before a subthread"));
        let parent = child.parent().unwrap();
        let mut step = script.outcome(&parent, "researcher", asked);
        step.open(child, "researcher").within(child);
        inner.push(step.say(MessageKind::Call, "researcher", "b", "question", "<q/>", None));
        records.push(step.end());
    }
    for n in 0..12 {
        for at in children.iter().chain([&tree, &beneath]) {
            records.push(note(&mut script, at, &format!("{n}")));
        }
    }

    let spent = Spending { tokens: 34, money: Money(700) };
    let failure = AttemptFailure::Model {
        reason: "timeout".to_owned(),
        detail: "no answer".to_owned(),
        spent,
        passing: false,
        tries: Vec::new(),
    };
    let mut failed = script.step(&children[1], Input::Retry { call }).end();
    failed.facts = vec![
        Fact::AttemptFailed { call, attempt, failure },
        Fact::TimerEnded { timer: organism::ids::TimerId(asked.0), how: TimerEnd::Fired },
        Fact::Charged { call, agent: name("researcher"), attempt, spending: spent },
    ];
    records.push(failed);

    let mut step = script.outcome(&children[0], "b", inner[0]);
    step.found("unclosed-element", "`<search>` was never closed");
    step.refuse("b", RefusalRule::SchemaInvalid, "`sum` is not an expression", "<calculate/>");
    records.push(step.end());

    let who = OperatorIdentity::default();
    let origin = Some(DecisionOrigin { who, note: String::new(), signature: None });
    let by = name("operator");
    let decision = Decision::Refuse { reason: "no".to_owned() };
    let input =
        Input::Decided { message: inner[1], by: by.clone(), decision, origin: origin.clone() };
    records.push(script.step(&tree, input).end());
    let reason = "enough".to_owned();
    let input = Input::Cancel { thread: children[1].clone(), by: by.clone(), reason, origin };
    let mut step = script.step(&tree, input);
    step.close(inner[1], Closing::Cancelled);
    records.push(step.end());
    let busy = Input::Busy { client: by, since: Time(1), count: 3 };
    records.push(script.step(&tree, busy).end());

    let mut step = script.outcome(&tree, "researcher", asked);
    let all: Vec<MessageId> = records.iter().flat_map(accepted).collect();
    for message in all {
        step.dispose(message, Disposition::Handled);
    }
    step.close(asked, Closing::Completed);
    records.push(step.end());
    records
}

/// A fork that has taken over three subthreads. A call is open in the deepest one. Nothing happens
/// in the other two.
fn forked() -> Vec<Record> {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let [left, right] = ["left", "right"].map(|child| tree.child(child));
    let deep = left.child("deep");
    let inherited = |thread: &ThreadId, result| InheritedThread {
        thread: thread.clone(),
        by: name("researcher"),
        seq: 0,
        result,
        bound: None,
        shown: Default::default(),
        allotment: None,
    };
    let source = ForkSource {
        thread: thread("sess-source01"),
        message: MessageId(Uuid::nil()),
        seq: 1,
        record: Position(1),
        hash: Digest::ZERO,
        history: Position(1),
        unpinned: false,
        journal: None,
    };

    let mut step = script.step(&tree, Input::Shutdown { detail: "a fork".to_owned() });
    step.within(&deep);
    let held = step.say(MessageKind::Call, "researcher", "b", "question", "<q/>", None);
    let mut first = step.end();
    let threads = vec![
        inherited(&tree, None),
        inherited(&left, Some(Closing::Completed)),
        inherited(&deep, None),
        inherited(&right, None),
    ];
    let fork = Fact::Forked {
        thread: tree.clone(),
        by: name("ana"),
        source,
        live: Vec::new(),
        allotment: None,
        threads,
    };
    first.facts.insert(0, fork);
    let mut records = vec![first];

    let call = CallId(held);
    let mut waiting = script.step(&deep, Input::Retry { call }).end();
    waiting.facts = vec![
        Fact::Used {
            call,
            agent: None,
            tokens_in: 7,
            tokens_out: 3,
            money: Money(0),
            attempt: None,
        },
        Fact::Held { call, hold: Hold::Approval, until: None },
    ];
    records.push(waiting);
    for n in 0..6 {
        for at in [&tree, &deep] {
            let mut step = script.outcome(at, "researcher", held);
            let body = format!("<note>{n}</note>");
            step.say(MessageKind::Note, "researcher", "researcher", "note", &body, Some(held));
            records.push(step.end());
        }
    }
    records
}

/// The totals of a fork count what has happened in the subthreads that the fork has taken over.
#[test]
fn the_timeline_of_a_fork_has_the_subthreads_that_it_has_taken_over() {
    let place = Place::with(&mut forked());
    let whole = audit::thread_timeline(&place.reader(), &thread(ROOT), None).unwrap().unwrap();
    let subthreads = |timeline: &ThreadTimeline| {
        let items = timeline.items.iter().filter_map(|item| match &item.what {
            TimelineEvent::Subthread(child) => Some(child.clone()),
            _ => None,
        });
        items.collect::<Vec<_>>()
    };
    let children = subthreads(&whole);
    let labels: Vec<_> = children.iter().map(|child| child.thread.label()).collect();
    assert_eq!(labels, ["left", "right"]);
    let deep = subthreads(&children[0]).remove(0);
    assert_eq!((deep.thread.label(), deep.messages), ("deep", 7));
    assert_eq!(whole.spent.tokens, 10);
    assert_eq!(whole.waits.calls, 1);
    assert_eq!(whole.opened_by, name("ana"), "the fork belongs to its client");

    let page = with_index(&place.data(), &mut |index: &mut index::IndexReader| {
        audit::thread_page(index, &thread(ROOT), None, 500)
    });
    let linked = subthreads(&page.unwrap().unwrap().timeline);
    assert_eq!(linked.len(), 2, "{linked:?}");
}

fn accepted(record: &Record) -> Vec<MessageId> {
    let id = |fact: &Fact| match fact {
        Fact::Accepted { message, .. } => Some(message.id),
        _ => None,
    };
    record.facts.iter().filter_map(id).collect()
}

fn json(timeline: &ThreadTimeline) -> String {
    serde_json::to_string_pretty(timeline).unwrap()
}

/// Issue 17: the first page of a long thread is the same whether it is made with the index or from
/// the whole thread.
#[test]
fn a_first_page_made_with_the_index_is_that_of_the_whole_thread() {
    let mut script = Script::default();
    let priced = priced_turn(&mut script, ROOT).to_vec();
    let researched = research(&mut Script::default(), ROOT);
    let written = [nested(), forked(), priced, two_currencies(), researched];
    let written =
        written.map(|mut records| ("written".to_owned(), Arc::new(Place::with(&mut records))));
    let mut cut = 0;

    for (journal, place) in written.into_iter().chain(compared_journals()) {
        let reader = place.reader();
        for id in rows(&place.data(), "SELECT id FROM thread") {
            let thread = ThreadId::parse(&id).unwrap();
            let whole = audit::thread_timeline(&reader, &thread, None).unwrap().unwrap();
            let compared = with_index(&place.data(), &mut |index: &mut index::IndexReader| {
                for limit in LIMITS {
                    let mut expected = whole.clone();
                    expected.keep_page(0, limit);
                    // A page that needs nearly all records is not made with the index.
                    let Some(page) = audit::first_page(index, &thread, limit)? else { continue };
                    assert_eq!(json(&page), json(&expected), "{journal}, {id}, {limit} events");
                    assert_eq!((page.opened, page.updated), (expected.opened, expected.updated));
                    cut += u64::from(page.rest.is_some());
                }
                Ok(())
            });
            compared.unwrap();
        }
    }
    assert!(cut > 100, "{cut}");
}

/// A cancellation that is refused because the thread has settled does not change the duration of
/// the thread, however late it is.
#[test]
fn a_refused_action_does_not_change_how_long_a_settled_thread_took() {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "Who?");
    let mut step = script.outcome(&tree, "researcher", asked);
    step.within(&tree);
    step.say(MessageKind::Reply, "researcher", "desk", "answer", "<answer/>", Some(asked));
    step.dispose(asked, Disposition::Handled);
    step.close(asked, Closing::Completed);
    let settled = step.end();
    let end = settled.time;

    let origin = Some(DecisionOrigin::default());
    let reason = "enough".to_owned();
    let cancel = Input::Cancel { thread: tree.clone(), by: name("operator"), reason, origin };
    let mut step = script.step(&tree, cancel);
    step.refuse("operator", RefusalRule::NotWaiting, "it has ended", "cancel");
    let mut records = vec![first, settled, step.end()];
    let place = Place::with(&mut records);

    let whole = audit::thread_timeline(&place.reader(), &tree, None).unwrap().unwrap();
    assert_eq!(whole.updated, end);
    let rows = with_index(&place.data(), &mut |index: &mut index::IndexReader| {
        let listed = index.trees(&TreeFilter::default(), 1)?.pop();
        Ok((listed, index.branch(&tree)?, index.timeline_summary(&tree)?))
    });
    let (listed, branch, summary) = rows.unwrap();
    let listed = listed.unwrap();
    assert_eq!(listed.worked, end);
    assert!(listed.updated > end, "the refusal is its last record: {listed:?}");
    assert_eq!(branch.unwrap().worked, end);
    assert_eq!(summary.unwrap().updated, end);
}

/// Returns the thread's own events as JSON, with only the totals of each subthread. Leaves out the
/// events that a page may leave out: see `audit::thread_page`.
fn own_events(timeline: &ThreadTimeline) -> Vec<String> {
    let mut own = timeline.clone();
    own.items.retain(|item| !is_left_out(&item.what));
    for item in &mut own.items {
        if let TimelineEvent::Subthread(child) = &mut item.what {
            child.items.clear();
        }
    }
    own.items.iter().map(|item| serde_json::to_string(item).unwrap()).collect()
}

const fn is_left_out(event: &TimelineEvent) -> bool {
    matches!(
        event,
        TimelineEvent::Charged { .. }
            | TimelineEvent::Busy(_)
            | TimelineEvent::TimerEnded { how: TimerEnd::Cancelled, .. }
    )
}

/// Issue 18, 3.4: all pages of a thread together contain the whole thread. Each page is made from
/// its own records only.
#[test]
fn the_pages_of_a_thread_are_the_whole_thread_in_either_direction() {
    let mut script = Script::default();
    let priced = priced_turn(&mut script, ROOT).to_vec();
    let researched = research(&mut Script::default(), ROOT);
    let written = [nested(), forked(), priced, two_currencies(), researched];
    let written =
        written.map(|mut records| ("written".to_owned(), Arc::new(Place::with(&mut records))));
    let mut pages = 0;

    for (journal, place) in written.into_iter().chain(compared_journals()) {
        let reader = place.reader();
        for id in rows(&place.data(), "SELECT id FROM thread") {
            let thread = ThreadId::parse(&id).unwrap();
            let whole = audit::thread_timeline(&reader, &thread, None).unwrap().unwrap();
            // One message a page has an edge at each message, and takes long for a long journal.
            let smallest = if journal == "written" { 1 } else { 2 };
            let compared = with_index(&place.data(), &mut |index: &mut index::IndexReader| {
                for limit in [smallest, 7, 500] {
                    let page = |from_seq| {
                        audit::thread_page(index, &thread, from_seq, limit).unwrap().unwrap()
                    };

                    let mut forwards = Vec::new();
                    let mut next = Some(0);
                    while let Some(from_seq) = next {
                        let page = page(Some(from_seq));
                        assert_eq!(page.timeline.messages, whole.messages, "{journal}, {id}");
                        assert_eq!(page.timeline.status, whole.status, "{journal}, {id}");
                        assert_eq!(page.timeline.waits, whole.waits, "{journal}, {id}");
                        assert_eq!(page.timeline.opened_by, whole.opened_by, "{journal}, {id}");
                        forwards.extend(own_events(&page.timeline));
                        next = page.next_seq;
                        pages += 1;
                    }
                    assert_eq!(forwards, own_events(&whole), "{journal}, {id}, {limit} messages");

                    let mut backwards = Vec::new();
                    let mut page_at = page(None);
                    loop {
                        backwards.splice(0..0, own_events(&page_at.timeline));
                        let Some(previous) = page_at.previous_seq else { break };
                        let shown_from = page_at.from_seq;
                        page_at = page(Some(previous));
                        // The first page is as long as the others, so it may overlap the next one.
                        page_at.timeline.items.retain(|item| item.seq < shown_from);
                    }
                    assert_eq!(backwards, own_events(&whole), "{journal}, {id}, {limit} back");
                }
                Ok(())
            });
            compared.unwrap();
        }
    }
    assert!(pages > 300, "{pages}");
}

/// Returns the records of a thread that opens two subthreads. In each subthread, six calls wait for
/// an approval. In the second one, six further calls wait for an answer.
fn held_beneath() -> Vec<Record> {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let children = ["one", "two"].map(|label| tree.child(label));
    let (asked, first) = script.question(&tree, "Who?");
    let mut step = script.outcome(&tree, "researcher", asked);
    step.dispose(asked, Disposition::Handled);
    let mut held = Vec::new();
    for (child, holds) in
        children.iter().zip([&[Hold::Approval][..], &[Hold::Approval, Hold::Answer]])
    {
        step.open(child, "researcher").within(child);
        for hold in holds.iter().flat_map(|hold| [*hold; 6]) {
            let kind = MessageKind::Call;
            let call = step.say(kind, "researcher", "code-search", "search", "<search/>", None);
            held.push(Fact::Held { call: CallId(call), hold, until: None });
        }
    }
    let mut second = step.end();
    second.facts.extend(held);
    vec![first, second]
}

/// A page has at most ten boxes of calls that wait for a person, and counts all of these calls.
#[test]
fn every_page_counts_all_calls_that_wait_in_a_thread_and_beneath_it() {
    let place = Place::with(&mut held_beneath());
    let tree = thread(ROOT);
    let [one, two] = ["one", "two"].map(|label| tree.child(label));
    let approvals = HoldCount { calls: 6, hold: Some(Hold::Approval) };
    let both = HoldCount { calls: 12, hold: None };
    let all = HoldCount { calls: 18, hold: None };
    with_index(&place.data(), &mut |index: &mut index::IndexReader| {
        for (thread, expected) in [(&tree, all), (&one, approvals), (&two, both)] {
            let page = audit::thread_page(index, thread, None, 500)?.unwrap();
            assert_eq!(page.timeline.waits, expected, "{thread}");
            assert_eq!(index.branch(thread)?.unwrap().waits, expected, "{thread}");
        }
        let page = audit::thread_page(index, &tree, None, 500)?.unwrap();
        let beneath = page.timeline.items.iter().filter_map(|item| match &item.what {
            TimelineEvent::Subthread(child) => Some(child.waits),
            _ => None,
        });
        assert_eq!(beneath.collect::<Vec<_>>(), [approvals, both]);
        Ok(())
    })
    .unwrap();
}

/// A page states that it does not show all refusals.
#[test]
fn a_page_with_more_refusals_than_it_may_show_says_so() {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "Who?");
    let mut records = vec![first];
    for _ in 0..=limits::WEB_ROWS_MAX {
        let mut step = script.outcome(&tree, "researcher", asked);
        step.refuse("researcher", RefusalRule::NotInVocabulary, "it is unknown", "<no/>");
        records.push(step.end());
    }
    for (kept, is_cut) in [(records.len() - 1, false), (records.len(), true)] {
        let place = Place::with(&mut records[..kept].to_vec());
        let made = with_index(&place.data(), &mut |index: &mut index::IndexReader| {
            audit::thread_page(index, &tree, None, 10)
        });
        assert_eq!(made.unwrap().unwrap().is_cut, is_cut, "{kept} records");
    }
}

/// With an index, a long thread is read only up to the end of its first page. The output is the
/// same as without an index. The head of the output states the wait of the thread, even if the
/// waiting call is not on the page.
#[test]
fn the_first_page_of_a_long_thread_reads_no_later_record() {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "Who?");
    let mut records = vec![first];
    for n in 0..3_100 {
        let mut step = script.outcome(&tree, "researcher", asked);
        let body = format!("<note xmlns=\"{CORE}\">number {n}</note>");
        step.say(MessageKind::Note, "researcher", "researcher", "note", &body, Some(asked));
        records.push(step.end());
    }
    let mut step = script.outcome(&tree, "researcher", asked);
    let held = step.say(MessageKind::Call, "researcher", "b", "question", "<q/>", None);
    let mut last = step.end();
    last.facts.push(Fact::Held { call: CallId(held), hold: Hold::Approval, until: None });
    records.push(last);

    let place = Place::with(&mut records);
    let shown = || organism(&place, &["thread", ROOT]);
    let without = shown();
    // The held call is not on the page.
    let head = format!("{ROOT}  waits for an approval  ");
    assert!(text(&without.stdout).starts_with(&head), "{}", text(&without.stdout));
    let replies = organism(&place, &["thread", ROOT, "--only", "replies"]);
    assert!(text(&replies.stdout).starts_with(&head), "{}", text(&replies.stdout));
    let json = organism(&place, &["thread", ROOT, "--json", "--limit", "1"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["waiting"], 1);
    assert!(!place.data().join(index::INDEX_DATABASE).exists());

    assert_eq!(rows(&place.data(), "SELECT messages FROM thread"), ["3102"]);
    let with = shown();
    assert_eq!(text(&with.stdout), text(&without.stdout));
    assert!(text(&with.stdout).contains("2602 more events"), "{}", text(&with.stdout));

    let journal = rusqlite::Connection::open(place.data().join("journal.db")).unwrap();
    journal.execute("UPDATE step SET hash = zeroblob(32) WHERE position = 2000", []).unwrap();
    assert_eq!(text(&shown().stdout), text(&without.stdout));
    let all = organism(&place, &["thread", ROOT, "--all"]);
    assert!(!all.status.success(), "{}", text(&all.stdout));
}

/// If no request is on record, the command fails with the exit code for a thread that does not
/// exist, and names the command that starts a thread.
#[test]
fn a_journal_without_requests_has_no_newest_thread() {
    let place = Place::with(&mut [Script::default().boot(1)]);
    let newest = organism(&place, &["thread"]);
    let unknown = organism(&place, &["thread", ROOT]);
    assert_eq!(newest.status.code(), Some(2), "{newest:?}");
    assert_eq!(newest.status.code(), unknown.status.code());
    assert!(text(&newest.stderr).contains("`organism send` starts one"), "{newest:?}");
}
