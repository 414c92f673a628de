//! Calls: nesting, results, acknowledgements.

use expect_test::expect;

use super::world::{World, agent, client, fresh, listener, word};

fn desk() -> World {
    World::new(vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "counter"]),
        listener("finder", &["look"], &["found"], &["counter"]),
        listener("counter", &["count"], &["counted"], &[]),
    ])
}

/// O10: a tool call is an ordinary payload, and its result comes back to the caller.
#[test]
fn a_reply_reaches_the_caller_whatever_the_depth() {
    let mut world = desk();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    world.play("finder", &[word("count", "n")]);
    world.play("counter", &[word("counted", "3")]);
    let woken = world.play("finder", &[word("found", "f")]);
    assert_eq!(fresh(&woken), ["counted(3)"]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["found(f)"]);
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>finder look(q) [handled]
        3 call finder>counter count(n) [handled]
        4 reply counter>finder counted(3) [handled]
        5 reply finder>thinker found(f) [handled]
        6 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
fn an_empty_outcome_is_acknowledged() {
    let mut world = desk();
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    world.play("finder", &[]);
    assert_eq!(fresh(&world.delivery("thinker")), ["ack"]);
}

/// O2: the agent's own payload continues its own call, in the same thread.
#[test]
fn a_self_message_is_seen_by_the_next_turn() {
    let mut world = desk();
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("plan", "step two")]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["plan(step two)"]);
    assert_eq!(world.result(call), "completed: answer(a)");
}
