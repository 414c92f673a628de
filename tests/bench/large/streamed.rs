//! The large journal on JetStream: its directories become the projection of a stream on a real
//! server.

use std::path::Path;
use std::time::Instant;

use organism::journal::jetstream::{
    JoiningHost, Options, StreamDurability, StreamJournal, promote,
};
use organism::nats::{self, NatsCredentials};
use organism::pump::ResidentCore;

use super::generate::LargeJournal;
use crate::nats::Server;

/// Environment variable with the address of the server, for a process that opens the journal.
pub const SERVER_ADDRESS: &str = "BENCH_SERVER";

/// Moves the journal into a stream of a new server. Returns the server, which keeps the stream
/// until it is dropped.
pub fn moved(journal: &LargeJournal) -> Server {
    let server = Server::start();
    let began = Instant::now();
    let servers = server.options();
    let (data, state) = (journal.data(), journal.state());
    let moved = promote(&servers, &options(), &data, &state, &mut |_, _, _| {});
    moved.unwrap().expect("an embedded journal");
    println!("moved the journal into a stream in {:.0?}", began.elapsed());
    server
}

fn options() -> Options {
    Options {
        organism: "large".to_owned(),
        stream: "ORGANISM-large".to_owned(),
        partition: 0,
        partitions: 1,
        replicas: 1,
        durability: StreamDurability::Lazy,
        system: None,
        known_keys: Vec::new(),
        checkpoints: None,
    }
}

/// Opens the stream on the server at `address`, as a pump does.
pub fn open(address: String, data: &Path, state: &Path, core: &mut ResidentCore) -> StreamJournal {
    let credentials = NatsCredentials::Anonymous;
    let servers = nats::Options { servers: vec![address], credentials, ca: None };
    let host = JoiningHost::new(data, state);
    StreamJournal::open_recovering(&servers, &options(), &host, core).unwrap()
}
