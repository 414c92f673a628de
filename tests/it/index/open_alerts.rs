//! The alerts that a start of the organism finds in the index.

use organism::clock::Time;
use organism::ids::{Digest, Position, ThreadId};
use organism::index;
use organism::journal::Journal as _;
use organism::system::{AlertEvent, AlertKind, AlertReport};
use organism::thread::{Input, Record};

use super::with_index;
use crate::journal::Place;

fn report(event: AlertEvent, kind: AlertKind, subject: &str, cause: u64) -> Record {
    let report = AlertReport {
        event,
        kind,
        subject: subject.to_owned(),
        cause: Position(cause),
        through: Position(cause),
        since: Time(0),
        count: 1,
        thread: None,
        detail: String::new(),
    };
    Record {
        position: Position(0),
        tree: ThreadId::organism(),
        previous: Position(0),
        previous_hash: Digest::ZERO,
        time: Time::now(),
        input: Input::Alert(report),
        facts: Vec::new(),
    }
}

/// Creates a journal with reports about alerts: those at positions 1, 2 and 3 are about a budget, a
/// listener and another budget. The alert of the report at position 4 ends at position 5.
fn journal() -> Place {
    let raised = AlertEvent::Raised;
    Place::with(&mut [
        report(raised, AlertKind::Budgets, "messages in sess-aaaaaaaa", 1),
        report(raised, AlertKind::Failures, "search", 2),
        report(raised, AlertKind::Budgets, "messages in sess-bbbbbbbb", 3),
        report(raised, AlertKind::Failures, "mail", 4),
        report(AlertEvent::Ended, AlertKind::Failures, "mail", 4),
    ])
}

#[test]
fn open_alerts_include_budgets_only_if_their_causes_are_read_again() {
    let place = journal();
    let open = |before: u64, after: u64| {
        let mut query =
            |index: &mut index::IndexReader| index.open_alerts(Position(before), Position(after));
        let positions = with_index(&place.data(), &mut query).unwrap();
        positions.into_iter().map(|position| position.0).collect::<Vec<_>>()
    };
    assert_eq!(open(6, 5), [2]);
    assert_eq!(open(6, 2), [2, 3]);
    assert_eq!(open(6, 0), [1, 2, 3]);
    assert_eq!(open(2, 0), [1]);
}

#[test]
fn an_index_is_read_as_it_is_if_it_has_the_records_of_the_query() {
    let place = journal();
    let read = |last: u64| {
        let mut query = |index: &mut index::IndexReader| Ok(index.position());
        index::read_as_is(&place.data(), Position(last), &mut query).unwrap()
    };
    assert_eq!(read(1), None, "there is no index");
    with_index(&place.data(), &mut |_| Ok(())).unwrap();
    let mut journal = place.open().unwrap();
    let more = report(AlertEvent::Raised, AlertKind::Failures, "more", 6);
    journal.append(&mut [more]).unwrap();
    drop(journal);
    assert_eq!(read(5), Some(Position(5)), "nothing is added to the index");
    assert_eq!(read(6), None);
}
