//! The driver on a disk that needs more than a second for each commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use organism::bus::native_host::{HandlerContext, InlineHost, NativeHandler, NativeHost};
use organism::bus::{Delivery, Outcome};
use organism::clock::Time;
use organism::contract::TreeLimits;
use organism::envelope::AttemptFailure;
use organism::ids::{Digest, Position};
use organism::journal::{Error, Journal};
use organism::limits;
use organism::pump::core::{Core, Target};
use organism::pump::driver::{Completions, Handle, Pump};
use organism::thread::{Closing, Record};
use uuid::Uuid;

use super::world::{World, client, listener, name, word};
use crate::journal::substrate::Kept;
use crate::organism::PATIENCE;

/// Duration of a commit on the slow disk.
const COMMIT: Duration = limits::STANDSTILL_MIN.saturating_add(Duration::from_millis(100));

/// A journal that calls a callback before each commit. It also counts how often the pump permits a
/// checkpoint that is due.
pub struct WatchedJournal<F> {
    journal: Box<dyn Journal>,
    before_write: F,
    pub checks: Arc<AtomicU32>,
}

impl<F> WatchedJournal<F> {
    pub fn new(journal: Box<dyn Journal>, before_write: F) -> Self {
        Self { journal, before_write, checks: Arc::default() }
    }
}

impl<F: FnMut(&[Record]) + Send> Journal for WatchedJournal<F> {
    fn id(&self) -> Uuid {
        self.journal.id()
    }

    fn epoch(&self) -> u32 {
        self.journal.epoch()
    }

    fn next(&self) -> Position {
        self.journal.next()
    }

    fn write(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        (self.before_write)(records);
        self.journal.write(records)
    }

    fn show(&mut self, records: &[Record]) -> Result<(), Error> {
        self.journal.show(records)
    }

    fn verify_lead(&mut self) -> Result<(), Error> {
        self.journal.verify_lead()
    }

    fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error> {
        self.checks.fetch_add(1, Ordering::SeqCst);
        self.journal.checkpoint_if_due(now)
    }

    fn checked_at(&self) -> Option<Time> {
        self.journal.checked_at()
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error> {
        self.journal.put_blob(bytes)
    }

    fn close(self: Box<Self>, now: Time) -> Result<(), Error> {
        self.journal.close(now)
    }
}

/// A listener that never answers.
pub struct Silent;

impl NativeHandler for Silent {
    async fn handle(&self, _: Delivery, _: HandlerContext) -> Result<Outcome, AttemptFailure> {
        std::future::pending().await
    }
}

async fn send(handle: &Handle, text: &str) -> Completions {
    let target = Target::New { suggested: None };
    let sent = handle.submit(&name("desk"), target, None, text.as_bytes()).await;
    sent.unwrap().1
}

#[tokio::test]
async fn a_time_out_fires_though_every_commit_takes_longer_than_a_second() {
    let mut silent = listener("silent", &["ask"], &["report"], &[]);
    silent.timeout = COMMIT;
    let contracts = vec![
        client("desk", &["finder", "silent"]),
        listener("finder", &["look"], &["found"], &[]),
        silent,
    ];
    let place = Kept::new();
    let gate = World::new(contracts).gate.clone();
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    let before_write = |_: &[Record]| std::thread::sleep(COMMIT);
    let journal = WatchedJournal::new(place.open(None), before_write);
    let mut pump = Pump::new(core, Box::new(journal), gate);
    let found = |_: &Delivery| {
        Ok(Outcome {
            payloads: vec![word("found", "f").into_bytes()],
            turn: None,
            ..Outcome::default()
        })
    };
    pump.host(name("finder"), Arc::new(InlineHost::new(name("finder"), found, pump.sink())));
    let runtime = tokio::runtime::Handle::current();
    let host = NativeHost::new(name("silent"), Silent, pump.sink(), runtime);
    pump.host(name("silent"), Arc::new(host));
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test"));

    let mut asked = send(&handle, &word("ask", "q")).await;
    let traffic = async {
        loop {
            send(&handle, &word("look", "q")).await.next().await.unwrap().unwrap();
        }
    };
    let done = tokio::select! {
        done = tokio::time::timeout(PATIENCE, asked.next()) => done.expect("it never times out"),
        () = traffic => unreachable!("it has no end"),
    };
    let done = done.unwrap().unwrap();
    assert_eq!(done.how, Closing::Failed);
    assert!(done.messages[0].payload.as_str().contains("timeout"), "{:?}", done.messages);

    handle.stop();
    let ended = tokio::task::spawn_blocking(move || pump.join().unwrap()).await.unwrap();
    ended.unwrap();
}
