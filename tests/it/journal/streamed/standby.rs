//! A standby has all records when it takes over.

use std::time::Instant;

use organism::clock::Time;
use organism::ids::Position;
use organism::journal::jetstream::{LeaseCheck, MemberId, Standby};
use organism::journal::{Error, HashedRecord, Journal as _};
use organism::limits;

use super::Place;
use super::bounds::cut;
use crate::journal::script::Script;
use crate::organism::until;

pub fn standby(place: &Place) -> Result<Standby, Error> {
    let servers = place.server().options();
    let begin = || Standby::begin(&servers, &place.options, &place.data(), &place.state());
    match begin() {
        Err(Error::OtherJournal { theirs, .. }) => {
            place.belongs_to(theirs);
            begin()
        }
        begun => begun,
    }
}

/// Asserts that another process holds the lease.
fn held(standby: Standby) -> Standby {
    match standby.look().unwrap() {
        LeaseCheck::Held(standby, holder) => {
            assert!(holder.contains("process"), "{holder}");
            standby
        }
        LeaseCheck::Unavailable(_, error) => panic!("{error}"),
        LeaseCheck::Left(_) => panic!("it was left to nobody"),
        LeaseCheck::Ours(_) => panic!("somebody has it"),
    }
}

#[test]
fn a_standby_follows_the_stream_and_continues_it_when_the_lease_is_free() {
    let first = Place::new();
    let mut journal = first.open().unwrap();
    let mut script = Script::default();
    let second = first.elsewhere();
    let mut heard = Vec::new();
    let mut hear = |sealed: HashedRecord| {
        heard.push(sealed.record.position.0);
        Ok(())
    };
    let mut standby = held(standby(&second).unwrap());
    journal.append(&mut [script.boot(1)]).unwrap();
    standby = held(standby.follow(&mut hear).unwrap());
    journal.append(&mut [script.boot(1), script.boot(1)]).unwrap();
    standby = standby.follow(&mut hear).unwrap();
    standby = held(standby.follow(&mut hear).unwrap());
    assert_eq!(second.records().len(), 3, "and whoever asks on its host sees it");
    journal.append(&mut [script.boot(1)]).unwrap();
    journal.close(Time(0)).unwrap();
    let LeaseCheck::Ours(elect) = standby.look().unwrap() else { panic!("it was let go of") };
    let mut journal = elect.lead(&mut hear).unwrap();
    assert_eq!(heard, [1, 2, 3, 4], "each once, in order");
    assert_eq!((journal.epoch(), journal.next()), (2, Position(5)));
    journal.append(&mut [script.boot(2)]).unwrap();
    journal.close(Time(0)).unwrap();
    assert_eq!(first.open().unwrap().next(), Position(6));
}

#[test]
fn a_pump_that_is_succeeded_by_its_standby_appends_nothing_more() {
    let first = Place::new();
    let mut script = Script::default();
    let mut frozen = first.open().unwrap();
    frozen.append(&mut [script.boot(1)]).unwrap();
    let second = first.elsewhere();
    let standby = held(standby(&second).unwrap().follow(&mut |_| Ok(())).unwrap());
    first.let_lapse();
    let LeaseCheck::Ours(elect) = standby.look().unwrap() else { panic!("it lapsed") };
    let mut journal = elect.lead(&mut |_| Ok(())).unwrap();
    let fenced = frozen.append(&mut [script.boot(1)]).unwrap_err();
    assert!(matches!(fenced, Error::Fenced { ours: 1, theirs: 2 }), "{fenced}");
    journal.append(&mut [script.boot(2)]).unwrap();
    assert_eq!(journal.next(), Position(3));
}

#[test]
fn where_nothing_was_ever_written_a_standby_waits_and_then_begins() {
    let first = Place::new();
    let standby = standby(&first).unwrap().follow(&mut |_| Ok(())).unwrap();
    let LeaseCheck::Ours(elect) = standby.look().unwrap() else { panic!("nobody has it") };
    assert_eq!(elect.lead(&mut |_| Ok(())).unwrap().next(), Position(1));
    let mut other = first.elsewhere();
    other.options.partitions = 2;
    let refused = self::standby(&other).err().expect("it has one partition");
    assert!(matches!(refused, Error::Partitions { ours: 2, theirs: 1, .. }), "{refused}");
}

