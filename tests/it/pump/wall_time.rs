//! Wall time of a tree does not count while the tree waits only for people.

use std::time::Duration;

use organism::contract::{Approval, Contract, Role, TreeLimits};
use organism::ids::{CallId, Digest, ThreadId};
use organism::pump::core::Core;
use organism::thread::Fact;

use super::world::{World, agent, client, core, listener, name, names, word};

const HOUR: Duration = Duration::from_secs(3600);

/// A world whose trees may take `wall_time`. The agent `thinker` may call the person `boss` and the
/// listeners `counter` and `runner`. Calls to `runner` need an approval.
fn world_with(wall_time: Duration) -> World {
    let mut boss = Contract::new(name("boss"), Role::Human);
    (boss.accepts, boss.replies) = (names(&["ask"]), names(&["report"]));
    let mut runner = listener("runner", &["run"], &["ran"], &[]);
    runner.approval = Approval::Always;
    let mut contracts = vec![
        client("desk", &["thinker", "asker"]),
        listener("asker", &["vote"], &["ballot"], &["boss"]),
        agent("thinker", &["plan", "look"], &["answer", "found"], &["boss", "counter", "runner"]),
        listener("counter", &["count"], &["counted"], &[]),
        boss,
        runner,
    ];
    for contract in &mut contracts {
        contract.timeout = 1_000 * HOUR;
    }
    World::with_limits(contracts, TreeLimits { wall_time, ..TreeLimits::default() })
}

fn world() -> World {
    world_with(Duration::from_secs(24 * 3600))
}

/// Lets an hour pass. Returns the number of hours that the tree has used of its wall-time limit by
/// then.
fn hours_after(world: &mut World, thread: &ThreadId) -> u64 {
    world.pass(HOUR);
    let worked = world.core.state().tree(thread).unwrap().worked(world.now);
    (worked.as_secs() + 60) / HOUR.as_secs()
}

fn held(world: &World) -> CallId {
    let calls = world.core.state().trees.values().flat_map(|tree| tree.calls.values());
    calls.filter(|call| call.held.is_some()).map(|call| call.id).next().unwrap()
}

#[test]
fn wall_time_stops_while_a_tree_waits_only_for_people() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "which"), word("run", "x")]);
    assert_eq!(hours_after(&mut world, &thread), 0);

    world.restart();
    assert_eq!(hours_after(&mut world, &thread), 0);

    let question = world.core.state().tree(&thread).unwrap().calls.values();
    let question = question.filter(|call| call.callee == name("boss")).map(|call| call.id).next();
    world.answer_question(question.unwrap(), "boss", &word("report", "left")).unwrap();
    assert_eq!(hours_after(&mut world, &thread), 0, "the approval is missing");

    let missing = held(&world);
    world.refuse(missing, "no").unwrap();
    assert_eq!(hours_after(&mut world, &thread), 1, "the agent has its turn");
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    world.check_replay();
}

#[test]
fn wall_time_runs_while_any_listener_of_the_tree_is_busy() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "which"), word("count", "n")]);
    assert_eq!(hours_after(&mut world, &thread), 1);

    world.play("counter", &[word("counted", "n")]);
    assert_eq!(hours_after(&mut world, &thread), 1, "only the person is missing");
    let question = held(&world);
    world.answer_question(question, "boss", &word("report", "left")).unwrap();
    assert_eq!(hours_after(&mut world, &thread), 2);
    world.check_replay();
}

#[test]
fn wall_time_stops_while_a_call_waits_for_a_thread_that_waits_for_a_person() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    world.play("thinker", &[core("spawn-thread", "", &inner), core("wait", "", "")]);
    assert_eq!(hours_after(&mut world, &thread), 1, "the child has its turn");

    world.play("thinker", &[word("ask", "which")]);
    assert_eq!(hours_after(&mut world, &thread), 1);
    let question = held(&world);
    world.answer_question(question, "boss", &word("report", "left")).unwrap();
    assert_eq!(hours_after(&mut world, &thread), 2);
    world.check_replay();
}

