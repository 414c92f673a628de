//! Groups: if several peers accept one payload name, a payload of this name opens one call with a
//! leg to each of these peers.

use std::time::Duration;

use expect_test::expect;
use organism::bus::Delivery;
use organism::contract::{Contract, Gather};
use organism::envelope::{AttemptFailure, Message};
use organism::ids::{CallId, ThreadId};
use organism::pump::core::{Receipt, Target};
use organism::thread::client_result;

use super::world::{World, agent, client, core, fresh, gist, listener, name, word};

fn contracts(gather: Gather) -> Vec<Contract> {
    let mut thinker = agent("thinker", &["plan"], &["answer"], &["ann", "bob", "cid"]);
    thinker.gather = gather;
    vec![
        client("desk", &["thinker"]),
        thinker,
        listener("ann", &["vote"], &["ballot"], &[]),
        listener("bob", &["vote"], &["ballot"], &[]),
        listener("cid", &["vote"], &["ballot"], &[]),
    ]
}

fn world_with_open_group(gather: Gather) -> World {
    let mut world = World::new(contracts(gather));
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("vote", "?")]);
    world
}

fn no() -> AttemptFailure {
    AttemptFailure::Refused { detail: "no".to_owned() }
}

#[test]
fn all_gives_every_reply_and_fault_with_its_sender_in_config_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut world = world_with_open_group(Gather::All);
        let legs = ["ann", "bob", "cid"].map(|who| world.delivery(who));
        for at in order {
            assert!(world.deliveries.is_empty(), "woken when all legs are there");
            match at {
                1 => world.fail(&legs[at], no()),
                _ => world.answer(&legs[at], &[word("ballot", &at.to_string())]),
            }
        }
        let woken = world.delivery("thinker");
        let expected = ["ballot(0)", "system-error listener-failed bob", "ballot(2)"];
        assert_eq!(fresh(&woken), expected, "{order:?}");
        let senders: Vec<_> = woken.messages[1..].iter().map(|m| m.from.to_string()).collect();
        assert_eq!(senders, ["ann", "core", "cid"]);
    }
}

#[test]
fn a_leg_with_nothing_to_say_is_named_in_its_acknowledgement() {
    let mut world = world_with_open_group(Gather::All);
    world.play("ann", &[]);
    world.play("bob", &[word("ballot", "b")]);
    world.play("cid", &[]);
    assert_eq!(fresh(&world.delivery("thinker")), ["ack ann", "ballot(b)", "ack cid"]);
}

#[test]
fn first_gives_the_first_reply_and_cancels_the_rest() {
    let mut world = world_with_open_group(Gather::First);
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(|who| world.delivery(who));
    world.fail(&ann, no());
    world.answer(&bob, &[]);
    assert!(world.deliveries.is_empty(), "neither a fault nor an acknowledgement is a reply");
    world.answer(&cid, &[word("ballot", "c")]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["ballot(c)"]);
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>ann vote(?) [failed]
        3 call thinker>bob vote(?) [handled]
        4 call thinker>cid vote(?) [handled]
        5 system core>thinker system-error listener-failed ann [cancelled]
        6 system core>thinker ack bob [cancelled]
        7 reply cid>thinker ballot(c) [handled]
        8 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&woken.thread));
}

#[test]
fn first_withdraws_the_legs_that_are_still_at_work_and_their_answers_are_late() {
    let mut world = world_with_open_group(Gather::First);
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(|who| world.delivery(who));
    world.answer(&bob, &[word("ballot", "b")]);
    assert_eq!(world.withdrawn, [ann.call, cid.call]);
    assert_eq!(fresh(&world.delivery("thinker")), ["ballot(b)"]);
    world.answer(&ann, &[word("ballot", "a")]);
    world.fail(&cid, no());
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>ann vote(?) [cancelled]
        3 call thinker>bob vote(?) [handled]
        4 call thinker>cid vote(?) [cancelled]
        5 reply bob>thinker ballot(b) [in flight]
        6 reply ann>thinker ballot(a) [late]
    "#]]
    .assert_eq(&world.transcript(&bob.thread));
}

#[test]
fn first_gives_the_faults_only_when_every_leg_failed() {
    let mut world = world_with_open_group(Gather::First);
    let legs = ["ann", "bob", "cid"].map(|who| world.delivery(who));
    for leg in legs.iter().rev() {
        assert!(world.deliveries.is_empty());
        world.fail(leg, no());
    }
    let expected = ["ann", "bob", "cid"].map(|who| format!("system-error listener-failed {who}"));
    assert_eq!(fresh(&world.delivery("thinker")), expected);
}

