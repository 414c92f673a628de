//! Core payloads as a capability: a listener that is not an agent may spawn and wait if the config
//! permits it, and an agent without the permission may not.

use expect_test::expect;
use organism::contract::{Contract, TreeLimits};
use organism::thread::{Fact, WarningStatus};

use super::world::{World, agent, client, core, fresh, listener, word};

const SPAWNER: [&str; 5] = ["spawn-thread", "send-to-thread", "wait", "set-timer", "cancel-timer"];

/// A listener that may use these core payloads.
fn spawner(words: &[&str]) -> Contract {
    let mut spawner = listener("spawner", &["plan"], &["answer"], &["finder", "asked"]);
    spawner.core = Some(words.iter().map(|word| (*word).to_owned()).collect());
    spawner
}

fn world_with(words: &[&str]) -> World {
    World::new(vec![
        client("desk", &["spawner"]),
        spawner(words),
        agent("asked", &["ask"], &["report"], &[]),
        listener("finder", &["look"], &["found"], &[]),
    ])
}

fn world() -> World {
    world_with(&SPAWNER)
}

fn spawn(label: &str, inner: &str) -> String {
    let inner = format!("<initial-payload>{inner}</initial-payload>");
    core("spawn-thread", &format!("suggested_sub_id=\"{label}\""), &inner)
}

#[test]
fn a_plain_listener_fans_out_and_is_woken_once_with_every_result() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let spawns = ["a", "b", "c"].map(|label| spawn(label, &word("look", label)));
    let mut outcome = spawns.to_vec();
    outcome.push(core("wait", "for=\"all\"", ""));
    world.play("spawner", &outcome);

    for label in ["a", "b", "c"] {
        assert!(world.handed().iter().all(|listener| listener == "finder"));
        let finder = world.play("finder", &[word("found", label)]);
        assert_eq!(finder.thread, thread.child(label));
    }
    let woken = world.play("spawner", &[word("answer", "all")]);
    expect![[r#"["thread-spawned sess-htzzwjll.a", "thread-spawned sess-htzzwjll.b", "thread-spawned sess-htzzwjll.c", "waiting all", "thread-result completed", "thread-result completed", "thread-result completed"]"#]]
    .assert_eq(&format!("{:?}", fresh(&woken)));
    assert_eq!(world.result(call), "completed: answer(all)");
    assert!(world.handed().is_empty());
}

#[test]
fn a_plain_listener_without_a_core_word_may_not_write_it() {
    for words in [&[][..], &["wait", "set-timer"], &["spawn-threads"]] {
        let mut world = world_with(words);
        let (thread, call) = world.open("desk", &word("plan", "p"));
        world.play("spawner", &[spawn("a", &word("look", "a"))]);
        assert_eq!(world.result(call), "failed: system-error listener-failed");
        assert_eq!(world.refusals(), ["spawner not-in-vocabulary"]);
        assert!(world.core.state().thread(&thread.child("a")).is_none());
    }
}

#[test]
fn a_listener_that_the_config_names_no_core_words_for_has_none() {
    let mut plain = spawner(&[]);
    plain.core = None;
    assert_eq!(plain.core_words().count(), 0);
    let mut agent = agent("thinker", &["plan"], &["answer"], &[]);
    assert_eq!(agent.core_words().next(), Some("spawn-thread"));
    agent.core = Some(Vec::new());
    assert_eq!(agent.core_words().count(), 0);
}

/// A listener that is not an agent may not use `clear-context`, because it has no prompt and thus
/// no window.
#[test]
fn a_plain_listener_may_not_clear_a_context() {
    let words = spawner(&["clear-context", "wait"]);
    assert_eq!(words.core_words().collect::<Vec<_>>(), ["wait"]);
}

#[test]
fn an_agent_whose_core_words_are_switched_off_may_not_spawn_and_gets_the_uniform_refusal() {
    let mut thinker = agent("thinker", &["plan"], &["answer"], &["finder"]);
    thinker.core = Some(vec!["set-timer".to_owned()]);
    let mut world = World::new(vec![
        client("desk", &["thinker"]),
        thinker,
        listener("finder", &["look"], &["found"], &[]),
    ]);
    let (_, call) = world.open("desk", &word("plan", "p"));
    let timer = core("set-timer", "after=\"PT1S\"", "");
    world.play("thinker", &[spawn("a", &word("look", "a")), timer]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["huh not-in-vocabulary", "timer-set"]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn an_empty_answer_waits_while_a_thread_of_the_call_runs() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("a", &word("look", "a")), spawn("b", &word("look", "b"))]);
    world.play("spawner", &[]);
    assert_eq!(world.handed(), ["finder", "finder"]);

    world.play("finder", &[word("found", "a")]);
    let first = world.delivery_for("spawner");
    assert_eq!(fresh(&first), ["thread-result completed"]);
    world.answer(&first, &[]);
    assert_eq!(world.handed(), ["finder"]);

    world.play("finder", &[word("found", "b")]);
    world.play("spawner", &[]);
    assert_eq!(world.result(call), "completed: ack");
}

