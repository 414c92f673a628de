//! Calls: nesting, results, acknowledgements, and late answers.

use expect_test::expect;
use organism::thread::Closing;

use super::world::{World, agent, client, core, fresh, listener, name, word};

fn thinker_world() -> World {
    World::new(vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "counter", "writer"]),
        agent("writer", &["ask"], &["report"], &["thinker", "counter"]),
        listener("finder", &["look"], &["found"], &["counter"]),
        listener("counter", &["count"], &["counted"], &[]),
    ])
}

/// O10: a tool call is an ordinary payload, and its result reaches the caller at any depth.
#[test]
fn a_reply_reaches_the_caller_whatever_the_depth() {
    let mut world = thinker_world();
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
fn two_conversations_between_the_same_pair_never_mix() {
    let mut world = thinker_world();
    let (_, first) = world.open("desk", &word("look", "1"));
    let (_, second) = world.open("desk", &word("look", "2"));
    let (one, two) = (world.delivery("finder"), world.delivery("finder"));
    world.answer(&two, &[word("count", "two")]);
    world.answer(&one, &[word("count", "one")]);
    let (inner_two, inner_one) = (world.delivery("counter"), world.delivery("counter"));
    world.answer(&inner_one, &[word("counted", "of one")]);
    world.answer(&inner_two, &[word("counted", "of two")]);
    let woken = world.play("finder", &[word("found", "1")]);
    assert_eq!((woken.call, fresh(&woken)), (first, vec!["counted(of one)".to_owned()]));
    let woken = world.play("finder", &[word("found", "2")]);
    assert_eq!((woken.call, fresh(&woken)), (second, vec!["counted(of two)".to_owned()]));
    assert_eq!(world.result(first), "completed: found(1)");
    assert_eq!(world.result(second), "completed: found(2)");
}

#[test]
fn an_empty_outcome_is_acknowledged() {
    let mut world = thinker_world();
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    world.play("finder", &[]);
    assert_eq!(fresh(&world.delivery("thinker")), ["ack"]);
}

#[test]
fn one_outcome_may_reply_with_several_payloads() {
    let mut world = thinker_world();
    let (_, call) = world.open("desk", &word("look", "q"));
    world.play("finder", &[word("found", "1"), word("found", "2")]);
    assert_eq!(world.result(call), "completed: found(1), found(2)");
}

/// O2: a payload that an agent sends to itself continues the agent's call, in the same thread.
#[test]
fn a_self_message_is_seen_by_the_next_turn() {
    let mut world = thinker_world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("plan", "step two")]);
    let woken = world.play("thinker", &[word("plan", "step three")]);
    assert_eq!(fresh(&woken), ["plan(step two)"]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["plan(step three)"]);
    assert_eq!(woken.messages.len(), 3, "a delivery holds every message of its call");
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 self thinker>thinker plan(step two) [handled]
        3 self thinker>thinker plan(step three) [handled]
        4 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// O9, T2: notes are recorded and not delivered. A turn with only notes does not end the call of
/// its agent.
#[test]
fn a_turn_with_only_notes_continues() {
    let mut world = thinker_world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[core("thinking", "", "hm"), core("progress", "", "half")]);
    let woken = world.play("thinker", &[core("thinking", "", "so"), word("answer", "a")]);
    assert!(fresh(&woken).is_empty());
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 note thinker>thinker thinking [recorded]
        3 note thinker>thinker progress [recorded]
        4 note thinker>thinker thinking [recorded]
        5 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// O8: a checklist is recorded unchanged and blocks nothing.
#[test]
fn a_checklist_is_recorded_and_never_holds_back_a_final() {
    let mut world = thinker_world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let list = core("todo-until", "condition=\"done\"", "<step done=\"false\">x</step>");
    world.play("thinker", &[list.clone(), word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 note thinker>thinker todo-until [recorded]
        3 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
    let facts = world.records.iter().flat_map(|record| record.payloads());
    assert!(facts.into_iter().any(|payload| payload.as_str() == list), "verbatim");
}

#[test]
fn a_call_that_ends_takes_what_is_beneath_with_it_and_answers_are_late() {
    let mut world = thinker_world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "w"), word("look", "q")]);
    let writer = world.delivery("writer");
    world.play("finder", &[word("count", "n")]);
    let counter = world.delivery("counter");
    let timer = core("set-timer", "after=\"PT1S\"", "");
    world.answer(&writer, &[timer, core("wait", "", "")]);
    world.cancel(&thread);
    assert_eq!(world.withdrawn, [counter.call]);
    assert_eq!(world.result(call), "cancelled: system-error cancelled");
    world.answer(&counter, &[word("counted", "9")]);
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>writer ask(w) [handled]
        3 call thinker>finder look(q) [handled]
        4 call finder>counter count(n) [cancelled]
        5 call writer>core set-timer [handled]
        6 system core>writer timer-set [cancelled]
        7 call writer>core wait [handled]
        8 system core>writer waiting all [cancelled]
        9 system core>core operator-action [recorded]
        10 system core>writer timer-cancelled [recorded]
        11 system core>desk system-error cancelled [recorded]
        12 reply counter>finder counted(9) [late]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// O3, O7: a timer that fires while a call of the agent is open does not wake the agent. The
