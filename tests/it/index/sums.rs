//! `organism stats`, compared with the rows of the index.

use std::collections::BTreeMap;

use organism::envelope::MessageKind;
use serde_json::{Value as Json, json};

use super::damage::redact;
use super::rows::{priced_turn, two_currencies};
use super::{organism, rows, text, with_index};
use crate::fixtures::compared_journals;
use crate::journal::Place;
use crate::journal::script::{CORE, Script, thread};
use crate::organism::kill::torture;

pub fn stats(place: &Place, more: &[&str]) -> Vec<Json> {
    let output = organism(place, &[&["stats", "--json"], more].concat());
    let errors = text(&output.stderr);
    // A journal whose organism is paused gets a line for each pause.
    let mut others = errors.lines().filter(|line| !line.starts_with("paused since "));
    assert_eq!((others.next(), output.status.code()), (None, Some(0)));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One row for each group, with the values of the named fields.
pub fn columns(groups: &[Json], names: &[&str]) -> Vec<String> {
    let value = |group: &Json, name: &str| match &group[name] {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let row = |group| names.iter().map(|name| value(group, name)).collect::<Vec<_>>().join(" | ");
    groups.iter().map(row).collect()
}

/// A journal with one turn for each triple of agent, model and latency in milliseconds.
fn turns(turns: &[(&str, &str, u64)]) -> Place {
    let mut script = Script::default();
    let tree = thread("sess-abcdefgh");
    let (asked, first) = script.question(&tree, "Who?");
    let mut records = vec![first];
    for (n, (agent, model, latency)) in turns.iter().enumerate() {
        let note = format!(
            "<model-turn xmlns=\"{CORE}\" agent=\"{agent}\" call=\"{asked}\" turn=\"{n}\" \
             iteration=\"1\" position=\"1\" transport=\"xml\" provider=\"p\" model=\"asked-for\" \
             renderer=\"1\" stop=\"end\" tokens_in=\"100\" tokens_out=\"7\" \
             latency_ms=\"{latency}\" cost=\"0.002\" answered_by=\"{model}\"><raw>x</raw>\
             <tried route=\"a\" reason=\"timeout\"/></model-turn>"
        );
        let mut step = script.outcome(&tree, "researcher", asked);
        step.say(MessageKind::Note, "researcher", "researcher", "model-turn", &note, Some(asked));
        records.push(step.end());
    }
    Place::with(&mut records)
}

/// Issue 17, 4.4: cost, tokens, percentiles of latency and failovers of turns are summed by agent
/// and model.
#[test]
fn turns_are_summed_by_agent_and_model() {
    let mut all: Vec<_> = (1..=100).map(|n| ("writer", "large-2", 10 * n)).collect();
    all.extend([("writer", "small-1", 30), ("critic", "small-1", 40), ("critic", "small-1", 80)]);
    let place = turns(&all);

    let groups = stats(&place, &["--by", "agent,model"]);
    let names = ["agent", "model", "turns", "tokens_in", "tokens_out", "cost_nano", "failovers"];
    assert_eq!(
        columns(&groups, &names),
        [
            "critic | small-1 | 2 | 200 | 14 | 4000000 | 2",
            "writer | large-2 | 100 | 10000 | 700 | 200000000 | 100",
            "writer | small-1 | 1 | 100 | 7 | 2000000 | 1",
        ]
    );
    for (percentile, exact) in [("p50", 500_000.0), ("p95", 950_000.0), ("p99", 990_000.0)] {
        let found = groups[1]["latency_us"][percentile].as_f64().unwrap();
        assert!((found - exact).abs() <= exact * 0.02, "{percentile}: {found}");
    }

    let shown = text(&organism(&place, &["stats", "--by", "model"]).stdout);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = shown.lines().map(words).collect();
    let head = "model turns failovers tokens in tokens out cost model p50 p95 p99";
    assert_eq!(lines[0], head);
    assert!(lines[1].starts_with("large-2 100 100 10000 700 0.20 "), "{shown}");
}

/// No model was called for the turn of a fork whose answer is from the record of its source.
#[test]
fn turns_with_recorded_answers_are_no_model_calls() {
    let mut script = Script::default();
    let tree = thread("sess-abcdefgh");
    let (asked, first) = script.question(&tree, "Who?");
    let mut records = vec![first];
    for turn in 0..6 {
        let is_called = turn < 2;
        let measured = if is_called {
            "latency_ms=\"2000\"".to_owned()
        } else {
            format!("latency_ms=\"0\" recorded=\"{asked}\"")
        };
        let note = format!(
            "<model-turn xmlns=\"{CORE}\" agent=\"writer\" call=\"{asked}\" turn=\"{turn}\" \
             iteration=\"1\" position=\"1\" transport=\"xml\" provider=\"p\" model=\"m\" \
             renderer=\"1\" stop=\"end\" tokens_in=\"0\" tokens_out=\"0\" cost=\"0\" {measured}>\
             <raw>x</raw></model-turn>"
        );
        let mut step = script.outcome(&tree, "researcher", asked);
        step.say(MessageKind::Note, "researcher", "researcher", "model-turn", &note, Some(asked));
        records.push(step.end());
    }
    let place = Place::with(&mut records);

    // The second query reads the rows of a part of an hour instead of the roll-up.
    for more in [&[][..], &["--until", "2026-11-20T10:30:00Z"]] {
        let groups = stats(&place, &[&["--by", "model"], more].concat());
        assert_eq!(groups[0]["turns"], 2, "{more:?}");
        let median = groups[0]["latency_us"]["p50"].as_f64().unwrap();
        assert!((median - 2_000_000.0).abs() <= 40_000.0, "{more:?}: {median}");
    }
    let measured = "SELECT count(*), count(latency_us) FROM turn";
    assert_eq!(rows(&place.data(), measured), ["6 | 2"]);
}

/// After a change of the currency in the config, each total has one amount for each currency.
#[test]
fn costs_in_different_currencies_are_never_added_up() {
    let place = Place::with(&mut two_currencies());
    let amount = |currency: &str, money: u64| json!({ "currency": currency, "money": money });
    let amounts = |eur: u64, usd: u64| Json::from(vec![amount("EUR", eur), amount("USD", usd)]);

    // The second query reads the rows of a part of an hour instead of the roll-up.
    for more in [&[][..], &["--until", "2026-11-20T10:30:00Z"]] {
        let groups = stats(&place, &[&["--by", "agent"], more].concat());
        assert_eq!(groups[0]["cost_nano"], Json::Null, "{more:?}");
        assert_eq!(groups[0]["costs"], amounts(8_400_000, 8_400_000), "{more:?}");
    }
    let shown = text(&organism(&place, &["stats", "--by", "agent"]).stdout);
    assert!(shown.contains(" 0.0084 EUR + 0.0084 USD "), "{shown}");

    let mixed = "0.0042 EUR + 0.0084 USD";
    let wide = text(&organism(&place, &["threads", "--wide"]).stdout);
    let line = |id: &str| wide.lines().find(|line| line.contains(id)).unwrap();
    assert!(line("sess-abcdefgh").contains(mixed), "{wide}");
    assert!(line("sess-priced00").contains(" 0.0042 EUR "), "{wide}");
    let lines = text(&organism(&place, &["threads", "--json"]).stdout);
    assert!(lines.contains(&format!("\"costs\":{}", amounts(4_200_000, 8_400_000))), "{lines}");

    let thread = text(&organism(&place, &["thread", "sess-abcdefgh"]).stdout);
    assert!(thread.ends_with(&format!("  {mixed}\n")), "{thread}");
    let thread = text(&organism(&place, &["thread", "sess-abcdefgh", "--json"]).stdout);
    let thread: Json = serde_json::from_str(&thread).unwrap();
    assert_eq!(thread["spent"]["money"], Json::Null);
    assert_eq!(thread["spent"]["costs"], amounts(4_200_000, 8_400_000));
    assert_eq!(thread.get("currency"), None);
}

/// A turn whose payload was redacted keeps its agent, its tokens and its cost, which its record
/// states beside the payload. So the sums by agent and model still equal the sums of the tree.
#[test]
fn a_redacted_turn_keeps_its_tokens_and_its_cost() {
    let mut records = priced_turn(&mut Script::default(), "sess-abcdefgh");
    let place = Place::with(&mut records);
    redact(&place, 2);
    let data = place.data();

    let turn = "SELECT agent, turn, model, tokens_in, tokens_out, cost_nano, latency_us, failovers \
                FROM turn";
    let expected = ["researcher | - | [redacted] | 120 | 7 | 4200000 | - | -"];
    assert_eq!(rows(&data, turn), expected);
    let sums = "turns, tokens_in, tokens_out, cost_nano";
    let expected = ["1 | 120 | 7 | 4200000"];
    let tree = format!("SELECT {sums} FROM tree WHERE thread = 'sess-abcdefgh'");
    assert_eq!(rows(&data, &tree), expected);
    assert_eq!(rows(&data, &format!("SELECT {sums} FROM hour WHERE turns > 0")), expected);

    // The second query reads the rows of a part of an hour instead of the roll-up.
    for more in [&[][..], &["--until", "2026-11-20T10:30:00Z"]] {
        let groups = stats(&place, &[&["--by", "agent,model"], more].concat());
        let names = ["agent", "model", "turns", "tokens_in", "cost_nano"];
        let expected = ["researcher | [redacted] | 1 | 120 | 4200000"];
        assert_eq!(columns(&groups, &names), expected, "{more:?}");
        assert_eq!(groups[0]["latency_us"]["p50"], Json::Null, "{more:?}");
    }
    let listed = organism(&place, &["threads", "--agent", "researcher"]);
    assert!(text(&listed.stdout).contains("sess-abcdefgh"));
    let root = thread("sess-abcdefgh");
    let calls = with_index(&data, &mut |index| index.call_work(&root, 0, None));
    assert!(calls.unwrap().iter().all(|call| call.turns.is_empty()), "its duration is lost");

    let prompt = ["prompt", "researcher", "--thread", "sess-abcdefgh", "--turn", "3"];
    let refused = organism(&place, &prompt);
    assert_eq!(refused.status.code(), Some(2));
    let error = text(&refused.stderr);
    assert!(error.contains("redacted turns have no number any more"), "{error}");
}

/// Issue 17, 4.4 and 4.8: the groups of `organism stats` equal the result of SQL on the rows of the
/// index, for journals of each generation.
#[test]
fn the_groups_equal_those_of_sql_on_the_rows() {
    let mut compared = 0;
    let step = if torture() { 1 } else { 2 };
    for (journal, place) in compared_journals().step_by(step) {
        let data = place.data();
        let expected = rows(
            &data,
            "SELECT rule, sender, substr(time, 1, 10) AS day, count(*) FROM refusal \
             WHERE rule <> 'busy' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        );
        let mut refused = stats(&place, &["--by", "rule,agent,day"]);
        refused.retain(|group| group["rule"] != "busy");
        let found = columns(&refused, &["rule", "agent", "day", "refusals"]);
        assert_eq!(found, expected, "{journal}");

        let expected = rows(
            &data,
            "SELECT listener, count(*), sum(outcome <> 'handled') FROM delivery \
             WHERE ended IS NOT NULL AND outcome <> 'not-taken' GROUP BY 1 ORDER BY 1",
        );
        let mut attempts = stats(&place, &["--by", "listener"]);
        attempts.retain(|group| group["attempts"] != 0);
        assert_eq!(columns(&attempts, &["listener", "attempts", "failed"]), expected, "{journal}");
        percentiles_agree(&data, &attempts);
        compared += found.len() + attempts.len();

        let turns: u64 = stats(&place, &["--by", "day"])
            .iter()
            .map(|group| group["turns"].as_u64().unwrap())
            .sum();
        assert_eq!(rows(&data, "SELECT count(*) FROM turn"), [turns.to_string()], "{journal}");
    }
    assert!(compared > 25, "{compared}");
}

fn percentiles_agree(data: &std::path::Path, groups: &[Json]) {
    let sql = "SELECT listener, work_us FROM delivery WHERE ended IS NOT NULL AND \
               outcome <> 'not-taken' ORDER BY work_us";
    let mut worked: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows(data, sql) {
        let (listener, time) = row.split_once(" | ").unwrap();
        worked.entry(listener.to_owned()).or_default().push(time.parse().unwrap());
    }

    for group in groups {
        let times = &worked[group["listener"].as_str().unwrap()];
        for (name, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            let rank = (share * times.len() as f64).ceil() as usize;
            let exact = times[rank - 1].max(0.0);
            let found = group["worked_us"][name].as_f64().unwrap();
            assert!((found - exact).abs() <= exact * 0.02 + 1.0, "{group}: {name} {exact}");
        }
    }
}

/// Issue 17, 4.5: `--since` includes the given moment, and `--until` excludes it.
#[test]
fn a_time_bounds_what_is_summed() {
    let place = turns(&[("writer", "m", 10), ("writer", "m", 20), ("writer", "m", 30)]);
    let times = rows(&place.data(), "SELECT time_us FROM turn ORDER BY time_us");
    let counted = |more: &[&str]| {
        let groups = stats(&place, &[&["--by", "agent"], more].concat());
        groups.first().map_or(0, |group| group["turns"].as_u64().unwrap())
    };
    let second = organism::clock::Time(times[1].parse().unwrap()).to_string();
    assert_eq!(counted(&["--since", &second]), 2);
    assert_eq!(counted(&["--until", &second]), 1);
    assert_eq!(counted(&["--since", &second, "--until", &second]), 0);
    let third = organism::clock::Time(times[2].parse().unwrap()).to_string();
    assert_eq!(counted(&["--since", &second, "--until", &third]), 1);
    assert_eq!(counted(&["--since", "2027-01-01"]), 0);
}

#[test]
fn a_key_or_a_time_that_is_wrong_is_refused() {
    let place = turns(&[]);
    let refused = |more: &[&str], part: &str| {
        let output = organism(&place, &[&["stats"], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        let error = text(&output.stderr);
        assert!(error.contains(part), "{error}");
    };
    refused(&["--by", "agents"], "statistics are by agent, model, listener, rule, day");
    refused(&[], "--by <KEYS>");
    refused(&["--by", "day", "--since", "noon"], "`noon` is no time; write 2026-11-20");

    let none = organism(&place, &["stats", "--by", "rule"]);
    assert_eq!(none.status.code(), Some(0));
    assert_eq!(text(&none.stderr), "nothing of this kind is on record\n");
}
