//! Endless conversations and storms of messages. In a conversation, one agent answers itself, or
//! two or three agents or listeners answer each other, also with repeated payloads.

use std::collections::HashMap;
use std::time::Duration;

use organism::contract::{Contract, TreeLimits};
use organism::envelope::Turn;
use organism::pump::core::{Receipt, Target};
use organism::thread::Closing;
use serde_json::json;

use super::stage::{Stage, native};
use super::{judge, size};
use crate::campaign::Campaign;
use crate::organism::House;
use crate::pump::world::{World, agent, client, core, listener, word};

fn bounded(contracts: Vec<Contract>) -> World {
    let messages = size(300, 4_000) as u64;
    let model_calls = messages / 2;
    World::with_limits(contracts, TreeLimits { messages, model_calls, ..Default::default() })
}

/// The payloads with which each listener answers every delivery, by the name of the listener.
type Habits = HashMap<&'static str, Vec<String>>;

/// Answers deliveries until no delivery is open. Every listener gives its fixed answer. From time
/// to time, an uninvolved client submits a request and gets its result. Returns the number of
/// deliveries.
fn run(world: &mut World, habits: &Habits) -> usize {
    let mut turns = 0;
    loop {
        // The pump paces listeners that loop on failures.
        if world.deliveries.is_empty() && !world.alarms.is_empty() {
            world.pass(Duration::from_secs(20));
        }
        let Some(delivery) = world.deliveries.pop_front() else { break };
        // The outcome of an agent is a turn of its model, which is charged to the tree.
        let note = core("model-turn", "", "");
        let is_agent = world.gate.contracts.get(&delivery.listener).unwrap().spends();
        let turn = is_agent.then(|| Turn { note, ..Turn::default() });
        world.answer_turn(&delivery, &habits[delivery.listener.as_str()], turn);
        turns += 1;
        if turns % 200 == 1 {
            let (_, call) = world.open("desk", &word("secret", "unrelated"));
            let stranger = world.delivery_for("stranger");
            world.answer(&stranger, &[word("ballot", "it")]);
            assert_eq!(world.result(call), "completed: ballot(it)");
        }
        assert!(turns < 50_000, "it never ends");
    }
    turns
}

fn with_stranger(peers: &[&str], mut others: Vec<Contract>) -> Vec<Contract> {
    let peers: Vec<&str> = peers.iter().copied().chain(["stranger"]).collect();
    others.push(client("desk", &peers));
    others.push(listener("stranger", &["secret"], &["ballot"], &[]));
    others
}

#[test]
fn a_message_to_oneself_for_ever_ends_with_its_budget() {
    let mut campaign = Campaign::new("messages to oneself");
    let contracts = with_stranger(&["a"], vec![agent("a", &["plan"], &["answer"], &[])]);
    let mut world = bounded(contracts);
    let (_, call) = world.open("desk", &word("plan", "go"));
    let turns = run(&mut world, &[("a", vec![word("plan", "again")])].into());
    campaign.note(format!("{turns} turns, {:?}", judge::assert_kept(&world.records)));
    assert_eq!(world.result(call), "failed: system-error budget-spent");
}

/// Agents call each other in a ring, and repeat the call after every refusal.
#[test]
fn agents_in_a_ring_get_cycle_refusals_and_end_with_their_budget() {
    let mut campaign = Campaign::new("rings of agents");
    let two =
        vec![agent("a", &["plan"], &["answer"], &["b"]), agent("b", &["ask"], &["report"], &["a"])];
    let three = vec![
        agent("a", &["plan"], &["answer"], &["b"]),
        agent("b", &["ask"], &["report"], &["c"]),
        agent("c", &["look"], &["found"], &["a"]),
    ];
    let next = [("a", "ask"), ("b", "plan")].map(|(who, says)| (who, vec![word(says, "x")]));
    let ring = [("a", "ask"), ("b", "look"), ("c", "plan")];
    let ring = ring.map(|(who, says)| (who, vec![word(says, "x")]));
    for (agents, habits) in [(two, Habits::from(next)), (three, Habits::from(ring))] {
        let count = agents.len();
        let mut world = bounded(with_stranger(&["a"], agents));
        let (_, call) = world.open("desk", &word("plan", "go"));
        let turns = run(&mut world, &habits);
        let cycles = world.refusals().iter().filter(|r| r.ends_with(" cycle")).count();
        let tally = judge::assert_kept(&world.records);
        campaign
            .note(format!("{count} agents: {turns} turns, {cycles} told of the cycle, {tally:?}"));
        assert!(cycles > 0 && turns < 3_000);
        assert!(world.result(call).starts_with("failed"), "{}", world.result(call));
    }
}

