//! `organism threads`: filters by properties of trees, and pages.

use std::collections::BTreeSet;

use organism::audit::{self, ThreadPhase};
use organism::contract::Gather;
use organism::envelope::{Disposition, MessageKind};
use organism::ids::{CallId, PayloadName};
use organism::journal::Journal as _;
use organism::thread::{Closing, Fact, PauseTarget, Record};

use super::rows::{held_call, priced_turn};
use super::{organism, text};
use crate::journal::Place;
use crate::journal::script::{CORE, NAMESPACE, Script, name, research, thread};

/// A journal with five trees. One is finished, one runs, one waits for a person, one has failed
/// after such a wait, and one has a turn with a price.
fn several() -> Place {
    let mut script = Script::default();
    let mut records = vec![script.boot(1)];
    records.extend(research(&mut script, "sess-finished"));
    records.extend(research(&mut script, "sess-underway").into_iter().take(4));
    records.extend(held_call(&mut script, "sess-heldfail").0);
    let mut waiting = held_call(&mut script, "sess-waiting0").0;
    waiting.truncate(2);
    records.extend(waiting);
    records.extend(priced_turn(&mut script, "sess-priced00"));
    let mut records: Vec<Record> = records;
    Place::with(&mut records)
}

fn listed(place: &Place, args: &[&str]) -> String {
    let output = organism(place, &[&["threads", "--json"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let name = |line: &str| {
        let tree: serde_json::Value = serde_json::from_str(line).unwrap();
        tree["thread"].as_str().unwrap().trim_start_matches("sess-").to_owned()
    };
    lines.lines().map(name).collect::<Vec<_>>().join(" ")
}

/// Issue 17, 4.1: each filter keeps exactly the trees with the property of the filter.
#[test]
fn filters_leave_the_trees_with_the_property() {
    let place = several();
    for (args, expected) in [
        (&[][..], "finished underway heldfail waiting0 priced00"),
        (&["--all"], "organism finished underway heldfail waiting0 priced00"),
        (&["--status", "completed"], "finished"),
        (&["--status", "failed"], "heldfail"),
        (&["--needs-you"], "waiting0"),
        (&["--errors"], "heldfail"),
        (&["--listener", "code-search"], "finished underway"),
        (&["--agent", "researcher"], "priced00"),
        (&["--payload", "results"], "finished underway"),
        (&["--payload", "model-turn"], "priced00"),
        (&["--cost-over", "0.004"], "priced00"),
        (&["--cost-over", "0.0042"], ""),
        (&["verify"], "finished"),
        (&["inv-777", "--status", "running"], "waiting0"),
        (&["--until", "2026-11-20T10:00:00.5Z"], "finished"),
        (&["--since", "2026-11-21"], ""),
    ] {
        assert_eq!(listed(&place, args), expected, "{args:?}");
    }
    let wrong = organism(&place, &["threads", "--status", "asleep"]);
    assert_eq!(wrong.status.code(), Some(2));
    let wordless = organism(&place, &["threads", "€"]);
    assert_eq!(wordless.status.code(), Some(2));
    let why = text(&wordless.stderr);
    assert!(why.contains("`€` contains no word"), "{why}");
}

/// Issue 17, 4.1: the pages that the cursors lead to contain every tree exactly once.
#[test]
fn pages_by_cursor_hold_every_tree_once() {
    let place = several();
    let mut pages = Vec::new();
    let mut cursor = u64::MAX >> 1;
    loop {
        let before = cursor.to_string();
        let page = organism(&place, &["threads", "--json", "--limit", "2", "--before", &before]);
        let page = text(&page.stdout);
        let Some(first) = page.lines().next() else { break };
        let first: serde_json::Value = serde_json::from_str(first).unwrap();
        cursor = first["cursor"].as_u64().unwrap();
        pages.push(page.lines().count());
    }
    assert_eq!(pages, [2, 2, 1]);

    let short = organism(&place, &["threads", "--limit", "2"]);
    let advice = text(&short.stderr);
    assert!(advice.contains("--before "), "{advice}");
}

/// A journal of two partitions, in which trees begin alternately. The trees of partition 0 have
/// many records, so a position of partition 0 says nothing about partition 1.
fn two_partitions() -> Place {
    let mut script = Script::default();
    let mut partitions = [vec![script.boot(1)], vec![script.boot(1)]];
    for number in 0..3 {
        partitions[0].extend(research(&mut script, &format!("sess-zero000{number}")));
        partitions[1].push(script.question(&thread(&format!("sess-one0000{number}")), "When?").1);
    }

    let all = Place::new();
    for (partition, mut records) in partitions.into_iter().enumerate() {
        let journal = Place::with(&mut records);
        let directory = all.data().join(format!("p{partition}"));
        std::fs::create_dir_all(&directory).unwrap();
        for file in std::fs::read_dir(journal.data()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), directory.join(file.file_name())).unwrap();
        }
    }
    all
}

/// If the partition does not exist, the command states this, and lists the existing partitions. It
/// does not only state that it found no config.
#[test]
fn a_config_of_an_absent_partition_is_refused_with_the_partitions() {
    let place = two_partitions();
    let config = ["config", "--at", "1", "--partition", "9"];
    let diff = ["config", "diff", "1", "last", "--partition", "9"];
    for args in [&config[..], &diff] {
        let output = organism(&place, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = text(&output.stderr);
        let expected = "there is no partition 9 here; the partitions are 0, 1";
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

/// With several partitions, the cursor of each page leads to all older trees, and to no other.
#[test]
fn pages_of_several_partitions_hold_every_tree_once() {
    let place = two_partitions();
    let all = listed(&place, &["--limit", "100"]);
    assert_eq!(all, "zero0000 one00000 zero0001 one00001 zero0002 one00002");

    for limit in 1..=5 {
        let limit = limit.to_string();
        let mut pages = vec![listed(&place, &["--limit", &limit])];
        let mut cursor = cursor_of(&place, &["--limit", &limit]);
        while let Some(before) = cursor {
            pages.insert(0, listed(&place, &["--limit", &limit, "--before", &before]));
            cursor = cursor_of(&place, &["--limit", &limit, "--before", &before]);
        }
        assert_eq!(pages.join(" ").trim(), all, "pages of {limit}");
    }

    let advice = text(&organism(&place, &["threads", "--limit", "1"]).stderr);
    let cursor = cursor_of(&place, &["--limit", "1"]).unwrap();
    assert!(advice.contains(&format!("--before {cursor}")), "{advice}");
    for wrong in ["3950", "0:12,2:7", "0:", "-1"] {
        let before = format!("--before={wrong}");
        let refused = organism(&place, &["threads", &before]);
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
        let why = text(&refused.stderr);
        assert!(why.contains("0:1200,1:800") || why.contains("no partition 2 here"), "{why}");
    }
}

/// The cursor of a page's first line; `None` if the page is empty.
fn cursor_of(place: &Place, args: &[&str]) -> Option<String> {
    let output = organism(place, &[&["threads", "--json"], args].concat());
    let lines = text(&output.stdout);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next()?).unwrap();
    Some(first["cursor"].as_str().unwrap().to_owned())
}

/// Issue 17, 4.1: cost, tokens, refusals and first words are columns.
#[test]
fn a_wide_list_shows_cost_tokens_refusals_and_first_words() {
    let place = several();
    let output = organism(&place, &["threads", "--wide", "--agent", "researcher"]);
    let shown = text(&output.stdout);
    let row = shown.lines().nth(1).unwrap_or_default();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[cells.len() - 4..], ["0", "127", "0.0042 EUR", "Who?"], "{shown}");
}

/// If the last attempt of a call failed, the tree states the failure of this attempt, which says
/// more than the fault of the call.
#[test]
fn a_tree_whose_last_attempt_failed_states_the_failure_of_the_attempt() {
    let mut script = Script::default();
    let mut records = vec![script.boot(1)];
    let (mut crashed, asked) = held_call(&mut script, "sess-crashed0");
    crashed.truncate(5);
    let call = CallId(asked);
    let closed = Fact::CallClosed { call, how: Closing::Failed };
    let disposed = Fact::Disposed { message: asked, how: Disposition::Failed };
    crashed[4].facts.extend([closed, disposed]);
    records.extend(crashed);
    let place = Place::with(&mut records);

    let output = organism(&place, &["threads", "--json"]);
    let tree: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tree["status"], "failed");
    assert_eq!(tree["fault"], "crashed: signal 9");
}

/// Returns the records of a client's request to two peers, `researcher` and `reviewer`, whose calls
/// end in the order of `ends`. A completed call has a reply.
fn grouped(
    script: &mut Script,
    root: &str,
    gather: Gather,
    ends: [(&str, Closing); 2],
) -> [Record; 3] {
    let tree = thread(root);
    let (first, mut opened) = script.question(&tree, "Who?");
    let mut step = script.outcome(&tree, "researcher", first);
    let second = step.say(MessageKind::Call, "operator", "reviewer", "question", "<q/>", None);
    let opens = |fact: &Fact| matches!(fact, Fact::Accepted { .. });
    opened.facts.extend(step.end().facts.into_iter().filter(opens));
    for fact in &mut opened.facts {
        if let Fact::Accepted { opening: Some(opening), .. } = fact {
            opening.group = Some((CallId(first), gather));
        }
    }

    let ended = ends.map(|(peer, how)| {
        let call = if peer == "researcher" { first } else { second };
        let mut step = script.outcome(&tree, peer, call);
        if how == Closing::Completed {
            step.say(MessageKind::Reply, peer, "operator", "answer", "<a/>", Some(call));
        }
        step.close(call, how);
        let mut record = step.end();
        for fact in &mut record.facts {
            if let Fact::Accepted { message, .. } = fact {
                std::sync::Arc::make_mut(message).call = None;
            }
        }
        record
    });
    let [before, after] = ended;
    [opened, before, after]
}

/// The status of a tree does not depend on the peer whose call ends last.
#[test]
fn a_request_to_several_peers_has_failed_whichever_of_them_failed() {
    let mut script = Script::default();
    let done = ("researcher", Closing::Completed);
    let failed = ("reviewer", Closing::Failed);
    let cases = [
        ("sess-failedend", Gather::All, [done, failed], ThreadPhase::Failed),
        ("sess-failedone", Gather::All, [failed, done], ThreadPhase::Failed),
        ("sess-firstdone", Gather::First, [failed, done], ThreadPhase::Completed),
    ];
    let place = Place::with(&mut [script.boot(1)]);
    for (root, gather, ends, _) in cases {
        let [opened, before, after] = grouped(&mut script, root, gather, ends);
        // The index reads the last end of the request in a process of its own.
        for mut batch in [vec![opened, before], vec![after]] {
            let mut journal = place.open().unwrap();
            journal.append(&mut batch).unwrap();
            journal.close(batch[0].time).unwrap();
            assert!(listed(&place, &[]).contains(&root["sess-".len()..]));
        }
    }

    let failed = listed(&place, &["--status", "failed"]);
    let failed: BTreeSet<&str> = failed.split(' ').collect();
    assert_eq!(failed, BTreeSet::from(["failedend", "failedone"]));
    assert_eq!(listed(&place, &["--status", "completed"]), "firstdone");
    let reader = place.reader();
    for (root, gather, _, phase) in cases {
        let timeline = audit::thread_timeline(&reader, &thread(root), None).unwrap().unwrap();
        assert_eq!(timeline.status, phase, "{root}");
        let requests = if gather == Gather::First { 2 } else { 0 };
        assert_eq!(timeline.first_requests.len(), requests, "{root}");
    }
}

/// Namespace of the payloads of a workflow with the name `researcher`.
const RUNS: &str = "https://xml-pipeline.org/ns/workflow/v1/researcher";

/// Makes the reply in `record` the reply with which the workflow `researcher` reports a failed run.
fn report_failed_run(mut record: Record) -> Record {
    for fact in &mut record.facts {
        if let Fact::Accepted { message, .. } = fact
            && message.kind == MessageKind::Reply
        {
            let reply = std::sync::Arc::make_mut(message);
            reply.call = None;
            reply.name = PayloadName::new(RUNS, "researcher-failed");
        }
    }
    record
}

/// A thread has failed if the run of a workflow in it has failed, although the call of the run has
/// completed with a reply. A failed run in a subthread is a result for the thread above it.
#[test]
fn a_thread_with_a_failed_run_has_failed() {
    let mut script = Script::default();
    let report = format!(
        "<researcher-failed xmlns=\"{RUNS}\"><goal>pay</goal><code>card-declined</code>\
         <reason>no money</reason></researcher-failed>"
    );
    let mut records = vec![script.boot(1)];

    let failed = thread("sess-failedrun");
    let (asked, first) = script.question(&failed, "Book a trip");
    records.push(first);
    let mut step = script.outcome(&failed, "researcher", asked);
    step.say(MessageKind::Reply, "researcher", "operator", "r", &report, Some(asked));
    step.close(asked, Closing::Completed);
    records.push(report_failed_run(step.end()));

    let above = thread("sess-abovefail");
    let (asked, first) = script.question(&above, "Book a trip");
    records.push(first);
    let child = above.child("trip");
    let mut step = script.outcome(&above, "researcher", asked);
    step.open(&child, "researcher").within(&child);
    let inner = step.say(MessageKind::Call, "researcher", "researcher", "q", "<q/>", None);
    records.push(step.end());
    let mut step = script.outcome(&child, "researcher", inner);
    step.say(MessageKind::Reply, "researcher", "researcher", "r", &report, Some(inner));
    step.close(inner, Closing::Completed);
    records.push(report_failed_run(step.end()));
    let mut step = script.outcome(&above, "researcher", asked);
    step.say(MessageKind::Reply, "researcher", "operator", "answer", "<a/>", Some(asked));
    step.close(asked, Closing::Completed);
    records.push(step.end());

    let place = Place::with(&mut records);
    assert_eq!(listed(&place, &["--status", "failed"]), "failedrun");
    assert_eq!(listed(&place, &["--errors"]), "failedrun");
    assert_eq!(listed(&place, &["--status", "completed"]), "abovefail");

    let output = organism(&place, &["threads", "--json", "--status", "failed"]);
    let tree: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tree["fault"], "card-declined: pay: no money");
    let sql = "SELECT outcome || ' ' || coalesce(fault, '-') AS ended FROM call ORDER BY opened_us";
    let output = organism(&place, &["sql", "--csv", sql]);
    let ends = ["ended", "completed card-declined", "completed -", "completed -"];
    assert_eq!(text(&output.stdout).lines().collect::<Vec<_>>(), ends);

    let reader = place.reader();
    for (thread, phase) in [(failed, ThreadPhase::Failed), (above, ThreadPhase::Completed)] {
        let timeline = audit::thread_timeline(&reader, &thread, None).unwrap().unwrap();
        assert_eq!(timeline.status, phase, "{thread}");
    }
}

