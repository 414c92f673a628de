//! Limits on threads that wait for timers: which of their messages count as in flight, and how many
//! calls of a client may have timers.

use std::time::Duration;

use organism::contract::Contract;
use organism::ids::CallId;
use organism::limits;
use organism::pump::core::{Event, Receipt, Target};
use uuid::Uuid;

use super::plain_core::PlainCore;
use super::world::{World, agent, client, core, fresh, listener, name, word};

fn timer(after: &str) -> String {
    core("set-timer", &format!("after=\"{after}\""), "")
}

fn wait(until: &str) -> String {
    core("wait", &format!("for=\"{until}\""), "")
}

/// Contracts of two clients, a listener that sets timers, and an agent that calls this listener.
fn contracts(backlog: usize) -> Vec<Contract> {
    let mut sleeper = listener("sleeper", &["look"], &["found"], &[]);
    sleeper.core = Some(vec!["set-timer".to_owned(), "cancel-timer".to_owned(), "wait".to_owned()]);
    sleeper.backlog = backlog;
    sleeper.concurrency = 100;
    vec![
        client("desk", &["sleeper", "thinker"]),
        client("other", &["sleeper", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["sleeper"]),
        listener("finder", &["ask"], &["report"], &[]),
        sleeper,
    ]
}

fn world() -> World {
    World::new(contracts(1_000))
}

/// Opens a thread whose call waits until its timer fires after five seconds.
fn open_waiting(world: &mut World) -> CallId {
    let (_, call) = world.open("desk", &word("look", "q"));
    world.play("sleeper", &[timer("PT5S"), wait("all")]);
    call
}

#[test]
pub fn messages_that_wait_for_a_timer_are_counted_apart_until_it_fires() {
    let mut world = world();
    let call = open_waiting(&mut world);
    let confirmations = 2;
    assert_eq!(world.core.waiting_messages(), confirmations);
    assert_eq!(world.core.calls_with_timers(), 1);

    world.restart();
    assert_eq!(world.core.waiting_messages(), confirmations, "counted again after a start");
    assert_eq!(world.core.calls_with_timers(), 1, "counted again after a start");

    world.pass(Duration::from_secs(6));
    assert_eq!(world.core.waiting_messages(), 0, "they are delivered");
    assert_eq!(world.core.calls_with_timers(), 0);
    assert_eq!(world.core.state().in_flight, confirmations + 1, "with the timer that fired");

    let woken = world.play("sleeper", &[word("found", "f")]);
    assert_eq!(fresh(&woken).len(), 3);
    assert_eq!(world.result(call), "completed: found(f)");
    assert_eq!(world.core.state().in_flight, 0);
}

#[test]
fn messages_of_a_cancelled_thread_and_of_a_cancelled_timer_no_longer_wait() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("look", "q"));
    world.play("sleeper", &[timer("PT5S"), wait("all")]);
    world.cancel(&thread);
    assert_eq!(world.core.waiting_messages(), 0);
    assert_eq!(world.core.calls_with_timers(), 0);

    world.open("desk", &word("look", "q"));
    world.play("sleeper", &[timer("PT5S")]);
    let set = world.delivery("sleeper");
    let confirmation = set.messages.last().unwrap().payload.as_str().to_owned();
    let (_, rest) = confirmation.split_once("timer_id=\"").unwrap();
    let (id, _) = rest.split_once('"').unwrap();
    world.answer(&set, &[core("cancel-timer", &format!("timer_id=\"{id}\""), "")]);
    assert_eq!(world.core.calls_with_timers(), 0);
}

/// If anything in a tree can continue, none of the tree's messages count as waiting.
#[test]
fn messages_wait_only_while_nothing_else_in_their_tree_can_continue() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("look", "q"));
    world.play("sleeper", &[timer("PT5S"), wait("all")]);
    assert_eq!(world.core.waiting_messages(), 2);

    world.say("desk", &thread, &word("plan", "p"));
    assert_eq!(world.core.waiting_messages(), 0, "the agent has work");

    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.core.waiting_messages(), 2);
}

#[test]
fn messages_beyond_those_that_a_waiting_call_may_keep_count_as_in_flight() {
    let mut world = world();
    world.open("desk", &word("look", "q"));
    let timers = (0..limits::WAITING_MESSAGES_PER_CALL_MAX).map(|_| timer("PT5S"));
    let payloads: Vec<_> = timers.chain([wait("all")]).collect();
    world.play("sleeper", &payloads);
    assert_eq!(world.core.state().in_flight, limits::WAITING_MESSAGES_PER_CALL_MAX + 1);
    assert_eq!(world.core.waiting_messages(), limits::WAITING_MESSAGES_PER_CALL_MAX);
}

/// Plays a turn in which an agent sends the payloads `before`, spawns a thread with `attributes`,
/// and waits for this thread. Then plays the listener in the thread, which waits for a timer.
fn spawn_waiting(world: &mut World, attributes: &str, before: &[String]) {
    world.open("desk", &word("plan", "p"));
    let attributes = format!("suggested_sub_id=\"a\" {attributes}");
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    let spawn = core("spawn-thread", &attributes, &inner);
    world.play("thinker", &[before, &[spawn, wait("all")]].concat());
    world.play("sleeper", &[timer("PT5S"), wait("all")]);
}

