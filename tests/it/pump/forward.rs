//! `forward`: the result of a call becomes the caller's own result, and the caller is not woken.

use std::time::Duration;

use expect_test::expect;
use organism::contract::{Contract, Gather};
use organism::envelope::AttemptFailure;
use organism::pump::core::PauseRuling;
use organism::thread::{PauseTarget, PauseVerb};

use super::world::{World, client, fresh, listener, word};

fn forwarder(who: &str, word: &str, peer: &str) -> Contract {
    let mut contract = listener(who, &[word], &["count", "look", "ask"], &[peer]);
    contract.replies.retain(|name| &*name.local != word);
    contract.forward = true;
    contract
}

/// A client and a chain of four listeners: `first` gets the call `secret`, `second` the call
/// `look`, `third` the call `ask`, and `last` the call `count`. All listeners except `last` forward
/// the result of their call.
fn chain() -> World {
    World::new(vec![
        client("desk", &["first"]),
        forwarder("first", "secret", "second"),
        forwarder("second", "look", "third"),
        forwarder("third", "ask", "last"),
        listener("last", &["count"], &["counted"], &[]),
    ])
}

fn run_to_last(world: &mut World) {
    world.play("first", &[word("look", "1")]);
    world.play("second", &[word("ask", "2")]);
    world.play("third", &[word("count", "3")]);
}

