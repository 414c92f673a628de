//! Bound threads: if the call that opened a bound thread is closed for any reason, the thread is
//! cancelled.

use std::time::Duration;

use expect_test::expect;
use organism::contract::{Contract, TreeLimits};
use organism::envelope::AttemptFailure;
use organism::ids::{CallId, ThreadId};
use organism::thread::Closing;

use super::world::{World, agent, client, core, fresh, listener, word};

fn contracts() -> Vec<Contract> {
    let mut spawner = listener("spawner", &["plan"], &["answer"], &["finder", "thinker"]);
    spawner.core = Some(["spawn-thread", "cancel-thread", "wait"].map(str::to_owned).to_vec());
    spawner.timeout = Duration::from_secs(5);
    spawner.attempts = 1;
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.timeout = Duration::from_secs(600);
    vec![
        client("desk", &["spawner", "thinker"]),
        spawner,
        agent("thinker", &["ask"], &["report"], &["finder", "spawner"]),
        finder,
    ]
}

fn spawn(label: &str, bound: &str, inner: &str) -> String {
    let inner = format!("<initial-payload>{inner}</initial-payload>");
    core("spawn-thread", &format!("suggested_sub_id=\"{label}\" {bound}"), &inner)
}

/// A call whose listener has spawned a bound thread and an unbound one, each with an open call.
fn spawned() -> (World, ThreadId, CallId) {
    let mut world = World::new(contracts());
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play(
        "spawner",
        &[
            spawn("bound", "bound=\"true\"", &word("look", "a")),
            spawn("free", "", &word("look", "b")),
        ],
    );
    (world, thread, call)
}

/// Asserts that the bound thread is cancelled on record, and that the unbound one continues.
fn ends_alone(world: &World, thread: &ThreadId) {
    let bound = world.transcript(&thread.child("bound"));
    assert!(bound.contains("thread-cancelled"), "{bound}");
    assert!(bound.contains("system-error cancelled [recorded]"), "{bound}");
    assert!(!bound.contains("in flight"), "{bound}");
    assert_eq!(
        world.withdrawn.iter().filter(|call| world.core.state().call(**call).is_some()).count(),
        0
    );
    let open = |label: &str| world.core.state().thread(&thread.child(label)).unwrap().open_calls;
    assert_eq!((open("bound"), open("free")), (0, 1));
}

type End = fn(&mut World, &ThreadId);

#[test]
fn a_bound_thread_ends_with_its_call_however_the_call_ends() {
    let ends: [(&str, End); 5] = [
        ("a reply", |world, _| {
            let own = world.delivery_for("spawner");
            world.answer(&own, &[word("answer", "done")]);
        }),
        ("an answer that cannot be used", |world, _| {
            let own = world.delivery_for("spawner");
            world.answer(&own, &["<nothing-known/>".to_owned()]);
        }),
        ("a failure", |world, _| {
            let own = world.delivery_for("spawner");
            world.fail(&own, AttemptFailure::Crashed { detail: "gone".to_owned() });
        }),
        ("its time-out", |world, _| world.pass(Duration::from_secs(6))),
        ("the death of the pump in its only attempt", |world, _| world.restart()),
    ];
    for (how, end) in ends {
        let (mut world, thread, call) = spawned();
        end(&mut world, &thread);
        assert_ne!(world.result(call), "none", "{how}");
        ends_alone(&world, &thread);
    }
}

#[test]
fn a_bound_thread_is_cancelled_on_record_and_its_result_is_late() {
    let (mut world, thread, _) = spawned();
    let own = world.delivery_for("spawner");
    world.answer(&own, &[word("answer", "done")]);
    expect![[r#"
        1 call spawner>finder look(a) [cancelled]
        2 system core>core thread-cancelled [recorded]
        3 system core>spawner system-error cancelled [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread.child("bound")));
    let parent = world.transcript(&thread);
    assert!(parent.contains("system core>spawner thread-result cancelled [late]"), "{parent}");
}

#[test]
fn a_late_outcome_of_a_cancelled_bound_thread_opens_no_call() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("bound", "bound=\"1\"", &word("ask", "a"))]);
    let at_work = world.delivery_for("thinker");
    let own = world.delivery_for("spawner");
    world.answer(&own, &[word("answer", "done")]);
    world.answer(&at_work, &[word("look", "late"), spawn("more", "", &word("look", "late"))]);
    assert!(world.handed().is_empty());
    assert_eq!(world.refusals(), ["thinker call-closed", "thinker call-closed"]);
    assert!(world.core.state().thread(&thread.child("bound").child("more")).is_none());
}

