//! A Merkle tree over a growing list of leaves: updating a few leaves recomputes only their paths.

use crate::ids::Digest;

/// Levels of digests, leaves first. A node without a sibling is copied to the next level.
#[derive(Debug, Default, Clone)]
pub struct MerkleTree {
    levels: Vec<Vec<Digest>>,
}

impl MerkleTree {
    /// Sets leaf `index`, which is at most one beyond the last. The root is valid again after the
    /// next [`MerkleTree::update`].
    pub fn set(&mut self, index: usize, leaf: Digest) {
        put(self.level(0), index, leaf);
    }

    /// Recomputes the paths of the changed leaves, in rising order, up to the root.
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

    /// The root; zeros if there are no leaves.
    pub fn root(&self) -> Digest {
        self.levels.last().and_then(|level| level.first()).copied().unwrap_or(Digest::ZERO)
    }

    fn node(&self, height: usize, parent: usize) -> Option<Digest> {
        let level = self.levels.get(height)?;
        let left = level.get(2 * parent)?;
        Some(match level.get(2 * parent + 1) {
            Some(right) => Digest::of_parts(&[b"\x01", &left.0, &right.0]),
            None => *left,
        })
    }

    fn level(&mut self, height: usize) -> &mut Vec<Digest> {
        if self.levels.len() <= height {
            self.levels.resize_with(height + 1, Vec::new);
        }
        self.levels.get_mut(height).expect("the row was just made long enough")
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