/// Listeners that are not agents may call each other as deeply as the budget permits.
#[test]
fn listeners_that_call_each_other_for_ever_end_with_the_budget_of_their_tree() {
    let mut campaign = Campaign::new("rings of listeners");
    let two = vec![
        listener("a", &["plan"], &["answer"], &["b"]),
        listener("b", &["ask"], &["report"], &["a"]),
    ];
    let three = vec![
        listener("a", &["plan"], &["answer"], &["b"]),
        listener("b", &["ask"], &["report"], &["c"]),
        listener("c", &["look"], &["found"], &["a"]),
    ];
    let next = [("a", "ask"), ("b", "plan")].map(|(who, says)| (who, vec![word(says, "x")]));
    let ring = [("a", "ask"), ("b", "look"), ("c", "plan")];
    let ring = ring.map(|(who, says)| (who, vec![word(says, "x")]));
    for (listeners, habits) in [(two, Habits::from(next)), (three, Habits::from(ring))] {
        let mut world = bounded(with_stranger(&["a"], listeners));
        let (_, call) = world.open("desk", &word("plan", "go"));
        let turns = run(&mut world, &habits);
        let tally = judge::assert_kept(&world.records);
        campaign.note(format!("{} listeners: {turns} turns, {tally:?}", habits.len()));
        assert!(world.result(call).starts_with("failed"), "{}", world.result(call));
    }
}

#[test]
fn the_same_payload_many_times_is_as_many_messages_or_one_by_its_key() {
    let times = size(300, 1_000);
    let mut asker = agent("a", &["plan"], &["answer"], &["f"]);
    asker.actions_per_turn = 1_000;
    let finder = listener("f", &["look"], &["found"], &[]);
    let mut world = World::new(with_stranger(&["a", "f"], vec![asker, finder]));
    let (thread, call) = world.open("desk", &word("plan", "go"));
    let a = world.delivery("a");
    world.answer(&a, &vec![word("look", "same"); times]);
    let mut served = 0;
    while world.deliveries.front().is_some_and(|delivery| delivery.listener.as_str() == "f") {
        world.play("f", &[word("found", &served.to_string())]);
        served += 1;
    }
    let woken = world.play("a", &[word("answer", "all")]);
    assert_eq!((served, woken.fresh), (times, times), "woken once, with every result");
    let results: Vec<_> = crate::pump::world::fresh(&woken);
    let expected: Vec<_> = (0..times).map(|number| format!("found({number})")).collect();
    assert_eq!(results, expected, "in call order");
    assert_eq!(world.result(call), "completed: answer(all)");
    let ids: std::collections::HashSet<_> =
        judge::messages(&world.records).map(|message| message.id).collect();
    let count = judge::messages(&world.records).count();
    assert_eq!(ids.len(), count);
    // A client submits with one key many times: one message, and always the same receipt.
    let target = || Target::Thread { id: thread.to_string() };
    let same = word("look", "same");
    let receipts: Vec<Receipt> =
        (0..times).map(|_| world.submit_to("desk", target(), Some("key"), &same)).collect();
    let calls = |receipt: &Receipt| match receipt {
        Receipt::Accepted { calls, again, .. } => (calls.clone(), *again),
        other => panic!("{other:?}"),
    };
    let (first, again) = calls(&receipts[0]);
    assert!(!again && receipts[1..].iter().all(|r| calls(r) == (first.clone(), true)));
    world.play("f", &[word("found", "it")]);
    assert_eq!(judge::messages(&world.records).count(), count + 2);
    judge::assert_kept(&world.records);
}

