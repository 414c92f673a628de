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
