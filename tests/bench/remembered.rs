//! Processor time of reading from the memory of agents. `turn_1000`: reading and rendering turn
//! 1,000 of a thread, compared with turn 10 of the same thread. `tree_1000`: reading a turn in a
//! tree of 1,000 subthreads with ten turns each, compared with 100 subthreads.

use organism::agent::PastTurn;
use organism::bus::Delivery;
use organism::clock::Time;
use organism::envelope::{Message, MessageKind, Payload};
use organism::ids::{CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId};
use organism::journal::Journal as _;
use organism::journal::sqlite::SqliteJournal;
use organism::memory::{JournalMemory, ThreadHistory as _};
use organism::thread::{Fact, Input, Record};
use uuid::Uuid;

use super::cpu;
use super::figures::{Bench, median, median_of};
use super::floor::directory;
use super::relay::listener;
use super::story::{Plot, Story};

/// A thread of 1,000 turns.
const PLOT: Plot = Plot { questions: 40, looks: 24 };
/// Number of measured turns; the result is their median.
const TURNS: usize = 10;

pub fn turn_1000(bench: &mut Bench) {
    let story = Story::recorded("turns", PLOT);
    let taken = story.turns();
    assert_eq!(taken.len(), 1_000);
    let from = |first: usize| {
        // The agent knows the thread up to the turn before the first one that is measured.
        let due = story.due("provider = \"playback\"\nrecording = \"recording.toml\"\n");
        let delivery = |past: &PastTurn| Delivery {
            call: past.call,
            position: past.position,
            ..due.delivery.clone()
        };
        due.agent.rendered(&delivery(&taken[first - 2])).unwrap();
        let turns = taken[first - 1..first - 1 + TURNS].iter();
        median_of(turns.map(|past| {
            let delivery = delivery(past);
            cpu::micros(|| {
                due.agent.rendered(&delivery).unwrap();
            })
        }))
    };
    let early = median(bench.runs, || from(10));
    let late = median(bench.runs, || from(1_000 - TURNS + 1));
    bench.figures.add("turn_1000", late, "us CPU", Some(early));
}

/// Number of turns of each subthread.
const ROUNDS: u64 = 10;

pub fn tree_1000(bench: &mut Bench) {
    let few = median(bench.runs, || subthreads(100));
    let many = median(bench.runs, || subthreads(1_000));
    bench.figures.add("tree_1000", many, "us CPU a turn", Some(few));
}

/// Processor time of reading one turn in a tree of `threads` subthreads, in microseconds. The
/// subthreads take their turns one after another.
fn subthreads(threads: u64) -> f64 {
    let place = directory("tree");
    let (data, state) = (place.join("data"), place.join("state"));
    let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
    let root = ThreadId::parse("sess-tree0001").unwrap();
    let names: Vec<_> = (0..threads).map(|number| root.child(&format!("t{number}"))).collect();
    let mut records = vec![opened(&root)];
    records.extend(names.iter().map(opened));
    let rounds = (0..ROUNDS).flat_map(|round| names.iter().map(move |name| (round, name)));
    records.extend(rounds.map(|(round, name)| turn(&root, name, round)));
    for batch in records.chunks_mut(1_000) {
        journal.append(batch).unwrap();
    }
    journal.close(Time::now()).unwrap();

    let memory = JournalMemory::new(data);
    let first = threads + 2;
    let micros = cpu::micros(|| {
        for round in 0..ROUNDS {
            for (number, name) in (0..).zip(&names) {
                let up_to = Position(first + round * threads + number);
                let after = if round == 0 { Position(0) } else { Position(up_to.0 - threads) };
                let read = memory.records(name, after, up_to).unwrap();
                assert_eq!(read.len(), if round == 0 { 2 } else { 1 });
            }
        }
    });
    micros / (threads * ROUNDS) as f64
}

fn record(tree: &ThreadId, facts: Vec<Fact>) -> Record {
    Record {
        position: Position(0),
        tree: tree.root(),
        previous: Position(0),
        previous_hash: Digest::ZERO,
        time: Time::now(),
        input: Input::Boot { detail: "a bench".to_owned() },
        facts,
    }
}

fn opened(thread: &ThreadId) -> Record {
    let by = listener("client");
    let fact = Fact::ThreadOpened { thread: thread.clone(), by, bound: None, allotment: None };
    record(thread, vec![fact])
}

/// Returns the record of a message of 1 KB in `thread`.
fn turn(root: &ThreadId, thread: &ThreadId, round: u64) -> Record {
    let id = MessageId(Uuid::now_v7());
    let text = "all work and no play ".repeat(50);
    let from: ListenerName = listener("writer");
    let message = Message {
        id,
        kind: MessageKind::Note,
        from: from.clone(),
        to: from,
        thread: thread.clone(),
        seq: round + 1,
        cause: None,
        call: Some(CallId(id)),
        time: Time::now(),
        name: PayloadName::new("urn:bench:tree", "note"),
        payload: Payload::new(format!("<note xmlns=\"urn:bench:tree\">{text}</note>")),
    };
    record(root, vec![Fact::Accepted { message: message.into(), opening: None, key: None }])
}
