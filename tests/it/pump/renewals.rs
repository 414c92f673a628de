//! Counts against the limits of a tree: counts that start again with the next request of a client,
//! and counts that never start again.

use std::time::Duration;

use organism::contract::{Budget, Contract, Contracts, TreeLimits};
use organism::envelope::Money;
use organism::ids::{CallId, Digest, ThreadId};
use organism::pump::core::{Core, Receipt, Target};
use organism::thread::{Fact, Record};

use super::world::{World, agent, client, core, fresh, listener, name, word};

/// Contracts with a client `errands`. The processes of the listener `finder` may submit as this
/// client.
fn contracts() -> Vec<Contract> {
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.client = Some(name("errands"));
    vec![
        client("desk", &["thinker", "finder"]),
        client("errands", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "writer"]),
        agent("writer", &["ask"], &["report"], &["finder"]),
        finder,
    ]
}

fn world(limits: TreeLimits) -> World {
    World::with_limits(contracts(), limits)
}

fn thinking() -> String {
    core("thinking", "", "")
}

fn idle_child() -> String {
    core("spawn-thread", "", "")
}

fn working_child() -> String {
    let inner = word("ask", "w");
    core("spawn-thread", "", &format!("<initial-payload>{inner}</initial-payload>"))
}

/// Plays the agent's work for one request: `model_calls` model calls with `tokens` tokens each. The
/// last model call ends the agent's call.
fn serve(world: &mut World, model_calls: u32, tokens: u64) {
    for _ in 1..model_calls {
        world.turn("thinker", tokens, &[thinking()]);
    }
    world.turn("thinker", tokens, &[word("answer", "a")]);
}

fn goes_on(world: &mut World, thread: &ThreadId) -> CallId {
    world.say("desk", thread, &word("plan", "more"))
}

fn renewals(world: &World) -> usize {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    facts.filter(|fact| matches!(fact, Fact::Renewed { .. })).count()
}

/// A conversation may have more children and model calls than the default limits of one request: 64
/// and 1,000.
#[test]
fn a_conversation_continues_beyond_the_children_and_model_calls_of_one_request() {
    let mut world = world(TreeLimits::default());
    let (thread, mut call) = world.open("desk", &word("plan", "p"));
    for _ in 0..11 {
        world.turn("thinker", 1, &[idle_child(), idle_child(), idle_child(), idle_child()]);
        world.turn("thinker", 1, &[idle_child(), idle_child()]);
        serve(&mut world, 98, 1);
        assert_eq!(world.result(call), "completed: answer(a)");
        call = goes_on(&mut world, &thread);
    }
    let tree = world.core.state().tree(&thread).unwrap();
    assert_eq!(tree.usage.model_calls, 1_100);
    assert_eq!(tree.threads.len(), 67);
    assert_eq!(renewals(&world), 11);
}

#[test]
fn each_request_may_use_as_much_as_the_first() {
    let limits = TreeLimits { children: 2, threads: 3, model_calls: 3, ..Default::default() };
    let mut world = world(limits);
    let (thread, mut call) = world.open("desk", &word("plan", "p"));
    for _ in 0..3 {
        world.turn("thinker", 1, &[idle_child(), idle_child(), idle_child()]);
        let told = world.turn("thinker", 1, &[thinking()]);
        assert_eq!(fresh(&told).last().unwrap(), "system-error limit-reached");
        world.turn("thinker", 1, &[thinking()]);
        assert_eq!(world.result(call), "failed: system-error budget-spent");
        call = goes_on(&mut world, &thread);
    }
}

#[test]
fn messages_start_again_where_they_were_spent_when_the_request_ended() {
    let mut world = world(TreeLimits { messages: 4, ..Default::default() });
    let (thread, mut call) = world.open("desk", &word("look", "1"));
    for _ in 0..5 {
        world.play("finder", &[word("found", "f")]);
        assert_eq!(world.result(call), "completed: found(f)");
        call = world.say("desk", &thread, &word("look", "more"));
    }
    assert!(world.core.state().tree(&thread).unwrap().usage.messages > 4);
}