/// agent's final payload closes the agent's own call.
#[test]
fn a_timer_does_not_wake_while_a_call_is_out() {
    let mut world = World::new(vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "counter"]),
        listener("finder", &["look"], &["found"], &["counter"]),
        listener("counter", &["count"], &["counted"], &[]),
    ]);
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let timer = core("set-timer", "after=\"PT1S\"", "");
    world.play("thinker", &[timer, word("look", "q")]);
    let finder = world.delivery("finder");
    world.pass(std::time::Duration::from_secs(2));
    assert!(world.deliveries.is_empty(), "a timer does not wake while a call is out");
    world.fail(&finder, organism::envelope::AttemptFailure::Refused { detail: "no".to_owned() });
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["timer-set", "system-error listener-failed", "timer-fired"]);
    assert_eq!(world.results[&call].0, Closing::Completed);
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>core set-timer [handled]
        3 system core>thinker timer-set [handled]
        4 call thinker>finder look(q) [failed]
        5 system core>thinker timer-fired [handled]
        6 system core>thinker system-error listener-failed [handled]
        7 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
fn a_call_beside_a_reply_is_refused_and_never_opened() {
    let mut world = thinker_world();
    let (thread, call) = world.open("desk", &word("look", "q"));
    world.play("finder", &[word("count", "n"), word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
    assert!(world.deliveries.is_empty());
    expect![[r#"
        1 call desk>finder look(q) [handled]
        - refused finder call-beside-reply
        2 reply finder>desk found(f) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q"), word("answer", "a"), word("plan", "more")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        - refused thinker call-beside-reply
        2 system core>thinker huh call-beside-reply [late]
        - refused thinker call-beside-reply
        3 system core>thinker huh call-beside-reply [late]
        4 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
pub fn a_listener_is_woken_once_with_results_in_the_order_of_its_calls() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut world = thinker_world();
        world.open("desk", &word("plan", "p"));
        let calls = [word("look", "1"), word("count", "2"), word("look", "3")];
        world.play("thinker", &calls);
        let out = ["finder", "counter", "finder"].map(|who| world.delivery_for(who));
        let replies = [word("found", "1"), word("counted", "2"), word("found", "3")];
        for at in order {
            assert!(world.deliveries.is_empty(), "not woken before all are there");
            world.answer(&out[at], &[replies[at].clone()]);
        }
        let woken = world.delivery("thinker");
        assert_eq!(fresh(&woken), ["found(1)", "counted(2)", "found(3)"], "{order:?}");
        assert!(world.deliveries.is_empty(), "woken once");
    }
}

#[test]
fn refusals_stand_among_the_results_where_their_payloads_stood() {
    let mut world = thinker_world();
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "1"), word("vote", "?"), word("look", "3")]);
    let (one, three) = (world.delivery("finder"), world.delivery("finder"));
    world.answer(&three, &[word("found", "3")]);
    world.answer(&one, &[word("found", "1")]);
    let woken = world.delivery("thinker");
    assert_eq!(fresh(&woken), ["found(1)", "huh not-in-vocabulary", "found(3)"]);
}

/// Law 6: an unknown name and a forbidden name get the same answer, so that no answer reveals
/// whether a name exists.
#[test]
fn unknown_and_forbidden_names_get_the_same_answer() {
    let answers = ["secret", "ballot", "nonsense"].map(|local| {
        let mut world = thinker_world();
        world.open("desk", &word("plan", "p"));
        world.play("thinker", &[word(local, "x")]);
        let woken = world.delivery("thinker");
        woken.messages.last().unwrap().payload.as_str().to_owned()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[1], answers[2]);
}

#[test]
fn an_outcome_of_another_listener_is_refused_under_its_true_sender() {
    let mut world = thinker_world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let mut delivery = world.delivery("finder");
    delivery.listener = name("counter");
    world.answer(&delivery, &[word("counted", "mine")]);
    assert_eq!(world.refusals(), ["counter stale-attempt"]);
    delivery.listener = name("finder");
    world.answer(&delivery, &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
}
