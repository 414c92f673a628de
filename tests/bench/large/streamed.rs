//! The large journal on JetStream: its directories become the projection of a stream on a real server.

use std::time::Instant;

use organism::journal::jetstream::{Options, StreamDurability, promote};

use super::generate::LargeJournal;
use crate::nats::Server;

/// Moves the journal into a stream of a new server. Returns the server, which keeps the stream until
/// it is dropped.
pub fn moved(journal: &LargeJournal) -> Server {
    let server = Server::start();
    let options = Options {
        organism: "large".to_owned(),
        stream: "ORGANISM-large".to_owned(),
        partition: 0,
        partitions: 1,
        replicas: 1,
        durability: StreamDurability::Lazy,
        system: None,
        known_keys: Vec::new(),
        checkpoints: None,
    };
    let began = Instant::now();
    let moved =
        promote(&server.options(), &options, &journal.data(), &journal.state(), &mut |_, _, _| {});
    moved.unwrap().expect("an embedded journal");
    println!("moved the journal into a stream in {:.0?}", began.elapsed());
    server
}
