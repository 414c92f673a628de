//! Time-zone rules in a replay. The planned times of a schedule in a time zone depend on the rules
//! of this zone on the machine that plans them. No record has these rules, and governments change
//! them, so the machine that replays may have others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::DecisionDifference;
use crate::clock::Time;
use crate::envelope::{Message, Payload};
use crate::ids::ScheduleName;
use crate::system;
use crate::thread::{Fact, Record};
use crate::xml::element::Element;

/// Compares a record with its recomputed form, without the times of schedules in time zones other
/// than UTC. If they are equal, returns the zone of the first such schedule that the record plans.
/// Returns `None` if they differ, or if the record plans no such schedule.
pub(super) fn zone_of_equal_plans(recorded: &Record, decided: &Record) -> Option<String> {
    let zones: BTreeMap<&ScheduleName, &str> = planned_zones(recorded).collect();
    let (_, zone) = planned_zones(recorded).next()?;
    let [recorded, decided] = [recorded, decided].map(|record| without_times(record, &zones));
    DecisionDifference::between(&recorded, Some(&decided)).is_none().then(|| zone.to_owned())
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
                if let Some(event) = event_of_note(message, zones) {
                    Arc::make_mut(message).payload = Payload::new(event);
                }
            }
            _ => {}
        }
    }
    record
}

/// Returns the kind of the event that `message` reports, such as `planned`. Returns `None` if
/// `message` is no note of the core about a schedule in `zones`.
fn event_of_note(message: &Message, zones: &BTreeMap<&ScheduleName, &str>) -> Option<String> {
    if !message.from.is_core() || message.name != system::name("schedule-event") {
        return None;
    }

    let note = Element::head(message.payload.as_str())?;
    let schedule = note.attribute("schedule")?;
    let is_planned = zones.keys().any(|planned| planned.0.as_str() == schedule);
    is_planned.then(|| note.attribute("event").unwrap_or_default().to_owned())
}
