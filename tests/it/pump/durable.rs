//! The driver with a real journal: its effects, and the records on the disk at each effect.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use organism::bus::native_host::InlineHost;
use organism::bus::{Delivery, Host, Outcome};
use organism::clock::Time;
use organism::contract::{Contracts, TreeLimits};
use organism::ids::{Attempt, CallId, Digest, MessageId, Position};
use organism::journal::Error;
use organism::journal::sqlite::{JournalReader, SqliteJournal};
use organism::pump::core::{Core, Receipt, Target};
use organism::pump::driver::Pump;
use organism::pump::gate::Gate;
use organism::schema::Schemas;
use organism::thread::{Fact, Record};
use uuid::Uuid;

use super::slow_disk::WatchedJournal;
use super::world::{client, listener, name, word};
use crate::journal::substrate::Kept;

/// Ids of all messages that another process finds in the journal at this moment.
fn on_disk(data: &std::path::Path) -> Vec<MessageId> {
    let reader = JournalReader::open(data).unwrap();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let facts = records.into_iter().flat_map(|sealed| sealed.record.facts);
    let messages = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(message.id),
        _ => None,
    });
    messages.collect()
}

fn gate() -> Gate {
    let mut schemas = Schemas::default();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pump/words.xsd");
    schemas.add_file(file.as_ref()).unwrap();
    schemas.add_builtin("core.xsd", organism::system::SCHEMA).unwrap();
    let contracts = vec![
        client("desk", &["finder"]),
        listener("finder", &["look"], &["found"], &["counter"]),
        listener("counter", &["count"], &["counted"], &[]),
    ];
    Gate::new(Arc::new(Contracts::new(contracts).unwrap()), schemas)
}

// Law 2
#[tokio::test]
async fn effects_of_a_record_happen_after_it_is_on_disk() {
    let place = Kept::new();
    let data = place.data();
    let gate = gate();
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::of(b"config"));
    let mut pump = Pump::new(core, place.open(None), gate);
    let early = Arc::new(Mutex::new(Vec::new()));
    for who in ["finder", "counter"] {
        let (early, data) = (Arc::clone(&early), data.clone());
        let handle = move |delivery: &Delivery| {
            let recorded = on_disk(&data);
            let missing = delivery.messages.iter().filter(|m| !recorded.contains(&m.id));
            early.lock().unwrap().extend(missing.map(|message| message.name.clone()));
            let reply = match (delivery.listener.as_str(), delivery.messages.len()) {
                ("counter", _) => word("counted", "1"),
                (_, 1) => word("count", "1"),
                _ => word("found", "1"),
            };
            Ok(Outcome { payloads: vec![reply.into_bytes()], turn: None, ..Outcome::default() })
        };
        let host = InlineHost::new(name(who), handle, pump.sink());
        pump.host(name(who), Arc::new(host));
    }
    let handle = pump.handle();
    let running = std::thread::spawn(move || pump.run("test"));
    let (target, text) = (Target::New { suggested: None }, word("look", "q"));
    let submitted = handle.submit(&name("desk"), target, None, text.as_bytes()).await;
    let (receipt, mut results) = submitted.unwrap();
    let Receipt::Accepted { calls, .. } = receipt else { panic!("{receipt:?}") };
    assert!(on_disk(&data).contains(&calls[0].0), "acknowledged and not on disk");
    let done = results.next().await.unwrap().unwrap();
    assert!(on_disk(&data).contains(&done.messages[0].id), "told and not on disk");
    handle.stop();
    running.join().unwrap().unwrap();
    let early = early.lock().unwrap();
    assert!(early.is_empty(), "handed over and not on disk: {early:?}");
}

type Log = Arc<Mutex<Vec<&'static str>>>;

/// A journal that makes records durable with `write`, and readable with `show`.
struct InTwo {
    journal: SqliteJournal,
    log: Log,
}

