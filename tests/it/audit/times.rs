//! `--since` and `--until` of commands that read records: `--since` includes its time, and
//! `--until` excludes it.

use std::process::Command;

use organism::ids::Position;
use serde_json::Value as Json;

use super::{ROOT, organism, researched, stdout};
use crate::journal::Place;

fn lines(place: &Place, args: &[&str]) -> Vec<Json> {
    let text = stdout(organism(place, args));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn positions(lines: &[Json]) -> Vec<u64> {
    let mut positions: Vec<u64> =
        lines.iter().map(|line| line["position"].as_u64().unwrap()).collect();
    positions.dedup();
    positions
}

fn time_of(place: &Place, position: u64) -> String {
    place.reader().existing_record(Position(position)).unwrap().record.time.to_string()
}

/// Issue 17, 4.5: `tail` with `--since` and `--until` shows the records between two times, and
/// stops.
#[test]
fn tail_shows_what_was_recorded_between_two_times() {
    let place = researched();
    let shown = |args: &[&str]| positions(&lines(&place, &[&["tail", "--json"], args].concat()));
    let all = shown(&["--no-follow", "-n", "100"]);
    let (third, sixth) = (time_of(&place, 3), time_of(&place, 6));

    let between = shown(&["--since", &third, "--until", &sixth]);
    let expected: Vec<u64> = all.iter().copied().filter(|at| (3..6).contains(at)).collect();
    assert_eq!(between, expected);
    assert!(!between.is_empty());
    let from: Vec<u64> = all.iter().copied().filter(|at| *at >= 3).collect();
    assert_eq!(shown(&["--no-follow", "--since", &third]), from);
    let last_before: Vec<u64> = all.iter().copied().filter(|at| (4..6).contains(at)).collect();
    assert_eq!(shown(&["--until", &sixth, "-n", "2"]), last_before);
    assert_eq!(shown(&["--no-follow", "--since", "2100-01-01"]), [0; 0]);
    assert_eq!(shown(&["--until", "2000-01-01"]), [0; 0]);

    for wrong in
        [&["--since", "noon"][..], &["--since", "1d", "-n", "3"], &["--until", "1d", "--live"]]
    {
        let refused = organism(&place, &[&["tail", "--no-follow"], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
    }
}

/// A time without a zone is in the zone of the machine, which `TZ` names. A time with a zone in
/// brackets is in that zone.
#[test]
fn a_time_without_a_zone_is_in_the_zone_of_the_machine() {
    let place = researched();
    let third = time_of(&place, 3);
    assert!(third.starts_with("2026-11-20T10:"), "{third}");
    let local = |hour: &str| third.replacen("T10:", hour, 1).trim_end_matches('Z').to_owned();
    let shown = |zone: &str, since: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
        command.args(["tail", "--json", "--no-follow", "--since", since]).env("TZ", zone);
        command.arg("--data").arg(place.data()).arg("--state").arg(place.state());
        command.output().unwrap()
    };
    let first = |zone: &str, since: &str| {
        let text = stdout(shown(zone, since));
        let line = text.lines().next().map(|line| serde_json::from_str::<Json>(line).unwrap());
        line.and_then(|line| line["position"].as_u64())
    };

    let expected = first("UTC", &third);
    assert!(expected >= Some(3), "{expected:?}");
    assert_eq!(first("Asia/Tokyo", &third), expected);
    assert_eq!(first("Asia/Tokyo", &local("T19:")), expected);
    assert_eq!(first("America/New_York", &local("T05:")), expected);
    assert_eq!(first("UTC", &local("T10:")), expected);
    assert_eq!(first("UTC", &local("T19:")), None);
    let stated = format!("{}[America/New_York]", local("T05:"));
    assert_eq!(first("Asia/Tokyo", &stated), expected);

    let refused = shown("UTC", &format!("{}[Mars/Olympus]", local("T10:")));
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("Mars/Olympus"), "{text}");
}

/// Issue 17, 4.5: `export` writes the records between two times, with the dispositions at the time
/// of the export.
#[test]
fn an_export_has_what_was_recorded_between_two_times() {
    let place = researched();
    let exported =
        |args: &[&str]| lines(&place, &[&["export", "--format", "jsonl"], args].concat());
    let all = exported(&[]);
    let (third, sixth) = (time_of(&place, 3), time_of(&place, 6));
    let is_between = |line: &&Json| (3..6).contains(&line["position"].as_u64().unwrap());
    let expected: Vec<Json> = all.iter().filter(is_between).cloned().collect();

    let between = exported(&["--since", &third, "--until", &sixth]);
    assert_eq!(between, expected);
    assert!(!between.is_empty());
    assert_eq!(exported(&[ROOT, "--since", &third, "--until", &sixth]), expected);
    let later = |line: &&Json| line["disposition"].is_string();
    assert!(between.iter().any(|line| later(&line)), "dispositions of later records are known");
    assert_eq!(exported(&["--until", &third, "--since", &third]), [Json::Null; 0]);

    let xml = stdout(organism(&place, &["export", "--since", &third, "--until", &sixth]));
    assert_eq!(xml.matches("<e:record ").count(), 3, "{xml}");
    let document = libxml::parser::Parser::default().parse_string(&xml).unwrap();
    assert_eq!(document.get_root_element().unwrap().get_child_elements().len(), 3);
}
