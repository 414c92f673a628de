//! Tests of the write-ahead log: it is checkpointed concurrently with the writer, and its size is
//! bounded.

use organism::journal::Journal as _;
use organism::limits::{WAL_BYTES, WAL_BYTES_MAX};

use super::Place;
use super::script::{Script, thread};

#[test]
fn a_journal_under_load_keeps_its_log_short_and_every_record() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    let text = "x".repeat(512 << 10);
    let (tree, log) = (thread("sess-abcdefgh"), place.data().join("journal.db-wal"));
    let mut longest = 0;
    let wanted = (WAL_BYTES_MAX + WAL_BYTES) / text.len();
    for at in 0..wanted {
        let (_, record) = script.question(&tree, &format!("{at}{text}"));
        journal.append(&mut [record]).unwrap();
        longest = longest.max(std::fs::metadata(&log).unwrap().len());
    }
    let longest = usize::try_from(longest).unwrap();
    assert!(longest >= WAL_BYTES, "the log was never moved");
    assert!(longest < WAL_BYTES_MAX + 2 * text.len(), "the log grew to {longest} bytes");
    drop(journal);
    assert_eq!(place.records().len(), wanted);
}
