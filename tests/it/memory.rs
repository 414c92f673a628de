//! The memory of listeners: a thread that is read in parts equals the same thread read at once, and
//! the payloads of other threads are not read.

mod growing;

use std::collections::BTreeSet;

use organism::agent::history::{self, ThreadFold, Viewpoint};
use organism::agent::{MemoryScope, RendererVersion};
use organism::ids::{CallId, Position, ThreadId};
use organism::journal::HashedRecord;
use organism::journal::sqlite::{DATABASE, JournalReader};
use organism::memory::{JournalMemory, ThreadHistory as _};
use organism::thread::{Fact, Record};
use rusqlite::Connection;

use crate::journal::Place;
use crate::journal::script::{Script, name, research, thread};

const FIRST: &str = "sess-aaaaaaaa";
const SECOND: &str = "sess-bbbbbbbb";

/// A journal of two trees whose records alternate. Each tree has a subthread.
fn two_trees() -> Place {
    let mut script = Script::default();
    let one = research(&mut script, FIRST);
    let two = research(&mut script, SECOND);
    let mut mixed: Vec<_> = one.into_iter().zip(two).flat_map(|(a, b)| [a, b]).collect();
    Place::with(&mut mixed)
}

fn concerns(record: &Record, thread: &ThreadId) -> bool {
    record.facts.iter().any(|fact| match fact {
        Fact::Accepted { message, .. } => message.thread == *thread,
        Fact::ThreadOpened { thread: of, .. } | Fact::Window { thread: of, .. } => of == thread,
        _ => false,
    })
}

/// The records that concern `thread`, found by reading the whole tree.
fn expected(reader: &JournalReader, thread: &ThreadId) -> Vec<Record> {
    let tree = reader.tree(&thread.root(), None).unwrap();
    let records = tree.into_iter().map(|HashedRecord { record, .. }| record);
    records.filter(|record| concerns(record, thread)).collect()
}

fn threads(reader: &JournalReader) -> BTreeSet<ThreadId> {
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    let opened = facts.filter_map(|fact| match fact {
        Fact::ThreadOpened { thread, .. } => Some(thread.clone()),
        _ => None,
    });
    opened.collect()
}

/// Positions of the records of the thread's tree, oldest first.
fn positions(reader: &JournalReader, thread: &ThreadId) -> Vec<Position> {
    let tree = reader.tree(&thread.root(), None).unwrap();
    tree.iter().map(|sealed| sealed.record.position).collect()
}

#[test]
fn a_thread_that_is_read_step_by_step_is_the_thread_that_is_read_at_once() {
    let place = two_trees();
    let reader = place.reader();
    let threads = threads(&reader);
    assert!(threads.len() >= 4, "{threads:?}");

    let shared = JournalMemory::new(place.data());
    for thread in &threads {
        let expected = expected(&reader, thread);
        assert!(!expected.is_empty());
        let positions = positions(&reader, thread);
        for step in [1, 2, 5, positions.len()] {
            // One memory knows nothing yet, and the other one has read other threads.
            for memory in [&JournalMemory::new(place.data()), &shared] {
                let mut read = Vec::new();
                let mut after = Position(0);
                for up_to in positions.chunks(step).filter_map(|chunk| chunk.last()) {
                    read.extend(memory.records(thread, after, *up_to).unwrap());
                    after = *up_to;
                }
                assert_eq!(read, expected, "{thread} in steps of {step}");
            }
        }
        assert_eq!(shared.thread(thread).unwrap(), expected);
    }
    assert_eq!(shared.thread(&thread("sess-unknown1")).unwrap(), []);
}

#[test]
fn a_thread_is_read_from_the_middle_and_then_from_its_beginning() {
    let place = two_trees();
    let reader = place.reader();
    for thread in &threads(&reader) {
        let expected = expected(&reader, thread);
        let last = *positions(&reader, thread).last().unwrap();
        for middle in expected.iter().map(|record| record.position) {
            let memory = JournalMemory::new(place.data());
            let (before, after) = expected.split_at(
                expected
                    .iter()
                    .position(|record| record.position > middle)
                    .unwrap_or(expected.len()),
            );
            assert_eq!(memory.records(thread, middle, last).unwrap(), after);
            assert_eq!(memory.records(thread, Position(0), middle).unwrap(), before);
        }
    }
}

