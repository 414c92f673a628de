//! Directories of the journals of several partitions, inside the directory that the config names.

use std::path::{Path, PathBuf};

use super::sqlite::DATABASE;
use crate::{durable_file, limits};

/// Returns the directory of a partition's journal.
pub fn partition_in(data: &Path, partition: u32) -> PathBuf {
    data.join(format!("p{partition}"))
}

/// Returns the directories of the journals in `data`, each with the number of its partition. If
/// `data` itself contains a journal, or if there is no journal at all, returns only `data`, with
/// `None` as the number.
pub fn partitions_in(data: &Path) -> Vec<(Option<u32>, PathBuf)> {
    let whole = || vec![(None, data.to_owned())];
    // The usual answers need no look-up of every possible partition.
    if may_have_journal(data) || !durable_file::may_exist(data) {
        return whole();
    }

    let all = (0..limits::PARTITIONS_MAX).map(|partition| {
        let directory = partition_in(data, partition);
        (Some(partition), directory)
    });
    let journals: Vec<_> = all.filter(|(_, directory)| may_have_journal(directory)).collect();
    if journals.is_empty() { whole() } else { journals }
}

/// Whether `data` contains a journal, or the journals of partitions. Also true if this process
/// cannot look one of them up.
pub fn may_have_journals(data: &Path) -> bool {
    partitions_in(data).iter().any(|(_, directory)| may_have_journal(directory))
}

/// Whether the directory itself contains a journal. Also true if this process cannot look it up, so
/// that the attempt to open the journal fails with the reason.
pub fn may_have_journal(directory: &Path) -> bool {
    durable_file::may_exist(&directory.join(DATABASE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_cannot_be_looked_up_is_not_left_out() {
        let data = tempfile::tempdir().unwrap();
        let place = |partition| partition_in(data.path(), partition);
        for partition in [0, 1] {
            std::fs::create_dir(place(partition)).unwrap();
        }
        std::fs::write(place(0).join(DATABASE), "").unwrap();
        let file = place(1).join(DATABASE);
        std::os::unix::fs::symlink(&file, &file).unwrap();

        let found = partitions_in(data.path());
        assert_eq!(found, [(Some(0), place(0)), (Some(1), place(1))]);

        std::fs::remove_file(place(0).join(DATABASE)).unwrap();
        assert!(may_have_journals(data.path()));
        std::fs::remove_file(file).unwrap();
        assert!(!may_have_journals(data.path()));
    }
}
