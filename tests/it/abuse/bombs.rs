//! Agents that spawn threads without end: many beneath one thread, ever deeper ones, or two in each
//! thread.

use std::collections::HashMap;

use organism::contract::{Contract, TreeLimits};
use organism::ids::ThreadId;
use organism::pump::core::Target;
use organism::thread::{Fact, Record};
use serde_json::json;

use super::stage::{Stage, native};
use super::{judge, size};
use crate::campaign::Campaign;
use crate::organism::House;
use crate::pump::world::{World, agent, client, core, gist, listener, word};

fn contracts() -> Vec<Contract> {
    let mut bomber = agent("bomber", &["plan"], &["answer"], &["finder"]);
    bomber.actions_per_turn = u32::MAX;
    bomber.concurrency = 1_000;
    vec![
        client("desk", &["bomber", "finder"]),
        bomber,
        listener("finder", &["look"], &["found"], &[]),
    ]
}

fn spawn(inner: &str) -> String {
    core("spawn-thread", "", &format!("<initial-payload>{inner}</initial-payload>"))
}

fn threads(records: &[Record]) -> usize {
    let facts = records.iter().flat_map(|record| &record.facts);
    let opened = facts.filter_map(|fact| match fact {
        Fact::ThreadOpened { thread, .. } => Some(thread),
        _ => None,
    });
    opened.filter(|thread| thread.as_str() != ThreadId::ORGANISM).count()
}

/// Number of refusals because of a limit.
fn over_limit(records: &[Record]) -> usize {
    let told = judge::messages(records).filter(|message| gist(message).contains("limit-reached"));
    told.count()
}

/// Function that returns the payloads that an agent writes in a turn. Its arguments are the thread,
/// and the number of the turn in this thread.
type Habit = fn(&ThreadId, u32) -> Vec<String>;

/// Answers deliveries until no delivery is open. From time to time, an uninvolved client submits a
/// request and must get its result at once. Returns the number of turns.
fn burn(world: &mut World, act: Habit) -> usize {
    let (mut turns, mut taken) = (0, HashMap::new());
    while let Some(delivery) = world.deliveries.pop_front() {
        let turn = taken.entry(delivery.thread.clone()).or_insert(0);
        *turn += 1;
        world.answer(&delivery, &act(&delivery.thread, *turn));
        turns += 1;
        if turns % 100 == 0 {
            let (_, call) = world.open("desk", &word("look", "unrelated"));
            let stranger = world.delivery_for("finder");
            world.answer(&stranger, &[word("found", "it")]);
            assert_eq!(world.result(call), "completed: found(it)");
        }
        assert!(turns < 20_000, "it never ends");
    }
    turns
}

#[test]
fn ten_thousand_spawns_in_one_turn_are_answered_one_by_one_and_bounded() {
    let mut campaign = Campaign::new("spawns, wide");
    let wide = size(3_000, 10_000);
    let mut world = World::new(contracts());
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let bomb: Vec<String> = (0..wide).map(|_| spawn(&word("look", "x"))).collect();
    let delivery = world.delivery("bomber");
    world.answer(&delivery, &bomb);
    while let Some(at) = world.deliveries.iter().position(|d| d.listener.as_str() == "finder") {
        let delivery = world.deliveries.remove(at).unwrap();
        world.answer(&delivery, &[word("found", "f")]);
    }
    world.play("bomber", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    let tally = judge::assert_kept(&world.records);
    let refused = over_limit(&world.records);
    let spent = world.refusals().iter().filter(|r| r.ends_with("budget-spent")).count();
    campaign.note(format!("{wide} spawns: {refused} over the limit, {spent} over the budget"));
    campaign.note(format!("{tally:?}"));
    assert_eq!(threads(&world.records), 65, "a root and as many children as are allowed");
    assert_eq!(64 + refused + spent, wide, "each spawn has its answer");
    assert_eq!(world.core.state().tree(&thread).unwrap().threads.len(), 65);
    assert!(tally.accepted < 3 * TreeLimits::default().messages, "{tally:?}");
}

/// Each thread spawns a deeper thread. The deepest thread repeats its refused attempt to spawn, up
/// to a thousand times.
#[test]
fn spawning_a_thousand_deep_ends_at_the_limit() {
    let mut campaign = Campaign::new("spawns, deep");
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("plan", "0"));
    let turns = burn(&mut world, |thread, turn| match (thread.depth(), turn) {
        (_, 1) | (16, ..=1_000) => vec![spawn(&word("plan", "deeper"))],
        _ => vec![word("answer", "enough")],
    });
    let tally = judge::assert_kept(&world.records);
    let deepest = world.core.state().trees.values().flat_map(|tree| tree.threads.keys());
    let deepest = deepest.map(ThreadId::depth).max().unwrap();
    let refused = over_limit(&world.records);
    campaign.note(format!("{turns} turns, {deepest} deep, {refused} told so; {tally:?}"));
    // The expected number is the limit of consecutive failures, and one more for the result.
    let rounds = TreeLimits::default().rounds_failed as usize;
    assert_eq!((deepest, refused), (16, rounds + 1));
    assert_eq!(world.result(call), "completed: answer(enough)");
}

