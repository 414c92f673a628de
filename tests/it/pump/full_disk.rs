//! The driver on a disk that is full and gets space again, several times. A maximum number of pages
//! of the journal's file stands for the size of the disk.

use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use organism::bus::native_host::{HandlerContext, NativeHandler, NativeHost};
use organism::bus::{Delivery, Outcome};
use organism::contract::TreeLimits;
use organism::envelope::{AttemptFailure, RefusalRule};
use organism::ids::{Digest, ListenerName, MessageId, Position, ThreadId};
use organism::journal::Error;
use organism::journal::sqlite::DATABASE;
use organism::pump::core::{Core, PauseRuling, Receipt, Target};
use organism::pump::driver::{
    Completions, Handle, Pump, PumpMetrics, PumpNotReady, PumpStopped, PumpUnavailable,
    WriteObstacle,
};
use organism::thread::{Closing, Decision, PauseAction, PauseTarget, PauseVerb, Record};
use rusqlite::Connection;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::world::{World, client, listener, name, word};
use crate::abuse::judge;
use crate::campaign::Campaign;
use crate::journal::Place;
use crate::organism::PATIENCE;

/// Maximum time until a submission is accepted, counted from the moment at which the disk has space
/// again. At least one round must stay within this time: a standstill of the machine spoils a
/// single round, and a slow pump spoils all.
const ROOM_MAX: Duration = Duration::from_secs(2);
/// Time after which a submission without an answer counts as waiting.
const A_WHILE: Duration = Duration::from_millis(100);
/// Length of a text in bytes. A record with such a text does not fit into the free bytes of any
/// page.
const TEXT_BYTES: usize = 40 << 10;
const PAGES_MAX: u32 = 400;

type Sent = Result<(Receipt, Completions), PumpStopped>;
type Sending<'a> = Pin<Box<dyn Future<Output = Sent> + 'a>>;

/// A listener that answers every payload. For a payload `hold`, the listener waits until the test
/// releases it.
struct Finder {
    let_go: Arc<Semaphore>,
}

impl NativeHandler for Finder {
    async fn handle(
        &self,
        delivery: Delivery,
        _: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        let asked = delivery.messages[0].payload.as_str();
        if asked.contains("hold") {
            self.let_go.acquire().await.expect("never closed").forget();
        }
        let found = asked.replace("look", "found").into_bytes();
        Ok(Outcome { payloads: vec![found], turn: None, ..Outcome::default() })
    }
}

struct Disk {
    place: Place,
    handle: Handle,
    pump: JoinHandle<Result<(), Error>>,
    let_go: Arc<Semaphore>,
    other: Connection,
    counts: Arc<PumpMetrics>,
}

impl Disk {
    fn start() -> Self {
        let place = Place::new();
        let journal = place.open().unwrap();
        journal.set_pages_max(Some(PAGES_MAX)).unwrap();
        let contracts =
            vec![client("desk", &["finder"]), listener("finder", &["look"], &["found"], &[])];
        let gate = World::new(contracts).gate.clone();
        let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
        let mut pump = Pump::new(core, Box::new(journal), gate);
        let let_go = Arc::new(Semaphore::new(0));
        let finder = Finder { let_go: Arc::clone(&let_go) };
        let runtime = tokio::runtime::Handle::current();
        let host = NativeHost::new(name("finder"), finder, pump.sink(), runtime);
        pump.host(name("finder"), Arc::new(host));
        let (handle, counts) = (pump.handle(), pump.counts());
        let pump = std::thread::spawn(move || pump.run("test"));
        let other = Connection::open(place.data().join(DATABASE)).unwrap();
        other.busy_timeout(PATIENCE).unwrap();
        Self { place, handle, pump, let_go, other, counts }
    }

    /// Fills the disk, so that the journal cannot grow.
    fn fill(&self) {
        let sql = "INSERT INTO blob(digest, bytes) VALUES ('other', zeroblob(?1))";
        self.other.execute(sql, [8 << 20]).unwrap();
    }

    fn empty(&self) {
        self.other.execute("DELETE FROM blob WHERE digest = 'other'", []).unwrap();
    }

    fn send<'a>(&'a self, key: &str) -> Sending<'a> {
        let text = word("look", &format!("{key} {}", "x".repeat(TEXT_BYTES)));
        let (target, key) = (Target::New { suggested: None }, key.to_owned());
        Box::pin(async move {
            self.handle.submit(&name("desk"), target, Some(key), text.as_bytes()).await
        })
    }

    /// Sends submissions until one is refused. Returns the earlier submissions, which wait for
    /// their commit.
    async fn find_full<'a>(&'a self, round: usize) -> Vec<(String, Sending<'a>)> {
        let mut waiting = Vec::new();
        loop {
            assert!(waiting.len() < 20, "nobody is turned away");
            let key = format!("{round}-waits-{}", waiting.len());
            let mut sending = self.send(&key);
            match tokio::time::timeout(A_WHILE, &mut sending).await {
                Err(_) => waiting.push((key, sending)),
                Ok(sent) => {
                    assert_turned_away(sent);
                    assert_eq!(self.counts.unready(), [PumpNotReady::Waits(WriteObstacle::Disk)]);
                    return waiting;
                }
            }
        }
    }

    fn last(&self) -> Position {
        self.place.reader().last().unwrap()
    }
}

