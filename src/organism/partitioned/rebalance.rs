//! Rebalance: decides which process hands over a partition, and to which process. Every process
//! computes the same decision from the announcements of all processes.
//!
//! A partition moves from its owner to a process that stands by for it. The receiver must have at
//! least two partitions fewer than the owner. So each handover makes the difference smaller, and no
//! partition moves back and forth.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::journal::jetstream::MemberId;

/// A process as it announces itself to the other processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAnnouncement {
    #[serde(rename = "id")]
    pub id: MemberId,
    /// Name of the process, for log and error messages.
    #[serde(rename = "holder")]
    pub holder: String,
    /// Digest of the process's config.
    #[serde(rename = "config")]
    pub config: Digest,
    /// Partitions whose pumps the process runs.
    #[serde(rename = "has")]
    pub has: BTreeSet<u32>,
    /// Partitions for which the process stands by with a caught-up local copy of the partition's
    /// stream.
    #[serde(rename = "ready")]
    pub ready: BTreeSet<u32>,
    /// Whether the process is taking over or handing over a partition.
    #[serde(rename = "is_moving")]
    pub is_moving: bool,
    /// Whether the process is stopping.
    #[serde(rename = "is_leaving")]
    pub is_leaving: bool,
    /// Prefix of the names of the streams in which the process's organism keeps its journal. `None`
    /// for a process of an earlier version.
    #[serde(rename = "journal", default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
}

/// A planned handover of one partition from the member `from` to the member `to`. `of` contains the
/// partitions from which the member `from` chooses one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionHandover {
    pub from: MemberId,
    pub to: MemberId,
    pub of: BTreeSet<u32>,
}