#[test]
fn wall_time_starts_again_with_the_next_request() {
    let wall_time = Duration::from_secs(100);
    let mut world = world(TreeLimits { wall_time, ..Default::default() });
    let (thread, _) = world.open("desk", &word("plan", "p"));
    serve(&mut world, 1, 1);
    world.pass(wall_time * 3);
    let call = goes_on(&mut world, &thread);
    world.pass(wall_time / 2);
    serve(&mut world, 2, 1);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn tokens_and_money_count_over_the_whole_life_of_a_tree() {
    let cases = [
        TreeLimits { tokens: 30, ..Default::default() },
        TreeLimits { tokens: 30, per_request_tokens: Some(25), ..Default::default() },
    ];
    for limits in cases {
        let mut world = world(limits);
        let (thread, _) = world.open("desk", &word("plan", "p"));
        serve(&mut world, 2, 10);
        let call = goes_on(&mut world, &thread);
        serve(&mut world, 1, 10);
        assert_eq!(world.result(call), "completed: answer(a)");
        let call = goes_on(&mut world, &thread);
        assert_eq!(world.result(call), "failed: system-error budget-spent");
        assert!(world.results[&call].1[0].payload.as_str().contains("of this tree are used"));
    }
}

#[test]
fn a_budget_of_one_request_ends_that_request_alone() {
    let limits = TreeLimits { per_request_tokens: Some(20), ..Default::default() };
    let mut world = world(limits);
    let (thread, mut call) = world.open("desk", &word("plan", "p"));
    for _ in 0..3 {
        world.turn("thinker", 10, &[thinking()]);
        let delivery = world.deliveries[0].clone();
        let refused = world.reserve(&delivery, 11, Money(0)).unwrap_err();
        assert!(refused.contains("10 of the 20 of this request"), "{refused}");
        world.turn("thinker", 10, &[thinking()]);
        assert_eq!(world.result(call), "failed: system-error budget-spent");
        let text = world.results[&call].1[0].payload.as_str().to_owned();
        assert!(text.contains("all 20 tokens of this request are used"), "{text}");
        call = goes_on(&mut world, &thread);
    }
}

#[test]
fn an_agent_is_warned_again_in_each_request_of_what_starts_again() {
    let mut contracts = contracts();
    contracts[2].budget = Budget { tokens: Some(100), money: None };
    let limits = TreeLimits { model_calls: 5, per_request_tokens: Some(50), ..Default::default() };
    let mut world = World::with_limits(contracts, limits);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let mut warned = Vec::new();
    for _ in 0..2 {
        for _ in 0..3 {
            world.turn("thinker", 10, &[thinking()]);
        }
        world.turn("thinker", 10, &[thinking()]);
        let told = world.play("thinker", &[word("answer", "a")]);
        warned.push(fresh(&told));
        goes_on(&mut world, &thread);
    }
    let again = ["budget-warning model-calls", "budget-warning request-tokens"];
    assert_eq!(warned[0], again);
    assert_eq!(warned[1], [again[0], again[1], "budget-warning tokens"]);
}

#[test]
fn a_request_while_an_earlier_one_runs_renews_nothing() {
    let mut world = world(TreeLimits { model_calls: 3, ..Default::default() });
    let (thread, first) = world.open("desk", &word("plan", "p"));
    world.turn("thinker", 1, &[thinking()]);
    let second = goes_on(&mut world, &thread);
    serve(&mut world, 1, 1);
    assert_eq!(world.result(first), "completed: answer(a)");
    world.turn("thinker", 1, &[thinking()]);
    assert_eq!(world.result(second), "failed: system-error budget-spent");
    assert_eq!(renewals(&world), 0);
}

/// A request renews no budget while a thread of an earlier request still runs, even if the client
/// has the result of the earlier request.
#[test]
fn a_request_while_threads_of_an_earlier_one_run_renews_nothing() {
    let mut world = world(TreeLimits { model_calls: 3, ..Default::default() });
    let (thread, first) = world.open("desk", &word("plan", "p"));
    world.turn("thinker", 1, &[working_child()]);
    let child = world.delivery_for("writer");
    serve(&mut world, 1, 1);
    assert_eq!(world.result(first), "completed: answer(a)");
    let second = goes_on(&mut world, &thread);
    assert_eq!(world.result(second), "failed: system-error budget-spent");
    world.answer(&child, &[word("report", "r")]);
    let third = goes_on(&mut world, &thread);
    serve(&mut world, 2, 1);
    assert_eq!(world.result(third), "completed: answer(a)");
}

/// An agent cannot renew its own budgets: its children, its messages to children, and its calls
/// renew nothing.
#[test]
fn an_agent_cannot_renew_its_own_budgets() {
    let mut world = world(TreeLimits { model_calls: 6, ..Default::default() });
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.turn("thinker", 1, &[working_child(), core("wait", "", "")]);
    world.turn("writer", 1, &[word("report", "r")]);
    let child = world.core.state().tree(&thread).unwrap().threads.keys().last().unwrap().clone();
    for _ in 0..2 {
        let again = core("send-to-thread", &format!("thread_id=\"{child}\""), &word("ask", "w"));
        world.turn("thinker", 1, &[again, core("wait", "", "")]);
        world.turn("writer", 1, &[word("report", "r")]);
    }
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    assert_eq!(renewals(&world), 0);
}

#[test]
fn a_request_of_a_listeners_own_client_renews_nothing() {
    let wall_time = Duration::from_secs(100);
    let cases = [
        TreeLimits { model_calls: 1, ..Default::default() },
        TreeLimits { per_request_tokens: Some(1), ..Default::default() },
        TreeLimits { wall_time, ..Default::default() },
    ];
    for limits in cases {
        let mut world = world(limits);
        let (thread, call) = world.open("errands", &word("plan", "p"));
        serve(&mut world, 1, 1);
        assert_eq!(world.result(call), "completed: answer(a)");
        world.pass(wall_time);
        let again = world.say("errands", &thread, &word("plan", "more"));
        assert_eq!(world.result(again), "failed: system-error budget-spent");
        assert_eq!(renewals(&world), 0);
    }
    let mut world = world(TreeLimits { messages: 2, ..Default::default() });
    let (thread, _) = world.open("errands", &word("look", "1"));
    world.play("finder", &[word("found", "f")]);
    let target = Target::Thread { id: thread.to_string() };
    let receipt = world.submit_to("errands", target, None, &word("look", "2"));
    assert!(matches!(receipt, Receipt::Refused { .. }), "{receipt:?}");
}

#[test]
fn neither_a_repeated_key_nor_a_refused_request_renews() {
    let mut world = world(TreeLimits::default());
    let (thread, _) = world.open("desk", &word("plan", "p"));
    serve(&mut world, 1, 1);
    let target = Target::Thread { id: thread.to_string() };
    let plan = word("plan", "keyed");
    world.submit_to("desk", target.clone(), Some("key"), &plan);
    serve(&mut world, 1, 1);
    assert_eq!(renewals(&world), 1);
    world.submit_to("desk", target.clone(), Some("key"), &plan);
    world.submit_to("desk", target.clone(), None, &word("report", "nobody takes this"));
    world.submit_to("errands", target, None, &plan);
    assert_eq!(renewals(&world), 1);
}

#[test]
pub fn a_restart_renews_nothing_and_forgets_no_renewal() {
    let mut world = world(TreeLimits { model_calls: 2, ..Default::default() });
    let (thread, _) = world.open("desk", &word("plan", "p"));
    serve(&mut world, 2, 1);
    world.restart();
    let second = goes_on(&mut world, &thread);
    serve(&mut world, 2, 1);
    assert_eq!(world.result(second), "completed: answer(a)");
    let third = goes_on(&mut world, &thread);
    world.turn("thinker", 1, &[thinking()]);
    world.restart();
    world.turn("thinker", 1, &[thinking()]);
    assert_eq!(world.result(third), "failed: system-error budget-spent");
    assert_eq!(world.core.state().tree(&thread).unwrap().usage.model_calls, 6);
}

/// A journal of an old pump contains no records of renewals. In such a journal, wall time starts
/// again with each request, as it did for the old pump.
#[test]
fn an_older_journal_keeps_the_wall_time_of_its_latest_request() {
    let mut world = world(TreeLimits::default());
    let (thread, _) = world.open("desk", &word("plan", "p"));
    serve(&mut world, 1, 1);
    world.pass(Duration::from_secs(50));
    goes_on(&mut world, &thread);
    let begun = world.core.state().tree(&thread).unwrap().started;
    let older = world.records.iter().cloned().map(before_renewals);
    let contracts = std::sync::Arc::new(Contracts::new(contracts()).unwrap());
    let mut core = Core::new(contracts, TreeLimits::default(), Digest::ZERO);
    older.for_each(|record| core.replay(&record));
    assert_eq!(core.state().tree(&thread).unwrap().started, begun);
}

fn before_renewals(mut record: Record) -> Record {
    record.facts.retain(|fact| !matches!(fact, Fact::Renewed { .. }));
    for fact in &mut record.facts {
        if let Fact::Booted { core_version, .. } = fact {
            *core_version = 12;
        }
    }
    record
}
