//! Directories of the journals of several partitions, inside the directory that the config names.

use std::path::{Path, PathBuf};

use super::sqlite::DATABASE;
use crate::limits;

/// Returns the directory of a partition's journal.
pub fn partition_in(data: &Path, partition: u32) -> PathBuf {
    data.join(format!("p{partition}"))
}

/// Returns the directories of the journals in `data`, each with the number of its partition. If
/// `data` itself contains a journal, or if there is no journal at all, returns only `data`, with
/// `None` as the number.
pub fn partitions_in(data: &Path) -> Vec<(Option<u32>, PathBuf)> {
    let all = (0..limits::PARTITIONS_MAX).map(|partition| {
        let directory = partition_in(data, partition);
        (Some(partition), directory)
    });
    let journals: Vec<_> = all.filter(|(_, directory)| directory.join(DATABASE).exists()).collect();
    if journals.is_empty() || data.join(DATABASE).exists() {
        vec![(None, data.to_owned())]
    } else {
        journals
    }
}