#[test]
pub fn wall_time_runs_while_a_call_waits_for_a_timer_too() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    let timer = core("set-timer", "after=\"PT9H\"", "");
    let outcome = [core("spawn-thread", "", &inner), timer, core("wait", "for=\"any\"", "")];
    world.play("thinker", &outcome);
    world.play("thinker", &[word("ask", "which")]);
    assert_eq!(hours_after(&mut world, &thread), 1);
    world.check_replay();
}

#[test]
fn a_tree_whose_time_people_took_still_has_it() {
    let mut world = world_with(2 * HOUR);
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "which")]);
    world.pass(100 * HOUR);
    let question = held(&world);
    world.answer_question(question, "boss", &word("report", "left")).unwrap();
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");

    let mut world = world_with(2 * HOUR);
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "which"), word("count", "n")]);
    world.pass(Duration::from_secs(20));
    let count = world.delivery("counter");
    world.answer(&count, &[word("counted", "n")]);
    let question = held(&world);
    world.pass(100 * HOUR);
    world.answer_question(question, "boss", &word("report", "left")).unwrap();
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

/// Rule 5.24: the wall time of a tree ends its open calls, whatever they wait for.
#[test]
fn the_wall_time_of_a_tree_ends_a_call_with_a_delivery_in_progress() {
    let mut world = world_with(2 * HOUR);
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("count", "n")]);
    world.pass(HOUR);
    assert_eq!(world.result(call), "none");

    world.restart();
    world.pass(HOUR + Duration::from_secs(60));
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    assert!(world.core.state().tree(&thread).unwrap().calls.is_empty());
    assert_eq!(world.core.next_deadline(), None);
    world.check_replay();
}

#[test]
fn the_wall_time_of_a_tree_ends_a_wait_for_a_timer() {
    let mut world = world_with(2 * HOUR);
    let (_, call) = world.open("desk", &word("plan", "p"));
    let timer = core("set-timer", "after=\"PT9H\"", "");
    world.play("thinker", &[timer, core("wait", "", "")]);
    world.pass(HOUR);
    assert_eq!(world.result(call), "none");
    world.pass(2 * HOUR);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    world.check_replay();
}

/// While a tree waits for a person, its wall time stands still. So the moment at which the wall
/// time is used up moves.
#[test]
fn the_end_of_a_tree_s_wall_time_moves_while_the_tree_waits_for_a_person() {
    let mut world = world_with(2 * HOUR);
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.pass(HOUR);
    world.play("thinker", &[word("ask", "which")]);
    world.pass(5 * HOUR);
    let question = held(&world);
    world.answer_question(question, "boss", &word("report", "left")).unwrap();
    world.pass(HOUR / 2);
    assert_eq!(world.result(call), "none");
    world.pass(HOUR);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    world.check_replay();
}

/// A spawned thread runs on after the call that spawned it, within the wall time of the tree.
#[test]
fn the_wall_time_of_a_tree_ends_a_thread_whose_spawner_has_replied() {
    let mut world = world_with(2 * HOUR);
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    world.play("thinker", &[core("spawn-thread", "suggested_sub_id=\"a\"", &inner)]);
    let turn = world.deliveries.iter().find(|own| own.thread == thread).unwrap().clone();
    world.answer(&turn, &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    assert!(!world.core.state().tree(&thread).unwrap().calls.is_empty());

    world.pass(3 * HOUR);
    let child = world.transcript(&thread.child("a"));
    assert!(child.contains("system-error budget-spent"), "{child}");
    assert!(world.core.state().tree(&thread).unwrap().calls.is_empty());
    world.check_replay();
}

/// An agent's second call in a thread waits for the agent's first call, which waits for a person.
/// Wall time stands still meanwhile.
#[test]
fn wall_time_stands_still_while_a_call_waits_for_another_call_of_its_agent() {
    let mut world = world_with(2 * HOUR);
    let (thread, first) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "which")]);
    let second = world.say("desk", &thread, &word("plan", "q"));
    assert_eq!(hours_after(&mut world, &thread), 0);

    world.restart();
    world.pass(100 * HOUR);
    let question = held(&world);
    world.answer_question(question, "boss", &word("report", "left")).unwrap();
    world.play("thinker", &[word("answer", "a")]);
    world.play("thinker", &[word("answer", "b")]);
    assert_eq!(world.result(first), "completed: answer(a)");
    assert_eq!(world.result(second), "completed: answer(b)");
    world.check_replay();
}