#[test]
fn a_chain_of_three_gives_the_last_result_without_waking_anybody() {
    let mut world = chain();
    let (thread, call) = world.open("desk", &word("secret", "0"));
    run_to_last(&mut world);
    world.play("last", &[word("counted", "42")]);
    assert!(world.deliveries.is_empty(), "nobody is woken");
    assert_eq!(world.result(call), "completed: counted(42)");
    expect![[r#"
        1 call desk>first secret(0) [handled]
        2 call first>second look(1) [handled]
        3 call second>third ask(2) [handled]
        4 call third>last count(3) [handled]
        5 reply last>third counted(42) [handled]
        6 reply third>second counted(42) [handled]
        7 reply second>first counted(42) [handled]
        8 reply first>desk counted(42) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// Law 4: a fault reaches the outermost caller.
#[test]
fn a_fault_passes_through_a_chain() {
    let mut world = chain();
    let (_, call) = world.open("desk", &word("secret", "0"));
    run_to_last(&mut world);
    let last = world.delivery("last");
    world.fail(&last, AttemptFailure::Garbage { detail: "?".to_owned() });
    assert!(world.deliveries.is_empty());
    assert_eq!(world.result(call), "failed: system-error listener-failed");
}

/// A forwarded reply closes the listener's call. Other calls that the listener has opened are
/// cancelled, and replies to them are late.
#[test]
fn a_forwarded_result_cancels_the_calls_beside_it() {
    let mut first = forwarder("first", "secret", "ann");
    first.peers.push(super::world::name("bob"));
    let mut world = World::new(vec![
        client("desk", &["first"]),
        first,
        listener("ann", &["count"], &["counted"], &[]),
        listener("bob", &["vote"], &["ballot"], &[]),
    ]);
    let (thread, call) = world.open("desk", &word("secret", "0"));
    world.play("first", &[word("vote", "?"), word("count", "1")]);
    let bob = world.delivery_for("bob");
    world.play("ann", &[word("counted", "1")]);
    assert_eq!(world.result(call), "completed: counted(1)");
    assert_eq!(world.withdrawn, [bob.call]);
    world.answer(&bob, &[word("ballot", "b")]);
    expect![[r#"
        1 call desk>first secret(0) [handled]
        2 call first>bob vote(?) [cancelled]
        3 call first>ann count(1) [handled]
        4 reply ann>first counted(1) [handled]
        5 reply first>desk counted(1) [recorded]
        6 reply bob>first ballot(b) [late]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// A listener that forwards two payloads in one outcome gives its caller both results, in the order
/// of the calls, whichever comes first. An ordinary call beside them is cancelled at the end.
#[test]
fn two_payloads_that_are_forwarded_at_once_give_both_results_in_their_order() {
    for (fails, how) in [(false, "counted(2)"), (true, "system-error listener-failed")] {
        let mut first = forwarder("first", "secret", "ann");
        first.peers.push(super::world::name("bob"));
        let mut world = World::new(vec![
            client("desk", &["first"]),
            first,
            listener("ann", &["count"], &["counted"], &[]),
            listener("bob", &["vote"], &["ballot"], &[]),
        ]);
        let (_, call) = world.open("desk", &word("secret", "0"));
        world.play("first", &[word("count", "1"), word("vote", "?"), word("count", "2")]);
        world.delivery_for("ann");
        let two = world.delivery_for("ann");
        assert_eq!(fresh(&two), ["count(2)"]);
        if fails {
            world.fail(&two, AttemptFailure::Refused { detail: "no".to_owned() });
        } else {
            world.answer(&two, &[word("counted", "2")]);
        }
        assert_eq!(world.result(call), "none", "the other result is still to come");
        world.restart();
        let one = world.delivery_for("ann");
        world.answer(&one, &[word("counted", "1")]);
        assert_eq!(world.result(call), format!("completed: counted(1), {how}"));
        assert!(world.core.state().calls.is_empty());
    }
}

/// A client, the forwarder `first`, and its peers `ann` and `bob`, which both accept `count`.
fn forwarder_to_two(gather: Gather) -> World {
    let mut first = forwarder("first", "secret", "ann");
    first.peers.push(super::world::name("bob"));
    first.gather = gather;
    World::new(vec![
        client("desk", &["first"]),
        first,
        listener("ann", &["count"], &["counted"], &[]),
        listener("bob", &["count"], &["counted"], &[]),
    ])
}

#[test]
fn a_forwarded_call_without_a_reply_fails_with_one_peer_whichever_ends_last() {
    for fails_last in [true, false] {
        let mut world = forwarder_to_two(Gather::All);
        let (_, call) = world.open("desk", &word("secret", "0"));
        world.play("first", &[word("count", "1")]);
        let ann = world.delivery("ann");
        let bob = world.delivery("bob");
        if fails_last {
            world.answer(&ann, &[]);
        }
        world.fail(&bob, AttemptFailure::Refused { detail: "no".to_owned() });
        if !fails_last {
            world.answer(&ann, &[]);
        }

        let expected = "failed: ack, system-error listener-failed";
        assert_eq!(world.result(call), expected, "{fails_last}");
        world.check_replay();
    }
}

/// A call that is forwarded to several peers ends as cancelled if the calls to all peers were
/// cancelled. It ends as failed if a peer failed for another reason.
#[test]
fn a_forwarded_call_is_cancelled_with_all_its_peers() {
    for (fails, expected) in [
        (false, "cancelled: system-error cancelled, system-error cancelled"),
        (true, "failed: system-error listener-failed, system-error cancelled"),
    ] {
        let mut world = forwarder_to_two(Gather::All);
        let (_, call) = world.open("desk", &word("secret", "0"));
        world.play("first", &[word("count", "1")]);
        let ann = world.delivery("ann");
        if fails {
            world.fail(&ann, AttemptFailure::Refused { detail: "no".to_owned() });
        }

        let ruling = world.pause(PauseVerb::PauseAndCancel, &PauseTarget::All);
        assert_eq!(ruling, PauseRuling::Done { in_flight: if fails { 1 } else { 2 } });
        world.pass(Duration::ZERO);
        assert_eq!(world.result(call), expected);
        world.check_replay();
    }
}

#[test]
pub fn a_call_forwarded_to_a_group_gives_all_its_parts_at_once() {
    for (gather, expected) in [
        (Gather::All, "completed: system-error listener-failed, counted(b)"),
        (Gather::First, "completed: counted(b)"),
    ] {
        let mut world = forwarder_to_two(gather);
        let (_, call) = world.open("desk", &word("secret", "0"));
        world.play("first", &[word("count", "1")]);
        let (ann, bob) = (world.delivery("ann"), world.delivery("bob"));
        world.fail(&ann, AttemptFailure::Refused { detail: "no".to_owned() });
        assert_eq!(world.result(call), "none", "the other leg may still reply");
        world.answer(&bob, &[word("counted", "b")]);
        assert_eq!(world.result(call), expected);
        assert!(world.core.state().calls.is_empty());
    }
}

/// Rules 4.15 and 4.17: in a group, the result of a leg is labelled with the listener of the leg,
/// also if this listener has forwarded its call. The result names no peer of the listener and no
/// payload that only the peer accepts, because the caller may not know them.
#[test]
fn the_faults_of_a_forwarded_leg_name_the_leg() {
    for gather in [Gather::All, Gather::First] {
        let mut north = forwarder("north", "secret", "hidden");
        north.peers.push(super::world::name("other"));
        let mut boss = listener("boss", &["plan"], &["answer"], &["north", "south"]);
        boss.gather = gather;
        let mut world = World::new(vec![
            client("desk", &["boss"]),
            boss,
            north,
            listener("south", &["secret"], &["counted"], &[]),
            listener("hidden", &["count"], &["counted"], &[]),
            listener("other", &["count"], &["counted"], &[]),
        ]);
        world.open("desk", &word("plan", "p"));
        world.play("boss", &[word("secret", "0")]);
        world.play("north", &[word("count", "1")]);
        for who in ["hidden", "other", "south"] {
            let delivery = world.delivery_for(who);
            match who {
                "other" => world.answer(&delivery, &[]),
                _ => world.fail(&delivery, AttemptFailure::Refused { detail: "no".to_owned() }),
            }
        }

        let woken = world.delivery("boss");
        let expected = [
            "system-error listener-failed north",
            "ack north",
            "system-error listener-failed south",
        ];
        assert_eq!(fresh(&woken), expected, "{gather:?}");
        for part in &woken.messages[woken.messages.len() - 3..] {
            let text = part.payload.as_str();
            let is_known = !["hidden", "other", "count\""].iter().any(|word| text.contains(word));
            assert!(is_known, "{text}");
        }
        let fault = woken.messages[woken.messages.len() - 3].payload.as_str();
        assert!(fault.contains("about=\"secret\""), "{fault}");
        assert!(fault.contains("retry_allowed=\"false\""), "{fault}");
        let text = "north forwarded this call, which ended as listener-failed";
        assert!(fault.contains(text), "{fault}");
        world.check_replay();
    }
}
