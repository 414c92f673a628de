//! Trees at rest and client keys that have left the memory of a pump. [`World`] lets everything at
//! rest leave memory before each step, so every test that uses a world covers resting trees.

use std::sync::Arc;

use organism::bus::native_host::InlineHost;
use organism::bus::{Delivery, Outcome};
use organism::contract::TreeLimits;
use organism::envelope::AttemptFailure;
use organism::ids::{Digest, ThreadId};
use organism::journal::sqlite::RestingStore;
use organism::pump::core::{Core, Receipt, Target};
use organism::pump::driver::{Handle, Pump};
use organism::pump::{ResidencyLimits, ResidentCore};

use super::world::{World, agent, client, listener, name, word};
use crate::journal::substrate::Kept;

const NOTHING_STAYS: ResidencyLimits = ResidencyLimits { trees: 0, threads: 0, keys: 0, batch: 0 };

fn world() -> World {
    World::new(vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ])
}

fn empty(world: &World) -> Core {
    Core::new(world.gate.contracts.clone(), TreeLimits::default(), Digest::of(b"config"))
}

fn new_thread() -> Target {
    Target::New { suggested: None }
}

/// A world whose record has this number of finished trees, each with a client key.
fn finished(trees: usize) -> World {
    let mut world = world();
    for n in 0..trees {
        let key = format!("key-{n}");
        world.submit_to("desk", new_thread(), Some(&key), &word("look", "q"));
        world.play("finder", &[word("found", "1")]);
    }
    world
}

#[test]
fn a_start_keeps_a_bounded_number_of_finished_trees_and_keys_in_memory() {
    let world = finished(60);
    let limits = ResidencyLimits { trees: 10, threads: 1_000, keys: 7, batch: 3 };
    let mut bounded = ResidentCore::with_store(empty(&world), RestingStore::in_memory(), limits);
    let mut whole = empty(&world);
    for record in &world.records {
        bounded.replay(record).unwrap();
        whole.replay(record);
        let state = bounded.state();
        // One more is the tree of the organism, and one more is open.
        assert!(state.trees.len() <= 10 + 3 + 2, "{} trees", state.trees.len());
        assert!(state.keys.len() <= 7 + 3 + 1, "{} keys", state.keys.len());
    }

    bounded.recall_all().unwrap();
    assert_eq!(whole.state().trees.len(), 61);
    assert_eq!(bounded.state(), whole.state(), "what came back is what left");
}

#[test]
fn trees_with_many_threads_leave_before_there_are_many_of_them() {
    let mut world = world();
    for _ in 0..10 {
        world.open("desk", &word("plan", "p"));
        let spawn = super::world::core("spawn-thread", "", "");
        world.play("thinker", &[spawn.clone(), spawn]);
        world.play("thinker", &[word("answer", "1")]);
    }

    let limits = ResidencyLimits { trees: 100, threads: 7, keys: 100, batch: 0 };
    let mut bounded = ResidentCore::with_store(empty(&world), RestingStore::in_memory(), limits);
    for record in &world.records {
        bounded.replay(record).unwrap();
    }
    let trees = bounded.state().trees.values().filter(|tree| tree.threads.len() == 3);
    assert_eq!(trees.count(), 2, "of three threads each");
}

#[test]
fn trees_stay_in_memory_if_their_working_file_cannot_be_written() {
    let world = finished(20);
    let directory = tempfile::tempdir().unwrap().path().join("gone");
    let store = RestingStore::in_directory(directory);
    let mut staying = ResidentCore::with_store(empty(&world), store, NOTHING_STAYS);
    let mut whole = empty(&world);
    for record in &world.records {
        staying.replay(record).unwrap();
        whole.replay(record);
    }
    assert_eq!(staying.state(), whole.state());
}

/// Starts a pump that lets everything at rest leave its memory.
fn started(kept: &Kept, store: RestingStore) -> (Handle, std::thread::JoinHandle<()>) {
    let world = world();
    let mut core = ResidentCore::with_store(empty(&world), store, NOTHING_STAYS);
    let journal = kept.open(None);
    kept.records().iter().for_each(|record| core.replay(record).unwrap());
    let mut pump = Pump::new(core, journal, world.gate.clone());
    let found = |_: &Delivery| -> Result<Outcome, AttemptFailure> {
        Ok(Outcome { payloads: vec![word("found", "1").into_bytes()], turn: None })
    };
    pump.host(name("finder"), Arc::new(InlineHost::new(name("finder"), found, pump.sink())));
    let handle = pump.handle();
    (handle, std::thread::spawn(move || pump.run("test").unwrap()))
}

async fn look(handle: &Handle, target: Target, key: Option<&str>) -> Receipt {
    let (key, text) = (key.map(ToOwned::to_owned), word("look", "q"));
    let submitted = handle.submit(&name("desk"), target, key, text.as_bytes()).await;
    let (receipt, mut results) = submitted.unwrap();
    while let Some(done) = results.next().await {
        done.unwrap();
    }
    receipt
}

/// Sends requests about a finished tree. Returns the answers as texts.
async fn requests(handle: &Handle, id: &str) -> Vec<String> {
    let thread = ThreadId::parse(id).unwrap();
    let suggested = || Target::New { suggested: Some(id.to_owned()) };
    let cancelled = handle.cancel(thread.clone(), "too late".to_owned(), None).await.unwrap();
    let receipts = [
        look(handle, new_thread(), Some("k")).await,
        look(handle, suggested(), None).await,
        look(handle, Target::Thread { id: id.to_owned() }, None).await,
    ];
    let head = handle.tree_head(thread.clone()).await.unwrap();
    let opener = handle.tree_opener(thread).await.unwrap();
    let answers = receipts.iter().map(|receipt| match receipt {
        Receipt::Accepted { again, thread, .. } => format!("accepted {thread}, again: {again}"),
        Receipt::Refused { refusal, .. } => refusal.rule.to_string(),
        Receipt::NoThread { .. } => "no thread".to_owned(),
    });
    let mut all: Vec<_> = answers.collect();
    all.push(cancelled.unwrap_err().rule.to_string());
    all.push(format!("has a head: {}, opened by {}", head.is_some(), opener.unwrap()));
    all
}

#[tokio::test]
async fn a_finished_tree_that_has_left_memory_is_answered_as_before_also_after_a_restart() {
    let kept = Kept::new();
    let directory = tempfile::tempdir().unwrap();
    let store = || RestingStore::in_directory(directory.path().to_owned());
    let id = "sess-aaaaaaaa";
    let (handle, pump) = started(&kept, store());
    let target = Target::New { suggested: Some(id.to_owned()) };
    let receipt = look(&handle, target, Some("k")).await;
    assert!(matches!(receipt, Receipt::Accepted { again: false, .. }), "{receipt:?}");
    let other = look(&handle, new_thread(), None).await;
    assert!(matches!(other, Receipt::Accepted { .. }), "{other:?}");

    let expected = [
        format!("accepted {id}, again: true"),
        "bad-label".to_owned(),
        format!("accepted {id}, again: false"),
        "not-waiting".to_owned(),
        "has a head: true, opened by desk".to_owned(),
    ];
    assert_eq!(requests(&handle, id).await, expected);
    handle.stop();
    pump.join().unwrap();

    let (handle, pump) = started(&kept, store());
    assert_eq!(requests(&handle, id).await, expected);
    handle.stop();
    pump.join().unwrap();
}