#[test]
fn doubling_ends_at_the_limit_of_threads() {
    let mut campaign = Campaign::new("spawns, doubling");
    let limits = TreeLimits { threads: size(200, 1_000) as u32, ..Default::default() };
    let mut world = World::with_limits(contracts(), limits);
    world.open("desk", &word("plan", "0"));
    let turns = burn(&mut world, |_, turn| match turn {
        1 => vec![spawn(&word("plan", "x")), spawn(&word("plan", "y"))],
        _ => vec![word("answer", "two")],
    });
    let tally = judge::assert_kept(&world.records);
    let refused = over_limit(&world.records);
    let strangers = turns / 100;
    campaign.note(format!("{turns} turns, {refused} told so; {tally:?}"));
    assert_eq!(threads(&world.records), limits.threads as usize + strangers);
    // Each thread asked for two children, and all but the root got them.
    let asked = 2 * limits.threads as usize;
    assert_eq!(refused, asked - (limits.threads as usize - 1));
}

/// Config with the agent `bomber`, whose recorded model spawns threads without end.
const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
threads = 100
depth = 5
children = 20

[clients.desk]
peers = ["bomber", "finder"]

[models.recorded]
provider = "playback"
recording = "recording.toml"

[agents.bomber]
schema = "words.xsd"
accepts = ["plan"]
final = "answer"
peers = ["finder"]
model = "recorded"
max_iterations = 40
max_actions_per_turn = 100
concurrency = 8

[listeners.finder]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["look"]
replies = ["found"]
"#;

/// Returns a recording in which every thread spawns two children up to the limit of depth. The root
/// first spawns many children of its own.
fn recording() -> String {
    let mut turns = Vec::new();
    let bomb = "<spawn-thread><initial-payload><look><text>x</text></look></initial-payload></spawn-thread>";
    let double = |label: &str| {
        format!(
            "<spawn-thread suggested_sub_id=\"{label}\"><initial-payload><plan><text>x</text>\
             </plan></initial-payload></spawn-thread>"
        )
    };
    let fork = double("a") + &double("b");
    let last = "<answer><text>done</text></answer>";
    let mut paths = vec![String::new()];
    for at in 0..63 {
        let path = paths[at].clone();
        let dot = if path.is_empty() { "" } else { "." };
        paths.extend(["a", "b"].map(|label| format!("{path}{dot}{label}")));
    }
    for path in &paths {
        let mut said = vec![fork.clone()];
        if path.is_empty() {
            said.extend((0..size(3, 30)).map(|_| bomb.repeat(100)));
        }
        said.push(last.to_owned());
        for (number, text) in said.iter().enumerate() {
            turns.push(
                json!({ "agent": "bomber", "thread": path, "turn": number + 1, "text": text }),
            );
        }
    }
    toml::to_string(&json!({ "recorded": "by hand: a bomb", "turn": turns })).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spawn_bomb_in_a_running_organism_is_bounded_and_delays_no_other_client() {
    let mut campaign = Campaign::new("spawns of a model");
    let house = House::with(CONFIG);
    house.write("recording.toml", recording());
    let finder = native("finder", |_| vec![word("found", "f")]);
    let stage = Stage::start(house, vec![finder]).await;
    let look = word("look", "unrelated");
    let idle = stage.waits("desk", &look, 40).await;
    let target = Target::New { suggested: None };
    let plan = word("plan", "boom");
    let (_, mut results) = stage.submit("desk", target, plan.as_bytes()).await;
    let busy = stage.waits("desk", &look, 40).await;
    let done = results.next().await.unwrap().unwrap();
    campaign.note(format!(
        "{:?}; another waits {:.1?} (p90), {:.1?} when idle",
        done.how,
        busy.part(90),
        idle.part(90)
    ));
    let (house, tally) = stage.end().await;
    let records = judge::records(&house);
    let refused = over_limit(&records);
    let bombed = records
        .iter()
        .flat_map(|record| &record.facts)
        .filter(|fact| matches!(fact, Fact::ThreadOpened { thread, .. } if !thread.is_root()));
    let bombed = bombed.count();
    campaign.note(format!("{bombed} threads, {refused} told so; {tally:?}"));
    assert!(bombed < 100 && refused > 200, "{bombed} threads, {refused} told so");
    assert!(busy.part(50) < idle.part(50) * 30, "the stranger is served");
}
