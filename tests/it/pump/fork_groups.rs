//! Forks with `first` groups: the recorded reply of one leg decides the group as in the source
//! (issue 18, 1.6).

use std::time::Duration;

use organism::contract::{Contract, Gather};
use organism::envelope::{AttemptFailure, MessageKind};
use organism::ids::{CallId, Position, ThreadId};
use organism::pump::core::{Alarm, ForkRuling};
use organism::thread::{PauseTarget, PauseVerb};

use super::world::{World, agent, client, core, fresh, listener, name, word};

/// An agent with three peers that accept the same payload: two plain listeners, and the agent
/// `wise` if `with_agent` is true, otherwise a third plain listener of this name.
fn world(with_agent: bool) -> World {
    let mut thinker = agent("thinker", &["plan"], &["answer"], &["ann", "bob", "wise"]);
    thinker.gather = Gather::First;
    let make: fn(&str, &[&str], &[&str], &[&str]) -> Contract =
        if with_agent { agent } else { listener };
    World::new(vec![
        client("desk", &["thinker"]),
        thinker,
        listener("ann", &["vote"], &["ballot"], &[]),
        listener("bob", &["vote"], &["ballot"], &[]),
        make("wise", &["vote"], &["ballot"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ])
}

/// Forks a thread at its first request, and opens the group in the fork. Returns the thread and the
/// first call of the fork.
fn with_open_group(world: &mut World, live: &[&str]) -> (ThreadId, CallId) {
    let (source, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("answer", "a")]);
    let ruling = world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), live);
    let ForkRuling::Forked { thread, calls } = ruling else { panic!("not forked") };
    world.play("thinker", &[word("vote", "?")]);
    (thread, calls[0])
}

fn is_held(world: &World, call: CallId) -> bool {
    world.core.state().call(call).is_some_and(|open| open.held.is_some())
}

/// A leg that the source cancelled has no recorded result. In the fork, the recorded reply of the
/// group decides, so this leg is neither held nor delivered. This is so whichever leg has the
/// reply, and even if the operator permits live calls to the listeners.
#[test]
pub fn a_leg_without_a_result_waits_for_the_recorded_reply_of_its_group() {
    for winner in 0..3 {
        for live in [&[][..], &["ann", "bob", "wise"]] {
            let mut world = world(false);
            let (fork, call) = with_open_group(&mut world, live);
            world.recall(None);
            world.restart();
            assert_eq!(world.recalls.len(), 3, "the source is searched again");

            for leg in 0..3 {
                let reply = word("ballot", "b");
                let found = (leg == winner).then_some((MessageKind::Reply, &*reply));
                world.recall_at(Some(Position(5)), found);
            }
            world.pass(Duration::from_secs(1));
            let woken = world.delivery("thinker");
            assert_eq!(fresh(&woken), ["ballot(b)"]);
            assert!(world.deliveries.is_empty(), "no leg is delivered: {:?}", world.handed());
            assert!(!world.transcript(&fork).contains("approval-requested"));
            world.answer(&woken, &[word("answer", "a")]);
            assert_eq!(world.result(call), "completed: answer(a)");
            world.check_replay();
        }
    }
}

/// After the recorded reply of one leg has decided the group, the other legs end. A recorded result
/// of another leg that would come later has no effect, and neither does a leg that was kept back.
#[test]
fn a_recorded_result_is_forgotten_with_the_call_of_its_leg() {
    let mut world = world(false);
    let (_, call) = with_open_group(&mut world, &[]);
    let ballot = word("ballot", "b");
    for position in [9, 5] {
        world.recall_at(Some(Position(position)), Some((MessageKind::Reply, &ballot)));
    }
    world.recall(None);
    world.pass(Duration::from_secs(1));
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    let is_recorded = |alarm: &Alarm| matches!(alarm, Alarm::Recorded { .. });
    assert!(!world.alarms.iter().any(|(_, alarm)| is_recorded(alarm)), "{:?}", world.alarms);
}

/// If no leg replied in the source, the legs without a recorded result start together, and not one
/// after the other.
#[test]
fn legs_without_results_start_together_when_no_recorded_reply_can_come() {
    let mut world = world(false);
    with_open_group(&mut world, &["bob", "wise"]);
    let fault = core("system-error", "code=\"timeout\" retry_allowed=\"true\"", "late");
    world.recall_at(Some(Position(5)), Some((MessageKind::System, &fault)));
    world.recall(None);
    assert!(world.deliveries.is_empty(), "a recorded result comes first");
    world.recall(None);
    world.pass(Duration::from_secs(1));
    let [bob, wise] = ["bob", "wise"].map(|who| world.delivery_for(who));
    world.answer(&wise, &[word("ballot", "w")]);
    assert_eq!(fresh(&world.delivery("thinker")), ["ballot(w)"]);
    assert!(world.withdrawn.contains(&bob.call));
    world.check_replay();
}

/// An agent of a group runs again in a fork. A leg without a recorded result waits until the agent
/// fails or waits for a person. While the agent is paused, the leg waits, too.
#[test]
fn a_leg_without_a_result_waits_for_an_agent_of_its_group_that_can_go_on() {
    let refused = AttemptFailure::Refused { detail: "no".to_owned() };
    let cases = ["replies", "is paused", "fails", "waits for a person"];
    for (number, case) in cases.into_iter().enumerate() {
        let mut world = world(true);
        let (_, call) = with_open_group(&mut world, &[]);
        let [ann, bob] = [world.recall(None), world.recall(None)].map(|order| order.call);
        world.pass(Duration::from_secs(1));
        assert!(!is_held(&world, ann) && !is_held(&world, bob), "the agent runs");

        let wise = world.delivery("wise");
        match case {
            "replies" => world.answer(&wise, &[word("ballot", "w")]),
            "is paused" => {
                let target = PauseTarget::Listener(name("wise"));
                world.pause(PauseVerb::Pause, &target);
                world.answer(&wise, &[word("look", "q")]);
                world.recall_at(Some(Position(5)), Some((MessageKind::Reply, &word("found", "f"))));
                world.pass(Duration::from_secs(1));
                assert!(!is_held(&world, ann), "a resume comes first");
                world.pause(PauseVerb::Resume, &target);
                world.play("wise", &[word("ballot", "w")]);
            }
            "fails" => world.fail(&wise, refused.clone()),
            _ => {
                world.answer(&wise, &[word("look", "q")]);
                let look = world.recall(None);
                assert!(is_held(&world, look.call));
            }
        }
        world.pass(Duration::from_secs(1));
        let may_start = number > 1;
        assert_eq!((is_held(&world, ann), is_held(&world, bob)), (may_start, may_start), "{case}");
        if !may_start {
            let woken = world.play("thinker", &[word("answer", "a")]);
            assert_eq!(fresh(&woken), ["ballot(w)"]);
            assert_eq!(world.result(call), "completed: answer(a)");
        }
        world.check_replay();
    }
}
