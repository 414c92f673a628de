//! `wait`: the events that end a wait, and events that do not end it.

use std::time::Duration;

use expect_test::expect;

use super::world::{World, agent, client, core, fresh, listener, word};

fn world() -> World {
    let mut world = World::new(vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "writer"]),
        agent("writer", &["ask"], &["report"], &[]),
        listener("finder", &["look"], &["found"], &[]),
    ]);
    world.open("desk", &word("plan", "p"));
    world
}

fn spawn(label: &str) -> String {
    let inner = format!("<initial-payload>{}</initial-payload>", word("ask", label));
    core("spawn-thread", &format!("suggested_sub_id=\"{label}\""), &inner)
}

fn wait(until: &str) -> String {
    core("wait", &format!("for=\"{until}\""), "")
}

fn timer(after: &str) -> String {
    core("set-timer", &format!("after=\"{after}\" label=\"{after}\""), "")
}

/// O4: a wait for all ends when the last thread has ended.
#[test]
fn waiting_for_all_ends_when_the_last_thread_is_done() {
    let mut world = world();
    world.play("thinker", &[spawn("a"), spawn("b"), wait("all")]);
    let (a, b) = (world.delivery("writer"), world.delivery("writer"));
    world.answer(&b, &[word("report", "b")]);
    assert!(world.deliveries.is_empty());
    world.answer(&a, &[word("report", "a")]);
    let woken = world.delivery("thinker");
    expect![[r#"
        [
            "thread-spawned sess-htzzwjll.a",
            "thread-spawned sess-htzzwjll.b",
            "waiting all",
            "thread-result completed",
            "thread-result completed",
        ]
    "#]]
    .assert_eq(&format!("{:#?}\n", fresh(&woken)));
}

#[test]
fn waiting_for_any_ends_with_the_first_thread() {
    let mut world = world();
    world.play("thinker", &[spawn("a"), spawn("b"), wait("any")]);
    let (a, b) = (world.delivery("writer"), world.delivery("writer"));
    world.answer(&b, &[word("report", "b")]);
    let woken = world.play("thinker", &[wait("any")]);
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result completed");
    world.answer(&a, &[word("report", "a")]);
    assert_eq!(fresh(&world.delivery("thinker")), ["waiting any", "thread-result completed"]);
}

/// O7: a wait ends at once if there is no open call to wait for.
#[test]
fn a_wait_without_an_open_call_ends_at_once() {
    for until in ["all", "any"] {
        let mut world = world();
        world.play("thinker", &[wait(until)]);
        let woken = world.play("thinker", &[core("spawn-thread", "", ""), wait(until)]);
        assert_eq!(fresh(&woken), ["system-error nothing-to-wait-for"]);
        let idle = fresh(&world.delivery("thinker"));
        assert_eq!(idle[1], "system-error nothing-to-wait-for", "an idle thread is not unfinished");
    }
}

/// Rules 5.10 and 5.18: a thread that an earlier call opened runs on, and its late result ends no
/// wait of a later call. If only such a thread is unfinished, the later call gets an answer that
/// states this instead of a wait.
#[test]
fn a_wait_states_that_threads_of_earlier_calls_do_not_end_it() {
    let mut world = world();
    world.play("thinker", &[spawn("a")]);
    let writer = world.delivery_for("writer");
    world.play("thinker", &[word("answer", "first")]);
    let thread = writer.thread.parent().unwrap();
    world.say("desk", &thread, &word("plan", "more"));
    world.play("thinker", &[wait("all")]);

    let woken = world.delivery("thinker");
    assert_eq!(fresh(&woken), ["system-error nothing-to-wait-for"]);
    let text = woken.messages.last().unwrap().payload.as_str();
    assert!(text.contains("no thread or timer of this call is unfinished"), "{text}");
    assert!(text.contains("an earlier call opened"), "{text}");

    world.answer(&writer, &[word("report", "r")]);
    let transcript = world.transcript(&thread);
    assert!(transcript.contains("thread-result completed [late]"), "{transcript}");
    assert!(world.deliveries.is_empty());
}

#[test]
fn a_failed_child_counts_as_done() {
    let mut world = world();
    world.play("thinker", &[spawn("a"), wait("all")]);
    let a = world.delivery("writer");
    let failure = organism::envelope::AttemptFailure::Garbage { detail: "?".to_owned() };
    world.fail(&a, failure);
    assert_eq!(fresh(&world.delivery("thinker")).last().unwrap(), "thread-result failed");
}

#[test]
fn a_timer_is_waited_for_like_a_thread() {
    let mut world = world();
    world.play("thinker", &[timer("PT5S"), timer("PT9S"), wait("all")]);
    world.pass(Duration::from_secs(6));
    assert!(world.deliveries.is_empty());
    world.pass(Duration::from_secs(6));
    let woken = fresh(&world.delivery("thinker"));
    assert_eq!(woken[2..], ["waiting all", "timer-fired PT5S", "timer-fired PT9S"]);
}

#[test]
fn a_message_to_the_agent_ends_any_wait() {
    for until in ["all", "any"] {
        let mut world = world();
        world.play("thinker", &[spawn("a"), wait(until)]);
        let writer = world.delivery("writer");
        let thread = writer.thread.parent().unwrap();
        let second = world.say("desk", &thread, &word("plan", "hurry"));
        let woken = world.play("thinker", &[word("answer", "early")]);
        assert_eq!(fresh(&woken)[1..], [format!("waiting {until}")], "the wait is over");
        let next = world.play("thinker", &[word("answer", "second")]);
        assert_eq!((next.call, fresh(&next)), (second, vec!["plan(hurry)".to_owned()]));
        world.answer(&writer, &[word("report", "late")]);
        assert!(world.deliveries.is_empty());
    }
}

/// Rule 5.16: a message that comes during the turn of the `wait` ends the wait, too. If the agent
/// then waits again, it knows this message, and the wait goes on until its timer fires.
#[test]
fn a_message_during_the_turn_of_a_wait_ends_the_wait() {
    for until in ["all", "any"] {
        let mut world = world();
        let turn = world.delivery("thinker");
        let second = world.say("desk", &turn.thread, &word("plan", "hurry"));
        world.answer(&turn, &[timer("PT9S"), wait(until)]);

        let woken = world.play("thinker", &[wait(until)]);
        assert_eq!(woken.call, turn.call);
        assert_eq!(fresh(&woken)[1..], [format!("waiting {until}")], "the wait is over");
        assert!(world.deliveries.is_empty(), "the message is known");
        world.pass(Duration::from_secs(10));
        let woken = world.play("thinker", &[word("answer", "first")]);
        assert_eq!(fresh(&woken)[1..], ["timer-fired PT9S"]);
        let next = world.play("thinker", &[word("answer", "second")]);
        assert_eq!(next.call, second);
        assert_eq!(world.result(second), "completed: answer(second)");
        world.check_replay();
    }
}

/// The thread of a plain listener is free while the listener waits, so a later call does not end
/// the wait.
#[test]
fn a_message_during_the_turn_of_a_plain_listener_does_not_end_its_wait() {
    let mut sleeper = listener("sleeper", &["look"], &["found"], &[]);
    sleeper.core = Some(vec!["set-timer".to_owned(), "wait".to_owned()]);
    sleeper.serial_per_thread = true;
    let mut world = World::new(vec![client("desk", &["sleeper"]), sleeper]);
    let (thread, first) = world.open("desk", &word("look", "q"));
    let turn = world.delivery("sleeper");
    let second = world.say("desk", &thread, &word("look", "r"));
    world.answer(&turn, &[timer("PT9S"), wait("all")]);

    let next = world.play("sleeper", &[word("found", "second")]);
    assert_eq!(next.call, second);
    assert!(world.deliveries.is_empty(), "the first call waits for its timer");
    world.pass(Duration::from_secs(10));
    world.play("sleeper", &[word("found", "first")]);
    assert_eq!(world.result(first), "completed: found(first)");
}

/// A message that was cancelled before the end of the turn ends no wait of this turn.
#[test]
fn a_cancelled_message_during_the_turn_of_a_wait_does_not_end_the_wait() {
    let mut world = World::new(vec![
        client("desk", &["thinker", "helper"]),
        agent("thinker", &["plan"], &["answer"], &["writer"]),
        agent("writer", &["ask"], &["report"], &[]),
        listener("helper", &["look"], &["found"], &["thinker"]),
    ]);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let turn = world.delivery("thinker");
    let helping = world.say("desk", &thread, &word("look", "q"));
    world.play("helper", &[word("plan", "hurry")]);
    let contracts = vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["writer"]),
        agent("writer", &["ask"], &["report"], &[]),
    ];
    world.reload(contracts);
    world.pass(Duration::ZERO);
    assert_ne!(world.result(helping), "none");

    world.answer(&turn, &[timer("PT9S"), wait("any")]);
    assert!(world.deliveries.is_empty(), "still waiting");
    world.pass(Duration::from_secs(10));
    let woken = fresh(&world.delivery("thinker"));
    assert_eq!(woken.last().unwrap(), "timer-fired PT9S");
}

