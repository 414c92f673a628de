//! Messages that a command does not send, because no pump of their partition has given a result.

use std::collections::BTreeMap;

use crate::plural::count;

/// Reason why a message was not sent, in the JSON line of the message.
pub const REASON: &str =
    "not tried, because no pump of its partition gave a result to an earlier retry";

/// Partitions whose pump gave no result, each with the number of messages that the command did not
/// send for this reason.
#[derive(Debug, Default)]
pub struct SkippedMessages {
    partitions: BTreeMap<u32, u64>,
}

impl SkippedMessages {
    /// Adds a partition whose pump gave no result.
    pub fn add(&mut self, partition: u32) {
        self.partitions.entry(partition).or_default();
    }

    /// Counts a message of the partition if the command does not send it. Returns whether it does
    /// not.
    pub fn count(&mut self, partition: u32) -> bool {
        let skipped = self.partitions.get_mut(&partition);
        skipped.map(|skipped| *skipped += 1).is_some()
    }

    /// Returns a note for each partition with messages that the command did not send.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let skipped = self.partitions.iter().filter(|(_, skipped)| **skipped > 0);
        skipped.map(|(partition, skipped)| {
            format!(
                "partition {partition}: {} not tried, because no pump gave a result; retry what \
                 is left once its pump runs",
                count(*skipped, "more message")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_a_partition_without_a_result_are_skipped_and_counted() {
        let mut skipped = SkippedMessages::default();
        assert!(!skipped.count(1));
        skipped.add(1);
        skipped.add(2);
        assert!(skipped.count(1));
        assert!(skipped.count(1));
        assert!(!skipped.count(0));

        let notes: Vec<_> = skipped.notes().collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("partition 1: 2 more messages not tried"), "{notes:?}");
    }
}
