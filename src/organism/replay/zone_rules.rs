//! Time-zone rules in a replay. The planned times of a schedule in a time zone depend on the rules
//! of this zone on the machine that plans them. No record has these rules, and governments change
//! them, so the machine that replays may have others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::report::DecisionDifference;
use crate::clock::Time;
use crate::envelope::{Message, Payload};
use crate::ids::ScheduleName;
use crate::system;
use crate::thread::{Fact, Record};
use crate::xml::element::Element;

/// Largest difference between two planned times that other rules of a zone can cause: a schedule of
/// one weekday can move by a week, and a zone by a day across the date line.
const DIFFERENCE_MAX: Duration = Duration::from_secs(8 * 24 * 60 * 60);
/// Offsets of zones differ by whole minutes.
const DIFFERENCE_UNIT: u64 = 60;
/// Attributes with planned times in the core's notes about schedules.
const TIMES: [&str; 3] = ["due", "until", "next"];

/// Compares a record with its recomputed form, without the times of schedules in time zones other
/// than UTC. If only these times differ, as other rules of the zone can move them, returns the zone
/// of the first such schedule. Returns `None` for every other difference.
pub(super) fn zone_of_equal_plans(recorded: &Record, decided: &Record) -> Option<String> {
    let zones: BTreeMap<&ScheduleName, &str> = planned_zones(recorded).collect();
    let zone = moved_zone(recorded, decided, &zones)?.to_owned();
    let [recorded, decided] = [recorded, decided].map(|record| without_times(record, &zones));
    DecisionDifference::between(&recorded, Some(&decided)).is_none().then_some(zone)
}

/// Returns the zone of the first schedule in `zones` whose planned times differ between the records.
/// Returns `None` if none differ, or if one differs in a way that no rules of a zone can cause.
fn moved_zone<'a>(
    recorded: &Record,
    decided: &Record,
    zones: &BTreeMap<&ScheduleName, &'a str>,
) -> Option<&'a str> {
    let mut moved = None;
    for (one, other) in recorded.facts.iter().zip(&decided.facts) {
        let (Fact::SchedulePlanned { schedule, due, .. }, Fact::SchedulePlanned { due: now, .. }) =
            (one, other)
        else {
            continue;
        };
        if due == now {
            continue;
        }

        let difference = due.since(*now).max(now.since(*due));
        let is_whole = difference.subsec_nanos() == 0;
        let is_whole = is_whole && difference.as_secs().is_multiple_of(DIFFERENCE_UNIT);
        if !is_whole || difference > DIFFERENCE_MAX {
            return None;
        }
        let zone = *zones.get(schedule)?;
        moved.get_or_insert(zone);
    }
    moved
}

/// Returns the schedules that a record plans in a time zone other than UTC, each with its zone.
fn planned_zones(record: &Record) -> impl Iterator<Item = (&ScheduleName, &str)> {
    record.facts.iter().filter_map(|fact| match fact {
        Fact::SchedulePlanned { schedule, times, .. } => {
            let (_, zone) = times.rsplit_once(" in ")?;
            (zone != "UTC").then_some((schedule, zone))
        }
        _ => None,
    })
}

/// Returns a copy of `record` without the times of the schedules in `zones`.
fn without_times(record: &Record, zones: &BTreeMap<&ScheduleName, &str>) -> Record {
    let mut record = record.clone();
    for fact in &mut record.facts {
        match fact {
            Fact::SchedulePlanned { schedule, due, .. }
            | Fact::ScheduleDue { schedule, due, .. }
                if zones.contains_key(schedule) =>
            {
                *due = Time::default();
            }
            Fact::Accepted { message, .. } => {
                if let Some(note) = note_without_times(message, zones) {
                    Arc::make_mut(message).payload = Payload::new(note);
                }
            }
            _ => {}
        }
    }
    record
}

/// Returns the payload of `message` without planned times. Returns `None` if `message` is no note of
/// the core about a schedule in `zones`.
fn note_without_times(message: &Message, zones: &BTreeMap<&ScheduleName, &str>) -> Option<String> {
    if !message.from.is_core() || message.name != system::name("schedule-event") {
        return None;
    }

    let mut note = Element::read(message.payload.as_str())?;
    let schedule = note.attribute("schedule")?;
    if !zones.keys().any(|planned| planned.0.as_str() == schedule) {
        return None;
    }

    note.attributes.retain(|(name, _)| !TIMES.contains(&&*name.local));
    Some(note.to_xml())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::{moved_zone, planned_zones};
    use crate::clock::Time;
    use crate::ids::{Digest, ListenerName, Position, ScheduleName, ThreadId, TimerId};
    use crate::thread::{Fact, Input, Record};

    const HOUR: i64 = 60 * 60 * 1_000_000;

    fn planned(due: i64) -> Record {
        let schedule = ScheduleName(ListenerName::parse("daily").unwrap());
        let times = "12:00 in Europe/Berlin".to_owned();
        let timer = TimerId(Uuid::nil());
        Record {
            position: Position(2),
            tree: ThreadId::organism(),
            previous: Position(1),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input: Input::Boot { detail: String::new() },
            facts: vec![Fact::SchedulePlanned { schedule, timer, due: Time(due), times }],
        }
    }

    #[test]
    fn only_differences_that_rules_of_a_zone_can_cause_are_accepted() {
        let recorded = planned(12 * HOUR);
        let zones: BTreeMap<_, _> = planned_zones(&recorded).collect();
        let zone_of = |due: i64| moved_zone(&recorded, &planned(due), &zones);

        assert_eq!(zone_of(11 * HOUR), Some("Europe/Berlin"));
        assert_eq!(zone_of(12 * HOUR + HOUR / 4), Some("Europe/Berlin"));
        assert_eq!(zone_of(12 * HOUR), None, "no time differs");
        assert_eq!(zone_of(12 * HOUR + HOUR / 3_600), None, "a second is no offset");
        assert_eq!(zone_of(12 * HOUR + 31 * 24 * HOUR), None, "a month is no offset");
    }
}
