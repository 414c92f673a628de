//! The driver: a pump on its own thread, with a journal and a clock.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use organism::bus::native_host::{InlineHost, NativeHost};
use organism::bus::{Delivery, Outcome};
use organism::clock::Time;
use organism::contract::{Contract, TreeLimits};
use organism::envelope::{AttemptFailure, Message, Turn};
use organism::ids::Digest;
use organism::journal::Error;
use organism::pump::core::{Core, Receipt, Target};
use organism::pump::driver::{Handle, Pump};
use organism::thread::{Closing, Fact, Input, Record};

use super::slow_disk::{Silent, WatchedJournal};
use super::world::{World, agent, client, listener, name, word};
use crate::journal::substrate::Kept;

/// Time-out of a wait for a pump in this process. It is short, because some guards of a broken rule
/// fail only by this time-out.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Running {
    pub handle: Handle,
    pub pump: JoinHandle<Result<(), Error>>,
    pub place: Kept,
}

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

/// Starts a pump with `handle` for its listeners. `pages` is the maximum size of the journal's
/// file.
pub fn start(
    pages: Option<u32>,
    handle: impl Fn(&Delivery) -> Result<Outcome, AttemptFailure> + Send + Sync + Clone + 'static,
) -> Running {
    start_hosting(pages, |pump| {
        for who in ["thinker", "finder"] {
            let host = InlineHost::new(name(who), handle.clone(), pump.sink());
            pump.host(name(who), Arc::new(host));
        }
    })
}

/// Starts a pump with the hosts that `add_hosts` adds. `pages` is the maximum size of the journal's
/// file.
pub fn start_hosting(pages: Option<u32>, add_hosts: impl FnOnce(&mut Pump)) -> Running {
    let place = Kept::new();
    let journal = place.open(pages);
    let gate = World::new(contracts()).gate.clone();
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    let mut pump = Pump::new(core, journal, gate);
    add_hosts(&mut pump);
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test"));
    Running { handle, pump, place }
}

impl Running {
    pub async fn ended(self) -> Result<(), Error> {
        let ended = tokio::task::spawn_blocking(move || self.pump.join().unwrap());
        tokio::time::timeout(PATIENCE, ended).await.expect("the pump goes on for ever").unwrap()
    }
}

pub fn silent(_: &Delivery) -> Result<Outcome, AttemptFailure> {
    Ok(Outcome::default())
}

#[tokio::test]
async fn a_pump_that_waits_for_room_on_the_disk_can_be_stopped() {
    let running = start(Some(1), silent);
    let (desk, large) = (name("desk"), word("look", &"x".repeat(200 << 10)));
    let target = Target::New { suggested: None };
    let submitted = async {
        running
            .handle
            .submit(&desk, target, None, large.as_bytes())
            .await
            .map(|(receipt, _)| receipt)
    };
    let stopped = async { running.handle.stop() };
    let (receipt, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(submitted, stopped) })
        .await
        .expect("whoever submitted hears of the end");
    assert!(receipt.is_err(), "nothing was recorded: {receipt:?}");
    let ended = running.ended().await;
    assert!(matches!(ended, Err(Error::Full { .. })), "{ended:?}");
}

