//! Clients: keys, suggested ids, conversations, and threads of other clients.

use std::time::Duration;

use expect_test::expect;
use organism::contract::Contract;
use organism::pump::core::{Cancellation, Event, Receipt, Standstill, Target};
use organism::thread::Fact;

use super::world::{World, agent, client, core, fresh, listener, word};

const HOUR: Duration = Duration::from_secs(3600);

fn world() -> World {
    World::new(vec![
        client("desk", &["thinker", "finder"]),
        client("shop", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ])
}

fn fresh_root() -> Target {
    Target::New { suggested: None }
}

fn suggested(id: &str) -> Target {
    Target::New { suggested: Some(id.to_owned()) }
}

fn rule(receipt: &Receipt) -> String {
    match receipt {
        Receipt::Refused { refusal, .. } => refusal.rule.to_string(),
        Receipt::NoThread { .. } => "no thread".to_owned(),
        Receipt::Accepted { again, .. } => format!("accepted {again}"),
    }
}

/// Law 5: a client cannot send under the name of a listener, not even a payload that the listener
/// may send.
#[test]
fn a_submission_under_a_listeners_name_is_refused_like_one_of_a_stranger() {
    let mut world = world();
    let payload = word("look", "q");
    let mut receipts = ["thinker", "finder", "nobody"].map(|who| {
        let Receipt::Refused { refusal, .. } = world.submit_to(who, fresh_root(), None, &payload)
        else {
            panic!("{who} was let in")
        };
        serde_json::to_string(&refusal).unwrap()
    });
    receipts.sort();
    assert!(receipts[0].contains("not-in-vocabulary"), "{}", receipts[0]);
    assert_eq!(receipts[0], receipts[2], "the same bytes for all");
    assert!(world.deliveries.is_empty());
}

#[test]
fn an_endless_thread_id_or_reason_does_not_fill_the_record() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("look", "q"));
    let endless = format!("{thread}{}", "é".repeat(1 << 20));
    let targets = [Target::Thread { id: endless.clone() }, suggested(&endless)];
    for (target, ends) in targets.into_iter().zip(["no thread", "bad-label"]) {
        assert_eq!(rule(&world.submit_to("desk", target, None, &word("look", "q"))), ends);
    }
    let (ticket, reason) = (uuid::Uuid::nil(), endless);
    world.step(Event::Cancel(Cancellation { ticket, thread, reason, origin: None }));
    for record in &world.records {
        let text = serde_json::to_string(record).unwrap();
        assert!(text.len() < 16 << 10, "{} bytes", text.len());
        assert!(record.payloads().all(|payload| payload.len() < 16 << 10));
    }
}

#[test]
pub fn the_same_key_again_gets_the_recorded_answer_also_after_a_restart() {
    let mut world = world();
    let first = world.submit_to("desk", fresh_root(), Some("k"), &word("look", "q"));
    let Receipt::Accepted { thread, calls, again: false, .. } = first else { panic!("{first:?}") };
    for _ in 0..2 {
        let records = world.records.len();
        let second = world.submit_to("desk", fresh_root(), Some("k"), &word("look", "q"));
        let Receipt::Accepted { thread: same, calls: same_calls, again: true, .. } = second else {
            panic!("{second:?}")
        };
        assert_eq!((&same, &same_calls), (&thread, &calls));
        assert_eq!(world.records.len(), records, "nothing new is recorded");
        world.restart();
    }
    assert_eq!(world.deliveries.len(), 1, "handed over once in this run");
}

#[test]
fn a_key_used_for_another_payload_is_refused_on_record() {
    let mut world = world();
    world.submit_to("desk", fresh_root(), Some("k"), &word("look", "q"));
    let other = world.submit_to("desk", fresh_root(), Some("k"), &word("look", "other"));
    assert_eq!(rule(&other), "key-reused");
    world.restart();
    let other = world.submit_to("desk", fresh_root(), Some("k"), &word("look", "other"));
    assert_eq!(rule(&other), "key-reused");
    assert_eq!(world.refusals(), ["desk key-reused", "desk key-reused"]);
    let theirs = world.submit_to("shop", fresh_root(), Some("k"), &word("plan", "p"));
    assert_eq!(rule(&theirs), "accepted false", "a key is its client's own");
}

