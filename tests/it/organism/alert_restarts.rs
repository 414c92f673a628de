//! Alerts of an organism whose records are ahead of the system clock, or whose alerts are far back
//! in the journal.

use organism::clock::Time;
use organism::ids::{Digest, Position, ThreadId};
use organism::index::INDEX_DATABASE;
use organism::journal::Journal as _;
use organism::journal::sqlite::SqliteJournal;
use organism::limits;
use organism::system::AlertEvent;
use organism::thread::{Input, Record};

use super::alerts::{self, event, events, fail, recorded_events, refuse};
use super::{House, numbered, until};

const HOUR_MICROS: i64 = 3_600_000_000;

fn set_clock(house: &House, micros: i64) {
    // Written atomically, so that no reader sees a part.
    house.write("skew.new", micros.to_string());
    std::fs::rename(house.path("skew.new"), house.path("skew")).unwrap();
}

#[test]
fn an_alert_ends_after_its_window_although_the_clock_was_ahead() {
    let house = alerts::house("window = \"2s\"");
    set_clock(&house, 0);
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_CLOCK_SKEW", house.path("skew"));
    let running = house.run_with(command);
    set_clock(&house, HOUR_MICROS);
    fail(&house);
    until("it is raised", || (!events(&house, "failures", "holder").is_empty()).then_some(()));
    set_clock(&house, 0);

    until("it ends", || (events(&house, "failures", "holder").len() == 2).then_some(()));
    fail(&house);
    until("the next one", || (events(&house, "failures", "holder").len() == 3).then_some(()));
    let expected = [event("raised", 1), event("ended", 1), event("raised", 1)];
    assert_eq!(events(&house, "failures", "holder"), expected);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Appends records to the thread that contains the reports about alerts.
fn append(house: &House, count: usize) {
    let mut journal = SqliteJournal::open(&house.data(), &house.state(), &mut |_| Ok(())).unwrap();
    let record = || Record {
        position: Position(0),
        tree: ThreadId::organism(),
        previous: Position(0),
        previous_hash: Digest::ZERO,
        time: Time::now(),
        input: Input::Standstill { stood_micros: 0, stepped_micros: 0 },
        facts: Vec::new(),
    };
    let mut records: Vec<_> = std::iter::repeat_with(record).take(count).collect();
    for group in records.chunks_mut(1_000) {
        journal.append(group).unwrap();
    }
    journal.close(Time::now()).unwrap();
}

/// Adds to the index a report about an alert whose record is not in the journal.
fn name_a_missing_record(house: &House) {
    let index = rusqlite::Connection::open(house.data().join(INDEX_DATABASE)).unwrap();
    let sql = "INSERT INTO alert_row(position, time, event, kind, subject, cause, since, count, detail) \
               VALUES (0, 0, 'raised', 'failures', 'nothing', 0, 0, 1, '')";
    index.execute(sql, []).unwrap();
}

#[test]
fn a_restart_raises_no_open_alert_again_however_far_back_it_is() {
    let settings = "waiting = \"1s\"\nwindow = \"1h\"\nrefusals = 3";
    let house = House::settled(&alerts::CONFIG.replace("ALERTS", settings));
    alerts::write_notify(&house, alerts::NOTIFY);
    let running = house.run();
    fail(&house);
    let sent = house.send_text(&numbered("ping", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json();
    let message = held[0]["message"].as_str().unwrap().to_owned();
    for subject in ["holder", message.as_str()] {
        until("it is sent", || (recorded_events(&house, subject).len() == 2).then_some(()));
    }
    assert_eq!(running.stop(), Some(0));
    append(&house, 1_000);
    let indexed = house.organism(&["sql", "SELECT count(*) FROM alert"]);
    assert_eq!(indexed.code, Some(0), "{indexed:?}");
    name_a_missing_record(&house);
    // The index lacks almost all records that the start reads itself.
    append(&house, limits::ALERT_RECALL_RECORDS_MAX - 500);

    let running = house.run();
    (0..3).for_each(|_| refuse(&house));
    // This alert is behind everything that the start might have raised again.
    until("the other alert", || (!events(&house, "refusals", "desk").is_empty()).then_some(()));
    let hash = held[0]["sha256"].as_str().unwrap();
    let approved = house.organism(&["approve", &message, "--hash", hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    until("it ends", || (events(&house, "waiting", &message).len() == 2).then_some(()));
    assert_eq!(events(&house, "waiting", &message), [event("raised", 1), event("ended", 1)]);
    assert_eq!(recorded_events(&house, "holder"), [AlertEvent::Raised, AlertEvent::Sent]);
    assert_eq!(running.stop(), Some(0));
}