/// A bound thread that ends before a call was opened in it is not shown as if it waited for work.
#[test]
fn a_thread_that_was_cancelled_without_a_call_is_shown_as_cancelled() {
    let mut script = Script::default();
    let above = thread("sess-boundidle");
    let child = above.child("trip");
    let (asked, first) = script.question(&above, "Book a trip");
    let mut step = script.outcome(&above, "researcher", asked);
    step.open(&child, "researcher");
    step.say(MessageKind::Reply, "researcher", "operator", "answer", "<a/>", Some(asked));
    step.close(asked, Closing::Completed);
    step.within(&child);
    let note = format!("<thread-cancelled xmlns=\"{CORE}\"/>");
    step.say(MessageKind::System, "core", "core", "thread-cancelled", &note, None);
    let place = Place::with(&mut [first, step.end()]);

    let sql = "SELECT status FROM thread WHERE id = 'sess-boundidle.trip'";
    let output = organism(&place, &["sql", "--csv", sql]);
    assert_eq!(text(&output.stdout), "status\r\ncancelled\r\n");
    let timeline = audit::thread_timeline(&place.reader(), &child, None).unwrap().unwrap();
    assert_eq!(timeline.status, ThreadPhase::Cancelled);
}

/// A long reason of a failed run is whole in the view of errors. In a list of trees, it is cut, and
/// the end of the text states the cut.
#[test]
fn a_long_reason_of_a_failure_is_whole_or_ends_with_a_mark() {
    let mut script = Script::default();
    let tree = thread("sess-longfail");
    let (asked, first) = script.question(&tree, "Book a trip");
    let reason = "no turn is recorded for this agent; record the run again. ".repeat(5);
    let reason = reason.trim();
    let report = format!(
        "<researcher-failed xmlns=\"{RUNS}\"><goal>pay</goal><code>model</code>\
         <reason>{reason}</reason></researcher-failed>"
    );
    let mut step = script.outcome(&tree, "researcher", asked);
    step.say(MessageKind::Reply, "researcher", "operator", "r", &report, Some(asked));
    step.close(asked, Closing::Completed);
    let place = Place::with(&mut [first, report_failed_run(step.end())]);

    let output = organism(&place, &["sql", "--csv", "SELECT detail FROM error"]);
    assert_eq!(text(&output.stdout), format!("detail\r\npay: {reason}\r\n"));
    let output = organism(&place, &["threads", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let fault = listed["fault"].as_str().unwrap();
    assert!(fault.starts_with("model: pay: no turn is recorded"), "{fault}");
    assert!(fault.ends_with('…'), "{fault}");
}

/// A failed tree states its fault in the list of trees, so that a reader need not open each tree.
#[test]
fn a_failed_tree_states_why() {
    let place = several();
    let output = organism(&place, &["threads", "--json"]);
    let lines = text(&output.stdout);
    let trees: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for tree in &trees {
        let fault = tree["fault"].as_str();
        assert_eq!(fault.is_some(), tree["status"] == "failed", "{tree}");
        assert!(fault.is_none_or(|fault| fault.starts_with("failed: ")), "{tree}");
    }
    assert!(trees.iter().any(|tree| tree["status"] == "failed"), "{lines}");
}

/// A tree is listed with the pause of a subthread as long as a call is open in the subthread or
/// beneath it. Such a pause keeps back a part of the tree's open work.
#[test]
fn a_paused_subthread_counts_while_it_has_an_open_call() {
    let tree = thread("sess-paused00");
    let child = tree.child("part");
    let deeper = child.child("deep");
    let mut script = Script::default();
    let mut records = vec![script.boot(1)];
    let (asked, first) = script.question(&tree, "What is open?");
    records.push(first);
    let mut step = script.outcome(&tree, "researcher", asked);
    step.open(&child, "researcher").within(&child).open(&deeper, "researcher").within(&deeper);
    let query = format!("<search xmlns=\"{NAMESPACE}\"/>");
    let called = step.say(MessageKind::Call, "researcher", "code-search", "search", &query, None);
    let mut opening = step.end();
    let target = PauseTarget::Thread(child);
    opening.facts.push(Fact::Paused { target, by: name("ana"), note: String::new() });
    records.push(opening);

    let pause_of = |records: &mut Vec<Record>| {
        let listed = organism(&Place::with(records), &["threads", "--json"]);
        let tree: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(tree["status"], "running", "{tree}");
        tree["pause"].clone()
    };
    assert_eq!(pause_of(&mut records.clone()), "part");
    let mut step = script.outcome(&deeper, "code-search", called);
    step.dispose(called, Disposition::Handled).close(called, Closing::Completed);
    records.push(step.end());
    assert_eq!(pause_of(&mut records), serde_json::Value::Null);
}

/// Issue 17, 4.1: a filter that most trees match is searched from the newest tree on, and finds the
/// same trees as any other filter. A tree whose records are far apart is found by every time range
/// between its first and its last record.
#[test]
fn a_property_of_most_trees_leaves_the_newest_of_them() {
    const TREES: usize = 5_100;
    let mut script = Script::default();
    let mut records = Vec::new();
    let long = thread("sess-longtree");
    let (asked_long, first) = script.question(&long, "frequent");
    records.push(first);
    let mut opened = Vec::new();
    for number in 0..TREES {
        let tree = thread(&format!("sess-{number:08}"));
        let (asked, first) = script.question(&tree, "frequent");
        let mut step = script.outcome(&tree, "researcher", asked);
        let rare = if number == 7 { " once" } else { "" };
        let answer = format!("<answer xmlns=\"{NAMESPACE}\">frequent{rare}</answer>");
        let kind = MessageKind::Reply;
        step.say(kind, "researcher", "operator", "answer", &answer, Some(asked));
        opened.push(first.time.to_string());
        records.extend([first, step.end()]);

        if number == TREES - 10 {
            let mut step = script.outcome(&long, "researcher", asked_long);
            step.say(kind, "researcher", "operator", "answer", &answer, Some(asked_long));
            records.push(step.end());
        }
    }
    let place = Place::new();
    let mut journal = place.open().unwrap();
    for group in records.chunks_mut(1_000) {
        journal.append(group).unwrap();
    }
    drop(journal);

    let newest = "00005098 00005099";
    for (args, expected) in [
        (&["--payload", "question"][..], newest),
        (&["--payload", "{https://example.org/ns/desk/v1}answer"], newest),
        (&["--listener", "researcher"], newest),
        (&["--listener", "operator"], ""),
        (&["--listener", "answer"], ""),
        (&["--payload", "question", "--status", "completed"], ""),
        (&["frequent"], newest),
        (&["frequent", "--payload", "answer"], newest),
        (&["once"], "00000007"),
        (&["once", "--listener", "researcher"], "00000007"),
        (&["once", "--listener", "operator"], ""),
        (&["--until", &opened[3_000]], "00002999 longtree"),
        (&["--until", &opened[0]], "longtree"),
        (&["--until", &opened[3_000], "--payload", "question"], "00002999 longtree"),
        (&["--until", &opened[3_000], "--status", "running"], "00002999 longtree"),
        (&["--until", &opened[3_000], "--status", "failed"], ""),
        (&["--since", &opened[2_999], "--until", &opened[3_000]], "00002999 longtree"),
        (&["--since", &opened[5_099]], "00005099"),
        (&["--until", &opened[5_099]], "00005097 00005098"),
        (&["--until", &opened[3_000], "--errors"], ""),
        (&["--until", &opened[3_000], "--needs-you"], ""),
        (&["--needs-you", "--status", "completed"], ""),
        (&["--errors", "--status", "completed"], ""),
        (&["--cost-over", "0", "--status", "completed"], ""),
    ] {
        let args = [args, &["--limit", "2"]].concat();
        assert_eq!(listed(&place, &args), expected, "{args:?}");
    }
}