/// Law 4.9: a repeated key gets its recorded answer, even after a reload or a start with a config
/// in which `desk` may not send `look`.
#[test]
fn a_key_gets_its_recorded_answer_although_the_config_now_refuses_its_payload() {
    let mut world = world();
    let text = format!("{}\n", word("look", "q"));
    let first = world.submit_to("desk", fresh_root(), Some("k"), &text);
    let Receipt::Accepted { calls, again: false, .. } = first else { panic!("{first:?}") };
    let changes: [fn(&mut World, Vec<Contract>); 2] = [World::reload, World::restart_with];
    for change in changes {
        let narrow = vec![
            client("desk", &["thinker"]),
            agent("thinker", &["plan"], &["answer"], &["finder"]),
            listener("finder", &["look"], &["found"], &[]),
        ];
        change(&mut world, narrow);
        let records = world.records.len();
        let second = world.submit_to("desk", fresh_root(), Some("k"), &text);
        let Receipt::Accepted { calls: same, again: true, .. } = second else {
            panic!("{second:?}")
        };
        assert_eq!(same, calls);
        assert_eq!(world.records.len(), records, "nothing new is recorded");

        let other = world.submit_to("desk", fresh_root(), Some("k"), &word("look", "other"));
        assert_eq!(rule(&other), "not-in-vocabulary");
    }
    world.check_replay();
}

/// A world in which keys of `desk` are kept for an hour.
fn expiring() -> World {
    let mut desk = client("desk", &["finder"]);
    desk.keys_for = Some(HOUR);
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.timeout = 2 * HOUR;
    World::new(vec![desk, finder])
}

fn submit(world: &mut World, text: &str) -> String {
    rule(&world.submit_to("desk", fresh_root(), Some("k"), &word("look", text)))
}

fn expired_keys(world: &World) -> usize {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    facts.filter(|fact| matches!(fact, Fact::KeyExpired { .. })).count()
}

// 4.10
#[test]
fn a_key_that_is_kept_for_a_time_is_new_after_it_and_the_record_states_it() {
    let mut world = expiring();
    submit(&mut world, "q");
    world.play("finder", &[word("found", "f")]);
    world.pass(HOUR / 2);
    assert_eq!(submit(&mut world, "q"), "accepted true");
    assert_eq!(submit(&mut world, "other"), "key-reused");
    world.restart();
    // A step of the clock is no time in which the client could have sent it again.
    world.now = world.now.plus(HOUR);
    world.step(Event::Standstill(Standstill { stood: Duration::ZERO, stepped: HOUR }));
    assert_eq!(submit(&mut world, "q"), "accepted true");
    assert_eq!(expired_keys(&world), 0);

    world.pass(2 * HOUR);
    world.restart();
    assert_eq!(submit(&mut world, "other"), "accepted false");
    assert_eq!(expired_keys(&world), 1);
    assert_eq!(submit(&mut world, "other"), "accepted true", "it is kept for its time again");
    world.restart();
    assert_eq!(submit(&mut world, "other"), "accepted true");
    world.check_replay();
}

#[test]
fn a_key_does_not_expire_while_the_call_that_it_began_is_open() {
    let mut world = expiring();
    submit(&mut world, "q");
    let delivery = world.delivery("finder");
    world.pass(HOUR * 3 / 2);
    assert_eq!(submit(&mut world, "q"), "accepted true");
    world.answer(&delivery, &[word("found", "f")]);
    assert_eq!(submit(&mut world, "q"), "accepted false");
}

#[test]
fn a_key_does_not_expire_while_a_thread_that_it_began_runs() {
    let mut desk = client("desk", &["thinker"]);
    desk.keys_for = Some(HOUR);
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.timeout = 4 * HOUR;
    let thinker = agent("thinker", &["plan"], &["answer"], &["finder"]);
    let mut world = World::new(vec![desk, thinker, finder]);
    let send = |world: &mut World| {
        rule(&world.submit_to("desk", fresh_root(), Some("k"), &word("plan", "p")))
    };

    assert_eq!(send(&mut world), "accepted false");
    let first = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    world.play("thinker", &[core("spawn-thread", "", &first)]);
    let finder = world.delivery_for("finder");
    world.play("thinker", &[word("answer", "a")]);
    world.pass(2 * HOUR);
    assert_eq!(send(&mut world), "accepted true");
    world.answer(&finder, &[word("found", "f")]);
    assert_eq!(send(&mut world), "accepted false");
    world.check_replay();
}

#[test]
fn a_key_without_a_time_does_not_expire() {
    let mut world = world();
    submit(&mut world, "q");
    world.play("finder", &[word("found", "f")]);
    world.pass(1_000_000 * HOUR);
    assert_eq!(submit(&mut world, "q"), "accepted true");
}