fn assert_turned_away(sent: Sent) {
    match sent.unwrap().0 {
        Receipt::Refused { refusal, retry_after } => {
            assert_eq!(refusal.rule, RefusalRule::StorageFull);
            assert!(retry_after.is_some(), "it may be sent again");
        }
        other => panic!("{other:?}"),
    }
}

/// Asserts that requests of operators are refused, and that queries are answered.
async fn assert_operators_are_answered(handle: &Handle) {
    let by = ListenerName::operator();
    let all = PauseAction { verb: PauseVerb::Pause, target: PauseTarget::All, by, origin: None };
    match in_time(handle.pause(all)).await.unwrap() {
        PauseRuling::Refused(refusal) => assert_eq!(refusal.rule, RefusalRule::StorageFull),
        other => panic!("{other:?}"),
    }

    let refuse = Decision::Refuse { reason: String::new() };
    let decided = in_time(handle.decide(MessageId(Uuid::nil()), refuse, None)).await.unwrap();
    assert_eq!(decided.unwrap_err().rule, RefusalRule::StorageFull);

    let held = in_time(handle.held_calls()).await.map(drop);
    assert_eq!(held, Err(PumpUnavailable::Waits(WriteObstacle::Disk)));
    let unknown = ThreadId::parse("sess-unknown0").unwrap();
    assert_eq!(in_time(handle.tree_head(unknown)).await.unwrap(), None);
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it hangs")
}

/// Asserts that the submission was accepted and its call has its result.
async fn assert_done(sending: impl Future<Output = Sent>) {
    let (receipt, mut results) = in_time(sending).await.unwrap();
    assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
    let done = in_time(results.next()).await.unwrap().unwrap();
    assert_eq!(done.how, Closing::Completed);
}

/// The keys of the client's submissions, in the order of the record.
fn keys(records: &[Record]) -> Vec<String> {
    let sent = judge::messages(records).filter(|message| message.from == name("desk"));
    let key = sent.map(|message| {
        let (_, text) = message.payload.as_str().split_once("<text>").unwrap();
        text.split_once(' ').unwrap().0.to_owned()
    });
    key.collect()
}

#[tokio::test]
async fn a_full_disk_turns_away_what_is_new_and_keeps_what_was_taken_in_its_order() {
    let mut campaign = Campaign::new("full disk, driver");
    let disk = Disk::start();
    let mut expected = Vec::new();
    let mut shortest = Duration::MAX;
    for round in 0..2 {
        let before = format!("{round}-before");
        assert_done(disk.send(&before)).await;
        let held = format!("{round}-hold");
        let (_, mut result) = in_time(disk.send(&held)).await.unwrap();
        expected.extend([before, held]);
        disk.fill();
        let waiting = disk.find_full(round).await;
        assert!(!waiting.is_empty(), "nobody met the full disk");
        let last = disk.last();
        // An answer that arrives now keeps its place; a new submission does not get one.
        disk.let_go.add_permits(1);
        for number in 0..20 {
            assert_turned_away(in_time(disk.send(&format!("{round}-away-{number}"))).await);
        }
        assert_operators_are_answered(&disk.handle).await;
        let early = tokio::time::timeout(A_WHILE, result.next()).await;
        assert!(early.is_err(), "told before it is on record: {early:?}");
        assert_eq!(disk.last(), last, "recorded while the disk is full");
        disk.empty();
        let begun = Instant::now();
        let mut number = 0;
        loop {
            let after = format!("{round}-after-{number}");
            let (receipt, _) = in_time(disk.send(&after)).await.unwrap();
            if matches!(receipt, Receipt::Accepted { .. }) {
                assert_eq!(disk.counts.unready(), []);
                expected.extend(waiting.iter().map(|(key, _)| key.clone()).chain([after]));
                break;
            }
            number += 1;
            assert!(begun.elapsed() < PATIENCE, "there is room, and still: {receipt:?}");
        }
        shortest = shortest.min(begun.elapsed());
        campaign.note(format!("accepted {:.2?} after there was room", begun.elapsed()));
        for (_, sending) in waiting {
            assert_done(sending).await;
        }
        assert_eq!(in_time(result.next()).await.unwrap().unwrap().how, Closing::Completed);
    }
    assert!(shortest < ROOM_MAX, "accepted {shortest:?} after there was room");
    in_time(disk.handle.drain("done")).await.unwrap();
    disk.pump.join().unwrap().unwrap();
    assert_eq!(disk.counts.unready(), [PumpNotReady::Draining, PumpNotReady::Ended]);
    let records: Vec<Record> = disk.place.records().into_iter().map(|s| s.record).collect();
    judge::assert_kept(&records);
    assert_eq!(keys(&records), expected, "what was accepted, in its order, and nothing else");
    let (data, state) = (disk.place.data(), disk.place.state());
    let report = organism::audit::verify(&data, Some(&state), &mut |_, _| {}).unwrap();
    assert_eq!(report.broken, None);
}