#[test]
fn messages_of_a_tree_with_a_time_limit_count_as_in_flight() {
    for (attributes, waiting) in [("", 4), ("timeout=\"PT10M\"", 0)] {
        let mut world = world();
        spawn_waiting(&mut world, attributes, &[]);
        assert_eq!(world.core.state().in_flight, 4);
        assert_eq!(world.core.waiting_messages(), waiting, "{attributes}");
    }
}

/// For each call that is held or has a timer, a limited number of messages count as waiting. Calls
/// without a timer do not raise this limit.
#[test]
fn calls_without_timers_leave_out_no_messages() {
    let mut world = world();
    let unknown = core("cancel-timer", &format!("timer_id=\"{}\"", Uuid::from_u128(7)), "");
    let errors = vec![unknown; limits::WAITING_MESSAGES_PER_CALL_MAX - 2];
    spawn_waiting(&mut world, "", &errors);
    assert_eq!(world.core.state().in_flight, limits::WAITING_MESSAGES_PER_CALL_MAX + 2);
    assert_eq!(world.core.waiting_messages(), limits::WAITING_MESSAGES_PER_CALL_MAX);
}

fn look(world: &mut World, who: &str) -> Receipt {
    world.submit_to(who, Target::New { suggested: None }, None, &word("look", "q"))
}

fn is_busy(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::Refused { refusal, .. } if refusal.rule.as_str() == "busy")
}

#[test]
fn a_client_whose_calls_wait_for_timers_is_busy_and_no_other_client_is() {
    let mut world = World::new(contracts(2));
    open_waiting(&mut world);
    open_waiting(&mut world);
    let Receipt::Refused { refusal, retry_after } = look(&mut world, "desk") else { panic!() };
    assert_eq!(refusal.rule.as_str(), "busy");
    assert!(refusal.message.contains("2 of your calls to sleeper"), "{}", refusal.message);
    assert!(retry_after.is_some());
    assert!(!is_busy(&look(&mut world, "other")), "the room of each client is its own");
    world.play("sleeper", &[word("found", "f")]);

    world.restart();
    assert!(is_busy(&look(&mut world, "desk")), "calls with timers are counted after a start");

    world.pass(Duration::from_secs(6));
    assert!(!is_busy(&look(&mut world, "desk")), "a timer that has fired gives its place back");
}

#[test]
fn calls_of_an_agent_that_wait_for_timers_count_for_the_client_of_its_tree() {
    let mut world = World::new(contracts(2));
    open_waiting(&mut world);
    open_waiting(&mut world);
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "one too many")]);
    assert_eq!(fresh(&world.delivery("thinker")), ["system-error busy"]);
}

#[test]
fn timers_of_trees_outside_memory_fire_after_a_start() {
    let mut world = world();
    let calls: Vec<_> = (0..5).map(|_| open_waiting(&mut world)).collect();
    world.restart();
    world.core.let_rest();
    assert_eq!(world.core.state().trees.len(), 1, "the tree of the organism");
    assert_eq!(world.core.waiting_messages(), 10);

    world.pass(Duration::from_secs(6));
    for _ in 0..5 {
        world.play("sleeper", &[word("found", "f")]);
    }
    for call in calls {
        assert_eq!(world.result(call), "completed: found(f)");
    }
}

/// Messages that wait for timers do not fill the backlog for other clients, also after a start.
#[test]
fn calls_that_wait_for_timers_leave_other_clients_their_room() {
    let world = World::new(contracts(limits::IN_FLIGHT_MAX));
    let request = world.gate.check(&name("desk"), word("look", "q").as_bytes());
    let other = world.gate.check(&name("other"), word("ask", "q").as_bytes());
    // Each call keeps as many messages as may wait.
    let timers = (1..limits::WAITING_MESSAGES_PER_CALL_MAX).map(|_| timer("P1D"));
    let payloads = timers.chain([wait("all")]);
    let payloads: Vec<_> =
        payloads.map(|text| world.gate.check(&name("sleeper"), text.as_bytes())).collect();

    let mut plain = PlainCore::of(&world);
    let threads = limits::IN_FLIGHT_MAX / limits::WAITING_MESSAGES_PER_CALL_MAX;
    for n in 0..threads {
        assert!(plain.submit(&world, "desk", &request).is_some(), "{n}");
        plain.answer(&world, payloads.clone());
    }
    assert_eq!(plain.core.state().in_flight, limits::IN_FLIGHT_MAX);
    assert!(plain.submit(&world, "other", &other).is_some());

    let timers = plain.timer_alarms;
    let epoch = plain.core.state().epoch + 1;
    let journal = plain.core.state().journal;
    plain
        .step(&world, Event::Boot { journal, epoch, detail: "test".to_owned(), blobs: Vec::new() });
    assert_eq!(plain.timer_alarms, 2 * timers, "each timer has an alarm after a start");
    assert!(plain.submit(&world, "other", &other).is_some(), "after a start");
}
