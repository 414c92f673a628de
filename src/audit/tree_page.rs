//! A page of the list of thread trees, merged from the journals of all partitions.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::Position;
use crate::index::ListedTree;

/// Cursor of a page in the list of trees. If the cursor has a position for a partition, the page
/// contains trees of this partition before that position. Otherwise, the page begins with the
/// partition's newest tree. The text form is `0:1200,1:800`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageCursor(BTreeMap<u32, Position>);

impl PageCursor {
    /// Returns the cursor with a position in one partition.
    pub fn of_one(partition: u32, position: Position) -> Self {
        Self([(partition, position)].into())
    }

    /// Parses the text form. Returns `None` if `text` is no cursor.
    pub fn parse(text: &str) -> Option<Self> {
        let entry = |entry: &str| {
            let (partition, position) = entry.split_once(':')?;
            Some((partition.parse().ok()?, Position(position.parse().ok()?)))
        };
        text.split(',').map(entry).collect::<Option<_>>().map(Self)
    }

    /// Whether this is the cursor of the first page.
    pub fn is_start(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the position before which the page begins in `partition`. Returns `None` if the page
    /// begins with the newest tree of this partition.
    pub fn before(&self, partition: u32) -> Option<Position> {
        self.0.get(&partition).copied()
    }

    /// Returns the partitions that have a position.
    pub fn partitions(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }
}

impl std::fmt::Display for PageCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (nth, (partition, position)) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{partition}:{position}")?;
        }
        Ok(())
    }
}

/// A tree on a page, with the cursor of a page that begins directly after this tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagedTree {
    /// Partition of the tree; 0 if the organism has no partitions.
    pub partition: u32,
    pub tree: ListedTree,
    pub next: PageCursor,
}

/// The trees on one page, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreePage {
    pub trees: Vec<PagedTree>,
    /// Whether older trees follow after the page.
    pub has_more: bool,
}

impl TreePage {
    /// Merges the trees of several partitions into one page, newest first. `partitions` contains
    /// the trees that each partition has from `cursor` on. The page has at most `limit` trees. Each
    /// partition must contribute one tree more than `limit`, if it has so many; the additional tree
    /// shows that older trees follow.
    pub fn merge(
        partitions: impl IntoIterator<Item = (u32, Vec<ListedTree>)>,
        mut cursor: PageCursor,
        limit: usize,
    ) -> Self {
        let mut partitions: Vec<(u32, VecDeque<ListedTree>)> =
            partitions.into_iter().map(|(partition, trees)| (partition, trees.into())).collect();

        let mut page = Self { trees: Vec::new(), has_more: false };
        while let Some((partition, trees)) = partition_with_newest(&mut partitions) {
            if page.trees.len() == limit {
                page.has_more = true;
                break;
            }
            if let Some(tree) = trees.pop_front() {
                cursor.0.insert(*partition, tree.head);
                let partition = *partition;
                page.trees.push(PagedTree { partition, tree, next: cursor.clone() });
            }
        }
        page
    }

    /// Returns the cursor of the next page; `None` if this page is the last one.
    pub fn next(&self) -> Option<&PageCursor> {
        self.trees.last().filter(|_| self.has_more).map(|paged| &paged.next)
    }
}

/// Returns the partition whose first remaining tree changed last; `None` if no trees remain. The
/// trees within one partition keep the order of their positions, because a cursor consists of
/// positions. A sort by time could change this order, because the clock of a host may have been set
/// back.
fn partition_with_newest(
    partitions: &mut [(u32, VecDeque<ListedTree>)],
) -> Option<&mut (u32, VecDeque<ListedTree>)> {
    let mut newest: Option<&mut (u32, VecDeque<ListedTree>)> = None;
    for other in partitions {
        let updated = other.1.front().map(|tree| tree.updated);
        // Of equal times, the tree of the lower partition comes first.
        if updated > newest.as_ref().and_then(|known| known.1.front().map(|tree| tree.updated)) {
            newest = Some(other);
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::envelope::{CurrencyTotals, Money};
    use crate::index::HoldCount;

    /// Makes a tree whose last record is at `head`, with the time `updated`.
    fn tree(head: u64, updated: i64) -> ListedTree {
        ListedTree {
            thread: format!("sess-updated{updated:03}"),
            status: "completed".to_owned(),
            subthreads: 0,
            records: 1,
            messages: 1,
            settled: 1,
            refusals: 0,
            errors: 0,
            denials: 0,
            waits: HoldCount::default(),
            turns: 0,
            tokens_in: 0,
            tokens_out: 0,
            tokens_charged: 0,
            cost: Money(0),
            costs: CurrencyTotals::default(),
            opened: Time(updated),
            updated: Time(updated),
            worked: Time(updated),
            requested_by: None,
            request: None,
            request_local: None,
            first_words: None,
            pause: None,
            fault: None,
            head: Position(head),
        }
    }

    /// Reads a page of two partitions as the index does, the newest trees first.
    fn page(partitions: &[Vec<ListedTree>; 2], cursor: &PageCursor, limit: usize) -> TreePage {
        let found = (0..).zip(partitions).map(|(partition, trees)| {
            let before = cursor.before(partition);
            let is_older = |tree: &&ListedTree| before.is_none_or(|before| tree.head < before);
            (partition, trees.iter().filter(is_older).take(limit + 1).cloned().collect())
        });
        TreePage::merge(found.collect::<Vec<_>>(), cursor.clone(), limit)
    }

    /// Returns the times of the trees on all pages of `limit` trees, in the order of the pages.
    fn paged(partitions: &[Vec<ListedTree>; 2], limit: usize) -> Vec<i64> {
        let mut times = Vec::new();
        let mut next = Some(PageCursor::default());
        while let Some(cursor) = next {
            let page = page(partitions, &cursor, limit);
            times.extend(page.trees.iter().map(|paged| paged.tree.updated.0));
            next = page.next().cloned();
        }
        times
    }

    #[test]
    fn pages_of_two_partitions_hold_every_tree_once() {
        let busy = (0..9).rev().map(|n| tree(900_000 + n, 10 * i64::try_from(n).unwrap()));
        let quiet = [tree(4_000, 65), tree(3_950, 62), tree(12, 5)];
        let partitions = [busy.collect(), quiet.to_vec()];
        let all = [80, 70, 65, 62, 60, 50, 40, 30, 20, 10, 5, 0];
        for limit in 1..=13 {
            assert_eq!(paged(&partitions, limit), all, "{limit}");
        }
    }

    #[test]
    fn pages_hold_every_tree_once_although_a_clock_was_set_back() {
        let set_back = [tree(4, 50), tree(3, 90), tree(2, 30), tree(1, 80)];
        let partitions = [set_back.to_vec(), vec![tree(2, 60), tree(1, 40)]];
        for limit in 1..=7 {
            assert_eq!(paged(&partitions, limit), [60, 50, 90, 40, 30, 80], "{limit}");
        }
    }

    #[test]
    fn a_cursor_names_a_position_of_each_partition() {
        let cursor = PageCursor::parse("0:1200,3:7").unwrap();
        assert_eq!(cursor.before(3), Some(Position(7)));
        assert_eq!(cursor.to_string(), "0:1200,3:7");
        for text in ["", "12", "0:", ":1", "0:1,", "a:1", "0:-1"] {
            assert_eq!(PageCursor::parse(text), None, "{text}");
        }
    }
}
