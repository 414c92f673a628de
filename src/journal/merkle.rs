//! A Merkle tree over a growing list of leaves. If a few leaves change, only the nodes between
//! these leaves and the root are computed again.

use std::collections::BTreeMap;

use crate::ids::Digest;

/// A Merkle tree, stored as the levels of its digests. The leaves are the first level. A node
/// without a sibling is copied to the next level.
#[derive(Debug, Default, Clone)]
pub struct MerkleTree {
    levels: Vec<Vec<Digest>>,
}

impl MerkleTree {
    /// Sets the leaf at `index`. The new leaf must replace an existing leaf, or directly follow the
    /// last leaf. The root is valid again after the next [`MerkleTree::update`].
    pub fn set(&mut self, index: usize, leaf: Digest) {
        put(self.level(0), index, leaf);
    }

    /// Recomputes the paths from the changed leaves up to the root. `changed` contains the indexes
    /// of these leaves in ascending order.
    pub fn update(&mut self, mut changed: Vec<usize>) {
        let mut height = 0;
        while self.levels.get(height).is_some_and(|level| level.len() > 1) {
            changed.iter_mut().for_each(|index| *index /= 2);
            changed.dedup();
            for parent in &changed {
                let Some(node) = self.node(height, *parent) else { continue };
                put(self.level(height + 1), *parent, node);
            }
            height += 1;
        }
    }

    /// Returns the leaves of the Merkle tree, in the order of their indexes.
    pub fn leaves(&self) -> &[Digest] {
        self.levels.first().map_or(&[], Vec::as_slice)
    }

    /// Returns the root; zeros if there are no leaves.
    pub fn root(&self) -> Digest {
        self.levels.last().and_then(|level| level.first()).copied().unwrap_or(Digest::ZERO)
    }

    /// Returns the root that the tree would have with `leaves` set. Does not change the tree.
    /// Computes only the paths of these leaves. New leaves must follow the last leaf of the tree
    /// without a gap.
    pub fn root_with(&self, leaves: BTreeMap<usize, Digest>) -> Digest {
        let set = self.levels.first().map_or(0, Vec::len);
        let beyond = leaves.last_key_value().map_or(0, |(index, _)| index + 1);
        let mut width = set.max(beyond);
        let mut changed = leaves;
        let mut height = 0;
        while width > 1 {
            let level = self.levels.get(height);
            let node = |index: usize| {
                let set = level.and_then(|level| level.get(index));
                changed.get(&index).or(set).copied()
            };
            let parents = changed.keys().filter_map(|index| {
                let parent = index / 2;
                Some((parent, parent_of(node(2 * parent)?, node(2 * parent + 1))))
            });
            changed = parents.collect();
            width = width.div_ceil(2);
            height += 1;
        }

        changed.get(&0).copied().unwrap_or_else(|| self.root())
    }

    fn node(&self, height: usize, parent: usize) -> Option<Digest> {
        let level = self.levels.get(height)?;
        let left = level.get(2 * parent)?;
        Some(parent_of(*left, level.get(2 * parent + 1).copied()))
    }

    fn level(&mut self, height: usize) -> &mut Vec<Digest> {
        if self.levels.len() <= height {
            self.levels.resize_with(height + 1, Vec::new);
        }
        self.levels.get_mut(height).expect("the row was just made long enough")
    }
}

/// Returns the parent of the sibling nodes `left` and `right`. Without `right`, the parent is equal
/// to `left`.
fn parent_of(left: Digest, right: Option<Digest>) -> Digest {
    match right {
        Some(right) => Digest::of_parts(&[b"\x01", &left.0, &right.0]),
        None => left,
    }
}

fn put(level: &mut Vec<Digest>, index: usize, digest: Digest) {
    match level.get_mut(index) {
        Some(slot) => *slot = digest,
        None => level.push(digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(n: usize) -> Digest {
        Digest::of(&n.to_le_bytes())
    }

    #[test]
    fn a_tree_grown_leaf_by_leaf_has_the_root_of_one_built_at_once() {
        let mut grown = MerkleTree::default();
        for n in 0..100 {
            grown.set(n, leaf(n));
            grown.update(vec![n]);
            let mut whole = MerkleTree::default();
            (0..=n).for_each(|i| whole.set(i, leaf(i)));
            whole.update((0..=n).collect());
            assert_eq!(grown.root(), whole.root(), "{n} leaves");
        }
    }

    #[test]
    fn the_root_with_other_leaves_is_that_of_the_tree_that_has_them() {
        for set in 0..20 {
            let mut tree = MerkleTree::default();
            (0..set).for_each(|n| tree.set(n, leaf(n)));
            tree.update((0..set).collect());
            let root = tree.root();
            for (changed, added) in [(0, 0), (0, 1), (1, 0), (1, 1), (3, 2), (2, 17)] {
                let indices = (0..set).step_by(3).take(changed).chain(set..set + added);
                let leaves = indices.map(|n| (n, leaf(1000 + n))).collect::<BTreeMap<_, _>>();
                let mut whole = tree.clone();
                leaves.iter().for_each(|(n, leaf)| whole.set(*n, *leaf));
                whole.update(leaves.keys().copied().collect());
                assert_eq!(tree.root_with(leaves), whole.root(), "{set}: {changed} and {added}");
                assert_eq!(tree.root(), root);
            }
        }
    }

    #[test]
    fn any_changed_leaf_changes_the_root_and_changing_it_back_restores_it() {
        let mut tree = MerkleTree::default();
        (0..37).for_each(|n| tree.set(n, leaf(n)));
        tree.update((0..37).collect());
        let root = tree.root();

        for n in 0..37 {
            tree.set(n, leaf(1000));
            tree.update(vec![n]);
            assert_ne!(tree.root(), root, "leaf {n}");
            tree.set(n, leaf(n));
            tree.update(vec![n]);
            assert_eq!(tree.root(), root, "leaf {n}");
        }
    }
}
