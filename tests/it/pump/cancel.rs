//! Cancellation of a thread with everything beneath it, and shutdown.

use std::time::Duration;

use expect_test::expect;
use organism::contract::{Contract, TreeLimits};
use organism::ids::ThreadId;
use organism::pump::core::{Event, Receipt, Target};
use organism::thread::Closing;

use super::world::{World, agent, client, core, fresh, listener, word};

fn contracts() -> Vec<Contract> {
    let mut contracts = vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "writer"]),
        agent("writer", &["ask"], &["report"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ];
    for contract in &mut contracts {
        contract.timeout = Duration::from_secs(100 * 3600);
    }
    contracts
}

fn world() -> World {
    World::new(contracts())
}

fn spawn(label: &str, inner: &str) -> String {
    let inner = format!("<initial-payload>{inner}</initial-payload>");
    core("spawn-thread", &format!("suggested_sub_id=\"{label}\""), &inner)
}

#[test]
fn cancelling_a_child_tells_its_spawner_and_what_was_nested_just_falls() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let spawns = [spawn("a", &word("ask", "w")), spawn("b", &word("ask", "w"))];
    world.play("thinker", &[&spawns[..], &[core("wait", "", "")]].concat());
    world.play("writer", &[word("look", "q")]);
    let b = world.delivery("writer");
    let finder = world.delivery("finder");
    world.cancel(&thread.child("a"));
    assert_eq!(world.withdrawn, [finder.call]);
    world.answer(&finder, &[word("found", "late")]);
    world.answer(&b, &[word("report", "b")]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    let news: Vec<_> = fresh(&woken).into_iter().skip(3).collect();
    assert_eq!(news, ["thread-result cancelled", "thread-result completed"]);
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call thinker>writer ask(w) [handled]
        2 call writer>finder look(q) [cancelled]
        3 system core>core operator-action [recorded]
        4 system core>thinker system-error cancelled [recorded]
        5 reply finder>writer found(late) [late]
    "#]]
    .assert_eq(&world.transcript(&thread.child("a")));
}

/// A cancelled call ends as cancelled, even if the time of its tree is over. It does not continue
/// with the result of the thread beneath it, which is cancelled as well.
#[test]
fn a_cancelled_call_ends_as_cancelled_whatever_else_would_end_it() {
    let wall_time = Duration::from_secs(3600);
    let mut world =
        World::with_limits(contracts(), TreeLimits { wall_time, ..TreeLimits::default() });
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("a", &word("ask", "w")), core("wait", "", "")]);
    world.play("writer", &[spawn("b", &word("ask", "w")), core("wait", "", "")]);
    // The cancellation comes before the alarm of the tree fires.
    world.now = world.now.plus(2 * wall_time);
    let a = thread.child("a");
    world.cancel(&a);
    for thread in [&a, &a.child("b")] {
        let ended = world.core.state().thread(thread).unwrap().result;
        assert_eq!(ended, Some(Closing::Cancelled), "{}", world.transcript(thread));
    }
    let root = world.transcript(&thread);
    assert!(root.contains("thread-result cancelled"), "{root}");
    world.check_replay();
}

#[test]
pub fn cancelling_a_root_takes_the_whole_tree_and_tells_the_client() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let timer = core("set-timer", "after=\"PT9S\"", "");
    world.play("thinker", &[timer, spawn("a", &word("ask", "w")), core("wait", "", "")]);
    let (other, _) = world.open("desk", &word("plan", "untouched"));
    world.cancel(&thread);
    assert_eq!(world.result(call), "cancelled: system-error cancelled");
    let state = world.core.state();
    assert!(state.tree(&thread).unwrap().calls.is_empty());
    assert!(state.tree(&thread).unwrap().timers.is_empty());
    assert_eq!(state.tree(&other).unwrap().calls.len(), 1);
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>core set-timer [handled]
        3 system core>thinker timer-set [cancelled]
        4 call thinker>core spawn-thread [handled]
        5 system core>thinker thread-spawned sess-htzzwjll.a [cancelled]
        6 call thinker>core wait [handled]
        7 system core>thinker waiting all [cancelled]
        8 system core>core operator-action [recorded]
        9 system core>thinker thread-result cancelled [cancelled]
        10 system core>desk system-error cancelled [recorded]
        11 system core>thinker timer-cancelled [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
    expect![[r#"
        1 call thinker>writer ask(w) [cancelled]
        2 system core>thinker system-error cancelled [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread.child("a")));
    world.say("desk", &thread, &word("plan", "again"));
    assert_eq!(world.handed(), ["writer", "thinker", "thinker"], "a cancelled thread goes on");
}

#[test]
fn cancelling_what_is_not_there_records_nothing() {
    let mut world = world();
    let records = world.records.len();
    for id in ["sess-nothere1", "sess-nothere1.child"] {
        world.cancel(&ThreadId::parse(id).unwrap());
    }
    assert_eq!(world.records.len(), records);
}

#[test]
fn cancelling_the_thread_of_the_organism_is_refused_on_the_record() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    let organism = ThreadId::organism();
    let refusal = world.cancel_as(&organism, None).unwrap_err();
    assert_eq!(refusal.rule.to_string(), "not-waiting");
    assert!(refusal.message.contains("records of the organism itself"), "{}", refusal.message);
    assert_eq!(world.refusals(), ["operator not-waiting"]);
    assert_eq!(world.result(call), "none");
    world.check_replay();
}

// Law 3 (b): the refusal is recorded, and takes no `seq` in the thread.
#[test]
fn cancelling_what_has_ended_is_refused_on_the_record_and_adds_no_message() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    let before = world.transcript(&thread);

    let refusal = world.cancel_as(&thread, None).unwrap_err();
    assert_eq!(refusal.rule.to_string(), "not-waiting");
    assert!(refusal.message.contains("all of it has ended already"), "{}", refusal.message);
    let refused = format!("{before}- refused operator not-waiting\n");
    assert_eq!(world.transcript(&thread), refused);
    assert_eq!(world.refusals(), ["operator not-waiting"]);

    world.say("desk", &thread, &word("plan", "again"));
    assert_eq!(world.cancel_as(&thread, None).map_err(|refusal| refusal.message), Ok(()));
}

#[test]
fn shutting_down_hands_nothing_over_and_refuses_what_is_new() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    let delivery = world.delivery("thinker");
    world.step(Event::Shutdown { reason: "update".to_owned() });
    let target = Target::New { suggested: None };
    let receipt = world.submit_to("desk", target, None, &word("plan", "new"));
    let Receipt::Refused { refusal, .. } = receipt else { panic!("{receipt:?}") };
    assert_eq!(refusal.rule.to_string(), "draining");
    world.answer(&delivery, &[word("look", "q")]);
    assert!(world.deliveries.is_empty(), "what waits is on record, for the next start");
    assert_eq!(world.core.handed_over(), 0);
    world.restart();
    world.play("finder", &[word("found", "f")]);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}
