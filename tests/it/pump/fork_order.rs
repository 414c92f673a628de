//! The order of recorded events in forks (issue 18, 1.6). Calls of a fork that are queued or wait
//! for a retry keep their place in the order of the source. The timers of a fork do so, too.

use std::time::Duration;

use organism::bus::Delivery;
use organism::contract::Contract;
use organism::envelope::{AttemptFailure, MessageKind, Turn};
use organism::ids::{CallId, Position, ThreadId};
use organism::pump::core::{Event, ForkRuling};
use organism::thread::{Fact, PauseTarget, PauseVerb};

use super::world::{World, agent, client, core, fresh, listener, name, word};

const MOMENT: Duration = Duration::from_millis(10);

/// An agent with two peers, `ann` and `bob`. Each peer takes one delivery at a time. The client may
/// call the agent and `ann`.
fn contracts() -> Vec<Contract> {
    let mut ann = agent("ann", &["look"], &["found"], &[]);
    let mut bob = agent("bob", &["vote"], &["ballot"], &[]);
    ann.concurrency = 1;
    bob.concurrency = 1;
    let boss = agent("boss", &["plan"], &["answer"], &["ann", "bob"]);
    vec![client("desk", &["boss", "ann"]), boss, ann, bob]
}

/// A world of [`contracts`], with a conversation in which the client has called the agent.
fn world() -> (World, ThreadId) {
    let mut world = World::new(contracts());
    let (source, _) = world.open("desk", &word("plan", "p"));
    world.play("boss", &[word("answer", "a")]);
    (world, source)
}

