//! Rebuilt state equals live state: a pump that is rebuilt from the records makes the same
//! decisions from the same inputs.

use std::path::Path;
use std::sync::{Arc, Once};

use organism::config::{self, Config, ConfigEnvironment};
use organism::ids::Position;
use organism::pump::core::Core;
use organism::pump::core::replay::event_of;
use organism::pump::gate::Gate;
use organism::thread::{Input, Record};

use super::House;

pub fn assert_rebuilt_state_is_live_state(house: &House) {
    let mut records = records(house);
    let config = config(house);
    assert_eq!(deviation(&config, &records), None);
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    // Tests the check itself once: it must find a difference.
    static CHECK: Once = Once::new();
    CHECK.call_once(|| {
        let last = records.iter().rposition(|record| record.facts.len() > 1).unwrap();
        records[last].facts.pop();
        assert!(deviation(&config, &records).is_some(), "a lost fact was not noticed");
    });
}

fn config(house: &House) -> Config {
    let around = ConfigEnvironment { directory: house.path(""), ..ConfigEnvironment::of_process() };
    let loaded = config::load(Path::new("organism.toml"), &around);
    loaded.unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn records(house: &House) -> Vec<Record> {
    let reader = house.reader();
    let sealed = reader.records(Position(1), reader.last().unwrap()).unwrap();
    sealed.into_iter().map(|sealed| sealed.record).collect()
}

/// Describes the first difference between the records and the decisions of a rebuilt pump; `None`
/// if there is no difference.
fn deviation(config: &Config, records: &[Record]) -> Option<String> {
    let gate = organism::organism::gate(config.clone()).unwrap();
    let mut rebuilt = core(config, &gate);
    let mut live = core(config, &gate);
    for record in records {
        if matches!(record.input, Input::Boot { .. }) {
            live = rebuilt.clone();
        }
        let Some(event) = event_of(record, &gate) else {
            return Some(format!("no event can be made of {record:#?}"));
        };
        let made = live.step(record.position, record.time, event).into_record();
        rebuilt.replay(record);
        // The journal assigns the writer and the position.
        let facts = made.map(|made| (made.input, made.facts));
        if facts != Some((record.input.clone(), record.facts.clone())) {
            return Some(format!("{facts:#?} instead of {record:#?}"));
        }
        let [one, other] = [&live, &rebuilt].map(|core| core.state().trees.get(&record.tree));
        if one != other {
            return Some(format!("{one:#?} instead of {other:#?}"));
        }
    }
    (live.state() != rebuilt.state()).then(|| "the state at the end".to_owned())
}

fn core(config: &Config, gate: &Gate) -> Core {
    Core::new(Arc::clone(&gate.contracts), config.limits, config.digest)
}
