//! Checks the safety properties, each by its name, on the records of an organism that has no
//! messages in flight.

use std::collections::{HashMap, HashSet};

use organism::audit::{MessageLedger, ThreadCounts};
use organism::envelope::{Message, MessageKind};
use organism::ids::{CallId, MessageId, ThreadId};
use organism::system::{self, NOTES, Primitive};
use organism::thread::{Closing, Fact, Record};

use crate::organism::kill::Tail;
use crate::organism::{House, until};

/// Returns the violated properties, and the numbers of accepted and settled messages.
pub fn defects(records: &[Record]) -> (Vec<String>, ThreadCounts) {
    let (mut wrong, mut ledger) = (Vec::new(), MessageLedger::default());
    for record in records {
        wrong.extend(ledger.take(record).err());
    }
    let total = ledger.total();
    if total.accepted != total.settled {
        wrong.push(format!("{} accepted, {} settled", total.accepted, total.settled));
    }
    one_result_each(records, &mut wrong);
    no_orphans(records, &mut wrong);
    nobody_else_is_the_core(records, &mut wrong);
    (wrong, total)
}

/// Asserts that every message is settled and every property holds.
#[track_caller]
pub fn assert_kept(records: &[Record]) -> ThreadCounts {
    let (wrong, total) = defects(records);
    assert!(wrong.is_empty(), "{}: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    total
}

/// Asserts for a stopped organism that every message is settled, every property holds, and the hash
/// chain is valid.
#[track_caller]
pub fn assert_house_kept(house: &House) -> ThreadCounts {
    house.verified();
    assert_kept(&records(house))
}

pub fn records(house: &House) -> Vec<Record> {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let sealed = reader.records(organism::ids::Position(1), last).unwrap();
    sealed.into_iter().map(|sealed| sealed.record).collect()
}

/// Waits until nothing is in flight.
pub fn quiet(house: &House) {
    let mut tail = Tail::default();
    until("everything is settled", || (tail.in_flight(house) == 0).then_some(()));
}

pub fn messages(records: &[Record]) -> impl Iterator<Item = &Message> {
    records.iter().flat_map(|record| &record.facts).filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(&**message),
        _ => None,
    })
}

/// Checks that every call ended exactly once. A message must follow from each call that was not
/// cancelled.
fn one_result_each(records: &[Record], wrong: &mut Vec<String>) {
    let mut opened: HashSet<CallId> = HashSet::new();
    let mut closed: HashMap<CallId, Vec<Closing>> = HashMap::new();
    let mut answered: HashSet<MessageId> = HashSet::new();
    for fact in records.iter().flat_map(|record| &record.facts) {
        match fact {
            Fact::Accepted { message, opening: Some(_), .. } => {
                opened.insert(CallId(message.id));
            }
            Fact::Accepted { message, .. } => answered.extend(message.cause),
            Fact::CallClosed { call, how } => closed.entry(*call).or_default().push(*how),
            _ => {}
        }
    }
    for call in &opened {
        match closed.get(call).map(Vec::as_slice) {
            None | Some([]) => wrong.push(format!("call {call} never ended")),
            Some([Closing::Cancelled]) => {}
            Some([how]) if !answered.contains(&call.0) => {
                wrong.push(format!("call {call} ended {how:?} and nobody was told"));
            }
            Some([_]) => {}
            Some(more) => wrong.push(format!("call {call} ended {} times", more.len())),
        }
    }
}

fn no_orphans(records: &[Record], wrong: &mut Vec<String>) {
    let mut threads: HashSet<ThreadId> = [ThreadId::organism()].into();
    for fact in records.iter().flat_map(|record| &record.facts) {
        match fact {
            Fact::ThreadOpened { thread, .. } => {
                let parent = thread.parent();
                if parent.is_some_and(|parent| !threads.contains(&parent)) {
                    wrong.push(format!("{thread} has no parent"));
                }
                threads.insert(thread.clone());
            }
            Fact::Accepted { message, .. } if !threads.contains(&message.thread) => {
                wrong.push(format!("{} was never opened", message.thread));
            }
            _ => {}
        }
    }
}

/// Checks that all system payloads come from the core, and that the core sends no other payloads.
fn nobody_else_is_the_core(records: &[Record], wrong: &mut Vec<String>) {
    for message in messages(records) {
        let mut asked = Primitive::WORDS.iter().chain(&NOTES);
        let is_core_word = &*message.name.namespace == system::NAMESPACE
            && !asked.any(|word| *word == &*message.name.local);
        let is_system = message.kind == MessageKind::System;
        if is_core_word != message.from.is_core() || (is_system && !is_core_word) {
            wrong.push(format!(
                "{} {} is from {}",
                message.kind.as_str(),
                message.name,
                message.from
            ));
        }
    }
}
