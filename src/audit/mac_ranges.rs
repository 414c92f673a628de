//! The keys that the MACs of a journal name, by position. The command `verify` uses them to
//! describe the records that an operator has accepted without a proof.

use std::collections::BTreeSet;

use super::report::AcceptedRecords;
use crate::ids::Position;
use crate::journal::KeyId;

/// Consecutive MACs that name the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MacRange {
    /// Position of the first of these MACs.
    first: Position,
    /// Position of the last of these MACs.
    last: Position,
    /// Key that the MACs name. `None` if the MACs name the available key, but are wrong.
    key: Option<KeyId>,
}

/// Adds the MAC of the record at `at`. `key` is the key that the MAC names, or `None` if the MAC
/// names the available key, but is wrong.
pub(super) fn add_mac(ranges: &mut Vec<MacRange>, at: Position, key: Option<KeyId>) {
    match ranges.last_mut() {
        Some(range) if range.key == key => range.last = at,
        _ => ranges.push(MacRange { first: at, last: at, key }),
    }
}

/// Whether a MAC after `position` names a key whose id is in `ids`.
pub(super) fn is_key_named_after(
    ranges: &[MacRange],
    position: Position,
    ids: &BTreeSet<String>,
) -> bool {
    let keys = ranges.iter().filter(|range| range.last > position).filter_map(|range| range.key);
    keys.map(|key| key.to_string()).any(|key| ids.contains(&key))
}

/// Describes the records from `first` to `last`, which an operator has accepted. `ranges` contains
/// the MACs of the journal up to `last`. The records that a wrong MAC should cover, and all records
/// after them, count as not covered. The covered records become one item with the keys of their
/// MACs. The records that are not covered, if any, become a separate item without keys.
pub(super) fn accepted_records(
    ranges: &[MacRange],
    first: Position,
    last: Position,
) -> Vec<AcceptedRecords> {
    let mut keys = BTreeSet::new();
    let mut covered = None;

    for range in ranges.iter().filter(|range| range.last >= first && range.first <= last) {
        // Records that a wrong MAC should cover were changed, whatever MAC follows.
        let Some(key) = range.key else { break };
        keys.insert(key.to_string());
        covered = Some(range.last.min(last));
    }

    let keys: Vec<_> = keys.into_iter().collect();
    let Some(covered) = covered else { return vec![AcceptedRecords { first, last, keys }] };
    let mut accepted = vec![AcceptedRecords { first, last: covered, keys }];
    if covered < last {
        let first = Position(covered.0 + 1);
        accepted.push(AcceptedRecords { first, last, keys: Vec::new() });
    }

    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(macs: &[(u64, Option<&str>)], first: u64, last: u64) -> Vec<(u64, u64, usize)> {
        let mut ranges = Vec::new();
        for (at, key) in macs {
            add_mac(&mut ranges, Position(*at), key.map(KeyId::of));
        }
        let accepted = accepted_records(&ranges, Position(first), Position(last));
        accepted.iter().map(|own| (own.first.0, own.last.0, own.keys.len())).collect()
    }

    #[test]
    fn accepted_records_name_the_keys_of_their_macs_and_those_without_a_mac_stand_apart() {
        let rotated = [(3, Some("one")), (9, Some("one"))];
        assert_eq!(described(&rotated, 1, 9), [(1, 9, 1)]);
        let twice = [(3, Some("one")), (9, Some("two"))];
        assert_eq!(described(&twice, 1, 9), [(1, 9, 2)]);
        assert_eq!(described(&rotated, 1, 11), [(1, 9, 1), (10, 11, 0)]);
        assert_eq!(described(&rotated, 10, 11), [(10, 11, 0)], "forged after the last MAC");
        assert_eq!(described(&[], 1, 2), [(1, 2, 0)], "older than MACs");
    }

    #[test]
    fn records_from_a_wrong_mac_on_count_as_without_one() {
        let wrong = [(3, Some("own")), (5, None), (9, Some("other"))];
        assert_eq!(described(&wrong, 4, 9), [(4, 9, 0)]);
        let later = [(3, Some("other")), (5, None)];
        assert_eq!(described(&later, 1, 5), [(1, 3, 1), (4, 5, 0)]);
    }
}
