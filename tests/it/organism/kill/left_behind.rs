//! Processes that outlive a killed pump, because their listener started them in a separate session.

use std::collections::HashSet;

use organism::bus::process::{PUMP_VARIABLE, PumpMark};

use crate::organism::House;

/// Program of a listener that starts a process in a separate session, and then answers.
const KEEPER: &str = "setsid sleep 300 >/dev/null 2>&1 &\nexec ./player.pl solo\n";

/// Makes the listener `solo` start a process in a separate session whenever the listener starts.
pub fn house(house: House) -> House {
    house.write("keeper.sh", KEEPER);
    house
}

pub fn config(config: &str) -> String {
    config.replace("[\"./player.pl\", \"solo\"]", "[\"sh\", \"keeper.sh\"]")
}

/// Running processes that pumps of this journal started. The set is empty if the system does not
/// show environments.
#[derive(Default)]
pub struct Started {
    /// The marks in the environments of the processes. Each mark identifies the pump that started
    /// the process.
    pub pumps: HashSet<String>,
    /// Number of processes in separate sessions.
    pub processes: u64,
}

impl Started {
    pub fn find(house: &House) -> Self {
        let journal = house.reader().about().unwrap().journal;
        let mut found = Self::default();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let mark = environment.split(|byte| *byte == 0).find_map(|entry| {
                let (name, mark) = std::str::from_utf8(entry).ok()?.split_once('=')?;
                (name == PUMP_VARIABLE).then_some(mark)
            });
            let Some(mark) = mark else { continue };
            if mark.parse::<PumpMark>().is_ok_and(|mark| mark.journal() == journal) {
                found.pumps.insert(mark.to_owned());
                let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                found.processes += u64::from(name == "sleep\n");
            }
        }
        found
    }
}
