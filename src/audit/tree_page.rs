//! A page of the list of thread trees, merged from the journals of all partitions.

use std::collections::BTreeMap;

use crate::ids::Position;
use crate::index::ListedTree;

/// For each partition, the position before which a page of the list begins. A partition without a
/// position begins with its newest tree. The text form is `0:1200,1:800`.
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

    /// Returns the position before which the trees of `partition` begin; `None` if the page begins
    /// with the newest tree.
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

/// A tree on a page, with the cursor of the page that begins after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagedTree {
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
    /// Merges the trees that each partition has from `cursor` on, newest first. Keeps at most
    /// `limit` trees. Each partition must have contributed `limit` + 1 trees, unless it has fewer:
    /// the additional tree shows that older trees follow.
    pub fn merge(
        partitions: impl IntoIterator<Item = (u32, Vec<ListedTree>)>,
        mut cursor: PageCursor,
        limit: usize,
    ) -> Self {
        let partitions = partitions.into_iter();
        let mut trees: Vec<(u32, ListedTree)> = partitions
            .flat_map(|(partition, trees)| trees.into_iter().map(move |tree| (partition, tree)))
            .collect();
        // The sort is stable, so the trees of each partition stay in the order of their positions.
        trees.sort_by_key(|(_, tree)| std::cmp::Reverse(tree.updated));
        let has_more = trees.len() > limit;
        trees.truncate(limit);

        let trees = trees.into_iter().map(|(partition, tree)| {
            cursor.0.insert(partition, tree.head);
            PagedTree { tree, next: cursor.clone() }
        });
        Self { trees: trees.collect(), has_more }
    }

    /// Returns the cursor of the next page; `None` if this page is the last one.
    pub fn next(&self) -> Option<&PageCursor> {
        self.trees.last().filter(|_| self.has_more).map(|paged| &paged.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::envelope::Money;
    use crate::index::HoldCount;

    /// A tree whose last record is at `head`, with the time `updated`.
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
            opened: Time(updated),
            updated: Time(updated),
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

    #[test]
    fn pages_of_two_partitions_hold_every_tree_once() {
        let busy = (0..9).rev().map(|n| tree(900_000 + n, 10 * i64::try_from(n).unwrap()));
        let quiet = [tree(4_000, 65), tree(3_950, 62), tree(12, 5)];
        let partitions = [busy.collect(), quiet.to_vec()];
        for limit in 1..=13 {
            let mut times = Vec::new();
            let mut next = Some(PageCursor::default());
            while let Some(cursor) = next {
                let page = page(&partitions, &cursor, limit);
                times.extend(page.trees.iter().map(|paged| paged.tree.updated.0));
                next = page.next().cloned();
            }
            assert_eq!(times, [80, 70, 65, 62, 60, 50, 40, 30, 20, 10, 5, 0], "{limit}");
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