// The payload of another subthread is not even touched: its bytes may be damaged.
#[test]
fn payloads_of_other_threads_are_not_read() {
    let place = two_trees();
    let reader = place.reader();
    let threads = threads(&reader);
    for thread in threads
        .iter()
        .filter(|thread| expected(&reader, thread).len() < positions(&reader, thread).len())
    {
        let wanted = expected(&reader, thread);
        let copy = place.copy();
        let data = copy.data();
        let damaged = Connection::open(data.join(DATABASE)).unwrap();
        let own: Vec<_> = wanted.iter().map(|record| record.position.0.to_string()).collect();
        let others =
            format!("UPDATE step SET payloads = x'00' WHERE position NOT IN ({})", own.join(","));
        damaged.execute(&others, []).unwrap();
        drop(damaged);

        let memory = JournalMemory::new(data.clone());
        assert_eq!(memory.thread(thread).unwrap(), wanted, "{thread}");
        let reader = JournalReader::open(&data).unwrap();
        assert!(reader.tree(&thread.root(), None).is_err(), "{thread} is the whole tree");
    }
}

#[test]
fn a_record_that_opened_two_threads_is_read_from_the_journal_once() {
    let [first, second] = ["one", "two"].map(|label| thread(&format!("{FIRST}.{label}")));
    let mut records = research(&mut Script::default(), FIRST);
    let opened = |thread: &ThreadId| Fact::ThreadOpened {
        thread: thread.clone(),
        by: name("researcher"),
        bound: None,
        allotment: None,
    };
    records[1].facts.extend([&first, &second].map(opened));
    let place = Place::with(&mut records);
    let wanted = [&first, &second].map(|thread| expected(&place.reader(), thread));

    let memory = JournalMemory::new(place.data());
    assert_eq!(memory.thread(&first).unwrap(), wanted[0]);
    let changed = Connection::open(place.data().join(DATABASE)).unwrap();
    changed.execute("UPDATE step SET body = 'damaged' WHERE position = 2", []).unwrap();
    assert_eq!(memory.thread(&second).unwrap(), wanted[1]);
    assert!(memory.thread(&second).is_err(), "no other thread has to read it");
}

#[test]
fn a_damaged_record_is_an_error_and_not_a_shorter_thread() {
    let copy = two_trees();
    let thread = thread(FIRST);
    let data = copy.data();
    let damaged = Connection::open(data.join(DATABASE)).unwrap();
    let sql = "UPDATE step SET body = replace(body, 'researcher', 'resaercher') WHERE position = 3";
    damaged.execute(sql, []).unwrap();
    drop(damaged);
    let error = JournalMemory::new(data).thread(&thread).unwrap_err().to_string();
    assert!(error.contains('3'), "{error}");
}

#[test]
fn a_fold_that_grows_with_each_record_remembers_what_a_new_fold_remembers() {
    let place = two_trees();
    let reader = place.reader();
    let agent = name("researcher");
    for thread in &threads(&reader) {
        let records = expected(&reader, thread);
        let calls: BTreeSet<CallId> = records.iter().flat_map(calls_in).collect();
        for scope in [MemoryScope::Thread, MemoryScope::Own] {
            let version = RendererVersion::CURRENT;
            let mut grown = ThreadFold::new(agent.clone(), thread.clone(), scope, version);
            for (at, record) in records.iter().enumerate() {
                grown.extend(std::slice::from_ref(record), record.position);
                for call in &calls {
                    let position = record.position;
                    let (agent, call) = (&agent, *call);
                    let view = Viewpoint { agent, thread, call, position, memory: scope, version };
                    let at_once = history::of(&records[..=at], &view);
                    assert_eq!(grown.memory(call, position), at_once, "{position}");
                }
            }
        }
    }
}

fn calls_in(record: &Record) -> Vec<CallId> {
    let calls = record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => message.call,
        _ => None,
    });
    calls.collect()
}

#[test]
fn a_record_that_is_changed_between_two_reads_is_an_error() {
    let place = two_trees();
    let mut script = Script::default();
    research(&mut script, SECOND);
    let other = Place::with(&mut research(&mut script, FIRST));
    let root = thread(FIRST);
    let memory = JournalMemory::new(place.data());
    let whole = memory.thread(&root).unwrap();
    assert_eq!(memory.thread(&root).unwrap(), whole);

    // The row is that of another journal, so it agrees with its own hash.
    let sql = "ATTACH ?1 AS other";
    let changed = Connection::open(place.data().join(DATABASE)).unwrap();
    changed.execute(sql, [other.data().join(DATABASE).to_str().unwrap()]).unwrap();
    let row = "UPDATE step SET (previous, previous_hash, time, hash, body, payloads) = (SELECT \
               previous, previous_hash, time, hash, body, payloads FROM other.step WHERE position = 1) \
               WHERE position = 1";
    changed.execute(row, []).unwrap();
    drop(changed);
    let error = memory.thread(&root).unwrap_err().to_string();
    assert!(error.contains("not the record that was read before"), "{error}");
}