#[test]
fn a_released_lease_goes_to_its_heir_at_once_and_to_others_only_after_a_delay() {
    for (heir, at_once) in [(MemberId::here(), true), (MemberId::new(), false)] {
        let first = Place::new();
        let mut journal = first.open().unwrap();
        journal.append(&mut [Script::default().boot(1)]).unwrap();
        let second = first.elsewhere();
        let standby = held(standby(&second).unwrap().follow(&mut |_| Ok(())).unwrap());
        assert!(standby.is_ready());
        journal.handover().to(heir);
        journal.close(Time(0)).unwrap();
        let left = Instant::now();
        let mut looking = Some(standby);
        let elect =
            until("the standby is elected", || match looking.take().unwrap().look().unwrap() {
                LeaseCheck::Ours(elect) => Some(elect),
                LeaseCheck::Left(again) => {
                    looking = Some(again);
                    None
                }
                LeaseCheck::Held(..) | LeaseCheck::Unavailable(..) => panic!("nobody has it"),
            });
        let waited = left.elapsed() >= limits::LEASE_RESERVED_FOR_HEIR;
        assert_eq!(waited, !at_once, "{:?}", left.elapsed());
        assert_eq!(elect.lead(&mut |_| Ok(())).unwrap().next(), Position(2));
    }
}

/// A standby does not lead if the stream has become shorter, or has other records than those that
/// the standby has followed.
#[test]
fn a_standby_leads_no_stream_that_differs_from_what_it_has_followed() {
    for is_forked in [false, true] {
        let first = Place::new();
        let mut script = Script::default();
        let mut journal = first.open().unwrap();
        for _ in 0..3 {
            journal.append(&mut [script.boot(1)]).unwrap();
        }
        let second = first.elsewhere();
        let standby = self::standby(&second).unwrap().follow(&mut |_| Ok(())).unwrap();
        assert_eq!(standby.followed_to(), Position(3));
        journal.close(Time(0)).unwrap();

        cut(&first, 1);
        first.let_lapse();
        if is_forked {
            // A host that reaches no place which knows more.
            let mut other = first.elsewhere().open().unwrap();
            for _ in 0..5 {
                other.append(&mut [script.boot(7)]).unwrap();
            }
            other.close(Time(0)).unwrap();
            first.let_lapse();
        }

        let LeaseCheck::Ours(elect) = standby.look().unwrap() else { panic!("it lapsed") };
        let refused = elect.lead(&mut |_| panic!("a record is replayed")).unwrap_err();
        let is_expected = if is_forked {
            matches!(refused, Error::StreamForked { position: Position(2), .. })
        } else {
            matches!(refused, Error::StreamShorter { .. })
        };
        assert!(is_expected, "{refused}");
        assert_eq!(second.records().len(), 3, "its projection is as it was");
    }
}

/// Checks the lease repeatedly, until the running pump has taken the lease again.
fn held_again(standby: Standby) -> Standby {
    let mut looking = Some(standby);
    until("the pump takes its lease again", || match looking.take().unwrap().look().unwrap() {
        LeaseCheck::Held(again, _) => Some(again),
        LeaseCheck::Left(again) => {
            looking = Some(again);
            None
        }
        LeaseCheck::Unavailable(_, error) => panic!("{error}"),
        LeaseCheck::Ours(_) => panic!("its pump runs"),
    })
}

/// An administrator deletes the bucket with the leases while a pump and its standby run. The
/// standby creates the bucket again and waits until the pump has taken its lease again.
#[test]
fn a_standby_creates_a_lost_bucket_again_and_the_running_pump_keeps_its_lease() {
    let first = Place::new();
    let mut script = Script::default();
    let mut journal = first.open().unwrap();
    journal.append(&mut [script.boot(1)]).unwrap();
    let second = first.elsewhere();
    let standby = held(standby(&second).unwrap().follow(&mut |_| Ok(())).unwrap());
    first.admin().delete(&format!("KV_{}", first.options.bucket()));

    let standby = held_again(standby);
    journal.append(&mut [script.boot(1)]).unwrap();
    journal.close(Time(0)).unwrap();
    let LeaseCheck::Ours(elect) = standby.look().unwrap() else { panic!("it was let go of") };
    assert_eq!(elect.lead(&mut |_| Ok(())).unwrap().next(), Position(3));
}

/// A start into a bucket that was lost does not take the lease of a pump that still runs.
#[test]
fn a_start_in_a_lost_bucket_waits_for_the_pump_that_held_the_lease() {
    let first = Place::new();
    let mut script = Script::default();
    let mut journal = first.open().unwrap();
    journal.append(&mut [script.boot(1)]).unwrap();
    first.admin().delete(&format!("KV_{}", first.options.bucket()));

    let second = first.elsewhere();
    let standby = held_again(standby(&second).unwrap().follow(&mut |_| Ok(())).unwrap());
    journal.append(&mut [script.boot(1)]).unwrap();
    journal.close(Time(0)).unwrap();
    let LeaseCheck::Ours(elect) = standby.look().unwrap() else { panic!("it was let go of") };
    assert_eq!(elect.lead(&mut |_| Ok(())).unwrap().next(), Position(3));
}
