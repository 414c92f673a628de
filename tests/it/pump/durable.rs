//! The driver, on a real journal: what it does, and what was on disk when it did it.

use std::sync::{Arc, Mutex};

use organism::bus::native::InlineHost;
use organism::bus::{Delivery, Outcome};
use organism::contract::{Contracts, TreeLimits};
use organism::ids::{Digest, MessageId, Position};
use organism::journal::sqlite::Reader;
use organism::pump::core::{Core, Receipt, Target};
use organism::pump::driver::Pump;
use organism::pump::gate::Gate;
use organism::schema::Schemas;
use organism::thread::Fact;

use super::world::{client, listener, name, word};
use crate::journal::substrate::Kept;

/// Every message that another process would find now.
fn on_disk(data: &std::path::Path) -> Vec<MessageId> {
    let reader = Reader::open(data).unwrap();
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
async fn what_follows_from_a_record_is_done_when_it_is_on_disk() {
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
            Ok(Outcome { payloads: vec![reply.into_bytes()], turn: None })
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
    let done = results.remove(0).await.unwrap();
    assert!(on_disk(&data).contains(&done.messages[0].id), "told and not on disk");
    handle.stop();
    running.join().unwrap().unwrap();
    let early = early.lock().unwrap();
    assert!(early.is_empty(), "handed over and not on disk: {early:?}");
}