#[test]
fn wall_time_runs_while_an_agent_has_a_call_in_another_thread() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    world.play("thinker", &[core("spawn-thread", "", &inner), word("ask", "which")]);
    assert_eq!(hours_after(&mut world, &thread), 1);
    world.play("thinker", &[word("found", "f")]);
    assert_eq!(hours_after(&mut world, &thread), 1);
    world.check_replay();
}

#[test]
fn wall_time_runs_while_a_listener_that_is_not_serial_has_its_second_call() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("vote", "p"));
    world.play("asker", &[word("ask", "which")]);
    world.say("desk", &thread, &word("vote", "q"));
    assert_eq!(hours_after(&mut world, &thread), 1);
    world.check_replay();
}

/// A call that waits for a listener with one place is handed over in the record of another tree,
/// whose call had the place. The wall time of its own tree runs from then on.
#[test]
fn wall_time_runs_after_a_hand_over_in_the_record_of_another_tree() {
    let mut boss = Contract::new(name("boss"), Role::Human);
    boss.accepts = names(&["ask"]);
    boss.replies = names(&["report"]);
    let mut asker = listener("asker", &["vote"], &["ballot"], &["boss"]);
    asker.timeout = 1_000 * HOUR;
    asker.concurrency = 1;
    let limits = TreeLimits { wall_time: 3 * HOUR, ..TreeLimits::default() };
    let contracts = vec![client("desk", &["asker"]), asker, boss];
    let mut world = World::with_limits(contracts, limits);

    let (thread, _) = world.open("desk", &word("vote", "p"));
    world.play("asker", &[word("ask", "which")]);
    world.open("desk", &word("vote", "other tree"));
    let other = world.delivery("asker");
    let second = world.say("desk", &thread, &word("vote", "q"));
    assert!(world.deliveries.is_empty(), "the other tree has the place");
    world.answer(&other, &[word("ballot", "b")]);
    let delivery = world.delivery("asker");
    assert_eq!(delivery.call, second);
    let later = world.now.plus(HOUR);
    let worked = |core: &Core| core.state().tree(&thread).unwrap().worked(later).as_secs() / 3600;
    assert_eq!(worked(&rebuilt_as(&world, 70)), 1);
    assert_eq!(worked(&rebuilt_as(&world, 69)), 0, "the rule of an older journal");

    assert_eq!(hours_after(&mut world, &thread), 1);
    assert_eq!(world.result(second), "none");
    world.pass(3 * HOUR);
    assert_eq!(world.result(second), "failed: system-error budget-spent");
    world.check_replay();
}

/// Returns the core that the records of `world` give if a core of this version has written them.
fn rebuilt_as(world: &World, version: u32) -> Core {
    let mut core = Core::new(world.gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    for mut record in world.records.clone() {
        for fact in &mut record.facts {
            if let Fact::Booted { core_version, .. } = fact {
                *core_version = version;
            }
        }
        core.replay(&record);
    }
    core
}

#[test]
fn an_older_journal_keeps_its_rule_of_wall_time() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "which")]);
    world.say("desk", &thread, &word("plan", "q"));
    let now = world.now.plus(HOUR);
    let worked = |core: &Core| core.state().tree(&thread).unwrap().worked(now).as_secs() / 3600;
    assert_eq!(worked(&world.core), 0);

    let older = rebuilt_as(&world, 28);
    assert_eq!(worked(&older), 1);
}
