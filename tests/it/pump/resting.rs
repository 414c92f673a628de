//! Trees at rest, trees that wait, and client keys that have left the memory of a pump. [`World`]
//! lets all of these leave memory before each step, so every test with a world covers them as well.

use std::sync::Arc;
use std::time::Duration;

use organism::bus::native_host::InlineHost;
use organism::bus::{Delivery, Outcome};
use organism::contract::{Contract, Contracts, Role, TreeLimits};
use organism::envelope::AttemptFailure;
use organism::ids::{CallId, Digest, Position, ThreadId};
use organism::journal::StateRecovery;
use organism::journal::sqlite::RestingStore;
use organism::limits;
use organism::pump::core::{
    Alarm, Core, CoreConfig, Effect, Event, PauseChange, Receipt, ReloadRequest, Standstill, Target,
};
use organism::pump::driver::{Handle, Pump};
use organism::pump::{ResidencyLimits, ResidentCore};
use organism::thread::{
    OperatorAction, OperatorIdentity, OperatorVerb, PauseAction, PauseTarget, PauseVerb,
};
use uuid::Uuid;

use super::world::{World, agent, client, listener, name, names, word};
use crate::journal::substrate::Kept;

const NOTHING_STAYS: ResidencyLimits =
    ResidencyLimits { trees: 0, threads: 0, waiting: 0, keys: 0, batch: 0 };

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
    let limits = ResidencyLimits { trees: 10, threads: 1_000, waiting: 0, keys: 7, batch: 3 };
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

    let limits = ResidencyLimits { trees: 100, threads: 7, waiting: 0, keys: 100, batch: 0 };
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

/// A world in which this number of requests wait for a person, each in its own tree.
fn waiting_for_a_person(patience: Option<Duration>, requests: usize) -> (World, Vec<CallId>) {
    let mut person = Contract::new(name("ana"), Role::Human);
    person.accepts = names(&["ask"]);
    person.replies = names(&["report"]);
    person.patience = patience;
    person.backlog = 1_000;
    let mut world = World::new(vec![client("desk", &["ana"]), person]);
    let calls = (0..requests).map(|_| world.open("desk", &word("ask", "q")).1).collect();
    (world, calls)
}

#[test]
fn trees_that_wait_for_a_person_leave_memory_and_each_answer_brings_its_own_back() {
    let (mut world, calls) = waiting_for_a_person(None, 5);
    world.core.let_rest();
    let trees = |world: &World| world.core.state().trees.len();
    assert_eq!(trees(&world), 1, "the tree of the organism");
    let mut outside = Vec::new();
    world.core.visit_calls_outside(|call| outside.push(call.id)).unwrap();
    outside.sort_unstable();
    let mut expected = calls.clone();
    expected.sort_unstable();
    assert_eq!(outside, expected);
    assert_eq!(trees(&world), 1, "a list of the calls brings nothing back");
    assert_eq!(world.core.left_open().held, 5);
    assert_eq!(world.core.left_open().outside, 5);

    for call in calls {
        assert_eq!(world.answer_question(call, "ana", &word("report", "r")), Ok(()));
        assert_eq!(world.result(call), "completed: report(r)");
    }
    assert_eq!(world.core.state().in_flight, 0);
    assert!(world.core.state().calls.is_empty());
}

#[test]
fn time_that_does_not_count_extends_the_deadlines_of_trees_outside_memory() {
    let (mut world, calls) = waiting_for_a_person(Some(Duration::from_secs(60)), 2);
    for _ in 0..2 {
        let stood = Duration::from_secs(50);
        world.step(Event::Standstill(Standstill { stood, stepped: Duration::ZERO }));
    }
    world.pass(Duration::from_secs(61));
    assert_eq!(world.result(calls[0]), "none", "a hundred seconds do not count");
    world.pass(Duration::from_secs(100));
    assert_ne!(world.result(calls[0]), "none");
}