#[test]
pub fn calls_and_a_wait_of_one_outcome_are_both_waited_for() {
    let mut world = world();
    world.play("thinker", &[spawn("a"), word("look", "q"), wait("all")]);
    let (writer, finder) = (world.delivery("writer"), world.delivery("finder"));
    world.answer(&writer, &[word("report", "r")]);
    assert!(world.deliveries.is_empty(), "the call is still out");
    world.answer(&finder, &[word("found", "f")]);
    let woken = fresh(&world.delivery("thinker"));
    assert_eq!(woken[1..], ["found(f)", "waiting all", "thread-result completed"]);
}

#[test]
fn events_during_an_agents_turn_satisfy_its_wait() {
    let mut world = world();
    world.play("thinker", &[spawn("a")]);
    let writer = world.delivery_for("writer");
    let speaking = world.delivery("thinker");
    world.answer(&writer, &[word("report", "r")]);
    world.answer(&speaking, &[wait("any")]);
    assert_eq!(fresh(&world.delivery("thinker")), ["waiting any", "thread-result completed"]);
}

/// A budget warning does not end a wait, because it is neither the result of a thread nor a timer.
#[test]
fn a_budget_warning_does_not_end_a_wait() {
    let limits = organism::contract::TreeLimits { tokens: 100, ..Default::default() };
    let mut world = World::with_limits(
        vec![
            client("desk", &["thinker"]),
            agent("thinker", &["plan"], &["answer"], &["writer"]),
            agent("writer", &["ask"], &["report"], &[]),
        ],
        limits,
    );
    world.open("desk", &word("plan", "p"));
    world.turn("thinker", 85, &[spawn("a"), wait("any")]);
    let writer = world.delivery("writer");
    assert!(world.deliveries.is_empty(), "still waiting");
    world.answer(&writer, &[word("report", "r")]);
    let woken = fresh(&world.delivery("thinker"));
    assert!(woken.contains(&"budget-warning tokens".to_owned()), "{woken:?}");
}