/// Each of fifty listeners sends to all the others, and every receiver does the same.
#[test]
fn a_storm_of_broadcasts_ends_with_the_budget_and_every_caller_gets_a_result() {
    let mut campaign = Campaign::new("storm of broadcasts");
    let names: Vec<String> = (0..50).map(|number| format!("v{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let voters = names.iter().map(|name| {
        let mut voter = listener(name, &["vote"], &["answer"], &names);
        voter.peers.retain(|peer| peer.as_str() != *name);
        voter
    });
    let mut world = bounded(with_stranger(&names, voters.collect()));
    let target = Target::New { suggested: None };
    let receipt = world.submit_to("desk", target, None, &word("vote", "go"));
    let Receipt::Accepted { calls, .. } = receipt else { panic!("{receipt:?}") };
    assert_eq!(calls.len(), 50);
    let mut turns = 0;
    while let Some(delivery) = world.deliveries.pop_front() {
        let new = &delivery.messages[delivery.messages.len() - delivery.fresh..];
        let asked = new.iter().any(|message| &*message.name.local == "vote");
        let habit = if asked { word("vote", "all of you") } else { word("answer", "enough") };
        world.answer(&delivery, &[habit]);
        turns += 1;
        assert!(turns < 20_000, "it never ends");
    }
    let spent = world.refusals().iter().filter(|r| r.ends_with("budget-spent")).count();
    let tally = judge::assert_kept(&world.records);
    campaign.note(format!("{turns} turns, {spent} refused for the budget, {tally:?}"));
    assert!(spent > 0);
    assert!(calls.iter().all(|call| world.result(*call) != "none"), "each call has its result");
}

const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
messages = 800

[clients.desk]
peers = ["looper", "one", "stranger", PEERS]

[models.recorded]
provider = "playback"
recording = "recording.toml"

[agents.looper]
schema = "words.xsd"
accepts = ["plan"]
final = "answer"
model = "recorded"
max_iterations = 50
"#;

/// Runs loops and storms at once in a real organism. An uninvolved client is served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_and_storms_in_a_running_organism_end_and_delay_no_other_client() {
    let mut campaign = Campaign::new("loops and storms, running");
    let voters: Vec<String> = (0..50).map(|number| format!("v{number}")).collect();
    let quoted: Vec<String> = voters.iter().map(|name| format!("\"{name}\"")).collect();
    let mut config = CONFIG.replace("PEERS", &quoted.join(", "));
    let mut add = |who: &str, accepts: &str, replies: &str, peers: &[String]| {
        config.push_str(&format!(
            "[listeners.{who}]\ncommand = [\"./player.pl\"]\nschema = \"words.xsd\"\n\
             accepts = [\"{accepts}\"]\nreplies = [\"{replies}\"]\npeers = [{}]\ninstances = 8\n",
            peers.join(", ")
        ));
    };
    add("one", "ask", "report", &["\"two\"".to_owned()]);
    add("two", "look", "found", &["\"one\"".to_owned()]);
    add("stranger", "secret", "ballot", &[]);
    for name in &quoted {
        let others: Vec<String> = quoted.iter().filter(|other| *other != name).cloned().collect();
        add(name.trim_matches('"'), "vote", "counted", &others);
    }
    let house = House::with(&config);
    let turns: Vec<_> = (1..=60)
        .map(|turn| json!({ "agent": "looper", "turn": turn, "text": "<plan><text>on</text></plan>" }))
        .collect();
    let recording = json!({ "recorded": "by hand: a loop", "turn": turns });
    house.write("recording.toml", toml::to_string(&recording).unwrap());
    let mut natives = vec![
        native("one", |_| vec![word("look", "x")]),
        native("two", |_| vec![word("ask", "x")]),
        native("stranger", |_| vec![word("ballot", "it")]),
    ];
    for name in &voters {
        natives.push(native(name, |delivery| match delivery.messages.len() - delivery.fresh {
            0 => vec![word("vote", "all of you")],
            _ => vec![word("counted", "enough")],
        }));
    }
    let stage = Stage::start(house, natives).await;
    let secret = word("secret", "unrelated");
    let idle = stage.waits("desk", &secret, 40).await;
    let mut open = Vec::new();
    for request in [word("plan", "go"), word("ask", "go"), word("vote", "go")] {
        let target = Target::New { suggested: None };
        let (receipt, completions) = stage.submit("desk", target, request.as_bytes()).await;
        assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
        open.push(completions);
    }
    let busy = stage.waits("desk", &secret, 40).await;
    let mut ends = Vec::new();
    for mut completions in open {
        while let Some(done) = completions.next().await {
            ends.push(done.unwrap().how);
        }
    }
    campaign.note(format!(
        "another waits {:.1?} (p90), {:.1?} when idle",
        busy.part(90),
        idle.part(90)
    ));
    assert_eq!(ends.len(), 52);
    assert_eq!(ends[..2], [Closing::Failed, Closing::Failed], "loop and ping-pong");
    let (_, tally) = stage.end().await;
    campaign.note(format!("{tally:?}"));
    assert!(tally.accepted < 10_000, "{tally:?}");
}
