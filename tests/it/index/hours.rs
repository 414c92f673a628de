//! Rows of the index that sum up the events of each hour (issue 17, 3.5).

use organism::clock::Time;
use organism::envelope::{MessageKind, RefusalRule};
use organism::ids::{Attempt, CallId};
use organism::thread::{Fact, Input, Record};

use super::sums::{columns, stats};
use super::{contents, rows};
use crate::journal::Place;
use crate::journal::script::{CORE, Script, name, thread};

const MINUTE: i64 = 60_000_000;
const HOUR: i64 = 60 * MINUTE;
/// The hour in which the first event happens.
const START: i64 = 400_000 * HOUR;
/// Time between two events. An hour is no multiple of this time, so the events fall on different
/// minutes in each hour.
const STEP: i64 = 11 * MINUTE;

/// A journal of 12 hours, in which turns, attempts and refusals alternate.
fn half_a_day() -> Vec<Record> {
    let mut script = Script::default();
    let tree = thread("sess-abcdefgh");
    let (asked, mut first) = script.question(&tree, "Who?");
    let call = CallId(asked);
    first.time = Time(START);
    let mut records = vec![first];
    let mut add = |record: Record| {
        let n = i64::try_from(records.len()).unwrap();
        records.push(Record { time: Time(START + n * STEP), ..record });
    };

    for n in 0..16_u32 {
        let attempt = Attempt { epoch: 1, n: n + 1 };
        let mut handed = script.step(&tree, Input::Retry { call }).end();
        handed.facts = vec![Fact::HandedOver { call, attempt }];
        add(handed);

        let note = format!(
            "<model-turn xmlns=\"{CORE}\" agent=\"a{}\" call=\"{asked}\" turn=\"{n}\" \
             iteration=\"1\" position=\"1\" transport=\"xml\" provider=\"p\" model=\"m\" \
             renderer=\"1\" stop=\"end\" tokens_in=\"{}\" tokens_out=\"7\" latency_ms=\"{}\" \
             cost=\"0.002\"><raw>x</raw></model-turn>",
            n % 2,
            100 + n,
            10 + 30 * n,
        );
        let mut step = script.outcome(&tree, "researcher", asked);
        step.say(MessageKind::Note, "researcher", "researcher", "model-turn", &note, Some(asked));
        step.refuse("researcher", RefusalRule::SchemaInvalid, "no", "<x/>");
        let mut answered = step.end();
        let is_outcome = |fact: &Fact| matches!(fact, Fact::OutcomeReceived { .. });
        answered.facts.retain(|fact| !is_outcome(fact));
        answered.facts.push(Fact::OutcomeReceived { call, attempt });
        add(answered);

        // Refusals that are only counted.
        let busy =
            Input::Busy { client: name("desk"), since: Time(START), count: u64::from(n) + 1 };
        add(script.step(&tree, busy).end());
    }
    records
}

/// Sums the events of a range with SQL, in the order of `stats --by listener`.
fn summed(place: &Place, (since, until): (i64, i64)) -> Vec<String> {
    let range = |time: &str| format!("{time} >= {since} AND {time} < {until}");
    let sql = format!(
        "SELECT listener, sum(turns), sum(tokens), sum(refusals), sum(attempts) FROM ( \
         SELECT agent listener, 1 turns, tokens_in tokens, 0 refusals, 0 attempts FROM turn \
         WHERE {} UNION ALL SELECT sender, 0, 0, 1, 0 FROM refusal WHERE {} UNION ALL \
         SELECT client, 0, 0, refusals, 0 FROM busy WHERE {} UNION ALL \
         SELECT listener, 0, 0, 0, 1 FROM delivery WHERE {}) GROUP BY 1 ORDER BY 1",
        range("time_us"),
        range("time_us"),
        range("time_us"),
        range("ended_us"),
    );
    rows(&place.data(), &sql)
}