fn fork(world: &mut World, source: &ThreadId) -> ThreadId {
    let ruling = world.fork(source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
    let ForkRuling::Forked { thread, .. } = ruling else { panic!("not forked") };
    thread
}

/// Answers a delivery with a turn that the source has at `position`.
fn answer_recorded(world: &mut World, delivery: &Delivery, payload: &str, position: u64) {
    let turn = Turn { recorded: Some(Position(position)), ..Turn::default() };
    world.answer_turn(delivery, &[payload.to_owned()], Some(turn));
    world.pass(MOMENT);
}

/// Returns which of these calls are closed, in the order of the record.
fn closed(world: &World, calls: &[CallId]) -> Vec<CallId> {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let closed = facts.filter_map(|fact| match fact {
        Fact::CallClosed { call, .. } => Some(*call),
        _ => None,
    });
    closed.filter(|call| calls.contains(call)).collect()
}

/// Work of another thread delays one of two parallel calls in a fork. The recorded turn of the
/// other call waits, because the turn of the delayed call came first in the source.
#[test]
fn a_queued_call_of_a_fork_keeps_its_place_in_the_order_of_the_source() {
    let (mut world, source) = world();
    world.open("desk", &word("look", "busy"));
    let busy = world.delivery("ann");
    fork(&mut world, &source);
    world.play("boss", &[word("look", "l"), word("vote", "v")]);
    let bob = world.delivery("bob");
    answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
    assert_eq!(closed(&world, &[bob.call]), [], "the call to ann is queued");

    world.answer(&busy, &[word("found", "other")]);
    let ann = world.delivery("ann");
    world.fail(&ann, AttemptFailure::Crashed { detail: "!".to_owned() });
    world.pass(MOMENT);
    assert_eq!(closed(&world, &[bob.call]), [], "the call to ann waits for its retry");

    world.pass(Duration::from_secs(3));
    let ann = world.delivery("ann");
    answer_recorded(&mut world, &ann, &word("found", "f"), 5);
    assert_eq!(closed(&world, &[ann.call, bob.call]), [ann.call, bob.call]);
    world.check_replay();
}

/// A reload may remove an agent whose recorded turn waits. The turn takes effect at its place, and
/// the agent's call ends if the turn has not closed it.
#[test]
fn a_recorded_turn_of_a_removed_agent_leaves_no_call_open() {
    let (mut world, source) = world();
    fork(&mut world, &source);
    world.play("boss", &[word("look", "l"), word("vote", "v")]);
    let ann = world.delivery_for("ann");
    let bob = world.delivery_for("bob");
    answer_recorded(&mut world, &bob, &word("found", "not mine"), 7);
    assert_eq!(closed(&world, &[bob.call]), []);

    let mut rest = contracts();
    rest.retain(|contract| contract.name != name("bob"));
    rest[1].peers.retain(|peer| *peer != name("bob"));
    world.reload(rest);
    answer_recorded(&mut world, &ann, &word("found", "f"), 5);
    assert_eq!(closed(&world, &[ann.call, bob.call]), [ann.call, bob.call]);
    world.check_replay();
}

/// A recorded turn waits when a reload removes the listener that it calls. The turn is checked
/// again, so that the call is refused when the turn takes effect.
#[test]
fn a_recorded_turn_that_waits_is_checked_again_after_a_reload() {
    let (mut world, source) = world();
    let fork = fork(&mut world, &source);
    let inner = format!("<initial-payload>{}</initial-payload>", word("plan", "side"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);
    world.play("boss", &[word("look", "l"), spawn]);
    let ann = world.delivery_for("ann");
    let side = world.delivery_for("boss");
    answer_recorded(&mut world, &side, &word("vote", "v"), 7);
    assert!(world.core.has_waiting_turn(side.call, side.attempt), "ann works");

    let mut rest = contracts();
    rest.retain(|contract| contract.name != name("bob"));
    rest[1].peers.retain(|peer| *peer != name("bob"));
    world.reload(rest);
    answer_recorded(&mut world, &ann, &word("found", "f"), 5);
    world.play("boss", &[word("answer", "a")]);
    world.pass(MOMENT);
    assert!(!world.core.has_waiting_turn(side.call, side.attempt));
    assert_eq!(world.refusals(), ["boss not-in-vocabulary"]);

    let again = world.play("boss", &[word("answer", "b")]);
    assert_eq!((again.call, again.thread), (side.call, fork.child("side")));
    assert!(world.core.state().calls.is_empty());
    world.check_replay();
}

/// A recorded result waits when a reload takes its payload from the replies of the listener. The
/// call then has no recorded result: it is held.
#[test]
fn a_recorded_result_that_waits_is_checked_again_after_a_reload() {
    let with_replies = |replies: &[&str]| {
        vec![
            client("desk", &["boss"]),
            agent("boss", &["plan"], &["answer"], &["finder"]),
            listener("finder", &["look"], replies, &[]),
        ]
    };
    let mut world = World::new(with_replies(&["found"]));
    let (source, _) = world.open("desk", &word("plan", "p"));
    world.play("boss", &[word("answer", "a")]);
    fork(&mut world, &source);
    world.play("boss", &[word("look", "q"), word("look", "r")]);
    let found = word("found", "f");
    let first = world.recall_at(Some(Position(5)), Some((MessageKind::Reply, &found))).call;
    world.pass(MOMENT);
    let is_held = |world: &World, call| world.core.state().call(call).unwrap().held.is_some();
    assert!(!is_held(&world, first), "the other search goes on");

    world.reload(with_replies(&["counted"]));
    let second = world.recall_at(Some(Position(7)), None).call;
    world.pass(MOMENT);
    assert!(is_held(&world, first) && is_held(&world, second));
    assert!(world.deliveries.is_empty());
    world.check_replay();
}

/// A pause of a listener has its record outside the tree of the fork. The fork still goes on with
/// the turns that are on record.
#[test]
fn a_pause_of_a_listener_holds_up_no_turn_on_record() {
    let (mut world, source) = world();
    world.open("desk", &word("look", "busy"));
    world.delivery("ann");
    fork(&mut world, &source);
    world.play("boss", &[word("look", "l"), word("vote", "v")]);
    let bob = world.delivery("bob");
    answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
    assert_eq!(closed(&world, &[bob.call]), []);

    world.pause(PauseVerb::Pause, &PauseTarget::Listener(name("ann")));
    world.pass(MOMENT);
    assert_eq!(closed(&world, &[bob.call]), [bob.call]);
    world.check_replay();
}

/// Each fork has a recorded turn that holds the only place of one listener. Each fork also has a
/// call that is queued for the listener whose place the other fork holds. Neither fork waits for
/// the other.
#[test]
fn forks_whose_recorded_turns_hold_every_place_do_not_wait_for_each_other() {
    let (mut world, source) = world();
    let inner = format!("<initial-payload>{}</initial-payload>", word("plan", "side"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);

    fork(&mut world, &source);
    world.play("boss", &[word("look", "l"), spawn.clone()]);
    let ann = world.delivery_for("ann");
    let first_side = world.delivery_for("boss");
    fork(&mut world, &source);
    world.play("boss", &[word("vote", "v"), spawn]);
    let bob = world.delivery_for("bob");
    let second_side = world.delivery_for("boss");
    world.answer(&first_side, &[word("vote", "w")]);
    world.answer(&second_side, &[word("look", "m")]);
    assert!(world.deliveries.is_empty(), "both calls are queued");

    answer_recorded(&mut world, &ann, &word("found", "f"), 5);
    assert_eq!(closed(&world, &[ann.call]), [], "bob still works for the other fork");
    answer_recorded(&mut world, &bob, &word("ballot", "b"), 5);
    assert_eq!(closed(&world, &[ann.call, bob.call]).len(), 1, "one fork goes on");

    for _ in 0..32 {
        let Some(delivery) = world.deliveries.pop_front() else { break };
        let answer = match delivery.listener.as_str() {
            "ann" => word("found", "n"),
            "bob" => word("ballot", "c"),
            _ => word("answer", "a"),
        };
        world.answer(&delivery, &[answer]);
        world.pass(MOMENT);
    }
    assert_eq!(closed(&world, &[ann.call, bob.call]).len(), 2, "and so does the other one");
    assert!(world.core.state().calls.is_empty(), "all work of both forks is done");
    world.check_replay();
}

/// A timer fires in a fork before or after a recorded turn as it did in the source, whatever its
/// time is. A timer without a recorded firing fires when nothing else can go on. A restart does not
/// change the order.
#[test]
pub fn a_timer_of_a_fork_fires_where_it_fired_in_the_source() {
    for restarts in [false, true] {
        let (mut world, source) = world();
        let fork = fork(&mut world, &source);
        world.fired_in_source = vec![("second", Position(9)), ("first", Position(5))];
        let wait = core("wait", "for=\"any\"", "");
        let inner = format!("<initial-payload>{}</initial-payload>", word("vote", "v"));
        let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);
        let set = [timer("second", "PT2M"), timer("none", "PT1M"), timer("first", "PT9M")];
        world.play("boss", &[&[spawn][..], &set, std::slice::from_ref(&wait)].concat());
        if restarts {
            world.restart();
            world.pass(Duration::from_secs(3));
        }

        world.pass(MOMENT);
        let bob = world.delivery_for("bob");
        assert!(!world.transcript(&fork).contains("timer-fired"), "bob works");
        answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
        for expected in ["timer-fired first", "thread-result", "timer-fired second"] {
            let boss = world.delivery("boss");
            let last = fresh(&boss).pop().unwrap();
            assert!(last.starts_with(expected), "{expected}: {last}");
            world.pass(MOMENT);
            assert!(world.deliveries.is_empty(), "the rest waits for the turn after {expected}");
            world.answer(&boss, std::slice::from_ref(&wait));
            world.pass(MOMENT);
        }
        assert_eq!(fresh(&world.delivery("boss")).pop().unwrap(), "timer-fired none");
        world.check_replay();
    }
}

fn timer(label: &str, after: &str) -> String {
    core("set-timer", &format!("after=\"{after}\" label=\"{label}\""), "")
}

/// Returns the kinds of the messages of timers and of results in a thread, in order.
fn arrived(world: &World, thread: &ThreadId) -> Vec<&'static str> {
    let transcript = world.transcript(thread);
    let kinds = ["timer-fired", "ballot", "found"];
    let arrived = |line: &str| kinds.into_iter().find(|kind| line.contains(kind));
    transcript.lines().filter_map(arrived).collect()
}

/// Two forks that begin at the same turn take over the same timer. For each fork, the source is
/// searched for the firing of the timer. Each fork gets its firing, whichever search ends first.
#[test]
fn forks_with_the_same_timer_each_get_its_firing() {
    for last_first in [false, true] {
        let (mut world, _) = world();
        let (source, _) = world.open("desk", &word("plan", "q"));
        world.play("boss", &[timer("soon", "PT3M"), word("look", "l")]);
        world.play("ann", &[word("found", "f")]);
        let boss = world.delivery("boss");
        let place = (boss.position, Some(boss.call));
        world.answer(&boss, &[word("answer", "a")]);

        world.fired_in_source = vec![("soon", Position(5))];
        world.holds_timer_searches = true;
        let wait = core("wait", "for=\"any\"", "");
        let mut forks = Vec::new();
        for call in [word("vote", "v"), word("look", "m")] {
            let place = (&source, place.0, place.1);
            let ruling = world.fork_at(place, ("desk", None), &[]);
            let ForkRuling::Forked { thread, .. } = ruling else { panic!("not forked") };
            forks.push(thread);
            let boss = world.delivery_for("boss");
            world.answer(&boss, &[call, wait.clone()]);
        }
        let (bob, ann) = (world.delivery_for("bob"), world.delivery_for("ann"));
        answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
        answer_recorded(&mut world, &ann, &word("found", "g"), 7);
        assert!(world.deliveries.is_empty(), "the searches are in progress");
        assert_eq!(world.timer_searches.len(), 2);

        world.end_timer_search(usize::from(last_first));
        world.end_timer_search(0);
        world.pass(MOMENT);
        for (fork, result) in forks.iter().zip(["ballot", "found"]) {
            let arrived = arrived(&world, fork);
            assert!(arrived.ends_with(&["timer-fired", result]), "{last_first}: {arrived:?}");
            world.delivery("boss");
        }
        world.check_replay();
    }
}

/// A pump that drains takes the recorded events of a fork, including timers, in the order of the
/// source. If a search of the source may still find an earlier event, the pump waits for this
/// search.
#[test]
fn a_drain_keeps_the_order_of_the_timers_of_a_fork() {
    for searches in [false, true] {
        let (mut world, source) = world();
        let fork = fork(&mut world, &source);
        world.fired_in_source = vec![("first", Position(5))];
        world.holds_timer_searches = searches;
        let set = timer("first", "PT9M");
        let wait = core("wait", "for=\"any\"", "");
        world.play("boss", &[word("vote", "v"), word("look", "l"), set, wait]);
        let bob = world.delivery_for("bob");
        answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
        assert!(arrived(&world, &fork).is_empty(), "ann works");

        world.step(Event::Shutdown { reason: "test".to_owned() });
        world.pass(MOMENT);
        if searches {
            assert!(arrived(&world, &fork).is_empty(), "the search is in progress");
            world.end_timer_search(0);
            world.pass(MOMENT);
        }
        assert_eq!(arrived(&world, &fork), ["timer-fired", "ballot"]);
        world.holds_timer_searches = false;
        world.restart();
        world.pass(Duration::from_secs(3));
        let ann = world.delivery("ann");
        world.answer(&ann, &[word("found", "f")]);
        assert_eq!(arrived(&world, &fork), ["timer-fired", "ballot", "found"]);
        world.delivery("boss");
        world.check_replay();
    }
}

/// A pump that drains from its boot on takes no recorded event of a fork before work that comes
/// first in the source. This work goes on at the next start.
#[test]
fn a_drain_from_the_boot_on_keeps_the_order_of_a_fork() {
    let (mut world, source) = world();
    let fork = fork(&mut world, &source);
    world.fired_in_source = vec![("first", Position(5))];
    let wait = core("wait", "for=\"any\"", "");
    world.play("boss", &[word("vote", "v"), word("look", "l"), timer("first", "PT9M"), wait]);
    world.deliveries.clear();

    world.restart_draining();
    world.pass(Duration::from_secs(3));
    assert!(world.deliveries.is_empty(), "the pump drains");
    assert!(arrived(&world, &fork).is_empty(), "the work of ann comes first");

    world.restart();
    world.pass(Duration::from_secs(3));
    let bob = world.delivery_for("bob");
    let ann = world.delivery_for("ann");
    answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
    answer_recorded(&mut world, &ann, &word("found", "f"), 3);
    assert_eq!(arrived(&world, &fork), ["found", "timer-fired", "ballot"]);
    world.delivery("boss");
    world.check_replay();
}

/// A recorded turn does not wait for the timer of a paused call. Otherwise the turn would hold a
/// place at its listener during the pause, and delay other trees. The timer fires at the resume.
#[test]
fn a_timer_of_a_paused_call_fires_at_the_resume_and_holds_up_nothing() {
    for restarts in [false, true] {
        let (mut world, source) = world();
        let fork = fork(&mut world, &source);
        world.fired_in_source = vec![("first", Position(5))];
        let wait = core("wait", "for=\"any\"", "");
        world.play("boss", &[word("vote", "v"), timer("first", "PT9M"), wait]);
        let bob = world.delivery_for("bob");
        let boss = PauseTarget::Listener(name("boss"));
        world.pause(PauseVerb::Pause, &boss);
        answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
        world.pass(MOMENT);
        assert_eq!(arrived(&world, &fork), ["ballot"], "the turn of bob keeps no place");
        if restarts {
            world.restart();
        }
        world.pass(Duration::from_secs(3600));
        assert_eq!(arrived(&world, &fork), ["ballot"], "boss is paused");

        world.pause(PauseVerb::Resume, &boss);
        world.pass(MOMENT);
        assert_eq!(arrived(&world, &fork), ["ballot", "timer-fired"]);
        world.delivery("boss");
        world.check_replay();
    }
}