#[test]
fn the_results_of_a_group_keep_call_order_among_other_calls() {
    let mut contracts = contracts(Gather::All);
    contracts[1].peers.push(name("counter"));
    contracts.push(listener("counter", &["count"], &["counted"], &[]));
    let mut world = World::new(contracts);
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("count", "1"), word("vote", "?"), word("count", "3")]);
    let one = world.delivery_for("counter");
    for who in ["cid", "bob", "ann"] {
        let leg = world.delivery_for(who);
        world.answer(&leg, &[word("ballot", who)]);
    }
    let three = world.delivery_for("counter");
    world.answer(&three, &[word("counted", "3")]);
    world.answer(&one, &[word("counted", "1")]);
    let expected = ["counted(1)", "ballot(ann)", "ballot(bob)", "ballot(cid)", "counted(3)"];
    assert_eq!(fresh(&world.delivery("thinker")), expected);
}

/// A world in which a spawned thread has called a group, and the spawner waits for the end of the
/// spawned thread. Returns the world and a delivery to each leg of the group.
fn group_in_a_spawned_thread(gather: Gather) -> (World, [Delivery; 3]) {
    let mut world = World::new(contracts(gather));
    world.open("desk", &word("plan", "p"));
    let spawn = format!("<initial-payload>{}</initial-payload>", word("vote", "?"));
    let wait = core("wait", "for=\"all\"", "");
    world.play("thinker", &[core("spawn-thread", "", &spawn), wait]);
    let legs = ["ann", "bob", "cid"].map(|who| world.delivery(who));
    (world, legs)
}

#[test]
fn first_in_a_spawned_thread_gives_every_fault_when_every_leg_failed() {
    let (mut world, [ann, bob, cid]) = group_in_a_spawned_thread(Gather::First);
    world.fail(&bob, no());
    world.answer(&ann, &[]);
    assert!(world.deliveries.is_empty(), "a fault is kept while another leg may reply");

    world.restart();
    world.pass(Duration::from_secs(1));
    let cid = world.deliveries.iter().find(|own| own.call == cid.call).unwrap().clone();
    world.deliveries.clear();
    world.fail(&cid, no());
    let woken = world.delivery("thinker");
    let faults = woken.messages.iter().filter_map(|message| {
        let text = message.payload.as_str();
        let is_from = |who: &&str| text.contains(&format!("from=\"{who}\""));
        let leg = ["bob", "ann", "cid"].into_iter().find(is_from);
        leg.filter(|_| text.contains("<c:thread-result"))
    });
    assert_eq!(faults.collect::<Vec<_>>(), ["bob", "ann", "cid"]);
    world.check_replay();
}

#[test]
fn first_in_a_spawned_thread_gives_no_fault_beside_a_reply() {
    let (mut world, [ann, bob, cid]) = group_in_a_spawned_thread(Gather::First);
    world.fail(&ann, no());
    world.answer(&cid, &[word("ballot", "c")]);
    assert_eq!(world.withdrawn, [bob.call]);
    let woken = world.delivery("thinker");
    let results = fresh(&woken).into_iter().filter(|own| own.starts_with("thread-result"));
    assert_eq!(results.collect::<Vec<_>>(), ["thread-result completed cid"]);
    let tree = world.core.state().tree(&woken.thread).unwrap();
    assert_eq!(*tree.kept_faults, []);
}

/// The results of the legs, as summaries: each `thread-result` names the listener of its leg.
fn thread_results(woken: &Delivery) -> Vec<String> {
    let results = fresh(woken).into_iter().filter(|own| own.starts_with("thread-result"));
    results.collect()
}

/// Rules 4.15 and 5.9: each result of a group in another thread names its listener.
#[test]
fn each_result_of_a_group_in_a_spawned_thread_names_its_listener() {
    let (mut world, [ann, bob, cid]) = group_in_a_spawned_thread(Gather::All);
    world.answer(&cid, &[word("ballot", "c")]);
    world.fail(&bob, no());
    world.answer(&ann, &[word("ballot", "a")]);
    let woken = world.delivery("thinker");
    let expected =
        ["thread-result completed cid", "thread-result failed bob", "thread-result completed ann"];
    assert_eq!(thread_results(&woken), expected);
    world.check_replay();
}

