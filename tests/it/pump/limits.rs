//! Limits: budgets of a tree, the shape of a tree, and the number of waiting calls.

use std::time::Duration;

use expect_test::expect;
use organism::contract::{Contract, TreeLimits};
use organism::envelope::{Money, Turn};
use organism::pump::core::{Receipt, Target};
use organism::thread::{PauseTarget, PauseVerb};

use super::world::{World, agent, client, core, fresh, listener, name, word};

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "writer"]),
        agent("writer", &["ask"], &["report"], &["thinker", "finder"]),
        listener("finder", &["look"], &["found"], &["counter"]),
        listener("counter", &["count"], &["counted"], &[]),
    ]
}

fn limited(limits: TreeLimits) -> World {
    World::with_limits(contracts(), limits)
}

fn spawn(inner: &str) -> String {
    core("spawn-thread", "", &format!("<initial-payload>{inner}</initial-payload>"))
}

/// O11: further messages in a tree whose budget is spent are refused, and the sender gets the
/// reason.
#[test]
pub fn a_spent_message_budget_warns_agents_and_fails_the_calls_of_others() {
    let mut world = limited(TreeLimits { messages: 4, ..Default::default() });
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "1")]);
    world.play("finder", &[word("count", "n")]);
    let counter = world.delivery("counter");
    world.answer(&counter, &[word("counted", "n")]);
    world.play("finder", &[word("count", "more")]);
    let woken =
        world.play("thinker", &[word("look", "2"), word("plan", "3"), spawn(&word("ask", "4"))]);
    assert_eq!(fresh(&woken), ["system-error budget-spent", "budget-warning messages"]);
    let target = Target::Thread { id: thread.to_string() };
    let receipt = world.submit_to("desk", target, None, &word("plan", "more"));
    assert!(matches!(receipt, Receipt::Refused { .. }));
    assert_eq!(world.refusals().last().unwrap(), "desk budget-spent");
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["system-error budget-spent"; 3]);
    assert_eq!(world.result(call), "completed: answer(a)", "a result always gets through");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>finder look(1) [handled]
        3 call finder>counter count(n) [handled]
        4 reply counter>finder counted(n) [handled]
        5 system core>thinker budget-warning messages [handled]
        - refused finder budget-spent
        6 system core>thinker system-error budget-spent [handled]
        - refused thinker budget-spent
        7 system core>thinker system-error budget-spent [handled]
        - refused thinker budget-spent
        8 system core>thinker system-error budget-spent [handled]
        - refused thinker budget-spent
        9 system core>thinker system-error budget-spent [handled]
        - refused desk budget-spent
        10 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// O11: a model call beyond the budget is refused before it is made, and subthreads spend the
/// budget of their parent.
#[test]
fn the_next_model_call_is_refused_before_it_is_made() {
    for limits in [
        TreeLimits { model_calls: 2, ..Default::default() },
        TreeLimits { tokens: 20, ..Default::default() },
    ] {
        let mut world = limited(limits);
        let (thread, call) = world.open("desk", &word("plan", "p"));
        world.turn("thinker", 10, &[spawn(&word("ask", "w")), core("wait", "", "")]);
        world.turn("writer", 10, &[word("report", "r")]);
        assert!(world.deliveries.is_empty(), "the spawner gets no third turn");
        assert_eq!(world.result(call), "failed: system-error budget-spent");
        assert_eq!(world.core.state().tree(&thread).unwrap().usage.model_calls, 2);
    }
}

/// A call that fails for lack of budget ends at once. Its result follows the receipt, so that a
/// waiting client gets it.
#[test]
fn a_conversation_without_tokens_is_answered_at_once() {
    let mut world = limited(TreeLimits { tokens: 1, ..Default::default() });
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.turn("thinker", 1, &[word("answer", "a")]);
    let call = world.say("desk", &thread, &word("plan", "more"));
    assert_eq!(world.result(call), "failed: system-error budget-spent");
}

/// A listener has opened two calls. If one of them fails at once, the listener is not woken while
/// the second call is open.
#[test]
fn a_listener_is_not_woken_before_the_last_call_of_its_outcome_is_answered() {
    let mut contracts = contracts();
    contracts[3].peers = vec![super::world::name("writer"), super::world::name("counter")];
    let mut world =
        World::with_limits(contracts, TreeLimits { model_calls: 1, ..Default::default() });
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.turn("thinker", 1, &[word("look", "q")]);
    world.play("finder", &[word("ask", "a model"), word("count", "n")]);
    world.play("counter", &[word("counted", "n")]);
    let woken = world.play("finder", &[word("found", "f")]);
    assert_eq!(fresh(&woken), ["system-error budget-spent", "counted(n)"]);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
}

