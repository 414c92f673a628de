//! Reads whole trees. For a fork, the records of the fork's source up to the fork point come first,
//! changed as if the fork had recorded them. The fork's own records follow.

use crate::ids::Position;
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;
use crate::thread::Record;

/// Returns the records of the tree to which the record at `up_to` belongs, oldest first. The record
/// at `up_to` is the last one. If the tree is a fork, its history comes first: see
/// [`with_history`].
pub fn tree_with_history(reader: &JournalReader, up_to: Position) -> Result<Vec<Record>, Error> {
    let records = reader.walk(up_to)?.into_iter().map(|sealed| sealed.record);
    with_history(reader, records.collect())
}

/// Returns the history of a fork, followed by `own`, all records of the fork's tree from the first
/// on. The history consists of the source's records, with the ids of the fork. The messages of the
/// calls that the fork reopened are removed from `own`, because the history already contains them.
/// If the tree is no fork, or a fork without history, returns `own` unchanged.
pub fn with_history(reader: &JournalReader, own: Vec<Record>) -> Result<Vec<Record>, Error> {
    let Some(first) = own.first() else { return Ok(own) };
    // The recursion over forks of forks ends, because a history ends before the record of its fork.
    let history = first.fork_source().map(|source| source.history);
    let history = history.filter(|last| Position(0) < *last && *last < first.position);
    let Some(last) = history else { return Ok(own) };

    let names = first.reopened_names();
    let root = first.tree.clone();
    let history = tree_with_history(reader, last)?.into_iter();
    let history = history.map(|record| record.under(&root, &names));
    let own = own.into_iter().map(Record::without_reopened);
    Ok(history.chain(own).collect())
}