#[test]
fn each_fault_of_a_first_group_in_a_spawned_thread_names_its_listener() {
    let (mut world, [ann, bob, cid]) = group_in_a_spawned_thread(Gather::First);
    for leg in [bob, cid, ann] {
        world.fail(&leg, no());
    }
    let woken = world.delivery("thinker");
    let expected = ["bob", "cid", "ann"].map(|who| format!("thread-result failed {who}"));
    assert_eq!(thread_results(&woken), expected);
}

/// A spawner waits for a timer, and for a spawned thread that calls a group. The spawner gets the
/// timer and one result of the thread, although a leg of the group fails.
#[test]
fn a_group_in_a_spawned_thread_leaves_timers_and_other_threads_alone() {
    let mut world = World::new(contracts(Gather::First));
    world.open("desk", &word("plan", "p"));
    let spawn = format!("<initial-payload>{}</initial-payload>", word("vote", "?"));
    let timer = core("set-timer", "after=\"PT1S\"", "");
    let wait = core("wait", "for=\"all\"", "");
    world.play("thinker", &[timer, core("spawn-thread", "", &spawn), wait]);
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(|who| world.delivery(who));
    world.pass(Duration::from_secs(2));
    world.fail(&ann, no());
    world.answer(&bob, &[word("ballot", "b")]);
    assert_eq!(world.withdrawn, [cid.call]);
    let woken = world.delivery("thinker");
    let news: Vec<_> = fresh(&woken).into_iter().skip(3).collect();
    assert_eq!(news, ["timer-fired", "thread-result completed bob"]);
}

/// A client's call to a group of three peers, with the delivery to each peer.
struct ClientGroup {
    world: World,
    thread: ThreadId,
    calls: Vec<CallId>,
    legs: [Delivery; 3],
}

const KEY: &str = "k";

impl ClientGroup {
    fn opened(gather: Gather) -> Self {
        let mut contracts = contracts(gather);
        let mut shop = client("shop", &["ann", "bob", "cid"]);
        shop.gather = gather;
        contracts.push(shop);
        let mut world = World::new(contracts);
        let (thread, calls, is_again) = Self::submit(&mut world);
        assert!(!is_again);
        let legs = ["ann", "bob", "cid"].map(|who| world.delivery(who));
        Self { world, thread, calls, legs }
    }