#[test]
fn a_pump_keeps_a_bounded_number_of_trees_that_wait_in_memory() {
    let (world, _) = waiting_for_a_person(None, 40);
    let limits = ResidencyLimits { trees: 0, threads: 0, waiting: 10, keys: 0, batch: 3 };
    let config = Digest::of(b"config");
    let core = Core::new(world.gate.contracts.clone(), TreeLimits::default(), config);
    let mut bounded = ResidentCore::with_store(core, RestingStore::in_memory(), limits);
    for record in &world.records {
        bounded.replay(record).unwrap();
        bounded.let_rest();
    }
    let trees = bounded.state().trees.len();
    assert!(trees <= 10 + 3 + 1, "{trees} trees, with that of the organism");

    let epoch = bounded.state().epoch + 1;
    let journal = bounded.state().journal;
    let boot = Event::Boot { journal, epoch, detail: "test".to_owned(), blobs: Vec::new() };
    let position = Position(world.records.len() as u64 + 1);
    bounded.step(position, world.now, boot).unwrap();
    let after_boot = bounded.state().trees.len();
    assert!(after_boot <= trees, "{after_boot} trees; a start brings back none");
    assert_eq!(bounded.held_calls().len(), 40);
    assert_eq!(bounded.state().calls.len(), 40);
}

#[test]
fn a_start_from_a_snapshot_keeps_a_bounded_number_of_trees_that_wait_in_memory() {
    let (world, calls) = waiting_for_a_person(None, 40);
    let limits = ResidencyLimits { trees: 0, threads: 0, waiting: 10, keys: 0, batch: 3 };
    let new = || ResidentCore::with_store(empty(&world), RestingStore::in_memory(), limits);
    let mut before = new();
    world.records.iter().for_each(|record| before.replay(record).unwrap());
    let mut started = new();
    started.restore(before.into_stored().unwrap()).unwrap();

    let trees = started.state().trees.len();
    assert!(trees <= 10 + 1, "{trees} trees, with that of the organism");
    assert_eq!(started.state().calls.len(), 40);
    let mut outside = Vec::new();
    started.visit_calls_outside(|call| outside.push(call.id)).unwrap();
    assert_eq!(outside.len(), 30);
    assert!(outside.iter().all(|call| calls.contains(call)));
}

/// Applies the records of the world to a core that keeps no waiting tree in memory, and to a core
/// that keeps everything. Asserts that both have the same state. Returns the number of trees that
/// the first core had in memory.
fn compare_with_whole(world: &World) -> usize {
    let mut bounded =
        ResidentCore::with_store(empty(world), RestingStore::in_memory(), NOTHING_STAYS);
    let mut whole = empty(world);
    for record in &world.records {
        bounded.replay(record).unwrap();
        whole.replay(record);
    }
    let in_memory = bounded.state().trees.len();
    bounded.recall_all().unwrap();
    assert_eq!(bounded.state(), whole.state());
    in_memory
}

#[test]
fn a_pause_and_its_end_leave_the_trees_that_wait_outside_memory() {
    let (mut world, calls) = waiting_for_a_person(Some(Duration::from_secs(60)), 20);
    for target in [PauseTarget::All, PauseTarget::Listener(name("ana"))] {
        world.pass(Duration::from_secs(10));
        world.pause(PauseVerb::Pause, &target);
        assert_eq!(compare_with_whole(&world), 1, "the tree of the organism");
        world.pass(Duration::from_secs(1_000));
        world.pause(PauseVerb::Resume, &target);
        assert_eq!(compare_with_whole(&world), 1, "the tree of the organism");
    }

    world.pass(Duration::from_secs(39));
    assert_eq!(world.result(calls[0]), "none", "the time of the pauses does not count");
    world.pass(Duration::from_secs(2));
    assert_ne!(world.result(calls[0]), "none");
}

/// If a reload removes a listener, every call that waits for the listener ends, even if the tree of
/// the call has left memory.
#[test]
fn a_reload_that_removes_a_listener_ends_the_calls_that_wait_outside_memory() {
    let (world, calls) = waiting_for_a_person(None, 5);
    let mut bounded =
        ResidentCore::with_store(empty(&world), RestingStore::in_memory(), NOTHING_STAYS);
    world.records.iter().for_each(|record| bounded.replay(record).unwrap());

    let action = OperatorAction {
        verb: OperatorVerb::Reload,
        by: name("operator"),
        who: OperatorIdentity::default(),
        note: String::new(),
        details: Vec::new(),
    };
    let contracts = Contracts::new(vec![client("desk", &[])]).unwrap();
    let config = CoreConfig {
        contracts: Arc::new(contracts),
        limits: TreeLimits::default(),
        schedules: None,
        digest: Digest::of(b"another config"),
    };
    let request = ReloadRequest { ticket: Uuid::nil(), action, config, blobs: Vec::new() };
    let position = Position(world.records.len() as u64 + 1);
    let step = bounded.step(position, world.now, Event::Reload(Box::new(request))).unwrap();

    let gone = step.effects.iter().filter_map(|effect| match effect {
        Effect::Alarm { alarm: Alarm::Gone { call }, .. } => Some(*call),
        _ => None,
    });
    let mut gone: Vec<_> = gone.collect();
    gone.sort_unstable();
    let mut expected = calls;
    expected.sort_unstable();
    assert_eq!(gone, expected);
    assert_eq!(bounded.state().trees.len(), 1, "the tree of the organism");
}