impl organism::journal::Journal for InTwo {
    fn id(&self) -> Uuid {
        self.journal.id()
    }
    fn epoch(&self) -> u32 {
        self.journal.epoch()
    }
    fn next(&self) -> Position {
        self.journal.next()
    }
    fn write(&mut self, _: &mut [Record]) -> Result<Vec<Digest>, Error> {
        self.log.lock().unwrap().push("written");
        Ok(Vec::new())
    }
    fn show(&mut self, records: &[Record]) -> Result<(), Error> {
        self.log.lock().unwrap().push("readable");
        self.journal.append(&mut records.to_vec()).map(drop)
    }
    fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error> {
        self.journal.checkpoint_if_due(now)
    }
    fn checked_at(&self) -> Option<Time> {
        None
    }
    fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error> {
        self.journal.put_blob(bytes)
    }
    fn close(self: Box<Self>, now: Time) -> Result<(), Error> {
        self.journal.close(now)
    }
}

/// A host that does not read the journal, like a host on another machine.
struct Elsewhere(Box<dyn Host>, Log);

impl Host for Elsewhere {
    fn deliver(&self, delivery: Delivery) {
        self.1.lock().unwrap().push("delivered elsewhere");
        self.0.deliver(delivery);
    }
    fn reads_journal(&self) -> bool {
        false
    }
    fn cancel(&self, call: CallId, attempt: Attempt) {
        self.0.cancel(call, attempt);
    }
    fn flush(&self) {
        self.1.lock().unwrap().push("sent");
    }
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.drain()
    }
}

#[tokio::test]
async fn only_who_does_not_read_the_journal_is_given_what_cannot_be_read_yet() {
    let place = crate::journal::Place::new();
    let (gate, log) = (gate(), Log::default());
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::of(b"config"));
    let journal = InTwo { journal: place.open().unwrap(), log: Arc::clone(&log) };
    let mut pump = Pump::new(core, Box::new(journal), gate);
    let own = Arc::clone(&log);
    let counter = move |_: &Delivery| {
        own.lock().unwrap().push("delivered here");
        Ok(Outcome {
            payloads: vec![word("counted", "1").into_bytes()],
            turn: None,
            ..Outcome::default()
        })
    };
    let finder = |delivery: &Delivery| {
        let reply = if delivery.messages.len() > 1 { "found" } else { "count" };
        Ok(Outcome {
            payloads: vec![word(reply, "1").into_bytes()],
            turn: None,
            ..Outcome::default()
        })
    };
    let finder = InlineHost::new(name("finder"), finder, pump.sink());
    pump.host(name("finder"), Arc::new(Elsewhere(Box::new(finder), Arc::clone(&log))));
    let counter = InlineHost::new(name("counter"), counter, pump.sink());
    pump.host(name("counter"), Arc::new(counter));
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test"));
    let (target, look) = (Target::New { suggested: None }, word("look", "x"));
    let submitted = handle.submit(&name("desk"), target, None, look.as_bytes()).await;
    submitted.unwrap().1.next().await.unwrap().unwrap();
    let log: Vec<_> = std::mem::take(&mut *log.lock().unwrap());
    let (one, other) = (
        ["written", "delivered elsewhere", "sent", "readable"].as_slice(),
        ["written", "readable", "delivered here"].as_slice(),
    );
    let expected = [&["written", "readable"], one, other, one, &["written", "readable"]].concat();
    assert_eq!(log, expected);
    handle.stop();
    pump.join().unwrap().unwrap();
}

/// Design 8.12: a pump makes its due checkpoints although waiting clients query it all the time.
#[tokio::test]
async fn queries_do_not_keep_an_idle_pump_from_its_checkpoints() {
    const QUERIES: u32 = 20;
    let place = Kept::new();
    let gate = gate();
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::of(b"config"));
    let journal = WatchedJournal::new(place.open(None), |_: &[Record]| {});
    let checks = Arc::clone(&journal.checks);
    let pump = Pump::new(core, Box::new(journal), gate);
    let handle = pump.handle();
    let running = std::thread::spawn(move || pump.run("test"));

    for _ in 0..QUERIES {
        assert!(handle.held_calls().await.unwrap().all().await.unwrap().is_empty());
    }

    let checks = checks.load(Ordering::SeqCst);
    assert!(checks >= QUERIES / 2, "{checks} looks for a checkpoint in {QUERIES} queries");
    handle.stop();
    running.join().unwrap().unwrap();
}