    fn submit(world: &mut World) -> (ThreadId, Vec<CallId>, bool) {
        let target = Target::New { suggested: None };
        match world.submit_to("shop", target, Some(KEY), &word("vote", "?")) {
            Receipt::Accepted { thread, calls, again, .. } => (thread, calls, again),
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Restarts the pump, and replaces the deliveries to open legs by those of the new pump.
    fn restart(&mut self) {
        self.world.restart();
        self.world.pass(Duration::from_secs(1));
        let delivered = std::mem::take(&mut self.world.deliveries);
        for leg in &mut self.legs {
            if let Some(again) = delivered.iter().find(|again| again.call == leg.call) {
                *leg = again.clone();
            }
        }
    }

    /// Returns the client's results. Asserts that a second submission with the same key gets the
    /// same results from the record.
    fn results(&mut self) -> Vec<String> {
        let text = |how, messages: Vec<&Message>| {
            let payloads = messages.iter().map(|message| gist(message));
            format!("{how:?} {}", payloads.collect::<Vec<_>>().join(" ")).trim_end().to_owned()
        };
        let again = Self::submit(&mut self.world);
        assert_eq!(again, (self.thread.clone(), self.calls.clone(), true));

        let result = |call: &CallId| {
            let (how, messages) = self.world.results.get(call)?;
            Some(text(*how, messages.iter().map(|message| &**message).collect()))
        };
        let got: Vec<_> = self.calls.iter().filter_map(result).collect();
        let recorded = |call: &CallId| {
            let owes = self.world.core.state().tree(&self.thread).unwrap().owes_client(*call);
            let result = client_result(self.world.records.iter(), *call);
            assert_eq!(owes, result.is_none(), "a waiter is registered, or the record has it");
            result.map(|(how, messages)| text(how, messages))
        };
        let recorded: Vec<_> = self.calls.iter().filter_map(recorded).collect();
        assert_eq!(recorded, got);
        got
    }
}

#[test]
fn a_client_that_gathers_all_gets_every_reply_and_fault_with_its_sender_in_config_order() {
    let mut group = ClientGroup::opened(Gather::All);
    let [ann, bob, cid] = group.legs.clone();
    group.world.answer(&cid, &[]);
    group.world.fail(&bob, no());
    assert_eq!(group.results(), ["Failed system-error listener-failed bob", "Completed ack cid"]);
    group.world.answer(&ann, &[word("ballot", "a")]);
    let expected =
        ["Completed ballot(a)", "Failed system-error listener-failed bob", "Completed ack cid"];
    assert_eq!(group.results(), expected);
}

#[test]
fn a_client_gets_the_first_reply_of_a_group_and_no_fault_beside_it() {
    let mut group = ClientGroup::opened(Gather::First);
    let [ann, bob, cid] = group.legs.clone();
    group.world.fail(&ann, no());
    assert!(group.results().is_empty(), "another leg may reply");
    group.world.answer(&bob, &[word("ballot", "b")]);
    assert_eq!(group.world.withdrawn, [cid.call]);
    assert_eq!(group.results(), ["Failed", "Completed ballot(b)", "Cancelled"]);

    group.world.answer(&cid, &[word("ballot", "c")]);
    assert_eq!(group.results(), ["Failed", "Completed ballot(b)", "Cancelled"]);
    let tree = group.world.core.state().tree(&group.thread).unwrap();
    assert_eq!(*tree.kept_faults, []);
    expect![[r#"
        1 call shop>ann vote(?) [failed]
        2 call shop>bob vote(?) [handled]
        3 call shop>cid vote(?) [cancelled]
        4 system core>shop system-error listener-failed ann [recorded]
        5 reply bob>shop ballot(b) [recorded]
        6 reply cid>shop ballot(c) [late]
    "#]]
    .assert_eq(&group.world.transcript(&group.thread));
}

#[test]
pub fn a_client_gets_the_faults_of_a_first_group_only_when_every_leg_failed_also_after_a_restart() {
    let mut group = ClientGroup::opened(Gather::First);
    group.world.fail(&group.legs[2].clone(), no());
    group.restart();
    group.world.answer(&group.legs[0].clone(), &[]);
    assert!(group.results().is_empty(), "neither a fault nor an acknowledgement is a reply");
    group.restart();
    group.world.fail(&group.legs[1].clone(), no());
    let expected = [
        "Completed ack ann",
        "Failed system-error listener-failed bob",
        "Failed system-error listener-failed cid",
    ];
    assert_eq!(group.results(), expected);
}

#[test]
fn a_client_gets_the_cancellation_of_every_leg_when_its_thread_is_cancelled() {
    for gather in [Gather::All, Gather::First] {
        let mut group = ClientGroup::opened(gather);
        group.world.fail(&group.legs[0].clone(), no());
        group.world.cancel(&group.thread.clone());
        let expected = [
            "Failed system-error listener-failed ann",
            "Cancelled system-error cancelled bob",
            "Cancelled system-error cancelled cid",
        ];
        assert_eq!(group.results(), expected, "{gather:?}");
    }
}

/// A leg may call a group of its own and forward the result. If all listeners of that group fail,
/// the leg passes the faults on as one result.
#[test]
fn a_leg_with_several_faults_gives_them_as_one_result() {
    let mut relay = listener("relay", &["vote"], &["plan"], &["ann", "bob"]);
    relay.forward = true;
    let mut shop = client("shop", &["relay", "cid"]);
    shop.gather = Gather::First;
    let mut world = World::new(vec![
        shop,
        relay,
        listener("ann", &["plan"], &["ballot"], &[]),
        listener("bob", &["plan"], &["ballot"], &[]),
        listener("cid", &["vote"], &["ballot"], &[]),
    ]);
    let (_, first) = world.open("shop", &word("vote", "?"));
    world.play("relay", &[word("plan", "?")]);
    for who in ["ann", "bob"] {
        let leg = world.delivery_for(who);
        world.fail(&leg, no());
    }
    assert!(world.results.is_empty());
    let last = world.delivery("cid");
    world.fail(&last, no());
    let (_, messages) = &world.results[&first];
    let faults: Vec<_> = messages.iter().map(|message| gist(message)).collect();
    assert_eq!(faults, ["system-error listener-failed relay"; 2]);
    assert_eq!(world.results.len(), 2);
}