#[test]
fn a_pause_of_one_thread_leaves_the_other_trees_outside_memory() {
    let (world, calls) = waiting_for_a_person(None, 5);
    let paused = world.core.state().call(calls[2]).unwrap().thread.clone();
    let mut bounded =
        ResidentCore::with_store(empty(&world), RestingStore::in_memory(), NOTHING_STAYS);
    world.records.iter().for_each(|record| bounded.replay(record).unwrap());
    let request = PauseChange {
        ticket: Uuid::nil(),
        action: PauseAction {
            verb: PauseVerb::Pause,
            target: PauseTarget::Thread(paused.clone()),
            by: name("ana"),
            origin: None,
        },
    };
    let position = Position(world.records.len() as u64 + 1);
    bounded.step(position, world.now, Event::Pause(request)).unwrap();
    let mut in_memory = bounded.state().roots_in_memory();
    in_memory.sort_unstable();
    let mut expected = [ThreadId::organism(), paused];
    expected.sort_unstable();
    assert_eq!(in_memory, expected);
}

/// Starts a pump in which everything at rest leaves memory.
fn started(kept: &Kept, store: RestingStore) -> (Handle, std::thread::JoinHandle<()>) {
    let world = world();
    let mut core = ResidentCore::with_store(empty(&world), store, NOTHING_STAYS);
    let journal = kept.open(None);
    kept.records().iter().for_each(|record| core.replay(record).unwrap());
    let mut pump = Pump::new(core, journal, world.gate.clone());
    let found = |_: &Delivery| -> Result<Outcome, AttemptFailure> {
        Ok(Outcome {
            payloads: vec![word("found", "1").into_bytes()],
            turn: None,
            ..Outcome::default()
        })
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

#[tokio::test]
async fn a_held_call_outside_memory_is_shown_by_its_message() {
    let (world, _) = waiting_for_a_person(None, 0);
    let kept = Kept::new();
    let core = ResidentCore::with_store(empty(&world), RestingStore::in_memory(), NOTHING_STAYS);
    let pump = Pump::new(core, kept.open(None), world.gate.clone());
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test").unwrap());
    for _ in 0..3 {
        let text = word("ask", "q");
        handle.submit(&name("desk"), new_thread(), None, text.as_bytes()).await.unwrap();
    }

    let held = handle.held_calls().await.unwrap().all().await.unwrap();
    assert_eq!(held.len(), 3);
    for one in held {
        let shown = handle.held_call(one.request.id).await.unwrap();
        let shown: Vec<_> = shown.iter().map(|held| held.request.id).collect();
        assert_eq!(shown, [one.request.id]);
        assert!(handle.held_thread(one.request.id).await.unwrap().is_some());
    }
    handle.stop();
    pump.join().unwrap();
}

#[tokio::test]
async fn a_list_of_many_held_calls_is_read_in_batches_and_has_each_call_once() {
    let (world, _) = waiting_for_a_person(None, 0);
    let core = ResidentCore::with_store(empty(&world), RestingStore::in_memory(), NOTHING_STAYS);
    let kept = Kept::new();
    let pump = Pump::new(core, kept.open(None), world.gate.clone());
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test").unwrap());
    let mut calls = Vec::new();
    for _ in 0..limits::HELD_CALLS_BATCH + 10 {
        let text = word("ask", "q");
        let submitted = handle.submit(&name("desk"), new_thread(), None, text.as_bytes()).await;
        match submitted.unwrap().0 {
            Receipt::Accepted { calls: opened, .. } => calls.extend(opened),
            other => panic!("{other:?}"),
        }
    }

    let mut list = handle.held_calls().await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = list.next_batch().await.unwrap() {
        batches.push(batch.into_iter().map(|held| CallId(held.request.id)).collect::<Vec<_>>());
    }
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [limits::HELD_CALLS_BATCH, 10]);
    let mut listed = batches.concat();
    listed.sort_unstable();
    calls.sort_unstable();
    assert_eq!(listed, calls);

    handle.stop();
    pump.join().unwrap();
}
