//! Journals of several partitions, as the commands of an auditor read them.

use organism::clock::Time;
use organism::journal::sqlite::SqliteJournal;
use organism::journal::{Journal as _, partition_in};
use organism::thread::Record;

use super::{organism, stdout};
use crate::journal::Place;
use crate::journal::script::{Script, thread};

/// Writes the journal of a partition.
fn write(place: &Place, partition: u32, records: &mut [Record]) {
    std::fs::create_dir_all(place.data()).unwrap();
    let data = partition_in(&place.data(), partition);
    let mut journal = SqliteJournal::open(&data, &place.state(), &mut |_| Ok(())).unwrap();
    for group in records.chunks_mut(100) {
        journal.append(group).unwrap();
    }
    let end = records.last().map_or(Time(0), |record| record.time);
    journal.close(end).unwrap();
}

/// A partition may have more records than a command reads at once, and other partitions may have
/// only later records.
#[test]
fn a_tail_of_a_long_partition_shows_the_later_records_of_another_last() {
    let mut script = Script::default();
    let tree = |number: u32| thread(&format!("sess-question{number}"));
    let mut early: Vec<_> = (0..1_100).map(|n| script.question(&tree(n), "early").1).collect();
    let mut late = [script.question(&tree(2_000), "late").1];
    let place = Place::new();
    write(&place, 0, &mut early);
    write(&place, 1, &mut late);

    let shown = stdout(organism(&place, &["tail", "--no-follow", "--json", "--lines", "2000"]));
    assert_eq!(shown.lines().count(), 1_101);
    let last = shown.lines().last().unwrap();
    assert!(last.contains("late"), "{last}");
}

#[test]
fn what_may_be_in_a_partition_without_a_copy_is_unavailable() {
    let ids: Vec<_> = (0..50).map(|number| thread(&format!("sess-question{number}"))).collect();
    let (here, elsewhere): (Vec<_>, Vec<_>) = ids.iter().partition(|id| id.partition(2) == 0);
    let place = Place::new();
    let (_, record) = Script::default().question(here[0], "Where?");
    write(&place, 0, &mut [record]);
    // As a backup notes it.
    std::fs::write(place.data().join("partitions"), "2\n").unwrap();

    let refused = |args: &[&str], code: i32, text: &str| {
        let output = organism(&place, args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(text), "{args:?}: {error}");
    };
    let [known, unknown, missing] = [here[0], here[1], elsewhere[0]].map(ToString::to_string);
    let unavailable = "partition 1: this host has no copy of its journal; a host that pumps";
    for (id, code, text) in [(&missing, 69, unavailable), (&unknown, 2, "is on record; ")] {
        refused(&["thread", id], code, text);
        refused(&["export", id], code, text);
        refused(&["thread", id, "--at", "1"], code, text);
        refused(&["tail", "--no-follow", "--thread", id], code, text);
        refused(&["search", "--thread", id], code, text);
        refused(&["diff", &known, id], code, text);
        refused(&["config", "--at", id], code, text);
    }
    let message = "0192f4a8-7c3d-7a5e-8f21-1d2c3b4a5e6f";
    refused(&["message", message], 69, "it may be in a partition of which this host has no copy");
    // Such a thread does not begin in a journal of this host, and has a position of its own there.
    refused(&["tail", "--thread", &missing], 69, unavailable);
    refused(&["thread", &missing, "--at", "5000"], 69, unavailable);
    refused(&["thread", &known, "--at", "5000"], 2, "position 5000 is not on record; the last is");
}