#[test]
fn a_key_that_is_too_long_is_refused_and_not_kept() {
    let mut world = world();
    for (length, expected) in [(256, "accepted false"), (257, "too-large")] {
        let key = "k".repeat(length);
        let receipt = world.submit_to("desk", fresh_root(), Some(&key), &word("look", "q"));
        assert_eq!(rule(&receipt), expected);
    }
    assert!(!format!("{:?}", world.records.last().unwrap().input).contains("kkk"));
}

#[test]
fn a_suggested_root_is_taken_as_it_is_or_refused_visibly() {
    let long = format!("sess-{}", "x".repeat(60));
    let cases = [
        ("sess-abcdefgh", "accepted false"),
        ("sess-abcdefgh", "bad-label"),
        ("sess-organism", "bad-label"),
        ("sess-short", "bad-label"),
        ("sess-ABCDEFGH", "bad-label"),
        ("sess-abcdefgh.child", "bad-label"),
        ("abcdefgh", "bad-label"),
        ("", "bad-label"),
        (&long, "bad-label"),
    ];
    let mut world = world();
    for (id, expected) in cases {
        let receipt = world.submit_to("desk", suggested(id), None, &word("look", "q"));
        assert_eq!(rule(&receipt), expected, "{id}");
    }
    assert_eq!(world.refusals().len(), cases.len() - 1);
}

#[test]
fn a_completed_thread_continues_with_its_history() {
    let mut world = world();
    let (thread, first) = world.open("desk", &word("plan", "one"));
    world.play("thinker", &[word("answer", "1")]);
    let second = world.say("desk", &thread, &word("plan", "two"));
    let woken = world.play("thinker", &[word("answer", "2")]);
    assert_eq!((woken.call, fresh(&woken)), (second, vec!["plan(two)".to_owned()]));
    assert_eq!(world.result(first), "completed: answer(1)");
    assert_eq!(world.result(second), "completed: answer(2)");
    expect![[r#"
        1 call desk>thinker plan(one) [handled]
        2 reply thinker>desk answer(1) [recorded]
        3 call desk>thinker plan(two) [handled]
        4 reply thinker>desk answer(2) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// A conversation may continue after days, because the time of a thread counts only while the
/// thread has work.
#[test]
fn an_idle_thread_does_not_use_up_its_time() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "one"));
    world.play("thinker", &[word("answer", "1")]);
    world.pass(std::time::Duration::from_secs(3 * 24 * 3600));
    let second = world.say("desk", &thread, &word("plan", "two"));
    world.play("thinker", &[word("answer", "2")]);
    assert_eq!(world.result(second), "completed: answer(2)");
}

#[test]
fn another_clients_thread_reads_like_an_unknown_one() {
    let mut world = world();
    let (foreign, _) = world.open("shop", &word("plan", "secret"));
    let ids = [foreign.as_str(), "sess-nothere1", "sess-organism", "", "nonsense"];
    for (count, id) in ids.iter().enumerate() {
        let target = Target::Thread { id: (*id).to_owned() };
        let receipt = world.submit_to("desk", target, None, &word("look", "q"));
        let Receipt::NoThread { answer } = receipt else { panic!("{id}: {receipt:?}") };
        let expected = format!(
            "<system-thread-error xmlns=\"https://xml-pipeline.org/ns/core/v1\" unknown_id=\"{id}\" \
             code=\"unknown_thread\" \
             message=\"Unknown thread; emit &lt;spawn-thread/&gt; to create.\"/>"
        );
        assert_eq!(answer, expected);
        assert_eq!(world.refusals().len(), count + 1);
    }
    assert_eq!(world.records.last().unwrap().tree.as_str(), "sess-organism");
    assert!(!world.transcript(&foreign).contains("refused"), "foreign records stay clean");
}

#[test]
fn refusals_of_the_gate_are_recorded_under_their_client() {
    let mut world = world();
    let texts = ["<look", "", &word("plan", "p").replace("plan", "vote"), &word("found", "x")];
    for text in texts {
        world.submit_to("shop", fresh_root(), None, text);
    }
    let expected = ["not-well-formed", "not-one-root", "not-in-vocabulary", "not-in-vocabulary"];
    assert_eq!(world.refusals(), expected.map(|rule| format!("shop {rule}")));
    assert!(world.records.iter().all(|record| record.tree.as_str() == "sess-organism"));
}
