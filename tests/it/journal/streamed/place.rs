//! The location of a journal on JetStream: a separate stream, and directories for the projection.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use organism::clock::Time;
use organism::journal::jetstream::{
    JoiningHost, Options, StreamDurability, StreamJournal, identity,
};
use organism::journal::sqlite::JournalReader;
use organism::journal::{Error, HashedRecord, Journal as _, OperatorAcceptance};
use organism::thread::Record;
use serde_json::json;
use uuid::Uuid;

use crate::journal::Place as Directories;
use crate::nats::{Admin, Server, shared};

pub struct Place {
    server: Option<Arc<Server>>,
    pub options: Options,
    pub home: Directories,
}

/// A name that is unique in this process and among parallel processes.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Place {
    pub fn new() -> Self {
        Self { server: None, options: options(&unique()), home: Directories::new() }
    }

    pub fn on(server: &Arc<Server>) -> Self {
        Self { server: Some(Arc::clone(server)), ..Self::new() }
    }

    /// Returns the location of the same stream on another host, with empty directories.
    pub fn elsewhere(&self) -> Self {
        let home = Directories::new();
        Self { server: self.server.clone(), options: self.options.clone(), home }
    }

    pub fn data(&self) -> PathBuf {
        self.home.data()
    }

    pub fn state(&self) -> PathBuf {
        self.home.state()
    }

    /// The file outside the journal that names the last acknowledged record.
    pub fn watermark(&self) -> PathBuf {
        let reader = organism::journal::sqlite::JournalReader::open(&self.data()).unwrap();
        self.state().join(format!("{}.watermark", reader.about().unwrap().journal))
    }

    pub fn server(&self) -> &Server {
        self.server.as_deref().unwrap_or_else(|| shared())
    }

    pub fn admin(&self) -> Admin {
        self.server().admin()
    }

    pub fn open(&self) -> Result<StreamJournal, Error> {
        self.open_with(&mut |_| Ok(()))
    }

    pub fn open_with(
        &self,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<StreamJournal, Error> {
        let servers = self.server().options();
        let mut open =
            || StreamJournal::open(&servers, &self.options, &self.data(), &self.state(), visit);
        match open() {
            Err(Error::OtherJournal { theirs, .. }) => {
                self.belongs_to(theirs);
                open()
            }
            opened => opened,
        }
    }

    /// Opens the stream for an operator who accepts `damage`.
    pub fn open_accepting(&self, damage: OperatorAcceptance) -> Result<StreamJournal, Error> {
        self.open_accepting_with(damage, &mut |_| Ok(()))
    }

    pub fn open_accepting_with(
        &self,
        damage: OperatorAcceptance,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<StreamJournal, Error> {
        let (data, state) = (self.data(), self.state());
        let member = JoiningHost { damage, ..JoiningHost::new(&data, &state) };
        StreamJournal::open_as(&self.server().options(), &self.options, &member, visit)
    }

    /// Notes that the host belongs to the organism of this journal.
    pub fn belongs_to(&self, journal: Uuid) {
        std::fs::create_dir_all(self.state()).unwrap();
        identity::note(&self.state(), &self.options, journal).unwrap();
    }

    pub fn reader(&self) -> JournalReader {
        self.home.reader()
    }

    /// Copies all files in their present state, as after a power cut, and expires the lease of the
    /// pump.
    pub fn copy(&self) -> Self {
        self.let_lapse();
        let home = self.home.copy();
        Self { server: self.server.clone(), options: self.options.clone(), home }
    }

    /// Expires the lease of a dead or frozen pump at once.
    pub fn let_lapse(&self) {
        let bucket = format!("KV_{}", self.options.bucket());
        self.admin().must(&format!("STREAM.PURGE.{bucket}"), &json!({}));
        // The entry of a lease that was released, without a next holder.
        self.admin().publish(&self.options.lease(), "{}");
    }

    pub fn with(records: &mut [Record]) -> Self {
        let place = Self::new();
        let mut journal = place.open().unwrap();
        for group in records.chunks_mut(3) {
            journal.append(group).unwrap();
        }
        let end = records.last().map_or(Time(0), |record| record.time);
        journal.close(end).unwrap();
        place
    }

    pub fn records(&self) -> Vec<HashedRecord> {
        self.home.records()
    }
}

pub fn options(name: &str) -> Options {
    Options {
        organism: name.to_owned(),
        stream: format!("ORGANISM-{name}"),
        partition: 0,
        partitions: 1,
        replicas: 1,
        durability: StreamDurability::Synced,
        system: None,
        known_keys: Vec::new(),
        checkpoints: None,
    }
}