#[test]
fn everything_beneath_a_bound_thread_ends_with_it() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("bound", "bound=\"true\"", &word("ask", "a"))]);
    let own = world.delivery_for("spawner");
    // Beneath it: a call, an unbound thread, and a thread that is bound to its call.
    let thinker = world.delivery_for("thinker");
    world.answer(
        &thinker,
        &[
            word("look", "call"),
            spawn("free", "", &word("look", "free")),
            spawn("deep", "bound=\"true\"", &word("look", "deep")),
        ],
    );
    world.answer(&own, &[word("answer", "done")]);
    assert!(world.core.state().tree(&thread).unwrap().calls.is_empty());
    for label in ["free", "deep"] {
        let beneath = world.transcript(&thread.child("bound").child(label));
        assert!(beneath.contains("system-error cancelled [recorded]"), "{label}: {beneath}");
    }
}

#[test]
fn a_call_that_falls_with_its_caller_takes_its_bound_threads_along() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("ask", "a"));
    world.play("thinker", &[word("plan", "p"), core("set-timer", "after=\"PT1S\"", "")]);
    world.play("spawner", &[spawn("bound", "bound=\"true\"", &word("look", "a"))]);
    world.cancel(&thread);
    assert!(world.core.state().tree(&thread).unwrap().calls.is_empty());
    let bound = world.transcript(&thread.child("bound"));
    assert!(bound.contains("1 call spawner>finder look(a) [cancelled]"), "{bound}");
}

#[test]
fn a_bound_thread_in_which_nothing_is_open_gets_no_message() {
    let (mut world, thread, _) = spawned();
    let finder = world.delivery_for("finder");
    assert_eq!(finder.thread, thread.child("bound"));
    world.answer(&finder, &[word("found", "a")]);
    let own = world.delivery_for("spawner");
    world.answer(&own, &[word("answer", "done")]);
    let bound = world.transcript(&thread.child("bound"));
    assert!(!bound.contains("thread-cancelled"), "{bound}");
}

/// Law 5.34: the end of a bound thread is on record, also if no call was ever opened in it.
#[test]
fn a_bound_thread_without_a_call_is_cancelled_on_record() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("ask", "a"));
    let empty = |label: &str, bound: &str| {
        core("spawn-thread", &format!("suggested_sub_id=\"{label}\" {bound}"), "")
    };
    let threads = [empty("bound", "bound=\"true\""), empty("free", "")];
    world.play("thinker", &threads);
    world.play("thinker", &[word("report", "done")]);
    let bound = world.transcript(&thread.child("bound"));
    assert_eq!(bound, "1 system core>core thread-cancelled [recorded]\n");
    assert_eq!(world.transcript(&thread.child("free")), "");
    world.check_replay();
}

#[test]
pub fn a_bound_thread_survives_a_restart_and_still_ends_with_its_call() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("ask", "a"));
    world.play("thinker", &[spawn("bound", "bound=\"true\"", &word("look", "a"))]);
    world.restart();
    let own = world.delivery_for("thinker");
    assert_eq!(fresh(&own).len(), 1);
    world.answer(&own, &[word("report", "done")]);
    let bound = world.transcript(&thread.child("bound"));
    assert!(bound.contains("thread-cancelled"), "{bound}");
}

#[test]
fn bound_must_be_a_boolean() {
    let mut world = World::new(contracts());
    world.open("desk", &word("ask", "a"));
    world.play("thinker", &[spawn("bound", "bound=\"yes\"", &word("look", "a"))]);
    assert_eq!(fresh(&world.delivery("thinker")), ["huh schema-invalid"]);
}

/// A listener can cancel only descendants of its own thread. The answer is the same for the own
/// thread, an ancestor, a sibling, a thread of another tree, and an unknown id.
#[test]
fn cancelling_any_thread_but_a_descendant_answers_with_the_same_bytes() {
    let mut world = World::new(contracts());
    let (other, _) = world.open("desk", &word("ask", "other"));
    world.play("thinker", &[word("look", "stays")]);
    let (thread, _) = world.open("desk", &word("ask", "a"));
    let own = world.delivery_for("thinker");
    world.answer(
        &own,
        &[
            spawn("left", "", &word("plan", "l")),
            spawn("right", "", &word("look", "r")),
            core("wait", "", ""),
        ],
    );
    let left = world.delivery_for("spawner");
    assert_eq!(left.thread, thread.child("left"));
    let mut answers = Vec::new();
    let tried = [
        thread.to_string(),
        thread.child("left").to_string(),
        thread.child("right").to_string(),
        other.to_string(),
        "sess-nowhere0".to_owned(),
        "no id at all".to_owned(),
    ];
    let words: Vec<_> =
        tried.iter().map(|id| core("cancel-thread", &format!("thread_id=\"{id}\""), "")).collect();
    world.answer(&left, &words);
    world.pass(Duration::from_secs(1));
    let woken = world.delivery_for("spawner");
    for (message, id) in woken.messages.iter().skip(1).zip(&tried) {
        answers.push(message.payload.as_str().replace(id.as_str(), "ID"));
    }
    assert_eq!(answers.len(), tried.len());
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert!(answers[0].contains("code=\"unknown_thread\""), "{answers:?}");
    assert_eq!(world.refusals(), ["spawner unknown-thread"; 6]);
    assert_eq!(world.handed(), ["finder", "finder"], "nothing was cancelled");
}