#[test]
fn model_calls_under_way_are_reserved() {
    let mut world = limited(TreeLimits { model_calls: 3, ..Default::default() });
    world.open("desk", &word("plan", "p"));
    let spawns: Vec<_> = (0..5).map(|_| spawn(&word("ask", "w"))).collect();
    world.turn("thinker", 1, &[spawns, vec![core("wait", "", "")]].concat());
    assert_eq!(world.handed(), ["writer", "writer"], "two are left after the first");
    let payloads: Vec<_> = world.records.iter().flat_map(|record| record.payloads()).collect();
    let reason = "1 of the 3 model calls of this tree are used, and calls that wait or run will use \
                  the others";
    assert!(payloads.iter().any(|payload| payload.as_str().contains(reason)), "{payloads:?}");
}

/// Five model calls are lost with their pump, and count as used. Their attempts are repeated without
/// a further check of the queue, so the limit has room for two of them.
#[test]
fn model_calls_that_are_repeated_after_a_restart_stay_within_the_limit() {
    let mut world = limited(TreeLimits { model_calls: 8, ..Default::default() });
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let spawns: Vec<_> = (0..5).map(|_| spawn(&word("ask", "w"))).collect();
    world.turn("thinker", 1, &[spawns, vec![core("wait", "", "")]].concat());
    for delivery in Vec::from_iter(world.deliveries.drain(..)) {
        assert_eq!(world.reserve(&delivery, 1, Money::default()), Ok(()));
    }

    world.restart();
    world.pass(Duration::from_secs(1));
    let again = Vec::from_iter(world.deliveries.drain(..));
    assert_eq!(again.len(), 5);
    let mut refused = 0;
    for delivery in &again {
        if let Err(reason) = world.reserve(delivery, 1, Money::default()) {
            let expected = "6 of the 8 model calls of this tree are used, and calls under way will \
                            use the others";
            assert_eq!(reason, expected);
            refused += 1;
        }
    }
    assert_eq!(refused, 3, "six calls are used, and two are under way");
    assert_eq!(world.reserve(&again[0], 2, Money::default()), Ok(()), "the same call again");

    for delivery in &again[..2] {
        let turn = Turn { note: core("model-turn", "", ""), tokens_in: 1, ..Turn::default() };
        world.answer_turn(delivery, &[word("report", "r")], Some(turn));
    }
    assert_eq!(world.core.state().tree(&thread).unwrap().usage.model_calls, 8);
}

#[test]
fn time_spent_at_work_is_bounded() {
    let mut world =
        limited(TreeLimits { wall_time: Duration::from_secs(100), ..Default::default() });
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    world.pass(Duration::from_secs(50));
    world.play("finder", &[word("count", "n")]);
    // The answer comes before the alarm of the tree fires.
    world.now = world.now.plus(Duration::from_secs(51));
    world.play("counter", &[word("counted", "n")]);
    assert!(world.deliveries.is_empty(), "the time is over");
    world.pass(Duration::ZERO);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    world.check_replay();
}