/// Law 3: the note of an agent's turn is validated at the gate, as every payload is. If the note is
/// not a valid model turn, the answer is unreadable.
#[tokio::test]
async fn a_turn_whose_note_is_no_model_turn_is_an_unreadable_answer() {
    let (core, turn) = (organism::system::NAMESPACE, "model-turn");
    let notes = [
        format!("<{turn} xmlns='{core}'><raw>"),
        format!("<{turn} xmlns='{core}'/><ack xmlns='{core}'/>"),
        format!("<ack xmlns='{core}'/>"),
        format!("<{turn} xmlns='urn:other'/>"),
    ];
    for note in notes {
        let answer = word("answer", "a").into_bytes();
        let turn = Turn { note: note.clone(), ..Turn::default() };
        let outcome = Outcome { payloads: vec![answer], turn: Some(turn), ..Outcome::default() };
        let running = start(None, move |_| Ok(outcome.clone()));
        let (desk, plan) = (name("desk"), word("plan", "p"));
        let target = Target::New { suggested: None };
        let submitted = running.handle.submit(&desk, target, None, plan.as_bytes()).await;
        let done = submitted.unwrap().1.next().await.unwrap().unwrap();
        assert_eq!(done.how, Closing::Failed, "{note}");
        assert!(done.messages[0].payload.as_str().contains("no answer that can be read"), "{note}");
        running.handle.drain("done").await.unwrap();
        running.ended().await.unwrap();
    }
}