#[test]
fn a_cancelled_descendant_ends_with_everything_beneath_it_and_its_result_comes_back() {
    let mut world = World::new(contracts());
    let (thread, call) = world.open("desk", &word("ask", "a"));
    world.play("thinker", &[spawn("left", "", &word("plan", "l"))]);
    let left = world.delivery_for("spawner");
    world.answer(&left, &[spawn("deep", "", &word("look", "d"))]);
    let cancel = core("cancel-thread", &format!("thread_id=\"{thread}.left\""), "");
    let own = world.delivery_for("thinker");
    world.answer(&own, &[cancel.clone(), core("wait", "", "")]);
    let woken = world.delivery_for("thinker");
    expect![[r#"["thread-cancelled", "waiting all", "thread-result cancelled"]"#]]
        .assert_eq(&format!("{:?}", fresh(&woken)));
    assert_eq!(world.core.state().tree(&thread).unwrap().calls.len(), 1);
    let beneath = world.transcript(&thread.child("left").child("deep"));
    assert!(beneath.contains("1 call spawner>finder look(d) [cancelled]"), "{beneath}");
    let left = world.transcript(&thread.child("left"));
    assert!(left.contains("system core>core thread-cancelled [recorded]"), "{left}");

    // A second cancellation: the thread has no open call, and gets no further message.
    world.answer(&woken, &[cancel]);
    let again = world.delivery_for("thinker");
    assert_eq!(fresh(&again), ["thread-cancelled"]);
    assert_eq!(world.transcript(&thread.child("left")), left);
    world.answer(&again, &[word("report", "done")]);
    assert_eq!(world.result(call), "completed: report(done)");
}

#[test]
fn a_thread_that_was_cancelled_takes_another_payload() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("ask", "a"));
    world.play("thinker", &[spawn("left", "", &word("look", "l"))]);
    let cancel = core("cancel-thread", &format!("thread_id=\"{thread}.left\""), "");
    let send = core("send-to-thread", &format!("thread_id=\"{thread}.left\""), &word("look", "m"));
    let own = world.delivery_for("thinker");
    world.answer(&own, &[cancel, send, core("wait", "", "")]);
    let orphan = world.delivery_for("finder");
    world.answer(&orphan, &[word("found", "late")]);
    let finder = world.delivery_for("finder");
    world.answer(&finder, &[word("found", "m")]);
    let woken = world.delivery_for("thinker");
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result completed");
}

#[test]
fn a_bound_thread_is_unknown_to_later_calls_once_its_call_has_closed() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("ask", "a"));
    world.play(
        "thinker",
        &[
            spawn("bound", "bound=\"true\"", &word("look", "a")),
            spawn("free", "", &word("look", "b")),
        ],
    );
    let own = world.delivery_for("thinker");
    world.answer(&own, &[word("report", "done")]);
    world.say("desk", &thread, &word("ask", "again"));
    let own = world.delivery_for("thinker");
    let send = |label: &str| {
        core("send-to-thread", &format!("thread_id=\"{thread}.{label}\""), &word("look", "c"))
    };
    let cancel = core("cancel-thread", &format!("thread_id=\"{thread}.bound\""), "");
    world.answer(&own, &[send("bound"), cancel, send("free")]);
    let woken = world.delivery_for("thinker");
    let shown = fresh(&woken);
    assert!(shown[0].starts_with("system-thread-error"), "{shown:?}");
    assert!(shown[1].starts_with("system-thread-error"), "{shown:?}");
    assert_eq!(shown[2], "ack");
}

/// A call in a bound thread ends as cancelled, even if a thread beneath the call ends first. In an
/// unbound thread, the call would continue with the result of the thread beneath.
#[test]
fn a_call_of_a_bound_thread_ends_as_cancelled_whatever_else_would_end_it() {
    let wall_time = Duration::from_secs(3600);
    let mut contracts = contracts();
    for contract in &mut contracts {
        contract.timeout = 100 * wall_time;
    }
    let limits = TreeLimits { wall_time, ..TreeLimits::default() };
    let mut world = World::with_limits(contracts, limits);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("spawner", &[spawn("bound", "bound=\"true\"", &word("ask", "a"))]);
    let thinker = world.delivery_for("thinker");
    world.answer(&thinker, &[spawn("c", "", &word("ask", "b")), core("wait", "", "")]);
    // The failure comes before the alarm of the tree fires.
    world.now = world.now.plus(2 * wall_time);
    let spawner = world.delivery_for("spawner");
    world.fail(&spawner, AttemptFailure::Refused { detail: "no".to_owned() });
    let bound = thread.child("bound");
    for thread in [&bound, &bound.child("c")] {
        let ended = world.core.state().thread(thread).unwrap().result;
        assert_eq!(ended, Some(Closing::Cancelled), "{}", world.transcript(thread));
    }
    world.check_replay();
}