#[test]
fn an_agent_is_warned_of_each_budget_once() {
    let limits = TreeLimits { model_calls: 10, tokens: 200, ..Default::default() };
    let mut world = limited(limits);
    world.open("desk", &word("plan", "p"));
    let mut warnings = Vec::new();
    for _ in 0..9 {
        let told = world.turn("thinker", 20, &[core("thinking", "", "")]);
        warnings.push(fresh(&told));
    }
    warnings.push(fresh(&world.delivery("thinker")));
    expect![[r#"
        [["plan(p)"], [], [], [], [], [], [], [], ["budget-warning model-calls", "budget-warning tokens"], []]
    "#]]
    .assert_eq(&format!("{warnings:?}\n"));
}

#[test]
fn a_tree_has_a_greatest_depth_width_and_size() {
    let cases = [
        TreeLimits { depth: 0, ..Default::default() },
        TreeLimits { children: 0, ..Default::default() },
        TreeLimits { threads: 1, ..Default::default() },
    ];
    for limits in cases {
        let mut world = limited(limits);
        let (thread, _) = world.open("desk", &word("plan", "p"));
        world.play("thinker", &[spawn(&word("ask", "w"))]);
        assert_eq!(fresh(&world.delivery("thinker")), ["system-error limit-reached"]);
        assert!(world.deliveries.is_empty(), "nothing was routed");
        assert_eq!(world.core.state().tree(&thread).unwrap().threads.len(), 1);
    }
    let mut world = limited(TreeLimits { depth: 1, children: 2, threads: 3, ..Default::default() });
    world.open("desk", &word("plan", "p"));
    let idle = core("spawn-thread", "", "");
    world.play("thinker", &[idle.clone(), spawn(&word("plan", "deeper")), idle.clone()]);
    let deeper = world.delivery("thinker");
    world.answer(&deeper, &[idle]);
    for woken in [world.delivery("thinker"), world.delivery("thinker")] {
        assert_eq!(fresh(&woken).last().unwrap(), "system-error limit-reached");
    }
}

/// Back-pressure is an explicit answer: a full backlog is reported, and no message is dropped.
#[test]
fn a_full_backlog_is_reported_to_callers_and_clients() {
    let mut contracts = contracts();
    contracts[3].concurrency = 1;
    contracts[3].backlog = 1;
    let mut world = World::new(contracts);
    world.open("desk", &word("look", "runs"));
    world.open("desk", &word("look", "waits"));
    let target = Target::New { suggested: None };
    let receipt = world.submit_to("desk", target, None, &word("look", "too much"));
    let Receipt::Refused { refusal, retry_after } = receipt else { panic!("{receipt:?}") };
    assert_eq!(refusal.rule.to_string(), "busy");
    assert!(retry_after.is_some(), "with a hint when to try again");
    world.open("desk", &word("plan", "p"));
    let thinker = world.delivery_for("thinker");
    world.answer(&thinker, &[word("look", "too much")]);
    let thinker = world.delivery_for("thinker");
    assert_eq!(fresh(&thinker), ["system-error busy"]);
    world.play("finder", &[word("found", "1")]);
    world.answer(&thinker, &[word("look", "now")]);
    assert_eq!(world.refusals(), ["thinker busy"], "a client's is counted, and has no record");
    assert_eq!(world.busy, [name("desk")]);
    assert_eq!(fresh(&world.delivery("finder")), ["look(waits)"]);
}

/// Calls that the free capacity of their listener takes at once do not wait. While the listener is
/// paused, all its calls wait.
#[test]
fn calls_of_one_outcome_fill_the_free_capacity_before_they_count_as_waiting() {
    for (is_paused, handed, refused) in [(false, 2, 1), (true, 0, 3)] {
        let mut contracts = contracts();
        contracts[3].concurrency = 2;
        contracts[3].backlog = 1;
        let mut world = World::new(contracts);
        if is_paused {
            world.pause(PauseVerb::Pause, &PauseTarget::Listener(name("finder")));
        }
        world.open("desk", &word("plan", "p"));
        world.play("thinker", &["1", "2", "3", "4"].map(|text| word("look", text)));
        assert_eq!(world.handed(), vec!["finder"; handed], "{is_paused}");
        assert_eq!(world.refusals(), vec!["thinker busy"; refused], "{is_paused}");
        world.check_replay();
    }
}

/// If a call of an agent leads to a call back to the same agent, the second call is refused,
/// because the agent would wait for itself without end.
#[test]
fn a_call_from_beneath_an_agents_own_call_is_refused_as_a_cycle() {
    let mut world = World::new(contracts());
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "w")]);
    let child = spawn(&word("plan", "elsewhere"));
    world.play("writer", &[word("plan", "back"), child, core("wait", "", "")]);
    let elsewhere = world.play("thinker", &[word("answer", "fine")]);
    assert_ne!(elsewhere.thread, thread, "across threads it is no cycle");
    let woken = world.play("writer", &[word("report", "r")]);
    assert_eq!(fresh(&woken)[0], "system-error cycle");
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    assert_eq!(world.refusals(), ["writer cycle"]);
}

/// If two agents call each other at the same time, so that each would wait for the other, the call
/// that closes the cycle is refused.
#[test]
fn agents_that_would_wait_for_each_other_get_cycle_refusals() {
    let mut contracts = contracts();
    contracts[0] = client("desk", &["thinker", "writer"]);
    let mut world = World::new(contracts);
    let (thread, first) = world.open("desk", &word("plan", "p"));
    let second = world.say("desk", &thread, &word("ask", "w"));
    let (thinker, writer) = (world.delivery("thinker"), world.delivery("writer"));
    world.answer(&thinker, &[word("ask", "for me")]);
    world.answer(&writer, &[word("plan", "for me")]);
    let woken = world.play("writer", &[word("report", "r")]);
    assert_eq!(fresh(&woken), ["system-error cycle"]);
    assert_eq!(world.result(second), "completed: report(r)");
    world.play("writer", &[word("report", "for thinker")]);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(first), "completed: answer(a)");
}

/// A very deep chain of calls is cancelled in one step, without a deep stack.
#[test]
fn a_very_deep_chain_of_calls_is_cancelled_in_one_step() {
    let mut world = World::new(vec![
        client("desk", &["finder"]),
        listener("finder", &["look"], &["found"], &["finder"]),
    ]);
    let (thread, call) = world.open("desk", &word("look", "0"));
    for depth in 0..300 {
        world.play("finder", &[word("look", &depth.to_string())]);
    }
    world.cancel(&thread);
    assert_eq!(world.result(call), "cancelled: system-error cancelled");
    assert_eq!(world.core.state().in_flight, 0);
}