/// Returns the handover that is due, or `None` if none is due. All processes that know the same
/// announcements compute the same handover.
pub fn due<'a>(
    members: impl Iterator<Item = &'a MemberAnnouncement> + Clone,
) -> Option<PartitionHandover> {
    let pairs = members.clone().flat_map(|from| members.clone().map(move |to| (from, to)));
    let fitting = pairs.filter(|(from, to)| {
        let calm = !from.is_moving && !to.is_moving;
        let uneven = from.has.len() >= to.has.len() + 2;
        // Partitions are balanced only between processes with equal configs: a partition continues
        // under another config only if it must.
        calm && uneven && from.config == to.config && !from.has.is_disjoint(&to.ready)
    });
    let (from, to) =
        fitting.max_by_key(|(from, to)| (from.has.len() - to.has.len(), from.id, to.id))?;
    let of = from.has.intersection(&to.ready).copied().collect();
    Some(PartitionHandover { from: from.id, to: to.id, of })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../tests/data/fixtures/roll.txt");

    #[test]
    fn an_entry_is_written_in_the_bytes_of_its_fixture() {
        let id = "\"01970000-0000-7000-8000-000000000001\"";
        let first = MemberAnnouncement {
            id: serde_json::from_str(id).unwrap(),
            holder: "process 12 on host".to_owned(),
            config: Digest::of(b"config"),
            has: BTreeSet::from([0, 2]),
            ready: BTreeSet::from([1]),
            is_moving: true,
            is_leaving: false,
            journal: None,
        };

        let journal = Some("ORGANISM-desk".to_owned());
        let named = MemberAnnouncement { journal, ..first.clone() };
        let mut last = entry(&[]);
        last.id = first.id;
        last.is_leaving = true;
        let line = |name: &str, entry: &MemberAnnouncement| {
            format!("{name}\t{}\n", serde_json::to_string(entry).unwrap())
        };

        // Those without a journal are of an earlier version.
        let earlier = line("an entry", &first) + &line("the last entry", &last);
        assert_eq!(earlier + &line("an entry with a journal", &named), FIXTURE);
    }

    #[test]
    fn an_entry_of_a_fixture_is_read() {
        for line in FIXTURE.lines() {
            let (name, entry) = line.split_once('\t').unwrap();
            let entry: MemberAnnouncement = serde_json::from_str(entry).unwrap();
            assert_eq!(entry.is_leaving, name == "the last entry");
            assert_eq!(entry.journal.is_some(), name == "an entry with a journal");
        }
    }

    /// Makes a member that may run the pumps of the partitions in `may`, and runs none of them yet.
    fn entry(may: &[u32]) -> MemberAnnouncement {
        MemberAnnouncement {
            id: MemberId::new(),
            holder: String::new(),
            config: Digest::ZERO,
            has: BTreeSet::new(),
            ready: may.iter().copied().collect(),
            is_moving: false,
            is_leaving: false,
            journal: None,
        }
    }

    /// Carries out handovers until none is due. Returns the number of handovers, and the number of
    /// partitions that each member then has.
    fn settle(mut members: Vec<MemberAnnouncement>) -> (usize, Vec<usize>) {
        let mut moves = 0;
        while let Some(PartitionHandover { from, to, of }) = due(members.iter()) {
            let partition = *of.first().unwrap();
            for entry in &mut members {
                if entry.id == from {
                    assert!(entry.has.remove(&partition) && entry.ready.insert(partition));
                } else if entry.id == to {
                    assert!(entry.ready.remove(&partition) && entry.has.insert(partition));
                }
            }
            moves += 1;
            assert!(moves < 1_000, "it goes on for ever");
        }

        (moves, members.iter().map(|entry| entry.has.len()).collect())
    }

    /// Carries out all due handovers, and returns the result of [`settle`]. `may` contains, for
    /// each member, the partitions whose pumps the member may run. At the start, the first member
    /// runs the pumps of all partitions in its list, and the other members run none.
    fn settled(may: &[&[u32]]) -> (usize, Vec<usize>) {
        let mut members: Vec<_> = may.iter().map(|may| entry(may)).collect();
        let first = &mut members[0];
        first.has = std::mem::take(&mut first.ready);
        settle(members)
    }

    #[test]
    fn whoever_has_all_hands_over_until_everybody_has_a_share_and_no_further() {
        let all: Vec<u32> = (0..64).collect();
        let four = &all[..4];
        let all = &all[..];
        assert_eq!(settled(&[four]), (0, vec![4]));
        assert_eq!(settled(&[four, four]), (2, vec![2, 2]));
        let (moves, mut shares) = settled(&[four, four, four]);
        shares.sort_unstable();
        assert_eq!((moves, shares), (2, vec![1, 1, 2]));
        let (moves, mut shares) = settled(&[four; 6]);
        shares.sort_unstable();
        assert_eq!((moves, shares), (3, vec![0, 0, 1, 1, 1, 1]));
        let (moves, mut shares) = settled(&[all, all, all]);
        shares.sort_unstable();
        assert_eq!((moves, shares), (42, vec![21, 21, 22]));
    }

    #[test]
    fn nobody_is_given_what_they_do_not_stand_by_for() {
        assert_eq!(settled(&[&[0, 1, 2, 3], &[0]]), (1, vec![3, 1]));
        assert_eq!(settled(&[&[0, 1, 2, 3], &[4, 5]]), (0, vec![4, 0]));
        assert_eq!(settled(&[&[0, 1, 2, 3], &[1, 2, 3, 4], &[0]]), (2, vec![2, 1, 1]));
    }

    #[test]
    fn nothing_is_handed_over_while_something_moves_or_to_another_config() {
        let mut first = entry(&[0, 1]);
        let mut second = entry(&[0, 1]);
        first.has = std::mem::take(&mut first.ready);
        let due = |first: &MemberAnnouncement, second: &MemberAnnouncement| {
            super::due([first, second].into_iter())
        };
        assert_eq!(due(&first, &second).unwrap().of, BTreeSet::from([0, 1]));
        second.is_moving = true;
        assert_eq!(due(&first, &second), None);
        second.is_moving = false;
        first.is_moving = true;
        assert_eq!(due(&first, &second), None);
        first.is_moving = false;
        second.config = Digest::of(b"other");
        assert_eq!(due(&first, &second), None);
    }
}