/// The statistics of a time range are the sums of its events, whether or not the range begins and
/// ends at full hours.
#[test]
fn the_statistics_of_any_range_are_the_sums_of_its_events() {
    let place = Place::with(&mut half_a_day());
    let time = |micros: i64| Time(micros).to_string();
    let ends = [
        START,
        START + 11 * MINUTE,
        START + 59 * MINUTE,
        START + HOUR,
        START + HOUR + 1,
        START + 3 * HOUR + 5 * MINUTE,
        START + 3 * HOUR + 50 * MINUTE,
        START + 9 * HOUR,
        START + 20 * HOUR,
    ];
    let mut compared = 0;
    for (at, since) in ends.iter().enumerate() {
        for until in &ends[at..] {
            let bounds = ["--by", "listener", "--since", &time(*since), "--until", &time(*until)];
            let groups = stats(&place, &bounds);
            let found =
                columns(&groups, &["listener", "turns", "tokens_in", "refusals", "attempts"]);
            assert_eq!(found, summed(&place, (*since, *until)), "{bounds:?}");
            compared += found.len();
        }
    }
    assert!(compared > 100, "{compared}");

    let whole = columns(&stats(&place, &["--by", "listener"]), &["listener", "turns", "tokens_in"]);
    assert_eq!(whole[..2], ["a0 | 8 | 856".to_owned(), "a1 | 8 | 864".to_owned()]);
}

/// The rows of the hourly views add up to the rows of the events. Each duration is counted in
/// exactly one bucket.
#[test]
fn the_views_of_the_hours_add_up() {
    let place = Place::with(&mut half_a_day());
    let data = place.data();
    let by_hour = "SELECT hour_us, sum(turns), sum(tokens_in), sum(cost_nano), sum(refusals), \
                   sum(attempts) FROM hour GROUP BY 1 ORDER BY 1";
    let by_event = "SELECT us - us % 3600000000 AS at, sum(t), sum(i), sum(c), sum(r), sum(a) \
                    FROM (SELECT time_us us, 1 t, tokens_in i, cost_nano c, 0 r, 0 a FROM turn \
                    UNION ALL SELECT time_us, 0, 0, 0, 1, 0 FROM refusal \
                    UNION ALL SELECT time_us, 0, 0, 0, refusals, 0 FROM busy \
                    UNION ALL SELECT ended_us, 0, 0, 0, 0, 1 FROM delivery \
                    WHERE ended_us IS NOT NULL) GROUP BY at ORDER BY at";
    let hours = rows(&data, by_hour);
    assert_eq!(hours, rows(&data, by_event));
    assert!(hours.len() > 8, "{hours:?}");

    let counted = "SELECT measure, sum(durations) FROM hour_duration GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(&data, counted), ["latency | 16", "queue | 16", "work | 16"]);
    let outside = "SELECT count(*) FROM turn u WHERE NOT EXISTS (SELECT 1 FROM hour_duration h \
                   WHERE h.measure = 'latency' AND h.agent = u.agent AND h.model = u.model \
                   AND u.latency_us > h.above_us AND u.latency_us <= h.up_to_us \
                   AND u.time_us >= h.hour_us AND u.time_us < h.hour_us + 3600000000)";
    assert_eq!(rows(&data, outside), ["0"]);
    let wide = "SELECT count(*) FROM hour_duration WHERE up_to_us > above_us * 1.04 + 2";
    assert_eq!(rows(&data, wide), ["0"], "the middle of a bucket is within 2 %");
}

/// The hourly rows are the same whether the index grows record by record or is made at once.
#[test]
fn hours_that_grow_are_those_that_are_made_at_once() {
    let mut records = half_a_day();
    let place = Place::new();
    let mut journal = place.open().unwrap();
    for record in &mut records {
        organism::journal::Journal::append(&mut journal, std::slice::from_mut(record)).unwrap();
        rows(&place.data(), "SELECT count(*) FROM hour");
    }
    let grown = contents(&place.data());
    std::fs::remove_file(place.data().join(organism::index::INDEX_DATABASE)).unwrap();
    assert_eq!(contents(&place.data()), grown);
    assert!(grown["hour_duration"].len() > 16, "{:?}", grown["hour_duration"]);
}