#[test]
fn an_empty_answer_does_not_lose_a_result_that_came_while_the_handler_worked() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("a", &word("look", "a"))]);
    let at_work = world.delivery_for("spawner");
    world.play("finder", &[word("found", "a")]);
    world.answer(&at_work, &[]);
    let woken = world.play("spawner", &[]);
    assert_eq!(fresh(&woken), ["thread-result completed"]);
    assert_eq!(world.result(call), "completed: ack");
}

#[test]
fn a_plain_listener_gets_the_refusal_of_a_bad_label() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("a b", &word("look", "a"))]);
    assert_eq!(fresh(&world.delivery("spawner")), ["huh bad-label"]);
}

/// Law 3 (b): the refusal of a payload inside a primitive is on record, with the place of the
/// payload in the primitive.
#[test]
fn the_refusal_of_a_payload_inside_a_primitive_is_recorded() {
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.backlog = 0;
    let mut world = World::new(vec![
        client("desk", &["spawner"]),
        spawner(&SPAWNER),
        agent("asked", &["ask"], &["report"], &[]),
        finder,
    ]);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("a", &word("look", "q")), word("look", "q")]);
    let woken = world.delivery("spawner");
    let errors = fresh(&woken).into_iter().filter(|text| text == "system-error busy");
    assert_eq!(errors.count(), 2);

    let child = thread.child("a");
    let send = core("send-to-thread", &format!("thread_id=\"{child}\""), &word("look", "q"));
    world.answer(&woken, &[send]);
    assert_eq!(world.refusals(), ["spawner busy"; 3]);
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let places = facts.filter_map(|fact| match fact {
        Fact::Refused { refusal, .. } => refusal.place.as_ref()?.path.clone(),
        _ => None,
    });
    let expected = ["/spawn-thread/initial-payload/look", "/send-to-thread/look"];
    assert_eq!(places.collect::<Vec<_>>(), expected);
    // The reason is the only answer to the refused `send-to-thread`.
    assert_eq!(fresh(&world.delivery("spawner")), ["system-error busy"]);
    world.check_replay();
}

#[test]
fn a_listener_without_anything_to_wait_for_continues_at_once() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    world.play("spawner", &[core("wait", "", "")]);
    assert_eq!(fresh(&world.delivery("spawner")), ["system-error nothing-to-wait-for"]);
}

#[test]
pub fn a_wait_of_a_plain_listener_survives_a_restart() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("a", &word("look", "a")), core("wait", "", "")]);
    world.restart();
    assert_eq!(world.handed(), ["finder"]);
    world.play("finder", &[word("found", "a")]);
    world.play("spawner", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn a_plain_listener_that_spawns_for_ever_is_stopped_by_the_limits_of_its_tree() {
    let limits = TreeLimits { messages: 60, ..TreeLimits::default() };
    let contracts = vec![
        client("desk", &["spawner"]),
        spawner(&SPAWNER),
        agent("asked", &["ask"], &["report"], &[]),
        listener("finder", &["look"], &["found"], &[]),
    ];
    let mut world = World::with_limits(contracts, limits);
    let (thread, call) = world.open("desk", &word("plan", "p"));
    for _ in 0..60 {
        match world.deliveries.pop_front() {
            Some(next) if next.listener.as_str() == "spawner" => {
                world.answer(&next, &[spawn("a", &word("look", "a"))]);
            }
            Some(next) => world.answer(&next, &[word("found", "a")]),
            None => break,
        }
    }
    assert_eq!(world.result(call), "failed: system-error budget-spent");

    // No agent is at work, so the warning is only recorded.
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let warned = facts.filter_map(|fact| match fact {
        Fact::Warned { limit, status, .. } => Some((*limit, *status)),
        _ => None,
    });
    let warned: Vec<_> = warned.collect();
    assert_eq!(warned, [(Some(60), WarningStatus::Unsent)]);
    assert!(!world.transcript(&thread).contains("budget-warning"));
}
