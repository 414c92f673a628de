//! The metrics agree with the record, and contain no text from outside.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use organism::thread::Fact;

use super::page::Page;
use super::{ask, house, house_of};
use crate::organism::{House, numbered, order_config, say, talk_reply, until};

fn page(at: SocketAddr) -> Page {
    let answer = ask(at, "/metrics");
    assert_eq!(answer.status, 200);
    let head = answer.head.to_lowercase();
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    Page::read(&answer.body)
}

/// Number of recorded facts for which `is` returns true.
fn facts(house: &House, is: impl Fn(&Fact) -> bool) -> f64 {
    let reader = house.reader();
    let records = reader.records(organism::ids::Position(1), reader.last().unwrap()).unwrap();
    let all = records.iter().flat_map(|sealed| &sealed.record.facts);
    all.filter(|fact| is(fact)).count() as f64
}

#[test]
fn every_number_is_that_of_the_record() {
    let (house, running, at) = house_of(&order_config(1));
    for n in 0..3 {
        assert_eq!(house.send_text(&say(&n.to_string()), &[]).out, talk_reply(&n.to_string()));
    }
    let order = house.send_text(&numbered("order", "7"), &[]);
    assert_eq!(order.code, Some(0), "{order:?}");
    assert_eq!(house.send_text("<say", &[]).code, Some(65));
    assert_eq!(house.send_text(&numbered("nobody-knows", "1"), &[]).code, Some(65));
    let page = page(at);
    let last = house.reader().last().unwrap();
    assert_eq!(page.get("organism_journal_position", &[]), last.0 as f64);
    assert_eq!(page.get("organism_records_total", &[]), last.0 as f64);
    assert_eq!(page.get("organism_epoch", &[]), 1.0);
    let accepted = facts(&house, |fact| matches!(fact, Fact::Accepted { .. }));
    assert_eq!(page.sum("organism_messages_total"), accepted);
    let settled = facts(&house, |fact| matches!(fact, Fact::Disposed { .. }));
    assert_eq!(page.sum("organism_dispositions_total"), settled);
    assert_eq!(page.get("organism_messages_in_flight", &[]), accepted - settled);
    let opened = |fact: &Fact| matches!(fact, Fact::Accepted { opening: Some(_), .. });
    assert_eq!(page.get("organism_calls_opened_total", &[]), facts(&house, opened));
    let closed = facts(&house, |fact| matches!(fact, Fact::CallClosed { .. }));
    assert_eq!(page.get("organism_calls_closed_total", &[("how", "completed")]), closed);
    assert_eq!(page.get("organism_calls_open", &[]), 0.0);
    assert_eq!(page.get("organism_refusals_total", &[("rule", "not-well-formed")]), 1.0);
    assert_eq!(page.get("organism_refusals_total", &[("rule", "not-in-vocabulary")]), 1.0);
    let echoed = [("listener", "echo"), ("outcome", "answered")];
    assert_eq!(page.get("organism_deliveries_total", &echoed), 3.0);
    assert_eq!(page.get("organism_delivery_seconds_count", &[("listener", "echo")]), 3.0);
    // Handed over with the request, and again with the answer.
    let fronted = [("listener", "front"), ("outcome", "answered")];
    assert_eq!(page.get("organism_deliveries_total", &fronted), 2.0);
    assert_eq!(page.sum("organism_deliveries_under_way"), 0.0);
    assert_eq!(page.sum("organism_backlog"), 0.0);
    let commits = page.get("organism_commit_seconds_count", &[]);
    assert!((1.0..=last.0 as f64).contains(&commits), "{commits}");
    assert_eq!(page.get("organism_commit_records_sum", &[]), last.0 as f64);
    assert_eq!(page.get("organism_pump_running", &[]), 1.0);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn waits_failures_and_restarts_are_counted_by_listener() {
    let (house, running, at) = house();
    for n in ["1", "2", "3"] {
        let sent = house.send_text(&numbered("hold", n), &["--no-wait"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let holder = [("listener", "holder")];
    until("one is handed over, and two wait", || {
        let page = page(at);
        let waiting = page.get("organism_backlog", &holder);
        let under_way = page.get("organism_deliveries_under_way", &holder);
        (waiting + under_way == 3.0 && under_way > 0.0).then_some(())
    });
    // A message is handed over while its process is still being started.
    until("the process of the holder runs and is killed", || {
        let killed = std::process::Command::new("pkill")
            .args(["-KILL", "-P", &running.child.id().to_string(), "-f", "player.pl holder"])
            .status();
        killed.unwrap().success().then_some(())
    });
    let page = until("it is started again", || {
        let page = page(at);
        (page.get("organism_restarts_total", &holder) >= 1.0).then_some(page)
    });
    let crashed = [("listener", "holder"), ("kind", "crashed")];
    assert!(page.get("organism_attempt_failures_total", &crashed) >= 1.0);
    let failed = [("listener", "holder"), ("outcome", "failed")];
    assert!(page.get("organism_deliveries_total", &failed) >= 1.0);
    house.write("let-go", "");
    until("all are answered", || (page_sum(at, "organism_calls_open") == 0.0).then_some(()));
    assert_eq!(page_sum(at, "organism_backlog"), 0.0);
    assert_eq!(running.stop(), Some(0));
}

fn page_sum(at: SocketAddr, name: &str) -> f64 {
    page(at).sum(name)
}

#[test]
fn no_label_contains_foreign_text_and_their_number_is_fixed() {
    let (house, running, at) = house();
    let before = page(at);
    let marks = ["smuggled", "sess-smuggled1"];
    for n in 0..5 {
        house.send_text(&numbered(&format!("smuggled-{n}"), "1"), &["--key", "smuggled"]);
        house.send_text(&say("smuggled"), &["--new", &format!("sess-smuggled{n}")]);
    }
    let after = page(at);
    assert_eq!(after.len(), before.len());
    let known: BTreeSet<_> = [
        "code", "event", "for", "how", "kind", "le", "listener", "organism", "outcome", "rule",
        "version",
    ]
    .into();
    assert_eq!(after.labels(), known);
    let listeners: BTreeSet<_> = ["echo", "holder", "solo"].into();
    assert_eq!(after.values("listener"), listeners);
    let text = ask(at, "/metrics").body;
    assert!(marks.iter().all(|mark| !text.contains(mark)), "{text}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn the_docs_have_a_row_for_every_number() {
    let (_house, running, at) = house();
    let page = page(at);
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/OPERATIONS.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    // This metric exists only with several pumps.
    assert!(docs.contains("| `organism_partition_pumped` | gauge | `partition` |"));
    let missing: Vec<_> = page
        .names()
        .filter(|(name, kind)| !docs.contains(&format!("| `{name}` | {kind} |")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(running.stop(), Some(0));
}