/// A redaction leaves only NULs of a payload, and no listener may get them.
#[tokio::test]
async fn a_delivery_with_a_redacted_payload_reaches_no_listener_and_its_call_fails() {
    let Running { handle, pump, place } = start_hosting(None, |_| {});
    let target = Target::New { suggested: None };
    let look = word("look", "private");
    let submitted = handle.submit(&name("desk"), target, None, look.as_bytes()).await;
    assert!(matches!(submitted.unwrap().0, Receipt::Accepted { .. }));
    handle.stop();
    tokio::task::spawn_blocking(move || pump.join().unwrap()).await.unwrap().unwrap();

    let gate = World::new(contracts()).gate.clone();
    let mut core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    for mut record in place.records() {
        for payload in record.payloads_mut().filter(|payload| payload.as_str() == look) {
            let blank = "\0".repeat(payload.len());
            assert!(payload.restore(&blank));
        }
        core.replay(&record);
    }

    let mut pump = Pump::new(core, place.open(None), gate);
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let count = move |_: &Delivery| {
        *counted.lock().unwrap() += 1;
        Ok(Outcome::default())
    };
    pump.host(name("finder"), Arc::new(InlineHost::new(name("finder"), count, pump.sink())));
    let handle = pump.handle();
    let mut recorded = handle.recorded();
    let pump = std::thread::spawn(move || pump.run("test"));

    let is_withheld = |record: &Record| match &record.input {
        Input::Failed { failure, .. } => {
            assert!(!failure.is_retried(), "{failure}");
            failure.to_string().contains("was redacted")
        }
        _ => false,
    };
    let withheld = async {
        while !place.records().iter().any(is_withheld) {
            recorded.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, withheld).await.expect("the delivery is withheld");
    handle.stop();
    tokio::task::spawn_blocking(move || pump.join().unwrap()).await.unwrap().unwrap();
    assert_eq!(*calls.lock().unwrap(), 0);
    let records = place.records();
    let payloads = records.iter().flat_map(|record| record.payloads());
    let text = "a message of this call was redacted";
    let reasons = payloads.filter(|payload| payload.as_str().contains(text)).count();
    assert_eq!(reasons, 1, "the caller gets the reason");
}

/// Prompts show a placeholder in place of an earlier message that was redacted.
#[test]
fn an_earlier_redacted_message_withholds_no_delivery_of_an_agent() {
    let mut world = World::new(contracts());
    world.open("desk", &word("plan", "p"));
    let mut delivery = world.delivery("thinker");
    let message = Arc::clone(&delivery.messages[0]);
    let mut redacted = Message::clone(&message);
    let blank = "\0".repeat(redacted.payload.len());
    assert!(redacted.payload.restore(&blank));
    let redacted = Arc::new(redacted);

    delivery.fresh = 1;
    for at in 0..3 {
        delivery.messages = vec![Arc::clone(&message); 3];
        delivery.messages[at] = Arc::clone(&redacted);
        assert_eq!(delivery.redacted_message(true).is_some(), at != 1, "{at}");
        assert!(delivery.redacted_message(false).is_some(), "{at}");
    }
}

/// All calls that expire at the same time end in one commit, however many they are.
#[tokio::test]
async fn all_deadlines_that_are_due_at_once_take_one_commit() {
    const CALLS: usize = 200;
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.concurrency = 1_000;
    finder.timeout = Duration::from_secs(1);
    let (timeout, place) = (finder.timeout, Kept::new());
    let gate = World::new(vec![client("desk", &["finder"]), finder]).gate.clone();
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    let commits = Arc::new(Mutex::new(Vec::new()));
    let (counted, mut last_hand_over) = (Arc::clone(&commits), Time::default());
    let before_write = move |records: &[Record]| {
        for record in records {
            if record.facts.iter().any(|fact| matches!(fact, Fact::HandedOver { .. })) {
                last_hand_over = record.time;
            }
        }
        let is_deadline = |record: &&Record| matches!(record.input, Input::Deadline { .. });
        let deadlines = records.iter().filter(is_deadline).count();
        if deadlines == 0 {
            return;
        }
        let mut commits = counted.lock().unwrap();
        commits.push(deadlines);
        // The calls that are delivered by now are due after this first commit.
        while commits.len() == 1 && Time::now() < last_hand_over.plus(timeout) {
            std::thread::yield_now();
        }
    };
    let journal = WatchedJournal::new(place.open(None), before_write);
    let mut pump = Pump::new(core, Box::new(journal), gate);
    let runtime = tokio::runtime::Handle::current();
    let host = NativeHost::new(name("finder"), Silent, pump.sink(), runtime);
    pump.host(name("finder"), Arc::new(host));
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test"));

    let (desk, look) = (name("desk"), word("look", "q"));
    let submitted = (0..CALLS).map(|_| {
        let target = Target::New { suggested: None };
        handle.submit(&desk, target, None, look.as_bytes())
    });
    for submitted in futures_util::future::join_all(submitted).await {
        let done = submitted.unwrap().1.next().await.unwrap().unwrap();
        assert!(done.messages[0].payload.as_str().contains("timeout"), "{:?}", done.messages);
    }
    handle.stop();
    tokio::task::spawn_blocking(move || pump.join().unwrap()).await.unwrap().unwrap();

    let commits = commits.lock().unwrap();
    assert_eq!(commits.iter().sum::<usize>(), CALLS);
    assert!(commits.len() < CALLS / 10, "so many deadlines in each commit: {commits:?}");
}

#[tokio::test]
async fn a_submission_to_a_hundred_peers_gets_the_completion_of_every_call_in_order() {
    const PEERS: usize = 100;

    let names: Vec<String> = (0..PEERS).map(|n| format!("finder-{n}")).collect();
    let peers: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut contracts = vec![client("desk", &peers)];
    contracts.extend(peers.iter().map(|who| listener(who, &["look"], &["found"], &[])));
    let place = Kept::new();
    let gate = World::new(contracts).gate.clone();
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    let mut pump = Pump::new(core, place.open(None), gate);
    for who in &peers {
        let answer = word("found", who).into_bytes();
        let found = move |_: &Delivery| {
            Ok(Outcome { payloads: vec![answer.clone()], turn: None, ..Outcome::default() })
        };
        pump.host(name(who), Arc::new(InlineHost::new(name(who), found, pump.sink())));
    }
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test"));

    let (desk, look) = (name("desk"), word("look", "x"));
    let target = Target::New { suggested: None };
    let submitted = handle.submit(&desk, target, None, look.as_bytes()).await;
    let (_, mut completions) = submitted.unwrap();
    assert_eq!(completions.len(), PEERS);
    for who in &peers {
        let done = completions.next().await.unwrap().unwrap();
        assert_eq!(done.messages[0].from, name(who));
    }
    assert!(completions.next().await.is_none());
    handle.stop();
    let ended = tokio::task::spawn_blocking(move || pump.join().unwrap()).await.unwrap();
    ended.unwrap();
}
